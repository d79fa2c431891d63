"""Scoring recorded replies of any task without a model, through the task's own hooks."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medtasks.audit.breakdowns import GroupScore, WrongAnswer, by_group, count_kinds, wrong_answers
from medtasks.errors import RepliesError
from medtasks.extract.failure import cut_reply
from medtasks.extract.registry import extractor_of
from medtasks.harness.replies import RecordedReply
from medtasks.harness.sample_counts import SampleCounts, counts_of, counts_of_reasons
from medtasks.harness.saved_replies import nothing_saved
from medtasks.harness.task_files import TaskFile
from medtasks.hooks import reports
from medtasks.hooks.labelling import tagged_replies
from medtasks.hooks.metric_list import COUNTS
from medtasks.hooks.reading import FENCED
from medtasks.metrics.report_metrics import keys_of, metric_info

_ERROR = "_stderr"


@dataclass(frozen=True)
class MetricScores:
    """Scores under one answer rule.

    Attributes:
        rule: Name and version of the rule.
        values: Metric values by name, as the harness would show them; NaN where a metric is not defined.
        errors: Standard errors by metric, where the task has them.
        reasons: How many replies were valid, ambiguous, refused, ...
        failures: By metric of reports, why it failed; its values are NaN.
        settings: By metric of reports, what its values depend on.
        groups: Accuracy by column and value, for the columns that the task names.
        wrong: Wrong answers, where the task's records tell.
    """

    rule: str
    values: Mapping[str, float]
    errors: Mapping[str, float]
    reasons: Mapping[str, int]
    failures: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, GroupScore]] = field(default_factory=dict)
    wrong: Sequence[WrongAnswer] = ()

    @property
    def counts(self) -> SampleCounts:
        """How many samples are behind the values, and how many are in none."""
        return counts_of({f"{name},": value for name, value in self.values.items()}) or counts_of_reasons(self.reasons)

    @property
    def possible_injection(self) -> int | None:
        """How many replies seem to address the judge; None where none reads them."""
        found = self.values.get("possible_injection")
        return None if found is None else int(found)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values; NaN becomes None."""
        return {
            "rule": self.rule,
            "metrics": {name: _finite(value) for name, value in self.values.items()},
            "standard_errors": {name: _finite(value) for name, value in self.errors.items()},
            "reasons": dict(self.reasons),
            **({"settings": {name: dict(found) for name, found in self.settings.items()}} if self.settings else {}),
            **({"failures": dict(self.failures)} if self.failures else {}),
            **({"groups": self._groups()} if self.groups else {}),
            **({"wrong_answers": count_kinds(self.wrong)} if self.wrong else {}),
        }

    def _groups(self) -> dict[str, Any]:
        return {
            column: {
                value: {
                    "questions": score.questions,
                    "accuracy": _finite(score.accuracy),
                    "standard_error": _finite(score.error),
                }
                for value, score in found.items()
            }
            for column, found in self.groups.items()
        }


def score_metrics(
    task: TaskFile,
    documents: Sequence[Mapping[str, Any]],
    replies: Mapping[str, RecordedReply],
    report_metrics: Sequence[str] = (),
) -> dict[str, MetricScores]:
    """Score replies under every rule of a task.

    Args:
        task: A task, no group.
        documents: Its documents; those without a reply are left out.
        replies: Replies by document id.
        report_metrics: For a task that compares reports, metrics besides its own: names of
            :data:`medtasks.metrics.report_metrics.REPORT_METRICS`, or keys of their scores.

    Returns:
        Scores by filter name (``reference``, ``robust``).

    Raises:
        RepliesError: The task is a group, or the replies are likelihoods and it reads texts, or the other way round; or
            ``report_metrics`` are asked of a task without reports.
        UnknownName: There is no such metric.
    """
    check_kinds(task, replies)
    if task.process_results is None or task.metric_list is None:
        raise RepliesError(f"'{task.name}' is a group; score its member tasks one by one")
    process, metrics = task.process_results.resolve(), task.metric_list.resolve()
    compares_reports = process in (reports.process_results, reports.multimedeval_process_results)
    if report_metrics and not compares_reports:
        raise RepliesError(
            f"'{task.name}' compares no reports, so that it has no metrics but its own; leave out --metric"
        )
    asked = [document for document in documents if document["doc_id"] in replies]
    scores = {}
    for name in task.rules:
        samples = samples_of(task, name, asked, [replies[doc["doc_id"]] for doc in asked])
        first = metrics[0]["metric"]
        reasons = dict(Counter(sample[first]["reason"] for sample in samples).most_common())
        found = (
            _of_reports([sample[first] for sample in samples], metrics, report_metrics)
            if compares_reports
            else _of_answers(samples, metrics)
        )
        scores[name] = replace(
            found,
            rule=versioned_rule(task, name),
            reasons=reasons,
            groups=by_group(asked, samples, metrics, task.breakdown),
            wrong=wrong_answers(asked, samples, [replies[doc["doc_id"]].text for doc in asked]),
        )
    return scores


def check_kinds(task: TaskFile, replies: Mapping[str, RecordedReply]) -> None:
    """Refuse log-likelihoods for a task that reads texts, and texts for one that compares likelihoods.

    Raises:
        RepliesError: Some replies are of the other kind.
    """
    wanted = task.output_type == "multiple_choice"
    if any((reply.losses is not None) != wanted for reply in replies.values()):
        kinds = ("log-likelihoods", "texts") if wanted else ("texts", "log-likelihoods")
        raise RepliesError(f"'{task.name}' reads {kinds[0]}, and some replies are {kinds[1]}; is this its own file?")


def versioned_rule(task: TaskFile, name: str) -> str:
    """Return name and version of the rule that a task's filter reads with."""
    rule = task.rules[name]
    return f"{rule}{FENCED if name in task.fenced else ''} v{extractor_of(rule).version}"


def samples_of(
    task: TaskFile, name: str, documents: Sequence[Mapping[str, Any]], replies: Sequence[RecordedReply]
) -> list[Mapping[str, Any]]:
    """Return what the task's hook makes of recorded replies under one filter; nothing is saved again.

    Args:
        task: A task, no group.
        name: Name of the filter.
        documents: Shape (samples,).
        replies: Shape (samples,).

    Raises:
        RepliesError: The task is a group.
    """
    if task.process_results is None:
        raise RepliesError(f"'{task.name}' is a group; take its member tasks one by one")
    process = task.process_results.resolve()
    with nothing_saved():
        results = _results(task, name, replies)
        return [process(document, given) for document, given in zip(documents, results, strict=True)]


def _of_answers(samples: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> MetricScores:
    computed = {
        entry["metric"]: entry["aggregation"]([sample[entry["metric"]] for sample in samples]) for entry in metrics
    }
    return MetricScores(
        "",
        {metric: value for metric, value in computed.items() if not metric.endswith(_ERROR)},
        {metric.removesuffix(_ERROR): value for metric, value in computed.items() if metric.endswith(_ERROR)},
        {},
    )


def _of_reports(
    records: Sequence[dict[str, Any]], metrics: Sequence[Mapping[str, Any]], further: Sequence[str]
) -> MetricScores:
    counts = {one["metric"]: one["aggregation"](records) for one in metrics if one["metric"] in COUNTS}
    own = [name for one in metrics if not (name := one["metric"]).endswith(_ERROR) and name not in COUNTS]
    panel = dict.fromkeys([*reports.metrics_for(own), *(metric_info(name).name for name in further)])
    keys = dict.fromkeys([*own, *(key for name in further for key in keys_of(name))])
    found = reports.score_records(records, tuple(panel))
    return MetricScores(
        "",
        {**{key: found.values[key] for key in keys}, **counts},
        {key: found.errors[key] for key in keys},
        {},
        found.failures,
        found.settings,
    )


def _results(task: TaskFile, name: str, replies: Sequence[RecordedReply]) -> list[list[Any]]:
    """Return what the harness would hand to ``process_results`` for each reply; all are texts, or none is."""
    if all(reply.losses is None for reply in replies):
        recorded = [cut_reply(reply.text or "") if reply.cut else reply.text for reply in replies]
        form, fenced = task.option_forms.get(name), name in task.fenced
        return [[text] for text in tagged_replies(recorded, task.rules[name], form, fenced=fenced)]
    rule = task.rules[name]
    return [[{"rule": rule, "loss": loss, "is_greedy": False} for loss in reply.losses or ()] for reply in replies]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
