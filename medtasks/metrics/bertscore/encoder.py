"""The encoder behind BERTScore: texts to token ids, token ids to unit vectors of one layer."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.utils import logging

from medtasks.errors import WeightsMissing
from medtasks.metrics.encoder_batches import encoding
from medtasks.metrics.model_settings import ModelSettings

_FAMILIES = ("bert", "roberta")


class ContextualEncoder:
    """A BERT or RoBERTa encoder up to one layer; ``device`` is where it runs.

    Args:
        folder: As :func:`medtasks.metrics.bertscore.encoder_files.encoder_digest` takes it.
        layer: Layer whose output is used, counted from 1; those above are not loaded.
        settings: Device and dtype.

    Raises:
        WeightsMissing: The folder does not hold such an encoder, or not all its weights.
    """

    def __init__(self, folder: Path, layer: int, settings: ModelSettings) -> None:
        self.device = settings.torch_device()
        self._dtype = settings.dtype
        try:
            with _quiet():
                config = AutoConfig.from_pretrained(folder, local_files_only=True)
                _check_config(config, layer)
                config.num_hidden_layers = layer
                self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
                model, report = AutoModel.from_pretrained(
                    folder,
                    config=config,
                    local_files_only=True,
                    add_pooling_layer=False,
                    dtype=torch.float32,
                    output_loading_info=True,
                )
        except Exception as error:  # transformers, tokenizers and safetensors raise kinds of their own
            reason = str(error).strip().partition("\n")[0]
            raise WeightsMissing(
                f"{folder} cannot be read as an encoder ({type(error).__name__}: {reason}); fetch it anew, or give "
                "another folder"
            ) from error
        absent = [*report["missing_keys"], *report["mismatched_keys"]]
        if absent:
            raise WeightsMissing(
                f"the weights in {folder} lack {len(absent)} tensors of the encoder, first {absent[0]}; fetch them anew"
            )
        self._model: Any = model.to(self.device).eval()
        self._prefix = " " if config.model_type == "roberta" else ""
        self._longest = _longest_input(config, self._tokenizer)

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
        texts = [torch.tensor(ids) for ids in batch]
        padded = pad_sequence(texts, batch_first=True, padding_value=self._tokenizer.pad_token_id).to(self.device)
        lengths = torch.tensor([len(ids) for ids in batch], device=self.device)
        mask = torch.arange(padded.shape[1], device=self.device) < lengths[:, None]
        with encoding(self.device, self._dtype):
            hidden = self._model(padded, attention_mask=mask.long()).last_hidden_state
            unit = torch.nn.functional.normalize(hidden.float(), dim=-1)
        return [vectors[: len(ids)].clone() for vectors, ids in zip(unit, batch, strict=True)]


def _check_config(config: Any, layer: int) -> None:
    if config.model_type not in _FAMILIES:
        raise ValueError(f"it is a '{config.model_type}', BERTScore reads {' and '.join(_FAMILIES)}")
    if not 1 <= layer <= config.num_hidden_layers:
        raise ValueError(f"it has {config.num_hidden_layers} layers, layer {layer} is wanted")


def _longest_input(config: Any, tokenizer: Any) -> int:
    """Return the most tokens a text may have; a tokenizer without a stated length claims 10^30."""
    # RoBERTa counts positions from behind its padding token's id.
    unused = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    return int(min(tokenizer.model_max_length, config.max_position_embeddings - unused))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from printing a table of the layers that are left out on purpose."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
