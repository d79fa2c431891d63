"""Which documents criteria choose, and which rows a shard takes."""

import random
from collections import Counter

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.data.selecting import (
    choose,
    criteria_line,
    matching_values,
    selectable,
    values_together,
)
from medtasks.data.shards import Shard, clusters_of
from medtasks.data.variants import rotated
from medtasks.errors import MedTasksError, UnknownName

from ..tables import each_row

pandas = pytest.importorskip("pandas")

ENT = "Otolaryngology (ENT)/Head and Neck Surgery"
DEPARTMENTS = ["Ophthalmology", "Urology", "None", "Nephrology and Hypertension", ENT]
TASKS = ["Disease Diagnosis", "Organ Recognition - Head and Neck", "Bone", "Counting"]
MODALITIES = ["Fundus Photography", "CT", "CT angiography", "X-ray"]
LEVELS = ["Image Level", "Mask Level", "Contour Level", "Box Level"]


@pytest.fixture(scope="module")
def documents():
    rng = random.Random(5)
    return [
        {
            "doc_id": str(number),
            "question": f"Question {number}?",
            "department": rng.choice(DEPARTMENTS),
            "clinical_task": rng.choice(TASKS),
            "modality": rng.choice(MODALITIES),
            "granularity": rng.choice(LEVELS),
            "keyword": rng.choice(["early glaucoma", "advanced glaucoma", "polyp", None]),
        }
        for number in range(400)
    ]


@each_row(
    "criteria, full",
    [
        ({"department": ["Ophthalmology"]}, {"department": ["Ophthalmology"]}),
        ({"department": ["O", "urology"]}, {"department": ["Ophthalmology", "Urology"]}),
        ({"department": ["none"]}, {"department": ["None"]}),
        (
            {"department": ["N/A"], "modality": ["ct"]},
            {"department": ["None"], "modality": ["CT"]},
        ),
        ({"department": ["ent/hns"]}, {"department": [ENT]}),
        ({"department": ["ENT"]}, {"department": [ENT]}),
        ({"clinical_task": ["OR-NH", "b"]}, {"clinical_task": [TASKS[1], "Bone"]}),
        ({"granularity": ["mask", "Seg C"]}, {"granularity": ["Mask Level", "Contour Level"]}),
        (
            {"granularity": ["image level"], "modality": ["CT*"]},
            {"granularity": ["Image Level"], "modality": MODALITIES[1:3]},
        ),
        ({"keyword": ["*glaucoma"]}, {"keyword": ["early glaucoma", "advanced glaucoma"]}),
    ],
)
def test_choice_equals_a_plain_filter(documents, criteria, full):
    frame = pandas.DataFrame(documents)
    for column, values in full.items():
        frame = frame[frame[column].isin(values)]
    chosen = choose(documents, criteria)
    assert [one["doc_id"] for one in chosen] == frame["doc_id"].tolist()
    assert 0 < len(chosen) < len(documents)


@each_row(
    "criteria, error, message",
    [
        (
            {"departement": ["O"]},
            UnknownName,
            "unknown column 'departement'; did you mean 'department'",
        ),
        (
            {"department": ["Ophtalmology"]},
            MedTasksError,
            "the department 'Ophtalmology'; did you mean",
        ),
        (
            {"department": ["Cardiovascular Surgery"]},
            MedTasksError,
            "no question has the department",
        ),
        ({"modality": [""]}, MedTasksError, "no question has the modality ''"),
    ],
)
def test_what_does_not_occur(documents, criteria, error, message):
    with pytest.raises(error, match=message):
        choose(documents, criteria)


def test_all_criteria_together_and_none():
    rows = [
        {"doc_id": "1", "modality": "CT", "source": "a"},
        {"doc_id": "2", "modality": "MR", "source": "b"},
    ]
    assert choose(rows, {}) == choose(rows, {"modality": []}) == rows
    with pytest.raises(MedTasksError, match="no question has modality=CT, source=b; leave out"):
        choose(rows, {"modality": ["CT"], "source": ["b"]})
    pairs = [
        {"doc_id": f"{n}/{m}", "pair_id": n, "categories": ["Cardiac"]}
        for n in "12"
        for m in (1, 2)
    ]
    pairs[1]["categories"] = ["Spinal", "Vascular"]
    assert [one["doc_id"] for one in choose(pairs, {"categories": ["vascular"]})] == [
        "1/1",
        "1/2",
    ]  # stay whole
    # Values that differ in signs alone are not confused.
    assert matching_values("keyword", ["膀胱"], {"keyword": {"膀胱": 1, "肾": 1}}) == {"膀胱"}


def test_counts_and_description(documents):
    counts = selectable(documents)
    assert set(counts) == {"department", "clinical_task", "modality", "granularity", "keyword"}
    assert sum(counts["department"].values()) == len(documents)
    assert sum(counts["keyword"].values()) < len(documents)
    assert (
        criteria_line({"b": ["y", "x"], "a": ["1"], "c": []})
        == criteria_line({"a": ["1"], "b": ["x", "y"]})
        == "a=1, b=x|y"
    )


def test_values_together_are_those_of_a_cross_table(documents):
    together = values_together(documents, "department", "keyword")
    frame = pandas.DataFrame(documents)
    assert {name: len(labels) for name, labels in together.items()} == frame.groupby(
        "department"
    )["keyword"].nunique().to_dict()
    areas = [
        {"categories": ["a", "b"], "source": "x"},
        {"categories": ["b"], "source": "y"},
        {"source": "z"},
    ]
    assert values_together(areas, "categories", "source") == {"a": {"x"}, "b": {"x", "y"}}


CLUSTERS = st.lists(st.integers(0, 9), max_size=60) | st.lists(
    st.integers(0, 9), max_size=60
).map(sorted)


@given(CLUSTERS, st.integers(1, 9))
def test_shards_part_the_rows_between_clusters(clusters, count):
    shards = [Shard(index, count).rows(clusters) for index in range(1, count + 1)]
    assert sorted(row for rows in shards for row in rows) == list(range(len(clusters)))
    assert all(rows == sorted(rows) for rows in shards)
    assert sum(len({clusters[row] for row in rows}) for rows in shards) == len(set(clusters))
    largest = max(Counter(clusters).values(), default=0)
    assert all(abs(len(rows) - len(clusters) / count) <= largest for rows in shards)


@given(st.lists(st.integers(1, 4), max_size=20), st.integers(1, 9))
def test_clusters_that_lie_together_are_ranges_cut_nearest_to_the_share(sizes, count):
    clusters = [number for number, size in enumerate(sizes) for _ in range(size)]
    places = [sum(sizes[:number]) for number in range(len(sizes) + 1)]
    start = 0
    for index in range(1, count + 1):
        share = len(clusters) * index / count
        stop = min(places, key=lambda place: (round(abs(place - share), 9), place))
        assert Shard(index, count).rows(clusters) == list(range(start, stop))
        start = stop


def test_scattered_clusters_are_dealt_the_largest_first():
    clusters = list("abcabcabca")  # no place cuts none of them
    assert [Shard(index, 3).rows(clusters) for index in (1, 2, 3)] == [
        [0, 3, 6, 9],
        [1, 4, 7],
        [2, 5, 8],
    ]


@each_row("text", ["0/4", "5/4", "a/b", "3", "1/0", "-1/4", "1/4/2", "1.5/4", "٣/٤", ""])
def test_no_shard(text):
    with pytest.raises(MedTasksError, match="such as --shard 3/16"):
        Shard.parse(text)


def test_pairs_and_images_stay_together(sample):
    documents = load_documents("mediconfusion")

    clusters = clusters_of(documents)

    for name in ("pair_id", "image_id"):
        assert len(
            {(one[name], cluster) for one, cluster in zip(documents, clusters, strict=True)}
        ) == len({one[name] for one in documents})
    assert len(set(clusters)) < len({one["pair_id"] for one in documents})  # pairs share images
    assert clusters_of(datasets.Dataset.from_list(documents)) == clusters


def test_rotations_of_a_question_stay_together(sample):
    documents = load_documents("mediconfusion")
    singles = [
        {name: one[name] for name in ("doc_id", "options", "answer")} for one in documents
    ]

    turned = rotated(singles, None)

    assert [turned[first]["rotation_of"] for first in clusters_of(turned)] == [
        one["rotation_of"] for one in turned
    ]
    assert len(set(clusters_of(turned))) == len(documents) < len(turned)


def test_patients_stay_together_over_their_images():
    rows = [("p1", "a"), ("p2", "b"), (None, "a"), ("p1", "c"), (None, None), ("p2", None)]
    documents = [{"patient_id": patient, "image_id": image} for patient, image in rows]
    assert clusters_of(documents) == [0, 1, 0, 0, 4, 1]
    assert all(Sample(one).cluster_id for one in documents)
