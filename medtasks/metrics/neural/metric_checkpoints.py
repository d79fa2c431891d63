"""CheXbert's checkpoint and RadGraph's archives as published, packed or unpacked, and the files of their encoders.

Weights are read without running anything they contain.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from medtasks.data.named_files import read_stream
from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import (
    WEIGHTS,
    ModelSettings,
    complete_in,
    packed_files,
    weights_path,
)
from medtasks.metrics.neural.text_encoders import check_weights, present, weights_errors
from medtasks.version import check_unpickling

if TYPE_CHECKING:
    import torch

CHEXBERT = "chexbert"
CHEXBERT_ENCODER = "bert-base-uncased"
_CONFIG = "config.json"
_VOCABULARY = "vocab.txt"
_ENCODER_FILES = (
    _CONFIG,
    "tokenizer_config.json",
    "tokenizer.json",
    _VOCABULARY,
    "special_tokens_map.json",
)
ModelType = Literal["radgraph", "radgraph-xl"]
_WEIGHTS = "weights.th"
_LABELS = "vocabulary/"
_MEMBER = re.compile(rf"{_CONFIG}|{_WEIGHTS}|{_LABELS}[^/]+\.txt")
_ENCODER: Mapping[ModelType, str] = {"radgraph": "pubmedbert", "radgraph-xl": "cxr-bert"}
_HUB_NAMES = {
    **{WEIGHTS[name].hub.lower(): name for name in _ENCODER.values()},
    # The other name of the same repository on the Hub.
    "microsoft/biomednlp-biomedbert-base-uncased-abstract-fulltext": "pubmedbert",
}


@dataclass(frozen=True)
class ChexbertFiles:
    """CheXbert's checkpoint, and the folder with configuration and vocabulary of its encoder."""

    weights: Path
    encoder: Path


def find_chexbert(settings: ModelSettings) -> ChexbertFiles:
    """Find CheXbert's files.

    ``settings.named_weights`` may have a file or folder for ``chexbert`` and a folder for ``bert-base-uncased``, which
    may also be next to the former or in it. The defaults are the fetched files.

    Raises:
        WeightsMissing: A file is not on this machine.
    """
    chosen = settings.find_weights(CHEXBERT)
    info = WEIGHTS[CHEXBERT]
    weights = complete_in(info, chosen) if chosen.is_dir() else chosen
    if weights is None:
        raise WeightsMissing(
            f"{chosen} does not hold {info.files[0]}; give the file itself, or fetch it with 'medtasks weights fetch "
            f"{CHEXBERT}'"
        )
    neighbour = None
    if CHEXBERT in settings.named_weights:
        near = [folder / CHEXBERT_ENCODER for folder in (weights.parent, weights.parent.parent)]
        neighbour = next(filter(Path.is_dir, near), None)
    encoder = weights_path(
        CHEXBERT_ENCODER, settings.named_weights.get(CHEXBERT_ENCODER) or neighbour
    )
    for name in (_CONFIG, _VOCABULARY):
        if not (encoder / name).is_file():
            raise WeightsMissing(
                f"{encoder / name} is missing; fetch it with 'medtasks weights fetch {CHEXBERT_ENCODER}', or give a "
                f"folder that holds {_CONFIG} and {_VOCABULARY}"
            )
    return ChexbertFiles(weights, encoder)


class Contents(NamedTuple):
    """Content of an archive: tensors by name, and labels in the order of scores."""

    state: "Mapping[str, torch.Tensor]"
    entity_labels: tuple[str, ...]
    relation_labels: tuple[str, ...]


@dataclass(frozen=True)
class Archive:
    """One archive of RadGraph and the encoder it is used with."""

    path: Path  # the packed file, or the folder of the unpacked files
    model_type: ModelType
    encoder: Path  # folder with its configuration and vocabulary
    max_length: int  # wordpieces per segment of a long report, [CLS] and [SEP] included
    max_span_width: int  # words of the widest span
    spans_per_word: float  # number of spans per word that may have relations

    @property
    def files(self) -> list[Path]:
        """Everything an annotation depends on, in a fixed order."""
        inside = [self.path]
        if not self.path.is_file():
            inside = [self.path / name for name, _ in self.members()]
        return inside + present(self.encoder, _ENCODER_FILES)

    def members(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the archive's files, opened, by their names in it."""
        return packed_files(self.path, _MEMBER)

    def read(self) -> Contents:
        """Read labels and weights into memory.

        Raises:
            WeightsMissing: The archive is damaged, or of another model.
        """
        import torch

        check_unpickling(self.path)
        with _archive_errors(self.path, self.model_type):
            contents = {
                name: read_stream(file) for name, file in self.members() if name != _CONFIG
            }
            weights = contents.pop(_WEIGHTS, None)
            state = None
            if weights:
                state = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
            if not isinstance(state, Mapping):
                # It becomes "no tensors by name in ...".
                raise KeyError(f"tensors by name in {_WEIGHTS}")
            check_weights(state)
            labels = {
                Path(name).stem: text.decode("utf-8").splitlines()
                for name, text in contents.items()
            }
            entities = labels.get(f"{self.model_type}__ner_labels")
            relations = labels.get(f"{self.model_type}__relation_labels")
            if entities and entities[0]:
                raise ValueError("its first entity label is not the empty one, for no entity")
        if entities is None or relations is None:
            raise WeightsMissing(
                f"{self.path} does not hold the model '{self.model_type}': its vocabularies are "
                f"{', '.join(sorted(labels)) or 'missing'}"
            )
        return Contents(state, tuple(entities[1:]), tuple(relations))


def open_archive(model_type: ModelType, settings: ModelSettings) -> Archive:
    """Find an archive and its encoder on this machine, and read the archive's configuration.

    ``settings.named_weights`` may have the packed archive, the folder of the unpacked one, or a folder with either
    under the model's name; by default the fetched one. The encoder is ``pubmedbert`` or ``cxr-bert`` of the settings;
    else the folder next to the archive with the name in its configuration; else the fetched one of that name.

    Raises:
        WeightsMissing: The archive or its encoder is not on this machine, or the archive is damaged.
    """
    path = _archive_path(model_type, settings.find_weights(model_type))
    with _archive_errors(path, model_type):
        content = None
        for name, file in packed_files(path, _MEMBER):
            if name == _CONFIG:
                content = read_stream(file)
                break
        if content is None:
            raise KeyError(_CONFIG)
        config = json.loads(content)
        reader = config["dataset_reader"]
        model = config["model"]
        indexer = reader["token_indexers"]["bert"]
        embedder = model["embedder"]["token_embedders"]["bert"]
        if any(indexer[name] != embedder[name] for name in ("model_name", "max_length")):
            raise ValueError("encoder and tokenizer differ")
        if model["modules"].get("coref", {}).get("coref_prop", 0):
            raise ValueError("coreference changes its spans")
        encoder = str(indexer["model_name"])
        max_length = int(indexer["max_length"])
        max_span_width = int(reader["max_span_width"])
        spans_per_word = float(model["modules"]["relation"]["spans_per_word"])
    folder = _encoder_folder(path, model_type, encoder, settings)
    return Archive(path, model_type, folder, max_length, max_span_width, spans_per_word)


def _archive_path(model_type: ModelType, weights: Path) -> Path:
    """Return the archive of a model, packed or not, which is the weights themselves or in their folder.

    Raises:
        WeightsMissing: There is none.
    """
    for path in (weights, weights / model_type, weights / f"{model_type}.tar.gz"):
        if path.is_file() or (path / _CONFIG).is_file():
            return path
    raise WeightsMissing(
        f"{weights} holds neither {_CONFIG}, {_WEIGHTS} and {_LABELS} nor {model_type}.tar.gz; fetch that with "
        f"'medtasks weights fetch {model_type}'"
    )


def _encoder_folder(
    path: Path,
    model_type: ModelType,
    name: str,
    settings: ModelSettings,
) -> Path:
    """Return the folder of an archive's encoder, see :func:`open_archive`.

    Args:
        path: The packed archive, or the folder of its files.
        model_type: RadGraph of 2021, or RadGraph-XL.
        name: Name of the encoder in the archive's configuration.
        settings: May name the folder.

    Raises:
        WeightsMissing: The encoder is not on this machine.
    """
    if _ENCODER[model_type] in settings.named_weights:
        return settings.find_weights(_ENCODER[model_type])
    around = (path, path.parent) if path.is_dir() else (path.parent,)
    for folder in around:
        for part in (name, Path(name).name):
            # The encoder may have the same name as the model, whose own folder also has a config.json.
            if folder / part != path and (folder / part / _CONFIG).is_file():
                return folder / part
    if name.lower() in _HUB_NAMES:
        return weights_path(_HUB_NAMES[name.lower()])
    raise WeightsMissing(
        f"{path} uses the encoder '{name}', which is not on this machine; put its {_CONFIG} and vocabulary into "
        f"{path.parent / Path(name).name}"
    )


def _archive_errors(
    path: Path,
    model_type: ModelType,
) -> AbstractContextManager[None]:
    """Raise WeightsMissing for any error of reading an archive."""
    return weights_errors(
        lambda kind, reason: (
            f"{path} cannot be read as an archive of RadGraph ({kind}: {reason}); remove it and fetch "
            f"{model_type}.tar.gz with 'medtasks weights fetch {model_type}'"
        )
    )
