"""BERTScore: its encoder, and scores against the package, in windows, and from matched tokens."""

import csv
import json
import math
import random
import shutil
import weakref
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import bertscore as encoder_module
from medtasks.metrics.neural.bertscore import (
    BASELINE_F1,
    BertScore,
    BertScores,
    ContextualEncoder,
    Idf,
    TokenMatches,
    bert_scores,
    bertscore,
    bertscore_multimedeval,
    medheval_bertscore,
)

from ....tables import each_row
from ...published_packages import package_bertscore


@pytest.fixture
def copy(roberta, tmp_path):
    """A RoBERTa that a test may damage."""
    folder = tmp_path / "encoder"
    shutil.copytree(roberta, folder)
    return folder


def encoder(folder, layer=2, **options):
    return ContextualEncoder(folder, layer, ModelSettings(device="cpu", **options))


def test_the_first_word_is_read_like_any_other_and_white_space_at_the_ends_is_dropped(roberta):
    vocabulary, read = (
        json.loads((roberta / "vocab.json").read_text()),
        encoder(roberta).token_ids,
    )
    first, later = read(["heart", "a heart"])
    assert first[1:-1] == later[3:-1]
    assert first[1] == vocabulary["Ġ"]
    assert read(["a \ud83d"]) == read(["a ?"])
    spaced, same, other, *empty = read(["a b", "\n a b\u00a0", "a  b", "", " \t"])
    assert spaced == same != other
    assert [len(ids) for ids in empty] == [2, 2]


@each_row("family, longest", [("roberta", 62), ("bert", 40)])
def test_long_texts_are_cut_at_the_positions_of_the_model(request, family, longest):
    read = encoder(request.getfixturevalue(family))
    (ids,) = read.token_ids(["heart " * 200])
    assert len(ids) == longest
    assert ids[-1] == read.token_ids([""])[0][-1]
    assert read.vectors([ids])[0].shape == (longest, 16)


def test_a_stated_length_goes_before_the_positions(copy, capfd):
    (copy / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 20}))
    assert len(encoder(copy).token_ids(["heart " * 200])[0]) == 20
    assert capfd.readouterr() == ("", "")  # nothing is printed


def test_what_is_no_such_encoder_is_refused(copy):
    for layer in (0, 4):
        with pytest.raises(WeightsMissing, match=f"has 3 layers, layer {layer} is required"):
            encoder(copy, layer)
    state = load_file(copy / "model.safetensors")
    (gone,) = [key for key in state if key.endswith("layer.1.output.dense.weight")]
    del state[gone]
    save_file(state, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        WeightsMissing,
        match=r"lack 1 tensors of the encoder, first encoder\.layer\.1\.output\.dense",
    ):
        encoder(copy)
    assert encoder(copy, layer=1)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "xlm-roberta"}))
    with pytest.raises(WeightsMissing, match="it is a 'xlm-roberta'"):
        encoder(copy)
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(WeightsMissing, match=r"cannot be read as an encoder"):
        encoder(copy)
    (copy / "tokenizer.json").unlink(missing_ok=True)
    for name in (
        "config.json",
        "vocab.json",
        "merges.txt",
        "model.safetensors",
    ):  # refused before loading
        (copy / name).rename(copy / "elsewhere")
        with pytest.raises(WeightsMissing, match="lacks part of an encoder"):
            metric(copy).matches(["a"], ["b"])
        (copy / "elsewhere").rename(copy / name)


ENCODER, SIDES = "distilroberta-base", {"references": "reference", "hypotheses": "hypothesis"}
WORDS = (
    *(
        "no",
        "pleural",
        "effusion",
        "the",
        "heart",
        "is",
        "large",
        "normal",
        "mild",
        ",",
        ".",
        "left",
    ),
    *("résumé", "肺", "___", "\u00a0", "\n", "</s>", "Edema", ""),
)


def draw_texts(seed, count, longest):
    draw = random.Random(seed)
    return [
        " ".join(draw.choices(WORDS, k=draw.choice([0, 1, 2, 5, 9, longest])))
        for _ in range(count)
    ]


REFERENCES = [*draw_texts(1, 24, 40), "", "the heart", " \n", "same", "the heart"]
HYPOTHESES = [*draw_texts(2, 24, 40), "the heart", "", "", "same", "same"]


def metric(folder, layer=2, **options):
    settings = ModelSettings(
        named_weights={ENCODER: folder}, **{"cache": None, "progress": False} | options
    )
    return BertScore(ENCODER, layer, settings)


def score(folder, idf="none", **options):
    return metric(folder, **options).score(
        references=REFERENCES, hypotheses=HYPOTHESES, idf=idf
    )


@each_row("idf", ["none", "references", "hypotheses"])
def test_golden_bertscore(golden, idf):
    folder = golden / "metrics" / "bertscore"
    pairs = json.loads((folder / "expected.json").read_text())["pairs"]
    texts = {name: [pair[side] for pair in pairs] for name, side in SIDES.items()}
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
    settings = ModelSettings(
        named_weights={ENCODER: folder / ENCODER}, cache=None, progress=False
    )
    for compute, key, names in (
        (bertscore, "no_idf", ("bertscore_f1", "rescaled_bertscore_f1")),
        (
            bertscore_multimedeval,
            "idf_hypotheses",
            ("idf_bertscore_f1", "rescaled_idf_bertscore_f1"),
        ),
    ):
        totals = compute(settings, references, hypotheses).totals
        wanted = dict(
            zip(
                names,
                (expected["mean"][key][2], expected["mean"][f"{key}_rescaled"][2]),
                strict=True,
            )
        )
        assert totals == pytest.approx(wanted, abs=1e-5)
    rough = bertscore_multimedeval(replace(settings, dtype="bfloat16"), [], [])
    stated = {
        "encoder": ENCODER,
        "layer": "5",
        "idf": "hypotheses",
        "baseline_f1": "0.8473319",
        "dtype": "bfloat16",
    }
    assert rough.settings == stated
    table = files("bert_score") / "rescale_baseline" / "en" / f"{ENCODER}.tsv"
    for text in (table.read_text(), (folder / "baseline.tsv").read_text()):
        assert [
            float(row["F"]) for row in csv.DictReader(text.splitlines()) if row["LAYER"] == "5"
        ] == [BASELINE_F1]
    for matches, pair in zip(
        BertScore(ENCODER, 5, settings).matches(references, hypotheses),
        expected["pairs"],
        strict=True,
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
        assert [0 if math.isnan(value) else value for value in values] == pytest.approx(
            expected, abs=2e-5
        )


@each_row("window", [1, 1 << 17])
def test_windows_do_not_matter(roberta, monkeypatch, window):
    usual = score(roberta, "references")
    monkeypatch.setattr(encoder_module, "_WINDOW", window)
    assert score(roberta, "references", batch_size=3).f1 == pytest.approx(usual.f1, abs=1e-5)


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
    metric(roberta).score(
        references=references, hypotheses=[f"b {number}" for number in range(30)]
    )
    assert len(most) >= 30
    assert max(most) <= 4


def test_medhevals_is_neither_rescaled_nor_weighted_and_of_what_the_package_takes_for_english(
    monkeypatch,
):
    from bert_score.utils import lang2model, model2layers

    def score(self, *, references, hypotheses, idf):
        assert (self.encoder, self.layer) == (lang2model["en"], model2layers[lang2model["en"]])
        assert (len(references), len(hypotheses), idf) == (2, 2, Idf.NONE)
        return BertScores((0.5, 0.7), (0.25, 0.75), (1 / 3, 0.72))

    monkeypatch.setattr(BertScore, "score", score)
    scores = medheval_bertscore(ModelSettings(), ["a", "b"], ["c", "d"])
    assert scores.totals == pytest.approx(
        {
            "roberta_large_precision": 0.6,
            "roberta_large_recall": 0.5,
            "roberta_large_f1": (1 / 3 + 0.72) / 2,
        }
    )
    assert (scores.settings["idf"], scores.settings["rescaled"]) == ("none", "no")


CLS, SEP = 0, 2


def pair(reference, hypothesis, reference_best=(), hypothesis_best=()):
    """A pair from the ids of its words; [CLS] and [SEP] have matches that would show in the scores."""
    sides = []
    for ids, best in ((reference, reference_best), (hypothesis, hypothesis_best)):
        sides.append(
            (np.array([CLS, *ids, SEP], np.int32), np.array([9, *best, -9], np.float32))
        )
    (reference_ids, reference_values), (hypothesis_ids, hypothesis_values) = sides
    return TokenMatches(reference_ids, hypothesis_ids, reference_values, hypothesis_values)


def test_an_empty_side_scores_zero_and_one_text_alone_has_no_idf_and_a_warning(warnings):
    scores = bert_scores([pair([], [5], [], [0.0]), pair([5], [], [0.0]), pair([], [])])
    assert set(scores.precision + scores.recall + scores.f1) == {0}
    scores = bert_scores([pair([5], [5], [1.0], [1.0])], Idf.REFERENCES)
    assert math.isnan(scores.precision[0])
    assert math.isnan(scores.recall[0])
    assert scores.f1 == (0.0,)
    bert_scores([pair([5], [5], [1.0], [1.0])])
    assert len(warnings) == 1
    assert "idf over the references: in 1 of 1 pairs" in warnings[0]
