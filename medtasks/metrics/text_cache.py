"""What a model said of a text, on disk, so that no text goes through a model twice.

A cache is one SQLite file per model. Its keys are SHA-256 digests of the texts; its values may hold words of them, so
the file is readable by its owner only.
"""

import hashlib
import os
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from medtasks.data.home import home
from medtasks.errors import warn_once

Text = TypeVar("Text", bound=Hashable)
Value = TypeVar("Value")

_CHUNK = 500  # below SQLite's limit of variables in one statement
_PUT_AFTER = 256  # values


def default_cache_folder() -> Path:
    """Return ``metrics`` below ``$MEDTASKS_HOME``."""
    return home() / "metrics"


def text_key(*texts: str) -> bytes:
    """Return the address of a text, or of several in their order: 32 bytes.

    Example:
        >>> text_key("a", "b") == text_key("ab", "")
        False
    """
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


class TextCache:
    """Values by text for one model.

    Safe for several threads and processes. A cache that is damaged, locked or on a full disk costs only the time it
    would have saved: one warning, and the run goes on.

    Args:
        folder: Where cache files live, created at the first write; None: nothing is kept.
        model: Fingerprint of everything a value depends on besides the text: the bytes of the weights and the
            vocabulary, dtype, and the version of the code that computes it. Becomes the file's name.
    """

    def __init__(self, folder: Path | None, model: str) -> None:
        name = hashlib.sha256(model.encode()).hexdigest()[:32]
        self._path = None if folder is None else folder / f"{name}.sqlite"

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the values of those keys that have one."""
        if self._path is None or not self._path.is_file():
            return {}
        values: dict[bytes, bytes] = {}
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
                for start in range(0, len(keys), _CHUNK):
                    part = list(keys[start : start + _CHUNK])
                    marks = ",".join("?" * len(part))
                    values.update(connection.execute(f"SELECT key, value FROM texts WHERE key IN ({marks})", part))
        except sqlite3.Error as error:
            self._warn(error)
        return values

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep values."""
        if self._path is None or not values:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            with closing(sqlite3.connect(self._path, timeout=30)) as connection, connection:
                connection.execute("CREATE TABLE IF NOT EXISTS texts (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
                connection.executemany("INSERT OR REPLACE INTO texts VALUES (?, ?)", list(values.items()))
        except (sqlite3.Error, OSError) as error:
            self._warn(error)

    def complete(
        self,
        keys: Mapping[Text, bytes],
        compute: Callable[[list[Text]], Iterable[tuple[int, Value]]],
        *,
        encode: Callable[[Value], bytes],
        decode: Callable[[bytes], Value],
    ) -> dict[Text, Value]:
        """Return the value of every text: the one kept, or else a computed one, which is kept from then on.

        ``keys`` are the addresses of the texts. ``compute`` takes the texts that have no value, if there are any, and
        yields ``(position, value)``; what came before an error is kept, as ``encode`` writes and ``decode`` reads it.
        """
        kept = self.get(list(keys.values()))
        values = {text: decode(kept[key]) for text, key in keys.items() if key in kept}
        missing = [text for text in keys if text not in values]
        if not missing:
            return values
        fresh: dict[bytes, bytes] = {}
        try:
            for position, value in compute(missing):
                values[missing[position]] = value
                fresh[keys[missing[position]]] = encode(value)
                if len(fresh) >= _PUT_AFTER:
                    self.put(fresh)
                    fresh = {}
        finally:
            self.put(fresh)
        return values

    def _warn(self, error: Exception) -> None:
        warn_once(
            f"What a metric's model computes cannot be kept in {self._path} ({error}); the run goes on, a rerun "
            f"computes it again. Free some space, or remove that file if it is damaged."
        )
