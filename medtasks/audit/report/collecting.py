"""Collecting the contents of a report from a run, or from recorded replies."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks.audit.doctor.metric_models import fetch_command
from medtasks.audit.report.audit_items import audit_items, image_files
from medtasks.audit.report.contents import Baseline, Gain, RuleScores, RunReport, TaskReport
from medtasks.audit.report.differences import corrected_gains, gains_over, thinking_of
from medtasks.audit.report.published import published_of, published_scores
from medtasks.audit.report.run_description import facts, missing_tasks, run_notes
from medtasks.audit.report.task_reading import (
    NOT_COMPUTED,
    TaskReading,
    given_replies,
    read_task,
    recorded_values,
    rule_reports,
)
from medtasks.data.dataset_manifest import described_images
from medtasks.data.images.decoding import Decoding
from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.data.variants import OF_IMAGES
from medtasks.errors import MedTasksError, UnknownName
from medtasks.metrics.metric import Declaration
from medtasks.runs.harness_options import model_title
from medtasks.runs.replies import read_replies
from medtasks.runs.run import NO_RESULTS, Run, TaskRun
from medtasks.stats.calibration import Calibration
from medtasks.tasks.documents import access_of_task, private_datasets, task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import scored_task, task_config, task_file, task_files
from medtasks.tasks.task_index import mapping_in
from medtasks.tasks.task_variants import THINKING


@dataclass(frozen=True)
class Section:
    """The section of one task."""

    report: TaskReport
    reading: TaskReading | None = None  # its source; None for a group and for a task that is not ours
    notes: Sequence[str] = ()  # disagreements, one sentence each
    members: Sequence[str] = ()  # names of a group's members
    repeats: Sequence[TaskReading] = ()  # readings of all repeats of a repeated run

    @property
    def readings(self) -> Sequence[TaskReading]:
        """Readings of all repeats; none for a task that is not ours."""
        return self.repeats or ([self.reading] if self.reading else [])


def collect_run(run: Run, repeats: Mapping[str, Mapping[Path, TaskReading]] = MappingProxyType({})) -> RunReport:
    """Collect the report of a run, which may be one of several ``repeats``: readings by task and folder.

    Scores are computed again from the recorded replies; where that gives other numbers than the run recorded, a note
    names both and the recorded ones are shown. Nothing here loads a model or asks a judge.
    """
    sections = [section(recorded, repeats.get(recorded.name, {})) for recorded in run.tasks.values()]
    of_same_model = set(published_of(run.published_as))
    reports = []
    for report in finished(sections):
        marked = (replace(score, same_model=(report.name, score) in of_same_model) for score in report.published)
        reports.append(replace(report, published=tuple(marked)))
    return RunReport(
        title=model_title(run.model) or run.folder.resolve().name,
        model=run.model,
        created=_now(),
        run_at=run.made,
        facts=facts(run),
        tasks=tuple(reports),
        missing=missing_tasks(run),
        notes=(*run_notes(run), *(note for report in sections for note in report.notes)),
    )


def collect_replies(task_name: str, paths: Sequence[Path]) -> RunReport:
    """Collect the report of recorded replies to one task, in files or folders of one run.

    Raises:
        UnknownName: There is no such task.
        RepliesError: Replies cannot be read or do not fit the task, or it is a group.
        DatasetNotPrepared: Its dataset is not there.
    """
    task = scored_task(task_name)
    documents = task_documents(task)
    task_section = reading_section(given_replies(task, documents, read_replies(paths, documents)))
    return RunReport(
        title=f"Recorded replies to {task_name}",
        model="",
        created=_now(),
        run_at="",
        facts={"replies": ", ".join(map(str, paths))},
        tasks=(task_section.report,),
        missing={},
        notes=("Made from recorded replies: which model gave them, and how, is not recorded.", *task_section.notes),
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def section(recorded: TaskRun, repeats: Mapping[Path, TaskReading] = MappingProxyType({})) -> Section:
    """Return the section of a task or group of a run, with its readings in all repeats."""
    try:
        task = task_file(recorded.name)
    except UnknownName:
        return _foreign(recorded)
    if task.kind == "group":
        members = recorded.members or task.members
        entries = (task_files().get(name) for name in task.members)
        first = next((entry for entry in entries if entry and not entry.only_harness), None)
        ordered, _ = rule_reports(recorded, first, {})  # as its members order rules and metrics
        report = TaskReport(
            name=recorded.name,
            describes=task.description,
            rules=tuple(replace(rule, rule="", describes="", failures={}) for rule in ordered),
            metrics=_declared(first) if first else {},
            missing=(f"It is a group: its scores summarise {', '.join(members)}.",),
        )
        return Section(report, members=members)
    if task.only_harness:
        return _foreign(recorded, task.only_harness)
    reading = next((repeat for repeat in repeats.values() if repeat.recorded is recorded), None)
    return replace(reading_section(reading or read_task(recorded, task)), repeats=list(repeats.values()))


def reading_section(reading: TaskReading) -> Section:
    """Return the section of one of our tasks, its gains over sanity variants not included."""
    task, recorded = reading.task, reading.recorded
    rules, notes = rule_reports(recorded, task, reading.computed)
    if reading.samples.damaged:
        notes = [f"{task.name}: torn lines are missing, so that its scores cannot be checked."] if notes else []
    answered = recorded.asked or len(reading.samples.answered)
    documents = recorded.documents or len(reading.documents)
    config = task_config(task.name)
    metadata = mapping_in(config, "metadata")
    settings = config.get("lmms_eval_specific_kwargs") or {}
    decoding = None  # as the dataset says
    with contextlib.suppress(MedTasksError):  # of which the run died
        decoding = Decoding.of_settings(settings.get("default", settings))
    baselines, calibration, lacking = _baselines_and_calibration(reading)
    report = TaskReport(
        name=task.name,
        describes=task.description,
        protocol=str(recorded.metadata.get("protocol") or metadata.get("protocol") or ""),
        dataset=task.dataset or "",
        access=access_of_task(task, reading.documents),
        # If no data are recorded, those that the replies were matched to.
        **_facts_of({**reading.data, **recorded.data}),
        decoding=decoding,
        withheld=reading.withheld,
        documents=documents,
        answered=answered,
        rules=rules,
        metrics=_declared(task),
        baselines=baselines,
        published=published_scores(task.name) if task.is_shipped else (),
        calibration=calibration,
        items=audit_items(reading),
        pictures=image_files(reading),
        missing=(
            *_not_asked(answered, documents),
            *_not_recorded(reading, rules),
            *reading.missing,
            *lacking,
            *dict.fromkeys(note for computed in reading.computed.values() for note in computed.report.few_clusters),
        ),
    )
    return Section(report, reading, notes)


def _foreign(recorded: TaskRun, cause: str = "") -> Section:
    """Return the recorded scores of a task that is not ours, or that only the harness can score."""
    rules, _ = rule_reports(recorded, None, {})
    dataset = str(recorded.metadata.get("dataset") or "") if recorded.data else ""
    what = (
        f"Its task or its dataset '{dataset}' is not here any more, so that only the recorded scores are shown."
        if dataset
        else f"It {cause or 'is no task of medtasks'}: scores and standard errors are as the harness recorded them."
    )
    report = TaskReport(
        name=recorded.name,
        describes=str(recorded.metadata.get("description") or ""),
        protocol=str(recorded.metadata.get("protocol") or ""),
        dataset=dataset,
        access=str(recorded.data.get("access") or ""),
        **_facts_of(recorded.data),
        withheld=bool(dataset) and is_private(dataset),
        documents=recorded.documents,
        answered=recorded.asked,
        rules=rules,
        missing=(what, *_not_asked(recorded.asked, recorded.documents)),
    )
    return Section(report)


def _facts_of(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "fingerprint": str(data.get("fingerprint") or ""),
        "sample_data": data.get("sample") is True,
        "complete_data": data.get("complete") is not False,
        "image_conversions": described_images(data),
    }


def _declared(task: TaskFile) -> dict[str, Declaration]:
    return {metric.name: metric for metric in (*task.metrics, *task.family.compared_only)}


def _baselines_and_calibration(
    reading: TaskReading,
) -> tuple[tuple[Baseline, ...], Mapping[str, Calibration], list[str]]:
    """Return baselines and calibration of a task whose questions are here, and reasons why one is missing."""
    from medtasks.audit.baselines import baselines
    from medtasks.audit.task_calibration import task_calibration

    of_task: tuple[Baseline, ...] = ()
    calibration: Mapping[str, Calibration] = {}
    lacking = []
    if reading.documents:
        if not reading.answered and 0 < reading.recorded.asked < len(reading.documents):
            lacking.append("The baselines are those of all questions, as no samples say which were asked.")
        try:
            run = {} if reading.withheld else {name: computed.samples for name, computed in reading.computed.items()}
            of_task = baselines(reading.task, reading.answered or reading.documents, run)
        except MedTasksError as error:
            lacking.append(f"There are no baselines: {str(error).rstrip('.')}.")
    if reading.samples.replies:
        try:
            calibration = task_calibration(reading.task, reading.documents, reading.samples.replies)
        except MedTasksError as error:
            lacking.append(f"There is no calibration: {str(error).rstrip('.')}.")
    return of_task, calibration, lacking


def _not_asked(answered: int, documents: int) -> list[str]:
    if not 0 < answered < documents:
        return []
    return [f"Only {answered} of {documents} questions were answered; the others are in no score."]


def _not_recorded(reading: TaskReading, rules: Sequence[RuleScores]) -> list[str]:
    sentences = []
    here = "; its scores are computed from them here" if any(rule.scores for rule in rules) else ""
    answered, questions = len(reading.samples.answered), reading.recorded.asked
    if reading.recorded.scores and not recorded_values(reading.recorded):
        sentences.append(f"The run only collected replies (--predict_only){here}.")
    elif reading.recorded.samples and not reading.recorded.scores:
        sentences.append(f"{NO_RESULTS.rstrip('.')}{here}.")
    lost = dict.fromkeys(name for rule in rules for name, why in rule.failures.items() if why == NOT_COMPUTED)
    if lost:
        steps = filter(None, (fetch_command(lost), reading.score_command))
        sentences.append(
            f"Not computed in the run, as a model, its weights or a judge was missing or failed: {', '.join(lost)}. To "
            f"compute them now: {'; then: '.join(steps)}"
        )
    if 0 < answered < questions:
        sentences.append(
            f"The samples file holds replies to only {answered} of the {questions} questions that were asked."
        )
    if reading.withheld:
        names = ",".join(private_datasets(reading.task, reading.documents))
        sentences.append(
            f"'{names}' is credentialed, so that questions, images and replies are withheld; "
            f"{LOG_TEXT_VARIABLE}={names} shows them to those who may see them."
        )
    return sentences


def finished(sections: Sequence[Section]) -> tuple[TaskReport, ...]:
    """Complete the reports of a run: gains over sanity variants, and facts that a group's members share."""
    others = {part.report.name: part for part in sections}
    reports = []
    for part in sections:
        changes: dict[str, Any] = {}
        if members := [others[name].report for name in part.members if name in others]:
            changes["sample_data"] = any(member.sample_data for member in members)
            changes["complete_data"] = all(member.complete_data for member in members)
            for name in ("documents", "answered"):  # 0, for unknown, if they differ
                numbers = {getattr(member, name) for member in members}
                changes[name] = numbers.pop() if len(numbers) == 1 else 0
        elif part.reading is not None and (task := part.reading.task).variant in THINKING:
            base = others.get(str(task.base))
            over_direct = gains_over(part.readings, part.report, base.readings, base.report) if base else []
            changes["thinking"] = thinking_of(part.reading, over_direct)
        elif part.reading is not None:
            gains: list[Gain] = []
            for variant in OF_IMAGES:
                other = others.get(f"{task.name}_{variant}")
                if other and other.reading and other.reading.task.base == task.name:
                    gains += gains_over(part.readings, part.report, other.readings, other.report)
            changes["gains"] = tuple(gains)
        reports.append(replace(part.report, **changes))
    return corrected_gains(reports)
