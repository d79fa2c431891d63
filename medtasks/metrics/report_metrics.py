"""The metrics of report texts by name."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from medtasks.errors import unknown_name
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_scores import ReportMetric


@dataclass(frozen=True)
class MetricInfo:
    """One entry of :data:`REPORT_METRICS`.

    Attributes:
        name: Name used on the command line.
        description: One line.
        keys: Keys of its scores.
        factory: ``module:callable``; called with :class:`ModelSettings` it returns the metric.
        weights: Entries of :data:`medtasks.metrics.weights.WEIGHTS` it needs.
        wordnet: Whether it needs WordNet, which ``medtasks weights fetch wordnet`` brings.
        higher_is_better: Orientation of all its keys.
    """

    name: str
    description: str
    keys: tuple[str, ...]
    factory: str
    weights: tuple[str, ...] = ()
    wordnet: bool = False
    higher_is_better: bool = True


_CHEXBERT = ("chexbert", "bert-base-uncased")
_RADGRAPH = ("radgraph", "pubmedbert")
_ROBERTA = ("distilroberta-base",)


def _chexbert_keys(prefix: str) -> tuple[str, ...]:
    averages = ("micro", "macro", "weighted", "samples")
    f1 = (f"{prefix}_{labels}_{average}_f1" for labels in ("14", "5") for average in averages)
    return (*f1, f"{prefix}_5_accuracy")


REPORT_METRICS: Mapping[str, MetricInfo] = MappingProxyType(
    {
        info.name: info
        for info in (
            MetricInfo(
                "bleu",
                "mean of sentence BLEU as MultiMedEval computes it",
                ("bleu_1", "bleu_2", "bleu_4"),
                "medtasks.metrics.report_bleu:sentence_bleu",
            ),
            MetricInfo(
                "corpus_bleu",
                "BLEU of the whole corpus by sacrebleu, 0 to 1",
                ("corpus_bleu",),
                "medtasks.metrics.report_bleu:corpus_bleu",
            ),
            MetricInfo(
                "radcliq_bleu",
                "BLEU-2 as CXR-Report-Metric computes it",
                ("radcliq_bleu_2",),
                "medtasks.metrics.report_bleu:radcliq_bleu",
            ),
            MetricInfo(
                "medheval_bleu",
                "mean of sentence BLEU-4, smoothed by method 4, as MedHEval",
                ("method4_bleu",),
                "medtasks.metrics.answer_texts:medheval_bleu",
            ),
            MetricInfo(
                "rouge",
                "ROUGE F1 without stemmer, as MultiMedEval",
                ("rouge_1", "rouge_2", "rouge_l"),
                "medtasks.metrics.rouge:rouge",
            ),
            MetricInfo(
                "rouge_stemmed",
                "ROUGE F1 with Porter's stemmer",
                ("stemmed_rouge_1", "stemmed_rouge_2", "stemmed_rouge_l"),
                "medtasks.metrics.rouge:stemmed_rouge",
            ),
            MetricInfo(
                "meteor",
                "METEOR in NLTK's formula with WordNet",
                ("meteor",),
                "medtasks.metrics.meteor:meteor",
                wordnet=True,
            ),
            MetricInfo(
                "meteor_without_synonyms",
                "METEOR in NLTK's formula, exact words and stems only",
                ("meteor_without_synonyms",),
                "medtasks.metrics.meteor:meteor_without_synonyms",
            ),
            MetricInfo(
                "bertscore",
                "BERTScore F1 of distilroberta-base, layer 5, raw and rescaled",
                ("bertscore_f1", "rescaled_bertscore_f1"),
                "medtasks.metrics.bertscore.metric:bertscore",
                _ROBERTA,
            ),
            MetricInfo(
                "bertscore_multimedeval",
                "the same with idf over the hypotheses, as MultiMedEval",
                ("idf_bertscore_f1", "rescaled_idf_bertscore_f1"),
                "medtasks.metrics.bertscore.metric:bertscore_multimedeval",
                _ROBERTA,
            ),
            MetricInfo(
                "medheval_bertscore",
                "BERTScore of roberta-large, layer 17, raw and without idf, as MedHEval",
                ("roberta_large_precision", "roberta_large_recall", "roberta_large_f1"),
                "medtasks.metrics.answer_texts:medheval_bertscore",
                ("roberta-large",),
            ),
            MetricInfo(
                "chexbert",
                "cosine of CheXbert's vectors",
                ("chexbert_similarity",),
                "medtasks.metrics.chexbert.metric:chexbert_similarity",
                _CHEXBERT,
            ),
            MetricInfo(
                "f1_chexbert",
                "F1 of CheXbert's labels, uncertain as positive",
                _chexbert_keys("chexbert"),
                "medtasks.metrics.chexbert.metric:f1_chexbert",
                _CHEXBERT,
            ),
            MetricInfo(
                "f1_chexbert_certain",
                "F1 of CheXbert's labels, uncertain as negative",
                _chexbert_keys("chexbert_certain"),
                "medtasks.metrics.chexbert.metric:f1_chexbert_certain",
                _CHEXBERT,
            ),
            MetricInfo(
                "radgraph",
                "RadGraph F1",
                ("radgraph_simple", "radgraph_partial", "radgraph_complete"),
                "medtasks.metrics.radgraph.metric:radgraph",
                _RADGRAPH,
            ),
            MetricInfo(
                "radgraph_xl",
                "RadGraph F1 with RadGraph-XL",
                ("radgraph_xl_simple", "radgraph_xl_partial", "radgraph_xl_complete"),
                "medtasks.metrics.radgraph.metric:radgraph_xl",
                ("radgraph-xl", "cxr-bert"),
            ),
            MetricInfo(
                "radgraph_combined",
                "mean of entity and relation F1, as CXR-Report-Metric",
                ("radgraph_combined", "radgraph_entity_f1", "radgraph_relation_f1"),
                "medtasks.metrics.radgraph.metric:radgraph_combined",
                _RADGRAPH,
            ),
            *(
                MetricInfo(
                    name,
                    description,
                    (name,),
                    f"medtasks.metrics.radcliq:{name}",
                    (*_RADGRAPH, *_CHEXBERT, *_ROBERTA),
                    higher_is_better=False,
                )
                for name, description in (
                    ("radcliq_v0", "RadCliQ v0 of CXR-Report-Metric"),
                    ("radcliq_v1", "RadCliQ v1 of CXR-Report-Metric"),
                    ("radcliq_v1_multimedeval", "RadCliQ v1 from MultiMedEval's inputs"),
                )
            ),
        )
    }
)


def metric_info(name: str) -> MetricInfo:
    """Look up one entry, by its name or by the key of one of its scores.

    Raises:
        UnknownName: There is no such metric.
    """
    found = REPORT_METRICS.get(name) or _owners().get(name)
    if found is None:
        raise unknown_name("metric", name, {*REPORT_METRICS, *_owners()}, "medtasks metrics")
    return found


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys that a name asks for: all of a metric, or the one that it is.

    Raises:
        UnknownName: There is no such metric.

    Example:
        >>> keys_of("rouge"), keys_of("rouge_l")
        (('rouge_1', 'rouge_2', 'rouge_l'), ('rouge_l',))
    """
    found = metric_info(name)
    return found.keys if found.name == name else (name,)


@cache
def _owners() -> Mapping[str, MetricInfo]:
    return {key: info for info in REPORT_METRICS.values() for key in info.keys}


def report_metric(name: str, settings: ModelSettings | None = None) -> ReportMetric:
    """Build one metric; nothing is loaded until it scores.

    Args:
        name: Entry of :data:`REPORT_METRICS`.
        settings: How its models are run; None: as the environment says.

    Raises:
        UnknownName: There is no such metric.
    """
    module, _, attribute = metric_info(name).factory.partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    built: ReportMetric = factory(settings or ModelSettings.from_environment())
    return built
