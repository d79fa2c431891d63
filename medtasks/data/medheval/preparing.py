"""Preparing MedHEval's sets from a clone of its repository and the user's own copies of the images.

What of it can be prepared is told before anything is: :func:`survey`.
"""

import contextlib
import dataclasses
import functools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from medtasks.data.catalogue import MEDHEVAL, DatasetInfo
from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.manifest import Manifest, file_sha256
from medtasks.data.medheval.records import IMAGE_SOURCES, KINDS, ImageRoots, document_of, read_records, source_of
from medtasks.data.preparation import Options, Recipe, Row, prepare_recipe
from medtasks.data.source_files import not_found
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.data.tables import SourceRow
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

    source: str  # key in :data:`~medtasks.data.medheval.records.IMAGE_SOURCES`
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


def prepare(info: DatasetInfo, options: Options) -> Manifest:
    """Prepare one set under ``MEDTASKS_HOME``, and return its manifest; see :func:`prepare_recipe` for errors."""
    if options.source is None:
        raise _no_source(info.name, f" ({info.description})", "it needs")
    recipe = Recipe(
        columns=KINDS[info.name].columns,
        test=functools.partial(_rows, info, options),
        layout="a clone of the repository, or of its folder benchmark_data; name the images with --images SOURCE=DIR",
        revision=functools.partial(_revision, info),
    )
    # Rows are compared by checksum; a changed file that the user accepts may have any number of them.
    return prepare_recipe(dataclasses.replace(info, rows=None), recipe, options)


def preflight(info: DatasetInfo, options: Options) -> list[ImageCount]:
    """Count the images of a set, without reading any, by source in the order of ``IMAGE_SOURCES``."""
    assert options.source is not None
    return _counted(_records(info, options.source, options), ImageRoots(options.source, options.images))


def survey(options: Options) -> list[Readiness]:
    """Look for the files and images of all six sets; with ``allow_incomplete`` a set is ready if it has any image."""
    if options.source is None:
        raise _no_source("medheval", "", "you have")
    if not options.source.is_dir():
        raise SourceError(f"{options.source} is no folder; give your clone of {MEDHEVAL[0].source}")
    found = []
    for info in MEDHEVAL:
        if present_file(info, options.source) is None:
            found.append(Readiness(info.name, (), f"its file {next(iter(info.sha256))} is not below {options.source}"))
        else:
            counts = tuple(preflight(info, options))
            found.append(Readiness(info.name, counts, _lack(counts, options)))
    return found


def _no_source(name: str, about: str, which: str) -> SourceError:
    return SourceError(
        f"'{name}'{about} is prepared from your clone of {MEDHEVAL[0].source} and your copies of the images: run "
        f"'medtasks data prepare {name} --source CLONE --images SOURCE=DIR', once --images for each of "
        f"{', '.join(IMAGE_SOURCES)} that {which}"
    )


def _lack(counts: Sequence[ImageCount], options: Options) -> str | None:
    if not any(count.found for count in counts):
        return "none of its images was found"
    lacking = [f"{len(count.missing)} of {IMAGE_SOURCES[count.source].title}" for count in counts if count.missing]
    if not lacking or options.allow_incomplete:
        return None
    return f"it lacks images, {' and '.join(lacking)}"


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


def present_file(info: DatasetInfo, source: Path) -> Path | None:
    """Return the file of a set below the clone or its folder ``benchmark_data``, None where it is not there."""
    return _present(source, next(iter(info.sha256)))


def _present(source: Path, name: str) -> Path | None:
    paths = (source / name, source / Path(name).relative_to("benchmark_data"))
    return next((path for path in paths if path.is_file()), None)


def _changed(info: DatasetInfo, source: Path) -> dict[Path, tuple[str, str]]:
    """Return the digests, its own and the published one, of each file of a set that is there and not the published."""
    there = {path: digest for name, digest in info.sha256.items() if (path := _present(source, name))}
    return {path: (own, digest) for path, digest in there.items() if (own := file_sha256(path)) != digest}


def _revision(info: DatasetInfo, source: Path) -> str:
    changed = [f"{path.name} (SHA-256 {own[:_DIGITS]})" for path, (own, _) in _changed(info, source).items()]
    return f"{info.revision} with another {' and '.join(changed)}" if changed else info.revision


def _records(info: DatasetInfo, source: Path, options: Options) -> list[SourceRow]:
    path = present_file(info, source)
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
            raise SourceError(_no_image(info, count, roots.searched(count.source)))
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
            yield Row(file, None, cause=_missing(count))


def _missing(count: ImageCount) -> str:
    source = IMAGE_SOURCES[count.source]
    total = len(count.found) + len(count.missing)
    example = "" if source.private else f", such as {min(count.missing)}"
    return (
        f"{len(count.missing)} of the {total} images of {source.title} are missing{example}, and with them "
        f"{count.questions} questions"
    )


def _no_image(info: DatasetInfo, count: ImageCount, searched: Path) -> str:
    source = IMAGE_SOURCES[count.source]
    return (
        f"'{info.name}' needs {len(count.missing)} images of {source.title}, and none of them is below {searched}; "
        f"give {source.expected} with --images {count.source}=DIR, or leave its {count.questions} questions out with "
        f"--allow-incomplete"
    )
