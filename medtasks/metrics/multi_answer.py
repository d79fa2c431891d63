"""Scores of one reply to a question with several right options.

Source: Chen et al., "GMAI-MMBench", 2024, equations 2 and 3. How cases are put together is not stated there; here it is
their mean. Who lists every option has a recall of 1, so that neither number stands alone.
"""

from collections.abc import Set


def multi_answer_accuracy(listed: Set[str], right: Set[str]) -> float:
    """Return the share of the listed options that are right: the paper's ``ACC_mcls``, a precision.

    Args:
        listed: Letters that the reply lists.
        right: Letters of the right options.

    Returns:
        Between 0 and 1; 0 for a reply that lists none, where the paper's quotient is not defined.

    Example:
        >>> multi_answer_accuracy({"A", "B", "C"}, {"A", "D"})
        0.3333333333333333
    """
    return len(listed & right) / len(listed) if listed else 0.0


def multi_answer_recall(listed: Set[str], right: Set[str]) -> float:
    """Return the share of the right options that are listed: the paper's ``Recall_mcls``.

    Args:
        listed: Letters that the reply lists.
        right: Letters of the right options, at least one.

    Returns:
        Between 0 and 1.

    Example:
        >>> multi_answer_recall({"A", "B", "C"}, {"A", "D"})
        0.5
    """
    return len(listed & right) / len(right)
