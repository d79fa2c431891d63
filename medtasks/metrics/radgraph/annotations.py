"""RadGraph's annotation of a report, as the ``radgraph`` package returns it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypedDict


class Entity(TypedDict):
    """A labelled span.

    Attributes:
        tokens: Its words, joined with spaces.
        label: Such as ``OBS-DP`` or ``Anatomy::definitely present``.
        start_ix: Index of its first word.
        end_ix: Index of its last word.
        relations: ``[label, number of the other entity]`` of each relation that starts here.
    """

    tokens: str
    label: str
    start_ix: int
    end_ix: int
    relations: list[list[str]]


class Annotation(TypedDict):
    """An annotated report.

    Attributes:
        text: Its words, joined with spaces.
        entities: By number, from ``"1"`` on, ordered by first and last word.
        data_source: Always None.
        data_split: Always ``"inference"``.
    """

    text: str
    entities: dict[str, Entity]
    data_source: str | None
    data_split: str


@dataclass(frozen=True)
class Prediction:
    """What the network says of one report, in the order of the words.

    Attributes:
        entities: ``(first word, last word, label)``.
        relations: ``(position of one entity, position of the other, label)``, ordered.
    """

    entities: Sequence[tuple[int, int, str]] = ()
    relations: Sequence[tuple[int, int, str]] = ()


def annotation(words: Sequence[str], prediction: Prediction) -> Annotation:
    """Write down a prediction.

    Args:
        words: The report.
        prediction: Entities and relations of these words.
    """
    entities: list[Entity] = [
        {
            "tokens": " ".join(words[first : last + 1]),
            "label": label,
            "start_ix": first,
            "end_ix": last,
            "relations": [],
        }
        for first, last, label in prediction.entities
    ]
    for source, target, label in prediction.relations:
        entities[source]["relations"].append([label, str(target + 1)])
    return {
        "text": " ".join(words),
        "entities": {str(number): entity for number, entity in enumerate(entities, start=1)},
        "data_source": None,
        "data_split": "inference",
    }
