"""Reading a samples file of the harness as far as it can be read: a report says what is missing, and does not stop."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medtasks.errors import RepliesError
from medtasks.families.family import Reply
from medtasks.harness.logged_samples import answers_another, is_withheld, score_in
from medtasks.harness.replies import recorded_reply
from medtasks.harness.task_file import TaskFile
from medtasks.metrics.metric import Score


@dataclass
class Samples:
    """What a samples file holds."""

    # by document id, in the order of the file; empty where the file holds none because of their dataset
    replies: dict[str, Reply] = field(default_factory=dict)
    # what the model was asked, by document id; without those that the file withholds
    prompts: dict[str, str] = field(default_factory=dict)
    # scores of the run, by rule and document id; only if asked for
    scores: dict[str, dict[str, Score]] = field(default_factory=dict)
    answered: dict[str, None] = field(default_factory=dict)  # ids of documents with any line, in the order of the file
    torn: int = 0  # how many lines cannot be read
    contradicting: int = 0  # how many lines give another reply than an earlier one did


def read_samples(
    path: Path, task: TaskFile, documents: Sequence[Mapping[str, Any]], *, keep_scores: bool = False
) -> Samples:
    """Read a samples file of one of our tasks; ``documents`` are the task's, in order.

    RepliesError: the file cannot be opened, or answers other documents.
    """
    found = Samples()
    for line in _lines(path):
        try:
            sample: Any = json.loads(line)
            doc_id = _doc_id(sample, documents)
            reply = recorded_reply(sample, likelihoods=task.compares_likelihoods)
        except (ValueError, KeyError, TypeError, RecursionError):
            found.torn += 1
            continue
        except IndexError as error:
            how = "point MEDTASKS_HOME to the data of that run" if task.dataset else "its questions have changed since"
            raise RepliesError(f"{path} was made on other data than are prepared here; {how}") from error
        found.answered[doc_id] = None
        if reply is not None and found.replies.setdefault(doc_id, reply) != reply:
            found.contradicting += 1
        prompt = sample.get("input")
        if isinstance(prompt, str) and not is_withheld(prompt):
            found.prompts.setdefault(doc_id, prompt)
        score = score_in(sample) if keep_scores else None
        if score and "rule" in score:
            found.scores.setdefault(str(score["rule"]), {}).setdefault(doc_id, score)
    return found


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as stream:  # replies may hold other separators
            yield from (line for line in stream if line.strip())
    except OSError as error:
        raise RepliesError(f"{path} cannot be read: {error.strerror or error}") from error


def _doc_id(sample: Mapping[str, Any], documents: Sequence[Mapping[str, Any]]) -> str:
    """Return the document a sample answers; IndexError: there is none, or the record says that it was another one."""
    row = int(sample["doc_id"])
    if row < 0 or answers_another(sample, doc_id := str(documents[row]["doc_id"])) is not None:
        raise IndexError
    return doc_id
