"""RadGraph's network in memory, from words to annotations."""

import math
from collections.abc import Iterator, Sequence

from loguru import logger

from medtasks.errors import WeightsMissing
from medtasks.metrics.encoder_batches import encoding, run_batches
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.radgraph.annotations import Annotation, annotation
from medtasks.metrics.radgraph.archive import Archive
from medtasks.metrics.radgraph.network import SpanNetwork
from medtasks.metrics.radgraph.word_encoder import WordEncoder
from medtasks.metrics.radgraph.wordpieces import Wordpieces

# A processor's caches hold the activations of few texts; a GPU needs many to be busy.
_BATCH_SIZE, _BATCH_SIZE_ON_CPU = 64, 8


class Annotator:
    """A loaded RadGraph.

    Args:
        archive: What to load.
        settings: How it runs.

    Raises:
        WeightsMissing: Weights or vocabulary cannot be read, or do not fit each other.
        MedTasksError: The device cannot be used.
    """

    def __init__(self, archive: Archive, settings: ModelSettings) -> None:
        self._device = settings.torch_device()
        self._batch_size = settings.batch_size or (_BATCH_SIZE_ON_CPU if self._device.type == "cpu" else _BATCH_SIZE)
        self._progress = settings.progress
        self._max_length = archive.max_length
        self._wordpieces = Wordpieces(archive.encoder, archive.max_length)
        contents = archive.read()
        self._encoder = WordEncoder(archive.encoder, contents.state, self._device, settings.dtype)
        self._network = SpanNetwork(archive, contents, self._device)
        known, size = len(self._wordpieces), self._encoder.vocabulary_size
        sizes = f"the vocabulary in {archive.encoder} has {known} wordpieces, but the encoder in {archive.path} {size}"
        if known > size:
            raise WeightsMissing(sizes)
        if known < size:
            logger.warning("{}; if the vocabulary was cut short, scores are wrong", sizes)

    def annotate(self, reports: Sequence[Sequence[str]]) -> Iterator[tuple[int, Annotation]]:
        """Annotate reports of like length together.

        Args:
            reports: Words of each, at least one, shape (reports,).

        Yields:
            ``(position, annotation)`` as it comes, the longest reports first.

        Raises:
            MedTasksError: Memory does not suffice for a single report.
        """
        pieces = self._wordpieces.pieces(reports)
        segments = [self._wordpieces.segments(words) for words in pieces]

        def run(batch: Sequence[int]) -> list[Annotation]:
            with encoding(self._device, "float32"):
                vectors = self._encoder.vectors(
                    [segment for position in batch for segment in segments[position]],
                    [len(word) for position in batch for word in pieces[position]],
                    self._batch_size,
                )
                predictions = self._network.predict(vectors, [len(reports[position]) for position in batch])
            return [
                annotation(reports[position], prediction)
                for position, prediction in zip(batch, predictions, strict=True)
            ]

        lengths = [sum(map(len, words)) for words in pieces]
        batches = segment_batches(lengths, self._max_length - 2, self._batch_size)
        return run_batches(batches, run, description="RadGraph", progress=self._progress)


def segment_batches(lengths: Sequence[int], window: int, batch_size: int) -> list[list[int]]:
    """Put reports of like length together, none more than an eighth and eight wordpieces shorter than the longest.

    Args:
        lengths: Wordpieces of each report, shape (reports,).
        window: Wordpieces per segment.
        batch_size: Most segments in one batch, unless a single report has more.

    Returns:
        Positions of the reports, the longest first.

    Example:
        >>> segment_batches([3, 25, 4, 9], window=10, batch_size=3)
        [[1], [3, 2, 0]]
    """
    batches: list[list[int]] = []
    room, shortest = 0, 0.0
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        segments = max(1, math.ceil(lengths[position] / window))
        if segments > room or min(lengths[position], window) < shortest or not batches:
            batches.append([])
            room, shortest = batch_size, min(lengths[position], window) * 7 / 8 - 8
        batches[-1].append(position)
        room -= segments
    return batches
