"""RaTEScore: entities of two reports matched by their embeddings, weighted by their types.

Source: Zhao et al., "RaTEScore: A Metric for Radiology Report Generation" (EMNLP 2024), and its code at
https://github.com/MAGIC-AI4Med/RaTEScore, commit a970406 (release 0.6.0), whose release 0.5.0 has another penalty.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from medtasks.metrics.metric import mean
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key, weights_path
from medtasks.metrics.neural.rate_sentences import (
    ENCODER,
    EXCLUDED,
    FOUND,
    NER,
    RULES,
    split_sentences,
)
from medtasks.metrics.neural.text_encoders import present, weights_digest
from medtasks.metrics.report_metrics import ReportScores

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


@cache
def affinities() -> dict[str, Affinity]:
    """Return the published weightings by the ending of their keys: long and short of 0.6.0, and that of 0.5.0."""
    stored = json.loads(
        resources.files(__package__).joinpath("rate_affinity.json").read_text("utf-8")
    )
    matrices = {
        name: {
            tuple(pair.upper().split("_")): weight
            for pair, weight in stored[name].items()
            if pair != "neg_weight"
        }
        for name in ("long", "short")
    }
    return {
        "": Affinity(matrices["long"], stored["long"]["neg_weight"]),
        "_short": Affinity(matrices["short"], stored["short"]["neg_weight"]),
        "_0_5_0": Affinity(matrices["long"], stored["neg_weight_until_0.5.0"]),
    }


def best_partners(
    cosines: Vectors, kinds: Sequence[str], others: Sequence[str], as_published: bool
) -> list[int]:
    """Return the position of the best partner of each entity, of cosines with shape (kinds, others).

    Of equally similar partners, such as the same word twice, one of the same type is taken. The published code takes
    what ``torch.topk`` returns, which depends on rounding errors: there identical reports may score below 1.
    """
    rounded = np.round(cosines.astype(np.float64), 6)
    if not as_published:
        same = np.array([[kind == other for other in others] for kind in kinds])
        return [int(position) for position in (rounded + 1e-7 * same).argmax(axis=1)]
    import torch

    return [
        int(torch.topk(row, 1).indices[0]) for row in torch.from_numpy(rounded.astype(np.float32))
    ]


def weighted_mean(
    cosines: Sequence[float], kinds: Sequence[str], partners: Sequence[str], affinity: Affinity
) -> float:
    """Average the cosines of entities with their partners by the weight of the two types.

    The cosine of a finding with an excluded one, or the reverse, is multiplied by the penalty.
    """
    total = weight_sum = 0.0
    for cosine, kind, partner in zip(cosines, kinds, partners, strict=True):
        is_opposite = (kind in FOUND and partner in EXCLUDED) or (
            kind in EXCLUDED and partner in FOUND
        )
        weight = affinity.weights[kind, partner]
        total += cosine * weight * (affinity.penalty if is_opposite else 1.0)
        weight_sum += weight
    return total / weight_sum if weight_sum else 0.0


def entity_scores(
    reference: Sequence[Entity],
    hypothesis: Sequence[Entity],
    vectors: Mapping[str, Vectors],
    *,
    as_published: bool,
) -> dict[str, float]:
    """Score two reports with entities under each weighting: F1 of the weighted means over either side."""
    vectors_of = [
        np.stack([vectors[entity.text] for entity in side]) for side in (reference, hypothesis)
    ]
    cosines = vectors_of[0] @ vectors_of[1].T
    kinds = [entity.kind for entity in reference], [entity.kind for entity in hypothesis]
    sides = []
    for matrix, types, others in ((cosines, kinds[0], kinds[1]), (cosines.T, kinds[1], kinds[0])):
        positions = best_partners(matrix, types, others, as_published)
        best = [float(row[position]) for row, position in zip(matrix, positions, strict=True)]
        sides.append((best, types, [others[position] for position in positions]))
    scores = {}
    for ending, affinity in affinities().items():
        recall, precision = (weighted_mean(*side, affinity) for side in sides)
        scores[ending] = (
            2 * precision * recall / (precision + recall) if precision + recall else 0.0
        )
    return scores


def _fingerprint(name: str, settings: ModelSettings) -> str:
    folder = weights_path(name, settings.named_weights.get(name))
    digest = weights_digest([*present(folder, _FILES), *sorted(folder.glob("*.safetensors"))])
    return f"{name} {_VERSION} {settings.dtype} {digest}"


def report_entities(settings: ModelSettings, texts: Sequence[str]) -> list[list[Entity] | None]:
    """Return the entities of each report; None for a report without a sentence of at least three characters."""
    rules = weights_path(RULES, settings.named_weights.get(RULES))
    sentences = {text: split_sentences(text, rules) for text in dict.fromkeys(texts)}
    keys = {sentence: text_key(sentence) for parts in sentences.values() for sentence in parts}
    if not keys:
        return [None] * len(texts)

    def annotate(new: Sequence[str]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        from medtasks.metrics.neural.rate_networks import (
            annotate_sentences,
        )  # needs torch, which a full cache does not

        return annotate_sentences(new, settings)

    entities = TextCache(settings.cache, _fingerprint(NER, settings)).complete(
        keys, annotate, encode=lambda value: json.dumps(value).encode(), decode=json.loads
    )
    return [
        [Entity(*entity) for part in sentences[text] for entity in entities[part]]
        if sentences[text]
        else None
        for text in texts
    ]


def entity_vectors(settings: ModelSettings, texts: Sequence[str]) -> dict[str, Vectors]:
    """Return the unit vector of each distinct entity text."""
    if not texts:
        return {}

    def embed(new: Sequence[str]) -> Iterator[tuple[int, Vectors]]:
        from medtasks.metrics.neural.rate_networks import embed_entities

        return embed_entities(new, settings)

    return TextCache(settings.cache, _fingerprint(ENCODER, settings)).complete(
        {text: text_key(text) for text in texts},
        embed,
        encode=lambda vector: vector.astype("<f4").tobytes(),
        decode=lambda value: np.frombuffer(value, dtype="<f4"),
    )


def rate_score(
    settings: ModelSettings,
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    as_published: bool = False,
) -> ReportScores:
    """Score pairs of reports with the published weightings.

    By default every report keeps its own reference. A pair has no score (NaN) if one of its reports has no sentence or
    no entity; totals are means over the other pairs, and ``rate_score_scored`` is their share.

    ``as_published``: a report without a sentence disappears, so that each later one is compared with the reference of
    another pair. Values are in the order of the published list, and NaN where it ends before the input. A report
    without entities scores 0.5. If no report of a side has a sentence, the published code stops with an IndexError,
    and every value is NaN.
    """
    entities = report_entities(settings, [*references, *hypotheses])
    first = entities[: len(references)]
    second = entities[len(references) :]
    empty = sum(None in pair for pair in zip(first, second, strict=True))
    suffix = "_reference" if as_published else ""
    unscored = 0.5 if as_published else math.nan
    pairs = _pairs(first, second, as_published)
    scored = _pairs_with_entities(pairs)
    compared = chain.from_iterable(chain.from_iterable(filter(None, scored)))
    vectors = entity_vectors(settings, [entity.text for entity in compared])
    results = [
        entity_scores(*pair, vectors, as_published=as_published) if pair else None
        for pair in scored
    ]
    lost = [math.nan] * (len(references) - len(pairs))
    samples = {}
    for ending in affinities():
        values = [result[ending] if result else unscored for result in results]
        samples[f"rate_score{ending}{suffix}"] = values + lost
    if not as_published:
        samples["rate_score_scored"] = [float(pair is not None) for pair in scored]
    without = sum([] in pair for pair in pairs)
    stated = {"model": f"{NER}, {ENCODER}", "dtype": settings.dtype, "pairs": str(len(references))}
    stated |= {"pairs_with_an_empty_report": str(empty), "pairs_without_entities": str(without)}
    return ReportScores(
        samples, {key: _mean_of_numbers(values) for key, values in samples.items()}, stated
    )


def _pairs_with_entities(
    pairs: Sequence[tuple[list[Entity] | None, list[Entity] | None]],
) -> list[tuple[list[Entity], list[Entity]] | None]:
    return [
        (reference, hypothesis) if reference and hypothesis else None
        for reference, hypothesis in pairs
    ]


def _mean_of_numbers(values: Sequence[float]) -> float:
    return mean([value for value in values if not math.isnan(value)])


def _pairs(
    first: Sequence[list[Entity] | None], second: Sequence[list[Entity] | None], as_published: bool
) -> list[tuple[list[Entity] | None, list[Entity] | None]]:
    if not as_published:
        return list(zip(first, second, strict=True))
    with_sentences = [[report for report in side if report is not None] for side in (first, second)]
    return list(zip(*with_sentences, strict=False))


rate_score_reference = partial(rate_score, as_published=True)
