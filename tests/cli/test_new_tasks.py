"""``medtasks new`` on files that people have, and short task files in which the family supplies the other keys."""

import csv
import io
import json

import openpyxl
import pytest
import yaml
from PIL import Image

from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import including, task_config, task_file
from medtasks.tasks.task_index import read_config

from ..tables import each_row

IMAGES = [f"scans/{number}.png" for number in (1, 2, 3)]
GERMAN = [
    {
        "Nr": "11",
        "Frage": "Wo ist der Erguss?",
        "A": "links",
        "B": "rechts",
        "C": "",
        "Antwort": "B",
        "Alter": "33",
    },
    {
        "Nr": "12",
        "Frage": "Welcher Lappen?",
        "A": "oben",
        "B": "mitte",
        "C": "unten",
        "Antwort": "C",
        "Alter": "71",
    },
    {
        "Nr": "13",
        "Frage": "Was liegt hier?",
        "A": "Clip",
        "B": "Draht",
        "C": "Sonde",
        "Antwort": "A",
        "Alter": "33",
    },
]
YES_NO = [
    {"Fall": "F1", "Frage": "Liegt eine Fraktur vor?", "Antwort": "ja"},
    {"Fall": "F2", "Frage": "Ist ein Erguss zu sehen?", "Antwort": "nein"},
    {"Fall": "F3", "Frage": "Ist das Herz vergrößert?", "Antwort": "nein"},
]
TEXTS = ["aspirin", "heparin", "insulin", "nitrofurantoin"]
MEDQA = [
    {
        "question": f"A patient presents with sign {number}. Which drug helps?",
        "answer": TEXTS[right],
        "options": dict(zip("ABCD", TEXTS, strict=True)),
        "meta_info": "step1",
        "answer_idx": "ABCD"[right],
        "metamap_phrases": ["sign", "drug", "patient"],
    }
    for number, right in enumerate((3, 0))
]
CLASSES = [
    {"options": ["normal", "pneumonia"], "klasse": number % 2, "scan": IMAGES[number]}
    for number in range(3)
]
FINDINGS = [
    {"options": ["a", "b", "c"], "truth": [1, 0, number % 2], "views": IMAGES[:2]}
    for number in range(3)
]
SEVERAL = [
    {"q": "Which?", "choices": ["x", "y", "z"], "right": right} for right in ("A,C", "B", "B;C")
]
PAIRS = [
    {
        "pair_id": "1",
        "position": place,
        "q": "Big?",
        "o": ["yes", "no"],
        "key": key,
        "f": IMAGES[place],
    }
    for place, key in ((1, "A"), (2, "B"))
]
REPORTS = [{"text": "No effusion. The heart is enlarged.", "scan": image} for image in IMAGES]
OPEN = [
    {"id": number, "prompt": "Where is it?", "solution": "in the lung", "site": "a"}
    for number in range(3)
]


def written(folder, name, rows):
    """Write rows as a file of the kind that its name says, with the images that they may name."""
    (folder / "scans").mkdir(exist_ok=True)
    for number, image in enumerate(IMAGES):
        Image.new("RGB", (40, 30), (80 * number, 9, 200)).save(folder / image)
    file = folder / name
    if name.endswith(".xlsx"):
        book = openpyxl.Workbook()
        for row in [list(rows[0]), *(list(row.values()) for row in rows)]:
            book.active.append(row)
        book.save(file)
    elif name.endswith("csv"):
        stream = io.StringIO()
        table = csv.DictWriter(stream, list(rows[0]), delimiter=";")
        table.writeheader()
        table.writerows(rows)
        file.write_text(stream.getvalue(), encoding="cp1252")
    else:
        file.write_text("\n".join(map(json.dumps, rows)))
    return file


def with_images(rows, column):
    return [{**row, column: image} for row, image in zip(rows, IMAGES, strict=True)]


CASES = [
    (
        "q.csv",
        with_images(GERMAN, "Bild"),
        "single_choice",
        {"answer": "B", "options": ["links", "rechts"]},
    ),
    (
        "q.xlsx",
        with_images(YES_NO, "Aufnahme"),
        "yes_no",
        {"gold": "Yes", "image_file": IMAGES[0]},
    ),
    ("q.jsonl", MEDQA, "single_choice", {"answer": "D", "options": TEXTS}),
    ("q.jsonl", CLASSES, "classification", {"label": 0, "image_file": IMAGES[0]}),
    ("q.jsonl", FINDINGS, "several_findings", {"labels": [1, 0, 0], "image_files": IMAGES[:2]}),
    ("q.jsonl", SEVERAL, "several_answers", {"answers": ["A", "C"], "question": "Which?"}),
    ("q.jsonl", PAIRS, "pairs", {"answer": "A", "image_file": IMAGES[1]}),
    ("q.jsonl", REPORTS, "report", {"report": REPORTS[0]["text"]}),
    ("q.jsonl", OPEN, "open_question", {"answer": "in the lung"}),
]


@each_row("name, rows, family, expected", CASES)
def test_new_finds_family_and_columns(medtasks, tmp_path, name, rows, family, expected):
    file = written(tmp_path, name, rows)

    ran = medtasks("new", "own_new", file)

    assert (ran.code, "Hooks, rules and the first prompt are in order" in ran.out) == (
        0,
        True,
    ), ran.out + ran.err
    text = (tmp_path / "own_new.yaml").read_text()
    assert yaml.safe_load(text)["family"] == family
    assert text in ran.out

    with including([tmp_path]):
        documents = task_documents(task_file("own_new"))
    assert len(documents) == len(rows)
    assert {key: documents[0][key] for key in expected} == expected


def test_what_new_refuses(fails, medtasks, tmp_path):
    file = written(
        tmp_path, "q.jsonl", [{**row, "answer": "none", "reader_answer": "B"} for row in MEDQA]
    )
    fails(
        ["new", "own_new", file],
        "which column is the answer is not clear, of answer_idx and reader_answer",
    )
    fails(["new", "Own", file], "'Own' cannot be a task's name; take small letters")
    fails(["new", "own_new", tmp_path / "no.csv"], f"there is no file {tmp_path / 'no.csv'}")
    numbers = written(tmp_path, "n.csv", [{"a": "1", "b": "2"}])
    fails(["new", "own_new", numbers], "which column is the report is not clear, of")
    assert not (tmp_path / "own_new.yaml").exists()
    assert medtasks("new", "own_new", written(tmp_path, "q.jsonl", MEDQA)).code == 0
    fails(
        ["new", "own_new", file],
        f"{tmp_path / 'own_new.yaml'} exists already; choose another name",
    )


@each_row(
    "answers, complaint",
    [
        (
            ["B", "E", "A"],
            "'Antwort' is an option of A, B and C in 2 of 3 questions, and question 2 is the first",
        ),
        (
            ["B", "", "A"],
            "'Antwort' is an option of A, B and C in 2 of 3 questions, and question 2 is the first",
        ),
        (
            ["1", "2", "1"],
            "'Antwort' can be read as option numbers from 0 or as option numbers from 1",
        ),
    ],
)
def test_a_faulty_answer_does_not_make_an_open_question(fails, tmp_path, answers, complaint):
    rows = [
        {**row, "Antwort": answer, "C": row["C"] or "hinten"}
        for row, answer in zip(GERMAN, answers, strict=True)
    ]
    fails(["new", "own_new", written(tmp_path, "q.csv", rows)], complaint)
    assert not (tmp_path / "own_new.yaml").exists()


def test_a_row_without_options_does_not_make_an_open_question(fails, tmp_path):
    file = written(
        tmp_path, "q.csv", [*GERMAN, {**GERMAN[0], "A": "", "B": "", "Antwort": "links"}]
    )
    fails(
        ["new", "own_new", file],
        "in 3 of 4 questions, and question 4 is the first other one; correct it or leave",
    )


def test_a_task_of_text_alone_says_so(medtasks, tmp_path):
    out = medtasks("new", "own_new", written(tmp_path, "q.jsonl", MEDQA)).out
    assert "note: no column holds images or their paths" in out
    assert "q.jsonl without images, fingerprint of the text" in out


def test_a_column_of_empty_lists_holds_no_images(medtasks, tmp_path):
    rows = [{**row, "marks": []} for row in MEDQA]

    out = medtasks("new", "own_new", written(tmp_path, "q.jsonl", rows)).out

    assert "note: no column holds images or their paths" in out


SHORT = "task: short\nfamily: single_choice\ndata: q.jsonl\nimage: none\n"


@pytest.fixture
def short(tmp_path):
    written(tmp_path, "q.jsonl", MEDQA)
    (tmp_path / "short.yaml").write_text(SHORT)
    return tmp_path / "short.yaml"


def test_the_family_supplies_the_keys_that_are_missing(short):
    supplied = read_config(short)

    assert supplied["process_results"] == "medtasks.hooks.choice.process_results"
    assert supplied["dataset_path"] == str(short.with_name("q.jsonl"))
    assert supplied["doc_to_visual"] == "medtasks.hooks.images.no_images"
    assert supplied["metadata"]["version"] == 1


def test_a_key_in_the_file_counts_before_the_family_s(short):
    supplied = read_config(short)
    template = "lmms_eval_specific_kwargs: {default: {template: MINE}}\n"
    more = "doc_to_text: !function mine.prompt\ndescription: Mine\nmetadata: {version: 7}\n"
    more += "columns: {answer: answer_idx}\n"
    short.write_text(f"{SHORT}{more}{template}")

    own = read_config(short)

    assert own["doc_to_text"] == "mine.prompt"
    assert own["metadata"] == {
        "version": 7,
        "description": "Mine",
        "columns": {"answer": "answer_idx"},
    }
    settings = own["lmms_eval_specific_kwargs"]["default"]
    assert settings == {"template": "MINE", "image_root": str(short.parent)}
    changed = ("doc_to_text", "metadata", "lmms_eval_specific_kwargs")
    assert {key: own[key] for key in own if key not in changed} == {
        key: supplied[key] for key in supplied if key not in changed
    }


def test_a_family_without_a_file_of_keys_is_the_one_whose_hooks_have_this_name(short):
    short.write_text(SHORT.replace("single_choice", "kit_questions"))
    with including([short.parent]):
        task = task_file("short")
        assert (task.family.name, task.rows["robust"].extractor) == (
            "closed and open questions",
            "robust_kit_vqa",
        )
        assert (
            task_config("short")["lmms_eval_specific_kwargs"]["default"]["template"]
            == "{{ question }}"
        )


def test_expand_prints_a_file_that_is_the_same_task(medtasks, fails, short, tmp_path):
    ran = medtasks("tasks", "expand", short)
    assert ran.out.startswith("task: short\n")
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "whole.yaml").write_text(ran.out)
    assert read_config(tmp_path / "whole" / "whole.yaml") == read_config(short)
    fails(
        ["tasks", "expand", tmp_path / "no.yaml"],
        f"there is no task file {tmp_path / 'no.yaml'}",
    )


def test_keys_that_are_misspelt_or_need_a_family(medtasks, short):
    for old, new, complaint in (
        (
            "image: none",
            "image: none\ncolums: {answer: answer_idx}",
            "no key is called 'colums'; did you mean 'columns'",
        ),
        ("family: single_choice", "dataset_path: q.jsonl", "'data' needs a line family: NAME"),
    ):
        short.write_text(SHORT.replace(old, new))
        assert (
            complaint in medtasks("data", "verify", "short", "--include_path", short.parent).out
        )


@each_row(
    "old, new, complaint",
    [
        (
            "image: none\n",
            "",
            "it needs a line 'image: COLUMN' (in brackets for a column of lists) or 'image: none'",
        ),
        (
            "single_choice",
            "single_choise",
            "unknown family 'single_choise'; did you mean 'single_choice'",
        ),
        ("single_choice", "no such", "unknown family 'no such'"),
        (
            "image: none",
            "image: none\ncolumns: [answer]",
            "'columns' has to be a mapping; write columns: {question:",
        ),
    ],
)
def test_a_short_file_that_lacks_something_is_one_sentence(fails, short, old, new, complaint):
    short.write_text(SHORT.replace(old, new))
    fails(
        ["data", "verify", "short", "--include_path", short.parent],
        f"the task file {short}: ",
        complaint,
    )
