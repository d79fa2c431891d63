"""Letters and texts that a reply lists, for questions with several right options."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .reading import outcome, reading, rows

listed_options = reading("listed_options")

OPTIONS = ("cytosol", "actin filaments", "vesicles", "microtubules", "plasma membrane", "nuclear membrane")
LINES = "".join(f"{mark}. {text}\n" for mark, text in zip("ABCDEF", OPTIONS, strict=True))

# fmt: off
EXPECTED = {
    "A": ["A", "There is cytosol but not vesicles"],
    "F": ["A nuclear membrane is stained."],
    "AB": ["A,B", "a b", f"Options:\n{LINES}The answers are A and B"],
    "AC": ["The correct answers are A and C.", "A. cytosol\nC. vesicles"],
    "AD": ["(A), (D)", "Options A and D", "- A) cytosol\n- D) microtubules\n", "<think>maybe B</think>A, D"],
    "AE": ["cytosol, plasma membrane"],
    "AF": ["**Answer:** A, F"],
    "ACE": ["ACE"],
    "ACF": ["A, C and F."],
    "B": [f"{LINES}I see actin filaments."],
    "BC": ["I see two structures. The answers are: B, C"],
    "BE": ["Answer: B;E", "The image shows options B and E, I think"],
    "CD": ["This looks like (C) and maybe (D) in the picture", "The stain marks vesicles and microtubules."],
    "refused": ["I cannot determine this from the image.", "None of the above"],
    "no_match": ["A cell.", "X, Y", LINES],
    "ambiguous": ["A, B, X"],
}
# fmt: on


def labels(letters):
    return tuple(int(letter in letters) for letter in "ABCDEF")


@pytest.mark.parametrize(("reply", "expected"), rows(EXPECTED))
def test_lists(reply, expected):
    assert outcome(listed_options(reply, OPTIONS)) == (labels(expected) if expected.isupper() else expected)


@given(st.sets(st.sampled_from("ABCDEF"), min_size=1), st.sampled_from([",", ", ", " and ", "; "]))
def test_reads_what_the_prompt_asks_for(chosen, between):
    assert listed_options(between.join(sorted(chosen)), OPTIONS).value == labels(chosen)
