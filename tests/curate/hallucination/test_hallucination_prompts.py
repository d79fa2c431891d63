from medtasks.curate.hallucination.hallucination_drafting import PROMPTS, banned_phrases, with_form
from medtasks.curate.llm import prompts_in

from ...tables import rows
from ..paper_texts import paper, squeezed

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
FORMS = {name for name in prompts_in(PROMPTS) if name.startswith("form_")}


def test_every_prompt_is_of_a_figure_or_a_form():
    assert prompts_in(PROMPTS).keys() == BEHIND.keys() | FORMS


@rows("name, behind", BEHIND.items())
def test_the_text_is_the_papers_from_its_first_letter_to_the_caption(name, behind):
    prompt = prompts_in(PROMPTS)[name]
    printed = f"System Message:{prompt.system}User Message:{prompt.user}{behind}"
    assert squeezed(printed) in squeezed(paper("medheval"))
    if behind.startswith("Figure"):
        assert prompt.source == f"MedHEval, {behind.lower().rstrip(':')}"


@rows("form", sorted(FORMS))
def test_a_form_stands_behind_the_papers_text(form):
    prompt, ours = prompts_in(PROMPTS)["contextual"], prompts_in(PROMPTS)[form]
    formed = with_form(prompt, form)
    assert formed.system == f"{prompt.system}\n\n{ours.user}"
    assert formed.user == prompt.user
    assert formed.label == f"contextual v1 + {form} v1"
    assert ours.source == "this package"


def test_what_a_prompt_forbids_is_read_from_it():
    said = "as mentioned / the QA / in this context / the report / a bounding box / bounding boxes / reports / reported"
    found = {name: banned_phrases(prompts_in(PROMPTS)[name].system) for name in BEHIND}
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
