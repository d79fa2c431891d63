"""The metrics of report texts: each is an entry of ``report_metrics.toml``, which names the module of its function.

A metric that asks a judge is registered by its own module in the room of judges.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from medtasks.errors import unknown_name
from medtasks.home import packaged_facts
from medtasks.metrics.metric import Scale, mean
from medtasks.metrics.model_settings import ModelSettings
from medtasks.stats.exchange import SummedCounts

Texts = Sequence[str]
"""Texts of one side of the pairs, shape (pairs,)."""


@dataclass(frozen=True)
class ReportScores:
    """Scores of pairs of texts: by key one value per pair, and one for all pairs, NaN for no pairs."""

    # shape (pairs,), in the order of the input, empty texts included
    samples: Mapping[str, Sequence[float]]
    totals: Mapping[str, float]
    settings: Mapping[str, str] = field(default_factory=dict)  # model, dtype, stemmer, ...
    # of totals that are no means of the samples; None without such totals
    counts: SummedCounts | None = None


class ReportMetric(Protocol):
    """Scores hypotheses against references."""

    def __call__(self, *, references: Texts, hypotheses: Texts) -> ReportScores:
        """Score pairs of reports.

        Args:
            references: One text per pair.
            hypotheses: The texts of the model, in the same order.

        Raises:
            WeightsMissing: A model is not on this machine.
        """
        ...


# Of the settings, the references and the hypotheses.
Compute = Callable[[ModelSettings, Texts, Texts], ReportScores]


def mean_scores(
    samples: Mapping[str, Sequence[float]],
    settings: Mapping[str, str],
) -> ReportScores:
    """Return scores whose totals are the means of their samples.

    Example:
        >>> mean_scores({"bleu_1": [1.0, 0.5]}, {}).totals
        {'bleu_1': 0.75}
    """
    return ReportScores(
        samples, {key: mean(values) for key, values in samples.items()}, settings
    )


def scores_of_rows(
    keys: Sequence[str],
    rows: Sequence[Sequence[float]],
    settings: Mapping[str, str],
) -> ReportScores:
    """Return :func:`mean_scores` of values by pair, shape (pairs, keys).

    Example:
        >>> scores_of_rows(["bleu_1", "bleu_2"], [[1.0, 0.5]], {}).samples
        {'bleu_1': [1.0], 'bleu_2': [0.5]}
    """
    samples = {key: [row[at] for row in rows] for at, key in enumerate(keys)}
    return mean_scores(samples, settings)


@dataclass(frozen=True)
class MetricInfo:
    """One entry of :data:`REPORT_METRICS`."""

    name: str
    description: str
    keys: tuple[str, ...]  # of its scores
    # in this room, with a function of the metric's name; empty for one with ``compute``
    module: str = ""
    # required entries of medtasks.metrics.model_settings.WEIGHTS; WORDNET, TOKENIZER
    weights: tuple[str, ...] = ()
    higher_is_better: bool = True
    scale: Scale = Scale.SHARE
    asks_judge: bool = False  # whether it asks the judge of the environment
    # of a metric of a later room; None for one with ``module``
    compute: Compute | None = None
    # Scale of further keys and whether higher is better, where they differ from the metric's own.
    further: Mapping[str, tuple[Scale, bool]] = field(default_factory=dict, hash=False)

    @property
    def sentence(self) -> str:
        """Its description as a sentence."""
        return f"{self.description[0].upper()}{self.description[1:]}."


def score_keys(prefix: str, *endings: str) -> tuple[str, ...]:
    """Return the keys of a metric's scores, each the prefix with an ending.

    Example:
        >>> score_keys("rouge", "1", "l")
        ('rouge_1', 'rouge_l')
    """
    return tuple(f"{prefix}_{ending}" for ending in endings)


_REGISTERED: dict[str, MetricInfo] = {}
REPORT_METRICS: Mapping[str, MetricInfo] = MappingProxyType(_REGISTERED)
_KNOWN: dict[str, MetricInfo] = {}  # by name and by key


def register(info: MetricInfo) -> None:
    """Add a metric to :data:`REPORT_METRICS`.

    A metric of a later room is there once its module is imported.
    """
    _REGISTERED[info.name] = info
    for key in (*info.keys, info.name):
        _KNOWN[key] = info
    for key, (scale, higher) in info.further.items():
        _KNOWN[key] = replace(info, scale=scale, higher_is_better=higher)


def _register_packaged(name: str, facts: Mapping[str, Any]) -> None:
    """Register an entry of ``report_metrics.toml``, which explains its fields."""
    register(
        MetricInfo(
            name,
            facts["description"],
            tuple(facts["keys"]),
            facts["module"],
            tuple(facts.get("weights", ())),
            facts.get("higher_is_better", True),
            Scale[facts.get("scale", "SHARE")],
        )
    )


for _name, _facts in packaged_facts(__package__, "report_metrics").items():
    _register_packaged(_name, _facts)


def metric_info(name: str) -> MetricInfo:
    """Return one entry of :data:`REPORT_METRICS`.

    Args:
        name: Name of the metric, or the key of one of its scores.

    Raises:
        UnknownName: No metric has this name or key.

    Example:
        >>> metric_info("bleu_4").name
        'bleu'
    """
    if name not in _KNOWN:
        raise unknown_name("metric", name, _KNOWN, "medtasks metrics")
    return _KNOWN[name]


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys of the scores that belong to a name.

    Args:
        name: Name of a metric, or key of one of its scores.

    Returns:
        All keys of a metric. For a key, that key, with the metric's number of failures if that is one of its keys.

    Raises:
        UnknownName: No metric has this name or key.

    Example:
        >>> keys_of("bleu")
        ('bleu_1', 'bleu_2', 'bleu_4')
    """
    info = metric_info(name)
    if info.name == name:
        return (*info.keys, *info.further)
    failed = f"{info.name}_failed"
    if failed not in info.further:
        return (name,)
    return tuple(dict.fromkeys((name, failed)))


def report_metric(
    name: str,
    settings: ModelSettings | None = None,
) -> ReportMetric:
    """Build one metric. It loads nothing until it scores.

    Args:
        name: Name of the metric, or key of one of its scores, all of which are computed in either case.
        settings: Settings of its model. If None, those of the environment.

    Returns:
        A function that scores pairs. It raises a ValueError if its texts do not come in pairs.

    Raises:
        UnknownName: No metric has this name or key.
        MedTasksError: The settings of the environment name an unknown type of numbers.
    """
    info = metric_info(name)
    compute: Compute | None = info.compute
    if compute is None:
        module = importlib.import_module(f"{__package__}.{info.module}")
        compute = getattr(module, info.name)
    settings = settings or ModelSettings.from_environment()

    def score_pairs(*, references: Texts, hypotheses: Texts) -> ReportScores:
        if len(references) != len(hypotheses):
            raise ValueError(
                f"{len(references)} references and {len(hypotheses)} hypotheses do not come in pairs"
            )
        return compute(settings, references, hypotheses)

    return score_pairs
