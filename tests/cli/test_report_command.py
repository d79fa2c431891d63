"""``medtasks report``: files written, what is said, and errors of one sentence."""

import json

import pytest

from medtasks.data.document_store import load_documents

from ..made_up_runs import write_run


@pytest.fixture
def recorded(sample, tmp_path):
    return write_run(tmp_path / "made_up", ("mediconfusion",), 0.8, 1)


def test_page_tables_json_and_figures_say_the_same(medtasks, recorded, tmp_path):
    files = {name: tmp_path / f"found.{name}" for name in ("md", "tex", "json")}
    ran = medtasks(
        *("report", recorded, "--markdown", files["md"], "--latex", files["tex"], "--json", files["json"]),
        *("--figures", tmp_path / "figures"),
    )
    assert (ran.code, ran.err) == (0, "")
    page = recorded / "report.html"
    assert f"report: {page} (" in ran.out
    found = json.loads(files["json"].read_text(), parse_constant=pytest.fail)
    medtasks("score", "mediconfusion", next(recorded.glob("*.jsonl")), "--json", tmp_path / "score.json")
    score = json.loads((tmp_path / "score.json").read_text())["rules"]["robust"]["categories"]["total"]
    (task,) = found["tasks"]
    robust = next(rule for rule in task["rules"] if rule["name"] == "robust")
    values = {one["metric"]: one["value"] for one in robust["scores"]}
    assert values["set_accuracy"] == score["set_accuracy"]
    assert values["individual_accuracy"] == score["individual_accuracy"]
    percent = f"{100 * score['individual_accuracy']:.1f}"
    for text in (page.read_text(), files["md"].read_text(), files["tex"].read_text()):
        assert percent in text
        assert "SAMPLE DATA" in text
    drawn = {path.suffix for path in (tmp_path / "figures").iterdir()}
    assert drawn == {".svg", ".png"}


def test_recorded_replies_of_one_task(medtasks, fails, sample, tmp_path):
    replies = tmp_path / "replies.jsonl"
    documents = load_documents("mediconfusion")
    replies.write_text("".join(json.dumps({"doc_id": d["doc_id"], "reply": "A"}) + "\n" for d in documents[:6]))
    ran = medtasks("report", replies, "--task", "mediconfusion", "--json", tmp_path / "found.json")
    assert (ran.code, ran.err) == (0, "")
    assert (tmp_path / "report.html").is_file()
    (task,) = json.loads((tmp_path / "found.json").read_text())["tasks"]
    assert (task["answered"], task["documents"]) == (6, 32)
    fails(["report", replies], f"{replies} is a file", "--task")
    fails(["report", replies, "--task", "mediconfusio"], "unknown task 'mediconfusio'; did you mean 'mediconfusion'?")


def test_another_run_beside_it(medtasks, recorded, tmp_path):
    other = write_run(tmp_path / "other", ("mediconfusion",), 0.3, 2)
    ran = medtasks("report", recorded, "--against", other, "--json", tmp_path / "found.json")
    assert (ran.code, ran.err) == (0, "")
    (comparison,) = json.loads((tmp_path / "found.json").read_text())["comparisons"]
    medtasks("compare", recorded, other, "--json", tmp_path / "compared.json")
    compared = json.loads((tmp_path / "compared.json").read_text())["tasks"]["mediconfusion"]["comparisons"]
    assert [one["p_holm"] for one in comparison["scores"]] == [one["p_holm"] for one in compared]
    assert [one["difference"] for one in comparison["scores"]] == [one["difference"] for one in compared]


def test_what_is_missing_is_printed_once(medtasks, recorded, tmp_path):
    for samples in recorded.glob("*.jsonl"):
        samples.unlink()
    ran = medtasks("report", recorded)
    assert (ran.code, ran.err) == (0, "")
    (note,) = [line for line in ran.out.splitlines() if "--log_samples" in line]
    assert note.startswith("note: mediconfusion: ")


def test_what_cannot_be_reported(fails, recorded, tmp_path):
    (tmp_path / "empty").mkdir()
    fails(["report", tmp_path / "nowhere"], f"there is no {tmp_path / 'nowhere'}")
    fails(["report", tmp_path / "empty"], str(tmp_path / "empty"))
    fails(["report", recorded, "--html", tmp_path / "no" / "folder" / "page.html"], "cannot write")
    fails(["report", recorded, "--json", tmp_path], f"cannot write {tmp_path}")
