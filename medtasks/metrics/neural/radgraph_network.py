"""RadGraph's network: from wordpieces to vectors of words, to entities and relations between them (DyGIE++).

A span of words is ``[first word; last word; width]``. One perceptron labels every span, another ranks it. Between the
best spans of a report a third one looks for relations, from ``[a; b; a * b]``. First layers are split into their parts,
which are computed per word or per span instead of per span or per pair. Reports are laid end to end; nothing is padded.

Source: Wadden et al., 2019 (arXiv 1909.03546), and the ``radgraph`` package, version 0.1.18, with the same predictions.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear
from transformers import AutoConfig, AutoModel, AutoTokenizer

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import text_encoders
from medtasks.metrics.neural.metric_checkpoints import Archive, Contents

# Replacements for the encoder; annotations have the original words. Source: ``DyGIEReader`` of the package.
READ_AS = {"/.": ".", "/?": "?"}
_ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
_PAIRS_AT_ONCE = 4096

Entities = dict[str, dict[str, Any]]
Reports = Sequence[Sequence[str]]
"""Words of each report."""


class WordEncoder:
    """RadGraph's encoder. The vector of a word is the mean of those of its wordpieces."""

    def __init__(
        self,
        archive: Archive,
        state: Mapping[str, Tensor],
        device: torch.device,
        dtype: str,
    ) -> None:
        folder = archive.encoder
        with text_encoders.weights_errors(
            lambda _, reason: f"the encoder's vocabulary in {folder} cannot be read ({reason})"
        ):
            text_encoders.check_configuration(folder)
            self._tokenizer: Any = AutoTokenizer.from_pretrained(
                str(folder), **text_encoders.LOCAL
            )
        # Without a vocabulary transformers silently builds a tokenizer without words.
        if len(self._tokenizer) <= len(self._tokenizer.all_special_tokens):
            raise WeightsMissing(
                f"the encoder's vocabulary (vocab.txt or tokenizer.json) is missing from {folder}"
            )
        weights = {
            name.removeprefix(_ENCODER): tensor
            for name, tensor in state.items()
            if name.startswith(_ENCODER)
        }
        # a buffer that older releases of transformers saved
        weights.pop("embeddings.position_ids", None)
        with text_encoders.weights_errors(
            lambda _, reason: (
                f"RadGraph's weights do not fit the encoder in {folder} ({reason})"
            )
        ):
            config = AutoConfig.from_pretrained(str(folder), **text_encoders.LOCAL)
            network = text_encoders.load_tensors(
                lambda: AutoModel.from_config(config, trust_remote_code=False), weights
            )
        self._model: Any = network.to(device)
        entries = len(self._tokenizer)
        size = int(self._model.get_input_embeddings().num_embeddings)
        sizes = f"the vocabulary in {folder} has {entries} wordpieces, but the encoder in {archive.path} {size}"
        smaller = f"{sizes}; if the vocabulary was cut short, scores are wrong"
        text_encoders.check_vocabulary(entries, size, sizes, smaller)
        self._device = device
        self._dtype = dtype
        self._window = archive.max_length - 2

    def pieces(self, reports: Reports) -> list[list[list[int]]]:
        """Return the wordpieces of each word of each report. A word may have none.

        Args:
            reports: Words of each report.
        """
        distinct = list(set(chain.from_iterable(reports)))
        # A lone half of a character pair, as in a reply cut within an emoji, cannot be tokenized.
        readable = [
            READ_AS.get(word, word).encode("utf-8", "replace").decode() for word in distinct
        ]
        encoded = self._tokenizer(
            readable,
            add_special_tokens=False,
            return_attention_mask=False,
            verbose=False,
        )
        by_word = dict(zip(distinct, encoded["input_ids"], strict=True))
        return [[by_word[word] for word in words] for words in reports]

    def vectors(
        self,
        reports: Sequence[Sequence[Sequence[int]]],
        batch_size: int,
    ) -> Tensor:
        """Return one vector per word, zeros for a word without wordpieces.

        The encoder reads the pieces between [CLS] and [SEP], long reports in segments, which may end within a word.

        Args:
            reports: Result of :meth:`pieces`.
            batch_size: Number of segments per pass.

        Returns:
            Vectors in float32, shape (words of all reports, hidden).
        """
        first = self._tokenizer.cls_token_id
        last = self._tokenizer.sep_token_id
        segments = []
        lengths = []
        for words in reports:
            lengths += [len(pieces) for pieces in words]
            flat = list(chain.from_iterable(words))
            for start in range(0, len(flat), self._window):
                segments.append([first, *flat[start : start + self._window], last])
        counts = torch.tensor(lengths, device=self._device)
        width = self._model.config.hidden_size
        sums = torch.zeros(len(counts), width, device=self._device)
        is_half = self._dtype == "bfloat16"
        vectors = []
        for start in range(0, len(segments), batch_size):
            batch = segments[start : start + batch_size]
            ids, mask = text_encoders.pad_rows(batch, 0, self._device)
            with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=is_half):
                hidden: Tensor = self._model(
                    input_ids=ids, attention_mask=mask
                ).last_hidden_state
            # Without [CLS] and [SEP]: a piece is followed by another piece or by [SEP].
            is_piece = mask[:, 2:].bool()
            vectors.append(hidden[:, 1:-1][is_piece].float())
        if vectors:
            owners = torch.repeat_interleave(
                torch.arange(len(counts), device=self._device), counts
            )
            sums.index_add_(0, owners, torch.cat(vectors))
        return sums / counts.clamp(min=1)[:, None]


class _Perceptron:
    """Linear layers with ReLU between them. The first is applied by the caller, who splits its weight by features."""

    def __init__(
        self,
        state: Mapping[str, Tensor],
        hidden: str,
        last: str,
        device: torch.device,
    ) -> None:
        prefix = f"{hidden}._linear_layers."
        count = sum(name.startswith(prefix) and name.endswith(".weight") for name in state)
        names = [f"{prefix}{index}" for index in range(count)]
        layers = []
        for name in [*names, last]:
            weight = state[f"{name}.weight"].float().to(device)
            bias = state[f"{name}.bias"].float().to(device)
            layers.append((weight, bias))
        self.weight, self.bias = layers[0]
        self._rest = layers[1:]
        self.outputs = len(layers[-1][1])

    def scores(self, values: Tensor) -> Tensor:
        """Return the scores of items.

        Args:
            values: What the first layer gives, shape (items, hidden).

        Returns:
            Scores, shape (items, outputs).
        """
        for weight, bias in self._rest:
            values = linear(values.relu(), weight, bias)
        return values


class _Spans(NamedTuple):
    """All spans of words of some reports, sorted by report and first word, shape (spans,) each."""

    owner: Tensor  # position of the report
    first: Tensor  # first word, counted over all reports
    last: Tensor  # last word


class SpanNetwork:
    """Entities and relations from the vectors of words."""

    def __init__(
        self,
        archive: Archive,
        contents: Contents,
        device: torch.device,
    ) -> None:
        self._contents = contents
        self._device = device
        self._per_word = archive.spans_per_word
        entity = f"_ner._ner_scorers.{archive.model_type}__ner_labels"
        relation = f"{archive.model_type}__relation_labels"
        mention = f"_relation._mention_pruners.{relation}._scorer"

        def perceptron(hidden: str, last: str) -> _Perceptron:
            return _Perceptron(contents.state, hidden, last, device)

        try:
            self._widths = contents.state[_WIDTHS][: archive.max_span_width].float().to(device)
            self._entity = perceptron(f"{entity}.0._module", f"{entity}.1._module")
            self._mention = perceptron(f"{mention}.0._module", f"{mention}.1._module")
            self._relation = perceptron(
                f"_relation._relation_feedforwards.{relation}",
                f"_relation._relation_scorers.{relation}",
            )
        except KeyError as error:
            raise WeightsMissing(f"{archive.path} lacks the tensor {error}") from error
        outputs = (self._entity.outputs, self._relation.outputs, len(self._widths))
        labels = (
            len(contents.entity_labels),
            len(contents.relation_labels),
            archive.max_span_width,
        )
        if outputs != labels:
            raise WeightsMissing(
                f"{archive.path} has weights for (entity labels, relation labels, span widths) = {outputs}, "
                f"but names {labels}"
            )

    def predict(
        self,
        words: Tensor,
        reports: Reports,
    ) -> list[Entities]:
        """Find entities and relations.

        Args:
            words: Vectors of the words of all reports, shape (words, hidden).
            reports: Words of each report, at least one each.

        Returns:
            The entities of each report by number.
        """
        lengths = torch.tensor(list(map(len, reports)))
        # All spans of words of one report, up to the maximum width.
        owners = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        starts = torch.arange(len(owners))[:, None].expand(-1, len(self._widths))
        ends = starts + torch.arange(len(self._widths))
        inside = ends < lengths.cumsum(0)[owners][:, None]
        spans = _Spans(owners[starts[inside]], starts[inside], ends[inside])
        best, label = self._span_scores(self._entity, words, spans).max(dim=1)
        mentions = self._span_scores(self._mention, words, spans)[:, 0]
        is_entity = best > 0  # "no entity" scores 0
        may_relate = is_entity & self._best_of_reports(mentions, spans, lengths)
        related = may_relate.nonzero()[:, 0]
        candidates = _Spans(*(part[related.cpu()] for part in spans))
        is_entity = is_entity.cpu()
        numbers = (is_entity.cumsum(0) - 1)[related.cpu()].tolist()  # of the entities
        relations = [
            (numbers[source], numbers[target], kind)
            for source, target, kind in self._relations(words, candidates, mentions[may_relate])
        ]
        entities = torch.stack([*spans, label.cpu()])[:, is_entity].T.tolist()
        return self._write(reports, entities, relations)

    def _span_scores(
        self,
        perceptron: _Perceptron,
        words: Tensor,
        spans: _Spans,
    ) -> Tensor:
        """Return the scores of spans, shape (spans, outputs)."""
        first = spans.first.to(self._device)
        last = spans.last.to(self._device)
        sizes = [words.shape[1], words.shape[1], self._widths.shape[1]]
        of_first, of_last, of_width = torch.split(perceptron.weight, sizes, dim=1)
        widths = linear(self._widths, of_width, perceptron.bias)
        layer = (
            linear(words, of_first)[first] + linear(words, of_last)[last] + widths[last - first]
        )
        return perceptron.scores(layer)

    def _best_of_reports(
        self,
        mentions: Tensor,
        spans: _Spans,
        lengths: Tensor,
    ) -> Tensor:
        """Return whether each span is among the best of its report, which may have relations."""
        # The number is computed in float32 like the package: in float64 some products round up to another integer.
        limits = (lengths.float() * self._per_word).ceil().long().tolist()
        counts = torch.bincount(spans.owner, minlength=len(lengths)).tolist()
        is_best = torch.zeros_like(mentions, dtype=torch.bool)
        start = 0
        for count, limit in zip(counts, limits, strict=True):
            scores = mentions[start : start + count]
            best = scores.topk(max(1, min(count, limit))).indices
            is_best[best + start] = True
            start += count
        return is_best

    def _relations(
        self,
        words: Tensor,
        spans: _Spans,
        ranks: Tensor,
    ) -> Iterator[tuple[int, int, int]]:
        """Yield ``(source, target, label)`` of relations between spans of the same report, which have ``ranks``."""
        first = spans.first.to(self._device)
        last = spans.last.to(self._device)
        widths = self._widths[last - first]
        vectors = torch.cat([words[first], words[last], widths], dim=1)
        first_part, second_part, both = torch.split(
            self._relation.weight, vectors.shape[1], dim=1
        )
        as_first = linear(vectors, first_part, self._relation.bias)
        as_second = linear(vectors, second_part)
        groups = torch.split(
            torch.arange(len(spans.owner)), torch.bincount(spans.owner).tolist()
        )
        none = torch.empty(0, 2, dtype=torch.long)
        # All pairs of spans of one report, either way round and each with itself.
        all_pairs = torch.cat([none, *(torch.cartesian_prod(group, group) for group in groups)])
        for pairs in torch.split(all_pairs.to(self._device), _PAIRS_AT_ONCE):
            source, target = pairs.T
            products = linear(vectors[source] * vectors[target], both)
            scores = self._relation.scores(as_first[source] + as_second[target] + products)
            of_pair = ranks[source] + ranks[target]
            best, kind = (scores + of_pair[:, None]).max(dim=1)
            relations = torch.stack([source, target, kind])
            yield from relations[:, best > 0].T.tolist()  # 0 is "no relation"

    def _write(
        self,
        reports: Reports,
        rows: Sequence[Sequence[int]],
        relations: Sequence[tuple[int, int, int]],
    ) -> list[Entities]:
        """Return entities by number, from ``(report, first word, last word, label)`` and relations between rows."""
        entities_of: list[Entities] = [{} for _ in reports]
        begins = [0, *accumulate(map(len, reports))]
        numbered = []
        for owner, start, end, label in rows:
            first = start - begins[owner]
            last = end - begins[owner]
            entity: dict[str, Any] = {
                "tokens": " ".join(reports[owner][first : last + 1]),
                "label": self._contents.entity_labels[label],
                "start_ix": first,
                "end_ix": last,
                "relations": [],
            }
            number = str(len(entities_of[owner]) + 1)
            numbered.append((number, entity))
            entities_of[owner][number] = entity
        for source, target, label in relations:
            relation = [self._contents.relation_labels[label], numbered[target][0]]
            numbered[source][1]["relations"].append(relation)
        return entities_of


class Annotator:
    """A loaded RadGraph."""

    def __init__(self, archive: Archive, settings: ModelSettings) -> None:
        self._device = settings.torch_device()
        contents = archive.read()
        # A processor's caches hold the activations of few texts; a GPU needs many to be busy.
        self._batch_size = settings.batch_size or (8 if self._device.type == "cpu" else 64)
        self._progress = settings.progress
        self._window = archive.max_length - 2
        self._encoder = WordEncoder(archive, contents.state, self._device, settings.dtype)
        self._network = SpanNetwork(archive, contents, self._device)

    def entities(self, reports: Reports) -> Iterator[tuple[int, Entities]]:
        """Read reports.

        Args:
            reports: Words of each report, at least one each.

        Yields:
            ``(position, entities)``, the longest reports first.
        """
        pieces = self._encoder.pieces(reports)

        def run(batch: Sequence[int]) -> list[Entities]:
            pieces_of_batch = [pieces[position] for position in batch]
            with text_encoders.encoding(self._device, "float32"):
                vectors = self._encoder.vectors(pieces_of_batch, self._batch_size)
                return self._network.predict(vectors, [reports[position] for position in batch])

        lengths = [sum(map(len, words)) for words in pieces]
        batches = text_encoders.length_batches(lengths, self._batch_size, self._window)
        return text_encoders.run_batches(
            batches,
            run,
            description="RadGraph",
            progress=self._progress,
        )
