"""What became of pairs, and whether similarity says so beforehand."""

import math
import random

import pytest

from medtasks.curate.pairs.patterns import (
    ModelPairs,
    PairState,
    associations,
    find_patterns,
    gap_bins,
    gap_figure,
    most_confusing,
    outcome_of,
    pair_states,
    write_gap_figure,
)
from medtasks.curate.study import ImagePair
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason

SOLVED, CONFUSED, WRONG, INVALID, FAILED = PairState


def pairs_of(gaps, images=None):
    return {
        f"p{n}": ImagePair(
            pair_id=f"p{n}", images=images[n] if images else (f"a{n}", f"b{n}"), sim_med=0.95, sim_gen=0.95 - gap
        )
        for n, gap in enumerate(gaps)
    }


def score(pair, position, target, value, reason="valid"):
    return {
        "pair_id": pair,
        "position": position,
        "image_id": f"{pair}{position}",
        "target": target,
        "value": value,
        "categories": [],
        "reason": reason,
    }


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
    found = {(one.model, one.outcome, one.by): one for one in associations(pairs, {"A": told, "B": not_told})}
    assert len(found) == 3 * 2 * 2
    assert found["A", "error", "gap"].low > 0
    assert found["B", "error", "gap"].low < 0 < found["B", "error", "gap"].high
    assert found["all", "error", "gap"].correlation > 0
    assert (found["A", "error", "gap"].pairs, found["A", "error", "gap"].clusters) == (120, 120)
    assert math.isnan(found["A", "error", "sim_med"].correlation)  # it is the same for all
    bins = [one for one in gap_bins(pairs, {"A": told, "B": not_told}) if one.model == "A"]
    assert [one.pairs for one in bins] == [24] * 5
    assert bins[0].error < 0.4 < 0.6 < bins[-1].error
    assert all(0 <= one.low < one.error < one.high <= 1 for one in bins)


def test_pairs_that_share_images_are_one_cluster():
    chain = [("a", "b"), ("b", "c"), ("d", "e"), ("f", "g")] + [(f"x{n}", f"y{n}") for n in range(4, 10)]
    pairs = pairs_of([n / 10 for n in range(10)], chain)
    (found, *_) = associations(pairs, {"A": {one: CONFUSED if n % 3 else SOLVED for n, one in enumerate(pairs)}})
    assert (found.pairs, found.clusters) == (10, 9)
    apart = pairs_of([n / 10 for n in range(10)])
    (alone, *_) = associations(apart, {"A": {one: CONFUSED if n % 3 else SOLVED for n, one in enumerate(apart)}})
    assert alone.correlation == found.correlation
    assert (alone.low, alone.high) != (found.low, found.high)  # what is connected is drawn together


def test_the_figure_is_written_by_its_ending_the_same_at_every_time(tmp_path):
    pairs = pairs_of([n / 100 for n in range(24)])
    states = {one: CONFUSED if n % 2 else SOLVED for n, one in enumerate(pairs)}
    models = [ModelPairs(f"model {n} with $a$ <name>", "run", "task", "robust", states) for n in range(2)]
    found = find_patterns("our_pairs", pairs, models)
    for _ in range(2):
        write_gap_figure(tmp_path / "gap.svg", found)
        first = (tmp_path / "gap.svg").read_text()
    write_gap_figure(tmp_path / "again.svg", found)
    assert (tmp_path / "again.svg").read_text() == first
    assert first.startswith("<svg")
    assert "gap 0.035: 50% of 8 pairs not solved." in first
    write_gap_figure(tmp_path / "gap.png", found)
    assert (tmp_path / "gap.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(MedTasksError, match=r"let it end in \.svg or \.png"):
        write_gap_figure(tmp_path / "gap.pdf", found)
    many = find_patterns("our_pairs", pairs, [models[0]] * 7)
    assert "mean of the models" in gap_figure(many).describes
    with pytest.raises(MedTasksError, match="at most 26"):
        find_patterns("our_pairs", pairs, [models[0]] * 27)
