"""RadGraph in memory: words to wordpieces, wordpieces to vectors of words, and those to annotations."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from loguru import logger
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.encoder_batches import encoding, length_batches, padded, run_batches
from medtasks.metrics.neural.radgraph.annotations import Annotation, annotation
from medtasks.metrics.neural.radgraph.archive import Archive
from medtasks.metrics.neural.radgraph.network import SpanNetwork

# A processor's caches hold the activations of few texts; a GPU needs many to be busy.
_BATCH_SIZE, _BATCH_SIZE_ON_CPU = 64, 8
# What the encoder reads in place of two words; annotations keep the word. Source: ``DyGIEReader`` of the package.
READ_AS = {"/.": ".", "/?": "?"}
_PREFIX = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_UNUSED = "embeddings.position_ids"  # a buffer that older releases of transformers saved

Pieces = list[list[int]]


class WordEncoder:
    """RadGraph's encoder, whose vector of a word is the mean of what it says of the word's wordpieces.

    The archive names the folder with configuration and vocabulary, ``state`` are its tensors by name. A dtype of
    ``"bfloat16"`` runs it under autocast; vectors are float32 either way.
    """

    def __init__(self, archive: Archive, state: Mapping[str, Tensor], device: torch.device, dtype: str) -> None:
        folder = archive.encoder
        self._tokenizer = _tokenizer(folder)
        own = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items() if name.startswith(_PREFIX)}
        own.pop(_UNUSED, None)
        try:
            config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
            with init_empty_weights(include_buffers=False):  # random ones take time, and the process's random numbers
                self._model: Any = AutoModel.from_config(config)
            self._model.load_state_dict({name: tensor.float() for name, tensor in own.items()}, assign=True)
        except (OSError, ValueError, RuntimeError) as error:
            reason = f"{error}".partition("\n")[0]
            raise WeightsMissing(f"RadGraph's weights do not fit the encoder in {folder} ({reason})") from error
        known, size = len(self._tokenizer), int(self._model.get_input_embeddings().num_embeddings)
        sizes = f"the vocabulary in {folder} has {known} wordpieces, but the encoder in {archive.path} {size}"
        if known > size:
            raise WeightsMissing(sizes)
        if known < size:
            logger.warning("{}; if the vocabulary was cut short, scores are wrong", sizes)
        self._model.eval().to(device)
        self._device = device
        self._bfloat16 = dtype == "bfloat16"
        self._window = archive.max_length - 2

    def pieces(self, reports: Sequence[Sequence[str]]) -> list[Pieces]:
        """Return the wordpieces of each word of each report; a word may have none. Each word is tokenized once."""
        distinct = list({word for words in reports for word in words})
        # A lone half of a character pair, as in a reply cut within an emoji, cannot be tokenized.
        readable = [READ_AS.get(word, word).encode("utf-8", "replace").decode() for word in distinct]
        encoded = self._tokenizer(
            readable, add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False, verbose=False
        )
        known = dict(zip(distinct, encoded["input_ids"], strict=True))
        return [[known[word] for word in words] for words in reports]

    def vectors(self, reports: Sequence[Pieces], batch_size: int) -> Tensor:
        """Return one vector per word, shape (words of all reports, hidden), float32; zeros without wordpieces.

        The encoder sees reports, as :meth:`pieces` returns them, between [CLS] and [SEP], long ones in segments, which
        end after a number of pieces, within a word too; ``batch_size`` is the number of segments per pass.
        """
        first, last = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        segments = []
        for words in reports:
            flat = [piece for word in words for piece in word]
            segments += [[first, *flat[at : at + self._window], last] for at in range(0, len(flat), self._window)]
        counts = torch.tensor([len(word) for words in reports for word in words], device=self._device)
        sums = torch.zeros(len(counts), self._model.config.hidden_size, device=self._device)
        if segments:
            passes = (segments[at : at + batch_size] for at in range(0, len(segments), batch_size))
            pieces = torch.cat([self._encoded(some) for some in passes])
            owners = torch.repeat_interleave(torch.arange(len(counts), device=self._device), counts)
            sums.index_add_(0, owners, pieces)
        return sums / counts.clamp(min=1)[:, None]

    def _encoded(self, segments: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of all wordpieces but [CLS] and [SEP], in order, shape (pieces, hidden)."""
        ids, mask = padded(segments, 0, self._device)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            hidden: Tensor = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden[:, 1:-1][mask[:, 2:].bool()].float()  # a piece is what another one, or [SEP], follows


def _tokenizer(encoder: Path) -> Any:
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(str(encoder), local_files_only=True)
    except Exception as error:  # tokenizers raise bare Exceptions
        reason = f"{error}".partition("\n")[0]
        raise WeightsMissing(f"the encoder's vocabulary in {encoder} cannot be read ({reason})") from error
    # What transformers builds without a vocabulary, and says nothing.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise WeightsMissing(f"the encoder's vocabulary (vocab.txt or tokenizer.json) is missing from {encoder}")
    return tokenizer


class Annotator:
    """A loaded RadGraph."""

    def __init__(self, archive: Archive, settings: ModelSettings) -> None:
        self._device = settings.torch_device()
        self._batch_size = settings.batch_size or (_BATCH_SIZE_ON_CPU if self._device.type == "cpu" else _BATCH_SIZE)
        self._progress = settings.progress
        self._window = archive.max_length - 2
        contents = archive.read()
        self._encoder = WordEncoder(archive, contents.state, self._device, settings.dtype)
        self._network = SpanNetwork(archive, contents, self._device)

    def annotate(self, reports: Sequence[Sequence[str]]) -> Iterator[tuple[int, Annotation]]:
        """Annotate reports, given as words, at least one each; yield ``(position, annotation)``, the longest first."""
        pieces = self._encoder.pieces(reports)

        def run(batch: Sequence[int]) -> list[Annotation]:
            with encoding(self._device, "float32"):
                vectors = self._encoder.vectors([pieces[position] for position in batch], self._batch_size)
                predictions = self._network.predict(vectors, [len(reports[position]) for position in batch])
            both = zip(batch, predictions, strict=True)
            return [annotation(reports[position], prediction) for position, prediction in both]

        batches = length_batches([sum(map(len, words)) for words in pieces], self._batch_size, self._window)
        return run_batches(batches, run, description="RadGraph", progress=self._progress)
