"""Metrics of reports that are models: texts per second of each, and RadCliQ of 3,000 pairs.

Networks of the published sizes with random weights, written to a folder of their own and read as any others; drawn
reports of about 60 words; float32, as the metrics' definitions have it, and bfloat16; no cache.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from drawn_reports import report_pairs
from gpu_scale import Report, Scale
from report_metrics import drawn_settings

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.bertscore import RADCLIQ_ENCODER, RADCLIQ_LAYER, BertScore
from medtasks.metrics.neural.chexbert import Chexbert
from medtasks.metrics.neural.radgraph import RadGraph
from medtasks.metrics.report_metrics import report_metric

FEW = 8  # texts that are read in order to load a model
Read = Callable[[ModelSettings, Sequence[str]], object]


def read_radgraph(settings: ModelSettings, texts: Sequence[str]) -> object:
    """Annotate texts."""
    return RadGraph("radgraph", settings).annotate(texts)


def read_chexbert(settings: ModelSettings, texts: Sequence[str]) -> object:
    """Label texts."""
    return Chexbert(settings)(texts)


def read_bertscore(settings: ModelSettings, texts: Sequence[str]) -> object:
    """Score the first half of the texts against the second."""
    half = len(texts) // 2
    return BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings).score(
        references=texts[:half], hypotheses=texts[half:]
    )


READERS: dict[str, tuple[str, Read]] = {
    "radgraph": ("radgraph", read_radgraph),
    "chexbert": ("chexbert", read_chexbert),
    "bertscore": (RADCLIQ_ENCODER, read_bertscore),
}
"""By metric its model and how that reads texts."""


def measure_metric(name: str, scale: Scale, report: Report) -> None:
    """Measure how fast one metric reads texts, apart from loading it."""
    references, hypotheses = report_pairs()
    texts = [*references, *hypotheses][: 40 if scale.tiny else None]
    model, read = READERS[name]
    with tempfile.TemporaryDirectory() as folder:
        settings = drawn_settings(
            Path(folder), texts, scale.device, models=(model,), tiny=scale.tiny
        )
        seconds_of(read, settings, texts[:FEW])  # what only a first time costs
        for dtype in ("float32",) if scale.tiny else ("float32", "bfloat16"):
            given = replace(settings, dtype=dtype)
            loading = seconds_of(read, given, texts[:FEW])
            seconds = seconds_of(read, given, texts)
            speed = (
                (len(texts) - FEW) / (seconds - loading) if seconds > loading else None
            )  # else lost in noise
            report(
                {"dtype": dtype, "texts": len(texts), "seconds": seconds, "loading_seconds": loading,
                 "texts_per_second": speed}
            )  # fmt: skip


def seconds_of(read: Read, settings: ModelSettings, texts: Sequence[str]) -> float:
    """Return how long it takes, loading included; results are on the CPU by then."""
    began = time.perf_counter()
    read(settings, texts)
    return time.perf_counter() - began


def measure_radcliq(scale: Scale, report: Report) -> None:
    """Measure RadCliQ v1 as its users call it, all three models loaded anew."""
    references, hypotheses = report_pairs()
    pairs = 20 if scale.tiny else len(references)
    texts = [*references[:pairs], *hypotheses[:pairs]]
    with tempfile.TemporaryDirectory() as folder:
        settings = drawn_settings(Path(folder), texts, scale.device, tiny=scale.tiny)
        began = time.perf_counter()
        report_metric("radcliq_v1", settings)(
            references=references[:pairs], hypotheses=hypotheses[:pairs]
        )
        report({"dtype": "float32", "pairs": pairs, "seconds": time.perf_counter() - began})
