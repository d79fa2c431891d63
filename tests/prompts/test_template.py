"""Prompts: the references' texts letter by letter, images at their place, examples, and what a user may get wrong.

In the JSON file, ``reference`` and ``reports`` were produced by the reference's own ``format_question`` (at d9ac283 and
v0.1.0).
"""

from string import Template

import pytest

from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents
from medtasks.errors import DatasetNotPrepared, MedTasksError, SourceError
from medtasks.prompts import few_shot
from medtasks.prompts.template import (
    closed_option_texts,
    closed_prompt,
    closed_target,
    example_answer,
    lettered_prompt,
    letters,
    messages,
    option_texts,
    prompt,
    question_parts,
    target,
)
from medtasks.tasks.task_files import task_config

from .. import tiny_multimedeval
from ..tables import each_row, tables_of
from ..tiny_multimedeval import FIVE_FINDINGS, SKIN

TABLES = tables_of(__file__)
REFERENCE = {
    name: (row, question, answer) for name, row, question, answer in TABLES["reference"]
}
REPORTS = {
    name: (row, question) for name, row, question in TABLES["reports"]
}  # without demonstrations
CHEST = REFERENCE["chestxray14"][0]["options"]
STUDY = REPORTS["mimic_cxr_report"][0]
NO_IMAGE, ONE_IMAGE, TWO_IMAGES = (
    {"image_files": files} for files in ([], ["a.png"], ["a.png", "b.png"])
)
CLOSED = "Answer the following question with yes or no. "


def settings(name, family="default"):
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    return families.get(family, families["default"])


MARKING = (
    "llava",
    "llava_hf",
    "llava_onevision",
    "radfm",
    "med_flamingo",
)  # families that place images by a mark


def assert_asked(name, row, question):
    """Check a prompt for every family, whose template is the same."""
    families = task_config(f"multimedeval_{name}")["lmms_eval_specific_kwargs"]
    assert {own["template"] for own in families.values()} == {families["default"]["template"]}
    assert "<img>".join(question_parts(row, settings(name))) == question
    marked, plain = (
        question.replace("<img>", "<image>"),
        question.replace("<img> ", "").replace("<img>", ""),
    )
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
        assert (
            prompt({**ONE_IMAGE, "question": text, "answer": "x"}, settings("vqa_rad")) == text
        )
    question = {**NO_IMAGE, "question": "Is it?", "answer": "CT"}
    assert (
        prompt(question, settings("diff_vqa")) == " Is it?"
    )  # as the reference: no tag, one blank
    study = {**STUDY, "indication": ""}
    assert prompt(study, settings("mimic_cxr_report_indication")).startswith(" Can you provide")
    for lost in (None, ""):
        row = {**ONE_IMAGE, "details": lost, "options": SKIN, "label": 0}
        assert prompt(row, settings("pad_ufes_20_head")).startswith(" Which of the following")
    for names, name, text in (
        (FIVE_FINDINGS, "mimic_cxr_classification", ""),
        (CHEST, "chestxray14", "No Finding"),
    ):
        row = {**ONE_IMAGE, "options": names, "labels": [0] * len(names)}
        assert example_answer(row, settings(name)) == text


def texts(message):
    return [part.get("text", "IMAGE") for part in message["content"]]


def test_messages_have_images_at_their_place(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    expected = {
        "vqa_rad": [CLOSED, "IMAGE", " What is 0?"],
        "diff_vqa": [CLOSED, "IMAGE", "IMAGE", " What is 0?"],
        "vindr_mammo": [
            "IMAGE",
            " What is the BI-RADS level in this mammography (from 1 to 5)?",
        ],
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
    [turn] = messages(
        doc, {"template": "Q: {{ question }}"}
    )  # which has no place for images: they come first
    assert texts(turn) == ["IMAGE", "IMAGE", "Q: What is 1?"]
    assert (
        prompt(doc, {"template": "Q: {{ question }}", "image_mark": "<image>"})
        == "Q: What is 1?"
    )


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
    with pytest.raises(
        MedTasksError,
        match=r"cannot be filled in .* its fields are question, context, details, indic",
    ):
        prompt(row, {"template": broken})
    with pytest.raises(
        MedTasksError,
        match=r"cannot be filled in .* its fields are text, lower_text, letter, lower",
    ):
        example_answer(row, {"example_answer": broken})
    with pytest.raises(MedTasksError, match="have no template for this model; add one"):
        prompt(row, None)


@pytest.fixture
def home(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    return multimedeval_home


def documents(name):
    return load_documents(f"multimedeval_{name}")


def plain(message):
    parts = (
        part["text"] if "text" in part else f"[{part['url'].width}]"
        for part in message["content"]
    )
    return message["role"], "".join(parts)


def test_marks_of_a_simple_model(home):
    doc = documents("vqa_rad")[1]
    closed = "Answer the following question with yes or no. "
    assert few_shot.prompt(doc, settings("vqa_rad", "radfm")) == (
        "<image> What is 4?\nCT\n\n"
        f"{closed}<image> What is 5?\nyes\n\n"
        "<image> What is 6?\nleft lung\n\n"
        f"{closed}<image> What is 7?\nno\n\n"
        "<image> What is 8?\nan {MRI}\n\n"
        "<image> What is 1?"
    )
    assert "<image>" not in few_shot.prompt(doc, settings("vqa_rad"))
    entailed = documents("mednli")[2]
    *blocks, question = few_shot.prompt(entailed, settings("mednli")).split("\n\n")
    answers = ["contradiction", "neutral", "entailment", "contradiction", "neutral"]
    assert [block.rpartition(" ")[2] for block in blocks] == [
        f"{answer}." for answer in answers
    ]
    assert question == prompt(entailed, settings("mednli"))
    examples = f"<image> What is 4? CT<|endofchunk|>{closed}<image> What is 5? yes<|endofchunk|><image> What is 6?"
    assert few_shot.prompt(doc, settings("vqa_rad", "med_flamingo")).startswith(examples)


@each_row("name, per_row", [("diff_vqa", 2), ("octmnist", 1), ("medqa", 0)])
def test_images_are_as_many_as_places_and_in_their_order(home, name, per_row):
    doc = documents(name)[3]
    text, shown = (
        few_shot.prompt(doc, settings(name, "radfm")),
        few_shot.images(doc, settings(name, "radfm")),
    )
    assert text.count("<image>") == len(shown)
    widths = [
        10 + 2 * number + position
        for number in (4, 5, 6, 7, 8, 3)
        for position in range(per_row)
    ]
    assert [image.width for image in shown] == widths


def test_turns_of_a_chat_model(home, monkeypatch):
    doc = documents("diff_vqa")[0]
    closed = "Answer the following question with yes or no. "
    assert [plain(message) for message in few_shot.messages(doc, settings("diff_vqa"))] == [
        ("user", "[18][19] What is 4?"),
        ("assistant", "CT"),
        ("user", f"{closed}[20][21] What is 5?"),
        ("assistant", "yes"),
        ("user", "[22][23] What is 6?"),
        ("assistant", "left lung"),
        ("user", f"{closed}[24][25] What is 7?"),
        ("assistant", "no"),
        ("user", "[26][27] What is 8?"),
        ("assistant", "an {MRI}"),
        ("user", f"{closed}[10][11] What is 0?"),
    ]
    monkeypatch.setattr(few_shot, "load_documents", None)  # demonstrations are read once
    few_shot.images(doc)[0].thumbnail((2, 2))  # what some models do to the images they get
    assert [image.width for image in few_shot.images(doc)] == [*range(18, 28), 10, 11]


def test_dataset_without_demonstrations(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("octmnist", demonstrations=False)
    doc, folder = documents("octmnist")[0], prepared_folder("multimedeval_octmnist")
    again = "prepare it again from a source with its training split: medtasks data prepare multimedeval_octmnist --so"
    expected = rf"dataset 'multimedeval_octmnist' in \S+ has no demonstrations for few-shot prompts; {again}"
    for hook in (few_shot.prompt, few_shot.images, few_shot.messages):
        with pytest.raises(DatasetNotPrepared, match=expected):
            hook(doc, settings("octmnist"))
    why = "no few-shot demonstrations: the source has no training split"
    Manifest.read(folder).model_copy(update={"left_out": ("row 3: torn", why)}).write(folder)
    with pytest.raises(
        DatasetNotPrepared, match=rf"few-shot prompts \({why}\); prepare it again"
    ):
        few_shot.prompt(doc, settings("octmnist"))
    assert prompt(doc, settings("octmnist")).startswith("Options:")
    tiny_multimedeval.prepare("octmnist")
    example = few_shot.demonstrations("multimedeval_octmnist")[2]
    (prepared_folder("multimedeval_octmnist") / example["image_files"][0]).unlink()
    with pytest.raises(
        SourceError,
        match=r"of sample 6 is missing; run 'medtasks data prepare multimedeval_octmnist'",
    ):
        few_shot.images(documents("octmnist")[0])


DOC = {"question": "Which {side}?", "options": ["70% left", "Right, {maybe} "], "answer": "B"}

PUBLISHED = tables_of(__file__)[
    "published"
]  # "$q $a": of "mediconfusion_ps" question and first option as one text


@each_row("task, family, published", PUBLISHED)
def test_prompt_is_the_published_one(task, family, published):
    """Of Med-Flamingo, three of four modes lack the first sign of the second separator: a slip of the reference."""
    config = task_config(task)
    settings = config["lmms_eval_specific_kwargs"]
    ours = lettered_prompt(DOC, settings.get(family, settings["default"]))
    if task == "mediconfusion_ps":
        ours += config["target_delimiter"] + option_texts(DOC)[0]
    assert ours == Template(published).substitute(
        q=DOC["question"], a=DOC["options"][0], b=DOC["options"][1]
    )


def test_default_lists_all_options():
    doc = {"question": "Where?", "options": ["Here", "There", "Elsewhere"], "answer": "C"}
    expected = "Where?\nA: Here\nB: There\nC: Elsewhere\n"
    expected += "Answer with the option's letter from the given choices directly."
    assert (
        lettered_prompt(doc)
        == lettered_prompt(doc, {})
        == lettered_prompt(doc, None)
        == expected
    )
    assert (
        lettered_prompt(doc, {"template": "\t{ x } {{ option_c }}, {{ option_a }} \n "})
        == "\t{ x } Elsewhere, Here \n "
    )
    assert (target(doc), letters(doc), option_texts(doc)) == (
        "C",
        ["A", "B", "C"],
        ["Here", "There", "Elsewhere"],
    )


# ---- MedHEval's closed questions ----


def document(**columns):
    return {
        "question": "Is there a mass?",
        "kind": "binary",
        "choices": "",
        "options": ["Yes", "No"],
        **columns,
    }


def organs(**columns):
    choices = {
        "choices": "A. Liver, B. Heart, C. Lung",
        "options": ["Liver", "Heart", "Lung"],
        "gold": "Heart",
    }
    return document(
        kind="multi-choice", question="Which organ is it?", **{**choices, **columns}
    )


def closed_settings(family):
    kwargs = task_config("medheval_visual_mm")["lmms_eval_specific_kwargs"]
    assert list(kwargs) == ["default", "llava_med", "radfm", "med_flamingo"]
    return kwargs[family]


SELECT = (
    "Which organ is it? Please select from the following choices: A. Liver, B. Heart, C. Lung"
)
OF_RADFM = "Which organ is it? A. Liver, B. Heart, C. Lung. Please select one from the choices. Your answer:"


@each_row(
    "family, yes_no, options",
    [
        ("default", "Is there a mass? Please answer Yes or No.", SELECT),
        ("llava_med", "Is there a mass? Please answer Yes or No.", SELECT),
        ("radfm", "Is there a mass?Please answer Yes or No. Your answer:", OF_RADFM),
    ],
)
def test_closed_prompts(family, yes_no, options):
    assert closed_prompt(document(), closed_settings(family)) == yes_no
    assert closed_prompt(organs(), closed_settings(family)) == options
    assert "{x}?" in closed_prompt(document(question="{x}?"), closed_settings(family))


def test_solved_examples_of_med_flamingo_options_of_likelihoods_and_a_template_that_is_missing():
    for doc, question in (
        (document(), "Is there a mass? Please answer Yes or No."),
        (organs(), SELECT),
    ):
        text = closed_prompt(doc, closed_settings("med_flamingo"))
        assert text.endswith(
            f" Please answer Yes or No. Answer: no. <image>Question: {question} Answer:"
        )
        # As many places as there are images, or the model refuses the prompt.
        assert (text.count("<image>"), text.count("<|endofchunk|>")) == (1, 2)
    with pytest.raises(MedTasksError, match="no yes_no_template"):
        closed_prompt(document(), {"options_template": "{{ question }}"})
    assert closed_option_texts(document()) == ["Yes", "No"]
    assert closed_option_texts(organs()) == ["Liver", "Heart", "Lung"]
    assert closed_option_texts(organs(options=[], choices="left or right")) == ["left or right"]
    assert closed_target(organs()) == "Heart"
