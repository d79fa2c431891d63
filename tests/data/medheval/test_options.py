"""Options in every dialect of the published files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.medheval.gold import bare_letters, parsed_options

WORDS = st.text("abcdefghijklmnopqrstuvwxyz -", min_size=1, max_size=20).map(str.strip).filter(bool)


@pytest.mark.parametrize(
    ("choices", "options"),
    [
        ("A. MRI, B. CT, C. X-ray", ["MRI", "CT", "X-ray"]),
        ("A: MRI, B: CT", ["MRI", "CT"]),
        ("A) MRI, B) CT", ["MRI", "CT"]),
        ("(A) MRI, (B) CT", ["MRI", "CT"]),
        ("A. MRI; B. CT; C. X-ray", ["MRI", "CT", "X-ray"]),
        ("A. Black B. White C. Grey", ["Black", "White", "Grey"]),
        ("A.MRI, B.CT", ["MRI", "CT"]),
        ("A. MRI\nB. CT", ["MRI", "CT"]),
        ("A, axial; B, sagittal; C, coronal", ["axial", "sagittal", "coronal"]),
        ("A. MRI, B: CT", ["MRI", "CT"]),
        # Commas, brackets and letters inside an option do not end it.
        ("A: Chest pain, dyspnea, B: Headache", ["Chest pain, dyspnea", "Headache"]),
        ("A. Tomography (CT), B. Imaging (MRI)", ["Tomography (CT)", "Imaging (MRI)"]),
        ("A) Tomography (CT), B) Hepatitis B: acute", ["Tomography (CT)", "Hepatitis B: acute"]),
        ("A: Cyst, B: Stone, C: Both A and B", ["Cyst", "Stone", "Both A and B"]),
        ("A. 1.5 cm, B. 2.5 cm", ["1.5 cm", "2.5 cm"]),
        ("A. a, B. b, C. c, D. d, E. e, F. f", list("abcdef")),
    ],
)
def test_dialects(choices, options):
    assert parsed_options(choices) == options


@pytest.mark.parametrize(
    "choices", ["", " ", "A", "A. MRI", "A, B, C", "A; B", "left or right", "B. CT, C. MRI", "A. , B. CT", "é" * 5000]
)
def test_what_names_no_two_options(choices):
    assert parsed_options(choices) == []


@pytest.mark.parametrize(
    ("choices", "letters"),
    [
        ("A, B, C", ["A", "B", "C"]),
        ("A, B, C, D.", ["A", "B", "C", "D"]),
        ("(A), (B)", ["A", "B"]),
        ("A, C", []),
        ("A", []),
        ("A. MRI, B. CT", []),
        ("", []),
    ],
)
def test_letters_without_text(choices, letters):
    assert bare_letters(choices) == letters


@given(st.lists(WORDS, min_size=2, max_size=6), st.sampled_from([".", ":", ")"]), st.sampled_from([", ", "; ", "\n"]))
def test_what_is_written_is_read(texts, mark, between):
    written = between.join(f"{letter}{mark} {text}" for letter, text in zip("ABCDEF", texts, strict=False))
    assert parsed_options(written) == texts
