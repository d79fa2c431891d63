"""Reading log-likelihood results that went through the harness.

lmms-eval 0.7.3 passes every reply through a helper made for generated text, which turns ``(1.5, False)`` into the
string ``'(1.5, False)'`` (``'[1.5, False]'`` from the response cache). A repaired harness hands over the pair.
"""

import json
import math
import re
from typing import Any

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf(?:inity)?|nan)"
_WRAPPED = r"\s*(?:[\w.]+\(\s*)?\[?({})\]?(?:\s*,\s*\w+=[^,()]+)*\s*\)?\s*"  # tensor(1.5, device='cuda:0')
_PAIR = re.compile(
    rf"\s*[(\[]{_WRAPPED.format(_NUMBER)},{_WRAPPED.format('true|false|0|1')}[)\]]\s*",
    re.IGNORECASE,
)
FAILED = (math.nan, False)


def parse_loglikelihood(result: Any) -> tuple[float, bool]:
    """Return ``(mean negative log-likelihood, is_greedy)`` from a pair or its text, or from an adapter's JSON text.

    The JSON text is what the adapters of this package give with ``loglikelihood_format=json``.

    Anything that is no such pair becomes ``(nan, False)``, which counts as a failed sample and never as an answer.

    Example:
        >>> parse_loglikelihood("(1.5, False)")
        (1.5, False)
        >>> parse_loglikelihood("[np.float32(0.25), np.True_]")
        (0.25, True)
        >>> parse_loglikelihood((1.5, True))
        (1.5, True)
        >>> parse_loglikelihood('{"mean": 1.5, "greedy": true, "sum": 3.0, "tokens": 2}')
        (1.5, True)
    """
    if isinstance(result, str) and result.lstrip().startswith("{"):
        result = _from_json(result)
    if isinstance(result, list | tuple) and len(result) == 2:
        try:
            return float(result[0]), bool(result[1])
        except (TypeError, ValueError):
            return FAILED
    match = _PAIR.fullmatch(re.sub(r"\bnp\.(True|False)_", r"\1", result)) if isinstance(result, str) else None
    return (float(match[1]), match[2].lower() in ("true", "1")) if match else FAILED


def _from_json(text: str) -> tuple[Any, Any] | None:
    try:
        record = json.loads(text)
        mean, greedy = record["mean"], record["greedy"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    numeric = isinstance(mean, int | float) and not isinstance(mean, bool)
    return (mean, greedy) if numeric and isinstance(greedy, bool) else None
