"""Single questions with their replies, as the audit browser and the API show them."""

import contextlib
import math
import re
from dataclasses import replace
from pathlib import Path

from medtasks.data.images.volume_files import is_volume
from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Document, Sample
from medtasks.data.selecting import SELECTABLE, values
from medtasks.data.variants import BLANK, DEGRADED
from medtasks.errors import SourceError
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply, without_its_reasoning
from medtasks.prompts.images import image_path
from medtasks.scores.error_classes import image_names, own_columns
from medtasks.scores.score_model import AuditItem
from medtasks.scores.subgroups import MOST_GROUPS, group_names, number_bands
from medtasks.scores.task_reading import TaskReading
from medtasks.tasks.documents import image_settings
from medtasks.tasks.task_file import TaskFile

_AS_LOGGED = re.compile(rf"[A-Z]|\d{{1,3}}|{NO_OPTION}")
_NO_REPLY = Reply()
_TEXTS = ("context", "indication", "details", "hint", "question")  # in the order of prompts


def audit_items(reading: TaskReading) -> tuple[AuditItem, ...]:
    """Return every question answered, in the order of the dataset.

    If the task is withheld, it is without its text: digests, numbers, and letters that were logged.
    """
    task = reading.task
    columns = dict.fromkeys(task.breakdown)
    for column in SELECTABLE:
        if 0 < len({value for document in reading.answered for value in values(document, column)}) <= MOST_GROUPS:
            columns[column] = None
    rows = {str(document["doc_id"]): document for document in reading.answered}
    if reading.withheld:  # the scores hold what may be shown
        rows = {}
        for computed in reading.computed.values():
            rows |= computed.samples
        columns = dict.fromkeys(task.breakdown)
    bands = {column: number_bands(list(rows.values()), column) for column in task.breakdown}
    items = []
    for document in reading.answered:
        doc_id = str(document["doc_id"])
        unit = str(document.get("pair_id") or document.get("rotation_of") or doc_id)
        reply = reading.samples.replies.get(doc_id, _NO_REPLY)
        read_reply = Reply(losses=reply.losses) if reading.withheld else reply
        answers = {}
        for name, computed in reading.computed.items():
            value = reading.values.get(name, {}).get(doc_id, math.nan)
            # A score that another version wrote may lack something; the question is shown anyway.
            with contextlib.suppress(KeyError, TypeError):
                score = computed.samples[doc_id]
                row = task.rows.get(name)
                answered = without_its_reasoning(read_reply) if row is not None and row.reasoned else read_reply
                answers[name] = task.family.describe(score, answered, None if math.isnan(value) else value)
        names = {column: group_names(rows.get(doc_id, {}), column, bands.get(column, {})) for column in columns}
        groups = {column: tuple(of_column) for column, of_column in names.items() if of_column}
        if reading.withheld:
            item = AuditItem(
                doc_id=hidden_id("doc", doc_id),
                unit=hidden_id("pair" if task.family.paired else "doc", unit),
                losses=reply.losses or (),
                answers={name: as_logged(answer) for name, answer in answers.items()},
                groups=groups,
            )
        else:
            item = AuditItem(
                doc_id=doc_id,
                unit=unit,
                images=tuple(key for key, _ in _keyed_images(task, document)),
                question="\n\n".join(str(document[name]) for name in _TEXTS if document.get(name)),
                options=tuple(document.get("options") or ()),
                prompt=reading.samples.prompts.get(doc_id, ""),
                key=task.family.target_text(Sample(document)),
                reply=reply.text or "",
                losses=reply.losses or (),
                answers=answers,
                groups=groups,
                facts=(*image_names(document), *(f"{name}: {value}" for name, value in own_columns(document).items())),
            )
        items.append(item)
    return tuple(items)


def image_files(reading: TaskReading) -> dict[str, Path]:
    """Return the image files of the questions, by the keys of the items; none if withheld, missing or a volume."""
    files: dict[str, Path] = {}
    settings = image_settings(reading.task)
    for document in () if reading.withheld else reading.answered:
        for key, file in _keyed_images(reading.task, document):
            if key not in files:
                with contextlib.suppress(SourceError):  # a relative path without a known base
                    files[key] = image_path(file, document, settings)
    return {key: path for key, path in files.items() if path.is_file()}


def as_logged(answer: ReadAnswer) -> ReadAnswer:
    """Remove an answer's value if it is more than letters and numbers of options."""
    parts = [] if answer.value is None else answer.value.split(", ")
    return answer if all(_AS_LOGGED.fullmatch(part) for part in parts) else replace(answer, value="")


def _keyed_images(task: TaskFile, document: Document) -> list[tuple[str, str]]:
    """Return each image's key, which reveals no absolute path of this machine, and its file; volumes are left out."""
    files = () if task.variant in (BLANK, DEGRADED) else Sample(document).images  # not as the model saw them
    return [
        (hidden_id("image", file) if Path(file).is_absolute() else file, file)
        for file in files
        if not is_volume(Path(file))
    ]
