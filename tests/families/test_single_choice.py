"""Scores of single questions with options, alone and by what they are about."""

import math
import random

import pytest

from medtasks.families.choice import GROUPED_CHOICE, LEVELS, SINGLE_CHOICE

from ..stats import error_matrices
from ..task_families import score_of, values_of


def choices(*answers):
    """Scores of single questions: (image, target, reply)."""
    documents = [
        {"doc_id": str(number), "options": ["x", "y"], "answer": key, "image_id": image}
        for number, (image, key, _) in enumerate(answers)
    ]
    return [
        score_of(SINGLE_CHOICE, document, reply, "robust_choice")
        for document, (*_, reply) in zip(documents, answers, strict=True)
    ]


def test_metrics_of_single_questions():
    found = values_of(SINGLE_CHOICE, choices((1, "A", "A"), (1, "A", "B"), (2, "B", "?"), (3, "B", "B")))
    assert found["accuracy"] == 0.5
    assert found["invalid_rate"] == 0.25
    for name, of_samples in (("accuracy", [1, 0, 0, 1]), ("invalid_rate", [0, 0, 1, 0])):
        assert found[f"{name}_stderr"] == pytest.approx(error_matrices.clustered(of_samples, [1, 1, 2, 3])[0])


# ---- by level, as in GMAI-MMBench ----


def leveled(levels_and_rights):
    return [
        {"level": level, "target": "A", "value": "A" if right else None, "reason": "ok", "cluster_id": str(number)}
        for number, (level, right) in enumerate(levels_and_rights)
    ]


def values(scores):
    return values_of(GROUPED_CHOICE, scores)


def test_overall_is_the_question_weighted_mean_of_the_levels():
    rng = random.Random(3)
    scores = leveled([(rng.choice(LEVELS), rng.random() < 0.4) for _ in range(500)])
    found = values(scores)
    weights = {level: sum(score["level"] == level for score in scores) for level in LEVELS}
    weighted = sum(found[f"acc_{level}_level"] * weight for level, weight in weights.items()) / len(scores)
    assert math.isclose(found["accuracy"], weighted)
    rng.shuffle(scores)
    assert values(scores) == pytest.approx(found, rel=1e-12)


def test_twins_make_the_error_larger_than_single_cases():
    pairs = [score for n in range(60) for score in leveled([("mask", n % 2), ("contour", n % 2)])]
    twins, alone = (
        [{**score, "cluster_id": str(number // size)} for number, score in enumerate(pairs)] for size in (2, 1)
    )
    assert math.isclose(values(twins)["accuracy_stderr"] / values(alone)["accuracy_stderr"], math.sqrt(2), rel_tol=0.01)
