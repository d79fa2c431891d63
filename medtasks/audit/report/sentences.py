"""Sentences of a report's first screen: result, comparison and reliability of its main tasks."""

import math

from medtasks.audit.report.contents import Gain, Group, RuleScores, RunReport, TaskReport
from medtasks.audit.report.wording import (
    VARIANTS,
    count,
    counted,
    difference,
    number,
    p_value,
    scored,
    warnings,
)
from medtasks.data.variants import BLANK, BLIND, SWAPPED

_MOST = 3  # tasks
_CONTROLS = (BLIND, BLANK, SWAPPED, "told")  # variants that take the image away; all others make the task harder


def quotable_sentences(report: RunReport) -> dict[str, tuple[str, str, str]]:
    """Return result, comparison and reliability of the first tasks that are no variant of another, by task.

    They are about the main metric, read by the careful row ``robust`` if a task has it.
    """
    variants = {gain.task for task in report.tasks for gain in task.gains}
    versions = report.facts.get("versions", "").split(", ")
    harness = ", ".join(text for text in versions if text.startswith(("medtasks ", "lmms_eval "))) or "not recorded"
    weights = report.facts.get("fingerprint of the weights", "not recorded")
    made = f"Model {report.model or 'not recorded'}; fingerprint of the weights: {weights}; versions: {harness}"
    sentences = {}
    for task in report.tasks:
        rules = [rule for rule in task.rules if rule.scores]
        if task.name in variants or not rules:
            continue
        rule = next((rule for rule in rules if rule.name == "robust"), rules[0])
        sentences[task.name] = (
            _result(task, rule, report.title),
            _comparison(task, rule),
            _reliability(rule, task, made),
        )
        if len(sentences) == _MOST:
            break
    return sentences


def image_gain(task: TaskReport, rule: RuleScores) -> tuple[Gain | None, str]:
    """Return the gain over the blind variant and a remark; of another metric or variant if it is 0 by construction."""
    metric = rule.scores[0].metric if rule.scores else ""
    gains = {(gain.variant, gain.metric): gain for gain in task.gains if gain.rule == rule.name}
    if metric not in task.metrics or not task.metrics[metric].zero_if_blind:
        return gains.get((BLIND, metric)), ""
    if gain := gains.get((BLIND, "individual_accuracy")):
        return gain, " (individual_accuracy)"
    return gains.get((SWAPPED, metric)), " (over swapped)"


def _result(task: TaskReport, rule: RuleScores, model: str) -> str:
    """Return the main score with its interval, size and data; and the same metric under the other rows."""
    main = rule.scores[0]
    samples = rule.counts.scored or task.answered
    clusters = f" in {counted(main.clusters, 'independent cluster')}" if main.clusters else ""
    data = f"data '{task.dataset}', fingerprint {task.fingerprint or 'not recorded'}" if task.dataset else "own data"
    others = [
        f"{score.metric} is {scored(score)} under {other.name}"
        for other in task.rules
        if other is not rule and (score := other.estimates.get(main.metric))
    ]
    caution = "".join(f" {warning}." for warning in warnings(task))
    reached = f"{model} reaches {main.metric} {scored(main)} under {rule.name} (95 % interval in brackets)"
    first = f"On {task.name}, {reached}, for {counted(samples, 'sample')}{clusters} ({data})"
    return f"{'; '.join([first, *others])}.{caution}"


def _comparison(task: TaskReport, rule: RuleScores) -> str:
    """Return the paired difference from the task without its image, else from the best baseline."""
    main = rule.scores[0]
    gain, _ = image_gain(task, rule)
    if gain:
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        shown = VARIANTS.get(gain.variant, gain.variant)
        test = "" if math.isnan(gain.p) else f" (p = {p_value(gain.p)}, corrected {p_value(gain.p_holm)})"
        return (
            f"With {shown} ({gain.task}) the model scores {number(gain.variant_score, share)} in {gain.metric} instead "
            f"of {number(gain.score, share)}: a paired difference of "
            f"{difference(gain.difference, gain.low, gain.high, share)} on {counted(gain.samples, 'sample')}{test}."
        )
    best = task.best_baseline(rule)
    if best is None:
        return f"Compared with nothing: {task.name}_blind in the same run would show what the image adds."
    metric, result = best[0].tests.get(rule.name, ("", None))
    sentence = f"The best baseline that sees no image, {best[0].name}, scores {number(best[1], main.share)}"
    if result is None:
        return f"{sentence} in {main.metric}; whether this run differs from it was not tested."
    ends = difference(result.difference, result.low, result.high, task.is_share(metric, result.first))
    return f"{sentence}; this run minus it, in {metric}: {ends} (paired, p = {p_value(result.p)})."


def _reliability(rule: RuleScores, task: TaskReport, made: str) -> str:
    """Return unusable replies, then the worst group and the hardest variant, or how the run was made without them."""
    main, counts = rule.scores[0], rule.counts
    sign = -1 if main.higher_is_better is False else 1
    invalid = rule.estimates.get("invalid_rate")
    without_answer = f"{number(invalid.value)} of replies had no valid answer" if invalid else "none is counted invalid"
    parts = [
        f"{count(counts.lost)} of {counted(counts.scored + counts.lost, 'sample')} are in no score; {without_answer}"
    ]
    groups: list[tuple[float, str, Group]] = [
        (sign * group.scores[0].value, column, group)
        for column, of_column in rule.groups.items()
        for group in of_column
        if group.compared and group.scores and not math.isnan(group.scores[0].value)
    ]
    if groups:
        _, column, worst = min(groups, key=lambda entry: entry[:2])
        score = worst.scores[0]
        parts.append(f"the worst of the {column} is {worst.name}, {score.metric} {scored(score)}")
    harder = [gain for gain in task.gains if gain.rule == rule.name and gain.variant not in _CONTROLS]
    losses = [gain for gain in harder if gain.metric == main.metric and not math.isnan(gain.difference)]
    if losses:
        loss = max(losses, key=lambda gain: sign * gain.difference)
        share = task.is_share(loss.metric, loss.score, loss.variant_score)
        change = difference(-loss.difference, -loss.high, -loss.low, share)
        parts.append(f"the hardest variant, {loss.task}, changes {loss.metric} by {change}")
    decoding = task.settings.get("decoding", "not recorded")
    return f"{'; '.join(parts)}." if groups or losses else f"{'; '.join(parts)}. {made}; decoding: {decoding}."
