"""Every question of a task with the model's reply and its reading under each rule."""

import contextlib
import math
import re
from dataclasses import replace
from pathlib import Path

from medtasks.audit.error_classes import image_names, own_columns
from medtasks.audit.report.contents import Item
from medtasks.audit.report.task_reading import Document, TaskReading
from medtasks.data.images.volume_files import is_volume
from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Sample
from medtasks.data.selecting import SELECTABLE, values
from medtasks.data.variants import BLANK
from medtasks.errors import SourceError
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply, without_its_reasoning
from medtasks.prompts.images import image_path
from medtasks.tasks.documents import image_settings
from medtasks.tasks.task_file import TaskFile

_AS_LOGGED = re.compile(rf"[A-Z]|\d{{1,3}}|{NO_OPTION}")
_MOST_GROUPS = 60  # a column with more values is no grouping one could choose from
_NO_REPLY = Reply()
_TEXTS = ("context", "indication", "details", "hint", "question")  # in the order of prompts


def audit_items(reading: TaskReading) -> tuple[Item, ...]:
    """Return every question answered, in the order of the dataset."""
    task, answered = reading.task, reading.answered
    if reading.withheld:
        return tuple(_withheld_item(reading, document) for document in answered)
    number = {
        column: len({value for document in answered for value in values(document, column)}) for column in SELECTABLE
    }
    others = (column for column in SELECTABLE if 0 < number[column] <= _MOST_GROUPS)
    columns = dict.fromkeys([*task.breakdown, *others])
    items = []
    for document in answered:
        doc_id = str(document["doc_id"])
        reply = reading.samples.replies.get(doc_id, _NO_REPLY)
        item = Item(
            doc_id=doc_id,
            unit=_unit(document),
            images=_image_keys(task, document),
            question="\n\n".join(str(document[name]) for name in _TEXTS if document.get(name)),
            options=tuple(document.get("options") or ()),
            prompt=reading.samples.prompts.get(doc_id, ""),
            key=task.family.target_text(Sample(document)),
            reply=reply.text or "",
            losses=reply.losses or (),
            answers=_answers(reading, document, reply),
            groups={column: tuple(groups) for column in columns if (groups := values(document, column))},
            facts=(*image_names(document), *(f"{name}: {value}" for name, value in own_columns(document).items())),
        )
        items.append(item)
    return tuple(items)


def image_files(reading: TaskReading) -> dict[str, Path]:
    """Return the image files of the questions, by the keys of the items; none if withheld, missing or a volume."""
    files: dict[str, Path] = {}
    settings = image_settings(reading.task)
    for document in () if reading.withheld else reading.answered:
        for key, file in zip(_image_keys(reading.task, document), _files(document), strict=False):
            if key not in files:
                with contextlib.suppress(SourceError):  # a relative path without a known base
                    files[key] = image_path(file, document, settings)
    return {key: path for key, path in files.items() if path.is_file()}


def _withheld_item(reading: TaskReading, document: Document) -> Item:
    """Return a question without its text: digests, numbers, and letters that were logged."""
    doc_id = str(document["doc_id"])
    reply = Reply(losses=reading.samples.replies.get(doc_id, _NO_REPLY).losses)
    records = [computed.samples[doc_id] for computed in reading.computed.values() if doc_id in computed.samples]
    logged = {name: record[name] for record in records for name in reading.task.breakdown if record.get(name)}
    return Item(
        doc_id=hidden_id("doc", doc_id),
        unit=hidden_id("pair" if reading.task.family.paired else "doc", _unit(document)),
        losses=reply.losses or (),
        answers={name: as_logged(answer) for name, answer in _answers(reading, document, reply).items()},
        groups={name: (str(value),) for name, value in logged.items()},
    )


def _answers(reading: TaskReading, document: Document, reply: Reply) -> dict[str, ReadAnswer]:
    doc_id = str(document["doc_id"])
    answers = {}
    for name, computed in reading.computed.items():
        value = reading.values.get(name, {}).get(doc_id, math.nan)
        # A score that another version wrote may lack something; the question is shown anyway.
        with contextlib.suppress(KeyError, TypeError):
            score = computed.samples[doc_id]
            row = reading.task.rows.get(name)
            answered = without_its_reasoning(reply) if row is not None and row.reasoned else reply
            answers[name] = reading.task.family.describe(score, answered, None if math.isnan(value) else value)
    return answers


def as_logged(answer: ReadAnswer) -> ReadAnswer:
    """Remove an answer's value if it is more than letters and numbers of options."""
    parts = [] if answer.value is None else answer.value.split(", ")
    return answer if all(_AS_LOGGED.fullmatch(part) for part in parts) else replace(answer, value="")


def _unit(document: Document) -> str:
    return str(document.get("pair_id") or document.get("rotation_of") or document["doc_id"])


def _files(document: Document) -> list[str]:
    return [file for file in Sample(document).images if not is_volume(Path(file))]


def _image_keys(task: TaskFile, document: Document) -> tuple[str, ...]:
    """Return a key for each image; it reveals no absolute path of this machine."""
    if task.variant == BLANK:
        return ()
    return tuple(hidden_id("image", file) if Path(file).is_absolute() else file for file in _files(document))
