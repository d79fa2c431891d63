"""Verdicts on disk, so that no judge call is paid for twice."""

import hashlib
import json
from pathlib import Path

from medtasks.data.home import home, written_whole
from medtasks.errors import warn_once


def default_cache_folder() -> Path:
    """Return ``judge`` below ``$MEDTASKS_HOME``."""
    return home() / "judge"


def verdict_key(base_url: str, model: str, temperature: float, system: str, user: str, prompt_version: int) -> str:
    """Return the address of a verdict: 64 hexadecimal digits that change with every argument.

    Another endpoint may serve another model under the same name, so that its address counts, too.

    Example:
        >>> verdict_key(base_url="http://h/v1", model="m", temperature=0.0, system="s", user="u", prompt_version=1)[:8]
        'f5bbeb58'
    """
    content = json.dumps([base_url.rstrip("/"), model, float(temperature), system, user, prompt_version])
    return hashlib.sha256(content.encode("ascii")).hexdigest()


class VerdictCache:
    """A content-addressed folder of judge replies, one small JSON file each.

    Safe for several threads and processes: a file appears complete or not at all, and two writers of one key write the
    same thing. The prompt, which may be credentialed, is not stored, and files are readable by their owner only.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, key: str) -> Path:
        """Return the file of a key: ``ab/cd/abcd....json`` below the folder."""
        return self.folder / key[:2] / key[2:4] / f"{key}.json"

    def get(self, key: str) -> str | None:
        """Return the raw judge reply stored under ``key``; a file that is missing or damaged is a miss."""
        try:
            record = json.loads(self.path_of(key).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(record, dict) or record.get("key") != key:
            return None
        text = record.get("text")
        return text if isinstance(text, str) else None

    def put(self, key: str, text: str, model: str) -> None:
        """Store the raw judge reply ``text`` under ``key``; ``model`` is recorded for the reader of the file.

        A disk that is full or read-only costs the stored copy, not the verdict: one warning, and the run goes on.
        """
        record = json.dumps({"key": key, "model": model, "text": text})
        try:
            with written_whole(self.path_of(key)) as partial:
                partial.touch(0o600)
                partial.write_text(record, encoding="ascii")
        except OSError as error:
            warn_once(
                f"Judge verdicts cannot be kept under {self.folder} ({error.strerror or type(error).__name__}); the "
                f"run goes on, but a rerun will ask the judge again. Free some space or set MEDTASKS_HOME to another "
                f"folder."
            )
