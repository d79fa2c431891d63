"""Folders of tasks (``--include_path``) that recorded runs name, so that nobody has to name them again."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from medtasks.data.home import HOME_VARIABLE, home
from medtasks.errors import MedTasksError
from medtasks.harness.manifest import RunManifest, manifest_files

_RESULTS = "_results.json"
_SAMPLES = "_samples_"
_OPTION = "include_path"


def recorded_folders(runs: Iterable[Path]) -> tuple[list[Path], list[str]]:
    """Return the folders from which recorded runs took tasks: those that are here, and the others as they are recorded.

    A relative folder is looked for below the working folder, and then below each folder that the results lie in: they
    mostly lie in the project that they belong to. A run is a folder, a samples file of the harness, or a file of
    replies, of which nothing is known.
    """
    found: dict[Path, None] = {}
    lost: dict[str, None] = {}
    for run in runs:
        for recorded in _recorded(run):
            folder = _place(recorded.replace(f"${HOME_VARIABLE}", str(home())), run)
            if folder is None:
                lost[recorded] = None
            else:
                found[folder] = None
    return list(found), list(lost)


def _recorded(run: Path) -> Iterator[str]:
    stamp, samples, _ = run.name.partition(_SAMPLES)
    beside = run.with_name(f"{stamp}{_RESULTS}")
    results = run.rglob(f"*{_RESULTS}") if run.is_dir() else [beside] if samples and beside.is_file() else []
    for path in sorted(results):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged, or not of the command line
            yield from _listed(json.loads(path.read_text(encoding="utf-8"))["config"]["resolved_cli_args"][_OPTION])
    for path in manifest_files(run) if run.is_dir() else ():
        with contextlib.suppress(MedTasksError):  # whoever reads the run says so
            yield from _listed(RunManifest.read(path).options.get(_OPTION))


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _place(recorded: str, run: Path) -> Path | None:
    folder = Path(os.path.expanduser(recorded))
    above = (run.absolute(), *run.absolute().parents) if not folder.is_absolute() else ()
    return next((place for place in (folder, *(one / folder for one in above)) if place.is_dir()), None)
