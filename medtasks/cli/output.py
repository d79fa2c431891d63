"""Printing on one console, and writing of files."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from medtasks.audit.tables import Table, plain, terminal
from medtasks.errors import MedTasksError

out = Console(soft_wrap=True, highlight=False)


def say(text: str) -> None:
    """Print a text literally: no markup, and no control sequences for the terminal."""
    out.print(plain(text), markup=False)


def say_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of texts in columns as wide as their longest text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def show(table: Table) -> None:
    """Print a table."""
    out.print(terminal(table))


def print_state_of_data(data: Mapping[str, Mapping[str, Any]]) -> None:
    """Name the datasets that are synthetic or incomplete; the name of a single one may be empty."""
    synthetic = [name for name, facts in data.items() if facts["sample"]]
    incomplete = [name for name, facts in data.items() if not (facts["sample"] or facts["complete"])]
    drawn = "synthetic images; these scores say nothing about a model."
    cut = "parts of the published set were left out; do not compare with published scores."
    for title, names, consequence in (("SAMPLE DATA", synthetic, drawn), ("INCOMPLETE DATA", incomplete, cut)):
        if names:
            of_data = f" ({', '.join(names)})" if any(names) else ""
            out.print(f"{title}{of_data}: {consequence}")


def write_text(path: Path | None, text: str) -> None:
    """Write a file, if a path is given. Raises MedTasksError if it cannot be written."""
    if path is None:
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def write_json(path: Path | None, content: Any) -> None:
    """Write a value as JSON, if a path is given. Raises MedTasksError if it cannot be written."""
    write_text(path, json.dumps(content, indent=2) + "\n")
