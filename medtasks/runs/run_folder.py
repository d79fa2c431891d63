"""Reading what runs of the harness left in a folder, finished or not, into one structure.

Results files and manifests also say what is known of a run as a whole: versions, settings, and tasks without results.
"""

import math
import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from medtasks.audit.report.reading.recorded import RecordedRun, RecordedTask
from medtasks.audit.report.words import moment
from medtasks.data.model_places import PLACES
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import MedTasksError, unknown_name
from medtasks.harness.kept_replies import TRANSPORT
from medtasks.harness.repeats import repeat_folders
from medtasks.harness.running import RESULTS, SERVED_MODEL, samples_file
from medtasks.harness.task_files import included_option
from medtasks.harness.task_index import harness_folder, mapping_in
from medtasks.runs.harness_options import HarnessOptions
from medtasks.runs.manifest import RunManifest, TaskOutcome, TaskRecord, manifest_files
from medtasks.runs.redaction import HIDDEN, redacted, without_home
from medtasks.runs.saved_replies import replies_folder

_SAMPLES = "_samples_"
_OURS = "medtasks_"  # adapters of this package, which keep a journal
_NOTHING = (None, "", "unknown@unknown")  # the last is what an installed harness records of itself
_ENDED = ("finished", "finished with failures")
_OF_TASK = ("n-samples", "configs", "higher_is_better", "versions", "group_subtasks")  # parts of a results file
_SERVER = "vlm_server"
_WEIGHTS = ("pretrained=", "model=", "model_path=")
_SETTINGS = {
    "wall time of the harness, s": "total_evaluation_time_seconds",
    "system instruction": "system_instruction",
}
_CONFIG = {
    "adapter": "model_backend",
    "batch size": "batch_size",
    "device": "device",
    "limit": "limit",
    "offset": "offset",
    "generation arguments": "gen_kwargs",
    "response cache": "use_cache",
    "random seed": "random_seed",
    "numpy seed": "numpy_seed",
    "torch seed": "torch_seed",
    "few-shot seed": "fewshot_seed",
}


@dataclass(frozen=True)
class _Results:
    path: Path  # of a results file of the harness
    content: Mapping[str, Any]

    @property
    def model(self) -> str:
        return recorded_model(self.content)

    @property
    def made(self) -> datetime | None:
        """When, as recorded; None if it is not a time."""
        zone = mapping_in(mapping_in(self.content, "config"), "resolved_cli_args").get("timezone")
        try:  # the harness writes the time in the time zone of its option --timezone
            read = datetime.strptime(str(self.content.get("date")), "%Y%m%d_%H%M%S")
            return read.replace(tzinfo=ZoneInfo(zone)) if zone else read.replace(tzinfo=UTC)
        except (ValueError, TypeError, OSError, KeyError):  # ZoneInfoNotFoundError is a KeyError
            return None

    @property
    def order(self) -> tuple[float, str]:
        made = self.made
        return (made.timestamp() if made else self.path.stat().st_mtime, str(self.path))

    def tasks(self) -> Iterator[RecordedTask]:
        """Yield the rows that hold a score; a group without aggregates has none."""
        rows = mapping_in(self.content, "results")
        for name in rows:
            if any("," in key for key in mapping_in(rows, name)):
                yield self._task(name, rows[name])

    def _task(self, name: str, row: Mapping[str, Any]) -> RecordedTask:
        of = {key: mapping_in(self.content, key) for key in (*_OF_TASK, "config")}
        counts, samples = mapping_in(of["n-samples"], name), samples_file(self.path, name)
        total = _whole(counts.get("original"))
        return RecordedTask(
            name=name,
            scores=row,
            config=mapping_in(of["configs"], name),
            higher_is_better=mapping_in(of["higher_is_better"], name),
            documents=total,
            asked=max(0, min(_whole(counts.get("effective")), total - _whole(of["config"].get("offset")))),
            samples=samples if samples.is_file() else None,
            version=str(of["versions"].get(name) or ""),
            members=tuple(of["group_subtasks"].get(name) or ()),
        )


def read_run(folder: Path, model: str | None = None) -> RecordedRun:
    """Read the results files, samples files and manifests in a folder; the harness puts some into sub-folders.

    Of several results of a task the newest count, and a note names the others. Of runs of several models the one with
    the name ``model``, or with this in its name and arguments, is read. MedTasksError: there is no such folder, it
    holds no run, repeats of one, or runs of several models and none was chosen. UnknownName: none is of that model.
    """
    if not folder.is_dir():
        raise MedTasksError(f"there is no folder {folder}; give the one that was named with --output_path")
    if repeated := repeat_folders(folder):  # all together they would pass for one run, whose newest results count
        raise MedTasksError(
            f"{folder} holds {len(repeated)} repeats of a run; give one of them, such as {repeated[0]} ('medtasks "
            f"report' alone takes them all)"
        )
    notes: list[str] = []
    results = sorted(_results(folder, notes), key=lambda one: one.order)
    manifests = _manifests(folder, notes)
    samples = sorted(path for path in folder.rglob(f"*{_SAMPLES}*.jsonl") if path.is_file())
    if not (results or manifests or samples):
        damaged = f" that can be read ({' '.join(notes).rstrip('.')})" if notes else ""
        raise MedTasksError(
            f"{folder} holds no results of a run{damaged}; give the folder that was named with --output_path"
        )
    by_path = {one.path: one.model for one in results}
    labels = {id(one): label_of(one, by_path) for one in manifests}
    models = {*by_path.values(), *labels.values()} or {""}
    chosen = _chosen(sorted(models), model, folder)
    owners = {path: _owner(path, results, models) for path in samples}
    results = [one for one in results if one.model == chosen]
    manifests = [one for one in manifests if labels[id(one)] == chosen]
    tasks = _newest(results, notes)
    sampled = _samples_only(tasks, owners, results, chosen, notes)
    recipe = manifests[-1].recipe if manifests else None
    return RecordedRun(
        folder=folder,
        model=chosen,
        run_at=_run_at(results, manifests),
        facts=facts(results[-1].content if results else {}, manifests[-1] if manifests else None),
        tasks=dict(sorted({**tasks, **sampled}.items())),
        missing=missing_tasks(manifests, {**tasks, **sampled}),
        notes=(*notes, *run_notes(manifests, tasks, sampled)),
        published_as=recipe.published_as if recipe else {},
    )


def _results(folder: Path, notes: list[str]) -> Iterator[_Results]:
    for path in sorted(folder.rglob(f"*{RESULTS}")):
        try:
            content: Any = parse_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            damaged = "it is cut off or damaged"
            cause = (error.strerror or type(error).__name__) if isinstance(error, OSError) else damaged
            notes.append(f"{path} cannot be read and is left out: {cause}.")
            continue
        if isinstance(content, dict) and isinstance(content.get("results"), dict):
            yield _Results(path, content)
        else:
            notes.append(f"{path} is no results file of the harness and is left out.")


def _manifests(folder: Path, notes: list[str]) -> list[RunManifest]:
    found = []
    for path in manifest_files(folder):
        try:
            found.append(RunManifest.read(path))
        except MedTasksError as error:
            notes.append(f"{str(error).rstrip('.')}.")
    return sorted(found, key=lambda manifest: manifest.started)


def _chosen(models: Sequence[str], wanted: str | None, folder: Path) -> str:
    fitting = [label for label in models if wanted in (None, label, label.split(" ")[0])]
    fitting = fitting or [label for label in models if wanted is None or wanted in label]
    named = "; ".join(f"'{label}'" for label in fitting)
    if wanted is not None and not fitting:
        raise unknown_name("model", wanted, models)
    if len(fitting) > 1 and wanted is None:
        raise MedTasksError(f"{folder} holds runs of several models: {named}; choose one with --model")
    if len(fitting) > 1:
        raise MedTasksError(f"--model '{wanted}' fits several runs in {folder}: {named}; give more of its arguments")
    return fitting[0]


def _owner(samples: Path, results: Sequence[_Results], models: set[str]) -> str | None:
    """Return the model that a samples file is of; None if nothing tells."""
    beside = [one for one in results if one.path.parent == samples.parent]
    same_run = [one for one in beside if _stamp(one.path) == _stamp(samples)]
    labels = ({one.model for one in same_run}, {one.model for one in beside}, models)
    (label,) = next((known for known in labels if len(known) == 1), {None})
    return label


def _newest(results: Sequence[_Results], notes: list[str]) -> dict[str, RecordedTask]:
    tasks: dict[str, RecordedTask] = {}
    older: dict[Path, list[str]] = {}
    of_task: dict[str, Path] = {}
    for one in results:
        for task in one.tasks():
            if task.name in tasks:
                older.setdefault(of_task[task.name], []).append(task.name)
            tasks[task.name], of_task[task.name] = task, one.path
    notes += [f"{path} holds older results of {', '.join(names)}, which are left out." for path, names in older.items()]
    return tasks


def _samples_only(
    tasks: Mapping[str, RecordedTask],
    owners: Mapping[Path, str | None],
    results: Sequence[_Results],
    model: str,
    notes: list[str],
) -> dict[str, RecordedTask]:
    """Return the tasks of which there are samples but no results; the newest by name count."""
    with_results = {(one.path.parent, _stamp(one.path), task.name) for one in results for task in one.tasks()}
    found: dict[str, RecordedTask] = {}
    for path, owner in sorted(owners.items(), key=lambda item: (_stamp(item[0]), item[0])):
        task = path.stem.split(_SAMPLES, 1)[1]
        if (path.parent, _stamp(path), task) in with_results or owner not in (model, None):
            continue
        if owner is None:
            notes.append(f"{path} has no results beside it that say which model it is of, and is left out.")
        elif task in tasks:
            notes.append(f"{path} has no results beside it and is left out; the results of {task} are of another run.")
        else:
            found[task] = RecordedTask(task, samples=path)
    return found


def _run_at(results: Sequence[_Results], manifests: Sequence[RunManifest]) -> str:
    if results:
        made = results[-1].made
        return made.astimezone(UTC).isoformat() if made else str(results[-1].content.get("date") or "")
    return manifests[-1].started if manifests else ""


def _stamp(path: Path) -> str:
    """Return the beginning that the files of one run share."""
    return path.name.split(_SAMPLES, 1)[0].removesuffix(RESULTS)


def _whole(value: Any) -> int:
    """Return a count; 0 for anything else, such as the fraction that ``--limit 0.5`` leaves."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) and value >= 1 else 0


def recorded_model(results: Mapping[str, Any]) -> str:
    """Return the identity of the model of a results file."""
    config, served = mapping_in(results, "config"), mapping_in(results, SERVED_MODEL)
    return model_label(config.get("model"), config.get("model_args"), served.get("id"))


def model_label(name: object, arguments: object, served: object = None) -> str:
    """Return the identity of a model: its name and the arguments that can change an answer, without secrets.

    A model on a server is known by its ``served`` name, or the one in its arguments, wherever the server listens.

    Example:
        >>> model_label("qwen", "pretrained=q,batch_size=8")
        'qwen pretrained=q'
        >>> model_label("vlm_server", "base_url=http://127.0.0.1:8000/v1,concurrency=8", "org/m")
        'org/m (vlm_server)'
    """
    given = HarnessOptions({"model_args": arguments}).model_arguments()
    if str(name).removesuffix("_compatible") in (_SERVER, *PLACES):
        named = [given.pop(key, None) for key in ("model", "model_version")]
        served = served or named[0] or named[1]
    rest = ",".join(f"{key}={value}" for key, value in given.items() if key not in TRANSPORT)
    return _shown(f"{served} ({name}) {rest}" if served else f"{name or ''} {rest}").strip()


def model_title(model: str) -> str:
    """Return the model's name and that of its weights, without the other arguments.

    Example:
        >>> model_title("medtasks_hf_vlm pretrained=/models/med-vlm,dtype=bfloat16")
        'medtasks_hf_vlm: med-vlm'
        >>> model_title("org/m (vlm_server) likelihood=tokens")
        'org/m (vlm_server)'
    """
    if served := re.match(r"\S+ \(\S+\)", model):
        return served.group()
    name, _, arguments = model.partition(" ")
    for argument in arguments.split(","):
        for key in _WEIGHTS:
            if argument.startswith(key) and len(argument) > len(key):
                return f"{name}: {Path(argument.removeprefix(key)).name}"
    return name


def _shown(text: str) -> str:
    return without_home(redacted(text.replace("[REDACTED]", HIDDEN)))


def label_of(manifest: RunManifest, models: Mapping[Path, str]) -> str:
    """Return the model of a manifest as its own results files (``models``) call it, else as it does itself.

    A run that ended before its results does not say what its server calls the model; the only one of the folder counts.
    """
    folder = manifest.path.parent if manifest.path else Path()
    written = (folder / record.results for record in manifest.tasks.values() if record.results)
    own = model_label(manifest.model.name, manifest.model.arguments)
    unnamed = own.replace(_SERVER, f" ({_SERVER})", 1) if own.startswith(_SERVER) else own
    alike = {label for label in models.values() if label.endswith(unnamed)}
    return next((models[path] for path in written if path in models), alike.pop() if len(alike) == 1 else own)


def facts(results: Mapping[str, Any], manifest: RunManifest | None) -> dict[str, str]:
    """Return what a results file and a manifest say about a run, by name; what is not recorded is not in it."""
    config = mapping_in(results, "config")
    recorded: dict[str, Any] = {} if manifest is None else _of_manifest(manifest)
    recorded |= {"model arguments": config["model_args"]} if config.get("model_args") else {}
    if served := mapping_in(results, SERVED_MODEL):
        recorded["served model"] = ", ".join(f"{name} {value}" for name, value in served.items() if value is not None)
        build = f" (build {served['build']})" if served.get("build") else ""
        recorded["fingerprint of the weights"] = f"not known: the weights are on the server{build}"
    installed = harness_folder()
    if installed and (installed.parents[1] / ".git").exists():  # else it records the clone around its environment
        recorded |= {"harness": results.get("lmms_eval_version"), "harness commit": results.get("git_hash")}
    recorded |= {name: results.get(key) for name, key in _SETTINGS.items()}
    recorded |= {name: config.get(key) for name, key in _CONFIG.items()}
    return {name: _shown(str(value)) for name, value in recorded.items() if value not in _NOTHING}


def _of_manifest(manifest: RunManifest) -> dict[str, Any]:
    machine, recipe = manifest.hardware, manifest.recipe
    gpus = [f"{gpu.name}, {gpu.memory} MiB, driver {gpu.driver}" for gpu in machine.gpus]
    data = {record.dataset: record.fingerprint for record in manifest.tasks.values() if record.dataset}
    seeds = manifest.seeds.model_dump()
    return {
        "command": shlex.join(manifest.command),
        "started": moment(manifest.started),
        "ended": moment(manifest.ended) if manifest.ended else f"not recorded: {manifest.standing}",
        "wall time, s": manifest.seconds,
        "recipe": recipe and f"{recipe.name}, backend {recipe.backend}, {recipe.digest}",
        "model arguments": manifest.model.arguments,
        "weights": manifest.model.weights,
        "fingerprint of the weights": manifest.model.fingerprint or manifest.model.unknown,
        "fingerprints of the data": ", ".join(f"{name} {found or 'not known'}" for name, found in data.items()),
        "versions": ", ".join(f"{name} {version}" for name, version in manifest.versions.items() if version),
        "commit of medtasks": manifest.commit,
        "seeds": ", ".join(f"{name} {seed}" for name, seed in seeds.items()),
        "system": machine.system,
        "processor": f"{machine.cpu}, {machine.cores} cores".lstrip(", "),
        "memory, GB": machine.memory and f"{machine.memory / 1e9:.1f}",
        "graphics processors": "; ".join(gpus),
        "settings": ", ".join(f"{name}={value}" for name, value in manifest.settings.items()),
    }


def missing_tasks(manifests: Sequence[RunManifest], known: Container[str]) -> dict[str, str]:
    """Return why tasks that were asked for have no results, and how to get them, by name.

    Of ``manifests``, the newest last, the newest with a task counts; ``known`` tasks have results.
    """
    last = {name: (manifest, record) for manifest in manifests for name, record in manifest.tasks.items()}
    return {name: _why(name, *found) for name, found in last.items() if name not in known}


def _why(name: str, manifest: RunManifest, record: TaskRecord) -> str:
    if record.rows == 0:
        return f"Shard {manifest.shard} has none of its rows."
    if record.outcome is TaskOutcome.DONE:
        return f"It had results ({record.results}), which are gone or damaged; {_go_on(name, manifest)}."
    cause = record.reason.strip().rstrip(".")
    if not cause:
        cause = f"the run is {manifest.standing}" if manifest.standing not in _ENDED else "it left no results"
    return f"{record.outcome.capitalize()}: {cause}; {_go_on(name, manifest)}."


def _go_on(name: str, manifest: RunManifest) -> str:
    """Return what mends it: replies that are kept are scored, or the command is run again."""
    begun = datetime.fromisoformat(manifest.started).timestamp()
    kept = [file for file in sorted(replies_folder(name).glob("*.jsonl")) if file.stat().st_mtime >= begun]
    if kept:
        files = f"{shlex.join(map(str, kept))}{included_option(name)}"
        return f"replies are kept, score them with: medtasks score {name} {files}"
    again = f"go on with: {shlex.join(manifest.command)}"
    ours = manifest.model.name.startswith(_OURS) and "journal=false" not in manifest.model.arguments.lower()
    if ours or "--journal" in manifest.command:
        return f"{again} (answers in the model's journal are not computed again)"
    return again


def run_notes(manifests: Sequence[RunManifest], scored: Container[str], sampled: Container[str]) -> list[str]:
    """Return what a reader has to know about how the runs went, one sentence each; the newest manifest is the last.

    Tasks are ``scored`` if they have results, ``sampled`` if they have samples only.
    """
    if not manifests:
        return []
    last = manifests[-1]
    notes = [f"Before the run: {notice.sentence.rstrip('.')}." for notice in last.notices]
    if last.shard is not None:
        notes.append(
            f"This is shard {last.shard} of a run, so that its scores are of a part of the questions; join all "
            f"{last.shard.count} with: medtasks merge OUT SHARD..."
        )
    if last.standing not in _ENDED:
        cause = f" ({last.why.rstrip('.')})" if last.why else ""
        notes.append(f"The run of {moment(last.started)} did not come to its end: it is {last.standing}{cause}.")
    lost = {name: record for name, record in last.tasks.items() if record.outcome is not TaskOutcome.DONE}
    notes += [f"{name}: {_why(name, last, record)}" for name, record in lost.items() if name in sampled]
    stale = [name for name in lost if name in scored]
    if stale:
        notes.append(
            f"In the run of {moment(last.started)} these tasks left no results; what is shown of them is older: "
            f"{', '.join(stale)}."
        )
    return notes
