"""Every question of a task with what the model said and how each rule read it."""

import contextlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medtasks.audit.report.contents import Item
from medtasks.data.privacy import hidden_id
from medtasks.data.samples import Sample
from medtasks.data.selecting import SELECTABLE, values
from medtasks.data.variants import BLANK
from medtasks.data.volume_files import is_volume
from medtasks.errors import SourceError
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply
from medtasks.harness.documents import image_settings
from medtasks.harness.task_file import TaskFile
from medtasks.metrics.metric import Score
from medtasks.prompts.images import image_path

Document = Mapping[str, Any]

_AS_LOGGED = re.compile(rf"[A-Z]|\d{{1,3}}|{NO_OPTION}")
_MOST_GROUPS = 60  # a column with more values is no grouping one could choose from
_NO_REPLY = Reply()


@dataclass(frozen=True)
class Audited:
    """What is known of the questions of one task.

    Attributes:
        task: The task.
        documents: Those that were answered, in order.
        replies: By document id; empty where they are withheld.
        prompts: By document id, as far as they are recorded.
        samples: What the task's family made of the replies, by name of the row and document id.
        values: Value of single samples where the metric is neither right nor wrong, by filter name and document id.
        withheld: Whether text and pictures may not be shown.
    """

    task: TaskFile
    documents: Sequence[Document]
    replies: Mapping[str, Reply]
    prompts: Mapping[str, str]
    samples: Mapping[str, Mapping[str, Score]]
    values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    withheld: bool = False


def audit_items(audited: Audited) -> tuple[Item, ...]:
    """Return every question answered, in the order of the dataset."""
    if audited.withheld:
        return tuple(_withheld_item(audited, document) for document in audited.documents)
    columns = _columns(audited.task, audited.documents)
    return tuple(_item(audited, document, columns) for document in audited.documents)


def picture_files(audited: Audited) -> dict[str, Path]:
    """Return the file of each picture that the questions show, by the key that items have; none where withheld.

    A file that is gone is left out, as is a volume, which is no picture.
    """
    found: dict[str, Path] = {}
    settings = image_settings(audited.task)
    for document in () if audited.withheld else audited.documents:
        for key, file in zip(_image_keys(audited.task, document), _files(document), strict=False):
            if key not in found:
                with contextlib.suppress(SourceError):  # a relative path of which nothing says what it is relative to
                    found[key] = image_path(file, document, settings)
    return {key: path for key, path in found.items() if path.is_file()}


def _item(audited: Audited, document: Document, columns: Sequence[str]) -> Item:
    doc_id = str(document["doc_id"])
    reply = audited.replies.get(doc_id, _NO_REPLY)
    return Item(
        doc_id=doc_id,
        unit=_unit(document),
        images=_image_keys(audited.task, document),
        question=_question(document),
        options=tuple(document.get("options") or ()),
        prompt=audited.prompts.get(doc_id, ""),
        key=audited.task.family.target_text(Sample(document)),
        reply=reply.text or "",
        losses=reply.losses or (),
        answers=_answers(audited, document, reply),
        groups={column: tuple(found) for column in columns if (found := values(document, column))},
    )


def _withheld_item(audited: Audited, document: Document) -> Item:
    """Return what may be known of a question whose text may not: digests, numbers, and letters that were logged."""
    doc_id = str(document["doc_id"])
    reply = Reply(losses=audited.replies.get(doc_id, _NO_REPLY).losses)
    kind = "pair" if audited.task.family.paired else "doc"
    records = [scores[doc_id] for scores in audited.samples.values() if doc_id in scores]
    logged = {name: record[name] for record in records for name in audited.task.breakdown if record.get(name)}
    return Item(
        doc_id=hidden_id("doc", doc_id),
        unit=hidden_id(kind, _unit(document)),
        images=(),
        question="",
        options=(),
        prompt="",
        key="",
        reply="",
        losses=reply.losses or (),
        answers={name: as_logged(answer) for name, answer in _answers(audited, document, reply).items()},
        groups={name: (str(value),) for name, value in logged.items()},
    )


def _answers(audited: Audited, document: Document, reply: Reply) -> dict[str, ReadAnswer]:
    doc_id = str(document["doc_id"])
    found = {}
    for name, scores in audited.samples.items():
        value = audited.values.get(name, {}).get(doc_id, math.nan)
        # A score that another version wrote may lack something; the question is shown all the same.
        with contextlib.suppress(KeyError, TypeError):
            found[name] = audited.task.family.describe(scores[doc_id], reply, None if math.isnan(value) else value)
    return found


def as_logged(answer: ReadAnswer) -> ReadAnswer:
    """Return an answer without its value, if that is more than letters and numbers of options."""
    parts = [] if answer.value is None else answer.value.split(", ")
    return answer if all(_AS_LOGGED.fullmatch(part) for part in parts) else replace(answer, value="")


def _question(document: Document) -> str:
    """Return all texts that the model was told besides the options, in the order of its prompt."""
    told = ("context", "indication", "details", "hint", "question")
    return "\n\n".join(str(document[name]) for name in told if document.get(name))


def _unit(document: Document) -> str:
    return str(document.get("pair_id") or document.get("rotation_of") or document["doc_id"])


def _columns(task: TaskFile, documents: Sequence[Document]) -> list[str]:
    """Return the columns that group the questions, the task's own first."""
    number = {
        column: len(Counter(value for document in documents for value in values(document, column)))
        for column in SELECTABLE
    }
    return list(dict.fromkeys([*task.breakdown, *(one for one in SELECTABLE if 0 < number[one] <= _MOST_GROUPS)]))


def _files(document: Document) -> list[str]:
    return [file for file in Sample(document).images if not is_volume(Path(file))]


def _image_keys(task: TaskFile, document: Document) -> tuple[str, ...]:
    """Return a name for each picture; an absolute path would say where it lies on this machine."""
    if task.variant == BLANK:
        return ()
    return tuple(hidden_id("image", file) if Path(file).is_absolute() else file for file in _files(document))
