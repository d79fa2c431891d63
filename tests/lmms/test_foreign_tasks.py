"""Tasks of others in a run with ours: the harness's own benchmarks, and users' plain YAML of each output type."""

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from datasets import Image as ImageFeature
from lmms_eval.api.model import lmms
from PIL import Image

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failed_reply
from medtasks.runs.reply_envelope import parse_loglikelihood

from ..processes import run_here
from ..tables import each_row
from .whole_runs import evaluate

OPTIONS = ["left lung", "right", "both lungs of the patient"]
QUESTIONS = [
    {
        "doc_id": f"q{row}",
        "question": f"Side {row}?",
        "options": OPTIONS,
        "answer": "ABC"[row % 3],
        "label": row % 3,
    }
    for row in range(9)
]
PLAIN = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
output_type: {kind}
"""
MEAN = "{metric: %s, aggregation: mean, higher_is_better: true}"
CHOICES = 'doc_to_choice: "{{options}}"\ndoc_to_target: "{{label}}"\n'
LETTER = 'doc_to_target: "{{answer}}"\n'
HOOKS = """\
def letter(doc, results):
    return {"hit": float(results[0] == doc["answer"])}


def smallest(doc, results):
    losses = [loss for loss, _ in results]
    return {"hit": float(losses.index(min(losses)) == doc["label"])}


def question(doc, lmms_eval_specific_kwargs=None, **round_facts):
    if round_facts.get("round_idx") is None:
        return doc["question"]
    return None, None, True, [*round_facts["previous_output"]], None
"""


def metrics(*names):
    return f"metric_list: [{', '.join(MEAN % name for name in names)}]\n"


def reading(rule, function="ReadWith"):
    step = f"function: !function medtasks.hooks.filters.{function}, rule: {rule}"
    return f"filter_list: [{{name: robust, filter: [{{{step}}}]}}]\n"


TASKS = {
    "plain_choice": ("multiple_choice", CHOICES + metrics("acc", "acc_norm", "exact_match")),
    "plain_text": ("loglikelihood", 'doc_to_target: " left lung"\n' + metrics("acc")),
    "plain_reply": ("generate_until", LETTER + metrics("exact_match")),
    "hooked_choice": (
        "multiple_choice",
        CHOICES + "process_results: !function hooks.smallest\n" + metrics("hit"),
    ),
    "chosen_choice": (
        "multiple_choice",
        CHOICES + metrics("acc") + reading("untied", "ChooseWith"),
    ),
    "read_reply": (
        "generate_until",
        LETTER + metrics("exact_match") + reading("robust_choice"),
    ),
    "read_hook": (
        "generate_until",
        LETTER
        + "process_results: !function hooks.letter\n"
        + metrics("hit")
        + reading("robust_choice"),
    ),
}


def write_own_tasks(folder):
    """Write plain task files of a user, with their questions and hooks, into a new folder."""
    folder.mkdir()
    file = folder / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, QUESTIONS)))
    (folder / "hooks.py").write_text(HOOKS)
    for name, (kind, settings) in TASKS.items():
        (folder / f"{name}.yaml").write_text(
            PLAIN.format(name=name, file=file, kind=kind) + settings
        )
    return folder


@pytest.fixture
def own(tmp_path):
    """A folder with plain task files of a user."""
    return write_own_tasks(tmp_path / "own")


class Scripted(lmms):
    """A model with a reply to each row, and with a loss for each row and option."""

    def __init__(self, replies, losses=()):
        super().__init__()
        self.replies, self.losses = replies, losses

    def generate_until(self, requests):
        return [self.replies[request.doc_id] for request in requests]

    def loglikelihood(self, requests):
        return [self.losses[request.doc_id][request.idx] for request in requests]

    generate_until_multi_round = generate_until


def losses_of(best):
    """Losses by which the option with an index is the likeliest in each row."""
    return [
        [(float(index != choice) + 0.5, index == choice) for index in range(3)]
        for choice in best
    ]


POLITE = [f"The answer is: {question['answer']}" for question in QUESTIONS]


def test_downstream_of_our_filters_is_the_answer(own):
    replies = [*POLITE[:6], "I cannot tell.", "A and B", failed_reply("no memory")]
    model = Scripted(replies, losses_of([0, 1, 2, 0, 1, 2, 1, 1, 1]))
    names = ["read_reply", "read_hook", "chosen_choice", "hooked_choice"]
    results = evaluate(names, model, include=own)["results"]
    assert results["read_reply"]["exact_match,robust"] == pytest.approx(6 / 9)
    assert results["read_hook"]["hit,robust"] == pytest.approx(6 / 9)
    assert results["chosen_choice"]["acc,robust"] == pytest.approx(
        7 / 9
    )  # of the last three the middle one
    assert results["hooked_choice"]["hit,none"] == pytest.approx(7 / 9)


def test_likelihoods_have_the_values_of_the_harness(own):
    losses = losses_of([0, 1, 2, 0, 0, 0, 0, 0, 0])
    results = evaluate(["plain_choice", "plain_text"], Scripted((), losses), include=own)[
        "results"
    ]
    assert results["plain_choice"]["acc,none"] == pytest.approx(5 / 9)
    assert results["plain_choice"]["exact_match,none"] == pytest.approx(
        5 / 9
    )  # the greedy flag of the right option
    assert results["plain_text"]["acc,none"] == pytest.approx(7 / 9)  # the flag of the first


def test_a_failed_likelihood_is_chosen_by_no_one_and_counted(own, capsys):
    losses = losses_of([2] * 9)
    for row in range(9):
        losses[row][row % 3] = (math.nan, False)  # the harness would choose it, as the smallest
    results = evaluate(["plain_choice"], Scripted((), losses), include=own)["results"]
    assert results["plain_choice"]["acc,none"] == 0
    assert "plain_choice: 9 likelihoods failed" in capsys.readouterr().err


def test_a_filter_without_its_options_is_refused_before_the_first_request(own):
    file = own / "questions.jsonl"
    file.write_text(
        "\n".join(json.dumps({**question, "options": None}) for question in QUESTIONS)
    )

    class Unasked(Scripted):
        def generate_until(self, requests):
            raise AssertionError("asked")

    sentence = r"the rule 'robust_choice' reads an answer among options, and the documents have no column 'options'"
    with pytest.raises(MedTasksError, match=f"read_reply: {sentence}"):
        evaluate(["read_reply"], Unasked(()), include=own)
    verified = run_here(
        ["medtasks", "data", "verify", "read_reply", "--include_path", str(own)], own
    )
    assert verified.returncode == 1
    assert re.search(sentence, " ".join(verified.stdout.split()))


@each_row(
    "task, sentence",
    [
        (
            "mediconfusion",
            "--num_fewshot has no examples to draw for mediconfusion, .*; leave it out",
        ),
        ("mediconfusion_gd", "--num_fewshot has no examples to draw for mediconfusion_gd"),
    ],
)
def test_few_shot_examples_that_a_task_does_not_have_are_refused(
    task, sentence, sample_home, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))
    with pytest.raises(MedTasksError, match=sentence):
        evaluate([task], num_fewshot=2)


def test_few_shot_examples_are_not_ignored_without_a_word(multimedeval_home, tmp_path):
    line = [
        "--model",
        "medtasks_tiny",
        "--model_args",
        "weights=random",
        "--tasks",
        "multimedeval_medqa",
    ]
    command = [str(Path(sys.executable).with_name("lmms_eval")), *line, "--num_fewshot", "2"]
    ran = run_here(command, tmp_path, MEDTASKS_HOME=str(multimedeval_home))
    assert (
        "no effect on multimedeval_medqa, whose files set it to 0; choose multimedeval_medqa_5shot"
        in ran.stderr
    )


@each_row(
    "results, expected",
    [
        (
            [("1.5", "False"), ("2", "True")],
            [(1.5, False), (2.0, True)],
        ),  # as the harness's samples files hold pairs
        ([[0.25, True]], [(0.25, True)]),
        (["(np.float32(0.25), np.True_)"], [(0.25, True)]),
    ],
)
def test_pairs_in_any_form(results, expected):
    assert [parse_loglikelihood(result) for result in results] == expected


def write_benchmarks(folder):
    """Write data of two of the harness's own benchmarks where it looks for them before it asks the Hub."""
    (folder / "hellaswag").mkdir()
    parts = {"ctx_a": "A man sits down", "ctx_b": "he", "activity_label": "Sitting"}
    rows = [
        {
            **parts,
            "endings": [
                f"{word} the {row} chair" * (1 + row % 2)
                for word in ("takes", "leaves", "is", "was")
            ],
        }
        for row in range(12)
    ]
    text = "\n".join(
        json.dumps({**row, "label": str(number % 4)}) for number, row in enumerate(rows)
    )
    for split in ("train", "validation"):
        (folder / "hellaswag" / f"{split}.jsonl").write_text(text)
    data = folder / "lmms-lab-encoder" / "MME" / "data"
    data.mkdir(parents=True)
    table = {
        "question_id": [f"q{row // 2}" for row in range(8)],
        "image": [Image.new("RGB", (16, 16), (row * 20, 0, 0)) for row in range(8)],
        "question": [f"Is it {row}?" for row in range(8)],
        "answer": ["Yes", "No"] * 4,
        "category": ["color"] * 8,
    }
    Dataset.from_dict(table).cast_column("image", ImageFeature()).to_parquet(
        data / "test-00000-of-00001.parquet"
    )


def pairs_in(samples, task):
    """Read the likelihoods of a samples file without our code: arrays of shape (samples, options)."""
    (file,) = samples.glob(f"*_samples_{task}.jsonl")
    records = [json.loads(line) for line in file.read_text().splitlines()]
    pairs = [
        [str(reply[0] if isinstance(reply, list) else reply) for reply in r["filtered_resps"]]
        for r in records
    ]
    losses = np.array(
        [[float(pair.strip("()").split(",")[0]) for pair in row] for row in pairs]
    )
    return records, losses


OURS = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"]


def run_tiny(names, folder, sample_home, *options):
    """Run tasks with the harness; return the rows of their results."""
    line = ["--model", "medtasks_tiny", "--model_args", "weights=random,journal=false"]
    line += ["--batch_size", "16", "--tasks", ",".join(names), *options]
    line += ["--output_path", "out", "--log_samples"]
    variables = {"MEDTASKS_HOME": str(sample_home), "HF_HOME": str(folder / "hf")}
    ran = run_here(
        [str(Path(sys.executable).with_name("lmms_eval")), *line], folder, **variables
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    (file,) = (folder / "out").glob("*_results.json")
    return json.loads(file.read_text())["results"]


@pytest.fixture(scope="module")
def mixed_run(tmp_path_factory, sample_home):
    """Run our tasks with the user's and with benchmarks of the harness; return the folder and the results."""
    folder = tmp_path_factory.mktemp("mixed")
    own = write_own_tasks(folder / "own")
    write_benchmarks(folder)
    names = [*OURS, "hellaswag", "mme", *TASKS]
    results = run_tiny(names, folder, sample_home, "--include_path", str(own))
    assert {*names} <= {*results}
    return folder / "out", results


@pytest.mark.slow
def test_a_benchmark_of_the_harness_has_the_values_of_the_harness(mixed_run):
    out, results = mixed_run
    records, losses = pairs_in(out, "hellaswag")
    targets = np.array([int(record["target"]) for record in records])
    lengths = np.array(
        [[len(f"{text}") for text in choices_of(record["doc_id"])] for record in records]
    )
    assert results["hellaswag"]["acc,none"] == np.mean(losses.argmin(1) == targets)
    assert results["hellaswag"]["acc_norm,none"] == np.mean(
        (losses / lengths).argmin(1) == targets
    )


@pytest.mark.slow
@each_row(
    "task, metric",
    [
        ("plain_choice", "acc,none"),
        ("hooked_choice", "hit,none"),
        ("chosen_choice", "acc,robust"),
    ],
)
def test_tasks_of_the_user_choose_the_likeliest_option(mixed_run, task, metric):
    out, results = mixed_run
    _, losses = pairs_in(out, "plain_choice")
    labels = np.array([question["label"] for question in QUESTIONS])
    assert results[task][metric] == np.mean(losses.argmin(1) == labels), task


@pytest.mark.slow
def test_other_tasks_in_a_run_do_not_change_ours(mixed_run, sample_home, tmp_path):
    _, results = mixed_run
    for task, row in run_tiny(OURS, tmp_path, sample_home).items():
        assert row == results[task]


def choices_of(row):
    return [
        f"{word} the {row} chair" * (1 + row % 2) for word in ("takes", "leaves", "is", "was")
    ]
