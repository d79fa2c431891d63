"""Checks of task names and files: of two tasks with one name the harness silently takes the first."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from medtasks.audit.doctor.check_results import TASKS, CheckResult, Scope, State, findings_of, of_error
from medtasks.data.dataset_manifest import FILE_NAME
from medtasks.errors import MedTasksError, near_match
from medtasks.home import dataset_folder, own_tasks_folder
from medtasks.tasks.documents import task_documents, task_problems, unknown_keys
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_files
from medtasks.tasks.task_index import harness_folder, index_tasks, mapping_in, tasks_folder


def collisions(scope: Scope) -> Iterator[CheckResult]:
    """Check that the harness has none of our names, or of the chosen tasks', and the user none of ours."""
    shipped, ours = _named(tasks_folder()), own_names()
    if scope.chosen:
        ours = (ours & {*scope.names}) | {task.name for task in scope.tasks}
    harness = harness_folder()
    if harness is None:
        yield TASKS.problem("names", "lmms-eval has no folder of tasks", "pip install --force-reinstall lmms_eval")
        return
    taken = {name: path for name, path in _named(harness).items() if name in ours}
    for name, path in taken.items():
        sentence = f"'{name}' is a name of lmms-eval's own tasks, too, and the harness takes {path}"
        yield TASKS.problem(name, sentence, f"rename it in {path}, or where medtasks has it")
    for name, path in index_tasks([own_tasks_folder()]).paths.items():
        if name in shipped:
            sentence = f"'{name}' is a name of medtasks, too, and the harness does not take {path}"
            yield TASKS.problem(name, sentence, f"rename it in {path}")
    if not taken:
        yield TASKS.ok("names", f"no task of lmms-eval has one of the names of ours ({len(ours)})")


def foreign_names(scope: Scope) -> Iterator[CheckResult]:
    """Check that the chosen names that are not ours are tasks of the harness."""
    harness = harness_folder()
    harness_names = _named(harness) if scope.foreign and harness else {}
    ours = [*task_files(), *(tag for task in task_files().values() for tag in task.tags)]
    for name in scope.foreign:
        if name in harness_names:
            sentence = f"'{name}' is a task of lmms-eval itself, whose data and metrics are not looked at"
            yield TASKS.note(name, sentence, f"try it: lmms_eval --tasks {name} --limit 1")
        else:
            sentence = f"there is no task '{name}', neither here nor in lmms-eval{near_match(name, ours)}"
            yield TASKS.problem(name, sentence, "medtasks tasks lists ours")


def own_files() -> Iterator[CheckResult]:
    """Check the user's own task files: one that cannot be read makes the harness lose all our tasks."""
    for path in sorted(own_tasks_folder().rglob("*.yaml")):
        try:
            index = index_tasks([path], strict=True)
        except MedTasksError as error:
            yield of_error(TASKS, path.stem, State.PROBLEM, error)
            continue
        if any("group" not in config for config in index.groups.values()):
            sentence = f"{path} lists tasks of a group and has no 'group' with its name"
            yield TASKS.problem(path.stem, f"{sentence}, so that the harness lists none of our tasks", f"fix {path}")
            continue
        named = (mapping_in(config, "metadata").get("dataset") for config in index.configs.values())
        for name in (name for name in named if isinstance(name, str)):
            if not (dataset_folder(name) / FILE_NAME).is_file():
                command = f"prepare '{name}' again with medtasks data prepare, data select or curate publish"
                yield TASKS.warning(
                    path.stem, f"the dataset '{name}' of {path} is gone", f"{command}, or delete {path}"
                )
                break


def own_tasks(scope: Scope) -> Iterator[CheckResult]:
    """Check the files of the user's own tasks, their hooks, rules, metrics and first prompt, and their samples."""

    def check(task: TaskFile) -> Iterator[CheckResult]:
        for key in unknown_keys(task):
            sentence = f"the task file {task.path} has a key '{key}' that lmms-eval 0.7.3 does not know"
            yield TASKS.warning(task.name, sentence, "correct it, or remove it")
        problems = list(task_problems(task))
        for problem in problems:
            yield of_error(TASKS, task.name, State.PROBLEM, MedTasksError(problem), f"correct {task.path}")
        if not problems:
            number = (
                "" if task.dataset or task.only_harness else f"; all {len(task_documents(task))} samples can be asked"
            )
            yield TASKS.ok(task.name, f"hooks, rules and the first prompt of '{task.name}' are in order{number}")

    for task in scope.tasks:
        if task.kind == "task" and not task.is_shipped:
            yield from findings_of(TASKS, task.name, partial(check, task))


def own_names() -> set[str]:
    """Return the names of our tasks, groups and tags, with those of the user that can be read."""
    return {*_named(tasks_folder()), *_named(own_tasks_folder())}


def _named(folder: Path) -> dict[str, Path]:
    """Return the file of each task, group and tag in a folder, as the harness indexes them."""
    index = index_tasks([folder])
    # A class of the harness has no tags.
    tagged = {task for task, config in index.configs.items() if "class" not in config}
    tags = {tag: [index.paths[task] for task in tasks if task in tagged] for tag, tasks in index.members.items()}
    return {**{tag: paths[0] for tag, paths in tags.items() if paths}, **index.paths}
