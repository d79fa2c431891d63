"""Reading RadFM's published checkpoint: where its files are, its sizes, and which key belongs where."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig

from ..checkpoints.reading import (
    CheckpointError,
    SentencePieceText,
    fill,
    on_meta,
    published_folder,
    refuse_missing,
    stored_tensors,
)
from .network import CHANNELS, CONTEXT, FRAMES_PER_PATCH, ImageEmbedding, RadFMNetwork, VisionTransformer3D

Shapes = Mapping[str, tuple[int, ...]]

FIRST_ID = 1
"""Begin of sequence, in front of every prompt."""
MAX_IMAGES = 100
"""Images that the published tokenizer has slots for."""

_LLAMA = "lang_model."
_VISION = "embedding_layer.vision_encoder."
_RESAMPLER = "embedding_layer.perceiver."
_WORDS = _LLAMA + "model.embed_tokens.weight"
_WORDS_AGAIN = "embedding_layer.weight"
_UNUSED = re.compile(
    r"embedding_layer\.(?:bert_model|bert_projection_fc|transformer_decoder(?:_mlp)?|cls_head|output_upscaling)\..*"
    r"|lang_model\.model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq",
    re.DOTALL,
)
"""Text encoder and heads that only training and other tasks use, and rotary frequencies."""
_PUBLISHED_HEAD = 128


def locate(pretrained: str) -> tuple[Path, Path]:
    """Return the file or folder of the weights and the folder with the tokenizer.

    ``pretrained`` is the ``.bin`` file, the folder that holds it, or a hub id. ``tokenizer.model`` lies next to the
    weights, or in ``Language_files`` there.
    """
    path = Path(pretrained).expanduser()
    if not path.exists():
        try:
            path = published_folder(pretrained, "pretrained")
        except CheckpointError as error:
            raise CheckpointError(
                f"{error}; the published RadFM is a split archive, to be joined first: "
                f"`cat RadFM.z* > joined.zip && unzip joined.zip`"
            ) from error
    folder = path if path.is_dir() else path.parent
    beside = folder / "tokenizer.model"
    return path, folder if beside.is_file() else folder / "Language_files"


def read_tokenizer(folder: Path, vocabulary: int, latents: int) -> SentencePieceText:
    """Read the tokenizer and add the marks around an image and the slots, numbered through all images."""
    names = ["<image>", "</image>", *(slot_token(number) for number in range(MAX_IMAGES * latents))]
    added = {name: vocabulary + place for place, name in enumerate(names)}
    text = SentencePieceText(folder / "tokenizer.model", added, strip_around_added=True)
    if text.vocabulary != vocabulary:
        raise CheckpointError(
            f"{folder / 'tokenizer.model'} has {text.vocabulary} pieces, '{_WORDS}' has {vocabulary} rows; "
            f"put the tokenizer of this checkpoint there"
        )
    return text


def slot_token(number: int) -> str:
    """Return the text of one slot."""
    return f"<image{number}>"


def load_network(weights: Path, config_folder: Path, dtype: torch.dtype, attention: str) -> RadFMNetwork:
    """Build the network and fill it; the weights are in memory once, the rotary frequencies stay float32.

    Sizes come from the shapes of the stored tensors. The language model's ``config.json`` is needed only if the
    checkpoint holds no rotary frequencies, and is compared with the number of layers found.
    """
    shapes = {key: tuple(tensor.shape) for _, key, tensor in stored_tensors(weights)}
    sizes = _Sizes(weights, shapes)
    language = _language_config(sizes, config_folder / "config.json", attention)
    patch_key = f"{_VISION}to_patch_embedding.1.weight"
    voxels = sizes.of(patch_key, axes=1)
    patch = math.isqrt(voxels // (FRAMES_PER_PATCH * CHANNELS))
    if patch**2 * FRAMES_PER_PATCH * CHANNELS != voxels:
        raise CheckpointError(f"{weights}: key '{patch_key}' has shape {shapes[patch_key]}, which is no square patch")
    width = sizes.of(f"{_VISION}to_patch_embedding.2.weight")
    vision = {
        "patch": patch,
        "rows": sizes.of(f"{_VISION}pos_embedding.row_embed.weight"),
        "columns": sizes.of(f"{_VISION}pos_embedding.col_embed.weight"),
        "frames": sizes.of(f"{_VISION}pos_embedding.dep_embed.weight"),
        "inner": sizes.of(f"{_VISION}transformer.layers.0.1.fn.net.0.weight"),
        "layers": sizes.count(f"{_VISION}transformer.layers."),
    }
    latents, depth = sizes.of(f"{_RESAMPLER}latents"), sizes.count(f"{_RESAMPLER}layers.")

    def build() -> RadFMNetwork:
        tower = VisionTransformer3D(width=width, **vision)
        return RadFMNetwork(language, ImageEmbedding(tower, width, latents, depth, language.hidden_size))

    network = on_meta(build)
    names = dict(network.named_parameters())
    refuse_missing(weights, set(names) - set(shapes), "more keys")

    def rename(key: str) -> str | None:
        if _UNUSED.fullmatch(key):
            return None
        name = _WORDS if key == _WORDS_AGAIN else key
        if name not in names:
            raise KeyError(key)
        return name

    fill(network, weights, rename, dtype)
    return network


@dataclass(frozen=True)
class _Sizes:
    """Sizes of the network, as its stored tensors have them."""

    weights: Path
    shapes: Shapes

    def of(self, key: str, axis: int = 0, axes: int = 2) -> int:
        if key not in self.shapes:
            raise CheckpointError(f"{self.weights} lacks '{key}'; is this RadFM's checkpoint, and complete?")
        if len(self.shapes[key]) != axes:
            raise CheckpointError(
                f"{self.weights}: key '{key}' has shape {self.shapes[key]}; is this another model's checkpoint?"
            )
        return self.shapes[key][axis]

    def count(self, prefix: str) -> int:
        numbers = [re.match(re.escape(prefix) + r"(\d+)\.", key) for key in self.shapes]
        return max((int(match[1]) for match in numbers if match), default=-1) + 1


def _language_config(sizes: _Sizes, config: Path, attention: str) -> LlamaConfig:
    """Return LLaMA's configuration; the width of a head is that of the rotary frequencies, else of ``config``."""
    hidden, layers = sizes.of(_WORDS, axis=1), sizes.count(f"{_LLAMA}model.layers.")
    try:
        given = json.loads(config.read_text()) if config.is_file() else {}
        named, heads = int(given.get("num_hidden_layers", layers)), int(given.get("num_attention_heads", 0))
    except (ValueError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{config} is damaged; download it again") from error
    if named != layers:
        raise CheckpointError(f"{config} says num_hidden_layers {named}, the weights have {layers}; which is damaged?")
    frequencies = sizes.shapes.get(f"{_LLAMA}model.layers.0.self_attn.rotary_emb.inv_freq", ())
    heads = hidden // max(1, 2 * frequencies[0]) if frequencies else heads or hidden // _PUBLISHED_HEAD
    if heads < 1 or hidden % heads:
        raise CheckpointError(f"{config}: {heads} attention heads do not divide width {hidden}; download it again")
    return LlamaConfig(
        vocab_size=sizes.of(_WORDS),
        hidden_size=hidden,
        intermediate_size=sizes.of(f"{_LLAMA}model.layers.0.mlp.gate_proj.weight"),
        num_hidden_layers=layers,
        num_attention_heads=heads,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=False,
        # The published ``config.json`` names other special ids than those the model was trained with.
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        attn_implementation=attention,
    )
