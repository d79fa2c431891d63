"""All settings of every task are those of ``task_settings.jsonl``: none changes what a published number means unseen.

Each line is a setting, its value, and the tasks that have it. After a change that is meant, raise the task's version if
a score moves, and write the table again with ``python tests/tasks/test_task_settings.py``.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from medtasks.tasks.task_files import members_of, task_config, task_files

TABLE = Path(__file__).with_name("task_settings.jsonl")


def settings() -> Iterator[tuple[str, str, Any]]:
    """Yield the settings of each task, group and tag as (setting, task, value), without the text for people."""
    tags = set()
    for name, task in task_files().items():
        config = dict(task_config(name))
        if task.kind == "group":
            yield "members", name, sorted(task.members)
        tag = config.get("tag", [])
        tags |= {tag} if isinstance(tag, str) else set(tag)
        metadata = config.pop("metadata", {})
        config |= {f"metadata {key}": value for key, value in metadata.items() if key != "description"}
        yield from ((key, name, value) for key, value in config.items() if str(value).rpartition(".")[2] != name)
    yield from (("members", tag, sorted(member.name for member in members_of(tag))) for tag in tags)


def table() -> str:
    """Return the table as text, one line per setting and value."""
    tasks: dict[tuple[str, str], list[str]] = {}
    for key, name, value in settings():
        tasks.setdefault((key, json.dumps(value, ensure_ascii=False, sort_keys=True)), []).append(name)
    rows = sorted((key, value, json.dumps(sorted(names))) for (key, value), names in tasks.items())
    return "".join(f'["{key}", {value}, {names}]\n' for key, value, names in rows)


def test_the_settings_of_every_task():
    recorded, now = TABLE.read_text(encoding="utf-8").splitlines(), table().splitlines()
    assert sorted({*now} - {*recorded}) == sorted({*recorded} - {*now}) == []


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
