"""Whole runs of GMAI-MMBench's tasks, and of parts of it, on files in miniature."""

import math
import random
from pathlib import Path

import pytest

from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.errors import JudgeNotConfigured
from medtasks.families.counts import COUNTS
from medtasks.home import dataset_folder
from medtasks.tasks.own_tasks import select_as

from .. import tiny_gmai
from .whole_runs import answering, evaluate, on_two, values

pytestmark = pytest.mark.slow

VAL, TEST, MCLS = (f"gmai_mmbench_{part}" for part in ("val", "test", "mcls"))
EYES, SCANS = "gmai_eyes", "gmai_scans"
CRITERIA = {
    EYES: {"department": ["O"], "modality": ["Fundus Photography", "CT"]},
    SCANS: {"modality": ["x*"], "department": ["None", "Orthopedic Surgery"]},
}
WANTED = {
    EYES: {"department": {"Ophthalmology"}, "modality": {"Fundus Photography", "CT"}},
    SCANS: {"department": {"None", "Orthopedic Surgery"}, "modality": {"X-ray"}},
}
TASKS = [VAL, f"{VAL}_ll", TEST, MCLS, EYES, SCANS]
ROWS = tiny_gmai.rows(60)
OPTIONS = {"gen_kwargs": "max_new_tokens=4", "log_samples": True}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gmai")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        tiny_gmai.prepare_all(folder / "source", ROWS, several=9, seed=50, unkeyed=1)
        for name, criteria in CRITERIA.items():
            select_as(VAL, criteria, name)
    return folder / "home"


@pytest.fixture(autouse=True)
def _prepared(home, _own_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))


def submissions(home: Path) -> list[Path]:
    return sorted((home / "submissions" / TEST).iterdir())


@pytest.fixture(scope="module")
def one_run(home):
    """Results of all tasks in one run of a real model, and the spreadsheets it wrote."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        return evaluate(TASKS, **OPTIONS), submissions(home)


def chosen(name):
    return [row for row in ROWS if all(row[column] in wanted for column, wanted in WANTED[name].items())]


def test_a_real_model_runs_every_task(one_run):
    results, _ = one_run
    rows = {VAL: 60, f"{VAL}_ll": 60, TEST: 11, MCLS: 9, **{name: len(chosen(name)) for name in CRITERIA}}
    assert {task: counts["effective"] for task, counts in results["n-samples"].items()} == rows
    for task in TASKS:
        for (metric, rule), value in values(results, task).items():
            if metric == "submission_rows":
                assert value == 11
                continue
            if metric in COUNTS:
                assert value == (rows[task] if metric == "scored_samples" else 0), (task, metric, rule)
                continue
            undefined = math.isnan(value) and (metric.startswith("acc_") or metric.endswith("_stderr"))
            assert undefined or 0 <= value <= 1, (task, metric, rule)


def test_results_say_which_part_of_the_data_they_are_about(one_run):
    results, _ = one_run
    found = {task: results["configs"][task]["metadata"]["data"] for task in TASKS}
    for name in CRITERIA:
        assert found[name]["selected_from"] == VAL
        assert found[name]["selection"].keys() == CRITERIA[name].keys()
        assert found[name]["rows"] == len(chosen(name)) > 0
        assert found[name]["fingerprint"] == Manifest.read(dataset_folder(name)).fingerprint
    assert found[VAL]["selection"] is None or not found[VAL]["selection"]
    assert found[VAL]["rows"] == 60
    assert len({found[task]["fingerprint"] for task in (VAL, TEST, MCLS, EYES, SCANS)}) == 5


def test_a_part_scores_like_the_same_questions_of_the_whole(one_run):
    results, _ = one_run
    whole = {one["score"]["sample"]: one for one in results["samples"][VAL]}
    for name in CRITERIA:
        part = {one["score"]["sample"]: one for one in results["samples"][name]}
        assert list(part) == [row["index"] for row in chosen(name)]
        assert {one: sample["resps"] for one, sample in part.items()} == {one: whole[one]["resps"] for one in part}
        assert {one: sample["score"] for one, sample in part.items()} == {one: whole[one]["score"] for one in part}


def test_the_submission_is_written_once(one_run):
    from openpyxl import load_workbook

    results, files = one_run
    (file,) = files
    assert file.suffix == ".xlsx"
    header, *rows = load_workbook(file).active.iter_rows(values_only=True)
    assert [row[0] for row in rows] == [document["doc_id"] for document in load_documents(TEST)]
    replies = {one["score"]["sample"]: one["score"]["reply"] for one in results["samples"][TEST]}
    assert len(replies) == 11
    assert [row[header.index("prediction")] or "" for row in rows] == [replies[row[0]] for row in rows]
    assert not [metric for metric, _ in values(results, TEST) if "acc" in metric]


def test_two_processes_score_like_one(one_run, home, tmp_path):
    before = submissions(home)
    two, one = on_two(tmp_path, TASKS, **OPTIONS), one_run[0]["results"]
    assert set(one) == set(two) == set(TASKS)
    for task in TASKS:
        assert one[task].keys() == two[task].keys()
        for metric, value in one[task].items():
            if "_stderr," in metric and isinstance(value, float):
                # The ranks' records come in another order, and sums of squares round by order.
                assert float(two[task][metric]) == pytest.approx(value, rel=1e-12, nan_ok=True), (task, metric)
            else:
                assert two[task][metric] == repr(value), (task, metric)
    assert len(submissions(home)) == len(before) + 1


def matched(body):
    """Return the letter of the option that a reply describes with underscores for blanks, else Z."""
    asked = body["messages"][-1]["content"].rpartition("Example 3: ")[2]
    listed = dict(line.split(". ", 1)[::-1] for line in asked.split("\n") if line[1:3] == ". ")
    meant = asked.rpartition("Answer: ")[2].partition("\n")[0].removeprefix("It looks like ").replace("_", " ")
    return listed.get(meant, "Z")


@pytest.fixture
def judge(judging):
    return judging(matched)


@pytest.fixture
def describing():
    """A model that knows the key: of three replies one is the letter, one for the judge, one about something else."""

    def say(doc):
        option = doc["options"]["ABCDEF".index(doc["answer"])].replace(" ", "_")
        return [doc["answer"], f"It looks like {option}", "It looks like rain"][kind(doc)]

    return answering(say)


def kind(doc):
    """Return 0 for a letter, 1 for words that only the judge matches, 2 for words that match nothing."""
    drawn = random.Random(doc["doc_id"]).randrange(3)
    single = " " not in doc["options"]["ABCDEF".index(doc["answer"])]
    return 0 if drawn == 1 and single else drawn


def test_the_judge_is_asked_where_no_rule_finds_an_option(judge, describing):
    task, documents = f"{VAL}_judged", load_documents(VAL)
    counts = [sum(kind(doc) == one for doc in documents) for one in range(3)]
    assert min(counts) > 3
    results = evaluate([task, VAL], describing)
    found = values(results, task)
    for rule in ("reference", "reference_2026"):
        assert found["accuracy", rule] == pytest.approx((counts[0] + counts[1]) / 60)
        assert values(results, VAL)["accuracy", rule] == pytest.approx(counts[0] / 60)
        assert found["judge_asked_rate", rule] == pytest.approx((counts[1] + counts[2]) / 60)
        assert found["invalid_rate", rule] == pytest.approx(counts[2] / 60)
        assert found["judge_failed_rate", rule] == 0
    asked = judge.count
    assert asked > 0
    again = evaluate([task], describing)
    assert repr(values(again, task)) == repr(found)
    assert judge.count == asked


def test_without_a_judge_the_judged_task_is_refused(describing):
    with pytest.raises(JudgeNotConfigured, match="needs an LLM judge"):
        evaluate([f"{VAL}_judged"], describing)


def test_an_unreachable_judge_makes_no_score(describing, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "nobody")
    monkeypatch.setenv("MEDTASKS_JUDGE_ATTEMPTS", "1")
    task = f"{VAL}_judged"
    results = evaluate([task], describing, log_samples=True)
    found = values(results, task)
    assert math.isnan(found["accuracy", "reference"])
    failed = sum(kind(doc) > 0 for doc in load_documents(VAL)) / 60
    assert found["judge_failed_rate", "reference"] == found["judge_asked_rate", "reference"] == pytest.approx(failed)
    reasons = {sample["score"]["reason"] for sample in results["samples"][task]}
    assert reasons == {"ok", "judge_failed"}
