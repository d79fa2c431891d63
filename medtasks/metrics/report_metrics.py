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
        factory: ``module:callable`` below ``medtasks.metrics``; called with :class:`ModelSettings` it returns the
            metric.
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
_RADCLIQ = (*_RADGRAPH, *_CHEXBERT, *_ROBERTA)


def _chexbert_keys(prefix: str) -> tuple[str, ...]:
    averages = ("micro", "macro", "weighted", "samples")
    f1 = (f"{prefix}_{labels}_{average}_f1" for labels in ("14", "5") for average in averages)
    return (*f1, f"{prefix}_5_accuracy")


def _keys(prefix: str, *endings: str) -> tuple[str, ...]:
    return tuple(f"{prefix}_{ending}" for ending in endings)


_ENTRIES = (
    MetricInfo(
        "bleu", "mean of sentence BLEU as MultiMedEval computes it", _keys("bleu", "1", "2", "4"), "bleu:sentence_bleu"
    ),
    MetricInfo("corpus_bleu", "BLEU of the whole corpus by sacrebleu, 0 to 1", ("corpus_bleu",), "bleu:corpus_bleu"),
    MetricInfo("radcliq_bleu", "BLEU-2 as CXR-Report-Metric computes it", ("radcliq_bleu_2",), "bleu:radcliq_bleu"),
    MetricInfo(
        "medheval_bleu",
        "mean of sentence BLEU-4, smoothed by method 4, as MedHEval",
        ("method4_bleu",),
        "bleu:medheval_bleu",
    ),
    MetricInfo("rouge", "ROUGE F1 without stemmer, as MultiMedEval", _keys("rouge", "1", "2", "l"), "rouge:rouge"),
    MetricInfo(
        "rouge_stemmed", "ROUGE F1 with Porter's stemmer", _keys("stemmed_rouge", "1", "2", "l"), "rouge:stemmed_rouge"
    ),
    MetricInfo("meteor", "METEOR in NLTK's formula with WordNet", ("meteor",), "meteor:meteor", wordnet=True),
    MetricInfo(
        "meteor_without_synonyms",
        "METEOR in NLTK's formula, exact words and stems only",
        ("meteor_without_synonyms",),
        "meteor:meteor_without_synonyms",
    ),
    MetricInfo(
        "bertscore",
        "BERTScore F1 of distilroberta-base, layer 5, raw and rescaled",
        ("bertscore_f1", "rescaled_bertscore_f1"),
        "neural.bertscore.metric:bertscore",
        _ROBERTA,
    ),
    MetricInfo(
        "bertscore_multimedeval",
        "the same with idf over the hypotheses, as MultiMedEval",
        ("idf_bertscore_f1", "rescaled_idf_bertscore_f1"),
        "neural.bertscore.metric:bertscore_multimedeval",
        _ROBERTA,
    ),
    MetricInfo(
        "medheval_bertscore",
        "BERTScore of roberta-large, layer 17, raw and without idf, as MedHEval",
        _keys("roberta_large", "precision", "recall", "f1"),
        "neural.bertscore.metric:medheval_bertscore",
        ("roberta-large",),
    ),
    MetricInfo(
        "chexbert",
        "cosine of CheXbert's vectors",
        ("chexbert_similarity",),
        "neural.chexbert.reader:chexbert_similarity",
        _CHEXBERT,
    ),
    MetricInfo(
        "f1_chexbert",
        "F1 of CheXbert's labels, uncertain as positive",
        _chexbert_keys("chexbert"),
        "neural.chexbert.reader:f1_chexbert",
        _CHEXBERT,
    ),
    MetricInfo(
        "f1_chexbert_certain",
        "F1 of CheXbert's labels, uncertain as negative",
        _chexbert_keys("chexbert_certain"),
        "neural.chexbert.reader:f1_chexbert_certain",
        _CHEXBERT,
    ),
    MetricInfo(
        "radgraph",
        "RadGraph F1",
        _keys("radgraph", "simple", "partial", "complete"),
        "neural.radgraph.model:radgraph",
        _RADGRAPH,
    ),
    MetricInfo(
        "radgraph_xl",
        "RadGraph F1 with RadGraph-XL",
        _keys("radgraph_xl", "simple", "partial", "complete"),
        "neural.radgraph.model:radgraph_xl",
        ("radgraph-xl", "cxr-bert"),
    ),
    MetricInfo(
        "radgraph_combined",
        "mean of entity and relation F1, as CXR-Report-Metric",
        _keys("radgraph", "combined", "entity_f1", "relation_f1"),
        "neural.radgraph.model:radgraph_combined",
        _RADGRAPH,
    ),
    *(
        MetricInfo(name, description, (name,), f"neural.radcliq:{name}", _RADCLIQ, higher_is_better=False)
        for name, description in (
            ("radcliq_v0", "RadCliQ v0 of CXR-Report-Metric"),
            ("radcliq_v1", "RadCliQ v1 of CXR-Report-Metric"),
            ("radcliq_v1_multimedeval", "RadCliQ v1 from MultiMedEval's inputs"),
        )
    ),
)
REPORT_METRICS: Mapping[str, MetricInfo] = MappingProxyType({info.name: info for info in _ENTRIES})


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
    factory = getattr(importlib.import_module(f"medtasks.metrics.{module}"), attribute)
    built: ReportMetric = factory(settings or ModelSettings.from_environment())
    return built
