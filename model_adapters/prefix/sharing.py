"""Scoring options with one prefill over the prompt of their question, and prompts with one over their common prefix."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base.batching import (
    Continuation,
    Likelihood,
    PaddedBatch,
    likelihood,
    pad_left,
    pad_right,
    token_losses,
)
from ..base.caches import image_keys
from ..base.model import AdapterModel
from .cached_prefix import PrefixCache, cut_prompts, grows_plainly, inputs_after, side_by_side, suffixes_of
from .cuts import Cuts, find_cuts
from .tree_attention import Tree, score_trees, takes_masks


@dataclass(frozen=True)
class Prefill:
    """Prompts that the model has read."""

    contexts: PaddedBatch  # the prompts, one row each; padding may also stand between a prefix and its suffix
    logits: torch.Tensor  # after the last token of each, shape (prompts, vocabulary)
    cache: Any  # their keys and values, one row per prompt and one place per column of ``contexts``


def prefill(contexts: PaddedBatch, model: AdapterModel, inputs: dict[str, Any], **cached: Any) -> Prefill:
    """Read prompts, all in one batch, or what follows their cached prefixes."""
    # use_cache is asked for in the call, because a checkpoint's configuration may have switched it off.
    output = model.language_model(**inputs, **cached, logits_to_keep=1, use_cache=True)
    return Prefill(contexts, output.logits[:, -1], output.past_key_values)


def group_by_prefix(items: Sequence[Continuation]) -> list[list[int]]:
    """Return groups of places in ``items`` with the same images and the same tokens before the continuation.

    An option that a tokenizer merges with the end of its prompt has other tokens there, and hence a group of its own.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        prompt = item.prompt
        groups.setdefault((image_keys(prompt.pixels), tuple(prompt.ids)), []).append(place)
    return list(groups.values())


def score_by_question(
    items: Sequence[Continuation],
    model: AdapterModel,
    score_whole: Callable[[Sequence[Continuation]], list[Likelihood]],
    kept: PrefixCache,
) -> list[Likelihood]:
    """Score a batch; options share their prompt, prompts their prefix, and what stands alone is scored by itself."""
    groups = group_by_prefix(items)
    questions = [[items[place] for place in group] for group in groups]
    prompts = [question[0].prompt for question in questions]
    cuts = find_cuts(prompts, model.image_spans) if grows_plainly(model.language_model) else {}
    uncut = [at for at in range(len(questions)) if at not in cuts]
    alone = [at for at in uncut if len(questions[at]) == 1]
    several = [at for at in uncut if len(questions[at]) > 1]
    scores: dict[int, list[Likelihood]] = {}
    if alone:
        scored = score_whole([questions[at][0] for at in alone])
        scores |= {at: [score] for at, score in zip(alone, scored, strict=True)}
    if several:
        contexts = pad_left([prompts[at] for at in several], model.pad_id, model.device)
        read = prefill(contexts, model, model.model_inputs(contexts))
        scores |= zip(several, score_options([questions[at] for at in several], read, model), strict=True)
    for some in _passes(cuts, model):
        cut, asked = cut_prompts(prompts, some, model, kept), [questions[at] for at in some]
        scored_after = None
        if takes_masks(model.language_model):  # in one pass, where the model can be fed so
            trees = [Tree(row, [option.targets for option in own]) for row, own in zip(cut, asked, strict=True)]
            scored_after = score_trees(trees, model)
        if scored_after is None:  # one over the prompts and one over the options
            suffix, whole = suffixes_of(cut, model)
            cache = side_by_side([row.prefix for row in cut], suffix.ids.shape[1])
            read = prefill(whole, model, inputs_after(suffix, whole, model), past_key_values=cache)
            scored_after = score_options(asked, read, model)
        scores |= zip(some, scored_after, strict=True)
    by_place = {place: score for at, group in enumerate(groups) for place, score in zip(group, scores[at], strict=True)}
    return [by_place[place] for place in range(len(items))]


def _passes(cuts: Mapping[int, Cuts], model: AdapterModel) -> list[Mapping[int, Cuts]]:
    """Part prompts into those that go into one pass: all of them, but on a CPU those with one prefix.

    A CPU is busy with few rows, and laying several prefixes side by side costs it more than the calls that are saved.
    """
    if not cuts or model.device.type != "cpu":
        return [cuts] if cuts else []
    parts: dict[Hashable, dict[int, Cuts]] = {}
    for place, cut in cuts.items():
        parts.setdefault(cut.prefix, {})[place] = cut
    return list(parts.values())


def score_options(
    questions: Sequence[Sequence[Continuation]], read: Prefill, model: AdapterModel
) -> list[list[Likelihood]]:
    """Score the options of several questions on the prefill of their prompts.

    The last logits of a prompt serve the first token of each of its options. The keys and values of the prompts are
    repeated per option, and the remaining tokens, padded on the right, are run on them. Logits exist for the last
    column of the prompts and for the options' tokens only. The cache of ``read`` is used up.
    """
    tokens = [option.targets for question in questions for option in question]
    owners = torch.tensor([row for row, question in enumerate(questions) for _ in question])
    lengths = torch.tensor([len(option) for option in tokens])
    ids = pad_right(tokens, model.pad_id, model.device)
    first = token_losses(read.logits[owners], ids[:, 0])
    losses, hits = (torch.zeros(ids.shape, dtype=values.dtype) for values in first)
    losses[:, 0], hits[:, 0] = first
    longer = lengths > 1
    if longer.any():
        later = _score_later(ids[longer], lengths[longer], owners[longer], read, model)
        losses[longer, 1:], hits[longer, 1:] = later
    scores = (likelihood(losses[row, :size], hits[row, :size]) for row, size in enumerate(lengths.tolist()))
    return [[next(scores) for _ in question] for question in questions]


def _score_later(
    ids: torch.Tensor, lengths: torch.Tensor, owners: torch.Tensor, read: Prefill, model: AdapterModel
) -> tuple[torch.Tensor, torch.Tensor]:
    """Score the second and later tokens of options, shape (options, longest option - 1); ``read`` is used up."""
    read.cache.batch_select_indices(owners)  # on the CPU: a model with a device map lies on several devices
    own = read.contexts.select(owners)
    steps = torch.arange(ids.shape[1] - 1)
    # Where an option ends, its last token is not fed: it predicts nothing that is scored.
    real = (lengths[:, None] - 1 > steps).to(own.attention_mask)
    inputs = {
        "attention_mask": torch.cat([own.attention_mask, real], dim=-1),
        "position_ids": own.position_ids[:, -1:] + 1 + steps.to(model.device),
        **model.continuation_inputs(ids[:, :-1], own),
    }
    logits = model.language_model(**inputs, past_key_values=read.cache, use_cache=True).logits
    return token_losses(logits, ids[:, 1:])
