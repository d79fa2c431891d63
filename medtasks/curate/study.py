"""A study: the folder in which a benchmark is built, from images to reviewed questions.

=====================  =================================================================================================
``study.json``         its description and settings, :class:`Study`
``images.jsonl``       its images, one :class:`StudyImage` per line; the files stay where they are
``pairs.jsonl``        chosen pairs, one :class:`ImagePair` per line (studies of pairs only)
``drafts.jsonl``       journal of the requests to the LLM, see :mod:`medtasks.curate.drafts`
``reviews/*.json``     one file per reviewer, see :mod:`medtasks.curate.review.reviews`
=====================  =================================================================================================

All files are readable by their owner only: captions and reports may be a patient's. A study is credentialed unless its
owner says otherwise.
"""

import enum
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from medtasks.data.catalogue import Access
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.named_files import read_file
from medtasks.data.prepare.source_files import SourceFile
from medtasks.data.prepare.source_tables import SourceRow, json_lines
from medtasks.data.privacy import access_of
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import dataset_holding, written_whole
from medtasks.net.journal import digest_of

STUDY = "study.json"
IMAGES = "images.jsonl"
PAIRS = "pairs.jsonl"
DRAFTS = "drafts.jsonl"
REVIEWS = "reviews"
# Options of commands by their keys in a study's record, if these differ.
_OPTIONS = {
    "list": "list of images",
    "medical_encoder": "--encoder",
    "near_duplicates": "--keep-near-duplicates",
    "reports": "file of reports",
}

R = TypeVar("R", bound=BaseModel)


class StudyKind(enum.StrEnum):
    """Kind of the questions on the images."""

    PAIRS = "pairs"
    VISUAL_CLOSED = "visual_closed"
    VISUAL_OPEN = "visual_open"
    KNOWLEDGE_CLOSED = "knowledge_closed"
    KNOWLEDGE_OPEN = "knowledge_open"
    CONTEXTUAL = "contextual"


class StudyRecord(BaseModel):
    """Base of all records of a study: no unknown fields, no changes."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StudyImage(StudyRecord):
    """One image with its text."""

    image_id: str
    file: str  # absolute path
    sha256: str  # SHA-256 of the file's bytes, in hexadecimal digits
    text: str  # caption or report
    # Patient, study or article, None if unknown. Two images of one group are never a pair.
    group: str | None = None
    licence: str | None = None
    # Further parts of a prompt by name: notes, metadata, bounding boxes, question pairs.
    context: Mapping[str, Any] = {}

    def read(self) -> bytes:
        """Return the bytes of the file.

        Raises:
            UnreadableImage: The file is missing or has changed. The error does not name the file.
        """
        try:
            data = read_file(Path(self.file))
        except OSError as error:
            raise UnreadableImage(
                f"its file cannot be read ({error.strerror or type(error).__name__})"
            ) from None
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise UnreadableImage("its file has changed since the study was made")
        return data


class ImagePair(StudyRecord):
    """Two images that one encoder finds alike and another does not."""

    pair_id: str
    images: tuple[str, str]  # ids of the images, the smaller id first
    sim_med: float  # cosine similarity in the medical encoder's space
    sim_gen: float  # cosine similarity in the vision-only encoder's space


class Study(StudyRecord):
    """Description of a study and of its making."""

    schema_version: int = 1
    name: str  # name of the dataset that the study becomes, and of its first task
    kind: StudyKind
    access: Access = Access.CREDENTIALED
    source: str  # file or folder that lists the images
    # Settings by name: thresholds, encoders and their digests, seed, and the counts of what was left out.
    made_with: Mapping[str, Any] = {}

    @property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that change with what made the study. Review files name their study by them."""
        return digest_of(self.model_dump(mode="json"))[:16]


def read_study(folder: Path, *kinds: StudyKind) -> Study:
    """Return the study in a folder.

    Args:
        folder: The folder.
        kinds: Kinds that the study may have. Without any, it may have all.

    Raises:
        MedTasksError: There is no study, or one of another kind.
        SourceError: Its description is damaged.
    """
    path = folder / STUDY
    try:
        study = Study.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MedTasksError(
            f"{folder} holds no study ({STUDY} is missing); make one with 'medtasks curate pairs' or "
            f"'medtasks curate hallucination'"
        ) from None
    except ValueError as error:
        raise SourceError(
            f"{path} is damaged ({problem_of(error)}); make the study again in another folder"
        ) from None
    if kinds and study.kind not in kinds:
        raise MedTasksError(
            f"{folder} is a study of {study.kind}, and this needs one of {' or '.join(kinds)}"
        )
    return study


def read_images(folder: Path, study: Study | None = None) -> dict[str, StudyImage]:
    """Return the images of a study by id, in their order.

    Args:
        folder: Folder of the study.
        study: Description of the study. If it is None, the description is read from the folder.

    Raises:
        MedTasksError: Fewer people may see one of the images than the study.
    """
    levels = list(Access)
    access = (study or read_study(folder)).access
    images = {}
    for number, image in enumerate(read_lines(folder / IMAGES, StudyImage), 1):
        dataset = dataset_holding(Path(image.file))
        if dataset and levels.index(access_of(dataset)) > levels.index(access):
            raise MedTasksError(
                f"line {number} of {folder / IMAGES} is an image of '{dataset}', which is {access_of(dataset)}, so "
                f"that the study cannot be {access}; make it again in another folder, with --access"
            )
        images[image.image_id] = image
    return images


def read_pairs(folder: Path) -> list[ImagePair]:
    """Return the pairs of a study in their order."""
    return read_lines(folder / PAIRS, ImagePair)


def pairs_by_id(folder: Path) -> dict[str, ImagePair]:
    """Return the pairs of a study by their ids, in their order."""
    return {pair.pair_id: pair for pair in read_pairs(folder)}


def read_lines(path: Path, kind: type[R]) -> list[R]:
    """Return one record per line of a file.

    Args:
        path: The file. One that does not exist has no records.
        kind: Class of the records.

    Raises:
        SourceError: A line is damaged, whose number the error names.
    """
    if not path.is_file():
        return []
    records = []
    # A last line without an end was being written when the process was killed.
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            records.append(kind.model_validate_json(line))
        except ValidationError as error:
            raise SourceError(
                f"{path} line {number} is damaged ({problem_of(error)}); delete that line, what it held is made again"
            ) from None
    return records


def write_lines(path: Path, records: Iterable[BaseModel]) -> None:
    """Write a file with one record per line, all or nothing."""
    write_private(path, "".join(record.model_dump_json() + "\n" for record in records))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, all or nothing.

    Raises:
        MedTasksError: The file cannot be written.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_whole(path) as partial:
            partial.touch(0o600)
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MedTasksError(
            f"cannot write {path}: {error.strerror or error}; make room and run it again"
        ) from error


def checked_name(text: str, option: str = "--name") -> str:
    """Return the name of a study and its tasks.

    Args:
        text: The name.
        option: Option of the command that gives another name, for the error.

    Raises:
        MedTasksError: No task can have this name.

    Example:
        >>> checked_name("chest_pairs")
        'chest_pairs'
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", text):
        raise MedTasksError(
            f"'{text}' cannot be a task's name; take small letters, digits and underscores, with {option} if not with "
            f"the folder"
        )
    return text


def list_rows(path: Path, *columns: str) -> Iterator[SourceRow]:
    """Yield the rows of a user's JSONL file.

    Args:
        path: The file.
        columns: Columns that it must have, one of them ``id``.

    Raises:
        SourceError: A column is missing, or an id is empty or occurs twice.
    """
    places: dict[str, str] = {"": ""}
    for row in json_lines(SourceFile(path), columns).rows():
        name = row.name("id")
        if name in places:
            raise row.error(
                f"it has the id of {places[name]}; ids are unique"
                if name
                else "its id is empty"
            )
        places[name] = row.place
        yield row


def write_study(folder: Path, study: Study) -> None:
    """Write the description of a study, the last of its files because it marks the folder as complete.

    Errors are those of :func:`read_images`.
    """
    read_images(folder, study)
    write_private(folder / STUDY, study.model_dump_json(indent=2) + "\n")


def existing_study(folder: Path, planned: Study) -> Study | None:
    """Return the study in a folder, or None if the folder has none yet.

    Args:
        folder: The folder.
        planned: The study that is to be made there.

    Raises:
        MedTasksError: The settings of the study are not as planned, or a new one could overwrite its source or other
            files.
    """
    if not (folder / STUDY).exists():
        _check_own_folder(folder, planned)
        return None
    study = read_study(folder, planned.kind)
    recorded = {"name": study.name, "access": study.access, **study.made_with}
    settings = {"name": planned.name, "access": planned.access, **planned.made_with}
    for key, now in settings.items():
        before = recorded.get(key)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            before = {part: before.get(part) for part in now}
        if before != now:
            option = _OPTIONS.get(key, "--" + key.replace("_", "-"))
            raise MedTasksError(
                f"{folder} was made with another {option} ({_in_words(before)}, now {_in_words(now)}), "
                f"and a study is not changed once it is made; give --out a new folder, what was computed is kept"
            )
    return study


def _check_own_folder(folder: Path, planned: Study) -> None:
    """Raise MedTasksError if a new study could overwrite files, or its own source.

    What a killed run leaves may be overwritten. A folder that does not exist is fine.
    """
    others = []
    if folder.is_dir():
        for file in folder.iterdir():
            is_of_killed_run = file.name in (IMAGES, PAIRS) or file.suffix == ".part"
            if not is_of_killed_run and not file.name.startswith("."):
                others.append(file)
    if others or Path(planned.source).resolve().parent == folder.resolve():
        raise MedTasksError(
            f"{folder} holds other files, and a study needs a folder of its own; take another --out"
        )


def _in_words(setting: object) -> str:
    if isinstance(setting, Mapping):
        return f"{setting['name']}, {setting['digest'][:8]}"
    return str(setting)


def problem_of(error: ValueError) -> str:
    """Describe an error without the text that caused it, which may be a patient's."""
    if not isinstance(error, ValidationError):
        return type(error).__name__
    problem = error.errors(include_input=False, include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'no JSON'}: {problem['type']}"
