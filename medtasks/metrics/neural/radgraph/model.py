"""RadGraph on texts, and RadGraph F1 of pairs of reports.

An annotation is what the ``radgraph`` package, version 0.1.18, returns: ``text``, the report's words joined with
spaces; ``data_source``, None; ``data_split``, ``"inference"``; and ``entities`` by number from ``"1"`` on, ordered by
place. An entity has ``tokens``, its words joined with spaces; a ``label`` such as ``OBS-DP`` or ``Anatomy::definitely
present``; ``start_ix`` and ``end_ix``, its first and last word; and the ``relations`` that start at it, each
``[label, number of the other entity]``.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import regex  # type: ignore[import-untyped]  # it has no types

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.encoder_files import weights_digest
from medtasks.metrics.neural.radgraph.archive import ModelType, open_archive
from medtasks.metrics.report_scores import ReportMetric, ReportScores, check_lengths, mean_scores
from medtasks.metrics.set_overlap import overlap_f1
from medtasks.metrics.text_cache import TextCache, text_key

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


SPLIT: Mapping[ModelType, Callable[[str], list[str]]] = MappingProxyType(
    {"radgraph": split_v1, "radgraph-xl": split_xl}
)


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
        split = SPLIT[self.model_type]
        reports = [tuple(split(text or "None")) for text in texts]
        keys = {words: text_key(" ".join(words)) for words in reports if words}
        annotated = {(): _annotation((), {}), **(self._annotated(keys) if keys else {})}
        return [annotated[words] for words in reports]

    def _annotated(self, keys: Mapping[tuple[str, ...], bytes]) -> dict[tuple[str, ...], Annotation]:
        archive = open_archive(self.model_type, self.settings)
        model = f"radgraph {_VERSION} {self.model_type} {self.settings.dtype} {weights_digest(archive.files)}"

        def annotate(new: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, Annotation]]:
            from medtasks.metrics.neural.radgraph import network  # needs torch, which a full cache does not

            found = network.Annotator(archive, self.settings).entities(new)
            return ((position, _annotation(new[position], entities)) for position, entities in found)

        cache = TextCache(self.settings.cache, model)
        return cache.complete(keys, annotate, encode=lambda report: json.dumps(report).encode(), decode=json.loads)


def _annotation(words: Sequence[str], entities: Mapping[str, Any]) -> Annotation:
    return {"text": " ".join(words), "entities": entities, "data_source": None, "data_split": "inference"}


def rewards(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> dict[str, float]:
    """Return how well two annotations agree, each an F1 of two sets, the same if the reports change places.

    As ``F1RadGraph`` of the package (RG_E, RG_ER and RG_ER-bar of Delbrouck et al., 2022): ``simple``, of the words and
    label of entities; ``partial``, with whether a relation starts there; ``complete``, of entities where none starts,
    and of relations with words and label of the one entity and words of the other. As CXR-Report-Metric at 9c9ecad:
    ``entity_f1``, the same as simple; ``relation_f1``, of relations with words and label of both; ``combined``, their
    mean, which is 0.5 for equal reports without relations.

    Words are compared with case, save in the relations of ``complete``; the package's repository has compared
    everything without case since July 2026, under the same version number.
    """
    items = [_items(report, str if case_sensitive else str.lower) for report in (first, second)]
    scores = {name: overlap_f1(*(sets[name] for sets in items)) for name in items[0]}
    scores["entity_f1"] = scores["simple"]
    return {**scores, "combined": (scores["entity_f1"] + scores["relation_f1"]) / 2}


def _items(report: Annotation, cased: Callable[[str], str]) -> dict[str, set[object]]:
    entities = {
        number: (cased(entity["tokens"]), entity["label"], entity["relations"])
        for number, entity in report["entities"].items()
    }
    related = [
        (words, label, relation, *entities[other][:2])
        for words, label, relations in entities.values()
        for relation, other in relations
    ]
    alone = {(words, label) for words, label, relations in entities.values() if not relations}
    return {
        "simple": {(words, label) for words, label, _ in entities.values()},
        "partial": {(words, label, bool(relations)) for words, label, relations in entities.values()},
        "complete": alone | {(words.lower(), label, kind, other.lower()) for words, label, kind, other, _ in related},
        "relation_f1": set(related),
    }


def _metric(model_type: ModelType, keys: Mapping[str, str], settings: ModelSettings, **case: bool) -> ReportMetric:
    """Return what annotates both sides of every pair, and compares the annotations.

    A pair with an empty text scores 0, whatever is on the other side, and so does a pair with a text without entities.
    ``keys`` are those of the metric by name of :func:`rewards`.
    """

    def score(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        check_lengths(references, hypotheses)
        pairs = list(zip(references, hypotheses, strict=True))
        scored = [position for position, pair in enumerate(pairs) if all(pair)]
        annotated = RadGraph(model_type, settings).annotate([text for position in scored for text in pairs[position]])
        samples = {key: [0.0] * len(pairs) for key in keys.values()}
        for position, first, second in zip(scored, annotated[::2], annotated[1::2], strict=True):
            values = rewards(first, second, **case)
            for name, key in keys.items():
                samples[key][position] = values[name]
        stated = {name: "yes" if value else "no" for name, value in case.items()}
        return mean_scores(samples, {"model": model_type, "dtype": settings.dtype, **stated})

    return score


def radgraph(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with the first RadGraph: keys ``radgraph_simple``, ``radgraph_partial``, ``radgraph_complete``.

    ``case_sensitive``: see :func:`rewards`.
    """
    return _metric("radgraph", _keys("radgraph", *_LEVELS), settings, case_sensitive=case_sensitive)


def radgraph_xl(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with RadGraph-XL: keys ``radgraph_xl_simple`` and so on; see :func:`radgraph`."""
    return _metric("radgraph-xl", _keys("radgraph_xl", *_LEVELS), settings, case_sensitive=case_sensitive)


def radgraph_combined(settings: ModelSettings) -> ReportMetric:
    """Build CXR-Report-Metric's scores, which RadCliQ takes, with the first RadGraph.

    Keys: ``radgraph_combined``, the mean of ``radgraph_entity_f1`` and ``radgraph_relation_f1``. That repository cannot
    score an empty reference; here it scores 0.
    """
    return _metric("radgraph", _keys("radgraph", "combined", "entity_f1", "relation_f1"), settings)


_LEVELS = ("simple", "partial", "complete")


def _keys(prefix: str, *names: str) -> dict[str, str]:
    return {name: f"{prefix}_{name}" for name in names}
