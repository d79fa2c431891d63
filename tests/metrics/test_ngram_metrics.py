"""Words, overlaps, BLEU and ROUGE against formulas, torchmetrics, NLTK, sacrebleu, rouge-score and published values."""

import json
import math
import re
import string
import warnings
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer
from nltk.translate import bleu_score as nltk_bleu
from rouge_score.rouge_scorer import RougeScorer

from medtasks.data.privacy import PrivateText
from medtasks.errors import MedTasksError
from medtasks.extract.published.multimedeval import clean_head, clean_v0_1_0
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics import ngram_metrics
from medtasks.metrics.ngram_metrics import (
    WITHOUT_WORDS,
    References,
    bleu1_from_counts,
    bleu_from_counts,
    rouge_scores,
    token_overlap,
    word_tokens,
)
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row

PIECES = [
    *(
        "lung",
        "No",
        "1",
        "2.5",
        "1,500",
        "9:39",
        "p.m",
        "T1-weighted",
        "isn't",
        "patient's",
        "can't've",
        "they'll",
    ),
    *(
        "WE'RE",
        "cannot",
        "gimme",
        "gonna",
        "Gotta",
        "lemme",
        "wanna",
        "d'ye",
        "more'n",
        "'tis",
        "'twas",
        "n't",
        "'s",
    ),
    *(
        "'ve",
        "a's's",
        "--",
        "...",
        "``",
        "''",
        "«",
        "»",
        "“",
        "”",
        "‘",
        "’",
        "„",
        "–",
        "—",
        "…",
        "é",
        "肺",
        "ſ",
    ),
    *("\u00a0", "\u2028", "\x1c"),
]
TEXTS = st.lists(
    st.sampled_from([*PIECES, *string.punctuation, " ", " ", " ", "\n", "\t"]), max_size=14
).map("".join)
PLAIN = st.lists(
    st.sampled_from([*PIECES[:16], " ", " ", ", ", ": ", "; ", ". ", "(", ")", "%", "-", "/"]),
    max_size=14,
)


@settings(max_examples=200)
@given(TEXTS | PLAIN.map("".join) | st.text(max_size=20))
@example("Dr. Smith, 2.5 cm (series 2; image 4): 50%.")
@example("It isn't the patient's, they've said: can't've.")
@example("\"Stable,\" he said, 'no change'.")
def test_is_nltk_on_each_sentence(text):
    tokenizer = NLTKWordTokenizer()
    words = [
        word
        for sentence in re.split(r"(?<=[.!?])\s+", text)
        for word in tokenizer.tokenize(sentence)
    ]
    assert word_tokens(text) == words


def test_token_overlap():
    for reply, target, *expected in (
        ({"left", "lobe"}, {"left", "lobe"}, 1, 1, 2 / (2 + 1e-8)),  # equal sets stay below one
        ({"the", "left", "lower", "lobe"}, {"left"}, 0.25, 1, 0.5 / (1.25 + 1e-8)),
        *(
            (*sets, 0, 0, 0)
            for sets in ((set(), {"a"}), ({"a"}, set()), (set(), set()), ({"b"}, {"a"}))
        ),
    ):
        overlap = token_overlap(reply, target)
        assert [overlap.precision, overlap.recall, overlap.f1] == pytest.approx(
            expected, abs=1e-15
        )


WORDS = st.lists(
    st.sampled_from(["no", "No", "effusion", "effusion.", "left", "é"]), max_size=12
)
SPACES = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0"])
SMOOTHING = nltk_bleu.SmoothingFunction()


# ---- BLEU-1 of replies and options ----


@each_row("version, clean", [("head", clean_head), ("v0_1_0", clean_v0_1_0)])
def test_golden_multimedeval_choice_scores(golden, version, clean):
    for case in map(
        json.loads,
        (golden / "multimedeval_choice.jsonl").read_text(encoding="utf-8").splitlines(),
    ):
        recorded = case[version]
        scores = References([clean(option) for option in case["options"]]).scores(
            clean(case["reply"])
        )
        assert scores == pytest.approx(recorded["scores"], rel=0, abs=1e-6), case
        assert scores.index(max(scores)) == recorded["index"], case
        assert (max(scores) == 0) == recorded["all_zero"], case


OPTION_TEXTS = st.lists(st.sampled_from(["a", "b", "c", "b:", "B", "1.2"]), max_size=14).map(
    " ".join
)


@given(OPTION_TEXTS, OPTION_TEXTS)
def test_is_the_formula(reply, reference):
    words, expected = reply.split(), reference.split()
    matches = sum((Counter(words) & Counter(expected)).values())
    score = (
        min(1.0, math.exp(1 - len(expected) / len(words))) * matches / len(words)
        if matches
        else 0.0
    )
    assert References(["a x", reference]).scores(reply)[1] == pytest.approx(score, abs=1e-6)


def test_single_precision():
    assert bleu1_from_counts(3, 10, 1) == 0.29999998211860657
    assert 0 < bleu1_from_counts(1, 1, 104) < 1e-44
    assert bleu1_from_counts(1, 1, 110) == 0


# ---- BLEU of reports ----


def nltk_value(reference, hypothesis, weights, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(
            nltk_bleu.sentence_bleu(
                [reference], hypothesis, weights, getattr(SMOOTHING, method)
            )
        )


@pytest.fixture(scope="module")
def torchmetrics_bleu():
    text = pytest.importorskip("torchmetrics.functional.text")
    return lambda reference, hypothesis, order: text.bleu_score(
        [hypothesis], [[reference]], n_gram=order
    ).item()


@given(WORDS, WORDS, SPACES, st.sampled_from([1, 2, 4]))
def test_is_torchmetrics(torchmetrics_bleu, reference, hypothesis, space, order):
    reference, hypothesis = space.join(reference), space.join(hypothesis)
    ours = bleu_from_counts(
        ngram_metrics.overlaps(reference.split(), hypothesis.split(), order)
    )
    theirs = torchmetrics_bleu(reference, hypothesis, order)
    assert ours == pytest.approx(theirs, rel=0, abs=1e-6)
    assert (ours == 0) == (theirs == 0)


@given(WORDS.map(" ".join), WORDS.map(" ".join))
@example("mass", "mass")
@example("no mass", "mass")  # longer orders are left out
@example("Opacities suggest chronic pneumonia.", "opacities suggest infection or pneumonia")
@example("Herzgröße normal.", "Heart size normal.")
def test_medheval_bleu_is_nltk_s_with_method_4(reference, hypothesis):
    words = word_tokens(hypothesis)
    theirs = nltk_value(word_tokens(reference), words, (0.25,) * 4, "method4") if words else 0
    scores = report_metric("medheval_bleu")(references=[reference], hypotheses=[hypothesis])
    assert scores.samples["method4_bleu"] == pytest.approx([theirs], rel=1e-12)


RADCLIQ_TEXTS = st.text(st.sampled_from("aB. \n\té"), max_size=30)


@given(RADCLIQ_TEXTS, RADCLIQ_TEXTS)
@example("No Effusion.", "no effusion .")
@example("no\neffusion", "no effusion")  # a line break does not part words
@example("", "a")
def test_radcliq_bleu_is_nltk_on_its_words(reference, hypothesis):
    def words(text):
        spaced = "".join(" ." if letter == "." else letter.lower() for letter in text)
        return [word for word in spaced.split(" ") if word]

    theirs = (
        nltk_value(words(reference), words(hypothesis), (0.5, 0.5), "method1")
        if words(hypothesis)
        else 0
    )
    scores = report_metric("radcliq_bleu")(references=[reference], hypotheses=[hypothesis])
    assert scores.samples["radcliq_bleu_2"] == pytest.approx([theirs], rel=1e-12)


def test_corpus_bleu_is_sacrebleu_as_a_share(monkeypatch):
    sacrebleu = pytest.importorskip("sacrebleu")
    references = [
        "No new bony lesion.",
        "Larger slight hilar haze and left lower scarring.",
        "left",
        "",
    ]
    hypotheses = ["No new bony lesion.", "No slight hilar haze.", "", "left"]
    scores = report_metric("corpus_bleu")(references=references, hypotheses=hypotheses)
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert 5 < expected < 95
    assert scores.totals == {"corpus_bleu": pytest.approx(expected / 100, abs=1e-12)}
    assert scores.samples == {}
    assert "tok:13a|smooth:exp" in scores.settings["sacrebleu"]
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        report_metric("corpus_bleu")(references=["a"], hypotheses=["a"])


# ---- ROUGE ----

ODD_WORDS = [
    "effusion",
    "effusions",
    "The",
    "no",
    "No",
    "enlarging",
    "2.5cm",
    "x-ray",
    "sky",
    "skies",
    "",
    "é",
    "was",
]
ROUGE_TEXTS = st.lists(st.sampled_from(ODD_WORDS), max_size=14).map(" ".join) | st.text(
    max_size=25
)


@pytest.mark.parametrize("stemmed", [False, True], ids=["whole", "stemmed"])
@given(reference=ROUGE_TEXTS, hypothesis=ROUGE_TEXTS)
@example("K ſ İ", "k s i̇")
@example("no effusion no", "no no effusion no")
@example(
    "Skies; sees 10mm was", "sky see 10mm wa"
)  # words of more than three characters have stems
def test_is_rouge_score(stemmed, reference, hypothesis):
    theirs = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmed).score(
        reference, hypothesis
    )
    assert rouge_scores(reference, hypothesis, stemmed=stemmed) == theirs


def test_rouge_of_reports(monkeypatch):
    texts = {"references": ["pleural effusions"], "hypotheses": ["pleural effusion seen"]}
    same, apart = (report_metric(name)(**texts) for name in ("rouge_stemmed", "rouge"))
    assert same.totals == pytest.approx(
        {"stemmed_rouge_1": 0.8, "stemmed_rouge_2": 2 / 3, "stemmed_rouge_l": 0.8}
    )
    assert apart.totals == pytest.approx({"rouge_1": 0.4, "rouge_2": 0, "rouge_l": 0.4})
    assert (same.settings["stemmer"], apart.settings["stemmer"]) == ("Porter", "none")
    for text in ("", " \n", "…", "胸部"):  # without words
        scores = report_metric("rouge")(
            references=[text, text, "left"], hypotheses=[text, "left", text]
        )
        assert all(repr(values) == "[0.0, 0.0, 0.0]" for values in scores.samples.values())
    ngram_metrics.porter_stemmer.cache_clear()
    ngram_metrics._rouge_scorer.cache_clear()
    ngram_metrics._sentence_words.cache_clear()
    for module, name in (
        ("nltk.stem.porter", "rouge_stemmed"),
        ("nltk.tokenize.destructive", "medheval_bleu"),
    ):
        monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
            report_metric(name)(**texts)


def test_rouge_counts_texts_without_a_word_that_it_knows():
    found = report_metric("rouge")(
        references=["肺部有结节", "left lung", ""], hypotheses=["肺部有结节", "left lung", ""]
    )
    assert list(found.samples["rouge_l"]) == [0.0, 1.0, 0.0]
    assert (
        found.settings[WITHOUT_WORDS]
        == "2 of 4 texts have no word of a-z0-9, so that they score 0"
    )
    (metric,) = text_metrics(["rouge_l"])
    score = {
        "cluster_id": "1",
        "reference": PrivateText("肺"),
        "reply": PrivateText("肺"),
        "reason": "ok",
    }
    assert (
        metric.remark([score])
        == "rouge: 2 of 2 texts have no word of a-z0-9, so that they score 0."
    )
    latin = {**score, "reference": PrivateText("lung"), "reply": PrivateText("lung")}
    assert metric.remark([latin]) == ""
