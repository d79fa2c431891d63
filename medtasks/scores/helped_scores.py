"""Scores of a drawn task with the help of another model's run on all questions, which narrows their intervals.

``score`` and ``report`` call this for ``--helped-by``. The estimate must stay unbiased, however little the models have
in common.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from medtasks.data.dataset_lookup import part_of
from medtasks.data.samples import DRAWN, Documents
from medtasks.errors import RepliesError
from medtasks.families.family import Replies
from medtasks.metrics.metric import Estimate
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import Source, replies_to
from medtasks.scores.run_values import Values, chosen_metrics, run_values, without_failures
from medtasks.scores.score_model import RuleScores
from medtasks.scores.scoring import answered_documents
from medtasks.scores.subgroups import with_interval
from medtasks.stats.sample_design import HelpedMean, are_drawn, helped_mean
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files

_UNITS = ("doc_id", "pair_id")  # columns with the ids of what a metric has a value for


def with_help(
    task: TaskFile,
    replies: Replies,
    rules: Sequence[RuleScores],
    helper: Source,
) -> tuple[list[RuleScores], list[str]]:
    """Return the scores of a drawn task with the help of a run on its whole dataset.

    Only metrics with a value for every answered question, or pair, are helped. A question without a value of the other
    run counts as 0 in all of its means, which keeps the estimate unbiased.

    Args:
        task: The drawn task.
        replies: Its replies by document id.
        rules: Its scores under each rule, without help.
        helper: Run of another model on the whole task.

    Returns:
        The scores, and sentences on the metrics that were helped.

    Raises:
        RepliesError: The task is not drawn, or there is no run of the whole task.
    """
    name = _whole_task(task)
    whole = task_file(name)
    documents = task_documents(task)
    questions = task_documents(whole)
    helping = read_recorded(whole, questions, [replies_to(name, helper)]).only_run
    metrics = {metric.name: metric for metric in chosen_metrics(task)}
    own_values = run_values(task, documents, replies, metrics.values()).values
    helping_values = run_values(whole, questions, helping, metrics.values()).values
    answered = answered_documents(documents, without_failures(replies))
    helped = []
    sentences = []
    for rule in rules:
        scores = list(rule.scores)
        for index, score in enumerate(scores):
            values = own_values.get((rule.name, score.metric), {})
            column = _unit_column(answered, values)
            if column is None:
                continue
            number = len(_ids(questions, column))
            result = _helped_mean(values, helping_values[rule.name, score.metric], number)
            value = min(max(result.value, 0.0), 1.0) if score.share else result.value
            error = result.error
            estimate = Estimate.with_error(value, error, unit=score.unit)
            scores[index] = with_interval(metrics[score.metric], estimate)
            sentences.append(
                f"{score.metric} ({rule.name}): helped by {helper.path} on all questions with a factor of "
                f"{result.factor:.2f}; the standard error is {result.gain:.0%} smaller, as far as "
                f"{error.clusters} clusters tell."
            )
        helped.append(replace(rule, scores=tuple(scores)))
    if not sentences:
        sentences = [f"{helper.path} helps no score: none has a value for each question."]
    return helped, sentences


def _whole_task(task: TaskFile) -> str:
    """Return the name of the task with the same ending on the dataset that a drawn one is a part of.

    Raises:
        RepliesError: The task is not drawn, or there is no such task.
    """
    part = task.dataset or ""
    name = f"{part_of(part)}{task.name.removeprefix(part)}"
    if name not in task_files() or not task_documents(task)[0].get(DRAWN):
        raise RepliesError(
            f"--helped-by narrows scores of tasks of 'medtasks data select --draw', and '{task.name}' is none"
        )
    return name


def _unit_column(documents: Documents, values: Values) -> str | None:
    """Return the column whose ids are those of values.

    Args:
        documents: Documents that were answered.
        values: Values of questions or pairs by id.

    Returns:
        ``doc_id`` or ``pair_id``; None if there are no values, or if an answered question or pair has none.
    """
    columns = _UNITS if values else ()
    return next((name for name in columns if _ids(documents, name) == {*values}), None)


def _ids(documents: Documents, column: str) -> set[str]:
    """Return the different ids in a column."""
    return {str(document.get(column)) for document in documents}


def _helped_mean(values: Values, others: Values, number: int) -> HelpedMean:
    """Return the mean of a run with the help of another one.

    Args:
        values: Drawn unit and value by id of the question or pair.
        others: The same of the other run on the whole dataset. Questions without a value count as 0.
        number: Number of questions, or pairs, of the whole dataset.
    """
    units = [unit for unit, _ in values.values()]
    assert are_drawn(units)
    mean = math.fsum(value for _, value in others.values()) / number
    of_helper = [others.get(name, (None, 0.0))[1] for name in values]
    return helped_mean([value for _, value in values.values()], units, of_helper, mean)
