"""RadGraph's network: from wordpieces to vectors of words, to entities and relations between them (DyGIE++).

A span of words is ``[first word; last word; width]``. One perceptron labels every span, another ranks it. Between the
best spans of a report a third one looks for relations, from ``[a; b; a * b]``. First layers are split into their parts,
which are computed per word or per span instead of per span or per pair. Reports are laid end to end; nothing is padded.

Source: Wadden et al., 2019 (arXiv 1909.03546), and the ``radgraph`` package, version 0.1.18, with the same predictions.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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


class WordEncoder:
    """RadGraph's encoder; the vector of a word is the mean of those of its wordpieces."""

    def __init__(
        self, archive: Archive, state: Mapping[str, Tensor], device: torch.device, dtype: str
    ) -> None:
        folder = archive.encoder
        with text_encoders.weights_errors(
            lambda _, reason: f"the encoder's vocabulary in {folder} cannot be read ({reason})"
        ):
            text_encoders.check_configuration(folder)
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), **text_encoders.LOCAL)
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
        weights.pop(
            "embeddings.position_ids", None
        )  # a buffer that older releases of transformers saved
        with text_encoders.weights_errors(
            lambda _, reason: f"RadGraph's weights do not fit the encoder in {folder} ({reason})"
        ):
            config = AutoConfig.from_pretrained(str(folder), **text_encoders.LOCAL)
            network = text_encoders.load_tensors(
                lambda: AutoModel.from_config(config, trust_remote_code=False), weights
            )
        self._model: Any = network.to(device)
        entries, size = len(self._tokenizer), int(self._model.get_input_embeddings().num_embeddings)
        sizes = f"the vocabulary in {folder} has {entries} wordpieces, but the encoder in {archive.path} {size}"
        text_encoders.check_vocabulary(
            entries, size, sizes, f"{sizes}; if the vocabulary was cut short, scores are wrong"
        )
        self._device, self._dtype, self._window = device, dtype, archive.max_length - 2

    def pieces(self, reports: Sequence[Sequence[str]]) -> list[list[list[int]]]:
        """Return the wordpieces of each word of each report; a word may have none."""
        distinct = list({word for words in reports for word in words})
        # A lone half of a character pair, as in a reply cut within an emoji, cannot be tokenized.
        readable = [
            READ_AS.get(word, word).encode("utf-8", "replace").decode() for word in distinct
        ]
        encoded = self._tokenizer(
            readable, add_special_tokens=False, return_attention_mask=False, verbose=False
        )
        by_word = dict(zip(distinct, encoded["input_ids"], strict=True))
        return [[by_word[word] for word in words] for words in reports]

    def vectors(self, reports: Sequence[Sequence[Sequence[int]]], batch_size: int) -> Tensor:
        """Return one vector per word, shape (words of all reports, hidden), float32; zeros without wordpieces.

        The encoder reads :meth:`pieces` between [CLS] and [SEP], long reports in segments, which may end within a word;
        ``batch_size`` is the number of segments per pass.
        """
        first, last = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        segments = []
        for words in reports:
            flat = [piece for word in words for piece in word]
            segments += [
                [first, *flat[at : at + self._window], last]
                for at in range(0, len(flat), self._window)
            ]
        counts = torch.tensor(
            [len(word) for words in reports for word in words], device=self._device
        )
        sums = torch.zeros(len(counts), self._model.config.hidden_size, device=self._device)
        vectors = []
        for at in range(0, len(segments), batch_size):
            ids, mask = text_encoders.pad_rows(segments[at : at + batch_size], 0, self._device)
            with torch.autocast(
                self._device.type, dtype=torch.bfloat16, enabled=self._dtype == "bfloat16"
            ):
                hidden: Tensor = self._model(input_ids=ids, attention_mask=mask).last_hidden_state
            # Without [CLS] and [SEP]: a piece is followed by another piece or by [SEP].
            vectors.append(hidden[:, 1:-1][mask[:, 2:].bool()].float())
        if vectors:
            owners = torch.repeat_interleave(torch.arange(len(counts), device=self._device), counts)
            sums.index_add_(0, owners, torch.cat(vectors))
        return sums / counts.clamp(min=1)[:, None]


class _Perceptron:
    """Linear layers with ReLU between them. The first is applied by the caller, who splits its weight by features."""

    def __init__(
        self, state: Mapping[str, Tensor], hidden: str, last: str, device: torch.device
    ) -> None:
        count = sum(
            name.startswith(f"{hidden}._linear_layers.") and name.endswith(".weight")
            for name in state
        )
        names = [*(f"{hidden}._linear_layers.{index}" for index in range(count)), last]
        layers = [
            [state[f"{name}.{part}"].float().to(device) for part in ("weight", "bias")]
            for name in names
        ]
        (self.weight, self.bias), *self._rest = layers
        self.outputs = len(layers[-1][1])

    def scores(self, values: Tensor) -> Tensor:
        """Return the scores, shape (items, outputs), from what the first layer gives, shape (items, hidden)."""
        for weight, bias in self._rest:
            values = linear(values.relu(), weight, bias)
        return values


class SpanNetwork:
    """Entities and relations from the vectors of words."""

    def __init__(self, archive: Archive, contents: Contents, device: torch.device) -> None:
        self._contents, self._device, self._per_word = contents, device, archive.spans_per_word
        relation, entity = (f"{archive.model_type}__{kind}_labels" for kind in ("relation", "ner"))
        scorers = (f"_ner._ner_scorers.{entity}", f"_relation._mention_pruners.{relation}._scorer")
        names = [(f"{scorer}.0._module", f"{scorer}.1._module") for scorer in scorers]
        names.append(
            (
                f"_relation._relation_feedforwards.{relation}",
                f"_relation._relation_scorers.{relation}",
            )
        )
        try:
            self._widths = contents.state[_WIDTHS][: archive.max_span_width].float().to(device)
            perceptrons = [
                _Perceptron(contents.state, hidden, last, device) for hidden, last in names
            ]
        except KeyError as error:
            raise WeightsMissing(f"{archive.path} lacks the tensor {error}") from error
        self._entity, self._mention, self._relation = perceptrons
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

    def predict(self, words: Tensor, reports: Sequence[Sequence[str]]) -> list[Entities]:
        """Find entities and relations in reports of at least one word each; ``words`` has shape (all words, hidden)."""
        lengths = torch.tensor([len(report) for report in reports])
        owners = torch.repeat_interleave(torch.arange(len(reports)), lengths)
        starts = torch.arange(len(owners))[:, None].expand(-1, len(self._widths))
        ends = starts + torch.arange(len(self._widths))
        inside = ends < lengths.cumsum(0)[owners][:, None]
        starts, ends = starts[inside], ends[inside]
        owner, first, last = owners[starts], starts.to(self._device), ends.to(self._device)
        span_scores = []
        for perceptron in (self._entity, self._mention):
            sizes = [words.shape[1], words.shape[1], self._widths.shape[1]]
            of_first, of_last, of_width = torch.split(perceptron.weight, sizes, dim=1)
            widths = linear(self._widths, of_width, perceptron.bias)
            layer = (
                linear(words, of_first)[first] + linear(words, of_last)[last] + widths[last - first]
            )
            span_scores.append(perceptron.scores(layer))
        best, label = span_scores[0].max(dim=1)
        mentions = span_scores[1][:, 0]
        is_entity = best > 0  # "no entity" scores 0
        # The best spans of each report may have relations. Their number is computed in float32 like the package: in
        # float64 some products round up to another integer.
        limits = (lengths.float() * self._per_word).ceil().long().tolist()
        best_spans, at = torch.zeros_like(mentions, dtype=torch.bool), 0
        for count, limit in zip(
            torch.bincount(owner, minlength=len(lengths)).tolist(), limits, strict=True
        ):
            best_spans[mentions[at : at + count].topk(max(1, min(count, limit))).indices + at] = (
                True
            )
            at += count
        best_spans &= is_entity
        chosen = best_spans.nonzero()[:, 0]
        vectors = torch.cat(
            [words[first[chosen]], words[last[chosen]], self._widths[(last - first)[chosen]]], dim=1
        )
        is_entity, chosen, label = is_entity.cpu(), chosen.cpu(), label.cpu()
        number = (is_entity.cumsum(0) - 1)[chosen].tolist()
        numbers = torch.split(
            torch.arange(len(chosen)),
            torch.bincount(owner[chosen], minlength=len(reports)).tolist(),
        )
        # All pairs of candidates of one report, either way round and each with itself, shape (pairs, 2).
        none = torch.empty(0, 2, dtype=torch.long)
        pairs = torch.cat([none, *(torch.cartesian_prod(spans, spans) for spans in numbers)])
        first_part, second_part, both = torch.split(self._relation.weight, vectors.shape[1], dim=1)
        as_first, as_second = (
            linear(vectors, first_part, self._relation.bias),
            linear(vectors, second_part),
        )
        ranks, relations = mentions[best_spans], list[tuple[int, int, int]]()
        for source, target in (
            part.T for part in torch.split(pairs.to(self._device), _PAIRS_AT_ONCE)
        ):
            products = linear(vectors[source] * vectors[target], both)
            scores = self._relation.scores(as_first[source] + as_second[target] + products)
            best, kind = (scores + (ranks[source] + ranks[target])[:, None]).max(dim=1)
            rows = torch.stack([source, target, kind])[:, best > 0].T.tolist()  # 0 is "no relation"
            relations += [(number[a], number[b], relation) for a, b, relation in rows]
        entities = torch.stack([owner, starts, ends, label])[:, is_entity].T.tolist()
        return self._written(reports, entities, relations)

    def _written(
        self,
        reports: Sequence[Sequence[str]],
        rows: Sequence[Sequence[int]],
        relations: Sequence[tuple[int, int, int]],
    ) -> list[Entities]:
        """Return entities by number, from ``(report, first word, last word, label)`` and relations between rows."""
        written: list[Entities] = [{} for _ in reports]
        begins = [0, *torch.tensor([len(report) for report in reports]).cumsum(0).tolist()]
        numbered = []
        for owner, start, end, label in rows:
            first, last = start - begins[owner], end - begins[owner]
            entity = {
                "tokens": " ".join(reports[owner][first : last + 1]),
                "label": self._contents.entity_labels[label],
                "start_ix": first,
                "end_ix": last,
                "relations": [],
            }
            numbered.append((str(len(written[owner]) + 1), entity))
            written[owner] |= [numbered[-1]]
        for source, target, label in relations:
            numbered[source][1]["relations"].append(
                [self._contents.relation_labels[label], numbered[target][0]]
            )
        return written


class Annotator:
    """A loaded RadGraph."""

    def __init__(self, archive: Archive, settings: ModelSettings) -> None:
        self._device, contents = settings.torch_device(), archive.read()
        # A processor's caches hold the activations of few texts; a GPU needs many to be busy.
        self._batch_size = settings.batch_size or (8 if self._device.type == "cpu" else 64)
        self._progress, self._window = settings.progress, archive.max_length - 2
        self._encoder = WordEncoder(archive, contents.state, self._device, settings.dtype)
        self._network = SpanNetwork(archive, contents, self._device)

    def entities(self, reports: Sequence[Sequence[str]]) -> Iterator[tuple[int, Entities]]:
        """Read reports, given as words, at least one each; yield ``(position, entities)``, the longest first."""
        pieces = self._encoder.pieces(reports)

        def run(batch: Sequence[int]) -> list[Entities]:
            with text_encoders.encoding(self._device, "float32"):
                vectors = self._encoder.vectors(
                    [pieces[position] for position in batch], self._batch_size
                )
                return self._network.predict(vectors, [reports[position] for position in batch])

        batches = text_encoders.length_batches(
            [sum(map(len, words)) for words in pieces], self._batch_size, self._window
        )
        return text_encoders.run_batches(
            batches, run, description="RadGraph", progress=self._progress
        )
