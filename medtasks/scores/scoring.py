"""Scores of recorded replies under every rule of a task, without a model: of all samples, of groups and of classes."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from typing import Any

from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Documents, Sample, letter
from medtasks.data.variants import WITHOUT_IMAGE
from medtasks.errors import RepliesError, near_match, warn_once
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.columns import Column
from medtasks.families.counts import COUNTS, judged_scores, unstopped
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
    clustered,
    evaluate,
    forget_computed,
    with_units,
)
from medtasks.metrics.pairs import PairCounts, PairedAnswer, ScoredPair, complete_pairs, count
from medtasks.metrics.report_metrics import keys_of
from medtasks.scores.error_classes import count_kinds, wrong_answers
from medtasks.scores.joint_judging import with_joint_verdicts
from medtasks.scores.score_model import Group, PairOutcomes, RuleScores
from medtasks.scores.subgroups import CATEGORIES, by_category, by_group, with_interval
from medtasks.stats.intervals import FEW_CLUSTERS, without_noise
from medtasks.tasks.documents import is_private_task
from medtasks.tasks.task_file import TaskFile

RowScores = Mapping[str, tuple[str, list[Score]]]
"""Name and version of the rule, and scores of shape (samples,), by name of a row."""
AUROC = "auroc ("  # beginning of the name of a class's
PAIR_METRICS = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")


def score_replies(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    report_metrics: Sequence[str] = (),
    of_rows: RowScores | None = None,
) -> dict[str, RuleScores]:
    """Return the scores of replies by name of the rule (``reference``, ``robust``); those without one are left out.

    Args:
        task: The task.
        documents: All its documents, in order.
        replies: Replies by document id.
        report_metrics: For a task that compares reports, metrics besides its own: names of
            :data:`medtasks.metrics.report_metrics.REPORT_METRICS`, or keys of their scores.
        of_rows: Scores of the answered documents as :func:`rows_of` returns them, so that no judge is asked twice.
    """
    compares_reports = (
        task.family.kind is AnswerKind.REPORT
    )  # of a group, which has no family, this raises
    if report_metrics and not compares_reports:
        own_only = f"'{task.name}' compares no reports, so that it has no metrics but its own"
        raise RepliesError(f"{own_only}; leave out --metric")
    for column in {*task.breakdown}.difference(*documents) if documents else ():
        hint = near_match(column, documents[0])
        warn_once(
            f"scores are not grouped by '{column}', a column that '{task.name}' does not have{hint}"
        )
    answered = [document for document in documents if document["doc_id"] in replies]
    metrics = _with_further(task.metrics, report_metrics)
    forget_computed()  # the user may have fixed a failure before scoring again
    rows = {}
    of_rows = rows_of(task, answered, replies) if of_rows is None else of_rows
    for name, (rule, scores) in of_rows.items():
        row = rule_scores(task, rule, scores, answered, metrics)
        panels = panel_results(metrics, scores)
        log_notes(row.few_clusters, ())
        if not task.family.paired:
            log_notes(
                score_warnings(task, answered, scores, metrics), () if compares_reports else panels
            )
        failures: dict[str, str] = {}
        settings: dict[str, Any] = {}
        for panel in panels if compares_reports else ():
            failures |= panel.failures
            settings |= panel.settings
        rows[name] = replace(
            row,
            name=name,
            failures=failures,
            settings=settings,
            wrong=wrong_answers(task, answered, scores, replies),
        )
    return rows


def verdict_scores(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, RuleScores]:
    """Return the scores that come from a judge, and numbers of replies, by name of the rule."""
    answered = [document for document in documents if document["doc_id"] in replies]
    numbers = [
        metric for metric in task.metrics if metric.role is Role.RATE or metric.name in COUNTS
    ]
    metrics = [*task.family.judged, *numbers]
    rows = rows_of(task, answered, replies)
    return {
        name: rule_scores(task, rule, scores, answered, metrics)
        for name, (rule, scores) in rows.items()
    }


def _with_further(metrics: Sequence[AnyMetric], names: Sequence[str]) -> list[AnyMetric]:
    """Add report metrics by name or key, before the counts."""
    counts = [metric for metric in metrics if metric.name in COUNTS]
    others = [metric for metric in metrics if metric.name not in COUNTS]
    keys = dict.fromkeys(chain.from_iterable(map(keys_of, names)))
    further = [key for key in keys if key not in {metric.name for metric in metrics}]
    return [*others, *text_metrics(further), *counts]


def rule_as_dict(task: TaskFile, rule: RuleScores) -> Any:
    """Return scored replies as JSON values; NaN becomes None."""
    lists_all = task.family.kind is AnswerKind.REPORT  # metrics without a standard error, too
    with_error = [
        score
        for score in rule.scores
        if score.has_error or (lists_all and score.metric not in COUNTS)
    ]
    errors = {score.metric: score.error for score in with_error}
    content: dict[str, Any] = {
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
    if rule.categories:
        if injections := rule.estimates.get("possible_injection"):
            content["possible_injection"] = int(injections.value)
        content["categories"] = {
            name: _category_as_dict(counts) for name, counts in rule.categories.items()
        }
        return as_json(content)
    content["metrics"] = {score.metric: score.value for score in rule.scores}
    accuracies = {}
    if "accuracy" in content["metrics"]:
        accuracies = {
            column: _accuracies(groups) for column, groups in rule.groups.items() if groups
        }
    further = {"settings": rule.settings, "failures": rule.failures, "groups": accuracies}
    return as_json(content | _without_empty({**further, "wrong_answers": count_kinds(rule.wrong)}))


def _without_empty(content: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in content.items() if value}


def _category_as_dict(counts: PairCounts) -> dict[str, Any]:
    return {**{metric: getattr(counts, metric) for metric in PAIR_METRICS}, **asdict(counts)}


def _accuracies(groups: Sequence[Group]) -> dict[str, dict[str, float]]:
    """Return questions, accuracy and its error by group."""
    accuracies = {}
    for group in groups:
        score = group.scores[0]
        accuracy = {"accuracy": score.value, "standard_error": score.error}
        accuracies[group.name] = {"questions": group.questions, **accuracy}
    return accuracies


def rows_of(task: TaskFile, documents: Documents, replies: Replies) -> RowScores:
    """Return the scores by name of the rule of a task's results.

    All ``documents``, shape (samples,), have a reply. RepliesError: some are of the other kind, texts and likelihoods.
    """
    likelihoods = {reply.losses is not None for reply in replies.values()}
    if likelihoods <= {task.compares_likelihoods}:
        rows = task.rows
    elif likelihoods == {False} and task.family.letter_rows:
        rows = task.family.letter_rows
    else:
        kinds = (
            ("log-likelihoods", "texts")
            if task.compares_likelihoods
            else ("texts", "log-likelihoods")
        )
        raise RepliesError(
            f"'{task.name}' reads {kinds[0]}, and some replies are {kinds[1]}; is this its own file?"
        )
    ordered = [replies[document["doc_id"]] for document in documents]
    as_letters = task.compares_likelihoods and any(reply.losses is None for reply in ordered)
    versioned = task.family.versioned if as_letters else task.versioned_rule
    return {
        name: (
            versioned(row),
            list(with_units(task.family.settled(scores_of(task, row, documents, ordered)))),
        )
        for name, row in rows.items()
    }


def scores_of(
    task: TaskFile, rule: Rule, documents: Documents, replies: Sequence[Reply]
) -> list[Score]:
    """Return the scores of replies read in one way; documents, replies and scores have shape (samples,)."""
    by_sample = with_joint_verdicts(task, rule, documents, with_labels(replies, rule))
    family = task.family
    pairs = zip(documents, by_sample, strict=True)
    return [family.score(Sample(document), reply, rule) for document, reply in pairs]


def rule_scores(
    task: TaskFile,
    rule: str,
    scores: ScoreList,
    columns: Documents,
    metrics: Sequence[AnyMetric] = (),
) -> RuleScores:
    """Aggregate scores of samples under one rule; ``columns`` group them: documents, or scores with their columns."""
    metrics = metrics or task.metrics
    reasons = count_reasons(scores)
    scores = list(with_units(task.family.settled(list(scores))))
    estimates = evaluate(metrics, scores)
    no_image = task.variant in WITHOUT_IMAGE
    table = tuple(
        with_interval(metric, estimates[metric.name], no_image=no_image) for metric in metrics
    )
    undefined: dict[str, str] = {}
    if any(score.get("stops") for score in scores) and (
        why := next(score_warnings(task, columns, scores), "")
    ):
        undefined = {score.metric: why for score in table if math.isnan(score.value)}
    sentences = tuple(_few_clusters(metrics, estimates))
    remarks = tuple(
        filter(
            None, (metric.remark(metric.selection(scores)) for metric in metrics if metric.remark)
        )
    )
    whole = RuleScores(
        "", rule, "", table, reasons, failures=undefined, few_clusters=sentences, remarks=remarks
    )
    if not task.family.paired:
        groups = by_group(task, columns, scores)
        classes = numbers_by_class(task, columns, scores)
        return replace(whole, groups=groups.groups, column_tests=groups.tests, by_class=classes)
    answers = paired_answers(task.metrics[0].selection(scores))
    groups = by_category(task, columns, scores, list(dict.fromkeys((CATEGORIES, *task.breakdown))))
    whole = replace(whole, groups=groups.groups, column_tests=groups.tests)
    return replace(whole, pairs=_pair_outcomes(answers, scores), categories=count(answers))


def _pair_outcomes(answers: Sequence[PairedAnswer], scores: ScoreList) -> PairOutcomes:
    pairs = complete_pairs(answers)
    solved = [pair for pair in pairs if pair.solved]
    valid = [pair for pair in pairs if pair.valid and not pair.solved]
    both_wrong = {pair for pair in valid if not pair.first.correct and not pair.second.correct}
    invalid = Counter((pair.first.value is None) + (pair.second.value is None) for pair in pairs)
    same = Counter(str(pair.first.value) for pair in valid if pair.confused)

    def is_solved(pair: ScoredPair) -> float | None:
        if pair.solved:
            return 1.0
        return (
            0.0 if pair in both_wrong else None
        )  # one image got its answer, or a reply is invalid

    decided = mean_over_pairs("solved_of_decided", is_solved, units=lambda _: pairs)
    return PairOutcomes(
        both_right=len(solved),
        swapped=sum(
            (pair.first.value, pair.second.value) == (pair.second.target, pair.first.target)
            for pair in valid
        ),
        same=dict(sorted(same.items())),
        one_invalid=invalid[1],
        both_invalid=invalid[2],
        incomplete=len({answer.pair_id for answer in answers}) - len(pairs),
        both_wrong=len(both_wrong),
        solved_of_decided=with_interval(decided, decided.estimate(scores)),
    )


def _few_clusters(metrics: Sequence[AnyMetric], estimates: Mapping[str, Estimate]) -> Iterator[str]:
    """Yield a sentence on the main metrics without an interval, or with one that rests on few effective clusters.

    These are degrees of freedom plus one. Source: Carter, Schnepel and Steigerwald (2017), Review of Economics and
    Statistics 99.
    """
    compared = [metric for metric in metrics if metric.is_compared]
    main = [metric.name for metric in compared if metric.role is Role.MAIN] or [
        metric.name for metric in compared
    ]
    few: dict[str, list[str]] = {}
    for name in main:
        estimate = estimates[name]
        if not estimate.clusters or estimate.degrees is None or estimate.effective == math.inf:
            continue
        worth = min(without_noise(estimate.degrees + 1), estimate.clusters)
        sentence = f"Only about {worth:.2g} independent {estimate.unit}s: intervals are rough"
        if estimate.clusters == 1:
            sentence = f"Only 1 {estimate.unit}: there is no interval"
        elif math.isnan(worth):
            sentence = (
                f"All {estimate.clusters} {estimate.unit}s share images: there is no interval"
            )
        elif worth >= FEW_CLUSTERS:
            continue
        few.setdefault(sentence, []).append(name)
    for sentence, names in few.items():
        yield f"{sentence} ({', '.join(names)})."


def numbers_by_class(
    task: TaskFile, columns: Documents, scores: ScoreList
) -> tuple[ClassNumbers, ...]:
    """Return the clinical numbers of each class; there are none where the published code stops.

    Classes have the texts of the options if all ``columns`` have the same ones, else their letters.
    """
    if any(score.get("stops") for score in scores):
        return ()
    decided = [
        (score, decisions)
        for score in clustered(scores)
        if (decisions := task.family.decisions(score))
    ]
    names = class_names(columns)
    read = {id(score) for score in judged_scores([score for score, _ in decided])}
    by_class: dict[str, list[Decision]] = {}
    for place, (score, decisions) in enumerate(decided):
        cluster, failed = score.get("cluster_id") or ("sample", place), id(score) not in read
        for name, (present, called) in decisions.items():
            by_class.setdefault(name, []).append(Decision(cluster, present, called, failed))
    return tuple(
        class_numbers(names.get(name, name), of_class) for name, of_class in by_class.items()
    )


def class_metrics(task: TaskFile, documents: Documents) -> list[AnyMetric]:
    """Return sensitivity and specificity of each class, and its AUROC from likelihoods, by which runs are compared."""
    names, family = class_names(documents), task.family
    areas = names.values() if task.compares_likelihoods else ()
    metrics: list[AnyMetric] = [CorpusMetric(f"{AUROC}{name})", scale=Scale.RAW) for name in areas]
    if type(family).decisions is TaskFamily.decisions:
        return metrics
    if not {Column.LABEL, Column.LABELS} & {*family.columns.values()}:
        names = {"Yes": "Yes"}
    for option, name in names.items():
        for metric, present in (("sensitivity", True), ("specificity", False)):
            of = partial(_is_called_right, family, option, present)
            metrics.append(Metric(f"{metric} ({name})", selection=unstopped(judged_scores), of=of))
    return metrics


def _is_called_right(family: TaskFamily, option: str, present: bool, score: Score) -> float | None:
    """Return whether a sample that has the class, or one that has not, is called so; None for others."""
    has_class, called = family.decisions(score).get(option, (None, None))
    return float(called is present) if has_class is present else None


def class_names(documents: Documents) -> dict[str, str]:
    """Return the texts of options by letter if all documents have the same ones."""
    options = {tuple(document.get("options") or ()) for document in documents}
    return {letter(n): text for n, text in enumerate(options.pop())} if len(options) == 1 else {}


def count_reasons(scores: Iterable[Score]) -> dict[str, int]:
    """Return the number of replies that were ok, ambiguous, refused, ..., the most frequent first."""
    return dict(
        Counter(str(score["reason"]) for score in scores if "reason" in score).most_common()
    )


def panel_results(metrics: Sequence[AnyMetric], scores: ScoreList) -> list[PanelResult]:
    """Return the results of all panels, each once, with the reasons for values that could not be computed."""
    of_corpus = [metric for metric in metrics if isinstance(metric, CorpusMetric)]
    panels = {
        id(metric.panel): (metric.panel, metric) for metric in of_corpus if metric.panel is not None
    }
    return [panel.of(metric.selection(scores)) for panel, metric in panels.values()]


def score_warnings(
    task: TaskFile, documents: Documents, scores: ScoreList, metrics: Sequence[AnyMetric] = ()
) -> Iterator[str]:
    """Yield warnings on scores, by default of the task's metrics; ids of a private task are hashed."""
    if any(score.get("stops") for score in scores) and is_private_task(task, documents):
        scores = [{**score, "sample": hidden_id("doc", str(score["sample"]))} for score in scores]
    warnings = (metric.warning(scores) for metric in metrics or task.metrics if metric.warning)
    yield from filter(None, warnings)


def log_notes(sentences: Iterable[str], panels: Sequence[PanelResult]) -> None:
    """Log each sentence, and each value that a panel could not compute, once in this process."""
    for sentence in sentences:
        warn_once(sentence)
    for panel in panels:
        failures = [
            f"{name} could not be computed: {cause}" for name, cause in panel.failures.items()
        ]
        for sentence in (*failures, *panel.warnings):
            warn_once(f"{sentence}.")
