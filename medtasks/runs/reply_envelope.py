"""How replies come to ``process_results``: in the envelope of a filter, or as log-likelihoods.

With a reply goes the rule that shall read it, and what is noted of it.
A filter of the harness sees one rank's replies without their documents, and scoring is not told which filter it
follows. So a filter only puts a reply into an envelope, which scoring opens where the document is at hand. It is JSON
text and not an object, because the harness strips white space from generated replies; the harness also cuts ``<think>``
blocks out of what it gets, so the JSON holds no ``<``, and a rule sees the reply as the model gave it.

Log-likelihoods went through a helper of lmms-eval 0.7.3 made for generated text, which turns ``(1.5, False)`` into the
string ``'(1.5, False)'`` (``'[1.5, False]'`` from the response cache). A repaired harness hands over the pair.
"""

import contextlib
import json
import math
import re
from collections.abc import Sequence
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.families.family import Reply, Row

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf(?:inity)?|nan)"
_WRAPPED = r"\s*(?:[\w.]+\(\s*)?\[?({})\]?(?:\s*,\s*\w+=[^,()]+)*\s*\)?\s*"  # tensor(1.5, device='cuda:0')
_PAIR = re.compile(
    rf"\s*[(\[]{_WRAPPED.format(_NUMBER)},{_WRAPPED.format('true|false|0|1')}[)\]]\s*",
    re.IGNORECASE,
)
_LONGEST = 500  # characters of a pair
FAILED = (math.nan, False)
_BEGINS = '{"rule": '


def enveloped(reply: Any, row: Row, **noted: Any) -> str:
    """Return a reply with the row that shall read it, and what else is noted of it, as text without ``<``."""
    how = {} if row.option_form is None else {"option": row.option_form}
    fenced = {"fenced": True} if row.fenced else {}
    reasoned = {"reasoned": True} if row.reasoned else {}
    content = {"rule": row.extractor, **how, **fenced, **reasoned, **noted, "reply": reply}
    return json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")


def opened(result: Any) -> tuple[Reply, Row]:
    """Return the reply and how it is read, from an envelope or from a reply without one."""
    content: dict[str, Any] = {"rule": None, "reply": result}
    if isinstance(result, str) and result.startswith(_BEGINS):  # a reply of a thousand brackets is no JSON to parse
        with contextlib.suppress(ValueError):
            parsed = parse_json(result)
            content = parsed if content.keys() <= parsed.keys() else content
    text = Reply.of_text(content["reply"])
    reply = Reply(text.text, None, text.cut, "labels" in content, content.get("labels"), text.reasoning)
    how = (bool(content.get("fenced")), bool(content.get("reasoned")))
    return reply, Row(content["rule"], content.get("option"), *how)


def is_envelope(recorded: str, filtered: Any) -> bool:
    """Return whether a recorded reply is our envelope, as with ``--reasoning_tags``, and no model's text of that form.

    What the filter made of it, ``filtered``, is then an envelope of another text than ``recorded``.
    """
    while isinstance(filtered, list) and filtered:
        filtered = filtered[0]
    if not (isinstance(filtered, str) and filtered.startswith(_BEGINS)):
        return False
    return opened(filtered)[0].recorded != Reply.of_text(recorded).recorded


def opened_all(results: Sequence[Any]) -> tuple[Reply, Row]:
    """Return what the harness hands to ``process_results``: one text, or one log-likelihood per option."""
    if not in_words(results):
        if all(isinstance(result, dict) for result in results):
            return Reply(losses=tuple(result["loss"] for result in results)), Row(results[0]["rule"])
        return Reply(losses=tuple(parse_loglikelihood(result)[0] for result in results)), Row()
    return opened(results[0])


def in_words(results: Sequence[Any]) -> bool:
    """Return whether the results are one text, and no log-likelihoods."""
    return len(results) == 1 and not isinstance(results[0], dict)


# ---- log-likelihoods ----


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
    is_pair = isinstance(result, str) and len(result) <= _LONGEST
    match = _PAIR.fullmatch(re.sub(r"\bnp\.(True|False)_", r"\1", result)) if is_pair else None
    return (float(match[1]), match[2].lower() in ("true", "1")) if match else FAILED


def _from_json(text: str) -> tuple[Any, Any] | None:
    try:
        record = parse_json(text)
        mean, greedy = record["mean"], record["greedy"]
    except (ValueError, KeyError, TypeError):
        return None
    numeric = isinstance(mean, int | float) and not isinstance(mean, bool)
    return (mean, greedy) if numeric and isinstance(greedy, bool) else None
