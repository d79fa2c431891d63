"""Preparing MedHEval's sets from a clone of its repository and the user's own copies of the images.

What of it can be prepared is told before anything is: :func:`survey`.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medtasks.data.catalogue import MEDHEVAL, DatasetInfo
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.preparation import Options, Recipe, Row
from medtasks.data.prepare.source_files import not_found
from medtasks.data.prepare.table_files import SourceRow
from medtasks.data.sources.medheval.records import (
    IMAGE_SOURCES,
    KINDS,
    ImageRoots,
    document_of,
    read_records,
    source_of,
)
from medtasks.errors import SourceError

_DIGITS = 12
GROUPS: Mapping[str, frozenset[str]] = {
    "medheval": frozenset(info.name for info in MEDHEVAL),
    "medheval_closed": frozenset(
        ("medheval_visual_mm", "medheval_visual_cxr", "medheval_knowledge_closed", "medheval_context")
    ),
    "medheval_public": frozenset(("medheval_visual_mm",)),
}
"""Sets behind the groups of tasks, largest first."""


@dataclass(frozen=True)
class ImageCount:
    """Images of one source that a set names."""

    source: str  # key in :data:`~medtasks.data.sources.medheval.records.IMAGE_SOURCES`
    found: frozenset[str]  # names of images that are on the disk
    missing: frozenset[str]  # names of those that are not
    questions: int  # questions on missing images

    def __str__(self) -> str:
        total = len(self.found) + len(self.missing)
        return f"{IMAGE_SOURCES[self.source].title}: {len(self.found)} of {total} images found"


@dataclass(frozen=True)
class Readiness:
    """Whether one set can be prepared."""

    name: str
    counts: tuple[ImageCount, ...]  # its images by source; none where its file is missing
    cause: str | None  # why it cannot be prepared, None if it can


def _recipe(info: DatasetInfo, options: Options) -> Recipe:
    def revision(source: Path) -> str:
        changed = [f"{path.name} (SHA-256 {own[:_DIGITS]})" for path, (own, _) in _changed(info, source).items()]
        return f"{info.revision} with another {' and '.join(changed)}" if changed else info.revision

    return Recipe(
        columns=KINDS[info.name].columns,
        test=functools.partial(_rows, info, options),
        layout="a clone of the repository, or of its folder benchmark_data; name the images with --images SOURCE=DIR",
        obtaining=_how_to_obtain(info.name, f" ({info.description})", "it needs"),
        revision=revision,
        counted=False,  # a file is compared by its checksum; one that the user accepts may have any number of rows
    )


def preflight(info: DatasetInfo, options: Options) -> list[ImageCount]:
    """Count the images of a set, without reading any, by source in the order of ``IMAGE_SOURCES``."""
    assert options.source is not None
    return _counted(_records(info, options.source, options), ImageRoots(options.source, options.images))


def survey(options: Options) -> list[Readiness]:
    """Look for the files and images of all six sets; with ``allow_incomplete`` a set is ready if it has any image."""
    if options.source is None:
        raise SourceError(_how_to_obtain("medheval", "", "you have"))
    if not options.source.is_dir():
        raise SourceError(f"{options.source} is no folder; give your clone of {MEDHEVAL[0].source}")
    found = []
    for info in MEDHEVAL:
        counts: tuple[ImageCount, ...] = ()
        cause = None
        if _present(options.source, next(iter(info.sha256))) is None:
            cause = f"its file {next(iter(info.sha256))} is not below {options.source}"
        else:
            counts = tuple(preflight(info, options))
            missing = {IMAGE_SOURCES[count.source].title: len(count.missing) for count in counts if count.missing}
            if not any(count.found for count in counts):
                cause = "none of its images was found"
            elif missing and not options.allow_incomplete:
                lacking = " and ".join(f"{number} of {title}" for title, number in missing.items())
                cause = f"it lacks images, {lacking}"
        found.append(Readiness(info.name, counts, cause))
    return found


def _how_to_obtain(name: str, about: str, which: str) -> str:
    return (
        f"'{name}'{about} is prepared from your clone of {MEDHEVAL[0].source} and your copies of the images: run "
        f"'medtasks data prepare {name} --source CLONE --images SOURCE=DIR', once --images for each of "
        f"{', '.join(IMAGE_SOURCES)} that {which}"
    )


def image_totals(found: Sequence[Readiness]) -> dict[str, tuple[int, int]]:
    """Return how many distinct images are found and named in all sets, by source."""
    totals = {}
    for key in IMAGE_SOURCES:
        counts = [count for readiness in found for count in readiness.counts if count.source == key]
        there = frozenset[str]().union(*(count.found for count in counts))
        named = there.union(*(count.missing for count in counts))
        if named:
            totals[key] = (len(there), len(named))
    return totals


def largest_group(found: Sequence[Readiness]) -> str | None:
    """Return the largest group of tasks all of whose sets are ready, None if there is none."""
    ready = {readiness.name for readiness in found if readiness.cause is None}
    return next((group for group, sets in GROUPS.items() if sets <= ready), None)


def _present(source: Path, name: str) -> Path | None:
    """Return a published file below the clone or its folder ``benchmark_data``, None where it is not there."""
    paths = (source / name, source / Path(name).relative_to("benchmark_data"))
    return next((path for path in paths if path.is_file()), None)


def _changed(info: DatasetInfo, source: Path) -> dict[Path, tuple[str, str]]:
    """Return the digests, its own and the published one, of each file of a set that is there and not the published."""
    there = {path: digest for name, digest in info.sha256.items() if (path := _present(source, name))}
    return {path: (own, digest) for path, digest in there.items() if (own := file_sha256(path)) != digest}


def _records(info: DatasetInfo, source: Path, options: Options) -> list[SourceRow]:
    path = _present(source, next(iter(info.sha256)))
    if path is None:
        raise not_found(source, next(iter(info.sha256)))
    if not options.allow_changed:
        for file, (own, published) in _changed(info, source).items():
            raise SourceError(
                f"{file} is not the file published at {info.revision}: its SHA-256 begins with {own[:_DIGITS]} and not "
                f"with {published[:_DIGITS]}; check out that commit, or accept this file with --allow-changed"
            )
    return read_records(path, KINDS[info.name])


def _counted(records: Sequence[SourceRow], roots: ImageRoots) -> list[ImageCount]:
    asked: dict[str, Counter[str]] = {}
    for row in records:
        asked.setdefault(source_of(row), Counter())[row.text("img_name")] += 1
    counts = []
    for key in IMAGE_SOURCES:
        missing = {name: number for name, number in asked.get(key, {}).items() if roots.find(key, name) is None}
        if key in asked:
            found = frozenset(asked[key]) - frozenset(missing)
            counts.append(ImageCount(key, found, frozenset(missing), sum(missing.values())))
    return counts


def _rows(info: DatasetInfo, options: Options, source: Path, images: ImageStore) -> Iterator[Row]:
    records = _records(info, source, options)
    roots = ImageRoots(source, options.images)
    counts = _counted(records, roots)
    for count in counts:
        if not count.found and not options.allow_incomplete:
            title, expected = IMAGE_SOURCES[count.source].title, IMAGE_SOURCES[count.source].expected
            raise SourceError(
                f"'{info.name}' needs {len(count.missing)} images of {title}, and none of them is below "
                f"{roots.searched(count.source)}; give {expected} with --images {count.source}=DIR, or leave its "
                f"{count.questions} questions out with --allow-incomplete"
            )
    file = Path(next(iter(info.sha256))).name

    @functools.cache
    def stored(path: Path) -> StoredImage | None:
        with contextlib.suppress(UnreadableImage):
            return images.add_file(path)
        return None

    for row in records:
        document = document_of(row, KINDS[info.name], file)
        key, name = source_of(row), row.text("img_name")
        path = roots.find(key, name)
        if path is None:
            continue
        if image := stored(path):
            yield Row(row.place, {**document, "image_id": image.image_id}, [image])
        else:
            called = "its image" if IMAGE_SOURCES[key].private else f"its image {name}"
            yield Row(row.place, None, cause=f"{called} ({IMAGE_SOURCES[key].title}) cannot be read")
    for count in counts:
        if count.missing:
            image_source, total = IMAGE_SOURCES[count.source], len(count.found) + len(count.missing)
            example = "" if image_source.private else f", such as {min(count.missing)}"
            cause = f"{len(count.missing)} of the {total} images of {image_source.title} are missing{example}"
            yield Row(file, None, cause=f"{cause}, and with them {count.questions} questions")


RECIPES: Mapping[str, Callable[[Options], Recipe]] = {
    info.name.removeprefix("medheval_"): functools.partial(_recipe, info) for info in MEDHEVAL
}
