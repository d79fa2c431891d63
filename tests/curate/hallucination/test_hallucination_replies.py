import json
import re
from collections import Counter

from medtasks.curate.drafts import DraftOutcome
from medtasks.curate.hallucination_questions import (
    DraftedQuestion,
    ReportQuestion,
    TypedQuestion,
    YesNoQuestion,
    drafts_in,
)
from medtasks.data.sources.medheval_sets import BINARY, MULTI_CHOICE

from ...tables import each_row, tables_of

TABLES = tables_of(__file__)

MASS = {"question": "Is there a mass?", "answer": "No"}
TYPED = {**MASS, "type": "type_3", "ground_truth_type": BINARY, "choices": ""}
STRUCTURED = {"anatomy": ["lung"], "measurement": [], "symptom": ["opacity"]}
EMPTY = {aspect: [] for aspect in STRUCTURED}
LISTED = {"question": "List your findings.", "answer": "The lung is opaque.", "Structured_Answer": STRUCTURED}


def read(schema, reply, banned=None, image="i"):
    drafts = drafts_in(schema, image, banned, json.dumps(reply))
    return drafts and drafts["drafts"]


@each_row("reply", TABLES["json_is_found_wherever_it_stands"])
def test_json_is_found_wherever_it_stands(reply):
    (draft,) = drafts_in(YesNoQuestion, "i", None, reply)["drafts"]
    assert (draft.question, draft.options, draft.answers) == (MASS["question"], ("Yes", "No"), ("B",))


@each_row(
    "reply",
    [
        *("", "No.", "[]", "{}", "null", "3", '"text"', "[[]]", "[" * 100_000, "1" * 5000, "```" + 100_000 * "\n"),
        json.dumps([MASS, {"question": "Is there a mass?"}]),
        *(json.dumps([{**MASS, "answer": answer}]) for answer in ("", " ", True, "\ud800")),
        json.dumps([{**MASS, "question": "x" * 10_001}]),  # a model that broke
        json.dumps([{**MASS, "note": "x"}]),
        json.dumps({"a": [MASS], "b": [MASS]}),
        json.dumps([MASS])[:-4],
    ],
)
def test_any_other_form_is_none(reply):
    assert drafts_in(YesNoQuestion, "i", None, reply) is None


def test_types_choices_and_components():
    explained = {"type": "type_1: Anatomical Hallucination", "ground_truth_type": MULTI_CHOICE, "choices": None}
    for changes, hallucination in (({}, "symptom"), (explained, "anatomy")):
        assert read(TypedQuestion, [TYPED | changes])[0].hallucination == hallucination
    broken = [{"type": "type_5"}, {"type": "type_12"}, {"ground_truth_type": "yes or no"}]
    broken += [{"choices": choices} for choices in (["CT"], "\ud800", "A. x" + 10_000 * " " + "y")]
    assert [read(TypedQuestion, [TYPED | changes]) for changes in broken] == [None] * 6
    (listed,) = read(ReportQuestion, LISTED)
    assert listed.components == {"anatomy": ("lung",), "measurement": (), "symptom": ("opacity",)}
    missing = {name: STRUCTURED[name] for name in ("anatomy", "symptom")}
    assert read(ReportQuestion, {**LISTED, "Structured_Answer": missing}) is None
    assert read(DraftedQuestion, LISTED) is None


# ---- rules for drafts ----

BANNED = re.compile(r"\b(?:report)s?\b")
FORBIDDEN = "it says '{}', which its prompt forbids"


def choice(answer, choices="A. CT, B. MRI, C. X-ray", question="Which modality?", kind="multi-choice"):
    facts = {"question": question, "answer": answer, "choices": choices, "ground_truth_type": kind}
    return {"type": "type_4", **facts}


def drafted(*questions):
    schema = TypedQuestion if "type" in questions[0] else DraftedQuestion
    return read(schema, questions, BANNED)


def test_the_right_option_is_known_wherever_it_stands():
    for answer, choices in (("MRI", "A. CT, B. MRI"), ("(B)", "A: CT; B: MRI"), ("It is an MRI.", "A, CT; B, MRI")):
        (draft,) = drafted(choice(answer, choices))
        assert (draft.outcome, draft.reason, draft.hallucination) == (DraftOutcome.DRAFTED, "", "technique")
        assert sorted(draft.options) == ["CT", "MRI"]
        assert draft.options[ord(draft.answers[0]) - ord("A")] == "MRI"


def test_the_right_option_stands_everywhere_about_equally_often_unless_options_speak_of_each_other():
    drafts = [read(TypedQuestion, [choice("A. CT")], image=f"image {number}")[0] for number in range(300)]
    letters = Counter(draft.answers[0] for draft in drafts)
    assert (letters.keys(), min(letters.values()) > 70) == ({"A", "B", "C"}, True)
    assert read(TypedQuestion, [choice("A. CT")], image="image 7")[0] == drafts[7]
    for last in ("None of the above", "Both A and B", "A and B", "All of these: all of them"):
        questions = [choice("B", f"A. CT, B. MRI, C. {last}")]
        drafts = [read(TypedQuestion, questions, image=str(number))[0] for number in range(8)]
        assert {draft.options for draft in drafts} == {("CT", "MRI", last)}


@each_row(
    "question, reason",
    [
        (choice("Ultrasound"), "its answer names no option"),
        (choice("CT and MRI"), "its answer names several options"),
        (choice("A: MRI"), "its answer contradicts itself"),
        (choice("CT", "CT or MRI"), "it has fewer than two options that can be told apart"),
        (choice("A", "A, B, C"), "it has fewer than two options that can be told apart"),
        (choice("MRI", ""), "it has fewer than two options that can be told apart"),
        (choice("C", "A. CT, B. C.T., C. MRI, D. mri."), "two of its options are equal"),
        (choice("Unclear", "", "Is there a mass?", "binary"), "its answer is neither yes nor no"),
        ({"question": "What does the report say?", "answer": "Edema"}, FORBIDDEN.format("report")),
        ({"question": "What is it?", "answer": "Edema, it reports"}, FORBIDDEN.format("reports")),
        (choice("CT", "A. CT, B. the report"), FORBIDDEN.format("report")),
    ],
)
def test_what_is_no_question_is_rejected_and_says_why(question, reason):
    (draft,) = drafted(question)
    assert (draft.outcome, draft.reason) == (DraftOutcome.REJECTED, reason)
    assert draft.answers == (question["answer"],) or "forbids" in reason


def test_yes_and_no():
    (unclear,) = read(YesNoQuestion, {**MASS, "answer": "Equivocal"})
    assert (unclear.reason, unclear.answers) == ("its answer is neither yes nor no", ("Equivocal",))
    plain = {"question": "Is there a mass?", "answer": "No, the lung is clear."}
    typed = [choice("yes", "", "Is there edema?", "binary"), choice("B. Yes", "A. No, B. Yes", "Is there air?")]
    drafts = [*read(YesNoQuestion, plain), *drafted(*typed)]
    assert [draft.reason for draft in drafts] == [""] * 3
    assert {draft.options for draft in drafts} == {("Yes", "No")}
    assert [draft.answers for draft in drafts] == [("B",), ("A",), ("A",)]
    assert [draft.item_id for draft in drafts] == ["i/1", "i/1", "i/2"]
    assert [draft.hallucination for draft in drafts] == [None, "technique", "technique"]


def test_the_same_question_is_rejected_the_second_time_and_components_are_kept():
    texts = ("What is edema?", "what is  Edema", "What is air?")
    twice = [{"question": text, "answer": "Fluid"} for text in texts]
    assert [draft.reason for draft in drafted(*twice)] == ["", "the same question of the same image", ""]
    full, empty = (read(ReportQuestion, {**LISTED, "Structured_Answer": of})[0] for of in (STRUCTURED, EMPTY))
    assert (full.outcome, full.options, full.answers) == (DraftOutcome.DRAFTED, (), (LISTED["answer"],))
    assert (empty.outcome, empty.reason) == (DraftOutcome.REJECTED, "it names no component")
