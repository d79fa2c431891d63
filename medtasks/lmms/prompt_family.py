"""Prompts and decoding by the family of a checkpoint, in place of those for the harness's model that runs it.

The harness chooses the blocks of a task's file by the name of its model. ``hf_vlm`` and ``vlm_server`` run any
checkpoint, whose family their argument ``prompt_family`` names. Options of the command line are applied later, and win.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from medtasks.errors import MedTasksError, unknown_name
from medtasks.runs.harness_options import HarnessOptions
from medtasks.tasks.prompt_settings import for_other_model, prompt_families
from medtasks.tasks.task_index import SETTINGS, mapping_in

_ARGUMENT = "prompt_family"
_DECODING = "model_specific_generation_kwargs"
# Family, and the model that is given its prompts.
_FAMILY: ContextVar[tuple[str, str]] = ContextVar("_FAMILY", default=("", ""))


@contextlib.contextmanager
def asked_as_family(arguments: Mapping[str, Any]) -> Iterator[None]:
    """Build tasks with the prompts of a family within the block.

    Args:
        arguments: Arguments of the harness's ``simple_evaluate``, whose model names the family.
    """
    model = arguments.get("model")
    if isinstance(model, str):
        options = HarnessOptions({"model_args": arguments.get("model_args") or ""})
        family = str(options.model_arguments().get(_ARGUMENT) or "")
    else:
        family = _family_of(model)
        model = getattr(model, "model_id", None)
    before = _FAMILY.set((family, str(model)))
    try:
        yield
    finally:
        _FAMILY.reset(before)


def choose_blocks(task: Any) -> None:
    """Give a task of the harness the blocks of the family, if its file has any for it.

    Raises:
        MedTasksError: The model that runs the family's checkpoint cannot read the family's prompt.
    """
    family, model = _FAMILY.get()
    if not family:
        return
    prompts = mapping_in(vars(task.config), SETTINGS, family)
    if prompts:
        task.lmms_eval_specific_kwargs = for_other_model(prompts, family, model)
    decoding = mapping_in(vars(task.config), _DECODING, family)
    if decoding:
        setattr(task, _DECODING, decoding)
        task.config.generation_kwargs.update(decoding)


def check_family(lm: Any, tasks: Collection[Any]) -> None:
    """Check that the tasks were built for the model's family, and that they or our ``prompts.yml`` know it.

    Raises:
        UnknownName: Nothing has blocks for the family.
        MedTasksError: The caller's ``simple_evaluate`` is older than our wrapper of it, so that the prompts are others.
    """
    family, _ = _FAMILY.get()
    if _family_of(lm) not in ("", family):
        raise MedTasksError(
            "prompt_family does nothing for a simple_evaluate that was imported before there was a task manager; make "
            "lmms_eval.tasks.TaskManager() first, import simple_evaluate after that, and hand the manager over"
        )
    if not family or family in prompt_families():
        return
    families = set(prompt_families())
    for task in tasks:
        config = vars(task.config)
        blocks = {**mapping_in(config, _DECODING), **mapping_in(config, SETTINGS)}
        families |= {name for name, block in blocks.items() if isinstance(block, Mapping)}
    if family not in families:
        raise unknown_name(_ARGUMENT, family, families)


def _family_of(lm: Any) -> str:
    """Return the family that the arguments of a built model name, empty if they name none."""
    return str(getattr(getattr(lm, "arguments", None), _ARGUMENT, None) or "")
