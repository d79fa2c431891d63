"""Replies that a run did not ask for itself, as its samples files record them.

Gates refuse copies of an earlier run: they say nothing about the model or server as it is now.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from medtasks.runs.replies import read_lines

ORIGIN = "reply_of"  # key of a samples file's line whose reply was not asked for in this run
# Values of that key.
COPIED = "an earlier run"
KEPT = "the run that this one completes"
ASK_ANEW = "to ask anew, run with journal=false in --model_args (a model of the harness: no --use_cache)"
SampleOrigins = dict[tuple[str, int], str]
"""Origins by task and row; empty for a reply that was asked for."""
_BY_WEIGHT = ("", KEPT, COPIED)


def combined_origin(*origins: str) -> str:
    """Return the origin of a sample by those of its requests: one copy makes it a copy.

    Example:
        >>> combined_origin("", COPIED, KEPT)
        'an earlier run'
    """
    return max(origins, key=_BY_WEIGHT.index)


@dataclass(frozen=True)
class ReplyOrigins:
    """Numbers of samples by the origin of their replies."""

    samples: int
    copied: int  # from the journal or a response cache, asked for by an earlier run
    kept: int  # with --only-failed, from the run that this one completes

    @classmethod
    def of(cls, origins: Iterable[str]) -> "ReplyOrigins":
        """Count origins, one per sample."""
        counts = Counter(origins)
        return cls(counts.total(), counts[COPIED], counts[KEPT])

    def __str__(self) -> str:
        """Return the numbers in words, empty if all replies were asked for."""
        parts = []
        if self.copied:
            parts.append(f"{self.copied} of {self.samples} replies are copies of {COPIED}")
        if self.kept:
            parts.append(f"{self.kept} of {self.samples} replies are those of {KEPT}")
        return ", and ".join(parts)


def read_origins(*paths: Path) -> ReplyOrigins:
    """Count the origins in samples files, and in those of folders. Damaged lines are left out."""
    origins: dict[tuple[Path, str], str] = {}
    for path in paths:
        for file in path.glob("*.jsonl") if path.is_dir() else [path]:
            for line in read_lines(file, note=lambda _: None):
                sample = (file, str(line.record.get("doc_id")))
                origins[sample] = str(line.record.get(ORIGIN, ""))
    return ReplyOrigins.of(origins.values())
