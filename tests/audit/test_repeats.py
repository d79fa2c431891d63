"""Repeats joined: the same numbers whatever their order, votes, ties and failures; and one run from the command."""

import json
import math
import random
import statistics
from dataclasses import replace

import pytest

from medtasks.audit.repeats import collected, join, joined_repeats
from medtasks.audit.report.task_reading import given_replies, read_task
from medtasks.data.document_store import load_documents
from medtasks.errors import MedTasksError
from medtasks.extract.failure import failed_reply
from medtasks.families.family import Reply
from medtasks.lmms.server_journal import JOURNAL_VARIABLE
from medtasks.running.harness_run import repeat_notices, repeat_variables, seeded
from medtasks.runs.harness_options import HarnessOptions, read_options
from medtasks.runs.result_files import repeat_folder, repeat_folders
from medtasks.runs.run import read_run
from medtasks.stats.intervals import interval
from medtasks.tasks.task_files import task_file

from ..made_up_runs import write_run
from ..recorded_runs import TINY, in_this_process, medtasks, record
from ..stats import error_matrices
from ..tables import each_row

TASK = "mediconfusion_think"
REPLIES = ("<think>?</think>A", "\\boxed{B}", "<think>B", "<think></think>I cannot tell.", failed_reply("no memory"))


@pytest.fixture(autouse=True)
def _sample(sample_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))


def reading(replies):
    """Return what a repeat left that gave these replies to the first documents; None for one that was not asked."""
    documents = load_documents("mediconfusion")
    given = zip(documents, replies, strict=False)
    found = {one["doc_id"]: Reply.of_text(said) for one, said in given if said is not None}
    return given_replies(task_file(TASK), documents, found)


def row(readings):
    (found,) = join(readings, [None] * len(readings)).rows
    return found


def values(found):
    return {score.metric: score for score in found.scores}


def test_the_same_numbers_whatever_the_order():
    chance = random.Random(3)
    replies = [[chance.choice(REPLIES) for _ in range(32)] for _ in range(5)]
    readings = [reading(one) for one in replies]
    found = join(readings, [3, 1, 2, 5, 4])
    for _ in range(5):
        chance.shuffle(readings)
        samples = readings[0].samples  # and of the samples within a repeat
        shuffled = dict(chance.sample(sorted(samples.replies.items()), len(samples.replies)))
        readings[0] = given_replies(readings[0].task, readings[0].documents, shuffled)
        assert repr(join(readings, [1, 2, 3, 4, 5])) == repr(found)
    assert found.seeds == (1, 2, 3, 4, 5)
    assert found.rows[0].ties > 0
    assert found.rows[0].failed_replies == sum(one.count(REPLIES[-1]) for one in replies)


def test_mean_spread_and_majority():
    documents = load_documents("mediconfusion")
    right = [f"<think>.</think>{one['answer']}" for one in documents]
    wrong = [f"<think>.</think>{'AB'['BA'.index(one['answer'])]}" for one in documents]
    half = right[:16] + wrong[16:]
    found = row([reading(right), reading(wrong), reading(half)])
    accuracy = values(found)["individual_accuracy"]
    assert accuracy.values == (0.0, 0.5, 1.0)
    assert (accuracy.mean, accuracy.spread) == (0.5, statistics.stdev((0, 0.5, 1)))
    assert accuracy.majority.value == 0.5
    assert accuracy.share
    assert not values(found)["incomplete_pairs"].share  # a count
    assert not math.isnan(accuracy.majority.low)
    found = row([reading(right), reading(right), reading(wrong)])
    assert values(found)["set_accuracy"].majority.value == 1


def test_the_mean_has_an_interval_over_questions_that_were_averaged_first():
    chance = random.Random(5)
    documents = load_documents("mediconfusion")
    replies = [[f"<think>.</think>{chance.choice('AB')}" for _ in documents] for _ in range(4)]
    found = values(row([reading(one) for one in replies]))
    right = {
        (one["pair_id"], one["position"]): [float(given[place].endswith(one["answer"])) for given in replies]
        for place, one in enumerate(documents)
    }
    images = {pair: [one["image_id"] for one in documents if one["pair_id"] == pair] for pair, _ in right}
    single = [[right[pair, 1][k] * right[pair, 2][k] for k in range(4)] for pair in images]
    answers = [[(right[pair, 1][k] + right[pair, 2][k]) / 2 for k in range(4)] for pair in images]
    for name, by_pair in (("set_accuracy", single), ("individual_accuracy", answers)):
        error, degrees = error_matrices.dyadic([sum(held) / 4 for held in by_pair], list(images.values()))
        score = found[name]
        assert score.error == pytest.approx(error)
        ends = interval(score.mean, error, degrees, share=True, effective=score.mean * (1 - score.mean) / error**2)
        assert (score.low, score.high) == pytest.approx(ends)
    within = statistics.fmean(statistics.variance(held) for held in single)
    means = [statistics.fmean(held) for held in single]
    assert found["set_accuracy"].within == pytest.approx(within)
    assert found["set_accuracy"].between == pytest.approx(max(0.0, statistics.variance(means) - within / 4))
    assert math.isnan(found["incomplete_pairs"].error)  # no mean over questions


def test_gains_of_a_report_take_the_mean_of_each_question_over_all_repeats(tmp_path):
    names = ("mediconfusion", "mediconfusion_blind")
    for number, skill in enumerate((0.6, 0.7, 0.8), 1):
        write_run(tmp_path / f"repeat_{number}", names, skill, number)
    report = collected(tmp_path)
    assert "Gains and comparisons with other runs take the mean of each question over all repeats." in report.notes[0]
    (task,) = (one for one in report.tasks if one.name == "mediconfusion")
    gain = next(one for one in task.gains if one.metric == "individual_accuracy")
    readings = [[read_task(read_run(folder).tasks[name], task_file(name)) for folder in repeat_folders(tmp_path)]
                for name in names]  # fmt: skip
    means = [statistics.fmean(one.computed["robust"].report.estimates[gain.metric].value for one in of_task)
             for of_task in readings]  # fmt: skip
    assert (gain.score, gain.variant_score) == pytest.approx(tuple(means))
    first = next(one for one in task.rules if one.name == "robust").estimates[gain.metric]
    assert first.value != gain.score  # the scores of the page are those of the first repeat
    alone = collected(tmp_path / "repeat_1").tasks[0]
    of_first = next(one for one in alone.gains if one.metric == gain.metric)
    assert gain.high - gain.low < of_first.high - of_first.low


def test_failures_and_empty_answers_are_no_votes():
    failed, none = failed_reply("no memory"), "<think>never ends"
    key = [one["answer"] for one in load_documents("mediconfusion")[:4]]
    said = [f"\\boxed{{{letter}}}" for letter in key]
    found = row(
        [
            reading([said[0], failed, none, none]),
            reading([failed, failed, none, said[3]]),
            reading([none, failed, failed, none]),
        ]
    )
    scores = values(found)
    assert (found.samples, found.failed_samples, found.failed_replies) == (4, 1, 5)
    assert scores["invalid_rate"].majority.value == 1 / 3  # the third question, of those with a reply
    assert scores["individual_accuracy"].majority.value == 2 / 3


def test_ties_favour_no_letter():
    a, b = (reading([f"<think></think>{letter}"] * 32) for letter in "AB")
    found = row([a, b])
    assert found.ties == 32
    chosen = values(found)["individual_accuracy"].majority.value
    assert 0.2 < chosen < 0.8  # by a digest, so neither always A nor always the first
    assert repr(found) == repr(row([b, a]))


def test_texts_vote_in_lower_case(tmp_path, monkeypatch):
    from .. import tiny_multimedeval

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    tiny_multimedeval.prepare("vqa_rad")
    task, documents = task_file("multimedeval_vqa_rad_think"), load_documents("multimedeval_vqa_rad")

    def of(said):
        return given_replies(task, documents, {one["doc_id"]: Reply.of_text(said(one)) for one in documents})

    right = of(lambda one: f"<think>no, or yes</think><answer>{one['answer'].upper()}.</answer>")
    again = of(lambda one: f"\\boxed{{{one['answer']}}}")
    wrong = of(lambda one: "<answer>no idea at all</answer>")
    found = join([wrong, right, again], [None] * 3)
    assert values(found.rows[0])["closed_accuracy"].majority.value == 1
    assert found.rows[0].ties == 0


def test_credentialed_texts_have_no_majority():
    from .. import tiny_multimedeval  # noqa: F401  # the reading is made up, as no record is at hand here

    one = reading(["<think>.</think>A"] * 4)
    scores = {name: {key: value for key, value in score.items() if key != "value"} for name, score in
              one.computed["robust"].samples.items()}  # fmt: skip
    hidden = replace(one, withheld=True, computed={"robust": replace(one.computed["robust"], samples=scores)})
    found = row([hidden, hidden])
    assert found.samples == 0
    assert all(score.majority is None for score in found.scores)
    (note,) = join([one, one], [1, 2]).notes
    assert "the seed did not reach the model" in note


def test_each_repeat_has_its_own_seeds():
    tiny = ["--model", "medtasks_tiny", "--model_args", "journal=false,seed=7", "--seed", "5,6,7,8"]
    first, third = (read_options(seeded(tiny, number)) for number in (1, 3))
    assert first.given["seed"] == "5,6,7,8"
    assert third.given["seed"] == "7,8,9,8"  # examples are chosen as before
    assert first.model_arguments() == {"journal": "false", "seed": "7"}
    assert third.model_arguments()["seed"] == "9"
    server = read_options(seeded(["--model", "openai", "--gen_kwargs", "temperature=1"], 2))
    assert server.pairs("gen_kwargs") == {"temperature": "1", "seed": "1235"}
    with pytest.raises(MedTasksError, match="no whole number"):
        seeded(["--model", "medtasks_tiny", "--model_args", "seed=x"], 1)


@each_row(
    "names, given, repeats, words",
    [
        ([TASK], {}, 2, "--gen_kwargs temperature=0.6,do_sample=true"),
        ([TASK], {"gen_kwargs": "temperature=0.6"}, 2, "temperature 0"),  # the task's file says do_sample: false
        (["mediconfusion_gd"], {"gen_kwargs": "temperature=0.6,do_sample=true"}, 2, "compared by likelihood"),
        ([TASK], {"gen_kwargs": "temperature=0.6,do_sample=true", "use_cache": "x"}, 2, "--use_cache"),
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
    sampled = ("--gen_kwargs", "temperature=1,do_sample=true,max_new_tokens=4", "--limit", "4", "--batch_size", "8")
    record(sample_home, tmp_path, TASK, *sampled, "--repeats", "2")
    said = capsys.readouterr().out
    assert "repeat 2 of 2, seed 1235" in said
    assert "Majority" in said
    assert repeat_folders(tmp_path) == [repeat_folder(tmp_path, number) for number in (1, 2)]
    written = json.loads((tmp_path / "repeats.json").read_text())
    assert written["schema_version"] == 1
    (task,) = written["tasks"].values()
    assert task["seeds"] == [1234, 1235]
    assert not task["notes"]  # other seeds, other replies
    assert joined_repeats(tmp_path)[TASK].repeats == 2
    with pytest.raises(MedTasksError, match=r"holds 2 repeats of a run; give one of them, such as .*repeat_1"):
        read_run(tmp_path)

    def joined(first, second, wanted="2"):
        for number, options in enumerate((first, second), 1):
            (manifest,) = repeat_folder(tmp_path, number).glob("*_run.json")
            said = json.loads(manifest.read_text())
            said["command"][said["command"].index("--repeats") + 1] = wanted
            said["options"] |= options
            manifest.write_text(json.dumps(said))
        found = joined_repeats(tmp_path)[TASK]
        return found.repeats, *(note.partition("other arguments: ")[2] for note in found.notes)

    assert joined({}, {}, "1") == (1, "repeat_2.")  # of an older and longer call
    assert joined({}, {}, "3") == (2, "repeat_3.")  # one that never began
    sampling = sampled[1]
    assert joined({"gen_kwargs": f"{sampling},seed=0"}, {"gen_kwargs": f"{sampling},seed=1"}) == (2,)
    assert joined({"limit": "4"}, {"limit": "5"}) == (1, "repeat_1.")
    assert joined({}, {"limit": "4", "gen_kwargs": f"{sampling},top_p=0.5,seed=1"}) == (1, "repeat_1.")


def test_no_repeat_answers_from_the_journal_of_another():
    folders = [repeat_variables({JOURNAL_VARIABLE: "kept"}, ["--seed", "7"], number) for number in (1, 2, 1)]
    assert folders[0] == folders[2] != folders[1]
    assert repeat_variables({}, [], 2) == {}


def test_shards_are_not_repeated(tmp_path):
    with in_this_process(), pytest.raises(MedTasksError, match="do not go together"):
        medtasks("run", "--tasks", TASK, "--output_path", tmp_path, *TINY, "--repeats", "2", "--shard", "1/2")
