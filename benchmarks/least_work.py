"""Floating-point operations that a set of requests asks of a model at the least, and what a device can do of them.

    work = tokens x 2 x (weights of the language model's matrices, without the output matrix)
         + sum over tokens of 4 x layers x heads x head width x (positions that the token sees, itself included)
         + logits x 2 x hidden size x vocabulary
         + images x (products of matrices, convolutions and attention of one pass of the vision part)

A multiplication and an addition are two operations. Where texts are shared, a token counts once for all requests that
begin alike up to it, images included; else every request counts whole. Logits count where one is read: before each
token to score. Padding, softmax, norms and activations are no work. Left out are Med-Flamingo's products with latents
in its gated blocks, below 0.1 %. A vision part counts as it is written, Qwen's attention in windows as such.
"""

import math
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from medtasks.model_adapters.base.adapter import MedicalAdapter
from medtasks.model_adapters.base.batching import Continuation, Encoded
from medtasks.model_adapters.base.shared_scoring import words_of
from torch import nn
from torch.overrides import TorchFunctionMode

_SIDE = {"cuda": 8192}


class Operations(TorchFunctionMode):
    """Counts the operations of products, convolutions and attention by their shapes, whatever kernels compute them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "__name__", "")
        if name in ("linear", "conv2d", "conv3d"):
            self.count += 2 * result.numel() * math.prod(args[1].shape[1:])
        elif name in ("matmul", "__matmul__", "bmm", "mm"):
            self.count += 2 * result.numel() * args[0].shape[-1]
        elif name == "scaled_dot_product_attention":
            query, key, value = args[:3]
            self.count += (
                2
                * math.prod(query.shape[:-1])
                * key.shape[-2]
                * (query.shape[-1] + value.shape[-1])
            )
        elif name in ("einsum", "addmm", "baddbmm"):
            raise NotImplementedError(
                f"the operations of {name} are not counted; add its formula here"
            )
        return result


@dataclass(frozen=True)
class Costs:
    """Operations of a language model."""

    token: int  # all matrices but the output's
    seen: int  # per position that a token sees
    logits: int  # the output matrix, for one position

    @classmethod
    def of(cls, model: MedicalAdapter) -> "Costs":
        """Count a model's."""
        language = model.language_model
        config = language.config.get_text_config()
        parts = [
            language.get_decoder(),
            getattr(language, "gated_cross_attn_layers", nn.Module()),
        ]
        matrices = [
            module
            for part in parts
            for name, module in part.named_modules()
            if isinstance(module, nn.Linear) and not name.endswith("to_kv")
        ]
        head = (
            getattr(config, "head_dim", None)
            or config.hidden_size // config.num_attention_heads
        )
        return cls(
            token=2 * sum(matrix.weight.numel() for matrix in matrices),
            seen=4 * config.num_hidden_layers * config.num_attention_heads * head,
            logits=2 * config.hidden_size * config.vocab_size,
        )


@dataclass(frozen=True)
class Asked:
    """A prompt and what is to come behind it."""

    prompt: Encoded
    targets: Sequence[Hashable]  # tokens to score, or what stands for those to generate


@dataclass
class Work:
    """What a model was asked, noted as it came and counted afterwards."""

    model: MedicalAdapter
    scored: list[Continuation] = field(default_factory=list)
    generated: list[tuple[Encoded, int]] = field(
        default_factory=list
    )  # prompts, and tokens of their replies
    _images: dict[Hashable, int] = field(default_factory=dict)

    def note(self) -> None:
        """Note every batch that the model runs from now on."""
        model, kind = self.model, type(self.model)

        def score_batch(items: Sequence[Continuation]) -> Any:
            self.scored += items
            return kind.score_batch(model, items)

        def generate_batch(prompts: Sequence[Encoded], settings: Any, seed: int) -> Any:
            self.generated += [(prompt, settings.max_new_tokens) for prompt in prompts]
            return kind.generate_batch(model, prompts, settings, seed)

        model.score_batch, model.generate_batch = score_batch, generate_batch

    def forget(self) -> None:
        """Stop noting."""
        del self.model.score_batch, self.model.generate_batch

    def operations(self, *, shared_texts: bool, shared_images: bool) -> int:
        """Return the operations for all that was noted; what is shared counts once."""
        costs, looked, images = Costs.of(self.model), set[Hashable](), 0
        asked = [Asked(item.prompt, item.targets) for item in self.scored]
        asked += [Asked(prompt, range(count)) for prompt, count in self.generated]
        counts = Counts(shared_texts)
        for one in asked:
            counts.add(self._words(one.prompt), one.targets)
            for name, operations in self._looked_at(one.prompt).items():
                images += 0 if shared_images and name in looked else operations
                looked.add(name)
        return (
            counts.tokens * costs.token
            + counts.seen * costs.seen
            + counts.logits * costs.logits
            + images
        )

    def _words(self, prompt: Encoded) -> Sequence[Hashable]:
        """Return the tokens of a prompt; an image's first one carries what names the image."""
        words = words_of(prompt, self.model.image_spans(prompt) or [])
        assert words is not None
        return words

    def _looked_at(self, prompt: Encoded) -> dict[Hashable, int]:
        found: dict[Hashable, int] = {}
        for name, shape, run in looks(self.model, prompt):
            if shape not in self._images:
                with Operations() as counter, torch.inference_mode():
                    run()
                self._images[shape] = counter.count
            found[name] = self._images[shape]
        return found


@dataclass
class Counts:
    """Tokens that are fed, positions that they see, and logits that are read."""

    shared: bool  # whether what begins alike counts once
    tokens: int = 0
    seen: int = 0
    logits: int = 0
    _known: set[int] = field(default_factory=set)
    _read: set[int] = field(default_factory=set)

    def add(self, prompt: Sequence[Hashable], targets: Sequence[Hashable]) -> None:
        """Count a prompt and all but the last of the tokens behind it, which predicts nothing that is read."""
        key = 0
        for place, word in enumerate([*prompt, *targets[:-1]], start=1):
            key = hash((key, word))
            if not self.shared or key not in self._known:
                self._known.add(key)
                self.tokens += 1
                self.seen += place
            if place >= len(prompt) and (not self.shared or key not in self._read):
                self._read.add(key)
                self.logits += 1


def looks(
    model: MedicalAdapter, prompt: Encoded
) -> list[tuple[Hashable, Hashable, Callable[[], Any]]]:
    """Return per image of a prompt what names it, what decides about its cost, and its pass."""
    inputs = getattr(prompt, "inputs", None)
    if inputs is None:
        pixels = [] if prompt.pixels is None else list(prompt.pixels.split(1))
        return [
            (key, image.shape, lambda image=image: model.image_features(image.to(model.device)))
            for key, image in zip(prompt.image_keys, pixels, strict=True)
        ]
    if not prompt.image_keys:
        return []
    network = model.network  # whose processor's images count as one
    given = {
        name: inputs[name].to(model.device)
        for name in ("pixel_values", "image_grid_thw")
        if name in inputs
    }
    shape = tuple(value.shape for value in given.values()), str(given.get("image_grid_thw"))
    given["pixel_values"] = given["pixel_values"].to(network.dtype)
    return [
        (key, shape, lambda: network.get_image_features(**given)) for key in prompt.image_keys
    ]


def measured_peak(device: torch.device, dtype: torch.dtype, rounds: int = 10) -> float:
    """Return operations per second of a large product of two matrices, the best of some rounds."""
    side = _SIDE.get(device.type, 256)
    one, other = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(rounds):
        settle(device)
        began = time.perf_counter()
        one @ other
        settle(device)
        best = min(best, time.perf_counter() - began)
    return 2 * side**3 / best


def settle(device: torch.device) -> None:
    """Wait for what the device still has to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
