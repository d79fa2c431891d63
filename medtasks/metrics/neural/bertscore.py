"""BERTScore: tokens of pairs of texts matched by an encoder, then precision, recall and F1, and its report metrics.

Source: Zhang et al., "BERTScore: Evaluating Text Generation with BERT" (ICLR 2020), sections 3 and 4; for other details
and the baseline version 0.3.13 of the ``bert-score`` package.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from loguru import logger
from numpy.typing import NDArray

from medtasks.errors import WeightsMissing
from medtasks.metrics.metric import harmonic_mean
from medtasks.metrics.model_settings import ModelSettings, TextCache, text_key
from medtasks.metrics.neural import text_encoders
from medtasks.metrics.report_metrics import ReportScores, Texts, mean_scores

if TYPE_CHECKING:
    import torch

Ids = NDArray[np.int32]
Cosines = NDArray[np.float32]
_VERSION = 1  # of the computation of the cached numbers
_SPECIAL_TOKENS = 2  # [CLS] and [SEP]; a text without any other token is empty
_FAMILIES = ("bert", "roberta")
# Larger batches need more padding and gain nothing on a CPU.
_CPU_BATCH = 16
_GPU_BATCH = 128
_WINDOW = 1 << 15  # tokens; their vectors take 100 MB at a width of 768

RADCLIQ_ENCODER = "distilroberta-base"
RADCLIQ_LAYER = 5
# F1 of unrelated sentences under that encoder; source: rescale_baseline/en/distilroberta-base.tsv of the package.
BASELINE_F1 = 0.8473319
# The package's choice for lang="en".
MEDHEVAL_ENCODER = "roberta-large"
MEDHEVAL_LAYER = 17

_VOCABULARIES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
_TEXT_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)


@dataclass(frozen=True, eq=False)
class TokenMatches:
    """Token ids of one pair of texts, and the largest cosine of each token with any token of the other text.

    [CLS] is first and [SEP] last; cosines are zero if one side is empty.
    """

    reference_ids: Ids  # shape (m,)
    hypothesis_ids: Ids  # shape (n,)
    reference_best: Cosines  # shape (m,)
    hypothesis_best: Cosines  # shape (n,)

    def to_bytes(self) -> bytes:
        """Return the pair as bytes for a cache."""
        length = np.array([len(self.reference_ids)], dtype="<i4")
        ids = np.concatenate([length, self.reference_ids, self.hypothesis_ids]).astype("<i4")
        best = np.concatenate([self.reference_best, self.hypothesis_best]).astype("<f4")
        return ids.tobytes() + best.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "TokenMatches":
        """Read the result of :meth:`to_bytes`."""
        numbers = (len(data) - 4) // 8
        ids = np.frombuffer(data, dtype="<i4", count=numbers + 1)
        best = np.frombuffer(data, dtype="<f4", offset=4 * (numbers + 1))
        length = int(ids[0])
        return cls(ids[1 : length + 1], ids[length + 1 :], best[:length], best[length:])


class Idf(StrEnum):
    """Texts over which document frequencies are counted."""

    NONE = "none"
    REFERENCES = "references"
    HYPOTHESES = "hypotheses"


class BertScores(NamedTuple):
    """Weighted means of the best cosines of the tokens of hypothesis and reference, and F1, each of shape (pairs,)."""

    precision: tuple[float, ...]
    recall: tuple[float, ...]
    f1: tuple[float, ...]


def bert_scores(
    matches: Sequence[TokenMatches],
    idf: Idf = Idf.NONE,
) -> BertScores:
    """Score pairs.

    Precision is the weighted mean, over the tokens of the hypothesis, of the largest cosine with any token of the
    reference; recall is the reverse; F1 = 2 * precision * recall / (precision + recall).

    Without idf every token weighs 1, [CLS] and [SEP] weigh 0. With idf a token weighs ``log((N + 1) / (d + 1))`` for N
    texts of which d hold it, so that a call must have the whole set; [CLS] and [SEP], in every text, weigh 0.

    A pair with an empty side has precision, recall and F1 of 0. A side whose tokens all weigh 0 (of a single text, or
    equal texts) has NaN, and the pair an F1 of 0, as in ``bert-score``.

    Args:
        matches: Matched tokens of each pair.
        idf: Texts over which document frequencies are counted.
    """
    weights_by_id = None
    if idf is not Idf.NONE:
        distinct_ids = [np.empty(0, dtype=np.int32)]  # of each text that counts
        size = 1
        for pair in matches:
            ids = pair.reference_ids if idf is Idf.REFERENCES else pair.hypothesis_ids
            distinct_ids.append(np.unique(ids))
            largest = max(pair.reference_ids.max(), pair.hypothesis_ids.max())
            size = max(size, 1 + int(largest))
        counts = np.bincount(np.concatenate(distinct_ids), minlength=size)
        weights_by_id = np.asarray(np.log((len(matches) + 1) / (counts + 1)))
    scores = []
    for pair in matches:
        precision = 0.0
        recall = 0.0
        if min(len(pair.reference_ids), len(pair.hypothesis_ids)) > _SPECIAL_TOKENS:
            precision = _weighted_mean(pair.hypothesis_best, pair.hypothesis_ids, weights_by_id)
            recall = _weighted_mean(pair.reference_best, pair.reference_ids, weights_by_id)
        f1 = harmonic_mean(precision, recall)
        scores.append((precision, recall, 0.0 if math.isnan(f1) else f1))
    undefined = sum(
        math.isnan(precision) or math.isnan(recall) for precision, recall, _ in scores
    )
    if undefined:
        logger.warning(
            "BERTScore with idf over the {}: in {} of {} pairs all tokens of a text are in all {} of the call, weigh "
            "nothing, and F1 is 0; score more, and more varied, texts at once.",
            *(idf, undefined, len(matches), idf),
        )
    if not scores:
        return BertScores((), (), ())
    return BertScores(*zip(*scores, strict=True))


def _weighted_mean(
    best: Cosines,
    ids: Ids,
    weights_by_id: NDArray[np.float64] | None,
) -> float:
    """Return the weighted mean of the best cosines of a text's tokens, NaN if all of them weigh 0.

    Args:
        best: Best cosine of each token, shape (tokens,).
        ids: Id of each token, [CLS] first and [SEP] last.
        weights_by_id: Weight of a token by its id. If None, every token weighs 1 but [CLS] and [SEP], which weigh 0.
    """
    # Not by position: a text may hold "</s>" itself.
    is_special = (ids == ids[0]) | (ids == ids[-1])
    weights = np.where(is_special, 0.0, 1.0)
    if weights_by_id is not None:
        weights = weights_by_id[ids]
    total = float(weights.sum())
    if not total > 0:
        return math.nan
    return float(best.astype(np.float64) @ weights) / total


class ContextualEncoder:
    """A BERT or RoBERTa encoder up to one layer.

    Args:
        folder: Folder of its configuration, weights and vocabulary.
        layer: Layer whose output is used, counted from 1. Those above are not loaded.
        settings: Settings of the metric's model.

    Raises:
        WeightsMissing: A file is damaged, or of another kind of network.
    """

    def __init__(
        self,
        folder: Path,
        layer: int,
        settings: ModelSettings,
    ) -> None:
        from transformers import AutoConfig, AutoModel, AutoTokenizer

        self.device = settings.torch_device()
        self._dtype = settings.dtype
        fix = "fetch it again, or give another folder"
        with (
            text_encoders.weights_errors(
                lambda kind, reason: (
                    f"{folder} cannot be read as an encoder ({kind}: {reason}); {fix}"
                )
            ),
            text_encoders.quiet(),
        ):
            text_encoders.check_configuration(folder)
            config = AutoConfig.from_pretrained(folder, **text_encoders.LOCAL)
            if config.model_type not in _FAMILIES:
                raise ValueError(
                    f"it is a '{config.model_type}', BERTScore reads {' and '.join(_FAMILIES)}"
                )
            if not 1 <= layer <= config.num_hidden_layers:
                raise ValueError(
                    f"it has {config.num_hidden_layers} layers, layer {layer} is required"
                )
            config.num_hidden_layers = layer
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **text_encoders.LOCAL)
            options = {"add_pooling_layer": False, "output_loading_info": True}
            model, report = AutoModel.from_pretrained(
                folder,
                config=config,
                **options,
                **text_encoders.LOCAL,
            )
            text_encoders.check_weights(model.state_dict())
        absent = [*report["missing_keys"], *report["mismatched_keys"]]
        if absent:
            raise WeightsMissing(
                f"the weights in {folder} lack {len(absent)} tensors of the encoder, first {absent[0]}; {fix}"
            )
        self._model: Any = model.float().to(self.device).eval()
        self._prefix = " " if config.model_type == "roberta" else ""
        self._longest = text_encoders.longest_text(config, self._tokenizer)

    def token_ids(self, texts: Texts) -> list[list[int]]:
        """Return the ids of each text, stripped, between [CLS] and [SEP], cut at the model's maximum length.

        RoBERTa gets a space before the first word, as in ``bert-score``, whose option transformers 5 ignores.
        """
        # Tokenizers refuse half a surrogate pair, which a cut JSON escape leaves.
        stripped = [text.strip().encode("utf-8", "replace").decode() for text in texts]
        prefixed = [self._prefix + text if text else "" for text in stripped]
        encoded = self._tokenizer(prefixed, truncation=True, max_length=self._longest)
        return list(encoded["input_ids"])

    def vectors(self, batch: Sequence[Sequence[int]]) -> "list[torch.Tensor]":
        """Return the unit vectors of each text's tokens.

        Args:
            batch: Token ids of each text, as from :meth:`token_ids`.

        Returns:
            One tensor per text in float32, shape (tokens, width), on the encoder's device.
        """
        from torch.nn.functional import normalize

        ids, mask = text_encoders.pad_rows(batch, self._tokenizer.pad_token_id, self.device)
        with text_encoders.encoding(self.device, self._dtype):
            hidden = self._model(ids, attention_mask=mask).last_hidden_state
            unit = normalize(hidden.float(), dim=-1)
        return [vectors[: len(row)].clone() for vectors, row in zip(unit, batch, strict=True)]


def match_pairs(
    encoder: ContextualEncoder,
    pairs: Sequence[tuple[str, str]],
    settings: ModelSettings,
) -> Iterator[tuple[int, TokenMatches]]:
    """Match the tokens of pairs of texts.

    Pairs of similar length form a window. The vectors of its texts are computed once, and freed after the window.

    Args:
        encoder: Encoder of the tokens.
        pairs: Reference and hypothesis of each pair.
        settings: Settings of the metric's model.

    Yields:
        ``(position, matches)``, in any order.
    """
    import torch

    texts = list(dict.fromkeys(chain.from_iterable(pairs)))
    ids = dict(zip(texts, encoder.token_ids(texts), strict=True))

    def match_tokens(
        position: int,
        cosines: "torch.Tensor",
    ) -> tuple[int, TokenMatches]:
        """Return the position of a pair and its matches, from its cosines of shape (m, n)."""
        reference, hypothesis = pairs[position]
        return position, TokenMatches(
            np.array(ids[reference], dtype=np.int32),
            np.array(ids[hypothesis], dtype=np.int32),
            cosines.amax(dim=1).numpy(),
            cosines.amax(dim=0).numpy(),
        )

    lengths = [(len(ids[reference]), len(ids[hypothesis])) for reference, hypothesis in pairs]
    with_words = []
    longest_first = sorted(range(len(pairs)), key=lambda position: -max(lengths[position]))
    for position in longest_first:
        if min(lengths[position]) > _SPECIAL_TOKENS:
            with_words.append(position)
        else:
            yield match_tokens(position, torch.zeros(lengths[position]))
    for position, cosines in _pair_cosines(encoder, pairs, ids, with_words, settings):
        yield match_tokens(position, cosines)


def _pair_cosines(
    encoder: ContextualEncoder,
    pairs: Sequence[tuple[str, str]],
    ids: Mapping[str, Sequence[int]],
    positions: Sequence[int],
    settings: ModelSettings,
) -> "Iterator[tuple[int, torch.Tensor]]":
    """Yield ``(position, cosines)`` of pairs, cosines of shape (reference tokens, hypothesis tokens).

    Args:
        encoder: Encoder of the tokens.
        pairs: Reference and hypothesis of each pair.
        ids: Token ids by text.
        positions: Pairs to compare, those with the longest texts first.
        settings: Size of batches, and whether to show a progress bar.
    """
    pairs_of = _pairs_by_window(pairs, ids, positions)
    queue = sorted(pairs_of)
    batch_size = settings.batch_size or (
        _CPU_BATCH if encoder.device.type == "cpu" else _GPU_BATCH
    )
    batches = []  # of positions in the queue, each of one window
    for _, group in groupby(range(len(queue)), lambda number: queue[number][0]):
        numbers = list(group)
        lengths = [len(ids[queue[number][1]]) for number in numbers]
        of_window = text_encoders.length_batches(lengths, batch_size)
        batches += [[numbers[index] for index in batch] for batch in of_window]
    encoded = text_encoders.run_batches(
        batches,
        lambda batch: encoder.vectors([ids[queue[number][1]] for number in batch]),
        description="BERTScore",
        progress=settings.progress,
    )
    vectors: dict[str, torch.Tensor] = {}
    window = 0
    for number, text_vectors in encoded:
        if queue[number][0] != window:
            vectors.clear()
        window, text = queue[number]
        vectors[text] = text_vectors
        for position in pairs_of[queue[number]]:
            reference, hypothesis = pairs[position]
            if vectors.keys() >= {reference, hypothesis}:
                with text_encoders.encoding(encoder.device, "float32"):
                    cosines = (vectors[reference] @ vectors[hypothesis].T).cpu()
                yield position, cosines


def _pairs_by_window(
    pairs: Sequence[tuple[str, str]],
    ids: Mapping[str, Sequence[int]],
    positions: Iterable[int],
) -> dict[tuple[int, str], list[int]]:
    """Return positions of pairs by number of the window and by text.

    A window is a run of ``positions`` whose texts have about ``_WINDOW`` tokens.
    """
    pairs_of: dict[tuple[int, str], list[int]] = {}
    window = 0
    tokens = 0
    for position in positions:
        reference, hypothesis = pairs[position]
        for text in {reference, hypothesis}:
            pairs_of.setdefault((window, text), []).append(position)
        tokens += len(ids[reference]) + len(ids[hypothesis])
        if tokens >= _WINDOW:
            window += 1
            tokens = 0
    return pairs_of


def _weight_files(folder: Path) -> list[Path]:
    """Return the files with the weights of an encoder.

    Raises:
        WeightsMissing: These files, the configuration or the vocabulary are not there.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    # Without a vocabulary transformers silently builds a tokenizer without words.
    has_vocabulary = any(
        all((folder / name).is_file() for name in names) for names in _VOCABULARIES
    )
    if not (weights and has_vocabulary and (folder / "config.json").is_file()):
        raise WeightsMissing(
            f"{folder} lacks part of an encoder: config.json, a vocabulary (vocab.json and merges.txt, vocab.txt "
            "or tokenizer.json) and model.safetensors must be there"
        )
    return weights


@dataclass(frozen=True)
class BertScore:
    """BERTScore with one layer, counted from 1, of one encoder, which is loaded for pairs not in the cache only."""

    encoder: str
    layer: int
    settings: ModelSettings

    def score(
        self,
        *,
        references: Texts,
        hypotheses: Texts,
        idf: Idf | str = Idf.NONE,
    ) -> BertScores:
        """Score pairs of texts, not rescaled.

        Args:
            references: One text per pair.
            hypotheses: The texts of the model, in the same order.
            idf: Texts of this call over which document frequencies are counted.
        """
        return bert_scores(self.matches(references, hypotheses), Idf(idf))

    def matches(self, references: Texts, hypotheses: Texts) -> list[TokenMatches]:
        """Return the matches of the tokens of each pair, shape (pairs,).

        Raises:
            WeightsMissing: A file of the encoder is not on this machine, or damaged.
        """
        if not references:
            return []
        folder = self.settings.find_weights(self.encoder)
        files = [*text_encoders.present(folder, _TEXT_FILES), *_weight_files(folder)]
        digest = " ".join(
            f"{file.name}={text_encoders.weights_digest([file])}" for file in files
        )
        model = f"bertscore {_VERSION}, layer {self.layer}, {self.settings.dtype}, {digest}"

        def match_new(new: Sequence[tuple[str, str]]) -> Iterator[tuple[int, TokenMatches]]:
            encoder = ContextualEncoder(folder, self.layer, self.settings)
            return match_pairs(encoder, new, self.settings)

        sides = (map(str.strip, references), map(str.strip, hypotheses))
        pairs = list(zip(*sides, strict=True))
        matches = TextCache(self.settings.cache, model).complete(
            {pair: text_key(*pair) for pair in pairs},
            match_new,
            encode=TokenMatches.to_bytes,
            decode=TokenMatches.from_bytes,
        )
        return [matches[pair] for pair in pairs]


def bertscore(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
    *,
    idf: Idf = Idf.NONE,
) -> ReportScores:
    """Score the BERTScore of RadCliQ: F1 of distilroberta-base, layer 5, by default without idf, raw and rescaled.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.
        idf: Texts of this call over which document frequencies are counted.

    Returns:
        ``bertscore_f1`` or ``idf_bertscore_f1`` by pair, the same ``rescaled_``, and their means.
    """
    scorer = BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings)
    raw = scorer.score(references=references, hypotheses=hypotheses, idf=idf).f1
    # The 0 of an empty text becomes negative.
    rescaled = [(score - BASELINE_F1) / (1.0 - BASELINE_F1) for score in raw]
    key = "bertscore_f1" if idf is Idf.NONE else "idf_bertscore_f1"
    facts = {
        "encoder": RADCLIQ_ENCODER,
        "layer": str(RADCLIQ_LAYER),
        "idf": str(idf),
        "baseline_f1": str(BASELINE_F1),
        "dtype": settings.dtype,
    }
    return mean_scores({key: list(raw), f"rescaled_{key}": rescaled}, facts)


# BERTScore with idf over the hypotheses; MultiMedEval reports the raw one.
bertscore_multimedeval = partial(bertscore, idf=Idf.HYPOTHESES)


def medheval_bertscore(
    settings: ModelSettings,
    references: Texts,
    hypotheses: Texts,
) -> ReportScores:
    """Score MedHEval's BERTScore: roberta-large, layer 17, neither rescaled nor weighted.

    Source: ``code/evaluation/open_ended_evaluation/generation_metrics.py`` of https://github.com/Aofei-Chang/MedHEval
    at 7f7d980, which prints it times 100.

    Args:
        settings: Weights, device, type of numbers and cache of the model.
        references: One text per pair.
        hypotheses: The texts of the model, in the same order.

    Returns:
        ``roberta_large_<precision, recall or f1>`` by pair, and their means.
    """
    scorer = BertScore(MEDHEVAL_ENCODER, MEDHEVAL_LAYER, settings)
    raw = scorer.score(references=references, hypotheses=hypotheses, idf=Idf.NONE)
    facts = {
        "encoder": MEDHEVAL_ENCODER,
        "layer": str(MEDHEVAL_LAYER),
        "idf": str(Idf.NONE),
        "rescaled": "no",
        "dtype": settings.dtype,
    }
    samples = {f"roberta_large_{name}": values for name, values in raw._asdict().items()}
    return mean_scores(samples, facts)
