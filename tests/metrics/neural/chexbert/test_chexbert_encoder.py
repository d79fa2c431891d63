"""CheXbert on texts: batches, alignment, long and odd texts, and the cache."""

import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from medtasks.errors import MedTasksError
from medtasks.metrics.neural.chexbert import network as network_module
from medtasks.metrics.neural.chexbert.reader import Chexbert, Reading, prepare

from .... import tiny_chexbert

TEXTS = [
    "No edema.",
    "",
    "Small left effusion. The heart is 12.4 cm, lungs clear.",
    " \n\t",
    "No edema.",
    "ödem — 肺 😀",
    "effusion " * 5_000,
    "right",
]


@pytest.fixture
def forbid(monkeypatch):
    """Make loading a network impossible from now on."""

    def load(*_):
        raise AssertionError("a network was loaded")

    return lambda: monkeypatch.setattr(network_module, "load_network", load)


def assert_same(one, other, tolerance=1e-5):
    assert [reading.classes for reading in one] == [reading.classes for reading in other]
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a.vector, b.vector, atol=tolerance, rtol=0)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_readings_do_not_depend_on_batches_or_company(settings, batch_size):
    alone = [Chexbert(settings)([text])[0] for text in TEXTS]
    assert_same(Chexbert(replace(settings, batch_size=batch_size))(TEXTS), alone)
    assert_same(Chexbert(replace(settings, batch_size=batch_size))(TEXTS[::-1]), alone[::-1])
    # Else the comparison would say nothing.
    assert len({reading.classes for reading in alone}) > 4


def test_readings_stand_where_their_texts_do(settings):
    readings = Chexbert(settings)(TEXTS)
    assert all(len(reading.classes) == 14 for reading in readings)
    assert all(reading.vector.shape == (24,) and reading.vector.dtype == np.float32 for reading in readings)
    assert readings[0].classes == readings[4].classes != readings[7].classes
    assert np.array_equal(readings[1].vector, readings[3].vector)
    assert Chexbert(settings)([]) == []


def test_a_long_text_is_read_up_to_the_limit(settings):
    # One token per word, so that 510 of them stand between [CLS] and [SEP].
    start = "effusion " * 509
    cut, same, other = Chexbert(settings)([start + "left", start + "left heart " * 9, start + "right"])
    assert_same([cut], [same])
    assert not np.allclose(cut.vector, other.vector, atol=1e-3)


@given(st.text())
def test_preparing_leaves_single_spaces(text):
    prepared = prepare(text)
    assert prepare(prepared) == prepared
    assert prepared == prepared.strip()
    assert "\n" not in prepared
    assert "  " not in prepared


def test_white_space_parts_words_and_half_characters_are_left_out(settings):
    assert prepare(" no\x0cedema \x1f\u2003left\n\n") == "no edema left"
    assert prepare("no\ud800 edema") == "no edema"
    whole, half = Chexbert(settings)(["no edema", "no\udc80 edema"])
    assert np.array_equal(whole.vector, half.vector)


@hypothesis_settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(0, 3)] * 14), st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_a_reading_survives_the_cache(classes, vector):
    reading = Reading(classes, np.array(vector, dtype=np.float32))
    again = Reading.from_bytes(reading.to_bytes())
    assert again.classes == classes
    assert np.array_equal(again.vector, reading.vector)


def test_a_distinct_text_is_computed_once(settings, monkeypatch):
    seen = []
    original = network_module.ChexbertNetwork.forward

    def forward(self, ids, mask):
        seen.append(len(ids))
        return original(self, ids, mask)

    monkeypatch.setattr(network_module.ChexbertNetwork, "forward", forward)
    Chexbert(settings)(["edema", " edema\n", "edema", "left", ""])
    assert sum(seen) == 3


def test_a_second_run_needs_no_network(settings, tmp_path, forbid):
    cached = replace(settings, cache=tmp_path)
    first = Chexbert(cached)(TEXTS)
    forbid()
    assert_same(Chexbert(cached)(TEXTS[::-1])[::-1], first, tolerance=0)
    for other, texts in ((cached, [*TEXTS, "a text that is new"]), (replace(cached, dtype="bfloat16"), TEXTS)):
        with pytest.raises(AssertionError, match="a network was loaded"):
            Chexbert(other)(texts)


def test_a_second_process_would_not_import_the_encoder(settings, tmp_path, monkeypatch):
    cached = replace(settings, cache=tmp_path)
    first = Chexbert(cached)(TEXTS)
    for name in ("torch", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)
    assert_same(Chexbert(cached)(TEXTS), first, tolerance=0)


@pytest.mark.parametrize("changed", ["weights", "vocabulary"])
def test_other_weights_or_another_vocabulary_have_another_cache(settings, tmp_path, forbid, changed):
    folder = tiny_chexbert.write_chexbert(tmp_path / "files", seed=1 if changed == "weights" else 0)
    if changed == "vocabulary":
        (folder / "bert-base-uncased" / "vocab.txt").write_text("\n".join([*tiny_chexbert.VOCABULARY[:-1], "fluid"]))
    cached = replace(settings, cache=tmp_path / "cache")
    Chexbert(cached)(["edema"])
    forbid()
    Chexbert(cached)(["edema"])
    with pytest.raises(AssertionError, match="a network was loaded"):
        Chexbert(replace(cached, weights=folder))(["edema"])


def test_what_was_computed_before_a_failure_is_kept(settings, tmp_path, monkeypatch):
    cached = replace(settings, cache=tmp_path, batch_size=1)
    calls = []
    original = network_module.ChexbertNetwork.forward

    def failing(self, ids, mask):
        calls.append(ids)
        if len(calls) == 3:
            raise RuntimeError("the driver is gone")
        return original(self, ids, mask)

    monkeypatch.setattr(network_module.ChexbertNetwork, "forward", failing)
    with pytest.raises(RuntimeError, match="the driver is gone"):
        Chexbert(cached)(["edema left right", "edema left", "edema", ""])
    Chexbert(cached)(["edema left right", "edema left", "edema", ""])
    assert len(calls) == 3 + 2


def test_memory_that_runs_out_halves_batches(settings, monkeypatch):
    wanted = Chexbert(settings)(TEXTS)
    original = network_module.ChexbertNetwork.forward

    def small(self, ids, mask):
        if len(ids) > 2:
            raise torch.OutOfMemoryError("no memory")
        return original(self, ids, mask)

    monkeypatch.setattr(network_module.ChexbertNetwork, "forward", small)
    assert_same(Chexbert(settings)(TEXTS), wanted)


def test_bfloat16_changes_vectors_a_little(settings):
    exact, rough = Chexbert(settings)(TEXTS), Chexbert(replace(settings, dtype="bfloat16"))(TEXTS)
    differences = [np.abs(a.vector - b.vector).max() for a, b in zip(exact, rough, strict=True)]
    assert 0 < max(differences) < 0.2
    assert all(reading.vector.dtype == np.float32 for reading in rough)


def test_float32_holds_in_a_process_that_allows_less(settings):
    wanted = Chexbert(settings)(TEXTS)
    torch.set_float32_matmul_precision("medium")
    try:
        assert_same(Chexbert(settings)(TEXTS), wanted, tolerance=0)
    finally:
        torch.set_float32_matmul_precision("highest")


def test_the_processes_random_numbers_stay_as_they_are(settings):
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    Chexbert(settings)(TEXTS)
    assert torch.equal(torch.rand(2), wanted)


def test_an_unknown_device_is_one_sentence(settings):
    with pytest.raises(MedTasksError, match="device 'abacus' for metrics cannot be used"):
        Chexbert(replace(settings, device="abacus"))(["edema"])


def test_progress_is_shown_if_asked_for(settings, capsys):
    Chexbert(settings)(["edema"])
    assert capsys.readouterr().err == ""
    Chexbert(replace(settings, progress=True))(["edema"])
    assert "CheXbert: 100%" in capsys.readouterr().err
