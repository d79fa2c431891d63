"""Task files of ours pass the check that users' own files have to pass."""

import dataclasses

import pytest

from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.tasks.documents import KEYS, task_problems, unknown_keys
from medtasks.tasks.task_files import task_config, task_file, task_files

TASKS = [name for name, task in task_files().items() if task.kind == "task"]


@pytest.mark.parametrize("name", ["mediconfusion", "mediconfusion_gd_blind", "mediconfusion_ff", "mediconfusion_ps"])
def test_prepared_tasks(sample, name):
    assert list(task_problems(task_file(name))) == []


def test_rules_and_keys_of_all_our_tasks():
    for task in map(task_file, TASKS):
        kind = AnswerKind.LIKELIHOODS if task.compares_likelihoods else task.family.kind
        assert {row.extractor for row in task.rows.values() if row.extractor} <= extractors(kind).keys(), task.name
        assert task_config(task.name).keys() <= KEYS
        assert unknown_keys(task) == []


@pytest.mark.slow
def test_keys_are_those_of_the_harness():
    """Newer versions may have more, which are warnings."""
    from lmms_eval.api.task import TaskConfig

    assert {field.name for field in dataclasses.fields(TaskConfig)} >= KEYS - {"include", "class"}
