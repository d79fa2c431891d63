"""The section of a report about one task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from medtasks.audit.report.contents import Baseline, RuleReport, TaskReport
from medtasks.audit.report.published import published_scores
from medtasks.audit.report.reading.audit_items import audit_items, picture_files
from medtasks.audit.report.reading.gains import Section
from medtasks.audit.report.reading.recorded_run import RecordedTask
from medtasks.audit.report.reading.recorded_scores import recorded_values, rule_reports
from medtasks.audit.report.reading.task_reading import TaskReading, read_task
from medtasks.data.decoding import Decoding
from medtasks.data.manifest import described_images
from medtasks.data.privacy import LOG_TEXT_VARIABLE, is_private
from medtasks.errors import MedTasksError, UnknownName
from medtasks.harness.documents import access_of_task, private_datasets
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_files import lost_folders, task_config, task_file, task_files
from medtasks.harness.task_index import mapping_in
from medtasks.stats.calibration import Calibration


def section(recorded: RecordedTask) -> Section:
    """Return the section of a task or group of a run."""
    try:
        task = task_file(recorded.name)
    except UnknownName:
        return _foreign(recorded)
    if task.kind == "group":
        return _group(recorded, task)
    return _foreign(recorded, task.only_harness) if task.only_harness else reading_section(read_task(recorded, task))


def reading_section(reading: TaskReading) -> Section:
    """Return the section of one of our tasks, its gains over sanity variants not included."""
    rules, notes = rule_reports(reading.recorded, reading.task, reading.computed)
    if reading.samples.torn:
        notes = [f"{reading.task.name}: torn lines are missing, so that its scores cannot be checked."] if notes else []
    return Section(_report(reading, rules), reading, notes)


def _foreign(recorded: RecordedTask, cause: str = "") -> Section:
    """Return the scores of a task of the harness that is not ours, or not any more, or that only it can score."""
    rules, _ = rule_reports(recorded, None, {})
    dataset = str(recorded.metadata.get("dataset") or "") if recorded.data else ""
    what = (
        f"Its task or its dataset '{dataset}' is not here any more, so that only the recorded scores are shown."
        if dataset
        else f"It {cause or 'is no task of medtasks'}: scores and standard errors are as the harness recorded them."
    )
    if not cause and lost_folders():
        what = f"{what} If it is your own: {lost_folders()}."
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


def _group(recorded: RecordedTask, task: TaskFile) -> Section:
    members = recorded.members or task.members
    known = task_files()
    ours = (known[name] for name in task.members if name in known and not known[name].only_harness)
    first = next(ours, None)
    ordered, _ = rule_reports(recorded, first, {})  # as its members order rules and metrics
    rules = tuple(replace(one, rule="", describes="", failures={}) for one in ordered)
    report = TaskReport(
        name=recorded.name,
        describes=task.description,
        rules=rules,
        missing=(f"It is a group: its scores summarise {', '.join(members)}.",),
    )
    return Section(report, members=members)


def _report(reading: TaskReading, rules: tuple[RuleReport, ...]) -> TaskReport:
    task, recorded = reading.task, reading.recorded
    answered = recorded.asked or len(reading.samples.answered)
    documents = recorded.documents or len(reading.documents)
    config = task_config(task.name)
    metadata = mapping_in(config, "metadata")
    baselines, calibration, lacking = _beside(reading)
    return TaskReport(
        name=task.name,
        describes=task.description,
        protocol=str(recorded.metadata.get("protocol") or metadata.get("protocol") or ""),
        dataset=task.dataset or "",
        access=access_of_task(task, reading.documents),
        # Where no data are recorded, those that the replies were matched to.
        **_facts_of(recorded.data or reading.data),
        decoding=_decoding(config),
        withheld=reading.withheld,
        documents=documents,
        answered=answered,
        rules=rules,
        baselines=baselines,
        published=published_scores(task.name) if task.is_shipped else (),
        calibration=calibration,
        items=audit_items(reading),
        pictures=picture_files(reading),
        missing=(*_not_asked(answered, documents), *_not_recorded(reading, rules), *reading.missing, *lacking),
    )


def _decoding(config: Mapping[str, Any]) -> Decoding | None:
    """Return how a task's own settings say that images are decoded; None where they leave it to the dataset."""
    settings = config.get("lmms_eval_specific_kwargs") or {}
    try:
        return Decoding.of_settings(settings.get("default", settings))
    except MedTasksError:  # of which the run died
        return None


def _beside(reading: TaskReading) -> tuple[tuple[Baseline, ...], Mapping[str, Calibration], list[str]]:
    """Return baselines and calibration of a task whose questions are at hand, and what is lacking."""
    from medtasks.audit.baselines import baselines
    from medtasks.audit.task_calibration import task_calibration

    found: tuple[Baseline, ...] = ()
    calibration: Mapping[str, Calibration] = {}
    lacking = []
    if reading.documents:
        if not reading.answered and 0 < reading.recorded.asked < len(reading.documents):
            lacking.append("The baselines are those of all questions, as no samples say which were asked.")
        try:
            found = baselines(reading.task, reading.answered or reading.documents)
        except MedTasksError as error:
            lacking.append(f"There are no baselines: {str(error).rstrip('.')}.")
    if reading.samples.replies:
        try:
            calibration = task_calibration(reading.task, reading.documents, reading.samples.replies)
        except MedTasksError as error:
            lacking.append(f"There is no calibration: {str(error).rstrip('.')}.")
    return found, calibration, lacking


def _not_asked(answered: int, documents: int) -> list[str]:
    if not 0 < answered < documents:
        return []
    return [f"Only {answered} of {documents} questions were answered; the others are in no score."]


def _not_recorded(reading: TaskReading, rules: Sequence[RuleReport]) -> list[str]:
    """Return what is unusual about what the run recorded."""
    found = []
    here = "; its scores are computed from them here" if any(rule.scores for rule in rules) else ""
    known, asked = len(reading.samples.answered), reading.recorded.asked
    if reading.recorded.scores and not recorded_values(reading.recorded):
        found.append(f"The run only collected replies (--predict_only){here}.")
    elif reading.recorded.samples and not reading.recorded.scores:
        found.append(f"The run left samples without results, as it was stopped or failed before it wrote them{here}.")
    if 0 < known < asked:
        found.append(f"The samples file holds replies to only {known} of the {asked} questions that were asked.")
    if reading.withheld:
        names = ",".join(private_datasets(reading.task, reading.documents))
        found.append(
            f"'{names}' is credentialed, so that questions, pictures and replies are withheld; "
            f"{LOG_TEXT_VARIABLE}={names} shows them to those who may see them."
        )
    return found
