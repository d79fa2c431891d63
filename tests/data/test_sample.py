"""The synthetic sample has the published layout, and its pictures decide the answers."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from medtasks.cli.data import SAMPLE
from medtasks.data.dataset_manifest import Manifest

from ..tables import each_row

FIELDS = {
    *("im_1", "im_2", "im_1_local", "im_2_local", "cap_1", "cap_2", "category_1", "category_2"),
    *(
        "BiomedCLIP_sim",
        "DINO_sim",
        "question",
        "option_A",
        "option_B",
        "im_1_correct",
        "im_2_correct",
    ),
    *("AI_question", "AI_option_A", "AI_option_B"),
}
CATEGORIES = {
    *(
        "Cerebral",
        "Vascular",
        "Head and Neck",
        "Spinal",
        "Musculoskeletal",
        "Cardiac",
        "Gastrointestinal",
    ),
    *("Pulmonary", "Nuclear Medicine"),
}
LARGEST_SAMPLE_BYTES = 300_000
SMALLEST_DIFFERENCE = 2.5  # grey levels of 255, mean over the picture


@pytest.fixture(scope="module")
def folder():
    return SAMPLE


@pytest.fixture(scope="module")
def records(folder):
    return json.loads((folder / "dataset.json").read_text(encoding="utf-8"))


def grey(folder: Path, number: int) -> np.ndarray:
    with Image.open(folder / "images" / f"{number}.jpg") as image:
        return np.asarray(
            image.convert("L").resize((96, 96), Image.Resampling.BOX), dtype=float
        )


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """Mean absolute difference of two pictures; brightness alone does not count."""
    return np.abs((first - first.mean()) - (second - second.mean())).mean()


def test_records_have_the_published_fields(records):
    assert list(records) == [str(90001 + n) for n in range(16)]
    for record in records.values():
        assert set(record) == FIELDS
        assert record["option_A"] != record["option_B"]
    assert len({record["question"] for record in records.values()}) == 16


def test_right_options_are_balanced(records):
    keys = Counter(
        (record["im_1_correct"], record["im_2_correct"]) for record in records.values()
    )
    assert keys == {("A", "B"): 8, ("B", "A"): 8}


def test_an_image_has_the_same_categories_in_each_pair(records):
    labels: dict[int, list[str]] = {}
    for record in records.values():
        for n in (1, 2):
            assert (
                labels.setdefault(record[f"im_{n}_local"], record[f"category_{n}"])
                == record[f"category_{n}"]
            )
    assert {label for categories in labels.values() for label in categories} == CATEGORIES


def test_some_images_are_in_two_pairs(records):
    used = Counter(record[f"im_{n}_local"] for record in records.values() for n in (1, 2))
    assert (sum(count == 2 for count in used.values()) >= 3, max(used.values())) == (True, 2)


def test_exactly_the_named_images_are_there_and_decode(folder, records):
    named = {f"{record[f'im_{n}_local']}.jpg" for record in records.values() for n in (1, 2)}
    assert {path.name for path in (folder / "images").iterdir()} == named
    modes = set()
    for name in named:
        with Image.open(folder / "images" / name) as image:
            image.load()
            assert (image.format, 224 <= image.width <= 320) == ("JPEG", True)
            modes.add(image.mode)
    assert modes == {"L", "RGB"}


def test_images_of_a_pair_differ(folder, records):
    for pair_id, record in records.items():
        first, second = (grey(folder, record[f"im_{n}_local"]) for n in (1, 2))
        assert difference(first, second) > SMALLEST_DIFFERENCE, pair_id


def test_it_is_small_and_has_the_fingerprint_of_recorded_runs(folder, sample_home):
    assert sum(path.stat().st_size for path in folder.rglob("*")) < LARGEST_SAMPLE_BYTES
    assert (
        Manifest.read(sample_home / "datasets" / "mediconfusion").fingerprint == "62daed607110"
    )


LEFT, UPPER = "In the left half of the picture", "In the upper half"
DECIDED_BY = {  # by pair: a rule on the pixels of 96 x 96, and the option that is right where it holds
    "90001": (
        lambda seen: seen[38:68, 20:40].max() > seen[38:68, 56:76].max(),
        LEFT,
    ),  # away from the skull
    "90002": (lambda seen: seen[38:68, 20:40].max() > 200, "A single bright spot"),
    "90003": (lambda seen: (seen[44:52, 24:72] < 70).mean() > 0.5, "Wide"),
    "90004": (
        lambda seen: (seen[60:66] < 100).sum(axis=1).min() < 6,
        "Narrowed to a thread half-way",
    ),
    "90010": (
        lambda seen: seen[20:76, 44:52].mean(axis=1).argmin() < 28,
        UPPER,
    ),  # the middle of the bone
    "90011": (lambda seen: (seen[62:68, 27:36] > 150).mean() > 0.4, "More than half of it"),
    "90013": (
        lambda seen: seen[25:48, 14:36].max() > seen[25:48, 60:82].max(),
        LEFT,
    ),  # away from the spine
    "90014": (lambda seen: seen[30:40, 18:36].mean() < seen[30:40, 60:78].mean(), LEFT),
    "90015": (lambda seen: (seen < 90).mean() > 0.35, "Swollen"),
    "90016": (lambda seen: seen[:44].min() < seen[52:].min(), UPPER),
}


@each_row("pair_id", DECIDED_BY)
def test_a_simple_rule_on_the_pixels_decides(folder, records, pair_id):
    record, (rule, when_true) = records[pair_id], DECIDED_BY[pair_id]
    for n in (1, 2):
        right = record[f"option_{record[f'im_{n}_correct']}"]
        assert bool(rule(grey(folder, record[f"im_{n}_local"]))) == (right == when_true), (
            pair_id,
            n,
        )
