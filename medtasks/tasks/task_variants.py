r"""Tasks without files of their own: each follows from another one's, by the keys in which it differs.

- any ending in ``variants.yml`` next to the task's file, with included file, description and protocol
- ``_5shot``: five solved examples first, for tasks whose metadata have ``few_shot``
- ``_blind``: the question's image is not shown. Images of solved examples in the prompt remain
- ``_blank``: a uniform grey image of the same size replaces each image of the question
- ``_swapped``: the question comes with another image: the other one of its pair, else that of another patient or case
- ``_rotated``: every question is asked once for each rotation of its options (:mod:`medtasks.families.rotations`)
- ``_told``: as ``_blind``, and the prompt says that the image is missing
- ``_degraded``: images are degraded in one of several ways and severities (:mod:`medtasks.data.images.degrading`)
- ``_abstain``: a last option is to abstain (:mod:`medtasks.families.abstentions`)
- ``_nota``: the right option is "None of the other options"; in ``_nota_control`` a wrong one is
- ``_think``: MedVLThinker's instruction comes before the prompt: thoughts in ``<think>``, the answer in ``<answer>``
- ``_think_boxed``: MedEvalKit's last line for reasoning, the answer in a ``\boxed{}``, replaces one for the bare answer

Both thinking variants have room for 4,096 new tokens, as MedVLThinker has, decode as their task does, and read the
answer after the reasoning by the task's own rules, except rows ``reference*``: published code reads no such reply.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import cache, wraps
from pathlib import Path
from typing import Any

from medtasks.data.images import degrading
from medtasks.data.samples import Document
from medtasks.data.variants import (
    ABSTAIN,
    DEGRADATION,
    DEGRADED,
    ROTATED,
    SEVERITY,
    TOLD,
    VARIANTS,
)
from medtasks.families.family import AskedFor, Rule, TaskFamily
from medtasks.prompts.template import NO_IMAGE
from medtasks.tasks.hook_names import HOOKS
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_index import (
    COLUMNS,
    ROWS,
    SETTINGS,
    Config,
    DottedName,
    NewConfig,
    mapping_in,
    names_in,
    own_config,
    with_included,
)

Rules = Mapping[str, Rule]  # rules by the name of a row of results
Hook = Callable[..., Any]
TAGS = "think"
BOXED = "think_boxed"
THINKING = (TAGS, BOXED)
ENDINGS = (*VARIANTS, *THINKING)
TWIN_ENDING = "_5shot"
MAX_NEW_TOKENS = 4096
# Prefixes of a variant's name, among the hooks of variants, for the hooks that make its prompt.
TEXT_OF = "text_of_"
MESSAGES_OF = "messages_of_"

_VARIANT_HOOKS = f"{HOOKS}variants."
_LABEL = "medtasks.data.label_of."
_MEANING = {
    "blind": "without the image",
    "blank": "grey images in place of the images",
    "swapped": "with the image of another question",
    "rotated": "in every rotation of the options",
    "told": "without the image, as the prompt says",
    "degraded": "with degraded images",
    "abstain": "with an option to abstain",
    "nota": "the right option replaced by 'None of the other options'",
    "nota_control": "a wrong option replaced by 'None of the other options'",
    TAGS: "reasoning in <think>, the answer in <answer>",
    BOXED: "reasoning first, the answer in a box",
}
# Prompts with every last line of the kit.
_KIT = ("medevalkit_question", "medevalkit_slake", "medevalkit_mmmu")
# Other prompts whose last line asks for the bare letter.
_OF_LETTERS = ("mmmu_pro_standard", "mmmu_pro_vision")
_ROOM = "max_new_tokens"
_BY_MODEL = "model_specific_generation_kwargs"


def listed_variants(folder: Path) -> Iterator[tuple[str, str, Config]]:
    """Yield name, origin and rule of each task that ``variants.yml`` in a folder of task files makes of others."""
    rules = folder / "variants.yml"
    if not rules.is_file():
        return
    for rule in own_config(rules).values():
        for base in rule["of"]:
            yield f"{base}_{rule['ending']}", base, rule


def listed_changes(path: Path) -> Iterator[NewConfig]:
    """Yield the keys, the name among them, in which each task differs that ``variants.yml`` makes of a file's task."""
    for name, origin, rule in listed_variants(path.parent):
        if origin != path.stem:
            continue
        base = with_included(path)
        metadata = base["metadata"]
        title = metadata["description"].partition("; ")[0]
        changes = with_included(path, {"include": rule.get("include")})
        changes |= _name_changes(name)
        changes["metadata"] = {
            **metadata,
            **rule.get("metadata", {}),
            "version": rule["of"][origin],
            "description": rule["description"].format(title=title),
            "protocol": rule["protocol"].format(protocol=metadata["protocol"]),
        }
        if "settings" in rule:
            settings = DottedName(rule["settings"].format(settings=base[SETTINGS]))
            changes[SETTINGS] = settings.resolve()
        yield changes


def twin_changes(name: str, config: Config) -> NewConfig:
    """Return the keys in which the few-shot twin of a task differs from the task, whose file says ``config``."""
    metadata = {**mapping_in(config, "metadata")}
    few_shot = metadata.pop("few_shot")
    metadata |= {
        "description": f"{metadata['description']}, after five solved examples",
        "protocol": "5-shot",
        "num_fewshot": 5,
        "checked_against": "https://github.com/corentin-ryr/MultiMedEval at d9ac283",  # source of few-shot prompts
    }
    return {
        **_name_changes(f"{name}{TWIN_ENDING}"),
        "tag": few_shot["tag"],
        "doc_to_visual": DottedName(f"{HOOKS}few_shot.images"),
        "doc_to_text": DottedName(f"{HOOKS}few_shot.prompt"),
        "doc_to_messages": DottedName(f"{HOOKS}few_shot.messages"),
        "metadata": metadata,
    }


def _name_changes(name: str, *, is_prepared: bool = True) -> NewConfig:
    """Return the keys with a task's name. Only that of a prepared dataset's task has a label in tables."""
    return {"task": name, "task_alias": DottedName(f"{_LABEL}{name}") if is_prepared else name}


def variant_changes(
    name: str,
    variant: str,
    config: Config,
    rows: Rules,
    family: TaskFamily | None,
    description: str,
) -> NewConfig:
    """Return the keys in which a variant of a task differs from the task.

    Args:
        name: Name of the task.
        variant: Ending of the variant, one of ``ENDINGS``.
        config: What the task's file says, with unresolved dotted names.
        rows: How its replies are read, by the name of a row.
        family: The family that its hook scores for, None if it is not one of ours.
        description: Description of the task.
    """
    made = f"{name}_{variant}"
    metadata = {
        **mapping_in(config, "metadata"),
        "description": f"{description}; {_MEANING[variant]}",
        "variant": variant,
        "base": name,
    }
    is_prepared = str(config.get("dataset_path", "")).startswith("medtasks.data.path_of.")
    changes = {**_name_changes(made, is_prepared=is_prepared), "tag": []}
    if variant in THINKING:
        return {**changes, **_thinking_changes(made, config, rows), "metadata": metadata}
    # Documents of a variant have their names already, and no other rows.
    metadata.pop(COLUMNS, None)
    metadata.pop(ROWS, None)
    changes |= {"process_docs": DottedName(f"{_VARIANT_HOOKS}{made}"), "metadata": metadata}
    if variant == ROTATED and family is not None:
        changes["process_results"] = DottedName(f"{HOOKS}{family.rotated}.process_results")
        changes["metric_list"] = DottedName(f"{HOOKS}{family.rotated}.METRIC_LIST")
    elif variant == ABSTAIN:
        module = str(config["process_results"]).rpartition(".")[0]
        changes["process_results"] = DottedName(f"{module}.process_abstaining")
        changes["metric_list"] = DottedName(f"{module}.ABSTAINING_METRIC_LIST")
    elif variant == DEGRADED:
        metadata["degradations"] = degrading.VERSION
        metadata["breakdown"] = [*names_in(metadata.get("breakdown")), DEGRADATION, SEVERITY]
    elif variant == TOLD and not str(config["doc_to_text"]).startswith(HOOKS):
        # Prompts of ours know the variant.
        changes["doc_to_text"] = DottedName(f"{_VARIANT_HOOKS}{TEXT_OF}{made}")
    return changes


def _reading_step(row: Rule) -> NewConfig:
    """Return the filter that reads the answer after the reasoning as a row of the task reads whole replies.

    Settings that the row leaves to their defaults are left out.
    """
    step: NewConfig = {"function": DottedName(f"{HOOKS}filters.ReadWith")}
    options = {
        "rule": row.extractor,
        "option": row.option_form,
        "fenced": row.fenced or None,
    }
    step |= {key: value for key, value in options.items() if value is not None}
    return step | {"reasoned": True}


def _thinking_changes(name: str, config: Config, rows: Rules) -> NewConfig:
    """Return the keys in which a thinking variant differs from its task: prompt, room for tokens, and filters.

    The filters read the answer after the reasoning. There is one for each row of the task but ``reference*``.

    Args:
        name: Name of the variant.
        config: The task's configuration.
        rows: How its replies are read, by the name of a row.
    """
    settings = mapping_in(config, "generation_kwargs")
    room = max(MAX_NEW_TOKENS, int(settings.get(_ROOM) or 0))
    filters = []
    for title, row in rows.items():
        if title.startswith("reference"):
            continue
        filters.append({"name": title, "filter": [_reading_step(row)]})
    changes: NewConfig = {
        "doc_to_text": DottedName(f"{_VARIANT_HOOKS}{TEXT_OF}{name}"),
        "generation_kwargs": {"until": [], **settings, _ROOM: room},
        "filter_list": filters,
    }
    if config.get("doc_to_messages"):
        changes["doc_to_messages"] = DottedName(f"{_VARIANT_HOOKS}{MESSAGES_OF}{name}")
    by_model = {}
    for model, kwargs in mapping_in(config, _BY_MODEL).items():
        by_model[model] = {key: value for key, value in kwargs.items() if key != _ROOM}
    if by_model:
        changes[_BY_MODEL] = by_model
    return changes


def thinking_of(
    config: Config,
    family: TaskFamily | None,
    rows: Rules,
) -> tuple[str, ...]:
    """Return the names of a task's thinking variants.

    The tuple is empty where the answer is no letter, word or phrase, is compared by likelihood, where a judge is given
    whole replies, where the prompt is no function, or where the task's own protocol asks to reason already.

    Args:
        config: The task's configuration, with unresolved dotted names.
        family: The family that its hook scores for, None if it is not one of ours.
        rows: How its replies are read, by the name of a row.
    """
    if "reasoning" in str(mapping_in(config, "metadata").get("protocol")):
        return ()
    if config.get("output_type", "generate_until") != "generate_until":
        return ()
    if family is None or family.asked_for is None:
        return ()
    if all(row.startswith("reference") for row in rows):
        return ()
    hooks = (config.get("doc_to_text"), config.get("doc_to_messages") or DottedName(""))
    return THINKING if all(isinstance(hook, DottedName) for hook in hooks) else ()


# ---- prompts of variants ----


def told_prompt(prompt: Hook) -> Hook:
    """Return a ``doc_to_text`` that says that the image is missing, before a prompt of the user's own.

    Example:
        >>> told_prompt(lambda doc: doc["question"])({"question": "Is it?"}).splitlines()[-1]
        'Is it?'
    """

    @wraps(prompt)
    def with_notice(doc: Document, *args: Any, **named: Any) -> str:
        return f"{NO_IMAGE}\n{prompt(doc, *args, **named)}"

    return with_notice


def thinking_prompt(
    prompt: Hook,
    variant: str,
    family: TaskFamily,
) -> Hook:
    """Return a ``doc_to_text`` or ``doc_to_messages`` that instructs to reason, around a task's own.

    Of messages, the last turn of the user holds the instruction.

    Args:
        prompt: The task's own hook.
        variant: ``"think"`` or ``"think_boxed"``.
        family: The family that the task's hook scores for.
    """

    @wraps(prompt)  # the checks know by the prompt's name which columns it needs
    def with_instruction(doc: Document, *args: Any, **named: Any) -> Any:
        """Return the task's own prompt, or messages, with the instruction to reason, after an image's mark."""
        original = prompt(doc, *args, **named)
        if isinstance(original, list):
            return _instruct_turns(original, variant, doc, family)
        text = str(original)
        if variant == BOXED:
            return _ask_for_box(text, doc, family)
        arguments = (*args, named.get(SETTINGS))
        settings: Config = next((each for each in arguments if isinstance(each, Mapping)), {})
        mark = str(settings.get("image_mark") or "")
        start = len(mark) if text.startswith(mark) else 0  # the image comes before everything
        return f"{text[:start]}{_instruction()}{text[start:]}"

    return with_instruction


def _instruct_turns(
    messages: list[Any],
    variant: str,
    doc: Document,
    family: TaskFamily,
) -> list[Any]:
    """Return messages with the instruction to reason in the last turn of the user."""
    turns = copy.copy(messages)
    last = max(number for number, turn in enumerate(turns) if turn["role"] == "user")
    content = list(map(dict, turns[last]["content"]))
    texts = [part for part in content if part["type"] == "text"]
    if not texts:
        texts = [{"type": "text", "text": ""}]
        content += texts
    if variant == BOXED:
        texts[-1]["text"] = _ask_for_box(texts[-1]["text"], doc, family)
    else:
        texts[0]["text"] = f"{_instruction()}{texts[0]['text']}"
    turns[last] = {**turns[last], "content": content}
    return turns


@cache
def _instruction() -> str:
    """Return MedVLThinker's instruction to reason, with the blank line after it."""
    before, line, _ = str(prompt_settings("medvlthinker")["default"]["template"]).partition(
        "\n\n"
    )
    return f"{before}{line}"


def _line(prompt: str, key: str = "instruction") -> str:
    return str(prompt_settings(prompt)["default"][key])


@cache
def _last_lines() -> Mapping[str, str]:
    """Return MedEvalKit's last lines for reasoning by those for the bare answer."""
    lines = {}
    for name in _KIT:
        for key in prompt_settings(name)["default"]:
            if key not in ("template", "shown_images"):
                lines[_line(name, key)] = _line(f"{name}_reasoning", key)
    return lines | dict.fromkeys(map(_line, _OF_LETTERS), lines[_line("medevalkit_mmmu")])


def _ask_for_box(text: str, doc: Document, family: TaskFamily) -> str:
    """Return a prompt with the kit's last line for reasoning, in place of one for the bare answer, or at its end."""
    lines = _last_lines()
    bare = next(filter(text.endswith, lines), None)
    if bare is not None:
        return f"{text.removesuffix(bare)}{lines[bare]}"
    # The line that the kit would have for the bare answer to this question.
    mixed = family.asked_for is AskedFor.LETTER_OR_YES_NO
    if family.asked_for is AskedFor.LETTER or (mixed and doc.get("kind") != "binary"):
        bare = _line("medevalkit_mmmu")
    else:
        closed = mixed or str(doc.get("answer")).strip().lower() in ("yes", "no", "是", "否")
        language = "_zh" if doc.get("language") == "zh" else ""
        bare = _line("medevalkit_question", f"{'yes_no' if closed else 'open'}{language}")
    return f"{text}\n{lines[bare]}"
