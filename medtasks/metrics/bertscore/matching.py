"""What BERTScore keeps of a pair of texts: its tokens, and how well each is matched on the other side.

Every way of weighting tokens starts from these numbers, so an encoder sees a pair once whatever scores are asked for.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SPECIAL_TOKENS = 2
"""[CLS] in front and [SEP] behind; a text with no token between them is empty."""


@dataclass(frozen=True, eq=False)
class TokenMatches:
    """One pair of texts.

    Attributes:
        reference_ids: Token ids of the reference with [CLS] first and [SEP] last, shape (m,).
        hypothesis_ids: The same of the hypothesis, shape (n,).
        reference_best: Largest cosine of each reference token with any token of the hypothesis, [CLS] and [SEP]
            included, shape (m,); zeros where one side is empty.
        hypothesis_best: The same of each hypothesis token, shape (n,).
    """

    reference_ids: NDArray[np.int32]
    hypothesis_ids: NDArray[np.int32]
    reference_best: NDArray[np.float32]
    hypothesis_best: NDArray[np.float32]

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
