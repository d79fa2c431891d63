"""From what the harness hands to ``process_results`` to an answer."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import NO_TEXT, cut_reply, without_cut_mark
from medtasks.extract.labeler import Labels
from medtasks.extract.registry import Kind, extractor_of
from medtasks.hooks.loglikelihood import parse_loglikelihood

# Rules for a user's YAML that names none.
_TEXT_DEFAULT, _LIKELIHOOD_DEFAULT = "robust_choice", "untied"
_TAG = '{"rule": '
_UNSAID = frozenset({Reason.EMPTY, Reason.NO_MATCH, Reason.AMBIGUOUS})


@dataclass(frozen=True)
class TaggedReply:
    """A reply that went through :class:`medtasks.hooks.filters.ReadWith`, or did not.

    Attributes:
        reply: As the model gave it; :data:`~medtasks.extract.failure.NO_TEXT` where that is no text.
        rule: Rule to read it with, None if no filter named one.
        option: How options are written for the rule, None for their bare text.
        labelled: Whether the reply went to a labeler already, see :mod:`medtasks.hooks.labelling`.
        labels: What the labeler says of it, None if nothing.
        cut: Whether the server cut it at its length limit.
        fenced: Whether a judge shall get it between marks, see :mod:`medtasks.judges.fence`.
    """

    reply: str
    rule: str | None = None
    option: str | None = None
    labelled: bool = False
    labels: Labels | None = None
    cut: bool = False
    fenced: bool = False

    @property
    def recorded(self) -> str:
        """The reply as it is kept in files, which says whether it was cut."""
        return cut_reply(self.reply) if self.cut else self.reply


def tagged(reply: Any, rule: str | None, option: str | None = None, **noted: Any) -> str:
    """Return a reply with the rule that shall read it, and what else is noted of it, as text without ``<``."""
    tag = {"rule": rule, **({} if option is None else {"option": option}), **noted}
    return json.dumps({**tag, "reply": reply}, ensure_ascii=False).replace("<", "\\u003c")


def untagged(result: Any) -> TaggedReply:
    """Return the reply and what the filter said of it."""
    if not isinstance(result, str):
        return TaggedReply(NO_TEXT)
    tag: dict[str, Any] = {"rule": None, "reply": result}
    if result.startswith(_TAG):  # a reply of a thousand brackets is a reply, and no JSON to parse
        with contextlib.suppress(ValueError):
            parsed = json.loads(result)
            tag = parsed if tag.keys() <= parsed.keys() else tag
    text, cut = without_cut_mark(tag["reply"]) if isinstance(tag["reply"], str) else (NO_TEXT, False)
    return TaggedReply(
        text, tag["rule"], tag.get("option"), "labels" in tag, tag.get("labels"), cut, bool(tag.get("fenced"))
    )


def cut_record(entry: Any) -> Any:
    """Return the record of a reply that the server cut: one without an answer had no room for it."""
    if not isinstance(entry, Mapping):
        return entry
    return {**entry, "cut": True, **({"reason": str(Reason.TRUNCATED)} if entry.get("reason") in _UNSAID else {})}


FENCED = "_fenced"
"""What stands behind a rule's name in records of replies that the judge got between marks."""


def rule_name(rule: str, read: TaggedReply) -> str:
    """Return the name by which records tell under which rule, and in which prompt of a judge, a reply was read."""
    return f"{rule}{FENCED}" if read.fenced else rule


def read_reply(result: Any, default: str = _TEXT_DEFAULT) -> tuple[str, str]:
    """Return ``(rule, reply)``; the rule is ``default`` where no filter named one."""
    read = untagged(result)
    return read.rule or default, read.reply


def written_options(form: str | None, options: Sequence[str]) -> list[str]:
    """Write options the way a rule compares them.

    Args:
        form: Text with the fields ``{text}``, ``{letter}`` (A, B, ...), ``{lower}`` (a, b, ...) and ``{number}`` (from
            1); None: the bare texts.
        options: Option texts.

    Raises:
        MedTasksError: The form has another field.

    Example:
        >>> written_options("{number}: {text}", ["adipose", "background"])
        ['1: adipose', '2: background']
    """
    if form is None:
        return list(options)
    try:
        return [
            form.format(text=text, letter=letter(index), lower=letter(index).lower(), number=index + 1)
            for index, text in enumerate(options)
        ]
    except (KeyError, IndexError, ValueError) as error:
        raise MedTasksError(
            f"option form {form!r} is not usable ({error}); its fields are {{text}}, {{letter}}, {{lower}}, {{number}}"
        ) from error


def read_answer(doc: Mapping[str, Any], results: Sequence[Any], default: str = _TEXT_DEFAULT) -> tuple[Answer, str]:
    """Apply the rule that the filter named.

    Args:
        doc: A document with ``options``.
        results: One reply, or one log-likelihood per option.
        default: Rule for a text reply whose filter names none.

    Returns:
        The answer and the name of the rule.
    """
    if len(results) == 1 and not isinstance(results[0], dict):
        read = untagged(results[0])
        rule = read.rule or default
        sample = Sample(doc, written_options(read.option, doc["options"]))
        return extractor_of(rule, Kind.CHOICE).extract(read.reply, sample), rule
    if all(isinstance(result, dict) for result in results):
        rule = results[0]["rule"]
        losses = [result["loss"] for result in results]
        return extractor_of(rule, Kind.LIKELIHOODS).extract(losses, Sample(doc)), rule
    losses = [parse_loglikelihood(result)[0] for result in results]
    return extractor_of(_LIKELIHOOD_DEFAULT, Kind.LIKELIHOODS).extract(losses, Sample(doc)), _LIKELIHOOD_DEFAULT
