"""Annotations and F1 against the ``radgraph`` package itself, run on the same archives."""

import json
import random
import shutil

import pytest

pytest.importorskip("radgraph", reason="the radgraph package is not installed: pip install medtasks[dev]")

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.radgraph.model import RadGraph, radgraph

from .package_oracle import package_annotations, package_model
from .random_archive import MARKS, WORDS, invented_reports, write_archive

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


def odd_reports(count: int) -> list[str]:
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


def test_golden_radgraph_archive_against_the_package(golden, tmp_path, monkeypatch):
    # The package writes into the folder, and takes the encoder's name from the working directory.
    for name in ("radgraph", "encoder"):
        shutil.copytree(golden / "metrics" / "radgraph" / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    texts = [*invented_reports(15, 40, seed=21), *odd_reports(15), *ALONE]
    with package_model("radgraph", tmp_path) as model:
        theirs = package_annotations(model, texts)

    settings = ModelSettings(weights=tmp_path, device="cpu", cache=None, progress=False)
    ours = RadGraph("radgraph", settings).annotate(texts)

    assert sum(len(annotation["entities"]) for annotation in theirs) > 100
    assert [json.dumps(annotation) for annotation in ours] == [json.dumps(annotation) for annotation in theirs]


@pytest.mark.parametrize("model_type", ["radgraph", "radgraph-xl"])
def test_random_archives_against_the_package(model_type, tmp_path):
    write_archive(tmp_path, model_type, encoder=str(tmp_path / "encoder"))
    texts = [*invented_reports(8, 25, seed=22), *invented_reports(1, 120, seed=23), *odd_reports(15), *ALONE]
    with package_model(model_type, tmp_path) as model:
        theirs = package_annotations(model, texts)

    settings = ModelSettings(weights=tmp_path, device="cpu", cache=None, progress=False)
    ours = RadGraph(model_type, settings).annotate(texts)

    assert sum(len(entity["relations"]) for found in theirs for entity in found["entities"].values()) > 100
    assert [json.dumps(annotation) for annotation in ours] == [json.dumps(annotation) for annotation in theirs]


def test_f1_against_the_package(tmp_path):
    import radgraph as package

    write_archive(tmp_path, "radgraph", encoder=str(tmp_path / "encoder"))
    references = [*invented_reports(6, 20, seed=1), "", "small effusion"]
    hypotheses = [*invented_reports(3, 20, seed=1), *invented_reports(3, 20, seed=2), "small effusion", ""]
    with package_model("radgraph", tmp_path) as model:
        scorer = package.F1RadGraph.__new__(package.F1RadGraph)
        super(package.F1RadGraph, scorer).__init__()
        scorer.reward_level, scorer.radgraph = "all", model
        means, samples, *_ = scorer(refs=references, hyps=hypotheses)

    settings = ModelSettings(weights=tmp_path, device="cpu", cache=None, progress=False)
    ours = radgraph(settings)(references=references, hypotheses=hypotheses)

    for level, theirs, mean in zip(("simple", "partial", "complete"), samples, means, strict=True):
        assert ours.samples[f"radgraph_{level}"] == pytest.approx(theirs, abs=1e-12)
        assert ours.totals[f"radgraph_{level}"] == pytest.approx(mean, abs=1e-12)
    assert 0 < means[0] < 1
