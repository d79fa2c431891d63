"""Folders of medtasks, packaged facts, writing files completely or not at all, and values as JSON.

All rooms build on this module and on :mod:`medtasks.errors`, so it imports nothing that takes long to load.
"""

import contextlib
import math
import os
import shlex
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import resources
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import platformdirs

from medtasks.errors import MedTasksError

HOME_VARIABLE = "MEDTASKS_HOME"


def packaged_facts(package: str, name: str) -> dict[str, Any]:
    """Return the contents of ``<name>.toml`` in one of our packages."""
    file = resources.files(package).joinpath(f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def home() -> Path:
    """Return the data folder: ``$MEDTASKS_HOME``, or the platform's cache folder for this user."""
    folder = os.environ.get(HOME_VARIABLE)
    if folder:
        return Path(folder).expanduser().absolute()
    return platformdirs.user_cache_path("medtasks")


def datasets_folder() -> Path:
    """Return the folder of all prepared datasets, whether or not it exists."""
    return home() / "datasets"


def dataset_folder(name: str) -> Path:
    """Return the folder of one prepared dataset, whether or not it exists."""
    return datasets_folder() / name


def dataset_holding(path: Path) -> str | None:
    """Return the name of the prepared dataset that really holds a path, None if the path is in no dataset.

    A link in a dataset, such as that to a volume, belongs to it wherever it leads.
    """
    root = os.path.realpath(datasets_folder())
    folders = [(root, "")]  # without a name: that of the dataset follows in the path
    if os.path.isdir(root):
        links = [entry for entry in os.scandir(root) if entry.is_symlink()]
        folders += [(os.path.realpath(link), link.name) for link in links]
    link_itself = os.path.join(os.path.realpath(path.parent), path.name)
    for real in (os.path.realpath(path), link_itself):
        for folder, name in folders:
            if Path(real).is_relative_to(folder):
                return name or next(iter(Path(real).relative_to(folder).parts), None)
    return None


def file_state(path: Path) -> tuple[int, int, int, int]:
    """Return the numbers by which a changed file is noticed.

    Returns:
        Size in bytes, time of the last change of the contents, time of the last change of anything, which no call can
        set, and the inode. Times are in nanoseconds.
    """
    facts = path.stat()
    return facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino


def own_tasks_folder() -> Path:
    """Return the folder of task files for the user's own datasets, whether or not it exists."""
    return home() / "tasks"


def own_tasks_folders() -> list[Path]:
    """List :func:`own_tasks_folder`, if it exists.

    Trusted are this user, root, and the owner of the data folder, which a group may share.

    Raises:
        MedTasksError: Another user may have changed something in it, and task files can run code.
    """
    folder = own_tasks_folder()
    if not folder.is_dir():
        return []
    entered = folder.stat().st_mode & 0o011
    trusted = (os.geteuid(), 0, home().stat().st_uid)
    for path in (folder, *filter(Path.exists, folder.rglob("*"))):
        state = path.stat()
        # A group with the number of a user is that user's own.
        shared = 0o022 if state.st_gid != state.st_uid else 0o002
        if state.st_uid not in trusted or (entered and state.st_mode & shared):
            raise MedTasksError(
                f"{path} is another user's or writable by others, and task files can run code; delete what is not "
                f"yours in {folder}, then run: chmod -R go-w {shlex.quote(str(folder))}"
            )
    return [folder]


def open_to_others(folder: Path) -> bool:
    """Return whether the modes of files and folders let the group or others open a file in a folder."""
    if not folder.stat().st_mode & 0o011:
        return False
    files = filter(Path.is_file, folder.rglob("*"))
    return any(
        file.stat().st_mode & 0o044 and file.parent.stat().st_mode & 0o011 for file in files
    )


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and those above it.

    The data folder is for its owner alone, and folders in it are no more open than it is.

    Args:
        folder: The folder, which may exist.
        mode: Permissions of new folders.
    """
    root = home()
    if folder.is_relative_to(root):
        root.mkdir(0o700, parents=True, exist_ok=True)
        mode &= root.stat().st_mode
    for part in reversed((folder, *folder.parents)):
        if not part.exists():
            part.mkdir(mode, exist_ok=True)


@contextlib.contextmanager
def owner_only() -> Iterator[None]:
    """Make files and folders that are created within the block readable by their owner alone."""
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def append_whole(path: Path, lines: bytes, *, durable: bool = False) -> None:
    """Append to a file that only its owner may read, completely or not at all.

    Args:
        path: The file. Missing folders are made for the owner alone, too.
        lines: Whole lines with their ends.
        durable: Wait until the lines are on the disk.

    Raises:
        OSError: The lines cannot be written. The file is as it was.
    """
    for folder in (path.parent.parent, path.parent):
        make_folder(folder, 0o700)
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(file).st_size
        left = lines
        try:
            while left:
                left = left[os.write(file, left) :]
        except OSError:
            # Half a line would make a file unreadable; half a batch would be replayed and the other half computed.
            if len(left) < len(lines):
                os.ftruncate(file, size)
            raise
        if durable:
            os.fsync(file)
    finally:
        os.close(file)


@contextlib.contextmanager
def written_whole(target: Path) -> Iterator[Path]:
    """Yield the path of a file for the block to write, which replaces ``target`` when the block ends without an error.

    This temporary file is in the target's folder, which is created if it is missing. Several processes and threads may
    write the same target. A device or a pipe such as ``/dev/null`` is written directly: root would replace it for the
    whole machine.
    """
    if target.exists() and not target.is_file():
        yield target
        return
    make_folder(target.parent)
    partial = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}.part")
    try:
        yield partial
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def as_json(value: Any) -> Any:
    """Return any value as JSON types, with null for a number that is not finite.

    A dataclass names the fields that are left out in ``not_in_json``.

    Example:
        >>> as_json({1: (float("nan"), Path("runs"))})
        {'1': [None, 'runs']}
    """
    if is_dataclass(value) and not isinstance(value, type):
        left_out = getattr(value, "not_in_json", ())
        names = [field.name for field in fields(value) if field.name not in left_out]
        return {name: as_json(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    return _scalar_as_json(value)


def _scalar_as_json(value: Any) -> bool | int | float | str | None:
    """Return a single value as JSON types. A number that is not finite is None, and what JSON does not know is text."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Integral):  # numpy's numbers would not be JSON
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return str(value)  # a StrEnum becomes plain text
