"""RadGraph on texts, and RadGraph F1 of pairs of reports; its archives as published, packed or unpacked.

Nothing is unpacked to disk, and weights are read without running anything they contain. Sizes, labels and their order
come from the files.

An annotation is what the ``radgraph`` package, version 0.1.18, returns: ``text``, the report's words joined with
spaces; ``data_source``, None; ``data_split``, ``"inference"``; and ``entities`` by number from ``"1"`` on, ordered by
place. An entity has ``tokens``, its words joined with spaces; a ``label`` such as ``OBS-DP`` or ``Anatomy::definitely
present``; ``start_ix`` and ``end_ix``, its first and last word; and the ``relations`` that start at it, each
``[label, number of the other entity]``.
"""

import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import regex  # type: ignore[import-untyped]  # it has no types

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural.text_encoders import explained, present, weights_digest
from medtasks.metrics.report_metrics import ReportMetric, ReportScores, check_lengths, mean_scores
from medtasks.metrics.set_overlap import overlap_f1
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
    """What is in an archive: tensors by name, and labels in the order of scores."""

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
    spans_per_word: float  # share of spans between which relations are looked for, per word

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
            held = {name: file.read() for name, file in self.members() if name != _CONFIG}
            weights = held.pop(_WEIGHTS, None)
            state = weights and torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
            if not isinstance(state, Mapping):
                raise KeyError(f"tensors by name in {_WEIGHTS}")
            labels = {Path(name).stem: text.decode("utf-8").splitlines() for name, text in held.items()}
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

    The encoder is the one that the settings name ``pubmedbert`` or ``cxr-bert``; else the one beside the archive, under
    the name that the archive gives it; else the fetched one, if the archive gives the name that it has on the Hub.

    ``settings.weights_for(model_type)`` is the packed archive, the folder of the unpacked one, or a folder with either
    under the model's name; None: what ``medtasks weights fetch`` brought.
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
    own = settings.named_weights.get(_ENCODER[model_type])
    encoder = weights_path(_ENCODER[model_type], own) if own else _encoder_folder(path, name)
    return Archive(path, model_type, encoder, *sizes, spans_per_word)


def _archive_path(given: Path, model_type: ModelType) -> Path:
    if given.is_file():
        return given
    for path in (given, given / model_type, given / f"{model_type}.tar.gz"):
        if path.is_file() or (path / _CONFIG).is_file():
            return path
    raise WeightsMissing(
        f"{given} holds neither {_CONFIG}, {_WEIGHTS} and {_VOCABULARY} nor {model_type}.tar.gz; fetch that with "
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


_VERSION = 1  # of the code that makes annotations; a change that can change one must change it

_SEPARATORS = re.compile(r"([/,:.!?()])")
# NLTK's wordpunct_tokenize, which matches with this engine from 3.10 on. Before, with Python's own, the ² of cm² and
# the ½ of 2½ were one word with what they follow, and combining accents words of their own.
_RUNS = regex.compile(r"\w+|[^\w\s]+")
# The package looks for these as written, backslash and letters, such as a careless export leaves them in a text.
_WRITTEN_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_PARTED_RUNS = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))

Annotation = dict[str, Any]


def split_v1(text: str) -> list[str]:
    """Split at white space and around each of ``/ , : . ! ? ( )``.

    Source of this and the next: ``preprocess_reports`` of the ``radgraph`` package, version 0.1.18. Both give words
    without white space in them, so the words joined with spaces stand for the report.

    Example:
        >>> split_v1("T-tube (3.5cm):  low.")
        ['T-tube', '(', '3', '.', '5cm', ')', ':', 'low', '.']
    """
    return _SEPARATORS.sub(r" \1 ", text).split()


def split_xl(text: str) -> list[str]:
    """Split into runs of letters and digits and runs of other characters, with some runs parted further.

    Example:
        >>> split_xl("T-tube (95%). Low...")
        ['T', '-', 'tube', '(', '95', '%', ')', '.', 'Low', '...']
    """
    for written, meant in _WRITTEN_ESCAPES:
        text = text.replace(written, meant)
    joined = " ".join(_RUNS.findall(" ".join(text.split())))
    for run, parts in _PARTED_RUNS:
        joined = joined.replace(run, parts)
    return joined.split()


SPLIT: Mapping[ModelType, Callable[[str], list[str]]] = {"radgraph": split_v1, "radgraph-xl": split_xl}


@dataclass(frozen=True)
class RadGraph:
    """Annotates reports as the ``radgraph`` package, version 0.1.18, does.

    Nothing is loaded before the first text that the cache lacks, and nothing stays loaded after a call. Labels and
    words of the two types of models differ, so scores of one cannot be compared with scores of the other.
    """

    model_type: ModelType
    settings: ModelSettings

    def annotate(self, texts: Sequence[str]) -> list[Annotation]:
        """Annotate reports of any length, shape (texts,), in the order of the input.

        The empty text is read as the word ``None``, as the package does; a text of white space only, on which the
        package fails, has no entities.
        """
        reports = [tuple(SPLIT[self.model_type](text or "None")) for text in texts]
        keys = {words: text_key(" ".join(words)) for words in reports if words}
        annotated: dict[tuple[str, ...], Annotation] = {(): _annotation((), {})}
        if keys:
            archive = open_archive(self.model_type, self.settings)
            model = f"radgraph {_VERSION} {self.model_type} {self.settings.dtype} {weights_digest(archive.files)}"

            def annotate(new: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, Annotation]]:
                from medtasks.metrics.neural import radgraph_network  # needs torch, which a full cache does not

                read = radgraph_network.Annotator(archive, self.settings).entities(new)
                return ((position, _annotation(new[position], entities)) for position, entities in read)

            cache = TextCache(self.settings.cache, model)
            annotated |= cache.complete(
                keys, annotate, encode=lambda report: json.dumps(report).encode(), decode=json.loads
            )
        return [annotated[words] for words in reports]


def _annotation(words: Sequence[str], entities: Mapping[str, Any]) -> Annotation:
    return {"text": " ".join(words), "entities": entities, "data_source": None, "data_split": "inference"}


def rewards(first: Annotation, second: Annotation) -> dict[str, float]:
    """Return how well two annotations agree, each an F1 of two sets, the same if the reports change places.

    As ``F1RadGraph`` of the package (RG_E, RG_ER and RG_ER-bar of Delbrouck et al., 2022): ``simple``, of the words and
    label of entities; ``partial``, with whether a relation starts there; ``complete``, of entities where none starts,
    and of relations with words and label of the one entity and words of the other. As CXR-Report-Metric at 9c9ecad:
    ``entity_f1``, the same as simple; ``relation_f1``, of relations with words and label of both; ``combined``, their
    mean, which is 0.5 for equal reports without relations.

    Words are compared with case, save in the relations of ``complete``; the package's repository has compared
    everything without case since July 2026, under the same version number.
    """
    sets: list[dict[str, set[Any]]] = []
    for report in (first, second):
        entities = {
            number: (one["tokens"], one["label"], one["relations"]) for number, one in report["entities"].items()
        }
        related = [
            (words, label, relation, *entities[other][:2])
            for words, label, relations in entities.values()
            for relation, other in relations
        ]
        alone = {(words, label) for words, label, relations in entities.values() if not relations}
        lowered = {(words.lower(), label, relation, other.lower()) for words, label, relation, other, _ in related}
        sets.append(
            {
                "simple": {(words, label) for words, label, _ in entities.values()},
                "partial": {(words, label, bool(relations)) for words, label, relations in entities.values()},
                "complete": alone | lowered,
                "relation_f1": set(related),
            }
        )
    scores = {name: overlap_f1(sets[0][name], sets[1][name]) for name in sets[0]}
    return {
        **scores,
        "entity_f1": scores["simple"],
        "combined": (scores["simple"] + scores["relation_f1"]) / 2,
    }


def _metric(
    model_type: ModelType, prefix: str, names: Sequence[str], settings: ModelSettings, **stated: str
) -> ReportMetric:
    """Return the metric that annotates both sides of every pair, and compares the annotations by :func:`rewards`.

    A pair with an empty text scores 0, whatever is on the other side, and so does a pair with a text without entities.
    """

    def score(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        pairs = list(zip(references, hypotheses, strict=True))
        scored = [position for position, pair in enumerate(pairs) if all(pair)]
        annotated = RadGraph(model_type, settings).annotate([text for position in scored for text in pairs[position]])
        samples = {f"{prefix}_{name}": [0.0] * len(pairs) for name in names}
        for position, first, second in zip(scored, annotated[::2], annotated[1::2], strict=True):
            values = rewards(first, second)
            for name in names:
                samples[f"{prefix}_{name}"][position] = values[name]
        return mean_scores(samples, {"model": model_type, "dtype": settings.dtype, **stated})

    return score


_LEVELS = ("simple", "partial", "complete")


def radgraph(settings: ModelSettings) -> ReportMetric:
    """Build RadGraph F1 with the first RadGraph: keys ``radgraph_simple``, ``_partial`` and ``_complete``."""
    return _metric("radgraph", "radgraph", _LEVELS, settings, case_sensitive="yes")


def radgraph_xl(settings: ModelSettings) -> ReportMetric:
    """Build RadGraph F1 with RadGraph-XL: keys ``radgraph_xl_simple`` and so on; see :func:`radgraph`."""
    return _metric("radgraph-xl", "radgraph_xl", _LEVELS, settings, case_sensitive="yes")


def radgraph_combined(settings: ModelSettings) -> ReportMetric:
    """Build CXR-Report-Metric's scores, which RadCliQ takes, with the first RadGraph.

    Keys: ``radgraph_combined``, the mean of ``radgraph_entity_f1`` and ``radgraph_relation_f1``. That repository cannot
    score an empty reference; here it scores 0.
    """
    return _metric("radgraph", "radgraph", ("combined", "entity_f1", "relation_f1"), settings)
