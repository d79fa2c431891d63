"""What a clause affirms, holds possible, leaves open or denies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.reading.negation import Stance, clauses, stance

from ..growth import assert_linear

# The finding that is judged stands in capitals.
# fmt: off
EXPECTED: dict[Stance, list[str]] = {
    Stance.AFFIRMED: [
        "EDEMA", "There is EDEMA.", "EDEMA is seen", "likely EDEMA", "findings consistent with EDEMA",
        "EDEMA without effusion",
        "No effusion, but EDEMA is present", "no effusion; EDEMA", "No effusion. EDEMA.", "no change in EDEMA",
        "no doubt EDEMA",
        "There is no effusion, and EDEMA is seen", "There is no effusion and there is EDEMA",
        "EDEMA, effusion not seen",
        "No effusion, mild EDEMA", "not only EDEMA", "EDEMA: no effusion", "No abnormality except EDEMA",
        "EDEMA and no mass",
        "Effusion (absent), EDEMA (present)", "a nodule (not a mass) with EDEMA",
        "Without contrast, the image shows EDEMA",
        "EDEMA (no effusion)", "effusion: no\nEDEMA: yes", "EDEMA has not resolved", "effusion - no\nEDEMA",
        "The effusion has resolved and EDEMA is seen", "possible effusion, EDEMA", "opacity or mass; EDEMA",
        "EDEMA is not small",
        "No pneumonia, normal heart, EDEMA",
    ],
    Stance.DENIED: [
        "no EDEMA", "without EDEMA", "no evidence of EDEMA", "no effusion or EDEMA", "no effusion, mass, or EDEMA",
        "EDEMA: no",
        "denies EDEMA", "negative for EDEMA", "EDEMA is absent", "EDEMA is not seen", "EDEMA was ruled out",
        "ruled out EDEMA",
        "EDEMA has been excluded by CT", "absence of EDEMA", "neither effusion nor EDEMA", "EDEMA is unlikely",
        "unlikely EDEMA",
        "EDEMA, effusion, and mass are absent", "EDEMA and effusion are not present", "there isn't EDEMA",
        "free of EDEMA",
        "no evidence of\nEDEMA", "mass rather than EDEMA", "non-EDEMA", "EDEMA (absent)", "EDEMA - no", "EDEMA = 0",
        "EDEMA | No |",
        "EDEMA is no longer seen", "resolved EDEMA", "cannot see EDEMA", "less likely EDEMA", "EDEMA (-)",
        "EDEMA No, effusion Yes",
        "[ ] EDEMA", "No pleural effusion, pneumothorax or EDEMA is seen.", "it is not EDEMA", "EDEMA: none, mass: yes",
    ],
    Stance.HEDGED: [
        "possible EDEMA", "may be EDEMA", "EDEMA may be present", "EDEMA is possible", "probable EDEMA", "EDEMA?",
        "maybe EDEMA",
        "opacity may reflect EDEMA", "suspicious for EDEMA", "concerning for EDEMA", "EDEMA is suspected",
        "borderline EDEMA",
    ],
    Stance.OPEN: [
        "EDEMA cannot be excluded", "cannot exclude EDEMA", "EDEMA or effusion", "effusion or EDEMA",
        "EDEMA versus effusion",
        "whether there is EDEMA", "to rule out EDEMA", "EDEMA is not excluded", "history of EDEMA", "no new EDEMA",
        "cannot determine if EDEMA is seen", "EDEMA: uncertain", "effusion and/or EDEMA", "differential includes EDEMA",
    ],
}
# fmt: on


@pytest.mark.parametrize(
    ("text", "expected"), [(text, expected) for expected, texts in EXPECTED.items() for text in texts]
)
def test_stance_towards_a_finding(text, expected):
    held = [
        stance(clause, clause.index("EDEMA"), clause.index("EDEMA") + 5)
        for clause in clauses(text)
        if "EDEMA" in clause
    ]
    assert held == [expected]


def test_a_list_is_one_clause_and_statements_are_several():
    assert clauses("no effusion, mass, or edema") == ["no effusion, mass, or edema"]
    assert clauses("The heart is large, the lungs are clear and there is no mass.") == [
        *("The heart is large", "the lungs are clear", "there is no mass"),
    ]


@given(
    text=st.text()
    | st.lists(st.sampled_from(["no ", "is ", ", ", "and ", "edema", "(", ")", ".", "?", "\n", ": "])).map("".join)
)
def test_clauses_keep_the_words_in_order(text):
    rest = text
    for clause in clauses(text):
        assert clause in rest
        rest = rest[rest.index(clause) + len(clause) :]
        assert stance(clause, 0, len(clause)) in Stance


@pytest.mark.parametrize(
    "piece", ["no ", "not (x) ", "edema, ", "is, ", "no edema and ", "\n", "( ", "ruled out, ", "n't "]
)
def test_time_grows_no_faster_than_the_text(piece):
    def read(text):
        for clause in clauses(text):
            for place in range(0, len(clause), 50):
                stance(clause, place, place + 5)

    assert_linear(read, piece)
