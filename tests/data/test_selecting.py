import random

import pytest

from medtasks.data.selecting import choose, described, resolved, selectable
from medtasks.errors import MedTasksError, UnknownName

from ..tables import each_row

pandas = pytest.importorskip("pandas")

DEPARTMENTS = [
    "Ophthalmology",
    "Urology",
    "None",
    "Nephrology and Hypertension",
    "Otolaryngology (ENT)/Head and Neck Surgery",
]
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
        ({"department": ["N/A"], "modality": ["ct"]}, {"department": ["None"], "modality": ["CT"]}),
        ({"department": ["ent/hns"]}, {"department": [DEPARTMENTS[4]]}),
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


def test_no_criteria_choose_everything(documents):
    assert choose(documents, {}) == documents
    assert choose(documents, {"department": []}) == documents


@each_row(
    "criteria, error, message",
    [
        ({"departement": ["O"]}, UnknownName, "unknown column 'departement'; did you mean 'department'"),
        ({"question": ["Question 1?"]}, UnknownName, "unknown column 'question'"),
        (
            {"department": ["Ophtalmology"]},
            MedTasksError,
            "no question has the department 'Ophtalmology'; did you mean",
        ),
        ({"department": ["Cardiovascular Surgery"]}, MedTasksError, "no question has the department"),
        ({"department": ["CS"]}, MedTasksError, "no question has the department 'CS'"),
        ({"modality": [""]}, MedTasksError, "no question has the modality ''"),
    ],
)
def test_what_does_not_occur(documents, criteria, error, message):
    with pytest.raises(error, match=message):
        choose(documents, criteria)


def test_zero_rows_are_refused():
    rows = [{"doc_id": "1", "modality": "CT", "source": "a"}, {"doc_id": "2", "modality": "MR", "source": "b"}]
    with pytest.raises(MedTasksError, match="no question has modality=CT, source=b; leave out"):
        choose(rows, {"modality": ["CT"], "source": ["b"]})


def test_pairs_stay_whole():
    rows = [
        {"doc_id": "1/1", "pair_id": "1", "categories": ["Cardiac"]},
        {"doc_id": "1/2", "pair_id": "1", "categories": ["Spinal", "Vascular"]},
        {"doc_id": "2/1", "pair_id": "2", "categories": ["Cerebral"]},
        {"doc_id": "2/2", "pair_id": "2", "categories": ["Cerebral"]},
    ]
    assert [one["doc_id"] for one in choose(rows, {"categories": ["vascular"]})] == ["1/1", "1/2"]


def test_values_that_differ_in_signs_alone_are_not_confused():
    assert resolved("keyword", ["膀胱"], {"keyword": {"膀胱": 1, "肾": 1}}) == {"膀胱"}


def test_counts_and_description(documents):
    counts = selectable(documents)
    assert set(counts) == {"department", "clinical_task", "modality", "granularity", "keyword"}
    assert sum(counts["department"].values()) == len(documents)
    assert sum(counts["keyword"].values()) < len(documents)
    assert described({"b": ["y", "x"], "a": ["1"], "c": []}) == described({"a": ["1"], "b": ["x", "y"]}) == "a=1, b=x|y"
