"""Questions in files, as ``medtasks questions`` writes them: their description, by which replies are checked."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from medtasks.data.privacy import digest
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import Document
from medtasks.errors import RepliesError
from medtasks.tasks.documents import image_settings, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import DottedName, mapping_in
from medtasks.version import __version__

MANIFEST = "medtasks_questions.json"
_OF_PROMPTS = (
    "doc_to_text",
    "doc_to_messages",
    "doc_to_visual",
    "process_docs",
    "description",
    "num_fewshot",
    "fewshot_config",
    "fewshot_delimiter",
)
_OF_MACHINE = "image_root"  # setting that is a folder of one machine
_ANEW = "write the questions anew with 'medtasks questions', and have them answered again"


@dataclass(frozen=True)
class QuestionManifest:
    """Description of the questions in a folder, without anything about their answers."""

    task: str
    version: str  # of the task
    data: str  # fingerprint of the task's data
    prompts: str  # digest of what the prompts are made of, besides the data
    samples: int  # number of questions in the files
    samples_of_task: int
    files: tuple[str, ...]  # names of the files with the questions
    medtasks: str = __version__  # version of the package that wrote them

    @classmethod
    def of(
        cls,
        task: TaskFile,
        documents: Sequence[Document],
        samples: int,
        files: Sequence[str],
    ) -> "QuestionManifest":
        """Describe questions of a task.

        Args:
            task: The task.
            documents: All its documents.
            samples: Number of documents, from the first on, whose questions are in files.
            files: Names of these files.
        """
        parts: list[Mapping[str, Any]] = []
        # The hooks of a variant call those of its base.
        for name in filter(None, (task.name, task.base)):
            config = task_config(name)
            part: dict[str, Any] = {key: config.get(key) for key in _OF_PROMPTS}
            for key, value in part.items():
                file = value.own_file() if isinstance(value, DottedName) else None
                if file is not None:  # the text of the user's own function
                    part[key] = [value, file.read_text(encoding="utf-8")]
            parts.append(part)
        settings = dict(image_settings(task))
        settings.pop(_OF_MACHINE, None)
        return cls(
            task=task.name,
            version=str(mapping_in(task_config(task.name), "metadata").get("version", "")),
            data=str(task_provenance(task, documents)["fingerprint"]),
            prompts=digest(json.dumps([*parts, settings], sort_keys=True, default=str)),
            samples=samples,
            samples_of_task=len(documents),
            files=tuple(files),
        )

    def as_text(self) -> str:
        """Return the content of its file."""
        return json.dumps(asdict(self), indent=2) + "\n"

    def check(self, task: TaskFile, documents: Sequence[Document]) -> None:
        """Check that replies to these questions can be scored as replies to a task.

        Args:
            task: The task.
            documents: All documents of the task.

        Raises:
            RepliesError: The questions were those of another task, or of other data or prompts.
        """
        if self.task != task.name:
            raise RepliesError(
                f"the replies answer the questions of '{self.task}', as {MANIFEST} next to them says, and not those of "
                f"'{task.name}'; score them as '{self.task}'"
            )
        now = QuestionManifest.of(task, documents, self.samples, self.files)
        change = ""
        if self.version != now.version:
            change = f"version {self.version} of the task, which is now version {now.version}"
        elif self.data != now.data:
            change = f"other data (fingerprint {self.data}, now {now.data})"
        elif self.prompts != now.prompts:
            change = "other prompts than those of today"
        if change:
            raise RepliesError(
                f"the replies answer questions of '{task.name}' that were made from {change}, as {MANIFEST} next "
                f"to them says; {_ANEW}"
            )


def manifest_of_replies(path: Path) -> QuestionManifest | None:
    """Return the description of the questions that replies answer, or None if no such file is next to them.

    Args:
        path: File of replies, or a folder with one.

    Raises:
        RepliesError: The description is damaged.
    """
    file = (path if path.is_dir() else path.parent) / MANIFEST
    if not file.is_file():
        return None
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
        values = {each.name: content[each.name] for each in fields(QuestionManifest)}
        values["files"] = tuple(values["files"])
        return QuestionManifest(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise RepliesError(f"{file} is damaged; {_ANEW}") from error


def reply_files(folder: Path) -> list[Path]:
    """Return the files of JSON Lines in a folder that may hold replies: all but those with the questions."""
    manifest = manifest_of_replies(folder)
    questions = () if manifest is None else manifest.files
    return [file for file in sorted(folder.glob("*.jsonl")) if file.name not in questions]
