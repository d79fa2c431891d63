"""Preparing MediConfusion: a local copy, the published files with images from PubMed Central, or the drawn sample.

A published file (``dataset.json``, ``dataset.csv``, ``image_dict.json``) that is missing or malformed is a SourceError,
which names the pair and the field.
"""

import ast
import csv
import dataclasses
import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.downloads import Published, download
from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.manifest import Manifest, file_sha256
from medtasks.data.preparation import Options, Recipe, Row, prepare_recipe
from medtasks.data.safe_parsing import parse_json
from medtasks.data.schema import PAIRED_CHOICE
from medtasks.data.source_files import find_file
from medtasks.data.store import SCRATCH
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import SourceError

QUESTIONS_VARIABLE = "MEDTASKS_MEDICONFUSION_URL"
_QUESTIONS_URL = f"https://raw.githubusercontent.com/AIF4S/MediConfusion/{MEDICONFUSION.revision}/data"
DEMONSTRATIONS = "few_shot_prompts"
LETTERS = ("A", "B")
_TEXT_FIELDS = ("question", "option_A", "option_B", "im_1_correct", "im_2_correct")
_IMAGE_FIELDS = ("im_1", "im_2", "im_1_local", "im_2_local")
_LIST_FIELDS = ("category_1", "category_2")
FIELDS = (*_TEXT_FIELDS, *_IMAGE_FIELDS, *_LIST_FIELDS)


@dataclass(frozen=True)
class PairImage:
    """One image of a pair: its id, its key and its categories."""

    image_id: str
    answer: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """One pair: a question with two options, asked of two images."""

    pair_id: str
    question: str
    options: tuple[str, str]
    images: tuple[PairImage, PairImage]


def prepare(options: Options) -> Manifest:
    """Prepare MediConfusion under ``MEDTASKS_HOME``, and return its manifest; every unusable image is counted."""
    if options.source is not None:
        find_question_file(options.source)  # before anything is written
    recipe = Recipe(
        columns=PAIRED_CHOICE,
        test=functools.partial(_rows, options),
        layout="dataset.json or dataset.csv and images/<number>.jpg",
        download=_download_questions,
        revision=lambda source: "sample" if options.sample else _revision(source),
    )
    # Whether there are all pairs is told together with the images that are missing.
    return prepare_recipe(dataclasses.replace(MEDICONFUSION, rows=None), recipe, options)


def _rows(options: Options, source: Path, images: ImageStore) -> Iterator[Row]:
    question_file = find_question_file(source)
    pairs = read_pairs(question_file)
    stored, causes = _stored_images(pairs, question_file.parent, images, options)
    yield from (Row("", None, cause=cause) for cause in _left_out(pairs, causes, options))
    for pair in pairs:
        if causes.keys().isdisjoint(image.image_id for image in pair.images):
            for position, image in enumerate(pair.images, 1):
                place = f"{question_file.name} pair {pair.pair_id}"
                yield Row(place, _document(pair, position), [stored[image.image_id]])
    demonstrations = question_file.parent / DEMONSTRATIONS
    if demonstrations.is_dir():
        target = images.folder / DEMONSTRATIONS
        shutil.copytree(demonstrations, target, dirs_exist_ok=True, copy_function=shutil.copyfile)


def _stored_images(
    pairs: Sequence[Pair], source: Path, images: ImageStore, options: Options
) -> tuple[dict[str, StoredImage], dict[str, str]]:
    """Store all images, fetched where that is asked for; return them by id, and the cause for each unusable one."""
    wanted = sorted({image.image_id for pair in pairs for image in pair.images})
    files = {name: source / "images" / f"{name}.jpg" for name in wanted}
    causes = {name: f"{file} is missing" for name, file in files.items() if not file.is_file()}
    if causes and (options.fetch_images or options.source is None):
        # A folder of their own: what an interrupted run stored from another source must not pass for fetched.
        files |= {name: images.folder / SCRATCH / "fetched" / f"{name}.jpg" for name in causes}
        causes = _fetch_images(read_links(source / "image_dict.json"), {name: files[name] for name in causes})
    stored = {}
    usable = [name for name in wanted if name not in causes]
    for name in tqdm(usable, desc="Checking images", unit="image", leave=False, disable=None):
        try:
            stored[name] = images.add_file(files[name], f"{name}.jpg")
        except UnreadableImage as error:
            causes[name] = f"{name}.jpg is broken ({error})"
    return stored, causes


def _revision(source: Path) -> str:
    question_file = find_question_file(source)
    published = MEDICONFUSION.sha256[question_file.name]
    return MEDICONFUSION.revision if file_sha256(question_file) == published else "local"


def _download_questions(folder: Path) -> Path:
    base = os.environ.get(QUESTIONS_VARIABLE, _QUESTIONS_URL)
    for name, digest in MEDICONFUSION.sha256.items():
        if name == "dataset.csv":
            continue
        try:
            download(Published(f"{base}/{name}", sha256=digest), folder / name)
        except SourceError as error:
            if error.__cause__ is None:
                what = f"{base}/{name} is not the published file (its SHA-256 differs); try again later"
                raise SourceError(what) from error
            raise SourceError(
                f"cannot download {name} of MediConfusion from {base} ({type(error.__cause__).__name__}); check the "
                f"connection and run the command again, or clone {MEDICONFUSION.source} and add "
                f"'--source CLONE/data --fetch-images'"
            ) from error
    return folder


def _fetch_images(links: Mapping[str, tuple[str, str]], targets: Mapping[str, Path]) -> dict[str, str]:
    """Fetch images to their targets, both by image id; return the cause for each that cannot be had."""
    from medtasks.data.pmc import Figure, fetch_figures, pmc_id_of

    causes = {name: f"image {name} is not listed in image_dict.json" for name in targets if name not in links}
    figures = {
        Figure(pmc_id_of(links[name][0]), links[name][1], target): name
        for name, target in targets.items()
        if name in links
    }
    return causes | {figures[figure]: cause for figure, cause in fetch_figures(list(figures)).items()}


def _left_out(pairs: Sequence[Pair], causes: Mapping[str, str], options: Options) -> list[str]:
    notes = [causes[name] for name in sorted(causes)]
    expected = (MEDICONFUSION.rows or 0) // 2
    if not options.sample and len(pairs) != expected:
        notes.append(f"the question file holds {len(pairs)} pairs, the published set {expected}")
    if notes and not options.allow_incomplete:
        pairs_hit = sum(any(image.image_id in causes for image in pair.images) for pair in pairs)
        total = len({image.image_id for pair in pairs for image in pair.images})
        more = f" and {len(notes) - 3} more" if len(notes) > 3 else ""
        fetch = "" if options.fetch_images or options.source is None else ", add --fetch-images,"
        raise SourceError(
            f"MediConfusion is incomplete ({len(causes)} of {total} images unusable, in {pairs_hit} of {len(pairs)} "
            f"pairs): {'; '.join(notes[:3])}{more}. Complete the source{fetch} or accept the loss with "
            f"--allow-incomplete"
        )
    return notes


def _document(pair: Pair, position: int) -> dict[str, Any]:
    image = pair.images[position - 1]
    return {
        **dict.fromkeys(PAIRED_CHOICE),  # in the order of the schema
        "doc_id": f"{pair.pair_id}/{position}",
        "pair_id": pair.pair_id,
        "position": position,
        "image_id": image.image_id,
        "question": pair.question,
        "options": list(pair.options),
        "answer": image.answer,
        "categories": list(image.categories),
    }


def find_question_file(folder: Path) -> Path:
    """Return ``dataset.json`` (preferred) or ``dataset.csv`` in ``folder`` or its ``data/`` subfolder."""
    if not folder.is_dir():
        raise SourceError(f"--source {folder} is not a folder; give the folder that holds dataset.json and images/")
    file = find_file(folder, ["dataset.json", "dataset.csv", "data/dataset.json", "data/dataset.csv"])
    if file is not None:
        return file.path
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
        entries = parse_json(path.read_text(encoding="utf-8"))
        return {str(e["local"]): (str(e["dlink"]), str(e["file_name"])) for e in entries.values()}
    except FileNotFoundError as error:
        raise SourceError(f"{path} is missing; it names the article each image comes from") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SourceError(f"{path} is malformed ({error!r}); get it again from the published repository") from error


def _json_records(path: Path) -> Iterable[tuple[str, Mapping[str, Any]]]:
    try:
        data = parse_json(path.read_text(encoding="utf-8"), object_pairs_hook=_unique)
    except ValueError as error:
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
        images.append(PairImage(image_id, answer, tuple(record[f"category_{position}"])))
    options = (record["option_A"], record["option_B"])
    return Pair(pair_id, record["question"], options, (images[0], images[1]))


def _is_unicode(value: Any) -> bool:
    """Whether ``value`` is a text that can be stored; JSON may spell half a surrogate pair."""
    try:
        return isinstance(value, str) and bool(value.encode())
    except UnicodeEncodeError:
        return False
