"""``medtasks demo`` around the harness, which is played here; tests/lmms runs the real one."""

import json
import subprocess
from pathlib import Path

import pytest

from medtasks.cli import start

from .conftest import rows_of

ROW = {"alias": "mediconfusion [SAMPLE DATA]", "confusion,robust": float("nan"), "confusion_stderr,robust": "N/A"}
ROW |= {"confusion,reference": 0.8125, "confusion_stderr,reference": 0.1008}
ROW |= {"incomplete_pairs,reference": 0, "incomplete_pairs_stderr,reference": "N/A"}
ROW |= {"set_accuracy,reference": 0.25, "set_accuracy_stderr,reference": 0.125}
RESULTS = {"results": {"mediconfusion": ROW}}


@pytest.fixture
def harness(monkeypatch):
    """Play the harness: write these results, or none, and return this exit code."""
    seen = {}

    def run(results, code=0, report_code=0):
        def play(command, env, stdout=None, **options):
            if "report" in command:
                assert env["MEDTASKS_HOME"] == seen["home"]
                seen.update(reported=command[command.index("report") + 1])
                Path(command[command.index("--html") + 1]).write_text("page")
                return subprocess.CompletedProcess(command, report_code, stderr="medtasks: no page\n")
            seen.update(command=command, home=env["MEDTASKS_HOME"])
            stdout.write("\n".join(f"line {number}" for number in range(40)))
            stdout.flush()
            if results is not None:
                folder = Path(command[command.index("--output_path") + 1])
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "20260101_results.json").write_text(json.dumps(results))
            return subprocess.CompletedProcess(command, code)

        monkeypatch.setattr(start.subprocess, "run", play)
        return seen

    return run


def test_demo(medtasks, harness, tmp_path):
    seen = harness(RESULTS)
    ran = medtasks("demo", "--output", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert seen["home"] == str(tmp_path / "out" / "home")
    assert (tmp_path / "out/home/datasets/mediconfusion/manifest.json").is_file()
    assert "mediconfusion [SAMPLE DATA]\n" in ran.out
    rows = rows_of(ran.out)
    assert (rows["confusion"], rows["incomplete_pairs"]) == (["81.3% ± 10.1%", "n/a"], ["0", ""])
    assert list(rows) == ["set_accuracy", "confusion", "incomplete_pairs"]  # the main metric first
    assert f"MEDTASKS_HOME={tmp_path / 'out/home'} lmms_eval --model medtasks_tiny --tasks mediconfusion," in ran.out
    assert str(tmp_path / "out/results/20260101_results.json") in ran.out
    assert seen["reported"] == str(tmp_path / "out/results")
    assert f"Report:  {tmp_path / 'out/results/report.html'} (open it in a browser)" in ran.out


def test_a_harness_that_fails_is_shown_with_the_end_of_its_log(medtasks, fails, harness, tmp_path):
    for number, (results, code) in enumerate([(None, 0), (None, 1), (RESULTS, 1)]):
        harness(results, code)
        ran = medtasks("demo", "--output", tmp_path / f"{number}")
        assert ran.code == 1
        assert f"the harness produced no results (exit code {code})" in ran.err
        assert "line 39" in ran.err
        assert "line 24" not in ran.err
    harness(RESULTS, report_code=1)
    fails(["demo", "--output", tmp_path / "out"], "the report could not be written: medtasks: no page")
