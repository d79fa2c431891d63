"""Documents, images, a tokenizer, and requests built the way the harness builds them."""

import copy
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lmms_eval.api.instance import Instance
from medtasks.model_adapters.base.batching import Continuation, Encoded, GenerationSettings
from medtasks.model_adapters.tiny import MedTasksTiny
from PIL import Image
from safetensors.torch import save_file
from transformers import CLIPVisionConfig, CLIPVisionModel

from ..recordings import recordings

Doc = dict[str, Any]
Visual = Callable[[Doc], Any]
TASK, SPLIT = "toy", "test"
WORDS = (
    "the",
    "left",
    "right",
    "lung",
    "is",
    "clear",
    "nodule",
    "effusion",
    "normal",
    "heart",
    "absent",
    "bone",
)


def noise(seed: int = 0, size: tuple[int, int] = (30, 21), mode: str = "RGB") -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values).convert(mode)


def make_docs(count: int = 12, seed: int = 0) -> list[Doc]:
    """Documents of very different length with one image each; the last has none."""
    rng, words = np.random.default_rng(seed), random.Random(seed)
    docs: list[Doc] = []
    for number in range(count):
        pixels = rng.integers(0, 255, (6, 5), dtype=np.uint8)
        text = " ".join(words.choices(WORDS, k=words.randint(2, 40)))
        docs.append(
            {
                "question": f"{number}: {text}?",
                "image": Image.fromarray(pixels).resize((90, 70)),
            }
        )
    docs[-1]["image"] = None
    return docs


def to_visual(doc: Doc) -> list[Image.Image] | None:
    return None if doc["image"] is None else [doc["image"]]


def instances(
    kind: str,
    docs: Sequence[Doc],
    details: Sequence[Any],
    visual: Visual | None = lambda doc: doc["images"],
    doc_ids: Iterable[int] | None = None,
) -> list[Instance]:
    """Requests about documents, one per detail."""
    return [
        Instance(
            request_type=kind,
            arguments=(
                docs[doc_id]["question"],
                copy.deepcopy(detail),
                visual,
                doc_id,
                TASK,
                SPLIT,
            ),
            idx=index,
            metadata={"task": TASK, "doc_id": doc_id, "repeats": 1},
        )
        for doc_id in (range(len(docs)) if doc_ids is None else doc_ids)
        for index, detail in enumerate(details)
    ]


class Bench:
    """An adapter with its documents, without journal unless a test asks for it: a replayed answer tests nothing."""

    def __init__(
        self, docs: Sequence[Doc], kind: type[MedTasksTiny] = MedTasksTiny, **arguments: Any
    ) -> None:
        self.docs = docs
        self.adapter = kind(
            **{"device": "cpu", "journal": False, "weights": "random", **arguments}
        )
        self.adapter.task_dict = {TASK: {SPLIT: docs}}

    def generation(
        self,
        doc_ids: Iterable[int] | None = None,
        visual: Visual | None = to_visual,
        **gen_kwargs: Any,
    ) -> list[Instance]:
        gen_kwargs = {
            "until": ["\n\n"],
            "max_new_tokens": 12,
            "do_sample": False,
            "temperature": 0,
        } | gen_kwargs
        return instances("generate_until", self.docs, [gen_kwargs], visual, doc_ids)

    def scoring(
        self,
        continuations: Sequence[Any] = (" clear", " a large effusion"),
        doc_ids: Iterable[int] | None = None,
        visual: Visual | None = to_visual,
    ) -> list[Instance]:
        return instances("loglikelihood", self.docs, continuations, visual, doc_ids)


class CountingTiny(MedTasksTiny):  # type: ignore[misc]  # installed under a name that mypy does not know
    ran = 0

    def generate_batch(
        self, prompts: Sequence[Encoded], settings: GenerationSettings, seed: int
    ) -> Any:
        self.ran += len(prompts)
        return super().generate_batch(prompts, settings, seed)

    def score_batch(self, items: Sequence[Continuation]) -> Any:
        self.ran += len(items)
        return super().score_batch(items)


def assert_pairs(
    got: Sequence[tuple[float, bool]], expected: Sequence[tuple[float, bool]], tolerance: float
) -> None:
    assert [loss for loss, _ in got] == pytest.approx(
        [loss for loss, _ in expected], abs=tolerance
    )
    assert [greedy for _, greedy in got] == [greedy for _, greedy in expected]


Tensors = dict[str, torch.Tensor]


def drawn(module: torch.nn.Module, seed: int, prefix: str = "") -> Tensors:
    """Random weights of a module by name, large enough that image and text both matter; norms near 1."""
    generator = torch.Generator().manual_seed(seed)
    weights: Tensors = {}
    for name, weight in module.state_dict().items():
        fan = weight[0].numel() if weight.dim() > 1 and "embed_tokens" not in name else 1
        values = torch.randn(weight.shape, generator=generator) * (
            2.0 / fan**0.5 if weight.dim() > 1 else 0.1
        )
        weights[prefix + name] = values + float(
            weight.dim() == 1 and not name.endswith(("bias", "class_embedding"))
        )
    return weights


def tower(shape: dict[str, int], seed: int) -> Tensors:
    return drawn(CLIPVisionModel(CLIPVisionConfig(**shape)), seed)


def write_tower(folder: Path, shape: dict[str, int], seed: int) -> Path:
    """Write a whole CLIP model, as it is published, of which only the tower is read; returns its folder."""
    folder.mkdir(parents=True)
    patches = (shape["image_size"] // shape["patch_size"]) ** 2
    unread = {
        "logit_scale": torch.ones(()),
        "text_model.final_layer_norm.bias": torch.ones(3),
        "visual_projection.weight": torch.zeros(12, 3),
        "text_projection.weight": torch.zeros(12, 8),
        "vision_model.embeddings.position_ids": torch.arange(patches + 1)[None],
    }
    read = {f"vision_model.{name}": weight for name, weight in tower(shape, seed).items()}
    save_file(read | unread, folder / "model.safetensors")
    (folder / "config.json").write_text(
        json.dumps({"model_type": "clip", "vision_config": shape})
    )
    return folder


def plain_forward(
    network: Any, ids: Sequence[int], pixels: torch.Tensor | None
) -> torch.Tensor:
    """The tiny model's log-probabilities after each position: no padding, batch, cache or part of the adapter base."""
    with torch.no_grad():
        embedded = network.language_model.model.embed_tokens(torch.tensor([ids])).clone()
        if pixels is not None:
            slots = [place for place, token in enumerate(ids) if token == 4]
            features = network.projector(network.vision_tower(pixels).last_hidden_state[:, 1:])
            for place, feature in zip(
                slots, features.reshape(-1, features.shape[-1]), strict=True
            ):
                embedded[0, place] = feature
        logits: torch.Tensor = (
            network.language_model(inputs_embeds=embedded).logits[0].log_softmax(-1)
        )
    return logits


GOLDEN = recordings("MEDTASKS_GOLDEN", "golden") / "adapters"


def recorded(model: str) -> dict[str, Any]:
    file = GOLDEN / model / "golden.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def without_record(model: str) -> str:
    return f"no recorded results in {GOLDEN / model}; set MEDTASKS_GOLDEN"


def assert_statistics(
    tensor: torch.Tensor, expected: Mapping[str, Any], tolerance: float
) -> None:
    assert list(tensor.shape) == expected["shape"]
    tensor = (
        tensor.double()
    )  # in float32 a sum over values that an expanded tensor repeats loses digits
    got = {
        "mean": tensor.mean(),
        "std": tensor.std(correction=0),
        "min": tensor.min(),
        "max": tensor.max(),
    }
    for name, value in got.items():
        assert value.item() == pytest.approx(expected[name], abs=tolerance)
    for sample in expected["samples"]:
        assert tensor[tuple(sample["index"])].item() == pytest.approx(
            sample["value"], abs=tolerance
        )
