"""The results that the harness would have computed itself, from the samples files of a run: its own code computes them.

A samples file does not hold everything for every task. Whether it does, each recorded part of a run tells: its samples
have to give the results that were recorded of it.
"""

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loguru import logger

from medtasks.data.home import home
from medtasks.data.samples import Sample
from medtasks.data.shards import column_of
from medtasks.errors import MedTasksError, RepliesError
from medtasks.families.family import FENCED, Reply, Row, TaskFamily
from medtasks.families.registry import family_of
from medtasks.harness.hooks import metric_list
from medtasks.harness.logged_samples import SCORE, answers_another, score_in
from medtasks.harness.own_columns import hook_name
from medtasks.harness.replies import read_replies, recorded_reply
from medtasks.harness.saved_replies import FOLDER_NAME

Lines = Mapping[int, Sequence[str]]
"""Lines of a samples file by row of the data, one for each filter."""


@dataclass(frozen=True)
class RecordedPart:
    """What a run recorded of a task that it asked in part."""

    row: Mapping[str, Any]  # values by ``<metric>,<filter>``
    lines: Lines


@dataclass(frozen=True)
class Setup:
    """How a run was started, as far as its results depend on it."""

    tasks: Sequence[str]  # names given to ``--tasks``
    folders: Sequence[Path]  # in which the user's own lie
    model: str
    model_type: str  # ``simple`` or ``chat``
    bootstraps: int
    predict_only: bool = False


def aggregate(
    setup: Setup, parts: Mapping[str, Sequence[RecordedPart]], filters: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """Return ``results``, ``groups`` and ``group_subtasks`` of a results file, of all samples of the parts by task.

    MedTasksError: a task cannot be loaded here, or was asked on other data; its samples do not hold what its results
    are made of; or the replies are needed, and are not here.
    """
    with _quiet():
        from lmms_eval import evaluator_utils as harness

        tasks = _harness_tasks(setup)
        outputs = harness.get_task_list(tasks)
        if {output.task_name for output in outputs} != parts.keys():
            raise MedTasksError(
                f"{', '.join(setup.tasks)} are other tasks here than in the runs; name the same folders"
            )
        for output in outputs:
            name = output.task_name
            if setup.predict_only:
                output.task.override_metric(metric_name="bypass")
            _check_possible(output.task, name)
            scored = _Scored(output.task, name, parts[name], filters[name])
            scored.check(setup.bootstraps)
            scored.put_into(output, {row: line for part in parts[name] for row, line in part.lines.items()})
            _compute(output, setup.bootstraps)
        results, _, _, versions, *_ = harness.consolidate_results(outputs)
        results, _, has_groups, _ = harness.consolidate_group_results(results, versions, tasks)
        rows, groups = harness.prepare_print_tasks(tasks, results)
        subtasks = harness.get_subtask_list(tasks)
    found = {"results": dict(rows), "group_subtasks": dict(reversed(subtasks.items()))}
    return {**found, "groups": dict(groups)} if groups and has_groups else found


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what the harness says of its own loading."""
    logger.disable("lmms_eval")
    try:
        yield
    finally:
        logger.enable("lmms_eval")


def _harness_tasks(setup: Setup) -> dict[Any, Any]:
    import lmms_eval.models  # noqa: F401  # first, as the command line does: our plug-in comes with it
    from lmms_eval import evaluator  # noqa: F401
    from lmms_eval.tasks import TaskManager, get_task_dict

    manager = TaskManager("ERROR", include_path=list(map(str, setup.folders)) or None, model_name=setup.model)
    names = manager.match_tasks(list(setup.tasks))
    unknown = [name for name in setup.tasks if name not in names and "*" not in name]
    if unknown:
        raise MedTasksError(f"there is no task {', '.join(unknown)} here; name its folder with --include_path")
    try:
        found: dict[Any, Any] = get_task_dict(names, manager, setup.model_type)
    except MedTasksError:
        raise
    except Exception as error:
        raise MedTasksError(
            f"the results are computed by the harness's own tasks, and those of {', '.join(setup.tasks)} cannot be "
            f"loaded here ({type(error).__name__}); make their data available on this machine"
        ) from error
    return found


def _check_possible(task: Any, name: str) -> None:
    """Refuse what needs more than samples."""
    if any("args" in inspect.signature(one).parameters for one in task.aggregation().values()):
        raise MedTasksError(f"{name} computes its results from the run's command line, so that parts cannot be joined")


def _compute(output: Any, bootstraps: int) -> None:
    output.calculate_aggregate_metric(bootstrap_iters=bootstraps)
    output.calculate_clt_aggregate_metric()


class _Scored:
    """What the harness gets of each sample of a task, as it got it in the run."""

    def __init__(self, task: Any, name: str, parts: Sequence[RecordedPart], filters: Sequence[str]) -> None:
        self._task, self._name, self._parts, self._filters = task, name, parts, filters
        self._family = family_of(hook_name(task.config.process_results))
        self._texts = None if self._family is None else _Texts(self._family, task.eval_docs_no_media, name)
        self._own = [] if self._family is None else [entry["metric"] for entry in metric_list(self._family.metrics)]
        self._recorded = {key for part in parts for key in part.row}

    def put_into(self, output: Any, lines: Lines) -> None:
        """Give the harness's output the values of all samples, in the order of one process."""
        for place, name in enumerate(self._filters):
            for row in sorted(lines):
                values = self._values(row, json.loads(lines[row][place]), name)
                for metric, value in values.items():
                    output.sample_metrics[metric, name].append(value)

    def check(self, bootstraps: int) -> None:
        """Check that each part's samples give the part's results; MedTasksError: they do not.

        Those that compare texts may need a model, and others write a file: nothing is computed of their parts.
        """
        from lmms_eval.evaluator_utils import TaskOutput
        from lmms_eval.utils import handle_non_serializable

        for part in self._parts if self._family is None or self._family.scores_suffice else ():
            output = TaskOutput.from_taskdict(self._name, self._task)
            self.put_into(output, part.lines)
            _compute(output, bootstraps)
            found = json.loads(json.dumps(output.agg_metrics, default=handle_non_serializable))
            # An empty list stands for a metric that the task's file leaves out.
            recorded = {key: repr(value) for key, value in part.row.items() if "," in key and value != []}
            if {key: repr(value) for key, value in found.items()} != recorded:
                raise MedTasksError(
                    f"the samples of {self._name} do not give the results that its runs recorded, so that they cannot "
                    f"be joined: they hold too little, or this version of the code is another one"
                )

    def _values(self, row: int, line: Mapping[str, Any], name: str) -> dict[str, Any]:
        score = score_in(line) if SCORE in line and self._family is not None else None
        if score is None or self._texts is None:
            return {key: value for key, value in line.items() if f"{key},{name}" in self._recorded}
        del score["schema_version"]
        return dict.fromkeys(self._own, score | self._texts.of(row, line, score))


class _Texts:
    """The texts that metrics compare, which scores in files do not hold."""

    def __init__(self, family: TaskFamily, documents: Any, name: str) -> None:
        self._family, self._documents, self._name = family, documents, name
        self._ids = [str(one) for one in column_of(documents, "doc_id")]
        self._saved: dict[str, dict[str, Reply]] = {}

    def of(self, row: int, line: Mapping[str, Any], score: Mapping[str, Any]) -> dict[str, Any]:
        """Return the text fields of a score; MedTasksError: the reply is not here, or it is another one."""
        doc_id = self._ids[row] if row < len(self._ids) else ""
        if (asked := answers_another(line, doc_id)) is not None:
            raise MedTasksError(
                f"row {row} of {self._name} is another question here than in the run ({asked}); point MEDTASKS_HOME to "
                f"the data of the run"
            )
        if self._family.scores_suffice or "rule" not in score:
            return {}
        reply = recorded_reply(line) or self._saved_reply(doc_id, score.get("saved"))
        found = self._family.texts(Sample(self._documents[row]), reply, Row(str(score["rule"]).removesuffix(FENCED)))
        if any(str(text) != score.get(field) for field, text in found.items()):
            raise MedTasksError(
                f"the texts of row {row} of {self._name} are others here than in the run; point MEDTASKS_HOME to its "
                f"data and replies"
            )
        return dict(found)

    def _saved_reply(self, doc_id: str, saved: str | None) -> Reply:
        file = home() / FOLDER_NAME / str(saved)
        try:
            if str(saved) not in self._saved:
                self._saved[str(saved)] = read_replies(file, self._documents)
            return self._saved[str(saved)][doc_id]
        except (RepliesError, KeyError) as error:
            raise MedTasksError(
                f"the samples files of {self._name} withhold the replies of credentialed data, and {file} does not "
                f"hold them; copy the folder '{FOLDER_NAME}' of the MEDTASKS_HOME of each run to this one's"
            ) from error
