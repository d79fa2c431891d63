"""Tasks that are not ours, read as data without the harness: the user's own folders and the harness's own."""

import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from medtasks.task_files import DottedName


@dataclass(frozen=True)
class TaskIndex:
    """What task files in folders name.

    Attributes:
        configs: What a task's file and the files it includes say, by task name.
        members: Tasks and groups in a group or under a tag, by its name.
    """

    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def tasks_of(self, name: str) -> list[str]:
        """Return the tasks behind a task, group, tag or pattern; none for a name that is not in the folders."""
        matching = [known for known in (*self.configs, *self.members) if fnmatchcase(known, name)]
        return list(dict.fromkeys(task for known in matching for task in self._opened(known, ())))

    def _opened(self, name: str, above: tuple[str, ...]) -> Iterator[str]:
        if name in self.configs:
            yield name
        elif name not in above:
            for member in self.members.get(name, ()):
                yield from self._opened(member, (*above, name)) if member in self else [member]

    def __contains__(self, name: str) -> bool:
        return name in self.configs or name in self.members


def harness_folder() -> Path | None:
    """Return the folder of the harness's own tasks, found without importing it; None where it is not installed."""
    found = importlib.util.find_spec("lmms_eval")
    roots = [] if found is None else [Path(root) / "tasks" for root in found.submodule_search_locations or ()]
    return next((root for root in roots if root.is_dir()), None)


def index_tasks(folders: Iterable[Path], naming: Iterable[str] = ()) -> TaskIndex:
    """Read the task files in folders and below, as the harness does; of two with one name the first folder's counts.

    Args:
        folders: Folders, or task files.
        naming: Read only files whose text holds one of these; all where there is none.
    """
    configs: dict[str, Mapping[str, Any]] = {}
    members: dict[str, list[str]] = {}
    wanted = [name.encode() for name in naming]
    for folder in folders:
        for path in sorted(folder.rglob("*.yaml")) if folder.is_dir() else [folder]:
            config = _read(path, wanted)
            task = config.get("task")
            if isinstance(task, list) and "class" not in config:
                members.setdefault(str(config.get("group")), _member_names(task))
            elif isinstance(task, str) and task not in configs:
                configs[task] = config
                for name in (*_names(config.get("tag")), *_names(config.get("group"))):
                    members.setdefault(name, []).append(task)
    return TaskIndex(configs, {name: tuple(found) for name, found in members.items()})


def is_cut_at_blank_lines(config: Mapping[str, Any], model: str) -> bool:
    """Return whether the harness ends this task's replies at the first blank line, because its file sets no ``until``.

    Args:
        config: What the task's files say.
        model: Name of the model, for settings that a task has for it alone.
    """
    if "class" in config or "generate_until" not in str(config.get("output_type", "generate_until")):
        return False
    if config.get("fewshot_delimiter", "\n\n") != "\n\n":
        return False
    by_model = _mapping(config.get("model_specific_generation_kwargs"))
    own = by_model.get(model) if model in by_model else by_model.get("default")
    return "until" not in {**_mapping(config.get("generation_kwargs")), **_mapping(own)}


class _Loader(yaml.SafeLoader):
    """Leaves ``!function a.b`` unresolved; of a tag it does not know only the place is kept."""


_Loader.add_constructor("!function", lambda _, node: DottedName(node.value))
_Loader.add_multi_constructor("", lambda _, __, ___: None)


def _read(path: Path, wanted: Iterable[bytes] = ()) -> dict[str, Any]:
    """Return what a file and the files it includes say; nothing where it cannot be read, which the harness reports."""
    try:
        content = path.read_bytes()
        if wanted and not any(name in content for name in wanted):
            return {}
        config = yaml.load(content, Loader=_Loader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    if not isinstance(config, dict):
        return {}
    merged: dict[str, Any] = {}
    for name in reversed(_names(config.pop("include", None))):  # of several, the first one wins
        merged |= _read(Path(name) if Path(name).is_file() else path.parent / name)
    return merged | config


def _names(value: object) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else [] if value is None else [str(value)]


def _member_names(items: Iterable[object]) -> list[str]:
    return [str(item.get("task", item.get("group"))) if isinstance(item, dict) else str(item) for item in items]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
