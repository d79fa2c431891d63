"""Documents that belong together because they share a patient, an image or a pair."""

from collections.abc import Hashable, Iterable, Sequence


def connected_components(keys: Sequence[Iterable[Hashable]]) -> list[int]:
    """Return for each document the first one of all that it is connected with, directly or through others.

    ``keys`` are what each document shares with others that have the same; keys and positions have shape (documents,).

    Example:
        >>> connected_components([["a"], ["b"], ["a", "c"], ["c"], []])
        [0, 1, 0, 0, 4]
    """
    first = list(range(len(keys)))
    seen: dict[Hashable, int] = {}

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for place, shared in enumerate(keys):
        for key in shared:
            earlier, later = sorted((root(place), root(seen.setdefault(key, place))))
            first[later] = earlier
    return [root(place) for place in range(len(keys))]
