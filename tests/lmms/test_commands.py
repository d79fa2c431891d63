"""Contract with the harness: each way to start it finds our tasks with no flag, from the installed wheel.

Everything here starts processes, as users do.
"""

import json
import sys
from pathlib import Path

import pytest

from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import tasks_folder

from .conftest import REPOSITORY

MODES = "mediconfusion,mediconfusion_gd,mediconfusion_ps"
TINY = f"--model medtasks_tiny --model_args journal=false --device cpu --tasks {MODES} --batch_size 4".split()
SIMPLE_EVALUATE = """
import json, sys
from lmms_eval.evaluator import simple_evaluate
import medtasks
options = {"model_args": "journal=false", "limit": 4, "batch_size": 4, "device": "cpu"}
results = simple_evaluate(model="medtasks_tiny", tasks=sys.argv[1].split(","), **options)
json.dump({"file": medtasks.__file__, "results": results["results"]}, open(sys.argv[2], "w"))
"""

pytestmark = pytest.mark.slow


def results_below(folder):
    (file,) = folder.rglob("*_results.json")
    return json.loads(file.read_text())


def test_command_line_comes_from_the_wheel(run, wheel):
    shown = run(["medtasks", "path"])
    assert shown.returncode == 0
    assert Path(shown.stdout.strip()).is_relative_to(wheel)
    # This command of the harness loads no plugins.
    listed = run(["lmms-eval", "tasks", "list", "--include-path", shown.stdout.strip()])
    in_files = {name for name, task in task_files().items() if task.origin is None}
    assert in_files <= {line.strip() for line in listed.stdout.splitlines()}


def test_tasks_are_evaluated(run, sample_home, tmp_path):
    ran = run(["lmms-eval", *TINY, "--limit", "4", "--output_path", "out"], MEDTASKS_HOME=str(sample_home))
    results = results_below(tmp_path / "out")["results"]
    assert set(results) == set(MODES.split(","))
    for task, scores in results.items():
        assert scores["alias"] == f"{task} [SAMPLE DATA]"
        assert 0 <= scores["set_accuracy,reference"] <= 1
        assert scores["incomplete_pairs,robust"] == 0
    assert "[SAMPLE DATA]" in ran.stdout


def test_python_interface(run, wheel, sample_home, tmp_path):
    out = tmp_path / "results.json"
    ran = run([sys.executable, "-c", SIMPLE_EVALUATE, MODES, str(out)], MEDTASKS_HOME=str(sample_home))
    assert out.exists(), ran.stderr[-2000:]
    found = json.loads(out.read_text())
    assert Path(found["file"]).is_relative_to(wheel)
    assert set(found["results"]) == set(MODES.split(","))


def test_wheel_holds_everything(wheel):
    files = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    ours = [path for path in tasks_folder().rglob("*") if path.is_file() and path.suffix in ("", ".yaml", ".md")]
    assert {f"medtasks/tasks_yaml/{path.relative_to(tasks_folder())}" for path in ours} <= files
    package = [path for path in (REPOSITORY / "medtasks").rglob("*") if path.is_file()]
    assert {str(path.relative_to(REPOSITORY)) for path in package if path.suffix != ".pyc"} <= files
    assert {
        "medtasks/py.typed",
        "medtasks/tasks_yaml/mediconfusion/_paired_choice_yaml",
        "medtasks/model_adapters/tiny.py",
    } <= files
    assert not any(name.startswith(("tasks_yaml/", "model_adapters/", "tests/")) for name in files)
    (entry_points,) = wheel.glob("medtasks-*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert "[lmms_eval.models]\nmedtasks = medtasks.lmms.plugin:model_manifests" in text
    assert "lmms_eval = lmms_eval.cli.dispatch:main" in text
