"""Contract with the harness: each way to start it finds our tasks with no flag, from the installed wheel.

Each launcher starts cold once, as users start it (the module below accelerate); other runs are forked from a Python
that is warm.
"""

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import tasks_folder

from .conftest import REPOSITORY

OURS = list(task_files())
LAUNCHERS = {
    "lmms_eval": ["lmms_eval"],
    "lmms-eval": ["lmms-eval"],
    "module": [sys.executable, "-m", "lmms_eval"],
    "accelerate": ["accelerate", "launch", "--num_processes", "1", "--cpu", "-m", "lmms_eval"],
}
# An answer from the journal of an earlier test would prove nothing.
TINY = "--model medtasks_tiny --model_args journal=false --device cpu"
SIMPLE_EVALUATE = """
import json, sys
from lmms_eval.evaluator import simple_evaluate
import medtasks
options = {"model_args": "journal=false", "limit": 4, "batch_size": 4, "device": "cpu"}
results = simple_evaluate(model="medtasks_tiny", tasks=sys.argv[1].split(","), **options)
json.dump({"file": medtasks.__file__, "results": results["results"]}, open(sys.argv[2], "w"))
"""

pytestmark = pytest.mark.slow


def test_command_line_comes_from_the_wheel(run, wheel):
    shown = run(["medtasks", "path"])
    assert shown.returncode == 0
    assert Path(shown.stdout.strip()).is_relative_to(wheel)
    listed = run(["medtasks", "tasks"]).stdout.splitlines()
    assert [line.split()[0] for line in listed] == OURS
    assert "mediconfusion" in OURS
    assert all(len(line.split(maxsplit=2)[2]) > 20 for line in listed)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_tasks_are_listed(run, launcher):
    listed = run([*LAUNCHERS[launcher], "--tasks", "list"])
    names = {line.strip(" -") for line in listed.stdout.splitlines()}
    assert set(OURS) <= names
    assert "mme" in names


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("tasks", ["mediconfusion", "mediconfusion,mediconfusion_gd,mediconfusion_ps"])
def test_tasks_are_evaluated(run, launcher, tasks, sample_home, tmp_path):
    options = f"{TINY} --tasks {tasks} --limit 4 --batch_size 4 --output_path out"
    cold = tasks == "mediconfusion" and launcher != "module"
    ran = run([*LAUNCHERS[launcher], *options.split()], cold=cold, MEDTASKS_HOME=str(sample_home))
    files = list((tmp_path / "out").rglob("*_results.json"))
    assert len(files) == 1, ran.stdout[-2000:] + ran.stderr[-2000:]
    results = json.loads(files[0].read_text())["results"]
    assert set(results) == set(tasks.split(","))
    for task, scores in results.items():
        assert scores["alias"] == f"{task} [SAMPLE DATA]"
        assert 0 <= scores["set_accuracy,reference"] <= 1
        assert scores["incomplete_pairs,robust"] == 0
    assert "[SAMPLE DATA]" in ran.stdout


def test_samples_files_score_to_the_same_numbers(run, sample_home, tmp_path):
    tasks = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"]
    options = f"{TINY} --tasks {','.join(tasks)} --batch_size 8 --output_path out --log_samples"
    run([*LAUNCHERS["module"], *options.split()], MEDTASKS_HOME=str(sample_home))
    (file,) = (tmp_path / "out").rglob("*_results.json")
    results = json.loads(file.read_text())["results"]
    for task in tasks:
        (samples,) = (tmp_path / "out").rglob(f"*_samples_{task}.jsonl")
        ran = run(["medtasks", "score", task, str(samples), "--json", "scores.json"], MEDTASKS_HOME=str(sample_home))
        assert ran.returncode == 0, ran.stderr
        assert "SAMPLE DATA" in ran.stdout
        for rule, scores in json.loads((tmp_path / "scores.json").read_text())["rules"].items():
            for metric in ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate"):
                theirs = results[task][f"{metric},{rule}"]
                assert scores["categories"]["total"][metric] == (None if theirs != theirs else theirs)
                error = results[task][f"{metric}_stderr,{rule}"]
                assert scores["standard_errors"][metric] == (None if error != error else error)


@pytest.mark.parametrize("tasks", ["mediconfusion", "mediconfusion,mediconfusion_ps"])
def test_python_interface(run, wheel, tasks, sample_home, tmp_path):
    out = tmp_path / "results.json"
    ran = run([sys.executable, "-c", SIMPLE_EVALUATE, tasks, str(out)], MEDTASKS_HOME=str(sample_home))
    assert out.exists(), ran.stderr[-2000:]
    found = json.loads(out.read_text())
    assert Path(found["file"]).is_relative_to(wheel)
    assert set(found["results"]) == set(tasks.split(","))


def test_two_processes_give_the_same_numbers(run, sample_home, tmp_path):
    launchers = {
        "one": [sys.executable, "-m", "lmms_eval"],
        "two": ["torchrun", "--standalone", "--nproc_per_node", "2", "-m", "lmms_eval"],
    }
    found = {}
    for name, launcher in launchers.items():
        options = f"{TINY} --tasks mediconfusion,mediconfusion_gd,mediconfusion_ps --batch_size 4"
        ran = run(
            [*launcher, *options.split(), "--limit", "15", "--output_path", name],
            cold=name == "two",
            MEDTASKS_HOME=str(sample_home),
            ACCELERATE_USE_CPU="true",
        )
        (file,) = (tmp_path / name).rglob("*_results.json")
        found[name] = {
            task: {key: repr(value) for key, value in scores.items()}
            for task, scores in json.loads(file.read_text())["results"].items()
        }
    assert "rank 1" in ran.stdout + ran.stderr
    assert found["two"] == found["one"]
    assert found["one"]["mediconfusion_ps"]["incomplete_pairs,reference"] == "1"


def test_include_path_where_the_harness_loads_no_plugins(run):
    folder = run(["medtasks", "path"]).stdout.strip()
    listed = run(["lmms-eval", "tasks", "list", "--include-path", folder])
    in_files = {name for name, task in task_files().items() if task.origin is None}
    assert in_files <= {line.strip() for line in listed.stdout.splitlines()}


def test_wheel_holds_everything(wheel):
    files = {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}
    ours = [path for path in tasks_folder().rglob("*") if path.is_file() and path.suffix in ("", ".yaml", ".md")]
    assert {f"medtasks/tasks_yaml/{path.relative_to(tasks_folder())}" for path in ours} <= files
    package = [path for path in (REPOSITORY / "medtasks").rglob("*") if path.is_file()]
    assert {str(path.relative_to(REPOSITORY)) for path in package if path.suffix != ".pyc"} <= files
    assert {
        "medtasks/py.typed",
        "medtasks/audit/report/templates/page.css",
        "medtasks/audit/report/published_results/mediconfusion_table1.csv",
        "medtasks/tasks_yaml/mediconfusion/_paired_choice_yaml",
        "medtasks/tasks_yaml/multimedeval/multimedeval.yaml",
        "medtasks/model_adapters/tiny.py",
    } <= files
    assert not any(name.startswith(("tasks_yaml/", "model_adapters/", "tests/")) for name in files)
    (entry_points,) = wheel.glob("medtasks-*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert "[lmms_eval.models]\nmedtasks = medtasks.lmms.plugin:model_manifests" in text
    assert "lmms_eval = lmms_eval.cli.dispatch:main" in text


@pytest.mark.parametrize("kind", ["QA", "VQA"])
def test_a_users_own_folder_runs_without_any_code(run, tmp_path, kind):
    folder, home = tmp_path / "rounds", str(tmp_path / "home")
    folder.mkdir()
    Image.new("L", (8, 8), 90).save(folder / "a.png")
    samples = [{"question": "Which side?", "answer": "left", "images": ["a.png"] * count} for count in range(3)]
    if kind == "QA":
        samples = [{**sample, "options": ["right", "left"]} for sample in samples]
    (folder / "dataset.json").write_text(json.dumps({"taskType": kind, "modality": "Drawn", "samples": samples}))
    prepared = run(["medtasks", "data", "prepare", "--from-folder", str(folder)], MEDTASKS_HOME=home)
    assert prepared.returncode == 0, prepared.stderr
    options = "--model medtasks_tiny --model_args journal=false --device cpu --batch_size 2 --output_path out"
    ran = run(["lmms_eval", "--tasks", "multimedeval_rounds", *options.split()], MEDTASKS_HOME=home)
    files = list((tmp_path / "out").rglob("*_results.json"))
    assert len(files) == 1, ran.stdout[-2000:] + ran.stderr[-2000:]
    results = json.loads(files[0].read_text())
    assert results["n-samples"]["multimedeval_rounds"]["effective"] == 3
    metric = {"QA": "accuracy", "VQA": "token_recall"}[kind]
    assert {f"{metric},reference", f"{metric},robust"} <= results["results"]["multimedeval_rounds"].keys()
