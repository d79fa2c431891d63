"""Record of one task of a run: its questions and replies, and its scores next to those that follow from the replies.

Scores are computed again from the replies, or from the scores that a run recorded. What would load a model, ask a judge
or write a file is never computed again. A samples file is read as far as it can be read: a report says what is missing,
and does not stop.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medtasks.audit.error_classes import count_kinds, wrong_answers
from medtasks.audit.groups import with_interval
from medtasks.audit.report.contents import RuleScores, Score
from medtasks.audit.scoring import Documents, Replies, count_reasons, rows_of, rule_scores
from medtasks.data.catalogue import Access
from medtasks.errors import MedTasksError, UnknownName
from medtasks.extract.extractor_registry import AnswerKind, extractor_of
from medtasks.families.family import FENCED, Reply
from medtasks.families.text_metrics import text_values
from medtasks.metrics.metric import CorpusMetric, Estimate, undeclared
from medtasks.metrics.metric import Score as SampleScore
from medtasks.metrics.report_metrics import metric_info
from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.replies import Samples, read_samples
from medtasks.runs.run import NO_SAMPLES, RUN_AGAIN, TaskRun
from medtasks.tasks.documents import access_of_task, is_private_task, task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import included_option

NOT_DEFINED = "It is not defined for these replies: none of them counts for it."
NOT_COMPUTED = "It was not computed in the run."
_ERROR = "_stderr"
_BYPASS = "bypass"  # what the harness writes with --predict_only
_SAME = 1e-9


@dataclass(frozen=True)
class Computed:
    """Scores of one rule, computed from the replies."""

    samples: Mapping[str, SampleScore]  # what the task's family made of each reply, by document id
    report: RuleScores  # what follows from them, without the rule's name in the task and what it does


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to a task whose scores follow from replies alone, by name of the row."""
    computed = {}
    for name, (rule, by_id) in scores_by_id(task, documents, replies).items():
        scores = list(by_id.values())
        wrong = () if task.family.paired else wrong_answers(task, documents, scores, replies)
        report = rule_scores(task, rule, scores, documents)
        computed[name] = Computed(by_id, replace(report, wrong_kinds=count_kinds(wrong)))
    return computed


def scores_by_id(
    task: TaskFile, documents: Documents, replies: Replies
) -> dict[str, tuple[str, dict[str, SampleScore]]]:
    """Return name and version of the rule, and scores by id, by name of the row; all documents have a reply."""
    ids = [str(document["doc_id"]) for document in documents]
    rows = rows_of(task, documents, replies)
    return {name: (rule, dict(zip(ids, scores, strict=True))) for name, (rule, scores) in rows.items()}


def without_metrics(rule: str, by_id: Mapping[str, SampleScore]) -> Computed:
    """Return how many replies were ok, ambiguous, refused, ..., the most frequent first, and nothing else."""
    return Computed(by_id, RuleScores("", rule, "", (), count_reasons(by_id.values())))


def of_scores(task: TaskFile, rule: str, by_id: Mapping[str, SampleScore], columns: Documents) -> Computed:
    """Return the results of :func:`~medtasks.audit.scoring.rule_scores` with the samples' scores by document id."""
    return Computed(by_id, rule_scores(task, rule, list(by_id.values()), columns))


def recorded_values(task: TaskRun) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the numbers of a row of the results file; what the harness itself adds to a metric is left out."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for key, value in task.scores.items():
        metric, _, name = key.rpartition(",")
        if not metric or _ERROR in metric or metric == _BYPASS or not _is_number(value):
            continue
        error: Any = task.scores.get(f"{metric}{_ERROR},{name}")
        found.setdefault(name, {})[metric] = (value, float(error) if _is_number(error) else math.nan)
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rule_reports(
    recorded: TaskRun, task: TaskFile | None, computed: Mapping[str, Computed]
) -> tuple[tuple[RuleScores, ...], list[str]]:
    """Return the scores of a task (None: it is not ours) under each of its rules, and sentences on what does not agree.

    Recorded values count. Where they differ from those computed from the recorded replies, a sentence says so.
    """
    values = recorded_values(recorded)
    notes: list[str] = []
    reports = []
    for name in dict.fromkeys([*(task.rows if task else ()), *values, *computed]):
        if name not in values and name not in computed:
            continue
        rule, describes = _rule(recorded, task, name)
        again = (computed.get(name) or without_metrics(rule, {})).report
        row = values.get(name, {})
        scores = tuple(_scores(recorded, task, row, again))
        known = again.failures
        undefined = {
            one.metric: known.get(one.metric) or (NOT_DEFINED if task is None or task.is_computed else NOT_COMPUTED)
            for one in scores
            if math.isnan(one.value)
        }
        notes += [
            f"{recorded.name}, {name}, {one.metric}: the run recorded {_number(*row[one.metric])}, its recorded "
            f"replies give {_number(one.value, one.error)} under today's rule; the recorded score is shown."
            for one in again.scores
            if one.metric in row and not _agrees(row[one.metric], one)
        ]
        reports.append(replace(again, name=name, describes=describes, scores=scores, failures=undefined))
    return tuple(reports), notes


def _rule(recorded: TaskRun, task: TaskFile | None, name: str) -> tuple[str, str]:
    """Return the rule that the run names, whose version it does not tell, else the task's; and what it does."""
    row = task.rows.get(name) if task else None
    own = row and row.extractor
    rule = recorded.rules.get(name) or own or ""
    shown = task.versioned_rule(row) if task and row and own and not recorded.rules else rule
    try:
        return shown, extractor_of(rule).summary
    except UnknownName:
        return shown, ""


def _scores(
    recorded: TaskRun, task: TaskFile | None, values: Mapping[str, tuple[float, float]], again: RuleScores
) -> Iterator[Score]:
    """Yield the recorded values; one that the replies confirm has an interval that knows its number of units."""
    computed = {one.metric: one for one in again.scores}
    own = {one.name: one for one in task.metrics} if task else {}
    for metric in dict.fromkeys([*own, *values, *computed]):
        known = computed.get(metric)
        if known is not None and (metric not in values or _agrees(values[metric], known)):
            yield known
        elif metric in values:
            declared = own.get(metric) or undeclared(metric, recorded.higher_is_better.get(metric))
            yield with_interval(declared, Estimate(*values[metric]))


def _agrees(recorded: tuple[float, float], computed: Score) -> bool:
    value, error = recorded
    return _same(value, computed.value) and (
        computed.by_construction or math.isnan(error) or _same(error, computed.error)
    )


def _same(first: float, second: float) -> bool:
    return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=_SAME, abs_tol=_SAME)


def _number(value: float, error: float) -> str:
    return f"{value:.12g}" if math.isnan(error) else f"{value:.12g} (standard error {error:.12g})"


Document = Mapping[str, Any]

_NEEDS = "its metrics need a judge, a labeler or another model"
_OF_RECORDS = (KeyError, TypeError, ValueError, IndexError, AttributeError)  # of records that another version wrote


@dataclass
class TaskReading:
    """What is known of one task of ours."""

    recorded: TaskRun
    task: TaskFile
    withheld: bool  # whether text and pictures may not be shown
    # which data are here, see medtasks.tasks.documents.task_provenance; empty if they are not
    data: Mapping[str, Any] = field(default_factory=dict)
    # all documents, in order; empty where they are not at hand or other than the run's
    documents: Sequence[Document] = ()
    samples: Samples = field(default_factory=Samples)  # what its samples file holds
    # scores that follow from the replies, by filter name
    computed: dict[str, Computed] = field(default_factory=dict)
    # value of single samples where a metric is neither right nor wrong, by filter name and document id
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)  # what is lacking and how to get it, one sentence each

    @property
    def answered(self) -> list[Document]:
        """The documents that were answered, in order."""
        return [one for one in self.documents if one["doc_id"] in self.samples.answered]


def read_task(recorded: TaskRun, task: TaskFile) -> TaskReading:
    """Read what a run recorded of one of our tasks; what cannot be read is said in :attr:`TaskReading.missing`."""
    found = TaskReading(recorded, task, withheld=is_private_task(task))
    _find_documents(found)
    if not found.documents:
        return found
    found.withheld = is_private_task(task, found.documents)
    if recorded.samples is None:
        found.missing.append(NO_SAMPLES)
        return found
    _read_samples(found)
    _compute(found)
    if found.computed and not (task.is_computed or recorded_values(recorded)):
        found.missing.append(_later(found, _NEEDS))
    return found


def given_replies(task: TaskFile, documents: Sequence[Document], replies: Mapping[str, Reply]) -> TaskReading:
    """Return the same for recorded replies without a run, at least one; MedTasksError: they do not fit the task."""
    withheld = is_private_task(task, documents)
    samples = Samples(replies=dict(replies), answered=dict.fromkeys(replies, ""))
    data = task_provenance(task, documents)
    found = TaskReading(TaskRun(task.name), task, withheld, data, documents, samples)
    if _is_read(task):
        _read_replies(found)
    if withheld:  # values of columns that no record holds are text of the dataset
        for name, one in found.computed.items():
            groups = _aggregated(task, one.report.rule, (), one.samples).report.groups
            found.computed[name] = replace(one, report=replace(one.report, groups=groups))
    if not task.is_computed:
        found.missing.append(f"Scores are not computed here, because {_NEEDS}; use 'medtasks score' on these replies.")
    return found


def _find_documents(found: TaskReading) -> None:
    """Look up the dataset, and keep its documents only if the run was made on the same data."""
    task = found.task
    try:
        documents = [] if task.dataset else task_documents(task)
        found.data = task_provenance(task, documents)
        recorded, here = found.recorded.data.get("fingerprint"), found.data["fingerprint"]
        if task.dataset and recorded not in (None, here):
            found.missing.append(
                f"The run was made on data with fingerprint {recorded}, but the prepared '{task.dataset}' has {here}, "
                f"so that replies cannot be matched to questions; point MEDTASKS_HOME to the data of that run."
            )
            return
        found.documents = documents or task_documents(task)
    except MedTasksError as error:
        found.missing.append(f"Replies cannot be matched to questions: {str(error).rstrip('.')}.")


def _read_samples(found: TaskReading) -> None:
    path = found.recorded.samples
    assert path is not None
    keep = not found.task.is_computed or access_of_task(found.task) == Access.CREDENTIALED or found.withheld
    likelihoods = found.task.compares_likelihoods
    try:
        found.samples = read_samples(
            path, found.documents, likelihoods=likelihoods, keep_scores=keep, note=found.missing.append
        )
    except MedTasksError as error:
        found.missing.append(f"Replies cannot be matched to questions: {str(error).rstrip('.')}.")
        return
    if not found.samples.answered:
        found.missing.append(f"{path} holds no replies; {RUN_AGAIN}.")


def _compute(found: TaskReading) -> None:
    """Compute what follows from the replies, or from the run's own records where these hold no reply."""
    if not found.samples.answered:
        return
    try:
        if found.withheld or not (found.samples.replies and _is_read(found.task)):
            found.computed = _from_scores(found)
            if not (found.withheld or found.samples.replies):
                found.missing.append(
                    f"The run withheld prompts and replies; those that were saved are shown by: medtasks report "
                    f"{replies_folder(found.task.name)}/FILE --task {found.task.name}{included_option(found.task.name)}"
                )
        else:
            _read_replies(found)
    except (MedTasksError, *_OF_RECORDS) as error:
        cause = str(error).rstrip(".") if isinstance(error, MedTasksError) else type(error).__name__
        found.missing.append(f"Its samples cannot be read by this version of medtasks: {cause}.")
        return
    if not found.computed:
        found.missing.append(_later(found, "the samples file holds neither replies nor what was read from them"))


def _is_read(task: TaskFile) -> bool:
    """Return whether replies can be read without a judge or a labeler."""
    return task.is_computed or task.family.kind is AnswerKind.REPORT


def _read_replies(found: TaskReading) -> None:
    """Score replies; reports without metrics that may load models, but for the task's main one if it loads none."""
    replies = found.samples.replies
    known = [one for one in found.documents if one["doc_id"] in replies]
    if known and found.task.is_computed:
        found.computed = compute(found.task, known, replies)
    elif known:
        main, rows = found.task.metrics[0], scores_by_id(found.task, known, replies)
        found.computed = {name: without_metrics(rule, by_id) for name, (rule, by_id) in rows.items()}
        if isinstance(main, CorpusMetric) and not metric_info(main.name).weights:
            for name, (_, by_id) in rows.items():
                scored = text_values(main, list(by_id.values()))
                found.values[name] = {str(score["sample"]): value for score, value in scored}


def _from_scores(found: TaskReading) -> dict[str, Computed]:
    """Return what the run's scores say in each row; their numbers are those of the run, its judge's included."""
    task = found.task
    rules = {name: found.recorded.rules.get(name, row.extractor or "") for name, row in task.rows.items()}
    rules = {name: rule + FENCED * task.rows[name].fenced for name, rule in rules.items()}
    if task.family.extractor is None:  # a judge reads the replies, in the order of the task's rows
        rules = dict(zip(task.rows, found.samples.scores, strict=False))
    result = {}
    for name, rule in rules.items():
        scores = found.samples.scores.get(rule, {})
        if known := [one for one in found.answered if one["doc_id"] in scores]:
            by_id = {str(one["doc_id"]): scores[one["doc_id"]] for one in known}
            result[name] = _aggregated(task, rule, () if found.withheld else known, by_id)
    return result


def _aggregated(task: TaskFile, rule: str, documents: Sequence[Document], by_id: Mapping[str, SampleScore]) -> Computed:
    """Return what follows from recorded scores; without documents they are grouped by what the scores hold."""
    if task.family.scores_suffice:
        return of_scores(task, rule, by_id, documents or list(by_id.values()))
    return without_metrics(rule, by_id)


def _later(found: TaskReading, cause: str) -> str:
    return f"Scores are not computed here, because {cause}; run: {score_command_of(found)}"


def score_command_of(found: TaskReading) -> str:
    """Return the command that scores the replies of a reading."""
    kept = found.recorded.samples if found.samples.replies else replies_folder(found.task.name) / "FILE"
    return f"medtasks score {found.task.name} {kept}{included_option(found.task.name)}"
