"""The encoder behind BERTScore: texts to unit vectors of one layer, and pairs of texts to matches of their tokens.

Every text is encoded once, and the vectors of few texts are in memory at a time.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.bertscore import SPECIAL_TOKENS, TokenMatches
from medtasks.metrics.neural.text_encoders import (
    encoding,
    explained,
    length_batches,
    longest_text,
    padded,
    quiet,
    run_batches,
)

_FAMILIES = ("bert", "roberta")
_CPU_BATCH, _GPU_BATCH = 16, 128  # a CPU gains nothing from more, which need more padding
_WINDOW = 1 << 17  # tokens; their vectors take 400 MB at a width of 768

Pair = tuple[int, int]


class ContextualEncoder:
    """A BERT or RoBERTa encoder up to one layer, counted from 1; those above are not loaded.

    The folder is as :func:`medtasks.metrics.neural.bertscore.encoder_digest` takes it.
    """

    def __init__(self, folder: Path, layer: int, settings: ModelSettings) -> None:
        self.device = settings.torch_device()
        self._dtype = settings.dtype
        again = "fetch it anew, or give another folder"
        with (
            explained(lambda kind, reason: f"{folder} cannot be read as an encoder ({kind}: {reason}); {again}"),
            quiet(),
        ):
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            if config.model_type not in _FAMILIES:
                raise ValueError(f"it is a '{config.model_type}', BERTScore reads {' and '.join(_FAMILIES)}")
            if not 1 <= layer <= config.num_hidden_layers:
                raise ValueError(f"it has {config.num_hidden_layers} layers, layer {layer} is wanted")
            config.num_hidden_layers = layer
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            options = {"dtype": torch.float32, "add_pooling_layer": False, "output_loading_info": True}
            model, report = AutoModel.from_pretrained(folder, config=config, local_files_only=True, **options)
        absent = [*report["missing_keys"], *report["mismatched_keys"]]
        if absent:
            raise WeightsMissing(
                f"the weights in {folder} lack {len(absent)} tensors of the encoder, first {absent[0]}; fetch them anew"
            )
        self._model: Any = model.to(self.device).eval()
        self._prefix = " " if config.model_type == "roberta" else ""
        self._longest = longest_text(config, self._tokenizer)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, stripped, between [CLS] and [SEP], cut at the length that the model takes.

        RoBERTa gets a space before the first word, so that it is read like any other word; ``bert-score`` asks for the
        same, which transformers 5 no longer listens to.
        """
        # Half a surrogate pair, as a cut JSON escape leaves it, is no text to a tokenizer.
        stripped = [text.strip().encode("utf-8", "replace").decode() for text in texts]
        given = [self._prefix + text if text else "" for text in stripped]
        ids: list[list[int]] = self._tokenizer(given, truncation=True, max_length=self._longest)["input_ids"]
        return ids

    def vectors(self, batch: Sequence[Sequence[int]]) -> list[Tensor]:
        """Return the unit vectors of each text's tokens, float32 of shape (tokens, width), on the encoder's device."""
        ids, mask = padded(batch, self._tokenizer.pad_token_id, self.device)
        with encoding(self.device, self._dtype):
            hidden = self._model(ids, attention_mask=mask).last_hidden_state
            unit = torch.nn.functional.normalize(hidden.float(), dim=-1)
        return [vectors[: len(row)].clone() for vectors, row in zip(unit, batch, strict=True)]


def match_pairs(
    encoder: ContextualEncoder, pairs: Sequence[tuple[str, str]], settings: ModelSettings
) -> Iterator[tuple[int, TokenMatches]]:
    """Match the tokens of pairs of texts, ``(reference, hypothesis)``; yield ``(position, matches)`` in any order."""
    texts = list(dict.fromkeys(chain.from_iterable(pairs)))
    places = {text: place for place, text in enumerate(texts)}
    ids = encoder.token_ids(texts)
    placed = [(places[reference], places[hypothesis]) for reference, hypothesis in pairs]
    full = []
    for position, (reference, hypothesis) in enumerate(placed):
        if min(len(ids[reference]), len(ids[hypothesis])) > SPECIAL_TOKENS:
            full.append(position)
        else:
            nothing = torch.zeros(len(ids[reference]), len(ids[hypothesis]))
            yield position, _matches(ids[reference], ids[hypothesis], nothing)
    waiting = _PairsInWaiting(placed, full)
    batch_size = settings.batch_size or (_CPU_BATCH if encoder.device.type == "cpu" else _GPU_BATCH)
    encoded = run_batches(
        _batches(placed, full, [len(text) for text in ids], batch_size),
        lambda batch: encoder.vectors([ids[place] for place in batch]),
        description="BERTScore",
        progress=settings.progress,
    )
    for place, vectors in encoded:
        for position, reference_vectors, hypothesis_vectors in waiting.arrived(place, vectors):
            reference, hypothesis = placed[position]
            with encoding(encoder.device, "float32"):
                cosines = (reference_vectors @ hypothesis_vectors.T).cpu()
            yield position, _matches(ids[reference], ids[hypothesis], cosines)


def _matches(reference: Sequence[int], hypothesis: Sequence[int], cosines: Tensor) -> TokenMatches:
    first, second = (np.array(ids, dtype=np.int32) for ids in (reference, hypothesis))
    return TokenMatches(first, second, cosines.amax(dim=1).numpy(), cosines.amax(dim=0).numpy())


def _batches(placed: Sequence[Pair], full: Sequence[int], lengths: Sequence[int], batch_size: int) -> list[list[int]]:
    """Order texts so that both of a pair come soon after each other and a batch needs little padding."""
    order = sorted(full, key=lambda position: -max(lengths[place] for place in placed[position]))
    windows: list[list[int]] = [[]]
    seen: set[int] = set()
    tokens = 0
    for position in order:
        for place in placed[position]:
            if place not in seen:
                seen.add(place)
                windows[-1].append(place)
                tokens += lengths[place]
        if tokens >= _WINDOW:
            windows.append([])
            tokens = 0
    return [
        [window[index] for index in batch]
        for window in windows
        for batch in length_batches([lengths[place] for place in window], batch_size)
    ]


class _PairsInWaiting:
    """Holds the vectors of a text until the last pair it belongs to is done."""

    def __init__(self, placed: Sequence[Pair], full: Sequence[int]) -> None:
        self._placed = placed
        self._vectors: dict[int, Tensor] = {}
        self._pairs: dict[int, set[int]] = {}
        for position in full:
            for place in placed[position]:
                self._pairs.setdefault(place, set()).add(position)

    def arrived(self, place: int, vectors: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Take in one text; yield the pairs that are complete now."""
        self._vectors[place] = vectors
        for position in sorted(self._pairs[place]):
            reference, hypothesis = self._placed[position]
            if reference in self._vectors and hypothesis in self._vectors:
                yield position, self._vectors[reference], self._vectors[hypothesis]
                for done in {reference, hypothesis}:
                    self._pairs[done].remove(position)
                    if not self._pairs[done]:
                        del self._vectors[done]
