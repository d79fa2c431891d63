"""Tables in tests: every row is checked, in one case that lists all failing rows; and tables of replies on disk."""

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

_READINGS = Path(__file__).parent / "extract" / "readings"


def each_row(names: str | Sequence[str], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every row, like ``pytest.mark.parametrize`` but as one case.

    Every row has a folder, a monkeypatch and an empty log of its own; other fixtures are shared by all rows.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    table = [tuple(row) if len(keys) > 1 else (row,) for row in rows]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for number, row in enumerate(table):
                with pytest.MonkeyPatch.context() as patch:
                    own: dict[str, Any] = {}
                    if "tmp_path" in fixtures:
                        own["tmp_path"] = fixtures["tmp_path"] / f"row{number}"
                        own["tmp_path"].mkdir()
                    if "monkeypatch" in fixtures:
                        own["monkeypatch"] = patch
                    for name in {"log", "caplog"} & fixtures.keys():
                        fixtures[name].clear()
                    try:
                        test(**{**fixtures, **own, **dict(zip(keys, row, strict=True))})
                    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # a row may fail in any way
                        failures.append(f"{row!r:.300}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(table)} rows fail:\n" + "\n".join(failures)

        parameters = [value for name, value in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]  # read by pytest
        del run.__wrapped__  # pytest would read its signature
        return run

    return decorate


def tables_of(module: str) -> dict[str, list[Any]]:
    """Return the tables in the JSON file next to a test module, given its ``__file__``, by name."""
    tables: dict[str, list[Any]] = json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8"))
    return tables


def readings(name: str) -> tuple[dict[str, Any], list[tuple[Any, Any, str]]]:
    """Return a table of replies: contexts by name, and rows ``(context, expected, reply)``.

    A context is what an extractor needs besides the reply, such as options. The file's first line has them by name.
    """
    contexts, *lines = map(json.loads, (_READINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    return contexts, [(contexts[context], expected, reply) for context, expected, reply in lines]


def rows_in(name: str) -> list[Any]:
    """Return the rows of a table on disk, one JSON value a line."""
    return [json.loads(line) for line in (_READINGS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
