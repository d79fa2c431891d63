"""What single samples of a run are worth under each metric of a task, for tests that pair samples of two runs."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.audit.pair_scoring import score_replies
from medtasks.audit.scoring import check_kinds, samples_of, versioned_rule
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name
from medtasks.extract.answer import Reason
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile
from medtasks.hooks import classification, multilabel
from medtasks.hooks.metric_list import is_failed
from medtasks.hooks.reports import INVALID_RATE, metrics_for
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import PrivateText
from medtasks.metrics.pairs import TOTAL
from medtasks.metrics.report_metrics import REPORT_METRICS, keys_of, report_metric
from medtasks.metrics.report_scores import mean

Documents = Sequence[Mapping[str, Any]]
Replies = Mapping[str, RecordedReply]
Values = Mapping[str, tuple[str, float]]
"""By sample its unit and its value."""

_PAIR_METRICS = ("set_accuracy", "individual_accuracy")
_ERROR = "_stderr"
_NOT_MAIN = frozenset({"invalid_rate", "yes_rate", "judge_failed_rate"})  # each more test weakens all others
_NO_MEAN = "is no mean over samples"
_NO_VALUE = "has no value per sample"
RIGHT = "right_answers"
"""What single samples of a classification have; its own metrics are means over classes."""


class _NotCompared(Exception):
    """A metric has no value per sample; the message goes after its name."""


@dataclass(frozen=True)
class RunValues:
    """Values of one run.

    Attributes:
        rules: Name and version of each answer rule by filter name.
        values: By filter name and metric.
        skipped: Why a metric has no values, by filter name and metric.
    """

    rules: Mapping[str, str]
    values: Mapping[tuple[str, str], Values]
    skipped: Mapping[tuple[str, str], str]


def chosen_metrics(task: TaskFile, documents: Documents, metrics: Sequence[str]) -> list[str]:
    """Return the metrics to compare: those asked for, or all with a standard error but the rates of unusable replies.

    Raises:
        RepliesError: The task is a group, or has no such metric at all.
        UnknownName: The task has no such metric, or none with a standard error.
    """
    if task.metric_list is None:
        raise RepliesError(f"'{task.name}' is a group; compare its member tasks one by one")
    names = [entry["metric"] for entry in task.metric_list.resolve()]
    known = [name for name in names if f"{name}{_ERROR}" in names]
    if "pair_id" in documents[0]:
        known = list(_PAIR_METRICS)
    elif _process(task) is classification.process_results:
        known.insert(0, RIGHT)
    asked = {key for metric in metrics for key in _asked(metric, names, known)}
    chosen = [name for name in known if name in asked or (not metrics and name not in _NOT_MAIN)]
    if not chosen:
        raise RepliesError(f"'{task.name}' scores nothing, so that there is nothing to compare")
    return chosen


def _asked(metric: str, names: Sequence[str], known: Sequence[str]) -> Sequence[str]:
    """Return what a metric of reports stands for, which has several scores, or the score that is named itself."""
    found = [key for key in keys_of(metric) if key in known] if metric in REPORT_METRICS else []
    if metric in known or found:
        return found or [metric]
    if metric in names:
        raise UnknownName(f"'{metric}' has no value per sample; those that can be compared: {', '.join(known)}")
    raise unknown_name("metric", metric, known)


def run_values(task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[str]) -> RunValues:
    """Return the values of one run's samples under every rule.

    The value of a sample is the metric of that sample alone; a metric that is not the mean of these values is skipped.

    Args:
        task: A task, no group.
        documents: Its documents; those without a reply are left out.
        replies: Replies by document id.
        metrics: From :func:`chosen_metrics`.

    Raises:
        RepliesError: The replies do not fit the task.
        JudgeNotConfigured: The task needs a judge and none is configured.
    """
    read = _pair_values if "pair_id" in documents[0] else _sample_values
    return read(task, documents, replies, metrics)


def _pair_values(task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[str]) -> RunValues:
    """Score paired questions one by one, as ``medtasks score`` scores them together."""
    rules = {name: score.rule for name, score in score_replies(task, documents, replies).items()}
    connected = _connected_pairs(documents)
    right: dict[str, dict[str, tuple[str, float]]] = {name: {} for name in rules}
    by_pair: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        doc_id, pair = document["doc_id"], document["pair_id"]
        if doc_id in replies:
            by_pair[pair].append(doc_id)
            for name, score in score_replies(task, [document], {doc_id: replies[doc_id]}).items():
                value = score.table[TOTAL].individual_accuracy
                if not math.isnan(value):  # it is, where the model or the judge failed
                    right[name][doc_id] = (connected[pair], value)
    pairs = {pair: members for pair, members in by_pair.items() if len(members) == 2}
    values: dict[tuple[str, str], Values] = {}
    for name, answers in right.items():
        solved = {
            pair: (pair, min(answers[one][1] for one in members))
            for pair, members in pairs.items()
            if answers.keys() >= set(members)
        }
        of_metric = {"set_accuracy": solved, "individual_accuracy": answers}
        values.update({(name, metric): of_metric[metric] for metric in metrics})
    return RunValues(rules, values, {})


def _connected_pairs(documents: Documents) -> dict[str, str]:
    """Return for each pair the first of all pairs that it is connected with by shared pictures."""
    by_picture: dict[str, set[str]] = defaultdict(set)
    pictures: dict[str, set[str]] = defaultdict(set)
    for document in documents:
        by_picture[document["image_id"]].add(document["pair_id"])
        pictures[document["pair_id"]].add(document["image_id"])
    found: dict[str, str] = {}
    for start in sorted(pictures):
        waiting = [start] if start not in found else []
        while waiting:
            pair = waiting.pop()
            if pair not in found:
                found[pair] = start
                waiting += [other for picture in pictures[pair] for other in by_picture[picture]]
    return found


def _sample_values(task: TaskFile, documents: Documents, replies: Replies, metrics: Sequence[str]) -> RunValues:
    """Score samples through the task's own hooks."""
    check_kinds(task, replies)
    asked = [document for document in documents if document["doc_id"] in replies]
    rules: dict[str, str] = {}
    values: dict[tuple[str, str], Values] = {}
    skipped: dict[tuple[str, str], str] = {}
    for name in task.rules:
        rules[name] = versioned_rule(task, name)
        records = samples_of(task, name, asked, [replies[document["doc_id"]] for document in asked])
        for metric in metrics:
            try:
                found = _of_metric(task, metric, records)
            except _NotCompared as why:
                skipped[name, metric] = str(why)
                found = [math.nan] * len(asked)
            values[name, metric] = {
                document["doc_id"]: (unit_of(document), value)
                for document, value in zip(asked, found, strict=True)
                if not math.isnan(value)
            }
    return RunValues(rules, values, skipped)


def _process(task: TaskFile) -> Any:
    if task.process_results is None:
        raise RepliesError(f"'{task.name}' is a group; compare its member tasks one by one")
    return task.process_results.resolve()


def _of_metric(task: TaskFile, metric: str, samples: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the metric of each sample alone, NaN where it is not defined.

    Raises:
        _NotCompared: The metric of all samples is not the mean of these, or cannot be computed.
    """
    if metric == RIGHT:
        answers = [next(iter(sample.items()))[1] for sample in samples]
        right = [math.nan if is_failed(one) else float(one["value"] == one["key"]) for one in answers]
        return _checked(right, mean([one for one in right if not math.isnan(one)]))
    of_classes = _process(task) in (classification.process_results, multilabel.process_results)
    if task.metric_list is None or (of_classes and metric != INVALID_RATE):
        raise _NotCompared(_NO_MEAN)
    records = [sample[metric] for sample in samples]
    if isinstance(records[0].get("reply"), PrivateText):
        return _of_texts(metric, records)
    (aggregation,) = (entry["aggregation"] for entry in task.metric_list.resolve() if entry["metric"] == metric)
    found = [float(aggregation([record])) for record in records]
    return _checked(found, float(aggregation(records)))


def _of_texts(metric: str, records: Sequence[Mapping[str, Any]]) -> list[float]:
    """Do the same for a metric of :data:`medtasks.metrics.report_metrics.REPORT_METRICS`, over all texts at once."""
    said = [record for record in records if not is_failed(record)]
    if not said:
        raise _NotCompared(_NO_VALUE)
    if metric == INVALID_RATE:
        return _spread(records, [float(record["reason"] != Reason.OK) for record in said])
    try:
        (name,) = metrics_for([metric])
    except KeyError as error:
        raise _NotCompared(_NO_MEAN) from error
    texts = {"references": [record["reference"].text for record in said]}
    try:
        scores = report_metric(name)(**texts, hypotheses=[record["reply"].text for record in said])
    except MedTasksError as error:
        raise _NotCompared(f"could not be computed: {error}") from error
    except ImportError as error:
        raise _NotCompared(f"could not be computed: {error}; run: pip install 'medtasks[report]'") from error
    except Exception as error:  # noqa: BLE001  # a message that is not our own may quote a patient's report
        raise _NotCompared(f"could not be computed: {type(error).__name__}") from None
    return _checked(_spread(records, scores.samples.get(metric, ())), scores.totals[metric])


def _spread(records: Sequence[Mapping[str, Any]], values: Sequence[float]) -> list[float]:
    """Return values of answered samples at their places among all, NaN where the model failed."""
    left = iter(values)
    return [math.nan if is_failed(record) else next(left, math.nan) for record in records]


def _checked(values: Sequence[float], total: float) -> list[float]:
    defined = [value for value in values if not math.isnan(value)]
    if defined and not math.isclose(mean(defined), total, rel_tol=1e-9, abs_tol=1e-12):
        raise _NotCompared(_NO_MEAN)
    if not defined:
        raise _NotCompared(_NO_VALUE)
    return list(values)
