"""Several metrics over the same pairs of reports: one that fails costs its own numbers and nothing else."""

import contextlib
import math
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medtasks.errors import MedTasksError
from medtasks.hooks.model_offloading import evaluated_models_on_cpu
from medtasks.metrics.model_settings import DEVICE_VARIABLE, ModelSettings
from medtasks.metrics.report_metrics import metric_info, report_metric
from medtasks.metrics.report_scores import ReportScores, mean
from medtasks.stats.standard_error import clustered_standard_error

_OUT_OF_MEMORY = ("OutOfMemoryError", "MemoryError")  # torch's own is not worth an import here


@dataclass(frozen=True)
class ReportPair:
    """Two reports of one study.

    Attributes:
        unit: What was sampled, see :func:`medtasks.hooks.units.unit_of`.
        reference: What a radiologist wrote.
        hypothesis: What the model wrote.
    """

    unit: str
    reference: str
    hypothesis: str


@dataclass(frozen=True)
class PanelScores:
    """Scores of several metrics.

    Attributes:
        values: By key, for all pairs. NaN for a metric that failed.
        errors: Standard errors by key, clustered by unit; NaN where a key has no value per pair, or is not their mean.
        failures: By metric, in words without any report's text, why it failed and what mends it.
        settings: By metric, what its numbers depend on.
    """

    values: Mapping[str, float]
    errors: Mapping[str, float]
    failures: Mapping[str, str]
    settings: Mapping[str, Mapping[str, str]]


def score_panel(metrics: Sequence[str], pairs: Sequence[ReportPair]) -> PanelScores:
    """Score pairs with several metrics.

    Args:
        metrics: Names of :data:`medtasks.metrics.report_metrics.REPORT_METRICS`.
        pairs: Shape (n,). Without any, everything is NaN.

    Raises:
        UnknownName: There is no such metric.
    """
    if not pairs:
        undefined = dict.fromkeys((key for name in metrics for key in metric_info(name).keys), math.nan)
        return PanelScores(undefined, undefined, {}, {})
    values: dict[str, float] = {}
    errors: dict[str, float] = {}
    failures: dict[str, str] = {}
    settings: dict[str, Mapping[str, str]] = {}
    needed = {name: metric_info(name).keys for name in metrics}
    with _room_for(metrics):
        for name, keys in needed.items():
            try:
                scores = _scores(name, pairs)
                found = {key: (scores.totals[key], _error(scores, key, pairs)) for key in keys}
                settings[name] = dict(scores.settings)
            except Exception as error:  # noqa: BLE001  # inference is done; whatever this is may cost one metric only
                failures[name] = _cause(error)
                found = dict.fromkeys(keys, (math.nan, math.nan))
            values |= {key: value for key, (value, _) in found.items()}
            errors |= {key: error for key, (_, error) in found.items()}
    return PanelScores(values, errors, failures, settings)


def _room_for(metrics: Sequence[str]) -> contextlib.AbstractContextManager[None]:
    try:
        settings = ModelSettings.from_environment()
    except MedTasksError:  # the metrics that read the same settings say it
        return contextlib.nullcontext()
    models = any(metric_info(name).weights for name in metrics)
    return evaluated_models_on_cpu(settings) if models else contextlib.nullcontext()


def _scores(name: str, pairs: Sequence[ReportPair]) -> ReportScores:
    return report_metric(name)(
        references=[pair.reference for pair in pairs], hypotheses=[pair.hypothesis for pair in pairs]
    )


def _error(scores: ReportScores, key: str, pairs: Sequence[ReportPair]) -> float:
    values = scores.samples.get(key)
    if not values or not math.isclose(mean(values), scores.totals[key], rel_tol=1e-9, abs_tol=1e-12):
        return math.nan
    return clustered_standard_error(values, [pair.unit for pair in pairs])


def _cause(error: Exception) -> str:
    """Say what happened. Messages that are not our own may quote a report, so that only their place is told."""
    if isinstance(error, MedTasksError):
        return str(error).rstrip(".")
    if isinstance(error, ImportError):
        return f"{error}; run: pip install 'medtasks[report]'"
    if type(error).__name__ in _OUT_OF_MEMORY:
        return f"the memory did not suffice; free the GPU, or set {DEVICE_VARIABLE}=cpu"
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return f"{type(error).__name__}{place}"
