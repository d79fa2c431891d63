"""Scoring continuations in the fastest way that gives the scores of generation, for any vision-language model.

There are four ways to the logits in front of a continuation: after a prefix that questions on one image share, after
a prompt that options share, in one forward pass over prompt and continuation, or token by token as in generation.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from loguru import logger
from transformers import LogitsProcessor, LogitsProcessorList

from medtasks.errors import MedTasksError

from ..base.adapter import MedicalAdapter
from ..base.batching import Continuation, Likelihood, PaddedBatch, likelihood, pad_left, pad_right, score, token_losses
from ..base.generation import GenerationSettings, decoding_config
from ..base.prefixes import PrefixCache
from ..base.shared_scoring import Questions, score_by_question
from .encoding import ProcessedPrompt, ScoredPrompt

Inputs = Mapping[str, torch.Tensor]
_CHECKED_ROWS = 4
# Nats per token by which a way of scoring may differ from generation; half precision rounds logits that coarsely.
_TOLERANCE, _HALF_TOLERANCE = 1e-3, 0.1
# What a model raises where it cannot do with a cache of ours.
_UNSUPPORTED = (TypeError, ValueError, KeyError, IndexError, AttributeError, RuntimeError)
# An end token that no vocabulary has.
_NO_STOP = 2**31 - 1


class ContinuationScorer:
    """Scores batches of continuations, all with images or all without.

    Every way is compared once, with and without images, with the logits that ``generate`` sees while it is made to
    produce the continuation. A way that differs (as one pass does for a model that reads its prompt in both directions)
    is given up with one line in the log, down to scoring everything as it is generated.

    The transformers model stays in the adapter's attributes, where the harness frees it.
    """

    def __init__(self, adapter: MedicalAdapter) -> None:
        self._adapter = adapter
        self._fits: dict[tuple[str, bool], bool] = {}

    def shared(self, items: Sequence[Continuation], kept: PrefixCache) -> list[Likelihood]:
        """Score a batch; what its prompts have in common is read once, if the model can go on from there."""
        questions = Questions.of(items, self._adapter)
        if any(cast(ScoredPrompt, item.sequence).closed for item in items):  # a prompt that is closed is read as one
            questions = replace(questions, cuts={})

        def sharing(questions: Questions) -> Callable[[], list[Likelihood]]:
            return lambda: score_by_question(questions, self._adapter, self.whole, kept)

        after_cuts = [at for question in questions.cuts for at in questions.places[question]]
        of_several = [at for places in questions.places if len(places) > 1 for at in places]
        scores = self._fitting("a shared prefix", sharing(questions), items, after_cuts) if after_cuts else None
        if scores is None and of_several:
            scores = self._fitting("a shared prompt", sharing(replace(questions, cuts={})), items, of_several)
        return scores or self.whole(items)

    def whole(self, items: Sequence[Continuation]) -> list[Likelihood]:
        """Score a batch without sharing anything."""
        adapter, prompts = self._adapter, [cast(ScoredPrompt, item.sequence) for item in items]
        if any(prompt.closed for prompt in prompts):
            return self._generating(items)

        def logits_of(batch: PaddedBatch, keep: int) -> torch.Tensor:
            inputs = adapter.model_inputs(batch)
            for item, ids in zip(items, inputs["input_ids"].tolist(), strict=True):
                if ids[-item.tokens :] != item.targets:
                    raise ValueError("the processor does not put the continuation at the end")
            return tail_logits(adapter.network, inputs, keep)

        own = [at for at, prompt in enumerate(prompts) if not prompt.merged]
        in_one_pass = partial(score, items, logits_of, adapter.pad_id, adapter.device)
        return self._fitting("one pass", in_one_pass, items, own) or self._generating(items)

    def _fitting(
        self, name: str, way: Callable[[], list[Likelihood]], items: Sequence[Continuation], telling: Sequence[int]
    ) -> list[Likelihood] | None:
        """Return the scores of a way if it is right for the model, which the places ``telling`` can tell."""
        key = name, bool(cast(ProcessedPrompt, items[0].sequence).images)
        if not self._fits.get(key, True):
            return None
        if key in self._fits or not telling:
            return way()
        network, some = self._adapter.network, telling[:_CHECKED_ROWS]
        expected = self._generating([items[at] for at in some])
        scores, gap = None, math.inf
        try:
            scores = way()
            gap = max(abs(scores[at].mean - own.mean) for at, own in zip(some, expected, strict=True))
            reason = f"differ from those of generation by {gap:.2g} per token"
        except torch.OutOfMemoryError:
            raise
        except _UNSUPPORTED as error:
            reason = f"cannot be computed ({type(error).__name__})"
        half = network.dtype in (torch.float16, torch.bfloat16)
        self._fits[key] = gap <= (_HALF_TOLERANCE if half else _TOLERANCE)
        level, end = ("DEBUG", "") if self._fits[key] else ("WARNING", "; scoring without it, which is slower")
        logger.log(level, "{}: scores with {} {}{}", type(network).__name__, name, reason, end)
        return scores if self._fits[key] else None

    def _generating(self, items: Sequence[Continuation]) -> list[Likelihood]:
        adapter, prompts = self._adapter, [cast(ScoredPrompt, item.sequence) for item in items]
        contexts = pad_left([prompt.context for prompt in prompts], adapter.pad_id, adapter.device)
        targets = pad_right([prompt.targets for prompt in prompts], adapter.pad_id, adapter.device)
        inputs = adapter.model_inputs(contexts)
        inputs.pop("position_ids", None)  # transformers counts them itself
        logits = forced_logits(adapter.network, inputs, targets, adapter.pad_id)
        losses, hits = token_losses(logits, targets)
        lengths = [len(prompt.targets) for prompt in prompts]
        return [likelihood(losses[row, :length], hits[row, :length]) for row, length in enumerate(lengths)]


def tail_logits(model: Any, inputs: Inputs, keep: int) -> torch.Tensor:
    """Return the logits of the last ``keep`` positions, shape (batch, keep, vocabulary), in one forward pass.

    The others are never computed: where the model has no ``logits_to_keep``, its output layer is handed the last
    positions only. Logits for other positions are a ``MedTasksError``.
    """
    accepted = inspect.signature(model.forward).parameters
    given: dict[str, Any] = {**inputs, "use_cache": False}
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
