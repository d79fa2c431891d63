"""Pairs of made-up runs over a task of the user's own, with questions enough for statistics."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medtasks.families.family import Reply
from medtasks.tasks.task_files import including

QUESTIONS = 800
TASK_FILE = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
output_type: {kind}
process_results: !function medtasks.hooks.choice.process_results
metric_list: !function medtasks.hooks.choice.METRIC_LIST
metadata: {{version: 1}}
"""


@contextmanager
def own_tasks(folder: Path) -> Iterator[list[str]]:
    """Make the tasks ``letters`` and ``likely`` known; yield the right letters, A and B by turns."""
    folder.mkdir()
    right = ["AB"[number % 2] for number in range(QUESTIONS)]
    rows = (
        {"question": f"Is {n} odd?", "options": ["no", "yes"], "answer": key}
        for n, key in enumerate(right)
    )
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, kind in (("letters", "generate_until"), ("likely", "multiple_choice")):
        (folder / f"{name}.yaml").write_text(TASK_FILE.format(name=name, kind=kind))
    with including([folder]):
        yield right


def write_replies(
    folder: Path,
    task: str,
    replies: Sequence[str | tuple[float, ...] | None],
    asked: str = "Question",
    **recorded: Any,
) -> Path:
    """Write a samples file of texts or losses, None for a failed one, and the results file beside it."""
    folder.mkdir(exist_ok=True)
    lines = []
    for row, reply in enumerate(replies):
        recorded_reply = "[[medtasks:adapter_failed]] out of memory" if reply is None else reply
        resps: list[Any] = [recorded_reply]
        if isinstance(reply, tuple):
            resps = [[f"({loss!r}, {loss < 0.2})"] for loss in reply]
        lines.append(json.dumps({"doc_id": row, "resps": resps, "input": f"{asked} {row}?"}))
    (folder / f"20260102_030405_samples_{task}.jsonl").write_text("\n".join(lines) + "\n")
    results = {
        "results": {task: {"accuracy,none": 0.5}},
        "config": {"model": "m", "model_args": ""},
        **recorded,
    }
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))
    return folder


def texts(
    documents: Sequence[Mapping[str, Any]], reply: Callable[[Mapping[str, Any]], str | None]
) -> dict[str, Reply]:
    """Return a reply to each document."""
    return {document["doc_id"]: Reply(text=reply(document)) for document in documents}


def losses(right: Sequence[str], lead: float = 1.0) -> list[tuple[float, ...]]:
    """Return likelihoods that lead to the right letter."""
    return [(0.5, 0.5 + lead) if letter == "A" else (0.5 + lead, 0.5) for letter in right]
