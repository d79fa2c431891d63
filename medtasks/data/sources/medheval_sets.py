"""MedHEval, from a clone of its repository and the user's own copies of the images.

A record with a missing field, or a value of another type or an unknown one, is a SourceError. The benchmark ships no
images. Each of four sources has a root of its own on the user's disk; questions name an image by its path below it.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath

from medtasks.data.catalogue import MEDHEVAL, DatasetInfo
from medtasks.data.images.image_store import ImageStore
from medtasks.data.named_files import file_sha256, read_file
from medtasks.data.prepare.source_files import not_found
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    PublishedRows,
    SourceRecipe,
    images_row,
)
from medtasks.data.prepare.source_tables import SourceRow, listed_records
from medtasks.data.schema import (
    CLOSED_QUESTION,
    COMPONENT_REPORT,
    OPEN_QUESTION,
    Columns,
    NewDocument,
)
from medtasks.data.sources.medheval_gold import (
    YES_NO,
    Flag,
    bare_letters,
    parsed_options,
    resolve_choice,
    resolve_yes_no,
)
from medtasks.errors import SourceError, unknown_name

_PHYSIONET = "physionet.org/files/mimic-cxr-jpg"
# Folders of images below the benchmark's own folder
_UNNAMED = "images", "images/{0}", "{0}", ""
BINARY = "binary"
MULTI_CHOICE = "multi-choice"
HALLUCINATIONS: Mapping[str, str] = {
    "type_1": "anatomy",
    "type_2": "measurement",
    "type_3": "symptom",
    "type_4": "technique",
}
COMPONENTS = ("anatomy", "measurement", "symptom")
_PATIENT = re.compile(r"p\d{2}/p(\d+)/s\d+/")
_SHARED = ("img_name", "question", "answer", "qid")
_TYPED_FIELDS = (*_SHARED, "hallucination_type", "question_type", "choices")
_DIGITS = 12
# Sources of the images of the sets that show others than MIMIC-CXR's.
_IMAGES_OF = {
    "medheval_visual_mm": ("slake", "vqa_rad"),
    "medheval_visual_cxr": ("iu_xray", "mimic_cxr"),
}


@dataclass(frozen=True)
class ImageSource:
    """One source of images."""

    title: str
    names: str  # of its images, a regular expression
    folders: tuple[str, ...]  # of the images below the folder a user names, likeliest first
    expected: str  # the folder to name, for messages
    private: bool = False  # names hold numbers of patients and stay out of messages


IMAGE_SOURCES: Mapping[str, ImageSource] = {
    "slake": ImageSource(
        "SLAKE", r"xmlab\d+/[\w-]+\.\w+", ("", "imgs", "imgs/imgs"), "SLAKE's folder imgs"
    ),
    "vqa_rad": ImageSource(
        "VQA-RAD",
        r"synpic\d+\.\w+",
        ("", "images", "VQA_RAD Image Folder"),
        "the image folder of VQA-RAD at https://osf.io/89kps",
    ),
    "iu_xray": ImageSource(
        "IU-Xray",
        r"CXR[\w-]+/[\w-]+\.\w+",
        ("", "images", "iu_xray/images"),
        "the folder images of IU-Xray in R2Gen's package",
    ),
    "mimic_cxr": ImageSource(
        "MIMIC-CXR-JPG",
        r"p\d{2}/p\d+/s\d+/[\w-]+\.\w+",
        (
            "",
            "files",
            "2.1.0/files",
            "2.0.0/files",
            f"{_PHYSIONET}/2.1.0/files",
            f"{_PHYSIONET}/2.0.0/files",
        ),
        "the folder files of MIMIC-CXR-JPG",
        private=True,
    ),
}


class ImageRoots:
    """Finds image files by their source and the name that questions have for them.

    Args:
        source: The benchmark's own folder. Images of a source that the user does not name are searched in the folders
            of ``_UNNAMED`` below it.
        named: Folders of the user, by key in :data:`IMAGE_SOURCES`.

    Attributes:
        searched: The folder to name in messages, by key in :data:`IMAGE_SOURCES`.

    Raises:
        UnknownName: ``named`` has a key of no source.
        SourceError: A folder of ``named`` does not exist.
    """

    def __init__(self, source: Path, named: Mapping[str, Path]) -> None:
        for key, folder in named.items():
            if key not in IMAGE_SOURCES:
                raise unknown_name("source of images", key, IMAGE_SOURCES)
            if not folder.is_dir():
                raise SourceError(
                    f"the folder of {IMAGE_SOURCES[key].title} images, {folder}, does not exist"
                )
        self.searched = {key: named.get(key, source) for key in IMAGE_SOURCES}
        self._folders: dict[str, list[Path]] = {}
        for key, images in IMAGE_SOURCES.items():
            roots = [source / folder.format(key) for folder in _UNNAMED]
            if key in named:
                roots = [named[key]]
            below = itertools.starmap(Path.joinpath, itertools.product(roots, images.folders))
            # In order, each once.
            self._folders[key] = list(filter(Path.is_dir, dict.fromkeys(below)))

    def find(self, key: str, name: str) -> Path | None:
        """Return the file of an image, or None where there is no such file.

        Args:
            key: In :data:`IMAGE_SOURCES`.
            name: As questions have it.
        """
        for folder in self._folders[key]:
            if (folder / name).is_file():
                return folder / name
        return None


def source_of(row: SourceRow) -> str:
    """Return the source of a record's image, see :data:`IMAGE_SOURCES`.

    Example:
        >>> source_of(SourceRow("a.json row 1", 0, {"img_name": "xmlab7/source.jpg"}))
        'slake'
    """
    name = row.text("img_name")
    for key, images in IMAGE_SOURCES.items():
        if re.fullmatch(images.names, name):
            return key
    raise row.error(
        "img_name has none of the forms xmlab7/x.jpg, synpic7.jpg, CXR7_IM-7/0.png, p10/p100/s5/x.jpg"
    )


def _closed_columns(row: SourceRow, *, typed: bool = False) -> NewDocument:
    """Return the columns of a closed question. Files that are not ``typed`` hold yes/no questions."""
    kind = BINARY
    hallucination = None
    if typed:
        published = row.text("hallucination_type")
        kind = row.text("question_type")
        if published not in HALLUCINATIONS:
            raise row.error(
                f"hallucination_type is '{published}', and only {', '.join(HALLUCINATIONS)} are known"
            )
        if kind not in (BINARY, MULTI_CHOICE):
            raise row.error(
                f"question_type is '{kind}', and only {BINARY} and {MULTI_CHOICE} are known"
            )
        hallucination = HALLUCINATIONS[published]
    question = row.text("question")
    choices = row.text("choices")
    gold = row.text("answer")
    options = parsed_options(choices)
    if kind == BINARY:
        options = list(YES_NO)
        answer, flags = resolve_yes_no(gold, question, choices)
    elif options:
        answer, flags = resolve_choice(gold, options)
    else:
        # Letters without text ask for nothing, so that no answer is right.
        options = bare_letters(choices)
        answer = None
        flags = (Flag.OPTIONS_WITHOUT_TEXT if options else Flag.OPTIONS_UNPARSED,)
    return {
        "question": question,
        "kind": kind,
        "choices": choices,
        "options": options,
        "answer": answer,
        "gold": gold,
        "flags": list(map(str, flags)),
        "hallucination": hallucination,
        "source": source_of(row),
        "modality": row.optional_text("modality"),
        "location": row.optional_text("location"),
    }


def _open_columns(row: SourceRow) -> NewDocument:
    """Return the columns of an open question."""
    return {
        "question": row.text("question"),
        "answer": row.text("answer"),
        "question_type": row.optional_text("question_type"),
    }


def _report_columns(row: SourceRow) -> NewDocument:
    """Return the columns of a reference report. The texts of its components are lists, which may be empty."""
    components = row.values["structured_answer"]
    if not isinstance(components, dict):
        raise row.error(
            "structured_answer is not an object with anatomy, measurement and symptom"
        )
    values = {name: components.get(name) for name in COMPONENTS}
    lists = SourceRow(f"{row.place} structured_answer", row.index, values)
    document: NewDocument = {
        "question": row.text("question"),
        "context": None,
        "indication": None,
        "report": row.text("answer"),
    }
    for name in COMPONENTS:
        document[name] = lists.texts(name)
    return document


_TYPED = (CLOSED_QUESTION, _TYPED_FIELDS, partial(_closed_columns, typed=True))
# By set: columns of the documents; fields of every record; the columns of a record but those about its images.
_KINDS: Mapping[str, tuple[Columns, tuple[str, ...], Callable[[SourceRow], NewDocument]]] = {
    "medheval_visual_mm": _TYPED,
    "medheval_visual_cxr": _TYPED,
    "medheval_visual_report": (
        COMPONENT_REPORT,
        (*_SHARED, "structured_answer"),
        _report_columns,
    ),
    "medheval_knowledge_closed": (CLOSED_QUESTION, (*_SHARED, "choices"), _closed_columns),
    "medheval_knowledge_open": (OPEN_QUESTION, _SHARED, _open_columns),
    "medheval_context": (CLOSED_QUESTION, (*_SHARED, "choices"), _closed_columns),
}


@dataclass(frozen=True)
class ImageCount:
    """Images of one source that a set names."""

    source: str  # key in :data:`IMAGE_SOURCES`
    found: frozenset[str]  # names of images that are on the disk
    missing: frozenset[str]  # names of those that are not
    questions: int  # questions on missing images


def preflight(info: DatasetInfo, options: Options) -> list[ImageCount]:
    """Count the images of a set, without reading any, by source in the order of ``IMAGE_SOURCES``.

    Args:
        info: Of the set.
        options: With the ``source``.
    """
    assert options.source is not None
    records = _records(info, options.source, options)
    return _count_images(records, ImageRoots(options.source, options.images))


def _published_file(source: Path, name: str) -> Path | None:
    """Return a published file below the clone or its folder ``benchmark_data``, None where it is missing."""
    paths = (source / name, source / Path(name).relative_to("benchmark_data"))
    return next(filter(Path.is_file, paths), None)


def _changed_files(info: DatasetInfo, source: Path) -> dict[Path, tuple[str, str]]:
    """Return the beginnings of the digest and the published digest of each file of a set in which they differ."""
    changed = {}
    for name, published in info.sha256.items():
        path = _published_file(source, name)
        if path is None:
            continue
        digest = file_sha256(path)
        if digest != published:
            changed[path] = (digest[:_DIGITS], published[:_DIGITS])
    return changed


def _records(info: DatasetInfo, source: Path, options: Options) -> list[SourceRow]:
    """Return the records of a set's file in order.

    Raises:
        SourceError: The file is missing, malformed or not the published one (unless that is allowed), or two records
            have the same number.
    """
    name = next(iter(info.sha256))
    path = _published_file(source, name)
    if path is None:
        raise not_found(source, name)
    changed = {} if options.allow_changed else _changed_files(info, source)
    for file, (digest, published) in changed.items():
        raise SourceError(
            f"{file} is not the file published at {info.revision}: its SHA-256 begins with {digest} and not with "
            f"{published}; check out that commit, or accept this file with --allow-changed"
        )
    _, fields, _ = _KINDS[info.name]
    rows = list(listed_records(path.name, read_file(path), fields).rows())
    first: dict[int, SourceRow] = {}
    for row in rows:
        before = first.setdefault(row.integer("qid"), row)
        if before is not row:
            raise row.error(
                f"it has the qid {row.integer('qid')} of row {before.index + 1}; qids must be unique"
            )
    return rows


def _count_images(records: Sequence[SourceRow], roots: ImageRoots) -> list[ImageCount]:
    """Count the images that records name, by source. A source of which none is named is left out."""
    questions: dict[str, Counter[str]] = {key: Counter() for key in IMAGE_SOURCES}
    for row in records:
        questions[source_of(row)][row.text("img_name")] += 1
    counts = []
    for key, of_images in questions.items():
        if not of_images:
            continue
        missing = frozenset(name for name in of_images if roots.find(key, name) is None)
        present = frozenset(of_images) - missing
        lost = sum(of_images[name] for name in missing)
        counts.append(ImageCount(key, present, missing, lost))
    return counts


def _recipe(info: DatasetInfo, options: Options) -> SourceRecipe:
    """Return the recipe of a set, with the user's options for its images."""

    def revision(source: Path) -> str:
        """Return the published commit, and the digests of files that differ from it, if there are any."""
        changed = []
        for path, (digest, _) in _changed_files(info, source).items():
            changed.append(f"{path.name} (SHA-256 {digest})")
        return (
            f"{info.revision} with another {' and '.join(changed)}"
            if changed
            else info.revision
        )

    sources = _IMAGES_OF.get(info.name, ["mimic_cxr"])
    arguments = ["--source CLONE", *(f"--images {key}=DIR" for key in sources)]
    return SourceRecipe(
        columns=_KINDS[info.name][0],
        test_rows=partial(_rows, info, options),
        layout="a clone of the repository, or of its folder benchmark_data; name the images with --images SOURCE=DIR",
        how_to_obtain=(
            f"'{info.name}' ({info.description}) is prepared from your clone of {info.source} and your copies of the "
            f"images: run 'medtasks data prepare {info.name} {' '.join(arguments)}'"
        ),
        arguments=arguments,
        revision=revision,
        counted=False,  # a file is compared by its checksum; one that the user accepts may have any number of rows
    )


def _rows(
    info: DatasetInfo,
    options: Options,
    source: Path,
    images: ImageStore,
) -> PublishedRows:
    """Read the records whose image exists, and note those that are missing.

    Raises:
        SourceError: All images of a source are missing, unless the user accepts the loss. If some are missing, the rows
            end with one without a document, which the caller refuses or accepts. Further errors are those of
            :func:`_records`, of :class:`ImageRoots` and of the columns.
    """
    records = _records(info, source, options)
    roots = ImageRoots(source, options.images)
    counts = _count_images(records, roots)
    for count in counts:
        if not count.found and not options.allow_incomplete:
            image_source = IMAGE_SOURCES[count.source]
            raise SourceError(
                f"'{info.name}' needs {len(count.missing)} images of {image_source.title}, and none of them is below "
                f"{roots.searched[count.source]}; give {image_source.expected} with --images {count.source}=DIR, "
                f"or leave its {count.questions} questions out with --allow-incomplete"
            )
    file = PurePosixPath(next(iter(info.sha256)))  # the file of the records comes first
    add = cache(images.add_file)
    for row in records:
        key = source_of(row)
        name = row.text("img_name")
        path = roots.find(key, name)
        if path is None:
            continue
        patient = _PATIENT.match(name)
        document = {
            "doc_id": f"{file.stem}/{row.integer('qid')}",  # the number is unique in its file only
            "patient_id": patient[1] if patient else None,
            **_KINDS[info.name][2](row),
            "image_id": None,
        }
        stored = images_row(row.place, [(name, partial(add, path))], document)
        if stored.document is None:
            # The error may name the file, and with it a patient.
            image_source = IMAGE_SOURCES[key]
            image = "its image" if image_source.private else f"its image {name}"
            stored = PublishedRow(
                row.place, cause=f"{image} ({image_source.title}) cannot be read"
            )
        yield stored
    for count in counts:
        if count.missing:
            yield PublishedRow(file.name, cause=_missing_images(count))


def _missing_images(count: ImageCount) -> str:
    """Return the sentence on the missing images of a source, with the name of one where that is no patient's."""
    image_source = IMAGE_SOURCES[count.source]
    total = len(count.found) + len(count.missing)
    example = "" if image_source.private else f", such as {min(count.missing)}"
    cause = f"{len(count.missing)} of the {total} images of {image_source.title} are missing{example}"
    return f"{cause}, and with them {count.questions} questions"


RECIPES = {info.name: partial(_recipe, info) for info in MEDHEVAL}
