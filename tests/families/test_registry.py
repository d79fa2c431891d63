"""The table of families agrees with the hooks that it describes, and with the page for people."""

import importlib
import re
from pathlib import Path

import pytest

from medtasks.extract.registry import extractor_of
from medtasks.families import FAMILIES, Kind
from medtasks.harness.task_files import task_files
from medtasks.harness.task_index import DottedName
from medtasks.hooks import reading

PAGE = (Path(__file__).parents[1] / "tasks_yaml" / "README.md").read_text(encoding="utf-8")


def default_of(hook: str) -> str:
    module = importlib.import_module(hook.rpartition(".")[0])
    if "hallucination" in hook:
        module = importlib.import_module("medtasks.hooks.open_answers")
    return getattr(module, "_DEFAULT", getattr(module, "_STRICT", reading._TEXT_DEFAULT))


@pytest.mark.parametrize("hook", FAMILIES)
def test_the_default_rule_is_that_of_the_hook(hook):
    assert callable(DottedName(hook).resolve())
    rule = FAMILIES[hook].rule
    if hook == "medtasks.hooks.free_form.process_results":
        assert rule is None
    else:
        assert rule == default_of(hook)
        assert extractor_of(rule).name == rule


def test_every_hook_of_our_tasks_is_in_a_family():
    used = {str(task.process_results) for task in task_files().values() if task.kind == "task"}
    assert used <= FAMILIES.keys()
    assert all(task.only_harness == "" for task in task_files().values() if task.kind == "task")


def test_the_page_names_families_and_their_columns():
    table = re.search(r"\| family \|.*?\n\n", PAGE, re.DOTALL)[0]
    rows = [row for row in table.splitlines()[2:] if row and "BLEU option" not in row]
    printed = {row.split("|")[3].strip(" `"): row for row in rows}
    for hook, family in FAMILIES.items():
        room = hook.split(".")[2]
        if "judge" in family.name or room in ("grouped_choice", "submission"):
            continue
        row = printed[room]
        assert family.name in row
        columns = family.short or family.columns
        named = row + printed["choice"] if "the same" in row else row
        assert [name for name in columns if f"`{name}`" not in named] == []


def test_kinds_are_words():
    assert len({kind.value for kind in Kind}) == len(Kind)
