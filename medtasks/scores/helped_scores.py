"""Scores of a drawn task with the help of another model's run on all questions, which narrows their intervals."""

import math
from collections.abc import Sequence
from dataclasses import replace

from medtasks.data.dataset_lookup import part_of
from medtasks.data.samples import Documents
from medtasks.errors import RepliesError
from medtasks.families.family import Replies
from medtasks.metrics.metric import AnyMetric, Estimate
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import Source, replies_to
from medtasks.scores.run_values import RunValues, Values, chosen_metrics, run_values
from medtasks.scores.score_model import MetricScore, RuleScores
from medtasks.scores.subgroups import with_interval
from medtasks.stats.sample_design import HelpedMean, are_drawn, helped_mean
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files

_UNITS = ("doc_id", "pair_id")  # columns with the ids of what a metric has a value for
_FEW = 20  # degrees of freedom, below which the factor is hardly known


def with_help(
    task: TaskFile, replies: Replies, rules: Sequence[RuleScores], helper: Source
) -> tuple[list[RuleScores], list[str]]:
    """Return the scores of a drawn task with the help of a run on its whole dataset, and sentences on that.

    Only metrics with a value for every question, or pair, are helped. RepliesError: the task is not drawn, or there is
    no run of the whole task.
    """
    whole = task_file(_whole_task(task))
    documents = task_documents(task)
    all_documents = task_documents(whole)
    file = replies_to(whole.name, helper)
    helping = read_recorded(whole, all_documents, [file]).logged_run(whole.name)
    metrics = chosen_metrics(task)
    own_values = run_values(task, documents, _without_failed(replies), metrics)
    helping_values = run_values(whole, all_documents, _without_failed(helping), metrics)
    answered = [document for document in documents if document["doc_id"] in replies]
    helped = []
    sentences = []
    for rule in rules:
        scores = []
        for score in rule.scores:
            metric = next((each for each in metrics if each.name == score.metric), None)
            result = None
            if metric is not None:
                key = (rule.name, metric.name)
                result = _helped(own_values, helping_values, key, answered, all_documents)
            if metric is None or result is None:
                scores.append(score)
                continue
            scores.append(_helped_score(metric, score, result))
            sentences.append(_sentence(metric, rule, result, helper))
        helped.append(replace(rule, scores=tuple(scores)))
    if not sentences:
        sentences = [f"{helper.path} helps no score: none has a value for every question."]
    return helped, sentences


def _whole_task(task: TaskFile) -> str:
    """Return the task on all questions that a drawn one is a part of: that of its dataset with the same ending."""
    part = task.dataset or ""
    whole = f"{part_of(part)}{task.name.removeprefix(part)}"
    if part and whole in task_files():
        return whole
    raise RepliesError(
        f"--helped-by narrows scores of tasks of 'medtasks data select --draw', and '{task.name}' is none; leave it out"
    )


def _without_failed(replies: Replies) -> Replies:
    return {doc_id: reply for doc_id, reply in replies.items() if not reply.failed}


def _helped(
    own: RunValues,
    helping: RunValues,
    key: tuple[str, str],
    answered: Documents,
    all_documents: Documents,
) -> HelpedMean | None:
    """Return the mean with the other run's help; None if the metric has no value for some question.

    A question to which the other model has no value counts as 0 in all of its means, which keeps these unbiased.
    """
    values: Values = own.values.get(key, {})
    others: Values = helping.values.get(key, {})
    for column in _UNITS:
        units = {document.get(column) for document in answered}
        if not values or units != values.keys():
            continue
        everything = {document.get(column) for document in all_documents}
        mean = math.fsum(value for _, value in others.values()) / len(everything)
        drawn = [unit for unit, _ in values.values()]
        if not are_drawn(drawn):
            return None
        of_helper = [others[name][1] if name in others else 0.0 for name in values]
        return helped_mean([value for _, value in values.values()], drawn, of_helper, mean)
    return None


def _helped_score(metric: AnyMetric, score: MetricScore, result: HelpedMean) -> MetricScore:
    value = result.value
    if score.share:
        value = min(max(value, 0.0), 1.0)
    error = result.error
    numbers = (error.error, error.clusters, error.degrees, error.effective)
    estimate = with_interval(metric, Estimate(value, *numbers))
    return replace(estimate, unit=score.unit)


def _sentence(metric: AnyMetric, rule: RuleScores, result: HelpedMean, helper: Source) -> str:
    subject = f"{metric.name} ({rule.name})"
    if not result.factor:
        return f"{subject}: {helper.path} does not help, and changes nothing."
    few = ""
    if result.error.degrees < _FEW:
        few = "; with so few clusters that itself is uncertain"
    return (
        f"{subject}: helped by {helper.path} on all questions, of whose values {result.factor:.2f} are taken off and "
        f"added back as their mean; the standard error is {result.gain:.0%} smaller{few}."
    )
