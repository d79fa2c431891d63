"""Loading of any vision-language checkpoint of transformers, and its processor.

``HfVlm.load`` calls it. A weight that a checkpoint lacks must never stay random.
"""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
from transformers.quantizers import AutoQuantizationConfig

from medtasks.errors import AdapterArgumentError, near_match, one_line

from ..base.arguments import AdapterArguments, ChatArguments, argument
from ..base.checkpoints import CheckpointError, refuse_missing

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
# What transformers raises for files that are missing, damaged, of another kind or not reachable.
_LOADING_ERRORS = (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    ImportError,
    RuntimeError,
)


@dataclass(frozen=True)
class HfVlmArguments(ChatArguments, AdapterArguments):
    """Arguments of ``hf_vlm``, see ``model_adapters/README.md``."""

    pretrained: str = argument("")  # folder or hub id of the checkpoint; required
    # ``auto``: as stored
    dtype: str = argument("auto", choices=("auto", "float32", "float16", "bfloat16"))
    device_map: str | None = argument(None)
    # as in transformers, for instance ``sdpa``; by default its choice
    attn_implementation: str | None = argument(None)
    chat_template: bool = argument(True)
    max_length: int | None = argument(None, least=1)
    revision: str | None = argument(None)  # revision on the hub
    # Whether code that comes with the checkpoint may run
    trust_remote_code: bool = argument(False)
    # JSON, settings of the image processor in place of the stored ones, for instance {"max_pixels":1003520}
    processor_kwargs: dict[str, Any] | None = argument(None)  # noqa: RUF009  # a field, not a shared value
    adapter: str | None = argument(None)  # folder or hub id of an adapter of PEFT
    # JSON, a configuration of transformers with its quant_method
    quantization_config: dict[str, Any] | None = argument(None)  # noqa: RUF009  # as above


def check_arguments(arguments: HfVlmArguments, processes: int) -> None:
    """Check conditions on several arguments, before anything is loaded.

    Args:
        arguments: Arguments of the model.
        processes: Number of processes that run.

    Raises:
        AdapterArgumentError: Arguments exclude each other, or one needs a package that is missing.
        CheckpointError: ``pretrained`` is neither a checkpoint's folder nor an id.
    """
    if not arguments.pretrained:
        raise AdapterArgumentError(
            "hf_vlm: argument 'pretrained' is missing; give a folder or a hub id."
        )
    if arguments.device_map and processes > 1:
        raise AdapterArgumentError(
            f"hf_vlm: device_map='{arguments.device_map}' spreads a model over one process, but {processes} run; "
            f"leave the argument out or start one process."
        )
    needs_template = arguments.system_prompt is not None or arguments.chat_template_kwargs
    if needs_template and not arguments.chat_template:
        raise AdapterArgumentError(
            "hf_vlm: system_prompt and chat_template_kwargs are for the chat template, which chat_template=false "
            "leaves out; give one or the other."
        )
    if arguments.adapter and importlib.util.find_spec("peft") is None:
        raise AdapterArgumentError(
            "hf_vlm: argument 'adapter' needs PEFT, which is not installed; pip install peft."
        )
    folder = Path(arguments.pretrained).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise CheckpointError(
                f"{folder} holds no config.json; give the folder that the checkpoint was saved to"
            )
    elif not _HUB_ID.fullmatch(arguments.pretrained):
        raise CheckpointError(
            f"{arguments.pretrained} is no folder; give pretrained=<folder or hub id>"
        )


def load_processor(arguments: HfVlmArguments) -> Any:
    """Load the processor, which pads on the left.

    Args:
        arguments: Checked by :func:`check_arguments`.

    Raises:
        CheckpointError: The model cannot be run here, or files are missing.
        AdapterArgumentError: The processor does not have a setting of ``processor_kwargs``.
    """
    _check_architecture(arguments)
    name = arguments.pretrained
    settings = arguments.processor_kwargs or {}
    hint = "put the tokenizer and processor files of the original checkpoint there"
    try:
        processor = AutoProcessor.from_pretrained(**_origin(arguments), **settings)
    except _LOADING_ERRORS as error:
        raise CheckpointError(
            f"{name} has no usable processor ({one_line(error)}); {hint}"
        ) from error
    for part in ("tokenizer", "image_processor"):
        if getattr(processor, part, None) is None:
            raise CheckpointError(f"{name} has a processor without {part}; {hint}")
    for setting in settings:
        _check_setting(setting, processor)
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        # Its value does not matter: the attention mask covers it.
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return processor


def _check_architecture(arguments: HfVlmArguments) -> None:
    """Check by its configuration that a checkpoint is of a model that can be run here.

    Raises:
        CheckpointError: The configuration cannot be read, or is of another kind of model.
    """
    name = arguments.pretrained
    try:
        config = AutoConfig.from_pretrained(**_origin(arguments))
    except _LOADING_ERRORS as error:
        raise CheckpointError(
            f"{name} has no usable config.json ({one_line(error)}); check folder or id"
        ) from error
    kind = config.model_type
    if config.is_encoder_decoder:
        raise CheckpointError(
            f"{name} is an encoder-decoder ({kind}); hf_vlm runs decoder-only models"
        )
    if (
        kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
        and not arguments.trust_remote_code
    ):
        raise CheckpointError(
            f"{name} is a {kind}; hf_vlm runs the image-text-to-text models of transformers"
        )


def _check_setting(setting: str, processor: Any) -> None:
    """Check that a part of the processor has a setting: transformers silently ignores others.

    Raises:
        AdapterArgumentError: No part has it.
    """
    images = processor.image_processor
    names = set(getattr(type(images), "valid_kwargs", type(images)).__annotations__)
    if setting in names or hasattr(images, setting) or hasattr(processor, setting):
        return
    hint = near_match(setting, names) or "."
    raise AdapterArgumentError(
        f"hf_vlm: processor_kwargs: {type(images).__name__} has no setting '{setting}'"
        f"{hint} Known: {', '.join(sorted(names))}."
    )


def load_model(arguments: HfVlmArguments, device: torch.device) -> Any:
    """Load the model, strictly: a weight that the checkpoint or the adapter lacks would be random.

    Args:
        arguments: Arguments of the model.
        device: Device of all weights, unless ``device_map`` is given.

    Raises:
        CheckpointError: Checkpoint or adapter cannot be loaded, or lack weights.
        AdapterArgumentError: ``quantization_config`` is not one of transformers.
    """
    options: dict[str, Any] = {}
    if arguments.attn_implementation:
        options["attn_implementation"] = arguments.attn_implementation
    settings = arguments.quantization_config
    if settings:
        try:
            quantization = AutoQuantizationConfig.from_dict(dict(settings))
        except _LOADING_ERRORS as error:
            raise AdapterArgumentError(
                f"hf_vlm: quantization_config is none of transformers' ({one_line(error)}); give for example "
                f'{{"quant_method":"bitsandbytes","load_in_4bit":true}}.'
            ) from error
        for setting in settings:
            if not hasattr(quantization, setting):
                raise AdapterArgumentError(
                    f"hf_vlm: quantization_config: {type(quantization).__name__} has no setting '{setting}'."
                )
        options["quantization_config"] = quantization
    try:
        model, report = AutoModelForImageTextToText.from_pretrained(
            dtype=arguments.dtype
            if arguments.dtype == "auto"
            else getattr(torch, arguments.dtype),
            device_map=arguments.device_map or {"": device},
            output_loading_info=True,
            **options,
            **_origin(arguments),
        )
    except _LOADING_ERRORS as error:
        raise CheckpointError(
            f"{arguments.pretrained} cannot be loaded as an image-text-to-text model: {one_line(error)}"
        ) from error
    refuse_missing(arguments.pretrained, report["missing_keys"])
    if arguments.adapter:
        _add_adapter(model, arguments.adapter)
    return model.eval().requires_grad_(False)


def _add_adapter(model: Any, name: str) -> None:
    """Put an adapter of PEFT, a folder or a hub id, on the model.

    Raises:
        CheckpointError: It cannot be loaded, is for another model, or lacks weights.
    """
    path = Path(name).expanduser()
    # Its layers are not merged: in half precision, most of a small change would be rounded away.
    try:
        report = model.load_adapter(str(path) if path.is_dir() else name)
    except _LOADING_ERRORS as error:
        raise CheckpointError(
            f"the adapter {name} cannot be put on the model: {one_line(error)}"
        ) from error
    if report.unexpected_keys:
        raise CheckpointError(
            f"the adapter {name} is for another model: nothing here takes its '{min(report.unexpected_keys)}'; give "
            f"the checkpoint that it was trained on as pretrained="
        )
    refuse_missing(name, report.missing_keys)


def _origin(arguments: HfVlmArguments) -> dict[str, Any]:
    """Return where transformers finds the files: folder or hub id, its revision if given, and trust in their code."""
    folder = Path(arguments.pretrained).expanduser()
    name = str(folder) if folder.is_dir() else arguments.pretrained
    revision = {"revision": arguments.revision} if arguments.revision else {}
    return {
        "pretrained_model_name_or_path": name,
        "trust_remote_code": arguments.trust_remote_code,
        **revision,
    }
