"""Folders of tasks (``--include_path``) that recorded runs name, so that nobody has to name them again."""

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
    """Return the folders from which recorded runs took tasks.

    A relative folder is looked for below the working folder, and then below each folder that the results lie in: they
    mostly lie in the project that they belong to.

    Args:
        runs: Folders of runs, samples files of the harness, or files of replies, of which nothing is known.

    Returns:
        Those that are here, and the others as they are recorded.
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
    results = run.rglob(f"*{_RESULTS}") if run.is_dir() else _beside(run)
    for path in sorted(results):
        yield from _listed(_option_in(path))
    for path in manifest_files(run) if run.is_dir() else ():
        try:
            yield from _listed(RunManifest.read(path).options.get(_OPTION))
        except MedTasksError:
            continue  # whoever reads the run says so


def _beside(samples: Path) -> list[Path]:
    stamp, named, _ = samples.name.partition(_SAMPLES)
    results = samples.with_name(f"{stamp}{_RESULTS}")
    return [results] if named and results.is_file() else []


def _option_in(results: Path) -> Any:
    try:
        return json.loads(results.read_text(encoding="utf-8"))["config"]["resolved_cli_args"][_OPTION]
    except (OSError, ValueError, KeyError, TypeError):  # damaged, or not made by the command line
        return None


def _listed(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else [value] if isinstance(value, str) else []


def _place(recorded: str, run: Path) -> Path | None:
    folder = Path(os.path.expanduser(recorded))
    above = (run.absolute(), *run.absolute().parents) if not folder.is_absolute() else ()
    return next((place for place in (folder, *(one / folder for one in above)) if place.is_dir()), None)
