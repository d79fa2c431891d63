"""Folders of tasks that recorded runs name."""

import json

import pytest

from medtasks.harness.manifest import recorded_folders


@pytest.fixture
def record(tmp_path):
    """Write a results file that names folders; return the folder of the run."""

    def write(include, name="20260101_000000", run="project/results/model"):
        folder = tmp_path / run
        folder.mkdir(parents=True, exist_ok=True)
        config = {"config": {"resolved_cli_args": {"include_path": include}}}
        (folder / f"{name}_results.json").write_text(json.dumps(config))
        (folder / f"{name}_samples_one.jsonl").write_text("{}")
        return folder.parent

    return write


def test_an_absolute_folder(record, tmp_path):
    (tmp_path / "tasks").mkdir()
    run = record(str(tmp_path / "tasks"))
    assert recorded_folders([run, run]) == ([tmp_path / "tasks"], [])
    samples = next(run.rglob("*_samples_one.jsonl"))
    assert recorded_folders([samples]) == ([tmp_path / "tasks"], [])
    assert recorded_folders([record([str(tmp_path / "tasks")], "20260101_000001")]) == ([tmp_path / "tasks"], [])


def test_a_relative_folder_is_that_of_the_working_folder_or_of_the_project(record, tmp_path, monkeypatch):
    run = record("tasks")
    assert recorded_folders([run]) == ([], ["tasks"])
    (tmp_path / "project" / "tasks").mkdir()
    assert recorded_folders([run]) == ([tmp_path / "project" / "tasks"], [])
    (tmp_path / "here" / "tasks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    (found,), _ = recorded_folders([run])
    assert found.resolve() == tmp_path / "here" / "tasks"


def test_what_says_nothing(record, tmp_path):
    run = record(None)
    (run / "x_results.json").write_text("{")
    (run / "y_results.json").write_text("[]")
    (tmp_path / "replies.jsonl").write_text("")
    assert recorded_folders([run, tmp_path / "replies.jsonl", tmp_path / "gone"]) == ([], [])
