"""Text to ids and back with a plain SentencePiece model, as the LLaMA-type tokenizers of the official stacks did it.

transformers 5 tokenizes LLaMA models differently from the versions the published models were run with, and cannot read
their ``tokenizer.model`` beside lmms-eval at all. SentencePiece itself reproduces the old ids.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import sentencepiece

from medtasks.errors import MedTasksError


class SentencePieceText:
    """A SentencePiece model with added tokens that it does not know; a file that is none is a ``MedTasksError``.

    Text is split at added tokens; every piece in between is encoded by itself, so that each begins with the model's
    leading blank. ``strip_around_added`` drops white space next to added tokens (transformers' slow tokenizers up to
    4.28).
    """

    def __init__(
        self, model_file: Path, added: Mapping[str, int] | None = None, *, strip_around_added: bool = False
    ) -> None:
        if not model_file.is_file():
            raise MedTasksError(f"{model_file} is missing; put the checkpoint's tokenizer.model there")
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(model_file.read_bytes())
        except (RuntimeError, TypeError) as error:
            raise MedTasksError(f"{model_file} is no SentencePiece model; download it again") from error
        self._added = dict(added or {})
        self._texts = {token: text for text, token in self._added.items()}
        self._strip = strip_around_added
        names = sorted(self._added, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    @property
    def vocabulary(self) -> int:
        """Number of pieces, added tokens not counted."""
        return int(self._model.GetPieceSize())

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``, without begin or end of sequence."""
        if self._split is None:
            return list(self._model.EncodeAsIds(text))
        ids: list[int] = []
        parts = self._split.split(text)
        for number, part in enumerate(parts):
            if part in self._added:
                ids.append(self._added[part])
                continue
            if self._strip:
                part = part.lstrip() if number > 0 else part
                part = part.rstrip() if number < len(parts) - 1 else part
            if part:
                ids += self._model.EncodeAsIds(part)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``; control pieces and added tokens are left out."""
        known = [token for token in ids if token < self.vocabulary and not self._model.IsControl(token)]
        return str(self._model.DecodeIds(known))
