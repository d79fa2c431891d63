"""Single replies read by any rule, without a task: for the command line and for Python.

A reply is read exactly as in a run, so that this must have no reading of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.samples import REPLY_LANGUAGE, Sample, letter
from medtasks.errors import RepliesError
from medtasks.extract.careful.yes_no import plain_verdict
from medtasks.extract.extractor_registry import AnswerKind, RegisteredExtractor, extractor_of
from medtasks.extract.published.medheval_closed import BINARY, NO, YES
from medtasks.extract.reading.languages import known_language

EXAMPLE = '{"reply": "The answer is A", "options": ["yes", "no"]}'
_WORDS = {  # options of rules that read words, which have no sense without them
    "robust_yes_no_maybe": '["yes", "no", "maybe"]',
    "robust_nli": '["entailment", "neutral", "contradiction"]',
}


def parse_reply(name: str, item: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Read one reply by a rule.

    Args:
        name: Name of the rule.
        item: ``reply``, a text or None, and what the rule needs of ``options``, ``question``, ``answer``, ``language``.
        location: Where the item is, for messages.

    Returns:
        ``value`` and ``reason`` of the answer, and its facts.

    Raises:
        UnknownName: There is no such rule or language.
        RepliesError: The item is no object with a reply, or lacks something that the rule needs.

    Example:
        >>> parse_reply("robust_choice", {"reply": "The answer is A", "options": ["yes", "no"]}, "line 1")["value"]
        'A'
    """
    rule = extractor_of(name)
    if rule.kind is AnswerKind.LIKELIHOODS:
        raise RepliesError(
            f"the rule '{name}' compares likelihoods of options and reads no replies; choose another"
        )
    reply, options = _reply_and_options(item, location)
    if not options and (rule.kind is AnswerKind.LABELS or name in _WORDS):
        example = _WORDS.get(name, '["atelectasis", "effusion"]')
        raise RepliesError(
            f"{location}: the rule '{name}' needs 'options', in their order, such as {example}"
        )
    try:
        answer = rule.extract(reply, Sample(_document(rule, item, options)))
    except KeyError as error:
        raise RepliesError(
            f"{location}: the rule '{name}' compares with a target; add {error}"
        ) from error
    return {"value": answer.value, "reason": str(answer.reason), **answer.facts}


def _reply_and_options(
    item: Mapping[str, Any], location: str
) -> tuple[str | None, Sequence[str]]:
    """Return the reply of an item, which may be None, and its options, empty if it has none.

    Raises:
        RepliesError: There is no reply, or something of them is no text.
    """
    if "reply" not in item:
        raise RepliesError(f"{location} is not an object like {EXAMPLE}: 'reply' is missing")
    reply = item["reply"]
    options = item.get("options") or []
    is_list = isinstance(options, list | tuple)
    has_texts = is_list and all(isinstance(option, str) for option in options)
    if not isinstance(reply, str | None) or not has_texts:
        raise RepliesError(
            f"{location}: 'reply' must be text or null, 'options' a list of texts"
        )
    return reply, options


def _document(
    rule: RegisteredExtractor,
    item: Mapping[str, Any],
    options: Sequence[str],
) -> dict[str, Any]:
    """Return the columns that a rule may look at. A closed question without options asks for yes or no."""
    columns = {
        name: item[name] for name in ("question", "answer") if item.get(name) is not None
    }
    columns["options"] = options
    if item.get("language") is not None:
        columns[REPLY_LANGUAGE] = known_language(item["language"])
    if rule.kind is not AnswerKind.CLOSED:
        return columns
    answer = str(columns.get("answer", ""))
    choices = ", ".join(f"{letter(index)}: {option}" for index, option in enumerate(options))
    columns |= {"kind": "options", "choices": choices, "gold": answer}
    if not options:
        columns["kind"] = BINARY
        answer = {"yes": YES, "no": NO}.get(plain_verdict(answer) or "", answer)
    return columns | {"answer": answer or None}
