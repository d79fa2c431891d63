"""Reading ``--model_args``: every adapter declares its arguments as a frozen dataclass; all others are refused.

The harness hands over what it parsed from ``key=value,...`` (``true``/``false`` as bools, digits as int, other numbers
as float, the rest as text) together with its own options ``batch_size``, ``max_batch_size`` and ``device``. It does not
split at commas within braces, brackets and quotes, and leaves the quotes: so objects are given as JSON, and long texts
as JSON strings. ``@FILE`` names a file with either.
"""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from medtasks.errors import AdapterArgumentError, near_match

Arguments = TypeVar("Arguments", bound="HarnessArguments")
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    dict: "an object in JSON",
}


def argument(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] | None = None,
    prose: bool = False,
) -> Any:
    """Declare a dataclass field with inclusive bounds, or with the texts that are allowed; ``None`` for any.

    ``prose`` is text with commas and line breaks in it: it may be given as a JSON string, or as ``@FILE``.
    """
    metadata = {"least": least, "most": most, "choices": choices, "prose": prose}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class HarnessArguments:
    """Arguments of all our models, served ones included; see ``model_adapters/README.md``."""

    batch_size: int = argument(1, least=1)
    max_batch_size: int | None = argument(None, least=1)
    device: str | None = argument(None)
    max_new_tokens: int = argument(
        64, least=1
    )  # length limit of a reply where the task sets none, in tokens
    max_failed: float = argument(0.1, least=0, most=1)
    seed: int = argument(0, least=0, most=2**63 - 1)  # seed of everything random
    token_counts: bool = argument(False)
    loglikelihood_format: str = argument("pair", choices=("pair", "json"))
    journal: str = argument("true")  # ``true``, ``false``, or the folder of the crash-safe journal


@dataclasses.dataclass(frozen=True)
class AdapterArguments(HarnessArguments):
    """Arguments of every model in this process; a model module extends them and may change the defaults."""

    batch_tokens: int | None = argument(None, least=1)
    prefix_cache: bool = argument(
        True
    )  # whether the options of a question share one pass over image and prompt
    prefix_cache_mb: int = argument(512, least=0)
    feature_cache_mb: int = argument(
        512, least=0
    )  # size of the cache of vision features, in MiB; 0 for none


@dataclasses.dataclass(frozen=True)
class CheckpointArguments(AdapterArguments):
    """The arguments of every adapter, and those of one that reads a published checkpoint."""

    # type of the weights: ``bfloat16``, ``float16``, or ``float32`` for parity with the official code
    dtype: str = argument("bfloat16", choices=("bfloat16", "float16", "float32"))
    # ``auto`` spreads the language model over the GPUs of one process; by default one device holds all
    device_map: str | None = argument(None, choices=("auto",))


def parse_arguments(cls: type[Arguments], arguments: Mapping[str, object], model: str) -> Arguments:
    """Return an instance of ``cls`` with every value converted to its declared type; ``None`` counts as not given.

    An unknown name, or a value that does not fit its type or its bounds, is an ``AdapterArgumentError``.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    declared = typing.get_type_hints(cls)
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        if name not in fields:
            hint = near_match(name, fields) or "."
            raise AdapterArgumentError(
                f"{model} has no argument '{name}'{hint} Known: {', '.join(sorted(fields))}."
            )
        if name == "batch_size" and re.fullmatch(
            r"auto(:\d+)?", str(value)
        ):  # the harness passes it on unread
            value = 64  # to begin with: a batch that does not fit into memory is halved
        if value is not None:
            is_union = isinstance(declared[name], types.UnionType)
            kind = (
                typing.get_args(declared[name])[0] if is_union else declared[name]
            )  # ``int`` of ``int | None``
            values[name] = _checked(model, fields[name], typing.get_origin(kind) or kind, value)
    return cls(**values)


def _checked(model: str, field: "dataclasses.Field[Any]", kind: type, value: object) -> object:
    least, most = field.metadata.get("least"), field.metadata.get("most")
    bounds = [f"at least {least}"] * (least is not None) + [f"at most {most}"] * (most is not None)
    choices = field.metadata.get("choices")
    prose = bool(field.metadata.get("prose"))
    expected = " or ".join(
        choices or [f"{_KINDS[kind]}{' of ' * bool(bounds)}{' and '.join(bounds)}"]
    )
    expected += ", as it is or as a JSON string" * prose
    problem = AdapterArgumentError(
        f"{model}: argument '{field.name}' must be {expected}, not '{value}'."
    )
    if isinstance(value, str) and value.startswith("@") and (prose or kind is dict):
        try:
            value, prose = Path(value[1:]).expanduser().read_text(encoding="utf-8"), False
        except (OSError, ValueError) as error:
            raise AdapterArgumentError(
                f"{model}: argument '{field.name}' names the file {value[1:]}, which cannot be read ({error}); correct "
                f"its path, or write a text that begins with @ as a JSON string."
            ) from error
    try:
        if prose and isinstance(value, str) and value.startswith('"'):
            value = json.loads(value)
        converted: Any
        if kind is dict:
            converted = json.loads(value) if isinstance(value, str) else value
        elif kind is bool:
            converted = {"true": True, "false": False}.get(str(value).lower())
        elif kind is float:
            converted = float(str(value))
        elif kind is int:  # a float must be whole: the harness reads "1e2" as 100.0
            converted = (
                int(float(value))
                if isinstance(value, float) and value.is_integer()
                else int(str(value))
            )
        else:
            converted = str(value)
    except (ValueError, OverflowError):
        raise problem from None
    # The comparisons are written so that a NaN fails them.
    if (least is not None and not converted >= least) or (
        most is not None and not converted <= most
    ):
        raise problem
    if not isinstance(converted, kind) or (choices is not None and converted not in choices):
        raise problem
    return converted


def choose_device(
    requested: str | None, assigned: torch.device, processes: int, model: str
) -> torch.device:
    """Return the requested device; with several processes the assigned one, because they must not share a GPU."""
    if requested is None:
        return assigned
    try:
        device = torch.device(requested)
    except RuntimeError:
        device = torch.device("meta")
    gpus = torch.cuda.device_count()
    if device.type not in ("cpu", "cuda") or (
        device.type == "cuda" and (device.index or 0) >= gpus
    ):
        raise AdapterArgumentError(
            f"{model}: device '{requested}' is not present; give cpu, cuda or cuda:N, this machine has {gpus} usable "
            f"GPU(s)."
        )
    if processes == 1:
        return device
    if device.type != assigned.type:
        raise AdapterArgumentError(
            f"{model}: device='{requested}' does not fit {processes} processes that talk over {assigned.type}; "
            f"leave the argument out{', or set ACCELERATE_USE_CPU=true' * (device.type == 'cpu')}."
        )
    return assigned
