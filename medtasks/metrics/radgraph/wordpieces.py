"""Words as the encoder's wordpieces."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medtasks.errors import WeightsMissing
from medtasks.metrics.radgraph.words import as_read

Pieces = list[list[int]]


class Wordpieces:
    """The encoder's tokenizer, asked once per word.

    Args:
        encoder: Folder with its vocabulary.
        max_length: Wordpieces per segment, [CLS] and [SEP] included.

    Raises:
        WeightsMissing: The vocabulary is missing or damaged.
    """

    def __init__(self, encoder: Path, max_length: int) -> None:
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(str(encoder), local_files_only=True)
        except Exception as error:  # tokenizers raise bare Exceptions
            reason = f"{error}".partition("\n")[0]
            raise WeightsMissing(f"the encoder's vocabulary in {encoder} cannot be read ({reason})") from error
        # What transformers builds without a vocabulary, and says nothing.
        if len(self._tokenizer) <= len(self._tokenizer.all_special_tokens):
            raise WeightsMissing(f"the encoder's vocabulary (vocab.txt or tokenizer.json) is missing from {encoder}")
        self._window = max_length - 2
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        """Return the size of the vocabulary."""
        return len(self._tokenizer)

    def pieces(self, reports: Sequence[Sequence[str]]) -> list[Pieces]:
        """Return the wordpieces of each word of each report; a word may have none."""
        new = list({word for words in reports for word in words} - self._known.keys())
        if new:
            # A lone half of a character pair, as in a reply cut within an emoji, cannot be tokenized.
            readable = [as_read(word).encode("utf-8", "replace").decode() for word in new]
            found = self._tokenizer(
                readable,
                add_special_tokens=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            self._known.update(zip(new, found["input_ids"], strict=True))
        return [[self._known[word] for word in words] for words in reports]

    def segments(self, pieces: Pieces) -> list[list[int]]:
        """Return what the encoder sees of a report: pieces between [CLS] and [SEP], in segments if there are many.

        Segments end after a number of pieces, within a word too.
        """
        flat = [piece for word in pieces for piece in word]
        first, last = self._tokenizer.cls_token_id, self._tokenizer.sep_token_id
        return [[first, *flat[at : at + self._window], last] for at in range(0, len(flat), self._window)]
