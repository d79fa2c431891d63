"""MedHEval's flavours of text metrics."""

import math

import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from medtasks.metrics.answer_texts import ENCODER, LAYER, RawBertScore, medheval_bertscore
from medtasks.metrics.bertscore.scores import BertScores
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import report_metric
from medtasks.metrics.word_tokens import word_tokens

SETTINGS = ModelSettings(cache=None, progress=False)
PAIRS = [
    ("The heart is enlarged, and the lungs are clear.", "The heart is enlarged, and the lungs are clear."),
    ("Opacities suggest chronic pneumonia.", "Opacities may indicate infection or pneumonia."),
    ("Opacities suggest chronic pneumonia.", "opacities suggest chronic pneumonia"),
    ("Herzgröße normal.", "Heart size normal."),
    ("Rest.", "Surgery"),
    ("Rest.", ""),
]


def test_bleu_is_nltk_s_with_method_4():
    scores = report_metric("medheval_bleu", SETTINGS)(
        references=[key for key, _ in PAIRS], hypotheses=[reply for _, reply in PAIRS]
    )
    expected = [
        sentence_bleu([word_tokens(key)], word_tokens(reply), smoothing_function=SmoothingFunction().method4)
        if reply
        else 0.0
        for key, reply in PAIRS
    ]
    assert scores.samples["method4_bleu"] == pytest.approx(expected, abs=1e-12)
    assert scores.totals["method4_bleu"] == pytest.approx(sum(expected) / len(expected))
    assert scores.settings["smoothing"] == "method 4"


def test_no_pairs():
    assert math.isnan(report_metric("medheval_bleu", SETTINGS)(references=[], hypotheses=[]).totals["method4_bleu"])


class Scorer:
    encoder, layer, dtype = "roberta-large", 17, "float32"

    def score(self, *, references, hypotheses):
        assert len(references) == len(hypotheses)
        return BertScores((0.5, 0.7), (0.25, 0.75), (1 / 3, 0.72))


def test_bertscore_is_neither_rescaled_nor_weighted():
    scores = RawBertScore(Scorer())(references=["a", "b"], hypotheses=["c", "d"])
    assert scores.totals == pytest.approx(
        {"roberta_large_precision": 0.6, "roberta_large_recall": 0.5, "roberta_large_f1": (1 / 3 + 0.72) / 2}
    )
    assert (scores.settings["idf"], scores.settings["rescaled"]) == ("none", "no")


def test_bertscore_takes_what_the_package_takes_for_english():
    from bert_score.utils import lang2model, model2layers

    assert (lang2model["en"], model2layers[lang2model["en"]]) == (ENCODER, LAYER)
    metric = medheval_bertscore(SETTINGS)
    assert (metric.scorer.encoder, metric.scorer.layer) == (ENCODER, LAYER)
