"""Reading ``--model_args``: every adapter declares its arguments as a frozen dataclass, and all others are refused.

The harness hands over what it parsed from ``key=value,...`` (``true``/``false`` as bools, digits as int, other numbers
as float, the rest as text) together with its own options ``batch_size``, ``max_batch_size`` and ``device``. It does not
split at commas within braces, brackets and quotes, and leaves the quotes: so objects are given as JSON, and long texts
as JSON strings. ``@FILE`` names a file with either.
"""

import dataclasses
import json
import math
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
_TRUTHS = {"true": True, "false": False}
_AUTO = re.compile(r"auto(:\d+)?")
_AUTO_BATCH_SIZE = 64  # to begin with: a batch that does not fit into memory is halved


def argument(
    default: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] | None = None,
    prose: bool = False,
) -> Any:
    """Declare an argument as a dataclass field.

    Args:
        default: Value where the argument is not given.
        least: Smallest allowed number; ``None`` for any.
        most: Largest allowed number; ``None`` for any.
        choices: Allowed texts; ``None`` for any.
        prose: Whether it is text with commas and line breaks, which may be given as a JSON string, or as ``@FILE``.
    """
    return dataclasses.field(
        default=default,
        metadata={"least": least, "most": most, "choices": choices, "prose": prose},
    )


@dataclasses.dataclass(frozen=True)
class HarnessArguments:
    """Arguments of all our models, served ones included (``model_adapters/README.md`` explains them)."""

    batch_size: int = argument(1, least=1)
    max_batch_size: int | None = argument(None, least=1)
    device: str | None = argument(None)
    # length limit of a reply where the task sets none, in tokens
    max_new_tokens: int = argument(64, least=1)
    max_failed: float = argument(0.1, least=0, most=1)
    seed: int = argument(0, least=0, most=2**63 - 1)  # seed of everything random
    token_counts: bool = argument(False)
    loglikelihood_format: str = argument("pair", choices=("pair", "json"))
    # ``true``, ``false``, or the folder of the crash-safe journal
    journal: str = argument("true")


@dataclasses.dataclass(frozen=True)
class ChatArguments(HarnessArguments):
    """Arguments of models of many kinds, served or in this process, which have a chat template of their own."""

    system_prompt: str | None = argument(None, prose=True)  # empty is another prompt than none
    # whose prompts and decoding tasks use, see medtasks.lmms.prompt_family
    prompt_family: str | None = argument(None)
    # JSON, variables of the chat template, for instance {"enable_thinking":false}
    chat_template_kwargs: dict[str, Any] | None = argument(None)  # noqa: RUF009  # a field, not a shared value


@dataclasses.dataclass(frozen=True)
class AdapterArguments(HarnessArguments):
    """Arguments of every model in this process. A model module extends them and may change the defaults."""

    batch_tokens: int | None = argument(None, least=1)
    # whether the options of a question share one pass over image and prompt
    prefix_cache: bool = argument(True)
    prefix_cache_mb: int = argument(512, least=0)
    # size of the cache of vision features, in MiB; 0 for none
    feature_cache_mb: int = argument(512, least=0)


@dataclasses.dataclass(frozen=True)
class CheckpointArguments(AdapterArguments):
    """The arguments of every adapter, and those of one that reads a published checkpoint."""

    # type of the weights: ``bfloat16``, ``float16``, or ``float32`` for parity with the official code
    dtype: str = argument("bfloat16", choices=("bfloat16", "float16", "float32"))
    # ``auto`` spreads the language model over the GPUs of one process; by default one device holds all
    device_map: str | None = argument(None, choices=("auto",))


def parse_arguments(
    cls: type[Arguments], arguments: Mapping[str, object], model: str
) -> Arguments:
    """Convert arguments to the types that a dataclass declares.

    Args:
        cls: The adapter's dataclass of arguments.
        arguments: Values by name, as the harness parsed them. ``None`` counts as not given.
        model: Name of the model, for messages.

    Raises:
        AdapterArgumentError: A name is unknown, or a value does not fit its type or its bounds.
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
        if value is None:
            continue
        # The harness passes it on unread
        if name == "batch_size" and _AUTO.fullmatch(str(value)):
            value = _AUTO_BATCH_SIZE
        kind = declared[name]
        if isinstance(kind, types.UnionType):  # such as ``int | None``, whose first one counts
            kind = typing.get_args(kind)[0]
        kind = typing.get_origin(kind) or kind
        values[name] = _read_value(model, fields[name], kind, value)
    return cls(**values)


def _read_value(
    model: str,
    field: "dataclasses.Field[Any]",
    kind: type,
    value: object,
) -> object:
    """Convert a value to its declared type, and check its bounds.

    Args:
        model: Name of the model, for messages.
        field: Declaration of the argument.
        kind: Declared type, without ``None``.
        value: As the harness parsed it. In place of prose or an object, ``@FILE`` names a file that holds it.

    Raises:
        AdapterArgumentError: The value is of another type or out of bounds, or the file cannot be read.
    """
    is_prose = bool(field.metadata.get("prose"))
    is_json = kind is dict or (is_prose and str(value).startswith('"'))
    problem = AdapterArgumentError(
        f"{model}: argument '{field.name}' must be {_describe_values(field, kind)}, not '{value}'."
    )
    if str(value).startswith("@") and (is_prose or kind is dict):
        name = str(value)[1:]
        try:
            value = Path(name).expanduser().read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise AdapterArgumentError(
                f"{model}: argument '{field.name}' names the file {name}, which cannot be read ({error}); correct "
                f"its path, or write a text that begins with @ as a JSON string."
            ) from error
        is_json = kind is dict
    try:
        converted = _convert(kind, value, is_json)
    except (ValueError, OverflowError):
        raise problem from None
    if not isinstance(converted, kind) or not _is_possible(converted, field.metadata):
        raise problem
    return converted


def _is_possible(value: Any, metadata: Mapping[str, Any]) -> bool:
    """Return whether a value is among the choices and within the bounds of its argument. NaN is within none."""
    least = metadata.get("least")
    most = metadata.get("most")
    choices = metadata.get("choices")
    if choices is not None and value not in choices:
        return False
    return (least is None or value >= least) and (most is None or value <= most)


def _describe_values(field: "dataclasses.Field[Any]", kind: type) -> str:
    """Describe the values of an argument, for messages."""
    if choices := field.metadata.get("choices"):
        expected = " or ".join(choices)
    else:
        bounds = []
        for word in ("least", "most"):
            bound = field.metadata.get(word)
            if bound is not None:
                bounds.append(f"at {word} {bound}")
        expected = " of ".join(filter(None, [_KINDS[kind], " and ".join(bounds)]))
    if field.metadata.get("prose"):
        expected += ", as it is or as a JSON string"
    return expected


def _convert(kind: type, value: Any, is_json: bool) -> Any:
    """Convert a value of the harness to ``kind``, or return another type where it does not fit.

    Raises:
        ValueError: The text is no JSON, or no number.
    """
    if is_json and isinstance(value, str):
        value = json.loads(value)
    if kind is dict:
        return value
    if kind is bool:
        return _TRUTHS.get(str(value).lower())
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # the harness reads "1e2" as 100.0
    return kind(str(value))


def choose_device(
    requested: str | None,
    assigned: torch.device,
    processes: int,
    model: str,
) -> torch.device:
    """Return the device that a model runs on.

    Args:
        requested: The argument ``device``: cpu, cuda or cuda:N. ``None`` for the assigned one.
        assigned: Device that accelerate gave to this process.
        processes: Number of processes. Several get the assigned device, because they must not share a GPU.
        model: Name of the model, for messages.

    Raises:
        AdapterArgumentError: The device is not present, or does not fit the processes.
    """
    if requested is None:
        return assigned
    try:
        device = torch.device(requested)
    except RuntimeError:
        device = torch.device("meta")
    gpus = torch.cuda.device_count()
    usable = {"cpu": math.inf, "cuda": gpus}.get(device.type, 0)
    if (device.index or 0) >= usable:
        raise AdapterArgumentError(
            f"{model}: device '{requested}' is not present; give cpu, cuda or cuda:N, this machine has {gpus} usable "
            f"GPU(s)."
        )
    if processes == 1:
        return device
    if device.type != assigned.type:
        hint = ", or set ACCELERATE_USE_CPU=true" if device.type == "cpu" else ""
        raise AdapterArgumentError(
            f"{model}: device='{requested}' does not fit {processes} processes that talk over {assigned.type}; "
            f"leave the argument out{hint}."
        )
    return assigned
