"""Numbers, names and warnings of a report in words: those of its page, its tables and its figures."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeVar

from medtasks.data.dataset_lookup import COUNT_UNKNOWN, INCOMPLETE, SAMPLE, data_warning
from medtasks.extract.extractor_registry import Reason
from medtasks.report.report_model import Gain, TaskReport
from medtasks.report.tables import INTERVALS as INTERVALS
from medtasks.report.tables import NOT_DEFINED, Cell
from medtasks.scores.error_classes import ErrorClass
from medtasks.scores.score_model import MetricScore, PairOutcomes
from medtasks.stats.calibration import Measure
from medtasks.stats.intervals import EstimatedValue
from medtasks.stats.paired import PairedResult

BY_CONSTRUCTION = (
    "0 by construction: without the image both questions of a pair are one prompt, which a deterministic model answers "
    "alike. It has no interval, and what is above it shows that answers depend on the image, not that they are right."
)
# Name, meaning and field of the outcomes of a pair that are no rows by letter.
_OTHER_OUTCOMES = (
    ("Swapped", "Each image got the answer of the other.", "swapped"),
    ("One invalid", "One of the two replies has no valid answer.", "one_invalid"),
    ("Both invalid", "Neither reply has a valid answer.", "both_invalid"),
)
_Key = TypeVar("_Key")
_MINUS = "−"
_HUGE = 1e15

REASONS: Mapping[str, tuple[str, str]] = {  # name of a reason and what it means
    Reason.OK: ("answer found", "The reply has one answer; it may be right or wrong."),
    Reason.EMPTY: (
        "empty",
        "The reply has no text, or nothing is left of it without its own thoughts and markup.",
    ),
    Reason.AMBIGUOUS: (
        "ambiguous",
        "The reply points to more than one answer, and it is not clear which is meant.",
    ),
    Reason.REFUSED: ("refused", "The model said that it cannot or will not answer."),
    Reason.NO_MATCH: (
        "no match",
        "The reply has text, but none of the possible answers is found in it.",
    ),
    Reason.TRUNCATED: (
        "cut off",
        "The reply ended, mostly at its length limit, before an answer was given.",
    ),
    Reason.ADAPTER_FAILED: (
        "model failed",
        "The program that runs the model failed here; the model gave no reply.",
    ),
    Reason.JUDGE_FAILED: (
        "judge failed",
        "The judge or labeler that reads such replies failed, so nobody read it.",
    ),
}

WRONG_KINDS: Mapping[str, str] = {  # what a kind of wrong answer is
    ErrorClass.REFUSAL: "The model said that it cannot or will not answer.",
    ErrorClass.IRRELEVANT: "The reply has nothing to do with the options, or repeats itself.",
    ErrorClass.MISUNDERSTOOD: "The reply does not answer what was asked, for example by naming several options.",
    ErrorClass.FAILED: "The program that runs the model failed here; the model gave no reply.",
    ErrorClass.FOR_A_HUMAN: "The reply names a wrong option. Whether the model saw or knew too little takes a human.",
}

DATA_WARNINGS = {
    SAMPLE: "synthetic images, no score of a model",
    INCOMPLETE: "not comparable with published scores",
    COUNT_UNKNOWN: "no source states how many samples the whole set has",
}

VARIANTS: Mapping[str, str] = {  # form of the questions
    "blind": "no image",
    "blank": "a grey image",
    "swapped": "the image of another question",
    "told": "no image, and the prompt says so",
    "degraded": "images with compression, blur, noise or other brightness, contrast or gamma",
    "abstain": "a last option to abstain, which is never right",
    "nota": "the right option reads 'None of the other options'; its control, in which a wrong one does, tells whether "
    "this text alone misleads the model",
    "nota_control": "a wrong option reads 'None of the other options'",
}


def number(value: float, share: bool = True, decimals: int = 0) -> str:
    """Return a score as text.

    Args:
        value: The score.
        share: Whether it is a fraction, which is shown in percent.
        decimals: Decimals at least: one of a percentage and three of anything else if it is less. Whole numbers stay
            whole if they are no share.

    Example:
        >>> number(0.2955), number(12.5, False), number(1200, False)
        ('29.6%', '12.500', '1,200')
    """
    if not math.isfinite(value):
        return NOT_DEFINED
    if abs(value) >= _HUGE:
        return f"{value:.3e}".replace("-", _MINUS)
    if share:
        return f"{_round_half_up(value, max(1, decimals), 100)}%"
    if value == int(value):
        return count(int(value)).replace("-", _MINUS)
    return _round_half_up(value, max(3, decimals))


def interval(low: float, high: float, share: bool = True) -> str:
    """Return the ends of an interval.

    Example:
        >>> interval(0.352, 0.526), interval(1, 2, share=False)
        ('35.2% to 52.6%', '1.000 to 2.000')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOT_DEFINED
    texts = []
    for end in (low, high):
        if share or abs(end) >= _HUGE:
            texts.append(number(end, share))
        else:
            texts.append(_round_half_up(end, 3))
    return " to ".join(texts)


def points(value: float, share: bool = True, decimals: int = 0) -> str:
    """Return a width, for a share in percentage points.

    Example:
        >>> points(0.0441), points(1.5, share=False)
        ('4.4 pts', '1.500')
    """
    text = number(value, share, decimals)
    return f"{text[:-1]} pts" if text.endswith("%") else text


def with_sign(value: float, share: bool = True) -> str:
    """Return a difference with its sign.

    Example:
        >>> with_sign(0.0441), with_sign(-0.0441), with_sign(0.00001)
        ('+4.4 pts', '−4.4 pts', '0.0 pts')
    """
    text = points(value, share)
    return f"+{text}" if value > 0 and any(digit in text for digit in "123456789") else text


def difference_interval(low: float, high: float, share: bool = True) -> str:
    """Return the ends of the interval of a difference.

    Example:
        >>> difference_interval(-0.012, 0.1)
        '−1.2 to +10.0 pts'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return NOT_DEFINED
    return f"{with_sign(low, share).removesuffix(' pts')} to {with_sign(high, share)}"


def p_value(p: float) -> str:
    """Return a p-value with four digits.

    Example:
        >>> p_value(0.03123), p_value(1e-9)
        ('0.0312', '<0.0001')
    """
    if not math.isfinite(p):
        return NOT_DEFINED
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def p_statement(p: float) -> str:
    """Return a p-value as an equation.

    Example:
        >>> p_statement(0.03123), p_statement(1e-9)
        ('p = 0.0312', 'p < 0.0001')
    """
    return f"p = {p_value(p)}".replace("= <", "< ")


def count(value: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{value:,}"


def part_of(part: int, total: int) -> str:
    """Return a number of things with its share of all.

    Example:
        >>> part_of(1200, 4800), part_of(0, 0)
        ('1,200 (25.0%)', '0')
    """
    return f"{count(part)} ({number(part / total)})" if total else count(part)


def quantity(value: int, what: str) -> str:
    """Return a number of things, with the plural of a regular noun.

    Example:
        >>> quantity(1, "pair"), quantity(1200, "pair")
        ('1 pair', '1,200 pairs')
    """
    return f"{count(value)} {what}{'' if value == 1 else 's'}"


def names_by(entries: Iterable[tuple[str, _Key]]) -> dict[_Key, str]:
    """Return names, joined by commas, by what they have in common, such as a cause.

    Example:
        >>> names_by([("a", "no data"), ("b", "no weights"), ("c", "no data")])
        {'no data': 'a, c', 'no weights': 'b'}
    """
    names: dict[_Key, list[str]] = {}
    for name, key in entries:
        names.setdefault(key, []).append(name)
    return {key: ", ".join(names_of_key) for key, names_of_key in names.items()}


def encode_name(name: str, end: str = "", also: str = "") -> str:
    """Return a name for ids, labels and files: all but letters, digits, ``_`` and ``also`` become codes.

    Args:
        name: Any text.
        end: Text after each code, so that different names stay different.
        also: Further characters that stay.

    Example:
        >>> encode_name("my task"), encode_name("my task", end="-")
        ('my-20task', 'my-20-task')
    """
    return re.sub(rf"[^A-Za-z0-9_{also}]", lambda match: f"-{ord(match.group()):x}{end}", name)


def label(*parts: str) -> str:
    """Return a label of letters, digits and ``_-.`` that differs for different parts.

    Example:
        >>> label("my task", "groups")
        'my-20-task.groups'
    """
    return ".".join(encode_name(part, end="-") for part in parts)


def anchor(name: str) -> str:
    """Return the name of a task as an id in the page.

    Example:
        >>> anchor("my task")
        'task-my-20task'
    """
    return "task-" + encode_name(name)


def score_text(score: MetricScore | None) -> str:
    """Return a score with its interval."""
    return estimate(score.value, score.low, score.high, score.share) if score else NOT_DEFINED


def estimate(value: float, low: float, high: float, share: bool, decimals: int = 0) -> str:
    """Return a value with its interval, if it has one.

    Args:
        value: The value. NaN is shown as n/a. Of an infinite ratio only the lower end of the interval is known.
        low: Lower end of its interval. NaN if unknown, which leaves the interval out.
        high: Upper end of its interval, NaN as for ``low``.
        share: Whether it is a fraction, which is shown in percent.
        decimals: Decimals of the value at least, see :func:`number`. The ends have their usual number.

    Example:
        >>> estimate(0.45, 0.352, 0.526, True), estimate(math.inf, 12.297, math.inf, False)
        ('45.0% [35.2 to 52.6]', '∞ [12.297 to ∞]')
    """
    if value == math.inf:
        return f"∞ [{number(low, share)} to ∞]"
    ends = interval(low, high, share).replace("%", "")
    return _with_ends(number(value, share, decimals), ends)


def measure_text(measure: Measure | EstimatedValue, *, share: bool = False) -> str:
    """Return a measure with its interval.

    Args:
        measure: The measure.
        share: Whether it is a fraction, which is shown in percent.
    """
    return estimate(measure.value, measure.low, measure.high, share)


def _with_ends(text: str, ends: str) -> str:
    return text if NOT_DEFINED in (text, ends) else f"{text} [{ends}]"


def score_cell(score: MetricScore | None, remark: str = "", mark: float = math.nan) -> Cell:
    """Return a score with its interval.

    Args:
        score: The score; None without one.
        remark: Remark on the cell, for the page.
        mark: Another value to mark in its bar on the page, such as that of a baseline.
    """
    bar = (score.value, score.low, score.high, mark) if score and score.share else ()
    return Cell(score_text(score), remark=remark, bar=bar)


def with_error(
    value: float,
    error: float,
    share: bool,
    low: float = math.nan,
    high: float = math.nan,
) -> str:
    """Return a score with its standard error if it has one.

    An error of 0, with all answers right or all wrong, says nothing of the uncertainty: then the interval is shown.

    Example:
        >>> with_error(0.313, 0.083, True), with_error(1.0, 0.0, True, 0.9, 1.0)
        ('31.3% ± 8.3%', '100.0% [90.0 to 100.0]')
    """
    text = number(value, share)
    spread = number(error, share)
    if NOT_DEFINED in (text, spread):
        return text
    if not re.search("[1-9]", spread):
        return estimate(value, low, high, share)
    return f"{text} ± {spread}"


def clusters_in_words(score: MetricScore) -> str:
    """Describe the clusters of a score's error.

    Returns:
        A number of clusters, or an empty text if they are unknown or the samples themselves.
    """
    if not score.clusters or score.unit == "sample":
        return ""
    if score.components in (None, score.clusters):
        return quantity(score.clusters, f"independent {score.unit}")
    return (
        f"{quantity(score.clusters, score.unit)} that share images; "
        f"{quantity(score.components or 0, 'separate component')}"
    )


def cluster_notes(scores: Mapping[str, MetricScore | None]) -> list[str]:
    """List the groups without an interval or with a wide one.

    Args:
        scores: Scores of groups by their names.

    Returns:
        A sentence on groups of a single cluster, and one on groups of pairs of which one image is in most.
    """
    single = []
    decided = []
    for name, score in scores.items():
        if not score or not score.clusters:
            continue
        if score.clusters == 1:
            single.append((name, score.unit))
        elif 2 * score.most_shared > score.clusters:
            decided.append(
                f"{score.most_shared} of {quantity(score.clusters, 'pair')} of {name}"
            )
    notes = []
    for unit, names in names_by(single).items():
        notes.append(f"Of 1 {unit} each, without an interval: {names}.")
    if decided:
        notes.append(
            f"One image decides, so that intervals are wide: it is in {', '.join(decided)}."
        )
    return notes


def difference(value: float, low: float, high: float, share: bool) -> str:
    """Return a difference with its interval, if it has one.

    Example:
        >>> difference(0.0441, -0.012, 0.1, True)
        '+4.4 pts [−1.2 to +10.0]'
    """
    ends = difference_interval(low, high, share).removesuffix(" pts")
    return _with_ends(with_sign(value, share), ends)


def change_text(result: Gain | PairedResult, share: bool) -> str:
    """Return the difference of a comparison with its interval.

    Args:
        result: The comparison.
        share: Whether its scores are fractions.
    """
    return difference(result.difference, result.low, result.high, share)


def warnings(task: TaskReport) -> tuple[str, ...]:
    """List warnings that belong to every table of a task."""
    facts = {
        "name": task.dataset,
        "sample": task.sample_data,
        "complete": task.complete_data or not task.dataset,
    }
    title = data_warning(facts)
    sentences = [f"{title}: {DATA_WARNINGS[title]}"] if title else []
    if task.answered < task.documents:
        sentences.append(f"PARTIAL RUN: {questions(task)} questions answered")
    return tuple(sentences)


def warnings_by_task(tasks: Iterable[TaskReport]) -> tuple[str, ...]:
    """List the warnings of several tasks, each with the task's name."""
    sentences: list[str] = []
    for task in tasks:
        sentences += [f"{task.name}: {warning}" for warning in warnings(task)]
    return tuple(sentences)


def questions(task: TaskReport) -> str:
    """Return the numbers of answered and of all questions. Failed replies are no answers."""
    answered = task.answered - task.largest_loss.failed if task.largest_loss else task.answered
    if task.documents:
        return f"{count(answered)} of {count(task.documents)}"
    return count(answered) if task.answered else "unknown"


def _round_half_up(value: float, digits: int, factor: int = 1) -> str:
    # Halves upwards as people round: 29.55, as printed in a paper, is 29.6 and not what its binary neighbour is.
    exact = factor * Decimal(repr(float(value)))
    text = str(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))
    return text.lstrip("-") if not text.strip("-0.") else text.replace("-", _MINUS)


def pair_rows(outcomes: Sequence[PairOutcomes]) -> list[tuple[str, str, list[int]]]:
    """Return the possible outcomes of a pair.

    Args:
        outcomes: Numbers of pairs, under one rule each.

    Returns:
        Name, meaning, and number under each rule of all outcomes.
    """
    both_right = [pairs.both_right for pairs in outcomes]
    rows = [("Both right", "Both images answered rightly.", both_right)]
    letters = set[str]()
    for pairs in outcomes:
        letters |= pairs.same.keys()
    for letter in sorted(letters):
        same = [pairs.same.get(letter, 0) for pairs in outcomes]
        rows.append((f"Both answered {letter}", "The two images were not told apart.", same))
    for name, meaning, field in _OTHER_OUTCOMES:
        rows.append((name, meaning, [getattr(pairs, field) for pairs in outcomes]))
    return rows


def decided_pairs(outcomes: PairOutcomes) -> str:
    """Compare the numbers of pairs that are solved and wrong on both sides.

    Returns:
        Both numbers and the share solved, or an empty text if it is unknown.
    """
    share = outcomes.solved_of_decided
    if share is None or math.isnan(share.value):
        return ""
    return f"{count(outcomes.both_right)} : {count(outcomes.both_wrong)}, {score_text(share)}"
