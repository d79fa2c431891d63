"""What decides about a model's answers beside the request, as a digest: weights, files, code, libraries, arguments."""

import dataclasses
import functools
import hashlib
import inspect
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from medtasks.net.journal import digest_of

from .arguments import HarnessArguments

# Say how a run is carried out, not what comes out. Of the device, only its type counts.
_NEUTRAL = {
    *("batch_size", "batch_tokens", "max_batch_size", "max_failed", "device", "journal"),
    *("feature_cache_mb", "prefix_cache_mb", "loglikelihood_format", "token_counts"),
    *("attempts", "concurrency", "timeout"),
}
_LIBRARIES = ("torch", "transformers", "pillow", "numpy")
_SAMPLED = 64
_READ_WHOLE = 2**24


def model_fingerprint(model_id: str, kind: type, arguments: HarnessArguments, device: str, weights: str) -> str:
    """Return a digest of everything about a model that may change an answer.

    The code of the adapters is part of it: whoever changes a preprocessing must not be served older answers.
    """
    decisive = {name: value for name, value in dataclasses.asdict(arguments).items() if name not in _NEUTRAL}
    versions = {name: metadata.version(name) for name in _LIBRARIES}
    return digest_of(model_id, kind.__qualname__, _code_digest(kind), versions, decisive, device, weights)


def weights_digest(owner: object) -> str:
    """Return a digest of the weights that an object holds in its attributes, from some values of every tensor.

    Two checkpoints of one architecture differ in almost all values, so a few of each tensor tell them apart.
    """
    digest = hashlib.sha256()
    for attribute, module in sorted(vars(owner).items()):
        if isinstance(module, nn.Module):
            for name, tensor in sorted(module.state_dict().items()):
                digest.update(f"{attribute}.{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
                if tensor.is_meta or tensor.numel() == 0:
                    continue
                flat = tensor.detach().reshape(-1)
                places = torch.linspace(0, len(flat) - 1, min(_SAMPLED, len(flat)), dtype=torch.float64).long()
                values: Any = flat[places.to(flat.device)].cpu().view(torch.uint8).numpy()
                digest.update(values.data)
    return digest.hexdigest()


def files_digest(arguments: HarnessArguments) -> str:
    """Return a digest of the files and folders that arguments name: content of small files, size of large ones."""
    digests = []
    prose = {field.name for field in dataclasses.fields(arguments) if field.metadata.get("prose")}
    for name, value in sorted(dataclasses.asdict(arguments).items()):
        if isinstance(value, str) and value and name not in _NEUTRAL | prose:
            path = Path(value).expanduser()
            files = sorted(path.iterdir()) if path.is_dir() else [path]
            for file in filter(Path.is_file, files):
                size = file.stat().st_size
                large = size > _READ_WHOLE
                digests.append((name, file.name, str(size) if large else hashlib.sha256(file.read_bytes()).hexdigest()))
    return digest_of(digests)


@functools.cache
def _code_digest(kind: type) -> str:
    """Return a digest of this package's code, and of the module of an adapter that lives elsewhere."""
    files = sorted(Path(__file__).parents[1].rglob("*.py"))
    own = inspect.getsourcefile(kind)
    files += [Path(own)] if own else []
    return digest_of([(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files])
