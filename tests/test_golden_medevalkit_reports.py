"""Recorded behaviour of MedEvalKit's report sets and of Rad-ReStruct, from their sources to whole-dataset numbers."""

import csv
import io
import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import WeightsMissing
from medtasks.families.kit_questions import RAD_RESTRUCT
from medtasks.families.kit_reports import FAMILY
from medtasks.metrics import medevalkit_texts
from medtasks.metrics.meteor import load_wordnet, read_wordnet
from medtasks.metrics.metric import mean
from medtasks.prompts.template import messages, prompt
from medtasks.tasks.prompt_settings import prompt_settings
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolve_names

from .extract.reading import recorded
from .metrics.neural.test_rate_score import SMALL_RULES
from .processes import run_here
from .task_families import score_of, values_of
from .tiny_medevalkit import put_source

NAME = "medevalkit_{}_report".format
SOURCES = {
    **{folder: NAME(folder.lower()) for folder in ("MIMIC_CXR", "CheXpert_Plus", "IU_XRAY")},
    "Radrestruct": "medevalkit_radrestruct",
}
LEXICAL = {
    **{f"bleu{order}": f"medevalkit_bleu_{order}" for order in range(1, 5)},
    **{f"rouge{kind}": f"medevalkit_rouge_{kind.lower()}" for kind in "12L"},
}


@pytest.fixture(scope="module")
def cases(golden):
    return lambda name: recorded(golden / "reports" / "medevalkit_reports", name, 1)


@pytest.fixture(scope="module")
def home(golden, tmp_path_factory):
    """A data folder with the recorded sources."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder))
        for name, dataset in SOURCES.items():
            source = golden / "reports" / "medevalkit_reports" / "sources" / name
            prepare(dataset, Options(source, allow_incomplete=True))
    return folder


@pytest.fixture
def sets(home, monkeypatch):
    """Documents of the recorded sources by the name of their folder."""
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    return {name: load_documents(dataset) for name, dataset in SOURCES.items()}


def report(study):
    """Return the text that is compared; that of prepared documents is tested below."""
    return f"Findings: {study['findings']} Impression: {study['impression']}."


def scored(samples, rule):
    """Return the scores of recorded studies."""
    texts = [
        {"doc_id": str(number), "image_id": None, "report": report(study)}
        for number, study in enumerate(samples)
    ]
    replies = [
        study["response"] if isinstance(study["response"], str) else None for study in samples
    ]
    return [
        score_of(FAMILY, text, reply, rule) for text, reply in zip(texts, replies, strict=True)
    ]


def test_golden_medevalkit_reports_loaded(cases, sets):
    for case in cases("loaded"):
        by_id = {document["doc_id"]: document for document in sets[case["set"]]}
        if "error" in case:  # which the row says
            assert (case["set"], case["error"]) == ("IU_XRAY", "NameError")
            continue
        assert case["num_chunks"] > 1 or [sample["id"] for sample in case["samples"]] == list(
            by_id
        )
        settings = resolve_names(
            task_config(SOURCES[case["set"]])["lmms_eval_specific_kwargs"]
        )["default"]
        for sample in case["samples"]:
            document = by_id[sample["id"]]
            assert document["report"] == report(sample)
            (turn,) = messages(document, settings)
            shown = [part.get("text", "image") for part in turn["content"]]
            labels = [
                [f"<image_{at + 1}>: "] if "images" in sample["message_keys"] else []
                for at in range(9)
            ]
            images = [
                part for label in labels[: sample["images"]] for part in (*label, "image")
            ]
            assert "".join(shown) == "".join([*images, sample["prompt"]])
            assert shown.count("image") == sample["images"]


def test_golden_medevalkit_reports_csv(golden):
    case = json.loads(
        (golden / "reports" / "medevalkit_reports" / "csv.json").read_text(encoding="utf-8")
    )
    scores = scored(case["samples"], "medevalkit_report")
    for name, field in (("ground_truth.csv", "reference"), ("predictions.csv", "reply")):
        rows = csv.DictReader(io.StringIO(case[name], newline=""))
        assert [row["report"] for row in rows] == [score[field].text for score in scores]


@pytest.fixture
def corpora(cases):
    """Each recorded run with its scores under both rules; without those that lack a field, which have no documents."""
    runs = [case for case in cases("corpora") if case.get("error") != "KeyError"]
    rules = ("medevalkit_report", "medevalkit_report_fixed")
    return [(case, *(scored(case["samples"], rule) for rule in rules)) for case in runs]


def assert_means(case, published, fixed, names):
    """Compare whole-dataset numbers, and those of the rule that divides by what it scores."""
    found, mended = values_of(FAMILY, published), values_of(FAMILY, fixed)
    kept = dict(zip(case["kept"], case["per_sample"], strict=True))
    scored = [kept[number] for number, score in enumerate(fixed) if score["averaged"]]
    for name, ours in names.items():
        assert found[ours] == pytest.approx(case["metrics"][name], rel=1e-9, abs=1e-12), (
            case["samples"],
            name,
        )
        expected = mean([sample[name] for sample in scored])
        assert mended[ours] == pytest.approx(expected, rel=1e-9, abs=1e-12, nan_ok=True), (
            case["samples"],
            name,
        )


def test_golden_medevalkit_reports_corpora(corpora):
    for case, published, fixed in corpora:
        if "error" in case:
            found, mended = values_of(FAMILY, published), values_of(FAMILY, fixed)
            failed = sum(not isinstance(sample["response"], str) for sample in case["samples"])
            assert found["failed_samples"] == mended["failed_samples"] == failed
            # Only a reply that is no text, which failed here, leaves a number.
            assert math.isnan(found["medevalkit_bleu_1"]) == (case["error"] != "AttributeError")
            assert not any(score["stops"] for score in fixed)
            continue
        assert_means(case, published, fixed, LEXICAL)
        compared = [score for score in published if score["compared"]]
        for field, side in (("reply", "candidates"), ("reference", "references")):
            assert [score[field].text for score in compared] == case["passed_to_neural"][side]
        assert [number for number, score in enumerate(published) if score["compared"]] == case[
            "kept"
        ]
        tokens = [
            medevalkit_texts.report_words(compared[-1][field].text)
            for field in ("reference", "reply")
        ]
        assert tokens == case["tokens_of_last"]


def test_golden_medevalkit_reports_meteor(corpora, monkeypatch):
    folder = os.environ.get("MEDTASKS_WORDNET")
    try:
        wordnet = read_wordnet(Path(folder)) if folder else load_wordnet()
    except WeightsMissing as error:
        pytest.skip(f"{error}; MEDTASKS_WORDNET can name another folder or archive")
    monkeypatch.setattr(medevalkit_texts, "load_wordnet", lambda: wordnet)
    for case, published, fixed in corpora:
        if "error" not in case:
            assert_means(case, published, fixed, {"meteor": "medevalkit_meteor"})


def test_golden_medevalkit_radrestruct_prompts(cases, sets):
    by_question = {
        (row["image_id"], int(row["doc_id"].rpartition("/")[2]) - 1): row
        for row in sets["Radrestruct"]
    }
    for case in cases("radrestruct_prompts"):
        document = by_question[case["report"], case["index"]]
        settings = prompt_settings("medevalkit_radrestruct" + "_reasoning" * case["reasoning"])[
            "default"
        ]
        assert prompt({**document, "image_files": []}, settings) == case["prompt"]
        assert (document["answer"], document["options"]) == (case["answer"], case["choices"])
        assert (document["answers"], document["answer_type"]) == (
            case["answers"],
            case["answer_type"],
        )


def test_golden_medevalkit_radrestruct_head(golden, sets):
    head = json.loads(
        (golden / "reports" / "medevalkit_reports" / "radrestruct_head.json").read_text("utf-8")
    )
    rows = [(row["doc_id"].rpartition("/")[0], row["question"]) for row in sets["Radrestruct"]]
    last = dict(rows)
    assert (len(rows), len(last)) == (head["loaded"], head["distinct"])
    assert Counter(last[image] for image, _ in rows) == Counter(head["questions_seen"])


def test_golden_medevalkit_radrestruct_metrics(cases):
    names = {
        "total metrics": "accuracy",
        "single_choice": "acc_single_choice",
        "multiple_choice": "acc_multiple_choice",
    }
    for case in cases("radrestruct"):
        documents = [
            {**row, "doc_id": str(number), "image_id": None, "options": row["choices"]}
            for number, row in enumerate(case["rows"])
        ]
        published, fixed = (
            [
                score_of(RAD_RESTRUCT, document, document["response"], rule)
                for document in documents
            ]
            for rule in ("medevalkit_radrestruct", "medevalkit_radrestruct_fixed")
        )
        found, mended = values_of(RAD_RESTRUCT, published), values_of(RAD_RESTRUCT, fixed)
        if "error" in case:  # a set of one kind, or a reply that failed
            assert math.isnan(found["accuracy"]) == (case["error"] == "ZeroDivisionError"), (
                case["name"]
            )
            assert math.isnan(mended["accuracy"]) == (not documents)
            assert found["failed_samples"] == sum(row["response"] is None for row in documents)
            continue
        assert [score["correct"] for score in published] == [
            bool(correct) for correct in case["correct"]
        ]
        for group, ours in names.items():
            assert (
                found[ours]
                == mended[ours]
                == pytest.approx(case["metrics"][group]["acc"], rel=1e-9)
            )


def test_golden_weights_one_run_of_the_four_tasks_is_scored_compared_and_reported(
    golden, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    wordnet = SimpleNamespace(synsets=lambda word: (), get_version=lambda: "without words")
    monkeypatch.setattr(medevalkit_texts, "load_wordnet", lambda: wordnet)
    weights = tmp_path / "weights"
    for part, folder in (("rate-ner", "ner"), ("biolord", "encoder")):
        shutil.copytree(golden / "reports" / "ratescore" / folder, weights / part)
    for path, content in {
        "coco-val/coco-val.json": (golden / "reports" / "cider" / "standin.json").read_bytes(),
        "rush-rules/rush_rules.tsv": SMALL_RULES.encode(),
    }.items():
        (weights / path).parent.mkdir()
        (weights / path).write_bytes(content)
    monkeypatch.setenv("MEDTASKS_WEIGHTS", str(weights))
    for name in SOURCES.values():
        prepare(name, Options(put_source(name, tmp_path / "sources"), allow_incomplete=True))

    def medtasks(*arguments):
        done = run_here(["medtasks", *arguments], tmp_path)
        assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
        return " ".join((done.stdout + done.stderr).split())

    tiny = ("--model", "medtasks_tiny", "--device", "cpu", "--model_args", "journal=false")
    medtasks(
        "run",
        *tiny,
        "--tasks",
        "medevalkit_reports",
        "--gen_kwargs",
        "max_new_tokens=4",
        "--output_path",
        "run",
    )
    for name in SOURCES.values():
        (file,) = (tmp_path / "run").rglob(f"*_samples_{name}.jsonl")
        assert (CATALOGUE[name].access is Access.CREDENTIALED) == (
            "mimic" in name or "chexpert" in name
        )
        if CATALOGUE[name].access is Access.CREDENTIALED:
            assert "Clear lungs" not in file.read_text(encoding="utf-8")
            (file,) = (tmp_path / "home" / "replies" / name).iterdir()
        scored = medtasks("score", name, str(file))
        assert ("No public commit of MedEvalKit can load" in scored) == ("iu_xray" in name)
        assert ("asks only the last question" in scored) == ("radrestruct" in name)
        assert "B compared with A" in medtasks("compare", name, str(file), str(file))
    assert "report" in medtasks("report", "run")
