"""Fixtures for every test, and the wall between the tests and the user's own data, caches and settings."""

import atexit
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Console scripts are those of this environment, activated or not.
os.environ["PATH"] = os.pathsep.join(
    [os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]
)
if (
    "PYTEST_XDIST_WORKER" not in os.environ
):  # which has the folders of the process that started it
    _session = Path(tempfile.mkdtemp(prefix="medtasks-tests-"))
    atexit.register(shutil.rmtree, _session, ignore_errors=True)
    os.environ["HF_HOME"] = str(_session / "hub")
    os.environ["MEDTASKS_HOME"] = str(
        _session / "home"
    )  # of doctests; each test has one of its own
    os.environ["MEDTASKS_TEST_UNPACKED"] = str(_session / "recordings")
    # Python imports this folder's `sitecustomize` when it starts: processes of tests read YAML quickly, too.
    _path = [str(Path(__file__).with_name("start_up")), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _path))
# Before anything imports torch: tests run side by side, and threads that wait for each other cost half of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import lmms_eval.models  # noqa: F401 - replaces the log's handlers, and would those of the test that imports it first
import pytest
from hypothesis import HealthCheck, settings
from loguru import logger

from medtasks.cli.data import write_sample_home
from medtasks.data.catalogue import CATALOGUE
from medtasks.errors import MedTasksError, forget_warnings
from medtasks.metrics.metric import clear_results
from medtasks.tasks.task_files import include
from medtasks.version import ARCHITECTURES_NEED, require

from . import tiny_multimedeval
from .recordings import recordings
from .start_up import sitecustomize  # noqa: F401 - reads YAML quickly

# The harness imports them for each metric of each run, in vain without their own dependencies.
for module in ("lmms_eval.tasks.amber_g.utils", "lmms_eval.tasks.coco_cap_chair.utils"):
    sys.modules[module] = None  # type: ignore[assignment]
# However slow; 40 examples of each law, and others in each run.
settings.register_profile(
    "any machine", deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as in a shell's background; processes of tests would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Files whose tests read the same run of all tasks, and those that share a fork server.
TOGETHER = (
    (
        "tests/lmms/test_every_task.py",
        "tests/lmms/test_judged_tasks.py",
        "tests/lmms/test_sanity_runs.py",
    ),
    ("tests/lmms/test_canary.py", "tests/lmms/test_two_processes.py", "tests/test_plugin.py"),
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process, in the order of the files, so that each fixture is built once."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Files(LoadFileScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return next((files[0] for files in TOGETHER if file in files), file)

    config.option.loadscopereorder = False
    return Files(config, log)


def pytest_collection_finish() -> None:
    """Leave what is imported for good out of each collection of garbage."""
    gc.collect()
    gc.freeze()


def outdated() -> str:
    """Return why the adapters for published models cannot run here, in one sentence; nothing if they can."""
    try:
        for package, least in ARCHITECTURES_NEED.items():
            require(package, least, "this test of an adapter")
    except MedTasksError as error:
        return str(error)
    return ""


OUTDATED = outdated()
# All their tests need such an adapter, or imports what old versions lack.
OF_ARCHITECTURES = {
    *(
        "test_device_map.py",
        "test_golden_adapters.py",
        "test_hf_vlm.py",
        "test_hf_vlm_options.py",
        "test_loading.py",
    ),
    *(
        "test_image_features.py",
        "test_llava_med.py",
        "test_med_flamingo.py",
        "test_radfm.py",
        "test_volumes.py",
    ),
    "test_shared_scoring.py",
}


class OutdatedModule(pytest.Module):
    """A file of tests that need newer packages."""

    def collect(self) -> Any:
        pytest.skip(OUTDATED, allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Skip the files that need newer packages, without importing them."""
    if (
        OUTDATED
        and module_path.parent.name == "model_adapters"
        and module_path.name in OF_ARCHITECTURES
    ):
        return OutdatedModule.from_parent(parent, path=module_path)
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    """Skip single tests that ask for what the installed packages are too old for."""
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if OUTDATED and isinstance(error, MedTasksError) and " or newer, and " in str(error):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {error}")
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ask first whether the harness is still as medtasks needs it: what else fails follows from that."""
    items.sort(key=lambda item: item.path.name != "test_touch_points.py")


def pytest_unconfigure() -> None:
    gc.unfreeze()  # or some libraries complain at the end


LOG_OUTPUT = sys.stdout  # of pytest itself; that of a test is closed after it
SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(scope="session")
def golden() -> Path:
    """The folder of recorded reference behaviour."""
    return _existing(recordings("MEDTASKS_GOLDEN", "golden"), "MEDTASKS_GOLDEN")


@pytest.fixture(scope="session")
def recorded_data() -> Path:
    """The folder of benchmark files that may be passed on."""
    return _existing(recordings("MEDTASKS_TEST_DATA", "data"), "MEDTASKS_TEST_DATA")


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of all benchmark files, which is not part of the repository."""
    return reference_folder("MEDTASKS_TEST_DATA", "data")


def reference_folder(variable: str, name: str) -> Path:
    """Return the folder named by an environment variable, by default one next to the repository, or skip the test."""
    return _existing(Path(os.environ.get(variable) or SHARED / name), variable)


def _existing(folder: Path, variable: str) -> Path:
    if not folder.is_dir():
        pytest.skip(
            f"no recorded reference material in {folder}; set {variable} to the folder that holds it"
        )
    return folder


@pytest.fixture(scope="session")
def sample_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder that holds the synthetic sample; tests must not change it."""
    folder = tmp_path_factory.mktemp("sample_home")
    write_sample_home(folder)
    before = _datasets_and_tasks(folder)
    yield folder
    assert _datasets_and_tasks(folder) == before, (
        "a test changed the synthetic sample that others use, too"
    )


def _datasets_and_tasks(home: Path) -> list[Path]:
    return sorted(path for part in ("datasets", "tasks") for path in (home / part).rglob("*"))


@pytest.fixture(autouse=True)
def _own_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Point every test at an empty data folder, at no judge and at no weights."""
    monkeypatch.setenv(
        "MEDTASKS_HOME", tempfile.mkdtemp(prefix="home", dir=tmp_path_factory.getbasetemp())
    )
    ours = (
        "MEDTASKS_JUDGE_",
        "MEDTASKS_TRUSTED_",
        "MEDTASKS_LABELER",
        "MEDTASKS_METRICS_",
        "MEDTASKS_PHYSIONET_",
        "MEDTASKS_WEIGHTS",
        "MEDTASKS_SHARD",
    )
    for name in [name for name in os.environ if name.startswith(ours)]:
        monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _own_warnings() -> None:
    """Forget the warnings, computations and log handlers of earlier tests."""
    forget_warnings()
    clear_results()
    logger.remove()
    logger.add(LOG_OUTPUT)


@pytest.fixture(autouse=True)
def _own_tasks() -> Iterator[None]:
    """Forget the folders of tasks that a test has included."""
    yield
    include(())


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The texts of the warnings that were logged so far."""
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


@pytest.fixture
def sample(sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The synthetic sample as this test's data folder."""
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))
    return sample_home


@pytest.fixture(scope="session")
def multimedeval_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that holds all of MultiMedEval's datasets in miniature; tests must not change it."""
    names = [
        name.removeprefix("multimedeval_")
        for name in CATALOGUE
        if name.startswith("multimedeval_")
    ]
    return tiny_multimedeval.prepare_all(tmp_path_factory.mktemp("multimedeval_home"), names)
