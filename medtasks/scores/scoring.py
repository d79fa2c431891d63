"""Scores of recorded replies under every rule of a task: of all samples, of groups and of classes.

The command line, the Python API and reports call this. It never runs a model. Only tasks that a judge reads ask one.
"""

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Document, Documents, Sample, letter
from medtasks.data.variants import WITHOUT_IMAGE
from medtasks.errors import RepliesError, near_match, warn_once
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.columns import Column
from medtasks.families.counts import COUNTS, is_stopped, judged_scores, unless_stopped
from medtasks.families.family import Replies, Reply, Rule, TaskFamily, with_labels
from medtasks.families.paired_choice import mean_over_pairs, paired_answers
from medtasks.families.text_metrics import text_metrics
from medtasks.home import as_json
from medtasks.metrics.clinical import ClassNumbers, Decision, class_numbers
from medtasks.metrics.metric import (
    AnyMetric,
    CorpusMetric,
    Estimate,
    Metric,
    PanelResult,
    Role,
    Scale,
    Score,
    ScoreList,
    clear_results,
    evaluate,
    with_image_clusters,
    with_units,
)
from medtasks.metrics.pairs import TOTAL, PairCounts, PairedAnswer, complete_pairs, count
from medtasks.metrics.report_metrics import keys_of
from medtasks.scores.error_classes import count_kinds, wrong_answers
from medtasks.scores.joint_judging import with_joint_verdicts
from medtasks.scores.score_model import PairOutcomes, RuleScores
from medtasks.scores.subgroups import CATEGORIES, by_category, by_group, with_interval
from medtasks.stats.intervals import FEW_CLUSTERS, without_noise
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile

RowScores = Mapping[str, tuple[str, ScoreList]]
"""Name and version of the rule, and scores of shape (samples,), by row of a task's results."""
JsonObject = dict[str, Any]
AUROC = "auroc ("  # beginning of the name of a class's
PAIR_METRICS = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")


def score_replies(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    report_metrics: Sequence[str] = (),
    row_scores: RowScores | None = None,
) -> dict[str, RuleScores]:
    """Return the scores of replies by row, such as ``reference`` and ``robust``.

    Samples without a reply are left out.

    Args:
        task: The task.
        documents: All its documents, in order.
        replies: Replies by document id.
        report_metrics: For a task that compares reports, metrics besides its own: names of
            :data:`medtasks.metrics.report_metrics.REPORT_METRICS`, or keys of their scores.
        row_scores: Scores of the answered documents, from :func:`score_rows`, so that no judge is asked twice.

    Raises:
        RepliesError: ``report_metrics`` for a task that compares no reports, or replies of the other kind.
    """
    # A group of tasks has no family and raises here.
    compares_reports = task.family.kind is AnswerKind.REPORT
    if report_metrics and not compares_reports:
        raise RepliesError(
            f"'{task.name}' compares no reports, so that it has no metrics but its own; leave out --metric"
        )
    if documents:
        _warn_of_lacking_columns(task, documents)
    answered = answered_documents(documents, replies)
    metrics = _with_further(task.metrics, report_metrics)
    clear_results()  # the user may have fixed a failure before scoring again
    rows = {}
    if row_scores is None:
        row_scores = score_rows(task, answered, replies)
    for name, (rule, scores) in row_scores.items():
        row = rule_scores(task, rule, scores, answered, metrics)
        panels = panel_results(metrics, scores)
        log_notes(row.few_clusters, ())
        if not task.family.paired:
            warnings = score_warnings(task, answered, scores, metrics)
            log_notes(warnings, () if compares_reports else panels)
        failures: dict[str, str] = {}
        settings: JsonObject = {}
        for panel in panels if compares_reports else ():
            failures |= panel.failures
            settings |= panel.settings
        wrong = wrong_answers(task, answered, scores, replies)
        rows[name] = replace(row, name=name, failures=failures, settings=settings, wrong=wrong)
    return rows


def answered_documents(documents: Documents, replies: Container[str]) -> list[Document]:
    """Return the documents whose id is among those of replies, in order.

    Example:
        >>> answered_documents([{"doc_id": "1"}, {"doc_id": "2"}], {"2": "B"})
        [{'doc_id': '2'}]
    """
    return [document for document in documents if document["doc_id"] in replies]


def main_metric(task: TaskFile) -> AnyMetric:
    """Return the first main metric of a task, which is the first one that its report shows."""
    return next(
        (metric for metric in task.metrics if metric.role is Role.MAIN), task.metrics[0]
    )


def verdict_scores(
    task: TaskFile, documents: Documents, replies: Replies
) -> dict[str, RuleScores]:
    """Return the scores that come from a judge, and numbers of replies, by row."""
    answered = answered_documents(documents, replies)
    metrics = [*task.family.judged]
    metrics += [
        metric for metric in task.metrics if metric.role is Role.RATE or metric.name in COUNTS
    ]
    verdicts = {}
    for name, (rule, scores) in score_rows(task, answered, replies).items():
        verdicts[name] = rule_scores(task, rule, scores, answered, metrics)
    return verdicts


def _with_further(metrics: Sequence[AnyMetric], names: Sequence[str]) -> list[AnyMetric]:
    """Add report metrics by name or key, before the counts."""
    counts = [metric for metric in metrics if metric.name in COUNTS]
    others = [metric for metric in metrics if metric.name not in COUNTS]
    keys = dict.fromkeys(chain.from_iterable(map(keys_of, names)))
    for metric in metrics:
        keys.pop(metric.name, None)
    return [*others, *text_metrics(keys), *counts]


def rule_as_dict(task: TaskFile, rule: RuleScores) -> Any:
    """Return the scores of one rule as a JSON object, with None for NaN.

    Single answers have their values under ``metrics``, pairs under ``categories``. Columns without a test are left out.
    """
    lists_all = task.family.kind is AnswerKind.REPORT  # metrics without a standard error, too
    errors = {}
    for score in rule.scores:
        if score.has_error or (lists_all and score.metric not in COUNTS):
            errors[score.metric] = score.error
    content: JsonObject = {
        "rule": rule.rule,
        "standard_errors": errors,
        "reasons": rule.reasons,
    }
    tested = {}
    for column, groups in rule.groups.items():
        if rule.column_tests.get(column):
            tested[column] = {"tests": rule.column_tests[column], "groups": groups}
    content |= _without_empty(
        {"remarks": rule.remarks, "subgroups": tested, "by_class": rule.by_class}
    )
    answers_as_dict = _pairs_as_dict if rule.categories else _single_answers_as_dict
    return as_json(content | answers_as_dict(rule))


def _pairs_as_dict(rule: RuleScores) -> JsonObject:
    """Return the fields of a rule that reads pairs."""
    content: JsonObject = {}
    if injections := rule.estimates.get("possible_injection"):
        content["possible_injection"] = int(injections.value)
    by_category = {}
    for name, counts in rule.categories.items():
        metrics = {metric: getattr(counts, metric) for metric in PAIR_METRICS}
        by_category[name] = metrics | asdict(counts)
    return content | {"categories": by_category}


def _single_answers_as_dict(rule: RuleScores) -> JsonObject:
    """Return the fields of a rule that reads single answers, not pairs."""
    metrics = {score.metric: score.value for score in rule.scores}
    accuracies: dict[str, JsonObject] = {}
    for column, groups in rule.groups.items():
        for group in groups if "accuracy" in metrics else ():
            score = group.scores[0]
            numbers = {"accuracy": score.value, "standard_error": score.error}
            named = accuracies.setdefault(column, {})
            named[group.name] = {"questions": group.questions, **numbers}
    further = {
        "settings": rule.settings,
        "failures": rule.failures,
        "groups": accuracies,
        "wrong_answers": count_kinds(rule.wrong),
    }
    return {"metrics": metrics} | _without_empty(further)


def _without_empty(content: JsonObject) -> JsonObject:
    return {name: value for name, value in content.items() if value}


def score_rows(task: TaskFile, documents: Documents, replies: Replies) -> RowScores:
    """Score replies under each row of a task's results.

    Args:
        task: The task.
        documents: Answered documents, shape (samples,).
        replies: A reply to each of them, by document id.

    Raises:
        RepliesError: Some replies are of the other kind, texts and likelihoods.
    """
    version_of: Callable[[Rule], str]
    likelihoods = {reply.losses is not None for reply in replies.values()}
    if likelihoods <= {task.compares_likelihoods}:
        rules = task.rows
        version_of = task.versioned_rule
    elif likelihoods == {False} and task.family.letter_rows:
        rules = task.family.letter_rows
        version_of = task.family.rule_with_version
    else:
        kinds = ["texts", "log-likelihoods"]
        if task.compares_likelihoods:
            kinds.reverse()
        raise RepliesError(
            f"'{task.name}' reads {kinds[0]}, and some replies are {kinds[1]}; is this its own file?"
        )
    ordered = [replies[document["doc_id"]] for document in documents]
    rows = {}
    for name, rule in rules.items():
        scores = task.family.final_scores(scores_of(task, rule, documents, ordered))
        rows[name] = (version_of(rule), with_units(scores))
    return rows


def scores_of(
    task: TaskFile,
    rule: Rule,
    documents: Documents,
    replies: Sequence[Reply],
) -> list[Score]:
    """Return the scores of replies under one rule. Documents, replies and scores have shape (samples,)."""
    by_sample = with_joint_verdicts(task, rule, documents, with_labels(replies, rule))
    family = task.family
    pairs = zip(documents, by_sample, strict=True)
    return [family.score(Sample(document), reply, rule) for document, reply in pairs]


def _warn_of_lacking_columns(task: TaskFile, documents: Documents) -> None:
    """Warn of columns that a task groups by, and no document, of at least one, has."""
    for column in {*task.breakdown}.difference(*documents):
        hint = near_match(column, documents[0])
        warn_once(
            f"scores are not grouped by '{column}', a column that '{task.name}' does not have{hint}"
        )


def rule_scores(
    task: TaskFile,
    rule: str,
    scores: ScoreList,
    columns: Documents,
    metrics: Sequence[AnyMetric] = (),
) -> RuleScores:
    """Aggregate scores of samples under one rule.

    Args:
        task: The task.
        rule: Name and version of the rule.
        scores: Scores, shape (samples,).
        columns: Columns to group scores by, shape (samples,): documents, or scores with their columns.
        metrics: Metrics to compute, by default the task's.
    """
    metrics = metrics or task.metrics
    reasons = count_reasons(scores)
    scores = list(with_units(task.family.final_scores(list(scores))))
    estimates = evaluate(metrics, scores)
    no_image = task.variant in WITHOUT_IMAGE
    table = [
        with_interval(metric, estimates[metric.name], no_image=no_image) for metric in metrics
    ]
    failures: dict[str, str] = {}
    if is_stopped(scores):
        cause = next(score_warnings(task, columns, scores), "")
        failures = {score.metric: cause for score in table if cause and math.isnan(score.value)}
    few_clusters = tuple(_few_clusters(metrics, estimates))
    remarks = [metric.remark(metric.selection(scores)) for metric in metrics if metric.remark]
    whole = RuleScores(
        "",
        rule,
        "",
        tuple(table),
        reasons,
        failures=failures,
        few_clusters=few_clusters,
        remarks=tuple(filter(None, remarks)),
    )
    if task.family.paired:
        by_columns = list(dict.fromkeys((CATEGORIES, *task.breakdown)))
        groups = by_category(task, columns, scores, by_columns)
        answers = paired_answers(task.metrics[0].selection(scores))
        counts = count(answers)
        outcomes = _pair_outcomes(answers, scores, counts[TOTAL])
        whole = replace(whole, pairs=outcomes, categories=counts)
    else:
        groups = by_group(task, columns, scores)
        whole = replace(whole, by_class=numbers_by_class(task, columns, scores))
    return replace(whole, groups=groups.groups, column_tests=groups.tests)


def _pair_outcomes(
    answers: Sequence[PairedAnswer],
    scores: ScoreList,
    total: PairCounts,
) -> PairOutcomes:
    """Count the outcomes of pairs.

    Args:
        answers: Answers to the images of all pairs, one per image.
        scores: Final scores of the whole run, which tell whether the pairs are drawn from a larger set.
        total: Counts of all pairs.
    """
    pairs = complete_pairs(answers)
    decided = []  # of the others, one image got its answer, or a reply is invalid
    invalid: Counter[int] = Counter()
    same: Counter[str] = Counter()
    swapped = 0
    for pair in pairs:
        values = (pair.first.value, pair.second.value)
        invalid[values.count(None)] += 1
        if pair.valid and pair.first.correct == pair.second.correct:
            decided.append(pair)
        if not pair.valid or pair.both_correct:
            continue
        swapped += values == (pair.second.target, pair.first.target)
        if pair.same_option:
            same[str(pair.first.value)] += 1
    solved = mean_over_pairs(
        "solved_of_decided", lambda pair: float(pair.both_correct), units=lambda _: decided
    )
    return PairOutcomes(
        both_right=total.set_score,
        swapped=swapped,
        same=dict(sorted(same.items())),
        one_invalid=invalid[1],
        both_invalid=invalid[2],
        incomplete=total.incomplete_pairs,
        both_wrong=len(decided) - total.set_score,
        solved_of_decided=with_interval(solved, solved.estimate(scores)),
    )


def _few_clusters(
    metrics: Sequence[AnyMetric], estimates: Mapping[str, Estimate]
) -> Iterator[str]:
    """Yield a sentence on the main metrics without an interval, or with one that rests on few effective clusters.

    These are degrees of freedom plus one. Source: Carter, Schnepel and Steigerwald (2017), Review of Economics and
    Statistics 99.
    """
    compared = [metric for metric in metrics if metric.is_compared]
    main = [metric for metric in compared if metric.role is Role.MAIN] or compared
    names_by_sentence: dict[str, list[str]] = {}
    for metric in main:
        sentence = _few_clusters_sentence(estimates[metric.name])
        if sentence:
            names_by_sentence.setdefault(sentence, []).append(metric.name)
    for sentence, names in names_by_sentence.items():
        yield f"{sentence} ({', '.join(names)})."


def _few_clusters_sentence(estimate: Estimate) -> str:
    """Say without a full stop why an interval is missing or rough, or return an empty text if it is neither."""
    if not estimate.clusters or estimate.degrees is None or estimate.effective == math.inf:
        return ""
    if estimate.clusters == 1:
        return f"Only 1 {estimate.unit}: there is no interval"
    worth = min(without_noise(estimate.degrees + 1), estimate.clusters)
    if math.isnan(worth):
        return f"All {estimate.clusters} {estimate.unit}s share images: there is no interval"
    if worth >= FEW_CLUSTERS:
        return ""
    return f"Only about {worth:.2g} independent {estimate.unit}s: intervals are rough"


def numbers_by_class(
    task: TaskFile,
    columns: Documents,
    scores: ScoreList,
) -> tuple[ClassNumbers, ...]:
    """Return the clinical numbers of each class. There are none where the published code stops.

    Args:
        task: The task.
        columns: Documents or scores, shape (samples,). Classes have the texts of their options if these are the same in
            all of them, else their letters.
        scores: Final scores, shape (samples,).
    """
    if is_stopped(scores):
        return ()
    decided = []
    for score in with_image_clusters(scores):
        decisions = task.family.decisions(score)
        if decisions:
            decided.append((score, decisions))
    judged = set(map(id, judged_scores([score for score, _ in decided])))
    by_class: dict[str, list[Decision]] = {}
    for index, (score, decisions) in enumerate(decided):
        cluster = score.get("cluster_id") or ("sample", index)
        failed = id(score) not in judged
        for name, (present, called) in decisions.items():
            by_class.setdefault(name, []).append(Decision(cluster, present, called, failed))
    names = class_names(columns)
    return tuple(class_numbers(names.get(name, name), of) for name, of in by_class.items())


def class_metrics(task: TaskFile, documents: Documents) -> list[AnyMetric]:
    """Return sensitivity and specificity of each class, and its AUROC from likelihoods, by which runs are compared."""
    names = class_names(documents)
    family = task.family
    metrics: list[AnyMetric] = []
    if task.compares_likelihoods:
        metrics += [CorpusMetric(f"{AUROC}{name})", scale=Scale.RAW) for name in names.values()]
    if type(family).decisions is TaskFamily.decisions:
        return metrics
    if not {Column.LABEL, Column.LABELS} & {*family.columns.values()}:
        names = {"Yes": "Yes"}
    for option, name in names.items():
        for metric, present in (("sensitivity", True), ("specificity", False)):
            of = partial(_class_answer, family, option, present)
            metrics.append(
                Metric(f"{metric} ({name})", selection=unless_stopped(judged_scores), of=of)
            )
    return metrics


def _class_answer(family: TaskFamily, option: str, present: bool, score: Score) -> float | None:
    """Return whether a reply is right about a class, 1 or 0, of samples with the class or of those without it.

    Args:
        family: Family of the task.
        option: Letter of the class, or ``Yes``.
        present: True for sensitivity, of samples with the class; False for specificity, of those without it.
        score: Score of the reply. None is returned if the sample is one of the others.
    """
    has_class, called = family.decisions(score).get(option, (None, None))
    return float(called is present) if has_class is present else None


def class_names(documents: Documents) -> dict[str, str]:
    """Return the texts of options by letter if all documents have the same ones.

    Example:
        >>> class_names([{"options": ["Edema", "Normal"]}, {"options": ["Edema", "Normal"]}])
        {'A': 'Edema', 'B': 'Normal'}
    """
    options = {tuple(document.get("options") or ()) for document in documents}
    if len(options) != 1:
        return {}
    return {letter(index): text for index, text in enumerate(options.pop())}


def count_reasons(scores: Iterable[Score]) -> dict[str, int]:
    """Return the number of replies that were ok, ambiguous, refused, ..., the most frequent first.

    Example:
        >>> count_reasons([{"reason": "refused"}, {"reason": "ok"}, {"reason": "ok"}, {}])
        {'ok': 2, 'refused': 1}
    """
    reasons = Counter(str(score["reason"]) for score in scores if "reason" in score)
    return dict(reasons.most_common())


def panel_results(metrics: Sequence[AnyMetric], scores: ScoreList) -> list[PanelResult]:
    """Return the results of all panels, each once, with the reasons for values that could not be computed."""
    panels = {}
    for metric in metrics:
        if isinstance(metric, CorpusMetric) and metric.panel is not None:
            panels[id(metric.panel)] = (metric.panel, metric)
    return [panel.of(metric.selection(scores)) for panel, metric in panels.values()]


def score_warnings(
    task: TaskFile,
    documents: Documents,
    scores: ScoreList,
    metrics: Sequence[AnyMetric] = (),
) -> Iterator[str]:
    """Yield warnings on scores, by default of the task's metrics. Ids of a private task are hashed."""
    if is_stopped(scores) and is_private_task(task, documents):
        scores = [
            {**score, "sample": hidden_id("doc", str(score["sample"]))} for score in scores
        ]
    for metric in metrics or task.metrics:
        warning = metric.warning(scores) if metric.warning else None
        if warning:
            yield warning


def log_notes(sentences: Iterable[str], panels: Sequence[PanelResult]) -> None:
    """Log each sentence, and each value that a panel could not compute, once in this process.

    Args:
        sentences: Sentences with a full stop.
        panels: Results of panels; empty if what they could not compute is shown elsewhere.
    """
    for sentence in sentences:
        warn_once(sentence)
    for panel in panels:
        for name, cause in panel.failures.items():
            warn_once(f"{name} could not be computed: {cause}.")
        for sentence in panel.warnings:
            warn_once(f"{sentence}.")
