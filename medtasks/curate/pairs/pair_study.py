"""From a list of images to a study of confusing pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from medtasks.curate.pairs.embeddings import UNUSABLE, Embedded, embedded, file_digests
from medtasks.curate.pairs.encoders import GENERAL, MEDICAL, open_encoder
from medtasks.curate.pairs.image_lists import ImageList, ListedImage, read_image_list
from medtasks.curate.pairs.pair_search import FoundPairs, Limits, best_per_image, find_pairs, usual_similarities
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
    write_lines,
)
from medtasks.data.catalogue import Access
from medtasks.data.duplicates.image_hashes import ImageHash, hash_images, near_pairs
from medtasks.errors import MedTasksError

ONE_GROUP, NEAR_DUPLICATES, TOO_OFTEN = "pairs of one group", "pairs of near-duplicates", "pairs beyond --per-image"
_UNREADABLE = ImageHash(file_sha256="", pixels_sha256="", size=(0, 0), views=())


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
    pairs: FoundPairs | None  # None for a study that was there before


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
        **{which: {"name": encoder.name, "digest": encoder.digest} for which, encoder in encoders.items()},
        "sim_med": options.limits.sim_med,
        "sim_gen": options.limits.sim_gen,
        "sample": options.sample,
        "seed": options.seed,
        "per_image": options.per_image,
        "near_duplicates": "kept" if options.keep_near_duplicates else "left out",
        "list": listed.digest,
    }
    planned = Study(name=name, kind=StudyKind.PAIRS, access=access, source=str(source.absolute()), made_with=made_with)
    if known := begun(folder, planned):
        return PairStudy(known, listed, None)
    digests = file_digests(listed.files)
    spaces = {which: embedded(listed.files, digests, encoder, batch_size) for which, encoder in encoders.items()}
    images, pairs, counts = _chosen_pairs(listed, spaces, options)
    dimensions = {which: {**made_with[which], "dimension": space.dimension} for which, space in spaces.items()}
    recall = {} if pairs.recall is None else {"recall": str(pairs.recall)}
    study = planned.model_copy(update={"made_with": {**made_with, **dimensions, **recall, "counts": counts}})
    _write(folder, study, pairs, images, dict(zip(listed.files, digests, strict=True)))
    return PairStudy(study, listed, pairs)


def _chosen_pairs(
    listed: ImageList, spaces: Mapping[str, Embedded], options: PairOptions
) -> tuple[list[ListedImage], FoundPairs, dict[str, int]]:
    """Return the images with both embeddings, the pairs chosen among them, and the counts for the study's record."""
    medical, general = spaces.values()
    both = np.intersect1d(medical.kept, general.kept)
    images = [listed.images[number] for number in both]
    counts = medical.left_out.copy()
    counts[UNUSABLE] = 0  # unreadable images are the same for both encoders, but each may fail on other images
    counts[UNUSABLE] = len(listed.images) - len(both) - counts.total()
    counts += listed.left_out
    if len(both) < 2:
        raise MedTasksError(
            f"{len(both)} of {len(listed.images)} images have embeddings ({_said(counts)}); pairs need two"
        )
    vectors = [space.vectors[np.searchsorted(space.kept, both)] for space in (medical, general)]
    numbers: dict[str | None, int] = {None: -1}
    groups = np.array([numbers.setdefault(image.group, len(numbers)) for image in images], np.int64)
    found = find_pairs(vectors[0], vectors[1], options.limits, groups, sample=options.sample, seed=options.seed)
    pairs = found
    counts[ONE_GROUP] = found.of_one_group
    if not options.keep_near_duplicates:
        files = [listed.files[number] for number in both]
        hashes = hash_images([files[number] for number in np.unique([pairs.first, pairs.second])])[0]
        hashed = [(file, hashes.get(file, _UNREADABLE)) for file in files]
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
            f"none of {found.compared:,} pairs of {len(images):,} images is left with a medical similarity of at least "
            f"{options.limits.sim_med} and a general one of at most {options.limits.sim_gen} ({_said(counts)}). Of "
            f"pairs drawn at random the medical ones are {usual[0]}, the general ones {usual[1]}; change --sim-med or "
            f"--sim-gen, the embeddings are kept"
        )
    kept = {"images compared": len(images), "pairs compared": found.compared, "pairs chosen": len(pairs)}
    return images, pairs, {**kept, **counts}


def _write(
    folder: Path, study: Study, pairs: FoundPairs, images: Sequence[ListedImage], digests: Mapping[Path, bytes]
) -> None:
    """Write the images of the pairs, the pairs, and last the study, which tells that all of it is there."""
    used = [images[number] for number in np.unique(np.concatenate([pairs.first, pairs.second]))]
    shown = []
    for image in used:
        about = {"image_id": image.image_id, "group": image.group, "licence": image.licence, "text": image.caption}
        assert image.file is not None  # lists of images leave others out
        shown.append(StudyImage(file=str(image.file), sha256=digests[image.file].hex(), **about))
    write_lines(folder / IMAGES, shown)
    rows = zip(*(part.tolist() for part in (pairs.first, pairs.second, pairs.sim_med, pairs.sim_gen)), strict=True)
    width, chosen = len(str(len(pairs))), []
    for number, (first, second, sim_med, sim_gen) in enumerate(rows, 1):
        both = (images[first].image_id, images[second].image_id)
        chosen.append(ImagePair(pair_id=f"pair_{number:0{width}d}", images=both, sim_med=sim_med, sim_gen=sim_gen))
    write_lines(folder / PAIRS, chosen)
    study.write(folder)


def _said(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()) if count) or "none was left out"
