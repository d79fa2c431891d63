"""Scoring recorded replies of paired-choice tasks without a model."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.data.samples import Sample
from medtasks.errors import RepliesError
from medtasks.extract.answer import Answer
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.replies import RecordedReply
from medtasks.harness.sample_counts import SampleCounts, counts_of_reasons
from medtasks.harness.task_files import TaskFile
from medtasks.hooks import pairs
from medtasks.hooks.metric_list import answered, judged
from medtasks.hooks.reading import cut_record
from medtasks.judges.fence import addresses_judge
from medtasks.metrics.pairs import Counts, count, standard_errors

METRICS = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")
# GD and PS replies recorded as letters are read as the reference reads them: by the parser of MC.
_LETTER_RULES = {"reference": "mediconfusion_reference", "robust": "robust_choice"}
Reader = Callable[[Mapping[str, Any], RecordedReply], Answer]


@dataclass(frozen=True)
class RuleScore:
    """Scores under one answer rule.

    Attributes:
        rule: Name and version of the rule.
        table: Counts by category, ``"total"`` last.
        errors: Standard errors of the totals, as fractions.
        reasons: How many replies were valid, ambiguous, refused, ...
        possible_injection: How many replies seem to address the judge; None where none reads them.
    """

    rule: str
    table: Mapping[str, Counts]
    errors: Mapping[str, float]
    reasons: Mapping[str, int]
    possible_injection: int | None = None

    @property
    def counts(self) -> SampleCounts:
        """How many samples are behind the scores, and how many are in none."""
        return counts_of_reasons(self.reasons)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; NaN becomes None."""
        return {
            "rule": self.rule,
            "standard_errors": {name: _finite(value) for name, value in self.errors.items()},
            "reasons": dict(self.reasons),
            **({} if self.possible_injection is None else {"possible_injection": self.possible_injection}),
            "categories": {
                name: {**{metric: _finite(getattr(counts, metric)) for metric in METRICS}, **counts.as_dict()}
                for name, counts in self.table.items()
            },
        }


def score_replies(
    task: TaskFile, documents: Sequence[Mapping[str, Any]], replies: Mapping[str, RecordedReply]
) -> dict[str, RuleScore]:
    """Score replies under every rule of a task.

    Args:
        task: A paired-choice task.
        documents: Its documents.
        replies: Replies by document id. Documents without one are left out; a pair that lacks one is incomplete.

    Returns:
        Scores by filter name (``reference``, ``robust``).

    Raises:
        RepliesError: The replies are of the wrong kind for the task.
        JudgeNotConfigured: The task needs a judge and none is configured.
    """
    kinds = {reply.losses is not None for reply in replies.values()}
    if len(kinds) > 1:
        raise RepliesError("some replies are texts and some are log-likelihoods; keep one run per file")
    readers = _readers(task, likelihoods=kinds.pop())
    asked = [document for document in documents if document["doc_id"] in replies]
    scores = {name: _score(rule, read, asked, replies) for name, (rule, read) in readers.items()}
    if task.rules:
        return scores
    injections = sum(addresses_judge(replies[document["doc_id"]].text or "") for document in asked)
    return {name: replace(score, possible_injection=injections) for name, score in scores.items()}


def _score(
    rule: str, read: Reader, documents: Sequence[Mapping[str, Any]], replies: Mapping[str, RecordedReply]
) -> RuleScore:
    records = [_record(document, read, replies[document["doc_id"]], rule) for document in documents]
    answers = pairs.answers(judged(answered(records)))
    reasons = Counter(record["reason"] for record in records)
    return RuleScore(rule, count(answers), standard_errors(answers), dict(reasons.most_common()))


def _record(document: Mapping[str, Any], read: Reader, reply: RecordedReply, rule: str) -> pairs.Record:
    entry = pairs.record(document, read(document, reply), rule)
    found: pairs.Record = cut_record(entry) if reply.cut else entry
    return found


def _readers(task: TaskFile, *, likelihoods: bool) -> dict[str, tuple[str, Reader]]:
    if task.kind == "group":
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    if likelihoods and task.output_type != "multiple_choice":
        raise RepliesError(
            f"the replies are log-likelihoods, but '{task.name}' reads texts; is this another task's file?"
        )
    if not task.rules:
        if task.dataset is None:
            raise RepliesError(f"'{task.name}' is read by a judge, which is asked about prepared datasets only")
        published = {"reference": ("gap_of_3_reference v1", _judge_reader(task.dataset, fenced=False))}
        return published | {
            name: ("gap_of_3_fenced v1", _judge_reader(task.dataset, fenced=True)) for name in task.fenced
        }
    if likelihoods:
        return {name: _likelihood_reader(rule) for name, rule in task.rules.items()}
    rules = _LETTER_RULES if task.output_type == "multiple_choice" else task.rules
    return {name: _text_reader(rule) for name, rule in rules.items()}


def _text_reader(name: str) -> tuple[str, Reader]:
    rule = extractor_of(name, Kind.CHOICE)
    return f"{rule.name} v{rule.version}", lambda document, reply: rule.extract(reply.text, Sample(document))


def _likelihood_reader(name: str) -> tuple[str, Reader]:
    rule = extractor_of(name, Kind.LIKELIHOODS)
    return f"{rule.name} v{rule.version}", lambda document, reply: rule.extract(
        list(reply.losses or ()), Sample(document)
    )


def _judge_reader(dataset: str, *, fenced: bool) -> Reader:
    from medtasks.judges.client import judge_for
    from medtasks.judges.mediconfusion import judge_reply

    judge = judge_for(dataset, dataset_info(dataset).access)
    return lambda document, reply: judge_reply(
        judge, document["question"], document["options"], reply.text or "", fenced=fenced
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
