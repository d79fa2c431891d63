"""Vectors of words: the mean of what the encoder says of their wordpieces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from medtasks.errors import WeightsMissing

_PREFIX = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_UNUSED = "embeddings.position_ids"  # a buffer that older releases of transformers saved


class WordEncoder:
    """RadGraph's encoder.

    Args:
        folder: Its configuration.
        state: Tensors of an archive by name.
        device: Where it runs.
        dtype: ``"bfloat16"`` runs it under autocast; vectors are float32 either way.

    Raises:
        WeightsMissing: The configuration cannot be read, or the tensors do not fit it.
    """

    def __init__(
        self,
        folder: Path,
        state: Mapping[str, Tensor],
        device: torch.device,
        dtype: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        from transformers import AutoConfig, AutoModel

        own = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items() if name.startswith(_PREFIX)}
        own.pop(_UNUSED, None)
        try:
            self._model: Any = AutoModel.from_config(AutoConfig.from_pretrained(str(folder), local_files_only=True))
            self._model.load_state_dict(own)
        except (OSError, ValueError, RuntimeError) as error:
            reason = f"{error}".partition("\n")[0]
            raise WeightsMissing(f"RadGraph's weights do not fit the encoder in {folder} ({reason})") from error
        self._model.eval().to(device)
        self._device = device
        self._bfloat16 = dtype == "bfloat16"

    @property
    def vocabulary_size(self) -> int:
        """Number of wordpieces the encoder knows."""
        return int(self._model.get_input_embeddings().num_embeddings)

    def vectors(self, segments: Sequence[Sequence[int]], pieces_per_word: Sequence[int], batch_size: int) -> Tensor:
        """Return one vector per word.

        Args:
            segments: Wordpieces between [CLS] and [SEP], in the order of the words; a segment may end within a word.
            pieces_per_word: How many wordpieces each word has, 0 or more, shape (words,).
            batch_size: Segments per pass.

        Returns:
            Shape (words, hidden), float32; zeros for a word without wordpieces.
        """
        counts = torch.tensor(pieces_per_word, device=self._device)
        sums = torch.zeros(len(counts), self._model.config.hidden_size, device=self._device)
        if segments:
            passes = (segments[at : at + batch_size] for at in range(0, len(segments), batch_size))
            pieces = torch.cat([self._pieces(some) for some in passes])
            words = torch.repeat_interleave(torch.arange(len(counts), device=self._device), counts)
            sums.index_add_(0, words, pieces)
        return sums / counts.clamp(min=1)[:, None]

    def _pieces(self, segments: Sequence[Sequence[int]]) -> Tensor:
        """Return the vectors of all wordpieces but [CLS] and [SEP], in order, shape (pieces, hidden)."""
        ids = pad_sequence([torch.tensor(segment) for segment in segments], batch_first=True)
        lengths = torch.tensor([len(segment) for segment in segments])[:, None]
        places = torch.arange(ids.shape[1])
        given, inner = places < lengths, (places > 0) & (places < lengths - 1)
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._bfloat16):
            hidden: Tensor = self._model(
                input_ids=ids.to(self._device), attention_mask=given.to(self._device)
            ).last_hidden_state
        return hidden[inner.to(self._device)].float()
