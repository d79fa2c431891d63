"""Single questions with their replies, as the audit browser and the API show them."""

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import Any

from medtasks.data.images.volume_files import is_volume
from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Document, Documents, Sample
from medtasks.data.selecting import SELECTABLE, values
from medtasks.data.variants import BLANK, DEGRADED
from medtasks.errors import SourceError
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply, Rule, without_its_reasoning
from medtasks.prompts.images import image_path
from medtasks.scores.error_classes import image_names, own_columns
from medtasks.scores.score_model import AuditItem
from medtasks.scores.subgroups import MOST_GROUPS, group_names, number_bands
from medtasks.scores.task_reading import TaskReading
from medtasks.tasks.documents import image_settings
from medtasks.tasks.task_file import TaskFile

_LOGGED_PART = re.compile(rf"[A-Z]|\d{{1,3}}|{NO_OPTION}")
_NO_REPLY = Reply()
_TEXTS = ("context", "indication", "details", "hint", "question")  # in the order of prompts


def audit_items(reading: TaskReading) -> tuple[AuditItem, ...]:
    """Return every question answered, in the order of the dataset.

    If the task is withheld, it is without its text: digests, numbers, and letters that were logged.
    """
    columns = dict.fromkeys(reading.task.breakdown)
    answered = reading.answered_documents
    rows: dict[str, Mapping[str, Any]] = {}
    if reading.withheld:  # the scores hold what may be shown
        for computed in reading.computed.values():
            rows |= computed.samples
    else:
        rows |= {str(document["doc_id"]): document for document in answered}
        columns |= dict.fromkeys(_columns_with_groups(answered))
    bands = {
        column: number_bands(list(rows.values()), column) for column in reading.task.breakdown
    }
    items = []
    for document in answered:
        row = rows.get(str(document["doc_id"]), {})
        groups = {}
        for column in columns:
            names = tuple(group_names(row, column, bands.get(column, {})))
            if names:
                groups[column] = names
        items.append(_item(reading, document, groups))
    return tuple(items)


def _columns_with_groups(documents: Documents) -> Iterator[str]:
    """Yield the columns for selecting questions that have values, but no more than a report shows as groups."""
    for column in SELECTABLE:
        distinct: set[str] = set()
        for document in documents:
            distinct.update(values(document, column))
        if 0 < len(distinct) <= MOST_GROUPS:
            yield column


def _item(
    reading: TaskReading,
    document: Document,
    groups: Mapping[str, tuple[str, ...]],
) -> AuditItem:
    """Describe one question with its reply and answers, without its text if the task is withheld."""
    task = reading.task
    doc_id = str(document["doc_id"])
    unit = str(document.get("pair_id") or document.get("rotation_of") or doc_id)
    reply = reading.samples.replies.get(doc_id, _NO_REPLY)
    losses = reply.losses or ()
    if reading.withheld:
        answers = _answers(reading, doc_id, Reply(losses=reply.losses))
        return AuditItem(
            doc_id=hidden_id("doc", doc_id),
            unit=hidden_id("pair" if task.family.paired else "doc", unit),
            losses=losses,
            answers={name: answer_for_log(answer) for name, answer in answers.items()},
            groups=groups,
        )
    own_facts = starmap("{}: {}".format, own_columns(document).items())
    texts = filter(None, map(document.get, _TEXTS))
    return AuditItem(
        doc_id=doc_id,
        unit=unit,
        images=tuple(key for key, _ in _keyed_images(task, document)),
        question="\n\n".join(map(str, texts)),
        options=Sample(document).options,
        prompt=reading.samples.prompts.get(doc_id, ""),
        key=task.family.target_text(Sample(document)),
        reply=reply.text or "",
        losses=losses,
        answers=_answers(reading, doc_id, reply),
        groups=groups,
        facts=(*image_names(document), *own_facts),
    )


def _answers(reading: TaskReading, doc_id: str, reply: Reply) -> dict[str, ReadAnswer]:
    """Return what each rule read in a reply, by row, without rows whose recorded score lacks something."""
    answers = {}
    for name, computed in reading.computed.items():
        value = reading.values.get(name, {}).get(doc_id, math.nan)
        # A score that another version wrote may lack something; the question is shown anyway.
        with contextlib.suppress(KeyError, TypeError):
            score = computed.samples[doc_id]
            row = reading.task.rows.get(name, Rule())
            final_reply = without_its_reasoning(reply) if row.reasoned else reply
            known_value = None if math.isnan(value) else value
            answers[name] = reading.task.family.describe(score, final_reply, known_value)
    return answers


def image_files(reading: TaskReading) -> dict[str, Path]:
    """Return the image files of the questions, by the keys of the items.

    There are none of a withheld task, and none that are missing or volumes.
    """
    files: dict[str, Path] = {}
    settings = image_settings(reading.task)
    if reading.withheld:
        return files
    for document in reading.answered_documents:
        for key, file in _keyed_images(reading.task, document):
            if key not in files:
                with contextlib.suppress(SourceError):  # a relative path without a known base
                    files[key] = image_path(file, document, settings)
    return {key: path for key, path in files.items() if path.is_file()}


def answer_for_log(answer: ReadAnswer) -> ReadAnswer:
    """Empty an answer's value if it is more than letters and numbers of options. None, for no valid answer, stays."""
    parts = [] if answer.value is None else answer.value.split(", ")
    if all(map(_LOGGED_PART.fullmatch, parts)):
        return answer
    return replace(answer, value="")


def _keyed_images(task: TaskFile, document: Document) -> list[tuple[str, str]]:
    """Return each image's key, which reveals no absolute path of this machine, and its file.

    Volumes are left out, and images that the model did not see as they are.
    """
    images: list[tuple[str, str]] = []
    if task.variant in (BLANK, DEGRADED):
        return images
    for file in Sample(document).images:
        path = Path(file)
        if not is_volume(path):
            key = hidden_id("image", file) if path.is_absolute() else file
            images.append((key, file))
    return images
