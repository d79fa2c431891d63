"""MedHEval's closed rules: the released evaluator, and a careful reader."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.errors import UnknownName
from medtasks.extract import medheval_reference, medheval_strict
from medtasks.extract.answer import Reason
from medtasks.extract.failure import failed_reply
from medtasks.extract.medheval_question import ClosedQuestion, Counted
from medtasks.extract.medheval_reference import listed_options, most_similar, says_yes
from medtasks.extract.registry import CLOSED_RULES, closed_rule, reading_rule

ORGANS = ("Liver", "Heart", "Lung")


def yes_no(gold="Yes", question="Is there a mass?"):
    answer = {"Yes": "A", "No": "B"}.get(gold)
    return ClosedQuestion(question, True, "", ("Yes", "No"), answer, gold)


def choice(gold, options=ORGANS, answer=None, choices=None):
    written = ", ".join(f"{letter}. {text}" for letter, text in zip("ABCDEF", options, strict=False))
    return ClosedQuestion("Which organ?", False, written if choices is None else choices, options, answer, gold)


def test_registered():
    assert list(CLOSED_RULES) == ["medheval_reference", "medheval_strict"]
    assert reading_rule("medheval_strict") is closed_rule("medheval_strict")
    with pytest.raises(UnknownName, match="did you mean 'medheval_strict'"):
        closed_rule("medheval_strct")


def test_golden_medheval_closed(golden):
    lines = (golden / "medheval_closed.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    for case in cases:
        binary = case["kind"] == "binary"
        question = ClosedQuestion("", binary, case.get("choices", ""), (), None, case["gold"])
        reading = medheval_reference.read(case["reply"], question)
        if binary:
            assert reading.correct == case["correct"], case
        elif case["result"] is None:
            assert reading.counted is Counted.AVERAGED, case
        else:
            assert list(listed_options(case["choices"])) == case["result"]["options"]
            index = {None: None, **{letter: number for number, letter in enumerate("ABCDEF")}}
            found = {
                "pred": index[reading.answer.value],
                "gold": index[reading.key],
                "correct": reading.correct,
            }
            assert found == {key: case["result"][key] for key in found}, case
            assert reading.counted is Counted.SCORED
    assert len(cases) > 300


@pytest.mark.parametrize(
    "text",
    ["Yes", "NO", "Nope", "No;", '"No"', "Answer:no", "No\nThere", "False", "cannot tell", "", " ", ". No", "None"],
)
def test_what_counts_as_yes(text):
    assert says_yes(text)


@pytest.mark.parametrize("text", ["No", "no.", "No, it is.", "Yes, there is no mass", "not seen", "It is, no", "A no"])
def test_what_counts_as_no(text):
    assert not says_yes(text)


@given(st.text())
def test_denial_in_the_first_sentence_alone_decides(text):
    first = text.split(".")[0]
    pieces = "".join(letter for letter in first if letter != ",").split(" ")
    assert says_yes(text) == (not any(piece in ("No", "no", "not") for piece in pieces))


@pytest.mark.parametrize(
    ("choices", "options"),
    [
        ("A: MRI, B: CT", ("A: MRI", "B: CT")),
        ("A) MRI, B) CT", ("A) MRI", "B) CT")),
        ("A. MRI; B. CT", ("A. MRI;", "B. CT")),
        ("A. Scan (CT), B. MRI", ("A. Scan (C", "B. MRI")),
        ("A. X, B. Y, A. Z", ("A. Z", "B. Y")),
        ("A. X, C. Y", ("A. X",)),
        ("B. X, C. Y", ()),
        ("A. 1, B. 2, C. 3, D. 4, E. 5, F. 6, G. 7", ("A. 1", "B. 2", "C. 3", "D. 4", "E. 5", "F. 6")),
        ("A, B, C", ()),
        ("", ()),
    ],
)
def test_options_as_released(choices, options):
    assert listed_options(choices) == options


def test_most_similar_option():
    assert most_similar(["A. Liver", "B. Heart"], "heart") == 1
    assert most_similar(["A. Liver", "B. Liver"], "Liver") == 0  # a tie goes to the first
    assert most_similar(["A. Liver"], "") is None
    assert most_similar(["A. Liver"], "777") is None
    assert most_similar([], "Liver") is None


def test_letters_go_through_the_same_rule():
    # The letter C is likest to the shortest option that holds a capital C.
    question = choice("C", ("Ultrasound", "CT", "X-ray", "MRI"))
    reading = medheval_reference.read("C", question)
    assert (reading.answer.value, reading.key, reading.correct) == ("B", "B", True)
    assert not medheval_reference.read("C. X-ray", question).correct


def test_nothing_like_nothing_is_right():
    reading = medheval_reference.read("777", choice("888"))
    assert (reading.answer.value, reading.key, reading.correct) == (None, None, True)
    assert reading.answer.reason is Reason.NO_MATCH


def test_questions_without_option_b_have_no_score():
    assert medheval_reference.read("A", choice("A", choices="A, B, C")).counted is Counted.AVERAGED
    assert medheval_reference.read("A", choice("A", choices="A. X, C. Y")).counted is Counted.AVERAGED
    # Options without A are an empty list, with which everything agrees.
    odd = medheval_reference.read("X", choice("Y", choices="B. X, C. Y"))
    assert (odd.counted, odd.correct) == (Counted.SCORED, True)


@pytest.mark.parametrize("reply", ["", None])
def test_empty_replies_as_released(reply):
    assert medheval_reference.read(reply, yes_no("Yes")).correct
    assert not medheval_reference.read(reply, yes_no("No")).correct
    assert medheval_reference.read(reply, choice("Heart")).answer.reason is Reason.EMPTY


@pytest.mark.parametrize("rule", [medheval_reference.read, medheval_strict.read])
@pytest.mark.parametrize("question", [yes_no("Yes"), choice("777"), choice("Heart", answer="B")])
def test_a_sample_that_could_not_be_run_is_wrong(rule, question):
    reading = rule(failed_reply("no memory"), question)
    assert (reading.correct, reading.answer.reason) == (False, Reason.ADAPTER_FAILED)


@pytest.mark.parametrize("rule", [medheval_reference.read, medheval_strict.read])
@given(reply=st.one_of(st.none(), st.text()), gold=st.text(), choices=st.text(), binary=st.booleans())
def test_rules_never_raise(rule, reply, gold, choices, binary):
    question = ClosedQuestion("Is it?", binary, choices, () if not binary else ("Yes", "No"), None, gold)
    reading = rule(reply, question)
    assert (reading.answer.value is None) == (reading.answer.reason is not Reason.OK)
    if rule is medheval_strict.read:
        assert reading.counted is Counted.LEFT_OUT
        assert not reading.correct


@pytest.mark.parametrize("reply", ["no " * 5000, "Heart " * 5000, "é" * 20000, "A" * 20000])
def test_long_replies(reply):
    for rule, question in itertools.product(
        (medheval_reference.read, medheval_strict.read), (yes_no(), choice("Heart"))
    ):
        assert rule(reply, question).answer.reason in (Reason.OK, Reason.NO_MATCH, Reason.AMBIGUOUS)


@pytest.mark.parametrize(
    "reply", ["B", "b", "(B)", "B.", "**B**", "B. Heart", "b) heart", "Heart", "heart.", "It is the heart."]
)
def test_strict_reads_letters_and_texts(reply):
    assert medheval_strict.read(reply, choice("The heart", answer="B")).correct


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot determine this from the image.", Reason.REFUSED),
        ("A or B", Reason.AMBIGUOUS),
        ("Kidney", Reason.NO_MATCH),
        ("", Reason.EMPTY),
        (" \n", Reason.EMPTY),
    ],
)
def test_strict_invalid_choices(reply, reason):
    reading = medheval_strict.read(reply, choice("Heart", answer="B"))
    assert (reading.answer.value, reading.answer.reason, reading.correct) == (None, reason, False)


def test_strict_tells_options_apart_that_differ_in_punctuation():
    question = choice("T2", ("T1", "T2", "T2*"), "B")
    assert [medheval_strict.read(reply, question).answer.value for reply in ("T2", "t2*", " T1\n")] == ["B", "C", "A"]


def test_strict_reads_letters_where_the_texts_are_unknown():
    for options in ((), ("A", "B", "C")):
        reading = medheval_strict.read("C", choice("C", options, choices="A, B, C"))
        assert (reading.answer.value, reading.counted) == ("C", Counted.LEFT_OUT)


@pytest.mark.parametrize(
    ("reply", "value"), [("Yes", "A"), ("NO", "B"), ("Nope. No.", "B"), ("There is no mass.", "B"), ("Answer: no", "B")]
)
def test_strict_verdicts(reply, value):
    for gold in ("Yes", "No"):
        reading = medheval_strict.read(reply, yes_no(gold))
        assert reading.answer.value == value
        assert reading.correct == (value == reading.key)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I'm sorry, I can't help with that.", Reason.REFUSED),
        ("Not sure", Reason.REFUSED),
        ("Yes and no", Reason.AMBIGUOUS),
        ("A nice picture", Reason.NO_MATCH),
        ("", Reason.EMPTY),
        ("<think>Maybe", Reason.TRUNCATED),
    ],
)
def test_strict_invalid_verdicts(reply, reason):
    reading = medheval_strict.read(reply, yes_no())
    assert (reading.answer.value, reading.answer.reason, reading.correct) == (None, reason, False)


def test_strict_leaves_out_questions_without_a_key():
    reading = medheval_strict.read("Yes", yes_no("Cannot be determined"))
    assert (reading.answer.value, reading.key, reading.correct, reading.counted) == ("A", None, False, Counted.LEFT_OUT)
