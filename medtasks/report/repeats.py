"""Repeats of a run with other seeds, joined: mean and spread of each metric, and scores of the majority's answers.

Nothing here depends on the order of repeats, samples or ranks. A repeat votes for the answer that its rule read, a
letter or a text in lower case; a failed reply and one without an answer are no vote. Ties are decided by a digest of
question and answer, which favours no letter, and are counted. A sample that failed in every repeat has failed.

The interval of the mean covers the sampling of questions and of replies: values are averaged per question first, then
clustered as those of one run (Miller, 2024, arXiv 2411.00640, section 3.1). The spread, a standard deviation (divisor:
repeats minus one), covers replies to the same questions only.
"""

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from medtasks.errors import MedTasksError, join_names
from medtasks.families.counts import COUNTS, is_failed
from medtasks.families.family import without_its_reasoning
from medtasks.home import as_json, written_whole
from medtasks.metrics.metric import Declaration, Score, mean, raw_declaration
from medtasks.report.collecting import collect_run
from medtasks.report.report_model import RepeatedRule, RepeatedScore, RepeatedTask, RunReport
from medtasks.runs.result_files import repeat_folders
from medtasks.runs.run import RepeatedRun, open_run, read_repeats
from medtasks.scores.score_model import MetricScore
from medtasks.scores.scoring import rule_scores
from medtasks.scores.task_reading import (
    TaskReading,
    estimate_by_question,
    read_task,
    recorded_values,
)
from medtasks.stats.intervals import interval
from medtasks.stats.standard_error import mean_standard_error
from medtasks.tasks.task_files import task_file

_Readings = dict[str, dict[Path, TaskReading]]  # by name of the task and folder of the repeat
_Repeats = Sequence[TaskReading]  # replies to one task, one reading per repeat


def write_repeats(output: Path) -> dict[str, RepeatedTask]:
    """Join the repeats in a folder for results, and write them into its ``repeats.json``.

    Returns:
        The joined tasks by name. They are empty, and nothing is written, if nothing was repeated.
    """
    joined = _join_tasks(read_repeats(output))[1]
    if joined:
        contents = {"schema_version": 1, "tasks": as_json(joined)}
        with written_whole(output / "repeats.json") as partial:
            text = json.dumps(contents, indent=2, ensure_ascii=False)
            partial.write_text(f"{text}\n", encoding="utf-8")
    return joined


def collect_repeats(
    folder: Path, model: str | None = None, by: Sequence[str] = ()
) -> RunReport:
    """Collect the report of a run, or of the first repeat of a repeated one with the results of all.

    Args:
        folder: Folder for results.
        model: Model whose run is meant, if the folder holds several.
        by: Columns by which scores are grouped, too.
    """
    if not repeat_folders(folder):
        return collect_run(open_run(folder, model), by=by)
    repeats = read_repeats(folder, model)
    readings, repeated = _join_tasks(repeats, by)
    first = next((run for run in repeats.runs.values() if run.tasks), None)
    report = collect_run(first or open_run(repeat_folders(folder)[0], model), readings, by)
    tasks = tuple(replace(task, repeats=repeated.get(task.name)) for task in report.tasks)
    notes = (
        f"The run was made {len(repeats.runs)} times. Scores, figures and single questions are those of "
        f"{first.folder.name if first else 'the first repeat'}; results over all of them are under Thinking and "
        f"repeats. Gains take the mean of each question over all repeats.",
        *report.notes,
    )
    return replace(report, tasks=tasks, notes=notes)


def _join_tasks(
    repeats: RepeatedRun, by: Sequence[str] = ()
) -> tuple[_Readings, dict[str, RepeatedTask]]:
    """Return the readings of our tasks by name and folder of each repeat that has them, and the joined tasks."""
    readings = _readings_by_task(repeats, by)
    joined = {}
    for name, by_folder in readings.items():
        task_readings = list(by_folder.values())
        if task_readings[0].task.compares_likelihoods:
            continue
        missing = [folder.name for folder in repeats.asked if folder not in by_folder]
        seeds = []
        for folder in by_folder:
            manifests = repeats.runs[folder].manifests
            seeds.append(manifests[-1].seeds.torch if manifests else None)
        joined[name] = join(task_readings, seeds, missing)
    return readings, joined


def _readings_by_task(repeats: RepeatedRun, by: Sequence[str]) -> _Readings:
    """Read the replies of all repeats to tasks of ours. Groups, and tasks of others, are left out."""
    readings: _Readings = {}
    for folder, run in repeats.runs.items():
        for name, recorded in run.tasks.items():
            try:
                task = task_file(name)
            except MedTasksError:
                continue
            if task.kind == "task" and not task.only_harness:
                readings.setdefault(name, {})[folder] = read_task(recorded, task, by)
    return readings


def join(
    readings: _Repeats,
    seeds: Sequence[int | None],
    missing: Sequence[str] = (),
) -> RepeatedTask:
    """Join the repeats of one task.

    Args:
        readings: One per repeat, at least one.
        seeds: Seed of each repeat; None if it is not recorded.
        missing: Names of the folders of repeats without results.

    Returns:
        The joined task, whose numbers do not depend on the order of the repeats.
    """
    notes = []
    if missing:
        notes.append(
            f"Not in any number, without results or from an earlier call with other arguments: {join_names(missing)}."
        )
    if _replies_are_equal(readings):
        notes.append(
            "All repeats gave the same replies: the seed did not reach the model, so that repeating adds nothing."
        )
    task = readings[0].task
    values = list(map(_values_by_row, readings))
    rows = []
    for name in task.rows:
        if all(name in by_row for by_row in values):
            rows.append(_join_row(name, readings, [by_row[name] for by_row in values]))
    return RepeatedTask(
        task=task.name,
        repeats=len(readings),
        seeds=tuple(sorted(seeds, key=lambda seed: (seed is None, seed))),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _replies_are_equal(readings: _Repeats) -> bool:
    """Return whether several repeats have replies, all of them the same."""
    replies = []
    for reading in readings:
        replies_by_id = reading.samples.replies
        replies.append({name: reply.text_for_files for name, reply in replies_by_id.items()})
    first, *others = replies
    return bool(first and others) and others.count(first) == len(others)


def _values_by_row(reading: TaskReading) -> dict[str, dict[str, float]]:
    """Return the values of a repeat by row and metric: recorded ones, else those of its replies."""
    by_row = {}
    for name, computed in reading.computed.items():
        by_row[name] = {score.metric: score.value for score in computed.report.scores}
    for name, row in recorded_values(reading.recorded).items():
        recorded = {metric: value for metric, (value, _) in row.items()}
        by_row.setdefault(name, {}).update(recorded)
    return by_row


def _join_row(
    name: str,
    readings: _Repeats,
    values: Sequence[Mapping[str, float]],
) -> RepeatedRule:
    """Join the repeats under one rule, given the values of each repeat by metric."""
    has_answers = _has_answers(name, readings)
    by_id, ties, failed = _majority_scores(name, readings, has_answers=has_answers)
    voted = _voted_scores(readings[0], by_id)
    declared = {metric.name: metric for metric in readings[0].task.metrics}
    scores = []
    for metric in values[0]:
        if metric not in COUNTS:
            declaration = declared.get(metric) or raw_declaration(metric)
            repeat_values = [repeat.get(metric, math.nan) for repeat in values]
            averaged = readings if has_answers else ()
            scores.append(_score(name, averaged, declaration, repeat_values, voted.get(metric)))
    failed_samples = sum(map(is_failed, by_id.values()))
    return RepeatedRule(name, tuple(scores), len(by_id), ties, failed, failed_samples)


def _has_answers(name: str, readings: _Repeats) -> bool:
    """Return whether equal answers under a rule can be recognised: of withheld texts only values can."""
    if not any(reading.withheld for reading in readings):
        return True
    for reading in readings:
        if name in reading.computed:
            scores = reading.computed[name].samples.values()
            if not all("value" in score for score in scores):
                return False
    return True


def _voted_scores(
    reading: TaskReading, by_id: Mapping[str, Score]
) -> Mapping[str, MetricScore]:
    """Aggregate the scores of the most frequent answers, if aggregates follow from single scores."""
    if not by_id or not reading.task.family.scores_suffice:
        return {}
    documents = [document for document in reading.documents if str(document["doc_id"]) in by_id]
    scores = [by_id[str(document["doc_id"])] for document in documents]
    grouped_by = scores if reading.withheld else documents
    return rule_scores(reading.task, "", scores, grouped_by).estimates


def _score(
    row: str,
    readings: _Repeats,
    metric: Declaration,
    values: Sequence[float],
    voted: MetricScore | None,
) -> RepeatedScore:
    """Join the values of one metric, with an error if it is a mean over the questions, or pairs, of ``readings``."""
    ordered = sorted(values)  # sums of floats depend on their order
    defined = not any(map(math.isnan, values))
    average = math.fsum(ordered) / len(ordered) if defined else math.nan
    spread = statistics.stdev(ordered) if defined and len(ordered) > 1 else math.nan
    share = metric.is_share(*ordered)
    whole = RepeatedScore(metric.name, tuple(ordered), average, spread, voted, share)
    estimate, questions = estimate_by_question(readings if defined else (), row, metric)
    if not questions:
        return whole
    low, high = interval(average, estimate.error, estimate.degrees, share, estimate.effective)
    means = sorted(map(mean, questions))
    within = _variance_within(questions)
    replies = mean([1 / len(answers) for answers in questions]) * within
    between = max(0.0, mean_standard_error(means) ** 2 * len(means) - replies)
    return replace(
        whole, error=estimate.error, low=low, high=high, between=between, within=within
    )


def _variance_within(questions: Sequence[Sequence[float]]) -> float:
    """Return the mean, over questions with several values, of the variance of a question's values."""
    variances = []
    for answers in questions:
        if len(answers) > 1:
            center = mean(answers)
            squares = math.fsum((value - center) ** 2 for value in answers)
            variances.append(squares / (len(answers) - 1))
    return mean(variances)


def _majority_scores(
    name: str,
    readings: _Repeats,
    *,
    has_answers: bool,
) -> tuple[dict[str, Score], int, int]:
    """Return the scores of the most frequent answers by document id, the number of ties, and that of failed replies.

    There are no scores if equal answers cannot be recognised: texts of credentialed data.
    """
    votes_by_id: dict[str, list[tuple[str | None, Score]]] = {}
    failed = 0
    for reading in readings:
        if name not in reading.computed:
            continue
        for doc_id, score in reading.computed[name].samples.items():
            failed += is_failed(score)
            votes_by_id.setdefault(doc_id, []).append(
                (_vote(name, reading, doc_id, score), score)
            )
    if not has_answers:
        return {}, 0, failed
    ties = 0
    majority = {}
    for doc_id, votes in votes_by_id.items():
        counts = Counter(vote for vote, _ in votes if vote is not None)
        most = max(counts.values(), default=0)
        ties += list(counts.values()).count(most) > 1
        majority[doc_id] = _majority_score(doc_id, counts, votes)
    return majority, ties, failed


def _vote(name: str, reading: TaskReading, doc_id: str, score: Score) -> str | None:
    """Return the key that equal answers share, or None without an answer."""
    if is_failed(score):
        return None
    if "value" in score:
        return None if score["value"] is None else json.dumps(score["value"])
    reply = reading.samples.replies.get(doc_id)
    if reply is None:
        return None
    if reading.task.rows[name].reasoned:
        reply = without_its_reasoning(reply)
    answer = reading.task.family.describe(score, reply).value
    return None if answer is None else " ".join(answer.lower().strip(" .").split())


def _majority_score(
    doc_id: str,
    counts: Counter[str],
    votes: Sequence[tuple[str | None, Score]],
) -> Score:
    """Return the score of the most frequent answer, the same one of equally frequent ones each time."""

    def rank(vote: str) -> tuple[int, bytes]:
        return -counts[vote], hashlib.sha256(f"{doc_id}|{vote}".encode()).digest()

    winner = min(counts, key=rank, default=None)
    valid = [score for vote, score in votes if vote == winner and not is_failed(score)]
    candidates = valid or [score for _, score in votes]
    return min(candidates, key=lambda score: json.dumps(score, sort_keys=True, default=str))
