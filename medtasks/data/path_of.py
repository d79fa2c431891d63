"""``path_of.<dataset>`` is the folder of a prepared dataset, for ``dataset_path: !function`` in task YAML.

The harness resolves the name when the task is selected, not when tasks are listed. Nothing is downloaded here: images
of the public sets come from hundreds of articles, so fetching them is a command of its own.
"""

from pathlib import Path
from typing import NoReturn

from medtasks.data.catalogue import CATALOGUE, dataset_info
from medtasks.data.home import HOME_VARIABLE, dataset_folder, home, own_tasks_folder
from medtasks.data.manifest import FILE_NAME
from medtasks.errors import DatasetNotPrepared, MedTasksError


def prepared_folder(name: str) -> Path:
    """Return the folder of a prepared dataset; UnknownName or DatasetNotPrepared where there is none."""
    folder = dataset_folder(name)
    if not (folder / FILE_NAME).is_file():
        if own_task_file(name).is_file():
            raise DatasetNotPrepared(
                f"your own dataset '{name}' is not in {home()} any more; run 'medtasks data prepare --from-folder DIR "
                f"--name {name}' (for a part of another one 'medtasks data select ... --as {name}'), or delete its "
                f"task {own_task_file(name)}"
            )
        info = dataset_info(name)
        raise DatasetNotPrepared(
            f"dataset '{name}' ({info.benchmark}, {info.access}) is not prepared in {home()}; run "
            f"'medtasks data prepare {name}', add '--source DIR' if you have a copy, or set {HOME_VARIABLE}"
        )
    return folder


class UnusablePath(str):
    """The path of a dataset that is not there or cannot be used: the first look at it raises our own sentence.

    The harness wraps whatever ``!function`` raises in an ImportError about module paths, and retries a failing dataset
    load for ten seconds before it hides the cause. Between the two it tests the path for truth, unwrapped.
    """

    error: MedTasksError

    def __bool__(self) -> NoReturn:
        raise self.error


def unusable(path: str | Path, error: MedTasksError) -> UnusablePath:
    """Return a path that raises this error at the first look at it."""
    made = UnusablePath(path)
    made.error = error
    return made


def known(name: str) -> bool:
    """Return whether ``name`` is in the catalogue, or was prepared here from a user's own folder."""
    own = (dataset_folder(name) / FILE_NAME, own_task_file(name))
    return name in CATALOGUE or (name.isidentifier() and any(file.is_file() for file in own))


def own_task_file(name: str) -> Path:
    """Return the file of a task of the user's own, whether or not it exists."""
    return own_tasks_folder() / f"{name}.yaml"


def __getattr__(name: str) -> str:
    if not known(name):
        raise AttributeError(f"module {__name__!r} has no dataset {name!r}; known: {', '.join(sorted(CATALOGUE))}")
    try:
        return str(prepared_folder(name))
    except DatasetNotPrepared as error:
        return unusable(dataset_folder(name), error)
