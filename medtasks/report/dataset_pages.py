"""Page and JSON of the search for duplicates in a dataset.

Only :class:`DuplicateNames` turns names of images into text. For a credentialed dataset these are hashed ids, the same
as in results: no image, no file name, nothing about the images it is compared with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.data.duplicates.duplicate_search import Concern, CopyKind, DuplicatePair, Duplicates
from medtasks.data.duplicates.image_copies import DistinctImage, OtherImages
from medtasks.data.duplicates.image_hashes import BITS, LIKENESS, SIDE, TINY_SIDE
from medtasks.data.privacy import hidden_id
from medtasks.report import wording
from medtasks.report.page import Thumbnail, thumbnails, write_rendered
from medtasks.report.tables import Table, number_table
from medtasks.report.wording import count, counted, part_of

MOST_SHOWN = 250  # findings on the page, for each of the two lists; the JSON has all
_HIDDEN = Thumbnail("", remark="credentialed data: not shown")
_NAMED = 3


class DuplicateNames:
    """Names of images and questions in the output."""

    def __init__(self, search: Duplicates) -> None:
        self.hidden = bool(search.shown.private)
        self.other_is_hidden = search.other is not None and (self.hidden or search.other.private)
        self._folders: Sequence[Path] = search.shown.folders
        self._other_folders = [search.other.folder] if search.other and search.other.folder else []

    def described(self, image: DistinctImage, *, own: bool = True, file: int = 0) -> dict[str, Any]:
        """Describe an image, of the dataset (``own``) or not; ``file`` is the index of the file named first."""
        hidden = self.hidden if own else self.other_is_hidden
        files = [below(path, self._folders if own else self._other_folders) for path in image.files]
        if hidden:
            ids = {
                use.file: use.image_id for use in reversed(image.uses) if use.image_id is not None
            }
            kind = "image" if image.uses else "file"
            files = [
                hidden_id(kind, ids.get(path, name))
                for path, name in zip(image.files, files, strict=True)
            ]
        questions, examples = (
            [hidden_id("doc", name) if hidden else _printable(name) for name in names]
            for names in (image.questions, image.examples)
        )
        return {
            "picture": files[file],
            "more_files": list(dict.fromkeys(name for name in files if name != files[file])),
            "size": list(image.known.size),
            "questions": questions,
            "examples": examples,
        }

    def finding(self, finding: DuplicatePair) -> dict[str, Any]:
        """Describe a pair."""
        alike, concern = finding.alike, finding.concern
        return {
            "kind": str(finding.kind),
            "concern": str(concern) if concern else None,
            "distance": alike.distance,
            "likeness": round(alike.likeness, 4),
            "inverted": alike.inverted,
            "first": self.described(finding.first),
            "second": self.described(
                finding.second, own=concern is not None, file=_second_file(finding)
            ),
        }


def below(file: Path, folders: Iterable[Path]) -> str:
    """Return the path of a file below the folder that holds it, as valid UTF-8."""
    inside = (
        file.relative_to(folder).as_posix() for folder in folders if file.is_relative_to(folder)
    )
    return _printable(next(inside, file.name))


def _printable(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


def _second_file(finding: DuplicatePair) -> int:
    """Return the index of the file of the second image: another file than of the first, if there is one."""
    return 1 if finding.first is finding.second and len(finding.second.files) > 1 else 0


def duplicates_as_dict(
    dataset: str, data: Mapping[str, Any], search: Duplicates, names: DuplicateNames, distance: int
) -> dict[str, Any]:
    """Return the result of a search in a dataset or task as JSON types, with the provenance of its ``data``."""
    with_question = sum(bool(image.questions) for image in search.shown.images)
    within_counts = []
    for concern in Concern:
        part = [finding for finding in search.within if finding.concern is concern]
        kinds = Counter(finding.kind for finding in part)
        questions = set(chain.from_iterable(finding.questions for finding in part))
        counts = {str(kind): kinds[kind] for kind in CopyKind}
        within_counts.append({"concern": str(concern), **counts, "questions": len(questions)})
    return {
        "dataset": dataset,
        "data": dict(data),
        "settings": {
            "hash": "pHash of imagehash, hash_size 16",
            "bits": BITS,
            "distance": distance,
            "likeness": LIKENESS[SIDE],
            "likeness_of_small_pictures": LIKENESS[TINY_SIDE],
        },
        "questions": len(search.shown.documents),
        "pictures": with_question,
        "pictures_of_examples_only": len(search.shown.images) - with_question,
        "volumes": search.shown.volumes,
        "uniform": [names.described(image) for image in search.uniform],
        "within": [names.finding(finding) for finding in search.within],
        "within_counts": within_counts,
        "groups": [
            [names.described(image)["picture"] for image in group] for group in search.groups
        ],
        "against": _against(search.other, search, names) if search.other else None,
        "left_out": [
            hidden_id("doc", doc_id) if names.hidden else _printable(doc_id)
            for doc_id in search.left_out
        ],
    }


def _against(other: OtherImages, search: Duplicates, names: DuplicateNames) -> dict[str, Any]:
    folders = [other.folder] if other.folder else []
    errors = {} if names.other_is_hidden else other.unreadable
    # Each image and each question of the dataset counts once, under its surest finding.
    pictures: dict[int, CopyKind] = {}
    questions: dict[str, CopyKind] = {}
    for finding in search.outside:  # the surest first
        pictures.setdefault(id(finding.first), finding.kind)
        for question in finding.questions:
            questions.setdefault(question, finding.kind)
    by_picture, by_question = Counter(pictures.values()), Counter(questions.values())
    return {
        "name": "the folder given" if other.folder and names.hidden else _printable(other.name),
        "files": other.files,
        "pictures": len(other.images),
        "uniform": search.uniform_outside,
        "volumes": other.listed.volumes,
        "closed_folders": other.listed.closed,
        "dicom_without_decoder": other.listed.without_decoder,
        "other_files": other.listed.others,
        "unreadable": len(other.unreadable),
        "unreadable_files": {
            below(file, folders): _printable(error) for file, error in errors.items()
        },
        "findings": [names.finding(finding) for finding in search.outside],
        "counts": [
            {"kind": str(kind), "pictures": by_picture[kind], "questions": by_question[kind]}
            for kind in CopyKind
        ],
    }


def duplicate_tables(contents: Mapping[str, Any]) -> list[Table]:
    """Return the numbers of findings of :func:`duplicates_as_dict`: outside the dataset, and within it."""
    name, against, total = contents["dataset"], contents["against"], contents["questions"]
    tables = []
    if against and against["findings"]:
        rows = [(row["kind"], row["pictures"], row["questions"]) for row in against["counts"]]
        rows.append(("any of these", *(sum(row[column] for row in rows) for column in (1, 2))))
        texts = [
            (kind, count(pictures), part_of(questions, total)) for kind, pictures, questions in rows
        ]
        caption = f"Pictures of {name} found in {against['name']}"
        tables.append(
            number_table(caption, ("copies", "pictures", "questions"), texts, split=len(rows) - 1)
        )
    if contents["within"]:
        kinds = [str(kind) for kind in CopyKind]
        texts = [
            (
                row["concern"],
                *(count(row[kind]) for kind in kinds),
                part_of(row["questions"], total),
            )
            for row in contents["within_counts"]
        ]
        headings = ("findings within", *kinds, "questions")
        tables.append(number_table(f"Found within {name}, in numbers of findings", headings, texts))
    return tables


def not_compared(contents: Mapping[str, Any]) -> list[str]:
    """List in sentences the images on both sides that were not compared; empty if there are none."""
    against = contents["against"]
    uniform = (len(contents["uniform"]), "picture", " of a single grey")
    of_dataset = _listed(uniform, (contents["volumes"], "volume", ""))
    sentences = [f"Not compared of {contents['dataset']}: {of_dataset}."] if of_dataset else []
    if against is None:
        return sentences
    causes = against["unreadable_files"]
    first = [f"{file}: {cause}" for file, cause in list(causes.items())[:_NAMED]]
    more = [f"{len(causes) - _NAMED} more"] if len(causes) > _NAMED else []
    skipped = _listed(
        (against["uniform"], "picture", " of a single grey"),
        (against["unreadable"], "damaged file", (f" ({'; '.join(first + more)})" if first else "")),
        (against["volumes"], "volume", ""),
        (against["closed_folders"], "folder", " that may not be read"),
        (
            against["dicom_without_decoder"],
            "DICOM file",
            " (read once pip install 'medtasks[dicom]' was run)",
        ),
        (against["other_files"], "other file", ""),
    )
    return [*sentences, f"Not compared of {against['name']}: {skipped}."] if skipped else sentences


def _listed(*counts: tuple[int, str, str]) -> str:
    return ", ".join(
        f"{counted(number, what)}{remark}" for number, what, remark in counts if number
    )


def write_duplicates_page(
    contents: Mapping[str, Any],
    search: Duplicates,
    names: DuplicateNames,
    path: Path,
    *,
    sample: bool,
) -> None:
    """Write the page of a search and its contents (:func:`duplicates_as_dict`); MedTasksError: it cannot be written."""
    against = contents["against"]
    within, outside = search.within[:MOST_SHOWN], search.outside[:MOST_SHOWN]
    files: list[
        tuple[Path | None, Path | None]
    ] = []  # of both images; None for one that must not be shown
    for finding in (*within, *outside):
        hidden = names.hidden if finding.concern else names.other_is_hidden
        second = None if hidden else finding.second.files[_second_file(finding)]
        files.append((None if names.hidden else finding.first.files[0], second))
    small = thumbnails(file for pair in files for file in pair if file).by_file
    described = [
        *contents["within"][:MOST_SHOWN],
        *(against["findings"][:MOST_SHOWN] if against else []),
    ]
    cards = [
        {**texts, "thumbnails": [small[file] if file else _HIDDEN for file in pair]}
        for texts, pair in zip(described, files, strict=True)
    ]
    write_rendered(
        "duplicates",
        path,
        contents=contents,
        against=against,
        within=cards[: len(within)],
        outside=cards[len(within) :],
        not_compared=not_compared(contents),
        wording=wording,
        counts=duplicate_tables(contents),
        kinds=[str(kind) for kind in CopyKind],
        concerns=[str(concern) for concern in Concern],
        groups=[len(group) for group in contents["groups"]],
        hidden=names.hidden,
        sample=sample,
    )
