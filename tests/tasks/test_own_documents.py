"""Columns of published tables under the names and shapes that hooks need."""

import base64
import hashlib
import io
import os
import shutil

import datasets
import pytest
from loguru import logger
from PIL import Image

from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError, SourceError, forget_warnings
from medtasks.extract.extractor_registry import extractor_of
from medtasks.home import home
from medtasks.prompts.images import images
from medtasks.tasks import own_documents
from medtasks.tasks.own_documents import complete_documents, rows_of

from ..tables import each_row

CHOICE = {
    "process_results": "medtasks.hooks.choice.process_results",
    "doc_to_text": "medtasks.hooks.prompts.lettered",
    "doc_to_visual": "medtasks.hooks.images.images",
    "dataset_path": "questions.parquet",
}


def encoded(shade, form="PNG"):
    stream = io.BytesIO()
    Image.new("L", (6, 5), shade).save(stream, form)
    return {"bytes": stream.getvalue(), "path": None}


def documents(columns, named, features=None):
    table = datasets.Dataset.from_dict(
        {"question": ["?"] * len(next(iter(columns.values()))), **columns}
    )
    for name, feature in (features or {}).items():
        table = table.cast_column(name, feature)
    return complete_documents(
        table, {**CHOICE, "metadata": {"columns": named}}, apart=True
    ).to_list()


ROWS = {"right": ["A", "B"], "answer": ["x", "other"], "options": [["x", "y"], ["z", "w"]]}
NAMED = {"answer": "right", "image_file": "picture"}


@each_row("feature", [datasets.Image(), None, datasets.Value("binary")])
def test_embedded_images_become_files(feature):
    shown = [encoded(10), encoded(200, "JPEG")]
    cells = [one["bytes"] for one in shown] if isinstance(feature, datasets.Value) else shown
    found = documents(
        {**ROWS, "picture": cells}, NAMED, {"picture": feature} if feature else None
    )
    assert [one["answer"] for one in found] == ["A", "B"]
    assert all("picture" not in one for one in found)
    assert [images(one)[0].getpixel((0, 0))[0] for one in found] == [10, 200]
    digests = [
        hashlib.sha256(one["bytes"]).hexdigest()[:16] for one in shown
    ]  # fewer digits would show other images
    assert [one["image_file"] for one in found] == [
        f"embedded:{digests[0]}.png",
        f"embedded:{digests[1]}.jpg",
    ]


def test_images_and_tables_of_a_credentialed_set_make_rows_credentialed(monkeypatch, tmp_path):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    private = "multimedeval_mimic_cxr_report"
    secret = home() / "datasets" / private / "images" / "1.png"
    own = tmp_path / "own.png"
    public = home() / "datasets" / "multimedeval_slake" / "1.png"
    for path in (secret, own, public):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(3)["bytes"])
    (tmp_path / "link.png").symlink_to(secret)
    (tmp_path / "linked").symlink_to(tmp_path / "home")
    spelled = [
        str(secret),
        "link.png",
        f"linked/{secret.relative_to(home())}",
        f"x/../{secret.relative_to(tmp_path)}",
    ]
    (tmp_path / "x").mkdir()
    files = [*spelled, str(own), "own.png", str(public)]
    answers = {
        "answer": ["A"] * len(files),
        "options": [["x", "y"]] * len(files),
        "question": ["?"] * len(files),
    }
    for family in (
        {"image_root": str(tmp_path)},
        {"default": {}, "openai": {"image_root": str(tmp_path)}},
    ):
        for column, cells in (
            ("image_file", files),
            ("image_files", [[str(own), file] for file in files]),
        ):
            table = datasets.Dataset.from_dict({**answers, column: cells})
            config = {**CHOICE, "lmms_eval_specific_kwargs": family}
            rows = complete_documents(table, config, apart=True).to_list()
            assert [row["dataset"] for row in rows] == [private] * len(spelled) + [None] * 3
            rows = complete_documents(
                table.add_column("dataset", ["multimedeval_slake"] * len(files)), config
            ).to_list()
            assert [row["dataset"] for row in rows] == [private] * len(spelled) + [
                "multimedeval_slake"
            ] * 3
    table = datasets.Dataset.from_dict({**answers, "image_file": [str(own)] * len(files)})
    assert "dataset" not in complete_documents(table, CHOICE, apart=True).column_names
    (secret.parent / "q.csv").write_text("a\n1\n")
    (tmp_path / "q.csv").symlink_to(secret.parent / "q.csv")
    for path in (secret.parent / "q.csv", tmp_path / "q.csv"):
        rows = complete_documents(
            table, {**CHOICE, "dataset_path": str(path)}, apart=True
        ).to_list()
        assert {row["dataset"] for row in rows} == {private}


def test_copies_of_own_tables_are_their_owners(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    before = os.umask(0o022)
    try:
        for kind in ("parquet", "arrow"):
            row = {
                "question": "?",
                "options": ["x", "y"],
                "answer": "A",
                "dataset": "multimedeval_mimic_cxr_report",
            }
            table = datasets.Dataset.from_list([row])
            if kind == "parquet":
                table.to_parquet(tmp_path / "q.parquet")
                named = str(tmp_path / "q.parquet")
            else:
                table.save_to_disk(tmp_path / "saved")
                named = str(tmp_path / "saved" / "*.arrow")
            kwargs = {"data_files": {"test": named}}
            own_documents.own_table(
                "mine", {**CHOICE, "dataset_path": kind, "dataset_kwargs": kwargs}
            )
        made = [path for path in (tmp_path / "cache").rglob("*") if path.suffix == ".arrow"]
        assert len(made) == 2
        assert {
            path.stat().st_mode & 0o077 for path in (*made, *(path.parent for path in made))
        } == {0}
    finally:
        os.umask(before)


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
    paths = documents(
        {**columns, "one": ["a.png", "b.png"], "two": ["c.png", None]},
        {"image_files": ["one", "two"]},
    )
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
            [
                {"key": "A", "value": "x"},
                {"key": "B", "value": "y"},
                {"key": "C", "value": "z"},
            ],
            [{"key": "A", "value": "x"}, {"key": "B", "value": "y"}],
        ],
    ],
)
def test_options_become_lists(options):
    found = documents(
        {"answer": ["A", "B"], "image_file": ["a", "b"], "choices": options},
        {"options": "choices"},
    )
    assert [one["options"] for one in found] == [["x", "y", "z"], ["x", "y"]]


def notes_of(monkeypatch):
    notes = []
    monkeypatch.setattr(
        own_documents, "warn_once", lambda sentence, level: notes.append(sentence)
    )
    return notes


def answers(values, options=("left", "right", "none"), family="choice", name="answer"):
    """Read a column of answers to questions with the same options."""
    columns = {
        "question": ["?"] * len(values),
        "options": [list(options)] * len(values),
        name: values,
    }
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    config = {"task": "t", "process_results": f"medtasks.hooks.{family}.process_results"}
    return [row[name] for row in complete_documents(table, config).to_list()]


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
        (["b. right", "(A) Left"], "BA", "texts of the options"),
    ],
)
def test_answers_in_one_form_are_read_and_the_form_is_said(values, letters, note, monkeypatch):
    notes = notes_of(monkeypatch)
    assert "".join(answers(values)) == letters
    assert notes == ([f"'t': 'answer' is read as {note}"] if note else [])


@each_row(
    "values, options, complaint",
    [
        (
            [1, 2],
            ["x", "y", "z"],
            "as option numbers from 0 or as option numbers from 1, which are different answers",
        ),
        (["2", "3"], ["2", "3", "4"], "as option numbers from 1 or as texts of the options"),
        (["b", "a"], ["b", "a"], "as letters in any form or as texts of the options"),
        ([0, 3], ["x", "y", "z"], "row 2: 'answer' is 3, and|row 1: 'answer' is 0, and"),
        (["x", "y", "w"], ["x", "y", "z"], "^[^;]*row 3: 'answer' is 'w', and[^;]*$"),
        (["x", None], ["x", "y"], "row 2: 'answer' is empty"),
        (["A. x", "B. x"], ["x", "y"], "row 2: 'answer' is 'B. x'"),
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
        (["Ja", "nein"], ["Yes", "No"], "ja as yes and nein as no"),
        (["WAHR", "FALSCH"], ["Yes", "No"], "falsch as no and wahr as yes"),
    ],
)
def test_yes_and_no_in_several_forms(values, expected, note, monkeypatch):
    notes = notes_of(monkeypatch)
    table = datasets.Dataset.from_dict({"question": ["?"] * 2, "answer": values})
    config = {"task": "t", "process_results": "medtasks.hooks.closed_questions.process_results"}
    assert [row["gold"] for row in complete_documents(table, config).to_list()] == expected
    assert notes == ([f"'t': 'answer' is read with {note}"] if note else [])
    with pytest.raises(MedTasksError, match="row 1: 'answer' is 2, and"):
        complete_documents(
            datasets.Dataset.from_dict({"question": ["?"] * 2, "answer": [2, 1]}), config
        )


def test_whole_numbers_are_texts_where_a_text_is_needed():
    columns = {"question": ["?", "How many?"], "answer": ["two", 3]}
    config = {"process_results": "medtasks.hooks.open_questions.process_results"}
    table = datasets.Dataset.from_dict(columns, on_mixed_types="use_json")
    assert [row["answer"] for row in rows_of(complete_documents(table, config))] == ["two", "3"]


def test_an_unknown_dataset_is_named(lines):
    columns = {
        **ROWS,
        "answer": ["A", "B"],
        "question": ["?"] * 2,
        "dataset": ["ACRIMA", "mediconfusion"],
    }
    complete_documents(
        datasets.Dataset.from_dict(columns), {"task": "t", **CHOICE, "doc_to_visual": None}
    )
    assert len(lines) == 1
    assert (
        "'t': the column 'dataset' names 'ACRIMA', which medtasks does not know, so that its texts are"
        in lines[0]
    )


def test_of_one_image_and_a_list_the_list_is_shown(tmp_path):
    for number in range(3):
        Image.new("L", (5 + number, 5)).save(tmp_path / f"{number}.png")
    columns = {
        **ROWS,
        "answer": ["A", "B"],
        "image_file": ["2.png"] * 2,
        "image_files": [["0.png", "1.png"]] * 2,
    }
    document = documents(columns, {})[0]
    assert [image.size[0] for image in images(document, {"image_root": str(tmp_path)})] == [
        5,
        6,
    ]


def test_a_column_called_kind_stays_or_is_refused():
    table = datasets.Dataset.from_dict(
        {**ROWS, "answer": ["A", "B"], "question": ["?"] * 2, "kind": ["k", "l"]}
    )
    config = {
        "process_results": "medtasks.hooks.choice.process_results",
        "dataset_path": "q.csv",
    }
    assert complete_documents(table, config, apart=True)["kind"][1] == "l"
    closed = {**config, "process_results": "medtasks.hooks.closed_questions.process_results"}
    with pytest.raises(
        MedTasksError, match=r"q.csv has a column 'kind', which the family 'yes/no' uses itself"
    ):
        complete_documents(table, closed)
    grouped = {**config, "metadata": {"breakdown": ["label"]}}
    with pytest.raises(
        MedTasksError, match=r"'breakdown' .* names 'label', a column by which other families"
    ):
        complete_documents(table.rename_column("kind", "label"), grouped, apart=True)


@each_row(
    "options, complaint",
    [
        (
            ["x", None, "z"],
            r"'options' is a list of 3 \(\['x', None, 'z'\]\), of which option 2 is missing \(null\)",
        ),
        (["x", " "], r"of which option 2 is missing \(empty\)"),
    ],
)
def test_the_wrong_entry_of_a_list_is_named(options, complaint):
    with pytest.raises(MedTasksError, match=f"row 1: .*{complaint}"):
        answers(["A"], options)


def test_a_name_like_that_of_a_cluster_is_reported(lines):
    columns = {
        "answer": ["A", "B"],
        "image_file": ["a", "b"],
        "Pat": ["p", "p"],
        "a": ["x", "x"],
        "b": ["y", "y"],
    }
    options = {"options": ["a", "b"]}
    documents(columns, {"patient_id": "Pat", "patient_age": "Pat", **options})
    assert lines == []
    documents(columns, {"PatientID": "Pat", **options})
    assert "'columns' name 'PatientID', which no hook knows; write patient_id" in lines[0]


def test_options_in_several_columns():
    columns = {
        "answer": ["A", "B"],
        "image_file": ["a", "b"],
        "a": ["x", "x"],
        "b": ["y", "y"],
        "c": ["z", None],
    }
    found = documents(columns, {"options": ["a", "b", "c"]})
    assert [one["options"] for one in found] == [["x", "y", "z"], ["x", "y"]]
    unnamed = {"answer": ["A"], "options": ['["x", "y"]'], "image_file": ["a.png"]}
    assert documents(unnamed, {})[0]["options"] == ["x", "y"]
    with pytest.raises(MedTasksError, match="row 2: 'options' is a list of 3"):
        documents({**columns, "b": ["y", None], "c": ["z", "z"]}, {"options": ["a", "b", "c"]})


LETTERED = {
    "default": {
        "template": "{{ question }} {{ options }}",
        "option": "{{ letter }}. {{ text }}",
    }
}
BARE = {"default": {"template": "{{ question }} {{ options }}"}}
TEMPLATE = "medtasks.hooks.prompts.question"


@pytest.fixture
def lines():
    forget_warnings()
    logged = []
    sink = logger.add(logged.append, level="INFO", format="{level} {message}")
    yield logged
    logger.remove(sink)


def checked(columns, family="choice", **config):
    """Return the options of documents, as hooks of a task's own get them."""
    table = datasets.Dataset.from_dict({"question": ["?"] * len(columns["options"]), **columns})
    hooks = {
        **CHOICE,
        "process_results": f"medtasks.hooks.{family}.process_results",
        "doc_to_visual": None,
    }
    return [
        one["options"]
        for one in complete_documents(table, {**hooks, **config}, apart=True).to_list()
    ]


def test_marks_of_options_are_removed_where_the_prompt_writes_them(lines):
    marked = [["A. left", "B. right"], ["(a) CT", "(b) MRI"], ["A. baumannii", "E. coli"]]
    columns, bare = (
        {"options": marked, "answer": ["A", "B", "A"]},
        [["left", "right"], ["CT", "MRI"], marked[2]],
    )
    said = "options of 2 of 3 questions begin with letters or numbers, "
    assert checked(columns) == bare  # "A: left"
    assert checked(columns, doc_to_text=TEMPLATE, lmms_eval_specific_kwargs=LETTERED) == bare
    assert [line.split("questions.parquet: ")[1][: len(said)] for line in lines] == [said]
    assert (len(lines), "which are removed" in lines[0]) == (1, True)
    # Without letters in the prompt, those of the options are all that a reply can name.
    assert checked(columns, doc_to_text=TEMPLATE, lmms_eval_specific_kwargs=BARE) == marked
    assert checked(columns, doc_to_text="mine.prompt") == marked
    assert (len(lines), lines[1].startswith("WARNING")) == (2, True)
    assert 'let the prompt write them with option: "{{ letter }}. {{ text }}"' in lines[1]
    classes = {"options": [["1. normal", "2. pneumonia"]], "label": [1]}
    assert checked(classes, "classification") == [["normal", "pneumonia"]]


def test_more_options_than_letters_are_refused_unless_they_are_classes():
    many = [f"finding {number}" for number in range(27)]
    for family, answer in (
        ("choice", {"answer": ["A", "B"]}),
        ("multi_answer", {"answers": [["A"], ["B"]]}),
    ):
        with pytest.raises(
            MedTasksError, match="row 2: it has 27 options; 2 to 26 are possible"
        ):
            checked({"options": [many[:26], many], **answer}, family)
    assert checked({"options": [many], "label": [26]}, "classification") == [many]
    assert checked({"options": [many], "labels": [[1] * 27]}, "multilabel") == [many]


def test_classes_are_the_same_in_every_row():
    names = ["normal", "pneumonia"]
    assert checked(
        {"options": [names, ["Normal ", "pneumonia"]], "label": [0, 1]}, "classification"
    )
    for other in (names[::-1], ["normal", "effusion"], [*names, "effusion"]):
        for family, column in (
            ("classification", {"label": [0, 0]}),
            ("multilabel", {"labels": [[0, 0], [0] * 3]}),
        ):
            labels = {"labels": [[0, 0], [0] * len(other)]} if "labels" in column else column
            with pytest.raises(
                MedTasksError,
                match="row 2: 'options' are others than in the first row, or in another order",
            ):
                checked({"options": [names, other], **labels}, family)
    with pytest.raises(
        MedTasksError,
        match="row 1: options 1 and 3 are equal; give each class a name of its own",
    ):
        checked({"options": [["a", "b", "A "]], "label": [0]}, "classification")
    # Variants change the options of a task whose own ones were checked.
    rows = {"options": [names, names[::-1]], "label": [0, 1]}
    assert checked(rows, "classification", metadata={"variant": "rotated"}) == rows["options"]


def test_equal_options_are_reported_and_empty_ones_refused(lines):
    options = [["left", "right"], ["Yes", "no", "yes "], ["a", "b", "c"], ["x", "x"]]
    assert checked({"options": options, "answer": ["A"] * 4}) == options
    assert (
        "row 2: options 1 and 3 are equal (so in 2 of 4 questions): a reply with such a text is not"
        in lines[0]
    )
    assert len(lines) == 1
    with pytest.raises(
        MedTasksError, match=r"row 1: 'options' is a list of 3 .*, of which option 3 is missing"
    ):
        checked({"options": [["a", "b", ""]], "answer": ["A"]})


def as_text(shade, form="PNG", begin="", wrapped=False):
    encode = base64.encodebytes if wrapped else base64.b64encode
    return begin + encode(encoded(shade, form)["bytes"]).decode()


@each_row(
    "first, second",
    [
        (as_text(10), as_text(200, "JPEG")),
        (as_text(10, wrapped=True), as_text(200, begin="data:image/png;base64,")),
        ({"bytes": as_text(10), "path": "1.png"}, {"bytes": as_text(200), "path": None}),
        ([as_text(10)], [as_text(200, begin="DATA:image/png;base64,")]),
    ],
)
def test_images_as_text_are_decoded(first, second):
    column = "image_files" if isinstance(first, list) else "image_file"
    found = documents(
        {**ROWS, "picture": [first, second]}, {"answer": "right", column: "picture"}
    )
    assert [images(one)[0].getpixel((0, 0))[0] for one in found] == [10, 200]
    assert as_text(10) not in str(found)


def test_long_names_are_names():
    name = f"/data/{'physionet' * 9}/files/p10/p10000032/s50414267/02aa804e-bde0afdd.jpg"
    assert [
        one["image_file"] for one in documents({**ROWS, "picture": [name, "a" * 64]}, NAMED)
    ] == [name, "a" * 64]


@each_row(
    "cell, complaint",
    [
        (
            "https://example.org/1.png?token=secret",
            "is an address, from which nothing is downloaded; save the image",
        ),
        ("s3://bucket/1.png", "is an address, from which nothing is downloaded"),
        (
            as_text(10, begin="data:image/png;base64,")[:-3],
            "is a text of [0-9]+ characters, neither whole base64 nor",
        ),
        (
            as_text(10)[:-1] * 9,
            "is a text of [0-9,]+ characters, neither whole base64 nor the path of a file",
        ),
        (
            {"bytes": None, "path": "secret/1.png"},
            "the table holds no image bytes: it has only the path of a file",
        ),
        (
            {"bytes": None, "path": "/secret/1.png"},
            "the table holds no image bytes: .*; write the images into the t",
        ),
    ],
)
def test_cells_without_an_image_are_refused_and_not_quoted(cell, complaint):
    other = {"bytes": encoded(1)["bytes"], "path": None} if isinstance(cell, dict) else "b.png"
    with pytest.raises(
        SourceError, match=f"^questions.parquet, row 2: 'picture' .*{complaint}"
    ) as raised:
        documents({**ROWS, "picture": [other, cell]}, NAMED)
    assert "secret" not in str(raised.value)
    assert len(str(raised.value)) < 300


def test_paths_without_bytes_that_are_there(tmp_path):
    Image.new("L", (6, 5), 10).save(tmp_path / "1.png")
    cells = {**ROWS, "picture": [{"bytes": None, "path": str(tmp_path / "1.png")}] * 2}
    assert documents(cells, NAMED)[0]["image_file"] == str(tmp_path / "1.png")
    config = {
        **CHOICE,
        "metadata": {"columns": NAMED},
        "lmms_eval_specific_kwargs": {"image_root": str(tmp_path)},
    }
    table = datasets.Dataset.from_dict(
        {"question": ["?"] * 2, **ROWS, "picture": [{"bytes": None, "path": "1.png"}] * 2}
    )
    assert complete_documents(table, config, apart=True)["image_file"][0] == "1.png"


GOOD = {
    "answer": ["A", "B"],
    "options": ['["x", "y"]', '["x", "y"]'],
    "images": [[encoded(1)], [encoded(2)]],
}


@each_row(
    ("damage", "named", "complaint"),
    [
        (
            {"options": ['["x", "y"]', None]},
            {},
            "row 2: 'options' is empty, and .* needs a list of at least two texts",
        ),
        ({"options": ['["x", "y"]', '{"A": "x", "C": "y"}']}, {}, "row 2: 'options' is "),
        ({"options": ['["x", "y"]', "[" * 100_000]}, {}, "row 2: 'options' is "),
        (
            {"answer": ["A", "C"]},
            {},
            "row 2: 'answer' is 'C', and .* needs the letter of one of the options",
        ),
        ({"images": [[encoded(1)], None]}, {}, "row 2: 'images' lacks an image"),
        (
            {"images": [[encoded(1)], [{"bytes": None, "path": None}]]},
            {},
            "row 2: 'images' lacks an image",
        ),
        (
            {},
            {"answer": "lable"},
            "has no column 'lable', which 'columns' .* names for 'answer'; it has .*images",
        ),
        (
            {},
            ["answer"],
            "'columns' in the metadata of a task is .* such as {answer: answer_label}",
        ),
    ],
)
def test_damage_is_one_sentence(damage, named, complaint):
    setting = {"image_files": "images", **named} if isinstance(named, dict) else named
    with pytest.raises(MedTasksError, match=complaint):
        documents({**GOOD, **damage}, setting)


@each_row(
    ("cells", "sources"),
    [
        ({"pictures": [[encoded(1)], []]}, "pictures"),
        ({"front": [encoded(1), None], "side": [None, None]}, ["front", "side"]),
    ],
)
def test_a_row_without_its_only_image_is_one_sentence(cells, sources):
    with pytest.raises(MedTasksError, match=r"row 2: .* lacks an image; fix the row"):
        documents({**ROWS, **cells}, {"image_file": sources})


def test_the_language_of_a_task_narrows_what_careful_rules_read():
    read = extractor_of("robust_choice").extract
    values = {}
    columns = {
        "question": ["?"],
        "options": [["left", "right"]],
        "answer": ["A"],
        "image_file": ["a.png"],
    }
    table = datasets.Dataset.from_dict(columns)
    for language in (None, "pt"):
        (document,) = complete_documents(
            table, {**CHOICE, "metadata": {"language": language}}
        ).to_list()
        values[language] = read(
            "O tumor fica no lado A", Sample(document)
        ).value  # "no" denies in other languages
    assert values == {None: None, "pt": "A"}
    config = {**CHOICE, "task": "sides", "metadata": {"language": "german"}}
    with pytest.raises(MedTasksError, match="unknown language of 'sides': 'german'"):
        complete_documents(table, config)
