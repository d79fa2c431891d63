"""Sentences to quote from a report: result, comparison and reliability of a task."""

import math
from collections.abc import Sequence
from dataclasses import replace

from medtasks.data.variants import BLANK, BLIND, SWAPPED
from medtasks.metrics.metric import Role
from medtasks.report.differences import SAME_IMAGES
from medtasks.report.group_tables import finding
from medtasks.report.report_model import Gain, RunReport, TaskReport
from medtasks.report.wording import (
    VARIANTS,
    change_text,
    clusters_in_words,
    difference,
    number,
    p_statement,
    p_value,
    quantity,
    score_text,
    warnings,
)
from medtasks.scores.score_model import RuleScores, careful_rule
from medtasks.stats.paired import ALPHA
from medtasks.tasks.task_files import variant_of

# Variants that make a task harder for a model that sees.
_STRESS = VARIANTS.keys() - {BLIND, BLANK, SWAPPED, "told", "nota_control"}
_Sentences = dict[str, tuple[str, str, str]]  # result, comparison and reliability by task


def quotable_sentences(report: RunReport) -> _Sentences:
    """Return sentences on the tasks that have a score and are no variant of another task in the report.

    They are about the main metric, or the primary outcome of its task, read by the careful row (``robust`` or
    ``strict``) if a task has one. With a primary outcome, each result says whether it is primary or exploratory.

    Returns:
        Result, comparison and reliability by task.
    """
    variants = _compared_variants(report.tasks)
    made = _model_and_versions(report)
    sentences: _Sentences = {}
    for task in report.tasks:
        rules = {rule.name: rule for rule in task.rules if rule.scores}
        if task.name in variants or not rules:
            continue
        rule = careful_rule(rules) or next(iter(rules.values()))
        lead = ""
        if primary := report.primary:
            stated = rule.estimates.get(primary.metric)
            if stated and task.name == primary.task:
                # Sentences are about the first score.
                rule = replace(rule, scores=(stated, *rule.scores))
            lead = primary.lead(task.name, rule.scores[0].metric)
        sentences[task.name] = (
            lead + _result(task, rule, report.title),
            _comparison(task, rule),
            _reliability(task, rule, made),
        )
    return sentences


def _compared_variants(tasks: Sequence[TaskReport]) -> set[str]:
    """Return the names of tasks that are a variant of another one of the tasks."""
    names = set()
    for task in tasks:
        for gain in task.gains:
            # One on the same images is a task of its own.
            if not gain.variant.startswith(SAME_IMAGES):
                names.add(gain.task)
    return names


def _model_and_versions(report: RunReport) -> str:
    """Return model, fingerprint of its weights and versions as far as recorded, or an empty text if none is."""
    versions = report.facts.get("versions", "").split(", ")
    ours = [text for text in versions if text.startswith(("medtasks ", "lmms_eval "))]
    facts = {
        "model": report.model,
        "fingerprint of the weights": report.facts.get("fingerprint of the weights", ""),
        "versions": ", ".join(ours),
    }
    return "; ".join(f"{name}: {text}" for name, text in facts.items() if text)


def headline(report: RunReport) -> str:
    """Name the task whose sentences open the report.

    Returns:
        The first task with a main metric, else the first task; empty without any. Reports of findings have no main
        metric, only aspects such as BLEU.
    """
    names = [*quotable_sentences(report)]
    for task in report.tasks:
        has_main = any(metric.role is Role.MAIN for metric in task.metrics.values())
        if has_main and task.name in names:
            return task.name
    return names[0] if names else ""


def image_gain(task: TaskReport, rule: RuleScores) -> tuple[Gain | None, str]:
    """Return the gain over the blind variant, or over another one if it is 0 by construction.

    Returns:
        The gain, or None if its variant was not run, and a remark on its metric or variant, empty if they are the main
        metric and the blind variant.
    """
    metric = rule.scores[0].metric if rule.scores else ""
    gains = {(gain.variant, gain.metric): gain for gain in task.gains if gain.rule == rule.name}
    if metric not in task.metrics or not task.metrics[metric].zero_if_blind:
        return gains.get((BLIND, metric)), ""
    if gain := gains.get((BLIND, "individual_accuracy")):
        return gain, " (individual_accuracy)"
    return gains.get((SWAPPED, metric)), " (over swapped)"


def _result(task: TaskReport, rule: RuleScores, model: str) -> str:
    """Return the main score with its interval, size and data, and the same metric under the other rows."""
    main = rule.scores[0]
    data = task.data_in_words
    if task.dataset:
        data = f"data '{task.dataset}', fingerprint {task.fingerprint or 'not recorded'}"
    caution = "".join(f" {warning}." for warning in warnings(task))
    if math.isnan(main.value):
        return f"On {task.name}, {model} has no score: {_no_score(rule)} ({data}).{caution}"
    brackets = "" if math.isnan(main.low) else " (95 % interval in brackets)"
    others = ""
    for other in task.rules:
        score = other.estimates.get(main.metric)
        if score and other is not rule:
            others += f"; under {other.name} it is {score_text(score)}"
    return (
        f"On {task.name}, {model} reaches {main.metric} {score_text(main)} under rule {rule.name}{brackets}, for "
        f"{_samples_in_words(task, rule)} ({data}){others}.{caution}"
    )


def _samples_in_words(task: TaskReport, rule: RuleScores) -> str:
    """Return the number of samples of the main score, and of their clusters if these are not the samples."""
    samples = "an unknown number of samples"
    if number_of_samples := rule.counts.scored or task.answered:
        samples = quantity(number_of_samples, "sample")
    if clusters := clusters_in_words(rule.scores[0]):
        samples += f" from {clusters}"
    return samples


def _no_score(rule: RuleScores) -> str:
    """Say why a rule has no main score: all samples failed or are unjudged, or the reason that the run recorded."""
    counts = rule.counts
    if not counts.lost or counts.scored:
        return rule.failures.get(rule.scores[0].metric, "the reason is not recorded").rstrip(
            "."
        )
    return str(counts) if counts.unjudged else f"all {counts.failed} replies failed"


def _comparison(task: TaskReport, rule: RuleScores) -> str:
    """Return the paired difference from the task without its image, else from the best baseline.

    Returns:
        A sentence. It says what to run if there is nothing to compare with, and that there is no test if none was made.
    """
    gain, _ = image_gain(task, rule)
    if gain:
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        test = "not tested"
        if not math.isnan(gain.p):
            test = f"paired, {p_statement(gain.p)}, corrected {p_value(gain.p_holm)}"
            if gain.p_holm > gain.p:
                test += ", the interval uncorrected"
        return (
            f"With {VARIANTS.get(gain.variant, gain.variant)} ({gain.task}) its {gain.metric} is "
            f"{number(gain.variant_score, share)} instead of {number(gain.score, share)}: a difference of "
            f"{change_text(gain, share)} on {quantity(gain.samples, 'sample')} ({test})."
        )
    best = task.best_baseline(rule)
    if best is None:
        blind = f"{task.name}_{BLIND}"
        if not variant_of(blind):
            return "It is compared with nothing."
        return f"It is compared with nothing: {blind} in the same run would show what the image adds."
    main = rule.scores[0]
    baseline, value = best
    sentence = f"The best baseline that sees no image, {baseline.name}, has {main.metric} {number(value, main.share)}"
    if rule.name not in baseline.tests:
        return f"{sentence}; whether this run differs from it was not tested."
    metric, result = baseline.tests[rule.name]
    share = task.is_share(metric, result.first)
    return (
        f"{sentence}; this run minus it, in {metric}: {change_text(result, share)} "
        f"(paired, {p_statement(result.p)})."
    )


def _reliability(task: TaskReport, rule: RuleScores, made: str) -> str:
    """Return unusable replies, then findings on groups and variants, or how the run was made without them."""
    counts = rule.counts
    invalid = rule.estimates.get("invalid_rate")
    parts = []
    if total := counts.scored + counts.lost:
        rate = number(invalid.value) if invalid else "not counted"
        parts = [
            f"{counts.lost} of {quantity(total, 'sample')} are in no score",
            f"replies without a valid answer: {rate}",
        ]
    findings = [*filter(None, (_groups(rule), variant_finding(task, rule)))]
    if not findings:
        decoding = task.settings.get("decoding", "")
        findings = [made] if made else []
        if decoding:
            findings.append(f"decoding: {decoding}")
    return f"{'; '.join([*parts, *findings]) or 'How the run was made is not recorded'}."


def _groups(rule: RuleScores) -> str:
    """Return the finding on the column of groups with the smallest p-value, or an empty text if none is tested."""
    tests = {column: tested[0] for column, tested in rule.column_tests.items() if tested}
    if not tests:
        return ""
    column, test = min(tests.items(), key=lambda entry: entry[1].p_holm)
    metric = test.overall.metric
    share = test.overall.share
    values = []
    for group in rule.groups[column]:
        score = rule.group_score(column, group.name, metric)
        if score and group.compared:
            values.append(score.value)
    columns = f", corrected over {len(tests)} columns" if len(tests) > 1 else ""
    return (
        f"in compared groups of {column}, {metric} lies between {number(min(values), share)} and "
        f"{number(max(values), share)}; {finding(rule, column, test)} ({p_statement(test.p_holm)}{columns})"
    )


def variant_finding(task: TaskReport, rule: RuleScores) -> str:
    """Name the hardest variant of those that the corrected tests show to be harder.

    Returns:
        A clause, or an empty text if none is shown to be harder.
    """
    main = rule.scores[0]
    sign = -1 if main.higher_is_better is False else 1
    harder = []
    for gain in task.gains:
        if gain.rule != rule.name or gain.metric != main.metric:
            continue
        is_significant = gain.p_holm < ALPHA and sign * gain.difference > 0
        if gain.variant in _STRESS and is_significant:
            harder.append(gain)
    if not harder:
        return ""
    loss = max(harder, key=lambda gain: sign * gain.difference)
    share = task.is_share(loss.metric, loss.score, loss.variant_score)
    change = difference(-loss.difference, -loss.high, -loss.low, share)
    return (
        f"the hardest variant, {loss.task}, changes {loss.metric} by {change} (corrected {p_statement(loss.p_holm)}, "
        f"the interval uncorrected)"
    )
