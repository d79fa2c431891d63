"""Which weights a run used: a digest of local files, or the commit of the Hub's snapshot; without the network."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from medtasks.data.home import home
from medtasks.data.manifest import file_sha256
from medtasks.harness.harness_options import HarnessOptions
from medtasks.harness.manifest import ModelFacts
from medtasks.harness.redaction import redacted

# Arguments that name weights, in the harness's models and in ours; the harness's default model is "hf".
WEIGHTS = (
    *("pretrained", "model", "model_version", "model_name", "model_id", "model_path", "path", "checkpoint", "ckpt"),
    *("peft", "delta", "lora", "base", "vision_tower", "llama", "clip"),
)
# What our adapters load where the arguments name nothing else; their own module says so, too, but takes long to import.
DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "llava_med": {"pretrained": "microsoft/llava-med-v1.5-mistral-7b"},
    "med_flamingo": {
        "pretrained": "med-flamingo/med-flamingo",
        "llama": "yahma/llama-7b-hf",
        "clip": "openai/clip-vit-large-patch14",
    },
    "radfm": {"pretrained": "chaoyi-wu/RadFM"},
}
_DRAWN = "medtasks_tiny"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_READERS = 4


def model_facts(options: HarnessOptions) -> ModelFacts:
    """Return what is known about the model of a run.

    Local files are read once: their digests are kept under ``MEDTASKS_HOME`` by path, size and time of change.
    """
    name, arguments = options.text("model") or "hf", options.text("model_args")
    given = options.pairs("model_args")
    named = {**DEFAULTS.get(name, {}), **{key: value for key, value in given.items() if key in WEIGHTS and value}}
    found, unknown = {}, {}
    for key, value in named.items():
        try:
            found[key] = _fingerprint(value, given.get("revision") or "main")
        except (OSError, ValueError) as error:
            unknown[key] = f"{key}={_shown(value)}: {error}"
    if name == _DRAWN:
        unknown["model"] = "medtasks_tiny is drawn from its seed and has no weights on disk"
    elif not named:
        unknown["model"] = f"the model arguments name no weights (by {', '.join(WEIGHTS[:3])} ...)"
    joined = ", ".join(f"{key}={one}" if len(found) > 1 else one for key, one in found.items())
    return ModelFacts(
        name=name,
        arguments=redacted(arguments),
        weights=", ".join(_shown(value) for value in named.values()),
        fingerprint=None if unknown else joined,
        unknown="; ".join(unknown.values()),
    )


def _fingerprint(weights: str, revision: str) -> str:
    """Return the fingerprint of one path or name; the errors' texts say why there is none."""
    path = Path(weights).expanduser()
    if path.exists():
        try:
            return f"sha256:{files_sha256(path)}"
        except OSError as error:
            raise OSError(f"a file in it cannot be read ({error.strerror})") from error
    commit = snapshot_commit(weights, revision)
    if commit is None:
        raise ValueError(
            "it is no path on this machine, and the Hub's cache has no snapshot of it (a model behind an API has none)"
        )
    return f"commit:{commit}"


def files_sha256(path: Path) -> str:
    """Return the SHA-256 of a file, or of names and contents of all files in a folder, hidden ones left out."""
    if path.is_file():
        return _contents([path])[path]
    shown = (file for file in path.rglob("*") if not any(part.startswith(".") for part in file.relative_to(path).parts))
    files = sorted(file for file in shown if file.is_file())
    digests = _contents(files)
    lines = "".join(f"{digests[file]}  {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def snapshot_commit(repository: str, revision: str = "main") -> str | None:
    """Return the commit of a repository's snapshot in the Hub's cache on this machine; None if there is none.

    The ``revision`` is a branch, tag or commit.
    """
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    try:
        folder = Path(HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type="model")
        reference = folder / "refs" / revision
        commit = reference.read_text().strip() if reference.is_file() else revision
        return commit if _COMMIT.fullmatch(commit) and (folder / "snapshots" / commit).is_dir() else None
    except (OSError, ValueError):  # a name that no repository or no file can have is a ValueError
        return None


def _shown(value: str) -> str:
    """Return a name on the Hub as it is, and of a path on this machine the last part."""
    path = Path(value).expanduser()
    return redacted(path.resolve().name if path.exists() or path.is_absolute() else value)


def _contents(files: Iterable[Path]) -> dict[Path, str]:
    """Return the digest of each file, from the store where it has not changed."""
    store = home() / "weights_digests.json"
    known, keys = _read_store(store), {file: _key(file) for file in files}
    new = [file for file, key in keys.items() if key not in known]
    with ThreadPoolExecutor(_READERS) as pool:
        known |= dict(zip([keys[file] for file in new], pool.map(file_sha256, new), strict=True))
    if new:
        _write_store(store, known)
    return {file: known[key] for file, key in keys.items()}


def _key(file: Path) -> str:
    real = file.resolve()
    facts = real.stat()
    return json.dumps([str(real), facts.st_size, facts.st_mtime_ns])


def _read_store(store: Path) -> dict[str, str]:
    try:
        known = json.loads(store.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write_store(store: Path, known: Mapping[str, str]) -> None:
    """Write the digests beside and rename; where that is impossible, the next run reads the files again."""
    scratch = store.with_name(f".{store.name}.{os.getpid()}")
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        scratch.write_text(json.dumps(known, indent=0), encoding="utf-8")
        scratch.replace(store)
    except OSError:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)
