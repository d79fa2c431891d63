"""A dataset's groups as a tree to choose questions from, on one page: GMAI-MMBench's lexical tree (supplement, C.2).

The page holds how many questions have which values of the columns that ``medtasks data select`` chooses by, and nothing
else of a question: no text, no image, no id.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from medtasks.audit.report.page import json_in_html, own_text, rendered, write_whole
from medtasks.data.selecting import resolved, selectable, values
from medtasks.errors import MedTasksError

COLUMNS = (
    *("department", "body_system", "categories", "source", "subject", "modality", "clinical_task", "medical_task"),
    *("location", "hallucination", "keyword", "question_type", "kind", "answer_type"),
    *("part", "granularity", "original_task", "language"),
)
"""Columns to choose by, from those that lead to a question to those that only distinguish questions."""
LEVELS = 4
"""The first so many columns that a dataset has are the levels of its tree; the others narrow it."""

Row = tuple[tuple[int, ...], ...]


def tree_data(
    dataset: str, documents: Sequence[Mapping[str, Any]], options: Mapping[str, str], *, selects: bool = True
) -> dict[str, Any]:
    """Return the page's data about a dataset, as JSON types.

    ``units`` are questions or pairs, which ``data select`` takes as a whole, counted by their rows: number of
    questions, then per row and column the positions of its values. For each column, ``says`` has the values that a
    value selects on the command line, if not just itself; ``options`` are the command's options by column. Without
    ``selects`` no task can be made of a part. MedTasksError: the dataset has no groups.
    """
    counts = selectable(documents)
    columns = [column for column in COLUMNS if column in counts]
    if not columns:
        raise MedTasksError(f"no column groups the questions of '{dataset}', so there is no tree and nothing to select")
    described, places = [], []
    for column in columns:
        ordered = sorted(counts[column], key=lambda value: (value.casefold(), value))
        positions = {value: position for position, value in enumerate(ordered)}
        says = _says(column, positions, counts[column], by_where=column not in options)
        described.append({"name": column, "option": options.get(column, ""), "values": ordered, "says": says})
        places.append(positions)
    single = count()
    rows: defaultdict[Any, list[Row]] = defaultdict(list)
    for document in documents:
        row = tuple(
            tuple(sorted({positions[value] for value in values(document, column)}))
            for column, positions in zip(columns, places, strict=True)
        )
        rows[document["pair_id"] if "pair_id" in document else next(single)].append(row)
    units: Counter[tuple[Row, ...]] = Counter()  # numbers of questions of all units with the same rows
    for unit in rows.values():
        units[tuple(sorted(set(unit)))] += len(unit)
    return {
        "dataset": dataset,
        "questions": len(documents),
        "selects": selects,
        "levels": min(LEVELS, len(columns)),
        "columns": described,
        "units": [[number, unit] for unit, number in units.items()],
    }


def write_tree_page(
    dataset: str,
    documents: Sequence[Mapping[str, Any]],
    options: Mapping[str, str],
    path: Path,
    *,
    selects: bool,
    sample: bool,
) -> None:
    """Write the page of :func:`tree_data`; MedTasksError: there are no groups, or it cannot be written."""
    from markupsafe import Markup

    data = tree_data(dataset, documents, options, selects=selects)
    names = [column["name"] for column in data["columns"]]
    page = rendered(
        "tree",
        dataset=dataset,
        questions=len(documents),
        levels=names[: data["levels"]],
        names=names,
        pairs="pair_id" in documents[0],
        sample=sample,
        style=Markup(own_text("page.css") + own_text("tree.css")),
        data=Markup(json_in_html(data)),
    )
    write_whole(path, page, "--out")


def _says(
    column: str, positions_of: Mapping[str, int], counts: Mapping[str, int], *, by_where: bool
) -> dict[str, list[int]]:
    """Return the positions that a value selects on the command line, where that is not just the value itself."""
    plain = Counter(value.strip().casefold() for value in positions_of)
    odd = [value for value in positions_of if value != value.strip() or plain[value.strip().casefold()] > 1]
    says: dict[str, list[int]] = {}
    for value in odd:
        taken: set[str] = set()
        with contextlib.suppress(MedTasksError):
            taken = resolved(column, [value], {column: counts})
        says[value] = sorted(positions_of[name] for name in taken)
    if by_where and "" in positions_of:
        says[""] = []
    return {str(positions_of[value]): places for value, places in says.items() if places != [positions_of[value]]}
