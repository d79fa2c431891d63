"""The ``bert-score`` package, with the two calls put back that transformers 5 took from its tokenizers."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bert_score
import pytest
import torch
from transformers import AutoTokenizer


class _Tokenizer:
    """What bert-score asks of a tokenizer; RoBERTa's puts a space in front, as before transformers 5."""

    def __init__(self, folder: Path, longest: int) -> None:
        self._inner = AutoTokenizer.from_pretrained(folder)
        self._prefix = " " if "Roberta" in type(self._inner).__name__ else ""
        self.model_max_length = longest
        self.pad_token_id = self._inner.pad_token_id
        self.cls_token_id = self._inner.cls_token_id
        self.sep_token_id = self._inner.sep_token_id

    def encode(self, text: str, **options: Any) -> Any:
        return self._inner.encode(self._prefix + text, **options)

    def build_inputs_with_special_tokens(self, ids: Sequence[int]) -> list[int]:
        return [self.cls_token_id, *ids, self.sep_token_id]


def package_scores(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    layer: int,
    references: Sequence[str],
    hypotheses: Sequence[str],
    idf: str,
    longest: int,
) -> list[list[float]]:
    """Return precision, recall and F1 of the package, each shape (pairs,)."""
    module = sys.modules["bert_score.score"]
    tokenizer = _Tokenizer(folder, longest)
    monkeypatch.setattr(module, "get_tokenizer", lambda *_: tokenizer)
    texts = {"none": None, "references": references, "hypotheses": hypotheses}[idf]
    weights = False if texts is None else bert_score.utils.get_idf_dict(texts, tokenizer, nthreads=0)
    # One pair per batch: with padding the package takes 0 for the best of tokens whose cosines are all negative.
    scores = bert_score.score(
        hypotheses, references, model_type=str(folder), num_layers=layer, idf=weights, batch_size=1, device="cpu"
    )
    return [torch.nan_to_num(values, nan=0.0).tolist() for values in scores]
