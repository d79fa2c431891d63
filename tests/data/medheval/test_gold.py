"""Options in every dialect of the published files, and which of them the published answer names."""

from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.sources.medheval_gold import (
    Flag,
    bare_letters,
    parsed_options,
    resolve_choice,
    resolve_yes_no,
)

from ...tables import each_row

WORDS = (
    st.text("abcdefghijklmnopqrstuvwxyz -", min_size=1, max_size=20).map(str.strip).filter(bool)
)


@each_row(
    "choices, options",
    [
        ("(A) MRI, (B) CT", ["MRI", "CT"]),
        ("A. Black B. White C. Grey", ["Black", "White", "Grey"]),
        ("A.MRI, B.CT", ["MRI", "CT"]),
        ("A, axial; B, sagittal; C, coronal", ["axial", "sagittal", "coronal"]),
        ("A. MRI, B: CT", ["MRI", "CT"]),
        # Commas, brackets and letters inside an option do not end it.
        ("A: Chest pain, dyspnea, B: Headache", ["Chest pain, dyspnea", "Headache"]),
        ("A. Tomography (CT), B. Imaging (MRI)", ["Tomography (CT)", "Imaging (MRI)"]),
        (
            "A) Tomography (CT), B) Hepatitis B: acute",
            ["Tomography (CT)", "Hepatitis B: acute"],
        ),
        ("A: Cyst, B: Stone, C: Both A and B", ["Cyst", "Stone", "Both A and B"]),
        ("A. 1.5 cm, B. 2.5 cm", ["1.5 cm", "2.5 cm"]),
        # These name no two options.
        *(
            (choices, [])
            for choices in ("", " ", "A", "A. MRI", "A, B, C", "A; B", "left or right")
        ),
        *((choices, []) for choices in ("B. CT, C. MRI", "A. , B. CT", "é" * 5000)),
    ],
)
def test_dialects(choices, options):
    assert parsed_options(choices) == options


@each_row(
    "choices, letters",
    [
        *(("A, B, C", "ABC"), ("A, B, C, D.", "ABCD"), ("(A), (B)", "AB")),
        *(("A, C", ""), ("A", ""), ("A. MRI, B. CT", ""), ("", "")),
    ],
)
def test_letters_without_text(choices, letters):
    assert bare_letters(choices) == list(letters)


@given(
    st.lists(WORDS, min_size=2, max_size=6),
    st.sampled_from([".", ":", ")"]),
    st.sampled_from([", ", "; ", "\n"]),
)
def test_what_is_written_is_read(texts, mark, between):
    written = between.join(
        f"{letter}{mark} {text}" for letter, text in zip("ABCDEF", texts, strict=False)
    )
    assert parsed_options(written) == texts


SIDES = ["Upper left", "Upper right", "Lower left", "Lower right"]
ORGANS = ["Liver", "Heart", "Lung"]
LARGER = ["The liver is larger", "The heart is larger"]
SEVERAL, CONTRADICTORY, UNRESOLVED = (
    Flag.GOLD_SEVERAL,
    Flag.GOLD_CONTRADICTORY,
    Flag.GOLD_UNRESOLVED,
)


@each_row(
    "gold, options, letter, flags",
    [
        # plain answers
        *(
            (gold, ORGANS, "B", ())
            for gold in (
                "Heart",
                "heart.",
                "B",
                "B.",
                "(B)",
                "B: Heart",
                "B) heart",
                "B, Heart",
            )
        ),
        ("T2", ["T1", "T2", "T2*"], "B", ()),
        ("T2*", ["T1", "T2", "T2*"], "C", ()),
        ("< 5 mm", ["> 5 mm", "< 5 mm"], "B", ()),
        ("Cannot specify", ["CT", "MRI", "Cannot specify"], "C", ()),
        ("A and B", ["A and B", "Neither"], "A", ()),
        # answers that a reader understands
        *(
            (gold, ORGANS, "B", (Flag.GOLD_INTERPRETED,))
            for gold in ("The heart", "In the heart")
        ),
        ("It is the lower right side of the image.", SIDES, "D", (Flag.GOLD_INTERPRETED,)),
        ("B. Heart, seen from the front", ORGANS, "B", (Flag.GOLD_INTERPRETED,)),
        ("The liver is larger than the rest.", LARGER, "A", (Flag.GOLD_INTERPRETED,)),
        # answers that name no single option
        *((gold, ORGANS, None, (SEVERAL,)) for gold in ("Liver, heart", "A. Liver, C. Lung")),
        ("GI and IV contrast", ["GI contrast", "IV contrast", "Both"], None, (SEVERAL,)),
        *(
            (gold, ORGANS, None, (CONTRADICTORY,))
            for gold in ("A. Heart", "A. The heart is shown")
        ),
        ("Cannot be determined from the image", ORGANS, None, (UNRESOLVED,)),
        *(
            (gold, ORGANS, None, (UNRESOLVED,))
            for gold in ("Not the heart", "No", "D", "", " \n", "Kidney " * 5000)
        ),
        ("Left", ["Left", "left"], None, (UNRESOLVED,)),
    ],
)
def test_the_option_that_an_answer_names(gold, options, letter, flags):
    assert resolve_choice(gold, options) == (letter, flags)


ASKED, WHICH = "Is there a fracture?", "Which organ is it?"


@each_row(
    "gold, question, choices, letter, flags",
    [
        *((gold, ASKED, "", "A", ()) for gold in ("Yes", "yes", "YES.", " Yes ")),
        *((gold, ASKED, "", "B", ()) for gold in ("No", "no", "No.", "B. No")),
        ("A. Yes", ASKED, "A. Yes, B. No", "A", ()),
        *((gold, ASKED, "A. Yes, B. No", "B", ()) for gold in ("B. No", "B")),
        ("A", ASKED, "A. No, B. Yes", "B", ()),
        ("Yes, of the rib", ASKED, "", "A", (Flag.GOLD_INTERPRETED,)),
        ("There is no fracture.", ASKED, "", "B", (Flag.GOLD_INTERPRETED,)),
        ("None", ASKED, "", "B", (Flag.GOLD_INTERPRETED,)),
        ("No, it is the lung.", WHICH, "", "B", (Flag.GOLD_INTERPRETED,)),
        *(
            (gold, ASKED, "", None, (UNRESOLVED,))
            for gold in ("Cannot be determined", "No information provided")
        ),
        *((gold, ASKED, "", None, (UNRESOLVED,)) for gold in ("", "\t")),
        ("Abnormal", "What is the condition of the lung?", "", None, (UNRESOLVED,)),
        ("None", "Which organ is enlarged?", "", None, (UNRESOLVED,)),
        ("B. Yes", ASKED, "A. Yes, B. No", None, (CONTRADICTORY,)),
    ],
)
def test_yes_or_no(gold, question, choices, letter, flags):
    assert resolve_yes_no(gold, question, choices) == (letter, flags)
