"""The flavours of BLEU against torchmetrics, NLTK, sacrebleu and published values."""

import math
import warnings
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate import bleu_score as nltk_bleu

from medtasks.errors import MedTasksError
from medtasks.metrics.ngram_metrics import nltk_method4_bleu, radcliq_bleu_2, smoothed_bleu, unsmoothed_bleu
from medtasks.metrics.overlaps import NgramOverlap, overlaps, word_tokens
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row
from .guide_to_action import GOOD, OTHER, REFERENCES

# The five pairs of RadEval's regression snapshot in other words: the same lengths, and the same words shared.
PAIRS = (
    ("No new bony lesion.", "No new bony lesion."),
    (
        "Thin fluid with slight layered apical cysts and lobar scarring.",
        "Thinly spread dense shadow with slight apical cysts and scattered bilobar scarring.",
    ),
    (
        "1. Upper tube end seems to rest in the far upper airway branch.2. Slight hilar node swelling.",
        "Rather lesser chest volumes with no patchy airspace clouding visible.",
    ),
    (
        "No certain new bony lesion. Widened heart shadow may be caused by patient's posture.",
        "Bunching of the hilar vessels with likely faint central haze, but no open hilar haze.",
    ),
    ("Larger slight hilar haze and left lower scarring.", "No apical cysts or blebs."),
)
WORDS = st.lists(st.sampled_from(["no", "No", "effusion", "effusion.", "left", "é"]), max_size=12)
SPACES = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0"])


def unsmoothed(reference, hypothesis, order):
    return unsmoothed_bleu(overlaps(reference.split(), hypothesis.split(), order))


def nltk_value(reference, hypothesis, weights, method):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(nltk_bleu.sentence_bleu([reference], hypothesis, weights, getattr(SMOOTHING, method)))


SMOOTHING = nltk_bleu.SmoothingFunction()


@pytest.fixture(scope="module")
def torchmetrics_bleu():
    text = pytest.importorskip("torchmetrics.functional.text")
    return lambda reference, hypothesis, order: text.bleu_score([hypothesis], [[reference]], n_gram=order).item()


@each_row(
    "reference, hypothesis, order, value",
    [
        ("", "", 1, 0),
        ("a", "", 1, 0),
        ("", "a", 1, 0),
        (" \n", "\t", 2, 0),
        ("a", "a", 1, 1),
        ("a", "a", 2, 0),
        ("a b c", "a b c", 4, 0),
        ("a b c d", "a b c d", 4, 1),
        ("A b", "a b", 1, 0.5),
        ("a b\nc", "a  b c", 2, 1),
        ("a b c d", "a b", 2, math.exp(-1)),
        ("a b", "a b c d", 2, math.sqrt(2 / 4 * 1 / 3)),
        ("a", "a a a a", 1, 0.25),
        ("a b c d", "d c b a", 2, 0),
    ],
)
def test_known_values(reference, hypothesis, order, value):
    assert unsmoothed(reference, hypothesis, order) == pytest.approx(value, abs=1e-15)


@given(WORDS, WORDS, SPACES, st.sampled_from([1, 2, 4]))
def test_is_torchmetrics(torchmetrics_bleu, reference, hypothesis, space, order):
    reference, hypothesis = space.join(reference), space.join(hypothesis)
    ours, theirs = unsmoothed(reference, hypothesis, order), torchmetrics_bleu(reference, hypothesis, order)
    assert ours == pytest.approx(theirs, rel=0, abs=1e-6)
    assert (ours == 0) == (theirs == 0)


def test_is_torchmetrics_for_long_texts(torchmetrics_bleu):
    reference = " ".join(f"word{number % 97} {number % 31}" for number in range(2500))
    hypothesis = " ".join(f"word{number % 89} {number % 31}" for number in range(2000))
    for order in (1, 2, 4):
        theirs = torchmetrics_bleu(reference, hypothesis, order)
        assert unsmoothed(reference, hypothesis, order) == pytest.approx(theirs, rel=0, abs=1e-6) != 0


def test_published_values_of_fast_bleu():
    """Its README scores two hypotheses against three references at once."""

    references = [reference.split() for reference in REFERENCES]

    def counts(hypothesis, order):
        grams = Counter(zip(*(hypothesis[start:] for start in range(order)), strict=False))
        limits = Counter()
        for reference in references:
            limits |= Counter(zip(*(reference[start:] for start in range(order)), strict=False))
        nearest = min((len(reference) for reference in references), key=lambda length: abs(length - len(hypothesis)))
        return NgramOverlap((grams & limits).total(), nearest, len(hypothesis) + 1 - order)

    for hypothesis, published in ((GOOD, 0.7453559924999299), (OTHER, 0.0191380231127159)):
        both = [counts(hypothesis.split(), order) for order in (1, 2)]
        assert smoothed_bleu(both, [0.1, 0.1]) == pytest.approx(published)


def test_published_values_of_radeval():
    counted = [overlaps(reference.split(), hypothesis.split(), 4) for reference, hypothesis in PAIRS]
    assert [unsmoothed_bleu(counts) for counts in counted] == [1, 0, 0, 0, 0]  # there 1e-5 and less for no match
    corpus = [NgramOverlap(*map(sum, zip(*order, strict=True))) for order in zip(*counted, strict=True)]
    values = [unsmoothed_bleu(corpus[:order]) for order in (1, 2, 3, 4)]
    assert values == pytest.approx([0.1867, 0.1532, 0.1189, 0.0826], abs=5e-5)


@given(WORDS, WORDS)
def test_method4_is_nltk(reference, hypothesis):
    theirs = nltk_value(reference, hypothesis, (0.25,) * 4, "method4") if hypothesis else 0
    assert nltk_method4_bleu(reference, hypothesis) == pytest.approx(theirs, rel=1e-12)


def test_method4_of_one_word_leaves_longer_orders_out():
    assert nltk_method4_bleu(["mass"], ["mass"]) == nltk_value(["mass"], ["mass"], (0.25,) * 4, "method4") == 1
    assert nltk_method4_bleu(["no", "mass"], ["mass"]) == pytest.approx(math.exp(-1))


def test_medheval_bleu_is_nltk_s_with_method_4():
    pairs = (
        ("The heart is enlarged, and the lungs are clear.", "The heart is enlarged, and the lungs are clear."),
        ("Opacities suggest chronic pneumonia.", "Opacities may indicate infection or pneumonia."),
        ("Opacities suggest chronic pneumonia.", "opacities suggest chronic pneumonia"),
        ("Herzgröße normal.", "Heart size normal."),
        ("Rest.", "Surgery"),
        ("Rest.", ""),
    )
    references, hypotheses = zip(*pairs, strict=True)
    scores = report_metric("medheval_bleu")(references=references, hypotheses=hypotheses)
    expected = [
        nltk_value(word_tokens(target), word_tokens(reply), (0.25,) * 4, "method4") if reply else 0.0
        for target, reply in pairs
    ]
    assert scores.samples["method4_bleu"] == pytest.approx(expected, abs=1e-12)
    assert scores.totals["method4_bleu"] == pytest.approx(sum(expected) / len(expected))
    assert scores.settings["smoothing"] == "method 4"


RADCLIQ_TEXTS = st.text(st.sampled_from("aB. \n\té"), max_size=30)


@given(RADCLIQ_TEXTS, RADCLIQ_TEXTS)
def test_radcliq_bleu_is_nltk_on_its_words(reference, hypothesis):
    def words(text):
        spaced = "".join(" ." if letter == "." else letter.lower() for letter in text)
        return [word for word in spaced.split(" ") if word]

    theirs = nltk_value(words(reference), words(hypothesis), (0.5, 0.5), "method1") if words(hypothesis) else 0
    assert radcliq_bleu_2(reference, hypothesis) == pytest.approx(theirs, rel=1e-12)


def test_radcliq_words():
    assert radcliq_bleu_2("No Effusion.", "no effusion .") == 1
    assert radcliq_bleu_2("no\neffusion", "no effusion") == 0  # a line break does not part words
    assert radcliq_bleu_2("2.5 cm", "2 .5 cm") == 1
    assert radcliq_bleu_2("", "") == radcliq_bleu_2("a", "") == radcliq_bleu_2("", "a") == 0


@each_row("name", ["bleu", "radcliq_bleu"])
def test_means_over_pairs(name):
    references, hypotheses = zip(*PAIRS, ("", ""), ("left", ""), ("", "left"), strict=True)
    scores = report_metric(name)(references=references, hypotheses=hypotheses)
    for key, values in scores.samples.items():
        assert len(values) == len(references)
        assert values[0] == 1
        assert values[-3:] == [0, 0, 0]
        assert scores.totals[key] == pytest.approx(sum(values) / len(values))
    turned = report_metric(name)(references=references[::-1], hypotheses=hypotheses[::-1])
    assert turned.totals == scores.totals


def test_corpus_bleu_is_sacrebleu_as_a_share():
    sacrebleu = pytest.importorskip("sacrebleu")
    references, hypotheses = map(list, zip(*PAIRS, ("left", ""), ("", "left"), strict=True))
    scores = report_metric("corpus_bleu")(references=references, hypotheses=hypotheses)
    expected = sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert 5 < expected < 95
    assert scores.totals == {"corpus_bleu": pytest.approx(expected / 100, abs=1e-12)}
    assert scores.samples == {}
    assert "tok:13a|smooth:exp" in scores.settings["sacrebleu"]


def test_corpus_bleu_of_tokenised_lines_is_quiet(caplog):
    lines = ["no effusion , no mass ."] * 200
    scores = report_metric("corpus_bleu")(references=lines, hypotheses=lines)
    assert scores.totals["corpus_bleu"] == pytest.approx(1)
    assert not caplog.records


def test_corpus_bleu_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sacrebleu.metrics.bleu", None)
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        report_metric("corpus_bleu")(references=["a"], hypotheses=["a"])
