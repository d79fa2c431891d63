"""Checkpoints in the published formats and shapes, without anything to download and with nothing large on disk.

The adapters' own loaders read them. A tensor in such a file is one number, repeated by a stride of 0, so that the 28 GB
of a model take some kilobytes. :func:`draw` then gives every parameter values of its own, on the device.

Shapes are those of the published configurations: LLaVA-Med v1.5 is Mistral 7B v0.2 with CLIP ViT-L/14 at 336 pixels (Li
et al. 2023), RadFM LLaMA 13B with a 3D vision transformer (Wu et al. 2023), Med-Flamingo LLaMA 7B with CLIP ViT-L/14
and gated blocks before every fourth layer (Moor et al. 2023), Qwen2.5-VL 7B that of ``Qwen/Qwen2.5-VL-7B-Instruct``
(arXiv 2502.13923, table 1). With ``tiny`` widths and depths are a toy's, the vocabularies stay.
"""

import json
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.base.checkpoints import on_meta
from medtasks.model_adapters.base.vision import PerceiverResampler
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.med_flamingo import MARKERS, GatedCrossAttention, MedFlamingo
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.radfm.network import (
    ImageEmbedding,
    RadFMNetwork,
    VisionTransformer3D,
)
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "tests" / "model_adapters"))
from toy_tokenizer import write_tokenizer

LLAMA_7B = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
}  # fmt: skip
LLAMA_13B = LLAMA_7B | {
    "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
}  # fmt: skip
MISTRAL_7B = LLAMA_7B | {
    "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1e6, "sliding_window": None,
}  # fmt: skip
QWEN_7B = {
    "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
    "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}  # fmt: skip
TINY_TEXT = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
CLIP_L = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 14,
}  # fmt: skip
TINY_CLIP = TINY_TEXT | {"image_size": 112, "patch_size": 14}
QWEN_EYES = {
    "depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "window_size": 112, "patch_size": 14,
    "fullatt_block_indexes": [7, 15, 23, 31], "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip
TINY_EYES = {
    "depth": 2, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "fullatt_block_indexes": [1],
}  # fmt: skip
RADFM_EYES = {
    "patch": 32,
    "rows": 16,
    "columns": 16,
    "frames": 128,
    "width": 768,
    "inner": 2048,
    "layers": 12,
}
TINY_RADFM_EYES = {
    "patch": 8,
    "rows": 8,
    "columns": 8,
    "frames": 16,
    "width": 48,
    "inner": 64,
    "layers": 2,
}
PIECES = r"\n| ?[^\s]{1,4}| "
"""Four characters a token, as LLaMA's tokenizer cuts medical questions."""
QWEN_MARKS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
QWEN_TEMPLATE = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
OWN_TOWER = "model.vision_tower.vision_tower.vision_model."
Tensors = dict[str, torch.Tensor]


def repeated(build: Callable[[], nn.Module], prefix: str = "") -> Tensors:
    """Return tensors as large as a module's parameters, by name, whose storage is one number."""
    number = torch.zeros((), dtype=torch.bfloat16)
    return {
        prefix + name: number.expand(weight.shape)
        for name, weight in on_meta(build).named_parameters()
    }


def write_sentencepiece(folder: Path, texts: Sequence[str], size: int = 32000) -> None:
    """Write ``tokenizer.model`` of ``size`` pieces, of which those that ``texts`` cannot teach are never used."""
    known = write_tokenizer(folder, texts, 2000, max_sentencepiece_length=5)
    unused = []
    for number in range(known, size):
        name = f"<unused{number}>".encode()
        # A piece in the wire format: its text (field 1), its score (2) and its type (3), 5 for an unused one.
        piece = (
            b"\x0a"
            + bytes([len(name)])
            + name
            + b"\x15"
            + struct.pack("<f", -1e6)
            + b"\x18\x05"
        )
        unused.append(b"\x0a" + bytes([len(piece)]) + piece)
    with (folder / "tokenizer.model").open("ab") as file:  # further items of a repeated field
        file.write(b"".join(unused))


def write_tower(folder: Path, shape: Mapping[str, int]) -> None:
    """Write a CLIP vision tower as transformers stores it."""
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps({"model_type": "clip_vision_model", **shape})
    )
    tensors = repeated(lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**shape)))
    torch.save(tensors, folder / "pytorch_model.bin")


def llava_med(folder: Path, texts: Sequence[str], tiny: bool, **given: Any) -> MedicalAdapter:
    """Load LLaVA-Med v1.5."""
    text = MISTRAL_7B | (TINY_TEXT | {"num_key_value_heads": 2} if tiny else {})
    vision = TINY_CLIP if tiny else CLIP_L | {"image_size": 336}
    seen, width = vision["hidden_size"], text["hidden_size"]
    multimodal = {
        "model_type": "llava_mistral", "mm_hidden_size": seen, "mm_vision_select_layer": -2,
        "mm_vision_tower": "openai/clip-vit-large-patch14-336", "mm_projector_type": "mlp2x_gelu",
        "image_aspect_ratio": "pad", "tokenizer_model_max_length": 2048,
    }  # fmt: skip
    write_sentencepiece(folder, texts)
    write_tower(folder / "clip", vision)
    (folder / "config.json").write_text(json.dumps(text | multimodal))
    language = repeated(lambda: hf.MistralForCausalLM(hf.MistralConfig(**text)))
    projector = nn.Sequential(nn.Linear(seen, width), nn.GELU(), nn.Linear(width, width))
    own_tower = repeated(lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**vision)), OWN_TOWER)
    torch.save(
        language | repeated(lambda: projector, "model.mm_projector.") | own_tower,
        folder / "pytorch_model.bin",
    )
    return LlavaMed(pretrained=str(folder), vision_tower=str(folder / "clip"), **given)


def radfm(folder: Path, texts: Sequence[str], tiny: bool, **given: Any) -> MedicalAdapter:
    """Load RadFM."""
    text = LLAMA_13B | (TINY_TEXT if tiny else {})
    eyes, width = (TINY_RADFM_EYES, 48) if tiny else (RADFM_EYES, 768)
    latents, depth = (4, 2) if tiny else (32, 6)

    def build() -> RadFMNetwork:
        images = ImageEmbedding(
            VisionTransformer3D(**eyes), width, latents, depth, text["hidden_size"]
        )
        return RadFMNetwork(hf.LlamaConfig(**text), images)

    state = repeated(build)
    state["embedding_layer.weight"] = state["lang_model.model.embed_tokens.weight"]
    frequencies = torch.zeros(()).expand(
        text["hidden_size"] // text["num_attention_heads"] // 2
    )
    for layer in range(text["num_hidden_layers"]):
        state[f"lang_model.model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = frequencies
    torch.save(state, folder / "pytorch_model.bin")
    write_sentencepiece(folder, texts)
    (folder / "config.json").write_text(json.dumps(text))
    return RadFM(pretrained=str(folder), **given)


def med_flamingo(
    folder: Path, texts: Sequence[str], tiny: bool, **given: Any
) -> MedicalAdapter:
    """Load Med-Flamingo."""
    text, vision = LLAMA_7B | (TINY_TEXT if tiny else {}), TINY_CLIP if tiny else CLIP_L
    seen, width = vision["hidden_size"], text["hidden_size"]
    every, latents, depth = (2, 4, 2) if tiny else (4, 64, 6)
    trained = repeated(lambda: PerceiverResampler(seen, latents, depth), "perceiver.")
    trained |= repeated(
        lambda: nn.Embedding(text["vocab_size"] + MARKERS, width),
        "lang_encoder.model.embed_tokens.",
    )
    for layer in range(every - 1, text["num_hidden_layers"], every):
        trained |= repeated(
            lambda: GatedCrossAttention(width, seen),
            f"lang_encoder.gated_cross_attn_layers.{layer}.",
        )
    torch.save(trained, folder / "model.pt")
    write_tower(folder / "clip", vision)
    (folder / "llama").mkdir()
    write_sentencepiece(folder / "llama", texts)
    (folder / "llama" / "config.json").write_text(json.dumps({"model_type": "llama", **text}))
    language = repeated(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**text)))
    torch.save(language, folder / "llama" / "pytorch_model.bin")
    places = {"pretrained": folder, "llama": folder / "llama", "clip": folder / "clip"}
    return MedFlamingo(**{name: str(place) for name, place in places.items()}, **given)


def qwen(folder: Path, texts: Sequence[str], tiny: bool, **given: Any) -> MedicalAdapter:
    """Load Qwen2.5-VL through ``hf_vlm``."""
    text, vision = dict(QWEN_7B), dict(QWEN_EYES)
    if tiny:
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}
        text |= TINY_TEXT | {"num_key_value_heads": 2, "rope_parameters": rope}
        vision |= TINY_EYES
    words = piece_tokenizer(texts, QWEN_MARKS, eos_token="<|im_end|>", pad_token="<pad>")
    ids = dict(zip(QWEN_MARKS, words.convert_tokens_to_ids(list(QWEN_MARKS)), strict=True))
    named = {
        "vision_start": "vision_start",
        "vision_end": "vision_end",
        "image": "image_pad",
        "video": "video_pad",
    }
    special = {
        "pad_token_id": words.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": words.eos_token_id,
    }
    config = hf.Qwen2_5_VLConfig(
        vision_config=vision | {"out_hidden_size": text["hidden_size"]},
        text_config=hf.Qwen2_5_VLTextConfig(
            **text, **special, tie_word_embeddings=False
        ).to_dict(),
        tie_word_embeddings=False,
        **{f"{name}_token_id": ids[f"<|{mark}|>"] for name, mark in named.items()},
    )
    config.save_pretrained(folder)
    pixels = {"shortest_edge": 56 * 56, "longest_edge": 252 * 252 if tiny else 28 * 28 * 16384}
    eyes = hf.Qwen2VLImageProcessor(size=pixels), hf.Qwen2VLVideoProcessor()
    hf.Qwen2_5_VLProcessor(
        eyes[0], words, eyes[1], chat_template=QWEN_TEMPLATE
    ).save_pretrained(folder)
    torch.save(
        repeated(lambda: hf.Qwen2_5_VLForConditionalGeneration(config)),
        folder / "pytorch_model.bin",
    )
    return HfVlm(pretrained=str(folder), **given)


def piece_tokenizer(
    texts: Sequence[str], marks: Sequence[str], **named: str
) -> hf.PreTrainedTokenizerFast:
    """Return a tokenizer that knows the pieces of ``texts`` and special ``marks``."""
    own = ["<unk>", *named.values(), *marks]
    pieces = sorted({piece for text in texts for piece in re.findall(PIECES, text)} - {*own})
    vocabulary = {
        piece: number for number, piece in enumerate(dict.fromkeys([*own, "\n", " ", *pieces]))
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Split(Regex(PIECES), "isolated")
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        additional_special_tokens=list(marks),
        **named,
    )


def draw(model: MedicalAdapter) -> int:
    """Give a model's parameters values of their own on its device; return how many there are.

    What goes through a matrix keeps its size, so that scores depend on image and prompt, and what a layer adds is
    damped, as in a trained network: else rounding grows from layer to layer, and two ways differ by that alone.
    """
    generator = torch.Generator(model.device).manual_seed(0)
    depth = model.language_model.config.get_text_config().num_hidden_layers
    count = 0
    with torch.no_grad():
        for module in [
            module for module in vars(model).values() if isinstance(module, nn.Module)
        ]:
            for name, weight in module.named_parameters():
                values = torch.empty(weight.shape, dtype=weight.dtype, device=weight.device)
                weight.data = values.normal_(
                    std=spread(name, weight, depth), generator=generator
                )
                if weight.dim() == 1 and "norm" in name and name.endswith("weight"):
                    weight.data += 1
                count += weight.numel()
    return count


def spread(name: str, weight: torch.Tensor, depth: int) -> float:
    """Return the standard deviation from which a parameter is drawn."""
    if weight.dim() < 2:
        return 0.1
    if "embed_tokens" in name or "latents" in name or "token_weight" in name:
        return 1.0
    added = any(part in name for part in ("o_proj", "out_proj", "down_proj", "fc2", "to_out"))
    asking = any(
        part in name for part in ("q_proj", "k_proj")
    )  # or attention would be spread evenly
    return (1 + asking) * (2 * depth) ** (-0.5 * added) / math.sqrt(weight[0].numel())


BUILDERS: Mapping[str, Callable[..., MedicalAdapter]] = {
    "llava_med": llava_med, "radfm": radfm, "med_flamingo": med_flamingo, "hf_vlm": qwen,
}  # fmt: skip
