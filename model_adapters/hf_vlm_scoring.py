"""Scoring continuations in the fastest way that gives the scores of generation, for any vision-language model."""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from loguru import logger

from .hf_vlm_encoding import Prompt, ScoredPrompt
from .hf_vlm_logits import forced_logits, likelihood_of, shared_logits, tail_logits
from .scoring import Continuation, Likelihood

Inputs = Callable[[Sequence[Prompt]], dict[str, Any]]
"""From prompts to model input on the device."""

_CHECKED_ROWS = 4
# Nats per token by which a way of scoring may differ from generation; half precision rounds logits that coarsely.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 0.1
# What a model raises where it cannot do with a repeated cache.
_UNSUPPORTED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError)


class ContinuationScorer:
    """Scores batches of continuations, all with images or all without.

    Options of one prompt share a pass over it; other batches take one pass over prompt and continuation. Either way is
    compared once, with and without images, with the logits that ``generate`` sees while it is made to produce the
    continuation. A way that differs (as one pass does for a model that reads its prompt in both directions) is given up
    with one line in the log, down to scoring everything as it is generated.

    Args:
        model: Gives the transformers model; not the model itself, which the harness frees in the adapter's attributes.
        inputs: Makes model input.
        pad_id: Padding token.
        share: Whether options may share a pass.
    """

    def __init__(self, model: Callable[[], Any], inputs: Inputs, pad_id: int, share: bool) -> None:
        self._model, self._inputs, self._pad_id, self._share = model, inputs, pad_id, share
        self._fits: dict[tuple[str, bool], bool] = {}

    def score(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch.

        Raises:
            MedTasksError: A score is not finite.
        """
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        merged = any(prompt.merged for prompt in prompts)
        repeated = self._share and not merged and len(set(map(_context_key, prompts))) < len(items)
        if repeated and self._fit("a shared prompt", self._sharing, items):
            return self._sharing(items)
        if not any(prompt.closed for prompt in prompts) and self._fit("one pass", self._in_one_pass, items):
            return self._in_one_pass(items)
        return self._generating(items)

    def _fit(
        self, name: str, way: Callable[[Sequence[Continuation]], list[Likelihood]], items: Sequence[Continuation]
    ) -> bool:
        """Return whether a way of scoring is right; finds out on the first batch that can tell."""
        key = name, bool(cast(Prompt, items[0].sequence).images)
        some = [item for item in items if not cast(ScoredPrompt, item.sequence).merged][:_CHECKED_ROWS]
        if key not in self._fits and some:
            expected = self._generating(some)
            try:
                gap = max(abs(a.mean - b.mean) for a, b in zip(way(some), expected, strict=True))
                reason = f"differ from those of generation by {gap:.2g} per token"
            except torch.OutOfMemoryError:
                raise
            except _UNSUPPORTED as error:
                gap, reason = math.inf, f"cannot be computed ({type(error).__name__})"
            half = self._model().dtype in (torch.float16, torch.bfloat16)
            self._fits[key] = gap <= (_HALF_TOLERANCE if half else _TOLERANCE)
            level, end = ("DEBUG", "") if self._fits[key] else ("WARNING", "; scoring without it, which is slower")
            logger.log(level, "{}: scores with {} {}{}", type(self._model()).__name__, name, reason, end)
        return self._fits.get(key, True)

    def _in_one_pass(self, items: Sequence[Continuation]) -> list[Likelihood]:
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        inputs = self._inputs(prompts)
        for item, ids in zip(items, inputs["input_ids"].tolist(), strict=True):
            if ids[-item.tokens :] != list(item.sequence.ids[-item.tokens :]):
                raise ValueError("the processor does not put the continuation at the end")
        # The logits at one position are about the next token.
        logits = tail_logits(self._model(), inputs, max(item.tokens for item in items) + 1)[:, :-1]
        return [
            likelihood_of(logits[row, -item.tokens :], item.sequence.ids[-item.tokens :])
            for row, item in enumerate(items)
        ]

    def _sharing(self, items: Sequence[Continuation]) -> list[Likelihood]:
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        keys = [_context_key(prompt) for prompt in prompts]
        contexts = dict(zip(keys, [prompt.context for prompt in prompts], strict=True))
        inputs = self._inputs(list(contexts.values()))
        owners = [list(contexts).index(key) for key in keys]
        logits = shared_logits(self._model(), inputs, owners, [prompt.targets for prompt in prompts], self._pad_id)
        return _from_left(logits, prompts)

    def _generating(self, items: Sequence[Continuation]) -> list[Likelihood]:
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        inputs = self._inputs([prompt.context for prompt in prompts])
        logits = forced_logits(self._model(), inputs, [prompt.targets for prompt in prompts], self._pad_id)
        return _from_left(logits, prompts)


def _from_left(logits: torch.Tensor, prompts: Sequence[ScoredPrompt]) -> list[Likelihood]:
    return [likelihood_of(logits[row, : len(prompt.targets)], prompt.targets) for row, prompt in enumerate(prompts)]


def _context_key(prompt: ScoredPrompt) -> tuple[Any, ...]:
    pixels = [(image.size, hashlib.blake2b(image.tobytes()).digest()) for image in prompt.images]
    return prompt.context.text, *pixels
