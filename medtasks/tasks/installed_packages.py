"""Folders with task files in installed packages, which name them under the entry point ``medtasks.tasks``.

A package says in its ``pyproject.toml``::

    [project.entry-points."medtasks.tasks"]
    mybench = "my_bench.tasks"
"""

import importlib.util
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from medtasks.errors import MedTasksError

ENTRY_POINTS = "medtasks.tasks"


def task_packages() -> list[EntryPoint]:
    """Return the entry points of installed packages with tasks, sorted by name."""
    return sorted(entry_points(group=ENTRY_POINTS))


def folder_of_package(point: EntryPoint) -> Path:
    """Return the folder that an entry point names, found without importing a module of the package.

    Raises:
        MedTasksError: There is no such folder.
    """
    package, *below = point.value.split(".")
    # Where it was installed comes first: a folder of results in the working folder may have the package's name.
    roots = [] if point.dist is None else [str(point.dist.locate_file(package))]
    spec = importlib.util.find_spec(package)
    if spec is not None:
        roots += spec.submodule_search_locations or []
    for root in roots:
        folder = Path(root, *below)
        if folder.is_dir():
            return folder
    raise MedTasksError(
        f"there is no folder {'/'.join([package, *below])}; name a package with task files"
    )
