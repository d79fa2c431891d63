"""Annotations and F1 against the ``radgraph`` package itself, run on the same archives."""

import json
import random
from dataclasses import replace

import pytest

pytest.importorskip("radgraph", reason="the radgraph package is not installed: pip install medtasks[dev]")

from medtasks.metrics.cross_check import package_radgraph
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph import RadGraph

from ....tables import each_row
from .random_archive import MARKS, WORDS, invented_reports

# Words that one of the two splits, reads or drops in its own way.
ODD = (
    *("/.", "/?", "cm)", "95%.", "95%)", "95%,", "end.'", "(x).", "a/b", "3.5cm", "2½", "cm²", "\\n", "\\u2122", '\\"'),
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
        "...",
    ),
)
ALONE = ("", "None", "a", ".", "\u200b", "\u200b \u200b", "No effusion", "中" * 150, "x" * 150)


def odd_reports(count):
    """Draw texts with odd words and marks, of very different lengths."""
    draw = random.Random(11)
    return [
        "".join(
            draw.choice((draw.choice(WORDS), draw.choice(WORDS).upper(), draw.choice(ODD), draw.choice(MARKS)))
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
    ours = RadGraph(model_type, settings).annotate(texts)
    assert [json.dumps(annotation) for annotation in ours] == [json.dumps(annotation) for annotation in theirs]
    return theirs


def test_golden_radgraph_archive_against_the_package(golden):
    settings = ModelSettings(
        named_weights={"radgraph": golden / "metrics" / "radgraph"}, device="cpu", cache=None, progress=False
    )
    theirs = agree(settings, "radgraph", [*invented_reports(15, 40, seed=21), *odd_reports(15), *ALONE])
    assert any(annotation["entities"] for annotation in theirs)


@each_row("model_type", ["radgraph", "radgraph-xl"])
def test_random_archives_against_the_package(model_type, v1, xl, settings):
    settings = replace(settings, named_weights={"radgraph": v1, "radgraph-xl": xl})
    texts = [*invented_reports(8, 25, seed=22), *invented_reports(1, 120, seed=23), *odd_reports(15), *ALONE]
    theirs = agree(settings, model_type, texts)
    assert sum(len(entity["relations"]) for found in theirs for entity in found["entities"].values()) > 100
