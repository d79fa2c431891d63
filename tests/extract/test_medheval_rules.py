"""MedHEval's closed rules: the released evaluator, and a careful reader."""

from medtasks.data.samples import Sample
from medtasks.extract.published.medevalkit_choice import most_similar
from medtasks.extract.published.medheval_closed import (
    Counted,
    listed_options,
    medheval_reference,
)

from ..tables import each_row
from .reading import recorded


def asked(kind, question, choices, options, answer, gold):
    columns = {"kind": kind, "question": question, "choices": choices, "options": options}
    return Sample({**columns, "answer": answer, "gold": gold})


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
            found = {
                "pred": index[reading.value],
                "gold": index[facts["target"]],
                "correct": facts["correct"],
            }
            assert found == {key: case["result"][key] for key in found}, case
            assert reading.facts["counted"] is Counted.SCORED


@each_row(
    ("choices", "options"),
    [
        ("A: MRI, B: CT", ("A: MRI", "B: CT")),
        ("A. Scan (CT), B. MRI", ("A. Scan (C", "B. MRI")),
        ("A. X, B. Y, A. Z", ("A. Z", "B. Y")),
        ("A. X, C. Y", ("A. X",)),
        (
            "A. 1, B. 2, C. 3, D. 4, E. 5, F. 6, G. 7",
            ("A. 1", "B. 2", "C. 3", "D. 4", "E. 5", "F. 6"),
        ),
        ("A, B, C", ()),
        ("", ()),
    ],
)
def test_options_as_released(choices, options):
    assert listed_options(choices) == options


def test_most_similar_option():
    assert most_similar(("A. Liver", "B. Liver"), "Liver") == 0  # a tie goes to the first
    assert most_similar(("A. Liver",), "777") is most_similar((), "Liver") is None
