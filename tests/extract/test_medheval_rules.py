"""MedHEval's closed rules: the released evaluator, and a careful reader."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.published.medevalkit_choice import most_similar
from medtasks.extract.published.medheval_closed import (
    Counted,
    listed_options,
    medheval_reference,
    medheval_strict,
)

from ..tables import each_row
from .reading import recorded, rows

ORGANS = ("Liver", "Heart", "Lung")


def asked(kind, question, choices, options, answer, gold):
    columns = {"kind": kind, "question": question, "choices": choices, "options": options}
    return Sample({**columns, "answer": answer, "gold": gold})


def yes_no(gold="Yes", question="Is there a mass?"):
    answer = {"Yes": "A", "No": "B"}.get(gold)
    return asked("binary", question, "", ("Yes", "No"), answer, gold)


def choice(gold, options=ORGANS, answer=None, choices=None):
    written = ", ".join(f"{letter}. {text}" for letter, text in zip("ABCDEF", options, strict=False))
    return asked("multi-choice", "Which organ?", written if choices is None else choices, options, answer, gold)


def test_golden_medheval_closed(golden):
    for case in recorded(golden, "medheval_closed", 301):
        binary = case["kind"] == "binary"
        question = asked(case["kind"], "", case.get("choices", ""), (), None, case["gold"])
        reading = medheval_reference(case["reply"], question)
        if binary:
            assert reading.facts["correct"] == case["correct"], case
        elif case["result"] is None:
            assert reading.facts["counted"] is Counted.AVERAGED, case
        else:
            assert list(listed_options(case["choices"])) == case["result"]["options"]
            index = {None: None, **{letter: number for number, letter in enumerate("ABCDEF")}}
            facts = reading.facts
            found = {"pred": index[reading.value], "gold": index[facts["target"]], "correct": facts["correct"]}
            assert found == {key: case["result"][key] for key in found}, case
            assert reading.facts["counted"] is Counted.SCORED


# fmt: off
SAYS_YES = {
    True: [
        "Yes", "NO", "Nope", "No;", '"No"', "Answer:no", "No\nThere", "False", "cannot tell", "", " ", ". No", "None",
    ],
    False: ["No", "no.", "No, it is.", "Yes, there is no mass", "not seen", "It is, no", "A no"],
}
# fmt: on


@each_row(("text", "yes"), rows(SAYS_YES))
def test_what_counts_as_yes(text, yes):
    said = medheval_reference(text, Sample({"kind": "binary", "choices": "", "gold": "Yes"})).value
    assert (said == "A") is yes


@given(st.text())
def test_denial_in_the_first_sentence_alone_decides(text):
    first = text.split(".")[0]
    pieces = "".join(letter for letter in first if letter != ",").split(" ")
    target = medheval_reference("Yes", Sample({"kind": "binary", "choices": "", "gold": text})).facts["target"]
    assert (target == "A") == (not any(piece in ("No", "no", "not") for piece in pieces))


@each_row(
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
    assert (
        most_similar(
            (
                "A. Liver",
                "B. Heart",
            ),
            "heart",
        )
        == 1
    )
    assert (
        most_similar(
            (
                "A. Liver",
                "B. Liver",
            ),
            "Liver",
        )
        == 0
    )  # a tie goes to the first
    assert most_similar(("A. Liver",), "") is None
    assert most_similar(("A. Liver",), "777") is None
    assert most_similar((), "Liver") is None


def test_letters_go_through_the_same_rule():
    # The letter C is likest to the shortest option that holds a capital C.
    question = choice("C", ("Ultrasound", "CT", "X-ray", "MRI"))
    reading = medheval_reference("C", question)
    assert (reading.value, reading.facts["target"], reading.facts["correct"]) == ("B", "B", True)
    assert not medheval_reference("C. X-ray", question).facts["correct"]


def test_nothing_like_nothing_is_right():
    reading = medheval_reference("777", choice("888"))
    assert (reading.value, reading.facts["target"], reading.facts["correct"]) == (None, None, True)
    assert reading.reason is Reason.NO_MATCH


def test_questions_without_option_b_have_no_score():
    assert medheval_reference("A", choice("A", choices="A, B, C")).facts["counted"] is Counted.AVERAGED
    assert medheval_reference("A", choice("A", choices="A. X, C. Y")).facts["counted"] is Counted.AVERAGED
    # Options without A are an empty list, with which everything agrees.
    odd = medheval_reference("X", choice("Y", choices="B. X, C. Y"))
    assert (odd.facts["counted"], odd.facts["correct"]) == (Counted.SCORED, True)


@each_row("reply", ["", None])
def test_empty_replies_as_released(reply):
    assert medheval_reference(reply, yes_no("Yes")).facts["correct"]
    assert not medheval_reference(reply, yes_no("No")).facts["correct"]
    assert medheval_reference(reply, choice("Heart")).reason is Reason.EMPTY


@each_row("reply", ["no " * 5000, "Heart " * 5000, "é" * 20000, "A" * 20000])
def test_long_replies(reply):
    for rule, question in itertools.product((medheval_reference, medheval_strict), (yes_no(), choice("Heart"))):
        assert rule(reply, question).reason in (Reason.OK, Reason.NO_MATCH, Reason.AMBIGUOUS)


@each_row("reply", ["B", "b", "(B)", "B.", "**B**", "B. Heart", "b) heart", "Heart", "heart.", "It is the heart."])
def test_strict_reads_letters_and_texts(reply):
    assert medheval_strict(reply, choice("The heart", answer="B")).facts["correct"]


ASKED = {"organ": choice("Heart", answer="B"), "mass": yes_no()}
INVALID = {
    ("organ", Reason.REFUSED): ["I cannot determine this from the image."],
    ("organ", Reason.AMBIGUOUS): ["A or B"],
    ("organ", Reason.NO_MATCH): ["Kidney"],
    ("organ", Reason.EMPTY): [" \n"],
    ("mass", Reason.REFUSED): ["I'm sorry, I can't help with that.", "Not sure"],
    ("mass", Reason.AMBIGUOUS): ["Yes and no"],
    ("mass", Reason.NO_MATCH): ["A nice picture"],
    ("mass", Reason.TRUNCATED): ["<think>Maybe"],
    ("mass", Reason.EMPTY): [""],
}


@each_row(("reply", "asked"), rows(INVALID))
def test_strict_takes_invalid_for_wrong(reply, asked):
    question, reason = asked
    reading = medheval_strict(reply, ASKED[question])
    assert (reading.value, reading.reason, reading.facts["correct"]) == (None, reason, False)


def test_strict_tells_options_apart_that_differ_in_punctuation():
    question = choice("T2", ("T1", "T2", "T2*"), "B")
    assert [medheval_strict(reply, question).value for reply in ("T2", "t2*", " T1\n")] == ["B", "C", "A"]


def test_strict_reads_letters_where_the_texts_are_unknown():
    for options in ((), ("A", "B", "C")):
        reading = medheval_strict("C", choice("C", options, choices="A, B, C"))
        assert (reading.value, reading.facts["counted"]) == ("C", Counted.LEFT_OUT)


@each_row(
    ("reply", "value"), [("Yes", "A"), ("NO", "B"), ("Nope. No.", "B"), ("There is no mass.", "B"), ("Answer: no", "B")]
)
def test_strict_verdicts(reply, value):
    for gold in ("Yes", "No"):
        reading = medheval_strict(reply, yes_no(gold))
        assert reading.value == value
        assert reading.facts["correct"] == (value == reading.facts["target"])


def test_strict_leaves_out_questions_without_a_key():
    reading = medheval_strict("Yes", yes_no("Cannot be determined"))
    assert reading.value == "A"
    assert reading.facts == {"target": None, "correct": False, "counted": Counted.LEFT_OUT}
