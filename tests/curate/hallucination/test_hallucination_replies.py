import json

from medtasks.curate.hallucination.hallucination_drafting import (
    DraftedQuestion,
    ReportQuestion,
    TypedQuestion,
    YesNoQuestion,
    questions_in,
)
from medtasks.data.sources.medheval_sets import BINARY, MULTI_CHOICE

from ...tables import rows, tables_of

TABLES = tables_of(__file__)

MASS = {"question": "Is there a mass?", "answer": "No"}
EDEMA = {"question": "Is it edema?", "answer": "Yes"}
TYPED = {**MASS, "type": "type_3", "ground_truth_type": BINARY, "choices": ""}
STRUCTURED = {"anatomy": ["lung"], "measurement": [], "symptom": ["opacity"]}
LISTED = {"question": "List your findings.", "answer": "The lung is opaque.", "Structured_Answer": STRUCTURED}


@rows("reply", TABLES["json_is_found_wherever_it_stands"])
def test_json_is_found_wherever_it_stands(reply):
    assert questions_in(reply, YesNoQuestion) == [YesNoQuestion(**MASS)]


@rows(
    "reply",
    [
        "",
        "No.",
        "[]",
        "{}",
        "null",
        "3",
        '"text"',
        "[[]]",
        "[" * 100_000,
        "1" * 5000,
        json.dumps([MASS, {"question": "Is there a mass?"}]),
        json.dumps([{**MASS, "answer": ""}]),
        json.dumps([{**MASS, "answer": " "}]),
        json.dumps([{**MASS, "answer": True}]),
        json.dumps([{**MASS, "answer": "\ud800"}]),
        json.dumps([{**MASS, "note": "x"}]),
        json.dumps({"a": [MASS], "b": [MASS]}),
        json.dumps([MASS])[:-4],
    ],
)
def test_any_other_form_is_none(reply):
    assert questions_in(reply, YesNoQuestion) is None


def test_types_choices_and_components():
    (typed,) = questions_in(json.dumps([TYPED]), TypedQuestion)
    assert (typed.hallucination, typed.binary) == ("symptom", True)
    told = {**TYPED, "type": "type_1: Anatomical Hallucination", "ground_truth_type": MULTI_CHOICE, "choices": None}
    (typed,) = questions_in(json.dumps([told]), TypedQuestion)
    assert (typed.hallucination, typed.binary) == ("anatomy", False)
    for broken in (
        {"type": "type_5"},
        {"type": "type_12"},
        {"ground_truth_type": "yes or no"},
        {"choices": ["CT"]},
        {"choices": "\ud800"},
    ):
        assert questions_in(json.dumps([TYPED | broken]), TypedQuestion) is None
    (listed,) = questions_in(json.dumps(LISTED), ReportQuestion)
    assert listed.components.by_aspect() == {"anatomy": ("lung",), "measurement": (), "symptom": ("opacity",)}
    missing = {name: STRUCTURED[name] for name in ("anatomy", "symptom")}
    assert questions_in(json.dumps({**LISTED, "Structured_Answer": missing}), ReportQuestion) is None
    assert questions_in(json.dumps(LISTED), DraftedQuestion) is None


def test_a_model_that_broke_is_read_at_once():
    assert questions_in("```" + 100_000 * "\n", YesNoQuestion) is None
    assert questions_in(json.dumps([{**MASS, "question": "x" * 10_001}]), YesNoQuestion) is None
    assert questions_in(json.dumps([{**TYPED, "choices": "A. x" + 10_000 * " " + "y"}]), TypedQuestion) is None
