"""JSON contents and page of a search for duplicates.

Only :class:`Names` turns names of images into text. Of a credentialed dataset these are hashed ids, the same as in
results: no image, no file name, nothing of the images it is compared with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.audit.report import wording
from medtasks.audit.report.page import rendered, write_whole
from medtasks.audit.report.thumbnails import Thumbnail, thumbnails
from medtasks.audit.report.wording import count, counted, part_of
from medtasks.audit.tables import Table, number_table
from medtasks.data.duplicates.benchmark_images import DistinctImage
from medtasks.data.duplicates.finding import Concern, Duplicates, Finding, Kind
from medtasks.data.duplicates.perceptual_hash import BITS, LIKENESS, SIDE, TINY_SIDE
from medtasks.data.prepared import provenance
from medtasks.data.privacy import hidden_id, is_private

MOST_SHOWN = 250  # findings that the page shows of each of the two lists; the JSON has all
_HIDDEN = Thumbnail("", remark="credentialed data: not shown")
_NAMED = 3


class Names:
    """Names of images and questions in the output."""

    def __init__(self, dataset: str, found: Duplicates) -> None:
        self.hidden = any(map(is_private, {dataset, *(str(document["dataset"]) for document in found.shown.documents)}))
        self.other_is_hidden = found.other is not None and (self.hidden or found.other.private)
        self._folders: Sequence[Path] = found.shown.folders
        self._other_folders = [found.other.folder] if found.other and found.other.folder else []

    def question(self, doc_id: str) -> str:
        """Return the name of a question of the set."""
        return hidden_id("doc", doc_id) if self.hidden else _printable(doc_id)

    def described(self, image: DistinctImage, *, own: bool = True, file: int = 0) -> dict[str, Any]:
        """Describe an image, of the set itself (``own``) or not; ``file`` is the index of the file named first."""
        hidden = self.hidden if own else self.other_is_hidden
        files = [below(path, self._folders if own else self._other_folders) for path in image.files]
        if hidden:
            ids = {use.file: use.image_id for use in reversed(image.uses) if use.image_id is not None}
            kind = "image" if image.uses else "file"
            files = [hidden_id(kind, ids.get(path, name)) for path, name in zip(image.files, files, strict=True)]
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

    def finding(self, finding: Finding) -> dict[str, Any]:
        """Describe a finding."""
        return {
            "kind": str(finding.kind),
            "concern": str(finding.concern) if finding.concern else None,
            "distance": finding.alike.distance,
            "likeness": round(finding.alike.likeness, 4),
            "turn": finding.alike.turn,
            "inverted": finding.alike.inverted,
            "first": self.described(finding.first),
            "second": self.described(finding.second, own=finding.concern is not None, file=_second_file(finding)),
        }

    def shown_files(self, finding: Finding) -> tuple[Path | None, Path | None]:
        """Return the files of both images; None for one that may not be shown."""
        hidden = self.hidden if finding.concern else self.other_is_hidden
        second = None if hidden else finding.second.files[_second_file(finding)]
        return None if self.hidden else finding.first.files[0], second


def below(file: Path, folders: Iterable[Path]) -> str:
    """Return the path of a file below the folder that holds it, as text that any terminal and file takes."""
    inside = (file.relative_to(folder).as_posix() for folder in folders if file.is_relative_to(folder))
    return _printable(next(inside, file.name))


def _printable(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


def _second_file(finding: Finding) -> int:
    """Return which file of the second image to show: another one than of the first, if there is one."""
    return 1 if finding.first is finding.second and len(finding.second.files) > 1 else 0


def duplicates_as_dict(dataset: str, found: Duplicates, names: Names, distance: int, *, turned: bool) -> dict[str, Any]:
    """Return the result of a search with these settings, ready for JSON."""
    asked = sum(bool(image.questions) for image in found.shown.images)
    return {
        "dataset": dataset,
        "data": provenance(dataset),
        "settings": {
            "hash": "pHash of imagehash, hash_size 16",
            "bits": BITS,
            "distance": distance,
            "likeness": LIKENESS[SIDE],
            "likeness_of_small_pictures": LIKENESS[TINY_SIDE],
            "turned": turned,
        },
        "questions": found.questions,
        "pictures": asked,
        "pictures_of_examples_only": len(found.shown.images) - asked,
        "volumes": found.shown.volumes,
        "uniform": [names.described(image) for image in found.uniform],
        "within": [names.finding(finding) for finding in found.within],
        "within_counts": _within_counts(found.within),
        "groups": [[names.described(image)["picture"] for image in group] for group in found.groups],
        "against": _other(found, names),
        "left_out": [names.question(doc_id) for doc_id in found.left_out],
    }


def _other(found: Duplicates, names: Names) -> dict[str, Any] | None:
    other = found.other
    if other is None:
        return None
    folders = [other.folder] if other.folder else []
    errors = {} if names.other_is_hidden else other.unreadable
    return {
        "name": "the folder given" if other.folder and names.hidden else _printable(other.name),
        "files": other.files,
        "pictures": len(other.images),
        "uniform": found.uniform_outside,
        "volumes": other.listed.volumes,
        "closed_folders": other.listed.closed,
        "dicom_without_decoder": other.listed.without_decoder,
        "other_files": other.listed.others,
        "unreadable": len(other.unreadable),
        "unreadable_files": {below(file, folders): _printable(error) for file, error in errors.items()},
        "findings": [names.finding(finding) for finding in found.outside],
        "counts": _outside_counts(found.outside),
    }


def _within_counts(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    rows = []
    for concern in Concern:
        part = [finding for finding in findings if finding.concern is concern]
        kinds = Counter(finding.kind for finding in part)
        questions = {question for finding in part for question in finding.questions}
        rows.append({"concern": str(concern), **{str(kind): kinds[kind] for kind in Kind}, "questions": len(questions)})
    return rows


def _outside_counts(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Count each picture and each question of the set once, under its surest finding."""
    pictures: dict[int, Kind] = {}
    questions: dict[str, Kind] = {}
    for finding in findings:  # the surest first
        pictures.setdefault(id(finding.first), finding.kind)
        for question in finding.questions:
            questions.setdefault(question, finding.kind)
    by_picture, by_question = Counter(pictures.values()), Counter(questions.values())
    return [{"kind": str(kind), "pictures": by_picture[kind], "questions": by_question[kind]} for kind in Kind]


def duplicate_tables(contents: Mapping[str, Any]) -> list[Table]:
    """Return the numbers of findings of :func:`duplicates_as_dict`: outside the set, and within it."""
    name, against, total = contents["dataset"], contents["against"], contents["questions"]
    tables = []
    if against and against["findings"]:
        rows = [(row["kind"], row["pictures"], row["questions"]) for row in against["counts"]]
        rows.append(("any of these", *(sum(row[column] for row in rows) for column in (1, 2))))
        shown = [(kind, count(pictures), part_of(questions, total)) for kind, pictures, questions in rows]
        caption = f"Pictures of {name} found in {against['name']}"
        tables.append(number_table(caption, ("copies", "pictures", "questions"), shown, split=len(rows) - 1))
    if contents["within"]:
        kinds = [str(kind) for kind in Kind]
        shown = [
            (row["concern"], *(count(row[kind]) for kind in kinds), part_of(row["questions"], total))
            for row in contents["within_counts"]
        ]
        headings = ("findings within", *kinds, "questions")
        tables.append(number_table(f"Found within {name}, in numbers of findings", headings, shown))
    return tables


def not_compared(contents: Mapping[str, Any]) -> list[str]:
    """Return sentences about what of both sides :func:`duplicates_as_dict` did not compare; none if everything was."""
    against = contents["against"]
    own = _listed((len(contents["uniform"]), "picture", " of a single grey"), (contents["volumes"], "volume", ""))
    sentences = [f"Not compared of {contents['dataset']}: {own}."] if own else []
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
        (against["dicom_without_decoder"], "DICOM file", " (read once pip install 'medtasks[dicom]' was run)"),
        (against["other_files"], "other file", ""),
    )
    return [*sentences, f"Not compared of {against['name']}: {skipped}."] if skipped else sentences


def _listed(*counts: tuple[int, str, str]) -> str:
    return ", ".join(f"{counted(number, what)}{remark}" for number, what, remark in counts if number)


def write_duplicates_page(
    contents: Mapping[str, Any], found: Duplicates, names: Names, path: Path, *, sample: bool
) -> None:
    """Write the page of the contents of :func:`duplicates_as_dict` and of the findings they describe.

    The file appears complete or not at all; MedTasksError: it cannot be written.
    """
    against = contents["against"]
    within, outside = (
        [(described, names.shown_files(finding)) for described, finding in zip(listed, findings, strict=True)]
        for listed, findings in (
            (contents["within"][:MOST_SHOWN], found.within[:MOST_SHOWN]),
            (against["findings"][:MOST_SHOWN] if against else [], found.outside[:MOST_SHOWN]),
        )
    )
    files = chain.from_iterable(both for _, both in [*within, *outside])
    small = thumbnails(file for file in files if file).by_file
    cards = [
        [{**described, "thumbnails": [small[file] if file else _HIDDEN for file in both]} for described, both in shown]
        for shown in (within, outside)
    ]
    page = rendered(
        "duplicates",
        contents=contents,
        against=against,
        within=cards[0],
        outside=cards[1],
        not_compared=not_compared(contents),
        wording=wording,
        counts=duplicate_tables(contents),
        kinds=[str(kind) for kind in Kind],
        concerns=[str(concern) for concern in Concern],
        groups=[len(group) for group in contents["groups"]],
        hidden=names.hidden,
        sample=sample,
    )
    write_whole(path, page)
