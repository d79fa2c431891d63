"""What metrics that run an encoder share: padded batches of like length, and its precision."""

import gc
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from loguru import logger

from medtasks.errors import MedTasksError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

_PADDING = 0.1  # of a batch's longest text
_ALWAYS_ALLOWED = 8  # tokens


def length_batches(lengths: Sequence[int], batch_size: int, window: int | None = None) -> list[list[int]]:
    """Put texts of like length, counted in tokens, together; return their positions.

    Texts of one length need the least padding; the longest come first, so that memory runs out at once or never. No
    text is shorter than the longest of its batch by more than a tenth, or eight tokens: among a few hundred reports the
    longest are so unlike that full batches would be a third padding. Equal lengths stay in the order of the input.

    ``batch_size`` is the most texts in one batch, at least 1; with a window, the tokens per segment of an encoder that
    reads a long text in segments, it is the most segments, unless a single text has more.

    Example:
        >>> length_batches([5, 9, 5, 7], 3), length_batches([3, 25, 4, 9], 3, window=10)
        ([[1, 3, 0], [2]], [[1], [3, 2, 0]])
    """
    if batch_size < 1:
        raise ValueError(f"a batch holds at least one text, got batch_size={batch_size}")
    batches: list[list[int]] = []
    room, shortest = 0, 0.0
    for position in sorted(range(len(lengths)), key=lambda position: -lengths[position]):
        length = min(lengths[position], window or lengths[position])
        segments = max(1, math.ceil(lengths[position] / window)) if window else 1
        if segments > room or length < shortest or not batches:
            batches.append([])
            room, shortest = batch_size, length - max(_PADDING * length, _ALWAYS_ALLOWED)
        batches[-1].append(position)
        room -= segments
    return batches


def padded(rows: Sequence[Sequence[int]], padding: int, device: "torch.device") -> "tuple[torch.Tensor, torch.Tensor]":
    """Return the token ids of texts and their mask, 1 for tokens and 0 for padding, both of shape (texts, longest)."""
    import torch

    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], True, padding)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    return ids.to(device), mask.long().to(device)


def run_batches(
    batches: Sequence[Sequence[int]], run: Callable[[Sequence[int]], Sequence[T]], *, description: str, progress: bool
) -> Iterator[tuple[int, T]]:
    """Run an encoder over batches; where memory runs out, over halves of them, and no larger ones from then on.

    Nothing that ``run`` computed before an error is lost to a caller who keeps each result as it comes.

    ``run`` takes the positions of a batch of :func:`length_batches` and returns one result per position. The progress
    bar, called ``description``, counts texts. Yields ``(position, result)``.
    """
    from tqdm import tqdm

    waiting = [list(batch) for batch in reversed(batches)]
    largest = max(map(len, batches), default=0)
    with tqdm(total=sum(map(len, batches)), desc=description, unit=" texts", disable=not progress) as bar:
        while waiting:
            batch = waiting.pop()
            if len(batch) > largest:
                batch, rest = batch[:largest], batch[largest:]
                waiting.append(rest)
            results = _run_or_none(run, batch)
            if results is None:
                if len(batch) == 1:
                    raise MedTasksError(
                        f"{description}: memory does not suffice for a single text; free some, or set "
                        "MEDTASKS_METRICS_DEVICE=cpu"
                    )
                largest = (len(batch) + 1) // 2
                logger.warning("{}: memory ran out; going on with {} texts per batch", description, largest)
                waiting.append(batch)
                continue
            yield from zip(batch, results, strict=True)
            bar.update(len(batch))


def _run_or_none(run: Callable[[Sequence[int]], Sequence[T]], batch: Sequence[int]) -> Sequence[T] | None:
    import torch

    try:
        return run(batch)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
    # Only here, with the error gone, are the tensors of its frames free.
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    # Parts of torch have no own type for it.
    told = ("CUBLAS_STATUS_ALLOC_FAILED", "DefaultCPUAllocator: can't allocate memory")
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(text in str(error) for text in told)


@contextmanager
def encoding(device: "torch.device", dtype: str) -> Iterator[None]:
    """Run an encoder without gradients, in the precision that the result will state.

    An evaluated model may have allowed TF32 or bfloat16 for products of float32 matrices in the whole process, which
    moves scores by more than the tolerance of their definition; while this lasts they are exact.

    ``dtype`` is ``"float32"``, or ``"bfloat16"`` for autocast, which leaves the outputs of norms in float32.
    """
    import torch

    # Two interfaces of torch that must not be mixed: the second came with 2.9.
    of_cpu: Any = getattr(torch.backends.mkldnn, "matmul", None)
    products: list[Any] = [torch.backends.cuda.matmul, of_cpu] if of_cpu is not None else []
    before = [product.fp32_precision for product in products] or [torch.get_float32_matmul_precision()]
    try:
        _set_products(products, ["ieee"] * len(products) or ["highest"])
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            yield
    finally:
        _set_products(products, before)


def _set_products(products: Sequence[Any], precisions: Sequence[str]) -> None:
    import torch

    if not products:
        torch.set_float32_matmul_precision(precisions[0])
    for product, precision in zip(products, precisions, strict=False):
        product.fp32_precision = precision
