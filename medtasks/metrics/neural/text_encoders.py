"""Shared parts of metrics with an encoder: reading its files, batches of texts of similar length, and precision."""

import gc
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeVar

from loguru import logger

from medtasks.data.named_files import file_sha256
from medtasks.data.safe_parsing import parse_json
from medtasks.errors import MedTasksError, WeightsMissing
from medtasks.home import file_state
from medtasks.version import require

if TYPE_CHECKING:
    import torch

    Network = TypeVar("Network", bound=torch.nn.Module)

T = TypeVar("T")
# Options of transformers: nothing is downloaded, and code that comes with a checkpoint is not run, nor asked about.
LOCAL = {"local_files_only": True, "trust_remote_code": False}
# Entries of config.json by which transformers below 5.5 runs code all the same (CVE-2026-4372, CVE-2026-5241).
_RUNS_CODE = ("_attn_implementation_internal", "lightglue")


# Parts of torch have no type for running out of memory.
_OUT_OF_MEMORY = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")


def length_batches(
    lengths: Sequence[int],
    batch_size: int,
    window: int | None = None,
) -> list[list[int]]:
    """Group texts of similar length.

    The longest come first, so that memory runs out at once or never. No text is shorter than the longest of its batch
    by more than a tenth, or eight tokens.

    Args:
        lengths: Number of tokens of each text.
        batch_size: Most texts in one batch, at least 1. With a window it is the most segments.
        window: Tokens per segment of an encoder that reads long texts in segments. None for an encoder that reads
            every text at once.

    Returns:
        Positions of the texts of each batch.

    Raises:
        ValueError: ``batch_size`` is below 1.

    Example:
        >>> length_batches([5, 100, 98], batch_size=2)
        [[1, 2], [0]]
    """
    if batch_size < 1:
        raise ValueError(f"a batch holds at least one text, got batch_size={batch_size}")
    batches: list[list[int]] = []
    room = 0
    shortest = 0.0
    longest_first = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    for position in longest_first:
        length = lengths[position]
        segments = 1
        if window:
            segments = max(1, math.ceil(length / window))
            length = min(length, window)
        if segments > room or length < shortest or not batches:
            batches.append([])
            room = batch_size
            shortest = length - max(0.1 * length, 8)
        batches[-1].append(position)
        room -= segments
    return batches


def pad_rows(
    rows: Sequence[Sequence[int]],
    padding: int,
    device: "torch.device",
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the token ids of texts and their mask, both of shape (texts, longest).

    Args:
        rows: Token ids of each text.
        padding: Id of the padding token.
        device: Device of the result.

    Returns:
        Ids, and 1 for tokens and 0 for padding.
    """
    import torch

    tensors = [torch.tensor(row) for row in rows]
    ids = torch.nn.utils.rnn.pad_sequence(tensors, True, padding)
    lengths = torch.tensor(list(map(len, rows)))
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    return ids.to(device), mask.long().to(device)


def run_batches(
    batches: Sequence[Sequence[int]],
    run: Callable[[Sequence[int]], Sequence[T]],
    *,
    description: str,
    progress: bool,
) -> Iterator[tuple[int, T]]:
    """Run an encoder over batches.

    If memory runs out, the run goes on with halves of the batch, and with no larger batches from then on.

    Args:
        batches: Positions of the texts of each batch.
        run: Takes the positions of a batch and returns one result per position.
        description: Name of the model, for messages and the progress bar.
        progress: Whether to show a progress bar.

    Yields:
        ``(position, result)``.

    Raises:
        MedTasksError: Memory does not suffice for a single text.
    """
    from tqdm import tqdm

    waiting = list(map(list, reversed(batches)))
    largest = max(map(len, batches), default=0)
    with tqdm(
        total=sum(map(len, batches)), desc=description, unit=" texts", disable=not progress
    ) as bar:
        while waiting:
            batch = waiting.pop()
            if len(batch) > largest:
                waiting.append(batch[largest:])
                batch = batch[:largest]
            results = None
            try:
                results = run(batch)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
            if results is None:
                _free_memory()
                if len(batch) == 1:
                    raise MedTasksError(
                        f"{description}: memory does not suffice for a single text; free some, or set "
                        "MEDTASKS_METRICS_DEVICE=cpu"
                    )
                largest = (len(batch) + 1) // 2
                logger.warning(
                    "{}: memory ran out; going on with {} texts per batch",
                    description,
                    largest,
                )
                waiting.append(batch)
                continue
            yield from zip(batch, results, strict=True)
            bar.update(len(batch))


def _is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Return whether an error says that the memory of the machine or of its GPU does not suffice."""
    import torch

    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(message in str(error) for message in _OUT_OF_MEMORY)


def _free_memory() -> None:
    """Free the tensors in the frames of an error, which are free only after its handler."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def encoding(device: "torch.device", dtype: str) -> Iterator[None]:
    """Run an encoder without gradients.

    Args:
        device: Device of the encoder.
        dtype: ``"float32"``, or ``"bfloat16"`` by autocast.
    """
    import torch

    is_half = dtype == "bfloat16"
    with (
        _exact_products(),
        torch.inference_mode(),
        torch.autocast(device.type, torch.bfloat16, enabled=is_half),
    ):
        yield


@contextmanager
def _exact_products() -> Iterator[None]:
    """Keep products of float32 exact, even if an evaluated model has allowed TF32 or bfloat16 in this process."""
    import torch

    backends: Any = torch.backends
    if not hasattr(backends.cuda.matmul, "fp32_precision"):  # torch below 2.9
        precision = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
        return
    products = [backends.cuda.matmul, backends.mkldnn.matmul]
    before = [product.fp32_precision for product in products]
    try:
        for product in products:
            product.fp32_precision = "ieee"
        yield
    finally:
        for product, precision in zip(products, before, strict=True):
            product.fp32_precision = precision


def check_configuration(folder: Path) -> None:
    """Refuse a checkpoint whose configuration makes an old transformers run code.

    Args:
        folder: Folder of ``config.json``, which may be missing.

    Raises:
        MedTasksError: The configuration names such code, and transformers is too old.
    """
    file = folder / "config.json"
    if file.is_file():
        configuration = json.dumps(parse_json(file.read_text(encoding="utf-8")))
        if any(name in configuration for name in _RUNS_CODE):
            require("transformers", "5.5", f"{file} names code to run, and reading it")


@contextmanager
def weights_errors(sentence: Callable[[str, str], str]) -> Iterator[None]:
    """Raise WeightsMissing for any error but MemoryError and WeightsMissing itself, which pass through.

    Args:
        sentence: Makes the message of the error's type and its shortened text.
    """
    try:
        yield
    except (MemoryError, WeightsMissing):
        raise
    except Exception as error:  # damaged files raise errors of many kinds
        raise WeightsMissing(sentence(type(error).__name__, loading_fault(error))) from error


def loading_fault(error: Exception) -> str:
    """Describe an error of loading a checkpoint, briefly."""
    if "trust_remote_code" in str(error):
        return "it comes with code of its own, which is not run"
    if isinstance(error, KeyError):
        return f"no {error}"
    return shorten(str(error), 200, placeholder=" ...")


def present(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return the existing files, in the order of ``names``."""
    return [folder / name for name in names if (folder / name).is_file()]


def load_tensors(
    build: "Callable[[], Network]",
    state: "Mapping[str, torch.Tensor]",
) -> "Network":
    """Build a network with these tensors, in float32, for evaluation.

    Args:
        build: Builds the network. Its random weights are never drawn.
        state: Tensors by parameter of the network.

    Raises:
        ValueError: A tensor has a :func:`tensor_fault`.
        RuntimeError: The tensors do not fit the network.
    """
    from accelerate import init_empty_weights

    check_weights(state)
    # Drawing random weights takes time and changes the random state.
    with init_empty_weights(include_buffers=False):
        network = build()
    in_float32 = {name: tensor.float() for name, tensor in state.items()}
    network.load_state_dict(in_float32, assign=True)
    return network.eval()


def check_weights(state: "Mapping[str, torch.Tensor]") -> None:
    """Raise ValueError for the first tensor with a :func:`tensor_fault`."""
    for name, tensor in state.items():
        if fault := tensor_fault(tensor):
            raise ValueError(f"'{name}' {fault}")


def tensor_fault(tensor: "torch.Tensor") -> str:
    """Describe why stored numbers cannot be weights of a network, empty if they can."""
    import torch

    if tensor.layout is not torch.strided or tensor.is_complex() or tensor.is_quantized:
        return "is sparse, complex or quantised"
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return "holds numbers of 8 bits without their scale"
    if not torch.isfinite(tensor).all():
        return "holds values that are not finite"
    return ""


def check_vocabulary(
    entries: int,
    size: int,
    larger: str,
    smaller: str,
) -> None:
    """Compare the size of a vocabulary with that of the encoder, and log one with fewer entries.

    Args:
        entries: Entries of the vocabulary.
        size: Vectors of the encoder.
        larger: Message of the error.
        smaller: Message of the warning.

    Raises:
        WeightsMissing: The vocabulary has more entries than the encoder has vectors.
    """
    if entries > size:
        raise WeightsMissing(larger)
    if entries < size:
        logger.warning(smaller)


def longest_text(config: Any, tokenizer: Any) -> int:
    """Return the maximum input length of a BERT-family encoder, in tokens.

    Args:
        config: The encoder's configuration of transformers.
        tokenizer: The encoder's tokenizer.
    """
    # RoBERTa counts positions from its padding token's id + 1; a tokenizer without a length limit has 10^30.
    unused = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    return int(min(tokenizer.model_max_length, config.max_position_embeddings - unused))


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress transformers' progress bar and its table of unused layers."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def weights_digest(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of files, in this order.

    A file is read again if it may have changed.
    """
    digests = [_digest(path.resolve(), file_state(path)) for path in paths]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(path: Path, state: tuple[int, ...]) -> str:
    return file_sha256(path)
