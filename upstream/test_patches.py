"""Each patch fits the installed lmms-eval, and does what README.md says."""

import importlib.util
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace

import filelock
import pytest

pytestmark = pytest.mark.slow

PATCHES = Path(__file__).parent
TASK = "task: planted\ndataset_path: json\noutput_type: generate_until\n"


def installed(path: str) -> Path:
    """Return a file of the installed harness, found without importing it."""
    (folder,) = importlib.util.find_spec("lmms_eval").submodule_search_locations
    return Path(folder, path)


def load(file: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def modules(monkeypatch, tmp_path):
    """Load a file of the harness as it is and as a patch makes it."""
    if metadata.version("lmms_eval") != "0.7.3":
        pytest.skip("the patches are for lmms-eval 0.7.3")

    def both(patch: str, path: str) -> tuple[ModuleType, ModuleType]:
        made = []
        for name in ("before", "after"):
            copy = tmp_path / name / "lmms_eval" / path
            copy.parent.mkdir(parents=True)
            shutil.copyfile(installed(path), copy)
            if name == "after":
                command = ["git", "apply", "-p1", str(PATCHES / patch)]
                subprocess.run(
                    command,
                    cwd=tmp_path / name,
                    check=True,
                    env={"GIT_CEILING_DIRECTORIES": str(tmp_path)},
                )
            made.append(load(copy, f"harness_{name}", monkeypatch))
        return made[0], made[1]

    return both


def test_installed_packages_name_folders_of_tasks(modules, monkeypatch, tmp_path):
    before, after = modules("task_entry_point.patch", "tasks/__init__.py")
    (tmp_path / "planted").mkdir()
    (tmp_path / "planted" / "planted.yaml").write_text(TASK)

    def broken():
        raise ImportError("no such module")

    plugins = [
        SimpleNamespace(value="broken", load=broken),
        SimpleNamespace(value="planted", load=lambda: lambda: [tmp_path / "planted"]),
    ]
    monkeypatch.setattr(
        after, "entry_points", lambda group: plugins if group == "lmms_eval.tasks" else []
    )
    assert after.TaskManager().all_tasks == ["planted"]
    assert after.TaskManager(include_defaults=False).all_tasks == []
    assert before.TaskManager().all_tasks == []


def test_likelihoods_stay_numbers(modules):
    before, after = modules("likelihoods_as_numbers.patch", "api/instance.py")
    assert before.unwrap_generation_output((1.5, False)) == ("(1.5, False)", None)
    assert after.unwrap_generation_output((1.5, False)) == ((1.5, False), None)
    for output in ("text", ["one", "two", "three"], ("text", {"output_tokens": 3}), 7):
        assert repr(after.unwrap_generation_output(output)) == repr(
            before.unwrap_generation_output(output)
        )


@pytest.mark.parametrize("fails", [True, False])
def test_a_failed_evaluation_has_an_exit_code(modules, monkeypatch, fails):
    def evaluate(args):
        if fails:
            raise ConnectionError("the server is gone")
        return None, None

    monkeypatch.setattr(sys, "argv", ["lmms_eval", "--model", "dummy", "--tasks", "planted"])
    before, after = modules("exit_code.patch", "__main__.py")
    codes = []
    for module in (before, after):
        monkeypatch.setattr(module, "cli_evaluate_single", evaluate)
        accelerator = SimpleNamespace(is_main_process=True, wait_for_everyone=lambda: None)
        monkeypatch.setattr(
            module, "Accelerator", lambda accelerator=accelerator, **options: accelerator
        )
        try:
            module.cli_evaluate()
            codes.append(0)
        except SystemExit as end:
            codes.append(end.code)
    assert codes == [0, int(fails)]


def test_an_evaluation_starts_whatever_private_modules_filelock_has(
    modules, monkeypatch, tmp_path
):
    from datasets.utils import _filelock

    before, after = modules("filelock.patch", "evaluator.py")
    locks = type(filelock.BaseFileLock)
    monkeypatch.setattr(locks, "__call__", locks.__call__)  # which the harness replaces
    monkeypatch.setitem(sys.modules, "filelock._api", None)  # as with filelock 4.3
    with pytest.raises(ImportError, match=r"filelock\._api"):
        before._enable_reentrant_filelocks()
    after._enable_reentrant_filelocks()
    lock = filelock.FileLock(tmp_path / "one.lock")
    assert _filelock.FileLock(tmp_path / "one.lock") is lock
    with lock, _filelock.FileLock(tmp_path / "one.lock"):
        assert lock.is_locked
    assert _filelock.FileLock(tmp_path / "two.lock") is not lock
