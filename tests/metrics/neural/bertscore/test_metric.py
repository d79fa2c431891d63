"""BERTScore of texts: against the package, in batches, from cache."""

import json
import math
import random
import weakref
from dataclasses import replace

import pytest

from medtasks.metrics.cross_check import package_bertscore
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import bertscore as encoder_module
from medtasks.metrics.neural.bertscore import (
    BASELINE_F1,
    BertScore,
    BertScores,
    ContextualEncoder,
    Idf,
    bertscore,
    bertscore_multimedeval,
    medheval_bertscore,
)

from ....tables import each_row

ENCODER = "distilroberta-base"
WORDS = (
    *("no", "pleural", "effusion", "the", "heart", "is", "large", "normal", "mild", ",", ".", "left"),
    *("résumé", "肺", "___", "\u00a0", "\n", "</s>", "Edema", ""),
)


def draw_texts(seed, count, longest):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.choice([0, 1, 2, 5, 9, longest]))) for _ in range(count)]


REFERENCES = [*draw_texts(1, 24, 40), "", "the heart", " \n", "same", "the heart"]
HYPOTHESES = [*draw_texts(2, 24, 40), "the heart", "", "", "same", "same"]


def metric(folder, layer=2, **options):
    settings = ModelSettings(named_weights={ENCODER: folder}, **{"cache": None, "progress": False} | options)
    return BertScore(ENCODER, layer, settings)


def score(folder, idf="none", **options):
    return metric(folder, **options).score(references=REFERENCES, hypotheses=HYPOTHESES, idf=idf)


@each_row("idf", ["none", "references", "hypotheses"])
def test_golden_bertscore(golden, idf):
    folder = golden / "metrics" / "bertscore"
    pairs = json.loads((folder / "expected.json").read_text())["pairs"]
    texts = {
        side: [pair[side[:-1] if side == "references" else "hypothesis"] for pair in pairs]
        for side in ("references", "hypotheses")
    }
    key = "no_idf" if idf == "none" else f"idf_{idf}"
    raw = metric(folder / ENCODER, layer=5).score(**texts, idf=idf)
    assert pairs
    for place, values in enumerate((raw.precision, raw.recall, raw.f1)):
        assert values == pytest.approx([pair[key][place] for pair in pairs], abs=1e-5)


def test_golden_bertscore_means_and_tokens(golden):
    folder = golden / "metrics" / "bertscore"
    expected = json.loads((folder / "expected.json").read_text())
    references = [pair["reference"] for pair in expected["pairs"]]
    hypotheses = [pair["hypothesis"] for pair in expected["pairs"]]
    settings = ModelSettings(named_weights={ENCODER: folder / ENCODER}, cache=None, progress=False)
    for factory, key, names in (
        (bertscore, "no_idf", ("bertscore_f1", "rescaled_bertscore_f1")),
        (bertscore_multimedeval, "idf_hypotheses", ("idf_bertscore_f1", "rescaled_idf_bertscore_f1")),
    ):
        totals = factory(settings)(references=references, hypotheses=hypotheses).totals
        wanted = dict(zip(names, (expected["mean"][key][2], expected["mean"][f"{key}_rescaled"][2]), strict=True))
        assert totals == pytest.approx(wanted, abs=1e-5)
    for matches, pair in zip(
        BertScore(ENCODER, 5, settings).matches(references, hypotheses), expected["pairs"], strict=True
    ):
        assert len(matches.reference_ids) == pair["reference_token_count"]
        assert len(matches.hypothesis_ids) == pair["hypothesis_token_count"]
        assert matches.hypothesis_ids[:12].tolist() == pair["hypothesis_input_ids"]


@each_row("idf", ["none", "references", "hypotheses"])
@each_row("family", ["roberta", "bert"])
def test_the_package_says_the_same(request, family, idf):
    folder = request.getfixturevalue(family)
    wanted = package_bertscore(folder, 2, REFERENCES, HYPOTHESES, idf=idf)
    got = score(folder, idf)
    assert len(set(got.f1)) > 10
    for values, expected in zip((got.precision, got.recall, got.f1), wanted, strict=True):
        assert [0 if math.isnan(value) else value for value in values] == pytest.approx(expected, abs=2e-5)


@each_row("batch_size", [1, 3, 1000])
@each_row("window", [1, 1 << 17])
def test_batches_and_windows_do_not_matter(roberta, monkeypatch, batch_size, window):
    usual = score(roberta, "references")
    monkeypatch.setattr(encoder_module, "_WINDOW", window)
    other = score(roberta, "references", batch_size=batch_size)
    assert other.f1 == pytest.approx(usual.f1, abs=1e-5)


def test_vectors_of_few_texts_are_held_at_once(roberta, monkeypatch):
    alive = weakref.WeakSet()
    most = []
    vectors = ContextualEncoder.vectors

    def watched(self, batch):
        found = vectors(self, batch)
        alive.update(found)
        most.append(len(alive))
        return found

    monkeypatch.setattr(ContextualEncoder, "vectors", watched)
    monkeypatch.setattr(encoder_module, "_WINDOW", 1)
    references = ["a" * (20 + number) for number in range(30)]
    metric(roberta).score(references=references, hypotheses=[f"b {number}" for number in range(30)])
    assert len(most) >= 30
    assert max(most) <= 4


def test_settings_say_what_numbers_depend_on(golden):
    settings = ModelSettings(
        named_weights={ENCODER: golden / "metrics/bertscore" / ENCODER}, cache=None, progress=False
    )
    scores = bertscore_multimedeval(settings)(references=["the heart", "no"], hypotheses=["heart", "edema"])
    rough = bertscore_multimedeval(replace(settings, dtype="bfloat16"))(references=[], hypotheses=[])
    assert {**rough.settings, "dtype": "float32"} == scores.settings != rough.settings
    assert scores.settings == {
        "encoder": "distilroberta-base",
        "layer": "5",
        "idf": "hypotheses",
        "baseline_f1": "0.8473319",
        "dtype": "float32",
    }
    raw, rescaled = scores.samples["idf_bertscore_f1"], scores.samples["rescaled_idf_bertscore_f1"]
    assert rescaled == pytest.approx([(value - BASELINE_F1) / (1 - BASELINE_F1) for value in raw])


def test_medhevals_is_neither_rescaled_nor_weighted_and_of_what_the_package_takes_for_english(monkeypatch):
    from bert_score.utils import lang2model, model2layers

    def score(self, *, references, hypotheses, idf):
        assert (self.encoder, self.layer) == (lang2model["en"], model2layers[lang2model["en"]])
        assert (len(references), len(hypotheses), idf) == (2, 2, Idf.NONE)
        return BertScores((0.5, 0.7), (0.25, 0.75), (1 / 3, 0.72))

    monkeypatch.setattr(BertScore, "score", score)
    scores = medheval_bertscore(ModelSettings())(references=["a", "b"], hypotheses=["c", "d"])
    assert scores.totals == pytest.approx(
        {"roberta_large_precision": 0.6, "roberta_large_recall": 0.5, "roberta_large_f1": (1 / 3 + 0.72) / 2}
    )
    assert (scores.settings["idf"], scores.settings["rescaled"]) == ("none", "no")
