"""What a run was: command, tasks and what became of them, versions, fingerprints, seeds, hardware and times.

``medtasks run`` writes ``<output_path>/<UTC time>_run.json`` before the harness starts and again after every process of
it, so that a run that was killed leaves a file, too. Nothing in it came from a patient's record, and no path of data.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from medtasks.errors import MedTasksError
from medtasks.harness.process import RunProcess, is_running
from medtasks.harness.sample_counts import SampleCounts

ENDING = "_run.json"


class RunState(StrEnum):
    """State as the run itself wrote it down last; what is true of it now says :attr:`RunManifest.standing`."""

    RUNNING = "running"
    FINISHED = "finished"
    WITH_FAILURES = "finished_with_failures"
    INTERRUPTED = "interrupted"


class TaskOutcome(StrEnum):
    """What became of a task."""

    DONE = "done"  # results are on disk
    FAILED = "failed"  # it ran and left none
    LEFT_OUT = "left out"  # it could not run
    NOT_RUN = "not run"  # the run has not come to it, or ended before


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskRecord(_Record):
    """One task of a run; None is what there is not, or is not known.

    Attributes:
        reason: Why it has no results; empty where it has.
        dataset: Prepared by us; None for a task that is not ours.
        fingerprint: Of the dataset when the run began, see :class:`medtasks.data.manifest.Manifest`.
        results: Its results file, relative to the folder of the manifest.
        samples: Its samples file, relative as well.
        scored_samples: As :class:`~medtasks.harness.sample_counts.SampleCounts` has them, with the next two.
    """

    outcome: TaskOutcome
    reason: str = ""
    dataset: str | None = None
    fingerprint: str | None = None
    results: str | None = None
    samples: str | None = None
    scored_samples: int | None = None
    failed_samples: int | None = None
    unjudged_samples: int | None = None

    @property
    def counts(self) -> SampleCounts | None:
        """The three numbers, if the results have them."""
        if self.scored_samples is None or self.failed_samples is None:
            return None
        return SampleCounts(self.scored_samples, self.failed_samples, self.unjudged_samples or 0)


class HarnessProcess(_Record):
    """One process of the harness.

    Attributes:
        tasks: Names it was given.
        started: ISO 8601, UTC.
        seconds: None while it runs, or if nobody saw its end, like the next.
        exit_code: As the operating system has it, negative for a signal; the harness gives 0 after an error, too.
    """

    tasks: tuple[str, ...]
    started: str
    seconds: float | None = None
    exit_code: int | None = None


class Seeds(_Record):
    """Seeds the harness sets; None where it is told to set none."""

    python: int | None
    numpy: int | None
    torch: int | None
    fewshot: int | None


class ModelFacts(_Record):
    """The model.

    Attributes:
        name: What ``--model`` says.
        arguments: What ``--model_args`` says, secrets replaced by ``***``.
        weights: Name on the Hub, or the last part of a local path; empty if the arguments name none.
        fingerprint: ``sha256:<digest>`` of local files or ``commit:<hash>`` of the Hub's snapshot, of several weights
            one by argument; None if not known. Weights that a checkpoint names in its turn are not in it.
        unknown: Why the fingerprint is not known; empty where it is.
    """

    name: str
    arguments: str
    weights: str = ""
    fingerprint: str | None = None
    unknown: str = ""


class Gpu(_Record):
    """One GPU as ``nvidia-smi`` has it; memory in MiB, None if not known."""

    name: str
    memory: int | None
    driver: str


class Hardware(_Record):
    """The machine, without its name.

    Attributes:
        system: Operating system and architecture, such as ``Linux x86_64``.
        cpu: Model; empty if not known.
        cores: Logical cores this process may use.
        memory: In bytes; None if not known.
        visible_gpus: What ``CUDA_VISIBLE_DEVICES`` says; None if it is not set, so that all could be used.
    """

    system: str
    cpu: str
    cores: int
    memory: int | None
    gpus: tuple[Gpu, ...] = ()
    visible_gpus: str | None = None


class Severity(StrEnum):
    """Whether a run may begin nevertheless."""

    REFUSE = "refuse"
    WARN = "warn"


class Notice(_Record):
    """What is wrong with a run before it begins: what, why and how to fix it. A refused run leaves no manifest."""

    kind: Severity
    sentence: str


class RunManifest(_Record):
    """Facts about one call of ``medtasks run``; in what the user gave, secrets are replaced by ``***``.

    Attributes:
        state: As the run wrote it down last.
        why: One sentence on why the run was interrupted; empty otherwise.
        started: ISO 8601, UTC.
        ended: The same; None while it runs or if it was killed, like ``seconds``, the wall time of the whole run.
        process: The process of ``medtasks run``, by which a reader can tell whether it still runs.
        arguments: What is passed on to the harness.
        options: Options of the harness in force by name, of the command and a ``--config`` file.
        asked: Names given to ``--tasks``.
        tasks: By name, in the order asked.
        processes: Processes of the harness, in order.
        notices: Warnings given before the run.
        versions: By distribution, ``python`` among them; None for what is not installed.
        commit: Git commit of an editable medtasks, ``-dirty`` behind it where files differ; None if not known.
        settings: ``MEDTASKS_*`` variables of the environment; folders are replaced, too.
    """

    schema_version: Literal[1] = 1
    state: RunState
    why: str = ""
    started: str
    ended: str | None = None
    seconds: float | None = None
    process: RunProcess
    command: tuple[str, ...]
    arguments: tuple[str, ...]
    options: Mapping[str, str] = {}
    asked: tuple[str, ...]
    tasks: Mapping[str, TaskRecord]
    processes: tuple[HarnessProcess, ...] = ()
    notices: tuple[Notice, ...] = ()
    seeds: Seeds
    versions: Mapping[str, str | None]
    commit: str | None = None
    model: ModelFacts
    hardware: Hardware
    settings: Mapping[str, str] = {}

    _path: Path | None = PrivateAttr(default=None)

    @property
    def path(self) -> Path | None:
        """The file it was read from or written to."""
        return self._path

    @property
    def standing(self) -> str:
        """What is true of the run now.

        ``finished``, ``finished with failures``, ``interrupted``, ``still running``, ``killed`` (it never wrote its end
        and its process is gone), or ``killed or still running`` where that cannot be seen from here: the run was made
        on another machine, in another container, or before a restart.
        """
        if self.state is not RunState.RUNNING:
            return self.state.replace("_", " ")
        running = is_running(self.process)
        return {True: "still running", False: "killed", None: "killed or still running"}[running]

    def write(self, path: Path) -> None:
        """Write it beside ``path`` and rename it, so that no reader sees half a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.{os.getpid()}")
        scratch.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        scratch.replace(path)
        self._path = path

    @classmethod
    def read(cls, path: Path) -> "RunManifest":
        """Read one file.

        Raises:
            MedTasksError: It is damaged or cannot be read; the sentence names it.
        """
        try:
            manifest = cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # pydantic's ValidationError is a ValueError
            raise MedTasksError(
                f"the run manifest {path} is damaged or of another version of medtasks; its results can be read "
                f"without it: move it out of the folder"
            ) from error
        manifest._path = path
        return manifest


def manifest_path(output: Path, started: datetime) -> Path:
    """Return where the manifest of a run lies that began then."""
    return output / f"{started.astimezone(UTC):%Y%m%d_%H%M%S_%fZ}{ENDING}"


def manifest_files(folder: Path) -> list[Path]:
    """Return the manifests in a results folder, by name, which is by time."""
    return sorted(path for path in folder.glob(f"*{ENDING}") if not path.name.startswith("."))


def read_manifests(folder: Path) -> list[RunManifest]:
    """Return the manifests of all runs into a folder (the ``--output_path``), the newest last; none if there is none.

    Raises:
        MedTasksError: One is damaged; the sentence names it. Read them one by one with :meth:`RunManifest.read` over
            :func:`manifest_files` to go on with the others.
    """
    return sorted(map(RunManifest.read, manifest_files(folder)), key=lambda manifest: manifest.started)
