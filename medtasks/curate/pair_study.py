"""From a list of images to a study of confusing pairs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from medtasks.curate.embeddings import UNUSABLE, embedded, file_digests
from medtasks.curate.encoders import GENERAL, MEDICAL, Encoder, open_encoder
from medtasks.curate.image_lists import ImageList, ListedImage, read_image_list
from medtasks.curate.pair_search import FoundPairs, best_per_image, find_pairs, usual_similarities
from medtasks.curate.similarity import Limits, Numbers
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    STUDY,
    ImagePair,
    Study,
    StudyImage,
    StudyKind,
    check_own_folder,
    read_study,
    write_lines,
)
from medtasks.data.catalogue import Access
from medtasks.data.duplicates.image_files import ImageHash, hash_images
from medtasks.data.duplicates.near_images import near_pairs
from medtasks.errors import MedTasksError

ONE_GROUP, NEAR_DUPLICATES, TOO_OFTEN = "pairs of one group", "pairs of near-duplicates", "pairs beyond --per-image"
_OPTIONS = {
    "list": "list of images",
    "medical_encoder": "--encoder",
    "near_duplicates": "--keep-near-duplicates",
    **{
        key: f"--{key.replace('_', '-')}"
        for key in ("name", "access", "general_encoder", "sim_med", "sim_gen", "sample", "seed", "per_image")
    },
}
_UNREADABLE = ImageHash(file_sha256="", pixels_sha256="", size=(0, 0), views=())


@dataclass(frozen=True)
class PairOptions:
    """How pairs are chosen."""

    medical_encoder: str = MEDICAL
    general_encoder: str = GENERAL
    limits: Limits = field(default_factory=Limits)
    sample: int | None = None  # how many pairs are drawn at random; None: all are compared
    seed: int = 0
    per_image: int | None = None  # how many pairs an image may be in
    keep_near_duplicates: bool = False

    def made_with(self, listed: ImageList, encoders: Mapping[str, Encoder]) -> dict[str, Any]:
        """Return what decides about a study, as it records it, but for what is known only when it is made."""
        return {
            **{which: {"name": encoder.name, "digest": encoder.digest} for which, encoder in encoders.items()},
            "sim_med": self.limits.sim_med,
            "sim_gen": self.limits.sim_gen,
            "sample": self.sample,
            "seed": self.seed,
            "per_image": self.per_image,
            "near_duplicates": "kept" if self.keep_near_duplicates else "left out",
            "list": listed.digest,
        }


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

    Raises:
        SourceError: The list cannot be used.
        MedTasksError: The folder holds a study that was made with something else, an encoder cannot be used, or no
            pair is confusing.
    """
    if not (folder / STUDY).exists():
        check_own_folder(folder, source)
    listed = read_image_list(source)
    encoders = {
        "medical_encoder": open_encoder(options.medical_encoder, device),
        "general_encoder": open_encoder(options.general_encoder, device, "--general-encoder"),
    }
    decided = options.made_with(listed, encoders)
    planned = Study(name=name, kind=StudyKind.PAIRS, access=access, source=str(source.absolute()), made_with=decided)
    if (folder / STUDY).exists():
        known = read_study(folder, StudyKind.PAIRS)
        _check_same(folder, known, planned)
        return PairStudy(known, listed, None)
    return _made(planned, folder, listed, encoders, options, batch_size)


def _made(
    planned: Study,
    folder: Path,
    listed: ImageList,
    encoders: Mapping[str, Encoder],
    options: PairOptions,
    batch_size: int,
) -> PairStudy:
    files = [image.file for image in listed.images]
    digests = file_digests(files)
    spaces = {which: embedded(files, digests, encoder, batch_size) for which, encoder in encoders.items()}
    medical, general = spaces.values()
    both = np.intersect1d(medical.kept, general.kept)
    counts = medical.left_out.copy()
    counts[UNUSABLE] = 0  # what cannot be read is lost to both, but each may fail on other images
    counts[UNUSABLE] = len(files) - len(both) - counts.total()
    counts += listed.left_out
    if len(both) < 2:
        raise MedTasksError(f"{len(both)} of {len(files)} images have embeddings ({_said(counts)}); pairs need two")
    images = [listed.images[number] for number in both]
    vectors = [space.vectors[np.searchsorted(space.kept, both)] for space in (medical, general)]
    pairs = find_pairs(
        vectors[0],
        vectors[1],
        options.limits,
        _group_numbers(images),
        sample=options.sample,
        seed=options.seed,
    )
    chosen = _chosen(pairs, images, options, counts)
    if not len(chosen):
        raise _none_chosen(pairs, len(images), options.limits, counts, vectors)
    made_with = {which: {**planned.made_with[which], "dimension": space.dimension} for which, space in spaces.items()}
    kept = {"images compared": len(images), "pairs compared": pairs.compared, "pairs chosen": len(chosen)}
    recall = {} if pairs.recall is None else {"recall": str(pairs.recall)}
    study = planned.model_copy(
        update={"made_with": {**planned.made_with, **made_with, **recall, "counts": {**kept, **counts}}}
    )
    _write(folder, study, chosen, images, [digests[number] for number in both])
    return PairStudy(study, listed, chosen)


def _none_chosen(
    pairs: FoundPairs, images: int, limits: Limits, counts: Counter[str], vectors: Sequence[Any]
) -> MedTasksError:
    medical, general = map(usual_similarities, vectors)
    return MedTasksError(
        f"none of {pairs.compared:,} pairs of {images:,} images is left with a medical similarity of at least "
        f"{limits.sim_med} and a general one of at most {limits.sim_gen} ({_said(counts)}). Of pairs drawn at random "
        f"the medical ones are {medical}, the general ones {general}; change --sim-med or --sim-gen, the embeddings "
        f"are kept"
    )


def _check_same(folder: Path, known: Study, planned: Study) -> None:
    recorded = {"name": known.name, "access": known.access, **known.made_with}
    for key, now in {"name": planned.name, "access": planned.access, **planned.made_with}.items():
        before = recorded.get(key)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            before = {part: before.get(part) for part in now}
        if before != now:
            raise MedTasksError(
                f"{folder} was made with another {_OPTIONS.get(key, key)} ({_shown(before)}, now {_shown(now)}), and a "
                f"study is not changed once it is made; give --out a new folder, embeddings are not computed again"
            )


def _shown(value: Any) -> str:
    return f"{value['name']}, {value['digest'][:8]}" if isinstance(value, Mapping) else str(value)


def _group_numbers(images: Sequence[ListedImage]) -> Numbers:
    numbers: dict[str | None, int] = {None: -1}
    return np.array([numbers.setdefault(image.group, len(numbers)) for image in images], np.int64)


def _chosen(pairs: FoundPairs, images: Sequence[ListedImage], options: PairOptions, counts: Counter[str]) -> FoundPairs:
    """Return the pairs that become the study's, and count the others."""
    counts[ONE_GROUP] = pairs.of_one_group
    if not options.keep_near_duplicates:
        same = near_duplicates([image.file for image in images], pairs)
        counts[NEAR_DUPLICATES] = int(same.sum())
        pairs = pairs.where(~same)
    if options.per_image is not None:
        best = best_per_image(pairs, options.per_image)
        counts[TOO_OFTEN] = len(pairs) - len(best)
        pairs = best
    return pairs


def near_duplicates(files: Sequence[Path], pairs: FoundPairs) -> npt.NDArray[np.bool_]:
    """Return which pairs show the same image twice, by the perceptual hash and details of their files alone."""
    numbers = np.unique(np.concatenate([pairs.first, pairs.second]))
    hashes = hash_images([files[number] for number in numbers])[0]
    images = [(file, hashes.get(file, _UNREADABLE)) for file in files]
    return np.array(near_pairs(images, zip(pairs.first.tolist(), pairs.second.tolist(), strict=True)), bool)


def _write(
    folder: Path, study: Study, pairs: FoundPairs, images: Sequence[ListedImage], digests: Sequence[bytes]
) -> None:
    """Write the images of the pairs, the pairs, and last what says that all of it is there."""
    used = np.unique(np.concatenate([pairs.first, pairs.second])).tolist()
    width = len(str(len(pairs)))
    shown = (
        StudyImage(
            image_id=images[number].image_id,
            file=str(images[number].file),
            sha256=digests[number].hex(),
            text=images[number].caption,
            group=images[number].group,
            licence=images[number].licence,
        )
        for number in used
    )
    rows = zip(*(part.tolist() for part in (pairs.first, pairs.second, pairs.sim_med, pairs.sim_gen)), strict=True)
    write_lines(folder / IMAGES, shown)
    write_lines(
        folder / PAIRS,
        (
            ImagePair(
                pair_id=f"pair_{number:0{width}d}",
                images=(images[first].image_id, images[second].image_id),
                sim_med=sim_med,
                sim_gen=sim_gen,
            )
            for number, (first, second, sim_med, sim_gen) in enumerate(rows, 1)
        ),
    )
    study.write(folder)


def _said(counts: Mapping[str, int]) -> str:
    return "; ".join(f"{reason}: {count}" for reason, count in sorted(counts.items()) if count) or "none was left out"
