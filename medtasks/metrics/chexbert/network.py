"""CheXbert's network: a BERT encoder whose [CLS] vector feeds 14 linear outputs.

Source: ``src/models/bert_labeler.py`` of https://github.com/stanfordmlgroup/CheXbert. Dropout and the pooler take no
part in labelling.
"""

import json
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import BertConfig, BertModel

from medtasks.errors import WeightsMissing
from medtasks.metrics.chexbert.checkpoint import CHEXBERT, ChexbertFiles, read_state
from medtasks.metrics.chexbert.conditions import CLASS_COUNTS

# Stored, but no part of the computation: the pooler, and buffers that old versions of transformers saved.
_UNUSED = ("bert.pooler.", "bert.embeddings.position_ids", "bert.embeddings.token_type_ids")


class ChexbertNetwork(nn.Module):
    """Encoder and outputs; parameters are named as in the checkpoint.

    Args:
        config: Configuration of the encoder.
    """

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.linear_heads = nn.ModuleList(nn.Linear(config.hidden_size, classes) for classes in CLASS_COUNTS)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Encode token ids.

        Args:
            input_ids: Shape (texts, tokens).
            attention_mask: 1 for tokens, 0 for padding, shape (texts, tokens).

        Returns:
            The [CLS] vector of each text in float32, shape (texts, hidden size).
        """
        encoded: torch.Tensor = self.bert(input_ids, attention_mask=attention_mask).last_hidden_state
        return encoded[:, 0].float()

    def classes(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the most likely class of every condition.

        Args:
            vectors: Shape (texts, hidden size).

        Returns:
            Class numbers, shape (texts, 14).
        """
        return torch.stack([head(vectors).argmax(dim=-1) for head in self.linear_heads], dim=-1)


class FirstTokenLayer(nn.Module):
    """A BERT layer that computes its output for the first token only, of which the others are a waste.

    Args:
        layer: The layer, the last of its encoder.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: torch.Tensor, mask: torch.Tensor | None = None, *_: Any, **__: Any) -> torch.Tensor:
        """Return the output of the first token.

        Args:
            hidden: Input of all tokens, shape (texts, tokens, hidden size).
            mask: As for scaled dot-product attention, shape (texts, 1, tokens, tokens); None without padding.

        Returns:
            Shape (texts, 1, hidden size).
        """
        attention, first = self.layer.attention, hidden[:, :1]
        own = attention.self
        query, key, value = (
            projected.unflatten(-1, (own.num_attention_heads, -1)).transpose(1, 2)
            for projected in (own.query(first), own.key(hidden), own.value(hidden))
        )
        seen = nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=None if mask is None else mask[:, :, :1]
        )
        attended = attention.output(seen.transpose(1, 2).flatten(2), first)
        output: torch.Tensor = self.layer.output(self.layer.intermediate(attended), attended)
        return output


def read_config(files: ChexbertFiles) -> Any:
    """Read the encoder's configuration.

    Raises:
        WeightsMissing: It is damaged, or that of another kind of network.
    """
    path = files.encoder / "config.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["model_type"] != "bert":
            raise ValueError(stored["model_type"])
        return BertConfig(**{**stored, "attn_implementation": "sdpa"})
    except Exception as error:  # transformers checks the fields with kinds of its own
        raise WeightsMissing(
            f"{path} is damaged or not the configuration of a BERT encoder; remove it and run 'medtasks weights fetch "
            "bert-base-uncased'"
        ) from error


def load_network(files: ChexbertFiles, config: Any) -> ChexbertNetwork:
    """Build the network and fill every parameter of it, in float32, ready to label.

    Args:
        files: Checkpoint and configuration.
        config: What :func:`read_config` returned.

    Raises:
        WeightsMissing: The checkpoint is damaged, or does not fit the configuration; the message names the first tensor
            that is missing, unknown or of another shape.
    """
    with init_empty_weights(include_buffers=False):
        network = ChexbertNetwork(config)
    state = {key: tensor for key, tensor in read_state(files.weights).items() if not key.startswith(_UNUSED)}
    misfit = _misfit(network.state_dict(), state)
    if misfit:
        raise WeightsMissing(
            f"{files.weights} does not fit CheXbert's network of {files.encoder / 'config.json'}: {misfit}; "
            f"remove both and run 'medtasks weights fetch {CHEXBERT}' and 'medtasks weights fetch bert-base-uncased'"
        )
    network.load_state_dict({key: tensor.float() for key, tensor in state.items()}, assign=True)
    layers = network.bert.encoder.layer
    layers[-1] = FirstTokenLayer(layers[-1])
    return network.eval()


def _misfit(wanted: dict[str, torch.Tensor], stored: dict[str, torch.Tensor]) -> str | None:
    """Say what stands in the way of loading, the first tensor only."""
    for key, tensor in wanted.items():
        if key not in stored:
            return f"'{key}' is missing"
        if stored[key].shape != tensor.shape:
            return f"'{key}' has shape {tuple(stored[key].shape)} in place of {tuple(tensor.shape)}"
        if not bool(torch.isfinite(stored[key]).all()):
            return f"'{key}' holds values that are not finite"
    unknown = sorted(stored.keys() - wanted.keys())
    return f"'{unknown[0]}' is unknown" if unknown else None
