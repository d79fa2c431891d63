"""Words, annotations of odd texts, and annotations against the ``radgraph`` package on the same archives."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from radgraph import utils

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import radgraph_network as network
from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph import RadGraph, words_of

from ....tables import each_row
from ...published_packages import package_radgraph
from .random_archive import MARKS, WORDS, invented_reports


@pytest.fixture
def settings(v1):
    return ModelSettings(
        named_weights={"radgraph": v1}, device="cpu", cache=None, progress=False
    )


texts = st.one_of(
    st.text(), st.text(alphabet="ab1² \n\t\\nfu2\"'`%.,:!?()/-_[]é中\u200b\u2122", max_size=60)
)


@pytest.mark.parametrize("model_type", ["radgraph", "radgraph-xl"])
@given(text=texts)
@example("A/B:C;(3.5cm)-X!, right-sided,\t[x] 50%;... 3 cm² e\u0301\x1ctwo \u200b")
@example("it's \"clear\".' (95%)..?!" + r"one\ntwo\u2122 a \"quoted\"")
def test_words_are_those_of_the_package(model_type, text):
    (report,) = utils.preprocess_reports([text], model_type)
    assert words_of(text, model_type) == report["sentences"][0]


EMPTY = {"entities": {}, "data_source": None, "data_split": "inference"}


def test_annotations_do_not_depend_on_how_many_pairs_are_scored_at_once(settings, monkeypatch):
    texts = [
        *invented_reports(8, 25),
        *invented_reports(2, 120, seed=1),
        *invented_reports(3, 2, seed=2),
    ]
    together = RadGraph("radgraph", settings).annotate(texts)
    assert sum(len(found["entities"]) for found in together) > 100
    assert (
        sum(
            len(entity["relations"])
            for found in together
            for entity in found["entities"].values()
        )
        > 20
    )
    monkeypatch.setattr(network, "_PAIRS_AT_ONCE", 7)
    assert RadGraph("radgraph", settings).annotate(texts) == together


def test_texts_without_words_or_wordpieces(settings, monkeypatch):
    white, nothing, none = RadGraph("radgraph", settings).annotate([" \n\t ", "", "None"])
    assert white == {"text": "", **EMPTY}
    assert nothing == none
    assert nothing["text"] == "None"
    odd = ["\u200b \u200b", "中" * 700 + " \U0001f9e0 \ud83d \x00 [SEP] [CLS] x" + "y" * 200]
    assert [report["text"] for report in RadGraph("radgraph", settings).annotate(odd)] == odd
    monkeypatch.setattr(network, "Annotator", lambda *_: pytest.fail("a network was loaded"))
    assert RadGraph("radgraph", settings).annotate([" ", "\n"]) == [{"text": "", **EMPTY}] * 2
    assert RadGraph("radgraph", settings).annotate([]) == []


def test_bfloat16_is_close_but_no_less_careful_with_scores(settings):
    texts, spans = invented_reports(10, 30), []
    for dtype in ("float32", "bfloat16"):
        annotated = enumerate(
            RadGraph("radgraph", replace(settings, dtype=dtype)).annotate(texts)
        )
        entities = [
            (at, entity) for at, report in annotated for entity in report["entities"].values()
        ]
        spans.append(
            {
                (at, entity["start_ix"], entity["end_ix"], entity["label"])
                for at, entity in entities
            }
        )
    assert 100 < max(map(len, spans)) < len(spans[0] & spans[1]) / 0.8


# Words that one of the two splits, reads or drops in its own way.
ODD = (
    *(
        "/.",
        "/?",
        "cm)",
        "95%.",
        "95%)",
        "95%,",
        "end.'",
        "(x).",
        "a/b",
        "3.5cm",
        "2½",
        "cm²",
        "\\n",
        "\\u2122",
        '\\"',
    ),
    *(
        "\u200b",
        "\u200b\u200b",
        "é",
        "e\u0301",
        "中文",
        "\U0001f9e0",
        "[SEP]",
        "[UNK]",
        "___",
        "\x00",
        "\u2122",
        "--",
    ),
)
ALONE = ("", "None", "a", ".", "\u200b", "\u200b \u200b", "No effusion", "中" * 150, "x" * 150)


def odd_reports(count):
    """Draw texts with odd words and marks, of very different lengths."""
    draw = random.Random(11)
    return [
        "".join(
            draw.choice(
                (
                    draw.choice(WORDS),
                    draw.choice(WORDS).upper(),
                    draw.choice(ODD),
                    draw.choice(MARKS),
                )
            )
            + draw.choice((" ", " ", " ", "", "\n", "  "))
            for _ in range(draw.choice((3, 10, 30)))
        )
        + "end"
        for _ in range(count)
    ]


def agree(settings, model_type, texts):
    """Return the package's annotations, which ours must equal."""
    with package_radgraph(open_archive(model_type, settings)) as model:
        theirs = [*model(texts).values()]
    assert list(map(json.dumps, RadGraph(model_type, settings).annotate(texts))) == list(
        map(json.dumps, theirs)
    )
    return theirs


def test_golden_radgraph_archive_against_the_package(golden):
    named = {"radgraph": golden / "metrics" / "radgraph"}
    settings = ModelSettings(named_weights=named, device="cpu", cache=None, progress=False)
    theirs = agree(
        settings, "radgraph", [*invented_reports(15, 40, seed=21), *odd_reports(15), *ALONE]
    )
    assert any(annotation["entities"] for annotation in theirs)


@each_row("model_type", ["radgraph", "radgraph-xl"])
def test_random_archives_against_the_package(model_type, v1, xl, settings):
    settings = replace(settings, named_weights={"radgraph": v1, "radgraph-xl": xl})
    texts = [
        *invented_reports(2, 25, seed=22),
        *invented_reports(1, 90, seed=23),
        *odd_reports(8),
        *ALONE,
    ]
    theirs = agree(settings, model_type, texts)
    assert (
        sum(
            len(entity["relations"])
            for found in theirs
            for entity in found["entities"].values()
        )
        > 100
    )
