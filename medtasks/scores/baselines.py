"""Scores of image-blind replies: the same answer to every question, the most frequent one, a guess.

Rules read different words as an answer: a letter, an option's text, or ``2: background``. Each wording is tried until
the task's family reads the intended answer; if none is read, the rule gets NaN and the description says why. No judge,
labeler or other model is asked, and of reports only the metrics that count words are computed.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from medtasks.data.samples import Document, Documents, Sample
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.constant_replies import ExpectedAnswer, Strategy
from medtasks.families.counts import is_failed
from medtasks.families.family import Asks, Reply, Rule, compares_texts, needs_labeler
from medtasks.families.templates import written_options
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import (
    AnyMetric,
    CorpusMetric,
    Metric,
    Score,
    ScoreList,
    evaluate,
    mean,
)
from medtasks.metrics.report_metrics import metric_info
from medtasks.scores.comparing import paired_values
from medtasks.scores.run_values import ScoresById, Values, main_metrics, with_drawn_units
from medtasks.scores.score_model import Baseline
from medtasks.scores.scoring import scores_of
from medtasks.stats.paired import PairedResult, compare_paired
from medtasks.tasks.task_file import TaskFile

AnswerKey = tuple[int, ExpectedAnswer]
"""Position of a document, and an answer to it."""
ValuesByRule = dict[str, dict[str, float]]
"""Values by rule and metric."""
_WORD_METRICS = ("bleu", "rouge")


def baselines(
    task: TaskFile,
    documents: Documents,
    run: Mapping[str, ScoresById] = MappingProxyType({}),
) -> tuple[Baseline, ...]:
    """Return the baselines of a task on its documents: the family's constant replies, and a random answer.

    There are none for groups, tasks whose replies a judge reads, and datasets without a published target. They hold no
    text of a credentialed dataset.

    Args:
        task: Task whose rules read the constant replies.
        documents: Questions that are answered.
        run: Scores of a run by name of the rule and document id. The constant answer that does best at the first main
            metric is tested against them, question by question.
    """
    if not documents or not task.has_family or task.family.asks is not Asks.NOBODY:
        return ()
    samples = list(map(Sample, documents))
    metrics = _baseline_metrics(task)
    constants = _constants(task, documents, task.family.constant_replies(samples), metrics, run)
    if task.family.kind is AnswerKind.CLOSED:
        scores = _accuracies_by_chance(task, documents, samples)
    else:
        expected = task.family.expected_by_chance(samples)
        by_chance = {}
        for metric in metrics:
            if metric.name in expected:
                by_chance[metric.name] = expected[metric.name]
        scores = dict.fromkeys(task.rows, by_chance)
    if not any(scores.values()):
        return tuple(constants)
    describes = "Chooses an option at random, each with the same chance: the exact expectation."
    return (*constants, Baseline("random answer", describes, scores))


def _baseline_metrics(task: TaskFile) -> list[AnyMetric]:
    """Return the metrics of constant replies: of reports those that count words, else those without counts."""
    if task.family.kind is AnswerKind.REPORT:
        keys = [metric.name for metric in task.metrics if compares_texts(metric)]
        return list(text_metrics(key for key in keys if metric_info(key).name in _WORD_METRICS))
    shown = []
    for metric in task.metrics:
        is_count = isinstance(metric, CorpusMetric) and metric.count is not None
        if not (metric.of_questions or is_count):
            shown.append(metric)
    return shown


def _point_values(metrics: Sequence[AnyMetric], scores: ScoreList) -> dict[str, float]:
    """Return the value of each metric by its name, NaN where it is not defined."""
    return {name: float(estimate.value) for name, estimate in evaluate(metrics, scores).items()}


def _accuracies_by_chance(
    task: TaskFile,
    documents: Documents,
    samples: Sequence[Sample],
) -> ValuesByRule:
    """Return accuracies by rule, with the chance of guessing right for each right answer."""
    accuracies = []
    for metric in task.metrics:
        if isinstance(metric, Metric) and metric.name.startswith("acc"):
            accuracies.append(metric)
    replies = [Reply(text="")] * len(samples)
    if task.compares_likelihoods:
        replies = [Reply(losses=(0.0,) * max(1, len(sample.options))) for sample in samples]
    by_rule = {}
    for name, row in task.rows.items():
        scores = scores_of(task, row, documents, replies)
        guesses = [{**score, "correct": score["random_choice"]} for score in scores]
        by_rule[name] = _point_values(accuracies, guesses)
    return by_rule


def _constants(
    task: TaskFile,
    documents: Documents,
    strategies: Sequence[Strategy],
    metrics: Sequence[AnyMetric],
    run: Mapping[str, ScoresById],
) -> list[Baseline]:
    """Score each constant reply under each rule, and test the best one against a run.

    Args:
        task: Task whose rules read the constant replies.
        documents: Questions that are answered.
        strategies: The constant replies.
        metrics: Metrics to compute.
        run: Scores of a run by row and document id. Under a row that it lacks there is no test.
    """
    # By number of the strategy, then by name of the rule.
    values: dict[int, ValuesByRule] = defaultdict(dict)
    tests: dict[int, dict[str, tuple[str, PairedResult]]] = defaultdict(dict)
    reasons: dict[int, str] = defaultdict(str)
    for name, row in task.rows.items():
        complete = {}
        for number, scores in enumerate(_readable_scores(task, row, documents, strategies)):
            if len(scores) == len(documents):
                complete[number] = scores
                values[number][name] = _point_values(metrics, scores)
                continue
            unread = len(documents) - len(scores)
            why = f"it reads no reply as this answer for {unread} of {len(documents)} questions"
            if needs_labeler(row):
                why = "it needs a labeler, which baselines do not ask"
            values[number][name] = {metric.name: math.nan for metric in metrics}
            reasons[number] += f" No score under {name}: {why}."
        test = _test_best(task, documents, complete, run[name]) if name in run else None
        if test is not None:
            best, metric, result = test
            tests[best][name] = (metric, result)
    constants = []
    for number, strategy in enumerate(strategies):
        describes = strategy.describes + reasons[number]
        constants.append(Baseline(strategy.name, describes, values[number], tests[number]))
    return constants


def _readable_scores(
    task: TaskFile,
    rule: Rule,
    documents: Documents,
    strategies: Sequence[Strategy],
) -> list[list[Score]]:
    """Return the scores of each strategy's replies that a rule reads as intended.

    The wordings of an answer are tried in turn, until one of them is read as this answer.

    Returns:
        A list for each strategy, of shape (documents,) if all of its answers are read. Documents whose answer is not
        read are left out: all of them if the rule needs a labeler, as none is asked here.
    """
    by_answer: dict[AnswerKey, Score] = {}
    waiting = [] if needs_labeler(rule) else _distinct_answers(strategies)
    attempt = 0
    while waiting:
        replies = {}
        for position, answer in waiting:
            reply = _wording(task, rule, documents[position], answer, attempt)
            if reply is not None:
                replies[position, answer] = reply
        with_reply = [documents[position] for position, _ in replies]
        scores = scores_of(task, rule, with_reply, list(replies.values()))
        waiting = []
        for key, score in zip(replies, scores, strict=True):
            _, answer = key
            if _is_read_as(answer, score):
                by_answer[key] = score
            else:
                waiting.append(key)
        attempt += 1
    all_scores = []
    for strategy in strategies:
        all_scores.append(
            [by_answer[key] for key in enumerate(strategy.meant) if key in by_answer]
        )
    return all_scores


def _is_read_as(answer: ExpectedAnswer, score: Score) -> bool:
    """Return whether a reply with this score was read as an answer. One without a value fits each reading."""
    value = score.get("value", score.get("correct"))
    if isinstance(value, list):
        value = tuple(value)
    return answer.value in (None, value)


def _test_best(
    task: TaskFile,
    documents: Documents,
    constants: Mapping[int, list[Score]],
    run: ScoresById,
) -> tuple[int, str, PairedResult] | None:
    """Test the best constant against a run, under the first main metric by which there is a best one.

    A metric under which every constant gets 0 by construction, such as set accuracy, makes no baseline.

    Args:
        task: Task that the run answered.
        documents: All its documents.
        constants: Scores of constant replies by their position, shape (documents,).
        run: Scores of the run by document id.

    Returns:
        Position of the best constant, name of the metric, and the test. None if no metric has a best constant, no
        question has a value in both, or a test of these values is not possible.
    """
    shared = _shared_positions(documents, run)
    if not shared:
        return None
    shared_samples = [Sample(documents[position]) for position in shared.values()]
    clusters = task.family.independent_clusters(shared_samples)
    samples = list(zip(shared, clusters, strict=True))

    def values(metric: AnyMetric, scores: ScoreList) -> Values:
        final = task.family.final_scores(scores)
        return with_drawn_units(task.family.sample_values(metric, final, samples), final)

    for metric in main_metrics(task):
        if not isinstance(metric, Metric):
            continue
        by_constant = {}
        for number, scores in constants.items():
            by_constant[number] = values(
                metric, [scores[position] for position in shared.values()]
            )
        best = _best_constant(metric, by_constant)
        if best is None:
            continue
        of_run = values(metric, [run[doc_id] for doc_id in shared])
        paired = paired_values(by_constant[best], of_run)
        if not paired[0]:
            return None
        result = compare_paired(*paired)
        return (best, metric.name, result) if result.is_testable else None
    return None


def _shared_positions(documents: Documents, run: ScoresById) -> dict[str, int]:
    """Return the positions of the questions with a score of a run, without failed samples, by document id."""
    shared = {}
    for position, document in enumerate(documents):
        doc_id = str(document["doc_id"])
        if doc_id in run and not is_failed(run[doc_id]):
            shared[doc_id] = position
    return shared


def _best_constant(metric: AnyMetric, by_constant: Mapping[int, Values]) -> int | None:
    """Return the position of the constant with the best mean, or None if every mean is 0 or none has any value.

    Args:
        metric: Metric of the values, which says whether higher is better.
        by_constant: Values of the questions by position of the constant.
    """
    sign = -1 if metric.higher_is_better is False else 1
    means = {}
    for position, by_id in by_constant.items():
        if by_id:
            means[position] = sign * mean([value for _, value in by_id.values()])
    return max(means, key=means.__getitem__) if any(means.values()) else None


def _distinct_answers(strategies: Sequence[Strategy]) -> list[AnswerKey]:
    """Return the answers of all strategies document by document, as rules prepare much per question."""
    distinct: list[AnswerKey] = []
    by_document = zip(*(strategy.meant for strategy in strategies), strict=True)
    for position, answers in enumerate(by_document):
        distinct += [(position, answer) for answer in dict.fromkeys(answers)]
    return distinct


def _wording(
    task: TaskFile,
    rule: Rule,
    document: Document,
    answer: ExpectedAnswer,
    attempt: int,
) -> Reply | None:
    """Build the reply that gives an answer in its wording of number ``attempt``, or None after the last one."""
    options = Sample(document).options
    if task.compares_likelihoods:
        losses = tuple(float(index != answer.option) for index in range(max(1, len(options))))
        return Reply(losses=losses) if attempt == 0 else None
    wordings = answer.said
    form = rule.option_form
    if form is not None and answer.option is not None and not answer.whole:
        wordings = (written_options(form, options)[answer.option], *wordings)
    return Reply(text=wordings[attempt]) if attempt < len(wordings) else None
