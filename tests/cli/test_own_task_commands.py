"""Commands on tasks from a folder of the user's, with replies of which the right scores are known."""

import importlib
import json
import re
import sys
from pathlib import Path

import openpyxl
import pytest
from PIL import Image

from medtasks.doctor.check_results import State, scope_of
from medtasks.doctor.tasks_and_data import own_tasks
from medtasks.report.collecting import section
from medtasks.runs.run import TaskRun
from medtasks.tasks.documents import select, task_problems
from medtasks.tasks.task_files import (
    included_option,
    including,
    scored_task,
    task_config,
    task_file,
    task_files,
    tasks_of,
)

from ..picture_sets import jpeg, texture
from ..tables import each_row
from .conftest import rows_of

YAML = """task: sides
dataset_path: json
dataset_kwargs: {data_files: {test: sides.jsonl}}
test_split: test
lmms_eval_specific_kwargs: {default: {image_root: images, template: "{{ question }} {{ options }}"}}
doc_to_visual: !function medtasks.hooks.images.images
doc_to_text: !function medtasks.hooks.prompts.lettered
doc_to_target: !function medtasks.hooks.prompts.target
process_results: !function medtasks.hooks.choice.process_results
metric_list: !function medtasks.hooks.choice.METRIC_LIST
"""
ANSWERS = ["A", "B", "B", "A"]


@pytest.fixture
def folder(tmp_path):
    return own_folder(tmp_path)


def own_folder(tmp_path):
    """Make a folder with one task, written as shortly as the harness allows: no filter, no metadata."""
    made = tmp_path / "own"
    (made / "images").mkdir(parents=True)
    for number, answer in enumerate(ANSWERS):
        Image.new("RGB", (4, 4), (60 * number, 0, 0)).save(made / "images" / f"{number}.png")
        row = {
            "question": f"{number}?",
            "options": ["left", "right"],
            "answer": answer,
            "image_file": f"{number}.png",
        }
        with (made / "sides.jsonl").open("a") as stream:
            stream.write(json.dumps(row) + "\n")
    (made / "sides.yaml").write_text(YAML)
    return made


@pytest.fixture
def replies(tmp_path):
    def write(texts, name="replies.jsonl"):
        lines = [
            json.dumps({"doc_id": str(row), "reply": text}) for row, text in enumerate(texts)
        ]
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    return write


def change(folder, old, new):
    text = (folder / "sides.yaml").read_text()
    assert old in text
    (folder / "sides.yaml").write_text(text.replace(old, new))


def test_a_task_is_scored_by_its_own_documents(medtasks, folder, replies, tmp_path):
    options = ["--include_path", folder, "--json", tmp_path / "s"]
    ran = medtasks("score", "sides", replies(["A", "B", "right", "(b)"]), *options)

    assert ran.code == 0, ran.err
    scores = json.loads((tmp_path / "s").read_text())
    assert scores["rules"]["none"]["metrics"]["accuracy"] == 0.75
    data = scores["data"]
    assert (data["prepared"], data["rows"], data["source"]) == (
        False,
        4,
        str(folder / "sides.jsonl"),
    )


def test_a_variant_is_scored_by_its_own_documents(medtasks, folder, tmp_path):
    options = ["--include_path", folder, "--json", tmp_path / "s"]
    lines = [
        {"doc_id": f"{row}~r{turn}", "reply": "left"} for row in range(4) for turn in range(2)
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))

    assert medtasks("score", "sides_rotated", tmp_path / "r.jsonl", *options).code == 0
    metrics = json.loads((tmp_path / "s").read_text())["rules"]["none"]["metrics"]
    assert (metrics["mean_accuracy"], metrics["published_order"], metrics["flip_rate"]) == (
        0.5,
        0.5,
        0,
    )


def test_runs_of_a_task_are_compared(medtasks, folder, replies):
    runs = [replies(ANSWERS, "a.jsonl"), replies(["A"] * 4, "b.jsonl")]
    ran = medtasks("compare", "sides", *runs, "--include-path", folder)

    assert (ran.code, ran.out.count("50.0 pts, 95 %")) == (0, 1), ran.out
    assert "; 4 images cannot show any difference at this level." in ran.out


def test_a_report_shows_questions_and_images(medtasks, folder, replies, tmp_path):
    run = replies(["A"] * 4)
    page = tmp_path / "page.html"
    found = medtasks("report", run, "--task", "sides", "--include_path", folder, "--html", page)

    assert found.code == 0, found.err
    assert "data prepare" not in found.out
    text = page.read_text()
    assert "3?" in text
    assert text.count("data:image") >= 4


def score_run(folder, replies):
    return ["score", "sides", replies, "--include_path", folder]


def test_samples_that_changed_after_a_run_are_asked_again(
    medtasks, fails, folder, tmp_path, warnings
):
    """An image is changed in place, and a new first row moves all questions that have no ids of their own."""
    out = tmp_path / "out"
    run = ["run", "--model", "medtasks_tiny", "--tasks", "sides", "--output_path", out]
    run += ["--log_samples", "--include_path", folder, "--gen_kwargs", "max_new_tokens=2"]
    assert medtasks(*run).code == 0
    assert "4 of 4 questions answered" in medtasks(*score_run(folder, out)).out

    Image.new("RGB", (4, 4), (0, 0, 9)).save(folder / "images" / "3.png")

    assert "3 of 4 questions answered" in medtasks(*score_run(folder, out)).out
    assert [
        sentence
        for sentence in warnings
        if "1 of 4 samples in" in sentence and "'3' (images)" in sentence
    ]

    rows = (folder / "sides.jsonl").read_text()
    new = {
        "question": "New?",
        "options": ["left", "right"],
        "answer": "A",
        "image_file": "0.png",
    }
    (folder / "sides.jsonl").write_text(f"{json.dumps(new)}\n{rows}")

    fails(
        score_run(folder, out),
        "4 of 4 samples in",
        "have changed since they were asked",
        "--only-failed",
    )
    assert medtasks(*run, "--only-failed").code == 0

    samples = max(out.rglob("*_samples_sides.jsonl"))
    prompts = [json.loads(line)["input"] for line in samples.read_text().splitlines()]
    assert [prompt.split()[0] for prompt in prompts] == ["New?", "0?", "1?", "2?", "3?"]
    assert "5 of 5 questions answered" in medtasks(*score_run(folder, samples)).out


def test_a_task_is_unknown_without_its_folder(fails, medtasks, replies):
    fails(
        ["score", "sides", replies(ANSWERS)],
        "unknown task 'sides'",
        "needs --include_path FOLDER",
    )
    assert "sides" not in medtasks("tasks").out


def test_an_option_that_does_not_fit_the_family_is_refused(medtasks, folder, replies):
    refused = medtasks(
        "score", "sides", replies(ANSWERS), "--include_path", folder, "--prevalence", "0.1"
    )
    assert (refused.code, "--prevalence needs yes/no questions" in refused.err) == (2, True)


def test_a_task_is_listed_with_its_variants_while_its_folder_is_named(medtasks, folder):
    listed = medtasks("tasks", "--sanity", "--include_path", folder).out

    assert re.search(
        r"^sides +_blind _blank _swapped _rotated .*_sanity _stress$", listed, re.MULTILINE
    )
    assert "sides" not in task_files()  # nothing remains


def test_a_variant_has_the_folder_of_its_task(folder):
    with including([folder]):
        assert scored_task("sides_blind").base == "sides"
        assert (
            included_option("sides")
            == included_option("sides_blind")
            == f" --include_path {folder}"
        )
        root = task_config("sides")["lmms_eval_specific_kwargs"]["default"]["image_root"]
        assert root == str(folder / "images")


@each_row("hook, is_rotated", [("lettered", True), ("question", False)])
def test_a_task_without_a_template_is_rotated_if_its_hook_shows_the_options(
    tmp_path, hook, is_rotated
):
    folder = own_folder(tmp_path)
    change(folder, ', template: "{{ question }} {{ options }}"', "")
    change(folder, "medtasks.hooks.prompts.lettered", f"medtasks.hooks.prompts.{hook}")
    with including([folder]):
        assert ("rotated" in task_files()["sides"].variants) is is_rotated


REGEX = "filter_list: [{name: x, filter: [{function: regex}]}]"


@each_row(
    "old, new, complaint",
    [
        (
            "medtasks.hooks.choice.process_",
            "mine.process_",
            "is scored by mine.process_results, which is",
        ),
        (
            "medtasks.hooks.choice.METRIC_LIST",
            "mine.METRICS",
            "has metrics that are not those of medtasks",
        ),
        (
            "process_results: !function medtasks.hooks.choice.process_results\n",
            "",
            "metrics of the harness alone",
        ),
        ("metric_list:", f"{REGEX}\nmetric_list:", "has no filter that names"),
    ],
)
def test_what_only_the_harness_can_score(fails, tmp_path, replies, old, new, complaint):
    folder = own_folder(tmp_path)
    change(folder, old, new)
    for command in (
        ["score", "sides", replies(ANSWERS)],
        ["report", replies(ANSWERS), "--task", "sides"],
    ):
        fails([*command, "--include_path", folder], "'sides'", complaint)
    fails(
        ["compare", "sides", replies(ANSWERS), replies(ANSWERS), "--include_path", folder],
        complaint,
    )


def test_an_unknown_key_of_a_task_file_is_a_warning(medtasks, folder):
    with (folder / "sides.yaml").open("a") as file:
        file.write("hospital: ours\nmetadata: {breakdown: question}\n")

    found = medtasks("data", "verify", "sides", "--include_path", folder)

    assert (found.code, "has a key 'hospital' that lmms-eval" in found.out) == (0, True)
    with including([folder]):
        assert task_files()["sides"].breakdown == ("question",)
        assert [one.state for one in own_tasks(scope_of(["sides"]))] == [
            State.WARNING,
            State.OK,
        ]


def test_a_function_of_the_users_own_selects_the_questions(medtasks, folder, replies):
    (folder / "mine.py").write_text("def halves(rows):\n    return rows.select([0, 1])\n")
    change(folder, "metric_list:", "process_docs: !function mine.halves\nmetric_list:")

    found = medtasks("score", "sides", replies(["A", "A"]), "--include_path", folder)

    assert "2 of 2 questions answered" in found.out
    assert re.search(r"accuracy .*50\.0%", found.out), found.out


def verify(folder):
    return ["data", "verify", "sides", "--include_path", folder]


def test_verify_counts_the_questions_that_can_be_read(medtasks, folder):
    found = medtasks(*verify(folder))

    assert found.out.startswith(
        f"sides can be read: 4 questions of {folder / 'sides.jsonl'} with their images"
    )


def test_verify_names_a_missing_image(fails, folder):
    (folder / "images" / "2.png").unlink()

    ran = fails(verify(folder), "1 problem in 'sides'")

    assert f"image {folder / 'images' / '2.png'} of sample 2 is missing" in ran.out
    assert "data prepare" not in ran.out + ran.err


def test_verify_names_an_archive_in_place_of_a_folder(fails, folder):
    change(folder, "image_root: images", "image_root: images.zip")

    ran = fails(verify(folder), "1 problem in 'sides'")

    assert ran.out == "image_root images.zip is an archive; unpack it and name the folder\n"


def test_verify_and_run_name_a_missing_column(fails, folder):
    (folder / "sides.jsonl").write_text('{"question": "?", "answer": "A"}\n')
    complaint = f"{folder / 'sides.jsonl'} has no column 'options', which the family 'single choice' needs"
    run = ["run", "--tasks", "sides", "--model", "medtasks_tiny", "--log_samples"]
    run += ["--output_path", folder / "out", "--include_path", folder]

    fails(verify(folder), complaint)
    ran = fails(run, "none of the tasks in 'sides' can run")

    assert f"left out sides: {complaint}" in ran.out.replace("\n", "")


def test_verify_names_a_missing_question_file(fails, folder):
    (folder / "sides.jsonl").unlink()
    fails(verify(folder), "the documents of 'sides' (sides.jsonl) cannot be loaded")


SHEET = [
    ["Bild", "Frage", "Antwort", "A", "B", "Typ", "Alter"],
    ["0.png", "Wo?", "links", "links", "rechts", "Wahl", 45],
    ["1.png", "Da?", "ja", None, None, "ja/nein", 50],
    ["2.png", "Wo?", "Rechts", "links", "rechts", "Wahl", 61],
]
SHEET_METADATA = """metadata:
  rows: {Typ: wahl}
  columns: {image_file: Bild, question: Frage, answer: Antwort, options: [A, B]}
  breakdown: [Alter]
"""


@pytest.fixture
def save_sheet(folder):
    """Write rows of the sheet that the task asks."""
    change(
        folder,
        "dataset_path: json\ndataset_kwargs: {data_files: {test: sides.jsonl}}",
        "dataset_path: sides.xlsx",
    )
    with (folder / "sides.yaml").open("a") as file:
        file.write(SHEET_METADATA)

    def save(rows):
        book = openpyxl.Workbook()
        for cells in rows:
            book.active.append(cells)
        book.save(folder / "sides.xlsx")

    return save


def test_a_sheet_is_asked_by_the_rows_of_one_kind(medtasks, save_sheet, folder):
    save_sheet(SHEET)

    verified = medtasks(*verify(folder)).out

    assert verified.startswith(
        f"sides can be read: 2 questions of {folder / 'sides.xlsx'} with their images"
    )
    notes = [
        line.removeprefix("note: ")
        for line in verified.splitlines()
        if line.startswith("note: ")
    ]
    assert "'sides': 'answer' is read as texts of the options" in notes
    assert any(line.startswith("'sides' asks 2 of ") for line in notes)


def test_a_sheet_is_scored(medtasks, save_sheet, folder, replies, tmp_path):
    save_sheet(SHEET)

    scored = medtasks(*score_run(folder, replies(["A", "A"])), "--json", tmp_path / "s")

    assert scored.code == 0
    assert (
        json.loads((tmp_path / "s").read_text())["rules"]["none"]["metrics"]["accuracy"] == 0.5
    )


def test_a_changed_sheet_has_another_fingerprint(medtasks, save_sheet, folder):
    save_sheet(SHEET)
    before = medtasks(*verify(folder)).out

    save_sheet([[cell if cell != "links" else "left" for cell in cells] for cells in SHEET])
    after = medtasks(*verify(folder)).out

    assert re.search(r"text (\w+)", before)[1] != re.search(r"text (\w+)", after)[1]


def test_faults_of_a_sheet_are_named_by_row(fails, save_sheet, folder):
    save_sheet(
        [
            *SHEET,
            ["1.png", "Wo?", "oben", "links", "rechts", "Wahl", None],
            ["1.png", None, "links", "links", None, "Wahl", 3],
        ]
    )
    place = f"{folder / 'sides.xlsx'}, row"
    named = [
        f"{place} 6: 'options' is a list of 1 (['links'])",
        f"{place} 5: 'answer' is 'oben', and",
    ]

    fails(verify(folder), *named, f"{place} 6: 'question' is empty")


FILTER = "filter_list: [{name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: R}]}]\n"
HOOK = "medtasks.hooks.choice.process_results"
NO_SETTINGS = "lmms_eval_specific_kwargs: !function medtasks.nothing.here"


@each_row(
    "old, new, words",
    [
        (
            "hooks.choice.process",
            "hooks.chioce.process",
            f"process_results: .*does not exist; did you mean '{HOOK}'",
        ),
        (
            "medtasks.hooks.prompts.target",
            "wrong.target",
            "'wrong.target' cannot be imported .NameError: name 'x'",
        ),
        (
            "medtasks.hooks.prompts.target",
            "mine.target",
            r"doc_to_target: .* fails on the first sample \(KeyError",
        ),
        (
            "medtasks.hooks.prompts.target",
            "mine.KEYS",
            "doc_to_target: 'mine.KEYS' is no function; name one",
        ),
        (
            'template: "',
            'tempalte: "',
            "_kwargs: no setting is called 'tempalte'; did you mean 'template'",
        ),
        (
            "rule: R",
            "rule: robust_chioce",
            "filter_list, 'robust': unknown .* did you mean 'robust_choice'",
        ),
        (
            "rule: R",
            "rule: robust_vqa",
            "no rule 'robust_vqa' reads replies for 'single choice'; copy it",
        ),
        (
            "{{ question }} {{",
            "{{ qestion }} {{",
            "doc_to_text: .*'qestion' is undefined, did you mean 'question'",
        ),
        (
            "!function medtasks.hooks.prompts.target",
            "anwser",
            "no column 'anwser'; did you mean 'answer'",
        ),
        (
            "medtasks.hooks.choice.METRIC_LIST",
            "mine.METRICS",
            "no metric 'acuracy'; did you mean 'accuracy'",
        ),
        (
            "choice.METRIC_LIST",
            "reports.METRIC_LIST",
            "no metric 'bertscore_f1' .and 15 more.; it has accuracy, ",
        ),
        (
            "ReadWith, rule",
            "ReadWith, rul: x, rule",
            "the filter cannot be made .*; did you mean 'rule'",
        ),
        (
            "metric_list: !function medtasks.hooks.choice.METRIC_LIST",
            "",
            "'metric_list' has to name the metrics of",
        ),
        (
            "metric_list:",
            "metadata: {breakdown: anwser}\nmetric_list:",
            "no column 'anwser'; did you mean 'answer'",
        ),
        (
            "metric_list:",
            "metadata: {breakdown: site}\nmetric_list:",
            "has no column 'site'; there are question, opti",
        ),
        (
            "metric_list:",
            f"{NO_SETTINGS}\nmetric_list:",
            "_kwargs: 'medtasks.nothing.here' does not exist",
        ),
        (
            "metric_list:",
            "metadata: [{version: 1}]\nmetric_list:",
            "'metadata' is a list; write it as a mapping",
        ),
    ],
)
def test_a_mistake_in_a_task_file_is_one_sentence(medtasks, tmp_path, old, new, words):
    folder = own_folder(tmp_path)
    metrics = "METRICS = [{'metric': 'acuracy'}]\n"
    (folder / "mine.py").write_text(
        f"KEYS = ['key']\n{metrics}def target(doc):\n    return doc['key']\n"
    )
    (folder / "wrong.py").write_text("x\n")
    with (folder / "sides.yaml").open("a") as file:
        file.write(
            FILTER if old == "rule: R" else FILTER.replace("rule: R", "rule: robust_choice")
        )

    change(folder, old, new)
    file = re.escape(f"the task file {folder / 'sides.yaml'}: ")
    own = ["--include_path", folder]

    verified = medtasks("data", "verify", "sides", *own)
    assert (verified.code, len(re.findall(f"{file}.*{words}", verified.out))) == (1, 1), (
        verified.out
    )

    run = medtasks(
        "run",
        "--model",
        "medtasks_tiny",
        "--tasks",
        "sides",
        "--output_path",
        tmp_path / "out",
        *own,
    )
    assert run.code == 1
    assert re.search(f"left out sides: {file}.*{words}", run.out), run.out

    with including([folder]):
        (found,) = own_tasks(scope_of(["sides"]))
    assert found.state is State.PROBLEM
    assert re.search(f"{file}.*{words}", f"{found.found}; {found.fix}"), found


def test_a_language_for_replies_to_a_prepared_dataset_is_refused(folder):
    change(
        folder,
        "dataset_path: json",
        "dataset_path: !function medtasks.data.path_of.mediconfusion",
    )
    change(folder, "{data_files: {test: sides.jsonl}}", "{load_from_disk: true}")
    change(folder, "metric_list:", "metadata: {language: de}\nmetric_list:")
    with including([folder]):
        (problem,) = task_problems(task_file("sides"))
    assert "language: only replies to questions of your own are read in one language" in problem


def test_a_misspelt_hook_without_the_optional_packages(medtasks, folder, monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "lm_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "medtasks.lmms.lm_eval_task", raising=False)
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    change(folder, "hooks.choice.process", "hooks.chioce.process")
    ran = medtasks("data", "verify", "sides", "--include_path", folder)
    assert f"does not exist; did you mean '{HOOK}'" in ran.out
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("medtasks.lmms.lm_eval_task")


@each_row(
    "old, new, words",
    [
        (
            "!function medtasks.hooks.choice.METRIC_LIST",
            "accuracy",
            "'metric_list' is 'accuracy' and has to be a list",
        ),
        (
            "!function medtasks.hooks.choice.METRIC_LIST",
            "[a]",
            "of 'metric_list' is 'a' and has to be a mapping",
        ),
        (
            "!function medtasks.hooks.choice.METRIC_LIST",
            "[{metic: a}]",
            "has no 'metric', only 'metic'; write",
        ),
        (
            "{data_files: {test: sides.jsonl}}",
            "[1]",
            "'dataset_kwargs' is a list and has to be a mapping",
        ),
    ],
)
def test_values_of_another_shape_are_one_sentence(fails, tmp_path, old, new, words):
    folder = own_folder(tmp_path)
    change(folder, old, new)
    fails(["data", "verify", "sides", "--include_path", folder], words)


@pytest.fixture
def credentialed(folder):
    """Make the samples those of a credentialed set."""
    rows = [json.loads(line) for line in (folder / "sides.jsonl").read_text().splitlines()]
    private = [{**row, "dataset": "multimedeval_mimic_cxr_report"} for row in rows]
    (folder / "sides.jsonl").write_text("\n".join(map(json.dumps, private)))
    return private


def test_a_page_shows_no_credentialed_text(medtasks, credentialed, folder, replies, tmp_path):
    page = tmp_path / "page.html"
    shown = ["report", replies(ANSWERS), "--task", "sides", "--html", page]

    assert medtasks(*shown, "--include_path", folder).code == 0

    assert "3?" not in page.read_text()


def test_scores_do_not_name_a_credentialed_source(
    medtasks, credentialed, folder, replies, tmp_path
):
    scores = tmp_path / "s.json"

    assert medtasks(*score_run(folder, replies(ANSWERS)), "--json", scores).code == 0

    assert json.loads(scores.read_text())["data"]["source"] == "withheld"


def test_credentialed_wrong_answers_are_not_exported(
    fails, credentialed, folder, replies, tmp_path
):
    fails(
        [*score_run(folder, replies(ANSWERS)), "--export-errors", tmp_path / "errors.csv"],
        "'multimedeval_mimic_cxr_report' is credentialed",
    )


def test_the_error_of_an_own_function_does_not_quote_credentialed_text(
    medtasks, credentialed, folder
):
    (folder / "mine.py").write_text("def target(doc):\n    raise ValueError(doc['question'])\n")
    change(folder, "medtasks.hooks.prompts.target", "mine.target")
    (folder / "sides.jsonl").write_text(
        json.dumps({**credentialed[0], "question": "Is it Doe?"})
    )

    found = medtasks(*verify(folder))

    assert found.code == 1
    assert "fails on the first sample (ValueError); correct it" in found.out
    assert "Doe" not in found.out + found.err


def test_duplicates_of_an_own_task_name_its_questions(medtasks, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number, picture in enumerate(
        [texture(1), texture(2), jpeg(texture(2), 80), texture(3)]
    ):
        picture.save(folder / "images" / f"{number}.png")
    texture(3).save(
        folder / "images" / "training.png"
    )  # next to the test images, which are no copies of themselves
    command = ["data", "duplicates", "sides", "--include_path", folder, "--json", "found.json"]

    ran = medtasks(*command, "--against", folder / "images", "--list", "out.txt")
    assert ran.code == 0, ran.err
    found = json.loads(Path("found.json").read_text())

    (twice,), (copy,) = found["within"], found["against"]["findings"]
    assert twice["concern"] == "different image ids"
    assert (twice["first"]["questions"], twice["second"]["questions"]) == (["1"], ["2"])
    assert (copy["first"]["questions"], copy["second"]["picture"]) == (["3"], "training.png")
    assert found["against"]["files"] == 1
    assert Path("out.txt").read_text().split() == found["left_out"] == ["2", "3"]
    assert found["data"]["source"] == str(folder / "sides.jsonl")


def test_duplicates_need_every_image(fails, folder):
    command = ["data", "duplicates", "sides", "--include_path", folder]
    (folder / "images" / "0.png").unlink()
    fails(
        command,
        "1 of 4 images of 'sides' cannot be read",
        "0.png: ",
        "'medtasks data verify' names all",
    )


def test_duplicates_of_credentialed_own_data_show_no_name(
    medtasks, folder, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = [json.loads(line) for line in (folder / "sides.jsonl").read_text().splitlines()]
    rows = [
        {**row, "dataset": "multimedeval_mimic_cxr_report", "doc_id": f"doe{n}"}
        for n, row in enumerate(rows)
    ]
    (folder / "sides.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for number in range(4):
        texture(number // 2).save(folder / "images" / f"{number}.png")
    ran = medtasks(
        "data",
        "duplicates",
        "sides",
        "--include_path",
        folder,
        "--json",
        "found.json",
        "--html",
        "p.html",
    )
    assert (ran.code, len(json.loads(Path("found.json").read_text())["within"])) == (0, 2)
    assert "MEDTASKS_LOG_TEXT=multimedeval_mimic_cxr_report shows them" in ran.out
    for text in (ran.out, Path("found.json").read_text(), Path("p.html").read_text()):
        assert not re.search(r"doe\d|\d\.png|data:image|jsonl", text)


@pytest.fixture
def sites(folder):
    """Give the samples a column of the user's own."""
    rows = [json.loads(line) for line in (folder / "sides.jsonl").read_text().splitlines()]
    own = [{**row, "site": f"site {place % 2}"} for place, row in enumerate(rows)]
    (folder / "sides.jsonl").write_text("\n".join(map(json.dumps, own)))


def test_exported_wrong_answers_name_images_and_own_columns(
    medtasks, sites, folder, replies, tmp_path
):
    table = tmp_path / "errors.csv"

    assert medtasks(*score_run(folder, replies("AAAA")), "--export-errors", table).code == 0

    assert table.read_text().splitlines()[0].endswith(",reply,images,site")


def test_a_page_shows_own_columns(medtasks, sites, folder, replies, tmp_path):
    page = tmp_path / "page.html"
    shown = ["report", replies("AAAA"), "--task", "sides", "--html", page]

    assert medtasks(*shown, "--include_path", folder).code == 0

    assert "site: site 1" in page.read_text()


def test_tasks_without_single_answers_export_no_wrong_ones(fails, tmp_path):
    reports = ["score", "iu_xray_report", tmp_path / "replies.jsonl"]
    fails(
        [*reports, "--export-errors", tmp_path / "errors.csv"],
        "'iu_xray_report' scores no single answers as right or wrong, so --export-errors would list none",
    )


FINDINGS = [
    {"question": f"{n}?", "answer": ["yes", "no"][n % 3 > 0], "sex": "FM"[n % 2]}
    for n in range(120)
]
FINDING_LINES = [
    json.dumps({**row, "image_file": f"{n % 4}.png", "image_id": str(n)})
    for n, row in enumerate(FINDINGS)
]


@pytest.fixture
def findings(folder):
    """Make the task one of yes/no questions on patients of two sexes."""
    for old, new in (
        ("prompts.lettered", "prompts.closed"),
        ("prompts.target", "prompts.closed_target"),
    ):
        change(folder, f"medtasks.hooks.{old}", f"medtasks.hooks.{new}")
    change(folder, "hooks.choice.", "hooks.yes_no.")
    change(
        folder,
        "{default: {image_root: images, template:",
        "{default: {image_root: images, yes_no_template:",
    )
    change(folder, " {{ options }}", "")
    (folder / "sides.jsonl").write_text("\n".join(FINDING_LINES))
    return folder


@pytest.fixture
def missed(replies):
    """Replies that miss each finding of women."""
    return replies([row["answer"] if row["sex"] == "M" else "no" for row in FINDINGS])


def test_clinical_numbers_are_adjusted_to_a_prevalence(medtasks, findings, missed, tmp_path):
    scored = medtasks(
        *score_run(findings, missed),
        *("--by", "sex", "--prevalence", "0.05", "--json", tmp_path / "scores.json"),
    )

    assert scored.code == 0, scored.err
    table = rows_of(scored.out, "Clinical numbers by class")
    shown = [cell.partition(" ")[0] for cell in table["Yes"][:4]]
    assert shown == ["50.0%", "100.0%", "100.0%", "80.0%"]
    assert '"ppv_adjusted"' in (tmp_path / "scores.json").read_text()


def test_a_prevalence_is_a_share(medtasks, findings, missed):
    refused = medtasks(*score_run(findings, missed), "--prevalence", "2")
    assert (refused.code, "--prevalence 2 is not between" in refused.err) == (2, True)


def test_groups_differ_from_all_others(medtasks, findings, missed):
    scored = medtasks(*score_run(findings, missed), "--by", "sex")

    groups = rows_of(scored.out, "accuracy by sex")
    assert (groups["F"][0], groups["F"][2].partition(" [")[0]) == ("60", "−33.3 pts")
    assert ": F differs from all others by −33.3 pts [" in scored.out
    assert "In no group" not in scored.out


def test_samples_without_a_group_are_counted(medtasks, findings, missed):
    unknown = [line.replace('"sex": "F"', '"sex": null') for line in FINDING_LINES[:5]]
    (findings / "sides.jsonl").write_text("\n".join([*unknown, *FINDING_LINES[5:]]))

    scored = medtasks(*score_run(findings, missed), "--by", "sex")

    assert "In no group, without sex: at least 3 samples." in scored.out


def test_a_misspelt_column_of_groups_is_refused(fails, findings, missed):
    fails(
        [*score_run(findings, missed), "--by", "sexx"],
        "no column 'sexx'; did you mean 'sex'",
    )


def test_a_page_has_clinical_numbers_and_groups(medtasks, findings, missed, tmp_path):
    page = tmp_path / "page.html"
    shown = ["report", missed, "--task", "sides", "--include_path", findings, "--by", "sex"]

    assert medtasks(*shown, "--html", page).code == 0

    assert all(
        text in page.read_text() for text in ("Clinical numbers", "accuracy by sex", "Sens.")
    )


def test_sensitivity_and_specificity_are_compared_by_class(
    medtasks, findings, missed, replies, tmp_path
):
    perfect = replies([row["answer"] for row in FINDINGS], "perfect.jsonl")
    compared = tmp_path / "compared.json"
    compare = ["compare", "sides", missed, perfect, "--include_path", findings]

    assert medtasks(*compare, "--metric", "of classes", "--json", compared).code == 0

    tests = json.loads(compared.read_text())["comparisons"]
    of_class = {test["metric"]: test for test in tests if not test["same_as"]}
    sensitivity, specificity = (
        of_class[f"{metric} (Yes)"] for metric in ("sensitivity", "specificity")
    )
    assert [
        (test["samples"], test["first"], test["second"]) for test in (sensitivity, specificity)
    ] == [
        (40, 0.5, 1),
        (80, 1, 1),
    ]
    assert sensitivity["p"] == 2 / 2**20  # 20 findings more are found, and none less
    assert sensitivity["p_holm"] == 2 * sensitivity["p"]  # for two tests of the class


def test_intervals_of_two_images_are_called_rough(medtasks, findings, replies, tmp_path):
    (findings / "sides.jsonl").write_text("\n".join(FINDING_LINES[:2]))
    page = tmp_path / "page.html"
    shown = ["report", replies(["yes", "no"]), "--task", "sides", "--include_path", findings]

    assert medtasks(*shown, "--html", page).code == 0

    assert (
        "Only about 2 independent images: intervals are rough (accuracy)." in page.read_text()
    )


def test_groups_of_one_image_have_no_interval(medtasks, findings, replies):
    (findings / "sides.jsonl").write_text("\n".join(FINDING_LINES[:2]))

    shown = medtasks(*score_run(findings, replies(["yes", "no"])), "--by", "sex").out

    assert "Of 1 image each, without an interval: F, M." in shown
    assert "compared groups together" not in shown


def test_failed_replies_of_yes_no_questions_are_not_answered(medtasks, findings, tmp_path):
    (findings / "sides.jsonl").write_text("\n".join(FINDING_LINES[:2]))
    failed = [{"doc_id": row, "resps": ["[[medtasks:adapter_failed]] x"]} for row in range(2)]
    (tmp_path / "failed.jsonl").write_text("\n".join(map(json.dumps, failed)))

    ran = medtasks(*score_run(findings, tmp_path / "failed.jsonl"), "--by", "sex")

    assert "sides: 2 asked, 0 answered" in ran.out


def test_one_image_shows_no_difference(medtasks, findings, replies):
    (findings / "sides.jsonl").write_text(FINDING_LINES[0])
    runs = [replies([word], f"{word}.jsonl") for word in ("yes", "no")]

    single = medtasks("compare", "sides", *runs, "--include_path", findings)

    assert (
        "difference −100.0 pts; 1 image cannot show any difference at this level." in single.out
    )


def test_a_group_of_the_user_is_opened_if_all_its_tasks_are_known(folder):
    (folder / "ours.yaml").write_text("group: ours\ntask: [sides, ours]\n")
    (folder / "mixed.yaml").write_text("group: mixed\ntask: [sides, somebody_elses]\n")
    with including([folder]):
        assert tasks_of("ours") == ["sides"]
        assert tasks_of("mixed") == []  # the harness opens it
        assert select(["mixed", "ours", "sides_sanity"]).ready == (
            "mixed",
            "ours",
            "sides_sanity",
        )


def test_a_group_with_a_foreign_task_is_reported_by_its_own_score(folder):
    (folder / "mixed.yaml").write_text("group: mixed\ntask: [sides, somebody_elses]\n")
    section_of = TaskRun(
        "mixed", scores={"accuracy,none": 0.5}, members=("sides", "somebody_elses")
    )
    with including([folder]):
        report = section(section_of).report
    assert report.rules[0].scores[0].value == 0.5
    assert report.missing == ("It is a group: its scores summarise sides, somebody_elses.",)
