"""GMAI-MMBench, from TSV files of several gigabytes; one that was read before an interruption is not read again.

A file is as pandas writes it: fields with tabs, quotes or new lines are quoted. The csv module looks at every character
(39 MB/s), and most of a file is base64 in fields of megabytes; so a line without a quotation mark is only cut at its
tabs.

Images are stored as the PNG files they are. A value of at most 64 characters in the column of images names the row
whose image is shown, as everywhere in VLMEvalKit.

A case with a drawn mask and the same case with a drawn contour are two questions; nothing in the file links them. Here
the n-th mask and the n-th contour question with the same texts, key and groups count as twins and share an
``image_id``, as questions on one image do, so that errors are taken over cases.
"""

import binascii
import contextlib
import dataclasses
import functools
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import IO, Any

from tqdm import tqdm

from medtasks.data.catalogue import GMAI, DatasetInfo
from medtasks.data.document_store import SCRATCH
from medtasks.data.images.image_store import ImageFacts, ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.downloads import hub_download
from medtasks.data.prepare.source_files import not_found, required_file
from medtasks.data.prepare.source_recipe import Options, PublishedRow, SourceRecipe, in_order
from medtasks.data.schema import GROUPED_CHOICE, MULTI_ANSWER
from medtasks.errors import SourceError
from medtasks.home import written_whole

_POINTER = 64  # characters
_GROUPS = {
    "clinical_task": "clinical vqa task",
    "department": "department",
    "granularity": "perceptual granularity",
    "modality": "modality",
    "keyword": "category",
    "original_task": "original task",
}
_NEEDED = ("index", "image", "question", "A", "B")


_BUFFER = 1 << 20  # bytes
_FIELD = re.compile(rb'(?:"((?:[^"]|"")*+)"|((?!")[^\t]*))(\t|\Z)')  # quoted or plain


@dataclass(frozen=True)
class TsvRow:
    """One row."""

    number: int  # row, counted from 1 without the header
    values: Mapping[str, bytes]  # by column; empty ones are left out, so that ``None`` and ``NA`` stay words
    end: int  # bytes of the file up to the end of the row
    fault: str = ""  # what is wrong with the row as a whole, or nothing


class TsvFile:
    """A TSV file that is read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._md5 = hashlib.md5(usedforsecurity=False)

    @property
    def md5(self) -> str:
        """MD5 of the bytes read so far; of the whole file after the last row."""
        return self._md5.hexdigest()

    def rows(self) -> Iterator[TsvRow]:
        """Read rows in order; one with another number of fields than the header has a fault and no values."""
        with self.path.open("rb", buffering=_BUFFER) as stream:
            records = self._records(stream)
            header = next(records, b"")
            columns = _columns(self.path, header)
            end = len(header)
            for number, record in enumerate(records, 1):
                end += len(record)
                fields = _fields(record)
                if fields is None or len(fields) != len(columns):
                    what = "an open quotation" if fields is None else f"{len(fields)} of {len(columns)} fields"
                    cut = " and no line end, the file seems to be cut there" if not record.endswith(b"\n") else ""
                    yield TsvRow(number, {}, end, f"it has {what}{cut}")
                    continue
                values = {column: field for column, field in zip(columns, fields, strict=True) if field}
                yield TsvRow(number, values, end)

    def _records(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield records with their line ends; one goes on over a line end while a quotation is open."""
        for first in stream:
            record = first
            self._md5.update(first)
            while record.count(b'"') % 2:
                more = stream.readline()
                if not more:
                    break
                self._md5.update(more)
                record += more
            yield record


def _columns(path: Path, header: bytes) -> list[str]:
    """Return normalised column names: lower case, but for the capitals that name options."""
    try:
        names = [name.decode("utf-8-sig").strip() for name in _fields(header) or []]
    except UnicodeDecodeError as error:
        raise SourceError(f"{path} is no UTF-8 text; is it the benchmark's TSV file?") from error
    columns = [name if re.fullmatch("[A-Z]", name) else name.lower() for name in names]
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if not header.strip() or twice:
        what = f"names the column '{twice[0]}' twice" if twice else "has no header"
        raise SourceError(f"{path} {what}; is it the benchmark's TSV file?")
    return columns


def _fields(record: bytes) -> list[bytes] | None:
    """Cut a record at its tabs; None where a quotation is left open or does not end at a tab."""
    record = record.removesuffix(b"\n").removesuffix(b"\r")
    if b'"' not in record:
        return record.split(b"\t")
    fields, position = [], 0
    while field := _FIELD.match(record, position):
        quoted, plain, tab = field.groups()
        fields.append(plain if quoted is None else quoted.replace(b'""', b'"'))
        if not tab:
            return fields
        position = field.end()
    return None


@dataclass
class Question:
    """One row on its way to a document."""

    place: str  # file and row, for messages
    document: dict[str, Any] | None  # columns of the document but its image
    image: StoredImage | str | None = None  # its image, or the index of the row that has it; None where that is broken
    cause: str = ""  # why the row cannot be used


def read_questions(file: TsvFile, images: ImageStore, *, keyed: bool, several: bool) -> list[Question]:
    """Read all rows of a file, in order, and store their images; pointers to other rows are not followed yet.

    A progress bar shows the bytes read. Only ``keyed`` rows have an answer, which may be ``several`` letters.
    """
    size, name = file.path.stat().st_size, file.path.name

    def read(row: TsvRow) -> Question:
        question = _read_row(f"{name} row {row.number}", row, keyed, several)
        value = row.values.get("image", b"")
        if question.document is not None and len(value) <= _POINTER:
            question.image = value.decode("utf-8", "replace")
        elif question.document is not None:
            try:
                question.image = images.add_bytes(binascii.a2b_base64(value, strict_mode=True))
            except binascii.Error:
                question.cause = "its image is broken (it is no base64)"
            except UnreadableImage as error:
                question.cause = f"its image is broken ({error})"
        return question

    def reading(bar: Any) -> Iterator[Callable[[], Question]]:
        for row in file.rows():
            bar.update(row.end - bar.n)
            yield functools.partial(read, row)

    with tqdm(desc=f"Reading {name}", total=size, unit="B", unit_scale=True, leave=False, disable=None) as bar:
        return list(in_order(reading(bar)))


def rows_of(questions: Sequence[Question]) -> Iterator[PublishedRow]:
    """Follow pointers, and yield the rows that :func:`medtasks.data.prepare.source_recipe.prepare_recipe` takes."""
    known = {question.document["doc_id"]: question for question in questions if question.document}
    shown = [_followed(question, known) for question in questions]
    cases = _cases(questions, shown)
    for question, image, case in zip(questions, shown, cases, strict=True):
        if question.document is None or isinstance(image, str):
            yield PublishedRow(question.place, None, cause=question.cause or str(image))
        else:
            yield PublishedRow(question.place, {**question.document, "image_id": case}, [image])


def _read_row(place: str, row: TsvRow, keyed: bool, several: bool) -> Question:
    if row.fault:
        return Question(place, None, cause=row.fault)
    try:
        texts = {column: value.decode("utf-8") for column, value in row.values.items() if column != "image"}
    except UnicodeDecodeError:
        return Question(place, None, cause="its text is not UTF-8")
    missing = [column for column in _NEEDED if column not in row.values]
    place = f"{place} (index {texts['index']})" if "index" in texts else place
    if missing:
        return Question(place, None, cause=f"it has no {missing[0]}")
    given = [letter for letter in ascii_uppercase if letter in texts]
    if given != list(ascii_uppercase[: len(given)]):
        absent = next(letter for letter in ascii_uppercase if letter not in given)
        return Question(place, None, cause=f"it has an option {given[-1]} and no option {absent}")
    document: dict[str, Any] = {
        "doc_id": texts["index"],
        "patient_id": None,
        "hint": texts.get("hint"),
        "question": texts["question"],
        "options": [texts[letter] for letter in given],
        **{column: texts.get(name) for column, name in _GROUPS.items()},
    }
    if not keyed:
        return Question(place, {**document, "answer": None})
    letters = (
        [letter.strip() for letter in texts.get("answer", "").split(",")] if several else [texts.get("answer", "")]
    )
    wrong = [letter for letter in letters if letter not in given]
    if wrong:
        return Question(place, None, cause=f"its answer is '{wrong[0]}', and the options are {', '.join(given)}")
    key = {"answers": sorted(set(letters))} if several else {"answer": letters[0]}
    return Question(place, {**document, **key})


def _followed(question: Question, known: Mapping[str, Question]) -> StoredImage | str:
    image, seen = question.image, {id(question)}
    while isinstance(image, str):
        target = known.get(image)
        if target is None or id(target) in seen:
            return f"its image is that of row index {image}, which {'is not there' if target is None else 'has none'}"
        seen.add(id(target))
        image = target.image
    return question.cause or "the row whose image it shows has a broken one" if image is None else image


def _cases(questions: Sequence[Question], shown: Sequence[StoredImage | str]) -> list[str]:
    """Return for each question the case it shows: its image, or the first image of its case."""
    first: dict[str, str] = {}

    def case_of(image: str) -> str:
        while first.get(image, image) != image:
            image = first[image]
        return image

    masks: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    contours: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for question, image in zip(questions, shown, strict=True):
        document = question.document
        if document is None or isinstance(image, str):
            continue
        options = document["options"]
        key = [options[ord(letter) - ord("A")] for letter in document.get("answers") or [document["answer"]] if letter]
        groups = [document[column] for column in _GROUPS if column != "granularity"]
        texts = (document["question"], *sorted(options), None, *key, None, *groups)
        for word, drawn in (("mask", masks), ("contour", contours)):
            if word in (document["granularity"] or "").casefold():
                drawn[texts].append(image.image_id)
    for texts, ids in masks.items():
        for mask, contour in zip(ids, contours.get(texts, ()), strict=False):
            first[case_of(contour)] = case_of(mask)
    return ["" if isinstance(image, str) else case_of(image.image_id) for image in shown]


VALIDATION, TEST, MULTI_ANSWER_SET = GMAI
_VALIDATION_NAMES = ("GMAI-MMBench_VAL.tsv", "GMAI_mm_bench_VAL.tsv")


def _recipe(info: DatasetInfo, options: Options) -> SourceRecipe:
    digests: dict[str, str] = {}
    return SourceRecipe(
        columns=MULTI_ANSWER if info is MULTI_ANSWER_SET else GROUPED_CHOICE,
        test=functools.partial(_rows, info, options, digests),
        layout=", ".join(info.md5) or "the benchmark's TSV columns, with answers such as 'A,C', in one .tsv file",
        download=hub_download(info, list(info.md5)) if info.md5 else None,
        revision=lambda _: info.revision if not _changed(info, digests) else "local",
        counted=not options.allow_changed,
    )


def _rows(
    info: DatasetInfo, options: Options, digests: dict[str, str], source: Path, images: ImageStore
) -> Iterator[PublishedRow]:
    questions: list[Question] = []
    for path in tsv_files(info, source):
        part, digests[path.name] = _read_file(info, path, images)
        changed = _changed(info, {path.name: digests[path.name]})
        if changed and not options.allow_changed:
            faults = (f": {row.place}: {row.cause}" for row in part if row.document is None or row.cause)
            raise SourceError(
                f"{path} is not the published file (MD5 {digests[path.name]}, published {changed[0]})"
                f"{next(faults, '')}; download it again, or accept this one with --allow-changed"
            )
        questions += part
    yield from rows_of(questions)


def tsv_files(info: DatasetInfo, source: Path) -> list[Path]:
    """Find the files of a part in ``source``, a folder that holds them or the single file itself."""
    if source.is_file():
        return [source]
    if info is MULTI_ANSWER_SET:
        found = sorted(source.glob("*.tsv"))
        if len(found) != 1:
            raise not_found(source, "single .tsv file", "name the file itself with --source")
        return found
    if info is VALIDATION:
        return [required_file(source, _VALIDATION_NAMES).path]
    missing = [name for name in info.md5 if not (source / name).is_file()]
    if missing:
        raise not_found(source, missing[0])
    return [source / name for name in info.md5]


def _changed(info: DatasetInfo, digests: Mapping[str, str]) -> list[str]:
    """Return the published digest of each file that has another one."""
    only = next(iter(info.md5.values())) if len(info.md5) == 1 else None
    wanted = {name: only or info.md5.get(name, digest) for name, digest in digests.items()}
    return [wanted[name] for name, digest in digests.items() if digest != wanted[name]]


def _read_file(info: DatasetInfo, path: Path, images: ImageStore) -> tuple[list[Question], str]:
    """Read one file, or take what an earlier attempt noted of it; with its MD5."""
    state = path.stat()
    mark = f"{path.name} {state.st_size} {state.st_mtime_ns}"
    note = images.folder / SCRATCH / "parts" / f"{path.name}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # no note, or one that is damaged
        noted = json.loads(note.read_text(encoding="utf-8"))
        if noted["mark"] == mark:
            return [_recalled(entry, images) for entry in noted["questions"]], str(noted["md5"])
    file = TsvFile(path)
    questions = read_questions(file, images, keyed=info is not TEST, several=info is MULTI_ANSWER_SET)
    facts = images.facts
    kept = [
        dataclasses.asdict(question)
        | ({"facts": dataclasses.asdict(facts[question.image.file])} if isinstance(question.image, StoredImage) else {})
        for question in questions
    ]
    with written_whole(note) as partial:
        partial.write_text(json.dumps({"mark": mark, "md5": file.md5, "questions": kept}), encoding="utf-8")
    return questions, file.md5


def _recalled(entry: dict[str, Any], images: ImageStore) -> Question:
    image = entry["image"]
    if isinstance(image, dict):
        facts = ImageFacts(entry["facts"]["sha256"], tuple(entry["facts"]["conversions"]))
        image = images.recall(StoredImage(**image), facts)
    return Question(entry["place"], entry["document"], image, entry["cause"])


RECIPES: Mapping[str, Callable[[Options], SourceRecipe]] = {
    info.name: functools.partial(_recipe, info) for info in GMAI
}
