"""RadGraph on texts, and RadGraph F1 of pairs of reports.

An annotation is the output of the ``radgraph`` package, version 0.1.18: ``text``, the report's words with spaces;
``data_source``, None; ``data_split``, ``"inference"``; and ``entities`` by number from ``"1"`` on, ordered by position.
An entity has ``tokens``, its words joined with spaces; a ``label`` such as ``OBS-DP``; ``start_ix`` and ``end_ix``, its
first and last word; and its ``relations``, each ``[label, number of the other entity]``.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import regex  # type: ignore[import-untyped]  # it has no types

from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural.metric_checkpoints import ModelType, open_archive
from medtasks.metrics.neural.text_encoders import weights_digest
from medtasks.metrics.ngram_metrics import overlap_f1
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores

_VERSION = 1  # of the code, to be raised when annotations change

_SEPARATORS = re.compile(r"([/,:.!?()])")
# NLTK's wordpunct_tokenize, which uses this engine since 3.10.3. With Python's own, the ² of cm² and ½ of 2½ were not
# separate words, and combining accents were.
_RUNS = regex.compile(r"\w+|[^\w\s]+")
# The package replaces these literal escapes, backslash and letters, which a careless export leaves in a text.
_WRITTEN_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_PARTED_RUNS = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))

Annotation = dict[str, Any]
_LEVELS = ("simple", "partial", "complete")


def words_of(text: str, model_type: ModelType) -> list[str]:
    """Split a report into words, as ``preprocess_reports`` of the ``radgraph`` package, version 0.1.18.

    For the first version at white space and around each of ``/ , : . ! ? ( )``; for XL into runs of letters and digits
    and runs of other characters, some of which are split further.

    Example:
        >>> words_of("No effusion/edema.", "radgraph")
        ['No', 'effusion', '/', 'edema', '.']
    """
    if model_type == "radgraph":
        return _SEPARATORS.sub(r" \1 ", text).split()
    for escape, replacement in _WRITTEN_ESCAPES:
        text = text.replace(escape, replacement)
    joined = " ".join(_RUNS.findall(" ".join(text.split())))
    for run, parts in _PARTED_RUNS:
        joined = joined.replace(run, parts)
    return joined.split()


@dataclass(frozen=True)
class RadGraph:
    """Annotator of reports, as the ``radgraph`` package, version 0.1.18. The network is loaded for new texts only."""

    model_type: ModelType
    settings: ModelSettings

    def annotate(self, texts: Texts) -> list[Annotation]:
        """Annotate reports.

        Args:
            texts: Reports. The empty text is read as the word ``None``, as in the package; white space, on which the
                package fails, has no entities.

        Returns:
            One annotation per report.

        Raises:
            WeightsMissing: The archive or its encoder is not on this machine, or damaged. Without words no file is
                needed.
        """
        reports = [tuple(words_of(text or "None", self.model_type)) for text in texts]
        keys = {words: text_key(" ".join(words)) for words in reports if words}
        if not keys:
            return [_annotation("", {}) for _ in reports]
        archive = open_archive(self.model_type, self.settings)
        digest = weights_digest(archive.files)
        model = f"radgraph {_VERSION} {self.model_type} {self.settings.dtype} {digest}"

        def annotate_new(new: Sequence[tuple[str, ...]]) -> Iterator[tuple[int, Annotation]]:
            # needs torch, which a full cache does not
            from medtasks.metrics.neural import radgraph_network

            annotator = radgraph_network.Annotator(archive, self.settings)
            for position, entities in annotator.entities(new):
                yield position, _annotation(" ".join(new[position]), entities)

        annotations = TextCache(self.settings.cache, model).complete(
            keys,
            annotate_new,
            encode=lambda annotation: json.dumps(annotation).encode(),
            decode=json.loads,
        )
        annotations[()] = _annotation("", {})
        return [annotations[words] for words in reports]


def _annotation(text: str, entities: dict[str, dict[str, Any]]) -> Annotation:
    """Return the annotation of a report from its words, joined with spaces, and its entities by number."""
    return {
        "text": text,
        "entities": entities,
        "data_source": None,
        "data_split": "inference",
    }


def rewards(first: Annotation, second: Annotation) -> dict[str, float]:
    """Return the agreements of two annotations, each a symmetric F1 of two sets.

    As ``F1RadGraph`` of the package (RG_E, RG_ER and RG_ER-bar of Delbrouck et al., 2022): ``simple``, of the words and
    label of entities; ``partial``, with whether a relation starts there; ``complete``, of entities where none starts,
    and of relations with words and label of the one entity and words of the other. As CXR-Report-Metric at 9c9ecad:
    ``entity_f1``, the same as simple; ``relation_f1``, of relations with words and label of both; ``combined``, their
    mean, which is 0.5 for equal reports without relations.

    Words are compared with case, except in the relations of ``complete``; the package's repository has compared
    everything without case since July 2026, under the same version number.

    Args:
        first: Annotation of one report, see the module.
        second: Annotation of the other.

    Returns:
        F1 = 2 |A and B| / (|A| + |B|) by name, 0 to 1; 0 if both sets are empty.
    """
    first_sets = _compared_sets(first)
    second_sets = _compared_sets(second)
    scores = {name: overlap_f1(first_sets[name], second_sets[name]) for name in first_sets}
    scores["entity_f1"] = scores["simple"]
    scores["combined"] = (scores["simple"] + scores["relation_f1"]) / 2
    return scores


def _compared_sets(annotation: Annotation) -> dict[str, set[Any]]:
    """Return the sets of entities and relations of one report, by the name of the agreement that compares them."""
    sets: dict[str, set[Any]] = {
        "simple": set(),
        "partial": set(),
        "complete": set(),
        "relation_f1": set(),
    }
    entities = annotation["entities"]
    for entity in entities.values():
        words = entity["tokens"]
        label = entity["label"]
        sets["simple"].add((words, label))
        sets["partial"].add((words, label, bool(entity["relations"])))
        if not entity["relations"]:
            sets["complete"].add((words, label))
        for relation, number in entity["relations"]:
            target = entities[number]
            target_words = target["tokens"]
            sets["complete"].add((words.lower(), label, relation, target_words.lower()))
            sets["relation_f1"].add((words, label, relation, target_words, target["label"]))
    return sets


def radgraph(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    model_type: ModelType = "radgraph",
    names: Sequence[str] = _LEVELS,
) -> ReportScores:
    """Score RadGraph F1, by default with the first RadGraph, from :func:`rewards`.

    A pair with an empty text, or one without entities, scores 0.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        model_type: RadGraph of 2021, or RadGraph-XL.
        names: Agreements of :func:`rewards` to return.

    Returns:
        ``<model>_<name>`` by pair, and their means, 0 to 1.
    """
    pairs = list(zip(references, hypotheses, strict=True))
    scored = [position for position, pair in enumerate(pairs) if all(pair)]
    texts: list[str] = []
    for position in scored:
        texts += pairs[position]
    annotations = RadGraph(model_type, settings).annotate(texts)
    rows = [dict.fromkeys(names, 0.0) for _ in pairs]
    for position, first, second in zip(
        scored, annotations[::2], annotations[1::2], strict=True
    ):
        rows[position] = rewards(first, second)
    prefix = model_type.replace("-", "_")
    samples = {f"{prefix}_{name}": [row[name] for row in rows] for name in names}
    facts: dict[str, str] = {"model": model_type, "dtype": settings.dtype}
    if names == _LEVELS:
        facts["case_sensitive"] = "yes"
    return mean_scores(samples, facts)


# Labels and words of this model differ: scores are not comparable.
radgraph_xl = partial(radgraph, model_type="radgraph-xl")
# CXR-Report-Metric's scores, for RadCliQ; an empty reference, which it cannot score, scores 0.
radgraph_combined = partial(radgraph, names=("combined", "entity_f1", "relation_f1"))
