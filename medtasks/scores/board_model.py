"""Boards: models by benchmarks, each in its main metric under one reading of the replies, with intervals of ranks."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from medtasks.data.dataset_lookup import data_warning
from medtasks.data.samples import Documents
from medtasks.errors import MedTasksError, RepliesError, UnknownName, unknown_name
from medtasks.extract.extractor_registry import Reason
from medtasks.families.counts import is_failed, is_unjudged
from medtasks.metrics.metric import AnyMetric, Estimate, Score, raw_declaration
from medtasks.runs.harness_options import model_title
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import Source, TaskRun, model_of, replies_to, runs_in
from medtasks.scores.comparing import Names, Sources, is_ours
from medtasks.scores.comparison_checks import check_asked_alike, check_data
from medtasks.scores.draw_notes import Provenance, draw_notes, metrics_without_mean
from medtasks.scores.run_values import (
    RunValues,
    Values,
    estimate_mean,
    means_by_question,
    run_values,
    without_failures,
)
from medtasks.scores.score_model import MetricScore, careful_rule, published_rule
from medtasks.scores.scoring import main_metric, rule_scores
from medtasks.scores.subgroups import with_interval
from medtasks.scores.task_reading import recorded_values
from medtasks.stats.ranks import rank_intervals
from medtasks.stats.standard_error import Floats
from medtasks.tasks.documents import task_documents, task_provenance
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file, task_files, tasks_of, variant_of

Reading = Literal["published", "careful"]
"""Kind of the rule that reads all replies of a board. Tasks name such a rule by its row, such as ``robust``."""
Notes = dict[str, dict[str, None]]
"""Runs and tasks by the sentence that is true of them."""
Records = Mapping[str, TaskRun]
"""Records of one task by the name of the run."""
_STEP = re.compile(
    r"(?:checkpoint|ckpt|step|iter|iteration|epoch)[-_=]?(\d+)(?!\d)", re.IGNORECASE
)
_OF_READING: Mapping[Reading, Callable[[Mapping[str, str]], str | None]] = {
    "published": published_rule,
    "careful": careful_rule,
}
_DATA_STATE = {"sample", "complete"}  # keys of a provenance from which the warning follows
# Reasons of scores whose reply is not invalid.
_NOT_INVALID = (Reason.OK, Reason.ADAPTER_FAILED, Reason.JUDGE_FAILED)


@dataclass(frozen=True)
class BoardCell:
    """Score of one run in one column."""

    score: MetricScore
    # Scored samples. Of a recorded cell those that were asked, or 0 if their number is unknown.
    samples: int
    invalid: int = 0  # replies without an answer among them
    lost: int = 0  # failed or unjudged samples, in no score
    questions: int = 0  # that there are, of all repeats; 0 if unknown
    # First and last rank that the tests allow. None without values per sample.
    ranks: tuple[int, int] | None = None
    values: Values = field(default_factory=dict, repr=False, compare=False)

    @property
    def share_of_questions(self) -> float:
        """Share of the questions that were asked, or 1 if their number is unknown."""
        return (self.samples + self.lost) / self.questions if self.questions else 1.0

    @property
    def is_defined(self) -> bool:
        """Whether there is a number."""
        return not math.isnan(self.score.value)


Cells = dict[str, BoardCell]
"""Cells by task or by run."""


@dataclass(frozen=True)
class BoardColumn:
    """Main metric of one task, or of a group that has one."""

    task: str
    metric: str
    row: str  # row of the task's results, such as reference
    rule: str  # name and version of the rule that read the replies
    higher_is_better: bool | None
    # Whether the task has a rule of the board's reading. Otherwise its only rule is shown.
    has_reading: bool
    # Warning that belongs to scores on its data, such as SAMPLE DATA. Mostly empty.
    data_warning: str = ""


@dataclass(frozen=True)
class BoardRow:
    """One run."""

    name: str
    path: str
    cells: Cells  # by task
    step: int | None = None  # of training; None if unknown


@dataclass(frozen=True)
class Board:
    """Runs by tasks."""

    reading: Reading
    columns: tuple[BoardColumn, ...]
    rows: tuple[BoardRow, ...]
    notes: tuple[str, ...]  # what is left out or differs, one sentence each

    def fullest(self, column: BoardColumn) -> Cells:
        """Return the cells of a column by row, without runs that were asked a smaller part of it (``--limit``)."""
        cells = {
            row.name: row.cells[column.task] for row in self.rows if column.task in row.cells
        }
        most = max((cell.share_of_questions for cell in cells.values()), default=1.0)
        return {name: cell for name, cell in cells.items() if cell.share_of_questions == most}

    def best(self, column: BoardColumn) -> tuple[float, float]:
        """Return the best and the second best value of a column, of the runs that were asked most.

        Equal values count once. A value that there is not is NaN.
        """
        values = {cell.score.value for cell in self.fullest(column).values()}
        finite = filter(math.isfinite, values)
        ordered = sorted(finite, reverse=column.higher_is_better is not False)
        first, second, *_ = [*ordered, math.nan, math.nan]
        return first, second


def rule_of_reading(rules: Iterable[str], reading: Reading) -> str:
    """Return the row of a task's published or careful rule, or its first row if it has no such rule.

    Args:
        rules: Rows of the task's results, such as ``reference`` and ``robust``. Without any, the result is empty.
        reading: Kind of the rule.

    Example:
        >>> rule_of_reading(["reference", "robust"], "careful"), rule_of_reading(["none"], "published")
        ('robust', 'none')
    """
    names = {name: name for name in rules}
    return _OF_READING[reading](names) or next(iter(names), "")


def build_board(
    runs: Sources,
    reading: Reading,
    tasks: Names,
    task: str | None,
) -> Board:
    """Score runs in the main metric of each task, and bound their ranks.

    Args:
        runs: Runs by the name of their row.
        reading: Kind of the rule that reads all replies.
        tasks: Tasks and groups in the order of the columns; if empty, all of the runs, without sanity variants.
        task: The only task, which files of recorded replies answer; None for runs.

    Raises:
        RepliesError: No run has a score of any task.
    """
    notes: Notes = {}
    recorded = {}
    if task:
        names = [task]
    else:
        for name, source in runs.items():
            recorded[name] = _tasks_of_run(source, name, notes)
        names = _column_names(tasks, recorded.values())
    columns = []
    cells: dict[str, Cells] = defaultdict(dict)
    for name in names:
        records = {run: tasks[name] for run, tasks in recorded.items() if name in tasks}
        sources = runs if task else {run: runs[run] for run in records}
        built = _build_column(name, sources, records, reading, notes)
        if built is None:
            _note(notes, name, "no run has a score of it.")
            continue
        column, of_column = built
        columns.append(column)
        for run, cell in of_column.items():
            cells[run][name] = cell
    if not columns:
        first = next(iter(_sentences(notes)), "the runs have no task with results")
        raise RepliesError(f"no run has a score to show: {first.rstrip('.')}")
    rows = [BoardRow(name, str(source.path), cells[name]) for name, source in runs.items()]
    return Board(reading, tuple(columns), tuple(rows), tuple(_sentences(notes)))


def _column_names(names: Names, recorded: Iterable[Iterable[str]]) -> list[str]:
    """Return the tasks that are columns, in order.

    Args:
        names: Names of tasks, tags and groups. A group with a score of its own is one column. If empty, all tasks of
            the runs are columns, without sanity variants.
        recorded: Tasks of each run.

    Raises:
        UnknownName: A name is no task of ours and in no run.
    """
    answered: dict[str, None] = {}
    for tasks in recorded:
        answered |= dict.fromkeys(name for name in tasks if not variant_of(name))
    if not names:
        return list(answered)
    columns: dict[str, None] = {}
    for name in names:
        members = [name] if name in answered else tasks_of(name)
        if not members:
            raise unknown_name("task", name, [*answered, *task_files()])
        columns |= dict.fromkeys(members)
    return list(columns)


def _tasks_of_run(source: Source, name: str, notes: Notes) -> dict[str, TaskRun]:
    """Return the tasks and groups of a run, or of the first repeat that has them."""
    recorded: dict[str, TaskRun] = {}
    for repeat in source.repeats:
        for task, record in repeat.run.tasks.items():
            recorded.setdefault(task, record)
            if record.lacks:
                _note(notes, f"{name}, {task}", record.lacks)
    return recorded


def _build_column(
    name: str,
    sources: Sources,
    records: Records,
    reading: Reading,
    notes: Notes,
) -> tuple[BoardColumn, Cells] | None:
    """Return the column of one task and its cells by run, or None if no run has a score of it.

    Args:
        name: Task, or group with a score of its own.
        sources: Runs whose replies are scored, by name.
        records: Their records of the task, by name. A run that cannot be scored is shown with what it recorded.
        reading: Kind of the rule.
        notes: Notes of the board, to which those on this column are added.
    """
    column: BoardColumn | None = None
    metric: AnyMetric | None = None
    cells: Cells = {}
    data: Provenance = {}
    task = our_task(name)
    if task is not None:
        row = rule_of_reading(task.rows, reading)
        rule = task.rows[row]
        metric = main_metric(task)
        fits = _OF_READING[reading]({row: row}) is not None
        column = BoardColumn(
            name, metric.name, row, task.versioned_rule(rule), metric.higher_is_better, fits
        )
        if task.is_computed:
            task = replace(task, rows={row: rule})
            cells, data = _ranked_cells(task, metric, sources, notes)
    for run, record in records.items():
        recorded = None if run in cells else _recorded_cell(record, reading, column, metric)
        if recorded is not None:
            column, cells[run] = recorded
    if column is None or not cells:
        return None
    column = replace(column, data_warning=_first_warning(data, records))
    _note_differences(column, cells, records, notes)
    return column, cells


def _first_warning(data: Provenance, records: Records) -> str:
    """Return the first warning on data that are a sample or incomplete, or an empty text if there is none.

    Args:
        data: Data that are here, before those of the runs; empty if there are none.
        records: Records of the runs with the data that these were asked on.
    """
    provenances = [data, *(record.data for record in records.values())]
    warnings = [data_warning(facts) for facts in provenances if {*facts} >= _DATA_STATE]
    return next(filter(None, warnings), "")


def _ranked_cells(
    task: TaskFile,
    metric: AnyMetric,
    sources: Sources,
    notes: Notes,
) -> tuple[Cells, Provenance]:
    """Return a task's scored cells by run, and the provenance of its data.

    Runs with values of single samples, at least two, are ranked among each other, unless they were asked differently.
    """
    cells, files, data = _scored_cells(task, metric, sources, notes)
    try:
        check_asked_alike(task.name, files, strictly=False)
    except RepliesError as error:
        _note(notes, task.name, f"{str(error).rstrip('.')}.")
        return cells, data
    ranked = [run for run, cell in cells.items() if cell.values]
    if len(ranked) < 2:
        return cells, data
    matrix, clusters = _value_matrix([cells[run].values for run in ranked])
    higher_is_better = metric.higher_is_better is not False
    ranks = rank_intervals(matrix, clusters, higher_is_better=higher_is_better)
    for run, of_run in zip(ranked, ranks, strict=True):
        cells[run] = replace(cells[run], ranks=of_run)
    return cells, data


def _value_matrix(runs: Sequence[Values]) -> tuple[Floats, list[Hashable]]:
    """Return the values of runs, shape (runs, samples), and the cluster of each sample.

    A value is NaN where a run has none. Samples are in the order in which runs have them first.
    """
    clusters: dict[str, Hashable] = {}
    for values in runs:
        for sample, (cluster, _) in values.items():
            clusters.setdefault(sample, cluster)
    matrix = np.full((len(runs), len(clusters)), math.nan)
    for row, values in enumerate(runs):
        for column, sample in enumerate(clusters):
            if sample in values:
                _, matrix[row, column] = values[sample]
    return matrix, list(clusters.values())


def _note_differences(
    column: BoardColumn,
    cells: Cells,
    records: Records,
    notes: Notes,
) -> None:
    """Note recorded values that the replies do not give, and different numbers of samples."""
    for run, cell in cells.items():
        recorded = recorded_values(records[run]) if run in records else {}
        here = cell.score.value
        there, _ = recorded.get(column.row, {}).get(column.metric, (here, math.nan))
        if not (math.isnan(there) or math.isclose(there, here, rel_tol=1e-9, abs_tol=1e-9)):
            difference = f"the run recorded {there:.4g}, its replies give {here:.4g} here."
            _note(notes, f"{run}, {column.task}", difference)
    sizes = {cell.samples for cell in cells.values() if cell.samples}
    if len(sizes) > 1:
        _note(
            notes,
            column.task,
            f"from {min(sizes)} to {max(sizes)} scored samples; ranks are on those that two runs share.",
        )


def _note(notes: Notes, subject: str, sentence: str) -> None:
    """Add a sentence about a run or a task, after the other subjects of the same sentence."""
    notes.setdefault(sentence, {})[subject] = None


def _sentences(notes: Notes) -> list[str]:
    """Return the notes, each after the runs and tasks that it is about."""
    return [f"{'; '.join(subjects)}: {sentence}" for sentence, subjects in notes.items()]


def our_task(name: str) -> TaskFile | None:
    """Return the task file of a name, or None if only the harness scores such a task, or no task has the name."""
    try:
        task = task_file(name)
    except UnknownName:
        return None
    return None if task.only_harness else task


def _scored_cells(
    task: TaskFile,
    metric: AnyMetric,
    sources: Sources,
    notes: Notes,
) -> tuple[Cells, dict[str, Path], Provenance]:
    """Score the recorded replies of each run to a task, of which one rule is left, and note what cannot be read.

    Returns:
        Cells by run, the file of each run or of its first repeat, and the provenance of the data; empty if they are
        not here.
    """
    cells = {}
    files: dict[str, Path] = {}
    documents: Documents = ()
    data: Provenance = {}
    replied: set[str] = set()  # in all runs
    for run, source in sources.items():
        try:
            if not documents:
                documents = task_documents(task)
                data = task_provenance(task, documents)
                replied = {str(document["doc_id"]) for document in documents}
            repeats = []
            for repeat in source.repeats:
                file = replies_to(task.name, repeat)
                check_data(task.name, file, data["fingerprint"])
                files.setdefault(run, file)
                recorded = read_recorded(task, documents, [file])
                for replies in recorded.runs:
                    repeats.append(run_values(task, documents, replies, [metric]))
                for note in recorded.notes:
                    _note(notes, f"{run}, {task.name}", note)
                replied.intersection_update(*map(without_failures, recorded.runs))
            cell = _cell(task, metric, repeats)
            cells[run] = replace(cell, questions=len(documents) * len(repeats))
        except MedTasksError as error:
            _note(notes, f"{run}, {task.name}", f"{str(error).rstrip('.')}.")
    for note in draw_notes(data, documents, replied, metrics_without_mean([metric])):
        _note(notes, task.name, note)
    return cells, files, data


def _cell(task: TaskFile, metric: AnyMetric, repeats: Sequence[RunValues]) -> BoardCell:
    """Return the cell of a run: its score, or of repeats the mean over questions of each question's mean value.

    Args:
        task: The task, of which one rule is left.
        metric: Metric of the column.
        repeats: Values of each repeat under this rule and metric; one for a run without repeats.
    """
    scores: list[Score] = []
    for repeat in repeats:
        (of_repeat,) = repeat.scores.values()
        scores += of_repeat.values()
    lost = sum(is_failed(score) or is_unjudged(score) for score in scores)
    invalid = sum(score.get("reason", Reason.OK) not in _NOT_INVALID for score in scores)
    values = means_by_question([next(iter(repeat.values.values())) for repeat in repeats])
    if len(repeats) == 1:
        (rule,) = repeats[0].rules.values()
        (score,) = rule_scores(task, rule, scores, scores, [metric]).scores
    else:
        score = with_interval(metric, estimate_mean(values.values()))
    return BoardCell(score, len(scores) - lost, invalid, lost, values=values)


def _recorded_cell(
    record: TaskRun,
    reading: Reading,
    column: BoardColumn | None,
    metric: AnyMetric | None,
) -> tuple[BoardColumn, BoardCell] | None:
    """Return a cell from the results of the harness alone, and its column, or None if these lack the metric.

    Args:
        record: Record of the run.
        reading: Kind of the rule.
        column: Column of the cell; None for the first run of a group or of a task that is not ours, whose first metric
            makes the column.
        metric: Metric of the column; None if it is not one of ours.
    """
    by_rule = recorded_values(record)
    if column is None:
        row = rule_of_reading(by_rule, reading)
        name = next(iter(by_rule.get(row, ())), "")
        better = record.higher_is_better.get(name)
        fits = _OF_READING[reading]({row: row}) is not None
        column = BoardColumn(record.name, name, row, record.rules.get(row, row), better, fits)
    values = by_rule.get(column.row, {})
    if column.metric not in values:
        return None
    declaration = metric or raw_declaration(column.metric, column.higher_is_better)
    score = with_interval(declaration, Estimate(*values[column.metric]))
    return column, BoardCell(score, samples=record.asked, questions=record.documents)


def board_of(
    names: Names,
    reading: Reading = "published",
    tasks: Names = (),
    steps: Sequence[int] | None = None,
) -> Board:
    """Build a board from the words of a command: folders of runs, or a task and files of replies to it.

    Args:
        names: Folders of runs, of which every model is a row; or a task, and files of replies.
        reading: Kind of the rule that reads all replies.
        tasks: The columns; if empty, all tasks of the runs.
        steps: Training step of each run in order; if None or empty, the steps that names of models or folders say.
            Checkpoints of one model are rows in the order of their steps.

    Raises:
        MedTasksError: A run cannot be read, no run has a score, or there are not as many ``steps`` as runs.
    """
    task, sources = _task_and_sources(names, steps)
    models = {source: "" if task else model_of(source) for source in sources}
    row_names = _row_names(models)
    board = build_board(row_names, reading, tasks, task)
    rows = []
    for row in board.rows:
        source = row_names[row.name]
        step = sources[source]
        if step is None:
            step = step_in(models[source])
        if step is None:
            step = step_in(source.path.name)
        rows.append(replace(row, step=step))
    curves = list(dict.fromkeys(without_step(row.name) for row in rows))
    rows.sort(key=lambda row: (curves.index(without_step(row.name)), row.step or 0))
    return replace(board, rows=tuple(rows))


def _task_and_sources(
    names: Names, steps: Sequence[int] | None
) -> tuple[str | None, dict[Source, int | None]]:
    """Read the words of a command as a task and runs.

    Args:
        names: At least one word: folders of runs, or a task and files of replies to it.
        steps: Training step of each folder or file in order; None or empty if they are not given.

    Returns:
        The task, or None if the first word is a path or no task; and the training step of each run, or None if steps
        are not given.

    Raises:
        RepliesError: There is no run, or another number of steps than of runs.
    """
    paths = list(map(Path, names))
    task = None
    if is_ours(names[0]) and not paths[0].exists():
        task = names[0]
        del paths[0]
    if not paths:
        raise RepliesError(
            "there is no run; give the folders of runs, or files of replies after the task"
        )
    step_of_runs: Sequence[int | None] = steps or [None] * len(paths)
    if len(step_of_runs) != len(paths):
        raise RepliesError(
            f"there are {len(step_of_runs)} steps for {len(paths)} runs; give --step once for each run"
        )
    sources: dict[Source, int | None] = {}
    for path, step in zip(paths, step_of_runs, strict=True):
        runs = [Source(path)] if task else runs_in(path)
        sources |= dict.fromkeys(runs, step)
    return task, sources


def _row_names(models: Mapping[Source, str]) -> dict[str, Source]:
    """Name each run by its model, and by its folder where several have the same model or none is recorded."""
    titles = {source: model_title(model) if model else "" for source, model in models.items()}
    uses = Counter(titles.values())
    rows: dict[str, Source] = {}
    for source, title in titles.items():
        name = title
        if not title:  # named by its file of replies without the endings
            name = source.path.name
            for ending in (".gz", ".jsonl", ".json", ".tsv", ".csv", ".xlsx"):
                name = name.removesuffix(ending)
        elif uses[title] > 1:
            name = f"{title} ({source.path.name})"
        unique = name
        number = 2
        while unique in rows:
            unique = f"{name} {number}"
            number += 1
        rows[unique] = source
    return rows


def board_lines(board: Board) -> list[dict[str, Any]]:
    """Return one flat record per run and column, for CSV and DataFrames.

    Returns:
        Records with the columns of ``medtasks board --csv``, row by row. Cells without a score are left out.
    """
    lines = []
    for row in board.rows:
        for column in board.columns:
            cell = row.cells.get(column.task)
            if cell is None:
                continue
            first, last = cell.ranks or (None, None)
            lines.append(
                {
                    "model": row.name,
                    "step": row.step,
                    "task": column.task,
                    "metric": column.metric,
                    "rule": column.rule,
                    "value": cell.score.value,
                    "standard_error": cell.score.error,
                    "low": cell.score.low,
                    "high": cell.score.high,
                    "first_rank": first,
                    "last_rank": last,
                    "samples": cell.samples,
                    "invalid": cell.invalid,
                    "lost": cell.lost,
                    "questions": cell.questions,
                    "source": row.path,
                }
            )
    return lines


def step_in(text: str) -> int | None:
    """Return the training step that the name of a checkpoint says, or None without one.

    Example:
        >>> step_in("runs/lora/checkpoint-1200"), step_in("runs/qwen-7b")
        (1200, None)
    """
    steps = _STEP.findall(text)
    return int(steps[-1]) if steps else None


def without_step(name: str) -> str:
    """Return the name of a curve: that of its rows without the checkpoint.

    Example:
        >>> without_step("hf_vlm: checkpoint-1200")
        'hf_vlm'
    """
    return _STEP.sub("", name).strip(" :-_/()") or "model"
