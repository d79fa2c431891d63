import random

import pytest

from medtasks.data.selecting import choose, described, resolved, selectable
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
        ({"department": ["N/A"], "modality": ["ct"]}, {"department": ["None"], "modality": ["CT"]}),
        ({"department": ["ent/hns"]}, {"department": [ENT]}),
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
        ({"departement": ["O"]}, UnknownName, "unknown column 'departement'; did you mean 'department'"),
        ({"question": ["Question 1?"]}, UnknownName, "unknown column 'question'"),
        ({"department": ["Ophtalmology"]}, MedTasksError, "the department 'Ophtalmology'; did you mean"),
        ({"department": ["Cardiovascular Surgery"]}, MedTasksError, "no question has the department"),
        ({"department": ["CS"]}, MedTasksError, "no question has the department 'CS'"),
        ({"modality": [""]}, MedTasksError, "no question has the modality ''"),
    ],
)
def test_what_does_not_occur(documents, criteria, error, message):
    with pytest.raises(error, match=message):
        choose(documents, criteria)


def test_all_criteria_together_and_none():
    rows = [{"doc_id": "1", "modality": "CT", "source": "a"}, {"doc_id": "2", "modality": "MR", "source": "b"}]
    assert choose(rows, {}) == choose(rows, {"modality": []}) == rows
    with pytest.raises(MedTasksError, match="no question has modality=CT, source=b; leave out"):
        choose(rows, {"modality": ["CT"], "source": ["b"]})
    pairs = [{"doc_id": f"{n}/{m}", "pair_id": n, "categories": ["Cardiac"]} for n in "12" for m in (1, 2)]
    pairs[1]["categories"] = ["Spinal", "Vascular"]
    assert [one["doc_id"] for one in choose(pairs, {"categories": ["vascular"]})] == ["1/1", "1/2"]  # stay whole
    # Values that differ in signs alone are not confused.
    assert resolved("keyword", ["膀胱"], {"keyword": {"膀胱": 1, "肾": 1}}) == {"膀胱"}


def test_counts_and_description(documents):
    counts = selectable(documents)
    assert set(counts) == {"department", "clinical_task", "modality", "granularity", "keyword"}
    assert sum(counts["department"].values()) == len(documents)
    assert sum(counts["keyword"].values()) < len(documents)
    assert described({"b": ["y", "x"], "a": ["1"], "c": []}) == described({"a": ["1"], "b": ["x", "y"]}) == "a=1, b=x|y"
