"""Prompts: the reference's texts letter by letter, images at their place, and what a user may get wrong.

The expected texts were produced by the reference's own ``format_question`` (at d9ac283 and v0.1.0) on these rows.
"""

import pytest

from medtasks.errors import MedTasksError, SourceError
from medtasks.prompts.template import example_answer, messages, prompt, question_parts, target
from medtasks.tasks.task_files import task_config

from .. import tiny_multimedeval
from ..tables import rows
from ..tiny_multimedeval import FIVE_FINDINGS, PATHOLOGY, SKIN

QUESTION = "A {x} man <b>, 70%?\n Next"
OPTIONS = ["Aspirin {a}", "Heparin.", "Ünï, code", "D%", "E e"]
CHEST = [
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
]
HISTORY = (
    "Patient history: smokes False, drink True, age 55, backgroundFather POMERANIA, gender FEMALE, "
    "skin cancer history True, has piped water True, has sewage system False"
)
NO_IMAGE, ONE_IMAGE, TWO_IMAGES = ({"image_files": files} for files in ([], ["a.png"], ["a.png", "b.png"]))
CLOSED = "Answer the following question with yes or no. "


def findings(names, found):
    return {**ONE_IMAGE, "options": names, "labels": [int(name in found) for name in names]}


# (task, row, question, answer that a demonstration shows)
REFERENCE = {
    "medqa": (
        {**NO_IMAGE, "context": None, "question": QUESTION, "options": OPTIONS, "answer": "C"},
        "A {x} man <b>, 70%?\n Next\nOptions:\nA: Aspirin {a}.\nB: Heparin..\nC: Ünï, code.\nD: D%.\nE: E e.\n"
        "What is the correct answer?",
        "The answer is C.",
    ),
    "medmcqa": (
        {**NO_IMAGE, "context": None, "question": QUESTION, "options": OPTIONS[:4], "answer": "B"},
        "A {x} man <b>, 70%?\n Next\na: Aspirin {a}.\nb: Heparin..\nc: Ünï, code.\nd: D%.\nWhat is the correct answer?",
        "The answer is b: Heparin...",
    ),
    "mmlu": (
        {**NO_IMAGE, "context": None, "question": QUESTION, "options": OPTIONS[:4], "answer": "D"},
        "A {x} man <b>, 70%?\n Next\nA. Aspirin {a}.\nB. Heparin..\nC. Ünï, code.\nD. D%.\nAnswer:",
        "The answer is D. D%..",
    ),
    "pubmedqa": (
        {
            **NO_IMAGE,
            "context": "Some {abstract}.",
            "question": QUESTION,
            "options": ["yes", "no", "maybe"],
            "answer": "C",
        },
        "Answer the question with yes, no or maybe. Some {abstract}. A {x} man <b>, 70%?\n Next",
        "maybe",
    ),
    "mednli": (
        {
            **NO_IMAGE,
            "context": "S1 {x}.",
            "question": "S2.",
            "options": ["entailment", "contradiction", "neutral"],
            "answer": "C",
        },
        "Sentence 1: S1 {x}.\nSentence 2: S2.\nDetermine the logical relationship between these two sentences. Does "
        "the second sentence logically follow from the first (entailment), contradicts the first (contradiction), or "
        "if there is no clear logical relationship between them (neutral)?",
        "The logical relationship is neutral.",
    ),
    "vqa_rad": ({**ONE_IMAGE, "question": QUESTION, "answer": "yes"}, f"{CLOSED}<img> {QUESTION}", "yes"),
    "path_vqa": ({**ONE_IMAGE, "question": QUESTION, "answer": "no"}, f"{CLOSED}<img> {QUESTION}", "no"),
    "slake": ({**ONE_IMAGE, "question": QUESTION, "answer": "Yes"}, f"<img> {QUESTION}", "Yes"),
    "diff_vqa": ({**TWO_IMAGES, "question": QUESTION, "answer": "yes"}, f"{CLOSED}<img><img> {QUESTION}", "yes"),
    "octmnist": (
        {
            **ONE_IMAGE,
            "details": None,
            "options": ["choroidal neovascularization", "normal, benign", "{0}"],
            "label": 1,
        },
        "<img> Options:\n1: choroidal neovascularization \n 2: normal, benign \n 3: {0} \n "
        "Which options correspond to the image?",
        "normal, benign",
    ),
    "pad_ufes_20": (
        {**ONE_IMAGE, "details": HISTORY, "options": SKIN, "label": 5},
        "<img> Options:\nBasal Cell Carcinoma (BCC)\nSquamous Cell Carcinoma (SCC)\nActinic Keratosis (ACK)\n"
        "Seborrheic Keratosis (SEK)\nBowen’s disease (BOD)\nMelanoma (MEL)\nNevus (NEV) "
        "What is the most likely diagnosis among the following propositions?",
        "Melanoma (MEL) (MEL)",
    ),
    "pad_ufes_20_head": (
        {**ONE_IMAGE, "details": HISTORY, "options": SKIN, "label": 5},
        f"<img> {HISTORY} Which of the following is the most likely diagnosis of the patient's skin lesion? "
        "{options}",
        "Melanoma (MEL) (MEL)",
    ),
    "vindr_mammo": (
        {**ONE_IMAGE, "details": None, "options": list("12345"), "label": 3},
        "<img> What is the BI-RADS level in this mammography (from 1 to 5)?",
        "BI-RADS 4",
    ),
    "cbis_ddsm_mass": (
        {**ONE_IMAGE, "details": None, "options": PATHOLOGY, "label": 2},
        "<img> Is the mass benign, malignant or benign without callback?",
        "benign_without_callback",
    ),
    "cbis_ddsm_calcification": (
        {**ONE_IMAGE, "details": None, "options": PATHOLOGY, "label": 1},
        "<img> Is the calcification benign, malignant or benign without callback?",
        "malignant",
    ),
    "mimic_cxr_classification": (
        findings(FIVE_FINDINGS, {"Atelectasis", "Edema"}),
        "<img> List the conditions that can be seen in this picture.",
        "Atelectasis, Edema",
    ),
    "chestxray14": (
        findings(CHEST, {"Emphysema", "Infiltration", "Pleural_Thickening"}),
        "<img> Options:\nAtelectasis \n Cardiomegaly \n Effusion \n Infiltration \n Mass \n Nodule \n Pneumonia \n "
        "Pneumothorax \n Consolidation \n Edema \n Emphysema \n Fibrosis \n Pleural_Thickening \n Hernia \n "
        "List the options that can be seen in this picture.",
        "Emphysema,Infiltration,Pleural_Thickening",
    ),
}
WITH_IMAGES = [name for name, (row, _, _) in REFERENCE.items() if row["image_files"]]

INDICATION = "\n ___ {year} old <b> man\n with  cough. \n "
STUDY = {**TWO_IMAGES, "context": None, "indication": INDICATION, "report": "Clear.\n \n {No} fluid."}
NOTE = {**NO_IMAGE, "context": "the {heart} is <img> large.", "indication": None, "report": "large heart."}
ASKED = "Can you provide a radiology report for this medical image? <img> <img> "
# (row, question); there are no demonstrations
REPORTS = {
    "mimic_cxr_report": (STUDY, ASKED),
    "mimic_cxr_report_indication": (STUDY, f"{INDICATION} {ASKED}"),
    "mimic_cxr_report_paper": (STUDY, "<img> <img> Please caption this scan with findings and impression."),
    "mimic_iii_summary": (NOTE, "the {heart} is <img> large.\nSummarize the findings."),
    "mimic_iii_summary_head": (NOTE, "the {heart} is <img> large.\nSummarize the findings."),
    "ct_rate_report": (
        {**ONE_IMAGE, "context": None, "indication": None, "report": "Clear."},
        "Can you provide a radiology report for this set of CT scans? <img>",
    ),
}


def settings(name, family="default"):
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    return families.get(family, families["default"])


@rows("name", REFERENCE)
def test_prompt_is_the_references(name):
    row, question, answer = REFERENCE[name]
    assert "<img>".join(question_parts(row, settings(name))) == question
    assert example_answer(row, settings(name)) == answer


@rows("name", REFERENCE)
def test_simple_models_that_place_images_by_a_mark(name):
    row, question, _ = REFERENCE[name]
    for family in ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo"):
        assert prompt(row, settings(name, family)) == question.replace("<img>", "<image>")


@rows("name", REFERENCE)
def test_simple_models_that_show_images_first(name):
    row, question, _ = REFERENCE[name]
    assert prompt(row, settings(name, "medtasks_tiny")) == question.replace("<img> ", "").replace("<img>", "")


@rows("name", REPORTS)
def test_prompts_for_reports_are_the_references(name):
    row, question = REPORTS[name]
    assert "<img>".join(question_parts(row, settings(name))) == question
    assert target(row) == row["report"]
    if row["image_files"]:
        for family in ("llava", "llava_hf", "llava_onevision", "radfm", "med_flamingo"):
            assert prompt(row, settings(name, family)) == question.replace("<img>", "<image>")
        assert prompt(row, settings(name)) == question.replace("<img> ", "").replace("<img>", "")
    else:
        assert prompt(row, settings(name)) == question


def test_a_study_without_indication_keeps_the_blank():
    row = {**STUDY, "indication": ""}
    assert prompt(row, settings("mimic_cxr_report_indication")).startswith(" Can you provide")


@rows("name", [*WITH_IMAGES, *(name for name in REPORTS if REPORTS[name][0]["image_files"])])
def test_every_family_is_asked_the_same(name):
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    assert {family: own["template"] for family, own in families.items()} == dict.fromkeys(
        families, families["default"]["template"]
    )


@rows("mnist", tiny_multimedeval.MNIST)
def test_all_medmnist_sets_are_asked_alike(mnist):
    assert (
        task_config(f"multimedeval_{mnist}")["lmms_eval_specific_kwargs"]
        == task_config("multimedeval_octmnist")["lmms_eval_specific_kwargs"]
    )


@rows("answer", ["yes", "no"])
@rows("name", ["vqa_rad", "path_vqa", "slake", "diff_vqa"])
def test_only_lower_case_yes_and_no_are_announced(name, answer):
    row = {**ONE_IMAGE, "question": "Is it?"}
    assert prompt({**row, "answer": answer}, settings(name)) == f"{CLOSED}Is it?"
    for other in (answer.title(), answer.upper(), f"{answer} ", "not seen", ""):
        assert prompt({**row, "answer": other}, settings(name)) == "Is it?"


def test_study_without_images():
    row = {**NO_IMAGE, "question": "Is it?", "answer": "CT"}
    assert prompt(row, settings("diff_vqa")) == " Is it?"  # as the reference: no tag, one blank


def test_no_finding():
    assert example_answer(findings(FIVE_FINDINGS, ()), settings("mimic_cxr_classification")) == ""
    assert example_answer(findings(CHEST, ()), settings("chestxray14")) == "No Finding"


@rows("lost", [None, ""])
def test_absent_details_leave_their_place_empty(lost):
    row = {**ONE_IMAGE, "details": lost, "options": SKIN, "label": 0}
    assert prompt(row, settings("pad_ufes_20_head")).startswith(" Which of the following")


@rows("text", ["<img>", "<img> {images} {question}", "{", "}", "{0}", "<image>"])
def test_what_a_question_holds_is_text(text):
    row = {**ONE_IMAGE, "question": text, "answer": "x"}
    assert question_parts(row, settings("vqa_rad")) == ["", f" {text}"]
    assert prompt(row, settings("vqa_rad")) == text


@rows(
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
    from medtasks.data.document_store import load_documents

    expected = {
        "multimedeval_vqa_rad": [CLOSED, "IMAGE", " What is 0?"],
        "multimedeval_diff_vqa": [CLOSED, "IMAGE", "IMAGE", " What is 0?"],
        "multimedeval_vindr_mammo": ["IMAGE", " What is the BI-RADS level in this mammography (from 1 to 5)?"],
        "multimedeval_mednli": [prompt(load_documents("multimedeval_mednli")[0], settings("mednli"))],
    }
    for name, content in expected.items():
        # A chat model that shares its name with a simple one gets that one's settings.
        for family in ("default", "llava_hf"):
            doc = load_documents(name)[0]
            [turn] = messages(doc, settings(name.removeprefix("multimedeval_"), family))
            assert turn["role"] == "user"
            assert texts(turn) == content
            widths = [part["url"].width for part in turn["content"] if part["type"] == "image"]
            assert widths == [10, 11][: len(doc["image_files"])]


def test_template_without_a_place_shows_images_first(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    from medtasks.data.document_store import load_documents

    doc = load_documents("multimedeval_diff_vqa")[1]
    [turn] = messages(doc, {"template": "Q: {{ question }}"})
    assert texts(turn) == ["IMAGE", "IMAGE", "Q: What is 1?"]
    assert prompt(doc, {"template": "Q: {{ question }}", "image_mark": "<image>"}) == "Q: What is 1?"


def test_wrong_number_of_places():
    row = {**TWO_IMAGES, "doc_id": "q7", "question": "?", "answer": "x"}
    with pytest.raises(
        SourceError, match=r"sample q7 has 2 images and its prompt 1 places for them; write \{\{ images \}\}"
    ):
        prompt(row, {"template": "{{ image }} {{ question }}"})
    with pytest.raises(SourceError, match="has 0 images and its prompt 1 places"):
        prompt({**row, **NO_IMAGE}, {"template": "{{ image }} {{ question }}"})


@rows("broken", ["{qestion}", "{{ qestion }}", "{{ question"])
def test_broken_template(broken):
    row = {**NO_IMAGE, "question": "Where?", "answer": "x"}
    with pytest.raises(
        MedTasksError, match=r"cannot be filled in .* its fields are question, context, details, indication, "
    ):
        prompt(row, {"template": broken})
    with pytest.raises(MedTasksError, match=r"cannot be filled in .* its fields are text, lower_text, letter, lower"):
        example_answer(row, {"example_answer": broken})


@rows("empty", [None, {}])
def test_no_template(empty):
    with pytest.raises(MedTasksError, match="have no template for this model; add one"):
        prompt({**NO_IMAGE, "question": "Where?", "answer": "x"}, empty)
