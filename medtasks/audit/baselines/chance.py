"""What guessing scores: the exact expectation of metrics for an option drawn at random, each with the same chance.

Only metrics that are means over questions, pairs or classes of what one guess is worth have such a formula; the others,
such as macro F1, are left out rather than simulated.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.audit.baselines.blind_replies import key_of
from medtasks.hooks.grouped_choice import LEVELS, level_of

Document = Mapping[str, Any]


def expected_scores(documents: Sequence[Document]) -> dict[str, float]:
    """Return the expected scores of guessing, by the names that metrics of the family have.

    Args:
        documents: All of one family (:mod:`medtasks.data.schema`) with options and a published key; MedHEval's closed
            questions count their own guesses (``random_choice``).

    Returns:
        Nothing for other families; also without any document of a part, such as the questions of one granularity.

    Example:
        >>> expected_scores([{"options": ["a", "b"], "answer": "A"}, {"options": ["a", "b", "c", "d"], "answer": "A"}])
        {'invalid_rate': 0.0, 'accuracy': 0.375}
    """
    first = documents[0]
    if "options" not in first or "labels" in first or "choices" in first:
        return {}
    if "answers" not in first and any(key_of(document) is None for document in documents):
        return {}
    if "rotation" in first:
        return {"invalid_rate": 0.0, **_rotated(documents)}
    if "pair_id" in first:
        return {"invalid_rate": 0.0, **_paired(documents)}
    if "label" in first:
        return {"invalid_rate": 0.0, **_classes(documents)}
    if "answers" in first:
        return {"invalid_rate": 0.0, **_several_right(documents)}
    return {"invalid_rate": 0.0, **_single(documents)}


def _right(document: Document) -> float:
    """Return the chance that one guess is right."""
    return len(document.get("answers", "?")) / len(document["options"])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _single(documents: Sequence[Document]) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for document in documents:
        parts["accuracy"].append(_right(document))
        level = level_of(document.get("granularity"))
        if level in LEVELS:
            parts[f"acc_{level}_level"].append(_right(document))
    return {name: _mean(values) for name, values in parts.items()}


def _several_right(documents: Sequence[Document]) -> dict[str, float]:
    """List one option of each question: the share of it that is right, and its share of what is right."""
    return {
        "mcls_accuracy": _mean([_right(document) for document in documents]),
        "mcls_recall": _mean([1 / len(document["options"]) for document in documents]),
    }


def _paired(documents: Sequence[Document]) -> dict[str, float]:
    """Guess both images of a pair independently of each other."""
    pairs: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        pairs[document["pair_id"]].append(document)
    complete = [members for members in pairs.values() if len(members) == 2]
    scores = {"individual_accuracy": _mean([_right(document) for document in documents])}
    if complete:
        scores["set_accuracy"] = _mean([_right(one) * _right(other) for one, other in complete])
        scores["confusion"] = _mean([1 / max(len(one["options"]), len(other["options"])) for one, other in complete])
    return scores


def _rotated(documents: Sequence[Document]) -> dict[str, float]:
    """Guess each rotation of a question independently of the others."""
    questions: dict[str, list[Document]] = defaultdict(list)
    for document in documents:
        questions[document["rotation_of"]].append(document)
    complete = [asked[0] for asked in questions.values() if len(asked) == len(asked[0]["options"])]
    published = [document for document in documents if document["rotation"] == 0]
    scores = {"mean_accuracy": _mean([_right(asked[0]) for asked in questions.values()])}
    if published:
        scores["published_order"] = _mean([_right(document) for document in published])
    if complete:
        sizes = [len(document["options"]) for document in complete]
        scores["worst_case"] = _mean([_right(document) ** size for document, size in zip(complete, sizes, strict=True)])
        scores["flip_rate"] = _mean([1 - size ** (1 - size) for size in sizes])
    return scores


def _classes(documents: Sequence[Document]) -> dict[str, float]:
    """Of k classes each recall is 1 / k and each AUROC 1/2; a class that is absent, or alone, has an AUROC of 0."""
    classes = max(len(document["options"]) for document in documents)
    present = len({document["label"] for document in documents})
    scored = present if present > 1 else 0
    scores = {"balanced_accuracy": 1 / classes, "macro_auroc": scored / classes / 2}
    return {**scores, "present_class_auroc": 0.5} if scored else scores
