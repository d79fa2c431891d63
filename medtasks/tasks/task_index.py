"""Task files as data, without the harness: ours, the user's and the harness's own, read by one rule.

What a file includes, which of two files with one name counts, and which paths are relative to the file itself is as in
the harness (``lmms_eval.utils.load_yaml_config`` and ``TaskManager`` of 0.7.3). Nothing that a file names is imported,
but settings of prompts by name are put in their place.
"""

import contextlib
import fnmatch
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import yaml

from medtasks.data.named_files import MOST_TEXT, read_file
from medtasks.data.safe_parsing import parse_yaml
from medtasks.errors import MedTasksError, UnusableFile, unknown_name

SETTINGS = "lmms_eval_specific_kwargs"
COLUMNS = "columns"
"""In the metadata of a task: which columns of its file have other names, see :mod:`medtasks.tasks.own_documents`."""
ROWS = "rows"
"""In the metadata of a task: which rows of its file it asks, by the values of columns."""
FAMILY_KEYS = ("family", "data", "image", "columns")
"""Keys of a user's short task file, see :func:`with_family`."""
_MAPPINGS = (
    SETTINGS,
    "dataset_kwargs",
    "generation_kwargs",
    "model_specific_generation_kwargs",
    "metadata",
)
Config = Mapping[str, Any]
"""Configuration of a task, as its file has it."""
Configs = Mapping[str, Config]  # configurations by task, or by another name
NewConfig = dict[str, Any]
"""Configuration, or a part of one, that belongs to the caller, who may change it."""
LOCAL_LOADERS = frozenset(
    {"csv", "tsv", "excel", "xlsx", "json", "jsonl", "parquet", "text", "pandas", "arrow"},
)


class DottedName(str):
    """Dotted name after ``!function`` in a task file: a module and a name in it.

    Attributes:
        folder: Folder of the file, in which the harness looks for the module first. None for our own files.

    Example:
        >>> DottedName("medtasks.hooks.images.images").is_ours
        True
    """

    folder: Path | None

    def __new__(cls, name: str, folder: Path | None = None) -> "DottedName":
        """Return the name with the folder of its file."""
        made = super().__new__(cls, name)
        made.folder = folder
        return made

    @property
    def is_ours(self) -> bool:
        """Whether the name is that of an object of this package."""
        return self.startswith("medtasks.") and self.own_file() is None

    def resolve(self) -> Any:
        """Import the object of this name, from the file next to the task's if there is one."""
        return getattr(self.module(), self.rpartition(".")[2])

    def module(self) -> ModuleType:
        """Import its module."""
        module = self.rpartition(".")[0]
        file = self.own_file()
        if file is None:
            return importlib.import_module(module)
        spec = importlib.util.spec_from_file_location(module, file)
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    def own_file(self) -> Path | None:
        """Return the module's file next to the task's, or None if it is not there, as for our own files."""
        if self.folder is None:
            return None
        file = self.folder / f"{self.rpartition('.')[0]}.py"
        return file if file.is_file() else None


def mapping_in(config: Config, *keys: str) -> Config:
    """Return the mapping under nested keys of a configuration, empty if a key is missing or holds something else.

    Example:
        >>> mapping_in({"metadata": {"version": 1}, "tag": "a"}, "tag")
        {}
    """
    for key in keys:
        value = config.get(key)
        config = value if isinstance(value, Mapping) else {}
    return config


def mappings_in(config: Config, key: str) -> list[Config]:
    """Return the mappings in the list under a key of a configuration, none if the key holds something else.

    Example:
        >>> mappings_in({"filter_list": [{"name": "robust"}, "none"]}, "filter_list")
        [{'name': 'robust'}]
    """
    value = config.get(key)
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]


def resolve_names(value: Any, resolve: Callable[[DottedName], Any] = DottedName.resolve) -> Any:
    """Return a configuration value with every dotted name in it replaced by what it names.

    Example:
        >>> resolve_names([DottedName("math.pi"), 1], lambda name: name.upper())
        ['MATH.PI', 1]
    """
    return _map_leaves(
        value, lambda leaf: resolve(leaf) if isinstance(leaf, DottedName) else leaf
    )


def _map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_map_leaves(item, change) for item in value]
    return change(value)


@dataclass(frozen=True)
class TaskIndex:
    """Tasks, groups and tags of the task files in folders.

    Attributes:
        configs: Configuration of each task, with the files it includes.
        groups: Configuration of each group, with the files it includes.
        paths: File of each task or group.
        members: Names of the members of each group or tag.
    """

    configs: Configs = field(default_factory=dict)
    groups: Configs = field(default_factory=dict)
    paths: Mapping[str, Path] = field(default_factory=dict)
    members: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def tasks_of(self, name: str) -> list[str]:
        """Return the tasks of a task, group, tag or pattern, none for a name that is not in the folders."""
        names = fnmatch.filter([*self.configs, *self.members], name)
        tasks: dict[str, None] = {}
        for opened in names:  # the list grows by the members of groups in it
            if opened in self.configs or opened not in self.members:
                tasks[opened] = None
                continue
            names += [member for member in self.members[opened] if member not in names]
        return list(tasks)

    def __contains__(self, name: str) -> bool:
        return name in self.configs or name in self.members


def tasks_folder() -> Path:
    """Return the folder with our task YAML."""
    import medtasks.tasks_yaml

    return Path(next(iter(medtasks.tasks_yaml.__path__)))


def harness_folder() -> Path | None:
    """Return the folder of the harness's own tasks, or None without the harness, which is not imported."""
    spec = importlib.util.find_spec("lmms_eval")
    if spec is None:
        return None
    for root in spec.submodule_search_locations or ():
        folder = Path(root) / "tasks"
        if folder.is_dir():
            return folder
    return None


def index_tasks(
    folders: Iterable[Path],
    naming: Iterable[str] = (),
    *,
    strict: bool = False,
) -> TaskIndex:
    """Read the task files in folders and below, or files. Of two tasks with one name the first folder's counts.

    Args:
        folders: Folders or files.
        naming: If there are names, only files whose text holds one of them are read.
        strict: Whether a file that cannot be read is an error. Else it is skipped, and the harness reports it.

    Raises:
        MedTasksError: With ``strict``, a file cannot be read.
    """
    configs: dict[str, Config] = {}
    groups: dict[str, Config] = {}
    paths: dict[str, Path] = {}
    members: dict[str, list[str]] = {}
    names = list(map(str.encode, naming))

    for path in _yaml_files(folders):
        config = _read_task(path, names, strict=strict)
        if config is None:
            continue
        task = config.get("task")
        if isinstance(task, list) and "class" not in config:
            name = str(config.get("group"))
            groups.setdefault(name, config)
            paths.setdefault(name, path)
            listed = []
            for entry in task:  # some are mappings
                if isinstance(entry, dict):
                    entry = entry.get("task", entry.get("group"))
                listed.append(str(entry))
            members.setdefault(name, listed)
        elif isinstance(task, str) and task not in configs:
            configs[task] = config
            paths.setdefault(task, path)
            for name in (*names_in(config.get("tag")), *names_in(config.get("group"))):
                members.setdefault(name, []).append(task)
    members_by_name = {name: tuple(tasks) for name, tasks in members.items()}
    return TaskIndex(configs, groups, paths, members_by_name)


def _yaml_files(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield the YAML files in folders and below in order, and what is no folder itself."""
    for folder in folders:
        if not folder.is_dir():
            yield folder
        for root, below, names in os.walk(folder):
            below[:] = sorted({*below} - {"__pycache__", ".ipynb_checkpoints"})
            yield from (Path(root, name) for name in sorted(names) if name.endswith(".yaml"))


def _read_task(path: Path, names: Sequence[bytes], *, strict: bool) -> Config | None:
    """Return the content of a task file, or None if its text holds none of the names, or if it cannot be read.

    Args:
        path: The file.
        names: Names in UTF-8. Without any, each file is read.
        strict: Whether to raise an error for a file that cannot be read or used.

    Raises:
        MedTasksError: With ``strict``, the file cannot be read, or the harness cannot use a value in it.
    """
    try:
        if names and not any(name in read_file(path, MOST_TEXT) for name in names):
            return None
        config = read_config(path)
    except (
        OSError,
        ValueError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
        MedTasksError,
    ) as error:
        if strict:
            raise MedTasksError(f"the task file {path}{_describe_damage(error)}") from error
        return None
    if strict and (fault := next(_shape_problems(config), "")):
        raise MedTasksError(f"the task file {path}: {fault}")
    return config


def _describe_damage(error: Exception) -> str:
    """Return why a task file cannot be read, in words that follow its name."""
    if isinstance(error, MedTasksError) and not isinstance(error, UnusableFile):
        return f": {error}"
    mark = getattr(error, "problem_mark", None)
    damage = f"is damaged in line {mark.line + 1}" if mark else "is damaged"
    if isinstance(error, FileNotFoundError):
        damage = f"includes {error.filename}, which does not exist"
    if isinstance(error, UnusableFile):
        damage = f"or a file that it includes cannot be read ({error})"
    return f" {damage}, so the harness stops whatever task you choose; fix it or move it away"


def read_config(path: Path) -> NewConfig:
    """Return the content of a file and the files it includes: its own keys replace included ones whole.

    Raises:
        OSError: A file is missing.
        ValueError: A file is no text or empty.
        yaml.YAMLError: A file is no YAML.
        MedTasksError: The keys of its ``family`` cannot be filled in.
    """
    config = with_included(path)
    if "family" in config:
        config = with_family(config, path.parent)
    settings = config.get(SETTINGS)
    if isinstance(settings, DottedName) and settings.is_ours:
        # A wrong name is reported where the task is checked.
        with contextlib.suppress(ImportError, AttributeError):
            config[SETTINGS] = settings.resolve()
    return config


def with_included(path: Path, content: Config | None = None) -> NewConfig:
    """Return the content of a file together with that of the files it includes.

    Args:
        path: The file. Names in it are relative to its folder if such files exist there.
        content: Own keys of the file. If they are None, they are read from the file.
    """
    config = dict(own_config(path) if content is None else content)
    merged: NewConfig = {}
    # Of several included files the first one wins.
    for name in reversed(names_in(config.pop("include", None))):
        file = Path(name) if Path(name).is_file() else path.parent / name
        merged |= with_included(file)
    merged |= config
    arguments = mapping_in(merged, "dataset_kwargs")
    folder = path.parent.absolute()

    def locate(name: Any) -> Any:
        """Return the path of a file in the folder. Other values stay, such as paths below the working folder."""
        return str(folder / name) if type(name) is str and (folder / name).is_file() else name

    if merged.get("dataset_path") not in LOCAL_LOADERS:
        if "dataset_path" in merged:
            merged["dataset_path"] = locate(merged["dataset_path"])
    elif "data_files" in arguments:
        files = _map_leaves(arguments["data_files"], locate)
        merged["dataset_kwargs"] = {**arguments, "data_files": files}
    return merged


def is_short(path: Path) -> bool:
    """Return whether a task file leaves most keys to its ``family``."""
    return "family" in with_included(path)


def with_family(config: Config, folder: Path) -> NewConfig:
    """Return the whole configuration of a short task file: what its family supplies, below the file's own keys.

    Args:
        config: Keys of the file and of those that it includes.
        folder: Folder of the file, in which ``data`` is looked for first.

    Raises:
        MedTasksError: The family is unknown, or the file does not say which column has the image.
    """
    written = dict(config)
    family, data, image, columns = (written.pop(key, None) for key in FAMILY_KEYS)
    columns = columns or {}
    base = _keys_of_family(str(family))
    default = {**base[SETTINGS]["default"]}
    if data is not None:
        base["dataset_path"] = data
    if (folder / str(data)).is_file():
        base["dataset_path"] = str(folder.absolute() / str(data))
        default["image_root"] = os.path.dirname(base["dataset_path"])
    if not isinstance(columns, Mapping):
        raise MedTasksError(
            "'columns' has to be a mapping; write columns: {question: YOUR COLUMN}"
        )
    if not image:
        raise MedTasksError(
            "it needs a line 'image: COLUMN' (in brackets for a column of lists) or 'image: none'"
        )
    images = {"image_files" if isinstance(image, list) else "image_file": image}
    if image == "none":
        images = {}
        base["doc_to_visual"] = DottedName("medtasks.hooks.images.no_images")
    metadata = {**base["metadata"], COLUMNS: {**images, **columns}}
    if "description" in written:
        metadata["description"] = written.pop("description")
    settings = written.get(SETTINGS, {})
    if isinstance(settings, Mapping):
        default |= mapping_in(settings, "default")
        # RadFM reads volumes itself.
        radfm = {**default, "slices": 0, **mapping_in(settings, "radfm")}
        written[SETTINGS] = {**settings, "default": default, "radfm": radfm}
    merged = {**dict.fromkeys(written), **base, **written}
    merged["metadata"] = {**metadata, **mapping_in(written, "metadata")}
    return merged


def _keys_of_family(family: str) -> NewConfig:
    """Return the keys that a family supplies: those of its file, or of any question type with hooks of this name.

    Raises:
        UnknownName: There is no such family.
    """
    folder = tasks_folder() / "own"
    file = folder / f"_{family}_yaml"
    if file.is_file():
        return with_included(file)
    module = f"medtasks.hooks.{family}"
    if not family.isidentifier() or importlib.util.find_spec(module) is None:
        names = {path.name[1:-5] for path in folder.glob("_*")} - {"own"}
        raise unknown_name("family", family, names, "docs/own_tasks.md")
    keys = dict(own_config(folder / "_own_yaml"))
    keys["process_results"] = DottedName(f"{module}.process_results")
    keys["metric_list"] = DottedName(f"{module}.METRIC_LIST")
    return keys


def with_image_roots(config: Config, folder: Path) -> NewConfig:
    """Return a task's configuration in which a relative ``image_root`` is the one in the file's folder, if it exists.

    Else it stays relative to the working folder: the same rule as the harness has for ``data_files``.

    Args:
        config: The task's configuration.
        folder: Folder of the task's file.
    """

    def with_root(settings: Any) -> Any:
        """Return settings with the root in the file's folder. Others, and what is no settings, stay as they are."""
        root = settings.get("image_root") if isinstance(settings, Mapping) else None
        if not isinstance(root, str) or os.path.isabs(os.path.expanduser(root)):
            return settings
        if not (folder / root).is_dir():
            return settings
        return {**settings, "image_root": str(folder.absolute() / root)}

    if not isinstance(config.get(SETTINGS), Mapping):
        return dict(config)
    by_family = {family: with_root(settings) for family, settings in config[SETTINGS].items()}
    return {**config, SETTINGS: with_root(by_family)}


# With libyaml reading takes a tenth of the time.
class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # a base known only at run time
    """Leaves ``!function a.b`` unresolved, and replaces values with unknown tags by None."""


_Loader.add_constructor("!function", lambda _, node: DottedName(node.value))
_Loader.add_multi_constructor("", lambda _, __, ___: None)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # a base known only at run time
    """Writes dotted names as ``!function``, and repeated values without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent(dumper: Any, name: DottedName) -> Any:
    text = str(name)
    if (file := name.own_file()) is not None:
        # The harness joins a relative path to the folder of the file, which may be any.
        text = f"{file.with_suffix('')}.{name.rpartition('.')[2]}"
    return dumper.represent_scalar("!function", text)


_Dumper.add_representer(DottedName, _represent)


def dump_task_file(config: Config) -> str:
    """Return a configuration as the text of a task file.

    Example:
        >>> print(dump_task_file({"task": "mine", "tag": ["chest"]}).strip())
        task: mine
        tag:
        - chest
    """
    text: str = yaml.dump(
        dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120
    )
    return text


def own_config(path: Path) -> Config:
    """Return the content of a file, without the files it includes."""
    return _parse(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=512)  # many tasks include one file
def _parse(path: Path, modified: int) -> Config:
    """Return the content of a file, empty if it is no mapping.

    Args:
        path: The file.
        modified: Time of its last change in nanoseconds, so that a file that has changed is read again.

    Raises:
        ValueError: It is empty, or no text in UTF-8.
    """
    content = parse_yaml(read_file(path, MOST_TEXT).decode(), _Loader)
    if content is None:
        raise ValueError("it is empty")
    if not isinstance(content, dict):  # such a file is no task, and the harness skips it, too
        return {}
    folder = path.parent.absolute()
    return dict(resolve_names(content, lambda name: DottedName(name, folder)))


def _shape_problems(config: Config) -> Iterator[str]:
    """Yield a sentence for each value whose shape the harness cannot use, with the right way to write it.

    These are mappings, lists of filters or metrics, and the entries of such lists.
    """
    for key in _MAPPINGS:
        value = config.get(key)
        # Tasks of lmms-eval's own have lists of mappings as metadata.
        if key == "metadata" and isinstance(value, list):
            continue
        if not isinstance(value, Mapping | DottedName | None):
            yield f"'{key}' is {_shape(value)} and has to be a mapping; write {key}: {{name: value}}"
    lists: list[tuple[str, Any, Sequence[str]]] = [
        ("filter_list", config.get("filter_list"), ("name", "filter")),
        ("metric_list", config.get("metric_list"), ("metric",)),
    ]
    for key, entries, required in lists:
        example = f"{{{', '.join(f'{name}: ...' for name in required)}}}"
        if not isinstance(entries, list | DottedName | None):
            yield f"'{key}' is {_shape(entries)} and has to be a list; write {key}: [{example}]"
        for number, entry in enumerate(entries if isinstance(entries, list) else (), start=1):
            fault = _fault_of_entry(entry, required, example)
            if fault:
                yield f"entry {number} of '{key}' {fault}"
            elif "filter" in required:
                # The steps of a pipeline are looked at after the lists themselves.
                lists.append((f"filter of '{entry['name']}'", entry["filter"], ("function",)))


def _shape(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return repr(value)


def _fault_of_entry(entry: Any, required: Sequence[str], example: str) -> str:
    """Describe why the harness cannot use an entry of a list. The text is empty if it can."""
    if not isinstance(entry, Mapping):
        return f"is {_shape(entry)} and has to be a mapping; write {example}"
    for missing in required:
        if missing not in entry:
            names = ", ".join(f"'{name}'" for name in entry)
            return f"has no '{missing}', only {names}; write {example}, each with a colon"
    return ""


def names_in(value: object) -> list[str]:
    """Return the names in a value that is a list of names, a single name, or None.

    Example:
        >>> names_in("chest"), names_in(None)
        (['chest'], [])
    """
    if value is None:
        return []
    return list(map(str, value)) if isinstance(value, list) else [str(value)]
