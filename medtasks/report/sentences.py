"""Sentences to quote from a report: result, comparison and reliability of a task."""

import math
from dataclasses import replace
from itertools import chain

from medtasks.data.variants import BLANK, BLIND, SWAPPED
from medtasks.metrics.metric import Role
from medtasks.report.group_tables import finding
from medtasks.report.report_model import Gain, RunReport, TaskReport
from medtasks.report.wording import (
    VARIANTS,
    clusters_in_words,
    counted,
    difference,
    number,
    p_statement,
    p_value,
    scored,
    warnings,
)
from medtasks.scores.score_model import RuleScores, careful_rule
from medtasks.stats.paired import ALPHA
from medtasks.tasks.task_files import variant_of

_CONTROLS = (
    BLIND,
    BLANK,
    SWAPPED,
    "told",
    "nota_control",
)  # variants that make no task harder for a model that sees


def quotable_sentences(report: RunReport) -> dict[str, tuple[str, str, str]]:
    """Return result, comparison and reliability of the tasks that are no variant of another, by task.

    They are about the main metric, read by the careful row (``robust`` or ``strict``) if a task has one.
    """
    variants = {gain.task for gain in chain.from_iterable(task.gains for task in report.tasks)}
    made = _model_and_versions(report)
    sentences: dict[str, tuple[str, str, str]] = {}
    for task in report.tasks:
        rules = {rule.name: rule for rule in task.rules if rule.scores}
        if task.name in variants or not rules:
            continue
        rule = careful_rule(rules) or next(iter(rules.values()))
        lead = ""
        if primary := report.primary:
            stated = rule.estimates.get(primary.metric)
            if stated and task.name == primary.task:
                rule = replace(rule, scores=(stated, *rule.scores))
            lead = primary.lead(task.name, rule.scores[0].metric)
        result = lead + _result(task, rule, report.title)
        sentences[task.name] = (result, _comparison(task, rule), _reliability(task, rule, made))
    return sentences


def _model_and_versions(report: RunReport) -> str:
    versions = report.facts.get("versions", "").split(", ")
    facts = {
        "model": report.model,
        "fingerprint of the weights": report.facts.get("fingerprint of the weights", ""),
        "versions": ", ".join(
            text for text in versions if text.startswith(("medtasks ", "lmms_eval "))
        ),
    }
    return "; ".join(f"{name}: {text}" for name, text in facts.items() if text)


def headline(report: RunReport) -> str:
    """Name the task whose sentences open the report: the first with a main metric, else the first, if there is one.

    Reports of findings have no main metric, only aspects such as BLEU.
    """
    main = {
        task.name
        for task in report.tasks
        if any(metric.role is Role.MAIN for metric in task.metrics.values())
    }
    return max(
        quotable_sentences(report), key=main.__contains__, default=""
    )  # the first of equal ones


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
    main, counts = rule.scores[0], rule.counts
    data = task.data_in_words
    if task.dataset:
        data = f"data '{task.dataset}', fingerprint {task.fingerprint or 'not recorded'}"
    caution = "".join(f" {warning}." for warning in warnings(task))
    if math.isnan(main.value):
        why = rule.failures.get(main.metric, "the reason is not recorded").rstrip(".")
        if counts.lost and not counts.scored:
            why = f"all {counts.failed} replies failed" if not counts.unjudged else str(counts)
        return f"On {task.name}, {model} has no score: {why} ({data}).{caution}"
    number_of_samples = counts.scored or task.answered
    samples = (
        counted(number_of_samples, "sample")
        if number_of_samples
        else "an unknown number of samples"
    )
    if clusters := clusters_in_words(main):
        samples = f"{samples} from {clusters}"
    brackets = "" if math.isnan(main.low) else " (95 % interval in brackets)"
    reached = f"{model} reaches {main.metric} {scored(main)} under rule {rule.name}{brackets}"
    others = [
        (other.name, other.estimates.get(main.metric)) for other in task.rules if other is not rule
    ]
    others_too = "".join(f"; under {name} it is {scored(score)}" for name, score in others if score)
    return f"On {task.name}, {reached}, for {samples} ({data}){others_too}.{caution}"


def _comparison(task: TaskReport, rule: RuleScores) -> str:
    """Return the paired difference from the task without its image, else from the best baseline."""
    main, best, (gain, _) = rule.scores[0], task.best_baseline(rule), image_gain(task, rule)
    if gain:
        share = task.is_share(gain.metric, gain.score, gain.variant_score)
        change = difference(gain.difference, gain.low, gain.high, share)
        test = f"paired, {p_statement(gain.p)}, corrected {p_value(gain.p_holm)}"
        if gain.p_holm > gain.p:
            test += ", the interval uncorrected"
        return (
            f"With {VARIANTS.get(gain.variant, gain.variant)} ({gain.task}) its {gain.metric} is "
            f"{number(gain.variant_score, share)} instead of {number(gain.score, share)}: a difference of {change} on "
            f"{counted(gain.samples, 'sample')} ({'not tested' if math.isnan(gain.p) else test})."
        )
    if best is None:
        blind = f"{task.name}_{BLIND}"
        advice = (
            f": {blind} in the same run would show what the image adds" if variant_of(blind) else ""
        )
        return f"It is compared with nothing{advice}."
    sentence = f"The best baseline that sees no image, {best[0].name}, has {main.metric} {number(best[1], main.share)}"
    if rule.name not in best[0].tests:
        return f"{sentence}; whether this run differs from it was not tested."
    metric, result = best[0].tests[rule.name]
    change = difference(
        result.difference, result.low, result.high, task.is_share(metric, result.first)
    )
    return (
        f"{sentence}; this run minus it, in {metric}: {change} (paired, {p_statement(result.p)})."
    )


def _reliability(task: TaskReport, rule: RuleScores, made: str) -> str:
    """Return unusable replies, then findings on groups and variants, or how the run was made without them."""
    counts, invalid = rule.counts, rule.estimates.get("invalid_rate")
    parts = []
    if total := counts.scored + counts.lost:
        lost = f"{counts.lost} of {counted(total, 'sample')} are in no score"
        parts = [
            f"{lost}; replies without a valid answer: {number(invalid.value) if invalid else 'not counted'}"
        ]
    findings = [text for text in (_groups(rule), variant_finding(task, rule)) if text]
    if not findings:
        decoding = task.settings.get("decoding", "")
        findings = [made] if made else []
        findings += [f"decoding: {decoding}"] if decoding else []
    return f"{'; '.join([*parts, *findings]) or 'How the run was made is not recorded'}."


def _groups(rule: RuleScores) -> str:
    """Return the finding on the column of groups with the smallest p-value; empty if none is tested."""
    tests = {column: of_column[0] for column, of_column in rule.column_tests.items() if of_column}
    if not tests:
        return ""
    column, test = min(tests.items(), key=lambda entry: entry[1].p_holm)
    metric, share = test.overall.metric, test.overall.share
    scores = [
        rule.group_score(column, group.name, metric)
        for group in rule.groups[column]
        if group.compared
    ]
    values = [score.value for score in scores if score]
    between = f"{metric} lies between {number(min(values), share)} and {number(max(values), share)}"
    columns = f", corrected over {len(tests)} columns" if len(tests) > 1 else ""
    result = f"{finding(rule, column, test)} ({p_statement(test.p_holm)}{columns})"
    return f"in compared groups of {column}, {between}; {result}"


def variant_finding(task: TaskReport, rule: RuleScores) -> str:
    """Return the hardest variant of those that the corrected tests show to be harder; empty without any."""
    main = rule.scores[0]
    sign = -1 if main.higher_is_better is False else 1
    stress = {*VARIANTS} - {*_CONTROLS}
    gains = [gain for gain in task.gains if (gain.rule, gain.metric) == (rule.name, main.metric)]
    harder = [
        gain
        for gain in gains
        if gain.variant in stress and gain.p_holm < ALPHA and sign * gain.difference > 0
    ]
    if not harder:
        return ""
    loss = max(harder, key=lambda gain: sign * gain.difference)
    change = difference(
        -loss.difference,
        -loss.high,
        -loss.low,
        task.is_share(loss.metric, loss.score, loss.variant_score),
    )
    corrected = f"corrected {p_statement(loss.p_holm)}, the interval uncorrected"
    return f"the hardest variant, {loss.task}, changes {loss.metric} by {change} ({corrected})"
