"""ROUGE against rouge-score and published values."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from medtasks.errors import MedTasksError
from medtasks.metrics import ngram_metrics, overlaps
from medtasks.metrics.ngram_metrics import rouge_scores
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row
from .test_report_bleu import PAIRS

WORDS = ["effusion", "effusions", "The", "no", "No", "enlarged", "enlarging", "2.5cm", "x-ray", "sky", "skies", "", "é"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=25)


@pytest.mark.parametrize("stemmed", [False, True], ids=["whole", "stemmed"])
@given(reference=TEXTS, hypothesis=TEXTS)
@example("K ſ İ", "k s i̇")
@example("no effusion no", "no no effusion no")
def test_is_rouge_score(stemmed, reference, hypothesis):
    theirs = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmed).score(reference, hypothesis)
    assert rouge_scores(reference, hypothesis, stemmed=stemmed) == theirs


def test_published_values_of_radeval():
    scores = [rouge_scores(reference, hypothesis, stemmed=True) for reference, hypothesis in PAIRS]
    first = [1, 0.5454545454545454, 0, 0.06666666666666667, 0]
    for kind, wanted in (("rouge1", first), ("rouge2", [1, 0.3, 0, 0, 0]), ("rougeL", first)):
        assert [pair[kind].fmeasure for pair in scores] == pytest.approx(wanted, abs=1e-12)


def test_precision_is_of_the_hypothesis():
    score = rouge_scores("a b c d", "a b", stemmed=False)["rouge1"]
    assert (score.precision, score.recall) == (1, 0.5)


def test_stems():
    # Words of more than three characters only: the stem of "sees" is "see", "was" keeps its s.
    assert rouge_scores("Skies; sees 10mm", "sky see 10mm", stemmed=True)["rouge1"].fmeasure == 1
    assert rouge_scores("was", "wa", stemmed=True)["rouge1"].fmeasure == 0
    same = report_metric("rouge_stemmed")(references=["pleural effusions"], hypotheses=["pleural effusion"])
    apart = report_metric("rouge")(references=["pleural effusions"], hypotheses=["pleural effusion"])
    assert same.totals == {"stemmed_rouge_1": 1, "stemmed_rouge_2": 1, "stemmed_rouge_l": 1}
    assert apart.totals == {"rouge_1": 0.5, "rouge_2": 0, "rouge_l": 0.5}
    assert (same.settings["stemmer"], apart.settings["stemmer"]) == ("Porter", "none")


@each_row("text", ["", " \n", "…", "胸部", "é" * 3])
def test_texts_without_words_score_nothing(text):
    scores = report_metric("rouge")(references=[text, text, "left"], hypotheses=[text, "left", text])
    assert all(repr(values) == "[0.0, 0.0, 0.0]" for values in scores.samples.values())


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nltk.stem.porter", None)
    overlaps.porter_stemmer.cache_clear()
    ngram_metrics._rouge_scorer.cache_clear()
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        rouge_scores("effusions", "effusion", stemmed=True)
    assert rouge_scores("effusion", "effusion", stemmed=False)["rouge1"].fmeasure == 1
