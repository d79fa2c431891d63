"""Lexical metrics against recorded values of torchmetrics, NLTK and rouge-score."""

import json
import os
from pathlib import Path

import pytest

from medtasks.errors import WeightsMissing
from medtasks.metrics.meteor import load_wordnet, meteor_score, read_wordnet
from medtasks.metrics.ngram_metrics import (
    NgramOverlap,
    bleu_from_counts,
    overlaps,
    rouge_scores,
    word_tokens,
)
from medtasks.metrics.report_metrics import report_metric

from ..tables import each_row

SIDES = ("reference", "hypothesis")
KEYS = {f"bleu_{order}": ("bleu", f"bleu{order}") for order in (1, 2, 4)}
KEYS |= {"radcliq_bleu_2": ("radcliq_bleu", "bleu2_radcliq")}
KEYS |= {"meteor_without_synonyms": ("meteor_without_synonyms", "meteor.no_synonyms")}
for ending in "12l":
    KEYS[f"rouge_{ending}"] = ("rouge", f"rouge.rouge{ending.upper()}.f1")
    KEYS[f"stemmed_rouge_{ending}"] = ("rouge_stemmed", f"rouge_stem.rouge{ending.upper()}.f1")


@pytest.fixture(scope="module")
def cases(golden):
    lines = (golden / "metrics" / "lexical.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


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
    return {
        name: report_metric(name)(references=references, hypotheses=hypotheses)
        for name in names
    }


@each_row("key", KEYS)
def test_golden_lexical_values_of_pairs_and_means(key, cases, corpus, scores):
    metric, path = KEYS[key]
    assert scores[metric].samples[key] == pytest.approx(
        [recorded(case, path) for case in cases], rel=0, abs=1e-6
    )
    assert scores[metric].totals[key] == pytest.approx(corpus["mean"][path], rel=0, abs=1e-6)


@each_row("stemmed", [False, True])
def test_golden_lexical_rouge_precision_and_recall(stemmed, cases):
    for case in cases:
        scores = rouge_scores(case["reference"], case["hypothesis"], stemmed=stemmed)
        for kind, wanted in case["rouge_stem" if stemmed else "rouge"].items():
            values = tuple(scores[kind])
            assert values == pytest.approx(
                [wanted["precision"], wanted["recall"], wanted["f1"]], rel=0, abs=1e-12
            ), case


def test_golden_lexical_words(cases):
    for case in cases:
        for side in SIDES:
            assert word_tokens(case[side]) == case["meteor"][f"{side}_tokens"]


def test_golden_lexical_corpus_bleu_of_torchmetrics(cases, corpus):
    counts = [
        overlaps(case["reference"].split(), case["hypothesis"].split(), 4) for case in cases
    ]
    total = [
        NgramOverlap(*map(sum, zip(*order, strict=True))) for order in zip(*counts, strict=True)
    ]
    assert corpus["pairs"] == len(cases)
    assert bleu_from_counts(total[:1]) == pytest.approx(corpus["bleu1_corpus"], rel=0, abs=1e-6)
    assert bleu_from_counts(total) == pytest.approx(corpus["bleu4_corpus"], rel=0, abs=1e-6)


def meteor_differences(cases, wordnet):
    """Return the cases where METEOR is not to the bit what was recorded."""
    pairs = [
        (case["meteor"]["reference_tokens"], case["meteor"]["hypothesis_tokens"])
        for case in cases
    ]
    values = [meteor_score(*pair, wordnet) for pair in pairs]
    return [
        case["id"]
        for case, value in zip(cases, values, strict=True)
        if value != case["meteor"]["wordnet_3_0"]
    ]


def test_golden_lexical_meteor_with_synonyms(cases):
    """Without WordNet METEOR differs where synonyms count, and nowhere else."""
    counting = [
        case["id"]
        for case in cases
        if case["meteor"]["no_synonyms"] != case["meteor"]["wordnet_3_0"]
    ]
    assert meteor_differences(cases, None) == counting


def test_golden_lexical_meteor_with_wordnet(cases):
    source = os.environ.get("MEDTASKS_WORDNET")
    try:
        wordnet = read_wordnet(Path(source)) if source else load_wordnet()
    except WeightsMissing as error:
        pytest.skip(f"{error}; MEDTASKS_WORDNET can name another folder or archive")
    assert not meteor_differences(cases, wordnet)
