"""Prompts: the reference's texts letter by letter, images at their place, and what a user may get wrong.

The expected texts in the JSON file were produced by the reference's own ``format_question`` (at d9ac283 and v0.1.0).
"""

import pytest

from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError, SourceError
from medtasks.prompts.template import example_answer, messages, prompt, question_parts, target
from medtasks.tasks.task_files import task_config

from ..tables import each_row, tables_of
from ..tiny_multimedeval import FIVE_FINDINGS, SKIN

TABLES = tables_of(__file__)
REFERENCE = {name: (row, question, answer) for name, row, question, answer in TABLES["reference"]}
REPORTS = {name: (row, question) for name, row, question in TABLES["reports"]}  # without demonstrations
CHEST = REFERENCE["chestxray14"][0]["options"]
STUDY = REPORTS["mimic_cxr_report"][0]
NO_IMAGE, ONE_IMAGE, TWO_IMAGES = ({"image_files": files} for files in ([], ["a.png"], ["a.png", "b.png"]))
CLOSED = "Answer the following question with yes or no. "


def settings(name, family="default"):
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    return families.get(family, families["default"])


MARKING = ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo")  # families that place images by a mark


def assert_asked(name, row, question):
    """Check a prompt for every family, whose template is the same."""
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    assert {own["template"] for own in families.values()} == {families["default"]["template"]}
    assert "<img>".join(question_parts(row, settings(name))) == question
    marked, plain = question.replace("<img>", "<image>"), question.replace("<img> ", "").replace("<img>", "")
    has_images = bool(row["image_files"])  # without, the text may hold a mark of its own
    for family in MARKING:
        assert prompt(row, settings(name, family)) == (marked if has_images else question)
    assert prompt(row, settings(name, "medtasks_tiny")) == (plain if has_images else question)


@each_row("name", REFERENCE)
def test_prompt_is_the_references(name):
    row, question, answer = REFERENCE[name]
    assert_asked(name, row, question)
    assert example_answer(row, settings(name)) == answer


@each_row("name", REPORTS)
def test_prompts_for_reports_are_the_references(name):
    row, question = REPORTS[name]
    assert_asked(name, row, question)
    assert target(row) == row["report"]


@each_row("answer", ["yes", "no"])
@each_row("name", ["vqa_rad", "path_vqa", "slake", "diff_vqa"])
def test_only_lower_case_yes_and_no_are_announced(name, answer):
    row = {**ONE_IMAGE, "question": "Is it?"}
    assert prompt({**row, "answer": answer}, settings(name)) == f"{CLOSED}Is it?"
    for other in (answer.title(), answer.upper(), f"{answer} ", "not seen", ""):
        assert prompt({**row, "answer": other}, settings(name)) == "Is it?"


def test_what_a_question_holds_is_text_and_what_is_absent_leaves_its_place_empty():
    for text in ("<img> {images} {question}", "{", "{0}", "<image>"):
        assert prompt({**ONE_IMAGE, "question": text, "answer": "x"}, settings("vqa_rad")) == text
    question = {**NO_IMAGE, "question": "Is it?", "answer": "CT"}
    assert prompt(question, settings("diff_vqa")) == " Is it?"  # as the reference: no tag, one blank
    study = {**STUDY, "indication": ""}
    assert prompt(study, settings("mimic_cxr_report_indication")).startswith(" Can you provide")
    for lost in (None, ""):
        row = {**ONE_IMAGE, "details": lost, "options": SKIN, "label": 0}
        assert prompt(row, settings("pad_ufes_20_head")).startswith(" Which of the following")
    for names, name, text in ((FIVE_FINDINGS, "mimic_cxr_classification", ""), (CHEST, "chestxray14", "No Finding")):
        row = {**ONE_IMAGE, "options": names, "labels": [0] * len(names)}
        assert example_answer(row, settings(name)) == text


@each_row(
    "name, expected",
    [
        ("medqa", "C"),
        ("pubmedqa", "C"),
        ("slake", "Yes"),
        ("octmnist", "normal, benign"),
        ("vindr_mammo", "4"),
        ("mimic_cxr_classification", "Atelectasis, Edema"),
    ],
)
def test_target(name, expected):
    assert target(REFERENCE[name][0]) == expected


def texts(message):
    return [part.get("text", "IMAGE") for part in message["content"]]


def test_messages_have_images_at_their_place(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    expected = {
        "vqa_rad": [CLOSED, "IMAGE", " What is 0?"],
        "diff_vqa": [CLOSED, "IMAGE", "IMAGE", " What is 0?"],
        "vindr_mammo": ["IMAGE", " What is the BI-RADS level in this mammography (from 1 to 5)?"],
        "mednli": [prompt(load_documents("multimedeval_mednli")[0], settings("mednli"))],
    }
    for name, content in expected.items():
        doc = load_documents(f"multimedeval_{name}")[0]
        # A chat model that shares its name with a simple one gets that one's settings.
        for family in ("default", "llava_hf"):
            [turn] = messages(doc, settings(name, family))
            assert turn["role"] == "user"
            assert texts(turn) == content
            widths = [part["url"].width for part in turn["content"] if part["type"] == "image"]
            assert widths == [10, 11][: len(doc["image_files"])]
    doc = load_documents("multimedeval_diff_vqa")[1]
    [turn] = messages(doc, {"template": "Q: {{ question }}"})  # which has no place for images: they come first
    assert texts(turn) == ["IMAGE", "IMAGE", "Q: What is 1?"]
    assert prompt(doc, {"template": "Q: {{ question }}", "image_mark": "<image>"}) == "Q: What is 1?"


def test_wrong_number_of_places():
    row = {**TWO_IMAGES, "doc_id": "q7", "question": "?", "answer": "x"}
    fix = r"sample q7 has 2 images and its prompt 1 places for them; write \{\{ images \}\}"
    with pytest.raises(SourceError, match=fix):
        prompt(row, {"template": "{{ image }} {{ question }}"})
    with pytest.raises(SourceError, match="has 0 images and its prompt 1 places"):
        prompt({**row, **NO_IMAGE}, {"template": "{{ image }} {{ question }}"})


@each_row("broken", ["{qestion}", "{{ qestion }}", "{{ question"])
def test_broken_template(broken):
    row = {**NO_IMAGE, "question": "Where?", "answer": "x"}
    with pytest.raises(MedTasksError, match=r"cannot be filled in .* its fields are question, context, details, indic"):
        prompt(row, {"template": broken})
    with pytest.raises(MedTasksError, match=r"cannot be filled in .* its fields are text, lower_text, letter, lower"):
        example_answer(row, {"example_answer": broken})
    with pytest.raises(MedTasksError, match="have no template for this model; add one"):
        prompt(row, None)
