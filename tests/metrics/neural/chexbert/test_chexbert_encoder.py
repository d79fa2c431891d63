"""CheXbert on texts: long and odd ones, and the cache."""

import numpy as np
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from medtasks.metrics.neural.chexbert import Chexbert, Reading, prepare

TEXTS = ["No edema.", "", "Small left effusion.", " \n\t", "No edema.", "right"]


def test_readings_stand_where_their_texts_do(settings):
    readings = Chexbert(settings)(TEXTS)
    assert all(len(reading.classes) == 14 for reading in readings)
    assert all(reading.vector.shape == (24,) and reading.vector.dtype == np.float32 for reading in readings)
    assert readings[0].classes == readings[4].classes != readings[5].classes
    assert np.array_equal(readings[1].vector, readings[3].vector)
    assert Chexbert(settings)([]) == []


def test_a_long_text_is_read_up_to_the_limit(settings):
    # One token per word, so that 510 of them stand between [CLS] and [SEP].
    start = "effusion " * 509
    cut, same, other = Chexbert(settings)([start + "left", start + "left heart " * 9, start + "right"])
    assert cut.classes == same.classes
    np.testing.assert_allclose(cut.vector, same.vector, atol=1e-5, rtol=0)
    assert not np.allclose(cut.vector, other.vector, atol=1e-3)


def test_white_space_parts_words_and_half_characters_are_left_out(settings):
    assert prepare(" no\x0cedema \x1f\u2003left\n\n") == "no edema left"
    assert prepare("no\ud800 edema") == "no edema"
    whole, half = Chexbert(settings)(["no edema", "no\udc80 edema"])
    assert np.array_equal(whole.vector, half.vector)


@hypothesis_settings(max_examples=20)
@given(st.tuples(*[st.integers(0, 3)] * 14), st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_a_reading_survives_the_cache(classes, vector):
    reading = Reading(classes, np.array(vector, dtype=np.float32))
    again = Reading.from_bytes(reading.to_bytes())
    assert again.classes == classes
    assert np.array_equal(again.vector, reading.vector)
