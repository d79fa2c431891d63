"""Folder with a benchmark of the user's own, as the Hub keeps datasets. ``pip`` can install it as well.

=================  =====================================================================================================
``README.md``      dataset card: licence, size, how to run it, datasheet, citation
``data/``          one Parquet file with questions and images, which ``datasets.load_dataset(FOLDER)`` reads
``eval.yaml``      the tasks, with which the Hub makes a dataset a benchmark
``NAME.yaml``      a task file for each task and group, on the Parquet file
``pyproject.toml`` makes the folder a package whose tasks the harness finds, :mod:`medtasks.tasks.installed_packages`
=================  =====================================================================================================

Images are written as models see them, as PNG: what their files say about a patient stays out. For the same reason ids
are replaced by numbers, which keep questions on one patient or image together, and columns that no task needs are left
out.
"""

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from medtasks.curate.datasheet import as_markdown, markdown_table
from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import DATASHEET, own_datasets, study_of
from medtasks.data.dataset_manifest import manifest_of, text_fingerprint
from medtasks.data.document_store import embedded_name
from medtasks.data.images.volume_files import is_volume
from medtasks.data.samples import Document, Sample
from medtasks.errors import MedTasksError, unknown_name
from medtasks.home import dataset_folder
from medtasks.prompts.images import images
from medtasks.prompts.messages import png
from medtasks.tasks.documents import access_of_task, image_settings, task_documents
from medtasks.tasks.installed_packages import ENTRY_POINTS
from medtasks.tasks.own_documents import completed, needed_columns, rows_of
from medtasks.tasks.task_file import TaskFile, names_in_templates
from medtasks.tasks.task_files import names_of_others, task_config, task_files
from medtasks.tasks.task_index import (
    COLUMNS,
    ROWS,
    SETTINGS,
    Config,
    DottedName,
    dumped,
    mapping_in,
    resolved,
)
from medtasks.version import __version__

DATA_FILE = "data/test-00000-of-00001.parquet"
_NUMBERED = ("patient_id", "image_id", "pair_id", "unit_id")
_HELD_APART = ("doc_id", "dataset", "image_file", "image_files", "image_sha256")
_IMAGE_COLUMNS = {"image": "image_file", "images": "image_files"}
"""Names that hooks have for the columns of the Parquet file that hold one image, or a list of them."""
_IMAGE_SETTINGS = ("image_root", "image_rule", "image_range")
_LOST_SETTINGS = (*_IMAGE_SETTINGS, "demonstrations")
_LOST_METADATA = ("dataset", "data", "few_shot", "checked_against", "same_as", ROWS)
_LOST_KEYS = (  # noqa: SIM905 - a list would take a line for each
    "task task_alias tag dataset_path dataset_name dataset_kwargs training_split validation_split test_split "
    "fewshot_split fewshot_config process_docs"
).split()
_ROWS = 32  # rows whose images are in memory at a time
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**9, "100K<n<1M"))
_LICENCES = (  # noqa: SIM905 - those of data, as the Hub writes them
    "apache-2.0 cc0-1.0 cc-by-4.0 cc-by-sa-4.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0 "
    "cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 mit odbl odc-by pddl"
).split()
_CATEGORIES = {
    "classification": "image-classification",
    "multilabel": "image-classification",
    "reports": "image-to-text",
}
"""The Hub's kinds of tasks by the hook that scores a task; all others answer questions."""

_CARD = """---
{head}---

# {name}

{description}

{questions} questions, {access} access, licence {licence}.

```sh
pip install lmms-eval medtasks ./{name}    # where this folder is
lmms_eval --model MODEL --tasks {tasks}
```

`datasets.load_dataset` reads the questions without either. Images are as models see them, without the metadata of their
files; ids are numbers that say which questions share a patient or an image.

## Data

{facts}

## Citation

```bibtex
@misc{{{name},
  title = {{{name}}},
  note = {{Dataset, fingerprint {fingerprint}}}
}}
```
"""
_PROJECT = """[build-system]
requires = ["setuptools>=78.1.1"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.0"
description = "Tasks for lmms-eval with medtasks"
dependencies = ["medtasks"]

[project.entry-points."{group}"]
{name} = "{name}"

[tool.setuptools]
packages = ["{name}"]
package-dir = {{ "{name}" = "." }}
package-data = {{ "{name}" = ["*.yaml", "data/*.parquet"] }}
"""
_FRAMEWORK = (
    "# No evaluation_framework: the Hub's list of them has neither lmms-eval nor medtasks.\n"
)


@dataclass(frozen=True)
class Benchmark:
    """Tasks on the same documents that are published together."""

    name: str  # in the folder that is written
    licence: str
    dataset: str | None  # prepared; None for a task on the user's own files
    tasks: Mapping[str, TaskFile]  # by their new names
    groups: Mapping[str, TaskFile]
    documents: Sequence[Document]
    access: Access

    @property
    def first(self) -> TaskFile:
        """The task by which images are opened."""
        return next(iter(self.tasks.values()))


def publish_folder(name: str, folder: Path, licence: str) -> Benchmark:
    """Write a user's own dataset or task into a new folder, for the Hub and for ``pip``.

    Args:
        name: Prepared dataset of the user's own, or a task of theirs.
        folder: Folder that does not exist or is empty; its name is that of the benchmark and its first task.
        licence: Licence of questions and images, by its name on the Hub if it has one there.

    Raises:
        UnknownName: There is no such dataset or task.
        MedTasksError: The data are credentialed or others', a task needs files of its own, an image cannot be read, or
            the folder cannot be written.
    """
    benchmark = _benchmark(name, folder.absolute().name, licence)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MedTasksError(f"{folder} exists already; choose another --out, or delete it")
    partial = folder.absolute().with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / DATA_FILE).parent.mkdir(parents=True)
        documents = _write_data(benchmark, partial / DATA_FILE)
        for file, text in _texts(benchmark, documents).items():
            (partial / file).write_text(text, encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        partial.rename(folder)
    except OSError as error:
        raise MedTasksError(f"cannot write {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return benchmark


# ---- what may be published ----


def _benchmark(name: str, new: str, licence: str) -> Benchmark:
    """Return the tasks of a dataset, or one task, under their new names; errors as :func:`publish_folder`."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", new):
        raise MedTasksError(
            f"'{new}' cannot be a task's name; take small letters, digits and underscores for the name of --out"
        )
    files = task_files()
    task = files.get(name)
    if name in CATALOGUE or (task is not None and task.is_shipped):
        raise MedTasksError(f"'{name}' is a set of others; only your own can be published")
    dataset = name if name in own_datasets() else None
    members = [task] if dataset is None and task is not None and task.kind == "task" else []
    if dataset is not None:
        members = [file for file in files.values() if file.dataset == dataset]
    if not members:
        raise unknown_name(
            "dataset or task of your own",
            name,
            {*own_datasets(), *(each.name for each in files.values() if not each.is_shipped)},
            "medtasks data list",
        )
    dataset = members[0].dataset
    tasks = {new + each.name.removeprefix(name): each for each in members}
    names = {each.name for each in members}
    groups = [each for each in files.values() if each.kind == "group" and {*each.members} <= names]
    new_groups = {new + each.name.removeprefix(name): each for each in groups}
    for taken, path in names_of_others([*tasks, *new_groups]).items():
        raise MedTasksError(
            f"there is a task '{taken}' already ({path}); choose another name for --out"
        )
    documents = task_documents(members[0])
    access = _checked_access(name, dataset, members[0], documents)
    return Benchmark(new, licence, dataset, tasks, new_groups, documents, access)


def _checked_access(
    name: str, dataset: str | None, task: TaskFile, documents: Sequence[Document]
) -> Access:
    """Return the access level of data; MedTasksError for credentialed ones, others' and volumes."""
    whole = None if dataset is None else manifest_of(dataset_folder(dataset)).selected_from
    if dataset in CATALOGUE or whole in CATALOGUE:
        raise MedTasksError(
            f"the data of '{name}' are those of '{whole or dataset}', a set of others; only your own can be published"
        )
    access = Access(access_of_task(task, documents) or Access.PUBLIC)
    if access is Access.CREDENTIALED:
        again = (
            ""
            if dataset is None
            else "; if everyone may see them, make it again with --access public"
        )
        raise MedTasksError(f"the data of '{name}' are credentialed and cannot be published{again}")
    if any(is_volume(file) for document in documents for file in Sample(document).images):
        raise MedTasksError(f"'{name}' shows volumes, and only images can be published")
    return access


# ---- questions and images ----


def _write_data(benchmark: Benchmark, path: Path) -> list[dict[str, Any]]:
    """Write questions and images as one Parquet file that tells the ``datasets`` library which columns are images.

    Returns:
        The documents of the file, with the names that medtasks gives to images in a file.
    """
    import datasets
    import pyarrow
    import pyarrow.parquet

    rows = _numbered_rows(benchmark)
    features = datasets.Dataset.from_list(rows).features
    column = _image_column(benchmark)
    if column:
        is_single = column == "image"
        features[column] = datasets.Image() if is_single else datasets.List(datasets.Image())
    schema = features.arrow_schema
    encoded = _encoded_images(benchmark)
    documents = []
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(rows), _ROWS):
            batch = []
            for row in rows[start : start + _ROWS]:
                files = next(encoded)
                cells = [{"bytes": data, "path": None} for data in files]
                batch.append(_with_images(row, column, cells))
                names = [embedded_name(data) for data in files]
                documents.append(_with_images(row, _IMAGE_COLUMNS.get(column, ""), names))
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
    return documents


def _with_images(row: Mapping[str, Any], column: str, cells: Sequence[Any]) -> dict[str, Any]:
    """Return a row with its images in a column that holds one or a list of them, if there is such a column."""
    if not column:
        return dict(row)
    return {**row, column: cells[0] if column in ("image", "image_file") else list(cells)}


def _image_column(benchmark: Benchmark) -> str:
    """Return the name of the column with images; empty for questions without."""
    if not any(Sample(document).images for document in benchmark.documents):
        return ""
    return "image" if "image_file" in benchmark.documents[0] else "images"


def _encoded_images(benchmark: Benchmark) -> Iterator[list[bytes]]:
    """Yield the images of each document as a model sees them, as PNG."""
    settings = image_settings(benchmark.first)
    chosen = {name: settings[name] for name in _IMAGE_SETTINGS if name in settings}
    files: tuple[str, ...] = ()
    encoded: list[bytes] = []
    for document in benchmark.documents:
        if Sample(document).images != files:  # several questions in a row are about one image
            encoded = [png(image) for image in images(document, chosen)]
            files = Sample(document).images
        yield encoded


def _numbered_rows(benchmark: Benchmark) -> list[dict[str, Any]]:
    """Return the documents without images: the columns that tasks need, with numbers in place of ids."""
    documents = benchmark.documents
    kept = _needed_names(benchmark) if benchmark.dataset is None else {*documents[0]}
    kept = {*kept, *_NUMBERED} - {*_HELD_APART}
    numbers: dict[tuple[str, Any], str] = {}
    rows = []
    for document in documents:
        row = {name: value for name, value in document.items() if name in kept}
        for name in _NUMBERED:
            if row.get(name) is not None:
                count = sum(key == name for key, _ in numbers)
                row[name] = numbers.setdefault((name, row[name]), str(count + 1))
        rows.append(row)
    empty = {name for name in rows[0] if all(row[name] is None for row in rows)}
    return [{name: value for name, value in row.items() if name not in empty} for row in rows]


def _needed_names(benchmark: Benchmark) -> set[str]:
    """Return the columns of a user's own file that hooks, templates and tables of results use."""
    config = task_config(benchmark.first.name)
    names = set(names_in_templates(mapping_in(config, SETTINGS)))
    for _, needed in needed_columns(config, list(benchmark.documents[0])):
        names.update(needed)
    return {*names, *benchmark.first.breakdown, "position", "categories", "options"}


# ---- texts ----


def _texts(benchmark: Benchmark, documents: list[dict[str, Any]]) -> dict[str, str]:
    """Return the files of a folder besides its data with these documents, by their names."""
    name = benchmark.name
    about = {"name": name, "description": benchmark.first.description}
    tasks = [{"id": task, "config": "default", "split": "test"} for task in benchmark.tasks]
    texts = {
        "eval.yaml": _FRAMEWORK + _as_yaml({**about, "tasks": tasks}),
        "pyproject.toml": _PROJECT.format(name=name, group=ENTRY_POINTS),
    }
    fingerprint = ""
    for new, task in benchmark.tasks.items():
        config = _published_config(benchmark, new, task)
        texts[f"{new}.yaml"] = dumped(config)
        fingerprint = fingerprint or _fingerprint(config, documents)
    texts["README.md"] = _card(benchmark, fingerprint)
    by_old_name = {task.name: new for new, task in benchmark.tasks.items()}
    for new, group in benchmark.groups.items():
        members = [by_old_name[member] for member in group.members]
        texts[f"{new}.yaml"] = dumped({**task_config(group.name), "group": new, "task": members})
    return texts


def _published_config(benchmark: Benchmark, name: str, task: TaskFile) -> dict[str, Any]:
    """Return the configuration of a task on the Parquet file; MedTasksError if it has hooks of its own."""

    def checked(hook: DottedName) -> DottedName:
        if not hook.is_ours:
            raise MedTasksError(
                f"'{task.name}' uses {hook}, and code of your own is not published; use hooks of medtasks, or add the "
                f"code to the folder by hand"
            )
        return hook

    config = task_config(task.name)
    rest = resolved({key: config[key] for key in config if key not in _LOST_KEYS}, checked)
    if isinstance(rest.get(SETTINGS), Mapping):
        rest[SETTINGS] = _without_lost(rest[SETTINGS])
    metadata = mapping_in(config, "metadata")
    image = _image_column(benchmark)
    rest["metadata"] = {
        **{key: value for key, value in metadata.items() if key not in _LOST_METADATA},
        COLUMNS: {_IMAGE_COLUMNS[image]: image} if image else {},
    }
    if not image:
        rest["doc_to_visual"] = DottedName("medtasks.hooks.images.no_images")
    files = {"dataset_path": "parquet", "dataset_kwargs": {"data_files": {"test": DATA_FILE}}}
    return {"task": name, **files, "test_split": "test", **rest}


def _fingerprint(config: Config, documents: list[dict[str, Any]]) -> str:
    """Return the fingerprint that runs of a task on the Parquet file show; MedTasksError if its hooks lack columns."""
    import datasets

    metadata = {**config["metadata"], COLUMNS: {}}
    table = datasets.Dataset.from_list(documents)
    rows = rows_of(completed(table, {**config, "metadata": metadata}, apart=True))
    return text_fingerprint(rows)[:12]


def _without_lost(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of prompts without those of the user's image files."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            kept[name] = _without_lost(value)
        elif name not in _LOST_SETTINGS:
            kept[name] = value
    return kept


def _card(benchmark: Benchmark, fingerprint: str) -> str:
    """Return the dataset card."""
    name = benchmark.name
    count = len(benchmark.documents)
    hook = str(benchmark.first.process_results).split(".")[-2:-1]
    category = "question-answering"
    if _image_column(benchmark):
        category = _CATEGORIES.get("".join(hook), "visual-question-answering")
    licence = {"license": benchmark.licence}
    if benchmark.licence not in _LICENCES:
        licence = {"license": "other", "license_name": benchmark.licence}
    head = {
        **licence,
        "pretty_name": name,
        "task_categories": [category],
        "tags": ["medical"],
        "size_categories": [next(size for most, size in _SIZES if count < most)],
        "configs": [
            {"config_name": "default", "data_files": [{"split": "test", "path": DATA_FILE}]}
        ],
    }
    facts = markdown_table(("what", "value"), list(_facts(benchmark, fingerprint).items()))
    return _CARD.format(
        head=_as_yaml(head),
        name=name,
        description=benchmark.first.description,
        questions=count,
        access=benchmark.access,
        licence=benchmark.licence,
        tasks=next(iter(benchmark.groups or benchmark.tasks)),
        facts="\n\n".join(filter(None, (facts, _datasheet(benchmark)))),
        fingerprint=fingerprint,
    )


def _facts(benchmark: Benchmark, fingerprint: str) -> dict[str, Any]:
    """Return facts about questions and images for the card."""
    documents = benchmark.documents
    samples = [Sample(document) for document in documents]
    facts: dict[str, Any] = {
        "questions": len(documents),
        "images": len({file for sample in samples for file in sample.images}),
        "independent clusters": len({sample.cluster_id for sample in samples}),
        "fingerprint": fingerprint,
    }
    if benchmark.dataset is not None:
        manifest = manifest_of(dataset_folder(benchmark.dataset))
        facts["prepared as"] = manifest.fingerprint
        facts["left out when it was prepared"] = len(manifest.left_out)
        for conversion, count in manifest.image_conversions.items():
            facts[f"images: {conversion}"] = count
    return {**facts, "made with": f"medtasks {__version__}"}


def _datasheet(benchmark: Benchmark) -> str:
    """Return the datasheet of a study, with reviewers by number; empty for other data."""
    dataset = benchmark.dataset
    if dataset is None or study_of(dataset) is None:
        return ""
    sheet = json.loads((dataset_folder(dataset) / DATASHEET).read_text(encoding="utf-8"))
    reviewers = [record["reviewer"] for record in sheet["reviewers"]]
    numbers = {name: f"reviewer {at}" for at, name in enumerate(reviewers, 1)}
    for part in ("reviewers", "agreement", "wording"):
        sheet[part] = _renamed(sheet[part], numbers)
    sheet["published_with"] = None
    return "#" + as_markdown(sheet).replace("\n## ", "\n### ").rstrip()


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a JSON value with other names in place of some."""
    if isinstance(value, Mapping):
        return {key: _renamed(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, names) for part in value]
    return names.get(value, value) if isinstance(value, str) else value


def _as_yaml(content: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))
