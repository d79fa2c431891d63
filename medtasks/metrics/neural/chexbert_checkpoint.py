"""CheXbert's checkpoint as published, or a conversion of it, and the files of its encoder."""

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medtasks.errors import WeightsMissing
from medtasks.metrics.chest_findings import CONDITIONS
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.text_encoders import explained, present, weights_digest
from medtasks.metrics.weight_files import CONVERTED, complete_in, weights_info, weights_path, write_safetensors

if TYPE_CHECKING:
    import torch

CHEXBERT, ENCODER = "chexbert", "bert-base-uncased"
_CONFIG, _VOCABULARY = "config.json", "vocab.txt"
# Keys of this checkpoint, and of no other with the same encoder.
_DISTINCTIVE = ("bert.embeddings.word_embeddings.weight", f"linear_heads.{len(CONDITIONS) - 1}.weight")
_AGAIN = "remove it and run 'medtasks weights fetch chexbert'"


@dataclass(frozen=True)
class ChexbertFiles:
    """CheXbert's files: the checkpoint or its conversion, and the folder with configuration and vocabulary."""

    weights: Path
    encoder: Path

    @property
    def fingerprint(self) -> str:
        """A digest of the bytes of weights, configuration and vocabulary."""
        files = present(self.encoder, (_CONFIG, _VOCABULARY, "tokenizer.json", "tokenizer_config.json"))
        return weights_digest([self.weights, *files])


def find_files(settings: ModelSettings) -> ChexbertFiles:
    """Find CheXbert's files.

    ``settings.named_weights`` may have a file or folder for ``chexbert`` and a folder for ``bert-base-uncased``,
    ``weights`` a file or folder for both: a folder ``bert-base-uncased`` in it or next to it has configuration and
    vocabulary. The defaults are the fetched files.
    """
    configured = settings.weights_for(CHEXBERT)
    chosen, info = weights_path(CHEXBERT, configured), weights_info(CHEXBERT)
    weights = complete_in(info, chosen) if chosen.is_dir() else chosen
    if weights is None:
        raise WeightsMissing(
            f"{chosen} holds neither {info.files[0]} nor {CHEXBERT}{CONVERTED}; give the file itself, or fetch it with "
            f"'medtasks weights fetch {CHEXBERT}'"
        )
    near = [folder / ENCODER for folder in (weights.parent, weights.parent.parent)] if configured else []
    neighbour = next((folder for folder in near if folder.is_dir()), None)
    encoder = weights_path(ENCODER, settings.named_weights.get(ENCODER) or neighbour)
    for name in (_CONFIG, _VOCABULARY):
        if not (encoder / name).is_file():
            raise WeightsMissing(
                f"{encoder / name} is missing; fetch it with 'medtasks weights fetch {ENCODER}', or give a folder "
                f"that holds {_CONFIG} and {_VOCABULARY}"
            )
    return ChexbertFiles(weights, encoder)


def read_state(path: Path) -> "Mapping[str, torch.Tensor]":
    """Read the network's tensors from a checkpoint or its conversion, by name without the prefix ``module.``.

    Nothing but tensors and plain values is unpickled. A file in torch's zip format is mapped into memory; the old
    format takes 1.3 GB for a moment.
    """
    import torch
    from safetensors.torch import load_file

    if not path.is_file():
        raise WeightsMissing(f"{path} does not exist; fetch it with 'medtasks weights fetch {CHEXBERT}'")
    if path.suffix == CONVERTED:
        fix = f"remove it and run 'medtasks weights convert {CHEXBERT}'"
        with explained(lambda kind, _: f"{path} is damaged or no safetensors file ({kind}); {fix}"):
            state: Any = load_file(path)
    else:
        damaged = f"{path} is damaged, incomplete or no plain torch checkpoint"
        with explained(lambda kind, _: f"{damaged} ({kind}); {_AGAIN}"):
            stored = torch.load(path, map_location="cpu", mmap=zipfile.is_zipfile(path), weights_only=True)
        state = stored.get("model_state_dict") if isinstance(stored, dict) else None
        if not isinstance(state, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in state.values()):
            raise WeightsMissing(
                f"{path} is no checkpoint of CheXbert: it has no 'model_state_dict' of tensors; {_AGAIN}"
            )
    named = {str(key).removeprefix("module."): tensor for key, tensor in state.items()}
    lacking = [key for key in _DISTINCTIVE if key not in named]
    if lacking:
        raise WeightsMissing(f"{path} is no checkpoint of CheXbert: it has no '{lacking[0]}'; {_AGAIN}")
    return named


def convert(checkpoint: Path, target: Path | None = None) -> Path:
    """Write the network of the published checkpoint as safetensors: a third of the size, read at once.

    The file, replaced if it exists, is ``target``, or ``chexbert.safetensors`` next to the checkpoint, which metrics
    then prefer. Raises WeightsMissing for a checkpoint that is missing, damaged, or not CheXbert's, and the errors of
    :func:`~medtasks.metrics.weight_files.write_safetensors`.
    """
    target = target or checkpoint.with_suffix(CONVERTED)
    return write_safetensors(lambda: read_state(checkpoint), target, like=checkpoint)
