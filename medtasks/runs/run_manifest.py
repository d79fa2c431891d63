"""Manifest of a run: command, tasks and their outcomes, versions, fingerprints, seeds, hardware and times.

``medtasks run`` writes ``<output_path>/<UTC time>_run.json`` before the harness starts and after each of its processes,
so that a killed run leaves a file, too. It holds nothing from a patient's record, and no path of data.
"""

import contextlib
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

import psutil
from pydantic import PrivateAttr

from medtasks.data.named_files import MOST_TEXT, read_named
from medtasks.data.privacy import digest
from medtasks.data.shards import Shard
from medtasks.errors import MedTasksError
from medtasks.home import written_whole
from medtasks.runs.looks import LookRecord, Record
from medtasks.runs.sample_counts import FailureLimit, SampleCounts

ENDING = "_run.json"


class RunState(StrEnum):
    """State that the run recorded last. The current one is :attr:`RunManifest.standing`."""

    RUNNING = "running"
    FINISHED = "finished"
    WITH_FAILURES = "finished_with_failures"
    INTERRUPTED = "interrupted"


class TaskOutcome(StrEnum):
    """Outcome of a task."""

    DONE = "done"  # results are on disk
    FAILED = "failed"  # it ran and left none
    LEFT_OUT = "left out"  # it could not run
    NOT_RUN = "not run"  # the run has not reached it, or ended before


class RunProcess(Record):
    """A process, told apart from later ones with the same number.

    The other fields are None outside Linux.
    """

    pid: int
    # in clock ticks since the machine started, independent of the clock's setting
    began: int | None
    # digest of the machine's start and the process namespace, within which numbers are comparable
    place: str | None


def process_of(pid: int) -> RunProcess:
    """Return the identity of a process."""
    return RunProcess(pid=pid, began=_began(pid), place=_namespace())


def is_running(process: RunProcess) -> bool | None:
    """Return whether a process is still running, or None if that cannot be seen from here."""
    if process.place is None or process.began is None or process.place != _namespace():
        return None
    began = _began(process.pid)
    if began is None:
        try:
            os.kill(process.pid, 0)
        except PermissionError:  # another user's process, which a machine may hide
            return None
        except OSError:
            pass
    return began == process.began


def send(process: RunProcess, number: int) -> None:
    """Send a signal to a process if it is still running and may be signalled.

    Args:
        process: From a manifest. Nothing is sent to a later process with its number.
        number: Of the signal, see :mod:`signal`.
    """
    if is_running(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)


def _began(pid: int) -> int | None:
    """Return the start of a process, or None for a zombie or no process."""
    try:
        process = psutil.Process(pid)
        if process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round((process.create_time() - psutil.boot_time()) * os.sysconf("SC_CLK_TCK"))
    except psutil.Error:
        return None


def _namespace() -> str | None:
    """Return a digest of the machine's start and the process namespace, None outside Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        parts = boot + os.readlink("/proc/self/ns/pid")
    except OSError:
        return None
    return digest(parts)


class TaskRecord(Record):
    """One task of a run. A fact that does not exist or is unknown is None."""

    outcome: TaskOutcome
    reason: str = ""  # why results or samples are missing; empty if none are
    dataset: str | None = None  # prepared by us; None for a task that is not ours
    fingerprint: str | None = None  # of the dataset when the run began
    # Results file and samples file, relative to the manifest's folder
    results: str | None = None
    samples: str | None = None
    scored_samples: int | None = None  # see SampleCounts
    failed_samples: int | None = None
    unjudged_samples: int | None = None
    rows: int | None = None  # number of rows asked in a shard's run
    copied_samples: int | None = None  # see ReplyOrigins
    kept_samples: int | None = None

    @property
    def counts(self) -> SampleCounts | None:
        """Numbers of samples, None if the results do not have them."""
        if self.scored_samples is None or self.failed_samples is None:
            return None
        return SampleCounts(
            self.scored_samples, self.failed_samples, self.unjudged_samples or 0
        )


class HarnessProcess(Record):
    """One process of the harness."""

    tasks: tuple[str, ...]  # names it was given
    started: str  # ISO 8601, UTC
    # None while it runs or if its end was not seen, like the exit code
    seconds: float | None = None
    exit_code: int | None = None  # negative for a signal; may be 0 after an error


class Seeds(Record):
    """Seeds that the harness sets, None where it sets none."""

    python: int | None
    numpy: int | None
    torch: int | None
    fewshot: int | None


class ModelFacts(Record):
    """The model."""

    name: str  # ``--model``
    arguments: str  # ``--model_args``, secrets replaced by ``***``
    # name on the Hub, or the last part of a local path; empty if the arguments name none
    weights: str = ""
    # ``sha256:<digest>`` of local files or ``commit:<hash>`` of the Hub's snapshot, by argument for several weights;
    # None if unknown. It does not cover weights that a checkpoint refers to.
    fingerprint: str | None = None
    unknown: str = ""  # why the fingerprint is unknown; empty if it is known


class RecipeFacts(Record):
    """The recipe that named the model and its arguments."""

    name: str
    backend: str  # hf or server
    digest: str  # of the recipe's whole content
    # the user's arguments, which override the recipe's; secrets as ``***``
    given: Mapping[str, str] = {}
    # the model's name in tables of published results; none for other weights
    published_as: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{self.name}, backend {self.backend}, {self.digest}"


class PrimaryOutcome(Record):
    """Outcome that a run is about, stated before it. All others are exploratory."""

    task: str
    metric: str
    margin: float | None = None  # of non-inferiority
    # answers of ``medtasks plan``, such as the number of samples needed
    planned: Mapping[str, float] = {}

    def lead(self, task: str, metric: str) -> str:
        """Return the words before a result that say whether it is primary or exploratory.

        Example:
            >>> PrimaryOutcome(task="vqa_rad", metric="accuracy").lead("vqa_rad", "recall")
            'Exploratory outcome: '
        """
        is_primary = (task, metric) == (self.task, self.metric)
        return "Primary outcome: " if is_primary else "Exploratory outcome: "

    def __str__(self) -> str:
        texts = [f"{self.metric} of {self.task}"]
        for name, value in {"margin": self.margin, **self.planned}.items():
            if value is not None:
                texts.append(f"{name.replace('_', ' ')} {value:.10g}")
        return ", ".join(texts)


class Gpu(Record):
    """One GPU as in ``nvidia-smi``."""

    name: str
    memory: int | None  # in MiB; None if unknown
    driver: str

    def __str__(self) -> str:
        return f"{self.name}, {self.memory} MiB, driver {self.driver}"


class Hardware(Record):
    """The machine, without its name."""

    system: str  # operating system and architecture, such as ``Linux x86_64``
    cpu: str  # empty if unknown
    cores: int  # logical cores that this process may use
    memory: int | None  # in bytes; None if unknown
    gpus: tuple[Gpu, ...] = ()
    # ``CUDA_VISIBLE_DEVICES``; None if it is not set, so that all could be used
    visible_gpus: str | None = None


class Severity(StrEnum):
    """Effect of a notice on a run."""

    REFUSE = "refuse"
    WARN = "warn"


class Notice(Record):
    """A problem found before or in a run, with its reason and fix. A refused run leaves no manifest."""

    kind: Severity
    sentence: str


def refuse(sentence: str) -> Notice:
    """Build a notice that stops the run."""
    return Notice(kind=Severity.REFUSE, sentence=sentence)


def warn(sentence: str) -> Notice:
    """Build a notice that the user should know about."""
    return Notice(kind=Severity.WARN, sentence=sentence)


class RunManifest(Record):
    """Facts about one call of ``medtasks run``.

    In what the user gave, secrets are replaced by ``***``.
    """

    schema_version: Literal[1] = 1
    run: str = ""  # id that the run shares with the attempts that it continues
    state: RunState
    why: str = ""  # one sentence on why the run was interrupted; empty otherwise
    started: str  # ISO 8601, UTC, like ``ended``
    ended: str | None = None  # None while it runs or if it was killed, like the wall time
    seconds: float | None = None
    process: RunProcess  # that of ``medtasks run``
    command: tuple[str, ...]
    arguments: tuple[str, ...]  # what is passed on to the harness
    # harness options in force, by name, from command line and ``--config`` file
    options: Mapping[str, str] = {}
    asked: tuple[str, ...]  # names given to ``--tasks``
    tasks: Mapping[str, TaskRecord]  # by name, in the order asked
    processes: tuple[HarnessProcess, ...] = ()
    notices: tuple[Notice, ...] = ()  # warnings given before the run
    seeds: Seeds
    versions: Mapping[str, str | None]  # by distribution, and ``python``; None if not installed
    # of an editable medtasks, with ``-dirty`` where files differ; None if unknown
    commit: str | None = None
    model: ModelFacts
    recipe: RecipeFacts | None = None  # None for a model that was given by name
    primary: PrimaryOutcome | None = None
    hardware: Hardware
    # ``MEDTASKS_*`` variables of the environment; folders are replaced, too
    settings: Mapping[str, str] = {}
    # part of the rows that was asked; None for all, and for merged shards
    shard: Shard | None = None
    look: LookRecord | None = None  # of a comparison that may stop early
    # the shards that ``medtasks merge`` joined, each with the start of its run
    merged: tuple[str, ...] = ()

    _path: Path | None = PrivateAttr(default=None)

    @property
    def stated_primary(self) -> PrimaryOutcome | None:
        """The primary outcome, None if replies are copies of an earlier run, whose scores may have been seen."""
        copied = any(record.copied_samples for record in self.tasks.values())
        return None if copied else self.primary

    @property
    def part(self) -> str:
        """The part of the rows that its calls ask together: a shard, a plan of looks, or empty for all rows."""
        if self.look is not None:
            return f"{self.look.plan} {self.look.against_digest}"
        return "" if self.shard is None else str(self.shard)

    def over_limit(self, limit: FailureLimit) -> dict[str, SampleCounts]:
        """Return the tasks that lost more samples than may fail, with their counts."""
        counts = {name: record.counts for name, record in self.tasks.items()}
        return {name: each for name, each in counts.items() if each and not limit.allows(each)}

    @property
    def path(self) -> Path | None:
        """File that the manifest was read from or last written to, None before the first write."""
        return self._path

    @property
    def standing(self) -> str:
        """Current state.

        ``finished``, ``finished with failures``, ``interrupted``, ``still running``, ``killed`` (it recorded no end and
        its process is gone), or ``killed or still running`` where that cannot be seen from here: on another machine, in
        another container, or after a restart.
        """
        if self.state is not RunState.RUNNING:
            return self.state.replace("_", " ")
        running = is_running(self.process)
        return {True: "still running", False: "killed", None: "killed or still running"}[
            running
        ]

    @property
    def can_go_on(self) -> bool:
        """Whether a later call may go on with this run: it was stopped, or left no results of any task."""
        if self.state in (RunState.RUNNING, RunState.INTERRUPTED):
            return self.standing != "still running"
        return all(record.outcome is not TaskOutcome.DONE for record in self.tasks.values())

    def write(self, path: Path) -> None:
        """Write the manifest. No reader sees half a file."""
        with written_whole(path) as partial:
            partial.write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        self._path = path

    @classmethod
    def read(cls, path: Path) -> "RunManifest":
        """Read a manifest.

        Raises:
            MedTasksError: The file is damaged or cannot be read.
        """
        try:
            manifest = cls.model_validate_json(read_named(path, most=MOST_TEXT).decode())
        except (OSError, ValueError) as error:  # pydantic's ValidationError is a ValueError
            raise MedTasksError(
                f"the run manifest {path} is damaged or of another version of medtasks; its results can be read "
                f"without it: move it out of the folder"
            ) from error
        manifest._path = path
        return manifest


def continued_run_id(output: Path, current: RunManifest) -> str:
    """Return the id of the earlier run that a new call continues.

    Args:
        output: The folder of results of both. Its damaged manifests are skipped.
        current: The manifest of the new call.

    Returns:
        The id of the newest run of the same model and part of the rows, if it can go on, else an empty text.
    """
    model = current.model
    for earlier in reversed(read_manifests(output, lambda _: None)):
        is_same_model = (earlier.model.name, earlier.model.weights) == (
            model.name,
            model.weights,
        )
        if is_same_model and earlier.part == current.part:
            return earlier.run if earlier.can_go_on else ""
    return ""


def manifest_path(output: Path, started: datetime) -> Path:
    """Return the path of the manifest of a run by the time of its start.

    Example:
        >>> manifest_path(Path("results"), datetime(2026, 1, 31, 12, tzinfo=UTC)).name
        '20260131_120000_000000Z_run.json'
    """
    return output / f"{started.astimezone(UTC):%Y%m%d_%H%M%S_%fZ}{ENDING}"


def manifest_files(folder: Path) -> list[Path]:
    """List the manifests in a results folder, oldest first."""
    return sorted(path for path in folder.glob(f"*{ENDING}") if not path.name.startswith("."))


def read_manifests(
    folder: Path, note: Callable[[str], None] | None = None
) -> list[RunManifest]:
    """Read the manifests of all runs with this ``--output_path``, oldest first.

    Args:
        folder: The output path.
        note: Receives one sentence on each damaged manifest, which is skipped; None: a damaged one is an error.

    Raises:
        MedTasksError: A manifest is damaged, and there is no ``note``.
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


def check_primary(output: Path, current: RunManifest) -> None:
    """Check that all runs in a folder state the same primary outcome.

    Args:
        output: The folder of results.
        current: The manifest of a run that is about to begin there.

    Raises:
        MedTasksError: An earlier run stated another one, or none.
    """
    for earlier in read_manifests(output, lambda _: None):
        if earlier.primary != current.primary:
            raise MedTasksError(
                f"a primary outcome is stated before the first run of a folder, and that of {earlier.started} in "
                f"{output} states {earlier.primary or 'none'}; give the same --primary, or another --output_path"
            )
