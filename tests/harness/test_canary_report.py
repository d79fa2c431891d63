"""Nothing of a credentialed record gets from a run of the harness into a report."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from medtasks.report.as_json import report_as_dict
from medtasks.report.reading.collecting import collect_run
from medtasks.report.reading.run_folder import read_run

from .test_canary import CANARY, DOCUMENTS, TASKS, Evaluate, evaluate, planted_home

pytestmark = pytest.mark.slow

__all__ = ["evaluate", "planted_home"]  # fixtures


def test_nothing_of_a_record_is_in_a_report(
    evaluate: Evaluate,
    planted_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran = evaluate()
    assert ran.returncode == 0, ran.stderr[-4000:]
    monkeypatch.setenv("MEDTASKS_HOME", str(planted_home / "home"))
    report = collect_run(read_run(tmp_path / "out"))
    assert [task.name for task in report.tasks] == sorted(TASKS)
    for task in report.tasks:
        assert (task.withheld, len(task.items), task.pictures) == (True, DOCUMENTS, {}), task.missing
        assert all(item.doc_id.startswith("doc-") for item in task.items)
        assert all(rule.scores and sum(rule.reasons.values()) == DOCUMENTS for rule in task.rules), task.name
    assert report.notes == ()
    assert CANARY not in repr(asdict(report))
    assert CANARY not in json.dumps(report_as_dict(report))
