"""Scores as the commands' tables write them: shares in percent as the report does, everything else as it is.

Files (``--json``, the harness's results) hold fractions.
"""

import math
import re
from typing import Any

NOT_DEFINED = "n/a"
_NO_SHARE = re.compile(r"radcliq|bertscore|roberta_large|similarity|hallucination_score|submission_rows")


def is_share(metric: str, value: Any) -> bool:
    """Return whether a score is part of a whole, so that percent say what is meant; a whole number is a count."""
    return isinstance(value, float) and not _NO_SHARE.search(metric) and not (value < 0 or value > 1)


def number(value: float, *, share: bool) -> str:
    """Return one score."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return NOT_DEFINED
    return f"{100 * value:.2f}%" if share else f"{value:.4f}"


def with_error(value: float, error: float, *, share: bool) -> str:
    """Return a score with its standard error, if it has one."""
    shown = number(value, share=share)
    return shown if NOT_DEFINED in (shown, number(error, share=share)) else f"{shown} ± {number(error, share=share)}"


def difference(value: float, *, share: bool) -> str:
    """Return a difference with its sign; of shares in percentage points.

    Example:
        >>> difference(0.0438, share=True), difference(-0.2, share=False)
        ('+4.38 pts', '-0.2000')
    """
    if not math.isfinite(value):
        return NOT_DEFINED
    return f"{100 * value:+.2f} pts" if share else f"{value:+.4f}"
