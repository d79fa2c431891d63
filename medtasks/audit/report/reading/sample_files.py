"""Reading a samples file of the harness as far as it can be read: a report says what is missing, and does not stop."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medtasks.errors import RepliesError
from medtasks.harness.replies import RecordedReply
from medtasks.harness.task_files import TaskFile
from medtasks.hooks.loglikelihood import parse_loglikelihood
from medtasks.hooks.reading import untagged
from medtasks.hooks.withheld import hidden_id, is_withheld

Record = Mapping[str, Any]

_OTHER_DATA = "was made on other data than are prepared here"


@dataclass
class Samples:
    """What a samples file holds.

    Attributes:
        replies: By document id, in the order of the file; empty where the file holds none because of their dataset.
        prompts: What the model was asked, by document id; without those that the file withholds.
        records: What the task's hook gave, by rule, document id and metric; only if asked for.
        answered: Ids of documents with any line, in the order of the file.
        torn: How many lines cannot be read.
        contradicting: How many lines give another reply than an earlier one did.
    """

    replies: dict[str, RecordedReply] = field(default_factory=dict)
    prompts: dict[str, str] = field(default_factory=dict)
    records: dict[str, dict[str, Record]] = field(default_factory=dict)
    answered: dict[str, None] = field(default_factory=dict)
    torn: int = 0
    contradicting: int = 0


def read_samples(
    path: Path, task: TaskFile, documents: Sequence[Mapping[str, Any]], *, keep_records: bool = False
) -> Samples:
    """Read a samples file of one of our tasks.

    Args:
        path: The file.
        task: Its task, no group.
        documents: The task's documents, in order.
        keep_records: Keep what the task's hook gave in the run, too.

    Raises:
        RepliesError: The file cannot be opened, or answers other documents.
    """
    found = Samples()
    for line in _lines(path):
        try:
            sample: Any = json.loads(line)
            doc_id = _doc_id(sample, documents)
            reply = _reply(sample, likelihoods=task.output_type == "multiple_choice")
        except (ValueError, KeyError, TypeError, RecursionError):
            found.torn += 1
            continue
        except IndexError as error:
            how = "point MEDTASKS_HOME to the data of that run" if task.dataset else "its questions have changed since"
            raise RepliesError(f"{path} {_OTHER_DATA}; {how}") from error
        found.answered[doc_id] = None
        if reply is not None and found.replies.setdefault(doc_id, reply) != reply:
            found.contradicting += 1
        prompt = sample.get("input")
        if isinstance(prompt, str) and not is_withheld(prompt):
            found.prompts.setdefault(doc_id, prompt)
        if keep_records:
            _keep(sample, doc_id, found)
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:  # replies may hold other separators
            yield from (line for line in stream if line.strip())
    except OSError as error:
        raise RepliesError(f"{path} cannot be read: {error.strerror or error}") from error


def _doc_id(sample: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the document a sample answers.

    Raises:
        IndexError: There is no such document, or the record says that it was another one.
    """
    row = int(sample["doc_id"])
    if row < 0:
        raise IndexError
    doc_id = str(documents[row]["doc_id"])
    records = (entry for entry in sample.values() if isinstance(entry, dict) and "sample" in entry)
    asked = next(records, {"sample": doc_id})["sample"]
    if asked is not None and str(asked) not in (doc_id, hidden_id("doc", doc_id)):
        raise IndexError
    return doc_id


def _reply(sample: Mapping[str, Any], *, likelihoods: bool) -> RecordedReply | None:
    """Return what the model gave, of repeated replies the first; None where the file withholds it."""
    recorded = sample["resps"] if "resps" in sample else sample["filtered_resps"]
    if likelihoods:
        if not isinstance(recorded, list):
            raise TypeError
        options = [option[0] if isinstance(option, list) and len(option) == 1 else option for option in recorded]
        if any(isinstance(option, str) and is_withheld(option) for option in options):
            return None
        return RecordedReply(losses=tuple(parse_loglikelihood(option)[0] for option in options))
    while isinstance(recorded, list) and recorded:
        recorded = recorded[0]
    if recorded is not None and not isinstance(recorded, str):
        raise TypeError
    text = untagged(recorded).recorded
    return None if is_withheld(text) else RecordedReply.of_text(text)


def _keep(sample: Mapping[str, Any], doc_id: str, found: Samples) -> None:
    """Keep the records of one line; metrics that have the same one share it, a file has it once for each."""
    records: dict[str, Any] = {}
    for metric, record in sample.items():
        if isinstance(record, dict) and "sample" in record:
            records[metric] = next((known for known in records.values() if known == record), record)
    rule = next((record["rule"] for record in records.values() if "rule" in record), None)
    if rule is not None:
        found.records.setdefault(str(rule), {}).setdefault(doc_id, records)
