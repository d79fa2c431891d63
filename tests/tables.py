"""Tables in tests: every row is checked and reported by itself; and tables of replies on disk."""

import functools
import inspect
import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

_READINGS = Path(__file__).parent / "extract" / "readings"


def each_row(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every row, like ``pytest.mark.parametrize`` but as one test with a subtest per row.

    Every row has a folder, a monkeypatch and an empty log of its own; other fixtures are shared by all rows.
    A row that fails is reported with its traceback, and the others still run. A test is skipped if one of its rows is.
    With two tables, each row of one is tested with each row of the other.
    """
    keys = (
        [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    )
    table = [dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        function, inner_keys, inner_table = getattr(test, "table", (test, [], [{}]))
        all_rows = [{**row, **inner} for row, inner in itertools.product(table, inner_table)]

        @functools.wraps(test)
        def run(subtests: pytest.Subtests, **fixtures: Any) -> None:
            __tracebackhide__ = True
            skips = []
            for number, row in enumerate(all_rows):
                title = ", ".join(f"{name}={value!r:.100}" for name, value in row.items())
                with (
                    pytest.MonkeyPatch.context() as patch,
                    subtests.test(f"row {number}: {title}"),
                ):
                    own = _fixtures_of_row(fixtures, patch, number)
                    try:
                        function(**{**fixtures, **own, **row})
                    except pytest.skip.Exception as skipped:
                        skipped.msg = f"row {number}: {skipped.msg}"
                        skips.append(skipped)
            if skips:
                reasons = "; ".join(str(skipped.msg) for skipped in skips)
                raise pytest.skip.Exception(
                    f"{len(skips)} of {len(all_rows)} rows: {reasons}"
                ).with_traceback(skips[0].__traceback__)

        all_keys = [*keys, *inner_keys]
        run.table = (function, all_keys, all_rows)  # type: ignore[attr-defined]  # for another table above this one
        signature = inspect.signature(function)
        parameters = [
            value for name, value in signature.parameters.items() if name not in all_keys
        ]
        parameters.append(inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by pytest
        del run.__wrapped__  # pytest would read its signature
        return run

    return decorate


def _fixtures_of_row(
    fixtures: dict[str, Any], patch: pytest.MonkeyPatch, number: int
) -> dict[str, Any]:
    """Return the fixtures that a row does not share with the others, and empty the log."""
    own: dict[str, Any] = {}
    if "tmp_path" in fixtures:
        own["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
        own["tmp_path"].mkdir()
    if "monkeypatch" in fixtures:
        own["monkeypatch"] = patch
    for name in {"log", "caplog"} & fixtures.keys():
        fixtures[name].clear()
    return own


def tables_of(module: str) -> dict[str, list[Any]]:
    """Return the tables in the JSON file next to a test module, given its ``__file__``, by name."""
    tables: dict[str, list[Any]] = json.loads(
        Path(module).with_suffix(".json").read_text(encoding="utf-8")
    )
    return tables


def readings(name: str) -> tuple[dict[str, Any], list[tuple[Any, Any, str]]]:
    """Return a table of replies: contexts by name, and rows ``(context, expected, reply)``.

    A context is what an extractor needs besides the reply, such as options. The file's first line has them by name.
    """
    contexts, *lines = map(
        json.loads, (_READINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    )
    return contexts, [
        (contexts[context], expected, reply) for context, expected, reply in lines
    ]


def rows_in(name: str) -> list[Any]:
    """Return the rows of a table on disk, one JSON value a line."""
    return [
        json.loads(line)
        for line in (_READINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
