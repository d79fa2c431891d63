"""A toy Med-Flamingo in the published file formats, prompts, requests, and what plain passes compute for them."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.batching import Encoded
from medtasks.model_adapters.med_flamingo import MedFlamingo
from medtasks.model_adapters.med_flamingo.network import text_time
from PIL import Image
from safetensors.torch import save_file

from .toys import SPLIT, TASK, Doc, instances, write_tokenizer

Tensors = dict[str, torch.Tensor]

WIDTH, MLP, LAYERS, EVERY, VISION, LATENTS, DEPTH = 32, 48, 4, 2, 16, 4, 2
CORPUS = (
    "Question: Which radiological technique was used? Answer: Mammography. Question: Is the left lung clear?",
    "You are a helpful medical assistant. A: yes B: the right lung shows a large effusion Follow the examples",
)


def draw(shape: tuple[int, ...], generator: torch.Generator, gain: float = 1.0) -> torch.Tensor:
    """Norms near 1, other vectors small, matrices with variance gain² / inputs."""
    noise = torch.randn(shape, generator=generator)
    return noise * gain / math.sqrt(math.prod(shape[1:])) if len(shape) > 1 else noise * 0.1


def norm(name: str, width: int, generator: torch.Generator) -> Tensors:
    return {f"{name}.weight": 1 + draw((width,), generator), f"{name}.bias": draw((width,), generator)}


def llama_tensors(vocabulary: int, generator: torch.Generator) -> Tensors:
    tensors = {
        "model.embed_tokens.weight": draw((vocabulary, WIDTH), generator),
        "model.norm.weight": 1 + draw((WIDTH,), generator),
        "lm_head.weight": draw((vocabulary, WIDTH), generator, 4.0),
    }
    shapes = {f"self_attn.{part}_proj": (WIDTH, WIDTH) for part in "qkvo"}
    shapes |= {"mlp.gate_proj": (MLP, WIDTH), "mlp.up_proj": (MLP, WIDTH), "mlp.down_proj": (WIDTH, MLP)}
    for layer in range(LAYERS):
        stem = f"model.layers.{layer}."
        tensors |= {f"{stem}{name}.weight": draw(shape, generator, 1.5) for name, shape in shapes.items()}
        tensors |= {f"{stem}{part}_layernorm.weight": torch.ones(WIDTH) for part in ("input", "post_attention")}
        tensors[f"{stem}self_attn.rotary_emb.inv_freq"] = torch.full((4,), 7.0)  # wrong: to be dropped
    return {name: tensor.half() for name, tensor in tensors.items()}


def clip_tensors(generator: torch.Generator) -> Tensors:
    stem = "vision_model."
    tensors = {
        f"{stem}embeddings.class_embedding": draw((VISION,), generator),
        f"{stem}embeddings.patch_embedding.weight": draw((VISION, 3, 7, 7), generator),
        f"{stem}embeddings.position_embedding.weight": draw((5, VISION), generator),
        f"{stem}embeddings.position_ids": torch.arange(5)[None],
        **norm(f"{stem}pre_layrnorm", VISION, generator),
        **norm(f"{stem}post_layernorm", VISION, generator),
        "logit_scale": torch.tensor(2.6),
        "text_model.final_layer_norm.weight": torch.ones(8),
        "visual_projection.weight": torch.zeros(12, VISION),
        "text_projection.weight": torch.zeros(12, 8),
    }
    for layer in range(2):
        block = f"{stem}encoder.layers.{layer}."
        shapes = {f"self_attn.{part}": (VISION, VISION) for part in ("q_proj", "k_proj", "v_proj", "out_proj")}
        shapes |= {"mlp.fc1": (64, VISION), "mlp.fc2": (VISION, 64)}
        for name, shape in shapes.items():
            tensors[f"{block}{name}.weight"] = draw(shape, generator)
            tensors[f"{block}{name}.bias"] = draw(shape[:1], generator)
        tensors |= norm(f"{block}layer_norm1", VISION, generator) | norm(f"{block}layer_norm2", VISION, generator)
    return tensors


def trained_tensors(vocabulary: int, generator: torch.Generator) -> Tensors:
    tensors = {
        "perceiver.latents": draw((LATENTS, VISION), generator, 4.0),
        **norm("perceiver.norm", VISION, generator),
    }
    attention = {"to_q": (512, VISION), "to_kv": (1024, VISION), "to_out": (VISION, 512)}
    for level in range(DEPTH):
        stem = f"perceiver.layers.{level}."
        tensors |= norm(f"{stem}0.norm_media", VISION, generator) | norm(f"{stem}0.norm_latents", VISION, generator)
        tensors |= {f"{stem}0.{name}.weight": draw(shape, generator) for name, shape in attention.items()}
        tensors |= norm(f"{stem}1.0", VISION, generator)
        tensors[f"{stem}1.1.weight"] = draw((4 * VISION, VISION), generator)
        tensors[f"{stem}1.3.weight"] = draw((VISION, 4 * VISION), generator)
    tensors["lang_encoder.model.embed_tokens.weight"] = draw((vocabulary + 3, WIDTH), generator, 3.0)
    attention = {"to_q": (512, WIDTH), "to_kv": (1024, VISION), "to_out": (WIDTH, 512)}
    for layer in range(EVERY - 1, LAYERS, EVERY):
        block = {"attn_gate": torch.tensor([0.9]), "ff_gate": torch.tensor([-0.6])}
        block |= norm("attn.norm", WIDTH, generator) | norm("ff.0", WIDTH, generator)
        block |= {f"attn.{name}.weight": draw(shape, generator, 3.0) for name, shape in attention.items()}
        block["ff.1.weight"] = draw((4 * WIDTH, WIDTH), generator)
        block["ff.3.weight"] = draw((WIDTH, 4 * WIDTH), generator)
        for name, tensor in block.items():
            tensors[f"lang_encoder.model.layers.{layer}.gated_cross_attn_layer.{name}"] = tensor
            tensors[f"lang_encoder.gated_cross_attn_layers.{layer}.{name}"] = tensor
    for layer in range(LAYERS):
        tensors[f"lang_encoder.model.layers.{layer}.decoder_layer.self_attn.rotary_emb.inv_freq"] = torch.full(
            (4,), 7.0
        )
    return tensors


def write_toy(folder: Path) -> Path:
    """Write ``model.pt``, ``llama/`` and ``clip/`` as they are published."""
    (folder / "llama").mkdir(parents=True)
    (folder / "clip").mkdir()
    vocabulary = write_tokenizer(folder / "llama", CORPUS * 20, 300, split_digits=True)
    generator = torch.Generator().manual_seed(3)
    llama = {
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": WIDTH,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
        "bos_token_id": 0,  # as in the configuration of decapoda-research
        "eos_token_id": 1,
        "pad_token_id": -1,
    }
    vision = {"hidden_size": VISION, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    clip = {"model_type": "clip", "vision_config": vision | {"image_size": 14, "patch_size": 7}}
    (folder / "llama" / "config.json").write_text(json.dumps(llama))
    (folder / "clip" / "config.json").write_text(json.dumps(clip))
    save_file(llama_tensors(vocabulary, generator), folder / "llama" / "model.safetensors")
    save_file(clip_tensors(generator), folder / "clip" / "model.safetensors")
    torch.save(trained_tensors(vocabulary, generator), folder / "model.pt")
    return folder


def adapter_from(folder: Path, **arguments: Any) -> MedFlamingo:
    places = {"pretrained": str(folder / "model.pt"), "llama": str(folder / "llama"), "clip": str(folder / "clip")}
    given = {"dtype": "float32", "device": "cpu", "journal": "false", "batch_size": 8}
    return MedFlamingo(**{**places, **given, **arguments})


def scan(seed: int, size: tuple[int, int] = (40, 31)) -> Image.Image:
    image = Image.new("RGB", size, (40 * seed % 255, 90, 200))
    image.paste((250, 30 * seed % 255, 10), (3 * seed, 2, 3 * seed + 9, 20))
    return image


DOCS: list[Doc] = [
    {"question": "<image>Question: Is the left lung clear? Answer:", "images": [2]},
    {
        "question": "Follow. <image>Question: Which? Answer: Mammography.<|endofchunk|><image>Question: Is the right "
        "lung clear? Answer: no|endofchunk|> <image> Question: Is it?\nA: yes\nB: no\nAnswer:",
        "images": [4, 6, 8],
    },
    {"question": "Question: is there no picture? Answer:", "images": []},
    {"question": "<image>A: yes<|endofchunk|><image>Question: A or B? Answer:", "images": [10, 12]},
    {"question": "<image>Is?", "images": [14]},
]
OPTIONS = (" yes", " the right lung shows a large effusion", " B")


def visuals(doc: Doc) -> list[Image.Image]:
    return [scan(number, (40 + number, 31)) for number in doc["images"]]


def asked(adapter: MedFlamingo, docs: Sequence[Doc], kind: str, details: Sequence[Any]) -> list[Instance]:
    """Requests, with their documents where the adapter looks for them."""
    adapter.task_dict = {TASK: {SPLIT: docs}}
    return instances(kind, docs, details, lambda doc: doc.get("visuals", visuals)(doc))


def scores(
    adapter: MedFlamingo, docs: Sequence[Doc] = DOCS, options: Sequence[str] = OPTIONS
) -> list[tuple[float, bool]]:
    scored: list[tuple[float, bool]] = adapter.loglikelihood(asked(adapter, docs, "loglikelihood", options))
    return scored


def replies(adapter: MedFlamingo, docs: Sequence[Doc] = DOCS, **gen_kwargs: Any) -> list[str]:
    given = {"until": [], "max_new_tokens": 9, "do_sample": False, "temperature": 0} | gen_kwargs
    said: list[str] = adapter.generate_until(asked(adapter, docs, "generate_until", [given]))
    return said


def plain_logits(adapter: MedFlamingo, ids: Sequence[int], prompt: Encoded) -> torch.Tensor:
    """Logits after every position in one pass: no padding, no cache, no part of the adapter base."""
    network, mode = adapter.network, adapter.arguments.media_attention
    image = adapter._text.vocabulary + 1
    row = torch.tensor([ids])
    times = text_time(row, torch.ones_like(row), image, mode)
    with torch.inference_mode():
        media = None if prompt.pixels is None else network.image_features(prompt.pixels)[None]
        logits: torch.Tensor = network.language_model(input_ids=row, media=media, text_time=times).logits[0]
    return logits


def plain_score(adapter: MedFlamingo, doc: Doc, option: str) -> float:
    images = visuals(doc) if "visuals" not in doc else doc["visuals"](doc)
    prompt, whole = adapter.encode(doc["question"], images), adapter.encode(doc["question"] + option, images)
    logs = plain_logits(adapter, whole.ids, prompt).log_softmax(-1)
    losses = [-logs[place - 1, whole.ids[place]].item() for place in range(len(prompt.ids), len(whole.ids))]
    return sum(losses) / len(losses)


def plain_greedy(adapter: MedFlamingo, doc: Doc, tokens: int) -> list[int]:
    prompt = adapter.encode(doc["question"], visuals(doc))
    ids = list(prompt.ids)
    for _ in range(tokens):
        ids.append(plain_logits(adapter, ids, prompt)[-1].argmax().item())
    return ids[len(prompt.ids) :]
