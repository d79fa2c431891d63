"""Printing on one console, and writing of files.

Texts of replies and files may hold control sequences for the terminal: they are printed by :func:`say` alone.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from medtasks.data.dataset_lookup import COUNT_UNKNOWN, INCOMPLETE, SAMPLE, data_warning
from medtasks.errors import MedTasksError, plain
from medtasks.home import written_whole
from medtasks.report.tables import Table, terminal

_CONSEQUENCES = {
    SAMPLE: "synthetic images; these scores say nothing about a model.",
    INCOMPLETE: "parts of the published set were left out; do not compare with published scores.",
    COUNT_UNKNOWN: "no source states how many samples the whole set has, so that a part would pass as the whole.",
}
out = Console(soft_wrap=True, highlight=False)


def say(*texts: str) -> None:
    """Print texts literally, each in a line: no markup, and no control sequences for the terminal."""
    for text in texts:
        out.print(plain(text), markup=False)


def say_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts in columns as wide as their longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(map(str.ljust, row, widths)).rstrip())


def show(table: Table) -> None:
    """Print a table."""
    out.print(terminal(table))


def print_state_of_data(data: Mapping[str, Mapping[str, Any]]) -> None:
    """Name the datasets that are synthetic, incomplete or of unknown size.

    Args:
        data: Recorded facts of each dataset by its name, which may be empty if there is only one.
    """
    for title, consequence in _CONSEQUENCES.items():
        names = [name for name, facts in data.items() if data_warning(facts) == title]
        if any(names):
            title += f" ({', '.join(names)})"
        if names:
            out.print(f"{title}: {consequence}")


def write_text(path: Path | None, text: str) -> None:
    """Write a file completely or not at all, if a path is given.

    Raises:
        MedTasksError: It cannot be written.
    """
    if path is None:
        return
    content = text.encode("utf-8", "replace")  # half a surrogate pair has no code
    try:
        with written_whole(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path | None, content: Any) -> None:
    """Write a value as JSON, if a path is given.

    Raises:
        MedTasksError: It cannot be written.
    """
    write_text(path, json.dumps(content, indent=2) + "\n")
