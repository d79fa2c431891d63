"""Where prepared data lives, and writing there so that a file is whole or not there."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

HOME_VARIABLE = "MEDTASKS_HOME"


def home() -> Path:
    """Return the data folder: ``$MEDTASKS_HOME``, or the platform's cache folder for this user."""
    chosen = os.environ.get(HOME_VARIABLE)
    return Path(chosen).expanduser().absolute() if chosen else platformdirs.user_cache_path("medtasks")


def datasets_folder() -> Path:
    """Return the folder of all prepared datasets, whether or not it exists."""
    return home() / "datasets"


def dataset_folder(name: str) -> Path:
    """Return the folder of one prepared dataset, whether or not it exists."""
    return datasets_folder() / name


def dataset_holding(path: Path) -> str | None:
    """Return the name of the prepared dataset in whose folder an absolute path lies; None for one elsewhere."""
    if not path.is_relative_to(datasets_folder()):
        return None
    return next(iter(path.relative_to(datasets_folder()).parts), None)


def own_tasks_folder() -> Path:
    """Return the folder of the task files written for a user's own datasets, whether or not it exists."""
    return home() / "tasks"


@contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield a file that takes the place of ``target`` when the block ends, and goes when it fails.

    It lies in the same folder, which is created; several processes and threads may write the same target. A device or
    a pipe such as ``/dev/null`` is written itself: a user who may do so would replace it for the whole machine.
    """
    if target.exists() and not target.is_file():
        yield target
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        yield partial
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
