"""Content of the harness's samples file for a sample of ours: one score, and no text of a patient's record.

The harness writes each sample with its document, prompt, target and reply in clear, then lets the keys that
``process_results`` returned overwrite its own, and takes the metrics from there: one entry per metric. A
:class:`LoggedSample` hands it the score under each metric's name but has it written once, under :data:`SCORE`; for a
credentialed dataset it overwrites the text.

Replies are saved before anything is computed from them: each process of a run appends to a file of its own,
``$MEDTASKS_HOME/replies/<task>/<time>-<process>.jsonl``, which ``medtasks score`` reads and only its owner can read.
"""

import datetime
import json
import os
import re
import shlex
import threading
from collections.abc import ItemsView, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks.data.privacy import PrivateText, hidden_id, is_private
from medtasks.data.samples import Document
from medtasks.errors import warn_once
from medtasks.home import append_whole, home
from medtasks.runs.asked_questions import ASKED, fingerprint
from medtasks.runs.redaction import without_home
from medtasks.runs.reply_envelope import FAILED, in_words, open_envelope, parse_loglikelihood
from medtasks.tasks.task_files import included_option

SCORE = "score"  # key of a sample's score in a samples file
SCHEMA_VERSION = 2  # of a score in a samples file
FOLDER_NAME = "replies"
# Name of the task whose replies are scored in this thread.
SCORED_TASK: ContextVar[str] = ContextVar("SCORED_TASK", default="")
# Settings of its prompt and images.
SCORED_SETTINGS: ContextVar[Mapping[str, Any]] = ContextVar(
    "SCORED_SETTINGS", default=MappingProxyType({})
)

_NOTE = "[[medtasks:withheld]] "
# Kind of each id of a score.
_ID_KINDS = dict.fromkeys(("sample", "doc_id", "rotation_of"), "doc")
_ID_KINDS |= {"pair_id": "pair", "image_id": "image", "patient_id": "patient"}
_lock = threading.Lock()  # the harness scores several documents at once


class LoggedSample(dict[str, Any]):
    """Scores by metric for the harness's metrics, and the keys that it writes.

    The harness takes the metrics from ``items()`` and would list every key there as a metric of the task; it updates
    the sample with the whole, and ``dict.update`` bypasses ``items()`` and ``[]``.
    """

    def __init__(
        self,
        metrics: Iterable[str],
        score: Any,
        written: Mapping[str, Any],
    ) -> None:
        super().__init__(written)
        self._by_metric = dict.fromkeys(metrics, score)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # the harness needs no more of it
        """Return the score by metric."""
        return self._by_metric.items()

    def __getitem__(self, key: str) -> Any:
        return self._by_metric[key] if key in self._by_metric else super().__getitem__(key)


def is_private_document(doc: Document) -> bool:
    """Return whether text of a document must stay out of logs.

    A document without a dataset is not ours.
    """
    dataset = doc.get("dataset")
    return dataset is not None and is_private(str(dataset))


def make_logged_sample(
    doc: Document,
    results: Sequence[Any],
    metrics: Iterable[str],
    score: Mapping[str, Any],
) -> LoggedSample:
    """Build the return value of ``process_results``.

    Ids and text of a credentialed dataset are hashed or overwritten.

    Args:
        doc: The sample.
        results: Results that the harness handed over.
        metrics: Names of the task's metrics.
        score: Score of the reply. It holds text of the document or the reply only as
            :class:`~medtasks.data.privacy.PrivateText`.
    """
    by_metric = dict(score)
    question_digests = {}
    overwritten = {}
    if is_private_document(doc):
        for name, kind in _ID_KINDS.items():
            if score.get(name) is not None:
                by_metric[name] = hidden_id(kind, score[name])
        overwritten = _redacted_keys(doc, has_words=may_hold_words(results))
    else:
        question_digests = _fingerprint(doc)
    written: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    for name, value in by_metric.items():
        written[name] = str(value) if isinstance(value, PrivateText) else value
    written |= question_digests
    return LoggedSample(metrics, by_metric, {SCORE: written, **overwritten})


def _fingerprint(doc: Document) -> dict[str, Any]:
    """Return the key and fingerprint of a sample as the task that is being scored asks it, empty without a digest."""
    digests = fingerprint(doc, SCORED_SETTINGS.get())
    return {ASKED: digests} if digests else {}


def without_scoring(doc: Document, results: Sequence[Any]) -> dict[str, Any]:
    """Replace ``process_results`` where only replies are collected (``--predict_only``).

    Args:
        doc: The sample.
        results: Results that the harness handed over.
    """
    written: dict[str, Any] = {"bypass": 0}
    score: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    if is_private_document(doc):
        has_words = may_hold_words(results)
        written |= _redacted_keys(doc, has_words=has_words)
        if has_words:
            written[SCORE] = score | {"saved": save_reply(doc, results[0])}
    elif doc.get("doc_id") is None:  # not ours
        return written
    else:
        written[SCORE] = {**score, "sample": doc["doc_id"], **_fingerprint(doc)}
    return LoggedSample(["bypass"], 0, written)


def is_withheld(text: str) -> bool:
    """Return whether a text of a samples file is the note that replaces the text of a credentialed dataset."""
    return text.startswith(_NOTE)


def may_hold_words(results: Sequence[Any]) -> bool:
    """Return whether results may be text. Likelihoods that can be parsed are not."""
    return in_words(results) or any(
        not isinstance(result, dict) and parse_loglikelihood(result) is FAILED
        for result in results
    )


def _redacted_keys(doc: Document, *, has_words: bool) -> dict[str, Any]:
    """Return the keys of the harness that hold text of a sample, with a note in place of the text.

    Args:
        doc: The sample.
        has_words: Whether replies may be text. Likelihoods of options reveal nothing about a patient, and stay.
    """
    # In the shapes that the harness's writers expect.
    note = f"{_NOTE}'{doc['dataset']}' is credentialed"
    keys: dict[str, Any] = {
        "doc": note,
        "target": note,
        "arguments": [note],
        "input": note,
        "input_media": [],
    }
    if has_words:
        keys["resps"] = [[note]]
        keys["filtered_resps"] = [note]
    return keys


def replies_folder(task: str) -> Path:
    """Return the folder of a task's saved replies, whether or not it exists."""
    return home() / FOLDER_NAME / re.sub(r"[^\w-]", "_", task)


def saved_file(name: str) -> Path:
    """Return the path of a file of saved replies, whether or not it exists.

    Args:
        name: Result of :func:`save_reply`, as a samples file has it.
    """
    task, _, file = name.partition("/")
    return replies_folder(task) / Path(file).name


@dataclass
class _SavedRun:
    """The file of one process in one run of a task."""

    path: Path
    # document ids with the rule that read the reply
    read: set[tuple[str, str | None]] = field(default_factory=set)
    replies: dict[str, str] = field(default_factory=dict)
    pending: bytes = b""  # lines that could not be written yet
    fault: str = ""  # why not, one sentence


_runs: dict[tuple[Path, int], _SavedRun] = {}


def save_reply(doc: Document, result: Any) -> str | None:
    """Append one reply to this process's file of the task that the harness is scoring.

    A second reply to a document under the same rule belongs to another run, with a file of its own. A full or read-only
    disk costs the file, not the run.

    Args:
        doc: The sample.
        result: Reply, also in an envelope.

    Returns:
        ``<task>/<file>``, or None for a document without ``doc_id``, of which nothing is saved.
    """
    doc_id = doc.get("doc_id")
    if doc_id is None:
        return None
    reply, rule = open_envelope(result)
    folder = replies_folder(SCORED_TASK.get() or str(doc.get("dataset") or "unknown"))
    key = (folder, os.getpid())
    with _lock:
        run = _runs.get(key)
        if run is None or (doc_id, rule.extractor) in run.read:
            run = _SavedRun(folder / _file_name())
            _runs[key] = run
        run.read.add((doc_id, rule.extractor))
        if run.replies.get(doc_id) != reply.text_for_files:
            run.replies[doc_id] = reply.text_for_files
            line = {"doc_id": doc_id, **_fingerprint(doc), "reply": reply.text_for_files}
            run.pending += json.dumps(line, ensure_ascii=True).encode("ascii") + b"\n"
            try:
                append_whole(run.path, run.pending)
            except OSError as error:
                run.fault = (
                    f"replies cannot be saved in {run.path.parent} ({error.strerror or type(error).__name__}); the run "
                    "goes on, but they cannot be scored again later. Free some space, or set MEDTASKS_HOME to another "
                    "folder."
                )
                warn_once(run.fault)
            else:
                run.pending = b""
                run.fault = ""
        return f"{folder.name}/{run.path.name}"


def _file_name() -> str:
    """Return the name of a new file of this process."""
    of_ranks = ""
    ranks = os.environ.get("WORLD_SIZE", "1")
    if ranks != "1":
        of_ranks = f"-rank{os.environ.get('RANK', '0')}of{ranks}"
    now = datetime.datetime.now(datetime.UTC)
    return f"{now:%Y%m%dT%H%M%S_%fZ}-{os.getpid()}{of_ranks}.jsonl"


def faults_of_saving() -> list[str]:
    """List why replies of this process are not saved, one sentence each."""
    return [without_home(run.fault) for run in _runs.values() if run.fault]


def score_command(saved: Iterable[str | None]) -> str:
    """Return the sentence on how to score replies again.

    Args:
        saved: Results of :func:`save_reply` on all ranks.
    """
    files = [home() / FOLDER_NAME / name for name in sorted(set(filter(None, saved)))]
    unsaved = {run.path for run in _runs.values() if run.pending}
    if not files or not all(file.is_file() and file not in unsaved for file in files):
        return "Its replies could not be saved; run the task again once that is fixed."
    task = files[0].parent.name
    command = f"medtasks score {task} {shlex.join(map(str, files))}{included_option(task)}"
    return f"All replies are saved; then run: {command}"
