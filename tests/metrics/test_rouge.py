"""ROUGE against rouge-score and published values."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medtasks.errors import MedTasksError
from medtasks.metrics import words
from medtasks.metrics.report_metrics import report_metric
from medtasks.metrics.rouge import longest_common_subsequence, rouge_scores, rouge_words

from .test_report_bleu import PAIRS

WORDS = ["effusion", "effusions", "The", "no", "No", "enlarged", "enlarging", "2.5cm", "x-ray", "sky", "skies", "", "é"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join) | st.text(max_size=25)
ALPHABET = st.lists(st.sampled_from("abcd"), max_size=12)


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "stemmed"])
def stemmed(request):
    return request.param


@pytest.fixture(scope="module")
def scorer(stemmed):
    package = pytest.importorskip("rouge_score.rouge_scorer")
    return package.RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmed)


@given(reference=TEXTS, hypothesis=TEXTS)
@example("K ſ İ", "k s i̇")
@example("no effusion no", "no no effusion no")
def test_is_rouge_score(stemmed, scorer, reference, hypothesis):
    ours = rouge_scores(reference, hypothesis, stemmed=stemmed)
    theirs = scorer.score(reference, hypothesis)
    for one, other in ((ours.rouge_1, "rouge1"), (ours.rouge_2, "rouge2"), (ours.rouge_l, "rougeL")):
        assert (one.precision, one.recall, one.f1) == pytest.approx(tuple(theirs[other]), rel=0, abs=1e-12)


def table_length(first, second):
    lengths = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for row, one in enumerate(first):
        for column, other in enumerate(second):
            longest = max(lengths[row][column + 1], lengths[row + 1][column])
            lengths[row + 1][column + 1] = lengths[row][column] + 1 if one == other else longest
    return lengths[-1][-1]


@given(ALPHABET, ALPHABET)
def test_longest_common_subsequence_is_that_of_the_table(first, second):
    assert longest_common_subsequence(first, second) == table_length(first, second)


def test_longest_common_subsequence_of_long_texts():
    first = [f"{number % 61}" for number in range(5000)]
    assert longest_common_subsequence(first, first) == 5000
    assert longest_common_subsequence(first, first[::2]) == 2500
    assert longest_common_subsequence(first, ["never"] * 5000) == 0


def test_published_values_of_radeval():
    scores = [rouge_scores(reference, hypothesis, stemmed=True) for reference, hypothesis in PAIRS]
    first = [1, 0.5454545454545454, 0, 0.06666666666666667, 0]
    assert [one.rouge_1.f1 for one in scores] == pytest.approx(first, abs=1e-12)
    assert [one.rouge_2.f1 for one in scores] == pytest.approx([1, 0.3, 0, 0, 0], abs=1e-12)
    assert [one.rouge_l.f1 for one in scores] == pytest.approx(first, abs=1e-12)


def test_precision_is_of_the_hypothesis():
    score = rouge_scores("a b c d", "a b", stemmed=False).rouge_1
    assert (score.precision, score.recall) == (1, 0.5)


def test_stems():
    assert rouge_words("Effusions resolving; 10mm skies.", stemmed=True) == ["effus", "resolv", "10mm", "sky"]
    assert rouge_words("sees seen was", stemmed=True) == ["see", "seen", "was"]  # stems only beyond three characters
    same = report_metric("rouge_stemmed")(references=["pleural effusions"], hypotheses=["pleural effusion"])
    apart = report_metric("rouge")(references=["pleural effusions"], hypotheses=["pleural effusion"])
    assert same.totals == {"stemmed_rouge_1": 1, "stemmed_rouge_2": 1, "stemmed_rouge_l": 1}
    assert apart.totals == {"rouge_1": 0.5, "rouge_2": 0, "rouge_l": 0.5}
    assert (same.settings["stemmer"], apart.settings["stemmer"]) == ("Porter", "none")


@pytest.mark.parametrize("text", ["", " \n", "…", "胸部", "é" * 3])
def test_texts_without_words_score_nothing(text):
    scores = report_metric("rouge")(references=[text, text, "left"], hypotheses=[text, "left", text])
    assert all(found == [0, 0, 0] for found in scores.samples.values())


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nltk.stem.porter", None)
    words.porter_stemmer.cache_clear()
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        rouge_scores("effusions", "effusion", stemmed=True)
    assert rouge_scores("effusion", "effusion", stemmed=False).rouge_1.f1 == 1
