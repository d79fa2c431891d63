"""Page and JSON of the search for duplicates in a dataset.

Only :class:`DuplicateNames` turns names of images into text. For a credentialed dataset these are hashed ids, the same
as in results: no image, no file name, nothing about the images it is compared with.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from medtasks.data.duplicates.duplicate_search import (
    Concern,
    CopyKind,
    DuplicatePair,
    Duplicates,
)
from medtasks.data.duplicates.image_copies import DistinctImage, OtherImages
from medtasks.data.duplicates.image_hashes import BITS, LIKENESS, SIDE, TINY_SIDE
from medtasks.data.privacy import hidden_id
from medtasks.report import wording
from medtasks.report.page import Thumbnail, thumbnails, write_rendered
from medtasks.report.tables import Table, number_table
from medtasks.report.wording import count, part_of, quantity

_Json = dict[str, Any]
MOST_SHOWN = 250  # findings on the page, for each of the two lists; the JSON has all
_HIDDEN = Thumbnail(remark="credentialed data: not shown")
_NAMED = 3
_DECODER = " (read once pip install 'medtasks[dicom]' was run)"


class DuplicateNames:
    """Names of images and questions in the output."""

    def __init__(self, search: Duplicates) -> None:
        self.hidden = bool(search.shown.private)
        self.other_is_hidden = search.other is not None and (
            self.hidden or search.other.private
        )
        self._folders: Sequence[Path] = search.shown.folders
        self.other_folders = (
            [search.other.folder] if search.other and search.other.folder else []
        )

    def describe_image(
        self,
        image: DistinctImage,
        *,
        own: bool = True,
        file: int = 0,
    ) -> _Json:
        """Describe an image as JSON values.

        Args:
            image: A distinct image with all its files.
            own: Whether it is of the dataset, not of the images that this is compared with.
            file: Index of the file that is named first.
        """
        folders = self._folders if own else self.other_folders
        files = [below(path, folders) for path in image.files]
        hidden = self.hidden if own else self.other_is_hidden
        rename = _printable
        if hidden:
            rename = _hide_question
            # Files become hashes of the image's id in the dataset, or of their names if it has none.
            ids = {}
            for use in reversed(image.uses):
                if use.image_id is not None:
                    ids[use.file] = use.image_id
            kind = "image" if image.uses else "file"
            names = zip(image.files, files, strict=True)
            files = [hidden_id(kind, ids.get(path, name)) for path, name in names]
        others = dict.fromkeys(files)
        del others[files[file]]
        return {
            "picture": files[file],
            "more_files": list(others),
            "size": list(image.known.size),
            "questions": [*map(rename, image.questions)],
            "examples": [*map(rename, image.examples)],
        }

    def describe_pair(self, finding: DuplicatePair) -> _Json:
        """Describe a pair as JSON values."""
        alike = finding.alike
        concern = finding.concern
        file = _second_file(finding)
        return {
            "kind": str(finding.kind),
            "concern": str(concern) if concern else None,
            "distance": alike.distance,
            "likeness": round(alike.likeness, 4),
            "inverted": alike.inverted,
            "first": self.describe_image(finding.first),
            "second": self.describe_image(finding.second, own=concern is not None, file=file),
        }

    def files_to_show(self, finding: DuplicatePair) -> list[Path | None]:
        """Return a file of each of the two images; None for one that must not be shown."""
        second_is_hidden = self.hidden if finding.concern else self.other_is_hidden
        first = None if self.hidden else finding.first.files[0]
        second = None if second_is_hidden else finding.second.files[_second_file(finding)]
        return [first, second]


def below(file: Path, folders: Iterable[Path]) -> str:
    """Return the path of a file below the folder that holds it, as valid UTF-8.

    Example:
        >>> below(Path("/data/images/a/1.png"), [Path("/other"), Path("/data/images")])
        'a/1.png'
    """
    for folder in folders:
        if file.is_relative_to(folder):
            return _printable(file.relative_to(folder).as_posix())
    return _printable(file.name)


def _hide_question(name: str) -> str:
    return hidden_id("doc", name)


def _printable(name: str) -> str:
    return name.encode("utf-8", "replace").decode("utf-8")


def _second_file(finding: DuplicatePair) -> int:
    """Return the index of the file of the second image: another file than of the first, if there is one."""
    return 1 if finding.first is finding.second and len(finding.second.files) > 1 else 0


def duplicates_as_dict(
    dataset: str,
    data: Mapping[str, Any],
    search: Duplicates,
    names: DuplicateNames,
    distance: int,
) -> _Json:
    """Return the result of a search as JSON types.

    Args:
        dataset: Name of the dataset or task.
        data: Provenance of the data.
        search: The result.
        names: Names of its images.
        distance: Most bits in which the hashes of two copies differ.
    """
    shown = search.shown
    with_question = sum(bool(image.questions) for image in shown.images)
    groups = []
    for group in search.groups:
        groups.append([names.describe_image(image)["picture"] for image in group])
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
        "questions": len(shown.documents),
        "pictures": with_question,
        "pictures_of_examples_only": len(shown.images) - with_question,
        "volumes": shown.volumes,
        "uniform": [names.describe_image(image) for image in search.uniform],
        "within": [names.describe_pair(finding) for finding in search.within],
        "within_counts": [_count_within(search, concern) for concern in Concern],
        "groups": groups,
        "against": _against(search.other, search, names) if search.other else None,
        "left_out": [*map(_hide_question if names.hidden else _printable, search.left_out)],
    }


def _count_within(search: Duplicates, concern: Concern) -> _Json:
    """Count findings within the dataset by kind of copy, and their questions, for one concern."""
    counts = dict.fromkeys(map(str, CopyKind), 0)
    questions = set[str]()
    for finding in search.within:
        if finding.concern is concern:
            counts[str(finding.kind)] += 1
            questions.update(finding.questions)
    return {"concern": str(concern), **counts, "questions": len(questions)}


def _against(other: OtherImages, search: Duplicates, names: DuplicateNames) -> _Json:
    """Return the findings among other images as JSON types. Names of hidden images and files are left out."""
    errors = {}
    if not names.other_is_hidden:
        for file, error in other.unreadable.items():
            errors[below(file, names.other_folders)] = _printable(error)
    # Each image and question of the dataset counts once, under its surest finding, which comes first.
    pictures: dict[int, CopyKind] = {}
    questions: dict[str, CopyKind] = {}
    for finding in search.outside:
        pictures.setdefault(id(finding.first), finding.kind)
        for question in finding.questions:
            questions.setdefault(question, finding.kind)
    by_picture = Counter(pictures.values())
    by_question = Counter(questions.values())
    counts = []
    for kind in CopyKind:
        counts.append(
            {"kind": str(kind), "pictures": by_picture[kind], "questions": by_question[kind]}
        )
    # A folder's name may tell of hidden images, a dataset's is public. "pictures" are the other images, and in "counts"
    # those of the dataset.
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
        "unreadable_files": errors,
        "findings": [names.describe_pair(finding) for finding in search.outside],
        "counts": counts,
    }


def duplicate_tables(contents: _Json) -> list[Table]:
    """Return the numbers of findings outside the dataset, and of those within it.

    Args:
        contents: Result of :func:`duplicates_as_dict`.

    Returns:
        A table for each of the two that has findings.
    """
    name = contents["dataset"]
    against = contents["against"]
    total = contents["questions"]
    tables = []
    if against and against["findings"]:
        rows = []
        pictures = 0
        questions = 0
        for row in against["counts"]:
            rows.append((row["kind"], count(row["pictures"]), part_of(row["questions"], total)))
            pictures += row["pictures"]
            questions += row["questions"]
        rows.append(("any of these", count(pictures), part_of(questions, total)))
        tables.append(
            number_table(
                f"Pictures of {name} found in {against['name']}",
                ("copies", "pictures", "questions"),
                rows,
                split=len(rows) - 1,
            )
        )
    if contents["within"]:
        kinds = [*map(str, CopyKind)]
        texts = []
        for row in contents["within_counts"]:
            numbers = [count(row[kind]) for kind in kinds]
            texts.append((row["concern"], *numbers, part_of(row["questions"], total)))
        tables.append(
            number_table(
                f"Found within {name}, in numbers of findings",
                ("findings within", *kinds, "questions"),
                texts,
            )
        )
    return tables


def skipped_images(contents: _Json) -> list[str]:
    """List the images on both sides that were not compared.

    Args:
        contents: Result of :func:`duplicates_as_dict`.

    Returns:
        A sentence for each side that has such images.
    """
    against = contents["against"]
    grey = " of a single grey"
    sentences = []
    dataset_counts = _list_counts(
        (len(contents["uniform"]), "picture", grey), (contents["volumes"], "volume", "")
    )
    if dataset_counts:
        sentences.append(f"Not compared of {contents['dataset']}: {dataset_counts}.")
    if against is None:
        return sentences
    causes = against["unreadable_files"]
    named = [f"{file}: {cause}" for file, cause in list(causes.items())[:_NAMED]]
    if len(causes) > _NAMED:
        named.append(f"{len(causes) - _NAMED} more")
    other_counts = _list_counts(
        (against["uniform"], "picture", grey),
        (against["unreadable"], "damaged file", f" ({'; '.join(named)})" if named else ""),
        (against["volumes"], "volume", ""),
        (against["closed_folders"], "folder", " that may not be read"),
        (against["dicom_without_decoder"], "DICOM file", _DECODER),
        (against["other_files"], "other file", ""),
    )
    if other_counts:
        sentences.append(f"Not compared of {against['name']}: {other_counts}.")
    return sentences


def _list_counts(*counts: tuple[int, str, str]) -> str:
    parts = [f"{quantity(number, what)}{remark}" for number, what, remark in counts if number]
    return ", ".join(parts)


def write_duplicates_page(
    contents: _Json,
    search: Duplicates,
    names: DuplicateNames,
    path: Path,
    *,
    sample: bool,
) -> None:
    """Write the page of a search.

    Args:
        contents: Result of :func:`duplicates_as_dict`.
        search: The search itself, for its images.
        names: Names of its images, which also say whether they may be shown.
        path: File of the page.
        sample: Whether the data are synthetic.

    Raises:
        MedTasksError: The page cannot be written.
    """
    against = contents["against"]
    within = search.within[:MOST_SHOWN]
    descriptions = contents["within"][:MOST_SHOWN]
    if against:
        descriptions = descriptions + against["findings"][:MOST_SHOWN]
    files: list[list[Path | None]] = []
    for finding in (*within, *search.outside[:MOST_SHOWN]):
        files.append(names.files_to_show(finding))
    small = thumbnails(filter(None, chain.from_iterable(files))).by_file
    cards = []
    for texts, pair in zip(descriptions, files, strict=True):
        images = [small[file] if file else _HIDDEN for file in pair]
        cards.append({**texts, "thumbnails": images})
    write_rendered(
        "duplicates",
        path,
        contents=contents,
        against=against,
        within=cards[: len(within)],
        outside=cards[len(within) :],
        not_compared=skipped_images(contents),
        wording=wording,
        counts=duplicate_tables(contents),
        kinds=[*map(str, CopyKind)],
        concerns=[*map(str, Concern)],
        groups=[*map(len, contents["groups"])],
        hidden=names.hidden,
        sample=sample,
    )
