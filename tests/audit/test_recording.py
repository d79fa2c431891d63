"""The manifest while a run goes on."""

import pytest

from medtasks.audit.recording import RunRecording, first_manifest
from medtasks.running.harness_run import Outcome
from medtasks.runs.run_manifest import HarnessProcess, Notice, RunManifest, Severity
from medtasks.runs.sample_counts import FailureLimit, SampleCounts
from medtasks.tasks.documents import Selection

from ..tables import each_row

ARGUMENTS = ["--model", "openai", "--model_args", "model=gpt-4o,token=PLANTED", "--seed", "1,2,None,4"]


@pytest.fixture
def begin(tmp_path):
    def build(asked=("one", "two"), missing=(), complain=print):
        selection = Selection(tuple(asked), dict(missing))
        notices = [Notice(kind=Severity.WARN, sentence="mind the gap")]
        manifest = first_manifest(["medtasks", "run", *ARGUMENTS], ARGUMENTS, asked, selection, notices)
        return RunRecording(tmp_path / "out", manifest, ARGUMENTS, FailureLimit.parse("10%"), complain)

    return build


def finished(tmp_path, *tasks, failed=(), row=None):
    results = tmp_path / "out" / "m" / "1_results.json"
    process = HarnessProcess(tasks=tasks, started="", seconds=1.5, exit_code=0)
    reasons = dict.fromkeys(failed, "it broke")
    rows = dict.fromkeys(tasks, row or {})
    files = dict.fromkeys(tasks, results)
    return Outcome(list(tasks), list(failed), [results], files, rows=rows, reasons=reasons, processes=[process])


def test_before_the_first_task(begin):
    read = RunManifest.read(begin(missing={"two": "no data"}).path)
    assert read.state == "running"
    assert read.seeds.model_dump() == {"python": 1, "numpy": 2, "torch": None, "fewshot": 4}
    assert {name: record.outcome for name, record in read.tasks.items()} == {"one": "not run", "two": "left out"}
    assert [notice.sentence for notice in read.notices] == ["mind the gap"]
    assert "PLANTED" not in read.model_dump_json()
    assert read.versions["lmms_eval"]


def test_a_known_dataset_is_named_with_its_fingerprint(begin, sample):
    tasks = begin(asked=("mediconfusion_sanity",)).manifest.tasks
    assert {"mediconfusion", "mediconfusion_blind", "mediconfusion_rotated"} <= set(tasks)
    assert {record.dataset for record in tasks.values()} == {"mediconfusion"}
    assert {len(record.fingerprint) for record in tasks.values()} == {12}


def test_a_damaged_dataset_has_no_fingerprint(begin, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    (tmp_path / "datasets" / "mediconfusion").mkdir(parents=True)
    (tmp_path / "datasets" / "mediconfusion" / "manifest.json").write_text("{")
    assert begin(asked=("mediconfusion",)).manifest.tasks["mediconfusion"].fingerprint is None


def test_the_end(begin, tmp_path):
    recording = begin()
    with recording.until_its_end():
        recording.note(finished(tmp_path, "one"))
        assert RunManifest.read(recording.path).tasks["one"].results == "m/1_results.json"
        recording.note(finished(tmp_path, "one", "two"))
    read = RunManifest.read(recording.path)
    assert (read.state, read.why) == ("finished", "")
    assert read.seconds >= 0
    assert read == recording.manifest


@pytest.mark.parametrize(
    ("failed", "unjudged", "state"),
    [(1, 0, "finished"), (2, 0, "finished_with_failures"), (0, 2, "finished_with_failures")],
)
def test_samples_in_no_score_are_counted_and_too_many_are_a_failure(begin, tmp_path, failed, unjudged, state):
    recording = begin(asked=("one",))
    scored = 10 - failed - unjudged
    row = {"accuracy,reference": 0.5, "scored_samples,reference": scored, "failed_samples,reference": failed}
    with recording.until_its_end():
        recording.note(finished(tmp_path, "one", row={**row, "unjudged_samples,reference": unjudged}))
    read = RunManifest.read(recording.path)
    assert read.state == state
    assert read.tasks["one"].counts == SampleCounts(scored, failed, unjudged)
    assert list(recording.over_limit()) == ([] if state == "finished" else ["one"])


def test_failures(begin, tmp_path):
    recording = begin()
    with recording.until_its_end():
        recording.note(finished(tmp_path, "one", failed=["two"]))
    read = RunManifest.read(recording.path)
    assert read.state == "finished_with_failures"
    assert (read.tasks["two"].outcome, read.tasks["two"].reason) == ("failed", "it broke")


@each_row(
    "error, why",
    [
        (KeyboardInterrupt(), "Ctrl-C"),
        (SystemExit(143), "SIGTERM"),
        (SystemExit(129), "SIGHUP"),
        (SystemExit(7), "it left with 7"),
        (ValueError("bad"), "ValueError: bad"),
    ],
)
def test_an_interruption_goes_on_to_the_caller(begin, error, why):
    recording = begin()
    recording.note(finished(recording.path.parents[1], "one"))
    with pytest.raises(type(error)), recording.until_its_end():
        raise error
    read = RunManifest.read(recording.path)
    assert (read.state, read.why) == ("interrupted", why)
    assert [record.outcome for record in read.tasks.values()] == ["done", "not run"]


def test_a_snapshot_that_the_harness_fetched(begin, monkeypatch):
    recording = begin()
    assert recording.manifest.model.fingerprint is None
    monkeypatch.setattr("medtasks.audit.recording.snapshot_commit", lambda name, revision: "c" * 40)
    with recording.until_its_end():
        pass
    assert RunManifest.read(recording.path).model.fingerprint == f"commit:{'c' * 40}"


def test_a_full_disk_does_not_stop_the_run(begin, tmp_path, monkeypatch):
    complaints = []
    recording = begin(complain=complaints.append)

    def refuse(self, path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RunManifest, "write", refuse)
    with recording.until_its_end():
        recording.note(finished(tmp_path, "one", "two"))
    assert "No space left on device" in complaints[0]
    assert recording.manifest.state == "finished"


def test_no_path_of_the_data_folder(begin, monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "clinic"))
    recording = begin(missing={"two": f"the documents in {tmp_path / 'clinic'}/datasets/two are damaged"})
    assert "clinic" not in recording.path.read_text()
    assert recording.manifest.tasks["two"].reason == "the documents in $MEDTASKS_HOME/datasets/two are damaged"
