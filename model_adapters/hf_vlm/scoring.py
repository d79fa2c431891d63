"""Scoring continuations in the fastest way that gives the scores of generation, for any vision-language model.

There are three ways to the logits in front of a continuation: one forward pass over prompt and continuation, one over
each distinct prompt and then one over its continuations, or token by token as in generation.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from loguru import logger
from transformers import LogitsProcessor, LogitsProcessorList

from medtasks.errors import MedTasksError

from ..base.batching import (
    Continuation,
    Likelihood,
    PaddedBatch,
    likelihood,
    pad_left,
    pad_right,
    positions_of,
    score,
    token_losses,
)
from ..base.generation import GenerationSettings, decoding_config
from ..base.model import AdapterModel
from ..prefix.sharing import Prefill, score_options
from .encoding import Prompt, ScoredPrompt

Inputs = Mapping[str, torch.Tensor]
_CHECKED_ROWS = 4
# Nats per token by which a way of scoring may differ from generation; half precision rounds logits that coarsely.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 0.1
# What a model raises where it cannot do with a repeated cache.
_UNSUPPORTED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError)
# An end token that no vocabulary has.
_NO_STOP = 2**31 - 1
# What belongs to every token and is known for text: an id, attended to, of no image.
_PER_TOKEN = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}


class ContinuationScorer:
    """Scores batches of continuations, all with images or all without.

    Options of one prompt share a pass over it, if they may; other batches take one pass over prompt and continuation.
    Either way is compared once, with and without images, with the logits that ``generate`` sees while it is made to
    produce the continuation. A way that differs (as one pass does for a model that reads its prompt in both directions)
    is given up with one line in the log, down to scoring everything as it is generated.

    The transformers model stays in the adapter's attributes, where the harness frees it.
    """

    def __init__(self, adapter: AdapterModel, share: bool) -> None:
        self._adapter, self._share = adapter, share
        self._fits: dict[tuple[str, bool], bool] = {}

    def score(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch."""
        prompts = [cast(ScoredPrompt, item.sequence) for item in items]
        merged = any(prompt.merged for prompt in prompts)
        repeated = self._share and not merged and len(_questions(items)) < len(items)
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
            network = self._adapter.network
            expected = self._generating(some)
            try:
                gap = max(abs(a.mean - b.mean) for a, b in zip(way(some), expected, strict=True))
                reason = f"differ from those of generation by {gap:.2g} per token"
            except torch.OutOfMemoryError:
                raise
            except _UNSUPPORTED as error:
                gap, reason = math.inf, f"cannot be computed ({type(error).__name__})"
            half = network.dtype in (torch.float16, torch.bfloat16)
            self._fits[key] = gap <= (_HALF_TOLERANCE if half else _TOLERANCE)
            level, end = ("DEBUG", "") if self._fits[key] else ("WARNING", "; scoring without it, which is slower")
            logger.log(level, "{}: scores with {} {}{}", type(network).__name__, name, reason, end)
        return self._fits.get(key, True)

    def _in_one_pass(self, items: Sequence[Continuation]) -> list[Likelihood]:
        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = self._adapter.model_inputs(batch)
            for item, ids in zip(items, inputs["input_ids"].tolist(), strict=True):
                if ids[-item.tokens :] != item.targets:
                    raise ValueError("the processor does not put the continuation at the end")
            return tail_logits(self._adapter.network, inputs, keep)

        return score(items, logits_of, self._adapter.pad_id, self._adapter.device)

    def _sharing(self, items: Sequence[Continuation]) -> list[Likelihood]:
        questions = _questions(items)
        contexts = [cast(ScoredPrompt, items[places[0]].sequence).context for places in questions]
        options = [[items[place] for place in places] for places in questions]
        scores = iter(score_options(options, read_contexts(contexts, self._adapter), self._adapter))
        by_place = {at: score for places in questions for at, score in zip(places, next(scores), strict=True)}
        return [by_place[place] for place in range(len(items))]

    def _generating(self, items: Sequence[Continuation]) -> list[Likelihood]:
        adapter, prompts = self._adapter, [cast(ScoredPrompt, item.sequence) for item in items]
        contexts = pad_left([prompt.context for prompt in prompts], adapter.pad_id, adapter.device)
        targets = pad_right([prompt.targets for prompt in prompts], adapter.pad_id, adapter.device)
        logits = forced_logits(adapter.network, adapter.model_inputs(contexts), targets, adapter.pad_id)
        losses, hits = token_losses(logits, targets)
        lengths = [len(prompt.targets) for prompt in prompts]
        return [likelihood(losses[row, :length], hits[row, :length]) for row, length in enumerate(lengths)]


def _questions(items: Sequence[Continuation]) -> list[list[int]]:
    """Return groups of places with one prompt; those of a question come in a row and hold the very same."""
    groups: dict[int, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault(id(cast(ScoredPrompt, item.sequence).context), []).append(place)
    return list(groups.values())


def tail_logits(model: Any, inputs: Inputs, keep: int) -> torch.Tensor:
    """Return the logits of the last ``keep`` positions, shape (batch, keep, vocabulary), in one forward pass.

    The others are never computed: where the model has no ``logits_to_keep``, its output layer is handed the last
    positions only. Logits for other positions are a ``MedTasksError``.
    """
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {**inputs, **_positions(model, inputs), "use_cache": False}
    if "logits_to_keep" in accepted:
        logits: torch.Tensor = model(**given, logits_to_keep=keep).logits
    else:
        hook = model.get_output_embeddings().register_forward_pre_hook(lambda _, hidden: (hidden[0][:, -keep:],))
        try:
            logits = model(**given).logits
        finally:
            hook.remove()
    if logits.shape[1] != keep:
        raise MedTasksError(f"the model returned logits of {logits.shape[1]} positions instead of {keep}")
    return logits


def read_contexts(prompts: Sequence[Prompt], adapter: AdapterModel) -> Prefill:
    """Read prompts, all in one batch, so that continuations can follow them.

    A model that takes more per token than this knows to continue (masks of cross-attention) is a ``ValueError``.
    """
    inputs = adapter.model_inputs(pad_left(prompts, adapter.pad_id, adapter.device))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    unknown = {name for name, value in inputs.items() if value.shape[:2] == ids.shape} - _PER_TOKEN
    if unknown:
        raise ValueError(f"no rule to continue {', '.join(sorted(unknown))}")
    given = _positions(adapter.network, inputs)
    output = adapter.network(**inputs, **given, use_cache=True, logits_to_keep=1)
    positions = positions_of(mask.long())
    if not given:
        modules = (module for module in adapter.network.modules() if hasattr(module, "rope_deltas"))
        shift = next((module.rope_deltas for module in modules), torch.zeros(1))
        positions = positions + shift.to(positions)
    return Prefill(PaddedBatch(ids, mask, positions, prompts), output.logits[:, -1], output.past_key_values)


def _positions(model: Any, inputs: Inputs) -> dict[str, torch.Tensor]:
    """Return the positions of a padded batch; none where the model places images in two dimensions by itself."""
    own = any(hasattr(module, "get_rope_index") for module in model.modules())
    images = any(name.startswith("pixel") for name in inputs)
    if (own and images) or "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    return {"position_ids": positions_of(inputs["attention_mask"].long())}


class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers is not analysed
    """Lets generation produce the given tokens and nothing else."""

    def __init__(self, targets: torch.Tensor, start: int) -> None:
        self.targets, self.start = targets, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        wanted = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -math.inf).scatter(1, wanted, 0.0)


def forced_logits(model: Any, inputs: Inputs, targets: torch.Tensor, pad_id: int) -> torch.Tensor:
    """Return the logits that ``generate`` sees before each target, shape (batch, longest target, vocabulary).

    Slower than one pass, and right by construction for whatever a model does between prompt and reply.
    """
    config = decoding_config(GenerationSettings(targets.shape[1]), [_NO_STOP], pad_id)
    forced = LogitsProcessorList([_Forced(targets, inputs["input_ids"].shape[1])])
    told = {"return_dict_in_generate": True, "output_logits": True}
    output = model.generate(**inputs, generation_config=config, logits_processor=forced, **told)
    return torch.stack(output.logits, dim=1)
