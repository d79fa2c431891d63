"""How a rule read a reply, from the record that the task's hook made of it."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.audit.report.contents import ReadAnswer
from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Reason
from medtasks.extract.registry import extractor_of
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile
from medtasks.metrics.closed_questions import Counted

Record = Mapping[str, Any]
Reader = Callable[[Record, RecordedReply, float | None], ReadAnswer]
"""Takes a record, the reply, and its value where a metric is neither right nor wrong and the record has none."""

NO_OPTION = "none"
"""A list of options without any."""

_AS_LOGGED = re.compile(rf"[A-Z]|\d{{1,3}}|{NO_OPTION}")


def reader_of(task: TaskFile) -> Reader:
    """Return what reads the records of a task's hook."""
    return _READERS.get(str(task.process_results).rpartition(".")[0], _by_key)


def as_logged(answer: ReadAnswer) -> ReadAnswer:
    """Return an answer without its value, if that is more than letters and numbers of options."""
    parts = [] if answer.value is None else answer.value.split(", ")
    if all(_AS_LOGGED.fullmatch(part) for part in parts):
        return answer
    return ReadAnswer("", answer.reason, answer.right, answer.score)


def marked(labels: Sequence[int]) -> str:
    """Return the letters of the labels that are 1.

    Example:
        >>> marked([1, 0, 1]), marked([0, 0])
        ('A, C', 'none')
    """
    return ", ".join(letter(index) for index, one in enumerate(labels) if one) or NO_OPTION


def _by_key(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    given, key = record.get("value"), record.get("key")
    right = None if key is None or "value" not in record else given == key  # without a verdict there is no value
    return ReadAnswer(None if given is None else str(given), str(record.get("reason", "")), right, value)


def _closed(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    scored = record["counted"] == Counted.SCORED
    return ReadAnswer(record["value"], record["reason"], bool(record["correct"]) if scored else None)


def _class(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    given = record["value"]
    return ReadAnswer(None if given is None else letter(given), record["reason"], given == record["key"])


def _labels(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    given, key, reason = record["value"], record["key"], record["reason"]
    if reason == Reason.JUDGE_FAILED:
        return ReadAnswer(None, reason, None)
    right = 0 if given is None else sum(one == other for one, other in zip(given, key, strict=True))
    return ReadAnswer(None if given is None else marked(given), reason, None, right / len(key))


def _options(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    given = record["value"]
    listed = None if given is None else ", ".join(given) or NO_OPTION
    return ReadAnswer(listed, record["reason"], None, record["accuracy"])


def _open(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    said = (reply.text or "").strip() if record["reason"] == Reason.OK else None
    if record["closed"]:
        return ReadAnswer(said, record["reason"], bool(record["correct"]))
    return ReadAnswer(said, record["reason"], None, record["bleu_1"])


def _report(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    said = extractor_of(record["rule"]).extract(reply.text, Sample({})).value or ""
    return ReadAnswer(said if record["reason"] == Reason.OK else None, record["reason"], None, value)


def _judged(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    said = extractor_of(record["rule"]).extract(reply.text, Sample({})).facts["judged"]
    verdict = record.get("correct")
    right = None if verdict is None else bool(verdict)
    valid = record["reason"] in (Reason.OK, Reason.JUDGE_FAILED)
    return ReadAnswer(said if valid else None, record["reason"], right)


def _rotated(record: Record, reply: RecordedReply, value: float | None) -> ReadAnswer:
    """Read a record of the published order of options in the order that the model was shown."""
    given = record["value"]
    if given is None:
        return ReadAnswer(None, record["reason"], False if isinstance(record["key"], str) else None)
    places = [(ord(one) - ord("A") - record["rotation"]) % record["rotations"] for one in given]
    shown = ", ".join(sorted(map(letter, places))) or NO_OPTION
    if isinstance(given, str):
        return ReadAnswer(shown, record["reason"], record["right"] == 1.0)
    return ReadAnswer(shown, record["reason"], None, record["right"])


_READERS: Mapping[str, Reader] = {
    "medtasks.hooks.closed_questions": _closed,
    "medtasks.hooks.classification": _class,
    "medtasks.hooks.multilabel": _labels,
    "medtasks.hooks.multi_answer": _options,
    "medtasks.hooks.open_questions": _open,
    "medtasks.hooks.reports": _report,
    "medtasks.hooks.knowledge_hallucination": _judged,
    "medtasks.hooks.visual_hallucination": _judged,
    "medtasks.hooks.rotations": _rotated,
}
"""How to read the records of a hook, by its module; the others' hold letters as key and value."""
