"""How the harness runs a task whose file leaves something open."""

from collections.abc import Mapping
from typing import Any


def is_cut_at_blank_lines(config: Mapping[str, Any], model: str) -> bool:
    """Return whether the harness ends this task's replies at the first blank line, because its file sets no ``until``.

    Args:
        config: What the task's files say.
        model: Name of the model, for settings that a task has for it alone.
    """
    if "class" in config or "generate_until" not in str(config.get("output_type", "generate_until")):
        return False
    if config.get("fewshot_delimiter", "\n\n") != "\n\n":
        return False
    by_model = _mapping(config.get("model_specific_generation_kwargs"))
    own = by_model.get(model) if model in by_model else by_model.get("default")
    return "until" not in {**_mapping(config.get("generation_kwargs")), **_mapping(own)}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
