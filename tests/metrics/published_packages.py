"""Published packages that compute the same metrics as ours, and their callers.

Packages run on the CPU, in float32, one pair after the other, with the weights of our metrics. Two of them need
features that transformers 5 removed from its tokenizers: ``encode_plus`` and ``build_inputs_with_special_tokens`` for
``radgraph``, the second and the space before RoBERTa's first word for ``bert-score``.
"""

import csv
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module, resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medtasks.metrics.model_settings import ModelSettings, weights_path
from medtasks.metrics.neural.metric_checkpoints import Archive, ModelType, open_archive
from medtasks.metrics.neural.text_encoders import LOCAL, longest_text, quiet

Texts = Sequence[str]
Values = Sequence[
    Sequence[float] | float
]  # per key of our metric, in order: of each pair, or of the corpus
Oracle = Callable[[Texts, Texts, ModelSettings], Values]


def _rouge(stemmed: bool) -> Oracle:
    def scores(references: Texts, hypotheses: Texts, _: ModelSettings) -> Values:
        from rouge_score.rouge_scorer import RougeScorer

        scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=stemmed)
        rows = [
            scorer.score(*pair).values() for pair in zip(references, hypotheses, strict=True)
        ]
        return [[score.fmeasure for score in column] for column in zip(*rows, strict=True)]

    return scores


def _bleu(references: Texts, hypotheses: Texts, _: ModelSettings) -> Values:
    """Score each pair as a corpus of its own, over words between white space and unsmoothed, as MultiMedEval."""
    from sacrebleu.metrics.bleu import BLEU

    scorers = [
        BLEU(max_ngram_order=order, tokenize="none", smooth_method="none", force=True)
        for order in (1, 2, 4)
    ]
    pairs = list(zip(references, hypotheses, strict=True))
    return [
        [
            scorer.corpus_score([hypothesis], [[reference]]).score / 100
            for reference, hypothesis in pairs
        ]
        for scorer in scorers
    ]


def _corpus_bleu(references: Texts, hypotheses: Texts, _: ModelSettings) -> Values:
    import sacrebleu

    return [sacrebleu.corpus_bleu(hypotheses, [references], force=True).score / 100]


def package_bertscore(
    folder: Path,
    layer: int,
    references: Texts,
    hypotheses: Texts,
    *,
    idf: str,
    batch_size: int = 1,
) -> list[Sequence[float]]:
    """Return raw precision, recall and F1 of ``bert-score``, each of shape (pairs,); 0 where it has none.

    ``idf`` are the texts of the document frequencies: ``"none"``, ``"references"`` or ``"hypotheses"``. One pair per
    batch is right: with padding the package takes 0 for the best of tokens whose cosines are all negative.
    """
    import bert_score
    import torch
    from transformers import AutoConfig, AutoTokenizer

    # RoBERTa's tokenizer begins texts with a space, as before transformers 5.
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, **LOCAL)
    tokenizer.model_max_length = longest_text(
        AutoConfig.from_pretrained(folder, **LOCAL), tokenizer
    )
    encode, prefix = tokenizer.encode, " " if "Roberta" in type(tokenizer).__name__ else ""
    tokenizer.encode = lambda text, add_prefix_space=True, **options: encode(
        prefix + text, **options
    )
    tokenizer.build_inputs_with_special_tokens = lambda ids: [
        tokenizer.cls_token_id,
        *ids,
        tokenizer.sep_token_id,
    ]
    module: Any = sys.modules["bert_score.score"]  # the package has a function of this name
    original = module.get_tokenizer
    texts = {"none": None, "references": references, "hypotheses": hypotheses}[idf]
    weights = (
        False if texts is None else bert_score.utils.get_idf_dict(texts, tokenizer, nthreads=0)
    )
    module.get_tokenizer = lambda *_: tokenizer
    try:
        options = {
            "num_layers": layer,
            "idf": weights,
            "batch_size": batch_size,
            "device": "cpu",
        }
        scores = bert_score.score(hypotheses, references, model_type=str(folder), **options)
    finally:
        module.get_tokenizer = original
    return [torch.nan_to_num(values, nan=0.0).tolist() for values in scores]


def _bertscore(
    encoder: str, layer: int, idf: str = "none", *, rescaled_f1: bool = False
) -> Oracle:
    """Return raw precision, recall and F1; or F1 alone, raw and rescaled."""

    def scores(references: Texts, hypotheses: Texts, settings: ModelSettings) -> Values:
        folder = weights_path(encoder, settings.named_weights.get(encoder))
        with quiet():
            raw = package_bertscore(folder, layer, references, hypotheses, idf=idf)
        if not rescaled_f1:
            return raw
        table = resources.files("bert_score") / "rescale_baseline" / "en" / f"{encoder}.tsv"
        rows = csv.DictReader(table.read_text().splitlines())
        (baseline,) = [float(row["F"]) for row in rows if row["LAYER"] == str(layer)]
        return [raw[-1], [(value - baseline) / (1 - baseline) for value in raw[-1]]]

    return scores


@contextmanager
def package_radgraph(archive: Archive) -> Iterator[Any]:
    """Load ``radgraph.RadGraph`` with an archive and its encoder, without changing their files."""
    import radgraph
    from transformers import PreTrainedTokenizerBase

    added = {
        "encode_plus": lambda self, *args, **options: self(*args, **options),
        "build_inputs_with_special_tokens": lambda self, ids: [
            self.cls_token_id,
            *ids,
            self.sep_token_id,
        ],
    }
    missing = {
        name: method
        for name, method in added.items()
        if not hasattr(PreTrainedTokenizerBase, name)
    }
    with tempfile.TemporaryDirectory(prefix="medtasks-") as folder:
        # The package downloads encoders by name, so the name has to be the folder.
        unpacked = Path(folder) / archive.model_type
        (unpacked / "vocabulary").mkdir(parents=True)
        for name, file in archive.members():
            (unpacked / name).write_bytes(file.read())
        config = json.loads((unpacked / "config.json").read_text())
        for part in (
            config["dataset_reader"]["token_indexers"],
            config["model"]["embedder"]["token_embedders"],
        ):
            part["bert"]["model_name"] = str(archive.encoder)
        (unpacked / "config.json").write_text(json.dumps(config))
        for name, method in missing.items():
            setattr(PreTrainedTokenizerBase, name, method)
        try:
            yield radgraph.RadGraph(
                model_type=archive.model_type, model_cache_dir=folder, cuda=-1
            )
        finally:
            for name in missing:
                delattr(PreTrainedTokenizerBase, name)


def _radgraph(model_type: ModelType) -> Oracle:
    def scores(references: Texts, hypotheses: Texts, settings: ModelSettings) -> Values:
        with package_radgraph(open_archive(model_type, settings)) as model:
            package = import_module("radgraph")
            scorer = package.F1RadGraph.__new__(
                package.F1RadGraph
            )  # whose constructor downloads a model
            super(package.F1RadGraph, scorer).__init__()
            scorer.reward_level, scorer.radgraph = "all", model
            # On texts of white space the package fails.
            refs, hyps = (
                [text if text.strip() else "" for text in side]
                for side in (references, hypotheses)
            )
            return list(scorer(refs=refs, hyps=hyps)[1])

    return scores


# By metric.
ORACLES: Mapping[str, Oracle] = MappingProxyType(
    {
        "bleu": _bleu,
        "corpus_bleu": _corpus_bleu,
        "rouge": _rouge(stemmed=False),
        "rouge_stemmed": _rouge(stemmed=True),
        "bertscore": _bertscore("distilroberta-base", 5, rescaled_f1=True),
        "bertscore_multimedeval": _bertscore(
            "distilroberta-base", 5, "hypotheses", rescaled_f1=True
        ),
        "medheval_bertscore": _bertscore("roberta-large", 17),
        "radgraph": _radgraph("radgraph"),
        "radgraph_xl": _radgraph("radgraph-xl"),
    }
)
