"""Pairs of made-up runs over a task of the user's own, with questions enough for statistics."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from medtasks.audit.comparing import TaskVerdict, compare_all
from medtasks.runs.run import Source
from medtasks.stats.equivalence import MARGIN
from medtasks.tasks.task_files import including

QUESTIONS = 800
TASKS = {"letters": "generate_until", "likely": "multiple_choice"}
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
Given = str | tuple[float, ...] | None


@contextmanager
def own_tasks(folder: Path) -> Iterator[list[str]]:
    """Make the tasks ``letters`` and ``likely`` known; yield the right letters, A and B by turns."""
    folder.mkdir()
    right = ["AB"[number % 2] for number in range(QUESTIONS)]
    rows = ({"question": f"Is {n} odd?", "options": ["no", "yes"], "answer": one} for n, one in enumerate(right))
    (folder / "questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, kind in TASKS.items():
        (folder / f"{name}.yaml").write_text(TASK_FILE.format(name=name, kind=kind))
    with including([folder]):
        yield right


def write_replies(folder: Path, task: str, replies: Sequence[Given], asked: str = "Question", **recorded: Any) -> Path:
    """Write a samples file of texts or losses, None for a failed one, and the results file beside it."""
    folder.mkdir(exist_ok=True)
    lines = []
    for row, reply in enumerate(replies):
        given = [[f"({loss!r}, {loss < 0.2})"] for loss in reply] if isinstance(reply, tuple) else [reply]
        failed = "[[medtasks:adapter_failed]] out of memory"
        resps = [failed] if reply is None else given
        lines.append(json.dumps({"doc_id": row, "resps": resps, "input": f"{asked} {row}?"}))
    (folder / f"20260102_030405_samples_{task}.jsonl").write_text("\n".join(lines) + "\n")
    results = {"results": {task: {"accuracy,none": 0.5}}, "config": {"model": "m", "model_args": ""}, **recorded}
    (folder / "20260102_030405_results.json").write_text(json.dumps(results))
    return folder


def compared(
    folder: Path, task: str, first: Sequence[Given], second: Sequence[Given], margin: float = MARGIN
) -> TaskVerdict:
    """Compare two runs, of one task each."""
    a = write_replies(folder / "a", task, first)
    b = write_replies(folder / "b", task, second)
    tasks, _ = compare_all({"A": Source(a), "B": Source(b)}, margin=margin)
    return TaskVerdict(tasks[task], margin)


def losses(right: Sequence[str], lead: float = 1.0) -> list[tuple[float, ...]]:
    """Return likelihoods that lead to the right letter."""
    return [(0.5, 0.5 + lead) if letter == "A" else (0.5 + lead, 0.5) for letter in right]


def shifted(values: Sequence[tuple[float, ...]], by: Mapping[int, float]) -> list[tuple[float, ...]]:
    """Return the same with the first option of some samples shifted."""
    return [(one[0] + by.get(row, 0.0), *one[1:]) for row, one in enumerate(values)]
