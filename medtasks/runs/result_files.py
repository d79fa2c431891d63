"""Names and contents of the files of a run: results files, samples files next to them, and folders of repeats.

lmms-eval writes ``<stamp>_results.json`` and, for each task, ``<stamp>_samples_<task>.jsonl`` into a folder named after
the model. Only this module knows these names.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from medtasks.data.named_files import MOST_TEXT, named_file, read_named
from medtasks.data.safe_parsing import parse_json
from medtasks.home import written_whole
from medtasks.runs.harness_options import model_label
from medtasks.tasks.task_index import mapping_in

RESULTS, SAMPLES = "_results.json", "_samples_"  # in names of files
SERVED_MODEL = "served_model"  # key of a results file with the server's description of its model
NOTICES = "medtasks_notices"  # key of a results file with sentences for the manifest
REPEATS = "--repeats"  # option of medtasks run that repeats a run into folders repeat_<number>, counted from 1
_REPEAT = "repeat_"
_MOST_CELLS = (
    20_000  # metrics times filters of a task, of which tables are made; ours have fewer than 2,000
)

Note = Callable[[str], None]
"""Receives one sentence for each damaged file or line that is skipped."""


@dataclass(frozen=True)
class ResultsFile:
    """A results file of the harness."""

    path: Path
    content: Mapping[str, Any]

    @property
    def model(self) -> str:
        """Identity of its model, see :func:`~medtasks.runs.harness_options.model_label`."""
        config, served = mapping_in(self.content, "config"), mapping_in(self.content, SERVED_MODEL)
        return model_label(config.get("model"), config.get("model_args"), served.get("id"))

    @property
    def made(self) -> datetime | None:
        """Time as recorded; None if it is not a time."""
        zone = mapping_in(mapping_in(self.content, "config"), "resolved_cli_args").get("timezone")
        try:  # the harness writes the time in the time zone of its option --timezone
            time = datetime.strptime(str(self.content.get("date")), "%Y%m%d_%H%M%S")
            return time.replace(tzinfo=ZoneInfo(zone) if zone else UTC)
        except (ValueError, TypeError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            return None

    @property
    def order(self) -> tuple[float, str]:
        """Sort key: time, then path."""
        made = self.made
        return (made.timestamp() if made else self.path.stat().st_mtime, str(self.path))

    def of_task(self, key: str, task: str) -> Any:
        """Return a task's entry in one part of the file, such as ``configs``, or None."""
        return mapping_in(self.content, key).get(task)

    def config(self, task: str) -> Mapping[str, Any]:
        """Return a task's configuration as recorded; empty if it is not."""
        return mapping_in(mapping_in(self.content, "configs"), task)

    def fingerprint(self, task: str) -> str | None:
        """Return the fingerprint of a task's data; None for a task without our metadata."""
        data = mapping_in(mapping_in(self.config(task), "metadata"), "data")
        return None if data.get("fingerprint") is None else str(data["fingerprint"])

    def rows(self) -> dict[str, Mapping[str, Any]]:
        """Return values by ``<metric>,<filter>`` of each task and group that has a score."""
        results = mapping_in(self.content, "results")
        rows = {name: mapping_in(results, name) for name in results}
        return {name: row for name, row in rows.items() if any("," in key for key in row)}

    def samples(self, task: str) -> Path:
        """Return the location of a task's samples file, whether or not it exists."""
        return samples_file(self.path, task)

    def write(self) -> None:
        """Write the file as the harness does; no reader sees half of it."""
        with written_whole(self.path) as partial:
            partial.write_text(
                json.dumps(self.content, indent=2, ensure_ascii=False), encoding="utf-8"
            )


def samples_in_place(path: Path, note: Note = lambda sentence: None) -> bool:
    """Return whether there is a samples file; a note names a link out of its folder, and what is no regular file."""
    try:
        named_file(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        note(f"{path} cannot be read and is left out: {error.strerror or error}.")
        return False
    return True


def read_results(path: Path, note: Note) -> ResultsFile | None:
    """Read a results file; None with a note if it is damaged or not written by the harness."""
    try:
        written = json.dumps(
            parse_json(read_named(path, most=MOST_TEXT).decode()), ensure_ascii=False
        )
        content: Any = json.loads(
            written.encode("utf-8", "replace")
        )  # without halves of surrogate pairs
    except (OSError, ValueError, RecursionError) as error:
        system = (error.strerror or type(error).__name__) if isinstance(error, OSError) else ""
        note(f"{path} cannot be read and is left out: {system or 'it is cut off or damaged'}.")
        return None
    if not (isinstance(content, dict) and isinstance(content.get("results"), dict)):
        note(f"{path} is no results file of the harness and is left out.")
        return None
    for task in content["results"]:
        pairs = [name.rpartition(",") for name in mapping_in(content["results"], task)]
        metrics = {metric for metric, _, _ in pairs}
        filters = {filter_name for _, _, filter_name in pairs}
        if len(metrics) * len(filters) > _MOST_CELLS:
            note(
                f"{path} holds {len(metrics)} metrics under {len(filters)} filters for {task}, "
                "more than any task has, and is left out."
            )
            return None
    return ResultsFile(path, content)


def samples_file(results: Path, task: str) -> Path:
    """Return the location of a task's samples file, given the results file of the same process."""
    return results.with_name(f"{results.name.removesuffix(RESULTS)}{SAMPLES}{task}.jsonl")


def results_files(folder: Path) -> list[Path]:
    """List the results files in a folder and below it."""
    return sorted(folder.rglob(f"*{RESULTS}"))


def task_of(samples: Path) -> str:
    """Return the task in the name of a samples file; empty for any other file."""
    match = re.fullmatch(r".+_samples_(.+)\.jsonl", samples.name)
    return match[1] if match else ""


def stamp_of(samples: Path) -> str:
    """Return the beginning of a samples file's name, shared with the results file of the same process."""
    return samples.name.partition(SAMPLES)[0]


def results_next_to(samples: Path, note: Note) -> ResultsFile | None:
    """Read the results file of the process that wrote a samples file; None if it is missing or damaged."""
    path = samples.with_name(f"{stamp_of(samples)}{RESULTS}")
    return read_results(path, note) if task_of(samples) and path.is_file() else None


def recorded_folders(runs: Iterable[Path]) -> list[str]:
    """Return the task folders that runs (folders, or samples files) were started with.

    For messages only: results from others may name any folder, and task files can run code.
    """
    recorded: dict[str, None] = {}
    for run in runs:
        for path in (
            results_files(run) if run.is_dir() else [run.with_name(f"{stamp_of(run)}{RESULTS}")]
        ):
            results = read_results(path, lambda sentence: None)
            options = mapping_in(
                mapping_in(results.content if results else {}, "config"), "resolved_cli_args"
            )
            with contextlib.suppress(KeyError, TypeError):  # not of the command line
                folders = options["include_path"]
                recorded |= dict.fromkeys(
                    [folders] if isinstance(folders, str) else map(str, folders or ())
                )
    return list(recorded)


def repeat_folder(output: Path, number: int) -> Path:
    """Return the folder of a repeat."""
    return output / f"{_REPEAT}{number}"


def repeat_folders(output: Path) -> list[Path]:
    """List the folders of all repeats in order."""
    folders = [
        path for path in output.glob(f"{_REPEAT}*") if path.name.removeprefix(_REPEAT).isdecimal()
    ]
    return sorted((path for path in folders if path.is_dir()), key=repeat_number)


def repeat_number(folder: Path) -> int:
    """Return the number of a repeat."""
    return int(folder.name.removeprefix(_REPEAT))
