"""A run in this process that asks a function in place of a model, for :func:`medtasks.evaluate`.

The harness gets the function by a name under which it is kept only for the run.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loguru import logger

from medtasks.errors import MedTasksError
from medtasks.model_adapters.any_model import GIVEN
from medtasks.model_adapters.function_model import likelihood_error
from medtasks.running.harness_run import run_tasks_here, wanted_tasks
from medtasks.running.preflight import check
from medtasks.running.recording import RunRecording, first_manifest
from medtasks.runs.harness_options import ADAPTER, model_label, write_argument
from medtasks.runs.run_manifest import Severity
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.tasks.documents import Selection, select
from medtasks.tasks.task_files import task_file, tasks_of


def run_function(
    names: Sequence[str],
    function: Callable[..., Any],
    output: Path,
    model_arguments: Mapping[str, object],
    options: Mapping[str, object],
) -> str:
    """Ask a function the questions of tasks, and leave results, replies and manifest in a folder, as ``medtasks run``.

    Args:
        names: Tasks, groups and tags.
        function: Function from a list of questions to texts.
        output: Folder for results.
        model_arguments: Arguments of ``FunctionModel`` by name. An argument that is None is left out.
        options: Further options of the harness by name, such as ``limit``. An option that is None is left out.

    Returns:
        The label of the model in the folder.

    Raises:
        MedTasksError: A task cannot run, or not with a function; the run is refused; no task has results, or no sample
            a reply. Of several tasks, one that fails is a warning, as are samples without a reply.
    """
    selection = _possible_selection(names)
    path = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__name__)}"
    pairs = []
    for key, argument in {"class": path, **model_arguments}.items():
        if argument is not None:
            pairs.append(f"{key}={write_argument(str(argument))}")
    model_args = ",".join(pairs)
    label = model_label(ADAPTER, model_args)
    arguments = ["--log_samples", "--model", ADAPTER, "--model_args", model_args]
    for key, option in options.items():
        if option is not None:
            arguments += [f"--{key}", str(option)]
    GIVEN[path] = function
    try:
        notices = check(names, arguments)
        if refused := [notice.sentence for notice in notices if notice.kind is Severity.REFUSE]:
            raise MedTasksError("; and ".join(refused))
        for notice in notices:
            logger.warning(notice.sentence)
        command = [f"medtasks.evaluate({list(names)}, {label}, output={str(output)!r})"]
        manifest = first_manifest(command, arguments, names, selection, notices)
        recording = RunRecording(
            output, manifest, arguments, FailureLimit.parse(DEFAULT_LIMIT), logger.warning
        )
        with recording.until_its_end():
            run_tasks_here(names, arguments, output, recording.note)
    finally:
        del GIVEN[path]
    _report_losses(recording)
    return label


def _possible_selection(names: Sequence[str]) -> Selection:
    """Select the tasks of names.

    Raises:
        MedTasksError: A task cannot run here, or compares likelihoods, which a function does not have.
    """
    selection = select(names)
    if selection.missing:
        raise MedTasksError("; ".join(map(": ".join, selection.missing.items())))
    tasks = map(task_file, filter(tasks_of, wanted_tasks(names)))
    if compared := [task.name for task in tasks if task.compares_likelihoods]:
        raise likelihood_error(compared)
    return selection


def _report_losses(recording: RunRecording) -> None:
    """Warn of tasks without results and samples without replies.

    Raises:
        MedTasksError: No task has results with a reply.
    """
    records = recording.manifest.tasks
    problems = [f"{name}: {record.reason}" for name, record in records.items() if record.reason]
    if losses := recording.losses_over_limit():
        problems.append(losses)
    if not problems:
        return
    sentence = "; ".join(problems)
    for record in records.values():
        if record.results and (record.counts is None or record.counts.scored):
            logger.warning(f"In no score: {sentence}")
            return
    raise MedTasksError(f"there is nothing to score: {sentence}")
