"""RadCliQ: radiologists' count of errors in a report, predicted from four metrics. Lower is better.

Source: Yu et al., "Evaluating progress in automatic chest X-ray radiology report generation" (Patterns, 2023), and the
models of its repository, rajpurkarlab/CXR-Report-Metric at 9c9ecad, written down here as numbers:
``normalizer.pkl`` and ``composite_metric_model.pkl`` (v0, fitted on 200 pairs), ``radcliq-v1.pkl`` (v1, 160 pairs).
Values of the two versions are not comparable, and neither are values of one version from different inputs.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores, report_metric

_NEEDED_WEIGHTS = ("radgraph", "chexbert", "distilroberta-base")


# Report metrics and keys of the inputs, in the order of RadCliQInputs, as CXR-Report-Metric at 9c9ecad computes them.
CXR_REPORT_METRIC = {
    "radgraph_combined": "radgraph_combined",
    "bertscore": "rescaled_bertscore_f1",
    "chexbert": "chexbert_similarity",
    "radcliq_bleu": "radcliq_bleu_2",
}
# As MultiMedEval at d9ac283 computes them.
MULTIMEDEVAL = {
    "radgraph": "radgraph_partial",
    "bertscore_multimedeval": "rescaled_idf_bertscore_f1",
    "chexbert": "chexbert_similarity",
    "bleu": "bleu_2",
}


class RadCliQInputs(NamedTuple):
    """The four metrics of one pair, in the order of the published models. For all of them higher is better.

    RadGraph F1, 0..1; BERTScore F1, rescaled, so that it can be negative; cosine of CheXbert's vectors, -1..1; BLEU-2,
    0..1, which has no weight in v1, and counts as an error in v0.
    """

    radgraph: float
    bertscore: float
    similarity: float
    bleu_2: float


@dataclass(frozen=True)
class RadCliQModel:
    """A linear model over standardised inputs: intercept + sum of coefficient * (input - mean) / scale."""

    means: RadCliQInputs
    scales: RadCliQInputs
    coefficients: RadCliQInputs
    intercept: float

    def score(self, inputs: Sequence[float]) -> float:
        """Return RadCliQ of one pair: about -1 to 6, lower is better.

        Args:
            inputs: Four values in the order of :class:`RadCliQInputs`.
        """
        terms = zip(inputs, self.means, self.scales, self.coefficients, strict=True)
        return self.intercept + sum(
            (value - mean) / scale * weight for value, mean, scale, weight in terms
        )


RADCLIQ_V0 = RadCliQModel(
    means=RadCliQInputs(
        0.5398376019082272, 0.6312549595000001, 0.7716797866672277, 0.4607372064809605
    ),
    scales=RadCliQInputs(
        0.3018344440559102, 0.22466950746141123, 0.24750333805236252, 0.30336670936092264
    ),
    coefficients=RadCliQInputs(
        -0.4796252644863446, -0.6762170542369337, -0.46366575161751994, 0.2165861905287535
    ),
    intercept=1.641666666666666,
)
RADCLIQ_V1 = RadCliQModel(
    means=RadCliQInputs(
        0.5379231241355762, 0.6175725628125001, 0.7647942121140658, 0.44738335396242174
    ),
    scales=RadCliQInputs(
        0.3028258411486429, 0.22430938459304575, 0.2539439110169773, 0.2989271671041838
    ),
    coefficients=RadCliQInputs(
        -0.37708368261038905, -0.37030009974480316, -0.25261621789593225, 4.315048405024756e-12
    ),
    intercept=2.466552561323256e-10,
)


def radcliq_v1(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    key: str = "radcliq_v1",
    model: RadCliQModel = RADCLIQ_V1,
    sources: Mapping[str, str] = CXR_REPORT_METRIC,
) -> ReportScores:
    """Score RadCliQ, by default v1 from the inputs of CXR-Report-Metric.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        key: Key of the scores.
        model: Coefficients, of v1 or v0.
        sources: Keys of the four inputs by the metric that has them, in the order of :class:`RadCliQInputs`.

    Returns:
        Values by pair, and their mean. Lower is better.

    Raises:
        WeightsMissing: Weights of one of the four metrics are not on this machine.
    """
    for name in _NEEDED_WEIGHTS:  # missing weights raise before any model runs
        settings.find_weights(name)
    facts = {"orientation": "lower is better"}
    columns = []
    for name, (source, source_key) in zip(RadCliQInputs._fields, sources.items(), strict=True):
        reference_texts = references
        hypothesis_texts = hypotheses
        if source == "bertscore":
            # CXR-Report-Metric's BERTScore sees runs of spaces as one.
            reference_texts = [re.sub(" +", " ", text) for text in references]
            hypothesis_texts = [re.sub(" +", " ", text) for text in hypotheses]
        score_pairs = report_metric(source, settings)
        scores = score_pairs(references=reference_texts, hypotheses=hypothesis_texts)
        facts[name] = source_key
        for setting, value in scores.settings.items():
            facts[f"{name}.{setting}"] = value
        columns.append(scores.samples[source_key])
    values = list(map(model.score, zip(*columns, strict=True)))
    return mean_scores({key: values}, facts)


radcliq_v0 = partial(radcliq_v1, key="radcliq_v0", model=RADCLIQ_V0)
# MultiMedEval's has inputs of its own, and only the mean over a whole set is its number: BERTScore weighs tokens by
# their frequency in the hypotheses of the call, so that a pair's score depends on the others.
radcliq_v1_multimedeval = partial(
    radcliq_v1, key="radcliq_v1_multimedeval", sources=MULTIMEDEVAL
)
