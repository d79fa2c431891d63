"""The network of ``medtasks_tiny``: CLIP vision tower, projector and Llama as in LLaVA, with random weights.

A token is a character, so that the replies of a random model can be read.
"""

import math
from collections.abc import Sequence
from typing import Final

import torch
from torch import nn
from transformers import CLIPVisionConfig, CLIPVisionModel, LlamaConfig, LlamaForCausalLM

PAD_ID: Final = 0
UNKNOWN_ID: Final = 1
BEGIN_ID: Final = 2
END_ID: Final = 3
IMAGE_ID: Final = 4
SPECIAL_TOKENS: Final = 5

CHARACTERS: Final = "\n" + "".join(map(chr, range(ord(" "), ord("~") + 1)))
VOCABULARY_SIZE: Final = SPECIAL_TOKENS + len(CHARACTERS)
_IDS: Final = {character: SPECIAL_TOKENS + place for place, character in enumerate(CHARACTERS)}


def text_to_ids(text: str) -> list[int]:
    """Return one id per character; what is not printable ASCII or a new line becomes the unknown token.

    Example:
        >>> ids_to_text(text_to_ids("A: no"))
        'A: no'
    """
    return [_IDS.get(character, UNKNOWN_ID) for character in text]


def ids_to_text(ids: Sequence[int]) -> str:
    """Return the characters of ``ids``, special tokens left out."""
    return "".join(CHARACTERS[token - SPECIAL_TOKENS] for token in ids if token >= SPECIAL_TOKENS)


IMAGE_SIZE = 32
PATCH_SIZE = 8
IMAGE_TOKENS = (IMAGE_SIZE // PATCH_SIZE) ** 2
_VISION_WIDTH, _TEXT_WIDTH, _LAYERS, _HEADS = 32, 64, 2, 4
# Per name of a matrix, its gain; 1 for the others.
_GAINS = {"language_model.model.embed_tokens": 0.3} | {
    f"language_model.model.layers.{layer}.self_attn.{part}_proj": gain
    for layer in range(_LAYERS)
    for part, gain in {"q": 2.5, "k": 2.5, "o": 4.0}.items()
}


class TinyNetwork(nn.Module):
    """A vision-language model of some 100 000 parameters in float64.

    In float64, so that what padding and the composition of a batch change (rounding) is far too small to change a
    decision. The global random state is neither read nor changed.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng([]):  # building in transformers draws weights, which are replaced below
            self.vision_tower = CLIPVisionModel(_vision_config())
            self.projector = nn.Linear(_VISION_WIDTH, _TEXT_WIDTH)
            self.language_model = LlamaForCausalLM(_language_config())
            self.language_model.lm_head = nn.Linear(_TEXT_WIDTH, VOCABULARY_SIZE)
        self.double()
        _replace_norms(self.language_model)
        _draw_weights(self, torch.Generator().manual_seed(seed))
        self.eval().requires_grad_(False)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the image slots' contents, shape (images, IMAGE_TOKENS, width).

        Pixels have the shape (images, 3, IMAGE_SIZE, IMAGE_SIZE).
        """
        # Without the class token, as in LLaVA.
        features: torch.Tensor = self.projector(self.vision_tower(pixels.double()).last_hidden_state[:, 1:])
        return features

    def embed(self, ids: torch.Tensor, features: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Embed ids of shape (batch, length) and fill the image slots: shape (batch, length, width)."""
        embedded: torch.Tensor = self.language_model.get_input_embeddings()(ids)
        present = [row.flatten(0, 1) for row in features if row is not None]
        if present:
            embedded[ids == IMAGE_ID] = torch.cat(present)
        return embedded


def _vision_config() -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=_VISION_WIDTH,
        intermediate_size=2 * _VISION_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        image_size=IMAGE_SIZE,
        patch_size=PATCH_SIZE,
        attn_implementation="sdpa",
    )


def _language_config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=_TEXT_WIDTH,
        intermediate_size=2 * _TEXT_WIDTH,
        num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS,
        max_position_embeddings=32768,
        attn_implementation="sdpa",
    )


def _replace_norms(model: LlamaForCausalLM) -> None:
    """Swap Llama's norms, which compute in float32 whatever the weights are, for ones that stay in float64."""

    def norm() -> nn.RMSNorm:
        return nn.RMSNorm(_TEXT_WIDTH, eps=1e-6, dtype=torch.float64)

    model.model.norm = norm()
    for layer in model.model.layers:
        layer.input_layernorm, layer.post_attention_layernorm = norm(), norm()


def _draw_weights(network: TinyNetwork, generator: torch.Generator) -> None:
    """Draw matrices with variance gain² / inputs; norms become 1 and offsets 0.

    Larger than the customary initialisation, under which the last character decides alone: here attention is sharp and
    weighs more than the character itself, so that the image and the whole text matter.
    """
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() > 1:
                inputs = 1 if "embed_tokens" in name else weight[0].numel()
                gain = _GAINS.get(name.removesuffix(".weight"), 1.0)
                weight.normal_(std=gain / math.sqrt(inputs), generator=generator)
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)
        head = network.language_model.lm_head
        head.bias[:SPECIAL_TOKENS] = -1e4  # of the special tokens only the end can be said
        head.bias[END_ID] = 1.0  # often enough for some replies to end by themselves
