"""Prompts of MediConfusion's curation and of MedHEval, against the papers' texts."""

import re

from medtasks.curate.drafts import fill_marks, prompts_in
from medtasks.curate.hallucination_questions import PROMPTS, banned_phrases
from medtasks.curate.pairs.pair_drafts import given_categories

from ..conftest import reference_folder
from ..tables import each_row

PAIR_PROMPTS, HALLUCINATION_PROMPTS = prompts_in("pair_prompts"), prompts_in(PROMPTS)
NUMBERS = (0, 1, 99)  # those that the paper prints
BEHIND = {  # what follows each prompt in the paper
    "visual_closed_pairs": "Figure 4:",
    "visual_closed_boxes": "Figure 5:",
    "visual_closed_report": "Figure 6:",
    "visual_open": "Figure 7:",
    "knowledge_closed": "Figure 8:",
    "knowledge_filter": "Chain 2: QA Generation",
    "knowledge_open": "Figure 9:",
    "contextual": "Figure 10:",
}


def squeezed(text: str) -> str:
    """The text without white space, and without the marks for code, lists and bold type of its conversion from PDF."""
    return re.sub(r"\s|```|\*\*|^[-•] ", "", text, flags=re.MULTILINE)


def paper(name: str) -> str:
    """The text of a paper, or skip the test."""
    return (reference_folder("MEDTASKS_PAPERS", "papers") / f"{name}.txt").read_text(
        encoding="utf-8"
    )


@each_row("name", ["question", "category_list", "category", "failure_modes"])
def test_a_prompt_equals_the_paper_s_white_space_apart(name):
    prompt = PAIR_PROMPTS[name]
    text = prompt.user
    for number in NUMBERS:
        text += re.sub(r"(Pair|Caption|\*\*IMAGE) 0", rf"\1 {number}", prompt.block)
    # Between the numbers the paper prints an ellipsis, and "Prompt:" before all but the last.
    printed = squeezed(paper("mediconfusion")).replace("...Caption99", "Caption99")
    assert any(
        squeezed(f"System message: {prompt.system}{label}{text}") in printed
        for label in ("Prompt: ", "")
    )


def test_a_corrected_prompt_lacks_the_stray_quotation_mark_and_takes_any_list():
    published = PAIR_PROMPTS["category"].user
    names = given_categories(published.split("Categories:")[1].strip('" '))
    corrected = fill_marks(
        PAIR_PROMPTS["category_corrected"].user, {"**CATEGORIES**": ", ".join(names)}
    )
    assert f'{corrected}"' == published


def test_the_marks_of_a_prompt_are_replaced_and_those_in_captions_are_not():
    prompt = PAIR_PROMPTS["question"]
    marks = ["**CAPTION OF IMAGE 1**", "**CAPTION OF IMAGE 2**"]
    text = fill_marks(prompt.user, {marks[0]: f"one {marks[1]}", marks[1]: "two"})
    assert f"Image1: one {marks[1]}\nImage2: two\nYour task" in text


@each_row("name, behind", BEHIND.items())
def test_the_text_is_the_papers_from_its_first_letter_to_the_caption(name, behind):
    prompt = HALLUCINATION_PROMPTS[name]
    printed = f"System Message:{prompt.system}User Message:{prompt.user}{behind}"
    assert squeezed(printed) in squeezed(paper("medheval"))
    if behind.startswith("Figure"):
        assert prompt.source == f"MedHEval, {behind.lower().rstrip(':')}"


def test_every_other_prompt_is_a_form_of_ours_and_what_a_prompt_forbids_is_read_from_it():
    forms = {
        name
        for name, prompt in HALLUCINATION_PROMPTS.items()
        if prompt.source == "this package"
    }
    assert HALLUCINATION_PROMPTS.keys() - BEHIND.keys() == forms
    said = "as mentioned / the QA / in this context / the report / a bounding box / bounding boxes / reports / reported"
    found = {name: banned_phrases(HALLUCINATION_PROMPTS[name].system) for name in BEHIND}
    assert {name: pattern and pattern.findall(said) for name, pattern in found.items()} == {
        "visual_closed_pairs": ["mentioned", "QA", "context"],
        "visual_closed_boxes": ["mentioned", "context", "bounding box", "bounding boxes"],
        "visual_closed_report": ["mentioned", "context", "report", "reports"],
        "visual_open": ["mentioned", "context", "report", "reports"],
        "knowledge_closed": ["mentioned", "context", "report", "reports"],
        "knowledge_filter": None,
        "knowledge_open": ["mentioned", "report", "reports"],
        "contextual": None,
    }
