"""How well two annotated reports agree: pure functions of annotations.

All are F1 of two sets, 0 where either is empty, and the same if the two reports change places. Sources:
``F1RadGraph`` of the ``radgraph`` package, version 0.1.18 (``simple``, ``partial``, ``complete``: RG_E, RG_ER and
RG_ER-bar of Delbrouck et al., 2022), and CXR-Report-Metric at 9c9ecad (``entity_f1``, ``relation_f1``, ``combined``).

The package compares words with case, save in the relations of ``complete``; its repository has compared everything
without case since July 2026, under the same version number. ``case_sensitive`` chooses.
"""

from collections.abc import Iterable, Iterator, Set

from medtasks.metrics.radgraph.annotations import Annotation, Entity


def overlap_f1(first: Set[object], second: Set[object]) -> float:
    """Return the F1 of two sets: 2 |A and B| / (|A| + |B|); 0 if both are empty.

    Example:
        >>> overlap_f1({"effusion", "left"}, {"effusion"})
        0.6666666666666666
    """
    size = len(first) + len(second)
    return 2 * len(first & second) / size if size else 0.0


def simple(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label)`` of all entities."""

    def items(annotation: Annotation) -> set[object]:
        return {(_words(entity, case_sensitive), entity["label"]) for entity in annotation["entities"].values()}

    return overlap_f1(items(first), items(second))


def partial(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label, whether a relation starts there)`` of all entities."""

    def items(annotation: Annotation) -> set[object]:
        return {
            (_words(entity, case_sensitive), entity["label"], bool(entity["relations"]))
            for entity in annotation["entities"].values()
        }

    return overlap_f1(items(first), items(second))


def complete(first: Annotation, second: Annotation, *, case_sensitive: bool = True) -> float:
    """Return the F1 of ``(words, label)`` of entities where no relation starts, and of all relations.

    A relation is ``(words, label, relation, words of the other entity)``, compared without case whatever
    ``case_sensitive`` says.
    """

    def items(annotation: Annotation) -> Iterator[object]:
        for entity, relation, other in _relations(annotation):
            yield _words(entity, False), entity["label"], relation, _words(other, False)
        for entity in annotation["entities"].values():
            if not entity["relations"]:
                yield _words(entity, case_sensitive), entity["label"]

    return _f1_of(items(first), items(second))


def entity_f1(first: Annotation, second: Annotation) -> float:
    """Return CXR-Report-Metric's entity F1, which is :func:`simple` with case."""
    return simple(first, second)


def relation_f1(first: Annotation, second: Annotation) -> float:
    """Return CXR-Report-Metric's relation F1, of ``((words, label), (words, label), relation)`` with case.

    Two reports without relations score 0, not 1.
    """

    def items(annotation: Annotation) -> Iterator[object]:
        for entity, relation, other in _relations(annotation):
            yield (entity["tokens"], entity["label"]), (other["tokens"], other["label"]), relation

    return _f1_of(items(first), items(second))


def combined(first: Annotation, second: Annotation) -> float:
    """Return the mean of :func:`entity_f1` and :func:`relation_f1`, which RadCliQ takes.

    Equal reports without relations score 0.5.
    """
    return (entity_f1(first, second) + relation_f1(first, second)) / 2


def _words(entity: Entity, case_sensitive: bool) -> str:
    return entity["tokens"] if case_sensitive else entity["tokens"].lower()


def _relations(annotation: Annotation) -> Iterator[tuple[Entity, str, Entity]]:
    for entity in annotation["entities"].values():
        for relation, number in entity["relations"]:
            yield entity, relation, annotation["entities"][number]


def _f1_of(first: Iterable[object], second: Iterable[object]) -> float:
    return overlap_f1(set(first), set(second))
