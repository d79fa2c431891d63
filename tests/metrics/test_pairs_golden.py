"""Scores of paired questions, against the published score table on the published questions."""

import json
from dataclasses import asdict

import pytest

from medtasks.data.sources.mediconfusion import read_pairs
from medtasks.metrics.pairs import TOTAL, PairedAnswer, count

from ..tables import each_row

# The reference's names of the raw counts, and ours.
NAMES = {
    "set_score": "set_score",
    "individual_score": "individual_score",
    "confused": "confused",
    "invalid": "invalid",
    "valids": "valid_pairs",
    "valid_pairs": "resolved_pairs",
}


@pytest.fixture(scope="module")
def pairs(test_data):
    return read_pairs(test_data / "mediconfusion" / "dataset.json")


def answered(pairs, letters):
    return [
        PairedAnswer(pair.pair_id, position, image.image_id, image.answer, letters(pair, position), image.categories)
        for pair in pairs
        for position, image in enumerate(pair.images, start=1)
    ]


def test_golden_mediconfusion_scores(golden, pairs):
    for line in (golden / "mediconfusion_scores.jsonl").read_text(encoding="utf-8").splitlines():
        recorded = json.loads(line)
        table = count(answered(pairs, lambda pair, at, recorded=recorded: recorded["answers"][pair.pair_id][at - 1]))
        ours = {
            theirs: {category: asdict(counts)[name] for category, counts in table.items()}
            for theirs, name in NAMES.items()
        }
        assert ours == recorded["table"]


@each_row("letter", ["A", "B"])
def test_golden_mediconfusion_constant_a(pairs, letter):
    total = count(answered(pairs, lambda pair, position: letter))[TOTAL]
    assert (total.individual_accuracy, total.set_accuracy, total.confusion, total.invalid_rate) == (0.5, 0, 1, 0)
    assert (total.pairs, total.images, total.valid_pairs, total.resolved_pairs) == (176, 352, 176, 0)


def test_golden_mediconfusion_perfect(pairs):
    table = count(answered(pairs, lambda pair, position: pair.images[position - 1].answer))
    assert all(c.set_accuracy == c.individual_accuracy == c.precision == 1 and c.confusion == 0 for c in table.values())


def test_golden_mediconfusion_category_sizes(pairs, test_data):
    published = json.loads((test_data / "mediconfusion" / "statistics.json").read_text(encoding="utf-8"))
    table = count(answered(pairs, lambda pair, position: None))
    sizes = {name: counts.images for name, counts in table.items() if name != TOTAL}
    assert sizes == {name: published[name] for name in sizes}
    assert sum(sizes.values()) == 441
    assert all(counts.pairs == counts.images for name, counts in table.items() if name != TOTAL)
