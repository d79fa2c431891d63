"""Reports of runs that went wrong say what is missing."""

import json
import sys

import pytest

from ..processes import run_here, start_fresh
from ..waiting import wait_until

pytestmark = pytest.mark.slow

MODEL = ["--model", "medtasks_tiny", "--model_args", "journal=false", "--device", "cpu"]


@pytest.fixture
def reported(sample_home, tmp_path):
    """Report on the folder ``results``; return what is printed and the JSON."""

    def report():
        command = [sys.executable, "-m", "medtasks.cli.main", "report", "results", "--json", "found.json"]
        ran = run_here(command, tmp_path, MEDTASKS_HOME=str(sample_home))
        assert ran.returncode == 0, ran.stderr
        assert (tmp_path / "results" / "report.html").stat().st_size > 10_000
        return ran.stdout, json.loads((tmp_path / "found.json").read_text(), parse_constant=pytest.fail)

    return report


def test_a_killed_run(reported, sample_home, tmp_path):
    command = ["medtasks", "run", *MODEL, "--output_path", "results", "--tasks", "mediconfusion,mediconfusion_gd"]
    process = start_fresh(command, tmp_path, tmp_path / "log", MEDTASKS_HOME=str(sample_home))
    wait_until(lambda: list((tmp_path / "results").glob("*_run.json")), process)
    process.kill()
    process.wait()
    printed, found = reported()
    assert found["tasks"] == []
    assert sorted(found["missing"]) == ["mediconfusion", "mediconfusion_gd"]
    assert "killed" in printed
