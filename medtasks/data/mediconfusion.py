"""Preparing MediConfusion: a local copy, the published files with images from PubMed Central, or the drawn sample."""

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import requests
from tqdm import tqdm

from medtasks.data.catalogue import MEDICONFUSION
from medtasks.data.decoding import REFERENCE
from medtasks.data.home import written_whole
from medtasks.data.image_store import ImageFacts
from medtasks.data.manifest import Manifest, file_sha256, measured, read_facts
from medtasks.data.mediconfusion_source import Pair, find_question_file, read_links, read_pairs
from medtasks.data.preparation import Options
from medtasks.data.schema import PAIRED_CHOICE
from medtasks.data.store import SCRATCH, publish, work_folder
from medtasks.errors import SourceError

QUESTIONS_VARIABLE = "MEDTASKS_MEDICONFUSION_URL"
_QUESTIONS_URL = f"https://raw.githubusercontent.com/AIF4S/MediConfusion/{MEDICONFUSION.revision}/data"
DEMONSTRATIONS = "few_shot_prompts"


def prepare(options: Options) -> Manifest:
    """Prepare MediConfusion under ``MEDTASKS_HOME``, and return its manifest; every unusable image is counted."""
    question_file = find_question_file(options.source) if options.source else None
    with work_folder(MEDICONFUSION.name) as work:
        question_file = question_file or _download_questions(work / SCRATCH / "source")
        pairs = read_pairs(question_file)
        revision = _revision(question_file, options)
        facts, causes = _gather_images(pairs, question_file.parent, work, options)
        left_out = _left_out(pairs, causes, options)
        kept = [pair for pair in pairs if not any(image.image_id in causes for image in pair.images)]
        documents = [_document(pair, position, work / "images") for pair in kept for position in (1, 2)]
        used = {document["image_id"] for document in documents}
        _tidy(work, used, question_file.parent / DEMONSTRATIONS)
        origin = str(options.source.resolve()) if options.source else MEDICONFUSION.source
        manifest = Manifest(
            name=MEDICONFUSION.name,
            source="drawn sample of medtasks (no patient images)" if options.sample else origin,
            revision=revision,
            access=MEDICONFUSION.access,
            sample=options.sample,
            complete=not left_out,
            left_out=tuple(left_out),
            **measured(documents, {name: facts[name] for name in used}),
        )
        publish(work, manifest, documents, PAIRED_CHOICE)
    return manifest


def _gather_images(
    pairs: Sequence[Pair], source: Path, work: Path, options: Options
) -> tuple[dict[str, ImageFacts], dict[str, str]]:
    """Bring all images into ``work/images``; return what is known of each, and the cause for each unusable one."""
    wanted = sorted({image.image_id for pair in pairs for image in pair.images})
    images, fetched = work / "images", work / SCRATCH / "fetched"
    images.mkdir(exist_ok=True)
    causes = _copy_images(source / "images", images, wanted)
    if causes and (options.fetch_images or options.source is None):
        # A folder of their own: what an interrupted run copied from another source must not pass for fetched.
        lacking = list(causes)
        causes = _fetch_images(read_links(source / "image_dict.json"), fetched, lacking)
        causes |= _copy_images(fetched, images, [name for name in lacking if name not in causes])
    facts, broken = _decode(images, [name for name in wanted if name not in causes])
    return facts, causes | broken


def _revision(question_file: Path, options: Options) -> str:
    if options.sample:
        return "sample"
    published = MEDICONFUSION.sha256[question_file.name]
    return MEDICONFUSION.revision if file_sha256(question_file) == published else "local"


def _download_questions(folder: Path) -> Path:
    base = os.environ.get(QUESTIONS_VARIABLE, _QUESTIONS_URL)
    for name, digest in MEDICONFUSION.sha256.items():
        if name == "dataset.csv":
            continue
        target = folder / name
        if target.is_file() and file_sha256(target) == digest:
            continue
        try:
            reply = requests.get(f"{base}/{name}", timeout=60)
            reply.raise_for_status()
        except requests.RequestException as error:
            raise SourceError(
                f"cannot download {name} of MediConfusion from {base} ({type(error).__name__}); check the connection "
                f"and run the command again, or clone {MEDICONFUSION.source} and add "
                f"'--source CLONE/data --fetch-images'"
            ) from error
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(reply.content)
        if file_sha256(target) != digest:
            target.unlink()
            raise SourceError(f"{base}/{name} is not the published file (its SHA-256 differs); try again later")
    return folder / "dataset.json"


def _copy_images(source: Path, images: Path, wanted: Sequence[str]) -> dict[str, str]:
    """Copy what is there; return image id → cause for what is not."""
    causes = {}
    for image_id in tqdm(wanted, desc="Copying images", unit="image", leave=False, disable=None):
        origin, target = source / f"{image_id}.jpg", images / f"{image_id}.jpg"
        if not origin.is_file():
            causes[image_id] = f"{origin} is missing"
        elif not target.is_file() or file_sha256(origin) != file_sha256(target):
            with written_whole(target) as partial:
                shutil.copyfile(origin, partial)
    return causes


def _fetch_images(links: dict[str, tuple[str, str]], images: Path, wanted: Sequence[str]) -> dict[str, str]:
    from medtasks.data.pmc import Figure, fetch_figures, pmc_id_of

    causes = {name: f"image {name} is not listed in image_dict.json" for name in wanted if name not in links}
    figures = {
        Figure(pmc_id_of(links[name][0]), links[name][1], images / f"{name}.jpg"): name
        for name in wanted
        if name in links
    }
    return causes | {figures[figure]: cause for figure, cause in fetch_figures(list(figures)).items()}


def _decode(images: Path, names: Iterable[str]) -> tuple[dict[str, ImageFacts], dict[str, str]]:
    """Decode every image; return what is known of each, and the causes of those that cannot be decoded."""
    facts, causes = {}, {}
    for name in tqdm(list(names), desc="Checking images", unit="image", leave=False, disable=None):
        path = images / f"{name}.jpg"
        try:
            facts[name] = read_facts(path, REFERENCE)
        except OSError as error:
            causes[name] = f"{path.name} is broken ({error})"
    return facts, causes


def _left_out(pairs: Sequence[Pair], causes: dict[str, str], options: Options) -> list[str]:
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


def _document(pair: Pair, position: int, images: Path) -> dict[str, Any]:
    image = pair.images[position - 1]
    return {
        "doc_id": f"{pair.pair_id}/{position}",
        "dataset": MEDICONFUSION.name,
        "pair_id": pair.pair_id,
        "position": position,
        "image_id": image.image_id,
        "image_file": f"images/{image.image_id}.jpg",
        "image_sha256": file_sha256(images / f"{image.image_id}.jpg"),
        "question": pair.question,
        "options": list(pair.options),
        "answer": image.answer,
        "categories": list(image.categories),
    }


def _tidy(work: Path, used: set[str], demonstrations: Path) -> None:
    """Keep only what the documents name, and the demonstration images where the source has them."""
    for path in (work / "images").iterdir():
        if path.stem not in used or path.suffix != ".jpg":
            path.unlink()
    if demonstrations.is_dir():
        shutil.copytree(demonstrations, work / DEMONSTRATIONS, dirs_exist_ok=True, copy_function=shutil.copyfile)
    shutil.rmtree(work / "test", ignore_errors=True)
