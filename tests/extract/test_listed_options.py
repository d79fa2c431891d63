import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.answer import Reason

from .reading import reading

listed_options = reading("listed_options")

OPTIONS = ("cytosol", "actin filaments", "vesicles", "microtubules", "plasma membrane", "nuclear membrane")


@pytest.mark.parametrize(
    ("reply", "letters"),
    [
        ("A,B", "AB"),
        ("A, C and F.", "ACF"),
        ("(A), (D)", "AD"),
        ("a b", "AB"),
        ("ACE", "ACE"),
        ("A", "A"),
        ("Answer: B;E", "BE"),
        ("Options A and D", "AD"),
        ("The correct answers are A and C.", "AC"),
        ("**Answer:** A, F", "AF"),
        ("I see two structures. The answers are: B, C", "BC"),
        ("A. cytosol\nC. vesicles", "AC"),
        ("- A) cytosol\n- D) microtubules\n", "AD"),
        ("The image shows options B and E, I think", "BE"),
        ("This looks like (C) and maybe (D) in the picture", "CD"),
        ("cytosol, plasma membrane", "AE"),
        ("The stain marks vesicles and microtubules.", "CD"),
        ("A nuclear membrane is stained.", "F"),
        ("There is cytosol but not vesicles", "A"),
        ("<think>maybe B</think>A, D", "AD"),
    ],
)
def test_lists(reply, letters):
    answer = listed_options(reply, OPTIONS)
    assert answer.value == tuple(int(one in letters) for one in "ABCDEF"), answer


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", Reason.EMPTY),
        (None, Reason.EMPTY),
        ("I cannot determine this from the image.", Reason.REFUSED),
        ("None of the above", Reason.REFUSED),
        ("A cell.", Reason.NO_MATCH),
        ("X, Y", Reason.NO_MATCH),
        ("A, B, X", Reason.AMBIGUOUS),
    ],
)
def test_lists_nothing(reply, reason):
    answer = listed_options(reply, OPTIONS)
    assert (answer.value, answer.reason) == (None, reason)


def test_a_repeated_option_list_is_no_answer():
    lines = "".join(f"{mark}. {text}\n" for mark, text in zip("ABCDEF", OPTIONS, strict=True))
    assert listed_options(f"Options:\n{lines}The answers are A and B", OPTIONS).value == (1, 1, 0, 0, 0, 0)
    assert listed_options(f"{lines}I see actin filaments.", OPTIONS).value == (0, 1, 0, 0, 0, 0)
    assert listed_options(lines, OPTIONS).value is None


@given(st.sets(st.sampled_from("ABCDEF"), min_size=1), st.sampled_from([",", ", ", " and ", "; "]))
def test_reads_what_the_prompt_asks_for(chosen, between):
    answer = listed_options(between.join(sorted(chosen)), OPTIONS)
    assert answer.value == tuple(int(one in chosen) for one in "ABCDEF")
