"""GMAI-MMBench from prepared data to results."""

import math
import random

import pytest

from medtasks.data.catalogue import CATALOGUE
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.families.choice import MULTI_SELECT
from medtasks.families.submission import SUBMISSION
from medtasks.home import home
from medtasks.hooks import submission
from medtasks.prompts.template import prompt, target
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolve_names

from . import tiny_gmai
from .task_families import score_of, values_of

DOC = {
    "doc_id": "7",
    "dataset": "gmai_mmbench_val",
    "image_id": "abc",
    "image_files": ["images/a.png"],
    "hint": None,
    "question": "Observe the image. What is the most likely abnormality shown in the picture?",
    "options": ["osteoporotic bone", "healthy bone"],
    "answer": "B",
    "granularity": "Mask Level",
}


@pytest.fixture
def val(tmp_path):
    tiny_gmai.write(tmp_path / "GMAI-MMBench_VAL.tsv", tiny_gmai.rows(60))
    prepare(CATALOGUE["gmai_mmbench_val"].name, Options(tmp_path, allow_changed=True))
    return load_documents("gmai_mmbench_val")


def settings(task, family="default"):
    return resolve_names(task_config(task)["lmms_eval_specific_kwargs"])[family]


def test_prompts_to_the_letter():
    asked = "Question: Observe the image. What is the most likely abnormality shown in the picture?\nOptions:\n"
    options = "A. osteoporotic bone\nB. healthy bone\n"
    text = f"{asked}{options}Please select the correct answer from the options above. \n"
    assert prompt(DOC, settings("gmai_mmbench_val")) == text
    assert prompt(DOC, settings("gmai_mmbench_val", "llava")) == "<image>" + text
    assert (
        prompt({**DOC, "hint": "Look."}, settings("gmai_mmbench_val")) == "Hint: Look.\n" + text
    )
    ending = "Please select the correct answer from the options above.\n<image>"
    paper = f"{asked}{options.replace('. ', '.')}{ending}"
    assert prompt(DOC, settings("gmai_mmbench_val_paper", "llava")) == paper
    several = {**DOC, "answers": ["A", "B"]}
    assert prompt(several, settings("gmai_mmbench_mcls")) == (
        f"{asked}{options}Please select all correct answers from the options above. Note that "
        "there is more than one correct answer.\nPlease output the answer options directly, separated by commas. For "
        "example: A,B\n"
    )
    assert (target(DOC), target(several)) == ("B", "A,B")
    braces = {**DOC, "question": "{options} {0} <img>?", "options": ["{x}", "}"]}
    assert "Question: {options} {0} <img>?\nOptions:\nA. {x}\nB. }\n" in prompt(
        braces, settings("gmai_mmbench_val")
    )


def test_several_answers_are_scored_by_case():
    document = {**DOC, "options": list("wxyz"), "answers": ["A", "C"]}
    documents = [{**document, "doc_id": str(n), "image_id": str(n // 2)} for n in range(4)]
    replies = ["A,C", "A, B", "none of these", "A,B,C,D"]
    scores = [
        score_of(MULTI_SELECT, doc, reply)
        for doc, reply in zip(documents, replies, strict=True)
    ]
    values = values_of(MULTI_SELECT, scores)
    assert values["mcls_accuracy"] == (1 + 0.5 + 0 + 0.5) / 4
    assert values["mcls_recall"] == (1 + 0.5 + 0 + 1) / 4
    assert values["invalid_rate"] == 0.25
    assert len({score["cluster_id"] for score in scores}) == 2


def test_submission_holds_every_reply_and_no_formula(val):
    from openpyxl import load_workbook

    replies = ["B", "=1+1", "\x01 control", "y" * 40_000, *["A"] * (len(val) - 4)]
    scores = [
        score_of(SUBMISSION, {**doc, "answer": None}, reply)
        for doc, reply in zip(val, replies, strict=True)
    ]
    random.Random(1).shuffle(scores)
    (count_rows,) = (
        one["aggregation"]
        for one in submission.METRIC_LIST
        if one["metric"] == "submission_rows"
    )
    assert count_rows(scores) == len(val)
    (path,) = (home() / "submissions" / "gmai_mmbench_val").glob("*.xlsx")
    header, *rows = load_workbook(path).active.iter_rows(values_only=True)
    assert [row[0] for row in rows] == [doc["doc_id"] for doc in val]
    predictions = [row[header.index("prediction")] for row in rows]
    assert predictions[:3] == ["B", "'=1+1", "  control"]
    assert len(predictions[3]) == 32_767
    assert rows[0][header.index("option")] == "B"
    assert header[:3] == ("index", "question", "A")


def test_submission_that_cannot_be_written_is_nan(val):
    (home() / "submissions").write_text("")
    values = values_of(SUBMISSION, [score_of(SUBMISSION, doc, "A") for doc in val])
    assert math.isnan(values["submission_rows"])
    assert values["invalid_rate"] < 1
