"""Scoring options with one prefill over the prompt of their question, and prompts with one over their common prefix.

Tree attention does both in one pass over the cached prefixes, where a model can be fed so. A question and its options
are a tree: every option goes on from the question, and none sees another. A tree fits into one row of a batch if a mask
says who sees whom, and several questions on one image fit into one row side by side. So the keys and values of an image
are laid out once per row, not once per option, and no pass is spent on options alone.
"""

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from ..base.batching import (
    Continuation,
    Encoded,
    Likelihood,
    PaddedBatch,
    likelihood,
    pad_left,
    pad_right,
    token_losses,
)
from ..base.model import AdapterModel
from .cached_prefix import CutPrompt, PrefixCache, cut_prompts, grows_plainly, inputs_after, side_by_side, suffixes_of
from .cuts import Cuts, find_cuts

_OWN_INPUTS = {"attention_mask", "position_ids"}


@dataclass(frozen=True)
class Prefill:
    """Prompts that the model has read."""

    contexts: PaddedBatch  # the prompts, one row each; padding may also stand between a prefix and its suffix
    logits: torch.Tensor  # after the last token of each, shape (prompts, vocabulary)
    cache: Any  # their keys and values, one row per prompt and one place per column of ``contexts``


@dataclass(frozen=True)
class Questions:
    """A batch by question: the options that have their prompt in common."""

    places: Sequence[Sequence[int]]  # per question where its options stand in the batch
    options: Sequence[Sequence[Continuation]]
    prompts: Sequence[Encoded]
    cuts: Mapping[int, Cuts]  # by question; those that are better read whole are left out

    @classmethod
    def of(cls, items: Sequence[Continuation], model: AdapterModel) -> "Questions":
        """Group a batch and find out where its prompts are cut."""
        places = group_by_prefix(items)
        options = [[items[place] for place in group] for group in places]
        prompts = [question[0].prompt for question in options]
        longest = max(len(item.sequence.ids) for item in items)
        cuts = find_cuts(prompts, model.image_spans) if grows_plainly(model.language_model, longest) else {}
        return cls(places, options, prompts, cuts)


def group_by_prefix(items: Sequence[Continuation]) -> list[list[int]]:
    """Return groups of places in ``items`` with the same images and the same tokens before the continuation.

    An option that a tokenizer merges with the end of its prompt has other tokens there, and hence a group of its own.
    """
    groups: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        groups.setdefault((item.prompt.image_keys, tuple(item.prompt.ids)), []).append(place)
    return list(groups.values())


def score_by_question(
    questions: Questions,
    model: AdapterModel,
    score_whole: Callable[[Sequence[Continuation]], list[Likelihood]],
    kept: PrefixCache,
) -> list[Likelihood]:
    """Score a batch; options share their prompt, prompts their prefix, and what stands alone is scored by itself."""
    prompts, options, cuts = questions.prompts, questions.options, questions.cuts
    uncut = [at for at in range(len(options)) if at not in cuts]
    alone = [at for at in uncut if len(options[at]) == 1]
    several = [at for at in uncut if len(options[at]) > 1]
    scores: dict[int, list[Likelihood]] = {}
    if alone:
        scored = score_whole([options[at][0] for at in alone])
        scores |= {at: [score] for at, score in zip(alone, scored, strict=True)}
    if several:
        contexts = pad_left([prompts[at] for at in several], model.pad_id, model.device)
        read = _read(contexts, model, model.scoring_inputs(contexts))
        shift = model.position_shift(contexts).to(contexts.position_ids.device)
        placed = replace(contexts, position_ids=contexts.position_ids + shift)
        scored_after = _score_options([options[at] for at in several], replace(read, contexts=placed), model)
        scores |= zip(several, scored_after, strict=True)
    if cuts:
        cut = cut_prompts(prompts, cuts, model, kept)
        scores |= zip(cuts, _score_cut(cut, [options[at] for at in cuts], model), strict=True)
    pairs = (zip(group, scores[at], strict=True) for at, group in enumerate(questions.places))
    by_place = dict(itertools.chain.from_iterable(pairs))
    return [by_place[place] for place in range(len(by_place))]


def _score_cut(
    cut: Sequence[CutPrompt], options: Sequence[Sequence[Continuation]], model: AdapterModel
) -> list[list[Likelihood]]:
    """Score options behind cached prefixes, in one pass where the model can be fed so."""
    if takes_masks(model.language_model):
        trees = [Tree(row, [option.targets for option in own]) for row, own in zip(cut, options, strict=True)]
        scores = score_trees(trees, model)
        if scores is not None:
            return scores
    suffix, whole = suffixes_of(cut, model)
    cache = side_by_side([row.prefix for row in cut])
    read = _read(whole, model, inputs_after(suffix, whole, model), past_key_values=cache)
    return _score_options(options, read, model)


def _read(contexts: PaddedBatch, model: AdapterModel, inputs: dict[str, Any], **cached: Any) -> Prefill:
    """Read prompts, all in one batch, or what follows their cached prefixes."""
    # use_cache is asked for in the call, because a checkpoint's configuration may have switched it off.
    output = model.language_model(**inputs, **cached, logits_to_keep=1, use_cache=True)
    return Prefill(contexts, output.logits[:, -1], output.past_key_values)


def _score_options(
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


@dataclass(frozen=True)
class Tree:
    """A prompt and its options, as their tokens."""

    cut: CutPrompt
    options: Sequence[Sequence[int]]

    @property
    def suffix(self) -> int:
        """Tokens behind the prefix."""
        return len(self.cut.prompt.ids) - self.cut.prefix.length

    @property
    def columns(self) -> int:
        """Tokens to feed; an option's last one predicts nothing that is scored."""
        return self.suffix + sum(len(option) - 1 for option in self.options)


class _Column(NamedTuple):
    """A token in a row of trees."""

    source: int  # its place among the embedded suffixes and options
    position: int  # its position in its own text
    tree: int  # what is in another one is not seen
    option: int  # what is in another one is not seen, but all see the prompt, -1


def takes_masks(language_model: Any) -> bool:
    """Return whether a model's attention goes by a mask of its own for every row."""
    return language_model.config.get_text_config()._attn_implementation in ("sdpa", "eager")


def score_trees(trees: Sequence[Tree], model: AdapterModel) -> list[list[Likelihood]] | None:
    """Score questions' options, or ``None`` if the model is fed with more than embeddings, which only it knows."""
    embedded = _embedded(trees, model)
    if embedded is None:
        return None
    vectors, suffix_width, option_width = embedded
    rows, width = _fill_rows(trees)
    arranged, read, keep = _arrange(trees, rows, width, suffix_width, option_width)
    columns = torch.tensor(arranged, device=vectors.device)
    prefixes = [trees[row[0]].cut.prefix for row in rows]
    logits = model.language_model(
        inputs_embeds=vectors[columns[..., 0]],
        attention_mask=_mask(columns, [prefix.length for prefix in prefixes], vectors.dtype),
        position_ids=columns[..., 1],
        past_key_values=side_by_side(prefixes),
        logits_to_keep=keep,
        use_cache=True,
    ).logits[:, -keep:]
    places = torch.tensor([place for number in range(len(trees)) for place in read[number]], device=logits.device)
    options = [option for tree in trees for option in tree.options]
    target = torch.tensor(list(itertools.chain.from_iterable(options)), device=logits.device)
    losses, hits = token_losses(logits[places // width, places % width - (width - keep)], target)
    lengths = [len(option) for option in options]
    scores = iter(map(likelihood, torch.split(losses, lengths), torch.split(hits, lengths)))
    return [[next(scores) for _ in tree.options] for tree in trees]


def _embedded(trees: Sequence[Tree], model: AdapterModel) -> tuple[torch.Tensor, int, int] | None:
    """Return vectors of suffixes and options, shape (all columns, width), and the columns of one suffix and option."""
    suffix, whole = suffixes_of([tree.cut for tree in trees], model)
    parts = [_vectors(model.suffix_inputs(suffix, whole), model)]
    fed = [option[:-1] for tree in trees for option in tree.options]
    ids = pad_right(fed, model.pad_id, model.device)
    if ids.shape[1]:
        owners = torch.tensor([row for row, tree in enumerate(trees) for _ in tree.options])
        parts.append(_vectors(model.continuation_inputs(ids, whole.select(owners)), model))
    if any(vectors is None for vectors in parts):
        return None
    vectors = torch.cat([vectors.flatten(0, 1) for vectors in parts if vectors is not None])
    return vectors, suffix.ids.shape[1], ids.shape[1]


def _vectors(inputs: dict[str, Any], model: AdapterModel) -> torch.Tensor | None:
    names = set(inputs) - _OWN_INPUTS
    given: torch.Tensor | None = None
    if names == {"inputs_embeds"}:
        given = inputs["inputs_embeds"]
    elif names == {"input_ids"}:
        given = model.language_model.get_input_embeddings()(inputs["input_ids"])
    return given


def _fill_rows(trees: Sequence[Tree]) -> tuple[list[list[int]], int]:
    """Put trees, by number, with one prefix into rows as wide as the widest tree, which costs no padding."""
    width = max(tree.columns for tree in trees)
    rows: dict[Hashable, list[list[int]]] = {}
    for number, tree in enumerate(trees):
        of_prefix = rows.setdefault(id(tree.cut.prefix), [])
        fitting = (row for row in of_prefix if tree.columns + sum(trees[at].columns for at in row) <= width)
        row = next(fitting, None)
        if row is None:
            of_prefix.append([number])
        else:
            row.append(number)
    return [row for of_prefix in rows.values() for row in of_prefix], width


def _arrange(
    trees: Sequence[Tree], rows: Sequence[Sequence[int]], width: int, suffix_width: int, option_width: int
) -> tuple[list[list[_Column]], dict[int, list[int]], int]:
    """Return the columns of every row, and per tree the places (row times width plus column) whose logits are read.

    Those places, one per token of an option, are among the last columns; how many that are is returned too.
    """
    options_before = list(itertools.accumulate((len(tree.options) for tree in trees), initial=0))
    arranged: list[list[_Column]] = []
    read: dict[int, list[int]] = {}
    keep = 0
    for number, row in enumerate(rows):
        heads: list[_Column] = []
        tails: list[_Column] = []
        for at in row:
            tree, prefix = trees[at], trees[at].cut.prefix
            first, start = (at + 1) * suffix_width - tree.suffix, prefix.length + prefix.shift
            *begun, last = (_Column(first + step, start + step, at, -1) for step in range(tree.suffix))
            heads += begun
            read[at], after = [], len(tails)
            tails.append(last)
            for option_number, option in enumerate(tree.options, options_before[at]):
                read[at] += [after, *range(len(tails), len(tails) + len(option) - 1)]
                first = len(trees) * suffix_width + option_number * option_width
                behind = last.position + 1
                tails += [_Column(first + step, behind + step, at, option_number) for step in range(len(option) - 1)]
        end = (number + 1) * width - len(tails)
        read |= {at: [end + place for place in read[at]] for at in row}
        # Padding has to see something: itself.
        padding = [_Column(0, 0, -1 - place, -1) for place in range(width - len(heads) - len(tails))]
        arranged.append([*padding, *heads, *tails])
        keep = max(keep, len(tails))
    return arranged, read, keep


def _mask(columns: torch.Tensor, lengths: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return what is added to attention, shape (rows, 1, width, longest prefix + width): 0, or very little."""
    _, position, tree, option = columns.unbind(-1)
    seen = (tree[:, :, None] == tree[:, None]) & (position[:, None] <= position[:, :, None])
    seen &= (option[:, None] == -1) | (option[:, None] == option[:, :, None])
    longest = max(lengths)
    prefix = torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]
    seen = torch.cat([prefix[:, None].expand(-1, seen.shape[1], -1).to(seen.device), seen], dim=-1)
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
    return mask.masked_fill(~seen, torch.finfo(dtype).min)[:, None]
