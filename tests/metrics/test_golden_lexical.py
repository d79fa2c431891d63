"""Lexical metrics against recorded values of torchmetrics, NLTK and rouge-score."""

import json
import os
from pathlib import Path

import pytest

from medtasks.errors import WeightsMissing
from medtasks.metrics.bleu import unsmoothed_bleu
from medtasks.metrics.meteor import load_wordnet, meteor_score, read_wordnet
from medtasks.metrics.overlaps import NgramOverlap, overlaps, word_tokens
from medtasks.metrics.report_metrics import report_metric
from medtasks.metrics.rouge import rouge_scores

from ..tables import each_row
from .wordnet_sources import ListedSynonyms

SIDES = ("reference", "hypothesis")
KEYS = {
    "bleu_1": ("bleu", "bleu1"),
    "bleu_2": ("bleu", "bleu2"),
    "bleu_4": ("bleu", "bleu4"),
    "radcliq_bleu_2": ("radcliq_bleu", "bleu2_radcliq"),
    "rouge_1": ("rouge", "rouge.rouge1.f1"),
    "rouge_2": ("rouge", "rouge.rouge2.f1"),
    "rouge_l": ("rouge", "rouge.rougeL.f1"),
    "stemmed_rouge_1": ("rouge_stemmed", "rouge_stem.rouge1.f1"),
    "stemmed_rouge_2": ("rouge_stemmed", "rouge_stem.rouge2.f1"),
    "stemmed_rouge_l": ("rouge_stemmed", "rouge_stem.rougeL.f1"),
    "meteor_without_synonyms": ("meteor_without_synonyms", "meteor.no_synonyms"),
}
# What WordNet 3.0 says of the stems in the recorded texts, as far as these texts have both words.
SYNONYMS = """
    10: x, ar: are, are: ar cost equal exist live, base: ground, blackguard: rib roast, break: crack, chasten: tame,
    chest: thorax, crack: break, edema: oedema, exist: live, follow-up: followup, followup: follow-up, grade: place,
    ground: base, heart: ticker, is: cost equal exist live, lean: tip, line: trace, live: exist, low: small,
    lower: low small, no: nobelium, oedema: edema, place: grade, present: show, remain: stay, rib: blackguard roast,
    roast: blackguard rib, show: present, small: low, speed: upper, stay: remain, tame: chasten, there: thither,
    thither: there, thorax: chest, ticker: heart, tip: lean, told: enjoin, trace: line, upper: speed,
    were: cost equal exist live, x: 10
"""


@pytest.fixture(scope="module")
def cases(golden):
    lines = (golden / "metrics" / "lexical.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) >= 120
    return cases


@pytest.fixture(scope="module")
def corpus(golden):
    return json.loads((golden / "metrics" / "lexical_corpus.json").read_text(encoding="utf-8"))


def recorded(record, path):
    for name in path.split("."):
        record = record[name]
    return record


@pytest.fixture(scope="module")
def scores(cases):
    references, hypotheses = ([case[side] for case in cases] for side in SIDES)
    names = {name for name, _ in KEYS.values()}
    return {name: report_metric(name)(references=references, hypotheses=hypotheses) for name in names}


@each_row("key", KEYS)
def test_golden_lexical_values_of_pairs(key, cases, scores):
    metric, path = KEYS[key]
    assert scores[metric].samples[key] == pytest.approx([recorded(case, path) for case in cases], rel=0, abs=1e-6)


@each_row("key", KEYS)
def test_golden_lexical_means(key, corpus, scores):
    metric, path = KEYS[key]
    assert scores[metric].totals[key] == pytest.approx(corpus["mean"][path], rel=0, abs=1e-6)


@each_row("stemmed", [False, True])
def test_golden_lexical_rouge_precision_and_recall(stemmed, cases):
    for case in cases:
        scores = rouge_scores(case["reference"], case["hypothesis"], stemmed=stemmed)
        for kind, wanted in case["rouge_stem" if stemmed else "rouge"].items():
            values = tuple(scores[kind])
            assert values == pytest.approx([wanted["precision"], wanted["recall"], wanted["f1"]], rel=0, abs=1e-12), (
                case
            )


def test_golden_lexical_words(cases):
    for case in cases:
        for side in SIDES:
            assert word_tokens(case[side]) == case["meteor"][f"{side}_tokens"]


def test_golden_lexical_corpus_bleu_of_torchmetrics(cases, corpus):
    counts = [overlaps(case["reference"].split(), case["hypothesis"].split(), 4) for case in cases]
    total = [NgramOverlap(*map(sum, zip(*order, strict=True))) for order in zip(*counts, strict=True)]
    assert corpus["pairs"] == len(cases)
    assert unsmoothed_bleu(total[:1]) == pytest.approx(corpus["bleu1_corpus"], rel=0, abs=1e-6)
    assert unsmoothed_bleu(total) == pytest.approx(corpus["bleu4_corpus"], rel=0, abs=1e-6)


def meteor_differences(cases, wordnet):
    """Return the cases where METEOR is not to the bit what was recorded."""
    pairs = [(case["meteor"]["reference_tokens"], case["meteor"]["hypothesis_tokens"]) for case in cases]
    values = [meteor_score(*pair, wordnet) for pair in pairs]
    return [case["id"] for case, value in zip(cases, values, strict=True) if value != case["meteor"]["wordnet_3_0"]]


def test_golden_lexical_meteor_with_synonyms(cases):
    entries = (entry.split(":") for entry in SYNONYMS.split(","))
    known = ListedSynonyms({word.strip(): synonyms.split() for word, synonyms in entries})
    without, listed = set(meteor_differences(cases, None)), set(meteor_differences(cases, known))
    assert listed <= without
    words = {word for case in cases for side in SIDES for word in case["meteor"][f"{side}_tokens"]}
    if words >= {entry.split(":")[0].strip() for entry in SYNONYMS.split(",")}:  # the list is of these cases
        assert listed < without
        assert not listed


def test_golden_lexical_meteor_with_wordnet(cases):
    source = os.environ.get("MEDTASKS_WORDNET")
    try:
        wordnet = read_wordnet(Path(source)) if source else load_wordnet()
    except WeightsMissing as error:
        pytest.skip(f"{error}; MEDTASKS_WORDNET can name another folder or archive")
    assert not meteor_differences(cases, wordnet)
