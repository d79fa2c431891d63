"""LLaVA-Med v1.0 is published as differences to LLaMA-7B v1 and has to be added to it."""

from collections.abc import Iterator
from pathlib import Path

import torch

from .checkpoint import CheckpointError, located_tensors

_TALLER = ("model.embed_tokens.weight", "lm_head.weight")
_DELTA_ONLY = "model.mm_projector."


def merged_tensors(delta: Path, base: Path) -> Iterator[tuple[Path, str, torch.Tensor]]:
    """Yield the merged tensors of v1.0 one by one.

    The word table and the output matrix have more rows in the delta (tokens were added); the base is added to the rows
    it has. The sum is computed in the delta's type, float16 as published, so that it is the published sum to the bit.

    Args:
        delta: Folder of the delta.
        base: Folder of LLaMA-7B v1 in the Hugging Face layout; its tensors are read when they are needed.

    Yields:
        File of the delta, key and tensor.

    Raises:
        CheckpointError: The two do not belong together; the message names file and key.
    """
    known = {key: (file, tensor) for file, key, tensor in located_tensors(base)}
    for file, key, tensor in located_tensors(delta):
        if key.endswith("rotary_emb.inv_freq"):
            continue
        if key.startswith(_DELTA_ONLY):
            yield file, key, tensor
        elif key in known:
            yield file, key, _added(file, key, tensor, *known[key])
        else:
            raise CheckpointError(
                f"{file}: key '{key}' has no counterpart in {base}; give base=<folder of LLaMA-7B v1>"
            )


def _added(file: Path, key: str, delta: torch.Tensor, base_file: Path, base: torch.Tensor) -> torch.Tensor:
    fits = delta.shape == base.shape
    taller = key in _TALLER and delta.shape[1:] == base.shape[1:] and delta.shape[0] > base.shape[0]
    if not fits and not taller:
        raise CheckpointError(
            f"{file}: key '{key}' has shape {tuple(delta.shape)}, but {tuple(base.shape)} in {base_file}; give "
            f"base=<folder of LLaMA-7B v1>"
        )
    merged = delta.clone()
    merged[: base.shape[0]] += base.to(delta.dtype)
    return merged
