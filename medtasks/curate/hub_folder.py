"""Folder with a prepared dataset of the user's own, as the Hub keeps datasets. ``pip`` can install it as well.

=================  =====================================================================================================
``README.md``      dataset card: licence, size, how to run it, datasheet, citation
``data/``          one Parquet file with questions and images, which ``datasets.load_dataset(FOLDER)`` reads
``eval.yaml``      the tasks, with which the Hub makes a dataset a benchmark
``NAME.yaml``      a task file for each task and group, on the Parquet file
``pyproject.toml`` makes the folder a package whose tasks the harness finds, :mod:`medtasks.tasks.installed_packages`
=================  =====================================================================================================

Images are written as models see them, as PNG: what their files say about a patient stays out. For the same reason ids
are replaced by numbers, which keep questions on one patient or image together.
"""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from medtasks.curate.datasheet import as_markdown, markdown_table
from medtasks.curate.study import checked_name
from medtasks.data.catalogue import CATALOGUE, Access
from medtasks.data.dataset_lookup import DATASHEET, OPTIONS, own_datasets, study_of
from medtasks.data.dataset_manifest import Manifest, text_fingerprint
from medtasks.data.document_store import embedded_name, load_documents
from medtasks.data.images.image_store import VOLUME
from medtasks.data.samples import Documents, Sample
from medtasks.data.schema import NewDocument
from medtasks.errors import MedTasksError, unknown_name
from medtasks.home import dataset_folder
from medtasks.prompts.images import images
from medtasks.prompts.messages import png
from medtasks.tasks.installed_packages import ENTRY_POINTS
from medtasks.tasks.own_documents import complete_documents, rows_of
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import names_of_others, task_config, task_files
from medtasks.tasks.task_index import COLUMNS, Config, DottedName, dump_task_file
from medtasks.version import __version__

DATA_FILE = "data/test-00000-of-00001.parquet"
_NUMBERED = ("patient_id", "image_id", "pair_id", "unit_id")
_HELD_APART = ("doc_id", "dataset", "image_file", "image_files", "image_sha256")
_IMAGES = "images"  # column of the Parquet file
# Keys that a task on the Parquet file does not take over from the task on the prepared dataset.
_OF_PREPARED = ("task", "task_alias", "tag", "dataset_path", "dataset_kwargs", "test_split")
_OF_REVIEWERS = ("reviewer", "reviewers", "constant")  # keys of a datasheet's records
_ROWS = 32  # rows whose images are in memory at a time
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (10**9, "100K<n<1M"))
_LICENCES = (  # noqa: SIM905 - those of data, as the Hub writes them
    "apache-2.0 cc0-1.0 cc-by-4.0 cc-by-sa-4.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-4.0 cc-by-nc-sa-4.0 "
    "cdla-sharing-1.0 cdla-permissive-1.0 cdla-permissive-2.0 mit odbl odc-by pddl"
).split()

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
    """Dataset that is published, and the tasks on it."""

    name: str  # name of the folder that is written, and of the first task in it
    licence: str
    manifest: Manifest
    documents: Documents
    tasks: Mapping[str, TaskFile]  # by their new names
    groups: Mapping[str, TaskFile]

    @property
    def description(self) -> str:
        """Description of its first task."""
        return next(iter(self.tasks.values())).description

    @property
    def image_column(self) -> str:
        """The column in which hooks look for images, an empty text for questions without."""
        if not any(Sample(document).images for document in self.documents):
            return ""
        return "image_file" if "image_file" in self.documents[0] else "image_files"


def publish_folder(name: str, folder: Path, licence: str) -> Benchmark:
    """Write a prepared dataset of the user's own into a new folder, for the Hub and for ``pip``.

    Args:
        name: The dataset, as it was prepared.
        folder: Folder that does not exist; its name is that of the benchmark and its first task.
        licence: Licence of questions and images, by its name on the Hub if it has one there.

    Raises:
        UnknownName: There is no such dataset.
        MedTasksError: The data are credentialed, others' or volumes, the folder exists, a task has its name or
            cannot have it, or an image cannot be read.
        OSError: The folder cannot be written.
    """
    new = checked_name(folder.absolute().name, "the folder's name in --out")
    files = task_files().values()
    tasks = {file.name: file for file in files if file.dataset == name}
    if not tasks or name not in own_datasets():
        raise unknown_name("dataset of your own", name, own_datasets(), "medtasks data list")
    manifest = Manifest.read(dataset_folder(name))
    documents = load_documents(name)
    _check_publishable(manifest)
    groups = {
        file.name: file for file in files if file.members and tasks.keys() >= {*file.members}
    }
    tasks = _with_new_names(tasks, name, new)
    groups = _with_new_names(groups, name, new)
    for taken, path in names_of_others([*tasks, *groups]).items():
        raise MedTasksError(
            f"there is a task '{taken}' in {path}; choose another name for --out"
        )
    benchmark = Benchmark(new, licence, manifest, documents, tasks, groups)
    if folder.exists():
        raise MedTasksError(f"{folder} exists already; choose another --out, or delete it")
    partial = folder.absolute().with_name(f".{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / DATA_FILE).parent.mkdir(parents=True)
        rows = _write_data(benchmark, partial / DATA_FILE)
        for file, text in _texts(benchmark, rows).items():
            (partial / file).write_text(text, encoding="utf-8")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return benchmark


def _with_new_names(
    files: Mapping[str, TaskFile],
    old: str,
    new: str,
) -> dict[str, TaskFile]:
    """Return task files by names that begin with ``new`` in place of ``old``, the name of the dataset."""
    return {new + name.removeprefix(old): file for name, file in files.items()}


def _check_publishable(manifest: Manifest) -> None:
    """Raise MedTasksError for a dataset that is credentialed, a part of others' data, or shows volumes."""
    if manifest.selected_from in CATALOGUE:
        raise MedTasksError(
            f"'{manifest.name}' is a part of '{manifest.selected_from}', a set of others; only your own can be "
            f"published"
        )
    if manifest.access == Access.CREDENTIALED:
        raise MedTasksError(
            f"'{manifest.name}' is credentialed and cannot be published; if everyone may see it, prepare it again with "
            f"--access public"
        )
    if VOLUME in manifest.image_conversions:
        raise MedTasksError(
            f"'{manifest.name}' shows volumes, and only images can be published"
        )


# ---- questions and images ----


def _write_data(benchmark: Benchmark, path: Path) -> list[NewDocument]:
    """Write questions and images as one Parquet file that tells the ``datasets`` library which columns are images.

    Returns:
        The documents of the file, with the names that medtasks gives to images in a file.
    """
    import datasets
    import pyarrow.parquet

    rows = _numbered_rows(benchmark.documents)
    column = benchmark.image_column
    features = datasets.Dataset.from_list(rows).features
    if column:
        features[_IMAGES] = datasets.List(datasets.Image())
    schema = features.arrow_schema
    encoded = _encoded_images(benchmark.documents)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for start in range(0, len(rows), _ROWS):
            batch = []
            for row in rows[start : start + _ROWS]:
                files = next(encoded)
                batch.append(
                    {**row, _IMAGES: [{"bytes": data, "path": None} for data in files]}
                )
                names = list(map(embedded_name, files))
                if column:
                    row[column] = names[0] if column == "image_file" else names
            writer.write_table(pyarrow.Table.from_pylist(batch, schema))
    return rows


def _encoded_images(documents: Documents) -> Iterator[list[bytes]]:
    """Yield the images of each document as a model sees them, as PNG."""
    files: tuple[str, ...] = ()
    encoded: list[bytes] = []
    for document in documents:
        if Sample(document).images != files:  # several questions in a row are about one image
            encoded = list(map(png, images(document)))
            files = Sample(document).images
        yield encoded


def _numbered_rows(documents: Documents) -> list[NewDocument]:
    """Return the columns of documents but for images and empty ones, with numbers in place of ids."""
    published = {
        name
        for name in documents[0]
        if any(document[name] is not None for document in documents)
    }.difference(_HELD_APART)
    numbers = defaultdict[str, dict[Any, str]](dict)
    rows = []
    for document in documents:
        row = {name: document[name] for name in document if name in published}
        for name in row.keys() & _NUMBERED:
            if row[name] is not None:
                row[name] = numbers[name].setdefault(row[name], str(len(numbers[name]) + 1))
        rows.append(row)
    return rows


# ---- texts ----


def _texts(benchmark: Benchmark, documents: list[NewDocument]) -> dict[str, str]:
    """Return the files of a folder besides its data with these documents, by their names."""
    name = benchmark.name
    about = {"name": name, "description": benchmark.description}
    tasks = [{"id": task, "config": "default", "split": "test"} for task in benchmark.tasks]
    texts = {
        "eval.yaml": _FRAMEWORK + _as_yaml({**about, "tasks": tasks}),
        "pyproject.toml": _PROJECT.format(name=name, group=ENTRY_POINTS),
    }
    fingerprint = ""
    for new, task in benchmark.tasks.items():
        written = task_config(task.name)
        settings = {key: value for key, value in written.items() if key not in _OF_PREPARED}
        metadata = dict(written["metadata"])
        del metadata["dataset"], metadata["data"]
        metadata[COLUMNS] = {}
        column = benchmark.image_column
        if column:
            metadata[COLUMNS] = {column: _IMAGES}
        else:
            settings["doc_to_visual"] = DottedName("medtasks.hooks.images.no_images")
        config = {
            "task": new,
            "dataset_path": "parquet",
            "dataset_kwargs": {"data_files": {"test": DATA_FILE}},
            "test_split": "test",
            **settings,
            "metadata": metadata,
        }
        texts[f"{new}.yaml"] = dump_task_file(config)
        fingerprint = fingerprint or _fingerprint(config, documents)
    texts["README.md"] = _card(benchmark, fingerprint)
    by_old_name = {task.name: new for new, task in benchmark.tasks.items()}
    for new, group in benchmark.groups.items():
        members = [by_old_name[member] for member in group.members]
        texts[f"{new}.yaml"] = dump_task_file(
            {**task_config(group.name), "group": new, "task": members}
        )
    return texts


def _fingerprint(config: Config, documents: list[NewDocument]) -> str:
    """Return the fingerprint that runs of a task on the Parquet file show.

    Raises:
        MedTasksError: The hooks of the task lack columns.
    """
    import datasets

    metadata = {**config["metadata"], COLUMNS: {}}
    table = datasets.Dataset.from_list(documents)
    rows = rows_of(complete_documents(table, {**config, "metadata": metadata}, apart=True))
    return text_fingerprint(rows)[:12]


def _card(benchmark: Benchmark, fingerprint: str) -> str:
    """Return the dataset card."""
    count = len(benchmark.documents)
    category = "visual-question-answering" if benchmark.image_column else "question-answering"
    licence = {"license": benchmark.licence}
    if benchmark.licence not in _LICENCES:
        licence = {"license": "other", "license_name": benchmark.licence}
    files = [{"split": "test", "path": DATA_FILE}]
    head = {
        **licence,
        "pretty_name": benchmark.name,
        "task_categories": [category],
        "tags": ["medical"],
        "size_categories": [next(size for most, size in _SIZES if count < most)],
        "configs": [{"config_name": "default", "data_files": files}],
    }
    return _CARD.format(
        head=_as_yaml(head),
        name=benchmark.name,
        description=benchmark.description,
        questions=count,
        access=benchmark.manifest.access,
        licence=benchmark.licence,
        tasks=next(iter(benchmark.groups or benchmark.tasks)),
        facts=_facts(benchmark, fingerprint),
        fingerprint=fingerprint,
    )


def _facts(benchmark: Benchmark, fingerprint: str) -> str:
    """Return facts about questions and images as a table, and the datasheet of a study without its reviewers' names."""
    manifest = benchmark.manifest
    clusters = {Sample(document).cluster_id for document in benchmark.documents}
    conversions = manifest.image_conversions.items()
    rows = [
        ("images", manifest.images),
        *((f"images: {conversion}", count) for conversion, count in conversions),
        ("independent clusters of questions", len(clusters)),
        ("questions left out", len(manifest.left_out)),
        ("fingerprint", fingerprint),
        ("made with", f"medtasks {__version__}"),
    ]
    table = markdown_table(("what", "value"), rows)
    if study_of(manifest.name) is None:
        return table
    sheet = json.loads((dataset_folder(manifest.name) / DATASHEET).read_text(encoding="utf-8"))
    del sheet["wording"], sheet[OPTIONS]
    for part in ("reviewers", "agreement"):
        for record in sheet[part]:
            for key in record.keys() & _OF_REVIEWERS:
                del record[key]
    return f"{table}\n\n#{as_markdown(sheet)}".replace("\n## ", "\n### ").rstrip()


def _as_yaml(content: Mapping[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120))
