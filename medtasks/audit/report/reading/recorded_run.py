"""What is recorded of a run, before anything is made of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecordedTask:
    """What a run recorded of one task."""

    name: str
    # the harness's row: values by <metric>,<filter>; empty where only samples are left
    scores: Mapping[str, Any] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)  # the task's configuration as recorded
    higher_is_better: Mapping[str, bool | None] = field(default_factory=dict)  # direction by metric, as recorded
    documents: int = 0  # how many questions the dataset had; 0 if not recorded
    asked: int = 0  # how many of them were asked; 0 if not recorded
    samples: Path | None = None  # its samples file; None if there is none
    version: str = ""  # version of the task; empty if not recorded
    members: tuple[str, ...] = ()  # of a group, the names of its members

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
    """A folder of results of one model."""

    folder: Path
    model: str  # model and its arguments as given to the harness, secrets replaced; empty if not recorded
    run_at: str  # when the newest results were made, ISO 8601 or as recorded; empty if not recorded
    facts: Mapping[str, str]  # versions, fingerprints, seeds, hardware, times and the command, by name, as recorded
    tasks: Mapping[str, RecordedTask]  # tasks and groups with scores, and tasks with samples only, by name in order
    missing: Mapping[str, str] = field(default_factory=dict)  # why a task that was asked for is not in tasks, by name
    notes: tuple[str, ...] = ()  # anything else a reader has to know, one sentence each
