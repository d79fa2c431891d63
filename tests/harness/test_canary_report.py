"""Nothing of a credentialed record gets from a run of the harness into a manifest or a report."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from medtasks.audit.report.contents import report_as_dict
from medtasks.audit.report.reading.collecting import collect_run
from medtasks.audit.report.reading.run_folder import read_run

from .test_canary import CANARY, DOCUMENTS, TASKS, execute, found_in, outside, planted_home

pytestmark = pytest.mark.slow

__all__ = ["planted_home"]  # a fixture
MEDTASKS = [sys.executable, "-m", "medtasks.cli.main"]
FILES = ["--markdown", "out/found.md", "--latex", "out/found.tex", "--json", "out/found.json", "--figures", "out/drawn"]


def test_nothing_of_a_record_is_in_a_manifest_or_a_report(
    planted_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--model", "echo", "--tasks", ",".join(TASKS), "--output_path", "out", "--log_samples"]
    ran = execute([*MEDTASKS, "run", *options, "--batch_size", "1"], planted_home, tmp_path)
    assert ran.returncode == 0, ran.stderr[-4000:]
    (manifest,) = (tmp_path / "out").glob("*_run.json")
    assert sorted(json.loads(manifest.read_text())["tasks"]) == sorted(TASKS)
    reported = execute([*MEDTASKS, "report", "out", *FILES], planted_home, tmp_path)
    assert reported.returncode == 0, reported.stderr[-4000:]
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"report.html", "found.md", "found.tex", "found.json", "drawn"} <= made
    home = planted_home / "home"
    assert found_in(ran, tmp_path, *outside(home)) == []
    assert found_in(reported, tmp_path) == []
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    report = collect_run(read_run(tmp_path / "out"))
    assert [task.name for task in report.tasks] == sorted(TASKS)
    for task in report.tasks:
        assert (task.withheld, len(task.items), task.pictures) == (True, DOCUMENTS, {}), task.missing
        assert all(item.doc_id.startswith("doc-") for item in task.items)
        assert all(rule.scores and sum(rule.reasons.values()) == DOCUMENTS for rule in task.rules), task.name
    assert report.notes == ()
    assert CANARY not in repr(asdict(report))
    assert CANARY not in json.dumps(report_as_dict(report))


def test_the_user_may_ask_for_text_by_name(planted_home: Path, tmp_path: Path) -> None:
    allowed = {"MEDTASKS_LOG_TEXT": "canary_choice"}
    options = ["--model", "echo", "--tasks", "canary_choice", "--output_path", "out", "--log_samples"]
    ran = execute([*MEDTASKS, "run", *options, "--batch_size", "1"], planted_home, tmp_path, **allowed)
    assert ran.returncode == 0, ran.stderr[-4000:]
    reported = execute([*MEDTASKS, "report", "out"], planted_home, tmp_path, **allowed)
    assert reported.returncode == 0, reported.stderr[-4000:]
    assert f"{CANARY} question 0 of canary_choice" in (tmp_path / "out" / "report.html").read_text()
    hidden = execute([*MEDTASKS, "report", "out", "--html", "hidden.html"], planted_home, tmp_path)
    assert hidden.returncode == 0, hidden.stderr[-4000:]
    assert CANARY not in (tmp_path / "hidden.html").read_text() + hidden.stdout + hidden.stderr
