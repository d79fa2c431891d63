"""The metrics of report texts: each is an entry here, and a function of its name in the module that the entry names.

A metric that asks a judge is registered by its own module in the room of judges.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from medtasks.errors import unknown_name
from medtasks.metrics.metric import Scale, mean
from medtasks.metrics.model_settings import TOKENIZER, WORDNET, ModelSettings
from medtasks.stats.exchange import SummedCounts

# Modules of metrics, and the weights that they need.
_NGRAMS = "ngram_metrics"
_KIT = "medevalkit_texts"
_BERTSCORE = ("neural.bertscore", ("distilroberta-base",))
_CHEXBERT = ("neural.chexbert", ("chexbert", "bert-base-uncased"))
_RADGRAPH = ("neural.radgraph", ("radgraph", "pubmedbert"))
_RADCLIQ = ("neural.radcliq", (*_RADGRAPH[1], *_CHEXBERT[1], *_BERTSCORE[1]))
_RATE = ("neural.rate_score", ("rate-ner", "biolord", "rush-rules"))
_LABEL_SCORES = (
    "14_micro_f1",
    "14_macro_f1",
    "14_weighted_f1",
    "14_samples_f1",
    "5_micro_f1",
    "5_macro_f1",
    "5_weighted_f1",
    "5_samples_f1",
    "5_accuracy",
)

Texts = Sequence[str]
"""Texts of one side of the pairs, shape (pairs,)."""


@dataclass(frozen=True)
class ReportScores:
    """Scores of pairs of texts: by key one value per pair, and one for all pairs, NaN for no pairs."""

    # shape (pairs,), in the order of the input, empty texts included
    samples: Mapping[str, Sequence[float]]
    totals: Mapping[str, float]
    settings: Mapping[str, str] = field(default_factory=dict)  # model, dtype, stemmer, ...
    counts: SummedCounts | None = None  # of totals that are no means


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
    weights: tuple[
        str, ...
    ] = ()  # required entries of medtasks.metrics.model_settings.WEIGHTS; WORDNET, TOKENIZER
    higher_is_better: bool = True
    scale: Scale = Scale.SHARE
    asks_judge: bool = False  # whether it asks the judge of the environment
    compute: Compute | None = None  # of a metric of a later room
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


def _cider_info(
    name: str,
    description: str,
    *weights: str,
) -> MetricInfo:
    keys = (name, f"{name}_reference")
    return MetricInfo(name, description, keys, "cider", (TOKENIZER, *weights), scale=Scale.RAW)


def _bertscore_info(
    name: str,
    key: str,
    description: str,
) -> MetricInfo:
    return MetricInfo(name, description, (key, f"rescaled_{key}"), *_BERTSCORE, scale=Scale.RAW)


def _label_info(labels: str, uncertain: str) -> MetricInfo:
    description = f"F1 of CheXbert's labels, {uncertain}"
    return MetricInfo(
        f"f1_{labels}", description, score_keys(labels, *_LABEL_SCORES), *_CHEXBERT
    )


def _radcliq_info(name: str, description: str) -> MetricInfo:
    return MetricInfo(
        name,
        description,
        (name,),
        *_RADCLIQ,
        higher_is_better=False,
        scale=Scale.RAW,
    )


_ENTRIES = (
    MetricInfo(
        "bleu",
        "mean of sentence BLEU as MultiMedEval computes it",
        score_keys("bleu", "1", "2", "4"),
        _NGRAMS,
    ),
    MetricInfo(
        "corpus_bleu",
        "BLEU of the whole corpus by sacrebleu, 0 to 1",
        ("corpus_bleu",),
        _NGRAMS,
    ),
    MetricInfo(
        "radcliq_bleu",
        "BLEU-2 as CXR-Report-Metric computes it",
        ("radcliq_bleu_2",),
        _NGRAMS,
        scale=Scale.RAW,
    ),
    MetricInfo(
        "medheval_bleu",
        "mean of sentence BLEU-4, smoothed by method 4, as MedHEval",
        ("method4_bleu",),
        _NGRAMS,
    ),
    MetricInfo(
        "medevalkit_lexical",
        "sentence BLEU and ROUGE F1 of sets of n-grams, as MedEvalKit",
        (
            *score_keys("medevalkit_bleu", "1", "2", "3", "4"),
            *score_keys("medevalkit_rouge", "1", "2", "l"),
        ),
        _KIT,
    ),
    MetricInfo(
        "medevalkit_meteor",
        "METEOR on MedEvalKit's words, with WordNet",
        ("medevalkit_meteor",),
        _KIT,
        (WORDNET,),
    ),
    MetricInfo(
        "rouge",
        "ROUGE F1 without stemmer, as MultiMedEval",
        score_keys("rouge", "1", "2", "l"),
        _NGRAMS,
    ),
    MetricInfo(
        "rouge_stemmed",
        "ROUGE F1 with Porter's stemmer",
        score_keys("stemmed_rouge", "1", "2", "l"),
        _NGRAMS,
    ),
    MetricInfo(
        "meteor",
        "METEOR in NLTK's formula with WordNet",
        ("meteor",),
        "meteor",
        (WORDNET,),
    ),
    MetricInfo(
        "meteor_without_synonyms",
        "METEOR in NLTK's formula, exact words and stems only",
        ("meteor_without_synonyms",),
        "meteor",
    ),
    _cider_info(
        "cider_coco",
        "CIDEr, 0 to 10, with document frequencies of COCO captions, as MedEvalKit",
        "coco-val",
    ),
    _cider_info(
        "cider_d",
        "CIDEr-D, 0 to 10, as pycocoevalcap; values depend on all references of the call",
    ),
    _bertscore_info(
        "bertscore",
        "bertscore_f1",
        "BERTScore F1 of distilroberta-base, layer 5, raw and rescaled",
    ),
    _bertscore_info(
        "bertscore_multimedeval",
        "idf_bertscore_f1",
        "the same with idf over the hypotheses, as MultiMedEval",
    ),
    MetricInfo(
        "medheval_bertscore",
        "BERTScore of roberta-large, layer 17, raw and without idf, as MedHEval",
        score_keys("roberta_large", "precision", "recall", "f1"),
        _BERTSCORE[0],
        ("roberta-large",),
        scale=Scale.RAW,
    ),
    MetricInfo(
        "chexbert",
        "cosine of CheXbert's vectors",
        ("chexbert_similarity",),
        *_CHEXBERT,
        scale=Scale.RAW,
    ),
    _label_info("chexbert", "uncertain as positive"),
    _label_info("chexbert_certain", "uncertain as negative"),
    MetricInfo(
        "radgraph",
        "RadGraph F1",
        score_keys("radgraph", "simple", "partial", "complete"),
        *_RADGRAPH,
    ),
    MetricInfo(
        "radgraph_xl",
        "RadGraph F1 with RadGraph-XL",
        score_keys("radgraph_xl", "simple", "partial", "complete"),
        _RADGRAPH[0],
        ("radgraph-xl", "cxr-bert"),
    ),
    MetricInfo(
        "radgraph_combined",
        "mean of entity and relation F1, as CXR-Report-Metric",
        score_keys("radgraph", "combined", "entity_f1", "relation_f1"),
        *_RADGRAPH,
    ),
    _radcliq_info("radcliq_v0", "RadCliQ v0 of CXR-Report-Metric"),
    _radcliq_info("radcliq_v1", "RadCliQ v1 of CXR-Report-Metric"),
    _radcliq_info("radcliq_v1_multimedeval", "RadCliQ v1 from MultiMedEval's inputs"),
    MetricInfo(
        "rate_score",
        "RaTEScore of each report with its own reference, with the long and short weights of 0.6.0 and those of 0.5.0, "
        "and the share of pairs that have a score",
        ("rate_score", *score_keys("rate_score", "short", "0_5_0", "scored")),
        *_RATE,
    ),
    MetricInfo(
        "rate_score_reference",
        "RaTEScore as its code returns it: later reports move up after an empty one, 0.5 without entities",
        (
            "rate_score_reference",
            *score_keys("rate_score", "short_reference", "0_5_0_reference"),
        ),
        *_RATE,
    ),
)
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


for _entry in _ENTRIES:
    register(_entry)


def metric_info(name: str) -> MetricInfo:
    """Return one entry of :data:`REPORT_METRICS`.

    Args:
        name: Its name, or the key of one of its scores.

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
        All keys of a metric. For a key, that key, with the metric's number of failures if it counts them.

    Example:
        >>> keys_of("bleu")
        ('bleu_1', 'bleu_2', 'bleu_4')
    """
    info = metric_info(name)
    if info.name == name:
        return (*info.keys, *info.further)
    failed = f"{info.name}_failed"
    return tuple(dict.fromkeys((name, failed))) if failed in info.further else (name,)


def report_metric(
    name: str,
    settings: ModelSettings | None = None,
) -> ReportMetric:
    """Build one metric. It loads nothing until it scores.

    Args:
        name: Name of the metric, or key of one of its scores.
        settings: Settings of its model, by default those of the environment.

    Raises:
        UnknownName: No metric has this name or key.
        MedTasksError: The settings of the environment are unknown.
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
