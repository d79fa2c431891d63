"""MMMU-Pro's Health & Medicine: from published files to its overall score, and the authors' own recorded replies."""

import gzip
import json
import math
import sys
from collections import Counter

import pytest
from typer.testing import CliRunner

from medtasks.audit.scoring import score_replies
from medtasks.cli.main import app as command_line
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.data.variants import rotated
from medtasks.errors import SourceError
from medtasks.extract.extractor_registry import extractor_of
from medtasks.families.family import Reply
from medtasks.prompts.template import target
from medtasks.tasks.task_files import task_config, task_file, task_files, tasks_of
from medtasks.tasks.task_index import resolved

from ..damages import lost, row
from ..processes import run_here
from ..tables import each_row
from . import tiny_mmmu_pro
from .whole_runs import answering, evaluate, values

STANDARD, VISION = "mmmu_pro_med_standard_10", "mmmu_pro_med_vision"
TASKS = [name for name, task in task_files().items() if name.startswith("mmmu_pro_med") and task.kind == "task"]
FILE = "standard (10 options)/test-00000-of-00002.parquet"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A data folder with all three settings, prepared as a user does it."""
    folder = tmp_path_factory.mktemp("mmmu_pro")
    source = tiny_mmmu_pro.put_source(folder / "source")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        for name in tiny_mmmu_pro.SETS:
            command = ["data", "prepare", name, "--source", str(source)]
            refused = CliRunner().invoke(command_line, command)
            assert "the source holds 6 rows, the evaluated set 286" in str(refused.exception)
            made = CliRunner().invoke(command_line, [*command, "--allow-incomplete"])
            assert made.exit_code == 0, made.output
            assert CliRunner().invoke(command_line, ["data", "verify", name]).exit_code == 0
    return folder / "home"


@pytest.fixture
def prepared(home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))


def test_documents(prepared):
    for name in tiny_mmmu_pro.SETS:
        documents = load_documents(name)
        assert [one["doc_id"].rpartition("_")[2] for one in documents] == ["0", "1", "2", "4", "5", "6"]
        assert {one["subject"] for one in documents} == set(tiny_mmmu_pro.SUBJECTS)
        assert [one["answer"] for one in documents] == list("BADADB")
        assert [len(one["options"]) for one in documents] == [3, *[4 if name.endswith("_4") else 10] * 5]
        assert [len(one["image_files"]) for one in documents] == [1 if name == VISION else 3, *[1] * 5]
        assert {bool(one["question"]) for one in documents} == {name != VISION}


@each_row(
    ("damage", "sentence"),
    [
        (lost("standard (10 options)"), r"holds no standard \(10 options\)/test-\*\.parquet"),
        (lost(FILE), "part 00000 of 00002 is missing"),
        (row(FILE, 2, answer="K"), "row 2: answer is none of A, B, C, D, E, F, G, H, I, J"),
        (row(FILE, 2, options="open"), "row 2: options is not the text of a list"),
        (row(FILE, 1, image_2=None), "row 1: its text names <image 3> and it holds fewer images"),
    ],
)
def test_a_source_with_a_fault(tmp_path, damage, sentence):
    source = tiny_mmmu_pro.put_source(tmp_path / "source")
    damage(source)
    with pytest.raises(SourceError, match=sentence):
        prepare(STANDARD, Options(source))


def asked(name, document, family="default"):
    """Return a chat prompt with ``IMAGE`` for each image, the images' colours, and the prompt of a simple model."""
    config = resolved(task_config(name))
    settings = config["lmms_eval_specific_kwargs"][family]
    (turn,) = config["doc_to_messages"](document, settings)
    text = "|".join(part["text"] if part["type"] == "text" else "IMAGE" for part in turn["content"])
    images = [part["url"].getpixel((0, 0)) for part in turn["content"] if part["type"] == "image"]
    shown = [image.getpixel((0, 0)) for image in config["doc_to_visual"](document, settings)]
    assert shown == images
    return text, images, config["doc_to_text"](document, settings)


def test_prompts_are_the_authors(prepared):
    question, plain = load_documents(STANDARD)[:2]
    text, images, simple = asked(STANDARD, question)
    assert simple == (
        "Which image?\nA. <image>\nB. <image>\nC. <image>\n"
        "Answer with the option letter from the given choices directly."
    )
    assert text == f"{simple}|IMAGE|IMAGE|IMAGE"
    # The first image is drawn like the screenshot.
    assert images[2:] == asked(VISION, load_documents(VISION)[0])[1]
    shown = dict(zip(question["options"], images, strict=True))
    assert len(set(images)) == 3
    for turned in rotated([question]):
        assert asked(STANDARD, turned)[1] == [shown[option] for option in turned["options"]]
    interleaved, same, marked = asked(STANDARD, question, "llava_hf")
    assert (same, marked) == (images, simple)
    assert interleaved.startswith("Which image?\nA. |IMAGE|\nB. |IMAGE|\nC. |IMAGE|\nAnswer")
    assert asked(f"{STANDARD}_cot", plain)[2] == (
        "What is 1 in <image>?\n"
        + "".join(f"{letter}. {letter.lower()} it's\n" for letter in "ABCDEFGHIJ")
        + "Answer the preceding multiple choice question. The last line of your response should be of the following "
        "format: 'Answer: $LETTER' (without quotes) where LETTER is one of options. "
        "Think step by step before answering."
    )
    told = "The last line of your response should be of the following format: 'Answer: $LETTER' (without quotes) where "
    direct, reasoned = (asked(name, load_documents(VISION)[0])[0] for name in (VISION, f"{VISION}_cot"))
    assert direct == (
        f"Answer with the option letter from the given choices directly. {told}LETTER is one of options.|IMAGE"
    )
    assert reasoned == (
        f"Write out the multiple-choice question in the image and then solve it. {told}LETTER is one of options. "
        "Think step by step before answering.|IMAGE"
    )


def test_tasks_and_variants():
    assert len(TASKS) == 6
    assert sorted(tasks_of("mmmu_pro_med")) == TASKS
    for name in TASKS:
        task = task_file(name)
        assert ("rotated" in task.variants) == ("vision" not in name)  # the options of a screenshot stay
        assert bool(task.thinking) == (not name.endswith("_cot"))


def test_the_overall_score_is_the_mean_of_two_settings(prepared):
    def say(document):
        if document["dataset"] == VISION:
            return "no idea"
        return f"I see.\nAnswer: {target(document)}"

    found = evaluate(["mmmu_pro_med"], answering(say))
    for name in TASKS:
        scores = values(found, name)
        read = VISION not in name
        assert scores["accuracy", "robust"] == float(read)
        assert scores["fallback_rate", "reference"] == float(not read)
        assert scores["accuracy", "reference"] == 1.0 if read else scores["accuracy", "reference"] < 1
    for ending in ("", "_cot"):
        overall = found["results"][f"mmmu_pro_med_overall{ending}"]
        assert overall["accuracy,robust"] == 0.5
        assert overall["accuracy,reference"] == (1 + values(found, f"{VISION}{ending}")["accuracy", "reference"]) / 2
        assert math.isnan(overall["accuracy_stderr,robust"])


def test_runs_of_the_tiny_model(home, tmp_path):
    variants = [*(f"{STANDARD}_{name}" for name in ("blind", "rotated", "think_boxed")), f"{VISION}_swapped"]
    command = [
        *(sys.executable, "-m", "medtasks.cli.main", "run", "--model", "medtasks_tiny", "--device", "cpu"),
        *("--tasks", ",".join(["mmmu_pro_med", *variants]), "--model_args", "journal=false", "--batch_size", "8"),
        *("--gen_kwargs", "max_new_tokens=4", "--output_path", str(tmp_path)),
    ]
    ran = run_here(command, tmp_path, MEDTASKS_HOME=str(home))
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    (file,) = tmp_path.rglob("*_results.json")
    samples = {name: counts["effective"] for name, counts in json.loads(file.read_text())["n-samples"].items()}
    assert samples == {**dict.fromkeys([*TASKS, *variants], 6), f"{STANDARD}_rotated": 3 + 5 * 10}


def test_golden_mmmu_pro_authors_answers(test_data):
    files = sorted((test_data / "real_replies" / "mmmu_pro").glob("*.jsonl.gz"))
    if not files:
        pytest.skip(f"no recorded replies in {test_data}")
    rule = extractor_of("mmmu_pro").extract
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        documents = [
            {
                "doc_id": one["id"],
                "image_id": None,
                "subject": one["id"].partition("_")[2].rpartition("_")[0],
                "options": one["options"],
                "answer": one["gold"],
            }
            for one in rows
        ]
        right, drawn = Counter(), Counter()
        for one, document in zip(rows, documents, strict=True):
            answer = rule(one["reply"], Sample(document))
            assert answer.value == one["authors_answer"], (file.name, one["id"])
            assert answer.facts.get("draws") == (None if one["authors_answer"] else len(one["options"]))
            right[document["subject"]] += one["authors_answer"] == one["gold"]
            drawn[document["subject"]] += one["authors_answer"] is None
        # The authors read the object of a failed request as an empty reply.
        replies = {one["id"]: Reply.of_text(one["reply"] or "") for one in rows}
        rules = score_replies(task_file(STANDARD), documents, replies)
        groups = {group.name: group for group in rules["reference"].groups["subject"]}
        assert groups.keys() == right.keys()
        for subject, group in groups.items():
            counted = round(group.scores[0].value * group.questions)
            assert right[subject] <= counted <= right[subject] + drawn[subject], (file.name, subject)
