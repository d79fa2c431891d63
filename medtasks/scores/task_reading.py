"""Reading of one recorded task: its questions, replies and scores, and every question with its reply and answers.

Reports call this. Scores are computed again from the replies, or from the scores that a run recorded. It must never
load a model, ask a judge or write a file. A damaged samples file is read as far as possible: a report lists what is
missing.
"""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.samples import Document, Documents
from medtasks.errors import MedTasksError, RepliesError, UnknownName
from medtasks.extract.extractor_registry import AnswerKind, extractor_of
from medtasks.families.counts import is_failed, judges_of
from medtasks.families.family import FENCED, Replies, Rule
from medtasks.families.text_metrics import NotComparable, text_values
from medtasks.metrics.metric import (
    CorpusMetric,
    Declaration,
    Estimate,
    Metric,
    Role,
    Score,
    ScoreList,
    mean,
    raw_declaration,
    with_image_clusters,
)
from medtasks.metrics.report_metrics import metric_info
from medtasks.runs.logged_samples import replies_folder
from medtasks.runs.replies import Samples, read_samples
from medtasks.runs.run import NO_SAMPLES, RUN_AGAIN, TaskRun
from medtasks.scores.error_classes import count_kinds, wrong_answers
from medtasks.scores.run_values import (
    ScoresById,
    Values,
    estimate_mean,
    is_mean,
    values_by_question,
    with_drawn_units,
)
from medtasks.scores.score_model import MetricScore, RuleScores
from medtasks.scores.scoring import answered_documents, count_reasons, rule_scores, score_rows
from medtasks.scores.subgroups import grouped_by, with_interval
from medtasks.tasks.documents import (
    access_of_task,
    image_settings,
    is_private_task,
    task_documents,
    task_provenance,
)
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import included_option
from medtasks.tasks.task_index import SETTINGS, mapping_in, names_in

ValueAndError = tuple[float, float]
"""A recorded value and its standard error, NaN without one."""
NOT_DEFINED = "It is not defined for these replies: none of them counts for it."
NOT_COMPUTED = "It was not computed in the run."
_UNMATCHED = "Replies cannot be matched to questions"
_NEEDS = (
    "Scores are not computed here, because its metrics need a judge, a labeler or another model"
)
_ERROR = "_stderr"
_BYPASS = "bypass"  # written by the harness with --predict_only
# What records that another version wrote may raise.
_RECORD_ERRORS = (KeyError, TypeError, ValueError, IndexError, AttributeError)


@dataclass(frozen=True)
class Computed:
    """Scores of one rule, computed from the replies."""

    samples: ScoresById  # by document id
    # Their aggregates, without the rule's name in the task and its description
    report: RuleScores


@dataclass
class TaskReading:
    """Recorded and computed facts about one task of ours."""

    recorded: TaskRun
    task: TaskFile
    withheld: bool  # whether text and images must not be shown
    # Provenance of the data here; empty if there are none.
    data: Mapping[str, Any] = field(default_factory=dict)
    documents: Documents = ()  # all, in order; empty if they are not here or not those of the run
    samples: Samples = field(default_factory=Samples)  # content of the samples file
    computed: dict[str, Computed] = field(default_factory=dict)  # by filter name
    # Values of single samples where a metric is neither right nor wrong, by filter name and document id.
    values: dict[str, dict[str, float]] = field(default_factory=dict)
    # Missing parts and how to get them, one sentence each.
    missing: list[str] = field(default_factory=list)
    # Why it is not grouped by columns asked for, by column.
    ungrouped: dict[str, str] = field(default_factory=dict)

    @property
    def answered_documents(self) -> list[Document]:
        """The documents that were answered, in order."""
        return answered_documents(self.documents, self.samples.answered)

    @property
    def score_command(self) -> str:
        """The command that scores the replies."""
        file = self.recorded.samples
        if not self.samples.replies:
            file = replies_folder(self.task.name) / "FILE"
        return f"medtasks score {self.task.name} {file}{included_option(self.task.name)}"


def scores_by_id(documents: Documents, scores: ScoreList) -> dict[str, Score]:
    """Return scores by document id.

    Example:
        >>> scores_by_id([{"doc_id": 7}], [{"reason": "ok"}])
        {'7': {'reason': 'ok'}}
    """
    ids = [str(document["doc_id"]) for document in documents]
    return dict(zip(ids, scores, strict=True))


def without_metrics(rule: str, by_id: ScoresById) -> Computed:
    """Return scores by document id under a rule with the numbers of replies by reason, but without any metric."""
    scores = list(by_id.values())
    remarks = tuple(filter(None, [judges_of(scores)]))
    return Computed(by_id, RuleScores("", rule, "", (), count_reasons(scores), remarks=remarks))


def recorded_values(task: TaskRun) -> dict[str, dict[str, ValueAndError]]:
    """Return recorded values and standard errors by row and metric, without the harness's own additions.

    Example:
        >>> recorded_values(TaskRun("made_up", scores={"accuracy,robust": 0.5, "accuracy_stderr,robust": 0.1}))
        {'robust': {'accuracy': (0.5, 0.1)}}
    """
    numbers = {}
    for key, value in task.scores.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers[key] = value
    by_row: dict[str, dict[str, ValueAndError]] = {}
    for key, value in numbers.items():
        metric, _, name = key.rpartition(",")
        if metric and _ERROR not in metric and metric != _BYPASS:
            error = float(numbers.get(f"{metric}{_ERROR},{name}", math.nan))
            by_row.setdefault(name, {})[metric] = (value, error if error >= 0 else math.nan)
    return by_row


def recorded_settings(reading: TaskReading) -> dict[str, str]:
    """Return version, prompt, decoding and source of the data as the run recorded them, but no sample's text."""
    recorded = reading.recorded
    settings: dict[str, Any] = {"version": recorded.version}
    prompts = mapping_in(recorded.config, SETTINGS)
    if prompts:
        text = json.dumps(prompts, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        settings["prompt"] = (
            f"templates in configs/{recorded.name}/{SETTINGS} of the results, SHA-256 {digest}"
        )
    generation = mapping_in(recorded.config, "generation_kwargs")
    if generation:
        settings["decoding"] = ", ".join(
            f"{name}={value}" for name, value in generation.items()
        )
    elif reading.task.compares_likelihoods:
        settings["decoding"] = "log-likelihood of each option"
    data = recorded.data
    if data:
        dataset = reading.task.dataset or ""
        source = CATALOGUE[dataset].source if dataset in CATALOGUE else "a folder of the user"
        settings |= {
            "source": "synthetic sample images" if data.get("sample") else source,
            "revision": data.get("revision"),
            "rows": data.get("rows"),
            "images": data.get("images"),
            "rows left out": f"{len(names_in(data.get('left_out')))} notes in its manifest",
        }
    return {name: str(value) for name, value in settings.items() if value or value == 0}


def rule_reports(
    recorded: TaskRun,
    task: TaskFile | None,
    computed: Mapping[str, Computed],
) -> tuple[tuple[RuleScores, ...], list[str]]:
    """Return the scores of a task under each rule.

    Recorded values count, not those computed from the recorded replies.

    Args:
        recorded: Records of the run.
        task: The task, or None if it is not ours.
        computed: Scores computed from the replies, by name of the rule.

    Returns:
        Scores in the order of the task's rows, and a sentence on each metric whose recorded and computed values differ.
    """
    values = recorded_values(recorded)
    rows: Iterable[str] = ()
    declared = {}
    default = NOT_DEFINED
    if task is not None:
        rows = task.rows
        main_first = sorted(task.metrics, key=lambda metric: metric.role is not Role.MAIN)
        declared = {metric.name: metric for metric in main_first}
        if not task.is_computed:
            default = NOT_COMPUTED
    notes: list[str] = []
    reports = []
    for name in dict.fromkeys([*rows, *values, *computed]):
        if name not in values and name not in computed:
            continue
        rule, describes = _rule_of(recorded, task, name)
        recomputed = (computed.get(name) or without_metrics(rule, {})).report
        scores, disagreements = _scores_of_row(
            recorded, name, values.get(name, {}), declared, recomputed.estimates
        )
        notes += disagreements
        failures = {}
        for score in scores:
            if math.isnan(score.value):
                failures[score.metric] = recomputed.failures.get(score.metric, default)
        reports.append(
            replace(
                recomputed,
                name=name,
                describes=describes,
                scores=tuple(scores),
                failures=failures,
            )
        )
    return tuple(reports), notes


def _rule_of(recorded: TaskRun, task: TaskFile | None, name: str) -> tuple[str, str]:
    """Return the rule that read the replies in a row, and its description.

    Args:
        recorded: Records of the run.
        task: The task, or None if it is not ours.
        name: The row.

    Returns:
        Name of the extractor, with its version if the run recorded that or the task reads by today's; and one sentence
        on it. Both are empty if unknown.
    """
    row = task.rows.get(name, Rule()) if task else Rule()
    rule = recorded.rules.get(name) or row.extractor or ""
    describes = ""
    with contextlib.suppress(UnknownName):
        describes = extractor_of(rule).summary
    if task and row.extractor and not recorded.rules:  # a recorded rule's version is unknown
        rule = task.versioned_rule(row)
    return rule, describes


def _scores_of_row(
    recorded: TaskRun,
    name: str,
    row: Mapping[str, ValueAndError],
    declared: Mapping[str, Declaration],
    computed: Mapping[str, MetricScore],
) -> tuple[list[MetricScore], list[str]]:
    """Return the recorded scores of a row with those only computed, and sentences where both differ.

    Args:
        recorded: Records of the run.
        name: Name of the row, thus of the rule that read the replies, for messages.
        row: Recorded values and errors by metric; empty if the run recorded none.
        declared: Metrics that the task declares, by name; empty for a task that is not ours.
        computed: Scores computed from the replies, by metric.
    """
    scores = []
    notes = []
    for metric in dict.fromkeys([*declared, *row, *computed]):
        score = computed.get(metric)
        if score is not None and (metric not in row or _agrees(row[metric], score)):
            scores.append(score)  # with an interval from its number of clusters
        elif metric in row:
            higher_is_better = recorded.higher_is_better.get(metric)
            declaration = declared.get(metric) or raw_declaration(metric, higher_is_better)
            scores.append(with_interval(declaration, Estimate(*row[metric])))
            if score is not None:
                notes.append(
                    f"{recorded.name}, {name}, {metric}: the run recorded {_with_error(*row[metric])}, its recorded "
                    f"replies give {_with_error(score.value, score.error)} under today's rule; the recorded score is "
                    "shown."
                )
    return scores, notes


def _with_error(value: float, error: float) -> str:
    """Write a value with its standard error, if it has one: an error that is not NaN."""
    text = f"{value:.12g}"
    return text if math.isnan(error) else f"{text} (standard error {error:.12g})"


def _agrees(recorded: ValueAndError, computed: MetricScore) -> bool:
    """Return whether a recorded value and its error, if it has one, are those computed here."""
    value, error = recorded
    if computed.by_construction or math.isnan(error):
        error = computed.error  # is not compared
    for first, second in ((value, computed.value), (error, computed.error)):
        are_nan = math.isnan(first) and math.isnan(second)
        if not are_nan and not math.isclose(first, second, rel_tol=1e-9, abs_tol=1e-9):
            return False
    return True


def read_task(recorded: TaskRun, task: TaskFile, by: Sequence[str] = ()) -> TaskReading:
    """Read what a run recorded of one of our tasks.

    Args:
        recorded: Records of the run.
        task: The task.
        by: Further columns to group scores by, as far as the task has them and may show them.

    Returns:
        The reading, whose :attr:`TaskReading.missing` lists what cannot be read.
    """
    reading = TaskReading(recorded, task, withheld=is_private_task(task))
    try:
        cause = _read_documents(reading)
    except MedTasksError as error:
        cause = f"{_UNMATCHED}: {str(error).rstrip('.')}."
    if cause:
        reading.missing.append(cause)
        return reading
    reading.withheld = is_private_task(task, reading.documents)
    _group_further(reading, by)
    if recorded.samples is None:
        reading.missing.append(NO_SAMPLES)
        return reading
    try:
        _read_samples(reading, recorded.samples)
    except MedTasksError as error:
        reading.missing.append(f"{_UNMATCHED}: {str(error).rstrip('.')}.")
    if reading.samples.answered:
        _compute(reading)
    if reading.computed and not (task.is_computed or recorded_values(recorded)):
        reading.missing.append(f"{_NEEDS}; run: {reading.score_command}")
    return reading


def _read_documents(reading: TaskReading) -> str:
    """Read the documents if they are those of the run.

    Returns:
        Why they are not, or an empty text.
    """
    task = reading.task
    documents = [] if task.dataset else task_documents(task)
    reading.data = task_provenance(task, documents)
    fingerprint = reading.recorded.data.get("fingerprint")
    here = reading.data["fingerprint"]
    if task.dataset and fingerprint not in (None, here):
        return (
            f"The run was made on data with fingerprint {fingerprint}, but the prepared '{task.dataset}' has {here}, "
            "so that replies cannot be matched to questions; point MEDTASKS_HOME to the data of that run."
        )
    reading.documents = documents or task_documents(task)
    return ""


def _read_samples(reading: TaskReading, path: Path) -> None:
    """Read the samples file, and note whether it holds no replies or replies to samples that have changed."""
    task = reading.task
    reading.samples = read_samples(
        path,
        reading.documents,
        likelihoods=task.compares_likelihoods,
        keep_scores=not task.is_computed
        or access_of_task(task) == Access.CREDENTIALED
        or reading.withheld,
        note=reading.missing.append,
        settings=image_settings(task),
    )
    if reading.samples.changed:
        # Recorded scores are of all samples, so that only those of the others count, which are computed here.
        reading.recorded = replace(reading.recorded, scores={})
        reading.missing.append(reading.samples.describe_changes(path))
    elif not reading.samples.answered:
        reading.missing.append(f"{path} holds no replies; {RUN_AGAIN}.")


def estimate_by_question(
    readings: Sequence[TaskReading],
    row: str,
    metric: Declaration,
) -> tuple[Estimate, Sequence[Sequence[float]]]:
    """Estimate a mean over several readings, averaged per question or pair first.

    Args:
        readings: Readings of one task, such as repeats of a run.
        row: Row of the task's results.
        metric: The metric.

    Returns:
        The estimate, and the values of each question. Without readings, or if the metric is not the mean of these
        values, it is NaN and there are none.
    """
    undefined = Estimate(math.nan), ()
    if not (isinstance(metric, Metric) and metric.has_error and readings):
        return undefined
    by_reading = []
    for reading in readings:
        values = _averaged_values(reading, row, metric)
        if not values:
            return undefined
        by_reading.append(values)
    questions = values_by_question(by_reading).values()
    means = [(cluster, mean(values)) for cluster, values in questions]
    return estimate_mean(means), [values for _, values in questions]


def _averaged_values(reading: TaskReading, row: str, metric: Metric[Any]) -> Values:
    """Return the values whose mean is a metric. There are none if it is not their mean."""
    if row not in reading.computed:
        return {}
    samples = reading.computed[row].samples
    answered = {doc_id: score for doc_id, score in samples.items() if not is_failed(score)}
    scores = list(answered.values())
    clusters = [str(score.get("cluster_id")) for score in with_image_clusters(scores)]
    ids_and_clusters = list(zip(answered, clusters, strict=True))
    values = reading.task.family.sample_values(metric, scores, ids_and_clusters)
    in_draw = with_drawn_units(values, scores)
    return in_draw if is_mean(in_draw, metric, scores) else {}


def _group_further(reading: TaskReading, by: Sequence[str]) -> None:
    """Add columns to group by, and note why the task cannot be grouped by others."""
    for column in by:
        try:
            reading.task = grouped_by(reading.task, reading.documents, [column])
        except RepliesError as error:
            reading.ungrouped[column] = str(error)


def grouping_notes(readings: Sequence[TaskReading], by: Sequence[str]) -> list[str]:
    """Name the tasks that are not grouped by columns asked for, in one sentence per column.

    Raises:
        RepliesError: No task is grouped by one of the columns.
    """
    notes = []
    for column in by:
        without = [reading for reading in readings if column not in reading.task.breakdown]
        if len(without) == len(readings):
            causes = [task.ungrouped[column] for task in readings if column in task.ungrouped]
            causes.append(
                f"no task of the run has questions and replies here that --by {column} could group"
            )
            raise RepliesError(max(causes, key=lambda cause: "did you mean" in cause))
        if without:
            names = [reading.task.name for reading in without]
            notes.append(f"Not grouped by {column}: {', '.join(names)}.")
    return notes


def given_replies(task: TaskFile, documents: Documents, replies: Replies) -> TaskReading:
    """Read recorded replies without a run.

    Args:
        task: The task.
        documents: All its documents, shape (samples,).
        replies: At least one reply, by document id.

    Raises:
        MedTasksError: They do not fit the task.
    """
    withheld = is_private_task(task, documents)
    samples = Samples(replies=dict(replies), answered=dict.fromkeys(replies, ""))
    data = task_provenance(task, documents)
    reading = TaskReading(TaskRun(task.name), task, withheld, data, documents, samples)
    if _needs_no_judge(task):
        _read_replies(reading)
    if withheld:  # values of columns that no record holds are text of the dataset
        for name, computed in reading.computed.items():
            logged = _aggregate(task, computed.report.rule, (), computed.samples).report
            report = replace(
                computed.report,
                groups=logged.groups,
                column_tests=logged.column_tests,
                by_class=logged.by_class,
            )
            reading.computed[name] = replace(computed, report=report)
    if not task.is_computed:
        reading.missing.append(f"{_NEEDS}; use 'medtasks score' on these replies.")
    return reading


def _needs_no_judge(task: TaskFile) -> bool:
    """Return whether replies are read without a judge or a labeler."""
    return task.is_computed or task.family.kind is AnswerKind.REPORT


def _compute(reading: TaskReading) -> None:
    """Score the replies, or aggregate the run's own records if these hold no reply."""
    try:
        if reading.samples.replies and _needs_no_judge(reading.task) and not reading.withheld:
            _read_replies(reading)
        else:
            _aggregate_records(reading)
    except (MedTasksError, *_RECORD_ERRORS) as error:
        cause = (
            str(error).rstrip(".") if isinstance(error, MedTasksError) else type(error).__name__
        )
        reading.missing.append(
            f"Its samples cannot be read by this version of medtasks: {cause}."
        )
        return
    if not reading.computed:
        reading.missing.append(
            "Scores are not computed here, because the samples file holds neither replies nor what was read from "
            f"them; run: {reading.score_command}"
        )


def _aggregate_records(reading: TaskReading) -> None:
    """Aggregate the scores that the run recorded for each sample."""
    task = reading.task
    # Names of rules in the recorded scores by row. A judge reads replies in the order of the rows.
    rules = dict(zip(task.rows, reading.samples.scores, strict=False))
    if task.family.extractor is not None:
        rules = {}
        for name, row in task.rows.items():
            ending = FENCED if row.fenced else ""
            rules[name] = reading.recorded.rules.get(name, row.extractor or "") + ending
    for name, rule in rules.items():
        scores = reading.samples.scores.get(rule, {})
        documents = answered_documents(reading.answered_documents, scores)
        if not documents:
            continue
        by_id = {str(document["doc_id"]): scores[document["doc_id"]] for document in documents}
        columns = () if reading.withheld else documents
        reading.computed[name] = _aggregate(task, rule, columns, by_id)
    if not (reading.withheld or reading.samples.replies):
        reading.missing.append(
            "The run withheld prompts and replies; those that were saved are shown by: medtasks report "
            f"{replies_folder(task.name)}/FILE --task {task.name}{included_option(task.name)}"
        )


def _read_replies(reading: TaskReading) -> None:
    """Fill ``computed`` and ``values`` by row from the replies to a task of :func:`_needs_no_judge`.

    Nothing changes without an answered document. A task of reports gets no metric, and only the value of its first
    metric for each sample, unless that loads a model or asks a judge. If it fails, ``missing`` says why.

    Raises:
        RepliesError: The replies are texts where the task reads likelihoods, or the reverse.
    """
    task = reading.task
    replies = reading.samples.replies
    answered = answered_documents(reading.documents, replies)
    if not answered:
        return
    main = task.metrics[0]
    computed = {}
    for name, (rule, scores) in score_rows(task, answered, replies).items():
        by_id = scores_by_id(answered, scores)
        if task.is_computed:
            wrong = () if task.family.paired else wrong_answers(task, answered, scores, replies)
            report = replace(
                rule_scores(task, rule, scores, answered), wrong_kinds=count_kinds(wrong)
            )
            computed[name] = Computed(by_id, report)
            continue
        computed[name] = without_metrics(rule, by_id)
        if not isinstance(main, CorpusMetric):
            continue
        info = metric_info(main.name)
        if not info.weights and not info.asks_judge:
            try:
                values = text_values(main, scores)
            except NotComparable as error:
                reading.missing.append(f"{main.name} {error}.")
                continue
            reading.values[name] = {str(score["sample"]): value for score, value in values}
    reading.computed = computed


def _aggregate(
    task: TaskFile,
    rule: str,
    documents: Documents,
    by_id: ScoresById,
) -> Computed:
    """Aggregate scores of one rule.

    Args:
        task: The task.
        rule: Name and version of the rule.
        documents: Documents with a score, by whose columns scores are grouped, shape (samples,). If empty, columns that
            the scores hold are used.
        by_id: The scores by document id.
    """
    if not task.family.scores_suffice:
        return without_metrics(rule, by_id)
    scores = list(by_id.values())
    return Computed(by_id, rule_scores(task, rule, scores, documents or scores))
