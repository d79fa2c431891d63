"""Two runs of the same tasks side by side: two backends, two precisions, or two versions of a model or a library."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from medtasks.audit.comparing import chosen_metrics, compared_values, overlap_of, values_of_both
from medtasks.audit.parity.agreement import (
    AnswerAgreement,
    Flip,
    LikelihoodAgreement,
    Pairs,
    TextAgreement,
    answer_agreement,
    likelihood_agreement,
    text_agreement,
)
from medtasks.audit.parity.records import (
    SAMPLING,
    Record,
    check_same_prompts,
    check_same_task,
    check_same_templates,
    differences,
    draws,
)
from medtasks.audit.parity.verdict import Failures, MetricParity, TaskParity, Verdict, overall
from medtasks.audit.scoring import Documents, Replies
from medtasks.data.privacy import hidden_id
from medtasks.errors import MedTasksError, RepliesError
from medtasks.families.family import Reply
from medtasks.harness.documents import is_private_task, task_documents, task_provenance
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import task_file
from medtasks.metrics.metric import AnyMetric, Role
from medtasks.runs.replies import read_replies
from medtasks.runs.sources import (
    Source,
    check_fingerprints,
    check_is_ours,
    nothing_in_common,
    replies_to,
    samples_by_task,
)
from medtasks.stats.equivalence import equivalence
from medtasks.stats.paired import holm

FIRST, SECOND = "A", "B"
_EXAMPLES = 5


@dataclass(frozen=True)
class Parity:
    """All tasks of a call."""

    tasks: Mapping[str, TaskParity]
    not_compared: Mapping[str, str]  # why a task of both runs was not compared, by name

    @property
    def verdict(self) -> Verdict:
        """The verdict on all tasks that were compared."""
        return overall(list(self.tasks.values()))


def parity(
    first: Source, second: Source, margin: float, metrics: Sequence[str] = (), task: str | None = None
) -> Parity:
    """Compare two runs on every task that both have, sanity variants too, or on one ``task``.

    Scores are compared as ``medtasks compare`` does, by default in its metrics. A task that the runs asked differently
    is refused. RepliesError: there is no task to compare, or all are refused; of one task, its own cause.
    """
    if task is not None:
        return Parity(_corrected({task: _task_parity(task_file(task), (first, second), margin, metrics)}), {})
    had = [samples_by_task(source) for source in (first, second)]
    found: dict[str, TaskParity] = {}
    causes: dict[str, str] = {}
    for name in sorted(had[0].keys() & had[1].keys()):
        try:
            check_is_ours(name)
            sides = [Source(one[name]) for one in had]
            found[name] = _task_parity(task_file(name), sides, margin, metrics)
        except MedTasksError as error:
            causes[name] = str(error)
    if not found:
        raise nothing_in_common(causes)
    return Parity(_corrected(found), causes)


def _corrected(found: Mapping[str, TaskParity]) -> dict[str, TaskParity]:
    """Return the same with p-values corrected for all tests."""
    p_values = iter(holm([one.paired.p for task in found.values() for one in task.metrics]))
    return {
        name: replace(task, metrics=[replace(one, p_holm=next(p_values)) for one in task.metrics])
        for name, task in found.items()
    }


def _task_parity(task: TaskFile, sources: Sequence[Source], margin: float, names: Sequence[str]) -> TaskParity:
    if task.only_harness:
        raise RepliesError(f"'{task.name}' {task.only_harness}")
    documents = task_documents(task)
    data = task_provenance(task, documents)
    files = [replies_to(task.name, source) for source in sources]
    records = [Record.of(file) for file in files]
    check_same_task(records[0], records[1], task.name)
    check_fingerprints(files, task.name, data["fingerprint"])
    runs = {name: read_replies(file, documents) for name, file in zip((FIRST, SECOND), files, strict=True)}
    private = is_private_task(task, documents)
    warnings = _warnings(task, documents, files, records, private)
    pairs, failed = _pairs(runs[FIRST], runs[SECOND])
    replied = {name: {doc_id: reply for doc_id, reply in run.items() if not reply.failed} for name, run in runs.items()}
    texts, likelihoods = text_agreement(pairs), likelihood_agreement(pairs)
    tested, answers, rules, skipped = _tested(task, documents, replied, chosen_metrics(task, names), margin)
    return TaskParity(
        task=task.name,
        overlap=overlap_of(runs[FIRST], runs[SECOND], len(documents)),
        failed=failed,
        margin=margin,
        texts=texts and replace(texts, differing=_shown(texts.differing, private)),
        likelihoods=likelihoods and replace(likelihoods, flips=_flips(likelihoods, private)),
        answers={name: replace(one, differing=_shown(one.differing, private)) for name, one in answers.items()},
        rules=rules,
        metrics=tested,
        not_compared=skipped,
        examples=_shown(_examples(texts, likelihoods, answers), private),
        differences=differences(records[0], records[1], task.name),
        without_manifest=[
            name for name, record in zip((FIRST, SECOND), records, strict=True) if record.manifest is None
        ],
        data=data,
        warnings=warnings,
    )


def _pairs(first: Replies, second: Replies) -> tuple[Pairs, Failures]:
    """Return the replies of both runs by document, in the order of the first, and what failed."""
    both: dict[str, tuple[Reply, Reply]] = {name: (first[name], second[name]) for name in first if name in second}
    counts = [sum((a.failed, b.failed) == kind for a, b in both.values()) for kind in _FAILED]
    return {name: two for name, two in both.items() if not (two[0].failed or two[1].failed)}, Failures(*counts)


_FAILED = ((True, False), (False, True), (True, True))


def _tested(
    task: TaskFile, documents: Documents, runs: Mapping[str, Replies], metrics: Sequence[AnyMetric], margin: float
) -> tuple[list[MetricParity], dict[str, AnswerAgreement], Mapping[str, str], dict[tuple[str, str], str]]:
    """Return the tests of each metric, and what each rule read, by name of the row."""
    before, after = values_of_both(task, documents, runs, (FIRST, SECOND), metrics)
    skipped = {**before.skipped, **after.skipped}
    found = []
    main = {metric.name for metric in metrics if metric.role is Role.MAIN}
    for key in [key for key in before.values if key not in skipped]:
        one, other = before.values[key], after.values[key]
        paired = compared_values(one, other)
        if paired is None:
            skipped[key] = "has no sample with a value in both runs"
            continue
        shared = sorted(one.keys() & other.keys())
        first, second = ([values[sample][1] for sample in shared] for values in (one, other))
        tested = equivalence(first, second, [one[sample][0] for sample in shared], margin)
        share = next(one for one in metrics if one.name == key[1]).is_share(paired.first, paired.second)
        found.append(MetricParity(*key, main=key[1] in main, paired=paired, equivalence=tested, share=share))
    if not any(one.main for one in found):  # none of them is a mean over samples; what stands beside them decides
        found = [replace(one, main=True) for one in found]
    agreements = {row: answer_agreement(scores, after.scores[row]) for row, scores in before.scores.items()}
    return found, {row: one for row, one in agreements.items() if one is not None}, before.rules, skipped


def _warnings(
    task: TaskFile, documents: Documents, files: Sequence[Path], records: Sequence[Record], private: bool
) -> tuple[str, ...]:
    """Return what a reader of the verdict has to know; RepliesError: the prompts differ."""
    first, second = records
    said, recorded = check_same_prompts(files[0], files[1], documents, lambda doc_id: _shown([doc_id], private)[0])
    if not recorded:
        check_same_templates(first, second, task.name)
    warnings = [said] if said else []
    other = [one.name for one in differences(first, second, task.name) if one.kind == SAMPLING]
    if other and not task.compares_likelihoods:
        warnings.append(f"the runs drew replies with different settings ({', '.join(other)})")
    if any(draws(record, task.name) for record in records) and not task.compares_likelihoods:
        warnings.append("replies are drawn at random, so that two runs of one backend differ, too; use temperature 0")
    return tuple(warnings)


def _examples(
    texts: TextAgreement | None, likelihoods: LikelihoodAgreement | None, answers: Mapping[str, AnswerAgreement]
) -> list[str]:
    """Return ids of samples that differ most: flips at the widest margins, other answers, the earliest to part."""
    flipped = [] if likelihoods is None else [flip.sample for flip in likelihoods.flips]
    answered = [doc_id for one in answers.values() for doc_id in one.differing]
    parted = [] if texts is None else texts.differing
    return list(dict.fromkeys([*flipped, *answered, *parted]))[:_EXAMPLES]


def _shown(ids: Sequence[str], private: bool) -> tuple[str, ...]:
    return tuple(hidden_id("doc", one) if private else one for one in ids)


def _flips(found: LikelihoodAgreement, private: bool) -> tuple[Flip, ...]:
    return tuple(replace(flip, sample=_shown([flip.sample], private)[0]) for flip in found.flips)
