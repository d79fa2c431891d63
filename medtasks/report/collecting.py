"""Collecting the contents of a report from a run, or from recorded replies."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks.data.dataset_manifest import described_images
from medtasks.data.images.decoding import Decoding
from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.data.variants import NOTA, NOTA_CONTROL, ROTATED, VARIANTS
from medtasks.errors import MedTasksError, UnknownName
from medtasks.families.counts import is_failed
from medtasks.metrics.metric import Declaration
from medtasks.metrics.missing_weights import fetch_command
from medtasks.report.differences import (
    corrected_gains,
    gains_over,
    paired_gains,
    summarise_thinking,
)
from medtasks.report.published import published_group_scores, published_of, published_scores
from medtasks.report.report_model import Gain, RunReport, TaskReport
from medtasks.runs.harness_options import model_title
from medtasks.runs.recorded_replies import read_recorded
from medtasks.runs.run import NO_RESULTS, RecordedRun, TaskRun
from medtasks.runs.run_notes import facts, missing_tasks, run_notes
from medtasks.scores.audit_items import audit_items, image_files
from medtasks.scores.draw_notes import UNWEIGHTED_TABLES, draw_notes, metrics_without_mean
from medtasks.scores.score_model import Baseline, RuleScores
from medtasks.scores.subgroups import grouped_by, with_interval
from medtasks.scores.task_reading import (
    NOT_COMPUTED,
    TaskReading,
    estimate_by_question,
    given_replies,
    grouping_notes,
    read_task,
    recorded_settings,
    recorded_values,
    rule_reports,
)
from medtasks.stats.calibration import Calibration
from medtasks.tasks.documents import access_of_task, private_datasets, task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import scored_task, task_config, task_file, task_files
from medtasks.tasks.task_index import mapping_in
from medtasks.tasks.task_variants import THINKING

_Facts = dict[str, Any]  # fields of a report by name
_NOT_COMPARED = (
    "It is not compared with '{0}' on the same images: the run has no replies to both that no judge reads and that "
    "share an image (run both together; 'medtasks data verify' checks the images)."
)


@dataclass(frozen=True)
class Section:
    """The section of one task."""

    report: TaskReport
    # Its source; None for a group and for a task that is not ours.
    reading: TaskReading | None = None
    notes: Sequence[str] = ()  # disagreements, one sentence each
    members: Sequence[str] = ()  # names of a group's members
    # Of each repeat, or of the one run; none without a source
    readings: Sequence[TaskReading] = ()


def collect_run(
    run: RecordedRun,
    repeats: Mapping[str, Mapping[Path, TaskReading]] = MappingProxyType({}),
    by: Sequence[str] = (),
) -> RunReport:
    """Collect the report of a run, which may be one of several repeats.

    Scores are computed again from the recorded replies. Where that gives other numbers than the run recorded, a note
    names both and the recorded ones are shown. Nothing here loads a model or asks a judge.

    Args:
        run: The run.
        repeats: Readings by task and folder of all repeats, if there are several.
        by: Columns by which scores are grouped, too.

    Raises:
        RepliesError: No task can be grouped by one of the columns.
    """
    sections = [
        section(recorded, repeats.get(recorded.name, {}), by) for recorded in run.tasks.values()
    ]
    readings = [part.reading for part in sections if part.reading]
    ungrouped = grouping_notes(readings, by)
    by_name = {part.report.name: part for part in sections}
    recipe = run.manifests[-1].recipe if run.manifests else None
    scores_of_model = set(published_of(recipe.published_as)) if recipe else set()
    reports = []
    for part in sections:
        published = []
        for score in part.report.published:
            published.append(
                replace(score, same_model=(part.report.name, score) in scores_of_model)
            )
        facts_of_others = _facts_of_others(part, by_name)
        reports.append(replace(part.report, published=tuple(published), **facts_of_others))
    notes = chain.from_iterable(part.notes for part in sections)
    return RunReport(
        title=model_title(run.model) or run.folder.resolve().name,
        model=run.model,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run_at=run.created_at,
        facts=facts(run),
        primary=run.primary,
        tasks=corrected_gains(reports),
        missing=missing_tasks(run),
        notes=(*run_notes(run), *ungrouped, *notes),
    )


def _facts_of_others(part: Section, by_name: Mapping[str, Section]) -> _Facts:
    """Return the facts of a task or group that follow from other tasks of the run."""
    members = [by_name[name] for name in part.members if name in by_name]
    if members:
        return _facts_of_members(part.report, members)
    if part.reading is None:
        return {}
    task = part.reading.task
    if task.variant not in THINKING:
        return _gains(part, by_name)
    base = by_name.get(str(task.base))
    over_direct = (
        gains_over(part.readings, part.report, base.readings, base.report) if base else []
    )
    return {"thinking": summarise_thinking(part.reading, over_direct)}


def _facts_of_members(group: TaskReport, members: Sequence[Section]) -> _Facts:
    """Return the facts of a group that its members share. Numbers are 0, for unknown, if they differ."""
    reports = [member.report for member in members]
    readings = [member.reading for member in members if member.reading]
    facts: _Facts = {
        "sample_data": any(report.sample_data for report in reports),
        "complete_data": all(report.complete_data for report in reports),
        "rules": _with_errors(group, readings),
    }
    for name in ("documents", "answered"):
        numbers = {getattr(report, name) for report in reports}
        facts[name] = numbers.pop() if len(numbers) == 1 else 0
    return facts


def _gains(part: Section, by_name: Mapping[str, Section]) -> _Facts:
    """Return a task's gains over its variants in the run, and over the task on the same images that it names."""
    task = part.readings[0].task
    gains: list[Gain] = []
    for name, base_name in _compared_variants(task).items():
        other = by_name.get(name)
        if other and other.reading and other.reading.task.base == base_name:
            gains += gains_over(part.readings, part.report, other.readings, other.report)
    if task.same_as is None:
        return {"gains": tuple(gains)}
    other = by_name.get(task.same_as)
    on_images: list[Gain] = []
    if other and other.readings:
        on_images = paired_gains(part.readings, other.readings, by_image=True)
    missing = part.report.missing
    if not on_images:
        missing += (_NOT_COMPARED.format(task.same_as),)
    return {"gains": (*gains, *on_images), "missing": missing}


def _compared_variants(task: TaskFile) -> dict[str, str]:
    """Return the names of the variants that a task is compared with, each with the task that it is a variant of."""
    variants = {}
    for variant in VARIANTS:
        if variant != ROTATED:  # rotations have other metrics
            variants[f"{task.name}_{variant}"] = task.name
    if task.variant == NOTA_CONTROL:  # the control is compared with the form that it controls
        variants[f"{task.base}_{NOTA}"] = str(task.base)
    return variants


def collect_replies(task_name: str, paths: Sequence[Path], by: Sequence[str] = ()) -> RunReport:
    """Collect the report of recorded replies to one task.

    Args:
        task_name: Name of the task.
        paths: Files or folders of one run.
        by: Columns by which scores are grouped, too.

    Raises:
        UnknownName: There is no such task.
        RepliesError: Replies cannot be read or do not fit the task, it is a group, or has no column of ``by``.
        DatasetNotPrepared: Its dataset is not there.
    """
    task = scored_task(task_name)
    documents = task_documents(task)
    task = grouped_by(task, documents, by)
    recorded = read_recorded(task, documents, paths)
    part = reading_section(given_replies(task, documents, recorded.only_run))
    return RunReport(
        title=f"Recorded replies to {task_name}",
        model="",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run_at="",
        facts={"replies": ", ".join(map(str, paths))},
        tasks=(part.report,),
        missing={},
        notes=(
            "Made from recorded replies: which model gave them, and how, is not recorded.",
            *recorded.notes,
            *part.notes,
        ),
    )


def section(
    recorded: TaskRun,
    repeats: Mapping[Path, TaskReading] = MappingProxyType({}),
    by: Sequence[str] = (),
) -> Section:
    """Return the section of a task or group of a run.

    Args:
        recorded: What the run recorded of it.
        repeats: Its readings in all repeats of the run, by folder.
        by: Columns by which scores are grouped, too.
    """
    task = None
    with contextlib.suppress(UnknownName):
        task = task_file(recorded.name)
    if task is None or (task.only_harness and task.kind != "group"):
        return Section(_recorded_report(recorded, task))
    if task.kind == "group":
        members = recorded.members or task.members
        return Section(_group_report(recorded, task, members), members=members)
    reading = next((repeat for repeat in repeats.values() if repeat.recorded is recorded), None)
    part = reading_section(reading or read_task(recorded, task, by))
    return replace(part, readings=list(repeats.values())) if repeats else part


def _recorded_report(recorded: TaskRun, task: TaskFile | None) -> TaskReport:
    """Report the recorded scores of a task that is not ours (None), or that only the harness can score."""
    dataset = _text(recorded.metadata, "dataset") if recorded.data else ""
    if dataset:
        cause = f"Its task or its dataset '{dataset}' is not here any more, so that only the recorded scores are shown."
    else:
        kind = task.only_harness if task else "is no task of medtasks"
        cause = f"It {kind}: scores and standard errors are as the harness recorded them."
    return TaskReport(
        name=recorded.name,
        describes=_text(recorded.metadata, "description"),
        protocol=_text(recorded.metadata, "protocol"),
        dataset=dataset,
        data_in_words="own data" if task else "data of lmms-eval",
        access=_text(recorded.data, "access"),
        **_facts_of(recorded.data),
        withheld=bool(dataset) and is_private(dataset),
        documents=recorded.documents,
        answered=recorded.asked,
        rules=rule_reports(recorded, None, {})[0],
        missing=(cause, *_partial_run(recorded.asked, recorded.documents)),
    )


def _group_report(recorded: TaskRun, task: TaskFile, members: Sequence[str]) -> TaskReport:
    """Report the recorded scores of a group, and how the harness made them of those of its members."""
    files = task_files()
    entries = []
    for name in task.members:
        if name in files and not files[name].only_harness:
            entries.append(files[name])
    first = next(iter(entries), None)
    ordered, _ = rule_reports(recorded, first, {})  # as its members order rules and metrics
    caution = ""
    if "groups.best_" in str(task_config(recorded.name).get("aggregate_metric_list")):
        same_rows = len({tuple(entry.rows) for entry in entries}) < 2
        # A judged member has no row of ours.
        number = len(members) if same_rows else f"up to {len(members)}"
        caution = f"; each score is the best of {number}, chosen on the test set"
    return TaskReport(
        name=recorded.name,
        describes=task.description,
        data_in_words=f"data of its members{caution}",
        rules=tuple(replace(rule, rule="", describes="", failures={}) for rule in ordered),
        metrics=_metrics_by_name(first) if first else {},
        missing=(f"It is a group: its scores summarise {', '.join(members)}{caution}.",),
    )


def _with_errors(group: TaskReport, readings: Sequence[TaskReading]) -> tuple[RuleScores, ...]:
    """Add errors to a group's scores that are means over its members, which ask the same questions."""
    declared = {metric.name: metric for metric in readings[0].task.metrics} if readings else {}
    rules = []
    for rule in group.rules:
        scores = []
        for score in rule.scores:
            if metric := declared.get(score.metric):
                estimate, _ = estimate_by_question(readings, rule.name, metric)
                if math.isclose(estimate.value, score.value, abs_tol=1e-9):
                    score = with_interval(metric, estimate)
            scores.append(score)
        rules.append(replace(rule, scores=tuple(scores)))
    return tuple(rules)


def reading_section(reading: TaskReading) -> Section:
    """Return the section of one of our tasks, its gains over sanity variants not included.

    Args:
        reading: Replies of the task with their scores.
    """
    task = reading.task
    recorded = reading.recorded
    rules, notes = rule_reports(recorded, task, reading.computed)
    if notes and reading.samples.damaged:
        notes = [f"{task.name}: torn lines are missing, so that its scores cannot be checked."]
    answered = recorded.asked or len(reading.samples.answered)
    documents = recorded.documents or len(reading.documents)
    config = task_config(task.name)
    metadata = mapping_in(config, "metadata")
    baselines, baseline_notes = _baselines(reading)
    calibration, calibration_notes = _calibration(reading)
    few_clusters: dict[str, None] = {}
    for computed in reading.computed.values():
        few_clusters |= dict.fromkeys(computed.report.few_clusters)
    report = TaskReport(
        name=task.name,
        describes=task.description,
        protocol=_text(recorded.metadata, "protocol") or _text(metadata, "protocol"),
        dataset=task.dataset or "",
        access=access_of_task(task, reading.documents),
        # If no data are recorded, those that the replies were matched to.
        **_facts_of({**reading.data, **recorded.data}),
        decoding=_decoding_of(config),
        settings=recorded_settings(reading),
        withheld=reading.withheld,
        documents=documents,
        answered=answered,
        rules=rules,
        metrics=_metrics_by_name(task),
        baselines=baselines,
        calibration=calibration,
        items=audit_items(reading),
        pictures=image_files(reading),
        draw=_draw_notes(reading),
        missing=(
            *_partial_run(answered, documents),
            *_unrecorded_parts(reading, rules),
            *reading.missing,
            *baseline_notes,
            *calibration_notes,
            *few_clusters,
        ),
    )
    if task.is_shipped:
        report = replace(
            report,
            published=published_scores(task.name),
            published_groups=published_group_scores(task.name),
        )
    return Section(report, reading, notes, readings=[reading])


def _draw_notes(reading: TaskReading) -> tuple[str, ...]:
    """Describe scores of drawn data, if the data are no whole dataset."""
    data = {**reading.data, **reading.recorded.data}
    replied: set[str] = set()
    for computed in reading.computed.values():
        replied |= {
            doc_id for doc_id, score in computed.samples.items() if not is_failed(score)
        }
    unweighted = [*metrics_without_mean(reading.task.metrics), UNWEIGHTED_TABLES]
    return tuple(draw_notes(data, reading.documents, replied, unweighted))


def _decoding_of(config: Mapping[str, Any]) -> Decoding | None:
    """Return how a task's settings decode images; None if as its dataset says, or if the run died of the settings."""
    settings = config.get("lmms_eval_specific_kwargs") or {}
    with contextlib.suppress(MedTasksError):
        return Decoding.of_settings(settings.get("default", settings))
    return None


def _text(values: Mapping[str, Any], name: str) -> str:
    return str(values.get(name) or "")


def _facts_of(data: Mapping[str, Any]) -> _Facts:
    """Return what is recorded of data: an empty fingerprint if none is, and whole, real data unless it says no."""
    return {
        "fingerprint": _text(data, "fingerprint"),
        "sample_data": data.get("sample") is True,
        "complete_data": data.get("complete") is not False,
        "image_conversions": described_images(data),
    }


def _metrics_by_name(task: TaskFile) -> dict[str, Declaration]:
    """Return the declared metrics of a task, and those that its family has for comparisons only."""
    return {metric.name: metric for metric in (*task.metrics, *task.family.compared_only)}


def _partial_run(answered: int, documents: int) -> list[str]:
    """Return a sentence if only a part of the questions was answered, else none. Numbers are 0 if unknown."""
    if not 0 < answered < documents:
        return []
    return [
        f"Only {answered} of {documents} questions were answered; the others are in no score."
    ]


def _baselines(reading: TaskReading) -> tuple[tuple[Baseline, ...], list[str]]:
    """Return the baselines of a task, and sentences on their questions or why there are none."""
    from medtasks.scores.baselines import baselines

    notes: list[str] = []
    if not reading.documents:
        return (), notes
    if not reading.answered_documents and 0 < reading.recorded.asked < len(reading.documents):
        notes.append(
            "The baselines are those of all questions, as no samples say which were asked."
        )
    documents = reading.answered_documents or reading.documents
    samples = {}
    if not reading.withheld:
        samples = {name: computed.samples for name, computed in reading.computed.items()}
    try:
        return baselines(reading.task, documents, samples), notes
    except MedTasksError as error:
        return (), [*notes, f"There are no baselines: {str(error).rstrip('.')}."]


def _calibration(reading: TaskReading) -> tuple[Mapping[str, Calibration], list[str]]:
    """Return the calibration of a task by rule, and a sentence if there is none although there are replies."""
    from medtasks.scores.task_calibration import task_calibration

    replies = reading.samples.replies
    if not replies:
        return {}, []
    try:
        return task_calibration(reading.task, reading.documents, replies), []
    except MedTasksError as error:
        return {}, [f"There is no calibration: {str(error).rstrip('.')}."]


def _missing_results(reading: TaskReading, rules: Sequence[RuleScores]) -> Iterator[str]:
    """Yield a sentence if the run recorded replies without scores."""
    recorded = reading.recorded
    here = (
        "; its scores are computed from them here" if any(rule.scores for rule in rules) else ""
    )
    if recorded.scores and not recorded_values(recorded):
        yield f"The run only collected replies (--predict_only){here}."
    elif recorded.samples and not (recorded.scores or reading.samples.changed):
        yield f"{NO_RESULTS.rstrip('.')}{here}."


def _unrecorded_parts(reading: TaskReading, rules: Sequence[RuleScores]) -> Iterator[str]:
    """Yield a sentence on each part that the run did not record."""
    yield from _missing_results(reading, rules)
    causes = chain.from_iterable(rule.failures.items() for rule in rules)
    lost = dict.fromkeys(name for name, why in causes if why == NOT_COMPUTED)
    if lost:
        steps = filter(None, (fetch_command(lost), reading.score_command))
        yield (
            f"Not computed in the run, as a model, its weights or a judge was missing or failed: {', '.join(lost)}. To "
            f"compute them now: {'; then: '.join(steps)}"
        )
    answered = len(reading.samples.answered)
    asked = reading.recorded.asked
    if 0 < answered < asked:
        yield f"The samples file holds replies to only {answered} of the {asked} questions that were asked."
    if reading.withheld:
        names = ",".join(private_datasets(reading.task, reading.documents))
        yield (
            f"'{names}' is credentialed, so that questions, images and replies are withheld; "
            f"{LOG_TEXT_VARIABLE}={names} shows them to those who may see them."
        )
