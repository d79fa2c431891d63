"""Preparing MediConfusion: a local copy, the published files with images from PubMed Central, or the synthetic sample.

A published file (``dataset.json``, ``dataset.csv``, ``image_dict.json``) that is missing or malformed is a SourceError,
which names the pair and the field.
"""

import ast
import csv
import functools
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from tqdm import tqdm

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.document_store import SCRATCH
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.downloads import (
    Published,
    download,
)
from medtasks.data.prepare.source_files import find_file
from medtasks.data.prepare.source_recipe import Options, PublishedRow, SourceRecipe
from medtasks.data.safe_parsing import parse_json
from medtasks.data.schema import DEMONSTRATIONS_FOLDER, PAIRED_CHOICE
from medtasks.data.sources.pmc import Figure, fetch_figures, pmc_id_of
from medtasks.errors import SourceError

QUESTIONS_VARIABLE = "MEDTASKS_MEDICONFUSION_URL"
_QUESTIONS_URL = f"https://raw.githubusercontent.com/AIF4S/MediConfusion/{MEDICONFUSION.revision}/data"

_Text = Annotated[str, Field(pattern=r"\S")]
_Number = Annotated[str, Field(pattern="^[0-9]+$", coerce_numbers_to_str=True)]
_Labels = Annotated[tuple[_Text, ...], Field(min_length=1)]


class _Record(BaseModel):
    """One published pair."""

    question: _Text
    option_A: _Text
    option_B: _Text
    im_1_correct: Literal["A", "B"]
    im_2_correct: Literal["A", "B"]
    im_1_local: _Number
    im_2_local: _Number
    category_1: _Labels
    category_2: _Labels


_RECORDS = TypeAdapter(dict[_Text, _Record])
_LISTS = ("category_1", "category_2")  # columns of the CSV file that hold lists as Python writes them


@dataclass(frozen=True)
class PairImage:
    """One image of a pair."""

    image_id: str
    answer: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """A question with two options, asked of two images."""

    pair_id: str
    question: str
    options: tuple[str, str]
    images: tuple[PairImage, PairImage]


def _recipe(options: Options) -> SourceRecipe:
    if options.source is not None:
        find_question_file(options.source)  # an error before anything is written

    def revision(source: Path) -> str:
        question_file = find_question_file(source)
        published = file_sha256(question_file) == MEDICONFUSION.sha256[question_file.name]
        return "sample" if options.sample else MEDICONFUSION.revision if published else "local"

    return SourceRecipe(
        columns=PAIRED_CHOICE,
        test=functools.partial(_rows, options),
        layout="dataset.json or dataset.csv and images/<number>.jpg",
        download=_download_questions,
        revision=revision,
        counted=False,  # missing pairs are reported together with missing images
    )


def _rows(options: Options, source: Path, images: ImageStore) -> Iterator[PublishedRow]:
    question_file = find_question_file(source)
    pairs = read_pairs(question_file)
    stored, causes = _stored_images(pairs, question_file.parent, images, options)
    notes = [causes[name] for name in sorted(causes)]
    expected = (MEDICONFUSION.rows or 0) // 2
    if not options.sample and len(pairs) != expected:
        notes.append(f"the question file holds {len(pairs)} pairs, the published set {expected}")
    if notes and not options.allow_incomplete:
        pairs_hit = sum(any(image.image_id in causes for image in pair.images) for pair in pairs)
        more = f" and {len(notes) - 3} more" if len(notes) > 3 else ""
        fetch = "" if options.fetch_images or options.source is None else ", add --fetch-images,"
        raise SourceError(
            f"MediConfusion is incomplete ({len(causes)} of {len(stored.keys() | causes)} images unusable, in "
            f"{pairs_hit} of {len(pairs)} pairs): {'; '.join(notes[:3])}{more}. Complete the source{fetch} or accept "
            f"the loss with --allow-incomplete"
        )
    yield from (PublishedRow("", None, cause=cause) for cause in notes)
    for pair in pairs:
        if causes.keys().isdisjoint(image.image_id for image in pair.images):
            for position, image in enumerate(pair.images, 1):
                document = {
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
                yield PublishedRow(f"{question_file.name} pair {pair.pair_id}", document, [stored[image.image_id]])
    demonstrations = question_file.parent / DEMONSTRATIONS_FOLDER
    if demonstrations.is_dir():
        target = images.folder / DEMONSTRATIONS_FOLDER
        shutil.copytree(demonstrations, target, dirs_exist_ok=True, copy_function=shutil.copyfile)


def _stored_images(
    pairs: Sequence[Pair], source: Path, images: ImageStore, options: Options
) -> tuple[dict[str, StoredImage], dict[str, str]]:
    """Store all images, fetched if the options say so; return them by id, and the cause for each unusable one."""
    image_ids = sorted({image.image_id for pair in pairs for image in pair.images})
    files = {name: source / "images" / f"{name}.jpg" for name in image_ids}
    causes = {name: f"{file} is missing" for name, file in files.items() if not file.is_file()}
    if causes and (options.fetch_images or options.source is None):
        # In a folder apart: images that an interrupted run stored from another source were not fetched.
        files |= {name: images.folder / SCRATCH / "fetched" / f"{name}.jpg" for name in causes}
        links = read_links(source / "image_dict.json")
        figures = {
            Figure(pmc_id_of(links[name][0]), links[name][1], files[name]): name for name in causes if name in links
        }
        causes = {name: f"image {name} is not listed in image_dict.json" for name in causes if name not in links}
        causes |= {figures[figure]: cause for figure, cause in fetch_figures(list(figures)).items()}
    stored = {}
    usable = [name for name in image_ids if name not in causes]
    for name in tqdm(usable, desc="Checking images", unit="image", leave=False, disable=None):
        try:
            stored[name] = images.add_file(files[name], f"{name}.jpg")
        except UnreadableImage as error:
            causes[name] = f"{name}.jpg is broken ({error})"
    return stored, causes


def _download_questions(folder: Path) -> Path:
    base = os.environ.get(QUESTIONS_VARIABLE, _QUESTIONS_URL)
    for name, digest in MEDICONFUSION.sha256.items():
        if name == "dataset.csv":
            continue
        try:
            download(Published(f"{base}/{name}", sha256=digest), folder / name)
        except SourceError as error:
            if error.__cause__ is None:
                raise SourceError(
                    f"{base}/{name} is not the published file (its SHA-256 differs); try again later"
                ) from error
            raise SourceError(
                f"cannot download {name} of MediConfusion from {base} ({type(error.__cause__).__name__}); check the "
                f"connection and run the command again, or clone {MEDICONFUSION.source} and add "
                f"'--source CLONE/data --fetch-images'"
            ) from error
    return folder


def find_question_file(folder: Path) -> Path:
    """Return ``dataset.json`` (preferred) or ``dataset.csv`` in ``folder`` or its ``data/`` subfolder."""
    names = ["dataset.json", "dataset.csv", "data/dataset.json", "data/dataset.csv"]
    file = find_file(folder, names) if folder.is_dir() else None
    if file is None:
        raise SourceError(
            f"--source {folder} holds neither dataset.json nor dataset.csv; give a folder laid out like the data/ "
            f"folder of https://github.com/AIF4S/MediConfusion (dataset.json, images/<number>.jpg)"
        )
    return file.path


def read_pairs(path: Path) -> list[Pair]:
    """Read all pairs of a question file in file order."""
    try:
        if path.suffix == ".json":
            records = _RECORDS.validate_json(path.read_bytes())
        else:
            with path.open(encoding="utf-8", newline="") as stream:
                rows = [
                    {**row, **{name: ast.literal_eval(row[name]) for name in _LISTS}} for row in csv.DictReader(stream)
                ]
            records = _RECORDS.validate_python({row["id"]: row for row in rows})
    except ValidationError as error:
        first = error.errors()[0]
        location = "".join(
            f", {what} {part!r}" for what, part in zip(("pair", "field", "label"), first["loc"], strict=False)
        )
        raise SourceError(f"{path}{location}: {first['msg']}; get it again from the published repository") from error
    except (csv.Error, KeyError, SyntaxError, TypeError, ValueError) as error:
        raise SourceError(f"{path} is malformed ({error!r}); get it again from the published repository") from error
    if not records:
        raise SourceError(f"{path} holds no pairs")
    pairs = []
    for pair_id, record in records.items():
        first_image = PairImage(record.im_1_local, record.im_1_correct, record.category_1)
        second_image = PairImage(record.im_2_local, record.im_2_correct, record.category_2)
        options = (record.option_A, record.option_B)
        pairs.append(Pair(pair_id, record.question, options, (first_image, second_image)))
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


RECIPES: Mapping[str, Callable[[Options], SourceRecipe]] = {"mediconfusion": _recipe}
