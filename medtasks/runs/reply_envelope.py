"""Arguments of ``process_results``: a reply in the envelope of a filter, or log-likelihoods.

A filter of the harness sees replies without their documents, and scoring does not know which filter it follows. So a
filter only puts each reply into an envelope with the rule that reads it; scoring opens it where the document is at
hand. It is JSON text because the harness strips white space from generated replies, and it holds no ``<`` because the
harness cuts out ``<think>`` blocks. No reply begins like an envelope: those of models are escaped
(:mod:`medtasks.extract.failure`).

lmms-eval 0.7.3 passes log-likelihoods through a helper for generated text, which turns ``(1.5, False)`` into the
string ``'(1.5, False)'`` (``'[1.5, False]'`` from the response cache). A fixed harness hands over the pair.
"""

import contextlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from medtasks.data.safe_parsing import parse_json
from medtasks.extract.failure import ENVELOPE
from medtasks.families.family import Reply, Rule

# Repetitions keep what they took (``+`` after the quantifier), or two of them in a row would take quadratic time.
_NUMBER = r"[-+]?(?:\d++\.?\d*+(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf(?:inity)?|nan)"
# tensor(1.5, device='cuda:0')
_WRAPPED = r"\s*+(?:[\w.]++\(\s*+)?\[?({})\]?(?:\s*+,\s*+\w+=[^,()]+)*\s*+\)?\s*+"
_PAIR = re.compile(
    rf"\s*[(\[]{_WRAPPED.format(_NUMBER)},{_WRAPPED.format('true|false|0|1')}[)\]]\s*",
    re.IGNORECASE,
)


_LONGEST_PAIR = 500  # characters
FAILED = (math.nan, False)


def make_envelope(reply: Any, rule: Rule, **noted: Any) -> str:
    r"""Return a reply with the rule that reads it, as text without ``<``.

    Args:
        reply: Text of the reply, or None for a failed one.
        rule: Rule that reads it.
        noted: Further values, such as ``labels``.

    Example:
        >>> make_envelope("A < B", Rule("letter_choice"))
        '{"rule": "letter_choice", "reply": "A \\u003c B"}'
    """
    content: dict[str, Any] = {"rule": rule.extractor}
    if rule.option_form is not None:
        content["option"] = rule.option_form
    if rule.fenced:
        content["fenced"] = rule.fenced
    if rule.reasoned:
        content["reasoned"] = rule.reasoned
    content |= {**noted, "reply": reply}
    return json.dumps(content, ensure_ascii=False).replace("<", "\\u003c")


def open_envelope(result: Any) -> tuple[Reply, Rule]:
    """Return a reply and the rule that reads it, from an envelope or from a bare reply.

    Example:
        >>> reply, rule = open_envelope(make_envelope("B", Rule("letter_choice")))
        >>> reply.text, rule.extractor
        ('B', 'letter_choice')
    """
    content: dict[str, Any] = {"rule": None, "reply": result}
    # A reply of a thousand brackets is no JSON to parse.
    if isinstance(result, str) and result.startswith(ENVELOPE):
        with contextlib.suppress(ValueError):
            parsed = parse_json(result)
            content = parsed if content.keys() <= parsed.keys() else content
    reply = Reply.of_text(content["reply"])
    if "labels" in content:
        reply = replace(reply, labelled=True, labels=content["labels"])
    is_fenced = bool(content.get("fenced"))
    is_reasoned = bool(content.get("reasoned"))
    return reply, Rule(content["rule"], content.get("option"), is_fenced, is_reasoned)


def open_results(results: Sequence[Any]) -> tuple[Reply, Rule]:
    """Read the results that the harness hands to ``process_results``: one text, or one log-likelihood per option."""
    if in_words(results):
        return open_envelope(results[0])
    if all(isinstance(result, dict) for result in results):
        losses = tuple(result["loss"] for result in results)
        return Reply(losses=losses), Rule(results[0]["rule"])
    losses = tuple(parse_loglikelihood(result)[0] for result in results)
    return Reply(losses=losses), Rule()


def in_words(results: Sequence[Any]) -> bool:
    """Return whether the results are one text instead of log-likelihoods."""
    return len(results) == 1 and not isinstance(results[0], dict)


def parse_loglikelihood(result: Any) -> tuple[float, bool]:
    """Read ``(mean negative log-likelihood, is_greedy)`` from a pair, its text, or an adapter's JSON text.

    The adapters of this package give JSON text with ``loglikelihood_format=json``. Anything else becomes
    ``(nan, False)``, which counts as a failed sample and never as an answer.

    Example:
        >>> parse_loglikelihood("[np.float32(0.25), np.True_]")
        (0.25, True)
        >>> parse_loglikelihood('{"mean": 1.5, "greedy": true, "sum": 3.0, "tokens": 2}')
        (1.5, True)
    """
    if isinstance(result, str) and result.lstrip().startswith("{"):
        return _parse_adapter_record(result)
    if isinstance(result, list | tuple):
        if not all(isinstance(part, str) for part in result):
            try:
                loss, is_greedy = result
                return float(loss), bool(is_greedy)
            except (TypeError, ValueError):
                return FAILED
        result = f"({', '.join(result)})"  # as lm-eval writes a pair
    if not isinstance(result, str) or len(result) > _LONGEST_PAIR:
        return FAILED
    match = _PAIR.fullmatch(re.sub(r"\bnp\.(True|False)_", r"\1", result))
    if match is None:
        return FAILED
    return float(match[1]), match[2].lower() in ("true", "1")


def _parse_adapter_record(text: str) -> tuple[float, bool]:
    """Read ``(mean, is_greedy)`` from an adapter's JSON text."""
    try:
        record = parse_json(text)
        mean = record["mean"]
        is_greedy = record["greedy"]
    except (ValueError, KeyError, TypeError):
        return FAILED
    is_number = isinstance(mean, int | float) and not isinstance(mean, bool)
    if not is_number or not isinstance(is_greedy, bool):
        return FAILED
    return float(mean), is_greedy
