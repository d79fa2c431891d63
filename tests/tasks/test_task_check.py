"""Task files of ours pass the check that users' own files have to pass."""

from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.tasks.documents import KEYS, task_problems, unknown_keys
from medtasks.tasks.task_files import task_config, task_file, task_files

from ..tables import each_row

TASKS = [name for name, task in task_files().items() if task.kind == "task"]


@each_row("name", ["mediconfusion", "mediconfusion_gd_blind", "mediconfusion_ff", "mediconfusion_ps"])
def test_prepared_tasks(sample, name):
    assert list(task_problems(task_file(name))) == []


def test_rules_and_keys_of_all_our_tasks():
    for task in map(task_file, TASKS):
        kind = AnswerKind.LIKELIHOODS if task.compares_likelihoods else task.family.kind
        assert {row.extractor for row in task.rows.values() if row.extractor} <= extractors(kind).keys(), task.name
        assert task_config(task.name).keys() <= KEYS
        assert unknown_keys(task) == []
