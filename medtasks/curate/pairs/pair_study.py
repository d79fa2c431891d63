"""From a list of images with captions to a study of confusing pairs.

The list is a JSONL file with ``id``, ``image`` (a path relative to the file) and ``caption`` in each line; it may have
``group`` and ``licence``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medtasks.curate.pairs.embeddings import UNUSABLE, Embedded, embedded, file_digests
from medtasks.curate.pairs.encoders import GENERAL, MEDICAL, open_encoder
from medtasks.curate.pairs.pair_search import ConfusingPairs, Limits, best_per_image, find_pairs, usual_similarities
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    STUDY,
    ImagePair,
    Study,
    StudyImage,
    StudyKind,
    begun,
    check_own_folder,
    list_rows,
    write_lines,
)
from medtasks.data.catalogue import Access
from medtasks.data.duplicates.image_hashes import ImageHash, hash_images, near_pairs
from medtasks.errors import MedTasksError, SourceError, near_match
from medtasks.net.journal import digest_of

KEYS = ("id", "image", "caption", "group", "licence")
NO_CAPTION, NO_FILE = "without a caption", "image file missing"
ONE_GROUP, NEAR_DUPLICATES, TOO_OFTEN = "pairs of one group", "pairs of near-duplicates", "pairs beyond --per-image"
_UNREADABLE = ImageHash(file_sha256="", pixels_sha256="", size=(0, 0), views=())


@dataclass(frozen=True, slots=True)
class ListedImage:
    """One image of a list."""

    image_id: str
    file: Path  # absolute
    caption: str
    group: str | None = None  # patient, study or article
    licence: str | None = None


@dataclass(frozen=True)
class ImageList:
    """A list of images with captions."""

    images: tuple[ListedImage, ...]  # by id, all with a caption and a file
    left_out: Counter[str]  # number of other rows by reason
    unused: tuple[str, ...] = ()  # unknown keys of its rows

    @property
    def files(self) -> list[Path]:
        """The files of the images."""
        return [image.file for image in self.images]

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with every row that counts; not with the pixels."""
        return digest_of([(im.image_id, str(im.file), im.caption, im.group, im.licence) for im in self.images])[:16]


@dataclass(frozen=True)
class PairOptions:
    """Settings by which pairs are chosen."""

    medical_encoder: str = MEDICAL
    general_encoder: str = GENERAL
    limits: Limits = field(default_factory=Limits)
    sample: int | None = None  # number of pairs drawn at random; None: all are compared
    seed: int = 0
    per_image: int | None = None  # most pairs an image may be in
    keep_near_duplicates: bool = False


@dataclass(frozen=True)
class PairStudy:
    """A study of pairs and how it came about."""

    study: Study
    listed: ImageList
    pairs: ConfusingPairs | None  # None for a study that was there before


def read_image_list(source: Path) -> ImageList:
    """Read the images of a list that have a caption and a file; SourceError for one that holds fewer than two."""
    source = source.expanduser().absolute()
    if not source.is_file():
        raise SourceError(f"there is no file {source}; give a file of lines with {', '.join(KEYS[:3])}")
    images: list[ListedImage] = []
    left_out: Counter[str] = Counter()
    keys: set[str] = set()
    for row in list_rows(source, "id"):
        keys.update(row.values)
        caption = row.values.get("caption")
        caption = caption.strip() if isinstance(caption, str) else ""
        image, group, licence = (
            None if row.values.get(key) in (None, "") else row.name(key) for key in ("image", "group", "licence")
        )
        try:
            file = source.parent / image if image and (source.parent / image).is_file() else None
        except OSError:  # of a name that is too long, for example
            file = None
        if file is None or not caption:
            left_out[NO_CAPTION if file else NO_FILE] += 1
        else:
            images.append(ListedImage(row.name("id"), file, caption, group, licence))
    if keys and "caption" not in keys:
        raise SourceError(f'{source}: no line has a caption; add "caption": "..."{near_match("caption", keys)}')
    if len(images) < 2:
        why = "; ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise SourceError(f"{source} holds {len(images)} usable images{f' ({why})' if why else ''}; pairs need two")
    images.sort(key=lambda image: image.image_id)
    return ImageList(tuple(images), left_out, tuple(sorted(keys.difference(KEYS))))


def make_pair_study(
    source: Path, folder: Path, name: str, access: Access, options: PairOptions, batch_size: int, device: str | None
) -> PairStudy:
    """Embed the images of a list, choose pairs, and write them to the folder of a study.

    The same call changes nothing in a study that is whole; embeddings that an interrupted one made are kept.

    SourceError: the list cannot be used. MedTasksError: the folder holds a study that was made with something else, an
    encoder cannot be used, or no pair is confusing.
    """
    if not (folder / STUDY).exists():
        check_own_folder(folder, source)
    listed = read_image_list(source)
    encoders = {
        "medical_encoder": open_encoder(options.medical_encoder, device),
        "general_encoder": open_encoder(options.general_encoder, device, "--general-encoder"),
    }
    made_with: dict[str, Any] = {
        **{role: {"name": encoder.name, "digest": encoder.digest} for role, encoder in encoders.items()},
        "sim_med": options.limits.sim_med,
        "sim_gen": options.limits.sim_gen,
        "sample": options.sample,
        "seed": options.seed,
        "per_image": options.per_image,
        "near_duplicates": "kept" if options.keep_near_duplicates else "left out",
        "list": listed.digest,
    }
    planned = Study(name=name, kind=StudyKind.PAIRS, access=access, source=str(source.absolute()), made_with=made_with)
    if existing := begun(folder, planned):
        return PairStudy(existing, listed, None)
    digests = file_digests(listed.files)
    spaces = {role: embedded(listed.files, digests, encoder, batch_size) for role, encoder in encoders.items()}
    images, pairs, counts = _chosen_pairs(listed, spaces, options)
    dimensions = {role: {**made_with[role], "dimension": space.dimension} for role, space in spaces.items()}
    study = planned.model_copy(update={"made_with": {**made_with, **dimensions, "counts": counts}})
    _write(folder, study, pairs, images, dict(zip(listed.files, digests, strict=True)))
    return PairStudy(study, listed, pairs)


def _chosen_pairs(
    listed: ImageList, spaces: Mapping[str, Embedded], options: PairOptions
) -> tuple[list[ListedImage], ConfusingPairs, dict[str, int]]:
    """Return the images with both embeddings, the pairs chosen among them, and the counts for the study's record."""
    medical, general = spaces.values()
    in_both = np.intersect1d(medical.kept, general.kept)
    images = [listed.images[number] for number in in_both]
    counts = medical.left_out.copy()
    counts[UNUSABLE] = 0  # unreadable images are the same for both encoders, but each may fail on other images
    counts[UNUSABLE] = len(listed.images) - len(images) - counts.total()
    counts += listed.left_out
    if len(images) < 2:
        raise MedTasksError(
            f"{len(images)} of {len(listed.images)} images have embeddings ({_listed(counts)}); pairs need two"
        )
    vectors = [space.vectors[np.searchsorted(space.kept, in_both)] for space in (medical, general)]
    numbers: dict[str | None, int] = {None: -1}
    groups = np.array([numbers.setdefault(image.group, len(numbers)) for image in images], np.int64)
    confusing = find_pairs(vectors[0], vectors[1], options.limits, groups, sample=options.sample, seed=options.seed)
    pairs = confusing
    counts[ONE_GROUP] = confusing.of_one_group
    if not options.keep_near_duplicates:
        hashes = hash_images([images[number].file for number in np.unique([pairs.first, pairs.second])])[0]
        hashed = [(image.file, hashes.get(image.file, _UNREADABLE)) for image in images]
        same = np.array(near_pairs(hashed, zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)), bool)
        counts[NEAR_DUPLICATES] = int(same.sum())
        pairs = pairs.where(~same)
    if options.per_image is not None:
        best = best_per_image(pairs, options.per_image)
        counts[TOO_OFTEN] = len(pairs) - len(best)
        pairs = best
    if not len(pairs):
        usual = [usual_similarities(space) for space in vectors]
        raise MedTasksError(
            f"none of {confusing.compared:,} pairs of {len(images):,} images is left with a medical similarity of at "
            f"least {options.limits.sim_med} and a general one of at most {options.limits.sim_gen} "
            f"({_listed(counts)}). Of pairs drawn at random the medical ones are {usual[0]}, the general ones "
            f"{usual[1]}; change --sim-med or --sim-gen, the embeddings are kept"
        )
    totals = {"images compared": len(images), "pairs compared": confusing.compared, "pairs chosen": len(pairs)}
    return images, pairs, {**totals, **counts}


def _write(
    folder: Path, study: Study, pairs: ConfusingPairs, images: Sequence[ListedImage], digests: Mapping[Path, bytes]
) -> None:
    """Write the images of the pairs, the pairs, and last the study, which marks the folder as complete."""
    records = []
    for image in (images[number] for number in np.unique(np.concatenate([pairs.first, pairs.second]))):
        about = {"image_id": image.image_id, "group": image.group, "licence": image.licence, "text": image.caption}
        records.append(StudyImage(file=str(image.file), sha256=digests[image.file].hex(), **about))
    write_lines(folder / IMAGES, records)
    rows = zip(*(part.tolist() for part in (pairs.first, pairs.second, pairs.sim_med, pairs.sim_gen)), strict=True)
    width, chosen = len(str(len(pairs))), []
    for number, (first, second, sim_med, sim_gen) in enumerate(rows, 1):
        ids = (images[first].image_id, images[second].image_id)
        chosen.append(ImagePair(pair_id=f"pair_{number:0{width}d}", images=ids, sim_med=sim_med, sim_gen=sim_gen))
    write_lines(folder / PAIRS, chosen)
    study.write(folder)


def _listed(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()) if count) or "none was left out"
