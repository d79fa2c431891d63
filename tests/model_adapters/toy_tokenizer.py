"""A small SentencePiece tokenizer, for tests and for benchmarks, which import this file by its folder."""

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import sentencepiece


def write_tokenizer(folder: Path, lines: Iterable[str], vocabulary: int, **more: Any) -> int:
    """Write ``tokenizer.model`` with byte fallback; returns the number of its pieces."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocabulary,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        hard_vocab_limit=False,
        minloglevel=2,
        **more,
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).GetPieceSize()
