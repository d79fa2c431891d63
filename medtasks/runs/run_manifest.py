"""What a run was: command, tasks and what became of them, versions, fingerprints, seeds, hardware and times.

``medtasks run`` writes ``<output_path>/<UTC time>_run.json`` before the harness starts and again after every process of
it, so that a run that was killed leaves a file, too. Nothing in it came from a patient's record, and no path of data.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.runs.process import RunProcess, is_running
from medtasks.runs.sample_counts import SampleCounts

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
    """One task of a run; None is what there is not, or is not known."""

    outcome: TaskOutcome
    reason: str = ""  # why it has no results, or not all of its samples; empty where it has
    dataset: str | None = None  # prepared by us; None for a task that is not ours
    fingerprint: str | None = None  # of the dataset when the run began, see medtasks.data.dataset_manifest.Manifest
    results: str | None = None  # relative to the folder of the manifest, like the next
    samples: str | None = None
    scored_samples: int | None = None  # as SampleCounts has them, with the next two
    failed_samples: int | None = None
    unjudged_samples: int | None = None
    rows: int | None = None  # of a shard's run, how many rows of its data it asked; 0 where the shard has none

    @property
    def counts(self) -> SampleCounts | None:
        """The three numbers, if the results have them."""
        if self.scored_samples is None or self.failed_samples is None:
            return None
        return SampleCounts(self.scored_samples, self.failed_samples, self.unjudged_samples or 0)


class HarnessProcess(_Record):
    """One process of the harness."""

    tasks: tuple[str, ...]  # names it was given
    started: str  # ISO 8601, UTC
    seconds: float | None = None  # None while it runs, or if nobody saw its end, like the next
    exit_code: int | None = None  # as the operating system has it, negative for a signal; 0 after an error, too


class Seeds(_Record):
    """Seeds the harness sets; None where it is told to set none."""

    python: int | None
    numpy: int | None
    torch: int | None
    fewshot: int | None


class ModelFacts(_Record):
    """The model."""

    name: str  # what ``--model`` says
    arguments: str  # what ``--model_args`` says, secrets replaced by ``***``
    weights: str = ""  # name on the Hub, or the last part of a local path; empty if the arguments name none
    # ``sha256:<digest>`` of local files or ``commit:<hash>`` of the Hub's snapshot, of several weights one by argument;
    # None if not known. Weights that a checkpoint names in its turn are not in it.
    fingerprint: str | None = None
    unknown: str = ""  # why the fingerprint is not known; empty where it is


class RecipeFacts(_Record):
    """The recipe that named the model and its arguments."""

    name: str
    backend: str  # hf or server
    digest: str  # of all that the recipe says
    given: Mapping[str, str] = {}  # arguments of the user's, which count before the recipe's; secrets as ``***``
    published_as: Mapping[str, str] = {}  # the model's name in tables of published results; none for other weights


class Gpu(_Record):
    """One GPU as ``nvidia-smi`` has it; memory in MiB, None if not known."""

    name: str
    memory: int | None
    driver: str


class Hardware(_Record):
    """The machine, without its name."""

    system: str  # operating system and architecture, such as ``Linux x86_64``
    cpu: str  # empty if not known
    cores: int  # logical ones that this process may use
    memory: int | None  # in bytes; None if not known
    gpus: tuple[Gpu, ...] = ()
    visible_gpus: str | None = None  # ``CUDA_VISIBLE_DEVICES``; None if it is not set, so that all could be used


class Severity(StrEnum):
    """Whether a run may begin nevertheless."""

    REFUSE = "refuse"
    WARN = "warn"


class Notice(_Record):
    """What is wrong with a run before it begins: what, why and how to fix it. A refused run leaves no manifest."""

    kind: Severity
    sentence: str


def refuse(sentence: str) -> Notice:
    """Return the notice that a run may not begin."""
    return Notice(kind=Severity.REFUSE, sentence=sentence)


def warn(sentence: str) -> Notice:
    """Return the notice that a run will not be what it seems."""
    return Notice(kind=Severity.WARN, sentence=sentence)


class RunManifest(_Record):
    """Facts about one call of ``medtasks run``; in what the user gave, secrets are replaced by ``***``."""

    schema_version: Literal[1] = 1
    state: RunState
    why: str = ""  # one sentence on why the run was interrupted; empty otherwise
    started: str  # ISO 8601, UTC, like the next
    ended: str | None = None  # None while it runs or if it was killed, like the wall time of the whole run
    seconds: float | None = None
    process: RunProcess  # that of ``medtasks run``, by which a reader can tell whether it still runs
    command: tuple[str, ...]
    arguments: tuple[str, ...]  # what is passed on to the harness
    options: Mapping[str, str] = {}  # of the harness, in force by name, of the command and a ``--config`` file
    asked: tuple[str, ...]  # names given to ``--tasks``
    tasks: Mapping[str, TaskRecord]  # by name, in the order asked
    processes: tuple[HarnessProcess, ...] = ()
    notices: tuple[Notice, ...] = ()  # warnings given before the run
    seeds: Seeds
    versions: Mapping[str, str | None]  # by distribution, and ``python``; None for what is not installed
    commit: str | None = None  # of an editable medtasks, ``-dirty`` behind it where files differ; None if not known
    model: ModelFacts
    recipe: RecipeFacts | None = None  # None for a model that was given by name
    hardware: Hardware
    settings: Mapping[str, str] = {}  # ``MEDTASKS_*`` variables of the environment; folders are replaced, too
    shard: Shard | None = None  # which part of the rows was asked; None for all, and where shards were merged
    merged: tuple[str, ...] = ()  # the shards that ``medtasks merge`` joined, each with the start of its run

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
        """Write it so that no reader sees half a file."""
        with written_whole(path) as partial:
            partial.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        self._path = path

    @classmethod
    def read(cls, path: Path) -> "RunManifest":
        """Read one file; MedTasksError names one that is damaged or cannot be read."""
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


def read_manifests(folder: Path, note: Callable[[str], None] | None = None) -> list[RunManifest]:
    """Read the manifests of all runs into a folder (the ``--output_path``), oldest first.

    A damaged one is skipped and named in a ``note``; without it, MedTasksError is raised.
    """
    manifests = []
    for path in manifest_files(folder):
        try:
            manifests.append(RunManifest.read(path))
        except MedTasksError as error:
            if note is None:
                raise
            note(f"{str(error).rstrip('.')}.")
    return sorted(manifests, key=lambda manifest: manifest.started)
