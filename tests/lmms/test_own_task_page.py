"""Every YAML of the page on own tasks, as it is printed there: one run, then all that reads its results."""

import itertools
import json
import math
import re
import shutil
from pathlib import Path

import pytest
import yaml
from PIL import Image

from medtasks.data.images.decoding import NEARLY_FLAT
from medtasks.data.variants import VARIANTS
from medtasks.home import own_tasks_folder
from medtasks.prompts.template import prompt
from medtasks.tasks.task_index import read_config

from ..cli.conftest import medtasks  # noqa: F401  # a fixture
from ..processes import run_here
from ..recordings import recordings
from ..tables import each_row
from .whole_runs import answer_questions, answering, evaluate

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "own_tasks.md"
COPIES = 3
YAML = re.findall(
    r"```yaml\n(.*?)```\n(?:\n```json\n(.*?)```)?", PAGE.read_text(encoding="utf-8"), re.DOTALL
)
BLOCKS = [block for block in YAML if block[1]]
NAMES = [re.match(r"task: (\w+)\n", text)[1] for text, _ in BLOCKS]
ASKED = [
    *NAMES,
    *(f"own_choice_{one}" for one in VARIANTS),
    "own_pairs_swapped",
    "own_pairs_rotated",
]
ASKED += [
    "own_classes_rotated",
    "own_several_rotated",
    "own_yes_no_blind",
    "own_reports_swapped",
    "own_choice_think",
]
PUBLISHED = (
    recordings("MEDTASKS_TEST_DATA", "data") / "medevalkit" / "MedVLThinker-Eval" / "data"
)
WHOLE = {
    re.search(r"^task: (\w+)$", text, re.MULTILINE)[1]: text for text, rows in YAML if not rows
}  # no questions of their own
if PUBLISHED.is_dir():
    ASKED += ["medvlthinker_eval", "medvlthinker_eval_swapped", "medvlthinker_eval_rotated"]


def draw(files, shade):
    """Draw an image for each file, those numbered 1 with one pixel of another colour."""
    for file in files:
        image = Image.new("RGB", (40, 30), (80 * shade, 50 * int(file.stem[1:]), 0))
        image.putpixel(
            (0, 0), (80 * shade, 50 * int(file.stem[1:]), 255 * file.name.endswith("1.png"))
        )
        image.save(file)


def write_blocks(folder, copies=1):
    """Copy the page's blocks, and draw their images; copies of the printed rows have other images and other pairs."""
    (folder / "images").mkdir(parents=True)
    for name, (text, printed) in zip(NAMES, BLOCKS, strict=True):
        (folder / f"{name}.yaml").write_text(text)
        lines = []
        for copy, line in itertools.product(range(copies), printed.splitlines()):
            row = json.loads(line)
            if "pair_id" in row:
                row["pair_id"] += f"-{copy}"
            for key in {"image_file", "image_files"} & row.keys():
                shown = row[key] if isinstance(row[key], list) else [row[key]]
                copies_of_shown = [file.replace("images/", f"images/{copy}") for file in shown]
                draw([folder / file for file in copies_of_shown], copy)
                row[key] = copies_of_shown if isinstance(row[key], list) else copies_of_shown[0]
            lines.append(json.dumps(row) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    project = tmp_path_factory.mktemp("project")
    folder = write_blocks(project / "my_tasks", COPIES)
    if PUBLISHED.is_dir():
        (folder / "medvlthinker_eval.yaml").write_text(WHOLE["medvlthinker_eval"])
        shutil.copyfile(next(PUBLISHED.iterdir()), folder / "medvlthinker_eval.parquet")
    return project


@pytest.fixture(scope="module")
def ran(project):
    """The results of one process of the harness, started in the project's folder."""
    command = [
        "python",
        "-m",
        "lmms_eval",
        "--model",
        "medtasks_tiny",
        "--tasks",
        ",".join(ASKED),
        "--log_samples",
    ]
    options = ["--include_path", "my_tasks", "--output_path", "results", "--batch_size", "32"]
    options += ["--gen_kwargs", "max_new_tokens=8"]
    process = run_here([*command, *options], project, MEDTASKS_HOME=str(project / "home"))
    assert process.returncode == 0, process.stderr[-4000:]
    assert re.search(
        rf"\d+ of \d+ images are {NEARLY_FLAT} \(.*/02.png of sample ", process.stderr
    )
    found = list((project / "results").rglob("*_results.json"))
    assert len(found) == 1, (process.stdout + process.stderr)[-6000:]
    return found[0]


def samples_of(ran, task):
    return next(ran.parent.glob(f"*_samples_{task}.jsonl"))


def test_every_block_runs_as_printed(ran, project):
    content = json.loads(ran.read_text())
    assert set(ASKED) <= set(content["results"])
    for name, (_, printed) in zip(NAMES, BLOCKS, strict=True):
        assert content["n-samples"][name]["original"] == COPIES * len(printed.splitlines())
        filters = {
            one["name"]
            for one in read_config(project / "my_tasks" / f"{name}.yaml")["filter_list"]
        }
        scores = content["results"][name]
        assert {key.partition(",")[2] for key in scores if "," in key} == filters
        main = [
            value
            for key, value in scores.items()
            if key.endswith(f",{min(filters)}") and "_stderr" not in key
        ]
        assert any(isinstance(value, float) and math.isfinite(value) for value in main)


def test_score(ran, project, medtasks, tmp_path):  # noqa: F811
    recorded = json.loads(ran.read_text())["results"]
    for name in (name for name in ASKED if not name.startswith("own_reports")):
        options = [
            "--include_path",
            project / "my_tasks",
            "--max-failed",
            "100%",
            "--json",
            tmp_path / "scores.json",
        ]
        found = medtasks("score", name, samples_of(ran, name), *options)
        assert (found.code, found.err) == (0, ""), name
        scores = json.loads((tmp_path / "scores.json").read_text())
        assert scores["missing"] == 0
        assert re.fullmatch("[0-9a-f]{12}", scores["data"]["fingerprint"])
        for rule, one in scores["rules"].items():
            for metric, value in one.get("metrics", {}).items():
                key = f"{metric},{rule}"
                assert value is None or value == pytest.approx(recorded[name][key]), (name, key)


def test_questions_in_files_score_as_the_run_did(ran, project, medtasks, tmp_path):  # noqa: F811
    recorded = json.loads(ran.read_text())["results"]
    include = ["--include_path", project / "my_tasks"]
    for name in [*NAMES, "own_several_rotated", "own_choice_abstain", "own_choice_think"]:
        folder = tmp_path / name
        assert medtasks("questions", name, "--out", folder, *include).code == 0
        answer_questions(folder, max_new_tokens=8)
        medtasks(
            "score", name, folder, *include, "--json", tmp_path / "scores.json"
        )  # weights of reports are missing
        scores = json.loads((tmp_path / "scores.json").read_text())
        assert scores["missing"] == 0
        for rule, one in scores["rules"].items():
            for metric, value in one.get("metrics", {}).items():
                expected = recorded[name][f"{metric},{rule}"]
                assert value == expected or (value is None and math.isnan(expected)), (
                    name,
                    metric,
                    rule,
                )


def test_golden_medevalkit_medvlthinkers_prompt(golden):
    config = yaml.load(
        WHOLE["medvlthinker_eval"].replace("!function", ""), Loader=yaml.SafeLoader
    )
    settings = config["lmms_eval_specific_kwargs"]["default"]
    for line in (
        (golden / "medevalkit" / "medvlthinker_prompts.jsonl").read_text("utf-8").splitlines()
    ):
        case = json.loads(line)
        document = {
            "question": case["question"],
            "options": list(case["options"].values()),
            "image_files": [],
        }
        assert prompt(document, settings) == case["content"][-1]["text"]


def test_open_questions_with_a_judge(project, judging):
    folder, task = shutil.copytree(project / "my_tasks", own_tasks_folder()), "own_open_judged"
    (folder / f"{task}.yaml").write_text(WHOLE[task])
    judge = judging(lambda body: "<think>so</think><judge>0</judge>")
    rows = [json.loads(line) for line in (folder / "own_open.jsonl").read_text().splitlines()]
    replies = {
        row["question"]: "It is the hepar." if row["answer"] == "the liver" else "No."
        for row in rows
    }
    found = evaluate([task], answering(lambda doc: replies[doc["question"]]))
    scores = found["results"][task]
    for name, value in (("acc_open", 1), ("acc_closed", 0)):
        assert scores[f"{name},robust"] == scores[f"{name},fenced"] == value
    assert "the liver" in judge.bodies[0]["messages"][-1]["content"]


RIGHT = {
    "own_choice": ("accuracy", lambda row: f"The answer is {row['answer']}."),
    "own_pairs": ("set", lambda row: row["answer"]),
    "own_bleu": ("accuracy", lambda row: row["options"]["ABC".index(row["answer"])]),
    "own_yes_no": ("accuracy", lambda row: row["answer"]),
    "own_open": ("token_recall", lambda row: row["answer"]),
    "own_several": ("mcls_accuracy", lambda row: ",".join(row["answers"])),
    "own_classes": ("macro_f1", lambda row: row["options"][row["label"]]),
    "own_findings": ("macro_f1", lambda row: row["options"][row["labels"].index(1)]),
}


@each_row("name", RIGHT)
def test_right_replies_are_right(name, project, medtasks, tmp_path):  # noqa: F811
    metric, answer = RIGHT[name]
    lines = [
        json.loads(line)
        for line in (project / "my_tasks" / f"{name}.jsonl").read_text().splitlines()
    ]
    recorded = [
        json.dumps({"doc_id": row, "reply": answer(line)}) for row, line in enumerate(lines)
    ]
    (tmp_path / "replies.jsonl").write_text("\n".join(recorded))
    options = ["--include_path", project / "my_tasks", "--json", tmp_path / "scores.json"]
    assert medtasks("score", name, tmp_path / "replies.jsonl", *options).code == 0
    for rule, found in json.loads((tmp_path / "scores.json").read_text())["rules"].items():
        scores = found.get("metrics") or {"set": found["categories"]["total"]["set_accuracy"]}
        assert scores[metric] == 1, (rule, scores)
