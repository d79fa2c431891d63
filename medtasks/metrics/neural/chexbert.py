"""CheXbert's readings of texts, 14 findings and one vector each, cached on disk, and metrics of both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from medtasks.metrics.chest_findings import CONDITIONS, Uncertain, label_scores
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural.metric_checkpoints import find_chexbert
from medtasks.metrics.neural.text_encoders import present, weights_digest
from medtasks.metrics.report_metrics import ReportScores, mean_scores

_VERSION = 1  # raised when the same text and weights would give another reading


@dataclass(frozen=True, eq=False)
class ReportLabels:
    """CheXbert's :class:`Finding` of each condition in one text, and the encoder's [CLS] vector."""

    classes: tuple[int, ...]
    vector: NDArray[np.float32]


def prepare(text: str) -> str:
    """Return a text for CheXbert's tokeniser: every run of white space, line ends included, is one space.

    Source: ``get_impressions_from_pandas`` in ``src/bert_tokenizer.py`` of CheXbert. Halves of surrogate pairs, which
    tokenisers refuse, are left out.
    """
    return " ".join(text.split()).encode("utf-8", "ignore").decode("utf-8")


@dataclass(frozen=True)
class Chexbert:
    """Reads texts with CheXbert, each distinct text once; the network is loaded only for texts not in the cache."""

    settings: ModelSettings

    def __call__(self, texts: Sequence[str]) -> list[ReportLabels]:
        """Read texts, shape (texts,), independently of each other.

        An empty text is read as a report without words, a long one up to 512 tokens, [CLS] and [SEP] included.
        """
        files = find_chexbert(self.settings)
        read_files = present(
            files.encoder, ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json")
        )
        digest = weights_digest([files.weights, *read_files])
        cache = TextCache(
            self.settings.cache, f"chexbert {_VERSION} {digest} {self.settings.dtype}"
        )

        def read(new: Sequence[str]) -> Iterator[tuple[int, ReportLabels]]:
            from medtasks.metrics.neural.chexbert_network import (
                read_texts,
            )  # needs torch, which a full cache does not

            return (
                (position, ReportLabels(*reading))
                for position, reading in read_texts(new, files, self.settings)
            )

        prepared = [prepare(text) for text in texts]
        keys = {text: text_key(text) for text in prepared}
        count = len(CONDITIONS)  # of bytes, one per class, in front of the vector
        readings = cache.complete(
            keys,
            read,
            encode=lambda reading: bytes(reading.classes) + reading.vector.astype("<f4").tobytes(),
            decode=lambda value: ReportLabels(
                tuple(value[:count]), np.frombuffer(value, dtype="<f4", offset=count)
            ),
        )
        return [readings[text] for text in prepared]


def _sides(
    settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> tuple[list[ReportLabels], list[ReportLabels]]:
    readings = Chexbert(settings)([*references, *hypotheses]) if references else []
    return readings[: len(references)], readings[len(references) :]


def chexbert(
    settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> ReportScores:
    """Score the cosine of the two [CLS] vectors, -1 to 1, as in CXR-Report-Metric and MultiMedEval."""
    cosines = []
    for pair in zip(*_sides(settings, references, hypotheses), strict=True):
        first, second = (reading.vector.astype(np.float64) for reading in pair)
        cosine = float(first @ second) / max(
            float(np.linalg.norm(first) * np.linalg.norm(second)), 1e-12
        )
        cosines.append(min(1.0, max(-1.0, cosine)))
    return mean_scores(
        {"chexbert_similarity": cosines}, {"model": "chexbert", "dtype": settings.dtype}
    )


def f1_chexbert(
    settings: ModelSettings,
    references: Sequence[str],
    hypotheses: Sequence[str],
    *,
    uncertain: Uncertain = "positive",
    prefix: str = "chexbert",
) -> ReportScores:
    """Score F1 of CheXbert's labels, by default with uncertain as positive on both sides, as F1CheXbert counts."""
    sides = _sides(settings, references, hypotheses)
    gold, predicted = ([reading.classes for reading in side] for side in sides)
    scores = label_scores(gold, predicted, uncertain=uncertain, prefix=prefix)
    return replace(
        scores, settings={**scores.settings, "model": "chexbert", "dtype": settings.dtype}
    )


# The same with uncertain as negative, as MultiMedEval's classification and part of the literature.
f1_chexbert_certain = partial(f1_chexbert, uncertain="negative", prefix="chexbert_certain")
