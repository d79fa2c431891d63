"""GMAI-MMBench, from TSV files of several gigabytes with the images as base64 in them.

A value of at most 64 characters in the column of images names the row whose image is shown, as in all of VLMEvalKit.
A case with a drawn mask and the same case with a drawn contour are two questions; nothing in the file links them. Here
the n-th mask and the n-th contour question with the same texts, answer and groups count as twins and share an
``image_id``, as questions on one image do, so that errors are clustered by case.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from medtasks.data.catalogue import GMAI, DatasetInfo
from medtasks.data.document_store import LONGEST_NUMBER, encoded_image
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.prepare.downloads import file_md5, hub_download
from medtasks.data.prepare.source_files import SourceFile, not_found, required_file
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    PublishedRows,
    SourceRecipe,
)
from medtasks.data.prepare.source_tables import (
    Records,
    SourceRow,
    SourceTable,
    TableReader,
    UnusableRow,
    csv_table,
)
from medtasks.data.samples import option_index
from medtasks.data.schema import GROUPED_CHOICE, MULTI_ANSWER, Columns, NewDocument
from medtasks.errors import SourceError

_GROUPS = {
    "clinical_task": "clinical vqa task",
    "department": "department",
    "granularity": "perceptual granularity",
    "modality": "modality",
    "keyword": "category",
    "original_task": "original task",
}
_SHOWN = "row of the image"  # no name of a column
_, TEST, MULTI_ANSWER_SET = GMAI
CaseKey = tuple[Any, ...]  # texts, answer and groups that a mask and a contour question share


@dataclass(frozen=True)
class GmaiFile(TableReader):
    """Reading of one file."""

    path: Path  # TSV file
    columns: Columns  # of its documents; with ``answers`` a question may have several
    keyed: bool = True  # whether the rows have an answer

    embedded = ("image",)

    def table(self, _source: Path | None = None, _split: str = "") -> SourceTable:
        """Return the rows of a TSV file: texts by column in lower case, without empty ones, and ``image`` as bytes.

        ``None`` and ``NA`` stay words. Options keep their capitals.
        """
        columns = ("index", "image", "question", "A", "B")
        table = csv_table(SourceFile(self.path), columns, missing=None, tabs=True)

        def records() -> Records:
            for row in table.rows():
                index = f" (index {row.values['index']})" if row.values["index"] else ""
                yield f"{row.place}{index}", partial(_values_of, row)

        return SourceTable(records)

    def document(self, row: SourceRow, _split: str) -> NewDocument:
        """Return the document of a row.

        Its ``image_id`` is the index of the row that holds its image, and empty for its own row.

        Args:
            row: With the texts and the image of :meth:`table`.

        Raises:
            UnusableRow: Something of the question is missing, or the answer is none of the options.
        """
        values = row.values
        letters = _option_letters(values)
        published = values.get("answer", "")
        if "answers" in self.columns:
            answers = [letter.strip() for letter in published.split(",")]
            target: NewDocument = {"answers": sorted(set(answers))}
        else:
            answers = [published]
            target = {"answer": published if self.keyed else None}
        for answer in answers:
            if self.keyed and answer not in letters:
                raise UnusableRow(
                    f"its answer is '{answer}', and the options are {', '.join(letters)}"
                )
        document = {
            "doc_id": values["index"],
            "patient_id": None,
            "hint": values.get("hint"),
            "question": values["question"],
            "options": [values[letter] for letter in letters],
        }
        for column, name in _GROUPS.items():
            document[column] = values.get(name)
        return {**document, **target, "image_id": values[_SHOWN]}


def _values_of(row: SourceRow) -> Mapping[str, Any]:
    """Return the columns of a row of the TSV file, see :meth:`GmaiFile.table`.

    The key ``_SHOWN`` names the row whose image is shown, and is empty for the row itself. Then ``image`` has its
    bytes, none of a broken image.

    Raises:
        SourceError: The row has more or fewer fields than the header.
    """
    if None in row.values or None in row.values.values():
        raise row.error("it has more or fewer fields than the header; download the file again")
    texts: dict[str, Any] = {}
    for name, text in row.values.items():
        if text:
            texts[name if len(name) == 1 else name.lower()] = text
    image = texts.get("image")
    if image is None:
        return texts
    if len(image) <= LONGEST_NUMBER:
        return {**texts, _SHOWN: image, "image": None}
    # Nothing is left of a broken image.
    return {**texts, _SHOWN: "", "image": encoded_image(image) or b""}


def _option_letters(values: Mapping[str, Any]) -> list[str]:
    """Return the letters of a row's options.

    Raises:
        UnusableRow: Something of the question is missing.
    """
    for column in ("index", _SHOWN, "question", "A", "B"):
        if column not in values:
            raise UnusableRow(f"it has no {'image' if column == _SHOWN else column}")
    letters = [letter for letter in ascii_uppercase if letter in values]
    for letter in ascii_uppercase[: len(letters)]:
        if letter not in values:
            raise UnusableRow(f"it has an option {letters[-1]} and no option {letter}")
    return letters


def rows_of(files: Iterable[GmaiFile], store: ImageStore) -> PublishedRows:
    """Read all rows, each with its image and the id of the case it shows.

    A row without an image gets that of the row it names.

    Args:
        files: Of one dataset. Rows may name those of other files.
        store: Where the images go.
    """
    rows: list[PublishedRow] = []
    for file in files:
        rows += file.rows(file.table().rows(), "", file.path, store)
    by_id = {row.document["doc_id"]: row for row in rows if row.document}
    # Indices of the rows whose image is broken: such rows have no document, only a location and a cause.
    locations = [row.place for row in rows if row.cause.startswith("its image")]
    broken = {location.partition(" (index ")[2].removesuffix(")") for location in locations}
    images = [_image_of(row, by_id, broken) for row in rows]
    first: dict[str, str] = {}  # image by another one of its case
    for mask, contour in _twins(rows, images):
        first[_case_of(contour, first)] = _case_of(mask, first)
    for row, image in zip(rows, images, strict=True):
        if row.document is None or isinstance(image, str):
            yield PublishedRow(row.place, cause=str(image))
            continue
        document = {**row.document, "image_id": _case_of(image.image_id, first)}
        yield PublishedRow(row.place, document, [image])


def _case_of(image: str, first: Mapping[str, str]) -> str:
    """Return the image by which a case is known, found from twin to twin. An image without a twin is its own."""
    while first.get(image, image) != image:
        image = first[image]
    return image


def _twins(
    rows: Iterable[PublishedRow], images: Iterable[StoredImage | str]
) -> Iterator[tuple[str, str]]:
    """Yield the images of the n-th mask and the n-th contour question with the same texts, answer and groups."""
    masks: dict[CaseKey, list[str]] = defaultdict(list)
    contours: dict[CaseKey, list[str]] = defaultdict(list)
    for row, image in zip(rows, images, strict=True):
        if row.document is None or isinstance(image, str):
            continue
        granularity = (row.document["granularity"] or "").casefold()
        texts = _texts_of_case(row.document)
        if "mask" in granularity:
            masks[texts].append(image.image_id)
        if "contour" in granularity:
            contours[texts].append(image.image_id)
    for texts, of_masks in masks.items():
        yield from zip(of_masks, contours.get(texts, ()), strict=False)


def _texts_of_case(document: Mapping[str, Any]) -> CaseKey:
    """Return the key that a mask question and its contour question share."""
    options = document["options"]
    answers = document.get("answers") or [document["answer"]]
    right = [options[option_index(answer)] for answer in answers if answer]
    groups = [document[column] for column in _GROUPS if column != "granularity"]
    return (document["question"], *sorted(options), None, *right, None, *groups)


def _image_of(
    row: PublishedRow,
    by_id: Mapping[str, PublishedRow],
    broken: Set[str],
) -> StoredImage | str:
    """Return the image of a row or, if need be through others, of the row it names, or why it has none."""
    if row.document is None:
        return row.cause
    followed = set()
    while row.document and not row.images:
        index = row.document["image_id"]
        followed.add(row.document["doc_id"])
        if index in by_id:
            row = by_id[index]
        elif index in broken:
            return "the row whose image it shows has a broken one"
        else:
            return f"its image is that of row index {index}, which is not there"
        if index in followed:
            return f"its image is that of row index {index}, which has none"
    return row.images[0]


def _recipe(info: DatasetInfo, options: Options) -> SourceRecipe:
    """Return the recipe of a set. Reading raises SourceError for a changed file, unless the user accepts it."""
    columns = MULTI_ANSWER if info is MULTI_ANSWER_SET else GROUPED_CHOICE
    changed = []  # files that are not the published ones

    def rows(source: Path, images: ImageStore) -> PublishedRows:
        """Read all files of a folder, or the single file itself, and note which are changed."""
        files = _published_files(info, source)
        for path, published in files.items():
            md5 = file_md5(path)
            if published in (None, md5):
                continue
            changed.append(path)
            if not options.allow_changed:
                raise SourceError(
                    f"{path} is not the published file (MD5 {md5}, published {published}); "
                    f"download it again, or accept this one with --allow-changed"
                )
        yield from rows_of(
            [GmaiFile(path, columns, keyed=info is not TEST) for path in files], images
        )

    return SourceRecipe(
        columns,
        rows,
        layout=", ".join(info.md5)
        or "the benchmark's TSV columns, with answers such as 'A,C', in one .tsv file",
        download=partial(hub_download, info, list(info.md5)) if info.md5 else None,
        revision=lambda _: "local" if changed else info.revision,
        counted=not options.allow_changed,
    )


def _published_files(info: DatasetInfo, source: Path) -> dict[Path, str | None]:
    """Return the files of a set in a source with their published MD5, None where that is unknown."""
    if source.is_file():
        if info is TEST:
            return {source: info.md5.get(source.name)}
        return {source: next(iter(info.md5.values()), None)}
    if info.md5:
        return {required_file(source, [name]).path: md5 for name, md5 in info.md5.items()}
    tables = sorted(source.glob("*.tsv"))
    if len(tables) != 1:
        raise not_found(source, "single .tsv file", "name the file itself with --source")
    return {tables[0]: None}


RECIPES = {info.name: partial(_recipe, info) for info in GMAI}
