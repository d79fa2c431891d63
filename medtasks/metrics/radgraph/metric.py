"""RadGraph F1 of pairs of reports."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial as bound

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.pair_scores import check_lengths
from medtasks.metrics.radgraph import rewards
from medtasks.metrics.radgraph.annotations import Annotation
from medtasks.metrics.radgraph.model import RadGraph
from medtasks.metrics.radgraph.words import ModelType
from medtasks.metrics.report_scores import ReportMetric, ReportScores, mean

Reward = Callable[[Annotation, Annotation], float]


@dataclass(frozen=True)
class RadGraphF1:
    """Annotates both sides of every pair and compares the annotations.

    A pair with an empty text scores 0, whatever is on the other side, and so does a pair with a text without entities.

    Attributes:
        model_type: ``"radgraph"`` or ``"radgraph-xl"``.
        model_settings: How the model runs.
        rewards: By key a score of two annotations.
        rule: What the scores depend on besides the model.
    """

    model_type: ModelType
    model_settings: ModelSettings
    rewards: Mapping[str, Reward]
    rule: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of reports.

        Args:
            references: What radiologists wrote, shape (pairs,).
            hypotheses: What a model wrote, shape (pairs,).

        Raises:
            ValueError: The two differ in length.
            WeightsMissing: Archive or encoder is not on this machine, or cannot be read.
        """
        check_lengths(references, hypotheses)
        pairs = list(zip(references, hypotheses, strict=True))
        scored = [position for position, pair in enumerate(pairs) if all(pair)]
        found = RadGraph(self.model_type, self.model_settings).annotate(
            [text for position in scored for text in pairs[position]]
        )
        samples = {key: [0.0] * len(pairs) for key in self.rewards}
        for position, first, second in zip(scored, found[::2], found[1::2], strict=True):
            for key, reward in self.rewards.items():
                samples[key][position] = reward(first, second)
        settings = {"model": self.model_type, "dtype": self.model_settings.dtype, **self.rule}
        return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, settings)


def radgraph(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with the first RadGraph: keys ``radgraph_simple``, ``radgraph_partial``, ``radgraph_complete``.

    Args:
        settings: How the model runs.
        case_sensitive: Whether words are compared with case, as release 0.1.18 of the package does; its repository's
            head does not. See :mod:`medtasks.metrics.radgraph.rewards`.
    """
    return _f1("radgraph", "radgraph", settings, case_sensitive)


def radgraph_xl(settings: ModelSettings, *, case_sensitive: bool = True) -> ReportMetric:
    """Build RadGraph F1 with RadGraph-XL: keys ``radgraph_xl_simple`` and so on; see :func:`radgraph`."""
    return _f1("radgraph-xl", "radgraph_xl", settings, case_sensitive)


def radgraph_combined(settings: ModelSettings) -> ReportMetric:
    """Build CXR-Report-Metric's scores, which RadCliQ takes, with the first RadGraph.

    Keys: ``radgraph_combined``, the mean of ``radgraph_entity_f1`` and ``radgraph_relation_f1``. That repository cannot
    score an empty reference; here it scores 0.
    """
    keys: dict[str, Reward] = {
        "radgraph_combined": rewards.combined,
        "radgraph_entity_f1": rewards.entity_f1,
        "radgraph_relation_f1": rewards.relation_f1,
    }
    return RadGraphF1("radgraph", settings, keys)


def _f1(model_type: ModelType, prefix: str, settings: ModelSettings, case_sensitive: bool) -> ReportMetric:
    levels = {"simple": rewards.simple, "partial": rewards.partial, "complete": rewards.complete}
    keys: dict[str, Reward] = {
        f"{prefix}_{name}": bound(level, case_sensitive=case_sensitive) for name, level in levels.items()
    }
    return RadGraphF1(model_type, settings, keys, {"case_sensitive": "yes" if case_sensitive else "no"})
