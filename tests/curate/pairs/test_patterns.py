"""What became of pairs, and whether similarity says so beforehand."""

import math
import random

import pytest

from medtasks.curate.pairs.patterns import (
    ModelPairs,
    PairState,
    associations,
    find_patterns,
    most_confusing,
    outcome_of,
    pair_states,
)
from medtasks.curate.study import ImagePair
from medtasks.errors import MedTasksError
from medtasks.extract.extractor_registry import Reason

SOLVED, CONFUSED, WRONG, INVALID, FAILED = PairState


def pairs_of(gaps, images=None):
    return {
        f"p{n}": ImagePair(
            pair_id=f"p{n}", images=images[n] if images else (f"a{n}", f"b{n}"), sim_med=0.95, sim_gen=0.95 - gap
        )
        for n, gap in enumerate(gaps)
    }


def score(pair, position, target, value):
    about = {"pair_id": pair, "position": position, "image_id": f"{pair}{position}", "categories": []}
    return {**about, "target": target, "value": value, "reason": "valid"}


def test_each_pair_has_one_state_and_failures_are_apart():
    said = {"p0": "AB", "p1": "AA", "p2": "BA", "p3": "A-", "p4": "AB", "p5": "AB", "p6": "A"}
    scores = [
        score(pair, position, target, None if value == "-" else value)
        for pair, values in said.items()
        for position, target, value in zip((1, 2), "AB", values, strict=False)
    ]
    scores[9] |= {"reason": Reason.ADAPTER_FAILED, "value": None}
    scores[11] |= {"reason": Reason.JUDGE_FAILED, "value": None}
    found = pair_states(scores[::-1], [*said, "p7"])
    assert list(found.values()) == [SOLVED, CONFUSED, WRONG, INVALID, FAILED, FAILED, FAILED, FAILED]
    assert outcome_of([found], "error") == {"p0": 0, "p1": 1, "p2": 1, "p3": 1}
    assert outcome_of([found], "confusion") == {"p0": 0, "p1": 1, "p2": 0}
    other = {**found, "p0": CONFUSED, "p1": FAILED, "p4": SOLVED}
    assert outcome_of([found, other], "error") == {"p0": 0.5, "p1": 1, "p2": 1, "p3": 1, "p4": 0}


def test_the_most_confusing_pairs_come_first():
    pairs = pairs_of([0.2, 0.3, 0.4, 0.3])
    first = dict(zip(pairs, (CONFUSED, WRONG, SOLVED, CONFUSED), strict=True))
    second = dict(zip(pairs, (CONFUSED, SOLVED, FAILED, INVALID), strict=True))
    assert most_confusing(pairs, [first, second]) == ["p0", "p3", "p1", "p2"]
    assert most_confusing(pairs, [dict.fromkeys(pairs, SOLVED)]) == ["p2", "p1", "p3", "p0"]  # then the widest gap


def test_a_gap_that_predicts_errors_is_told_from_one_that_does_not():
    chance = random.Random(1)
    gaps = [0.2 + n / 200 for n in range(120)]
    pairs = pairs_of(gaps)
    told = {one: CONFUSED if chance.random() < (pair.gap - 0.2) / 0.6 else SOLVED for one, pair in pairs.items()}
    not_told = {one: CONFUSED if chance.random() < 0.5 else SOLVED for one in pairs}
    found = {(one["model"], one["outcome"], one["by"]): one for one in associations(pairs, {"A": told, "B": not_told})}
    assert len(found) == 3 * 2 * 2
    assert found["A", "error", "gap"]["low"] > 0
    assert found["B", "error", "gap"]["low"] < 0 < found["B", "error", "gap"]["high"]
    assert found["all", "error", "gap"]["correlation"] > 0
    assert (found["A", "error", "gap"]["pairs"], found["A", "error", "gap"]["clusters"]) == (120, 120)
    assert math.isnan(found["A", "error", "sim_med"]["correlation"])  # it is the same for all


def test_pairs_that_share_images_are_one_cluster():
    chain = [("a", "b"), ("b", "c"), ("d", "e"), ("f", "g")] + [(f"x{n}", f"y{n}") for n in range(4, 10)]
    results = []
    for images in (chain, None):
        pairs = pairs_of([n / 10 for n in range(10)], images)
        states = {pair_id: CONFUSED if n % 3 else SOLVED for n, pair_id in enumerate(pairs)}
        results.append(associations(pairs, {"A": states})[0])
    assert [result["clusters"] for result in results] == [9, 10]
    assert results[0]["correlation"] == results[1]["correlation"]
    assert results[0]["low"] != results[1]["low"]  # what is connected is drawn together
    model = ModelPairs("model", "run", "task", "robust", states)
    with pytest.raises(MedTasksError, match="at most 26"):
        find_patterns("our_pairs", pairs, [model] * 27)
