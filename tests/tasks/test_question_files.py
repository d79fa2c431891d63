"""Questions on this machine are read as they are now, whatever the file's form and name."""

import gzip
import json
import os
import shutil
import zipfile

import datasets
import openpyxl
import pytest

from medtasks.errors import MedTasksError
from medtasks.home import home
from medtasks.lmms.plugin import download_and_check
from medtasks.tasks.own_documents import own_documents
from medtasks.tasks.question_files import datasets_of_files
from medtasks.tasks.task_files import including, task_config

from ..tables import each_row

HEADER = ["id", "question", "a", "b", "c", "answer", "age", "site"]
CELLS = [
    ["002", "One?", "1.0", "2.50", "None", "A", "45", "007"],
    ["010", "Two?", "True", "n/a", None, "B", None, "12"],
]
COLUMNS = {"doc_id": "id", "options": ["a", "b", "c"]}


def config(path, columns=COLUMNS, rows=None, **more):
    metadata = {"columns": columns, **({"rows": rows} if rows else {})}
    hooks = {
        "process_results": "medtasks.hooks.choice.process_results",
        "doc_to_text": "medtasks.hooks.prompts.lettered",
    }
    return {
        "task": "t",
        "test_split": "test",
        "dataset_path": str(path),
        "metadata": metadata,
        **hooks,
        **more,
    }


def csv_text(separator=","):
    return "\n".join(separator.join(cell or "" for cell in cells) for cells in (HEADER, *CELLS))


def workbook(path):
    book = openpyxl.Workbook()
    for cells in (HEADER, *CELLS):
        book.active.append(cells)
    book.save(path)


def files(name):
    return {"dataset_kwargs": {"data_files": {"test": str(name)}}}


@each_row(
    "loader, name",
    [("", "q.csv"), ("csv", "q.csv"), ("", "q.xlsx"), ("excel", "q.xlsx"), ("csv", "q.xlsx")],
)
def test_cells_are_asked_as_written_and_other_columns_are_numbers(tmp_path, loader, name):
    path = tmp_path / name
    workbook(path) if name.endswith("xlsx") else path.write_text(csv_text())
    first, second = own_documents(
        "t", config(loader, **files(path)) if loader else config(path)
    )
    assert first["options"] == ["1.0", "2.50", "None"]
    assert second["options"] == ["True", "n/a"]
    assert (first["doc_id"], second["doc_id"]) == ("002", "010")
    assert (first["age"], second["age"]) == (45, None)
    assert (first["site"], second["site"]) == (
        "007",
        "12",
    )  # one that is no number keeps all as texts


def test_numbers_that_a_prompt_shows_and_long_ids_stay_as_written(tmp_path):
    (tmp_path / "q.csv").write_text(
        "question,a,b,answer,dose,id\n?,x,y,A,2.50,12345678901234567890\n"
    )
    shown = {
        "lmms_eval_specific_kwargs": {"default": {"template": "{{ question }} {{ dose }}"}}
    }
    columns = {"options": ["a", "b"]}
    (row,) = own_documents("t", config(tmp_path / "q.csv", columns, **shown))
    assert (row["dose"], row["id"]) == ("2.50", "12345678901234567890")
    (row,) = own_documents("t", config(tmp_path / "q.csv", columns))
    assert row["dose"] == 2.5


def test_arguments_of_the_library_reach_it(tmp_path):
    folder = hub_folder(tmp_path / "mine", "one")
    kept = {"keep_in_memory": True, "num_proc": 1, "cache_dir": str(tmp_path / "cache")}
    assert questions(folder, dataset_kwargs=kept) == ["one"]
    assert [path.name.partition("-")[0] for path in (tmp_path / "cache").iterdir()].count(
        "medtasks"
    ) == 1


def test_texts_of_json_stay_texts(tmp_path):
    row = {"question": "?", "options": ["x", "y"], "answer": "A", "study": "12", "n": 3}
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    (document,) = own_documents("t", config(tmp_path / "q.jsonl", {}))
    assert (document["study"], document["n"]) == ("12", 3)


def hub_folder(folder, question, ending="parquet"):
    """Write a dataset as the Hub keeps it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    card = "---\nconfigs:\n- config_name: default\n  data_files:\n  - {split: test, path: data/test-*}\n---\n"
    (folder / "README.md").write_text(card)
    row = {"question": question, "options": ["x", "y"], "answer": "A"}
    path = folder / "data" / f"test-00000-of-00001.{ending}"
    if ending == "parquet":
        datasets.Dataset.from_list([row]).to_parquet(path)
    else:
        path.write_text(
            json.dumps(row)
            if ending == "jsonl"
            else f"question,options,answer\n{question},'[1]',A\n"
        )
    return folder


def questions(path, **more):
    return [row["question"] for row in own_documents("t", config(path, {}, **more))]


@each_row("ending", ["parquet", "jsonl"])
def test_an_edited_folder_is_asked_as_it_is_now(tmp_path, ending):
    folder = hub_folder(tmp_path / "mine", "before", ending)
    assert questions(folder) == ["before"]
    hub_folder(folder, "after!", ending)
    assert questions(folder) == ["after!"]


def test_a_pickle_is_refused_by_us_whatever_the_library_does(tmp_path):
    (tmp_path / "x.pkl").write_bytes(
        b"cos\nmkdir\n(S'%s'\ntR." % str(tmp_path / "attacked").encode()
    )
    with pytest.raises(
        MedTasksError,
        match="pickles of pandas can run code and are not read; save them as parquet",
    ):
        questions("pandas", **files(tmp_path / "x.pkl"))
    assert not (tmp_path / "attacked").exists()


def test_a_parquet_file_of_the_same_size_and_time_is_read_again(tmp_path):
    path = hub_folder(tmp_path / "mine", "one") / "data" / "test-00000-of-00001.parquet"
    os.utime(path, (1, 1))
    assert questions("parquet", **files(path)) == ["one"]
    size = path.stat().st_size
    hub_folder(tmp_path / "mine", "two")
    os.utime(path, (1, 1))
    assert path.stat().st_size == size
    assert questions("parquet", **files(path)) == ["two"]
    assert questions(path) == ["two"]


class HarnessTask:
    """A task as the harness makes it, which loads its documents by the library."""

    def __init__(self, **settings):
        self.config = type("Config", (), {})()
        vars(self.config).update(settings)
        self.DATASET_PATH = settings["dataset_path"]

    def download(self, arguments=None):
        self.dataset = datasets.load_dataset(
            path=self.DATASET_PATH, name=None, **(arguments or {})
        )
        self.dataset_no_image = self.dataset


def test_the_harness_asks_what_is_verified(tmp_path):
    for question in ("before", "after"):
        folder = hub_folder(tmp_path / "mine", question)
        (tmp_path / "q.csv").write_text(csv_text().replace("One?", question))
        for path, columns in ((folder, {}), (tmp_path / "q.csv", COLUMNS)):
            task = HarnessTask(**config(path, columns))
            download_and_check(HarnessTask.download, task, None)
            assert task.dataset["test"]["question"][0] == question
    with pytest.raises(
        MedTasksError, match=r"gone.csv. cannot be loaded: there is no such file"
    ):
        download_and_check(HarnessTask.download, HarnessTask(**config("gone.csv")), None)


def test_files_are_looked_for_next_to_the_task_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path.parent)
    workbook(tmp_path / "q.xlsx")
    for name, path in (("plain", "dataset_path: q.xlsx"), ("named", "dataset_path: xlsx")):
        arguments = "dataset_kwargs: {data_files: {test: q.xlsx}}\n" if name == "named" else ""
        (tmp_path / f"{name}.yaml").write_text(
            f"task: {name}\n{path}\n{arguments}test_split: test\n"
        )
    with including([tmp_path]):
        for name in ("plain", "named"):
            settings = task_config(name)
            rows = own_documents(name, settings | {"metadata": {"columns": COLUMNS}})
            assert [row["id"] for row in rows] == ["002", "010"]
            path = "q.xlsx" if name == "plain" else "xlsx"
            arguments = {"data_files": {"test": "q.xlsx"}} if name == "named" else None
            hooks = {"task": name, "dataset_path": path, "dataset_kwargs": arguments}
            task = HarnessTask(**{**config(path), **hooks})
            download_and_check(HarnessTask.download, task, arguments)
            assert list(task.dataset["test"]["doc_id"]) == ["002", "010"]


@each_row("name", ["q[1].jsonl", "set [1]/q.jsonl", "what?/q*.jsonl", "{a,b}/q.jsonl"])
def test_brackets_and_stars_in_a_path_are_no_patterns(tmp_path, name):
    other = name.replace("[1]", "1").replace("?", "x").replace("*", "x").replace("{a,b}", "a")
    for file, question in ((name, "own"), (other, "other's")):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(
            json.dumps({"question": question, "options": ["x", "y"], "answer": "A"})
        )
    assert questions("json", **files(tmp_path / name)) == questions(tmp_path / name) == ["own"]
    assert questions("json", **files(tmp_path / other)) == ["other's"]


@each_row("loader", ["json", ""])
def test_a_packed_file(tmp_path, loader):
    path = tmp_path / "q.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'{"question": "packed", "options": ["x", "y"], "answer": "A"}')
    )
    assert questions(loader or path, **(files(path) if loader else {})) == ["packed"]


def test_brackets_in_the_path_of_a_folder(tmp_path):
    own = hub_folder(tmp_path / "set [1]", "own")
    hub_folder(tmp_path / "set 1", "other's")
    with pytest.raises(
        MedTasksError, match="for a pattern; rename the folder, or name its files"
    ):
        questions(own)
    path = own / "data" / "test-00000-of-00001.parquet"
    assert questions("parquet", **files(path)) == questions(path) == ["own"]
    hub_folder(own, "new")
    assert questions("parquet", **files(path)) == ["new"]


def test_patterns_and_several_files(tmp_path):
    for number in (1, 2):
        (tmp_path / f"q{number}.csv").write_text(f"question,a,b,answer\nQ{number},x,y,A\n")
    columns = {"options": ["a", "b"]}
    listed = {"data_files": {"test": [str(tmp_path / "q2.csv"), str(tmp_path / "q1.csv")]}}
    for names, expected in (
        (listed, ["Q2", "Q1"]),
        ({"data_files": str(tmp_path / "q*.csv")}, ["Q1", "Q2"]),
    ):
        rows = own_documents("t", config("csv", columns, dataset_kwargs=names))
        assert [row["question"] for row in rows] == expected


def test_a_pattern_below_a_folder_with_brackets(tmp_path):
    (tmp_path / "set [1]").mkdir()
    (tmp_path / "set [1]" / "q.csv").write_text("question,a,b,answer\nown,x,y,A\n")
    named = {"dataset_kwargs": {"data_files": str(tmp_path / "set [1]" / "*.csv")}}
    rows = own_documents("t", config("csv", {"options": ["a", "b"]}, **named))
    assert [row["question"] for row in rows] == ["own"]


SHEET = "type,question,a,b,answer\nyes/no,One?,,,yes\nChoice ,Two?,x,y,B\nchoice,Three?,x,y,D\n"


def test_a_task_asks_the_rows_of_its_kind(tmp_path):
    (tmp_path / "q.csv").write_text(SHEET.replace("D", "A"))
    columns = {"options": ["a", "b"]}
    rows = own_documents("t", config(tmp_path / "q.csv", columns, rows={"type": "choice"}))
    assert [(row["question"], row["answer"]) for row in rows] == [
        ("Two?", "B"),
        ("Three?", "A"),
    ]
    rows = own_documents(
        "t",
        config(
            tmp_path / "q.csv", columns, rows={"type": ["choice"], "question": ["Two?", "x"]}
        ),
    )
    assert [row["question"] for row in rows] == ["Two?"]
    yes_no = {
        key: f"medtasks.hooks.closed_questions.{key}"
        for key in ("process_results", "doc_to_text")
    }
    (row,) = own_documents(
        "t", config(tmp_path / "q.csv", {}, rows={"type": "yes/no"}, **yes_no)
    )
    assert row["gold"] == "Yes"


@each_row(
    "rows, complaint",
    [
        ({"type": "choice"}, "q.csv, row 4: 'answer' is 'D', and"),
        ({"type": "report"}, "none of the 3 rows for 't' has {'type': 'report'}, as"),
        (
            {"typ": "choice"},
            "has {'typ': 'choice'}, as .* there are the columns type, question, a, b, answer",
        ),
        ({"type": True}, "write a column and its values, .* yes and no in quotes"),
        (["type"], r"has \['type'\], as 'rows'"),
    ],
)
def test_rows_that_cannot_be_chosen_and_places_after_the_choice(tmp_path, rows, complaint):
    (tmp_path / "q.csv").write_text(SHEET)
    with pytest.raises(MedTasksError, match=complaint):
        own_documents("t", config(tmp_path / "q.csv", {"options": ["a", "b"]}, rows=rows))


def test_up_to_ten_mistakes_are_named_with_their_rows(tmp_path):
    rows = ["question,a,b,answer", *(f"Q{n},x,y,{'A' if n < 3 else 'E'}" for n in range(15))]
    (tmp_path / "q.csv").write_text("\n".join(rows))
    with pytest.raises(MedTasksError) as raised:
        own_documents("t", config(tmp_path / "q.csv", {"options": ["a", "b"]}))
    message = str(raised.value)
    assert [f"row {number}: 'answer' is 'E'" in message for number in (4, 5, 14, 15)] == [
        False,
        True,
        True,
        False,
    ]
    assert message.endswith("; and 2 more")


def test_faults_of_images_have_the_rows_of_the_sheet(tmp_path):
    rows = (
        "question,a,b,answer,image_file\nQ,x,y,A,1.png\n\nQ,x,y,A,https://example.org/1.png\n"
    )
    (tmp_path / "q.csv").write_text(rows)
    visual = {"doc_to_visual": "medtasks.hooks.images.images"}
    with pytest.raises(MedTasksError, match=r"q.csv, row 4: 'image_file' is an address"):
        own_documents("t", config(tmp_path / "q.csv", {"options": ["a", "b"]}, **visual))


@each_row(
    "path, more, complaint",
    [
        (
            "gone.csv",
            {},
            r"documents of 't' \(gone.csv\) cannot be loaded: there is no such file",
        ),
        (
            "gone.txt",
            {},
            r"documents of 't' \(gone.txt\) cannot be loaded: there is no such file",
        ),
        (
            "csv",
            files("gone.csv"),
            r"documents of 't' \(gone.csv\) cannot be loaded: there is no such file",
        ),
        ("excel", {}, "the task 't' names no file; write dataset_path: FILE"),
        ("exel", files("q.xlsx"), "no kind of file is called 'exel'; did you mean 'excel'"),
        ("json", files("e.jsonl"), "e.jsonl is empty"),
        (
            "csv",
            files("damaged.parquet"),
            r"documents of 't' \(damaged.parquet\) cannot be loaded: ArrowInvalid",
        ),
        (".", {}, "documents of 't' .* cannot be loaded: .*contain any data files"),
        (
            "csv",
            {"dataset_kwargs": {"data_files": "q.csv", "skiprows": 2}},
            "'skiprows' is no option of a table",
        ),
    ],
)
def test_what_cannot_be_loaded_names_the_file(tmp_path, monkeypatch, path, more, complaint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.jsonl").touch()
    (tmp_path / "q.csv").write_text(csv_text())
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 and no more")
    for name in ("e.jsonl", "q.csv", "damaged.parquet") if path == "." else ():
        (tmp_path / name).unlink()
    with pytest.raises(MedTasksError, match=complaint) as raised:
        own_documents("t", config(path, **more))
    assert not any(word in str(raised.value) for word in ("Iteration", "IPv4", "codec", "Hub"))


def test_a_file_in_a_prepared_dataset_is_found_behind_any_protocol(tmp_path):
    folder = home() / "datasets" / "multimedeval_mimic_cxr_report"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text('{"q": 1}\n')
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.write(folder / "a.json", "a.json")
    shutil.copy(folder / "a.json", tmp_path)
    behind = (
        "zip://a.json::{}/a.zip",
        "zip://a.json::file://{}/a.zip",
        "simplecache::{}/a.json",
        "local://{}/a.json",
    )
    for name in ("{}/a.json", "file://{}/a.json", *behind):
        config = {
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": name.format(folder)}},
        }
        assert datasets_of_files(config) == {folder.name}, name
    config["dataset_kwargs"]["data_files"] = f"simplecache::{tmp_path}/a.json"
    assert datasets_of_files(config) == set()
