"""Tables of examples: one test for a whole table, which lists every row that fails."""

import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest


def rows(names: str, table: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every row of a table, as one case.

    Rows share the fixtures of the test, which must not depend on an earlier row. Tables may be stacked.

    Args:
        names: Arguments of the test that a row has values for, with commas.
        table: Tuples of values, or values of a single argument.
    """
    keys, values = [name.strip() for name in names.split(",")], list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def run(**fixtures: Any) -> None:
            failures = []
            for row in values:
                try:
                    test(**dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever a row raises is listed
                    failures.append(f"{row!r:.200}: {type(error).__name__} {error!s:.500}")
            assert not failures, f"{len(failures)} of {len(values)} rows:\n" + "\n".join(failures)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
        run.pytestmark = getattr(test, "pytestmark", [])  # type: ignore[attr-defined]
        return run

    return decorate


def tables_of(module: str) -> dict[str, list[Any]]:
    """Return the tables of examples in the JSON file next to a test module, given its ``__file__``."""
    tables: dict[str, list[Any]] = json.loads(Path(module).with_suffix(".json").read_text(encoding="utf-8"))
    return tables
