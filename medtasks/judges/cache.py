"""Verdicts on disk, so that no judge call is paid for twice."""

import hashlib
import json
from pathlib import Path

from medtasks.home import home
from medtasks.net.disk_cache import SqliteCache

_CANNOT_KEEP = (
    "Judge verdicts cannot be kept in {path} ({error}); the run goes on, but a rerun will ask the judge again. Free "
    "some space, set MEDTASKS_HOME to another folder, or remove that file if it is damaged."
)


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


class VerdictCache(SqliteCache):
    """Judge replies by the address of their verdict. The prompt, which may be credentialed, is not stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "verdicts.sqlite", ("verdicts", "reply"), _CANNOT_KEEP)

    def reply(self, key: str) -> str | None:
        """Return the raw judge reply kept under ``key``, None if there is none."""
        kept = self.get([bytes.fromhex(key)])
        return next((reply.decode("utf-8", "surrogatepass") for reply in kept.values()), None)

    def keep(self, key: str, reply: str) -> None:
        """Keep a raw judge reply under ``key``."""
        self.put({bytes.fromhex(key): reply.encode("utf-8", "surrogatepass")})
