"""The dotted names that task files use: all of them are in a file, and resolve through Python's own imports."""

import ast
import importlib
import pickle
from pathlib import Path

import pytest

from medtasks.hooks import choice
from medtasks.tasks.hook_names import HOOKS, families, family_of
from medtasks.tasks.task_files import task_config, task_files
from medtasks.tasks.task_index import DottedName, own_config, tasks_folder

from ..tables import each_row

OF_DATA = ("medtasks.data.path_of", "medtasks.data.label_of", "medtasks.data.provenance_of")
"""Modules whose names are those of datasets, which may be the user's own."""
OF_FILES = (*OF_DATA, "medtasks.hooks.settings_of")  # or are in the files prompts.yml


def dotted_names(value):
    if isinstance(value, DottedName):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from dotted_names(one)


def names_in_files():
    """Return the names in all files of tasks, those that others include and the two of variants among them."""
    files = [
        path
        for path in tasks_folder().glob("*/*")
        if path.suffix in (".yaml", ".yml") or path.name[0] == "_"
    ]
    assert len(files) > 90
    return {name for path in files if path.is_file() for name in dotted_names(own_config(path))}


def written_names(module):
    """Return the names that a module's file assigns, defines or imports."""
    names = set()
    for node in ast.parse(Path(module.__file__).read_text()).body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets}
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def test_every_name_in_a_task_file_is_in_the_file_of_its_module():
    used = names_in_files() | {
        name for task in task_files() for name in dotted_names(dict(task_config(task)))
    }
    assert len(used) > 250
    for name in used:
        assert name.startswith("medtasks.")
        module, _, attribute = name.rpartition(".")
        loaded = importlib.import_module(module)
        value = getattr(loaded, attribute)
        assert Path(loaded.__file__).is_file()
        if module not in OF_FILES:
            assert attribute in written_names(loaded)
            assert callable(value) or isinstance(value, list | tuple | str)


@each_row("name", sorted(families()))
def test_a_module_has_the_hook_and_the_metrics_of_its_family(name):
    module = importlib.import_module(f"{HOOKS}{name}")
    family = family_of(DottedName(f"{HOOKS}{name}.process_results"))
    assert family is families()[name] is family_of(module.process_results)
    listed = {entry["metric"].removesuffix("_stderr") for entry in module.METRIC_LIST}
    own = {metric.name for metric in family.metrics}
    assert listed == own or (name == "yes_no" and listed < own)
    if family.rotated in (
        "rotated_choice",
        "rotated_classes",
    ):  # one option is right, so another can be to abstain
        abstaining = {
            entry["metric"].removesuffix("_stderr") for entry in module.ABSTAINING_METRIC_LIST
        }
        assert abstaining == own | {"coverage", "acc_of_answered"}
        assert family_of(module.process_abstaining).name == family.name


def test_scoring_by_hooks():
    doc = {"options": ["x", "y"], "answer": "B", "image_id": None}
    samples = [
        choice.process_results({"doc_id": reply, **doc}, [reply]) for reply in ("B", "(a)")
    ]
    scores = pickle.loads(
        pickle.dumps([sample["accuracy"] for sample in samples])
    )  # as from another rank
    values = {entry["metric"]: entry["aggregation"](scores) for entry in choice.METRIC_LIST}
    assert (values["accuracy"], values["accuracy_stderr"], values["invalid_rate"]) == (
        0.5,
        0.5,
        0.0,
    )
    assert [entry["aggregation"].__name__ for entry in choice.METRIC_LIST] == [*values]


@each_row(
    "name", ["choice.no_such", "settings_of.no_such", "variants.no_such", "no_such.METRIC_LIST"]
)
def test_a_name_that_no_file_has(name):
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        DottedName(f"{HOOKS}{name}").resolve()
    assert family_of(DottedName(f"{HOOKS}{name}")) is None
