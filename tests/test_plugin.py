"""The entry point: light, never in the way of the harness or of other plug-ins, and our tasks are found."""

import importlib
import json
import re
import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from medtasks.lmms import plugin
from medtasks.tasks.task_index import tasks_folder

from .processes import run_fresh, start_forked
from .waiting import PATIENCE

ADAPTERS = Path(__file__).parents[1] / "model_adapters"
NAMED = re.compile(r'^    model_id = "(\w+)"$', re.MULTILINE)
SOURCES = [path.read_text(encoding="utf-8") for path in ADAPTERS.rglob("*.py")]
MODELS = sorted(name for text in SOURCES for name in NAMED.findall(text))


def test_no_secret_is_in_results_nor_printed_next_to_them():
    secret = "base_url=http://me:PLANTED@host/v1,api_key=PLANTED"
    arguments = SimpleNamespace(model_args=secret, gen_kwargs=None)
    config = {"model_args": secret, "extra_body": {"api_key": "PLANTED"}, "seed": 1}
    of_task = {
        "dataset_kwargs": {"token": "PLANTED", "load_from_disk": True},
        "score_key": "score",
    }

    def evaluate(tasks, cli_args):
        return {"config": config, "configs": {"task": of_task}}

    results = plugin._check_and_redact(evaluate, tasks=[], cli_args=arguments)
    hidden = "base_url=http://***@host/v1,api_key=***"
    assert results["config"] == {
        "model_args": hidden,
        "extra_body": {"api_key": "***"},
        "seed": 1,
    }
    hidden_kwargs = {"token": "***", "load_from_disk": True}
    assert results["configs"]["task"] == {"dataset_kwargs": hidden_kwargs, "score_key": "score"}
    assert vars(arguments) == {"model_args": hidden, "gen_kwargs": None}


LIGHT = """
import importlib.metadata, json, os, sys
importlib.metadata.entry_points = lambda **_: []  # the harness would call us before we look
import lmms_eval.models.registry_v2
assert "medtasks.lmms.plugin" not in sys.modules
from medtasks.lmms import plugin
from medtasks.tasks.task_index import tasks_folder
first, second = plugin.model_manifests(), plugin.model_manifests()
os.environ["MEDTASKS_AUTOLOAD"] = "0"
print(json.dumps({
    "manifests": [[manifest.model_id, manifest.simple_class_path, manifest.chat_class_path] for manifest in first],
    "again": first == second,
    "finders": sum(type(finder).__name__ == "_AfterImport" for finder in sys.meta_path),
    "off": plugin.model_manifests(),
    "imported": sorted(sys.modules),
}))
"""

REAL = """
import json, pathlib, sys
report = {}
import lmms_eval.models
report["tasks imported by models"] = "lmms_eval.tasks" in sys.modules
import lmms_eval.tasks as tasks
def wrapped():
    return hasattr(tasks.TaskManager.initialize_tasks, "__wrapped__")
report["wrapped on import"] = wrapped()
report["finders left"] = sum(type(finder).__name__ == "_AfterImport" for finder in sys.meta_path)
for name in ("initialize_tasks", "match_tasks"):  # as if our entry point had not been called yet
    setattr(tasks.TaskManager, name, getattr(tasks.TaskManager, name).__wrapped__)
from medtasks.lmms.plugin import model_manifests
model_manifests()
report["wrapped when called late"] = wrapped()
once = tasks.TaskManager.initialize_tasks
model_manifests()
report["wrapped once"] = tasks.TaskManager.initialize_tasks is once
folder = pathlib.Path(sys.argv[1])
tasks.__file__ = str(folder / "stock" / "__init__.py")  # 2000 defaults take seconds to read
everything = tasks.TaskManager()
report["stock"] = "stock" in everything.all_tasks
report["ours"] = [name for name in everything.all_tasks if name.startswith("mediconfusion")]
blind = everything._get_config("mediconfusion_gd_blind")
names = {name: getattr(blind[name], "__name__", blind[name]) for name in ("task", "tag", "process_docs", "doc_to_text")}
report["blind"] = {**names, **{name: blind["metadata"][name] for name in ("variant", "base", "dataset", "protocol")}}
report["base"] = {name: str(everything._get_config("mediconfusion_gd").get(name)) for name in ("task", "process_docs")}
report["tag"] = everything._get_tasklist("mediconfusion_gd_sanity")
report["patterns"] = {
    pattern: everything.match_tasks([pattern])
    for pattern in ("mediconfusion*", "mediconfusion_*", "mediconfusion_b*", "mediconfusion_*_blind", "*_gd_sanity")
}
report["reading is the harness's"] = tasks.TaskManager._get_config.__module__ == "lmms_eval.tasks"
tasks.__file__ = str(folder / "defaults" / "__init__.py")
from medtasks.tasks.task_index import tasks_folder
user = str(folder / "user")
manager = tasks.TaskManager(include_path=user)
report["default wins"] = manager.task_index["mediconfusion_gd"]["yaml_path"]
report["user wins"] = manager.task_index["mediconfusion"]["yaml_path"]
others = tuple(path.name for path in tasks_folder().iterdir() if path.name not in ("mediconfusion", "own"))
report["all"] = [task for task in manager.all_tasks if not task.startswith(others)]
report["no defaults"] = tasks.TaskManager(include_path=user, include_defaults=False).all_tasks
alone = tasks.TaskManager(include_path=str(tasks_folder()), include_defaults=False).all_tasks
report["our folder alone"] = [name for name in alone if name.startswith("mediconfusion")]
try:
    tasks.TaskManager(include_path=str(folder / "malformed"))
    report["malformed"] = ""
except Exception as error:
    report["malformed"] = type(error).__name__
report["matched"] = manager.match_tasks(["mediconfusion_dg", "mediconfusion", "medi*", "xyzzy", "nowhere*"])
print(json.dumps(report))
"""


def test_entry_point_is_light():
    ran = run_fresh([sys.executable, "-c", LIGHT], Path.cwd(), MEDTASKS_AUTOLOAD="1")
    assert ran.returncode == 0, ran.stderr[-3000:]
    light = json.loads(ran.stdout)
    heavy = {
        "torch",
        "datasets",
        "transformers",
        "pydantic",
        "PIL",
        "rich",
        "numpy",
        "lmms_eval.tasks",
    }
    assert {*heavy, "lmms_eval.api"}.isdisjoint(light["imported"])
    assert sorted(name for name, *_ in light["manifests"]) == MODELS
    assert (light["again"], light["finders"], light["off"]) == (True, 1, [])
    for model, path, chat in light["manifests"]:
        module, _, name = path.rpartition(".")
        adapter = getattr(importlib.import_module(module), name)
        assert (getattr(adapter, "model_id", "adapter"), adapter.is_simple, chat) == (
            model,
            True,
            None,
        )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Small stand-ins for the harness's own tasks and a user's, with names of ours among them."""
    folder = tmp_path_factory.mktemp("tasks")
    tasks = {
        "stock": ["stock"],
        "defaults": ["mediconfusion_gd", "stock"],
        "user": ["mediconfusion", "own"],
    }
    for place, names in tasks.items():
        (folder / place).mkdir()
        for name in names:
            (folder / place / f"{name}.yaml").write_text(f"task: {name}\n")
    (folder / "malformed").mkdir()
    (folder / "malformed" / "broken.yaml").write_text("task: [unclosed\n")
    return folder


@pytest.fixture(scope="module")
def real(folder):
    process = start_forked(
        REAL, folder, folder / "printed.txt", str(folder), MEDTASKS_AUTOLOAD="1"
    )
    process.join(PATIENCE)
    printed = (folder / "printed.txt").read_text()
    assert process.exitcode == 0, printed[-3000:]
    return json.loads(printed.splitlines()[-1])


OURS = [
    "mediconfusion",
    "mediconfusion_all",
    "mediconfusion_all_ff",
    "mediconfusion_ff",
    "mediconfusion_gd",
    "mediconfusion_ps",
]
OF_IMAGES = ["blank", "blind", "degraded", "sanity", "stress", "swapped", "told"]
ENDINGS = {
    "mediconfusion": [*OF_IMAGES, "rotated", "abstain", "think", "think_boxed"],
    "mediconfusion_ff": OF_IMAGES,
    "mediconfusion_gd": [*OF_IMAGES, "rotated", "abstain"],
    "mediconfusion_ps": OF_IMAGES,
}


def variants(*bases):
    return [f"{base}_{ending}" for base in bases for ending in ENDINGS[base]]


def test_tasks_are_found_whenever_the_harness_calls_us(real):
    assert (
        real["tasks imported by models"],
        real["wrapped on import"],
        real["finders left"],
    ) == (
        False,
        True,
        0,
    )
    assert real["wrapped when called late"]
    assert real["wrapped once"]
    assert real["stock"]
    assert real["ours"] == sorted([*OURS, *variants(*ENDINGS)])
    assert real["our folder alone"] == OURS  # whoever wants no defaults gets what the files say


def test_a_variant_is_its_base_but_for_a_few_changes_and_matches_only_patterns_that_name_it(
    real,
):
    assert real["blind"] == {
        **dict.fromkeys(("task", "process_docs"), "mediconfusion_gd_blind"),
        "tag": [],
        "doc_to_text": "lettered_prompt",
        "variant": "blind",
        "base": "mediconfusion_gd",
        "dataset": "mediconfusion",
        "protocol": "GD",
    }
    assert real["base"] == {"task": "mediconfusion_gd", "process_docs": "None"}
    endings = ("blind", "blank", "swapped", "rotated")
    assert real["tag"] == [
        "mediconfusion_gd",
        *(f"mediconfusion_gd_{ending}" for ending in endings),
    ]
    assert real["reading is the harness's"]
    assert real["patterns"] == {
        "mediconfusion*": OURS,
        "mediconfusion_*": OURS[1:],
        "mediconfusion_b*": ["mediconfusion_blank", "mediconfusion_blind"],
        "mediconfusion_*_blind": [
            "mediconfusion_ff_blind",
            "mediconfusion_gd_blind",
            "mediconfusion_ps_blind",
        ],
        "*_gd_sanity": ["mediconfusion_gd_sanity"],
    }


def test_the_harness_and_the_user_come_first(real, folder):
    assert real["default wins"] == str(folder / "defaults/mediconfusion_gd.yaml")
    assert real["user wins"] == str(folder / "user/mediconfusion.yaml")
    # Nothing is made of a task that another one has replaced.
    assert real["all"] == sorted(
        [*OURS, *variants("mediconfusion_ff", "mediconfusion_ps"), "own", "stock"]
    )
    assert real["no defaults"] == ["mediconfusion", "own"]
    assert real["malformed"] == "ParserError"  # as without us
    assert real["matched"] == OURS


# Below: this process, with stand-ins for the harness's modules.


class Manager:
    """The harness's task index in its present form."""

    all_tasks = ("mediconfusion", "mediconfusion_gd")

    def __init__(self, include_path=None, include_defaults=True):
        self.paths = self.initialize_tasks(
            include_path=include_path, include_defaults=include_defaults
        )

    def initialize_tasks(self, include_path=None, include_defaults=True):
        paths = [include_path] if isinstance(include_path, str) else list(include_path or [])
        if any("malformed" in path for path in paths):
            raise RuntimeError("malformed")
        return (["defaults"] if include_defaults else []) + paths

    def match_tasks(self, task_list):
        return [name for name in self.all_tasks if name in task_list]


@pytest.fixture
def harness(monkeypatch):
    """Put a stand-in with this task index in the place of ``lmms_eval.tasks`` and call the entry point."""

    def run(manager=None, models=(*MODELS,)):
        module = ModuleType("lmms_eval.tasks")
        if manager is not None:
            module.TaskManager = type("TaskManager", (manager,), dict(vars(manager)))
        monkeypatch.setitem(sys.modules, "lmms_eval.tasks", module)
        assert sorted(manifest.model_id for manifest in plugin.model_manifests()) == [*models]
        return getattr(module, "TaskManager", None)

    return run


def test_our_folder_is_the_last(harness):
    ours = str(tasks_folder())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        manager = harness(Manager)
        plugin.model_manifests()  # another call changes nothing
        assert manager().paths == ["defaults", ours]
        assert manager("user").paths == ["defaults", "user", ours]
        chosen = ["a", "b"]
        assert (
            manager(chosen).paths == manager(("a", "b")).paths == ["defaults", "a", "b", ours]
        )
        assert chosen == ["a", "b"]
        assert manager("user", include_defaults=False).paths == ["user"]
        assert manager(None, False).paths == []
        with pytest.raises(
            RuntimeError, match="malformed"
        ):  # errors of the user's own folder are the harness's
            manager("malformed")
        grown = harness(MoreParameters)()
        assert grown.initialize_tasks(recursive=False) == ["defaults", ours, "recursive=False"]
        assert grown.initialize_tasks("a", True) == ["defaults", "a", ours, "recursive=True"]


class MoreParameters(Manager):
    def initialize_tasks(self, include_path=None, include_defaults=True, *, recursive=True):
        return [
            *super().initialize_tasks(include_path, include_defaults),
            f"recursive={recursive}",
        ]


def test_autoload_can_be_turned_off(harness, monkeypatch):
    monkeypatch.setenv("MEDTASKS_AUTOLOAD", "0")
    finders = list(sys.meta_path)
    assert harness(Manager, models=())().paths == ["defaults"]
    assert sys.meta_path == finders


class OtherSignature:
    def initialize_tasks(self, folders):
        return folders

    def match_tasks(self, names):
        return names


class NoMethods:
    pass


class NoIndex:
    initialize_tasks = None
    match_tasks = None


@pytest.mark.parametrize("manager", [None, OtherSignature, NoMethods, NoIndex])
def test_an_odd_task_manager_is_left_alone(harness, manager):
    with pytest.warns(
        UserWarning,
        match=r"could not register itself with this version of lmms-eval.*--include_path",
    ):
        odd = harness(manager)
    for name in ("initialize_tasks", "match_tasks"):
        assert manager is None or vars(odd).get(name) is vars(manager).get(name)


class DislikesOurs(Manager):
    def initialize_tasks(self, include_path=None, include_defaults=True):
        if str(tasks_folder()) in (include_path or ()):
            raise KeyError("version")
        return Manager.initialize_tasks(self, include_path, include_defaults)


def test_our_own_yaml_never_breaks_the_harness(harness):
    manager = harness(DislikesOurs)
    with pytest.warns(UserWarning, match="KeyError"):
        assert manager("user").paths == ["defaults", "user"]


def test_task_files_that_others_may_have_written_are_not_loaded(harness, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    (tmp_path / "tasks").mkdir()
    manager = harness(Manager)
    assert str(tmp_path / "tasks") in manager("user").paths
    (tmp_path / "tasks").chmod(0o777)
    with pytest.warns(
        UserWarning, match="writable by others, and task files can run code; .* chmod"
    ):
        assert manager("user").paths == ["defaults", "user"]
