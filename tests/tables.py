"""Tables in tests: every row is checked, in one case that lists all failing rows."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each_row(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test on every row, like ``pytest.mark.parametrize`` but as one case.

    Every row has a folder and a monkeypatch of its own; other fixtures are shared by all rows.
    """
    keys = [name.strip() for name in names.split(",")]
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
