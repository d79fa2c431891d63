"""A toy Med-Flamingo in the published file formats, prompts, requests, and what plain passes compute for them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.batching import Encoded
from medtasks.model_adapters.base.vision import PerceiverResampler
from medtasks.model_adapters.med_flamingo import GatedCrossAttention, MedFlamingo, text_time
from PIL import Image
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from .toy_tokenizer import write_tokenizer
from .toys import SPLIT, TASK, Doc, Tensors, drawn, instances, write_tower

WIDTH, MLP, LAYERS, EVERY, VISION, LATENTS, DEPTH = 32, 48, 4, 2, 16, 4, 2
CORPUS = (
    "Question: Which radiological technique was used? Answer: Mammography. Question: Is the left lung clear?",
    "You are a helpful medical assistant. A: yes B: the right lung shows a large effusion Follow the examples",
)


def trained_tensors(vocabulary: int) -> Tensors:
    tensors = drawn(PerceiverResampler(VISION, LATENTS, DEPTH), 4, "perceiver.")
    tensors |= drawn(
        torch.nn.Embedding(vocabulary + 3, WIDTH), 5, "lang_encoder.model.embed_tokens."
    )
    for layer in range(EVERY - 1, LAYERS, EVERY):
        gates = {"attn_gate": torch.tensor([0.9]), "ff_gate": torch.tensor([-0.6])}
        for name, tensor in (drawn(GatedCrossAttention(WIDTH, VISION), layer) | gates).items():
            tensors[f"lang_encoder.model.layers.{layer}.gated_cross_attn_layer.{name}"] = tensor
            tensors[f"lang_encoder.gated_cross_attn_layers.{layer}.{name}"] = tensor
    wrong = {
        f"lang_encoder.model.layers.{n}.decoder_layer.self_attn.rotary_emb.inv_freq"
        for n in range(LAYERS)
    }
    return tensors | {name: torch.full((4,), 7.0) for name in wrong}  # to be dropped


def write_toy(folder: Path) -> Path:
    """Write ``model.pt``, ``llama/`` and ``clip/`` as they are published."""
    (folder / "llama").mkdir(parents=True)
    vocabulary = write_tokenizer(folder / "llama", CORPUS * 20, 300, split_digits=True)
    llama: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": WIDTH,
        "intermediate_size": MLP,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "max_position_embeddings": 1024,
        "rms_norm_eps": 1e-6,
    }
    language = drawn(LlamaForCausalLM(LlamaConfig(**llama)), 3)
    language |= {
        f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.full((4,), 7.0)
        for n in range(LAYERS)
    }
    save_file(
        {name: tensor.half() for name, tensor in language.items()},
        folder / "llama" / "model.safetensors",
    )
    # As in the configuration of decapoda-research.
    llama |= {"model_type": "llama", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": -1}
    (folder / "llama" / "config.json").write_text(json.dumps(llama))
    vision = {
        "hidden_size": VISION,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    write_tower(folder / "clip", vision | {"image_size": 14, "patch_size": 7}, 6)
    torch.save(trained_tensors(vocabulary), folder / "model.pt")
    return folder


def adapter_from(folder: Path, **arguments: Any) -> MedFlamingo:
    places = {
        "pretrained": str(folder / "model.pt"),
        "llama": str(folder / "llama"),
        "clip": str(folder / "clip"),
    }
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
    {
        "question": "<image>A: yes<|endofchunk|><image>Question: A or B? Answer:",
        "images": [10, 12],
    },
    {"question": "<image>Is?", "images": [14]},
]
OPTIONS = (" yes", " the right lung shows a large effusion", " B")


def visuals(doc: Doc) -> list[Image.Image]:
    return [scan(number, (40 + number, 31)) for number in doc["images"]]


def asked(
    adapter: MedFlamingo, docs: Sequence[Doc], kind: str, details: Sequence[Any]
) -> list[Instance]:
    """Requests, with their documents where the adapter looks for them."""
    adapter.task_dict = {TASK: {SPLIT: docs}}
    return instances(kind, docs, details, lambda doc: doc.get("visuals", visuals)(doc))


def scores(
    adapter: MedFlamingo, docs: Sequence[Doc] = DOCS, options: Sequence[str] = OPTIONS
) -> list[tuple[float, bool]]:
    scored: list[tuple[float, bool]] = adapter.loglikelihood(
        asked(adapter, docs, "loglikelihood", options)
    )
    return scored


def replies(adapter: MedFlamingo, docs: Sequence[Doc] = DOCS, **gen_kwargs: Any) -> list[str]:
    given = {
        "until": [],
        "max_new_tokens": 9,
        "do_sample": False,
        "temperature": 0,
    } | gen_kwargs
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
        logits: torch.Tensor = network.language_model(
            input_ids=row, media=media, text_time=times
        ).logits[0]
    return logits


def plain_score(adapter: MedFlamingo, doc: Doc, option: str) -> float:
    images = visuals(doc) if "visuals" not in doc else doc["visuals"](doc)
    prompt, whole = (
        adapter.encode(doc["question"], images),
        adapter.encode(doc["question"] + option, images),
    )
    logs = plain_logits(adapter, whole.ids, prompt).log_softmax(-1)
    losses = [
        -logs[place - 1, whole.ids[place]].item()
        for place in range(len(prompt.ids), len(whole.ids))
    ]
    return sum(losses) / len(losses)
