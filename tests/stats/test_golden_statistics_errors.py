"""Errors and printed intervals of shares against recorded reference values, from replies to the table's numbers."""

import json
import math

import pytest

from medtasks.data.samples import Sample
from medtasks.families.choice import SINGLE_CHOICE
from medtasks.families.family import Reply, Rule
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.scores.scoring import with_interval

CLOSE = {"rel": 1e-9, "abs": 1e-12}
LETTERS = {
    "set": {0.0: "BA", 1.0: "AB"},
    "confusion": {0.0: "AB", 1.0: "BB"},
    "halves": {0.0: "BA", 0.5: "AA", 1.0: "AB"},
}


def cases(golden, name):
    lines = (golden / "statistics" / name).read_text(encoding="utf-8").splitlines()
    assert lines
    return [json.loads(line) for line in lines]


def printed(family, name, scores):
    """The estimate of a metric, and what the table prints of it."""
    metric = family.metric(name)
    estimate = metric.estimate(scores)
    return estimate, with_interval(metric, estimate)


def scores_of_pairs(pairs, values, letters):
    """Scores of a model whose pairs have these values; the targets are A, then B."""
    return [
        PAIRED_CHOICE.score(
            Sample(
                {
                    "doc_id": f"{number}-{place}",
                    "pair_id": str(number),
                    "position": place + 1,
                    "image_id": image,
                }
                | {"options": ["one", "other"], "answer": "AB"[place], "categories": []}
            ),
            Reply.of_text(letters[value][place]),
            Rule("mediconfusion_reference"),
        )
        for number, (images, value) in enumerate(zip(pairs, values, strict=True))
        for place, image in enumerate(images)
    ]


def check_dyadic(case, name, letters):
    estimate, shown = printed(
        PAIRED_CHOICE, name, scores_of_pairs(case["pairs"], case["values"], letters)
    )
    assert estimate.value == pytest.approx(case["mean"], **CLOSE)
    for found, key in (
        (estimate.error, "error"),
        (estimate.degrees, "df"),
        (estimate.effective, "effective_n"),
    ):
        assert found == pytest.approx(case[key], **CLOSE), (case["name"], name, key)
    assert (shown.error, shown.low, shown.high) == pytest.approx(
        (case["error"], case["low"], case["high"]), **CLOSE
    )


def test_pairs_that_share_images(golden):
    for case in cases(golden, "dyadic.jsonl"):
        if set(case["values"]) <= {0.0, 1.0}:
            check_dyadic(case, "set_accuracy", LETTERS["set"])
            check_dyadic(case, "confusion", LETTERS["confusion"])
        check_dyadic(case, "individual_accuracy", LETTERS["halves"])


def scores_of_clusters(clusters, values):
    return [
        SINGLE_CHOICE.score(
            Sample(
                {
                    "doc_id": str(n),
                    "patient_id": cluster,
                    "options": ["one", "other"],
                    "answer": "A",
                }
            ),
            Reply.of_text("A" if value else "B"),
            Rule("robust_choice"),
        )
        for n, (cluster, value) in enumerate(zip(clusters, values, strict=True))
    ]


def test_answers_of_patients(golden):
    for case in cases(golden, "clustered.jsonl"):
        estimate, shown = printed(
            SINGLE_CHOICE, "accuracy", scores_of_clusters(case["clusters"], case["values"])
        )
        assert estimate.value == pytest.approx(case["mean"], **CLOSE)
        assert estimate.error**2 == pytest.approx(case["variance"], **CLOSE)
        assert estimate.degrees == pytest.approx(max(case["df"], 1.5), **CLOSE)
        assert estimate.effective == pytest.approx(case["effective_n"], **CLOSE)
        ends = (math.sqrt(case["variance"]), case["low"], case["high"])
        assert (shown.error, shown.low, shown.high) == pytest.approx(ends, **CLOSE), case[
            "name"
        ]
