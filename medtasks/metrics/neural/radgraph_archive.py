"""RadGraph's archives as published, packed or unpacked: configuration, weights and vocabularies."""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.text_encoders import explained, present
from medtasks.metrics.weight_files import WEIGHTS, packed_files, weights_path

if TYPE_CHECKING:
    import torch

ModelType = Literal["radgraph", "radgraph-xl"]

_CONFIG, _WEIGHTS, _VOCABULARY = "config.json", "weights.th", "vocabulary/"
_MEMBER = re.compile(rf"{_CONFIG}|{_WEIGHTS}|{_VOCABULARY}[^/]+\.txt")
_ENCODER_FILES = ("config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt", "special_tokens_map.json")
_ENCODER: Mapping[ModelType, str] = {"radgraph": "pubmedbert", "radgraph-xl": "cxr-bert"}
_HUB_NAMES = {
    **{WEIGHTS[name].hub.lower(): name for name in _ENCODER.values()},
    # The other name of the same repository on the Hub.
    "microsoft/biomednlp-biomedbert-base-uncased-abstract-fulltext": "pubmedbert",
}


class Contents(NamedTuple):
    """Content of an archive: tensors by name, and labels in the order of scores."""

    state: Mapping[str, "torch.Tensor"]
    entity_labels: tuple[str, ...]
    relation_labels: tuple[str, ...]


@dataclass(frozen=True)
class Archive:
    """One archive and the encoder it is used with."""

    path: Path  # the packed file, or the folder of the unpacked files
    model_type: ModelType
    encoder: Path  # folder with its configuration and vocabulary
    max_length: int  # wordpieces per segment of a long report, [CLS] and [SEP] included
    max_span_width: int  # words of the widest span
    spans_per_word: float  # number of spans per word that may have relations

    @property
    def files(self) -> list[Path]:
        """Everything an annotation depends on, in a fixed order."""
        inside = [self.path] if self.path.is_file() else [self.path / name for name, _ in self.members()]
        return inside + present(self.encoder, _ENCODER_FILES)

    def members(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the archive's files, opened, by their names in it."""
        return packed_files(self.path, _MEMBER)

    def read(self) -> Contents:
        """Read labels and weights into memory; raises WeightsMissing for a damaged archive or another model."""
        import torch

        with _reading(self.path, self.model_type):
            contents = {name: file.read() for name, file in self.members() if name != _CONFIG}
            weights = contents.pop(_WEIGHTS, None)
            state = weights and torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
            if not isinstance(state, Mapping):
                raise KeyError(f"tensors by name in {_WEIGHTS}")
            labels = {Path(name).stem: text.decode("utf-8").splitlines() for name, text in contents.items()}
            entities, relations = (labels.get(f"{self.model_type}__{kind}_labels") for kind in ("ner", "relation"))
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

    The encoder is ``pubmedbert`` or ``cxr-bert`` of the settings; else the folder next to the archive with the name in
    its configuration; else the fetched one, if that is its name on the Hub.

    ``settings.weights_for(model_type)`` is the packed archive, the folder of the unpacked one, or a folder with either
    under the model's name; None for the fetched one.
    """
    path = _archive_path(weights_path(model_type, settings.weights_for(model_type)), model_type)
    with _reading(path, model_type):
        content = next((file.read() for name, file in packed_files(path, _MEMBER) if name == _CONFIG), None)
        if content is None:
            raise KeyError(_CONFIG)
        config = json.loads(content)
        reader, model = config["dataset_reader"], config["model"]
        indexer, embedder = reader["token_indexers"]["bert"], model["embedder"]["token_embedders"]["bert"]
        if any(indexer[name] != embedder[name] for name in ("model_name", "max_length")):
            raise ValueError("encoder and tokenizer differ")
        if model["modules"].get("coref", {}).get("coref_prop", 0):
            raise ValueError("coreference changes its spans")
        name = str(indexer["model_name"])
        sizes = int(indexer["max_length"]), int(reader["max_span_width"])
        spans_per_word = float(model["modules"]["relation"]["spans_per_word"])
    chosen = settings.named_weights.get(_ENCODER[model_type])
    encoder = weights_path(_ENCODER[model_type], chosen) if chosen else _encoder_folder(path, name)
    return Archive(path, model_type, encoder, *sizes, spans_per_word)


def _archive_path(weights: Path, model_type: ModelType) -> Path:
    if weights.is_file():
        return weights
    for path in (weights, weights / model_type, weights / f"{model_type}.tar.gz"):
        if path.is_file() or (path / _CONFIG).is_file():
            return path
    raise WeightsMissing(
        f"{weights} holds neither {_CONFIG}, {_WEIGHTS} and {_VOCABULARY} nor {model_type}.tar.gz; fetch that with "
        f"'medtasks weights fetch {model_type}'"
    )


def _encoder_folder(archive: Path, name: str) -> Path:
    around = (archive, archive.parent) if archive.is_dir() else (archive.parent,)
    for folder in (folder / part for folder in around for part in (name, Path(name).name)):
        # An encoder may bear the name of the model, whose folder has a config.json as well.
        if folder != archive and (folder / _CONFIG).is_file():
            return folder
    if name.lower() in _HUB_NAMES:
        return weights_path(_HUB_NAMES[name.lower()])
    raise WeightsMissing(
        f"{archive} uses the encoder '{name}', which is not on this machine; put its {_CONFIG} and vocabulary into "
        f"{archive.parent / Path(name).name}"
    )


def _reading(path: Path, model_type: ModelType) -> AbstractContextManager[None]:
    return explained(
        lambda kind, reason: (
            f"{path} cannot be read as an archive of RadGraph ({kind}: {reason}); remove it and fetch "
            f"{model_type}.tar.gz with 'medtasks weights fetch {model_type}'"
        )
    )
