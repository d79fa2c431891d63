"""Scores of rotated questions, and metrics over questions, against a second way of counting."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loguru import logger

from medtasks.data.variants import rotated
from medtasks.errors import MedTasksError
from medtasks.families.rotations import (
    ROTATED_CHOICE,
    ROTATED_CLASSES,
    ROTATED_MULTI_SELECT,
    rotated_questions,
)
from medtasks.hooks import rotated_choice
from medtasks.metrics.metric import evaluate
from medtasks.stats.standard_error import clustered_error

from ..tables import each_row
from ..task_families import score_of, values_of

CHOICE = {
    "doc_id": "q1",
    "dataset": "mediconfusion",
    "image_id": "scan",
    "patient_id": None,
    "image_files": [],
    "options": ["liver", "spleen", "kidney"],
    "answer": "B",
}
CLASSES = {name: value for name, value in CHOICE.items() if name != "answer"} | {"label": 2}
SEVERAL = {name: value for name, value in CHOICE.items() if name != "answer"} | {
    "answers": ["A", "C"]
}


def scored(document, replies, rule="robust_choice", family=ROTATED_CHOICE, **how):
    """One score per rotation; replies by rotation."""
    return [
        score_of(family, one, reply, rule, **how)
        for one, reply in zip(rotated([document]), replies, strict=True)
    ]


def values(scores):
    return {
        name: value
        for name, value in values_of(ROTATED_CHOICE, scores).items()
        if not name.endswith("_stderr")
    }


def test_letters_are_those_of_the_published_order():
    # Shown: liver spleen kidney; spleen kidney liver; kidney liver spleen.
    found = scored(CHOICE, ["B", "A", "C"])
    assert [(score["target"], score["value"], score["right"]) for score in found] == [
        ("B", "B", 1.0)
    ] * 3
    assert [score["sample"] for score in found] == ["q1~r0", "q1~r1", "q1~r2"]
    assert {score["rotation_of"] for score in found} == {"q1"}
    always_a = scored(CHOICE, ["A", "A", "A"])
    assert [score["value"] for score in always_a] == ["A", "B", "C"]
    assert values(always_a)["worst_case"] == values(always_a)["published_order"] == 0
    other = [{**score, "rotation_of": "q2"} for score in found]
    cut = values([*found, *other[:2]])
    assert (cut["incomplete_rotations"], cut["worst_case"]) == (1, 1)
    assert values(other[1:])["incomplete_rotations"] == 1


@each_row("rule", ["untied", "greedy_reference"])
def test_likelihoods(rule):
    best = [1, 0, 2]  # where the spleen stands
    replies = [[0.1 if place == right else 1.0 for place in range(3)] for right in best]
    assert [score["value"] for score in scored(CHOICE, replies, rule)] == ["B"] * 3
    assert values(scored(CHOICE, [[1.0] * 3] * 3, rule))["invalid_rate"] == (
        1 if rule == "untied" else 0
    )


def test_classes_by_their_numbers_and_names():
    replies = ["3: kidney", "2: kidney", "1: kidney"]
    found = scored(
        CLASSES,
        replies,
        "multimedeval_class_head",
        ROTATED_CLASSES,
        option_form="{{ number }}: {{ text }}",
    )
    assert [(score["target"], score["value"]) for score in found] == [("C", "C")] * 3
    named = scored(CLASSES, ["kidney", "kidney", "kidney"], "robust_class", ROTATED_CLASSES)
    assert values(named)["worst_case"] == 1


def test_several_right_options():
    # Shown: liver spleen kidney; spleen kidney liver; kidney liver spleen.
    found = scored(SEVERAL, ["A,C", "B, C", "A"], "listed_options", ROTATED_MULTI_SELECT)
    assert [score["target"] for score in found] == [["A", "C"]] * 3
    assert [score["value"] for score in found] == [["A", "C"], ["A", "C"], ["C"]]
    assert [score["right"] for score in found][:2] == [1.0, 1.0]
    assert values(found)["flip_rate"] == 1
    assert values(found)["worst_case"] == found[2]["right"]
    unread = scored(SEVERAL, ["?", "?", "?"], "listed_options", ROTATED_MULTI_SELECT)
    assert [score["value"] for score in unread] == [None] * 3


def test_questions_whose_options_depend_on_their_order_are_left_out_and_counted():
    lines = []
    logger.add(lines.append, level="INFO")
    fixed = {**CHOICE, "doc_id": "q2", "options": ["CT", "MRI", "Both A and B"]}
    unanswered = {**CHOICE, "doc_id": "q3", "answer": None}
    assert {one["rotation_of"] for one in rotated([CHOICE, fixed, unanswered])} == {"q1"}
    assert (
        "2 of 3 questions of mediconfusion cannot be asked in another order of their options"
        in lines[0]
    )
    with pytest.raises(
        MedTasksError,
        match="no question has a published answer and options that can be shown in an",
    ):
        rotated([fixed])


def test_credentialed_questions_still_belong_together():
    hidden = {
        **CHOICE,
        "dataset": "nobody_knows_this_one",
        "doc_id": "patient 5",
        "image_id": "patient 5",
    }
    process = rotated_choice.process_results
    found = [
        process(one, [reply])["worst_case"]
        for one, reply in zip(rotated([hidden]), "BAC", strict=True)
    ]
    assert "patient 5" not in str(found)
    assert len({score["rotation_of"] for score in found}) == 1
    assert len({score["sample"] for score in found}) == 3
    assert values(found)["worst_case"] == 1


METRICS = ("mean_accuracy", "published_order", "worst_case", "flip_rate", "invalid_rate")


def replies(question, choices, unit):
    """One question's scores in order of its rotations; a missing one is not asked."""
    of_all = {"rotation_of": question, "cluster_id": unit, "rotations": len(choices)}
    return [
        {**of_all, "rotation": place, "right": float(choice == "A"), "value": choice}
        for place, choice in enumerate(choices)
        if choice != "missing"
    ]


RUNS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(["A", "B", None, "missing"]), min_size=1, max_size=4),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=12,
).map(
    lambda rows: [
        (f"q{number}", f"unit{unit}", choices) for number, (choices, unit) in enumerate(rows)
    ]
)


@given(RUNS, st.randoms(use_true_random=False))
def test_against_counting_by_hand_in_any_order(run, rng):
    given_replies = [one for name, unit, choices in run for one in replies(name, choices, unit)]
    shuffled = list(given_replies)
    rng.shuffle(shuffled)
    found = rotated_questions(shuffled)
    asked = [
        (unit, [c for c in choices if c != "missing"], choices) for _, unit, choices in run
    ]
    asked = [row for row in asked if row[1]]
    whole = [
        (unit, choices) for unit, answered, choices in asked if len(answered) == len(choices)
    ]
    values = {
        "mean_accuracy": [
            (unit, answered.count("A") / len(answered)) for unit, answered, _ in asked
        ],
        "invalid_rate": [
            (unit, answered.count(None) / len(answered)) for unit, answered, _ in asked
        ],
        "published_order": [
            (unit, float(all_[0] == "A")) for unit, _, all_ in asked if all_[0] != "missing"
        ],
        "worst_case": [(unit, float(set(choices) == {"A"})) for unit, choices in whole],
        "flip_rate": [
            (unit, float(len(set(choices)) != 1))
            for unit, choices in whole
            if set(choices) != {None}
        ],
    }
    estimates = evaluate(
        [metric for metric in ROTATED_CHOICE.metrics if metric.name in METRICS], shuffled
    )
    for metric, rows in values.items():
        mean = sum(value for _, value in rows) / len(rows) if rows else math.nan
        error = (
            clustered_error([v for _, v in rows], [u for u, _ in rows]).error
            if rows
            else math.nan
        )
        assert (estimates[metric].value, estimates[metric].error) == pytest.approx(
            (mean, error), nan_ok=True
        )
    assert sum(not question.complete for question in found) == len(asked) - len(whole)
    assert rotated_questions(given_replies) == found
