"""Extractors as functions of a reply and the options alone, tables of replies, and recorded cases."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, extractor_of
from medtasks.extract.labeler import chosen_findings, label_texts
from medtasks.metrics.chest_findings import Finding


def reading(rule: str) -> Callable[..., Answer]:
    extract = extractor_of(rule).extract

    def read(reply: str | None, options: Sequence[str] = ()) -> Answer:
        return extract(reply, Sample({"options": options}))

    return read


def findings_of(texts: Sequence[str], names: Sequence[str]) -> list[tuple[Finding, ...]]:
    """Let the labeler read texts, all in one call; return their findings, shape (texts, names)."""
    return [chosen_findings(labels, names) for labels in label_texts(texts)]


def outcome(answer: Answer) -> Any:
    return str(answer.reason) if answer.value is None else answer.value


def rows(expected: Mapping[Any, Sequence[Any]]) -> list[tuple[Any, Any]]:
    """Return a table of replies by what they come to as pairs ``(reply, what it comes to)``."""
    return [(reply, key) for key, replies in expected.items() for reply in replies]


def recorded(golden: Path, name: str, least: int) -> list[dict[str, Any]]:
    """Return the cases of a golden file, which has at least so many."""
    cases = [
        json.loads(line)
        for line in (golden / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert len(cases) >= least
    return cases
