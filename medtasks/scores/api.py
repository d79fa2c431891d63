"""Scores, runs and comparisons from Python, as pandas DataFrames with the numbers that the commands print.

A *row* of a task's results, such as ``reference`` or ``robust``, has one *rule*: the extractor that reads the replies.

Of credentialed data the frames hold numbers, letters of options and hashed ids only, unless ``MEDTASKS_LOG_TEXT``
allows its text. Errors that a user can cause are :class:`medtasks.errors.MedTasksError`. ``include_path`` names folders
with task files of your own; reading them can run their code.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import pandas as pd

from medtasks.data.samples import Document, Documents
from medtasks.errors import RepliesError, unknown_name, warn_once
from medtasks.families.counts import is_failed, is_unjudged
from medtasks.families.family import Reply
from medtasks.metrics.metric import with_image_clusters
from medtasks.runs.asked_questions import QuestionIndex, name_of
from medtasks.runs.recorded_replies import read_with_data
from medtasks.runs.replies import Samples, take_answer_field
from medtasks.runs.run import RecordedRun, Source, TaskRun, open_run, replies_to
from medtasks.runs.run_notes import run_notes
from medtasks.scores.audit_items import audit_items, image_files
from medtasks.scores.board_model import Reading, board_lines, board_of, our_task
from medtasks.scores.comparing import ComparedTask, compare_all, compare_runs
from medtasks.scores.judge_labels import read_labels
from medtasks.scores.reply_parsing import parse_reply
from medtasks.scores.score_model import AuditItem, MetricScore, RuleScores
from medtasks.scores.scoring import answered_documents, score_replies, score_rows
from medtasks.scores.task_reading import (
    TaskReading,
    read_task,
    rule_reports,
    scores_by_id,
    without_metrics,
)
from medtasks.tasks.documents import is_private_task, task_documents, task_provenance
from medtasks.tasks.task_files import including, scored_task

RepliesInput: TypeAlias = (
    str | Path | Iterable[str | None] | Mapping[Any, str | None] | pd.DataFrame | pd.Series
)
FolderInput: TypeAlias = str | Path | Sequence[str | Path]

_SAMPLE_COLUMNS = (
    "task",
    "row",
    "doc_id",
    "question",
    "options",
    "target",
    "reply",
    "answer",
    "reason",
    "correct",
    "score",
    "images",
    "cluster_id",
)
_COMPARISON_COLUMNS = [
    "task",
    "row",
    "metric",
    "samples",
    "units",
    "first",
    "second",
    "difference",
    "low",
    "high",
    "test",
    "p",
    "p_holm",
    "detectable",
]
# Columns of the data that ``images`` and ``task`` replace.
_REPLACED_COLUMNS = ("image_file", "image_files", "image_sha256", "dataset")


@dataclass(frozen=True)
class Scores:
    """Scores of recorded replies to one task."""

    task: str
    # By row, such as reference and robust.
    rows: Mapping[str, RuleScores] = field(repr=False)
    # Provenance of the data: fingerprint, whether it is complete or the synthetic sample.
    data: Mapping[str, Any] = field(repr=False)
    answered: int  # number of questions with a reply
    questions: int  # number of questions of the task
    _reading: TaskReading = field(repr=False)
    _folders: FolderInput = field(repr=False)

    def table(self) -> pd.DataFrame:
        """Return one line per row and metric, with standard error and 95 % interval.

        Returns:
            Columns ``task``, ``row``, ``rule`` (extractor and version), ``metric``, ``value``, ``standard_error``,
            ``low``, ``high``. Shares are fractions.
        """
        return _table(
            (self.task, name, row.rule, row.scores) for name, row in self.rows.items()
        )

    def samples(self) -> pd.DataFrame:
        """Return one line per question and row, with the columns of :meth:`Run.samples`."""
        with _including(self._folders):
            return _frame_of(_sample_lines(self._reading))

    def _repr_html_(self) -> str:
        return str(self.table().to_html())


@dataclass(frozen=True)
class Run:
    """A run on disk, finished or not."""

    folder: Path
    model: str  # empty where the run does not record it
    tasks: tuple[str, ...]  # tasks and groups with scores or samples
    notes: tuple[str, ...]  # damaged files, superseded results and the like, one sentence each
    _recorded: RecordedRun = field(repr=False)
    _folders: FolderInput = field(repr=False)
    # The run's own temporary folder, deleted with it.
    _temporary: TemporaryDirectory[str] | None = field(default=None, repr=False)

    def table(self) -> pd.DataFrame:
        """Return the recorded scores, one line per task, row and metric, with the columns of :meth:`Scores.table`."""
        rows = []
        with _including(self._folders):
            for recorded in self._recorded.tasks.values():
                reading = _reading_or_none(recorded)
                if reading is None:
                    reports, _ = rule_reports(recorded, None, {})
                else:
                    reports, _ = rule_reports(reading.recorded, reading.task, reading.computed)
                for report in reports:
                    rows.append((recorded.name, report.name, report.rule, report.scores))
        return _table(rows)

    def samples(self, task: str | None = None) -> pd.DataFrame:
        """Return one line per question and row, of one task or all tasks of medtasks.

        The columns are ``task``, ``row``, ``doc_id``, ``question``, ``options``, ``target``, ``reply``, ``answer``
        (None if the reply has no valid answer), ``reason``, ``correct`` (None where an answer is neither right nor
        wrong), ``score`` (of answers between right and wrong), ``images`` (paths), ``cluster_id`` (by which standard
        errors are clustered), and the other columns of the data.

        Raises:
            UnknownName: The run has no such task.
        """
        tasks = self._recorded.tasks
        if task is not None:
            if task not in tasks:
                raise unknown_name("task", task, tasks)
            tasks = {task: tasks[task]}
        lines = []
        with _including(self._folders):
            for recorded in tasks.values():
                reading = _reading_or_none(recorded)
                if reading:
                    lines += _sample_lines(reading)
        return _frame_of(lines)


def score(
    task: str,
    replies: RepliesInput,
    *,
    answer_field: str | None = None,
    format: str | None = None,
    columns: Mapping[str, str] | None = None,
    include_path: FolderInput = (),
) -> Scores:
    """Score replies to a task under each of its rows, as ``medtasks score`` does.

    Args:
        task: Name of one of our tasks, as in ``medtasks tasks``; its dataset has to be prepared.
        replies: Texts of the model: a list with one per question, in the order of the dataset; a dict or Series from
            ``doc_id``; or a DataFrame with columns ``doc_id`` (or ``id``, the published one) and ``reply``. None (or
            NaN) is a failed sample: it counts in ``failed_samples`` and in no other metric. Or the path of a file or
            folder with one run's replies, ours or of another kit.
        answer_field: Replies are JSON objects, and only this field of each is scored. One without it is an empty reply.
        format: Kit that wrote the file; by default it is recognised.
        columns: Columns of a table in a file, such as ``{"reply": "Model output", "id": "case"}``.
        include_path: Folders with task files of your own.

    Raises:
        MedTasksError: There is no such task, its dataset is not prepared, or it needs a judge and none is configured;
            a reply is no text, names no question or contradicts another one, or their number is wrong.
    """
    with _including(include_path):
        chosen = scored_task(task)
        if isinstance(replies, str | Path):
            if not os.path.exists(replies):
                raise RepliesError(
                    f"there is no file or folder {replies}; give one, or a list with a text per question"
                )
            file = replies_to(chosen.name, Source(Path(replies)))
            recorded, documents, data = read_with_data(chosen, [file], format, columns)
            read = recorded.logged_run(chosen.name)
        else:
            documents = task_documents(chosen)
            read = _by_id(replies, documents)
            data = task_provenance(chosen, documents)
        by_id = take_answer_field(read, answer_field)
        answered = answered_documents(documents, by_id)
        row_scores = score_rows(chosen, answered, by_id)
        rows = score_replies(chosen, documents, by_id, row_scores=row_scores)
        samples = Samples(replies=by_id, answered=dict.fromkeys(by_id, ""))
        reading = TaskReading(
            TaskRun(task), chosen, is_private_task(chosen, documents), data, documents, samples
        )
        for name, (rule, scores) in row_scores.items():
            reading.computed[name] = without_metrics(rule, scores_by_id(answered, scores))
        return Scores(task, rows, data, len(by_id), len(documents), reading, include_path)


def evaluate(
    tasks: str | Sequence[str],
    batcher: Callable[[list[Any]], Iterable[str | None]],
    *,
    batch_size: int = 1,
    model: str | None = None,
    limit: int | None = None,
    output: str | Path | None = None,
    journal: str | Path | None = None,
    include_path: FolderInput = (),
) -> Run:
    """Ask a function the questions of tasks and score its replies, as ``medtasks run`` does with a model.

    Args:
        tasks: Tasks, groups or tags that read replies.
        batcher: Function from a list of questions, each a pair ``(messages, images)``, to a list with one text for
            each. ``messages`` have the form of OpenAI's chat messages, with ``{"type": "image"}`` at the place of each
            of the ``images`` (RGB). ``questions[0].settings`` are the decoding settings of the task, the same for all
            in one call. None in place of a text, or an exception, is a failed sample and in no score.
        batch_size: Largest number of questions in one call.
        model: Name of the model that it asks, for reports.
        limit: Ask only the first questions of each task.
        output: Folder for replies, results and manifest, as of ``medtasks run``; by default a temporary one.
        journal: Folder for replies as they come, from which the same call goes on after an interruption. Take another
            one when the function gives other replies.
        include_path: Folders with task files of your own.

    Raises:
        MedTasksError: A task compares likelihoods or cannot run; the data are credentialed, and
            ``MEDTASKS_TRUSTED_MODEL`` does not name the function; or nothing was answered.

    Example:
        >>> from tempfile import mkdtemp
        >>> folder = Path(mkdtemp())
        >>> row = '{"doc_id": "1", "question": "Is it normal?", "answer": "yes"}'
        >>> file = "task: toy, family: yes_no, data: toy.jsonl, image: none"
        >>> (folder / "toy.jsonl").write_text(row), (folder / "toy.yaml").write_text(f"{{{file}}}")
        (61, 57)
        >>> run = evaluate("toy", lambda questions: ["Yes."] * len(questions), include_path=folder)
        >>> run.samples()[["question", "reply", "correct"]].values.tolist()
        [['Is it normal?', 'Yes.', True]]
    """
    # This import takes seconds, as it imports the harness.
    from medtasks.running.function_run import run_function

    temporary = None if output is not None else TemporaryDirectory()
    folder = Path(temporary.name if temporary else str(output))
    names = [tasks] if isinstance(tasks, str) else list(tasks)
    with _including(include_path):
        label = run_function(
            names,
            batcher,
            folder,
            {"model": model, "journal": journal},
            {"batch_size": batch_size, "limit": limit},
        )
    return replace(
        read_run(folder, model=label, include_path=include_path), _temporary=temporary
    )


def parse(
    rule: str,
    replies: Sequence[str | None] | pd.Series,
    *,
    options: Sequence[Any] = (),
    question: str | Sequence[str] = "",
    answer: str | Sequence[str] | None = None,
    language: str | None = None,
) -> pd.DataFrame:
    """Read replies by a rule without a task, as ``medtasks parse`` does.

    Args:
        rule: One of the rules of ``medtasks parse --help``.
        replies: Texts of the model; None is an empty reply.
        options: Options of all replies, or a list of them for each.
        question: Question of all replies, or one for each; rules for yes/no read statements about it.
        answer: Target of all replies, or one for each; for rules that compare.
        language: Language of the replies, such as ``de``; by default it is found by itself.

    Returns:
        One line per reply: ``reply``, ``value`` (None without a valid answer), ``reason``, and facts of the rule.

    Raises:
        MedTasksError: There is no such rule, something that it needs is missing, or there are not as many options,
            questions or answers as replies.
    """
    texts = [None if _is_missing(reply) else reply for reply in replies]
    columns: dict[str, Sequence[Any]] = {"reply": texts}
    # Each value, and whether it is shared by all replies.
    inputs: dict[str, tuple[Any, bool]] = {
        "options": (options, all(isinstance(option, str) for option in options)),
        "question": (question, isinstance(question, str)),
        "answer": (answer, answer is None or isinstance(answer, str)),
    }
    for name, (values, is_shared) in inputs.items():
        columns[name] = [values] * len(texts) if is_shared else list(values)
        if len(columns[name]) != len(texts):
            raise RepliesError(
                f"there are {len(texts)} replies and {len(columns[name])} of '{name}'; give one for each"
            )
    lines = []
    for number, values in enumerate(zip(*columns.values(), strict=True), start=1):
        item = {"language": language, **dict(zip(columns, values, strict=True))}
        lines.append({"reply": item["reply"], **parse_reply(rule, item, f"reply {number}")})
    return pd.DataFrame(
        lines, columns=None if lines else ["reply", "value", "reason"], dtype=object
    )


def read_run(
    folder: str | Path,
    *,
    model: str | None = None,
    include_path: FolderInput = (),
) -> Run:
    """Read a run of ``medtasks run`` or ``lmms_eval`` from its folder (``--output_path``).

    Args:
        folder: The ``--output_path`` of the run.
        model: Model to read from a folder with runs of several models; None for a folder with one run.
        include_path: Folders with task files of your own.

    Raises:
        MedTasksError: The folder holds no run, or runs of several models and ``model`` is not given.
    """
    with _including(include_path):
        recorded = open_run(Path(folder), model)
    return Run(
        recorded.folder,
        recorded.model,
        tuple(recorded.tasks),
        run_notes(recorded),
        recorded,
        include_path,
    )


def compare(
    first: Run | Scores | str | Path,
    second: Run | Scores | str | Path,
    *,
    task: str | None = None,
    metrics: str | Sequence[str] = (),
    labels: Sequence[str | Path] = (),
    include_path: FolderInput = (),
) -> pd.DataFrame:
    """Compare two runs on the questions that both answered, with paired tests, as ``medtasks compare`` does.

    Args:
        first: A run or its folder, or scores of :func:`score`.
        second: The run, or the scores, to compare with; ``difference`` is second minus first.
        task: Compare this task only; by default all tasks that the runs have in common.
        metrics: Compare this metric or these metrics only, so that fewer tests are corrected for; by default all with a
            standard error but rates of unusable replies.
        labels: Files of people's labels of the first and of the second run, which correct a judge's verdicts; empty for
            none.
        include_path: Folders with task files of your own; by default those of the runs or scores.

    Returns:
        One line per task, row and metric. ``p_holm`` is corrected for all lines. ``units`` is the number of independent
        clusters, ``detectable`` the smallest true difference found with 80 % power.

    Raises:
        MedTasksError: A run cannot be read, nothing can be compared, ``labels`` is one file, or a run is to be compared
            with scores.
    """
    metrics = [metrics] if isinstance(metrics, str) else metrics
    if len(labels) not in (0, 2):
        raise RepliesError(
            f"{len(labels)} files of labels for two runs; give one for each, or none"
        )
    folders = include_path or getattr(first, "_folders", ()) or getattr(second, "_folders", ())
    with _including(folders):
        if isinstance(first, Scores) and isinstance(second, Scores):
            tasks = {first.task: _compare_scores(first, second, task, metrics, labels)}
        elif isinstance(first, Scores) or isinstance(second, Scores):
            raise RepliesError(
                "scores can be compared with scores only, and runs with runs; give two of one kind"
            )
        else:
            runs = {"first": _source(first, labels[:1]), "second": _source(second, labels[1:])}
            tasks = _compare_sources(runs, metrics, task)
    lines = []
    for name, compared in tasks.items():
        for warning in compared.warnings:
            warn_once(f"{name}: {warning}.")
        for test in compared.comparisons:
            line = {"task": name, "row": test.rule, "metric": test.metric, "p_holm": test.holm}
            lines.append(line | asdict(test.result))
    return pd.DataFrame(lines, columns=_COMPARISON_COLUMNS)


def board(
    runs: Sequence[str | Path],
    *,
    rule: Reading = "published",
    tasks: Sequence[str] = (),
    include_path: FolderInput = (),
) -> pd.DataFrame:
    """Put runs next to each other in the main metric of each task, as ``medtasks board`` does.

    Args:
        runs: Folders of runs, each with one or several models; or a task and files of replies to it.
        rule: Kind of the rule that reads all replies, ``published`` or ``careful``.
        tasks: Tasks and groups to show; by default all of the runs.
        include_path: Folders with task files of your own.

    Returns:
        One line per model and task, with ``first_rank`` and ``last_rank``; shares are fractions.

    Raises:
        MedTasksError: A run cannot be read, or no run has a score.
    """
    with _including(include_path):
        scored = board_of(list(map(str, runs)), rule, tasks)
    for note in scored.notes:
        warn_once(note)
    return pd.DataFrame(board_lines(scored))


def _source(run: Run | str | Path, labels: Sequence[str | Path]) -> Source:
    """Return the location of a run with its file of labels, which is the only one of ``labels``, or none if empty."""
    file = Path(labels[0]) if labels else None
    if isinstance(run, Run):
        return Source(run.folder, run.model, file)
    return Source(Path(run), labels=file)


def _compare_sources(
    runs: Mapping[str, Source],
    metrics: Sequence[str],
    task: str | None,
) -> dict[str, ComparedTask]:
    """Compare runs by task, and warn of tasks that were not compared and of copied replies.

    Args:
        runs: Runs by name.
        metrics: Names of metrics; if empty, all of each task with a standard error but rates of unusable replies.
        task: The only task to compare; None for all that the runs have in common.
    """
    tasks, causes = compare_all(runs, metrics, task=task)
    for name, cause in causes.items():
        warn_once(f"Not compared: {name}: {cause}")
    for name, compared in tasks.items():
        for run, origins in compared.origins.items():
            if str(origins):
                warn_once(f"{name}, {run}: {origins}.")
    return tasks


def _compare_scores(
    first: Scores,
    second: Scores,
    task: str | None,
    metrics: Sequence[str],
    files: Sequence[str | Path],
) -> ComparedTask:
    """Compare the replies of two scores.

    Args:
        first: Scores of the first run.
        second: Scores of the second run.
        task: Task that both have to be of; None for that of the first.
        metrics: Names of metrics; if empty, all with a standard error but rates of unusable replies.
        files: Files of labels of both; none if empty.

    Raises:
        RepliesError: The scores are of different tasks, or the data changed in between.
    """
    names = dict.fromkeys((first.task, second.task, task or first.task))
    if len(names) > 1:
        raise RepliesError(
            f"the scores are of different tasks ({', '.join(names)}), so that nothing can be compared"
        )
    if first.data["fingerprint"] != second.data["fingerprint"]:
        raise RepliesError(
            f"the data of '{first.task}' changed between the two calls of score; score both again"
        )
    reading = first._reading
    replies = {"first": reading.samples.replies, "second": second._reading.samples.replies}
    labels = {}
    for run, file in zip(replies, files, strict=False):
        labels[run] = read_labels(Path(file))
    return compare_runs(reading.task, reading.documents, replies, metrics, labels=labels)


def _including(folders: FolderInput) -> AbstractContextManager[None]:
    """Add folders with task files, possibly none, to those that tasks are found in, while the context lasts."""
    paths = [folders] if isinstance(folders, str | Path) else folders
    return including(list(map(Path, paths)))


def _reading_or_none(recorded: TaskRun) -> TaskReading | None:
    """Read a recorded task, and warn of samples that have changed since they were asked.

    Returns:
        The reading, or None for a group or a task that medtasks cannot score.
    """
    task = our_task(recorded.name)
    if task is None or task.kind == "group":
        return None
    reading = read_task(recorded, task)
    if reading.samples.changed and recorded.samples:
        warn_once(reading.samples.describe_changes(recorded.samples))
    return reading


def _by_id(replies: RepliesInput, documents: Documents) -> dict[str, Reply]:
    """Return the replies by the ids of the questions that they answer.

    Raises:
        RepliesError: A reply is no text, names no question or contradicts another one, or their number is wrong.
    """
    named, is_published = _named_replies(replies, documents)
    # Published ids are never numbers of rows.
    row_names = {} if is_published else {name: _place(name) for name, _ in named}
    index = QuestionIndex(documents, row_names)
    by_id: dict[str, Reply] = {}
    for name, cell in named:
        doc_id = index.find(name, _place(name))
        text = None if _is_missing(cell) else cell
        if not isinstance(text, str | None):
            raise RepliesError(
                f"{_place(name)} is no text but {type(text).__name__}; give a text or None"
            )
        reply = Reply.of_text(text)
        if by_id.setdefault(doc_id, reply) != reply:
            raise RepliesError(
                f"there are two different replies to '{name}'; give one per question"
            )
    if not by_id:
        raise RepliesError("there are no replies; give at least one")
    return by_id


def _named_replies(
    replies: RepliesInput, documents: Documents
) -> tuple[list[tuple[str, Any]], bool]:
    """Pair each reply with the name of its question.

    Args:
        replies: See :func:`score`. Those of a list are in the order of the documents.
        documents: All documents of the task.

    Returns:
        Pairs of a name, as text, and a reply, of any type; and whether the names are ids that a benchmark published.

    Raises:
        RepliesError: The DataFrame lacks a column, or replies in order are not as many as the documents.
    """
    pairs: Iterable[tuple[Any, Any]]
    is_published = False
    if isinstance(replies, pd.DataFrame):
        columns = set(replies.columns)
        is_published = "doc_id" not in columns and {"id", "reply"} <= columns
        id_column = "id" if is_published else "doc_id"
        if missing := {id_column, "reply"} - columns:
            raise RepliesError(
                f"the DataFrame of replies has no column {sorted(missing)}; it needs doc_id and reply"
            )
        pairs = zip(replies[id_column], replies["reply"], strict=True)
    elif isinstance(replies, Mapping | pd.Series):
        pairs = replies.items()
    else:
        pairs = _pairs_in_order(replies, documents)
    return [(name_of(name), text) for name, text in pairs], is_published


def _pairs_in_order(replies: Any, documents: Documents) -> Iterable[tuple[Any, Any]]:
    """Return the id of each document with the reply at the same position.

    Args:
        replies: A reply per document. A set, which has no order, or a single object counts as none.
        documents: All documents of the task.

    Raises:
        RepliesError: There are not as many replies as documents.
    """
    received = f"a {type(replies).__name__}"
    texts: list[Any] = []
    if isinstance(replies, Iterable) and not isinstance(replies, Set):
        texts = list(replies)
        received = f"{len(texts)} replies"
    if len(texts) != len(documents):
        raise RepliesError(
            f"the task asks {len(documents)} questions, but {received} came; give a list with one reply per "
            "question, or a dict from doc_id to reply"
        )
    return zip([document["doc_id"] for document in documents], texts, strict=True)


def _place(name: str) -> str:
    return f"the reply to '{name}'"


def _is_missing(text: Any) -> bool:
    """Return whether a cell of a table is empty: None, NA or NaN."""
    return text is None or text is pd.NA or bool(text != text)


def _table(rows: Iterable[tuple[str, str, str, Sequence[MetricScore]]]) -> pd.DataFrame:
    """Return one line per score of rows, each given as task, name, rule and scores."""
    lines = []
    for *row, scores in rows:
        for score in scores:
            lines.append((*row, score.metric, score.value, score.error, score.low, score.high))
    columns = ["task", "row", "rule", "metric", "value", "standard_error", "low", "high"]
    return pd.DataFrame(lines, columns=columns)


def _sample_lines(reading: TaskReading) -> list[dict[str, Any]]:
    """Return one line per question and row, of credentialed data without other columns."""
    paths = image_files(reading)
    clustered = {}
    for row, computed in reading.computed.items():
        scores = with_image_clusters(list(computed.samples.values()))
        clustered[row] = dict(zip(computed.samples, scores, strict=True))
    lines = []
    for item, document in zip(audit_items(reading), reading.answered_documents, strict=True):
        doc_id = str(document["doc_id"])
        columns = _question_columns(reading, item, document, paths)
        for row, answer in item.answers.items():
            score = clustered[row][doc_id]
            answer_columns = {
                "row": row,
                "answer": answer.value,
                "reason": answer.reason,
                "correct": None if is_failed(score) or is_unjudged(score) else answer.right,
                "score": answer.score,
                "cluster_id": score.get("cluster_id"),
            }
            lines.append(columns | answer_columns)
    return lines


def _question_columns(
    reading: TaskReading,
    item: AuditItem,
    document: Document,
    paths: Mapping[str, Path],
) -> dict[str, Any]:
    """Return the columns of a question and its reply, which are the same in each row."""
    reply = reading.samples.replies.get(str(document["doc_id"]), Reply())
    text = None
    columns = {}
    if not reading.withheld:
        text = None if reply.is_failure else reply.text
        columns = {name: document[name] for name in document if name not in _REPLACED_COLUMNS}
    return columns | {
        "task": reading.task.name,
        "doc_id": item.doc_id,
        "question": item.question,
        "options": list(item.options),
        "target": item.key,
        "reply": list(item.losses) or text,
        "images": [str(paths[key]) for key in item.images if key in paths],
    }


def _frame_of(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return lines of samples as a frame: the columns of every task first, then those that only some lines have."""
    columns = dict.fromkeys(_SAMPLE_COLUMNS)
    for line in lines:
        columns |= dict.fromkeys(line)
    return pd.DataFrame(lines, columns=list(columns)).convert_dtypes()
