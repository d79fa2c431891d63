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

REFERENCES = [
    "No pleural effusion.",
    "Heart is large.\n\nLungs are clear.",
    "",
    "Unchanged tube.",
]
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


def test_metrics_are_listed_with_what_they_lack(medtasks):
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


LEXICAL = ("--metric", "bleu", "--metric", "rouge,radcliq_bleu,bleu")


@pytest.fixture
def lexical(medtasks, files, tmp_path):
    """Compute the lexical metrics; return what was printed and the JSON."""
    ran = medtasks(*files, *LEXICAL, "--json", tmp_path / "out.json")
    assert (ran.code, ran.err) == (0, "")
    return ran.out, json.loads((tmp_path / "out.json").read_text())


def test_metrics_are_computed_once_in_the_order_asked_for(lexical):
    out, written = lexical

    assert list(rows_of(out)) == [
        "bleu_1",
        "bleu_2",
        "bleu_4",
        "rouge_1",
        "rouge_2",
        "rouge_l",
        "radcliq_bleu_2",
    ]
    assert list(written["metrics"]) == ["bleu", "rouge", "radcliq_bleu"]


def test_pairs_of_reports_are_counted(lexical):
    out, written = lexical

    assert out.splitlines()[0] == "pairs: 4, empty replies: 1, empty references: 1"
    assert (written["ids"], written["pairs"], written["failed"]) == (
        ["0", "1", "2", "3"],
        4,
        {},
    )
    assert written["versions"]["torch"]


def test_the_table_shows_the_totals_of_the_json(lexical):
    out, written = lexical

    rows = rows_of(out)
    for metric in written["metrics"].values():
        assert metric["higher_is_better"] is True
        for key, value in metric["totals"].items():
            shown = f"{value:.3f}" if key.startswith("radcliq") else f"{100 * value:.1f}%"
            assert rows[key] == [shown, "higher"]
            assert value == pytest.approx(sum(metric["samples"][key]) / 4)


def test_the_json_holds_the_score_of_each_pair(lexical):
    _, written = lexical
    assert written["metrics"]["bleu"]["samples"]["bleu_1"] == pytest.approx(
        [0.6065306597, 0.3678794412, 0, 0]
    )


def test_scores_of_reports_hold_no_text(lexical, tmp_path):
    out, _ = lexical
    assert no_texts_in(out + (tmp_path / "out.json").read_text())


def test_a_metric_can_be_named_as_the_table_names_its_score(medtasks, files):
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
        ran.out.splitlines()[-1]
        == "Computed in bfloat16, which moves scores a little: bertscore."
    )


@pytest.fixture
def all_metrics(medtasks, files, tmp_path):
    """Ask for all metrics; return what the command did, the JSON, and the names of those that failed."""
    ran = medtasks(*files, "--metric", "all", "--json", tmp_path / "out.json")
    named = [
        name
        for line in ran.err.splitlines()
        for name in line.removeprefix("medtasks: ").split(": ")[0].split(", ")
    ]
    return ran, json.loads((tmp_path / "out.json").read_text()), named


def test_every_failure_has_a_line_that_fixes_it(all_metrics):
    ran, _, _ = all_metrics

    assert ran.code == 1
    assert "radcliq_v0, radcliq_v1, radcliq_v1_multimedeval: " in ran.err
    fixes = (
        "medtasks weights fetch",
        "green needs an LLM judge",
        "pip install 'medtasks[cider]'",
        "apt-get install",
    )
    assert all(any(fix in line for fix in fixes) for line in ran.err.splitlines())


def test_a_failing_metric_costs_no_other_one(all_metrics):
    ran, written, named = all_metrics

    lacking = {name for name in (*WEIGHTS, WORDNET, TOKENIZER) if weights_trouble(name)}
    ready = [
        name
        for name, info in REPORT_METRICS.items()
        if not (lacking & {*info.weights} or name == "green")
    ]
    assert sorted(named) == sorted(set(REPORT_METRICS) - set(ready))
    assert (sorted(written["failed"]), list(written["metrics"])) == (sorted(named), ready)
    assert set(rows_of(ran.out)) == {key for name in ready for key in REPORT_METRICS[name].keys}


def test_files_that_cannot_be_used_are_named(fails, files, tmp_path):
    (tmp_path / "file").touch()
    fails(
        ["metrics", "--refs", tmp_path / "none.txt", *files[3:], "--metric", "bleu"],
        "cannot read",
    )
    fails(
        [*files, "--metric", "bleu", "--json", tmp_path / "file" / "file.json"], "cannot write"
    )


def test_misspelt_metrics_and_weights_are_refused(fails, files):
    fails([*files, "--metric", "bleeu"], "did you mean 'bleu'?")
    fails([*files, "--metric", "bleu", "--weights", "chexber=x"], "did you mean 'chexbert'?")


def test_options_without_a_value_are_wrong_usage(medtasks, files):
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


def test_a_reply_without_a_reference_is_named_by_its_id(fails, files, tmp_path):
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
    monkeypatch.setattr(
        model_settings, "_write_counts", lambda pickle, blob, table: table.touch()
    )
    return gone


def test_weights_are_listed(medtasks, hub):
    first, *lines = medtasks("weights", "fetch").out.splitlines()

    assert first.split() == ["weights", "here", "MB", "description", "licence"]
    assert [line.split()[0] for line in lines[:-2]] == [*WEIGHTS, "wordnet", "ptb-tokenizer"]
    assert lines[-2] == f"Weights folder: {weights_folder('radgraph').parent}"
    assert {line.split()[1] for line in lines[: len(WEIGHTS)]} == {"no"}
    moving = [name for name, info in WEIGHTS.items() if info.hub]
    assert lines[-1].endswith(f"with which values may move: {', '.join(moving)}.")


def test_weights_are_fetched_once_each(medtasks, hub):
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


@pytest.fixture
def wordnet_sources(monkeypatch, tmp_path):
    """The sources from which WordNet is prepared."""
    sources = []
    monkeypatch.setattr(
        metrics, "prepare_wordnet", lambda source: sources.append(source) or tmp_path
    )
    return sources


def test_all_weights_are_fetched(medtasks, hub, wordnet_sources):
    ran = medtasks("weights", "fetch", "all")

    assert [line.split(":")[0] for line in ran.out.splitlines()] == [*WEIGHTS, "wordnet"]
    assert wordnet_sources == [None]


def test_wordnet_is_prepared_from_a_source(medtasks, hub, wordnet_sources, tmp_path):
    ran = medtasks("weights", "fetch", "wordnet", "--source", tmp_path / "wordnet.zip")

    assert ran.out == f"wordnet: {tmp_path}\n"
    assert wordnet_sources == [tmp_path / "wordnet.zip"]
    assert medtasks("weights", "fetch", "wordnet", "radgraph", "--source", tmp_path).code == 2
