"""What is recorded of a run, before anything is made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecordedTask:
    """What a run recorded of one task.

    Attributes:
        name: Name of the task or group.
        scores: The harness's row: values by ``<metric>,<filter>``; empty where only samples are left.
        config: The task's configuration as recorded.
        higher_is_better: Direction by metric, as recorded.
        documents: How many questions the dataset had; 0 if not recorded.
        asked: How many of them were asked; 0 if not recorded.
        samples: Its samples file; None if there is none.
        version: Version of the task; empty if not recorded.
        members: Of a group, the names of its members.
    """

    name: str
    scores: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)
    documents: int = 0
    asked: int = 0
    samples: Path | None = None
    version: str = ""
    members: tuple[str, ...] = ()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The task's metadata as recorded; empty if there are none."""
        found = self.config.get("metadata")
        return found if isinstance(found, Mapping) else {}

    @property
    def rules(self) -> dict[str, str]:
        """Name of the rule that each filter read with, as recorded; empty if none."""
        return {
            str(pipeline.get("name")): str(step["rule"])
            for pipeline in self.config.get("filter_list") or ()
            for step in pipeline.get("filter") or ()
            if "rule" in step
        }

    @property
    def data(self) -> Mapping[str, Any]:
        """Provenance of its data as recorded, see :func:`medtasks.data.provenance_of.provenance`; empty if none."""
        found = self.metadata.get("data")
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class RecordedRun:
    """A folder of results of one model.

    Attributes:
        folder: Where it lies.
        model: Model and its arguments as given to the harness, secrets replaced; empty if not recorded.
        run_at: When the newest results were made, ISO 8601 or as recorded; empty if not recorded.
        facts: Versions, fingerprints, seeds, hardware, times and the command, by name, as recorded.
        tasks: Tasks and groups with scores, and tasks with samples only, by name in order.
        missing: Why a task that was asked for is not in ``tasks``, by name.
        notes: Anything else a reader has to know, one sentence each.
    """

    folder: Path
    model: str
    run_at: str
    facts: Mapping[str, str]
    tasks: Mapping[str, RecordedTask]
    missing: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
