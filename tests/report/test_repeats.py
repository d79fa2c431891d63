"""Repeats joined: the same numbers whatever their order, votes, ties and failures; and one run from the command."""

import json
import math
import random
import statistics
from dataclasses import replace

import pytest

from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError
from medtasks.extract.failure import failed_reply
from medtasks.families.family import Reply
from medtasks.report.repeats import collect_repeats, join, write_repeats
from medtasks.running.harness_run import repeat_notices, seed_arguments
from medtasks.runs.harness_options import HarnessOptions, read_options
from medtasks.runs.result_files import repeat_folder, repeat_folders
from medtasks.runs.run import open_run
from medtasks.scores.task_reading import given_replies, read_task
from medtasks.stats.intervals import interval
from medtasks.tasks.task_files import task_file

from .. import tiny_multimedeval
from ..made_up_runs import write_run
from ..recorded_runs import TINY, in_this_process, medtasks, record
from ..stats import error_matrices
from ..tables import each_row

pytestmark = pytest.mark.usefixtures("sample")
TASK = "mediconfusion_think"
REPLIES = (
    "<think>?</think>A",
    "\\boxed{B}",
    "<think>B",
    "<think></think>I cannot tell.",
    failed_reply("no memory"),
)


def reading(replies):
    documents = load_documents("mediconfusion")
    by_id = {
        document["doc_id"]: Reply.of_text(text)
        for document, text in zip(documents, replies, strict=False)
    }
    return given_replies(task_file(TASK), documents, by_id)


def joined(*repeats):
    (row,) = join([reading(replies) for replies in repeats], [None] * len(repeats)).rows
    return row, {score.metric: score for score in row.scores}


def test_the_same_numbers_whatever_the_order():
    chance = random.Random(3)
    replies = [[chance.choice(REPLIES) for _ in range(32)] for _ in range(5)]
    readings = [reading(of_repeat) for of_repeat in replies]
    first = join(readings, [3, 1, 2, 5, 4])
    for _ in range(5):
        chance.shuffle(readings)
        samples = readings[0].samples  # and of the samples within a repeat
        shuffled = dict(chance.sample(sorted(samples.replies.items()), len(samples.replies)))
        readings[0] = given_replies(readings[0].task, readings[0].documents, shuffled)
        assert repr(join(readings, [1, 2, 3, 4, 5])) == repr(first)
    assert first.seeds == (1, 2, 3, 4, 5)
    assert first.rows[0].ties > 0
    assert first.rows[0].failed_replies == sum(
        of_repeat.count(REPLIES[-1]) for of_repeat in replies
    )


def test_a_joined_score_is_a_mean_over_repeats_with_its_spread():
    keys = [document["answer"] for document in load_documents("mediconfusion")]
    right = [f"<think>.</think>{key}" for key in keys]
    wrong = [f"<think>.</think>{'AB'['BA'.index(key)]}" for key in keys]
    _, scores = joined(right, wrong, right[:16] + wrong[16:])
    accuracy = scores["individual_accuracy"]
    assert accuracy.values == (0.0, 0.5, 1.0)
    assert (accuracy.mean, accuracy.spread) == (0.5, statistics.stdev((0, 0.5, 1)))
    assert (accuracy.majority.value, accuracy.share, scores["incomplete_pairs"].share) == (
        0.5,
        True,
        False,
    )
    assert not math.isnan(accuracy.majority.low)
    assert joined(right, right, wrong)[1]["set_accuracy"].majority.value == 1
    # The mean has an interval over questions that were averaged first.
    chance = random.Random(5)
    documents = load_documents("mediconfusion")
    replies = [[f"<think>.</think>{chance.choice('AB')}" for _ in documents] for _ in range(4)]
    _, scores = joined(*replies)
    right = {}
    for document, *texts in zip(documents, *replies, strict=True):
        values = [float(text.endswith(document["answer"])) for text in texts]
        right[document["pair_id"], document["position"]] = values
    images = {
        pair: [item["image_id"] for item in documents if item["pair_id"] == pair]
        for pair, _ in right
    }
    single = [[right[pair, 1][k] * right[pair, 2][k] for k in range(4)] for pair in images]
    answers = [
        [(right[pair, 1][k] + right[pair, 2][k]) / 2 for k in range(4)] for pair in images
    ]
    for name, by_pair in (("set_accuracy", single), ("individual_accuracy", answers)):
        error, degrees = error_matrices.dyadic(
            [sum(values) / 4 for values in by_pair], list(images.values())
        )
        score = scores[name]
        assert score.error == pytest.approx(error)
        ends = interval(
            score.mean,
            error,
            degrees,
            share=True,
            effective=score.mean * (1 - score.mean) / error**2,
        )
        assert (score.low, score.high) == pytest.approx(ends)
    within = statistics.fmean(statistics.variance(values) for values in single)
    means = [statistics.fmean(values) for values in single]
    assert scores["set_accuracy"].within == pytest.approx(within)
    assert scores["set_accuracy"].between == pytest.approx(
        max(0.0, statistics.variance(means) - within / 4)
    )
    assert math.isnan(scores["incomplete_pairs"].error)  # no mean over questions


def test_gains_take_the_mean_of_all_repeats(tmp_path):
    names = ("mediconfusion", "mediconfusion_blind")
    for number, skill in enumerate((0.6, 0.7, 0.8), 1):
        write_run(tmp_path / f"repeat_{number}", names, skill, number)
    report = collect_repeats(tmp_path)
    assert "Gains take the mean of each question over all repeats." in report.notes[0]
    (task,) = (task for task in report.tasks if task.name == "mediconfusion")
    (gain, of_first) = (
        next(gain for gain in tasks.gains if gain.metric == "individual_accuracy")
        for tasks in (task, collect_repeats(tmp_path / "repeat_1").tasks[0])
    )
    means = []
    for name in names:
        readings = [
            read_task(open_run(folder).tasks[name], task_file(name))
            for folder in repeat_folders(tmp_path)
        ]
        means.append(
            statistics.fmean(
                r.computed["robust"].report.estimates[gain.metric].value for r in readings
            )
        )
    assert (gain.score, gain.variant_score) == pytest.approx(tuple(means))
    first = next(rule for rule in task.rules if rule.name == "robust").estimates[gain.metric]
    assert first.value != gain.score  # the scores of the page are those of the first repeat
    assert gain.high - gain.low < of_first.high - of_first.low


def test_failed_replies_have_no_vote():
    failed, none = failed_reply("no memory"), "<think>never ends"
    right = [
        f"\\boxed{{{document['answer']}}}" for document in load_documents("mediconfusion")[:4]
    ]
    row, scores = joined(
        [right[0], failed, none, none],
        [failed, failed, none, right[3]],
        [none, failed, failed, none],
    )
    assert (row.samples, row.failed_samples, row.failed_replies) == (4, 1, 5)
    # The third question, of those with a reply.
    assert scores["invalid_rate"].majority.value == 1 / 3
    assert scores["individual_accuracy"].majority.value == 2 / 3


def test_a_tie_is_broken_by_a_digest():
    a, b = ([f"<think></think>{letter}"] * 32 for letter in "AB")

    row, scores = joined(a, b)

    assert row.ties == 32
    # Neither always A nor always the first.
    assert 0.2 < scores["individual_accuracy"].majority.value < 0.8
    assert repr(row) == repr(joined(b, a)[0])


def test_withheld_answers_have_no_majority():
    shown = reading(["<think>.</think>A"] * 4)
    samples = shown.computed["robust"].samples
    without = {
        name: {key: value for key, value in score.items() if key != "value"}
        for name, score in samples.items()
    }
    hidden = replace(
        shown,
        withheld=True,
        computed={"robust": replace(shown.computed["robust"], samples=without)},
    )
    (row,) = join([hidden, hidden], [None] * 2).rows
    assert (row.samples, {score.majority for score in row.scores}) == (0, {None})


def test_equal_replies_to_other_seeds_are_noted():
    shown = reading(["<think>.</think>A"] * 4)

    (note,) = join([shown, shown], [1, 2]).notes
    assert "the seed did not reach the model" in note


def test_texts_vote_in_lower_case(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("vqa_rad")
    task, documents = (
        task_file("multimedeval_vqa_rad_think"),
        load_documents("multimedeval_vqa_rad"),
    )
    readings = []
    for form in (
        "<answer>no idea at all</answer>",
        "<think>no, or yes</think><answer>{}.</answer>",
        "\\boxed{{{}}}",
    ):
        answers = {
            item["doc_id"]: item["answer"].upper() if "think" in form else item["answer"]
            for item in documents
        }
        replies = {
            doc_id: Reply.of_text(form.format(answer)) for doc_id, answer in answers.items()
        }
        readings.append(given_replies(task, documents, replies))
    (row,) = join(readings, [None] * 3).rows
    assert (
        next(score for score in row.scores if score.metric == "closed_accuracy").majority.value
        == 1
    )
    assert row.ties == 0


def test_each_repeat_has_its_own_seeds():
    tiny = [
        "--model",
        "medtasks_tiny",
        "--model_args",
        "journal=false,seed=7",
        "--seed",
        "5,6,7,8",
    ]
    first, third = (read_options(seed_arguments(tiny, number)) for number in (1, 3))
    assert first.given["seed"] == "5,6,7,8"
    assert third.given["seed"] == "7,8,9,8"  # examples are chosen as before
    assert first.model_arguments() == {"journal": "false", "seed": "7"}
    assert third.model_arguments()["seed"] == "9"


def test_the_seed_of_a_server_is_a_generation_setting():
    server = read_options(
        seed_arguments(["--model", "openai", "--gen_kwargs", "temperature=1"], 2)
    )
    assert server.pairs("gen_kwargs") == {"temperature": "1", "seed": "1235"}


def test_a_seed_that_is_no_number_is_refused():
    with pytest.raises(MedTasksError, match="no whole number"):
        seed_arguments(["--model", "medtasks_tiny", "--model_args", "seed=x"], 1)


def test_shards_are_not_repeated(tmp_path):
    with in_this_process(), pytest.raises(MedTasksError, match="do not go together"):
        medtasks(
            "run",
            "--tasks",
            TASK,
            "--output_path",
            tmp_path,
            *TINY,
            "--repeats",
            "2",
            "--shard",
            "1/2",
        )


@each_row(
    "names, given, repeats, words",
    [
        ([TASK], {}, 2, "--gen_kwargs temperature=0.6,do_sample=true"),
        (
            [TASK],
            {"gen_kwargs": "temperature=0.6"},
            2,
            "temperature 0",
        ),  # the task's file says do_sample: false
        (
            ["mediconfusion_gd"],
            {"gen_kwargs": "temperature=0.6,do_sample=true"},
            2,
            "compared by likelihood",
        ),
        (
            [TASK],
            {"gen_kwargs": "temperature=0.6,do_sample=true", "use_cache": "x"},
            2,
            "--use_cache",
        ),
        ([TASK], {"repeats": "4"}, 1, "--num_samples"),
        ([TASK], {"gen_kwargs": "temperature=0.6,do_sample=true"}, 2, None),
        ([TASK], {}, 1, None),
    ],
)
def test_what_is_refused(names, given, repeats, words):
    notices = list(repeat_notices(names, HarnessOptions(given), repeats))
    assert [words in notice.sentence for notice in notices] == ([True] if words else [])


@pytest.mark.slow
def test_one_command_runs_and_joins_them(sample_home, tmp_path, capsys):
    sampled = (
        "--gen_kwargs",
        "temperature=9,do_sample=true,max_new_tokens=4",
        "--limit",
        "4",
        "--batch_size",
        "8",
    )
    record(sample_home, tmp_path, TASK, *sampled, "--repeats", "2")
    printed = capsys.readouterr().out
    assert "repeat 2 of 2, seed 1235" in printed
    assert "Majority" in printed
    assert repeat_folders(tmp_path) == [repeat_folder(tmp_path, number) for number in (1, 2)]
    written = json.loads((tmp_path / "repeats.json").read_text())
    assert written["schema_version"] == 1
    (task,) = written["tasks"].values()
    assert (task["seeds"], task["notes"]) == ([1234, 1235], [])  # other seeds, other replies
    assert write_repeats(tmp_path)[TASK].repeats == 2
    with pytest.raises(
        MedTasksError, match=r"holds 2 repeats of a run; give one of them, such as .*repeat_1"
    ):
        open_run(tmp_path)

    def after(first, second, wanted="2"):
        for number, options in enumerate((first, second), 1):
            (path,) = repeat_folder(tmp_path, number).glob("*_run.json")
            manifest = json.loads(path.read_text())
            manifest["command"][manifest["command"].index("--repeats") + 1] = wanted
            manifest["options"] |= options
            path.write_text(json.dumps(manifest))
        task = write_repeats(tmp_path)[TASK]
        return task.repeats, *(note.partition("other arguments: ")[2] for note in task.notes)

    assert after({}, {}, "1") == (1, "repeat_2.")  # of an older and longer call
    assert after({}, {}, "3") == (2, "repeat_3.")  # one that never began
    sampling = sampled[1]
    assert after(
        {"gen_kwargs": f"{sampling},seed=0"}, {"gen_kwargs": f"{sampling},seed=1"}
    ) == (2,)
    assert after({"limit": "4"}, {"limit": "5"}) == (1, "repeat_1.")
    assert after({}, {"limit": "4", "gen_kwargs": f"{sampling},top_p=0.5,seed=1"}) == (
        1,
        "repeat_1.",
    )
