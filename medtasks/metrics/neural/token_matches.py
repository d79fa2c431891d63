"""Best matches of the tokens of pairs of texts, from which BERTScore starts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPECIAL_TOKENS = 2  # [CLS] in front and [SEP] at the end; a text with no token between them is empty


@dataclass(frozen=True, eq=False)
class TokenMatches:
    """Best matches of the tokens of one pair of texts, from which every way of weighting tokens starts.

    Ids are those of tokens with [CLS] first and [SEP] last; best is the largest cosine of each token with any token of
    the other text, [CLS] and [SEP] included, zeros where one side is empty.
    """

    reference_ids: NDArray[np.int32]  # shape (m,)
    hypothesis_ids: NDArray[np.int32]  # shape (n,)
    reference_best: NDArray[np.float32]  # shape (m,)
    hypothesis_best: NDArray[np.float32]  # shape (n,)

    @property
    def empty(self) -> bool:
        """Whether one side has no token of its own."""
        return min(len(self.reference_ids), len(self.hypothesis_ids)) <= SPECIAL_TOKENS

    def to_bytes(self) -> bytes:
        """Return the pair in the form a cache keeps."""
        length = np.array([len(self.reference_ids)], dtype="<i4")
        ids = np.concatenate([length, self.reference_ids, self.hypothesis_ids]).astype("<i4")
        best = np.concatenate([self.reference_best, self.hypothesis_best]).astype("<f4")
        return ids.tobytes() + best.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "TokenMatches":
        """Read what :meth:`to_bytes` wrote."""
        numbers = (len(data) - 4) // 8
        ids = np.frombuffer(data, dtype="<i4", count=numbers + 1)
        best = np.frombuffer(data, dtype="<f4", offset=4 * (numbers + 1))
        length = int(ids[0])
        return cls(ids[1 : length + 1], ids[length + 1 :], best[:length], best[length:])
