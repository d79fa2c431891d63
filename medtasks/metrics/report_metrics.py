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
_NGRAMS, _KIT = "ngram_metrics", "medevalkit_texts"
_BERTSCORE = ("neural.bertscore", ("distilroberta-base",))
_CHEXBERT = ("neural.chexbert", ("chexbert", "bert-base-uncased"))
_RADGRAPH = ("neural.radgraph", ("radgraph", "pubmedbert"))
_RADCLIQ = ("neural.radcliq", (*_RADGRAPH[1], *_CHEXBERT[1], *_BERTSCORE[1]))
_RATE = ("neural.rate_score", ("rate-ner", "biolord", "rush-rules"))
_LABEL_SCORES = (
    *(
        f"{labels}_{average}_f1"
        for labels in ("14", "5")
        for average in ("micro", "macro", "weighted", "samples")
    ),
    "5_accuracy",
)


@dataclass(frozen=True)
class ReportScores:
    """Scores of pairs of texts: by key one value per pair, and one for all pairs, NaN for no pairs."""

    samples: Mapping[
        str, Sequence[float]
    ]  # shape (pairs,), in the order of the input, empty texts included
    totals: Mapping[str, float]
    settings: Mapping[str, str] = field(default_factory=dict)  # model, dtype, stemmer, ...
    counts: SummedCounts | None = None  # of totals that are no means


class ReportMetric(Protocol):
    """Scores hypotheses against references."""

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of reports; WeightsMissing for a model that is not on this machine."""
        ...


# Of the settings, the references and the hypotheses.
Compute = Callable[[ModelSettings, Sequence[str], Sequence[str]], ReportScores]


def mean_scores(
    samples: Mapping[str, Sequence[float]], settings: Mapping[str, str]
) -> ReportScores:
    """Return scores with the means as totals."""
    return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, settings)


@dataclass(frozen=True)
class MetricInfo:
    """One entry of :data:`REPORT_METRICS`."""

    name: str
    description: str
    keys: tuple[str, ...]  # of its scores
    module: str = (
        ""  # in this room, with a function of the metric's name; empty for one with ``compute``
    )
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
    """Return the keys of a metric's scores, each the prefix with an ending."""
    return tuple(f"{prefix}_{ending}" for ending in endings)


_ENTRIES = (
    MetricInfo(
        "bleu",
        "mean of sentence BLEU as MultiMedEval computes it",
        score_keys("bleu", "1", "2", "4"),
        _NGRAMS,
    ),
    MetricInfo(
        "corpus_bleu", "BLEU of the whole corpus by sacrebleu, 0 to 1", ("corpus_bleu",), _NGRAMS
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
        score_keys(
            "medevalkit",
            *(f"bleu_{order}" for order in "1234"),
            *(f"rouge_{kind}" for kind in "12l"),
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
        "meteor", "METEOR in NLTK's formula with WordNet", ("meteor",), "meteor", (WORDNET,)
    ),
    MetricInfo(
        "meteor_without_synonyms",
        "METEOR in NLTK's formula, exact words and stems only",
        ("meteor_without_synonyms",),
        "meteor",
    ),
    *(
        MetricInfo(
            name,
            description,
            (name, f"{name}_reference"),
            "cider",
            (TOKENIZER, *weights),
            scale=Scale.RAW,
        )
        for name, description, weights in (
            (
                "cider_coco",
                "CIDEr, 0 to 10, with document frequencies of COCO captions, as MedEvalKit",
                ("coco-val",),
            ),
            (
                "cider_d",
                "CIDEr-D, 0 to 10, as pycocoevalcap; values depend on all references of the call",
                (),
            ),
        )
    ),
    *(
        MetricInfo(name, description, (key, f"rescaled_{key}"), *_BERTSCORE, scale=Scale.RAW)
        for name, key, description in (
            (
                "bertscore",
                "bertscore_f1",
                "BERTScore F1 of distilroberta-base, layer 5, raw and rescaled",
            ),
            (
                "bertscore_multimedeval",
                "idf_bertscore_f1",
                "the same with idf over the hypotheses, as MultiMedEval",
            ),
        )
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
    *(
        MetricInfo(
            f"f1_{labels}",
            f"F1 of CheXbert's labels, {uncertain}",
            score_keys(labels, *_LABEL_SCORES),
            *_CHEXBERT,
        )
        for labels, uncertain in (
            ("chexbert", "uncertain as positive"),
            ("chexbert_certain", "uncertain as negative"),
        )
    ),
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
    *(
        MetricInfo(name, description, (name,), *_RADCLIQ, higher_is_better=False, scale=Scale.RAW)
        for name, description in (
            ("radcliq_v0", "RadCliQ v0 of CXR-Report-Metric"),
            ("radcliq_v1", "RadCliQ v1 of CXR-Report-Metric"),
            ("radcliq_v1_multimedeval", "RadCliQ v1 from MultiMedEval's inputs"),
        )
    ),
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
        ("rate_score_reference", *score_keys("rate_score", "short_reference", "0_5_0_reference")),
        *_RATE,
    ),
)
_REGISTERED: dict[str, MetricInfo] = {}
REPORT_METRICS: Mapping[str, MetricInfo] = MappingProxyType(_REGISTERED)
_KNOWN: dict[str, MetricInfo] = {}  # by name and by key


def register(info: MetricInfo) -> None:
    """Add a metric to :data:`REPORT_METRICS`; one of a later room is there once its module is imported."""
    _REGISTERED[info.name] = info
    for key in (*info.keys, info.name):
        _KNOWN[key] = info
    for key, (scale, higher) in info.further.items():
        _KNOWN[key] = replace(info, scale=scale, higher_is_better=higher)


for _entry in _ENTRIES:
    register(_entry)


def metric_info(name: str) -> MetricInfo:
    """Return one entry, by its name or by the key of one of its scores, or raise UnknownName."""
    if name not in _KNOWN:
        raise unknown_name("metric", name, _KNOWN, "medtasks metrics")
    return _KNOWN[name]


def keys_of(name: str) -> tuple[str, ...]:
    """Return the keys of a metric, or the name itself if it is a key, with its number of failures if it counts them."""
    info = metric_info(name)
    if info.name == name:
        return (*info.keys, *info.further)
    failed = f"{info.name}_failed"
    return tuple(dict.fromkeys((name, failed))) if failed in info.further else (name,)


def report_metric(name: str, settings: ModelSettings | None = None) -> ReportMetric:
    """Build one metric by name, by default with settings of the environment; it loads nothing until it scores."""
    info = metric_info(name)
    compute: Compute = info.compute or getattr(
        importlib.import_module(f"{__package__}.{info.module}"), info.name
    )
    settings = settings or ModelSettings.from_environment()

    def score_pairs(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        if len(references) != len(hypotheses):
            raise ValueError(
                f"{len(references)} references and {len(hypotheses)} hypotheses do not come in pairs"
            )
        return compute(settings, references, hypotheses)

    return score_pairs
