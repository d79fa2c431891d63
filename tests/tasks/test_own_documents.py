"""Columns of published tables under the names and shapes that hooks need."""

import hashlib
import io
import shutil

import datasets
import pytest
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.home import home
from medtasks.prompts.images import images
from medtasks.tasks import own_documents
from medtasks.tasks.own_documents import completed

from ..tables import each_row

CHOICE = {
    "process_results": "medtasks.hooks.choice.process_results",
    "doc_to_text": "medtasks.hooks.prompts.prompt",
    "doc_to_visual": "medtasks.hooks.images.images",
    "dataset_path": "questions.parquet",
}


def encoded(shade, form="PNG"):
    stream = io.BytesIO()
    Image.new("L", (6, 5), shade).save(stream, form)
    return {"bytes": stream.getvalue(), "path": None}


def documents(columns, named, features=None):
    table = datasets.Dataset.from_dict({"question": ["?"] * len(next(iter(columns.values()))), **columns})
    for name, feature in (features or {}).items():
        table = table.cast_column(name, feature)
    return completed(table, {**CHOICE, "metadata": {"columns": named}}, apart=True).to_list()


ROWS = {"right": ["A", "B"], "answer": ["x", "other"], "options": [["x", "y"], ["z", "w"]]}
NAMED = {"answer": "right", "image_file": "picture"}


@each_row("feature", [datasets.Image(), None, datasets.Value("binary")])
def test_embedded_images_become_files(feature):
    shown = [encoded(10), encoded(200, "JPEG")]
    cells = [one["bytes"] for one in shown] if isinstance(feature, datasets.Value) else shown
    found = documents({**ROWS, "picture": cells}, NAMED, {"picture": feature} if feature else None)
    assert [one["answer"] for one in found] == ["A", "B"]
    assert all("picture" not in one for one in found)
    assert [images(one)[0].getpixel((0, 0))[0] for one in found] == [10, 200]
    digests = [hashlib.sha256(one["bytes"]).hexdigest()[:16] for one in shown]  # fewer digits would show other images
    assert [one["image_file"] for one in found] == [f"embedded:{digests[0]}.png", f"embedded:{digests[1]}.jpg"]


def test_questions_on_one_image_are_one_cluster_on_every_machine(monkeypatch, tmp_path):
    columns = {**ROWS, "picture": [encoded(10), encoded(10)]}
    first, second = documents(columns, NAMED, {"picture": datasets.Image()})
    assert first["image_id"] == second["image_id"] == first["image_file"]
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    for _ in range(2):  # a data folder that was emptied is filled again
        assert documents(columns, NAMED, {"picture": datasets.Image()}) == [first, second]
        assert len(images(second)) == 1
        shutil.rmtree(home() / "embedded_images")
    assert str(tmp_path) not in str(first)


def test_lists_of_images_and_several_columns():
    columns = {"answer": ["A", "B"], "options": [["x", "y"]] * 2}
    lists = {**columns, "shown": [[encoded(1), encoded(2)], []]}
    several = {**columns, "one": [encoded(1), None], "two": [encoded(2), None]}
    for rows, holder in ((lists, "shown"), (several, ["one", "two"])):
        first, second = documents(rows, {"image_files": holder})
        assert [one.getpixel((0, 0))[0] for one in images(first)] == [1, 2]
        assert images(second) == []
    paths = documents({**columns, "one": ["a.png", "b.png"], "two": ["c.png", None]}, {"image_files": ["one", "two"]})
    assert [one["image_files"] for one in paths] == [["a.png", "c.png"], ["b.png"]]


@each_row(
    "options",
    [
        [{"A": "x", "B": "y", "C": "z"}, {"A": "x", "B": "y", "C": None}],
        ['{"A": "x", "B": "y", "C": "z"}', '{"B": "y", "A": "x"}'],
        ['["x", "y", "z"]', '["x", "y"]'],
        ["['x', \"y\", 'z']", "('x', 'y')"],
        ["{'a': 'x', 'b': 'y', 'c': 'z'}", "{'(B)': 'y', '(A)': 'x'}"],
        [{"0": "x", "1": "y", "2": "z"}, {"0": "x", "1": "y", "2": None}],
        ['{"1": "x", "2": "y", "3": "z"}', "{2: 'y', 1: 'x'}"],
        [
            [{"key": "A", "value": "x"}, {"key": "B", "value": "y"}, {"key": "C", "value": "z"}],
            [{"key": "A", "value": "x"}, {"key": "B", "value": "y"}],
        ],
    ],
)
def test_options_become_lists(options):
    found = documents({"answer": ["A", "B"], "image_file": ["a", "b"], "choices": options}, {"options": "choices"})
    assert [one["options"] for one in found] == [["x", "y", "z"], ["x", "y"]]


def notes_of(monkeypatch):
    notes = []
    monkeypatch.setattr(own_documents, "warn_once", lambda sentence, level: notes.append(sentence))
    return notes


def answers(values, options=("left", "right", "none"), family="choice", name="answer"):
    """Read a column of answers to questions with the same options."""
    columns = {"question": ["?"] * len(values), "options": [list(options)] * len(values), name: values}
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    config = {"task": "t", "process_results": f"medtasks.hooks.{family}.process_results"}
    return [row[name] for row in completed(table, config).to_list()]


@each_row(
    "values, letters, note",
    [
        (["A", "C"], "AC", ""),
        (["a", "C"], "AC", "letters in any form"),
        (["(B)", "C."], "BC", "letters in any form"),
        (["b", " c) "], "BC", "letters in any form"),
        ([0, 2], "AC", "option numbers from 0"),
        (["0", "1"], "AB", "option numbers from 0"),
        ([1, 3], "AC", "option numbers from 1"),
        ([1.0, 3.0], "AC", "option numbers from 1"),
        (["Left", "none "], "AC", "texts of the options"),
    ],
)
def test_answers_in_one_form_are_read_and_the_form_is_said(values, letters, note, monkeypatch):
    notes = notes_of(monkeypatch)
    assert "".join(answers(values)) == letters
    assert notes == ([f"'t': 'answer' is read as {note}"] if note else [])


@each_row(
    "values, options, complaint",
    [
        ([1, 2], ["x", "y", "z"], "as option numbers from 0 or as option numbers from 1, which are different answers"),
        (["2", "3"], ["2", "3", "4"], "as option numbers from 1 or as texts of the options"),
        (["b", "a"], ["b", "a"], "as letters in any form or as texts of the options"),
        ([0, 3], ["x", "y", "z"], "row 2: 'answer' is 3, and|row 1: 'answer' is 0, and"),
        (["x", "y", "w"], ["x", "y", "z"], "^[^;]*row 3: 'answer' is 'w', and[^;]*$"),
        (["x", None], ["x", "y"], "row 2: 'answer' is empty"),
        (["x", "x "], ["x", "X", "x"], "row 1: 'answer' is 'x'"),
    ],
)
def test_answers_that_are_ambiguous_or_fit_nothing(values, options, complaint):
    with pytest.raises(MedTasksError, match=complaint):
        answers(values, options)


def test_numbers_that_are_options_agree_with_their_positions():
    assert answers(["1", "3"], ["1", "2", "3"]) == ["A", "C"]
    assert answers(["A", "B"], ["B", "A"]) == ["A", "B"]  # letters count first, as documented


@each_row(
    "family, name, values, expected",
    [
        ("classification", "label", [0, 1], [0, 1]),
        ("classification", "label", ["1", "2"], [1, 2]),  # documented: from 0
        ("classification", "label", ["1", "3"], [0, 2]),
        ("classification", "label", ["right", "left"], [1, 0]),
        ("classification", "label", ["B", "a"], [1, 0]),
        ("multi_answer", "answers", [["A", "C"], ["B"]], [["A", "C"], ["B"]]),
        ("multi_answer", "answers", ["A,C", "B"], [["A", "C"], ["B"]]),
        ("multi_answer", "answers", ["['A', 'C']", '["B"]'], [["A", "C"], ["B"]]),
        ("multi_answer", "answers", ["A; C", "B"], [["A", "C"], ["B"]]),
        ("multilabel", "labels", ["[0, 1, 1]", "1;0;0"], [[0, 1, 1], [1, 0, 0]]),
        ("multilabel", "labels", [["0", "1", "1"], ["1", "0", "0"]], [[0, 1, 1], [1, 0, 0]]),
    ],
)
def test_answers_of_other_families(family, name, values, expected):
    assert answers(values, family=family, name=name) == expected


@each_row(
    "values, expected, note",
    [
        (["Yes", "NO "], ["Yes", "No"], ""),
        ([1, 0], ["Yes", "No"], "0 as no and 1 as yes"),
        (["1", "0"], ["Yes", "No"], "0 as no and 1 as yes"),
        (["TRUE", "False"], ["Yes", "No"], "false as no and true as yes"),
        ([True, False], ["Yes", "No"], "false as no and true as yes"),
        (["y", "n"], ["Yes", "No"], "n as no and y as yes"),
    ],
)
def test_yes_and_no_in_several_forms(values, expected, note, monkeypatch):
    notes = notes_of(monkeypatch)
    table = datasets.Dataset.from_dict({"question": ["?"] * 2, "answer": values})
    config = {"task": "t", "process_results": "medtasks.hooks.closed_questions.process_results"}
    assert [row["gold"] for row in completed(table, config).to_list()] == expected
    assert notes == ([f"'t': 'answer' is read with {note}"] if note else [])
    with pytest.raises(MedTasksError, match="row 1: 'answer' is 2, and"):
        completed(datasets.Dataset.from_dict({"question": ["?"] * 2, "answer": [2, 1]}), config)


def test_a_column_called_kind_stays_or_is_refused():
    table = datasets.Dataset.from_dict({**ROWS, "answer": ["A", "B"], "question": ["?"] * 2, "kind": ["k", "l"]})
    config = {"process_results": "medtasks.hooks.choice.process_results", "dataset_path": "q.csv"}
    assert completed(table, config, apart=True)["kind"][1] == "l"
    closed = {**config, "process_results": "medtasks.hooks.closed_questions.process_results"}
    with pytest.raises(MedTasksError, match=r"q.csv has a column 'kind', which the family 'yes/no' uses itself"):
        completed(table, closed)
    grouped = {**config, "metadata": {"breakdown": ["label"]}}
    with pytest.raises(MedTasksError, match=r"'breakdown' .* names 'label', a column by which other families"):
        completed(table.rename_column("kind", "label"), grouped, apart=True)


@each_row(
    "options, complaint",
    [
        (["x", None, "z"], r"'options' is a list of 3 \(\['x', None, 'z'\]\), of which option 2 is missing \(null\)"),
        (["x", " "], r"of which option 2 is missing \(empty\)"),
        (["x", 5, "z"], "of which option 2 is 5 and no text"),
    ],
)
def test_the_wrong_entry_of_a_list_is_named(options, complaint):
    with pytest.raises(MedTasksError, match=f"row 1: .*{complaint}"):
        answers(["A"], options)


def test_options_in_several_columns():
    columns = {"answer": ["A", "B"], "image_file": ["a", "b"], "a": ["x", "x"], "b": ["y", "y"], "c": ["z", None]}
    found = documents(columns, {"options": ["a", "b", "c"]})
    assert [one["options"] for one in found] == [["x", "y", "z"], ["x", "y"]]
    unnamed = {"answer": ["A"], "options": ['["x", "y"]'], "image_file": ["a.png"]}
    assert documents(unnamed, {})[0]["options"] == ["x", "y"]
    with pytest.raises(MedTasksError, match="row 2: 'options' is a list of 3"):
        documents({**columns, "b": ["y", None], "c": ["z", "z"]}, {"options": ["a", "b", "c"]})


GOOD = {"answer": ["A", "B"], "options": ['["x", "y"]', '["x", "y"]'], "images": [[encoded(1)], [encoded(2)]]}


@each_row(
    ("damage", "named", "complaint"),
    [
        ({"options": ['["x", "y"]', None]}, {}, "row 2: 'options' is empty, and .* needs a list of at least two texts"),
        ({"options": ['["x", "y"]', '{"A": "x", "C": "y"}']}, {}, "row 2: 'options' is "),
        ({"options": ['["x", "y"]', "[" * 100_000]}, {}, "row 2: 'options' is "),
        ({"answer": ["A", "C"]}, {}, "row 2: 'answer' is 'C', and .* needs the letter of one of the options"),
        ({"images": [[encoded(1)], None]}, {}, "row 2: 'images' lacks an image"),
        ({"images": [[encoded(1)], [{"bytes": None, "path": None}]]}, {}, "row 2: 'images' lacks an image"),
        ({}, {"answer": "lable"}, "has no column 'lable', which 'columns' .* names for 'answer'; it has .*images"),
        ({}, ["answer"], "'columns' in the metadata of a task is .* such as {answer: answer_label}"),
    ],
)
def test_damage_is_one_sentence(damage, named, complaint):
    setting = {"image_files": "images", **named} if isinstance(named, dict) else named
    with pytest.raises(MedTasksError, match=complaint):
        documents({**GOOD, **damage}, setting)
