"""What a model said of a text, on disk, so that no text goes through a model twice.

A cache is one SQLite file per model. Its keys are SHA-256 digests of the texts; its values may hold words of them, so
the file is readable by its owner only.
"""

import hashlib
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from medtasks.home import home
from medtasks.net.disk_cache import SqliteCache

Text = TypeVar("Text", bound=Hashable)
Value = TypeVar("Value")

_CANNOT_KEEP = (
    "What a metric's model computes cannot be kept in {path} ({error}); the run goes on, a rerun computes it again. "
    "Free some space, or remove that file if it is damaged."
)
_PUT_AFTER = 256  # values


def default_cache_folder() -> Path:
    """Return ``metrics`` below ``$MEDTASKS_HOME``."""
    return home() / "metrics"


def text_key(*texts: str) -> bytes:
    """Return the address of a text, or of several in their order: 32 bytes."""
    digest = hashlib.sha256()
    for text in texts:
        encoded = text.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big") + encoded)
    return digest.digest()


class TextCache(SqliteCache):
    """Values by text for one model, in a file of a folder that is created at the first write; None: nothing is kept.

    ``model`` is a fingerprint of everything a value depends on besides the text: the bytes of the weights and the
    vocabulary, dtype, and the version of the code that computes it. It becomes the file's name.
    """

    def __init__(self, folder: Path | None, model: str) -> None:
        name = hashlib.sha256(model.encode()).hexdigest()[:32]
        super().__init__(None if folder is None else folder / f"{name}.sqlite", ("texts", "value"), _CANNOT_KEEP)

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
