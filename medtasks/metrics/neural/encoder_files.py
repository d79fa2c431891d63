"""What metrics that run an encoder share of reading it: errors, lengths, weights, and a fingerprint of its files."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medtasks.errors import WeightsMissing

if TYPE_CHECKING:
    import torch

    Network = TypeVar("Network", bound=torch.nn.Module)


@contextmanager
def explained(sentence: Callable[[str, str], str]) -> Iterator[None]:
    """Raise WeightsMissing for whatever reading a damaged or foreign file raises.

    ``sentence`` makes the message of the kind of that error and the first line of what it says.
    """
    try:
        yield
    except (MemoryError, WeightsMissing):
        raise
    except Exception as error:  # what a damaged file raises depends on where the damage is
        reason = f"no {error}" if isinstance(error, KeyError) else f"{error}".strip().partition("\n")[0]
        raise WeightsMissing(sentence(type(error).__name__, reason)) from error


def present(folder: Path, names: Iterable[str]) -> list[Path]:
    """Return those of the files that are there, in the order of their names."""
    return [folder / name for name in names if (folder / name).is_file()]


def empty(build: "Callable[[], Network]") -> "Network":
    """Return a network without weights: to draw random ones takes time, and the process's random numbers."""
    from accelerate import init_empty_weights

    with init_empty_weights(include_buffers=False):
        return build()


def filled(network: "Network", state: "Mapping[str, torch.Tensor]") -> "Network":
    """Give an empty network these tensors, in float32, for evaluation."""
    network.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
    return network.eval()


def check_vocabulary(known: int, size: int, larger: str, smaller: str) -> None:
    """Raise WeightsMissing for a vocabulary with more entries than the encoder has vectors, log one with fewer."""
    from loguru import logger

    if known > size:
        raise WeightsMissing(larger)
    if known < size:
        logger.warning(smaller)


def longest_text(config: Any, tokenizer: Any) -> int:
    """Return how many tokens of a text an encoder of the BERT family takes."""
    # RoBERTa counts positions from behind its padding token's id; a tokenizer without a stated length claims 10^30.
    behind = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    return int(min(tokenizer.model_max_length, config.max_position_embeddings - behind))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing a bar, and a table of the layers that are left out on purpose."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def weights_digest(paths: Sequence[Path]) -> str:
    """Return the SHA-256 of the bytes of files, one after the other, for the name of a cache.

    The 64 hexadecimal digits depend on the order of the files, but not on where they lie. A file is read once per
    process, again if its size or its time of change differ.
    """
    digests = [_digest(path.resolve(), path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


@lru_cache(maxsize=64)
def _digest(path: Path, changed: int, size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
