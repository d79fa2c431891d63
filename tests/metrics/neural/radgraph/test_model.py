from dataclasses import replace

import pytest

from medtasks.metrics.neural import radgraph_network as network
from medtasks.metrics.neural.radgraph import RadGraph

from ....tables import each_row
from .random_archive import invented_reports

EMPTY = {"entities": {}, "data_source": None, "data_split": "inference"}


def mixed_reports():
    """Texts of one word and of several segments, some of them twice."""
    reports = [*invented_reports(8, 25), *invented_reports(2, 120, seed=1), *invented_reports(3, 2, seed=2)]
    return [*reports, "", "\u200b", reports[3], "No effusion."]


def test_annotations_do_not_depend_on_how_many_pairs_are_scored_at_once(settings, monkeypatch):
    texts = mixed_reports()
    together = RadGraph("radgraph", settings).annotate(texts)
    assert sum(len(found["entities"]) for found in together) > 100
    assert sum(len(entity["relations"]) for found in together for entity in found["entities"].values()) > 20
    monkeypatch.setattr(network, "_PAIRS_AT_ONCE", 7)
    assert RadGraph("radgraph", settings).annotate(texts) == together


def test_texts_without_words_or_wordpieces(settings, monkeypatch):
    white, nothing, none = RadGraph("radgraph", settings).annotate([" \n\t ", "", "None"])
    assert white == {"text": "", **EMPTY}
    assert nothing == none
    assert nothing["text"] == "None"
    assert RadGraph("radgraph", settings).annotate(["\u200b \u200b"])[0]["text"] == "\u200b \u200b"
    monkeypatch.setattr(network, "Annotator", lambda *_: pytest.fail("a network was loaded"))
    assert RadGraph("radgraph", settings).annotate([" ", "\n"]) == [{"text": "", **EMPTY}] * 2
    assert RadGraph("radgraph", settings).annotate([]) == []


@each_row("model_type", ["radgraph", "radgraph-xl"])
def test_5000_words_and_any_characters(v1, xl, settings, model_type):
    settings = replace(settings, named_weights={"radgraph": v1, "radgraph-xl": xl})
    long = " ".join(" ".join(invented_reports(20, 300, seed=5)).split()[:5000])
    odd = "中" * 700 + " µ é e\u0301 \U0001f9e0 \ud83d \x00 \x1f [SEP] [CLS] x" + "y" * 200
    first, second = RadGraph(model_type, settings).annotate([long, odd])
    words = first["text"].split(" ")
    assert len(words) >= 5000
    assert len(first["entities"]) > 100
    for entity in [*first["entities"].values()][::50]:
        assert entity["tokens"] == " ".join(words[entity["start_ix"] : entity["end_ix"] + 1])
    assert max(entity["end_ix"] for entity in first["entities"].values()) > 4000
    assert "\ud83d" in second["text"]


def test_bfloat16_is_close_but_no_less_careful_with_scores(settings):
    texts = invented_reports(10, 30)
    exact = RadGraph("radgraph", settings).annotate(texts)
    rounded = RadGraph("radgraph", replace(settings, dtype="bfloat16")).annotate(texts)
    shared = total = 0
    for first, second in zip(exact, rounded, strict=True):
        one, other = (
            {(entity["start_ix"], entity["end_ix"], entity["label"]) for entity in found["entities"].values()}
            for found in (first, second)
        )
        shared, total = shared + len(one & other), total + max(len(one), len(other))
    assert total > 100
    assert 0.8 * total < shared
