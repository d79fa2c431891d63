"""Selections of the scores that count, and numbers of those that do not.

A sample that the model could not answer is neither right nor wrong nor invalid: it is in no metric, and its count is
reported next to all of them. The same holds for replies that a judge or labeler failed to read.

Called by every family for its metrics. No selection may drop a sample that no count reports.
"""

from collections.abc import Callable
from itertools import filterfalse
from typing import Any

from medtasks.extract.extractor_registry import Reason
from medtasks.metrics.metric import (
    CorpusMetric,
    Metric,
    Role,
    Score,
    ScoreFilter,
    ScoreList,
    counting,
)

JUDGE_FAILED_RATE = "Share of replies that a judge or a labeler failed to read."


def is_failed(score: Score) -> bool:
    """Return whether the model gave no reply that could be read.

    Example:
        >>> is_failed({"reason": "adapter_failed"}), is_failed({"reason": "refused"})
        (True, False)
    """
    return score.get("reason") == Reason.ADAPTER_FAILED


def is_unjudged(score: Score) -> bool:
    """Return whether a judge or a labeler failed to read the reply. One that is not configured has not failed.

    Example:
        >>> is_unjudged({"reason": "judge_failed"}), is_unjudged({"reason": "judge_failed", "judge": None})
        (True, False)
    """
    return score.get("reason") == Reason.JUDGE_FAILED and score.get("judge", "") is not None


def answered(scores: ScoreList) -> ScoreList:
    """Return the scores of samples that the model answered.

    Example:
        >>> answered([{"reason": "ok"}, {"reason": "adapter_failed"}])
        [{'reason': 'ok'}]
    """
    return list(filterfalse(is_failed, scores))


def was_asked(score: Score) -> bool:
    """Return whether a judge was asked about the reply. Replies without content need none.

    Example:
        >>> was_asked({"reason": "ok"}), was_asked({"reason": "empty"})
        (True, False)
    """
    return bool(score.get("asked", score["reason"] not in (Reason.EMPTY, Reason.TRUNCATED)))


def judged_scores(scores: ScoreList) -> ScoreList:
    """Return the scores of answered samples without those that a judge failed to read, and none if it read nothing.

    Example:
        >>> judged_scores([{"reason": "ok"}, {"reason": "judge_failed"}])
        [{'reason': 'ok'}]
        >>> judged_scores([{"reason": "empty"}, {"reason": "judge_failed"}])
        []
    """
    selected = answered(scores)
    asked_about = list(filter(was_asked, selected))
    if asked_about and all(map(is_unjudged, asked_about)):
        return []
    return list(filterfalse(is_unjudged, selected))


def is_stopped(scores: ScoreList) -> bool:
    """Return whether the published code stops at one of the scores (``stops``) and gives no number.

    Example:
        >>> is_stopped([{"stops": None}, {"stops": "it divides by zero"}])
        True
    """
    return any(score.get("stops") for score in scores)


def unless_stopped(selection: ScoreFilter) -> ScoreFilter:
    """Return a selection that is empty where the published code stops and gives no number.

    Args:
        selection: Selection of the scores where it goes on.
    """
    return lambda scores: [] if is_stopped(scores) else selection(scores)


def stop_warning(scores: ScoreList) -> str:
    """Return at which sample the published code stops and why, empty where it goes on.

    Example:
        >>> stop_warning([{"rule": "kit", "sample": "7", "stops": "it divides by zero"}])[-50:]
        "it stops at sample '7' because it divides by zero."
    """
    for score in scores:
        if score.get("stops"):
            return no_number(
                score["rule"],
                f"it stops at sample '{score['sample']}' because {score['stops']}",
            )
    return ""


def no_number(rule: str, why: str) -> str:
    """Return the warning that the published code gives no number."""
    return f"The published code gives no number here, so all metrics under rule '{rule}' are NaN: {why}."


INVALID_RATE: Metric[Any] = Metric(
    "invalid_rate",
    False,
    answered,
    role=Role.RATE,
    description="Share of replies without a valid answer.",
    of=lambda score: float(score["reason"] != Reason.OK),
)


def judge_failed_rate(
    sentence: str,
    of: Callable[[Score], float] = is_unjudged,
    *,
    say_if_all: bool = False,
) -> Metric[dict[str, Any]]:
    """Return the metric of unread replies: their share of the answered ones.

    Args:
        sentence: Warning, with fields ``{failed}``, ``{answered}`` and ``{share}``.
        of: Function from a score to whether its reply is unread.
        say_if_all: Whether to warn also if all are.
    """

    def warning(scores: ScoreList) -> str:
        """Fill in ``sentence``, or return an empty text if all was read, or nothing was and that needs no warning."""
        selected = answered(scores)
        failed = sum(bool(of(score)) for score in selected)
        if not failed or (failed == len(selected) and not say_if_all):
            return ""
        share = f"{failed / len(selected):.1%}"
        return sentence.format(failed=failed, answered=len(selected), share=share)

    return Metric(
        "judge_failed_rate",
        False,
        answered,
        role=Role.RATE,
        warning=warning,
        description=JUDGE_FAILED_RATE,
        of=lambda score: float(of(score)),
    )


def judges_of(scores: ScoreList) -> str:
    """Name the judges of scores, with the results of their checks."""
    names = dict.fromkeys(score["judge"] for score in scores if score.get("judge"))
    return f"Judge: {'; '.join(names)}." if names else ""


def _number(
    name: str,
    holds: Callable[[Score], bool],
    description: str,
    *,
    higher_is_better: bool | None = False,
    **declared: Any,
) -> CorpusMetric:
    """Declare the number of samples for which ``holds`` is true. ``higher_is_better`` is None if neither is."""
    return counting(
        name,
        lambda scores: sum(map(holds, scores)),
        higher_is_better=higher_is_better,
        description=description,
        **declared,
    )


SAMPLE_COUNTS = (
    _number(
        "scored_samples",
        lambda score: not is_failed(score) and not is_unjudged(score),
        "Samples that are in the scores.",
        higher_is_better=None,
    ),
    _number(
        "failed_samples", is_failed, "Samples that the model failed to answer; in no score."
    ),
)
"""Last metrics of every task; they count the samples that are in no score."""
LABELLED_SAMPLE_COUNTS = (
    *SAMPLE_COUNTS,
    _number(
        "unjudged_samples",
        is_unjudged,
        "Samples that a judge or a labeler failed to read; in no score.",
    ),
)
"""Last metrics of a task whose replies a labeler reads."""
JUDGED_SAMPLE_COUNTS = (
    *LABELLED_SAMPLE_COUNTS,
    _number(
        "possible_injection",
        lambda score: bool(score.get("possible_injection")) and not is_failed(score),
        "Replies that seem to address the judge.",
        remark=judges_of,
    ),
)
"""Last metrics of a task whose replies a judge reads, with the number of replies that seem to address the judge."""
COUNTS = frozenset(metric.name for metric in JUDGED_SAMPLE_COUNTS)
