"""The prompts of MediConfusion's curation equal its paper's."""

import pytest

from medtasks.curate.llm import prompts_in
from medtasks.curate.pairs.pair_drafts import given_categories

from ..paper_texts import paper, squeezed

PROMPTS = prompts_in("pair_prompts")
NUMBERS = (0, 1, 99)  # those that the paper prints
BLOCKS = {
    "found_categories": [
        {"Caption 0": f"Caption {n}", "**IMAGE 0 CAPTION**": f"**IMAGE {n} CAPTION**"} for n in NUMBERS
    ],
    "failure_modes": [{"Pair 0": f"Pair {n}"} for n in NUMBERS],
}


@pytest.mark.parametrize("name", ["question", "found_categories", "category", "failure_modes"])
def test_a_prompt_equals_the_paper_s_white_space_apart(name):
    prompt = PROMPTS[name]
    text = prompt.with_blocks(BLOCKS.get(name, []))
    # Between the numbers the paper prints an ellipsis, and "Prompt:" before all but the last.
    printed = squeezed(paper("mediconfusion")).replace("...Caption99", "Caption99")
    assert any(squeezed(f"System message: {prompt.system}{label}{text}") in printed for label in ("Prompt: ", ""))


def test_a_corrected_prompt_lacks_the_stray_quotation_mark_and_takes_any_list():
    filled = PROMPTS["category_corrected"].filled(
        {"**CATEGORIES**": ", ".join(given_categories(PROMPTS["category"].user.split("Categories:")[1].strip('" ')))}
    )
    assert f'{filled}"' == PROMPTS["category"].user


def test_the_marks_of_a_prompt_are_replaced_and_those_in_captions_are_not():
    prompt = PROMPTS["question"]
    marks = ["**CAPTION OF IMAGE 1**", "**CAPTION OF IMAGE 2**"]
    filled = prompt.filled({marks[0]: f"one {marks[1]}", marks[1]: "two"})
    assert f"Image1: one {marks[1]}\nImage2: two\nYour task" in filled
    with pytest.raises(KeyError):
        prompt.filled({"**CAPTION OF IMAGE 3**": ""})
    blocks = PROMPTS["failure_modes"].with_blocks(
        [{"Pair 0": f"Pair {n}", "**IMAGE 1 CAPTION**": f"Pair 0 of {n}"} for n in (0, 1)]
    )
    assert "\nPair 1\nFirst image description: Pair 0 of 1\nSecond" in blocks
