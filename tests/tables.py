"""Tests over tables: one case for a whole table, which lists every row that fails; and tables of replies on disk."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

_MOST_LISTED = 20
_LONGEST = 300  # characters of a row


def each(names: str | Sequence[str], rows: Iterable[Any], ids: object = None) -> Callable[[Callable[..., None]], Any]:
    """Run a test for each row of a table within one case; takes the arguments of ``pytest.mark.parametrize``.

    Fixtures are made once for all rows, so that it is for tests whose rows leave nothing behind.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [tuple(row) if len(columns) > 1 else (row,) for row in rows]
    assert table, "a table without rows tests nothing"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for row in table:
                try:
                    test(**fixtures, **dict(zip(columns, row, strict=True)))
                except Exception as error:  # noqa: BLE001 - every failing row is listed
                    failures.append(f"{str(row)[:_LONGEST]}: {type(error).__name__}: {error}")
            assert not failures, "\n".join([f"{len(failures)} of {len(table)} rows fail:", *failures[:_MOST_LISTED]])

        del run.__wrapped__  # type: ignore[attr-defined]  # or pytest asks for the columns as fixtures
        left = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate


def readings(name: str) -> tuple[dict[str, Any], list[tuple[Any, Any, str]]]:
    """Return a table of replies: contexts by name, and rows ``(context, expected, reply)``.

    A context is what an extractor needs besides the reply, such as options. The file's first line has them by name.
    """
    path = Path(__file__).parent / "extract" / "readings" / f"{name}.jsonl"
    contexts, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return contexts, [(contexts[context], expected, reply) for context, expected, reply in lines]


def rows_in(name: str) -> list[Any]:
    """Return the rows of a table on disk, one JSON value a line."""
    path = Path(__file__).parent / "extract" / "readings" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
