"""Names and contents of the files of a run: results files, samples files next to them, and folders of repeats.

lmms-eval writes ``<stamp>_results.json`` and, for each task, ``<stamp>_samples_<task>.jsonl`` into a folder named after
the model. Only this module knows these names.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from medtasks.data.named_files import MOST_TEXT, named_file, read_named
from medtasks.data.safe_parsing import parse_json
from medtasks.home import written_whole
from medtasks.runs.harness_options import model_label
from medtasks.tasks.task_index import Config, mapping_in

# In names of files.
RESULTS = "_results.json"
SAMPLES = "_samples_"
# Key of a results file with the server's description of its model
SERVED_MODEL = "served_model"
NOTICES = "medtasks_notices"  # key of a results file with sentences for the manifest
REPEATS = "--repeats"  # option of medtasks run that repeats a run into folders repeat_<number>, counted from 1
_REPEAT = "repeat_"
# metrics times filters of a task, of which tables are made; ours have fewer than 2,000
_MOST_CELLS = 20_000

Note = Callable[[str], None]
"""Receives one sentence for each damaged file or line that is skipped."""


@dataclass(frozen=True)
class ResultsFile:
    """A results file of the harness."""

    path: Path
    content: Config

    @property
    def model(self) -> str:
        """Identity of its model, see :func:`~medtasks.runs.harness_options.model_label`."""
        config = mapping_in(self.content, "config")
        served = mapping_in(self.content, SERVED_MODEL)
        return model_label(config.get("model"), config.get("model_args"), served.get("id"))

    @property
    def arguments(self) -> Config:
        """Arguments of the harness's command line by name, empty if they are not recorded."""
        return mapping_in(self.content, "config", "resolved_cli_args")

    @property
    def created_at(self) -> datetime | None:
        """Time as recorded, None if it is not a time."""
        zone = self.arguments.get("timezone")
        try:  # the harness writes the time in the time zone of its option --timezone
            time = datetime.strptime(str(self.content.get("date")), "%Y%m%d_%H%M%S")
            return time.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
        except (
            ValueError,
            TypeError,
            OSError,
            KeyError,
        ):  # ZoneInfoNotFoundError is a KeyError
            return None

    @property
    def order(self) -> tuple[float, str]:
        """Sort key: time, then path."""
        made = self.created_at
        seconds = made.timestamp() if made else self.path.stat().st_mtime
        return seconds, str(self.path)

    def of_task(self, key: str, task: str) -> Any:
        """Return a task's entry in one part of the file, or None.

        Args:
            key: Name of the part, such as ``configs``.
            task: Name of the task.
        """
        return mapping_in(self.content, key).get(task)

    def config(self, task: str) -> Config:
        """Return a task's configuration as recorded, empty if it is not."""
        return mapping_in(self.content, "configs", task)

    def fingerprint(self, task: str) -> str | None:
        """Return the fingerprint of a task's data, or None for a task without our metadata."""
        data = mapping_in(self.config(task), "metadata", "data")
        fingerprint = data.get("fingerprint")
        return None if fingerprint is None else str(fingerprint)

    def rows(self) -> dict[str, Config]:
        """Return values by ``<metric>,<filter>`` of each task and group that has a score."""
        results = mapping_in(self.content, "results")
        rows = {name: mapping_in(results, name) for name in results}
        return {name: row for name, row in rows.items() if any("," in key for key in row)}

    def samples(self, task: str) -> Path:
        """Return the location of a task's samples file, whether or not it exists."""
        return samples_file(self.path, task)

    def write(self) -> None:
        """Write the file as the harness does. No reader sees half of it."""
        text = json.dumps(self.content, indent=2, ensure_ascii=False)
        with written_whole(self.path) as partial:
            partial.write_text(text, encoding="utf-8")


def samples_in_place(path: Path, note: Note = lambda sentence: None) -> bool:
    """Return whether there is a samples file.

    Args:
        path: The file.
        note: Gets a sentence for a link out of the file's folder, and for what is no regular file.
    """
    try:
        named_file(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        note(f"{path} cannot be read and is left out: {error.strerror or error}.")
        return False
    return True


def read_results(path: Path, note: Note) -> ResultsFile | None:
    """Read a results file.

    Args:
        path: The file.
        note: Gets a sentence if it is damaged or not written by the harness.

    Returns:
        The file, None with a note.
    """
    try:
        content: Any = parse_json(read_named(path, most=MOST_TEXT).decode())
        written = json.dumps(content, ensure_ascii=False)
        # without halves of surrogate pairs
        content = json.loads(written.encode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError) as error:
        reason = "it is cut off or damaged"
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
        note(f"{path} cannot be read and is left out: {reason}.")
        return None
    if not (isinstance(content, dict) and isinstance(content.get("results"), dict)):
        note(f"{path} is no results file of the harness and is left out.")
        return None
    for task in content["results"]:
        metrics = set()
        filters = set()
        for name in mapping_in(content["results"], task):
            metric, _, filter_name = name.rpartition(",")
            metrics.add(metric)
            filters.add(filter_name)
        if len(metrics) * len(filters) > _MOST_CELLS:
            note(
                f"{path} holds {len(metrics)} metrics under {len(filters)} filters for {task}, "
                "more than any task has, and is left out."
            )
            return None
    return ResultsFile(path, content)


def samples_file(results: Path, task: str) -> Path:
    """Return the location of a task's samples file.

    Args:
        results: Results file of the same process.
        task: Name of the task.

    Example:
        >>> samples_file(Path("20260801_120000_results.json"), "mediconfusion").name
        '20260801_120000_samples_mediconfusion.jsonl'
    """
    return results.with_name(f"{results.name.removesuffix(RESULTS)}{SAMPLES}{task}.jsonl")


def results_files(folder: Path) -> list[Path]:
    """List the results files in a folder and below it."""
    return sorted(folder.rglob(f"*{RESULTS}"))


def task_of(samples: Path) -> str:
    """Return the task in the name of a samples file, empty for any other file.

    Example:
        >>> task_of(Path("20260801_120000_samples_mediconfusion.jsonl"))
        'mediconfusion'
    """
    match = re.fullmatch(r".+_samples_(.+)\.jsonl", samples.name)
    return match[1] if match else ""


def stamp_of(samples: Path) -> str:
    """Return the beginning of a samples file's name, shared with the results file of the same process.

    Example:
        >>> stamp_of(Path("20260801_120000_samples_mediconfusion.jsonl"))
        '20260801_120000'
    """
    return samples.name.partition(SAMPLES)[0]


def results_path(samples: Path) -> Path:
    """Return the location of the results file of the process that wrote a samples file.

    Example:
        >>> results_path(Path("20260801_120000_samples_mediconfusion.jsonl")).name
        '20260801_120000_results.json'
    """
    return samples.with_name(f"{stamp_of(samples)}{RESULTS}")


def results_next_to(samples: Path, note: Note) -> ResultsFile | None:
    """Read the results file of the process that wrote a samples file.

    Args:
        samples: Samples file.
        note: Gets a sentence if the results file is damaged.

    Returns:
        The file, None if it is missing or damaged.
    """
    path = results_path(samples)
    return read_results(path, note) if task_of(samples) and path.is_file() else None


def recorded_folders(runs: Iterable[Path]) -> list[str]:
    """Return the task folders that runs were started with.

    For messages only: results from others may name any folder, and task files can run code.

    Args:
        runs: Folders, or samples files.
    """
    recorded: dict[str, None] = {}
    for run in runs:
        paths = results_files(run) if run.is_dir() else [results_path(run)]
        for path in paths:
            results = read_results(path, lambda sentence: None)
            folders = results.arguments.get("include_path") if results else None
            if isinstance(folders, str):
                folders = [folders]
            with contextlib.suppress(TypeError):  # not of the command line
                recorded |= dict.fromkeys(map(str, folders or ()))
    return list(recorded)


def repeat_folder(output: Path, number: int) -> Path:
    """Return the folder of a repeat."""
    return output / f"{_REPEAT}{number}"


def repeat_folders(output: Path) -> list[Path]:
    """List the folders of all repeats in order."""
    folders = []
    for path in output.glob(f"{_REPEAT}*"):
        if path.name.removeprefix(_REPEAT).isdecimal() and path.is_dir():
            folders.append(path)
    return sorted(folders, key=repeat_number)


def repeat_number(folder: Path) -> int:
    """Return the number of a repeat.

    Example:
        >>> repeat_number(Path("out/repeat_3"))
        3
    """
    return int(folder.name.removeprefix(_REPEAT))
