"""What is said of duplicates, and the page to look at them side by side.

Nowhere else do names of pictures become what is shown.
Of a credentialed dataset this is hashed ids, the same as in results: no picture, no file name, nothing of the pictures
it is compared with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.audit.report import words
from medtasks.audit.report.page.thumbnails import Thumbnail, thumbnails
from medtasks.audit.report.page.writing import rendered, write_whole
from medtasks.audit.report.words import count, counted, part_of
from medtasks.audit.tables import Table, number_table
from medtasks.data.duplicates.benchmark_images import DistinctImage, OtherImages
from medtasks.data.duplicates.finding import Concern, Duplicates, Finding, Kind
from medtasks.data.duplicates.perceptual_hash import BITS, LIKENESS, SIDE, TINY_SIDE
from medtasks.data.prepared import provenance
from medtasks.data.privacy import hidden_id, is_private

MOST_SHOWN = 250  # findings that the page shows of each of the two lists; the JSON has all
_HIDDEN = Thumbnail("", remark="credentialed data: not shown")
_NAMED = 3


class Names:
    """How pictures and questions of a search are called."""

    def __init__(self, dataset: str, found: Duplicates) -> None:
        self.hidden = any(map(is_private, {dataset, *(str(document["dataset"]) for document in found.shown.documents)}))
        self._folders = found.shown.folders
        self._other = found.other

    @property
    def other(self) -> str:
        """What the set was compared with."""
        assert self._other is not None
        return self._other.name if self._other.folder is None or not self.hidden else "the folder given"

    def other_is_hidden(self) -> bool:
        """Return whether pictures and names of the other side may not be shown."""
        return self._other is not None and (self.hidden or self._other.private)

    def question(self, doc_id: str) -> str:
        """Return what a question of the set is called."""
        return hidden_id("doc", doc_id) if self.hidden else _printable(doc_id)

    def described(self, picture: DistinctImage, *, own: bool = True, file: int = 0) -> dict[str, Any]:
        """Return what is said of a picture, the set's ``own`` or not; ``file`` is which of its files comes first."""
        hidden = self.hidden if own else self.other_is_hidden()
        called = hidden_id if hidden else lambda _, name: _printable(name)
        files = self._files(picture, own=own, hidden=hidden)
        return {
            "picture": files[file],
            "more_files": list(dict.fromkeys(name for name in files if name != files[file])),
            "size": list(picture.known.size),
            "questions": [called("doc", name) for name in picture.questions],
            "examples": [called("doc", name) for name in picture.examples],
        }

    def unreadable(self, other: OtherImages) -> dict[str, str]:
        """Return why files could not be read, by file; none where names may not be shown."""
        if self.other_is_hidden():
            return {}
        return {_printable(_below(file, [other.folder])): _printable(why) for file, why in other.unreadable.items()}

    def _files(self, picture: DistinctImage, *, own: bool, hidden: bool) -> list[str]:
        folders = self._folders if own else [self._other.folder if self._other else None]
        below = [_below(file, folders) for file in picture.files]
        if not hidden:
            return [_printable(file) for file in below]
        ids = {use.file: use.image_id for use in reversed(picture.uses) if use.image_id is not None}
        kind = "image" if picture.uses else "file"
        return [hidden_id(kind, ids.get(file, name)) for file, name in zip(picture.files, below, strict=True)]


def duplicates_as_dict(dataset: str, found: Duplicates, names: Names, distance: int, *, turned: bool) -> dict[str, Any]:
    """Return everything that was found, ready for JSON.

    As was searched, ``distance`` bits of the hashes may differ, and copies may be mirrored and rotated (``turned``).
    """
    asked = sum(bool(picture.questions) for picture in found.shown.images)
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
        "uniform": [names.described(picture) for picture in found.uniform],
        "within": [_finding(finding, names) for finding in found.within],
        "within_counts": _within_counts(found.within),
        "groups": [[names.described(picture)["picture"] for picture in group] for group in found.groups],
        "against": _other(found, names) if found.other else None,
        "left_out": [names.question(doc_id) for doc_id in found.left_out],
    }


def _shown_files(finding: Finding, names: Names) -> tuple[Path | None, Path | None]:
    """Return the files of a finding's two pictures; None for one that may not be shown."""
    own = finding.concern is not None
    first = None if names.hidden else finding.first.files[0]
    hidden = names.hidden if own else names.other_is_hidden()
    return first, None if hidden else finding.second.files[_other_file(finding)]


def _other(found: Duplicates, names: Names) -> dict[str, Any]:
    assert found.other is not None
    return {
        "name": _printable(names.other),
        "files": found.other.files,
        "pictures": len(found.other.images),
        "uniform": found.uniform_outside,
        "volumes": found.other.listed.volumes,
        "closed_folders": found.other.listed.closed,
        "dicom_without_decoder": found.other.listed.without_decoder,
        "other_files": found.other.listed.others,
        "unreadable": len(found.other.unreadable),
        "unreadable_files": names.unreadable(found.other),
        "findings": [_finding(finding, names) for finding in found.outside],
        "counts": _outside_counts(found.outside),
    }


def _finding(finding: Finding, names: Names) -> dict[str, Any]:
    own = finding.concern is not None
    return {
        "kind": str(finding.kind),
        "concern": str(finding.concern) if finding.concern else None,
        "distance": finding.alike.distance,
        "likeness": round(finding.alike.likeness, 4),
        "turn": finding.alike.turn,
        "inverted": finding.alike.inverted,
        "first": names.described(finding.first),
        "second": names.described(finding.second, own=own, file=_other_file(finding)),
    }


def _other_file(finding: Finding) -> int:
    """Return which file of the second picture to show: another one than of the first, if there is one."""
    return 1 if finding.first is finding.second and len(finding.second.files) > 1 else 0


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
    skipped = _listed(
        (against["uniform"], "picture", " of a single grey"),
        (against["unreadable"], "damaged file", _first_unreadable(against)),
        (against["volumes"], "volume", ""),
        (against["closed_folders"], "folder", " that may not be read"),
        (against["dicom_without_decoder"], "DICOM file", " (read once pip install 'medtasks[dicom]' was run)"),
        (against["other_files"], "other file", ""),
    )
    return [*sentences, f"Not compared of {against['name']}: {skipped}."] if skipped else sentences


def _listed(*counts: tuple[int, str, str]) -> str:
    return ", ".join(f"{counted(number, what)}{remark}" for number, what, remark in counts if number)


def _first_unreadable(against: Mapping[str, Any]) -> str:
    causes = against["unreadable_files"]
    first = [f"{file}: {cause}" for file, cause in list(causes.items())[:_NAMED]]
    more = [f"{len(causes) - _NAMED} more"] if len(causes) > _NAMED else []
    return f" ({'; '.join(first + more)})" if first else ""


def _below(file: Path, folders: Sequence[Path | None]) -> str:
    for folder in folders:
        if folder is not None and file.is_relative_to(folder):
            return file.relative_to(folder).as_posix()
    return file.name


def _printable(name: str) -> str:
    """Return a name as text that any terminal and file takes; names of files need not be."""
    return name.encode("utf-8", "replace").decode("utf-8")


def write_duplicates_page(
    contents: Mapping[str, Any], found: Duplicates, names: Names, path: Path, *, sample: bool
) -> None:
    """Write the page of what :func:`duplicates_as_dict` gave; ``found`` are the same findings with their files.

    The file appears complete or not at all; MedTasksError: it cannot be written.
    """
    against = contents["against"]
    pairs = [[_shown_files(one, names) for one in listed[:MOST_SHOWN]] for listed in (found.within, found.outside)]
    small = thumbnails(file for file in chain.from_iterable(chain(*pairs)) if file).by_file
    cards = [
        [
            {**one, "thumbnails": [small[file] if file else _HIDDEN for file in both]}
            for one, both in zip(listed, shown, strict=False)
        ]
        for listed, shown in zip((contents["within"], against["findings"] if against else []), pairs, strict=True)
    ]
    page = rendered(
        "duplicates",
        contents=contents,
        against=against,
        within=cards[0],
        outside=cards[1],
        not_compared=not_compared(contents),
        words=words,
        counts=duplicate_tables(contents),
        kinds=[str(kind) for kind in Kind],
        concerns=[str(concern) for concern in Concern],
        groups=[len(group) for group in contents["groups"]],
        hidden=names.hidden,
        sample=sample,
    )
    write_whole(path, page)
