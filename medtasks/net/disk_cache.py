"""On-disk cache: values by key in one SQLite file, readable only by its owner."""

import os
import sqlite3
from collections.abc import Collection, Mapping
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

from medtasks.errors import warn_once
from medtasks.home import make_folder

_KEYS_AT_ONCE = 500  # below SQLite's limit of variables in one statement


class SqliteCache:
    """A cache for several threads and processes.

    A failure costs one warning and the time that the cache would have saved.

    Args:
        path: The file, which is created at the first write; without one nothing is kept.
        table: Name of the table, and of the column of the values.
        warning: Text with the fields ``{path}`` and ``{error}``.
        disposable: Whether a damaged file is replaced.
    """

    def __init__(
        self,
        path: Path | None,
        table: tuple[str, str],
        warning: str,
        *,
        disposable: bool = False,
    ) -> None:
        self.path = path
        self._table, self._column = table
        self._warning = warning
        self._disposable = disposable

    def get(self, keys: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Return the values of the keys that have one."""
        values: dict[bytes, bytes] = {}
        if self.path is None or not self.path.is_file():
            return values
        try:
            with closing(sqlite3.connect(self.path, timeout=30)) as connection:
                remaining = iter(keys)
                while part := list(islice(remaining, _KEYS_AT_ONCE)):
                    marks = ",".join("?" * len(part))
                    query = f"SELECT * FROM {self._table} WHERE key IN ({marks})"
                    values.update(connection.execute(query, part))
        except sqlite3.Error as error:
            # An OperationalError means that the file is locked or cannot be opened, others that it is damaged.
            if not isinstance(error, sqlite3.OperationalError) and self._disposable:
                with suppress(OSError):
                    self.path.unlink(missing_ok=True)
                    return values
            if "no such table" not in str(error):
                self.on_failure(error)
        return values

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep values."""
        if self.path is None or not values:
            return
        try:
            make_folder(self.path.parent)
            if not self.path.exists():
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
                columns = f"(key BLOB PRIMARY KEY, {self._column} BLOB)"
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {self._table} {columns} WITHOUT ROWID"
                )
                connection.executemany(
                    f"INSERT OR REPLACE INTO {self._table} VALUES (?, ?)", values.items()
                )
        except (sqlite3.Error, OSError) as error:
            self.on_failure(error)

    def on_failure(self, error: Exception) -> None:
        """Warn that values are not kept. A cache whose values must be kept raises instead."""
        warn_once(self._warning.format(path=self.path, error=error))
