"""RadGraph's annotation of a report, as the ``radgraph`` package returns it, and how well two annotations agree.

All scores are F1 of two sets, 0 where either is empty, and the same if the two reports change places. Sources:
``F1RadGraph`` of the ``radgraph`` package, version 0.1.18 (``simple``, ``partial``, ``complete``: RG_E, RG_ER and
RG_ER-bar of Delbrouck et al., 2022), and CXR-Report-Metric at 9c9ecad (``entity_f1``, ``relation_f1``, ``combined``).

The package compares words with case, save in the relations of ``complete``; its repository has compared everything
without case since July 2026, under the same version number. ``case_sensitive`` chooses.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict


class Entity(TypedDict):
    """A labelled span, from its first word to its last.

    ``tokens`` are its words, joined with spaces, a ``label`` is ``OBS-DP`` or ``Anatomy::definitely present``, and the
    relations that start here are ``[label, number of the other entity]``.
    """

    tokens: str
    label: str
    start_ix: int
    end_ix: int
    relations: list[list[str]]


class Annotation(TypedDict):
    """An annotated report: its words, joined with spaces, and entities by number from ``"1"`` on, ordered by place.

    ``data_source`` is always None, ``data_split`` always ``"inference"``.
    """

    text: str
    entities: dict[str, Entity]
    data_source: str | None
    data_split: str


@dataclass(frozen=True)
class Prediction:
    """What the network says of one report, in the order of the words.

    Entities are ``(first word, last word, label)``, relations ``(position of one entity, of the other, label)``.
    """

    entities: Sequence[tuple[int, int, str]] = ()
    relations: Sequence[tuple[int, int, str]] = ()


def annotation(words: Sequence[str], prediction: Prediction) -> Annotation:
    """Write down the entities and relations of these words."""
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


def overlap_f1(first: Iterable[object], second: Iterable[object]) -> float:
    """Return the F1 of two sets: 2 |A and B| / (|A| + |B|); 0 if both are empty.

    Example:
        >>> overlap_f1(["effusion", "left"], ["effusion"])
        0.6666666666666666
    """
    these, those = set(first), set(second)
    size = len(these) + len(those)
    return 2 * len(these & those) / size if size else 0.0


def simple(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label)`` of all entities."""

    def items(report: Annotation) -> Iterator[object]:
        return ((_words(entity, case_sensitive), entity["label"]) for entity in report["entities"].values())

    return overlap_f1(items(first), items(second))


def partial(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label, whether a relation starts there)`` of all entities."""

    def items(report: Annotation) -> Iterator[object]:
        for entity in report["entities"].values():
            yield _words(entity, case_sensitive), entity["label"], bool(entity["relations"])

    return overlap_f1(items(first), items(second))


def complete(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label)`` of entities where no relation starts, and of all relations.

    A relation is ``(words, label, relation, words of the other entity)``, compared without case whatever
    ``case_sensitive`` says.
    """

    def items(report: Annotation) -> Iterator[object]:
        for entity, relation, other in _relations(report):
            yield _words(entity, False), entity["label"], relation, _words(other, False)
        for entity in report["entities"].values():
            if not entity["relations"]:
                yield _words(entity, case_sensitive), entity["label"]

    return overlap_f1(items(first), items(second))


def entity_f1(first: Annotation, second: Annotation) -> float:
    """Return CXR-Report-Metric's entity F1, which is :func:`simple` with case."""
    return simple(first, second)


def relation_f1(first: Annotation, second: Annotation) -> float:
    """Return CXR-Report-Metric's F1 of ``((words, label), (words, label), relation)`` with case; 0 without any."""

    def items(report: Annotation) -> Iterator[object]:
        for entity, relation, other in _relations(report):
            yield (entity["tokens"], entity["label"]), (other["tokens"], other["label"]), relation

    return overlap_f1(items(first), items(second))


def combined(first: Annotation, second: Annotation) -> float:
    """Return the mean of :func:`entity_f1` and :func:`relation_f1`; 0.5 for equal reports without relations."""
    return (entity_f1(first, second) + relation_f1(first, second)) / 2


def _words(entity: Entity, case_sensitive: bool) -> str:
    return entity["tokens"] if case_sensitive else entity["tokens"].lower()


def _relations(report: Annotation) -> Iterator[tuple[Entity, str, Entity]]:
    for entity in report["entities"].values():
        for relation, number in entity["relations"]:
            yield entity, relation, report["entities"][number]
