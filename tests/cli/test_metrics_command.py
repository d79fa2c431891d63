"""``medtasks metrics`` and ``weights``: tables, JSON, failures, downloads, and no report text anywhere."""

import json
from pathlib import Path

import huggingface_hub
import pytest

from medtasks.cli import metrics
from medtasks.data.prepare import downloads
from medtasks.metrics import model_settings
from medtasks.metrics.missing_weights import weights_trouble
from medtasks.metrics.model_settings import TOKENIZER, WEIGHTS, WORDNET, weights_folder
from medtasks.metrics.report_metrics import REPORT_METRICS

from .conftest import rows_of

REFERENCES = ["No pleural effusion.", "Heart is large.\n\nLungs are clear.", "", "Unchanged tube."]
HYPOTHESES = ["No effusion.", "Heart is large.", "Clear.", ""]


@pytest.fixture
def files(tmp_path):
    paths = tmp_path / "refs.jsonl", tmp_path / "hyps.json"
    paths[0].write_text(
        "".join(json.dumps({"id": n, "text": text}) + "\n" for n, text in enumerate(REFERENCES))
    )
    shuffled = [{"doc_id": str(n), "reply": HYPOTHESES[n]} for n in (2, 0, 3, 1)]
    paths[1].write_text(json.dumps(shuffled))
    return ["metrics", "--refs", paths[0], "--hyps", paths[1]]


@pytest.fixture
def weights(golden):
    folder = golden / "metrics"
    named = {
        "radgraph": folder / "radgraph/radgraph.tar.gz",
        "chexbert": folder / "chexbert/chexbert.pth",
        "distilroberta-base": folder / "bertscore/distilroberta-base",
    }
    return [part for name, path in named.items() for part in ("--weights", f"{name}={path}")]


def no_texts_in(text):
    return not any(word in text.lower() for word in ("pleural", "lungs", "unchanged"))


def test_list(medtasks):
    ran = medtasks("metrics")
    assert (ran.code, ran.err) == (0, "")
    first, *lines, last = ran.out.splitlines()
    assert first.split() == ["metric", "better", "ready", "description"]
    listed = {line.split()[0]: line.split()[1:3] for line in lines}
    assert list(listed) == list(REPORT_METRICS)
    assert listed["bleu"] == ["higher", "yes"]
    assert listed["bertscore"] == ["higher", "no"]
    assert listed["radcliq_v1"] == ["lower", "no"]
    fetch = last.removeprefix("Fetch what is missing with: medtasks weights fetch ").split()
    assert {"radgraph", "chexbert", "distilroberta-base"} <= set(fetch)
    assert len(fetch) == len(set(fetch))


def test_lexical_scores(medtasks, files, tmp_path):
    ran = medtasks(
        *files,
        "--metric",
        "bleu",
        "--metric",
        "rouge,radcliq_bleu,bleu",
        "--json",
        tmp_path / "out.json",
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[0] == "pairs: 4, empty replies: 1, empty references: 1"
    rows = rows_of(ran.out)
    assert list(rows) == [
        "bleu_1",
        "bleu_2",
        "bleu_4",
        "rouge_1",
        "rouge_2",
        "rouge_l",
        "radcliq_bleu_2",
    ]
    written = json.loads((tmp_path / "out.json").read_text())
    assert list(written["metrics"]) == ["bleu", "rouge", "radcliq_bleu"]
    assert (written["ids"], written["pairs"], written["failed"]) == (["0", "1", "2", "3"], 4, {})
    assert written["versions"]["torch"]
    for metric in written["metrics"].values():
        assert metric["higher_is_better"] is True
        for key, value in metric["totals"].items():
            shown = f"{value:.3f}" if key.startswith("radcliq") else f"{100 * value:.1f}%"
            assert rows[key] == [shown, "higher"]
            assert value == pytest.approx(sum(metric["samples"][key]) / 4)
    assert written["metrics"]["bleu"]["samples"]["bleu_1"] == pytest.approx(
        [0.6065306597, 0.3678794412, 0, 0]
    )
    assert no_texts_in(ran.out + (tmp_path / "out.json").read_text())
    # A metric can be named as the table names its score.
    ran = medtasks(*files, "--metric", "rouge_l,bleu_1", "--metric", "bleu_4")
    assert list(rows_of(ran.out)) == ["rouge_l", "bleu_1", "bleu_4"]
    assert list(rows_of(medtasks(*files, "--metric", "bleu_1,bleu").out)) == [
        "bleu_1",
        "bleu_2",
        "bleu_4",
    ]


def test_golden_radcliq_with_weights_by_name(medtasks, files, weights, tmp_path):
    home = tmp_path / "home"
    chosen = "radcliq_v0,radcliq_v1,bertscore,radgraph_combined,chexbert,radcliq_bleu"
    options = [
        "--metric",
        chosen,
        "--device",
        "cpu",
        "--batch-size",
        2,
        "--json",
        tmp_path / "a.json",
    ]
    ran = medtasks(*files, *weights, *options)
    assert (ran.code, ran.err) == (0, "")
    assert rows_of(ran.out)["radcliq_v0"][1] == "lower"
    found = json.loads((tmp_path / "a.json").read_text())["metrics"]
    assert set(found) == set(chosen.split(","))
    assert found["radcliq_v1"]["settings"]["bertscore.idf"] == "none"
    assert no_texts_in(ran.out)
    assert not home.exists()


def test_golden_bertscore_cache_is_kept_or_not(medtasks, files, weights, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    command = [*files, *weights, "--metric", "bertscore", "--device", "cpu"]
    without = medtasks(*command, "--no-cache")
    assert not (tmp_path / "home").exists()
    with_cache = medtasks(*command)
    assert list((tmp_path / "home" / "metrics").iterdir())
    assert without.out == with_cache.out == medtasks(*command).out
    ran = medtasks(*command, "--dtype", "bfloat16")
    assert (
        ran.out.splitlines()[-1] == "Computed in bfloat16, which moves scores a little: bertscore."
    )


def test_every_failure_has_its_line_and_costs_nothing_else(medtasks, files, tmp_path):
    ran = medtasks(*files, "--metric", "all", "--json", tmp_path / "out.json")
    assert ran.code == 1
    assert "radcliq_v0, radcliq_v1, radcliq_v1_multimedeval: " in ran.err
    lines = ran.err.splitlines()
    fixes = (
        "medtasks weights fetch",
        "green needs an LLM judge",
        "pip install 'medtasks[cider]'",
        "apt-get install",
    )
    assert all(any(fix in line for fix in fixes) for line in lines)
    named = [
        name
        for line in lines
        for name in line.removeprefix("medtasks: ").split(": ")[0].split(", ")
    ]
    lacking = {name for name in (*WEIGHTS, WORDNET, TOKENIZER) if weights_trouble(name)}
    ready = [
        name
        for name, info in REPORT_METRICS.items()
        if not (lacking & {*info.weights} or name == "green")
    ]
    assert sorted(named) == sorted(set(REPORT_METRICS) - set(ready))
    written = json.loads((tmp_path / "out.json").read_text())
    assert (sorted(written["failed"]), list(written["metrics"])) == (sorted(named), ready)
    assert set(rows_of(ran.out)) == {key for name in ready for key in REPORT_METRICS[name].keys}


def test_what_is_wrong_with_files_and_options(medtasks, fails, files, tmp_path):
    fails(
        ["metrics", "--refs", tmp_path / "none.txt", *files[3:], "--metric", "bleu"], "cannot read"
    )
    fails([*files, "--metric", "bleeu"], "did you mean 'bleu'?")
    (tmp_path / "file").touch()
    fails([*files, "--metric", "bleu", "--weights", "chexber=x"], "did you mean 'chexbert'?")
    fails([*files, "--metric", "bleu", "--json", tmp_path / "file" / "file.json"], "cannot write")
    for options in (
        ["--weights", "chexbert"],
        ["--dtype", "float16"],
        ["--batch-size", 0],
        ["--metric", " , "],
    ):
        assert medtasks(*files, "--metric", "bleu", *options).code == (
            0 if options[0] == "--metric" else 2
        )
    assert medtasks(*files, "--metric", ",").code == 2
    assert medtasks("metrics", "--metric", "bleu").code == 2
    (tmp_path / "hyps.json").write_text('[{"doc_id": 7, "reply": "Unchanged."}]')
    ran = fails([*files, "--metric", "bleu"], "id '0' of", "is not in")
    assert no_texts_in(ran.err)


@pytest.fixture
def hub(monkeypatch):
    """A hub that has everything but the repositories added to what is returned."""
    gone = set()

    def download(hub, allow_patterns, local_dir):
        if hub in gone:
            raise ConnectionError("no route")
        Path(local_dir).mkdir(parents=True, exist_ok=True)
        for name in allow_patterns:
            (Path(local_dir) / name).touch()

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(
        downloads, "download", lambda _, target: download("", [target.name], target.parent)
    )
    monkeypatch.setattr(model_settings, "_write_counts", lambda pickle, blob, table: table.touch())
    return gone


def test_weights_are_listed_and_fetched(medtasks, fails, hub, monkeypatch, tmp_path):
    first, *lines = medtasks("weights", "fetch").out.splitlines()
    assert first.split() == ["weights", "here", "MB", "description", "licence"]
    assert [line.split()[0] for line in lines[:-2]] == [*WEIGHTS, "wordnet", "ptb-tokenizer"]
    assert lines[-2] == f"Weights folder: {weights_folder('radgraph').parent}"
    assert {line.split()[1] for line in lines[: len(WEIGHTS)]} == {"no"}
    moving = [name for name, info in WEIGHTS.items() if info.hub]
    assert lines[-1].endswith(f"with which values may move: {', '.join(moving)}.")
    ran = medtasks("weights", "fetch", "radgraph", "pubmedbert", "radgraph")
    path = weights_folder("radgraph") / "radgraph.tar.gz"
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        f"radgraph: {path}",
        f"pubmedbert: {weights_folder('pubmedbert')}",
    ]
    rows = [line.split()[:2] for line in medtasks("weights", "fetch").out.splitlines()]
    assert {name for name, here in rows if here == "yes"} - {"wordnet", "ptb-tokenizer"} == {
        "radgraph",
        "pubmedbert",
    }
    sources = []
    monkeypatch.setattr(
        metrics, "prepare_wordnet", lambda source: sources.append(source) or tmp_path
    )
    ran = medtasks("weights", "fetch", "all")
    assert [line.split(":")[0] for line in ran.out.splitlines()] == [*WEIGHTS, "wordnet"]
    ran = medtasks("weights", "fetch", "wordnet", "--source", tmp_path / "wordnet.zip")
    assert ran.out == f"wordnet: {tmp_path}\n"
    assert sources == [None, tmp_path / "wordnet.zip"]
    assert medtasks("weights", "fetch", "wordnet", "radgraph", "--source", tmp_path).code == 2
