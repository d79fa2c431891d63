"""Loading a transformers image-text-to-text checkpoint, with one sentence for everything that can be wrong with it.

Files that are missing, incomplete or of another kind are a :class:`CheckpointError`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoProcessor
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from medtasks.errors import AdapterArgumentError

from ..base.arguments import AdapterArguments, argument
from ..checkpoints.reading import CheckpointError, refuse_missing

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_DTYPES = ("auto", "float32", "float16", "bfloat16")
# What transformers raises for files that are missing, damaged, of another kind or not reachable.
_LOADING_ERRORS = (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RuntimeError)


@dataclass(frozen=True)
class HfVlmArguments(AdapterArguments):
    """Arguments of ``hf_vlm``."""

    pretrained: str = argument("")  # folder or hub id of the checkpoint; it has to be given
    dtype: str = argument("auto")  # ``auto`` (as stored), ``float32``, ``float16`` or ``bfloat16``
    # as in transformers, for instance ``auto``: spreads one model over the GPUs of one process
    device_map: str | None = argument(None)
    attn_implementation: str | None = argument(None)  # as in transformers, for instance ``sdpa``; by default its choice
    # whether a prompt becomes a user turn of the checkpoint's chat template, followed by the generation prompt; if not,
    # the text is sent as it is, after its images
    chat_template: bool = argument(True)
    # longest prompt in tokens, images and continuation included; a longer one fails, none is cut
    max_length: int | None = argument(None, least=1)
    revision: str | None = argument(None)  # revision on the hub
    trust_remote_code: bool = argument(False)  # whether code that comes with the checkpoint may run


def check_arguments(arguments: HfVlmArguments, processes: int) -> None:
    """Check what the types of the arguments cannot say."""
    if not arguments.pretrained:
        raise AdapterArgumentError("hf_vlm: argument 'pretrained' is missing; give a folder or a hub id.")
    if arguments.dtype not in _DTYPES:
        raise AdapterArgumentError(
            f"hf_vlm: argument 'dtype' must be one of {', '.join(_DTYPES)}, not '{arguments.dtype}'."
        )
    if arguments.device_map and processes > 1:
        raise AdapterArgumentError(
            f"hf_vlm: device_map='{arguments.device_map}' spreads a model over one process, but {processes} run; "
            f"leave the argument out or start one process."
        )
    folder = Path(arguments.pretrained).expanduser()
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no config.json; give the folder that the checkpoint was saved to")
    if not folder.is_dir() and not _HUB_ID.fullmatch(arguments.pretrained):
        raise CheckpointError(f"{arguments.pretrained} is no folder; give pretrained=<folder or hub id>")


def load_config(arguments: HfVlmArguments) -> Any:
    """Load the configuration and check that it is of a kind that this adapter can run."""
    name = arguments.pretrained
    try:
        config = AutoConfig.from_pretrained(_source(arguments), **_origin(arguments))
    except _LOADING_ERRORS as error:
        raise CheckpointError(f"{name} has no usable config.json ({_brief(error)}); check folder or id") from error
    kind = config.model_type
    if config.is_encoder_decoder:
        raise CheckpointError(f"{name} is an encoder-decoder ({kind}); hf_vlm runs decoder-only models")
    if kind not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES and not arguments.trust_remote_code:
        raise CheckpointError(f"{name} is a {kind}; hf_vlm runs the image-text-to-text models of transformers")
    return config


def load_processor(arguments: HfVlmArguments) -> Any:
    """Load the processor, with its tokenizer padding on the left and knowing a padding token."""
    hint = "put the tokenizer and processor files of the original checkpoint there"
    try:
        processor = AutoProcessor.from_pretrained(_source(arguments), **_origin(arguments))
    except _LOADING_ERRORS as error:
        raise CheckpointError(f"{arguments.pretrained} has no usable processor ({_brief(error)}); {hint}") from error
    for part in ("tokenizer", "image_processor"):
        if getattr(processor, part, None) is None:
            raise CheckpointError(f"{arguments.pretrained} has a processor without {part}; {hint}")
    tokenizer = processor.tokenizer
    tokenizer.padding_side = "left"
    if tokenizer.pad_token_id is None:
        # Never looked at: the attention mask covers it.
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return processor


def load_model(arguments: HfVlmArguments, device: torch.device) -> Any:
    """Load the model, strictly: a weight that the checkpoint lacks would be random."""
    given = {"attn_implementation": arguments.attn_implementation} if arguments.attn_implementation else {}
    try:
        model, report = AutoModelForImageTextToText.from_pretrained(
            _source(arguments),
            dtype=arguments.dtype if arguments.dtype == "auto" else getattr(torch, arguments.dtype),
            device_map=arguments.device_map or {"": device},
            output_loading_info=True,
            **given,
            **_origin(arguments),
        )
    except _LOADING_ERRORS as error:
        raise CheckpointError(
            f"{arguments.pretrained} cannot be loaded as an image-text-to-text model: {_brief(error)}"
        ) from error
    refuse_missing(arguments.pretrained, report["missing_keys"])
    return model.eval().requires_grad_(False)


def _source(arguments: HfVlmArguments) -> str:
    folder = Path(arguments.pretrained).expanduser()
    return str(folder) if folder.is_dir() else arguments.pretrained


def _origin(arguments: HfVlmArguments) -> dict[str, Any]:
    revision = {"revision": arguments.revision} if arguments.revision else {}
    return {"trust_remote_code": arguments.trust_remote_code, **revision}


def _brief(error: Exception) -> str:
    """Return the beginning of a message; those of transformers can fill a page."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
