"""Scores of paired questions: on own examples, and on the published questions against the published table."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.sources.mediconfusion import read_pairs
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.metrics.metric import evaluate
from medtasks.metrics.pairs import TOTAL, PairedAnswer, count

from ..tables import each_row

METRICS = ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate")


def answer(pair, position, key, value, categories=("Cerebral",), image=None):
    return PairedAnswer(
        str(pair), position, image or f"{pair}-{position}", key, value, tuple(categories)
    )


def pair(number, keys, values, first=("Cerebral",), second=("Cerebral",)):
    return [
        answer(number, 1, keys[0], values[0], first),
        answer(number, 2, keys[1], values[1], second),
    ]


VALUES = st.sampled_from(["A", "B", None])
CATEGORIES = st.lists(
    st.sampled_from(["Cerebral", "Spinal", "Cardiac"]), min_size=1, max_size=3, unique=True
).map(tuple)


@st.composite
def answers(draw, complete=False):
    result = []
    for number in range(draw(st.integers(0, 8))):
        keys = draw(st.sampled_from(["AB", "BA", "AA", "BB"]))
        for position in (1, 2):
            image = f"image {draw(st.integers(0, 5))}"
            result.append(
                answer(
                    number, position, keys[position - 1], draw(VALUES), draw(CATEGORIES), image
                )
            )
        if not complete and draw(st.booleans()):
            result.pop(draw(st.sampled_from([-1, -2])))
    return result


def estimates(items):
    """Values and errors of the four metrics that PairedChoice declares."""
    scores = [asdict(item) for item in items]
    return evaluate(
        [metric for metric in PAIRED_CHOICE.metrics if metric.name in METRICS], scores
    )


def standard_errors(items):
    return {name: estimate.error for name, estimate in estimates(items).items()}


def numbers(items):
    table = {name: asdict(counts) for name, counts in count(items).items()}
    return table, {
        name: round(e, 12) if e == e else None for name, e in standard_errors(items).items()
    }


@each_row(
    "values, expected",
    [
        (
            "AB",
            {
                "set_score": 1,
                "individual_score": 2,
                "confused": 0,
                "valid_pairs": 1,
                "resolved_pairs": 1,
            },
        ),
        (
            "BA",
            {
                "set_score": 0,
                "individual_score": 0,
                "confused": 0,
                "valid_pairs": 1,
                "resolved_pairs": 1,
            },
        ),
        (
            "AA",
            {
                "set_score": 0,
                "individual_score": 1,
                "confused": 1,
                "valid_pairs": 1,
                "resolved_pairs": 0,
            },
        ),
        (
            ("A", None),
            {
                "set_score": 0,
                "individual_score": 1,
                "confused": 0,
                "valid_pairs": 0,
                "invalid": 1,
            },
        ),
        (
            (None, "A"),
            {
                "set_score": 0,
                "individual_score": 0,
                "confused": 0,
                "valid_pairs": 0,
                "invalid": 1,
            },
        ),
        (
            (None, None),
            {
                "set_score": 0,
                "individual_score": 0,
                "confused": 0,
                "valid_pairs": 0,
                "invalid": 2,
            },
        ),
    ],
)
def test_one_pair(values, expected):
    total = asdict(count(pair(1, "AB", values))[TOTAL])
    assert {"images": 2, "pairs": 1, "incomplete_pairs": 0, **expected}.items() <= total.items()


def test_pair_counts_in_a_category_once_for_each_image_that_has_it():
    table = count(pair(1, "AB", "AB", ("Spinal", "Cardiac"), ("Spinal",)))
    assert list(table) == ["Spinal", "Cardiac", TOTAL]
    assert (table["Spinal"].set_score, table["Spinal"].pairs, table["Spinal"].images) == (
        2,
        2,
        2,
    )
    assert (
        table["Cardiac"].set_score,
        table["Cardiac"].individual_score,
        table["Cardiac"].images,
    ) == (1, 1, 1)
    assert (table[TOTAL].set_score, table[TOTAL].pairs) == (1, 1)


@given(
    items=answers(), values=st.lists(VALUES, max_size=4), seed=st.randoms(use_true_random=False)
)
def test_order_does_not_matter_and_contradicting_duplicates_count_once(items, values, seed):
    items += [replace(item, value=value) for item in items[:1] for value in values]
    expected = numbers(items)
    seed.shuffle(items)
    assert numbers(items) == expected
    assert expected[0][TOTAL]["images"] == len(
        {(item.pair_id, item.position) for item in items}
    )


@given(
    items=answers(complete=True),
    lonely=st.lists(st.tuples(st.sampled_from([1, 2]), VALUES), max_size=4),
)
def test_incomplete_pairs_are_left_out_and_counted(items, lonely):
    halves = [
        answer(f"half {n}", position, "A", value) for n, (position, value) in enumerate(lonely)
    ]
    before, after = count(items)[TOTAL], count([*halves, *items])[TOTAL]
    assert after.incomplete_pairs == len(halves)
    assert after.images == before.images + len(halves)
    for name in ("pairs", "set_score", "confused", "valid_pairs", "resolved_pairs"):
        assert getattr(after, name) == getattr(before, name)
    assert after.invalid == before.invalid + sum(half.value is None for half in halves)


def test_confusion_is_nan_without_a_valid_pair():
    assert list(count([])) == [TOTAL]
    assert all(math.isnan(getattr(count([])[TOTAL], name)) for name in METRICS)
    assert all(math.isnan(error) for error in standard_errors([]).values())
    values = estimates(pair(1, "AB", ("A", None)))
    assert math.isnan(values["confusion"].value)
    assert values["set_accuracy"].value == 0
    total = count(pair(1, "AB", ("A", None)))[TOTAL]
    assert math.isnan(total.confusion)
    assert (total.set_accuracy, total.individual_accuracy, total.invalid_rate) == (0, 0.5, 0.5)


def test_standard_errors_by_their_own_formulas():
    items = [
        item
        for n, values in enumerate(["AB", "AB", "AA", "BB", ("A", None)])
        for item in pair(n, "AB", values)
    ]
    errors = standard_errors(items)
    assert errors["set_accuracy"] == pytest.approx(math.sqrt(0.4 * 0.6 / 4))
    assert errors["confusion"] == pytest.approx(math.sqrt(0.25 / 3))
    for name, means in (
        ("individual_accuracy", (1, 1, 0.5, 0.5, 0.5)),
        ("invalid_rate", (0, 0, 0, 0, 0.5)),
    ):
        assert errors[name] == pytest.approx(np.std(means, ddof=1) / math.sqrt(5))


# The reference's names of the raw counts, and ours.
NAMES = {name: name for name in ("set_score", "individual_score", "confused", "invalid")}
NAMES |= {"valids": "valid_pairs", "valid_pairs": "resolved_pairs"}


@pytest.fixture(scope="module")
def pairs(recorded_data):
    return read_pairs(recorded_data / "mediconfusion" / "dataset.json")


def answered(pairs, letters):
    return [
        PairedAnswer(
            pair.pair_id,
            position,
            image.image_id,
            image.answer,
            letters(pair, position),
            image.categories,
        )
        for pair in pairs
        for position, image in enumerate(pair.images, start=1)
    ]


def test_golden_mediconfusion_scores(golden, pairs):
    for line in (
        (golden / "mediconfusion_scores.jsonl").read_text(encoding="utf-8").splitlines()
    ):
        recorded = json.loads(line)
        table = count(
            answered(
                pairs,
                lambda pair, at, recorded=recorded: recorded["answers"][pair.pair_id][at - 1],
            )
        )
        ours = {
            theirs: {category: asdict(counts)[name] for category, counts in table.items()}
            for theirs, name in NAMES.items()
        }
        assert ours == recorded["table"]


def test_golden_mediconfusion_constant_and_perfect(pairs):
    for letter in "AB":
        total = count(answered(pairs, lambda pair, position, letter=letter: letter))[TOTAL]
        assert (
            total.individual_accuracy,
            total.set_accuracy,
            total.confusion,
            total.invalid_rate,
        ) == (0.5, 0, 1, 0)
        assert (total.pairs, total.images, total.valid_pairs, total.resolved_pairs) == (
            176,
            352,
            176,
            0,
        )
    table = count(answered(pairs, lambda pair, position: pair.images[position - 1].answer))
    assert all(
        c.set_accuracy == c.individual_accuracy == 1 and c.confusion == 0
        for c in table.values()
    )


def test_golden_mediconfusion_category_sizes(pairs, recorded_data):
    published = json.loads(
        (recorded_data / "mediconfusion" / "statistics.json").read_text(encoding="utf-8")
    )
    table = count(answered(pairs, lambda pair, position: None))
    sizes = {name: counts.images for name, counts in table.items() if name != TOTAL}
    assert sizes == {name: published[name] for name in sizes}
    assert sum(sizes.values()) == 441
    assert all(counts.pairs == counts.images for name, counts in table.items() if name != TOTAL)
