"""Reading published checkpoints strictly: every key is mapped or dropped by rule, and every parameter is filled.

transformers 5 tokenizes LLaMA models differently from the versions the published models were run with, and cannot read
their ``tokenizer.model`` next to lmms-eval at all. SentencePiece itself reproduces the old ids.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import sentencepiece
import torch
from accelerate import dispatch_model, infer_auto_device_map, init_empty_weights
from accelerate.utils import get_balanced_memory, get_max_memory
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from medtasks.data.safe_parsing import parse_json
from medtasks.errors import AdapterArgumentError, MedTasksError
from medtasks.metrics.neural.text_encoders import tensor_fault
from medtasks.version import check_unpickling

M = TypeVar("M", bound=nn.Module)
HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_TEXT_FILES = ("*.json", "*.model")
_WEIGHTS = ("*.safetensors", "*.bin")
"""In the order of preference; copies for other frameworks are never fetched."""
_SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
"""In the order of preference; an index of shards has the same name with ``.index.json``."""
Stored = tuple[Path, str, Tensor]
"""A tensor of a checkpoint with its file, for messages, and its key."""
Rename = Callable[[str], str | None]
"""From a stored key to a parameter's name, or None to drop it; raises KeyError for a key that is neither."""


class CheckpointError(MedTasksError):
    """A checkpoint is missing, damaged or not of the expected kind. The message names the file and the key."""


def read_json(file: Path, hint: str) -> dict[str, Any]:
    """Return the content of a configuration file.

    Raises:
        CheckpointError: The file is damaged, or it is missing; then the message ends with ``hint``.
    """
    if not file.is_file():
        raise CheckpointError(f"{file} is missing; {hint}")
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged; download it again") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{file} is damaged; download it again")
    return content


def stored_tensors(path: Path) -> Iterator[Stored]:
    """Yield the tensors of a checkpoint one by one, without reading it into memory as a whole.

    Args:
        path: A ``.safetensors``, ``.bin``, ``.pt`` or ``.pth`` file, or a folder with one such file or an index of
            shards.

    Raises:
        CheckpointError: A file is missing, damaged or of another kind.
    """
    if not path.exists():
        raise CheckpointError(
            f"{path} does not exist; give the file or folder of the downloaded checkpoint"
        )
    for file in _weight_files(path) if path.is_dir() else [path]:
        if file.suffix != ".safetensors":
            for key, tensor in _pickled_tensors(file).items():
                yield file, key, tensor
            continue
        try:
            with safe_open(file, framework="pt") as opened:
                for key in opened.keys():  # noqa: SIM118  # it is no mapping
                    yield file, key, opened.get_tensor(key)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{file} is truncated or damaged ({error}); download it again"
            ) from error


def _weight_files(folder: Path) -> list[Path]:
    """List the files with weights in a folder: the shards of its index, or a single file.

    Raises:
        CheckpointError: The index is damaged, a shard is missing, or there are no weights.
    """
    for single in _SINGLE_FILES:
        index = folder / f"{single}.index.json"
        if not index.is_file():
            continue
        try:
            names = sorted(map(str, {*parse_json(index.read_text())["weight_map"].values()}))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise CheckpointError(f"{index} is damaged; download it again") from error
        shards = [folder / name for name in names]
        for shard in shards:
            if not shard.is_file():
                raise CheckpointError(f"{shard} is missing; {index.name} lists it, download it")
        return shards
    for name in _SINGLE_FILES:
        if (folder / name).is_file():
            return [folder / name]
    raise CheckpointError(
        f"{folder} holds no model.safetensors, pytorch_model.bin or index of shards"
    )


def _pickled_tensors(file: Path) -> Mapping[str, Tensor]:
    """Open a torch checkpoint, whose tensors are read from disk where they are used.

    Raises:
        CheckpointError: The file is damaged, or holds something other than tensors by key.
    """
    check_unpickling(file)
    try:
        state: dict[Any, Any] = torch.load(
            file, map_location="cpu", mmap=True, weights_only=True
        )
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle raises errors of many kinds
        raise CheckpointError(
            f"{file} is truncated or no torch checkpoint; download it again"
        ) from error
    fault = CheckpointError(f"{file} holds no plain dictionary of tensors")
    if not isinstance(state, dict):
        raise fault
    for wrapper in ("model_state_dict", "state_dict"):
        if isinstance(state.get(wrapper), dict):
            state = state[wrapper]
    for key, tensor in state.items():
        if not isinstance(key, str) or not isinstance(tensor, Tensor):
            raise fault
    return state


def fill(
    module: nn.Module,
    path: Path,
    rename: Rename,
    dtype: torch.dtype,
) -> None:
    """Fill the parameters of a module from a checkpoint.

    Two stored keys may have the same destination if their tensors are equal: shared storage is saved twice. Buffers
    that the checkpoint does not hold (rotary tables) stay as they are.

    Args:
        module: May be on the meta device.
        path: File or folder of the checkpoint, see :func:`stored_tensors`.
        rename: From a stored key to a parameter's name.
        dtype: Type of the parameters afterwards.

    Raises:
        CheckpointError: A key is unknown, a tensor does not fit or is damaged, or a parameter is missing.
    """
    parameters: Mapping[str, Tensor] = dict(module.named_parameters())
    keys: dict[str, str] = {}  # of the checkpoint, by the parameter's name
    tensors: dict[str, Tensor] = {}
    for file, key, stored in stored_tensors(path):
        try:
            name = rename(key)
        except KeyError:
            raise CheckpointError(
                f"{file}: key '{key}' is unknown; is this another model's checkpoint?"
            ) from None
        if name is None:
            continue
        if name not in parameters:
            raise CheckpointError(
                f"{file}: key '{key}' leads to '{name}', which the model does not have"
            )
        if stored.shape != parameters[name].shape:
            shapes = f"{tuple(stored.shape)}, expected {tuple(parameters[name].shape)}"
            raise CheckpointError(
                f"{file}: key '{key}' has shape {shapes}; is this another model's checkpoint?"
            )
        fault = "holds no floating-point numbers"
        if stored.is_floating_point():
            fault = tensor_fault(stored)
        if fault:
            raise CheckpointError(f"{file}: key '{key}' {fault}; download the checkpoint again")
        tensor = stored.to(dtype)
        if name in tensors and not torch.equal(tensors[name], tensor):
            raise CheckpointError(
                f"{file}: keys '{keys[name]}' and '{key}' should be equal and are not"
            )
        keys[name] = key
        tensors[name] = tensor
    refuse_missing(path, set(parameters) - set(tensors))
    module.load_state_dict(tensors, strict=False, assign=True)
    module.requires_grad_(False)


def layer_numbers(prefix: str, keys: Iterable[str]) -> set[int]:
    """Return the numbers that follow a prefix in keys.

    Example:
        >>> sorted(layer_numbers("layers.", ["layers.0.weight", "layers.1.weight", "norm.weight"]))
        [0, 1]
    """
    pattern = re.compile(re.escape(prefix) + r"(\d+)\.")
    matches = map(pattern.match, keys)
    return {int(match[1]) for match in matches if match}


def by_patterns(unused: str, used: str, name: str = r"\g<0>") -> Rename:
    r"""Build a renaming by patterns for whole keys.

    Args:
        unused: Keys that the model does not need.
        used: Keys of parameters.
        name: The parameter's name, with groups of ``used`` as in ``re.Match.expand``.

    Example:
        >>> rename = by_patterns(r"ema\..+", r"model\.(.+)", r"\1")
        >>> rename("model.head.weight"), rename("ema.head.weight")
        ('head.weight', None)
    """

    def rename(key: str) -> str | None:
        if re.fullmatch(unused, key):
            return None
        if match := re.fullmatch(used, key):
            return match.expand(name)
        raise KeyError(key)

    return rename


def refuse_missing(
    path: object,
    missing: Collection[str],
    more: str = "more",
) -> None:
    """Check that nothing is missing in a checkpoint.

    Args:
        path: File or folder, for the message.
        missing: Names that should be there.
        more: Noun for the names beyond the first.

    Raises:
        CheckpointError: Something is missing. The message names the first, and how many ``more``.
    """
    if missing:
        others = f" and {len(missing) - 1} {more}" if len(missing) > 1 else ""
        raise CheckpointError(
            f"{path} lacks '{min(missing)}'{others}; is the checkpoint complete?"
        )


def published_folder(
    name: str,
    argument: str,
    *,
    weights: bool = True,
) -> Path:
    """Return a local folder, or download it from the hub (or its cache) where no such folder exists.

    Args:
        name: Folder, or id on the hub.
        argument: The model argument that names it, for messages.
        weights: Without them only configuration and tokenizer files are fetched.

    Raises:
        CheckpointError: There is neither a folder nor a repository with weights.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if not HUB_ID.fullmatch(name):
        raise CheckpointError(
            f"{name} is no folder; give {argument}=<folder of the downloaded files> or a hub id"
        )

    def download(*patterns: str) -> Path:
        fetch = partial(snapshot_download, name, allow_patterns=[*_TEXT_FILES, *patterns])
        return from_hub(fetch, name, "folder", "it", argument)

    if not weights:
        return download()
    for pattern in _WEIGHTS:
        downloaded = download(pattern)
        if any(downloaded.glob(pattern)):
            return downloaded
    raise CheckpointError(
        f"{name} on the hub holds no weights; give {argument}=<folder of the downloaded files>"
    )


def from_hub(
    fetch: Callable[[], str],
    name: str,
    kind: str,
    content: str,
    argument: str,
) -> Path:
    """Return the path of a download.

    Args:
        fetch: Downloads and returns a path.
        name: Id on the hub, for the message.
        kind: "file" or "folder", for the message.
        content: What the hub should have delivered, for the message.
        argument: The model argument that could name a local copy, for the message.

    Raises:
        CheckpointError: The download failed.
    """
    try:
        return Path(fetch())
    except (OSError, HFValidationError) as error:
        raise CheckpointError(
            f"{name} is neither a {kind} nor could the hub deliver {content} ({type(error).__name__}); download it and "
            f"give {argument}=<{kind}>"
        ) from error


def on_meta(build: Callable[[], M]) -> M:
    """Build a module on the meta device, but with real buffers, so that rotary frequencies stay float32."""
    with init_empty_weights(include_buffers=False):
        return build().eval()


class SentencePieceText:
    """A SentencePiece model with added tokens that it does not know.

    A file that is no such model is a ``MedTasksError``. Text is split at added tokens; every piece in between is
    encoded by itself, so that each begins with the model's leading blank. ``strip_around_added`` drops white space next
    to added tokens (transformers' slow tokenizers up to 4.28).
    """

    def __init__(
        self,
        model_file: Path,
        added: Mapping[str, int],
        *,
        strip_around_added: bool = False,
    ) -> None:
        if not model_file.is_file():
            raise MedTasksError(
                f"{model_file} is missing; put the checkpoint's tokenizer.model there"
            )
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(model_file.read_bytes())
        except (RuntimeError, TypeError) as error:
            raise MedTasksError(
                f"{model_file} is no SentencePiece model; download it again"
            ) from error
        self._added = added
        self._strip = strip_around_added
        names = sorted(added, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")")

    @property
    def vocabulary(self) -> int:
        """Number of pieces, added tokens not counted."""
        return int(self._model.GetPieceSize())

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, without begin or end of sequence."""
        ids: list[int] = []
        parts = self._split.split(text)
        for number, part in enumerate(parts):
            if part in self._added:
                ids.append(self._added[part])
                continue
            if self._strip:
                part = part.lstrip() if number > 0 else part
                part = part.rstrip() if number < len(parts) - 1 else part
            if part:
                ids += self._model.EncodeAsIds(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, without control pieces, the unknown piece and added tokens."""
        unknown = self._model.unk_id()
        pieces = []
        for token in ids:
            is_piece = token < self.vocabulary and token != unknown
            if is_piece and not self._model.IsControl(token):
                pieces.append(token)
        return str(self._model.DecodeIds(pieces))


def check_device_map(
    device_map: str | None,
    device: torch.device,
    processes: int,
    model: str,
) -> None:
    """Check that a model can be spread over GPUs, before weights are read.

    Args:
        device_map: The argument; ``None`` spreads nothing.
        device: Device of this process.
        processes: Number of processes.
        model: Name of the model, for messages.

    Raises:
        AdapterArgumentError: There are several processes, or the device is not the first GPU.
    """
    if device_map is not None and (processes > 1 or device.type != "cuda" or device.index):
        raise AdapterArgumentError(
            f"{model}: device_map='{device_map}' spreads a model over the GPUs of one process, from the first on; here "
            f"{processes} process(es) run on {device}: leave device_map out, or start one process without 'device' and "
            f"choose the GPUs with CUDA_VISIBLE_DEVICES."
        )


def place(
    network: M,
    language: Any,
    device: torch.device,
    device_map: str | None,
    model: str,
) -> M:
    """Put a network on a device, or spread the layers of its language model evenly over the GPUs, in order.

    No layer is cut. Types stay as they are, so that rotary frequencies remain float32.

    Args:
        network: The whole model.
        language: Its language model, or ``network`` itself.
        device: Device of the other parts, and of the inputs.
        device_map: ``None`` puts everything on ``device``.
        model: Name of the model, for messages.

    Raises:
        AdapterArgumentError: The GPUs have too little memory.
    """
    if device_map is None:
        return network.to(device)
    for part in network.children():
        if part is not language and network is not language:
            part.to(device)
    # Free memory is measured after the other parts have taken theirs of the first GPU.
    memory = {gpu: free for gpu, free in get_max_memory().items() if isinstance(gpu, int)}
    whole = sorted(language._no_split_modules)
    balanced = get_balanced_memory(
        language, max_memory=dict(memory), no_split_module_classes=whole
    )
    limits = {gpu: balanced[gpu] for gpu in memory}
    parts = infer_auto_device_map(language, max_memory=limits, no_split_module_classes=whole)
    if not memory.keys() >= set(parts.values()):
        raise AdapterArgumentError(
            f"{model}: device_map='auto' finds {sum(memory.values()) / 2**30:.1f} GiB free on {len(memory)} GPU(s), "
            f"too little for this model; free some, use more GPUs, or give dtype=bfloat16."
        )
    skipped = sorted(language._skip_keys_device_placement or ())
    # Outputs return to the device of the inputs.
    dispatch_model(language, dict(parts), skip_keys=skipped, force_hooks=True)
    return network
