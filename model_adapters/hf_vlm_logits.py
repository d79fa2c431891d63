"""Three ways to the logits in front of a continuation, for any transformers vision-language model.

One forward pass over prompt and continuation, one over each distinct prompt and then one over its continuations, or
token by token as in generation.
"""

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from medtasks.errors import MedTasksError

from .scoring import Likelihood, in_full_precision, likelihood

# An end token that no vocabulary has.
_NO_STOP = 2**31 - 1
# What belongs to every token and is known for text: an id, attended to, of no image.
_PER_TOKEN = {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids"}


def tail_logits(model: Any, inputs: Mapping[str, torch.Tensor], keep: int) -> torch.Tensor:
    """Return the logits of the last ``keep`` positions, shape (batch, keep, vocabulary), in one forward pass.

    The others are never computed: where the model has no ``logits_to_keep``, its output layer is handed the last
    positions only.

    Raises:
        MedTasksError: The model returns logits for other positions.
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


def shared_logits(
    model: Any, inputs: Mapping[str, torch.Tensor], owners: Sequence[int], targets: Sequence[Sequence[int]], pad_id: int
) -> torch.Tensor:
    """Return what :func:`forced_logits` does, with one pass over each context and one over all continuations.

    Args:
        model: The model.
        inputs: The processor's batch of the contexts.
        owners: Per continuation the row of its context.
        targets: The continuations.
        pad_id: Fills up shorter ones.

    Raises:
        ValueError: The model takes more per token than this knows to continue (masks of cross-attention).
    """
    unknown = {name for name, value in inputs.items() if value.shape[:2] == inputs["input_ids"].shape} - _PER_TOKEN
    if unknown:
        raise ValueError(f"no rule to continue {', '.join(sorted(unknown))}")
    # On the CPU, an index fits tensors of any device, and a model may be spread over several.
    rows, device = torch.tensor(owners), inputs["input_ids"].device
    first = model(**inputs, **_positions(model, inputs), use_cache=True, logits_to_keep=1)
    logits: torch.Tensor = first.logits[rows]
    filled = _filled(targets, pad_id, device)[:, :-1]
    if filled.shape[1] == 0:
        return logits
    cache = first.past_key_values
    cache.batch_select_indices(rows)
    before = inputs["attention_mask"][rows]
    # What lies to the right of a row's end is seen by nothing that is read.
    mask = torch.cat([before, torch.ones_like(filled)], dim=1)
    positions = before.sum(1, keepdim=True) + torch.arange(filled.shape[1], device=device)
    if "position_ids" not in _positions(model, inputs):
        shift = next(module.rope_deltas for module in model.modules() if hasattr(module, "rope_deltas"))
        positions = (positions + shift[rows].to(device)).expand(3, -1, -1)
    rest = model(
        input_ids=filled, attention_mask=mask, position_ids=positions, past_key_values=cache, use_cache=True
    ).logits
    return torch.cat([logits, rest], dim=1)


def _positions(model: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the positions of a padded batch; none where the model places images in two dimensions by itself."""
    own = any(hasattr(module, "get_rope_index") for module in model.modules())
    images = any(name.startswith("pixel") for name in inputs)
    if (own and images) or "position_ids" not in inspect.signature(model.forward).parameters:
        return {}
    return {"position_ids": (inputs["attention_mask"].long().cumsum(-1) - 1).clamp(min=0)}


def _filled(targets: Sequence[Sequence[int]], pad_id: int, device: torch.device) -> torch.Tensor:
    """Return ids as one rectangle, padded on the right."""
    longest = max(map(len, targets))
    return torch.tensor([[*tokens, *[pad_id] * (longest - len(tokens))] for tokens in targets], device=device)


class _Forced(LogitsProcessor):  # type: ignore[misc]  # transformers is not analysed
    """Lets generation produce the given tokens and nothing else."""

    def __init__(self, targets: torch.Tensor, start: int) -> None:
        self.targets, self.start = targets, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return scores that are finite for the next target alone."""
        wanted = self.targets[:, input_ids.shape[1] - self.start, None]
        return torch.full_like(scores, -math.inf).scatter(1, wanted, 0.0)


def forced_logits(
    model: Any, inputs: Mapping[str, torch.Tensor], targets: Sequence[Sequence[int]], pad_id: int
) -> torch.Tensor:
    """Return the logits that ``generate`` sees before each target, shape (batch, longest target, vocabulary).

    Slower than one pass, and right by construction for whatever a model does between prompt and reply.

    Args:
        model: The model.
        inputs: The processor's batch of the contexts.
        targets: Per row the tokens to produce.
        pad_id: Fills up shorter rows.
    """
    width = inputs["input_ids"].shape[1]
    filled = _filled(targets, pad_id, inputs["input_ids"].device)
    config = GenerationConfig(
        max_new_tokens=filled.shape[1],
        do_sample=False,
        num_beams=1,
        eos_token_id=_NO_STOP,
        pad_token_id=pad_id,
        return_dict_in_generate=True,
        output_logits=True,
    )
    forced = LogitsProcessorList([_Forced(filled, width)])
    output = model.generate(**inputs, generation_config=config, logits_processor=forced)
    return torch.stack(output.logits, dim=1)


def likelihood_of(logits: torch.Tensor, targets: Sequence[int]) -> Likelihood:
    """Score one continuation.

    Args:
        logits: Logits before each target, shape (tokens, vocabulary).
        targets: The continuation's ids.

    Raises:
        MedTasksError: The score is not finite.
    """
    logits = in_full_precision(logits)
    wanted = torch.tensor(targets, device=logits.device)
    losses = logits.logsumexp(-1) - logits.gather(-1, wanted[:, None])[:, 0]
    return likelihood(losses, bool((logits.argmax(-1) == wanted).all()))
