"""Recorded replies to a task, whoever wrote their file: the harness, the user, or another evaluation kit."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medtasks.data.samples import Documents
from medtasks.errors import DatasetNotPrepared, MedTasksError, RepliesError, warn_once
from medtasks.families.family import Reply
from medtasks.runs.foreign.foreign_rows import ForeignFile
from medtasks.runs.foreign.matching import MatchedReplies, match_rows
from medtasks.runs.foreign.named_columns import Columns
from medtasks.runs.foreign.recognition import read_foreign
from medtasks.runs.foreign.row_matching import match_each
from medtasks.runs.foreign.sample_index import SampleIndex
from medtasks.runs.foreign.samples_from_file import file_provenance, samples_from_file
from medtasks.runs.question_manifest import manifest_of_replies
from medtasks.runs.replies import of_one_run, read_replies
from medtasks.tasks.documents import image_settings, task_documents, task_provenance
from medtasks.tasks.question_files import is_local
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_files

_ROWS = 200  # of a file, which are enough to tell which task it answers


@dataclass(frozen=True)
class RecordedReplies:
    """Replies by document id.

    Attributes:
        runs: The replies of each run, of which only other kits' files hold several.
        matched: How the rows of another kit's file were matched; None for our own forms.
    """

    runs: tuple[Mapping[str, Reply], ...]
    matched: MatchedReplies | None = None

    @property
    def only_run(self) -> Mapping[str, Reply]:
        """Replies of the only run. Raises RepliesError if there are several."""
        if len(self.runs) > 1:
            raise RepliesError(
                f"the file holds {len(self.runs)} runs of each question; 'medtasks score' scores each of them, and "
                f"'medtasks compare' takes them all"
            )
        return self.runs[0]

    def logged_run(self, task: str) -> Mapping[str, Reply]:
        """Log how rows were matched, and return the only run. Raises RepliesError if there are several."""
        for note in self.notes:
            warn_once(f"{task}: {note}")
        return self.only_run

    @property
    def notes(self) -> list[str]:
        """Sentences on how rows were matched, none for our own forms."""
        return [] if self.matched is None else list(self.matched.sentences())


def read_recorded(
    task: TaskFile,
    documents: Documents,
    paths: Sequence[Path],
    kit: str | None = None,
    columns: Columns | None = None,
) -> RecordedReplies:
    """Read the replies to a task from files of one run.

    Args:
        task: The task.
        documents: All its documents.
        paths: Files or folders.
        kit: Name of the kit that wrote the files; None: their content decides.
        columns: Columns of a file by our names of them; None: the usual names.

    Raises:
        RepliesError: A file cannot be read, or most of its rows answer another task.
        WithheldReply: A file of the harness holds no replies, because its dataset is credentialed.
    """
    manifests = list(map(manifest_of_replies, paths))
    for manifest in filter(None, manifests):
        manifest.check(task, documents)
    file = read_foreign(paths, kit, columns)
    if file is None:
        return RecordedReplies((read_replies(paths, documents, image_settings(task)),))
    if any(manifests):
        file = replace(file, is_id_named=True, has_our_prompts=True)
    matched = match_rows(file, documents, task)
    if not matched.fits:
        counts = matched.counts
        name, answered, rows = _nearest_task(matched.file, task)
        hint = ""
        if name:
            hint = f"; {answered} of {rows} rows that were tried are questions of '{name}'"
        left_out = matched.unmatched_rows or matched.ambiguous
        raise RepliesError(
            f"the file of {matched.file.kit} answers another task than '{task.name}', or in another form: "
            f"{counts['matched']} of {counts['samples']} samples are matched, and {counts['unmatched']} of "
            f"{counts['rows']} rows answer none. {matched.describe(left_out)}{hint}"
        )
    return RecordedReplies(tuple(map(of_one_run, matched.runs)), matched)


def read_with_data(
    task: TaskFile,
    paths: Sequence[Path],
    kit: str | None = None,
    columns: Columns | None = None,
) -> tuple[RecordedReplies, Documents, Mapping[str, Any]]:
    """Read the replies to a task as :func:`read_recorded` does, its documents, and their provenance.

    Where the data are not prepared, a file of another kit that holds options and gold is scored without them.

    Returns:
        The replies, the documents (without data, those of the file's rows), and their provenance by name, as
        :func:`~medtasks.tasks.documents.task_provenance` or :func:`~.samples_from_file.file_provenance` returns it.

    Raises:
        RepliesError: See :func:`read_recorded`.
        DatasetNotPrepared: The file cannot be scored without the data.
    """
    try:
        documents = task_documents(task)
    except DatasetNotPrepared as error:
        file = read_foreign(paths, kit, columns)
        if file is None:
            raise
        try:
            documents, named = samples_from_file(file, task)
        except MedTasksError as fault:
            raise DatasetNotPrepared(
                f"{error}; the file cannot stand in for the data: {fault}"
            ) from fault
        matched = match_rows(named, documents, task)
        provenance = file_provenance(file, documents, task)
        return RecordedReplies(matched.runs, matched), documents, provenance
    recorded = read_recorded(task, documents, paths, kit, columns)
    return recorded, documents, task_provenance(task, documents)


def _nearest_task(file: ForeignFile, task: TaskFile) -> tuple[str, int, int]:
    """Find the other task on this machine that most rows of a file answer.

    Args:
        file: Rows that do not answer the task.
        task: The task that the user named.

    Returns:
        Its name, empty if no row answers any; the number of rows that answer it; and that of the rows read.
    """
    step = max(1, len(file.rows) // _ROWS)
    rows = file.rows[::step][:_ROWS]
    sample = replace(file, rows=rows)
    nearest = ""
    most = 0
    datasets = {task.dataset or task.name}
    for other in task_files().values():
        dataset = other.dataset or other.name
        # Of each dataset, only the questions of the first task are compared.
        if other.kind == "group" or dataset in datasets:
            continue
        datasets.add(dataset)
        with contextlib.suppress(MedTasksError):
            if other.dataset is None and not is_local(task_config(other.name)):
                continue
            matches = match_each(sample, SampleIndex(task_documents(other)))
            count = sum(bool(match.samples) for match in matches)
            if count > most:
                nearest = other.name
                most = count
    return nearest, most, len(rows)
