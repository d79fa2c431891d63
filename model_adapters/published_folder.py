"""From a folder or a hub id in ``--model_args`` to a folder on this machine."""

import re
from collections.abc import Sequence
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError

from .checkpoint import CheckpointError

_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
TEXT_FILES = ("*.json", "*.model")
_WEIGHTS = ("*.safetensors", "*.bin")
"""In the order of preference; copies for other frameworks are never fetched."""


def published_folder(name: str, argument: str, *, weights: bool = True) -> Path:
    """Return the local folder that ``name`` stands for; asks the hub (or its cache) where no such folder exists.

    Args:
        name: Path of a folder, or ``owner/name`` on the Hugging Face hub.
        argument: Model argument the name comes from, for messages.
        weights: Whether weights are needed, or configuration and tokenizer files alone.

    Raises:
        CheckpointError: There is no such folder and the hub does not deliver it.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not _HUB_ID.fullmatch(name):
        raise CheckpointError(f"{name} is no folder; give {argument}=<folder of the downloaded files> or a hub id")
    if not weights:
        return _snapshot(name, argument, TEXT_FILES)
    for pattern in _WEIGHTS:
        found = _snapshot(name, argument, (*TEXT_FILES, pattern))
        if any(found.glob(pattern)):
            return found
    raise CheckpointError(f"{name} on the hub holds no weights; give {argument}=<folder of the downloaded files>")


def _snapshot(name: str, argument: str, patterns: Sequence[str]) -> Path:
    try:
        return Path(snapshot_download(name, allow_patterns=list(patterns)))
    except (OSError, HFValidationError) as error:
        raise CheckpointError(
            f"{name} is neither a folder nor could the hub deliver it ({type(error).__name__}); download it and give "
            f"{argument}=<folder>"
        ) from error
