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
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores

_VERSION = 1  # raised when the same text and weights would give another reading
_ENCODER_FILES = ("config.json", "vocab.txt", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, eq=False)
class ReportLabels:
    """CheXbert's :class:`Finding` of each condition in one text, and the encoder's [CLS] vector."""

    classes: tuple[int, ...]
    vector: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Return the reading as bytes for a cache: one per class, then the vector."""
        return bytes(self.classes) + self.vector.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, value: bytes) -> "ReportLabels":
        """Read the result of :meth:`to_bytes`."""
        count = len(CONDITIONS)
        return cls(tuple(value[:count]), np.frombuffer(value, dtype="<f4", offset=count))


def prepare(text: str) -> str:
    r"""Return a text for CheXbert's tokeniser: every run of white space, line ends included, is one space.

    Source: ``get_impressions_from_pandas`` in ``src/bert_tokenizer.py`` of CheXbert. Halves of surrogate pairs, which
    tokenisers refuse, are left out.

    Example:
        >>> prepare("Heart is\n normal. ")
        'Heart is normal.'
    """
    return " ".join(text.split()).encode("utf-8", "ignore").decode("utf-8")


@dataclass(frozen=True)
class Chexbert:
    """Reader of texts by CheXbert.

    Each distinct text is read once, and the network is loaded only for texts that are not in the cache.
    """

    settings: ModelSettings

    def __call__(self, texts: Texts) -> list[ReportLabels]:
        """Read texts, shape (texts,), independently of each other.

        An empty text is read as a report without words, a long one up to 512 tokens, [CLS] and [SEP] included.

        Raises:
            WeightsMissing: A file of CheXbert or of its encoder is not on this machine, or damaged.
        """
        files = find_chexbert(self.settings)
        encoder_files = present(files.encoder, _ENCODER_FILES)
        digest = weights_digest([files.weights, *encoder_files])
        model = f"chexbert {_VERSION} {digest} {self.settings.dtype}"

        def read_new(new: Sequence[str]) -> Iterator[tuple[int, ReportLabels]]:
            # needs torch, which a full cache does not
            from medtasks.metrics.neural.chexbert_network import read_texts

            for position, reading in read_texts(new, files, self.settings):
                yield position, ReportLabels(*reading)

        prepared = list(map(prepare, texts))
        readings = TextCache(self.settings.cache, model).complete(
            {text: text_key(text) for text in prepared},
            read_new,
            encode=ReportLabels.to_bytes,
            decode=ReportLabels.from_bytes,
        )
        return [readings[text] for text in prepared]


def _sides(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
) -> tuple[list[ReportLabels], list[ReportLabels]]:
    """Read references and hypotheses. Without any, no weights are needed."""
    readings = Chexbert(settings)([*references, *hypotheses]) if references else []
    return readings[: len(references)], readings[len(references) :]


def chexbert(settings: ModelSettings, references: Texts, hypotheses: Texts) -> ReportScores:
    """Score the cosine of the two [CLS] vectors, -1 to 1, as in CXR-Report-Metric and MultiMedEval.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``chexbert_similarity`` by pair, and its mean.
    """
    cosines = []
    for reference, hypothesis in zip(*_sides(settings, references, hypotheses), strict=True):
        first = reference.vector.astype(np.float64)
        second = hypothesis.vector.astype(np.float64)
        lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
        cosine = float(first @ second) / max(lengths, 1e-12)
        cosines.append(min(1.0, max(-1.0, cosine)))
    facts = {"model": "chexbert", "dtype": settings.dtype}
    return mean_scores({"chexbert_similarity": cosines}, facts)


def f1_chexbert(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    uncertain: Uncertain = "positive",
    prefix: str = "chexbert",
) -> ReportScores:
    """Score F1 of CheXbert's labels by :func:`~medtasks.metrics.chest_findings.label_scores`.

    By default uncertain counts as positive on both sides, as in F1CheXbert.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        uncertain: Whether an uncertain finding counts as positive or negative.
        prefix: Start of the keys.
    """
    gold, predicted = _sides(settings, references, hypotheses)
    scores = label_scores(
        [reading.classes for reading in gold],
        [reading.classes for reading in predicted],
        uncertain=uncertain,
        prefix=prefix,
    )
    facts = {**scores.settings, "model": "chexbert", "dtype": settings.dtype}
    return replace(scores, settings=facts)


# F1 with uncertain as negative, as in MultiMedEval's classification and part of the literature.
f1_chexbert_certain = partial(f1_chexbert, uncertain="negative", prefix="chexbert_certain")
