"""Scores of paired questions, and metrics over pairs and answers."""

import json
import math

import pytest

from medtasks.families.paired_choice import PAIRED_CHOICE

from ..tables import each_row
from ..task_families import score_of, values_of


def document(pair=1, position=1, key="A", image=None):
    return {
        "doc_id": f"{pair}/{position}",
        "pair_id": str(pair),
        "position": position,
        "image_id": image or f"{pair}-{position}",
        "options": ["Aortic arch", "Kidneys"],
        "answer": key,
        "categories": ["Cardiac"],
    }


def scored(replies, rule="robust_choice"):
    """Scores of pairs 0, 1, ... with targets A and B and these replies."""
    return [
        score_of(PAIRED_CHOICE, document(n, position, "AB"[position - 1]), reply, rule)
        for n, both in enumerate(replies)
        for position, reply in enumerate(both, start=1)
    ]


def values(scores):
    return values_of(PAIRED_CHOICE, scores)


def test_score_of_a_text_document():
    found = score_of(PAIRED_CHOICE, document(7, 2, "B", "20001"), "(a)", "robust_choice")
    assert found.pop("cluster_id").startswith("image-")
    assert found == {
        "sample": "7/2",
        "pair_id": "7",
        "position": 2,
        "image_id": "20001",
        "target": "B",
        "value": "A",
        "reason": "ok",
        "rule": "robust_choice",
        "categories": ["Cardiac"],
    }
    assert json.loads(json.dumps(found)) == found


def test_metrics_of_pairs():
    found = values(scored(["AB", "AA", ("A", "?"), "BA"]))
    assert found["set_accuracy"] == 1 / 4
    assert found["individual_accuracy"] == 4 / 8
    assert found["confusion"] == 1 / 3
    assert found["invalid_rate"] == 1 / 8
    assert found["incomplete_pairs"] == 0
    assert found["set_accuracy_stderr"] == pytest.approx(0.25)
    assert found["confusion_stderr"] == pytest.approx(1 / 3)


def test_cut_pair_is_counted_and_left_out():
    found = values(scored(["AB", "AA"])[:3])
    assert (found["incomplete_pairs"], found["set_accuracy"], found["confusion"]) == (1, 1, 0)
    assert found["individual_accuracy"] == 1


@each_row("rule", ["mediconfusion_reference", "robust_choice"])
def test_confusion_needs_a_valid_pair_and_is_the_same_under_every_rule(rule):
    assert math.isnan(values(scored([("?", "?"), ("A", "?")], rule))["confusion"])
    assert values(scored(["AA", "AB", ("?", "A")], rule))["confusion"] == 0.5
