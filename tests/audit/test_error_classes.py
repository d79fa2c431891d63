from hypothesis import given
from hypothesis import strategies as st

from medtasks.audit.error_classes import ErrorClass, error_class
from medtasks.extract.failure import failed_reply

from ..extract.reading import reading, rows
from ..tables import each_row

read = reading("robust_choice")

OPTIONS = ("polyp", "ulcer", "normal mucosa")
EXPECTED = {
    ErrorClass.REFUSAL: [
        "I am sorry, I cannot interpret medical images.",
        "Please see a doctor; I'm not able to diagnose this.",
    ],
    ErrorClass.IRRELEVANT: ["", None, "....", "1 2 3 4", "the the image " * 60],
    ErrorClass.MISUNDERSTOOD: ["A and B", "F", "The picture shows an endoscope in the stomach."],
    ErrorClass.FOR_A_HUMAN: ["B", "It is an ulcer."],
    ErrorClass.FAILED: [failed_reply("out of memory")],
}


@each_row("reply, expected", rows(EXPECTED))
def test_classes(reply, expected):
    assert error_class(reply, read(reply, OPTIONS).value) is expected


@given(st.text(), st.sampled_from([None, "A"]))
def test_every_reply_has_a_class(reply, value):
    assert error_class(reply, value) in ErrorClass
