"""Studies of confusing pairs: images that a medical encoder finds alike and a vision-only one does not.

The images come from a JSONL file with ``id``, ``image`` (a path relative to the file) and ``caption`` in each line; it
may have ``group`` and ``licence``. All pairs are compared, of which MediConfusion drew some at random (section 2), in
blocks of one matrix product of the medical embeddings and, where few pass, the general similarity of those alone.
Similarity is the cosine of two embeddings, rounded to six digits: they are kept in float16, which moves it in the
fourth.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from medtasks.curate.pairs.encoders import (
    UNUSABLE,
    Embeddings,
    Vectors,
    embed_files,
    file_digests,
    open_encoder,
)
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    ImagePair,
    Study,
    StudyImage,
    StudyKind,
    existing_study,
    list_rows,
    write_lines,
    write_study,
)
from medtasks.data.catalogue import Access
from medtasks.data.duplicates.image_hashes import ImageHash, hash_images, near_pairs
from medtasks.data.prepare.source_tables import SourceRow
from medtasks.errors import MedTasksError, SourceError, near_match
from medtasks.net.journal import digest_of

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

MOST_PAIRS = 1_000_000
"""Of more pairs than these, those with the largest gaps are kept."""
# Number of embeddings, or of pairs of embeddings, that are in memory at once in full precision.
_CHUNK = 8192
_ROUGH = 1e-4  # error allowed for similarities computed in float32
_DIGITS = 6
# Size of one block of similarities, which takes 16 MB.
_ROWS, _COLUMNS = 1024, 4096
# Share of a block from which the product of the whole block is faster than gathering.
_FEW = 0.02
_TYPICAL = 2000  # pairs drawn to describe the usual similarities

KEYS = ("id", "image", "caption", "group", "licence")


class Space:
    """The embeddings of images by one encoder. Vectors may have any length but 0."""

    def __init__(self, vectors: Floats) -> None:
        self.vectors: Vectors = vectors.astype(np.float32)
        self.lengths = np.empty(len(vectors), np.float64)
        for start in range(0, len(vectors), _CHUNK):
            part = slice(start, start + _CHUNK)
            self.lengths[part] = np.linalg.norm(vectors[part].astype(np.float64), axis=1)

    def block(self, start: int, size: int) -> Vectors:
        """Return vectors scaled to length 1, shape (size, dimension).

        Args:
            start: Number of the first one.
            size: Most of them.
        """
        part = slice(start, start + size)
        return np.asarray(
            self.vectors[part] / self.lengths[part].astype(np.float32)[:, None], np.float32
        )

    def cosines(self, first: Numbers, second: Numbers, kind: type = np.float32) -> Floats:
        """Return the similarities of pairs, computed in float32 or float64.

        Args:
            first: Numbers of images, shape (pairs,).
            second: Numbers of the others.
            kind: Type to compute in.
        """
        cosines: Floats = np.empty(len(first), kind)
        for start in range(0, len(first), _CHUNK):
            part = slice(start, start + _CHUNK)
            left = first[part]
            right = second[part]
            products = np.einsum(
                "nd,nd->n", self.vectors[left].astype(kind), self.vectors[right].astype(kind)
            )
            cosines[part] = products / (self.lengths[left] * self.lengths[right])
        return cosines


@dataclass(frozen=True)
class ConfusingPairs:
    """Confusing pairs, the largest gap first, and of equal gaps the smallest numbers first."""

    first: Numbers  # number of the first image of each pair
    second: Numbers  # number of the second image, which is larger
    sim_med: Floats  # float64
    sim_gen: Floats
    more: bool  # whether there were more than MOST_PAIRS
    of_one_group: int  # pairs left out because both images are of one group

    @property
    def images(self) -> list[tuple[int, int]]:
        """Numbers of the images of each pair."""
        return list(zip(self.first.tolist(), self.second.tolist(), strict=True))

    def where(self, mask: Mask) -> "ConfusingPairs":
        """Return some of the pairs.

        Args:
            mask: Shape (pairs,), true for those to return.
        """
        columns = ("first", "second", "sim_med", "sim_gen")
        return replace(self, **{name: getattr(self, name)[mask] for name in columns})


class _WidestGaps:
    """Confusing pairs found so far. When there are too many, those with the largest gaps are kept."""

    def __init__(self, most: int) -> None:
        self.floor = -math.inf  # gap that a further pair has to reach
        self._most = most
        self._parts: list[tuple[Floats, ...]] = []
        self._count = 0
        self._more = False

    def add(self, *pairs: Floats) -> None:
        """Add pairs: first and second image, medical and general similarity."""
        self._parts.append(pairs)
        self._count += len(pairs[0])
        if self._count > 2 * self._most:
            widest = tuple(part[: self._most] for part in _by_gap(self._parts))
            self._parts = [widest]
            self._count = self._most
            self._more = True
            self.floor = float(widest[2][-1] - widest[3][-1])

    def pairs(self, of_one_group: int) -> ConfusingPairs:
        """Return the pairs in order."""
        ordered = _by_gap(self._parts)
        more = self._more or len(ordered[0]) > self._most
        first, second, sim_med, sim_gen = (part[: self._most] for part in ordered)
        return ConfusingPairs(first, second, sim_med, sim_gen, more, of_one_group)


def find_pairs(
    medical: Floats,
    general: Floats,
    sim_med: float = 0.9,
    sim_gen: float = 0.75,
    groups: Numbers | None = None,
    most: int = MOST_PAIRS,
) -> ConfusingPairs:
    """Find the confusing pairs of images.

    Args:
        medical: Embeddings, shape (images, dimension), in float16 or float32.
        general: Embeddings of the same images by the other encoder, which may have another dimension.
        sim_med: Smallest medical similarity of a pair.
        sim_gen: Largest general similarity of a pair.
        groups: One number per image, -1 for none. Two images of one group are never a pair. None if no image has a
            group.
        most: Number of pairs to return at most. Of more, those with the largest gaps are kept.

    Example:
        >>> medical = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
        >>> pairs = find_pairs(medical, general=np.eye(3))
        >>> pairs.first, pairs.second, pairs.sim_med
        (array([0]), array([1]), array([0.995037]))
    """
    count = len(medical)
    if groups is None:
        groups = np.full(count, -1, np.int64)
    med = Space(medical)
    gen = Space(general)
    widest = _WidestGaps(most)
    of_one_group = 0
    with tqdm(desc="Comparing", total=count, unit="image", leave=False, disable=None) as bar:
        for top, left in _blocks(count):
            bar.update(top - bar.n)
            alike = med.block(top, _ROWS) @ med.block(left, _COLUMNS).T
            near = alike >= sim_med - _ROUGH
            if left < top + _ROWS:  # a block on the diagonal counts only above the diagonal
                near = np.triu(near, top - left + 1)
            first, second = np.nonzero(near) + np.array([[top], [left]])
            if len(first) > _FEW * near.size:
                rough = (gen.block(top, _ROWS) @ gen.block(left, _COLUMNS).T)[near]
            else:
                rough = gen.cosines(first, second)
            is_wide = alike[near] - rough >= widest.floor - 2 * _ROUGH
            possible = (rough <= sim_gen + _ROUGH) & is_wide
            first = first[possible]
            second = second[possible]
            exact_med = np.round(med.cosines(first, second, np.float64), _DIGITS)
            exact_gen = np.round(gen.cosines(first, second, np.float64), _DIGITS)
            confusing = (exact_med >= sim_med) & (exact_gen <= sim_gen)
            same = confusing & (groups[first] == groups[second]) & (groups[first] >= 0)
            of_one_group += int(same.sum())
            good = confusing & ~same
            widest.add(first[good], second[good], exact_med[good], exact_gen[good])
    return widest.pairs(of_one_group)


def _blocks(count: int) -> Iterator[tuple[int, int]]:
    """Yield the first row and column of the blocks on and above the diagonal."""
    for top in range(0, count, _ROWS):
        for left in range(top, count, _COLUMNS):
            yield top, left


def _by_gap(parts: Sequence[tuple[Floats, ...]]) -> list[Floats]:
    """Join parts of pairs, and sort these as :class:`ConfusingPairs` says."""
    pairs = [np.concatenate(part) for part in zip(*parts, strict=True)]
    gaps = np.round(pairs[2] - pairs[3], _DIGITS)
    order = np.lexsort((pairs[1], pairs[0], -gaps))
    return [part[order] for part in pairs]


@dataclass(frozen=True)
class PairOptions:
    """Settings by which pairs are chosen."""

    medical_encoder: str
    general_encoder: str
    sim_med: float  # smallest medical similarity of a pair
    sim_gen: float  # largest general similarity of a pair
    per_image: int | None  # most pairs an image may be in; None for any number
    keep_near_duplicates: bool


def read_image_list(source: Path) -> tuple[list[StudyImage], Counter[str], list[str]]:
    """Read the images of a list that have a caption and a file.

    Args:
        source: JSONL file, see the head of this module.

    Returns:
        The images by id, without the digests of their files, the number of other rows by reason, and unknown keys.

    Raises:
        SourceError: There is no list, or it holds fewer than two images.
    """
    source = source.expanduser().absolute()
    if not source.is_file():
        raise SourceError(
            f"there is no file {source}; give a file of lines with {', '.join(KEYS[:3])}"
        )
    images = []
    left_out = Counter[str]()
    keys = set[str]()
    for row in list_rows(source, "id"):
        keys.update(row.values)
        image = _listed_image(source.parent, row)
        if isinstance(image, StudyImage):
            images.append(image)
        else:
            left_out[image] += 1
    if keys and "caption" not in keys:
        raise SourceError(
            f'{source}: no line has a caption; add "caption": "..."{near_match("caption", keys)}'
        )
    if len(images) < 2:
        why = "; ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
        raise SourceError(
            f"{source} holds {len(images)} usable images{f' ({why})' if why else ''}; pairs need two"
        )
    images.sort(key=lambda image: image.image_id)
    return images, left_out, sorted(keys.difference(KEYS))


def _listed_image(folder: Path, row: SourceRow) -> StudyImage | str:
    """Return the image of a row of the list, or the reason why the row cannot be used."""
    caption = row.values.get("caption")
    text = caption.strip() if isinstance(caption, str) else ""
    keys = ("image", "group", "licence")
    image, group, licence = (
        None if row.values.get(key) in (None, "") else row.name(key) for key in keys
    )
    file = folder / (image or "")
    try:
        is_file = file.is_file()
    except OSError:  # the name may be too long, for example
        is_file = False
    if not is_file:
        return "image file missing"
    if not text:
        return "without a caption"
    return StudyImage(
        image_id=row.name("id"),
        file=str(file),
        sha256="",
        text=text,
        group=group,
        licence=licence,
    )


def make_pair_study(
    source: Path,
    folder: Path,
    name: str,
    access: Access,
    options: PairOptions,
    batch_size: int,
    device: str | None,
) -> tuple[Study, ConfusingPairs | None, list[str]]:
    """Embed the images of a list, choose pairs, and write both to the folder of a study, unless the study exists.

    Args:
        source: List of images, see :func:`read_image_list`.
        folder: Folder of the study.
        name: Name of the dataset that it becomes.
        access: Who may see the study.
        options: Settings by which pairs are chosen.
        batch_size: Images that an encoder gets at a time.
        device: See :func:`~medtasks.curate.pairs.encoders.open_encoder`.

    Returns:
        The study, its pairs (None if it was there before) and the list's unknown keys.

    Raises:
        SourceError: The list cannot be used.
        MedTasksError: The folder holds a study that was made with something else, an encoder cannot be used, or no
            pair is confusing.
    """
    listed, left_out, unused = read_image_list(source)
    encoders = {
        "medical_encoder": open_encoder(options.medical_encoder, device),
        "general_encoder": open_encoder(options.general_encoder, device, "--general-encoder"),
    }
    made_with: dict[str, Any] = {
        role: {"name": encoder.name, "digest": encoder.digest}
        for role, encoder in encoders.items()
    }
    # The digest of the list covers every row that counts, but not its pixels.
    rows = [(row.image_id, row.file, row.text, row.group, row.licence) for row in listed]
    made_with |= {
        "sim_med": options.sim_med,
        "sim_gen": options.sim_gen,
        "sample": None,  # all pairs are compared; earlier studies could be of a sample
        "seed": 0,
        "per_image": options.per_image,
        "near_duplicates": "kept" if options.keep_near_duplicates else "left out",
        "list": digest_of(rows)[:16],
    }
    planned = Study(
        name=name,
        kind=StudyKind.PAIRS,
        access=access,
        source=str(source.absolute()),
        made_with=made_with,
    )
    existing = existing_study(folder, planned)
    if existing is not None:
        return existing, None, unused
    files = [Path(image.file) for image in listed]
    digests = file_digests(files)
    spaces = []
    for role, encoder in encoders.items():
        space = embed_files(files, digests, encoder, batch_size)
        spaces.append(space)
        made_with[role]["dimension"] = space.vectors.shape[1]
    numbers, pairs, counts = _choose_pairs(listed, left_out, spaces, options)
    study = planned.model_copy(update={"made_with": {**made_with, "counts": counts}})
    used = numbers[np.unique([pairs.first, pairs.second])].tolist()
    images = [listed[at].model_copy(update={"sha256": digests[at].hex()}) for at in used]
    write_lines(folder / IMAGES, images)
    write_lines(folder / PAIRS, _records(pairs, [listed[at].image_id for at in numbers]))
    write_study(folder, study)
    return study, pairs, unused


def _records(pairs: ConfusingPairs, ids: Sequence[str]) -> Iterator[ImagePair]:
    """Yield the records of pairs in order, with the image ids at the positions that the pairs name."""
    rows = zip(pairs.images, pairs.sim_med.tolist(), pairs.sim_gen.tolist(), strict=True)
    width = len(str(len(pairs.first)))
    for number, ((first, second), sim_med, sim_gen) in enumerate(rows, 1):
        pair_id = f"pair_{number:0{width}d}"
        images = (ids[first], ids[second])
        yield ImagePair(pair_id=pair_id, images=images, sim_med=sim_med, sim_gen=sim_gen)


def _choose_pairs(
    listed: Sequence[StudyImage],
    left_out: Counter[str],
    spaces: Sequence[Embeddings],
    options: PairOptions,
) -> tuple[Numbers, ConfusingPairs, dict[str, int]]:
    """Choose the pairs of a study.

    Args:
        listed: All images of the list.
        left_out: Number of its other rows by reason.
        spaces: Embeddings of the medical encoder and of the general one.
        options: Settings by which pairs are chosen.

    Returns:
        The positions in ``listed`` of the images with both embeddings, the pairs, whose numbers are positions among
        these images, and the study's counts.

    Raises:
        MedTasksError: Fewer than two images have both embeddings, or no pair is left.
    """
    medical, general = spaces
    in_both = np.intersect1d(medical.kept, general.kept)
    images = [listed[number] for number in in_both]
    counts = medical.left_out.copy()
    # Unreadable images are the same for both encoders, but each may fail on other images.
    counts[UNUSABLE] = 0
    counts[UNUSABLE] = len(listed) - len(images) - counts.total()
    counts += left_out
    if len(images) < 2:
        raise MedTasksError(
            f"{len(images)} of {len(listed)} images have embeddings ({_in_words(counts)}); pairs need two"
        )
    vectors = [space.vectors[np.searchsorted(space.kept, in_both)] for space in spaces]
    group_numbers: dict[str | None, int] = {None: -1}  # images without a group
    groups = np.array(
        [group_numbers.setdefault(image.group, len(group_numbers)) for image in images],
        np.int64,
    )
    pairs = find_pairs(vectors[0], vectors[1], options.sim_med, options.sim_gen, groups)
    compared = len(images) * (len(images) - 1) // 2
    counts["pairs of one group"] = pairs.of_one_group
    if not options.keep_near_duplicates:
        same = _near_duplicates(images, pairs)
        counts["pairs of near-duplicates"] = int(same.sum())
        pairs = pairs.where(~same)
    if options.per_image is not None:
        mask = _within_limit(pairs, options.per_image)
        counts["pairs beyond --per-image"] = int((~mask).sum())
        pairs = pairs.where(mask)
    if not len(pairs.first):
        medical_usual, general_usual = map(_usual_similarities, vectors)
        raise MedTasksError(
            f"none of {compared:,} pairs of {len(images):,} images is left with a medical similarity of at "
            f"least {options.sim_med} and a general one of at most {options.sim_gen} "
            f"({_in_words(counts)}). Of pairs drawn at random the medical ones are {medical_usual}, the general ones "
            f"{general_usual}; change --sim-med or --sim-gen, the embeddings are kept"
        )
    totals = {
        "images compared": len(images),
        "pairs compared": compared,
        "pairs chosen": len(pairs.first),
    }
    return in_both, pairs, {**totals, **counts}


def _near_duplicates(images: Sequence[StudyImage], pairs: ConfusingPairs) -> Mask:
    """Return for each pair whether its images look the same, shape (pairs,)."""
    files = [Path(image.file) for image in images]
    used = np.unique([pairs.first, pairs.second])
    hashes, _ = hash_images([files[number] for number in used])
    # For images that are unreadable or in no pair.
    no_hash = ImageHash(file_sha256="", pixels_sha256="", size=(0, 0), views=())
    hashes_by_image = [(file, hashes.get(file, no_hash)) for file in files]
    return np.array(near_pairs(hashes_by_image, pairs.images), bool)


def _within_limit(pairs: ConfusingPairs, per_image: int) -> Mask:
    """Return for each pair whether to keep it, so that no image is in more than ``per_image`` pairs, shape (pairs,).

    Earlier pairs come first.
    """
    uses = Counter[int]()
    mask = np.zeros(len(pairs.first), bool)
    for number, pair in enumerate(pairs.images):
        if all(uses[image] < per_image for image in pair):
            uses.update(pair)
            mask[number] = True
    return mask


def _usual_similarities(vectors: Floats) -> str:
    first, second = np.random.default_rng(0).integers(0, len(vectors), (2, _TYPICAL))
    cosines = Space(vectors).cosines(first[first != second], second[first != second])
    low, middle, high = np.quantile(cosines, (0.01, 0.5, 0.99))
    return f"{middle:.2f} in the middle and {low:.2f} to {high:.2f} for 98 % of them"


def _in_words(counts: Mapping[str, int]) -> str:
    reasons = [f"{reason}: {count}" for reason, count in sorted(counts.items()) if count]
    return "; ".join(reasons) or "none was left out"
