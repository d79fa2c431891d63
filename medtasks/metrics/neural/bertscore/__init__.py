"""BERTScore: similarity of two texts by the vectors of their tokens."""
