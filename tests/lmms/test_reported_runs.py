"""Reports of runs that went wrong say what is missing."""

import json
import os
import signal
import subprocess
import sys

import pytest

from ..processes import run_here
from ..waiting import wait_until

pytestmark = pytest.mark.slow

MODEL = ["--model", "medtasks_tiny", "--model_args", "journal=false", "--device", "cpu"]
FAILING_YAML = """\
task: failing
dataset_path: json
dataset_kwargs: {data_files: {test: nowhere.jsonl}}
test_split: test
output_type: generate_until
generation_kwargs: {max_new_tokens: 8, until: []}
doc_to_visual: !function medtasks.hooks.images.images
doc_to_text: !function medtasks.hooks.prompts.prompt
doc_to_target: !function medtasks.hooks.prompts.target
process_results: !function medtasks.hooks.choice.process_results
metric_list: !function medtasks.hooks.choice.METRIC_LIST
metadata: {version: 1}
"""


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


def test_a_failing_task_and_no_samples(reported, sample_home, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "failing.yaml").write_text(FAILING_YAML)
    command = [sys.executable, "-m", "medtasks.cli.main", "run", *MODEL, "--output_path", "results"]
    chosen = ["--tasks", "mediconfusion_gd,failing", "--include_path", str(folder)]
    ran = run_here([*command, *chosen], tmp_path, MEDTASKS_HOME=str(sample_home))
    assert ran.returncode == 1
    assert "1 of 2 tasks without results; the others are complete" in ran.stderr
    (samples,) = (tmp_path / "results").rglob("*_samples_*.jsonl")
    samples.unlink()
    printed, found = reported()
    assert list(found["missing"]) == ["failing"]
    assert "missing: failing: " in printed
    (task,) = found["tasks"]
    assert (task["name"], task["answered"], task["items"]) == ("mediconfusion_gd", 32, [])
    assert any("--log_samples" in sentence for sentence in task["missing"])
    (recorded,) = (tmp_path / "results").rglob("*_results.json")
    harness = json.loads(recorded.read_text())["results"]["mediconfusion_gd"]
    for rule in task["rules"]:
        scores = {score["metric"]: score for score in rule["scores"]}
        individual = scores["individual_accuracy"]
        assert individual["value"] == harness[f"individual_accuracy,{rule['name']}"]
        assert individual["low"] <= individual["value"] <= individual["high"]


def test_a_killed_run(reported, wheel, sample_home, tmp_path):
    command = [sys.executable, "-m", "medtasks.cli.main", "run", *MODEL, "--output_path", "results", "--log_samples"]
    environment = {**os.environ, "PYTHONPATH": str(wheel), "MEDTASKS_HOME": str(sample_home), "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(
        [*command, "--tasks", "mediconfusion,mediconfusion_gd"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    wait_until(lambda: list((tmp_path / "results").glob("*_run.json")), process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    printed, found = reported()
    assert found["tasks"] == []
    assert sorted(found["missing"]) == ["mediconfusion", "mediconfusion_gd"]
    assert "killed" in printed
