"""GMAI-MMBench, from TSV files of several gigabytes with the images as base64 in them.

A value of at most 64 characters in the column of images names the row whose image is shown, as in all of VLMEvalKit.
A case with a drawn mask and the same case with a drawn contour are two questions; nothing in the file links them. Here
the n-th mask and the n-th contour question with the same texts, answer and groups count as twins and share an
``image_id``, as questions on one image do, so that errors are clustered by case.
"""

import binascii
import contextlib
import csv
import functools
import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from tqdm import tqdm

from medtasks.data.catalogue import GMAI, DatasetInfo
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.prepare.downloads import file_md5, hub_download
from medtasks.data.prepare.source_files import not_found, required_file
from medtasks.data.prepare.source_recipe import Options, PublishedRow, SourceRecipe, TableReader, UnusableRow
from medtasks.data.prepare.table_files import ReadValues, SourceRow, SourceTable
from medtasks.data.samples import option_index
from medtasks.data.schema import GROUPED_CHOICE, MULTI_ANSWER, Columns, Document
from medtasks.errors import SourceError

_POINTER = 64  # characters
_GROUPS = {
    "clinical_task": "clinical vqa task",
    "department": "department",
    "granularity": "perceptual granularity",
    "modality": "modality",
    "keyword": "category",
    "original_task": "original task",
}
_FAULT, _BROKEN, _SHOWN = "fault of the row", "fault of the image", "row of the image"  # no names of columns


def _columns(path: Path, header: Sequence[str]) -> list[str]:
    """Return normalised column names: lower case, but for the capitals that name options."""
    names = [name.strip() for name in header]
    columns = [name if re.fullmatch("[A-Z]", name) else name.lower() for name in names]
    repeated = sorted(name for name in columns if columns.count(name) > 1)
    if not "".join(names).isascii() or not any(names) or repeated:
        fault = f"names the column '{repeated[0]}' twice" if repeated else "has no header"
        raise SourceError(f"{path} {fault}; is it the benchmark's TSV file?")
    return columns


class GmaiFile(TableReader):
    """Reading of one file; only ``keyed`` rows have an answer."""

    embedded = ("image",)

    def __init__(self, path: Path, columns: Columns, *, keyed: bool = True) -> None:
        self.path, self.columns, self.keyed, self.several = path, columns, keyed, "answers" in columns

    def table(self, _source: Path | None = None, _split: str = "") -> SourceTable:
        """Return the rows of a TSV file: texts by normalised column, without empty ones, and ``image`` as bytes.

        ``None`` and ``NA`` stay words. What is wrong with a row is a value, too, so that the other rows can be read.
        """
        return SourceTable(self._records)

    def _records(self) -> Iterator[tuple[str, ReadValues]]:
        name, size, line = self.path.name, self.path.stat().st_size, ""
        with (
            contextlib.ExitStack() as undo,
            self.path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as stream,
            tqdm(desc=f"Reading {name}", total=size, unit="B", unit_scale=True, leave=False, disable=None) as bar,
        ):
            undo.callback(csv.field_size_limit, csv.field_size_limit(sys.maxsize))  # images are fields of megabytes

            def lines() -> Iterator[str]:
                nonlocal line
                for line in stream:
                    bar.update(len(line))
                    yield line

            reader = csv.reader(lines(), delimiter="\t", strict=True)
            try:
                header = next(reader, [])
            except csv.Error:
                header = []
            columns = _columns(self.path, header)
            for number in itertools.count(1):
                try:
                    fields = next(reader, None)
                except csv.Error:
                    values = {_FAULT: "it has an open quotation"}
                else:
                    if fields is None:
                        return
                    values = {column: text for column, text in zip(columns, fields, strict=False) if text}
                    if len(fields) != len(columns):
                        values = {_FAULT: f"it has {len(fields)} of {len(columns)} fields"}
                if _FAULT in values and not line.endswith("\n"):
                    values[_FAULT] += " and no line end, the file seems to be cut there"
                index = f" (index {values['index']})" if "index" in values else ""
                yield f"{name} row {number}{index}", functools.partial(self.values, values)

    def values(self, values: dict[str, str]) -> Mapping[str, Any]:
        """Return the values of a row with its image decoded, or their fault."""
        image = values.pop("image", "")
        try:
            "".join(values.values()).encode()
        except UnicodeEncodeError:
            return {_FAULT: "its text is not UTF-8"}
        if len(image) <= _POINTER:
            return {**values, _SHOWN: image} if image else values
        try:
            return {**values, _SHOWN: "", "image": binascii.a2b_base64(image, strict_mode=True)}
        except ValueError:
            return {**values, _SHOWN: "", _BROKEN: "its image is broken (it is no base64)"}

    def document(self, row: SourceRow, _split: str) -> Document:
        """Return a document whose ``image_id`` is the index of the row with its image; empty for its own row."""
        values = row.values
        if _FAULT in values:
            raise UnusableRow(values[_FAULT])
        for column, name in (("index", "index"), (_SHOWN, "image"), ("question", "question"), ("A", "A"), ("B", "B")):
            if column not in values:
                raise UnusableRow(f"it has no {name}")
        letters = [letter for letter in ascii_uppercase if letter in values]
        absent = next((letter for letter in ascii_uppercase[: len(letters)] if letter not in values), None)
        if absent:
            raise UnusableRow(f"it has an option {letters[-1]} and no option {absent}")
        published = values.get("answer", "")
        answers = [letter.strip() for letter in published.split(",")] if self.several else [published]
        wrong = [answer for answer in answers if self.keyed and answer not in letters]
        if wrong:
            raise UnusableRow(f"its answer is '{wrong[0]}', and the options are {', '.join(letters)}")
        if _BROKEN in values:
            raise UnusableRow(values[_BROKEN])
        return {
            "doc_id": values["index"],
            "patient_id": None,
            "hint": values.get("hint"),
            "question": values["question"],
            "options": [values[letter] for letter in letters],
            **{column: values.get(name) for column, name in _GROUPS.items()},
            **({"answers": sorted(set(answers))} if self.several else {"answer": published if self.keyed else None}),
            "image_id": values[_SHOWN],
        }

    def questions(self, images: ImageStore) -> list[PublishedRow]:
        """Read all rows and store their images; one that shows another row's image has none yet."""
        return list(self.rows(self.table().rows(), "", self.path, images))


def with_images(rows: Sequence[PublishedRow]) -> Iterator[PublishedRow]:
    """Give rows without an image that of the row they name, and each row the id of the case it shows."""
    by_id = {row.document["doc_id"]: row for row in rows if row.document}
    broken = {row.place.partition(" (index ")[2].removesuffix(")") for row in rows if row.cause.startswith("its image")}
    images = [_image(row, by_id, broken) if row.document else row.cause for row in rows]
    for row, image, case in zip(rows, images, _cases(rows, images), strict=True):
        if row.document is None or isinstance(image, str):
            yield PublishedRow(row.place, None, cause=str(image))
        else:
            columns = {name: value for name, value in row.document.items() if name != "image_id"}
            yield PublishedRow(row.place, {**columns, "image_id": case}, [image])


def _image(row: PublishedRow, by_id: Mapping[str, PublishedRow], broken: Set[str]) -> StoredImage | str:
    followed = set()
    target: PublishedRow | None = row
    while target and target.document and not target.images:
        index = target.document["image_id"]
        followed.add(target.document["doc_id"])
        target = by_id.get(index)
        if target is None and index in broken:
            return "the row whose image it shows has a broken one"
        if target is None or index in followed:
            return f"its image is that of row index {index}, which {'has none' if target else 'is not there'}"
    assert target is not None
    return target.images[0]


def _cases(rows: Sequence[PublishedRow], images: Sequence[StoredImage | str]) -> list[str]:
    """Return for each row the case it shows: its image, or the first image of its case."""
    first: dict[str, str] = {}

    def case_of(image: str) -> str:
        while first.get(image, image) != image:
            image = first[image]
        return image

    twins: dict[str, dict[tuple[Any, ...], list[str]]] = {"mask": defaultdict(list), "contour": defaultdict(list)}
    for row, image in zip(rows, images, strict=True):
        document = row.document
        if document is None or isinstance(image, str):
            continue
        options, answers = document["options"], document.get("answers") or [document["answer"]]
        right = [options[option_index(answer)] for answer in answers if answer]
        groups = [document[column] for column in _GROUPS if column != "granularity"]
        for word, ids in twins.items():
            if word in (document["granularity"] or "").casefold():
                ids[document["question"], *sorted(options), None, *right, None, *groups].append(image.image_id)
    for texts, masks in twins["mask"].items():
        for mask, contour in zip(masks, twins["contour"].get(texts, ()), strict=False):
            first[case_of(contour)] = case_of(mask)
    return ["" if isinstance(image, str) else case_of(image.image_id) for image in images]


VALIDATION, TEST, MULTI_ANSWER_SET = GMAI
_VALIDATION_NAMES = ("GMAI-MMBench_VAL.tsv", "GMAI_mm_bench_VAL.tsv")


def _recipe(info: DatasetInfo, options: Options) -> SourceRecipe:
    columns = MULTI_ANSWER if info is MULTI_ANSWER_SET else GROUPED_CHOICE
    changed: list[Path] = []  # files that are not the published ones

    def rows(source: Path, images: ImageStore) -> Iterator[PublishedRow]:
        """Read all files; SourceError if one is not the published one, unless that is allowed."""
        questions: list[PublishedRow] = []
        for path in _files(info, source):
            published = next(iter(info.md5.values())) if len(info.md5) == 1 else info.md5.get(path.name)
            md5 = file_md5(path)
            file = GmaiFile(path, columns, keyed=info is not TEST)
            if published not in (None, md5):
                changed.append(path)
                if not options.allow_changed:
                    raise SourceError(
                        f"{path} is not the published file (MD5 {md5}, published {published}){_first_fault(file)}; "
                        f"download it again, or accept this one with --allow-changed"
                    )
            questions += file.questions(images)
        yield from with_images(questions)

    return SourceRecipe(
        columns,
        rows,
        layout=", ".join(info.md5) or "the benchmark's TSV columns, with answers such as 'A,C', in one .tsv file",
        download=functools.partial(hub_download, info, list(info.md5)) if info.md5 else None,
        revision=lambda _: "local" if changed else info.revision,
        counted=not options.allow_changed,
    )


def _first_fault(file: GmaiFile) -> str:
    """Describe the first unusable row; empty if all can be used."""
    for row in file.table().rows():
        try:
            file.document(row, "")
        except UnusableRow as fault:
            return f": {row.place}: {fault}"
    return ""


def _files(info: DatasetInfo, source: Path) -> list[Path]:
    """Find the files of a part in ``source``, a folder that holds them or the single file itself."""
    if source.is_file():
        return [source]
    if info is MULTI_ANSWER_SET:
        files = sorted(source.glob("*.tsv"))
        if len(files) != 1:
            raise not_found(source, "single .tsv file", "name the file itself with --source")
        return files
    if info is VALIDATION:
        return [required_file(source, _VALIDATION_NAMES).path]
    absent = next((name for name in info.md5 if not (source / name).is_file()), None)
    if absent:
        raise not_found(source, absent)
    return [source / name for name in info.md5]


RECIPES = {info.name: functools.partial(_recipe, info) for info in GMAI}
