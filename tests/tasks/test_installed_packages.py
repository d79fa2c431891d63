"""Tasks of installed packages, which name their folder under the entry point ``medtasks.tasks``."""

import importlib
import json

import pytest

from medtasks.errors import collected_warnings
from medtasks.home import own_tasks_folder
from medtasks.tasks import task_files
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_index import harness_folder, tasks_folder

from ..processes import run_here

YAML = "task: {}\nfamily: single_choice\ndata: {}\nimage: none\ndescription: Toy questions\n"
QUESTION = {"question": "Which side?", "options": ["left", "right"], "answer": "B"}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder from which packages are installed, as pip leaves them there."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    task_files.installed_tasks.cache_clear()
    yield folder
    task_files.installed_tasks.cache_clear()


def install(site, name, tasks=("toy",), value=None, text=None):
    """Install a package with a task file and a question for each task in its subfolder ``tasks``."""
    folder = site / name / "tasks"
    folder.mkdir(parents=True)
    (site / name / "__init__.py").write_text("raise RuntimeError('imported')\n")
    for task in tasks:
        (folder / f"{task}.yaml").write_text(text or YAML.format(task, "toy.jsonl"))
    (folder / "toy.jsonl").write_text(json.dumps(QUESTION) + "\n")
    about = site / f"{name}-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    entry = f"[medtasks.tasks]\n{name} = {value or f'{name}.tasks'}\n"
    (about / "entry_points.txt").write_text(entry)
    importlib.invalidate_caches()
    task_files.installed_tasks.cache_clear()
    return folder


def test_tasks_of_a_package_are_found_without_importing_it(site, tmp_path):
    folder = install(site, "my_bench", ["toy", "toy_more"])
    task = task_files.task_file("toy")
    assert (task.path, task.description, task.is_shipped) == (
        folder / "toy.yaml",
        "Toy questions",
        False,
    )
    assert [document["answer"] for document in task_documents(task)] == ["B"]
    assert task_files.variant_of("toy_more_think") == ("toy_more", "think")
    command = ["lmms_eval", "--model", "medtasks_tiny", "--tasks", "toy,toy_more_think"]
    ran = run_here([*command, "--output_path", "results", "--log_samples"], tmp_path)
    assert ran.returncode == 0, ran.stderr[-3000:]
    (path,) = (tmp_path / "results").rglob("*_results.json")
    results = json.loads(path.read_text())["results"]
    assert {"toy", "toy_more_think"} <= results.keys()
    assert run_here(["medtasks", "score", "toy", "results"], tmp_path).returncode == 0


def test_a_folder_elsewhere_with_the_name_of_a_package_is_not_it(site, tmp_path, monkeypatch):
    folder = install(site, "my_bench")
    (site / "my_bench" / "__init__.py").unlink()
    (tmp_path / "working" / "my_bench" / "tasks").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "working"))
    task_files.installed_tasks.cache_clear()
    assert list(task_files.installed_tasks()) == [folder]


HARNESS_TASK = next(harness_folder().rglob("mmmu_val.yaml"))
LEFT_OUT = {
    "no such package": ([], "nowhere.tasks", None, "there is no folder nowhere/tasks"),
    "no such folder": (["x"], "broken.questions", None, "there is no folder broken/questions"),
    "an object": (["x"], "broken.tasks:FOLDER", None, "there is no folder broken/tasks:FOLDER"),
    "no task file": ([], None, None, "broken/tasks holds no task file"),
    "a damaged file": (["x"], None, "task: [", "is damaged in line"),
    "an unknown family": (
        ["x"],
        None,
        YAML.replace("single", "simple").format("x", "y"),
        "family",
    ),
    "our task": (["mediconfusion_gd"], None, None, str(tasks_folder() / "mediconfusion")),
    "our variant": (
        ["mediconfusion_gd_blind"],
        None,
        None,
        str(tasks_folder() / "mediconfusion"),
    ),
    "our tag": (["multimedeval_vqa"], None, None, str(tasks_folder() / "multimedeval")),
    "a tag of variants": (
        ["medevalkit_judged"],
        None,
        None,
        str(tasks_folder() / "medevalkit"),
    ),
    "a task of the harness": (["mmmu_val"], None, None, str(HARNESS_TASK)),
    "a task of another package": (["toy"], None, None, "a_whole_one/tasks/toy.yaml"),
}


@pytest.mark.parametrize("case", LEFT_OUT)
def test_a_broken_package_and_one_with_a_taken_name_are_left_out_alone(site, case):
    names, value, text, fault = LEFT_OUT[case]
    install(site, "a_whole_one")
    folder = install(site, "broken", names, value, text)
    with collected_warnings() as warnings:
        files = task_files.task_files()
        assert "toy" in files
        assert "a_whole_one" in str(files["toy"].path)
        assert not any(folder in task.path.parents for task in files.values())
        assert list(task_files.installed_tasks()) == [site / "a_whole_one" / "tasks"]
    (warning,) = warnings
    assert "the tasks of the installed package 'broken'" in warning
    assert fault in warning
    for name in names if value is None and text is None else ():
        assert f"{folder / name}.yaml has a task '{name}'" in warning


def test_a_task_of_the_users_own_counts_before_that_of_a_package(site):
    install(site, "my_bench")
    own = own_tasks_folder() / "toy.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(YAML.format("toy", "toy.jsonl"))
    with collected_warnings() as warnings:
        assert task_files.task_file("toy").path == own
    (warning,) = warnings
    assert str(own) in warning
    assert str(site / "my_bench" / "tasks" / "toy.yaml") in warning
