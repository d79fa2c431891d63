import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph import SPLIT, split_v1, split_xl
from medtasks.metrics.neural.radgraph_network import WordEncoder

from ....tables import each_row

texts = st.one_of(st.text(), st.text(alphabet="ab1² \n\t\\nfu2\"'`%.,:!?()/-_[]é中\u200b\u2122", max_size=60))


@each_row(
    "text, words",
    [
        ("A/B:C;(3.5cm)-X!", ["A", "/", "B", ":", "C;", "(", "3", ".", "5cm", ")", "-X", "!"]),
        ("no  effusion\n\tseen.", ["no", "effusion", "seen", "."]),
        ("right-sided, [x] 50%;", ["right-sided", ",", "[x]", "50%;"]),
        ("...", [".", ".", "."]),
        (" \n\t ", []),
        ("", []),
    ],
)
def test_the_first_model_splits_around_some_marks(text, words):
    assert split_v1(text) == words


@each_row(
    "text, words",
    [
        ("right-sided, 50%.", ["right", "-", "sided", ",", "50", "%", "."]),
        ("(1.5 cm).", ["(", "1", ".", "5", "cm", ")", "."]),
        ("effusion..?!", ["effusion", "..?!"]),
        ("it's \"clear\".'", ["it", "'", "s", '"', "clear", '".', "'"]),
        ("95%, 90%)", ["95", "%", ",", "90", "%", ")"]),
        (r"one\ntwo\fthree\u2122four", ["one", "two", "three", "four"]),
        (r"a \"quoted\" word", ["a", "``", "quoted", "``", "word"]),
        ("3 cm² e\u0301", ["3", "cm", "²", "e\u0301"]),
        ("one\x1ctwo", ["one", "two"]),
        ("\u200b \n", ["\u200b"]),
        (" \n ", []),
    ],
)
def test_xl_splits_into_runs(text, words):
    assert split_xl(text) == words


@pytest.mark.parametrize("model_type", ["radgraph", "radgraph-xl"])
@given(text=texts)
def test_words_are_those_of_the_package(model_type, text):
    package = pytest.importorskip("radgraph.utils", reason="needs the radgraph package: pip install medtasks[dev]")
    (report,) = package.preprocess_reports([text], model_type)
    assert SPLIT[model_type](text) == report["sentences"][0]


def test_two_words_are_read_as_others(settings):
    archive = open_archive("radgraph", settings)
    read = WordEncoder(archive, archive.read().state, torch.device("cpu"), "float32").pieces
    point, question, slash = (read([[mark]])[0][0] for mark in (".", "?", "/"))
    assert read([["/.", "/?", "/", ".", "//."]]) == [[point, question, slash, point, [*slash, *slash, *point]]]
