"""RaTEScore: entities of two reports matched by their embeddings, weighted by their types.

Source: Zhao et al., "RaTEScore: A Metric for Radiology Report Generation" (EMNLP 2024), and its code at
https://github.com/MAGIC-AI4Med/RaTEScore, commit a970406 (release 0.6.0), whose release 0.5.0 has another penalty.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import chain, filterfalse
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medtasks.metrics.metric import harmonic_mean, mean
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural.rate_sentences import (
    ENCODER,
    EXCLUDED,
    FOUND,
    NER,
    RULES,
    split_sentences,
)
from medtasks.metrics.neural.text_encoders import present, weights_digest
from medtasks.metrics.report_metrics import ReportScores, Texts

_VERSION = 1  # of the code, to be raised when entities or vectors change
_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
)

Vectors = NDArray[np.float32]


class Entity(NamedTuple):
    """Words of a report and their type, such as ``NON-DISEASE``."""

    text: str
    kind: str


class Affinity(NamedTuple):
    """Weights by the types of an entity and of its partner, and the factor of partners that contradict it."""

    weights: dict[tuple[str, str], float]
    penalty: float


_Pair = tuple[list[Entity] | None, list[Entity] | None]


@cache
def affinities() -> dict[str, Affinity]:
    """Return the published weightings by the ending of their keys: long and short of 0.6.0, and that of 0.5.0."""
    file = resources.files(__package__).joinpath("rate_affinity.json")
    stored = json.loads(file.read_text("utf-8"))
    long = _read_affinity(stored["long"])
    return {
        "": long,
        "_short": _read_affinity(stored["short"]),
        "_0_5_0": long._replace(penalty=stored["neg_weight_until_0.5.0"]),
    }


def _read_affinity(matrix: Mapping[str, float]) -> Affinity:
    """Return a published matrix of weights, by the types of an entity and its partner, with its penalty."""
    weights = {}
    for pair, weight in matrix.items():
        if pair != "neg_weight":
            kind, partner = pair.upper().split("_")
            weights[kind, partner] = weight
    return Affinity(weights, matrix["neg_weight"])


def best_partners(
    cosines: Vectors,
    kinds: Sequence[str],
    others: Sequence[str],
    as_published: bool,
) -> list[int]:
    """Return the position of the best partner of each entity.

    Args:
        cosines: Cosines of entities with possible partners, shape (kinds, others).
        kinds: Types of the entities.
        others: Types of the possible partners.
        as_published: Whether equally similar partners, such as the same word twice, are chosen as ``torch.topk`` does,
            which depends on rounding errors: there identical reports may score below 1. By default one of the same
            type is taken.
    """
    rounded = np.round(cosines.astype(np.float64), 6)
    if not as_published:
        same = np.array([[kind == other for other in others] for kind in kinds])
        return [int(position) for position in (rounded + 1e-7 * same).argmax(axis=1)]
    import torch

    rows = torch.from_numpy(rounded.astype(np.float32))
    return [int(torch.topk(row, 1).indices[0]) for row in rows]


def weighted_mean(
    cosines: Sequence[float],
    kinds: Sequence[str],
    partners: Sequence[str],
    affinity: Affinity,
) -> float:
    """Average the cosines of entities with their partners by the weight of the two types.

    The cosine of a finding with an excluded one, or the reverse, is multiplied by the penalty.

    Args:
        cosines: Cosine of each entity with its partner.
        kinds: Types of the entities.
        partners: Types of their partners.
        affinity: One of :func:`affinities`.
    """
    total = 0.0
    weight_sum = 0.0
    for cosine, kind, partner in zip(cosines, kinds, partners, strict=True):
        is_only_here = kind in FOUND and partner in EXCLUDED
        is_only_there = kind in EXCLUDED and partner in FOUND
        weight = affinity.weights[kind, partner]
        total += cosine * weight * (affinity.penalty if is_only_here or is_only_there else 1.0)
        weight_sum += weight
    return total / weight_sum if weight_sum else 0.0


def entity_scores(
    reference: Sequence[Entity],
    hypothesis: Sequence[Entity],
    vectors: Mapping[str, Vectors],
    *,
    as_published: bool,
) -> dict[str, float]:
    """Score two reports with entities under each weighting.

    The score is F1 = 2 * precision * recall / (precision + recall), where recall is the :func:`weighted_mean` over the
    entities of the reference, and precision that over those of the hypothesis.

    Args:
        reference: Entities of the reference, at least one.
        hypothesis: Entities of the hypothesis, at least one.
        vectors: Unit vectors by text of an entity.
        as_published: See :func:`best_partners`.

    Returns:
        Scores by the ending of their keys, as in :func:`affinities`.
    """
    reference_vectors = np.stack([vectors[entity.text] for entity in reference])
    hypothesis_vectors = np.stack([vectors[entity.text] for entity in hypothesis])
    cosines = reference_vectors @ hypothesis_vectors.T
    reference_kinds = [entity.kind for entity in reference]
    hypothesis_kinds = [entity.kind for entity in hypothesis]
    sides = []
    for matrix, kinds, others in (
        (cosines, reference_kinds, hypothesis_kinds),
        (cosines.T, hypothesis_kinds, reference_kinds),
    ):
        positions = best_partners(matrix, kinds, others, as_published)
        best = [float(row[position]) for row, position in zip(matrix, positions, strict=True)]
        sides.append((best, kinds, [others[position] for position in positions]))
    scores = {}
    for ending, affinity in affinities().items():
        recall = weighted_mean(*sides[0], affinity)
        precision = weighted_mean(*sides[1], affinity)
        scores[ending] = harmonic_mean(precision, recall)
    return scores


def _fingerprint(name: str, settings: ModelSettings) -> str:
    """Return everything that a model's results depend on besides the text, to name their cache."""
    folder = settings.find_weights(name)
    weights = sorted(folder.glob("*.safetensors"))
    digest = weights_digest(present(folder, _FILES) + weights)
    return f"{name} {_VERSION} {settings.dtype} {digest}"


def report_entities(
    settings: ModelSettings,
    texts: Texts,
) -> list[list[Entity] | None]:
    """Return the entities of each report, in the order of the texts.

    Returns:
        None for a report without a sentence of at least three characters, and an empty list for one whose sentences
        name no entity.

    Raises:
        WeightsMissing: The rules of sentences or, unless all sentences are cached, the network are not on this machine.
    """
    rules = settings.find_weights(RULES)
    sentences = {text: split_sentences(text, rules) for text in dict.fromkeys(texts)}
    keys = {}
    for sentence in chain.from_iterable(sentences.values()):
        keys[sentence] = text_key(sentence)
    if not keys:
        return [None] * len(texts)

    def annotate(new: Sequence[str]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        # needs torch, which a full cache does not
        from medtasks.metrics.neural.rate_networks import annotate_sentences

        return annotate_sentences(new, settings)

    entities = TextCache(settings.cache, _fingerprint(NER, settings)).complete(
        keys,
        annotate,
        encode=lambda value: json.dumps(value).encode(),
        decode=json.loads,
    )
    by_report = []
    for text in texts:
        of_sentences = [entities[sentence] for sentence in sentences[text]]
        of_report = [Entity(*entity) for entity in chain.from_iterable(of_sentences)]
        by_report.append(of_report if of_sentences else None)
    return by_report


def entity_vectors(
    settings: ModelSettings,
    texts: Texts,
) -> dict[str, Vectors]:
    """Return the unit vector of each distinct text of an entity, by that text. Without texts no weights are needed."""
    if not texts:
        return {}

    def embed_new(new: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
        from medtasks.metrics.neural.rate_networks import embed_entities

        return embed_entities(new, settings)

    return TextCache(settings.cache, _fingerprint(ENCODER, settings)).complete(
        {text: text_key(text) for text in texts},
        embed_new,
        encode=lambda vector: vector.astype("<f4").tobytes(),
        decode=lambda value: np.frombuffer(value, dtype="<f4"),
    )


def rate_score(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    as_published: bool = False,
) -> ReportScores:
    """Score pairs of reports with the published weightings, see :func:`entity_scores`.

    By default every report keeps its own reference. A pair has no score (NaN) if one of its reports has no sentence or
    no entity; totals are means over the other pairs, and ``rate_score_scored`` is their share.

    Args:
        settings: Weights, device, type of numbers and cache of the models.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        as_published: Whether a report without a sentence disappears, so that each later one is compared with the
            reference of another pair. Values are then in the order of the published list, and NaN where it ends before
            the input. A report without entities scores 0.5. If no report of a side has a sentence, the published code
            stops with an IndexError, and every value is NaN.

    Raises:
        WeightsMissing: A model or the file of rules is not on this machine, or damaged.
    """
    entities = report_entities(settings, [*references, *hypotheses])
    first = entities[: len(references)]
    second = entities[len(references) :]
    empty = _pairs_with(None, zip(first, second, strict=True))
    suffix = ""
    unscored = math.nan
    if as_published:
        suffix = "_reference"
        unscored = 0.5
        first = [report for report in first if report is not None]
        second = [report for report in second if report is not None]
    pairs = list(zip(first, second, strict=False))
    results = _pair_scores(settings, pairs, as_published)
    lost = [math.nan] * (len(references) - len(pairs))
    samples = {}
    for ending in affinities():
        values = [result[ending] if result else unscored for result in results]
        samples[f"rate_score{ending}{suffix}"] = values + lost
    if not as_published:
        samples["rate_score_scored"] = [float(result is not None) for result in results]
    totals = {}
    for key, values in samples.items():
        totals[key] = mean([*filterfalse(math.isnan, values)])
    facts = {
        "model": f"{NER}, {ENCODER}",
        "dtype": settings.dtype,
        "pairs": str(len(references)),
        "pairs_with_an_empty_report": str(empty),
        "pairs_without_entities": str(_pairs_with([], pairs)),
    }
    return ReportScores(samples, totals, facts)


def _pairs_with(report: list[Entity] | None, pairs: Iterable[_Pair]) -> int:
    """Return the number of pairs in which a report equals ``report``: None, or no entities."""
    return sum(report in pair for pair in pairs)


def _pair_scores(
    settings: ModelSettings,
    pairs: Sequence[_Pair],
    as_published: bool,
) -> list[dict[str, float] | None]:
    """Return the :func:`entity_scores` of each pair, None for a pair with a report that is None or without entities."""
    texts = []
    for reference, hypothesis in pairs:
        if reference and hypothesis:
            texts += [entity.text for entity in reference + hypothesis]
    vectors = entity_vectors(settings, texts)
    scores = []
    for reference, hypothesis in pairs:
        result = None
        if reference and hypothesis:
            result = entity_scores(reference, hypothesis, vectors, as_published=as_published)
        scores.append(result)
    return scores


rate_score_reference = partial(rate_score, as_published=True)
