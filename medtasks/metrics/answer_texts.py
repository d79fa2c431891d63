"""The text metrics of MedHEval's open tasks, in the flavours of its code.

Source: ``code/evaluation/open_ended_evaluation/generation_metrics.py`` of https://github.com/Aofei-Chang/MedHEval at
7f7d980. All are means over pairs, between 0 and 1 (the paper prints them times 100). Its METEOR is
:func:`medtasks.metrics.meteor.meteor` and its ROUGE :func:`medtasks.metrics.rouge.stemmed_rouge`; the code hands
prediction and key to the latter in the wrong order, which F1 does not notice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from medtasks.metrics.bertscore.metric import BertScore
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.pair_scores import PairMetric
from medtasks.metrics.report_bleu import nltk_method4_bleu
from medtasks.metrics.report_scores import ReportMetric, ReportScores, mean
from medtasks.metrics.word_tokens import TOKENISER, word_tokens

ENCODER, LAYER = "roberta-large", 17  # what bert-score 0.3.13 takes for lang="en"


@dataclass(frozen=True)
class RawBertScore:
    """Precision, recall and F1 of BERTScore, neither rescaled nor weighted.

    Attributes:
        scorer: What matches tokens.
    """

    scorer: BertScore

    def __call__(self, *, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
        """Score pairs of texts; see :meth:`BertScore.score` for what it raises."""
        found = self.scorer.score(references=references, hypotheses=hypotheses)
        samples = {
            "roberta_large_precision": found.precision,
            "roberta_large_recall": found.recall,
            "roberta_large_f1": found.f1,
        }
        settings = {
            "encoder": self.scorer.encoder,
            "layer": str(self.scorer.layer),
            "idf": "none",
            "rescaled": "no",
            "dtype": self.scorer.dtype,
        }
        return ReportScores(samples, {key: mean(values) for key, values in samples.items()}, settings)


def medheval_bertscore(settings: ModelSettings) -> ReportMetric:
    """Return the metric with keys ``roberta_large_precision``, ``_recall`` and ``_f1``."""
    return RawBertScore(BertScore(ENCODER, LAYER, settings))


def medheval_bleu(_: ModelSettings) -> ReportMetric:
    """Return the metric with key ``method4_bleu``: mean of sentence BLEU-4, smoothed by method 4, over NLTK's words."""

    def score(reference: str, hypothesis: str) -> tuple[float]:
        return (nltk_method4_bleu(word_tokens(reference), word_tokens(hypothesis)),)

    return PairMetric(("method4_bleu",), score, {"words": TOKENISER, "smoothing": "method 4", "case": "kept"})
