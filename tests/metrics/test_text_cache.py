"""The cache of what models said of texts."""

import sqlite3

from hypothesis import given
from hypothesis import strategies as st

from medtasks.metrics.model_settings import TextCache, text_key

TEXTS = st.lists(st.text(max_size=6), max_size=3)


@given(TEXTS, TEXTS)
def test_keys_tell_texts_and_their_borders_apart(one, other):
    assert (text_key(*one) == text_key(*other)) == (one == other)
    assert text_key("\ud83d") != text_key("?")


def test_values_come_back(tmp_path):
    cache = TextCache(tmp_path / "deep" / "folder", "model")
    values = {text_key(str(number)): bytes([number % 256]) * number for number in range(1234)}
    assert cache.get(list(values)) == {}
    cache.put(values)
    assert cache.get([*values, text_key("unknown")]) == values
    cache.put({text_key("1"): b"new"})
    again, other = (TextCache(tmp_path / "deep" / "folder", model) for model in ("model", "other"))
    assert again.get([text_key("1")]) == {text_key("1"): b"new"}
    assert other.get([text_key("1")]) == {}


def test_a_place_that_cannot_be_written_costs_one_warning(tmp_path, warnings):
    (tmp_path / "file").touch()
    cache = TextCache(tmp_path / "file", "model")
    cache.put({text_key("a"): b"1"})
    cache.put({text_key("b"): b"1"})
    assert cache.get([text_key("a")]) == {}
    assert len(warnings) == 1


def test_a_file_without_its_table_is_empty(tmp_path, warnings):
    cache = TextCache(tmp_path, "model")
    cache.put({text_key("a"): b"1"})
    (file,) = tmp_path.iterdir()
    with sqlite3.connect(file) as connection:
        connection.execute("DROP TABLE texts")
    assert cache.get([text_key("a")]) == {}
    cache.put({text_key("a"): b"2"})
    assert cache.get([text_key("a")]) == {text_key("a"): b"2"}
