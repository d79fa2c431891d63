"""What the harness recorded of a run, and its scores beside what the replies give."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medtasks.audit.report.contents import RuleReport, Score
from medtasks.audit.report.reading.rule_scores import Computed, score
from medtasks.errors import UnknownName
from medtasks.extract.registry import extractor_of
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import included_option
from medtasks.metrics.metric import Estimate
from medtasks.stats.intervals import interval

_ERROR = "_stderr"
_BYPASS = "bypass"  # what the harness writes with --predict_only
_NO_FILTER = "none"  # what the harness calls the filter of a task that names none
_SAME = 1e-9


@dataclass(frozen=True)
class RecordedTask:
    """What a run recorded of one task."""

    name: str
    # the harness's row: values by <metric>,<filter>; empty where only samples are left
    scores: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # the task's configuration as recorded
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)  # direction by metric, as recorded
    documents: int = 0  # how many questions the dataset had; 0 if not recorded
    asked: int = 0  # how many of them were asked; 0 if not recorded
    samples: Path | None = None  # its samples file; None if there is none
    version: str = ""  # version of the task; empty if not recorded
    members: tuple[str, ...] = ()  # of a group, the names of its members

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The task's metadata as recorded; empty if there are none."""
        found = self.config.get("metadata")
        return found if isinstance(found, Mapping) else {}

    @property
    def rules(self) -> dict[str, str]:
        """Name of the rule that each filter read with, as recorded; empty if none."""
        return {
            str(pipeline.get("name")): str(step["rule"])
            for pipeline in self.config.get("filter_list") or ()
            for step in pipeline.get("filter") or ()
            if "rule" in step
        }

    @property
    def data(self) -> Mapping[str, Any]:
        """Provenance of its data as recorded, see :func:`medtasks.data.prepared.provenance`; empty if none."""
        found = self.metadata.get("data")
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class RecordedRun:
    """A folder of results of one model."""

    folder: Path
    model: str  # model and its arguments as given to the harness, secrets replaced; empty if not recorded
    run_at: str  # when the newest results were made, ISO 8601 or as recorded; empty if not recorded
    facts: Mapping[str, str]  # versions, fingerprints, seeds, hardware, times and the command, by name, as recorded
    tasks: Mapping[str, RecordedTask]  # tasks and groups with scores, and tasks with samples only, by name in order
    missing: Mapping[str, str] = field(default_factory=dict)  # why a task that was asked for is not in tasks, by name
    notes: tuple[str, ...] = ()  # anything else a reader has to know, one sentence each


def recorded_values(task: RecordedTask) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the numbers of a row of the results file; what the harness itself adds to a metric is left out."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for key, value in task.scores.items():
        metric, _, name = key.rpartition(",")
        if not metric or _ERROR in metric or metric == _BYPASS or not _is_number(value):
            continue
        error: Any = task.scores.get(f"{metric}{_ERROR},{name}")
        found.setdefault(name, {})[metric] = (value, float(error) if _is_number(error) else math.nan)
    return found


def _rows(recorded: RecordedTask, task: TaskFile | None) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the recorded numbers; earlier versions of judged tasks named no filter, and the harness called it none."""
    values = recorded_values(recorded)
    own = list(task.rows) if task and task.family.extractor is None else []
    if _NO_FILTER in values and own:
        return {own[0] if name == _NO_FILTER else name: row for name, row in values.items()}
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rule_reports(
    recorded: RecordedTask, task: TaskFile | None, computed: Mapping[str, Computed]
) -> tuple[tuple[RuleReport, ...], list[str]]:
    """Return the scores of a task (None: it is not ours) under each of its rules, and sentences on what does not agree.

    Recorded values count. Where they differ from those computed from the recorded replies, a sentence says so.
    """
    values = _rows(recorded, task)
    notes: list[str] = []
    reports = []
    for name in dict.fromkeys([*(task.rows if task else ()), *values, *computed]):
        if name not in values and name not in computed:
            continue
        rule, describes = _rule(recorded, task, name)
        again = computed.get(name) or Computed(rule, {})
        row = values.get(name, {})
        scores = tuple(_scores(recorded, task, row, again))
        notes += [
            f"{recorded.name}, {name}, {one.metric}: the run recorded {_number(*row[one.metric])}, its recorded "
            f"replies give {_number(one.value, one.error)} under today's rule; the recorded score is shown."
            for one in again.scores
            if one.metric in row and not _agrees(row[one.metric], one)
        ]
        reports.append(
            RuleReport(
                name=name,
                rule=again.rule,
                describes=describes,
                scores=scores,
                reasons=again.reasons,
                groups=again.groups,
                pairs=again.pairs,
                wrong_kinds=again.wrong_kinds,
                failures={one.metric: _why_undefined(task, one.metric) for one in scores if math.isnan(one.value)},
            )
        )
    return tuple(reports), notes


def _rule(recorded: RecordedTask, task: TaskFile | None, name: str) -> tuple[str, str]:
    """Return the rule that the run names, whose version it does not tell, else the task's; and what it does."""
    row = task.rows.get(name) if task else None
    own = row and row.extractor
    rule = recorded.rules.get(name) or own or ""
    shown = task.versioned_rule(row) if task and row and own and not recorded.rules else rule
    try:
        return shown, extractor_of(rule).summary
    except UnknownName:
        return shown, ""


def _scores(
    recorded: RecordedTask, task: TaskFile | None, values: Mapping[str, tuple[float, float]], again: Computed
) -> Iterator[Score]:
    """Yield the recorded values; one that the replies confirm has an interval that knows its number of units."""
    computed = {one.metric: one for one in again.scores}
    own = {one.name: one.higher_is_better for one in task.metrics} if task else {}
    for metric in dict.fromkeys([*own, *values, *computed]):
        known = computed.get(metric)
        if known is not None and (metric not in values or _agrees(values[metric], known)):
            yield known
        elif metric in values:
            higher = bool(own.get(metric, recorded.higher_is_better.get(metric) is not False))
            value, error = values[metric]
            if task is not None:
                yield score(metric, Estimate(value, error), higher_is_better=higher)
            else:  # nobody knows the scale of another harness task's metric
                low, high = interval(value, error, None, share=False)
                yield Score(metric, value, error, low, high, share=False, higher_is_better=higher)


def _agrees(recorded: tuple[float, float], computed: Score) -> bool:
    value, error = recorded
    return _same(value, computed.value) and (math.isnan(error) or _same(error, computed.error))


def _same(first: float, second: float) -> bool:
    return (math.isnan(first) and math.isnan(second)) or math.isclose(first, second, rel_tol=_SAME, abs_tol=_SAME)


def _number(value: float, error: float) -> str:
    return f"{value:.12g}" if math.isnan(error) else f"{value:.12g} (standard error {error:.12g})"


def _why_undefined(task: TaskFile | None, metric: str) -> str:
    if task is None or task.is_computed:
        return "It is not defined for these replies: none of them counts for it."
    return (
        f"It was not computed in the run, as a model, its weights or a judge was missing or failed; the log of the run "
        f"says which. To compute it now: medtasks score {task.name} REPLIES{included_option(task.name)}"
    )
