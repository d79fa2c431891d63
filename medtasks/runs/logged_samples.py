"""What the harness's samples file holds of a sample of ours: one score, and no text of a patient's record.

The harness writes each sample with its document, prompt, target and reply in clear, and then lets the keys that
``process_results`` returned overwrite its own. It also takes the metrics from there: one entry per metric. A
:class:`LoggedSample` gives it the score under each metric's name, and lets it write the score once, under
:data:`SCORE`; of a credentialed dataset it overwrites the text.

Replies are on disk before anything is computed from them, so that a failing metric loses nothing: each process of a run
appends to a file of its own, ``$MEDTASKS_HOME/replies/<task>/<time>-<process>.jsonl``, in the form that ``medtasks
score`` reads. They may quote a patient's record, so the files are readable by their owner only.
"""

import datetime
import json
import os
import re
import shlex
import threading
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from medtasks.data.privacy import PrivateText, hidden_id, is_private
from medtasks.errors import warn_once
from medtasks.home import append_whole, home
from medtasks.runs.reply_envelope import FAILED, in_words, opened, parse_loglikelihood
from medtasks.tasks.task_files import included_option

SCORE = "score"
"""Key of a sample's score in a samples file."""
SCHEMA_VERSION = 2
"""Of a score in a samples file."""

_NOTE = "[[medtasks:withheld]] "
_IDS = {
    "sample": "doc",
    "doc_id": "doc",
    "rotation_of": "doc",
    "pair_id": "pair",
    "image_id": "image",
    "patient_id": "patient",
}


class LoggedSample(dict[str, Any]):
    """Scores by metric, and what the harness writes of a sample in their place.

    The harness takes the metrics from ``items()``, and would list every key there as one of the task; it updates the
    sample with the whole, which ``dict.update`` reads past ``items()`` and ``[]``.
    """

    def __init__(self, metrics: Iterable[str], score: Any, written: Mapping[str, Any]) -> None:
        super().__init__(written)
        self._by_metric = dict.fromkeys(metrics, score)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # the harness needs no more of it
        """Return the score by metric."""
        return self._by_metric.items()

    def __getitem__(self, key: str) -> Any:
        return self._by_metric[key] if key in self._by_metric else super().__getitem__(key)


def is_private_document(doc: Mapping[str, Any]) -> bool:
    """Return whether text of a document must stay out of logs; one that names no dataset is not ours."""
    dataset = doc.get("dataset")
    return dataset is not None and is_private(str(dataset))


def logged(
    doc: Mapping[str, Any], results: Sequence[Any], metrics: Iterable[str], score: Mapping[str, Any]
) -> LoggedSample:
    """Return what ``process_results`` hands to the harness for one document.

    For a credentialed dataset ids in the score are hashed and clear text of the sample is overwritten. The score holds
    no text of the document or the reply, but as :class:`~medtasks.data.privacy.PrivateText`.
    """
    private = is_private_document(doc)
    kept = dict(score)
    if private:
        kept |= {name: hidden_id(kind, kept[name]) for name, kind in _IDS.items() if kept.get(name) is not None}
    shown = {name: str(value) if isinstance(value, PrivateText) else value for name, value in kept.items()}
    overwritten = _overwriting(doc, words=may_hold_words(results)) if private else {}
    return LoggedSample(metrics, kept, {SCORE: {"schema_version": SCHEMA_VERSION, **shown}, **overwritten})


def without_scoring(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Return what a task gives to the harness that only collects replies (``--predict_only``).

    Replies to a credentialed dataset are saved under ``MEDTASKS_HOME``, where ``medtasks score`` finds them.
    """
    if not is_private_document(doc):
        return {"bypass": 0}
    words = may_hold_words(results)
    if words:
        save_reply(doc, results[0])
    return LoggedSample(["bypass"], 0, {"bypass": 0, **_overwriting(doc, words=words)})


def is_withheld(text: str) -> bool:
    """Return whether a text of a samples file is the note that stands for the text of a credentialed dataset."""
    return text.startswith(_NOTE)


def may_hold_words(results: Sequence[Any]) -> bool:
    """Return whether results may be text, which likelihoods that can be read are not."""
    return in_words(results) or any(
        not isinstance(result, dict) and parse_loglikelihood(result) is FAILED for result in results
    )


def _overwriting(doc: Mapping[str, Any], *, words: bool) -> dict[str, Any]:
    """Return the sample's own keys without text, in the shapes that the harness's writers expect.

    Numbers say no word of a patient, so the likelihoods of options remain.
    """
    note = f"{_NOTE}'{doc['dataset']}' is credentialed"
    replies = {"resps": [[note]], "filtered_resps": [note]} if words else {}
    return {"doc": note, "target": note, "arguments": [note], "input": note, "input_media": [], **replies}


FOLDER_NAME = "replies"
SCORED_TASK: ContextVar[str] = ContextVar("SCORED_TASK", default="")
"""Name of the task whose replies are scored in this thread."""


def replies_folder(task: str) -> Path:
    """Return the folder of a task's saved replies, whether or not it exists."""
    return home() / FOLDER_NAME / re.sub(r"[^\w-]", "_", task)


def save_reply(doc: Mapping[str, Any], result: Any) -> str | None:
    """Append one reply to this process's file of the task that the harness is scoring, and return ``<task>/<file>``.

    A reply that was read with the same rule before belongs to another run, which gets a file of its own; under another
    rule of the same run it is not written again. A disk that is full or read-only costs the file, not the run. A
    document without ``doc_id`` cannot be found again, so that nothing is saved.
    """
    if doc.get("doc_id") is None:
        return None
    reply, row = opened(result)
    task = SCORED_TASK.get() or str(doc.get("dataset") or "unknown")
    with _lock:
        place = (replies_folder(task), os.getpid())
        run = _runs.get(place)
        if run is None or (doc["doc_id"], row.extractor) in run.read:
            run = _runs[place] = _Run(place[0])
        run.add(doc["doc_id"], row.extractor, reply.recorded)
        return f"{run.path.parent.name}/{run.path.name}"


def score_command(saved: Iterable[str | None]) -> str:
    """Return the sentence that says how to score what :func:`save_reply` saved, on all ranks, again."""
    files = [home() / FOLDER_NAME / name for name in sorted({name for name in saved if name})]
    unsaved = {run.path for run in _runs.values() if run.pending}
    if not files or not all(file.is_file() and file not in unsaved for file in files):
        return "Its replies could not be saved; run the task again once that is mended."
    task = files[0].parent.name
    return (
        f"All replies are saved; then run: medtasks score {task} {shlex.join(map(str, files))}{included_option(task)}"
    )


class _Run:
    """The file of one process in one run of a task."""

    def __init__(self, folder: Path) -> None:
        rank, ranks = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        of_ranks = "" if ranks == "1" else f"-rank{rank}of{ranks}"
        now = datetime.datetime.now(datetime.UTC)
        self.path = folder / f"{now:%Y%m%dT%H%M%S_%fZ}-{os.getpid()}{of_ranks}.jsonl"
        self.read: set[tuple[str, str | None]] = set()  # documents with the rule that read them
        self._replies: dict[str, str] = {}
        self.pending = b""  # lines that the disk has not taken

    def add(self, doc_id: str, rule: str | None, reply: str) -> None:
        """Write one reply unless it is there."""
        self.read.add((doc_id, rule))
        if self._replies.get(doc_id) == reply:
            return
        self._replies[doc_id] = reply
        line = json.dumps({"doc_id": doc_id, "reply": reply}, ensure_ascii=True)
        self.pending += line.encode("ascii") + b"\n"
        try:
            append_whole(self.path, self.pending)
            self.pending = b""
        except OSError as error:
            warn_once(
                f"replies cannot be saved in {self.path.parent} ({error.strerror or type(error).__name__}); the run "
                f"goes on, but they cannot be scored again later. Free some space, or set MEDTASKS_HOME to another "
                f"folder."
            )


_runs: dict[tuple[Path, int], _Run] = {}
_lock = threading.Lock()  # the harness scores several documents at once
