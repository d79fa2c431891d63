"""What CheXbert says of texts: 14 findings and one vector each, from one pass, kept on disk."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from loguru import logger
from numpy.typing import NDArray

from medtasks.errors import WeightsMissing
from medtasks.metrics.chexbert.checkpoint import ChexbertFiles, find_files
from medtasks.metrics.chexbert.conditions import CONDITIONS
from medtasks.metrics.encoder_batches import encoding, length_batches, run_batches
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.text_cache import TextCache, text_key

if TYPE_CHECKING:
    import torch

_VERSION = 1  # raised when the same text and weights would give another reading
_CPU_BATCH, _GPU_BATCH = 16, 256
_KEPT_AT_ONCE = 512


@dataclass(frozen=True, eq=False)
class Reading:
    """What CheXbert says of one text.

    Attributes:
        classes: A :class:`~medtasks.metrics.chexbert.conditions.Finding` per condition, shape (14,).
        vector: The encoder's [CLS] vector, float32, shape (hidden size,).
    """

    classes: tuple[int, ...]
    vector: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """Return one byte per class, then the vector."""
        return bytes(self.classes) + self.vector.astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, value: bytes) -> "Reading":
        """Return what :meth:`to_bytes` wrote."""
        count = len(CONDITIONS)
        return cls(tuple(value[:count]), np.frombuffer(value, dtype="<f4", offset=count))


def prepare(text: str) -> str:
    r"""Return a text as CheXbert's tokeniser gets it: every run of white space, line ends included, one space.

    Source: ``get_impressions_from_pandas`` in ``src/bert_tokenizer.py`` of CheXbert. Halves of surrogate pairs, which
    no tokeniser takes, are left out.

    Example:
        >>> prepare("  No edema.\n\tHeart size normal. ")
        'No edema. Heart size normal.'
    """
    return " ".join(text.split()).encode("utf-8", "ignore").decode("utf-8")


class Chexbert:
    """Reads texts with CheXbert, each distinct text once.

    The network is loaded when a text is not in the cache, and let go of when all are read.

    Args:
        settings: How it is run; see :func:`~medtasks.metrics.chexbert.checkpoint.find_files` for its weights.

    Attributes:
        settings: As given.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings

    def __call__(self, texts: Sequence[str]) -> list[Reading]:
        """Read texts.

        Args:
            texts: Texts as they are, shape (texts,). An empty one is read as a report without words; of a long one the
                encoder sees the beginning, 512 tokens with [CLS] and [SEP].

        Returns:
            One reading per text, in the order of the input; it does not depend on the other texts.

        Raises:
            WeightsMissing: Weights are not on this machine, or damaged.
            MedTasksError: The device cannot be used, or its memory is too small for one text.
        """
        prepared = [prepare(text) for text in texts]
        files = find_files(self.settings)
        cache = TextCache(self.settings.cache, f"chexbert {_VERSION} {files.fingerprint} {self.settings.dtype}")
        by_key = {text_key(text): text for text in prepared}
        known = {key: Reading.from_bytes(value) for key, value in cache.get(list(by_key)).items()}
        missing = {key: text for key, text in by_key.items() if key not in known}
        if missing:
            known.update(_read(missing, files, self.settings, cache))
        return [known[text_key(text)] for text in prepared]


def _read(
    texts: Mapping[bytes, str], files: ChexbertFiles, settings: ModelSettings, cache: TextCache
) -> dict[bytes, Reading]:
    from medtasks.metrics.chexbert.network import load_network, read_config

    device = settings.torch_device()
    config = read_config(files)
    tokens = _tokenise(list(texts.values()), files, config)
    network = load_network(files, config).to(device)

    def run(positions: Sequence[int]) -> list[Reading]:
        ids, mask = _padded([tokens[position] for position in positions], config.pad_token_id)
        with encoding(device, settings.dtype):
            vectors = network(ids.to(device), mask.to(device))
        with encoding(device, "float32"):
            classes = network.classes(vectors)
        rows = zip(classes.tolist(), vectors.cpu().numpy(), strict=True)
        return [Reading(tuple(found), vector) for found, vector in rows]

    size = settings.batch_size or (_CPU_BATCH if device.type == "cpu" else _GPU_BATCH)
    batches = length_batches([len(ids) for ids in tokens], size)
    keys, found, unsaved = list(texts), dict[bytes, Reading](), dict[bytes, bytes]()
    try:
        for position, reading in run_batches(batches, run, description="CheXbert", progress=settings.progress):
            found[keys[position]] = reading
            unsaved[keys[position]] = reading.to_bytes()
            if len(unsaved) >= _KEPT_AT_ONCE:
                cache.put(unsaved)
                unsaved = {}
    finally:
        cache.put(unsaved)
    return found


def _tokenise(texts: Sequence[str], files: ChexbertFiles, config: Any) -> list[list[int]]:
    from transformers import BertTokenizer

    again = "remove the folder and run 'medtasks weights fetch bert-base-uncased'"
    try:
        tokenizer = BertTokenizer.from_pretrained(files.encoder, local_files_only=True)
    except Exception as error:  # what a damaged file raises depends on where the damage is
        raise WeightsMissing(
            f"the vocabulary in {files.encoder} is damaged ({type(error).__name__}); {again}"
        ) from error
    sizes = f"the vocabulary in {files.encoder} has {len(tokenizer)} entries, its config.json {config.vocab_size}"
    if len(tokenizer) > config.vocab_size:
        raise WeightsMissing(f"{sizes}; {again}")
    if len(tokenizer) < config.vocab_size:
        logger.warning("{}; if it was cut short, labels are wrong: {}", sizes, again)
    encoded = tokenizer(list(texts), truncation=True, max_length=config.max_position_embeddings)
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def _padded(rows: Sequence[Sequence[int]], padding: int) -> "tuple[torch.Tensor, torch.Tensor]":
    """Return token ids and their mask, shape (texts, longest)."""
    import torch

    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), padding, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens)] = 1
    return ids, mask
