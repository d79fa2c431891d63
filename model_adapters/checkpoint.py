"""Reading published checkpoints strictly: every key mapped or dropped by rule, every parameter filled."""

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from medtasks.errors import MedTasksError

Rename = Callable[[str], str | None]
"""From a stored key to a parameter's name, or None to drop it; raises KeyError for a key that is neither."""


class CheckpointError(MedTasksError):
    """A checkpoint is missing, damaged or not of the expected kind."""


def stored_tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint one by one, without reading it into memory as a whole.

    Args:
        path: A ``.safetensors``, ``.bin``, ``.pt`` or ``.pth`` file, or a folder with one such file or an index of
            shards.

    Raises:
        CheckpointError: A file is missing, truncated or holds no tensors; the message names it.
    """
    for file in _files(path):
        yield from _safetensors(file) if file.suffix == ".safetensors" else _torch_file(file)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise CheckpointError(f"{path} does not exist; give the file or folder of the downloaded checkpoint")
    for index in (path / "model.safetensors.index.json", path / "pytorch_model.bin.index.json"):
        if index.is_file():
            try:
                names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
            except (ValueError, KeyError, AttributeError) as error:
                raise CheckpointError(f"{index} is damaged; download it again") from error
            missing = [name for name in names if not (path / name).is_file()]
            if missing:
                raise CheckpointError(f"{path / missing[0]} is missing; {index.name} lists it, download it")
            return [path / name for name in names]
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return [path / name]
    raise CheckpointError(f"{path} holds no model.safetensors, pytorch_model.bin or index of shards")


def _safetensors(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(file, framework="pt") as opened:
            for key in opened.keys():  # noqa: SIM118  # it is no mapping
                yield key, opened.get_tensor(key)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is truncated or damaged ({error}); download it again") from error


def _torch_file(file: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        state = torch.load(file, map_location="cpu", mmap=True, weights_only=True)
    except (RuntimeError, OSError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{file} is truncated or no torch checkpoint; download it again") from error
    for wrapper in ("model_state_dict", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise CheckpointError(f"{file} holds no plain dictionary of tensors")
    yield from state.items()


def located_tensors(path: Path) -> Iterator[tuple[Path, str, torch.Tensor]]:
    """Yield what :func:`stored_tensors` does, each with the file it stands in, for messages."""
    for file in _files(path):
        for key, tensor in stored_tensors(file):
            yield file, key, tensor


def fill(module: nn.Module, path: Path, rename: Rename, dtype: torch.dtype) -> None:
    """Fill the parameters of ``module`` (which may be on the meta device) from a checkpoint.

    Two stored keys may have the same destination if their tensors are equal: shared storage is saved twice. Buffers
    that the checkpoint does not hold (rotary tables) stay as they are.

    Args:
        module: Target; names as in ``state_dict()``.
        path: See :func:`stored_tensors`.
        rename: From stored key to parameter name.
        dtype: Type of the parameters.

    Raises:
        CheckpointError: A key is unknown, missing, of another shape, or stored twice with different values.
    """
    fill_from(module, located_tensors(path), path, rename, dtype)


def fill_from(
    module: nn.Module,
    tensors: Iterable[tuple[Path, str, torch.Tensor]],
    path: Path,
    rename: Rename,
    dtype: torch.dtype,
) -> None:
    """Do the same as :func:`fill` with tensors that were changed on their way, as by adding a delta.

    Args:
        module: Target.
        tensors: File, key and tensor, see :func:`located_tensors`.
        path: The checkpoint as a whole, for messages.
        rename: From stored key to parameter name.
        dtype: Type of the parameters.

    Raises:
        CheckpointError: As of :func:`fill`.
    """
    wanted: Mapping[str, torch.Tensor] = dict(module.named_parameters())
    found: dict[str, tuple[str, torch.Tensor]] = {}
    for file, key, tensor in tensors:
        name = _destination(file, key, rename)
        if name is None:
            continue
        if name not in wanted:
            raise CheckpointError(f"{file}: key '{key}' leads to '{name}', which the model does not have")
        if tensor.shape != wanted[name].shape:
            shapes = f"{tuple(tensor.shape)}, expected {tuple(wanted[name].shape)}"
            raise CheckpointError(f"{file}: key '{key}' has shape {shapes}; is this another model's checkpoint?")
        if name in found and not torch.equal(found[name][1], tensor.to(dtype)):
            raise CheckpointError(f"{file}: keys '{found[name][0]}' and '{key}' should be equal and are not")
        found[name] = (key, tensor.to(dtype))
    missing = sorted(set(wanted) - set(found))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CheckpointError(f"{path} lacks '{missing[0]}'{more}; is the checkpoint complete?")
    module.load_state_dict({name: tensor for name, (_, tensor) in found.items()}, strict=False, assign=True)
    module.requires_grad_(False)


def _destination(path: Path, key: str, rename: Rename) -> str | None:
    try:
        return rename(key)
    except KeyError:
        raise CheckpointError(f"{path}: key '{key}' is unknown; is this another model's checkpoint?") from None
