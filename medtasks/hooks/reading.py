"""From what the harness hands to ``process_results`` to an answer."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.answers.answer import Answer
from medtasks.answers.registry import likelihood_rule, text_rule
from medtasks.hooks.loglikelihood import parse_loglikelihood

# Rules for a user's YAML that names none.
_TEXT_DEFAULT, _LIKELIHOOD_DEFAULT = "robust_choice", "untied"


def read_reply(result: Any) -> tuple[str, str]:
    """Return ``(rule, reply)`` from a reply that went through :class:`medtasks.hooks.filters.ReadWith`, or did not."""
    if not isinstance(result, str):
        return _TEXT_DEFAULT, ""
    if not result.startswith('{"rule": '):  # a reply of a thousand brackets is a reply, and no JSON to parse
        return _TEXT_DEFAULT, result
    try:
        tagged = json.loads(result)
        return tagged["rule"], tagged["reply"] or ""
    except (ValueError, KeyError):
        return _TEXT_DEFAULT, result


def read_answer(doc: Mapping[str, Any], results: Sequence[Any]) -> tuple[Answer, str]:
    """Apply the rule that the filter named.

    Args:
        doc: A document with ``options``.
        results: One reply, or one log-likelihood per option.

    Returns:
        The answer and the name of the rule.
    """
    if len(results) == 1 and not isinstance(results[0], dict):
        rule, reply = read_reply(results[0])
        return text_rule(rule).read(reply, doc["options"]), rule
    if all(isinstance(result, dict) for result in results):
        rule = results[0]["rule"]
        return likelihood_rule(rule).read([result["loss"] for result in results]), rule
    losses = [parse_loglikelihood(result)[0] for result in results]
    return likelihood_rule(_LIKELIHOOD_DEFAULT).read(losses), _LIKELIHOOD_DEFAULT
