r"""Thinking variants: the same question with an instruction to reason first, in a form that was published.

===============  ======================================================================================================
variant          what is different
===============  ======================================================================================================
``think``        MedVLThinker's instruction, letter by letter, and a blank line stand before the prompt: thoughts in
                 ``<think>``, the answer in ``<answer>``
``think_boxed``  the last line of the prompt is MedEvalKit's for reasoning: the answer in a ``\boxed{}``. A line of its
                 own that asks for the bare answer gives way to it
===============  ======================================================================================================

The first is the short name because it alone asks to reason: a model without a switch does so by the prompt alone.
Both have room for 4,096 new tokens, as MedVLThinker has, decode as their task does, and read the answer behind the
reasoning (:mod:`medtasks.extract.reading.reply_text`) by the task's own rules. Rows ``reference*`` reproduce
published code, which reads no such reply; they are left out.
"""

import copy
from collections.abc import Callable, Mapping
from functools import cache, wraps
from typing import Any

from medtasks.families.family import AskedFor, Row, TaskFamily
from medtasks.families.family_registry import HOOKS
from medtasks.tasks.published_names import prompt_settings
from medtasks.tasks.task_index import SETTINGS, DottedName, mapping_in

TAGS, BOXED = "think", "think_boxed"
THINKING = (TAGS, BOXED)
MAX_NEW_TOKENS = 4096
TEXT_OF, MESSAGES_OF = "text_of_", "messages_of_"
"""Before the name of a variant, among the hooks of variants, what makes its prompt."""

_REFERENCE = "reference"
_REASONING = "reasoning"
_READ_WITH = f"{HOOKS}filters.ReadWith"
_BINARY = "binary"
_KIT = ("medevalkit_question", "medevalkit_slake", "medevalkit_mmmu")  # prompts with every last line of the kit
_OF_LETTERS = ("mmmu_pro_standard", "mmmu_pro_vision")  # other prompts whose last line asks for the bare letter
_ROOM = "max_new_tokens"

Message = dict[str, Any]


def thinking_of(config: Mapping[str, Any], family: TaskFamily | None, rows: Mapping[str, Row]) -> tuple[str, ...]:
    """Return the names of a task's thinking variants, by its configuration with unresolved dotted names.

    There are none where the answer is no letter, word or phrase, is compared by likelihood, where a judge is given
    whole replies, where the prompt is no function, or where the task's own protocol asks to reason already.
    """
    if _REASONING in str(mapping_in(config, "metadata").get("protocol")):
        return ()
    made = family is not None and family.asked_for is not None and any(map(_is_kept, rows))
    hooks = (config.get("doc_to_text"), config.get("doc_to_messages") or DottedName(""))
    generated = config.get("output_type", "generate_until") == "generate_until"
    return THINKING if made and generated and all(isinstance(hook, DottedName) for hook in hooks) else ()


def thinking_rows(rows: Mapping[str, Row]) -> dict[str, Row]:
    """Return how the replies to a thinking variant are read, by name of the row."""
    return {name: Row(row.extractor, row.option_form, row.fenced, True) for name, row in rows.items() if _is_kept(name)}


def _is_kept(name: str) -> bool:
    return not name.startswith(_REFERENCE)


def thinking_changes(name: str, rows: Mapping[str, Row], config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a thinking variant's file says otherwise than its task's: prompt, room for tokens and filters."""
    own = mapping_in(config, "generation_kwargs")
    room = max(MAX_NEW_TOKENS, int(own.get(_ROOM) or 0))
    changed: dict[str, Any] = {
        "doc_to_text": DottedName(f"{HOOKS}variants.{TEXT_OF}{name}"),
        "generation_kwargs": {"until": [], **own, _ROOM: room},
        "filter_list": [{"name": row, "filter": [_step(how)]} for row, how in rows.items()],
    }
    if config.get("doc_to_messages"):
        changed["doc_to_messages"] = DottedName(f"{HOOKS}variants.{MESSAGES_OF}{name}")
    if by_model := mapping_in(config, "model_specific_generation_kwargs"):
        changed["model_specific_generation_kwargs"] = {
            model: {key: value for key, value in settings.items() if key != _ROOM}
            for model, settings in by_model.items()
        }
    return changed


def _step(row: Row) -> dict[str, Any]:
    how = {"rule": row.extractor, "option": row.option_form, "fenced": row.fenced or None, "reasoned": True}
    return {"function": DottedName(_READ_WITH), **{key: value for key, value in how.items() if value is not None}}


# ---- prompts ----


def thinking_text(prompt: Callable[..., str], variant: str, family: TaskFamily) -> Callable[..., str]:
    """Return a ``doc_to_text`` that instructs to reason, around a task's own."""

    @wraps(prompt)  # by its name others know which columns it needs
    def instructed(doc: Mapping[str, Any], *args: Any, **named: Any) -> str:
        text = str(prompt(doc, *args, **named))
        settings = next((one for one in (*args, named.get(SETTINGS)) if isinstance(one, Mapping)), {})
        mark = str(settings.get("image_mark") or "")
        if variant == BOXED:
            return _boxed(text, doc, family)
        shown = len(mark) if mark and text.startswith(mark) else 0  # the image comes before everything
        return f"{text[:shown]}{_instruction()}{text[shown:]}"

    return instructed


def thinking_messages(
    messages: Callable[..., list[Message]], variant: str, family: TaskFamily
) -> Callable[..., list[Message]]:
    """Return a ``doc_to_messages`` that instructs to reason in the last turn of the user, around a task's own."""

    @wraps(messages)
    def instructed(doc: Mapping[str, Any], *args: Any, **named: Any) -> list[Message]:
        turns = copy.copy(messages(doc, *args, **named))
        place = max(place for place, turn in enumerate(turns) if turn["role"] == "user")
        content = [dict(part) for part in turns[place]["content"]]
        texts = [number for number, part in enumerate(content) if part["type"] == "text"]
        if not texts:
            texts, content = [len(content)], [*content, {"type": "text", "text": ""}]
        part = content[texts[-1] if variant == BOXED else texts[0]]
        part["text"] = _boxed(part["text"], doc, family) if variant == BOXED else f"{_instruction()}{part['text']}"
        turns[place] = {**turns[place], "content": content}
        return turns

    return instructed


@cache
def _instruction() -> str:
    """Return MedVLThinker's, with the blank line behind it."""
    before, line, _ = str(prompt_settings("medvlthinker")["default"]["template"]).partition("\n\n")
    return f"{before}{line}"


@cache
def _last_lines() -> Mapping[str, str]:
    """Return MedEvalKit's last lines for reasoning by those for the bare answer."""
    names = [(name, key) for name in _KIT for key in prompt_settings(name)["default"] if key not in _NO_LINES]
    kit = {
        str(prompt_settings(name)["default"][key]): str(prompt_settings(f"{name}_reasoning")["default"][key])
        for name, key in names
    }
    boxed = kit[str(prompt_settings("medevalkit_mmmu")["default"]["instruction"])]
    return kit | {str(prompt_settings(name)["default"]["instruction"]): boxed for name in _OF_LETTERS}


_NO_LINES = ("template", "shown_images")


def _boxed(text: str, doc: Mapping[str, Any], family: TaskFamily) -> str:
    lines = _last_lines()
    bare = next((line for line in lines if text.endswith(line)), None)
    if bare is not None:
        return f"{text.removesuffix(bare)}{lines[bare]}"
    return f"{text}\n{lines[_bare_line(doc, family)]}"


def _bare_line(doc: Mapping[str, Any], family: TaskFamily) -> str:
    """Return the kit's last line for the bare answer to a question."""
    if family.asked_for is AskedFor.LETTER or (
        family.asked_for is AskedFor.LETTER_OR_YES_NO and doc.get("kind") != _BINARY
    ):
        return str(prompt_settings("medevalkit_mmmu")["default"]["instruction"])
    kinds = prompt_settings("medevalkit_question")["default"]
    closed = family.asked_for is AskedFor.LETTER_OR_YES_NO or (
        str(doc.get("answer")).strip().lower() in ("yes", "no", "是", "否")
    )
    return str(kinds[("yes_no" if closed else "open") + ("_zh" if doc.get("language") == "zh" else "")])
