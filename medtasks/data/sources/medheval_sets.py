"""MedHEval, from a clone of its repository and the user's own copies of the images.

A record with a missing field, or a value of another type or an unknown one, is a SourceError. The benchmark ships no
images. Each of four sources has a root of its own on the user's disk; questions name an image by its path below it.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from medtasks.data.catalogue import MEDHEVAL, DatasetInfo
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.image_store import ImageStore
from medtasks.data.named_files import read_file
from medtasks.data.prepare.source_files import not_found
from medtasks.data.prepare.source_recipe import Options, PublishedRow, SourceRecipe, images_row
from medtasks.data.prepare.source_tables import SourceRow, listed_records
from medtasks.data.schema import (
    CLOSED_QUESTION,
    COMPONENT_REPORT,
    OPEN_QUESTION,
    Columns,
    NewDocument,
)
from medtasks.data.sources import medheval_gold
from medtasks.errors import SourceError, unknown_name

_PHYSIONET = "physionet.org/files/mimic-cxr-jpg"
_UNNAMED = ("images", "images/{0}", "{0}", "")  # folders of images below the benchmark's own folder
BINARY, MULTI_CHOICE = "binary", "multi-choice"
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
_IMAGES_OF = {
    "medheval_visual_mm": ("slake", "vqa_rad"),
    "medheval_visual_cxr": ("iu_xray", "mimic_cxr"),
}
"""Sources of the images of the sets that show others than MIMIC-CXR's."""


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

    Images of a source that the user does not name are searched in ``_UNNAMED``. UnknownName is for a source,
    SourceError for a folder that does not exist.
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
            roots = (
                [named[key]]
                if key in named
                else [source / folder.format(key) for folder in _UNNAMED]
            )
            below = dict.fromkeys(root / folder for root in roots for folder in images.folders)
            self._folders[key] = [folder for folder in below if folder.is_dir()]

    def find(self, key: str, name: str) -> Path | None:
        """Return the file of an image, or None where there is no such file."""
        return next(
            (folder / name for folder in self._folders[key] if (folder / name).is_file()), None
        )


def source_of(row: SourceRow) -> str:
    """Return the source of a record's image, see :data:`IMAGE_SOURCES`."""
    name = row.text("img_name")
    source = next(
        (key for key, images in IMAGE_SOURCES.items() if re.fullmatch(images.names, name)), None
    )
    if source is None:
        raise row.error(
            "img_name has none of the forms xmlab7/x.jpg, synpic7.jpg, CXR7_IM-7/0.png, p10/p100/s5/x.jpg"
        )
    return source


def _closed(row: SourceRow, *, typed: bool = False) -> NewDocument:
    """Return the columns of a question; files that are not ``typed`` hold yes/no questions."""
    kind, hallucination = BINARY, None
    if typed:
        published, kind = row.text("hallucination_type"), row.text("question_type")
        if published not in HALLUCINATIONS:
            raise row.error(
                f"hallucination_type is '{published}', and only {', '.join(HALLUCINATIONS)} are known"
            )
        if kind not in (BINARY, MULTI_CHOICE):
            raise row.error(
                f"question_type is '{kind}', and only {BINARY} and {MULTI_CHOICE} are known"
            )
        hallucination = HALLUCINATIONS[published]
    question, choices, gold = row.text("question"), row.text("choices"), row.text("answer")
    if kind == BINARY:
        options, (answer, flags) = (
            list(medheval_gold.YES_NO),
            medheval_gold.resolve_yes_no(gold, question, choices),
        )
    elif options := medheval_gold.parsed_options(choices):
        answer, flags = medheval_gold.resolve_choice(gold, options)
    else:  # letters without text ask for nothing, so that no answer is right
        options, answer = medheval_gold.bare_letters(choices), None
        flags = (
            medheval_gold.Flag.OPTIONS_WITHOUT_TEXT
            if options
            else medheval_gold.Flag.OPTIONS_UNPARSED,
        )
    return {
        "question": question,
        "kind": kind,
        "choices": choices,
        "options": options,
        "answer": answer,
        "gold": gold,
        "flags": [str(flag) for flag in flags],
        "hallucination": hallucination,
        "source": source_of(row),
        "modality": row.optional_text("modality"),
        "location": row.optional_text("location"),
    }


def _open(row: SourceRow) -> NewDocument:
    question_type = row.optional_text("question_type")
    return {
        "question": row.text("question"),
        "answer": row.text("answer"),
        "question_type": question_type,
    }


def _report(row: SourceRow) -> NewDocument:
    components = row.values["structured_answer"]
    if not isinstance(components, dict):
        raise row.error("structured_answer is not an object with anatomy, measurement and symptom")
    lists = SourceRow(
        f"{row.place} structured_answer",
        row.index,
        {name: components.get(name) for name in COMPONENTS},
    )
    texts = {
        "question": row.text("question"),
        "context": None,
        "indication": None,
        "report": row.text("answer"),
    }
    return {**texts, **{name: lists.texts(name) for name in COMPONENTS}}


_TYPED = (CLOSED_QUESTION, _TYPED_FIELDS, functools.partial(_closed, typed=True))
# By set: columns of the documents; fields of every record; the columns of a record but those about its images.
_KINDS: Mapping[str, tuple[Columns, tuple[str, ...], Callable[[SourceRow], NewDocument]]] = {
    "medheval_visual_mm": _TYPED,
    "medheval_visual_cxr": _TYPED,
    "medheval_visual_report": (COMPONENT_REPORT, (*_SHARED, "structured_answer"), _report),
    "medheval_knowledge_closed": (CLOSED_QUESTION, (*_SHARED, "choices"), _closed),
    "medheval_knowledge_open": (OPEN_QUESTION, _SHARED, _open),
    "medheval_context": (CLOSED_QUESTION, (*_SHARED, "choices"), _closed),
}


@dataclass(frozen=True)
class ImageCount:
    """Images of one source that a set names."""

    source: str  # key in :data:`IMAGE_SOURCES`
    found: frozenset[str]  # names of images that are on the disk
    missing: frozenset[str]  # names of those that are not
    questions: int  # questions on missing images


def preflight(info: DatasetInfo, options: Options) -> list[ImageCount]:
    """Count the images of a set, without reading any, by source in the order of ``IMAGE_SOURCES``."""
    assert options.source is not None
    return _counted(
        _records(info, options.source, options), ImageRoots(options.source, options.images)
    )


def _published_file(source: Path, name: str) -> Path | None:
    """Return a published file below the clone or its folder ``benchmark_data``, None where it is missing."""
    paths = (source / name, source / Path(name).relative_to("benchmark_data"))
    return next((path for path in paths if path.is_file()), None)


def _changed(info: DatasetInfo, source: Path) -> dict[Path, tuple[str, str]]:
    """Return the beginnings of the digest and the published digest of each file of a set in which they differ."""
    files = {
        path: digest
        for name, digest in info.sha256.items()
        if (path := _published_file(source, name))
    }
    digests = {path: (file_sha256(path), published) for path, published in files.items()}
    return {
        path: (sha256[:_DIGITS], named[:_DIGITS])
        for path, (sha256, named) in digests.items()
        if sha256 != named
    }


def _records(info: DatasetInfo, source: Path, options: Options) -> list[SourceRow]:
    """Return the records of a set's file in order; two of the same number are an error."""
    path = _published_file(source, next(iter(info.sha256)))
    if path is None:
        raise not_found(source, next(iter(info.sha256)))
    for file, (digest, published) in (
        _changed(info, source).items() if not options.allow_changed else ()
    ):
        raise SourceError(
            f"{file} is not the file published at {info.revision}: its SHA-256 begins with {digest} and not with "
            f"{published}; check out that commit, or accept this file with --allow-changed"
        )
    rows = list(listed_records(path.name, read_file(path), _KINDS[info.name][1]).rows())
    first: dict[int, SourceRow] = {}
    for row in rows:
        before = first.setdefault(row.integer("qid"), row)
        if before is not row:
            raise row.error(
                f"it has the qid {row.integer('qid')} of row {before.index + 1}; qids must be unique"
            )
    return rows


def _counted(records: Sequence[SourceRow], roots: ImageRoots) -> list[ImageCount]:
    questions: dict[str, Counter[str]] = {}
    for row in records:
        questions.setdefault(source_of(row), Counter())[row.text("img_name")] += 1
    counts = []
    for key in [key for key in IMAGE_SOURCES if key in questions]:
        missing = {
            name: number for name, number in questions[key].items() if roots.find(key, name) is None
        }
        present = questions[key].keys() - missing.keys()
        counts.append(
            ImageCount(key, frozenset(present), frozenset(missing), sum(missing.values()))
        )
    return counts


def _recipe(info: DatasetInfo, options: Options) -> SourceRecipe:
    def revision(source: Path) -> str:
        changed = [
            f"{path.name} (SHA-256 {digest})"
            for path, (digest, _) in _changed(info, source).items()
        ]
        return f"{info.revision} with another {' and '.join(changed)}" if changed else info.revision

    sources = _IMAGES_OF.get(info.name, ["mimic_cxr"])
    arguments = ["--source CLONE", *(f"--images {key}=DIR" for key in sources)]
    return SourceRecipe(
        columns=_KINDS[info.name][0],
        test=functools.partial(_rows, info, options),
        layout="a clone of the repository, or of its folder benchmark_data; name the images with --images SOURCE=DIR",
        obtaining=(
            f"'{info.name}' ({info.description}) is prepared from your clone of {info.source} and your copies of the "
            f"images: run 'medtasks data prepare {info.name} {' '.join(arguments)}'"
        ),
        arguments=arguments,
        revision=revision,
        counted=False,  # a file is compared by its checksum; one that the user accepts may have any number of rows
    )


def _rows(
    info: DatasetInfo, options: Options, source: Path, images: ImageStore
) -> Iterator[PublishedRow]:
    """Read the records whose image exists, and note those that are missing."""
    records, roots = _records(info, source, options), ImageRoots(source, options.images)
    counts = _counted(records, roots)
    for count in counts:
        if not count.found and not options.allow_incomplete:
            title, expected = (
                IMAGE_SOURCES[count.source].title,
                IMAGE_SOURCES[count.source].expected,
            )
            raise SourceError(
                f"'{info.name}' needs {len(count.missing)} images of {title}, and none of them is below "
                f"{roots.searched[count.source]}; give {expected} with --images {count.source}=DIR, or leave its "
                f"{count.questions} questions out with --allow-incomplete"
            )
    file = PurePosixPath(next(iter(info.sha256)))
    add = functools.cache(images.add_file)
    for row in records:
        key, name = source_of(row), row.text("img_name")
        if path := roots.find(key, name):
            patient = _PATIENT.match(name)
            document = {
                "doc_id": f"{file.stem}/{row.integer('qid')}",  # the number is unique in its file only
                "patient_id": patient[1] if patient else None,
                **_KINDS[info.name][2](row),
                "image_id": None,
            }
            stored = images_row(row.place, [(name, functools.partial(add, path))], document)
            if stored.document is None:
                image = "its image" if IMAGE_SOURCES[key].private else f"its image {name}"
                stored = PublishedRow(
                    row.place, None, cause=f"{image} ({IMAGE_SOURCES[key].title}) cannot be read"
                )
            yield stored
    for count in counts:
        if count.missing:
            image_source, total = IMAGE_SOURCES[count.source], len(count.found) + len(count.missing)
            example = "" if image_source.private else f", such as {min(count.missing)}"
            cause = f"{len(count.missing)} of the {total} images of {image_source.title} are missing{example}"
            yield PublishedRow(
                file.name, None, cause=f"{cause}, and with them {count.questions} questions"
            )


RECIPES = {info.name: functools.partial(_recipe, info) for info in MEDHEVAL}
