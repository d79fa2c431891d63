"""RadGraph's scorers of spans and of pairs of spans (DyGIE++) in plain torch, on many reports at once.

A span of words is ``[first word; last word; width]``. One perceptron labels every span, another ranks it. Between the
best spans of a report a third one looks for relations, from ``[a; b; a * b]``. First layers are split into their parts,
which are computed per word or per span instead of per span or per pair. Reports are laid end to end; nothing is padded.

Source: Wadden et al., 2019 (arXiv 1909.03546), and the ``radgraph`` package, version 0.1.18, whose predictions these
are.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import linear

from medtasks.errors import WeightsMissing
from medtasks.metrics.neural.radgraph.annotations import Prediction
from medtasks.metrics.neural.radgraph.archive import Archive, Contents

_WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
_PAIRS_AT_ONCE = 4096


class Perceptron:
    """Linear layers with ReLU between them, which give a number of scores, ``outputs``.

    The first one, ``weight`` of shape (hidden, features) and ``bias``, is applied by the caller, who may split it.
    """

    def __init__(self, state: Mapping[str, Tensor], hidden: str, last: str, device: torch.device) -> None:
        count = sum(name.startswith(f"{hidden}._linear_layers.") and name.endswith(".weight") for name in state)
        names = [*(f"{hidden}._linear_layers.{index}" for index in range(count)), last]
        layers = [[state[f"{name}.{part}"].float().to(device) for part in ("weight", "bias")] for name in names]
        (self.weight, self.bias), *self._rest = layers
        self.outputs = len(layers[-1][1])

    def scores(self, first: Tensor) -> Tensor:
        """Return the scores, shape (items, outputs), from what the first layer gives, shape (items, hidden)."""
        values = first
        for weight, bias in self._rest:
            values = linear(values.relu(), weight, bias)
        return values


class SpanNetwork:
    """Entities and relations from the vectors of words."""

    def __init__(self, archive: Archive, contents: Contents, device: torch.device) -> None:
        state, pruner = contents.state, f"_relation._mention_pruners.{contents.relation_scorer}._scorer"
        entity = f"_ner._ner_scorers.{contents.entity_scorer}"
        try:
            self._widths = state[_WIDTHS][: archive.max_span_width].float().to(device)
            self._entity = Perceptron(state, f"{entity}.0._module", f"{entity}.1._module", device)
            self._mention = Perceptron(state, f"{pruner}.0._module", f"{pruner}.1._module", device)
            self._relation = Perceptron(
                state,
                f"_relation._relation_feedforwards.{contents.relation_scorer}",
                f"_relation._relation_scorers.{contents.relation_scorer}",
                device,
            )
        except KeyError as error:
            raise WeightsMissing(f"{archive.path} lacks the tensor {error}") from error
        outputs = (self._entity.outputs, self._relation.outputs, len(self._widths))
        labels = (len(contents.entity_labels), len(contents.relation_labels), archive.max_span_width)
        if outputs != labels:
            raise WeightsMissing(
                f"{archive.path} has weights for (entity labels, relation labels, span widths) = {outputs}, "
                f"but names {labels}"
            )
        self._archive, self._contents, self._device = archive, contents, device

    def predict(self, words: Tensor, lengths: Sequence[int]) -> list[Prediction]:
        """Find entities and relations in reports laid end to end, each of ``lengths`` words, at least 1.

        Vectors of the words are float32, of shape (words, hidden).
        """
        starts, ends = self._spans(lengths)
        owner = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))[starts]
        starts_on, ends_on = starts.to(self._device), ends.to(self._device)
        best, label = self._entity.scores(self._first_layer(self._entity, words, starts_on, ends_on)).max(dim=1)
        mentions = self._mention.scores(self._first_layer(self._mention, words, starts_on, ends_on))[:, 0]
        is_entity = best > 0  # "no entity" scores 0
        kept = self._best_spans(mentions, lengths, owner) & is_entity
        chosen = kept.nonzero()[:, 0]
        vectors = torch.cat(
            [words[starts_on[chosen]], words[ends_on[chosen]], self._widths[(ends_on - starts_on)[chosen]]], dim=1
        )
        is_entity, chosen, label = is_entity.cpu(), chosen.cpu(), label.cpu()
        pairs = _pairs(torch.bincount(owner[chosen], minlength=len(lengths)).tolist())
        entities = torch.stack([owner, starts, ends, label])[:, is_entity].T.tolist()
        number = (is_entity.cumsum(0) - 1)[chosen].tolist()
        relations = [
            (number[source], number[target], kind)
            for source, target, kind in sorted(self._relations(vectors, mentions[kept], pairs))
        ]
        return self._by_report(lengths, entities, relations)

    def _spans(self, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return first and last words of all spans within one report each, ordered, each of shape (spans,)."""
        sizes = torch.tensor(lengths)
        stops = torch.repeat_interleave(sizes.cumsum(0), sizes)[:, None]
        starts = torch.arange(len(stops))[:, None].expand(-1, self._archive.max_span_width)
        ends = starts + torch.arange(self._archive.max_span_width)
        return starts[ends < stops], ends[ends < stops]

    def _first_layer(self, perceptron: Perceptron, words: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        hidden = words.shape[1]
        first, last, width = torch.split(perceptron.weight, [hidden, hidden, self._widths.shape[1]], dim=1)
        widths = linear(self._widths, width, perceptron.bias)
        return linear(words, first)[starts] + linear(words, last)[ends] + widths[ends - starts]

    def _best_spans(self, mentions: Tensor, lengths: Sequence[int], owner: Tensor) -> Tensor:
        """Return which spans are among the best of their report, shape (spans,)."""
        counts = torch.bincount(owner, minlength=len(lengths)).tolist()
        # In float32 like the package: in float64 some products round up to another integer.
        wanted = (torch.tensor(lengths, dtype=torch.float32) * self._archive.spans_per_word).ceil().long().tolist()
        best, at = [], 0
        for count, number in zip(counts, wanted, strict=True):
            best.append(mentions[at : at + count].topk(max(1, min(count, number))).indices + at)
            at += count
        chosen = torch.zeros_like(mentions, dtype=torch.bool)
        chosen[torch.cat(best)] = True
        return chosen

    def _relations(self, vectors: Tensor, mentions: Tensor, pairs: Tensor) -> Iterator[tuple[int, int, int]]:
        """Yield ``(one span, the other, label)`` of every relation, both ways round of every pair."""
        size = vectors.shape[1]
        first, second, product = torch.split(self._relation.weight, [size, size, size], dim=1)
        as_first, as_second = linear(vectors, first, self._relation.bias), linear(vectors, second)
        for left, right in torch.split(pairs.to(self._device), _PAIRS_AT_ONCE, dim=1):
            both = linear(vectors[left] * vectors[right], product)
            source, target = torch.cat([left, right]), torch.cat([right, left])
            scores = self._relation.scores(as_first[source] + as_second[target] + torch.cat([both, both]))
            best, label = (scores + (mentions[source] + mentions[target])[:, None]).max(dim=1)
            related = best > 0  # "no relation" scores 0
            related[len(left) :] &= left != right
            yield from map(tuple, torch.stack([source, target, label])[:, related].T.tolist())

    def _by_report(
        self, lengths: Sequence[int], entities: Sequence[Sequence[int]], relations: Sequence[tuple[int, int, int]]
    ) -> list[Prediction]:
        starts = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        reports: list[tuple[list[tuple[int, int, str]], list[tuple[int, int, str]]]] = [([], []) for _ in lengths]
        place = []
        for owner, first, last, label in entities:
            place.append(len(reports[owner][0]))
            name = self._contents.entity_labels[label]
            reports[owner][0].append((first - starts[owner], last - starts[owner], name))
        for source, target, label in relations:
            relation = (place[source], place[target], self._contents.relation_labels[label])
            reports[entities[source][0]][1].append(relation)
        return [Prediction(*both) for both in reports]


def _pairs(counts: Sequence[int]) -> Tensor:
    """Return all pairs of candidates of one report, each once and itself included, shape (2, pairs)."""
    parts, at = [torch.empty(2, 0, dtype=torch.long)], 0
    for count in counts:
        parts.append(torch.triu_indices(count, count) + at)
        at += count
    return torch.cat(parts, dim=1)
