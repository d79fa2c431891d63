"""Questions of a task as the harness would ask them, for models that it does not run."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loguru import logger
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.lmms import replace_attribute
from medtasks.lmms.plugin import extend_task_search
from medtasks.prompts.judged import without_judge
from medtasks.prompts.messages import split_images
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_config, task_file, task_files
from medtasks.tasks.task_index import resolve_names

_FEWSHOT_SEED = 1234  # the harness's default
_GENERATES = "generate_until"


@dataclass(frozen=True)
class TaskQuestion:
    """One sample of a task, as models of the harness get it."""

    row: int  # in the task's documents
    messages: list[dict[str, Any]]  # of a chat model, with ``{"type": "image"}`` for each image
    images: list[Image.Image]  # of these messages, in order
    text: str  # prompt of a simple model, which gets the images apart
    text_images: list[Image.Image]


def check_generates(task: TaskFile) -> None:
    """Raise MedTasksError if a task's questions cannot be answered by one text each."""
    if task.output_type == _GENERATES:
        return
    if not task.compares_likelihoods:
        raise MedTasksError(
            f"'{task.name}' asks in several rounds, each of which depends on the reply before; run it with "
            f"'medtasks run'"
        )
    instead = "run"
    if (similar := _similar_task(task)) is not None:
        instead = f"write those of '{similar}', which asks for words, or run"
    raise MedTasksError(
        f"'{task.name}' compares likelihoods of options, which replies in files do not tell; {instead} it with "
        f"'medtasks run'"
    )


def _similar_task(task: TaskFile) -> str | None:
    """Return a task with the same questions whose replies are texts, or None.

    It is the task that this one was made of, or the first of the same dataset.
    """
    if task.origin is not None and task_file(task.origin).output_type == _GENERATES:
        return task.origin
    if task.dataset is None:
        return None
    for name, other in task_files().items():
        if other.dataset == task.dataset and other.output_type == _GENERATES:
            return name
    return None


def harness_task(task: TaskFile) -> Any:
    """Build the harness's own object of a task for chat models, which loads its documents.

    Raises:
        DatasetNotPrepared: Its documents are not on this machine. Others are errors of loading.
    """
    from lmms_eval import tasks
    from lmms_eval.api.task import ConfigurableMessagesTask

    extend_task_search(tasks)
    with _quiet(), without_judge():
        built = ConfigurableMessagesTask(config=resolve_names(task_config(task.name)))
    if built.config.num_fewshot is None:
        built.set_config("num_fewshot", 0)
    built.set_fewshot_seed(seed=_FEWSHOT_SEED)
    return built


def questions_of(built: Any, limit: int | None) -> Iterator[TaskQuestion]:
    """Yield the first questions of a task of the harness, or all.

    Args:
        built: Result of :func:`harness_task`, of a task that generates text.
        limit: Number of questions, None for all.

    Raises:
        MedTasksError: A prompt shows something else than images. Errors of the task's own functions come out, too.
    """
    with _quiet(), without_judge():
        built.build_all_requests(limit=limit)
    for request in built.instances:
        text, messages_of, _, row, _, split = request.args
        document = built.dataset[split][row]
        with without_judge():
            messages, images = split_images(messages_of(document))
            text_images = list(built.doc_to_visual(document) or ())
        yield TaskQuestion(row, messages, images, text, text_images)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out the harness's log and progress bar within the block."""
    from lmms_eval.api import task as harness

    logger.disable("lmms_eval")
    try:
        with replace_attribute(harness, "tqdm", lambda rows, **_: rows):
            yield
    finally:
        logger.enable("lmms_eval")


def generation_settings(built: Any) -> Mapping[str, Any]:
    """Return the settings by which a task of the harness has replies generated."""
    return dict(built.config.generation_kwargs or {})
