"""Helpers of the audit's tests."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def every(names: str | tuple[str, ...], rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every row of a table, as one case that lists all failing rows; they share its fixtures."""
    columns = (names,) if isinstance(names, str) else names
    table = [row if len(columns) > 1 else (row,) for row in rows]

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failing = []
            for row in table:
                try:
                    test(**fixtures, **dict(zip(columns, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - every other row is tried
                    failing.append(f"{row}: {error!r}")
            if failing:
                pytest.fail("\n".join(failing), pytrace=False)

        others = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorated
