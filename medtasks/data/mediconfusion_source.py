"""Reading MediConfusion's published question files (``dataset.json``, ``dataset.csv``, ``image_dict.json``).

A file that is missing or malformed is a SourceError, which names the pair and the field.
"""

import ast
import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medtasks.errors import SourceError

LETTERS = ("A", "B")
_TEXT_FIELDS = ("question", "option_A", "option_B", "im_1_correct", "im_2_correct")
_IMAGE_FIELDS = ("im_1", "im_2", "im_1_local", "im_2_local")
_LIST_FIELDS = ("category_1", "category_2")
FIELDS = (*_TEXT_FIELDS, *_IMAGE_FIELDS, *_LIST_FIELDS)


@dataclass(frozen=True)
class PairImage:
    """One image of a pair: its id, its key and its categories."""

    image_id: str
    roco_path: str
    answer: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """One pair: a question with two options, asked of two images."""

    pair_id: str
    question: str
    options: tuple[str, str]
    images: tuple[PairImage, PairImage]


def find_question_file(folder: Path) -> Path:
    """Return ``dataset.json`` (preferred) or ``dataset.csv`` in ``folder`` or its ``data/`` subfolder."""
    if not folder.is_dir():
        raise SourceError(f"--source {folder} is not a folder; give the folder that holds dataset.json and images/")
    for place in (folder, folder / "data"):
        for name in ("dataset.json", "dataset.csv"):
            if (place / name).is_file():
                return place / name
    raise SourceError(
        f"--source {folder} holds neither dataset.json nor dataset.csv; give a folder laid out like the data/ folder "
        f"of https://github.com/AIF4S/MediConfusion (dataset.json, images/<number>.jpg)"
    )


def read_pairs(path: Path) -> list[Pair]:
    """Read all pairs of a question file in file order."""
    records = _json_records(path) if path.suffix == ".json" else _csv_records(path)
    pairs = [_pair(path, pair_id, record) for pair_id, record in records]
    if not pairs:
        raise SourceError(f"{path} holds no pairs")
    seen: set[str] = set()
    for pair in pairs:
        if pair.pair_id in seen:
            raise SourceError(f"{path}: pair id {pair.pair_id} occurs twice")
        seen.add(pair.pair_id)
    return pairs


def read_links(path: Path) -> dict[str, tuple[str, str]]:
    """Read ``image_dict.json``: image id → (package address, file name in the article)."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {str(e["local"]): (str(e["dlink"]), str(e["file_name"])) for e in entries.values()}
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing; it names the article each image comes from") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path} is malformed ({error!r}); get it again from the published repository") from error


def _json_records(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise SourceError(f"{path} is not valid JSON ({error}); get it again from the published repository") from error
    if not isinstance(data, dict) or not all(isinstance(record, dict) for record in data.values()):
        raise SourceError(f"{path} must be a JSON object of pair id → record, as published")
    return data.items()


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse what ``json`` would settle silently by keeping the last of two members."""
    record = dict(members)
    if len(record) < len(members):
        names = [name for name, _ in members]
        raise ValueError(f"'{next(name for name in names if names.count(name) > 1)}' occurs twice")
    return record


def _csv_records(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    with path.open(encoding="utf-8", newline="") as stream:
        try:
            yield from _csv_rows(path, csv.DictReader(stream))
        except (UnicodeDecodeError, csv.Error) as error:
            raise SourceError(f"{path} is not valid CSV ({error}); use the published file") from error


def _csv_rows(path: Path, reader: "csv.DictReader[str]") -> Iterable[tuple[str, Mapping[str, Any]]]:
    missing = [name for name in ("id", *FIELDS) if name not in (reader.fieldnames or ())]
    if missing:
        raise SourceError(f"{path} lacks column '{missing[0]}'" + _and_more(missing) + "; use the published file")
    for row in reader:
        place = f"{path} line {reader.line_num}"
        if any(row[name] is None for name in ("id", *FIELDS)):
            raise SourceError(f"{place} is cut short; use the published file")
        if None in row:
            raise SourceError(f"{place} has more fields than the header; use the published file")
        record: dict[str, Any] = dict(row)
        for name in _LIST_FIELDS:
            try:
                record[name] = ast.literal_eval(row[name])
            except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
                raise SourceError(f"{place}: column '{name}' is not a list: {row[name]!r}") from error
        yield row["id"], record


def _and_more(missing: list[str]) -> str:
    return f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""


def _pair(path: Path, pair_id: str, record: Mapping[str, Any]) -> Pair:
    if not pair_id.strip():
        raise SourceError(f"{path}: a pair has no id")
    missing = [name for name in FIELDS if name not in record]
    if missing:
        raise SourceError(f"{path}: pair {pair_id} lacks field '{missing[0]}'" + _and_more(missing))
    for name in _TEXT_FIELDS:
        if not isinstance(record[name], str) or not record[name].strip() or not _is_unicode(record[name]):
            raise SourceError(f"{path}: pair {pair_id}: field '{name}' is empty or not text")
    for name in _LIST_FIELDS:
        labels = record[name]
        if not isinstance(labels, list) or not labels or not all(map(_is_unicode, labels)):
            raise SourceError(f"{path}: pair {pair_id}: field '{name}' must be a list of category names")
    images = []
    for position in (1, 2):
        answer = record[f"im_{position}_correct"]
        if answer not in LETTERS:
            raise SourceError(f"{path}: pair {pair_id}: im_{position}_correct is {answer!r}, expected 'A' or 'B'")
        image_id = str(record[f"im_{position}_local"])
        if not (image_id.isascii() and image_id.isdecimal()):
            raise SourceError(f"{path}: pair {pair_id}: im_{position}_local is {image_id!r}, expected a number")
        roco_path, labels = str(record[f"im_{position}"]), tuple(record[f"category_{position}"])
        images.append(PairImage(image_id, roco_path, answer, labels))
    options = (record["option_A"], record["option_B"])
    return Pair(pair_id, record["question"], options, (images[0], images[1]))


def _is_unicode(value: Any) -> bool:
    """Whether ``value`` is a text that can be stored; JSON may spell half a surrogate pair."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False
