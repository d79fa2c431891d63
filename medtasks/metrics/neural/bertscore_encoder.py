"""The encoder of BERTScore, and matches of the tokens of pairs of texts."""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
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
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]; a text without any other token is empty
_CPU_BATCH, _GPU_BATCH = 16, 128  # larger batches need more padding and gain nothing on a CPU
_WINDOW = 1 << 15  # tokens; their vectors take 100 MB at a width of 768


# Ids of reference and hypothesis, and the best cosine of each of their tokens.
Match = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32], NDArray[np.float32]]


class ContextualEncoder:
    """A BERT or RoBERTa encoder up to one layer, counted from 1; those above are not loaded."""

    def __init__(self, folder: Path, layer: int, settings: ModelSettings) -> None:
        self.device = settings.torch_device()
        self._dtype = settings.dtype
        fix = "fetch it again, or give another folder"
        with (
            explained(lambda kind, reason: f"{folder} cannot be read as an encoder ({kind}: {reason}); {fix}"),
            quiet(),
        ):
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            if config.model_type not in _FAMILIES:
                raise ValueError(f"it is a '{config.model_type}', BERTScore reads {' and '.join(_FAMILIES)}")
            if not 1 <= layer <= config.num_hidden_layers:
                raise ValueError(f"it has {config.num_hidden_layers} layers, layer {layer} is required")
            config.num_hidden_layers = layer
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            options = {"dtype": torch.float32, "add_pooling_layer": False, "output_loading_info": True}
            model, report = AutoModel.from_pretrained(folder, config=config, local_files_only=True, **options)
        absent = [*report["missing_keys"], *report["mismatched_keys"]]
        if absent:
            raise WeightsMissing(
                f"the weights in {folder} lack {len(absent)} tensors of the encoder, first {absent[0]}; {fix}"
            )
        self._model: Any = model.to(self.device).eval()
        self._prefix = " " if config.model_type == "roberta" else ""
        self._longest = longest_text(config, self._tokenizer)

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, stripped, between [CLS] and [SEP], cut at the model's maximum length.

        RoBERTa gets a space before the first word, as in ``bert-score``, whose option transformers 5 ignores.
        """
        # Tokenizers refuse half a surrogate pair, which a cut JSON escape leaves.
        stripped = [text.strip().encode("utf-8", "replace").decode() for text in texts]
        prefixed = [self._prefix + text if text else "" for text in stripped]
        ids: list[list[int]] = self._tokenizer(prefixed, truncation=True, max_length=self._longest)["input_ids"]
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
) -> Iterator[tuple[int, Match]]:
    """Match the tokens of pairs of texts, ``(reference, hypothesis)``; yield ``(position, match)`` in any order.

    Pairs of similar length form a window, whose vectors are computed once and then freed.
    """
    texts = list(dict.fromkeys(chain.from_iterable(pairs)))
    ids = dict(zip(texts, encoder.token_ids(texts), strict=True))

    def matched(position: int, cosines: Tensor) -> tuple[int, Match]:
        reference, hypothesis = (np.array(ids[text], dtype=np.int32) for text in pairs[position])
        return position, (reference, hypothesis, cosines.amax(dim=1).numpy(), cosines.amax(dim=0).numpy())

    pairs_of: dict[tuple[int, str], list[int]] = {}  # positions of pairs by number of the window, and text
    window = tokens = 0
    lengths = [tuple(len(ids[text]) for text in pair) for pair in pairs]
    for position in sorted(range(len(pairs)), key=lambda position: -max(lengths[position])):
        if min(lengths[position]) <= _SPECIAL_TOKENS:
            yield matched(position, torch.zeros(lengths[position]))
            continue
        for text in set(pairs[position]):
            pairs_of.setdefault((window, text), []).append(position)
        tokens += sum(lengths[position])
        if tokens >= _WINDOW:
            window, tokens = window + 1, 0
    queue = sorted(pairs_of)
    batches: list[list[int]] = []
    batch_size = settings.batch_size or (_CPU_BATCH if encoder.device.type == "cpu" else _GPU_BATCH)
    for _, group in groupby(range(len(queue)), lambda number: queue[number][0]):
        numbers = list(group)
        of_window = length_batches([len(ids[queue[number][1]]) for number in numbers], batch_size)
        batches += [[numbers[index] for index in batch] for batch in of_window]
    encoded = run_batches(
        batches,
        lambda batch: encoder.vectors([ids[queue[number][1]] for number in batch]),
        description="BERTScore",
        progress=settings.progress,
    )
    vectors: dict[str, Tensor] = {}
    for number, text_vectors in encoded:
        if queue[number][0] != window:
            vectors.clear()
        window, text = queue[number]
        vectors[text] = text_vectors
        for position in pairs_of[queue[number]]:
            reference, hypothesis = pairs[position]
            if reference in vectors and hypothesis in vectors:
                with encoding(encoder.device, "float32"):
                    cosines = (vectors[reference] @ vectors[hypothesis].T).cpu()
                yield matched(position, cosines)
