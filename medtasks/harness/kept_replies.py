"""Replies of an earlier run that need not be asked for again: all but the failed ones (``--only-failed``)."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lmms_eval.api.instance import Instance

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause
from medtasks.harness.logged_samples import is_withheld
from medtasks.harness.loglikelihood import parse_loglikelihood
from medtasks.harness.manifest import RunManifest, TaskRecord
from medtasks.harness.retrying import KEPT_VARIABLE
from medtasks.harness.saved_replies import replies_folder

Place = tuple[str, int, int]  # task, row of its data, number of the request


@dataclass(frozen=True)
class KeptReplies:
    """Replies by request.

    Attributes:
        found: Texts, and likelihoods as ``(mean negative log-likelihood, is_greedy)``.
    """

    found: Mapping[Place, Any] = field(default_factory=dict)

    @classmethod
    def from_environment(cls, tasks: Mapping[str, Any]) -> "KeptReplies":
        """Read the replies of the run that :data:`~medtasks.harness.retrying.KEPT_VARIABLE` names, if it is set.

        Args:
            tasks: The harness's tasks by name.

        Raises:
            MedTasksError: The run's files cannot be read.
        """
        named = os.environ.get(KEPT_VARIABLE)
        if not named:
            return cls()
        manifest = RunManifest.read(Path(named))
        return cls(
            {
                (name, row, number): reply
                for name, record in manifest.tasks.items()
                if name in tasks and record.samples
                for row, replies in _rows(manifest, name, record, tasks[name])
                for number, reply in enumerate(replies)
                if not _failed(reply)
            }
        )

    def of(self, request: Instance) -> Any:
        """Return the reply to one request, None if it is to be asked; a repeated request always is."""
        if (request.repeats or 1) > 1:
            return None
        return self.found.get((request.task_name, int(request.doc_id), request.idx))


def _failed(reply: Any) -> bool:
    return failure_cause(reply) is not None if isinstance(reply, str) else math.isnan(reply[0])


def _rows(manifest: RunManifest, name: str, record: TaskRecord, task: Any) -> Iterator[tuple[int, list[Any]]]:
    """Yield the replies of each row, from the samples file or, where that withholds them, from the saved replies."""
    assert manifest.path is not None
    withheld = []
    for sample in _objects(manifest.path.parent / str(record.samples)):
        replies = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in sample["resps"]]
        if any(isinstance(one, str) and is_withheld(one) for one in replies):
            withheld.append(int(sample["doc_id"]))
        elif task.config.output_type == "multiple_choice":
            yield int(sample["doc_id"]), [parse_loglikelihood(one) for one in replies]
        elif len(replies) == 1 and isinstance(replies[0], str):
            yield int(sample["doc_id"]), replies
    if withheld:
        saved = _saved(manifest, name)
        documents = task.eval_docs_no_media
        for row in dict.fromkeys(withheld):
            if documents[row].get("doc_id") in saved:
                yield row, [saved[documents[row]["doc_id"]]]


def _saved(manifest: RunManifest, name: str) -> dict[str, str]:
    """Return the replies that the processes of a run have saved under ``MEDTASKS_HOME``, by document."""
    began = datetime.fromisoformat(manifest.started)
    ended = datetime.fromisoformat(manifest.ended) if manifest.ended else datetime.now(UTC)
    files = [file for file in sorted(replies_folder(name).glob("*.jsonl")) if began <= _written(file) <= ended]
    return {line["doc_id"]: line["reply"] for file in files for line in _objects(file)}


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    try:
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line.strip():
                yield json.loads(line)
    except (OSError, ValueError) as error:
        raise MedTasksError(
            f"the replies in {path} cannot be read ({type(error).__name__}); leave out --only-failed to ask all again"
        ) from error
