import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.error_classes import ErrorClass, error_class
from medtasks.extract.failure import failed_reply

from .reading import reading

read = reading("robust_choice")

OPTIONS = ("polyp", "ulcer", "normal mucosa")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("I am sorry, I cannot interpret medical images.", ErrorClass.REFUSAL),
        ("Please see a doctor; I'm not able to diagnose this.", ErrorClass.REFUSAL),
        ("", ErrorClass.IRRELEVANT),
        (None, ErrorClass.IRRELEVANT),
        ("....", ErrorClass.IRRELEVANT),
        ("1 2 3 4", ErrorClass.IRRELEVANT),
        ("the the image " * 60, ErrorClass.IRRELEVANT),
        ("A and B", ErrorClass.MISUNDERSTOOD),
        ("F", ErrorClass.MISUNDERSTOOD),
        ("The picture shows an endoscope in the stomach.", ErrorClass.MISUNDERSTOOD),
        ("B", ErrorClass.FOR_A_HUMAN),
        ("It is an ulcer.", ErrorClass.FOR_A_HUMAN),
    ],
)
def test_classes(reply, expected):
    assert error_class(reply, read(reply, OPTIONS).value) is expected


def test_failed_samples_are_not_the_model_s_error():
    assert error_class(failed_reply("out of memory"), None) is ErrorClass.FAILED


@given(st.text(), st.sampled_from([None, "A"]))
def test_every_reply_has_a_class(reply, value):
    assert error_class(reply, value) in ErrorClass
