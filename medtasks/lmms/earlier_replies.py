"""Replies of an earlier run that are kept, so that only failed ones are asked again (``--only-failed``).

A run that was merely interrupted goes on from its model's journal instead (:mod:`medtasks.net.journal`).
"""

import math
import os
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from medtasks.errors import MedTasksError, warn_once
from medtasks.extract.failure import failure_cause
from medtasks.runs.asked_questions import QuestionIndex, changed_parts
from medtasks.runs.harness_options import asked_options, read_options
from medtasks.runs.logged_samples import is_withheld, replies_folder
from medtasks.runs.redaction import redacted_arguments
from medtasks.runs.replies import WRITTEN_TWICE, SampleLine, read_lines
from medtasks.runs.reply_envelope import parse_loglikelihood
from medtasks.runs.reply_origins import COPIED, KEPT, ORIGIN
from medtasks.runs.run import NO_SAMPLES
from medtasks.runs.run_manifest import RunManifest, read_manifests

KEPT_VARIABLE = "MEDTASKS_KEEP_REPLIES_OF"
"""Environment variable with the path of the earlier run's manifest."""


@dataclass(frozen=True)
class KeptReply:
    """A reply of an earlier run: a text, or a likelihood as ``(mean negative log-likelihood, is_greedy)``."""

    reply: Any
    origin: str = KEPT  # see medtasks.runs.reply_origins
    prompt: str = ""  # empty where it is not recorded, or withheld


KeptReplies = Mapping[tuple[str, int, int], KeptReply]
"""Kept replies by task, row of its data and number of the request."""


def kept_replies(tasks: Mapping[str, Any]) -> KeptReplies:
    """Read the replies to the harness's tasks from the run in :data:`KEPT_VARIABLE`, none if it is not set.

    Args:
        tasks: Tasks of the harness, by name.
    """
    path = os.environ.get(KEPT_VARIABLE)
    if not path:
        return {}
    manifest = RunManifest.read(Path(path))
    replies_by_request = {}
    for name, record in manifest.tasks.items():
        if name not in tasks or not record.samples:
            continue
        samples = Path(path).parent / record.samples
        for row, replies, line in _rows(manifest, name, samples, tasks[name]):
            origin = COPIED if line.record.get(ORIGIN) == COPIED else KEPT
            for number, reply in enumerate(replies):
                if not _is_failed(reply):
                    replies_by_request[name, row, number] = KeptReply(
                        reply, origin, line.prompt
                    )
    return replies_by_request


def _is_failed(reply: Any) -> bool:
    """Return whether a reply is a failure: a text that marks one, or a likelihood that is NaN."""
    if isinstance(reply, str):
        return failure_cause(reply) is not None
    return math.isnan(reply[0])


def _rows(
    manifest: RunManifest,
    name: str,
    samples: Path,
    task: Any,
) -> Iterator[tuple[int, list[Any], SampleLine]]:
    """Yield each unchanged row with its replies, from the samples file or, if withheld there, the saved ones."""
    if not samples.is_file():
        warn_once(f"{samples.parent}, {name}: {NO_SAMPLES}")
        return
    documents = task.eval_docs_no_media
    settings = getattr(task, "lmms_eval_specific_kwargs", None) or {}
    index = QuestionIndex(documents, {})
    withheld = {}
    changed = set()
    for line in _lines_of_one_run(samples):
        row = line.row
        if line.fingerprint is not None:
            doc_id, changes = line.match(index, settings)
            if changes:  # in the sample since it was asked
                changed.add(row)
                continue
            row = index.rows[doc_id]
        replies = _single_replies(line)
        if any(map(is_withheld, map(str, replies))):
            withheld[row] = line
        else:
            yield row, _replies_to_requests(replies, task.config.output_type), line
    for row, line, saved_line in _saved_replies(manifest, name, documents, withheld):
        if changed_parts(saved_line.fingerprint or {}, documents[row], settings):
            changed.add(row)
        else:
            yield row, [saved_line.record["reply"]], line
    if changed:
        warn_once(
            f"{len(changed)} samples of {name} have changed since the earlier run, and are asked again."
        )


def _replies_to_requests(replies: Sequence[Any], output_type: str) -> list[Any]:
    """Return the replies as the harness's models give them, none if they are of another form."""
    if output_type == "multiple_choice":
        return list(map(parse_loglikelihood, replies))
    return [reply for reply in replies if len(replies) == 1 and isinstance(reply, str)]


def _single_replies(line: SampleLine) -> list[Any]:
    """Return the replies of a line, each without the list around it."""
    replies = []
    for reply in line.record.get("resps") or ():
        is_wrapped = isinstance(reply, list) and len(reply) == 1
        replies.append(reply[0] if is_wrapped else reply)
    return replies


def _saved_replies(
    manifest: RunManifest,
    name: str,
    documents: Sequence[Any],
    withheld: Mapping[int, SampleLine],
) -> Iterator[tuple[int, SampleLine, SampleLine]]:
    """Yield each row whose reply the samples file withholds, with its line there and the saved one."""
    if not withheld:
        return
    # The processes of the run saved its replies under ``MEDTASKS_HOME``.
    began = datetime.fromisoformat(manifest.started)
    ended = datetime.fromisoformat(manifest.ended) if manifest.ended else datetime.now(UTC)
    saved: dict[str, SampleLine] = {}  # by document
    for file in sorted(replies_folder(name).glob("*.jsonl")):
        if began <= datetime.fromtimestamp(file.stat().st_mtime, UTC) <= ended:
            saved |= {line.record["doc_id"]: line for line in read_lines(file)}
    for row, line in withheld.items():
        saved_line = saved.get(documents[row].get("doc_id")) if row < len(documents) else None
        if saved_line is not None:
            yield row, line, saved_line


def _lines_of_one_run(samples: Path) -> Iterator[SampleLine]:
    """Yield the lines that do not contradict an earlier one of their row, and warn of the others."""
    contradicting = 0
    first: dict[int, Any] = {}
    for line in read_lines(samples):
        replies = line.record.get("resps") or ()
        if first.setdefault(line.row, replies) == replies:
            yield line
        else:
            contradicting += 1
    if contradicting:
        warn_once(WRITTEN_TWICE.format(contradicting, samples))


def earlier_run(output: Path, current: RunManifest, arguments: Sequence[str]) -> RunManifest:
    """Return the newest of :func:`earlier_runs`.

    Raises:
        MedTasksError: The folder has no earlier run.
    """
    for earlier in earlier_runs(output, current, arguments):
        return earlier
    raise MedTasksError(
        f"--only-failed found no run in {output} that asked the same model for the same tasks, with these data and "
        f"versions, and kept its samples (--log_samples); leave the option out to ask all samples"
    )


def earlier_runs(
    output: Path,
    current: RunManifest,
    arguments: Sequence[str],
) -> Iterator[RunManifest]:
    """Yield the runs in a folder for results whose replies a new run may keep, newest first.

    They asked the same model the same, with the same versions and data. Only the way of sending requests may differ.

    Args:
        output: The folder.
        current: The manifest of the new run.
        arguments: Of the harness in the new run.
    """
    options = asked_options(read_options(redacted_arguments(arguments)))
    for earlier in reversed(read_manifests(output, warn_once)):
        shared = earlier.tasks.keys() & current.tasks.keys()
        has_samples = any(record.samples for record in earlier.tasks.values())
        if not shared or not has_samples or earlier.path == current.path:
            continue
        if asked_options(read_options(earlier.arguments)) != options:
            continue
        if _conditions(earlier, shared) == _conditions(current, shared):
            yield earlier


def _conditions(run: RunManifest, tasks: Set[str]) -> list[str | None]:
    """Return what has to be the same in two runs of the same tasks."""
    versions = run.versions
    conditions = [run.part, run.commit, versions.get("lmms_eval"), versions.get("medtasks")]
    return conditions + [run.tasks[name].fingerprint for name in tasks]
