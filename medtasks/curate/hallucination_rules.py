"""From what an LLM replied to drafts: which option an answer names, and the rules by which a question is rejected."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.curate.drafts import Draft, Outcome
from medtasks.curate.hallucination_replies import Question, ReportQuestion, TypedQuestion, YesNoQuestion
from medtasks.data.journal import digest_of
from medtasks.data.medheval.gold import YES_NO, Flag, Resolved, parsed_options, resolve_choice, resolve_yes_no
from medtasks.data.medheval.gold_reading import normalised
from medtasks.data.samples import letter

_BANNED = re.compile(r"Do not use phrases like (.+?) in the conversation", re.DOTALL)
_ORDERED = re.compile(r"\b(?:(?i:above|below|all of|none of|both|neither)|[A-Z] (?:and|or) [A-Z])\b")
_UNRESOLVED: Mapping[Flag, str] = {
    Flag.GOLD_SEVERAL: "its answer names several options",
    Flag.GOLD_CONTRADICTORY: "its answer contradicts itself",
    Flag.GOLD_UNRESOLVED: "its answer names no option",
}


def banned_phrases(system: str) -> re.Pattern[str] | None:
    """Return what finds the phrases that a system message forbids, also as a plural; None where it forbids none.

    Example:
        >>> told = 'Do not use phrases like "mentioned", "bounding boxes" in the conversation.'
        >>> [bool(banned_phrases(told).search(text)) for text in ("the bounding box", "unmentioned")]
        [True, False]
    """
    found = _BANNED.search(system)
    if found is None:
        return None
    phrases = [re.escape(phrase.removesuffix("es")) for phrase in re.findall(r'"([^"]+)"', found[1])]
    return re.compile(rf"\b(?:{'|'.join(phrases)})(?:e?s)?\b", re.IGNORECASE)


def drafts_of(image: str, questions: Sequence[Question], banned: re.Pattern[str] | None) -> tuple[Draft, ...]:
    """Return the drafts of one reply on one image, by its id, those rejected with their reason."""
    drafts, asked = [], set[str]()
    for number, question in enumerate(questions, 1):
        item = f"{image}/{number}"
        facts = _facts(item, question)
        reason = facts.pop("reason") or _reason(question, facts["options"], banned, asked)
        asked.add(normalised(question.question))
        outcome = Outcome.REJECTED if reason else Outcome.DRAFTED
        drafts.append(
            Draft(item_id=item, images=(image,), question=question.question, outcome=outcome, reason=reason, **facts)
        )
    return tuple(drafts)


def _reason(question: Question, options: Sequence[str], banned: re.Pattern[str] | None, asked: set[str]) -> str:
    """Return why a question is rejected whatever its kind; an empty text where it is not."""
    if normalised(question.question) in asked:
        return "the same question of the same image"
    said = "\n".join((question.question, question.answer, *options))
    found = banned.search(said) if banned else None
    return f"it says '{found[0].lower()}', which its prompt forbids" if found else ""


def _facts(item: str, question: Question) -> dict[str, Any]:
    """Return a draft's options, answers and what else its kind has, with the ``reason`` why it has no answer."""
    if isinstance(question, TypedQuestion):
        facts = _closed(item, question, question.choices or "", question.binary)
        return {**facts, "hallucination": question.hallucination}
    if isinstance(question, YesNoQuestion):
        return _closed(item, question, "", True)
    facts = {"options": (), "answers": (question.answer,), "reason": ""}
    if isinstance(question, ReportQuestion):
        components = question.components.by_aspect()
        reason = "" if any(components.values()) else "it names no component"
        return {**facts, "components": components, "reason": reason}
    return facts


def _closed(item: str, question: Question, choices: str, binary: bool) -> dict[str, Any]:
    options = tuple(parsed_options(choices))
    if binary or sorted(map(str.casefold, options)) == ["no", "yes"]:
        options, binary = YES_NO, True
        right, reason = _answer(resolve_yes_no(question.answer, question.question, choices))
        reason = reason and "its answer is neither yes nor no"
    else:
        right, reason = _answer(resolve_choice(question.answer, options))
        if len(options) < 2:
            reason = "it has fewer than two options that can be told apart"
        elif len({option.casefold().rstrip(".") for option in options}) < len(options):
            reason = "two of its options are equal"
    if reason or right is None:
        return {"options": options, "answers": (question.answer,), "reason": reason}
    shuffled = options if binary else _shuffled(item, options)
    return {"options": shuffled, "answers": (letter(shuffled.index(options[ord(right) - ord("A")])),), "reason": ""}


def _answer(resolved: Resolved) -> tuple[str | None, str]:
    """Return the letter, or why there is none."""
    right, flags = resolved
    return (right, "") if right else (None, next((_UNRESOLVED[flag] for flag in flags if flag in _UNRESOLVED), ""))


def _shuffled(item: str, options: tuple[str, ...]) -> tuple[str, ...]:
    """Return options in an order that the item's id decides: LLMs put the right one first, or never last.

    Those that speak of each other ("both A and B", "none of the above") stay as they are.
    """
    if any(_ORDERED.search(option) for option in options):
        return options
    return tuple(sorted(options, key=lambda option: digest_of(item, option)))
