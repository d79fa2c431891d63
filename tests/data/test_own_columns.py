"""Documents that a user wrote: what is missing, what is wrong, and what follows."""

import datasets
import pytest

from medtasks.errors import MedTasksError
from medtasks.hooks import choice
from medtasks.prompts import images
from medtasks.prompts.template import lettered_prompt
from medtasks.tasks.own_documents import check, complete_documents, following

from ..tables import each_row

CHOICE = {
    "process_results": "medtasks.hooks.choice.process_results",
    "doc_to_text": "medtasks.hooks.prompts.lettered",
    "doc_to_visual": "medtasks.hooks.images.images",
}
GOOD = {
    "question": ["a", "b"],
    "options": [["x", "y"], ["x", "y"]],
    "answer": ["A", "B"],
    "image_file": ["1", "2"],
}


FAMILY = "the family 'single choice'"
PROMPT = f"the prompt of {FAMILY}"


def hook(name, **more):
    return {"process_results": f"medtasks.hooks.{name}.process_results", **more}


def run(config, columns):
    places = [f"row {row}" for row in (1, 2)]
    check(
        config,
        columns,
        list(columns),
        "rows.jsonl",
        places[: len(next(iter(columns.values())))],
    )


def without(name):
    return {key: value for key, value in GOOD.items() if key != name}


def test_nothing_is_wrong():
    run(CHOICE, GOOD)
    run({**CHOICE, "doc_to_visual": None}, without("image_file"))
    run(CHOICE, {**without("image_file"), "image_files": [["1"], []]})
    run({"process_results": "mine.process_results"}, {"anything": [1]})


@each_row(
    "column, who",
    [("question", PROMPT), ("options", FAMILY), ("answer", FAMILY), ("image_file", PROMPT)],
)
def test_a_missing_column(column, who):
    functions = {"doc_to_text": lettered_prompt, "doc_to_visual": images.images}
    for config in (CHOICE, {"process_results": choice.process_results, **functions}):
        with pytest.raises(
            MedTasksError, match=f"rows.jsonl has no column '{column}', which {who} needs"
        ):
            run(config, without(column))


@each_row(
    "family, columns, complaint",
    [
        (
            "choice",
            {"answer": ["A", "C"]},
            r"row 2: 'answer' is 'C', .*'single choice' needs the letter of one of",
        ),
        ("choice", {"answer": ["A", None]}, "row 2: 'answer' is empty"),
        (
            "choice",
            {"answer": ["A", "AB" * 40]},
            r"row 2: 'answer' is 'ABABABABABABABABABABABA\.\.\., and",
        ),
        (
            "choice",
            {"options": [["x", "y"], "x, y"]},
            "row 2: 'options' is 'x, y', .* a list of at least two texts",
        ),
        (
            "choice",
            {"options": [["x"], ["x", "y"]]},
            r"row 1: 'options' is a list of 1 \(\['x'\]\), and",
        ),
        ("choice", {"doc_id": ["7", "7"]}, "row 1 and row 2 have the same doc_id"),
        (
            "pairs",
            {"pair_id": [1, 1], "position": [1, 3]},
            "row 2: 'position' is 3, .* needs 1 or 2",
        ),
        (
            "pairs",
            {"pair_id": [1, 1], "position": [1, 1]},
            "row 1 and row 2 have the same pair_id and position",
        ),
        ("pairs", {"pair_id": [None, 1], "position": [1, 1]}, "row 1: 'pair_id' is empty"),
        ("classification", {"label": [0, 2]}, "row 2: 'label' is 2, .* counted from 0"),
        ("multilabel", {"labels": [[0, 1], [1]]}, r"row 2: 'labels' is a list of 1 \(\[1\]\)"),
        (
            "multilabel",
            {"labels": [[0, 1], [0, 2]]},
            r"row 2: 'labels' is a list of 2 .* entry 2 is 2, and",
        ),
        (
            "multi_answer",
            {"answers": [["A"], ["A", "C"]]},
            "row 2: 'answers' is a list of 2 .* entry 2 is 'C', and",
        ),
        (
            "open_questions",
            {"answer": ["text", 3]},
            "row 2: 'answer' is 3, and the family 'open q.*' needs a text",
        ),
        (
            "closed_questions",
            {"answer": ["Yes", "maybe"]},
            "row 2: 'answer' is 'maybe', .*'yes/no' needs yes or no",
        ),
        ("reports", {"report": ["text", None]}, "row 2: 'report' is empty"),
    ],
)
def test_the_first_wrong_row(family, columns, complaint):
    with pytest.raises(MedTasksError, match=complaint):
        run(hook(family), {**GOOD, **columns})


def test_a_template_says_what_a_prompt_needs():
    templates = {
        "default": "{{ images }}{{ hint }}{{ question }}",
        "llava": "{{ question }} {{ details }}",
    }
    settings = {name: {"template": text} for name, text in templates.items()}
    config = hook(
        "reports",
        doc_to_text="medtasks.hooks.prompts.question",
        lmms_eval_specific_kwargs=settings,
    )
    rows = {"report": ["r"], "question": ["q"], "hint": [None]}

    with pytest.raises(
        MedTasksError,
        match="no column 'details', which the prompt of the family 'reports' needs",
    ):
        run(config, rows)
    run(config, {**rows, "details": [None]})


def test_a_complaint_does_not_show_the_text_of_a_patient():
    rows = {
        **GOOD,
        "answer": ["John Doe", "A"],
        "dataset": ["multimedeval_mimic_cxr_report"] * 2,
    }

    with pytest.raises(MedTasksError, match="row 1: 'answer' is something else, and") as told:
        run(CHOICE, rows)

    assert "John" not in str(told.value)


def follow(family, columns):
    return following(hook(family)["process_results"], columns, list(columns), 2)


def test_what_follows():
    assert follow("choice", GOOD) == {"doc_id": ["0", "1"], "image_id": ["1", "2"]}
    assert follow("choice", {**GOOD, "doc_id": ["a", "b"], "image_id": [None, "x"]}) == {}
    assert follow("choice", {"doc_id": [17, 18]}) == {"doc_id": ["17", "18"]}
    assert follow("reports", {"image_files": [["a", "b"], []], "doc_id": ["a", "b"]}) == {
        "image_id": ["a b", None]
    }
    pairs = {**GOOD, "pair_id": [3, 3], "position": [1, 2]}
    follows = {"doc_id": ["3/1", "3/2"], "image_id": ["1", "2"], "categories": [[], []]}
    assert follow("pairs", pairs) == follows


def test_yes_and_no_become_a_closed_question():
    found = follow(
        "closed_questions",
        {"question": ["a", "b"], "answer": ["Yes", "no "], "doc_id": ["1", "2"]},
    )
    assert found == {
        "source": [None, None],
        "hallucination": [None, None],
        "kind": ["binary", "binary"],
        "choices": ["", ""],
        "options": [["Yes", "No"], ["Yes", "No"]],
        "gold": ["Yes", "No"],
        "answer": ["A", "B"],
    }
    full = {
        "doc_id": ["1"],
        "kind": ["binary"],
        "source": ["slake"],
        "hallucination": ["anatomy"],
    }
    assert follow("closed_questions", full) == {}


def test_columns_of_other_families_are_left_out():
    others = {"label": [0, 1], "pair_id": ["p", "q"], "report": ["r", "s"]}
    table = datasets.Dataset.from_dict({**GOOD, **others, "remark": ["a", "b"]})
    assert {"label", "pair_id", "report"}.isdisjoint(
        complete_documents(table, CHOICE, apart=True).column_names
    )
    assert {*GOOD, "remark"} <= {*complete_documents(table, CHOICE, apart=True).column_names}
    assert {"label", "pair_id", "report"} <= {*complete_documents(table, CHOICE).column_names}
