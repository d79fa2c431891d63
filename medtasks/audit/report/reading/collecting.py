"""From a run's folder, or from recorded replies, to the contents of a report."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from loguru import logger

from medtasks.audit.report.contents import RunReport
from medtasks.audit.report.reading.gains import finished
from medtasks.audit.report.reading.recorded_run import RecordedRun
from medtasks.audit.report.reading.task_reading import given_replies
from medtasks.audit.report.reading.task_sections import reading_section, section
from medtasks.harness.documents import task_documents
from medtasks.harness.replies import read_replies
from medtasks.harness.task_files import scored_task

Progress = Callable[[str], None]
_WEIGHTS = ("pretrained=", "model=", "model_path=")


def collect_run(run: RecordedRun, *, progress: Progress | None = None) -> RunReport:
    """Return what a report says about a run.

    Scores are computed again from the recorded replies through the task's own hooks; where that gives other numbers
    than the run recorded, a note names both and the recorded ones stand. Nothing here loads a model or asks a judge.
    """
    sections = []
    with _silent_hooks():
        for name, recorded in run.tasks.items():
            if progress:
                progress(name)
            sections.append(section(recorded))
        tasks = finished(sections)
    return RunReport(
        title=_title(run.model) or run.folder.resolve().name,
        model=run.model,
        created=_now(),
        run_at=run.run_at,
        facts=run.facts,
        tasks=tasks,
        missing=run.missing,
        notes=(*run.notes, *(note for one in sections for note in one.notes)),
    )


def collect_replies(task_name: str, paths: Sequence[Path], *, progress: Progress | None = None) -> RunReport:
    """Return what a report says about recorded replies to one task, in files or folders of one run.

    Raises:
        UnknownName: There is no such task.
        RepliesError: The replies cannot be read, do not fit the task, or the task is a group.
        DatasetNotPrepared: Its dataset is not there.
    """
    task = scored_task(task_name)
    if progress:
        progress(task_name)
    documents = task_documents(task)
    replies = read_replies(paths, documents)
    with _silent_hooks():
        found = reading_section(given_replies(task, documents, replies))
    return RunReport(
        title=f"Recorded replies to {task_name}",
        model="",
        created=_now(),
        run_at="",
        facts={"replies": ", ".join(map(str, paths))},
        tasks=(found.report,),
        missing={},
        notes=("Made from recorded replies: which model gave them, and how, is not recorded.", *found.notes),
    )


@contextlib.contextmanager
def _silent_hooks() -> Iterator[None]:
    """Keep back what hooks warn of while they score, such as cut pairs: the report says it, once."""
    logger.disable("medtasks.hooks")
    try:
        yield
    finally:
        logger.enable("medtasks.hooks")


def _title(model: str) -> str:
    """Return the model's name and that of its weights, without the other arguments.

    Example:
        >>> _title("medtasks_hf_vlm pretrained=/models/med-vlm,dtype=bfloat16")
        'medtasks_hf_vlm: med-vlm'
    """
    name, _, arguments = model.partition(" ")
    for argument in arguments.split(","):
        for key in _WEIGHTS:
            if argument.startswith(key) and len(argument) > len(key):
                return f"{name}: {Path(argument.removeprefix(key)).name}"
    return name


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
