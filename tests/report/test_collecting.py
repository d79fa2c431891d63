import json
import math
import random
import re
from dataclasses import replace

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.samples import Sample
from medtasks.data.schema import CHOICE, OPEN_QUESTION, REPORT
from medtasks.errors import RepliesError, UnknownName
from medtasks.families.counts import SAMPLE_COUNTS
from medtasks.families.family import Reply, Rule
from medtasks.metrics.metric import Declaration, Estimate, Scale, raw_declaration
from medtasks.metrics.pairs import TOTAL
from medtasks.report import wording
from medtasks.report.collecting import collect_replies, collect_run
from medtasks.report.page import write_page
from medtasks.report.report_model import report_as_dict
from medtasks.report.report_tables import summary_table
from medtasks.report.sentences import headline, quotable_sentences
from medtasks.report.task_tables import gains_table
from medtasks.report.wording import cluster_notes
from medtasks.runs.run import open_run
from medtasks.scores.scoring import PAIR_METRICS, rule_scores, score_replies, with_interval
from medtasks.stats.intervals import interval
from medtasks.stats.paired import holm
from medtasks.tasks.documents import task_documents, task_problems
from medtasks.tasks.task_files import task_file, task_files

from ..tables import each_row
from .harness_output import STAMP, publish_own, texts, write_run, write_task

WAYS = ("A", "B", "The answer is (B)", "I cannot tell", "", "both A and B")


@pytest.fixture(autouse=True)
def _sample_and_no_judge(sample, monkeypatch):
    monkeypatch.setattr(
        "medtasks.judges.judge_client._judge", lambda *_: pytest.fail("a judge was asked")
    )


def paired_scores(records, categories=lambda _: []):
    """Return what follows from image, target and value by pair and position."""
    by_id = {}
    for (pair, position), record in records.items():
        score = dict(zip(("image_id", "target", "value"), record, strict=True))
        own = {
            "pair_id": str(pair),
            "position": position,
            "reason": "ok",
            "categories": categories(pair),
        }
        by_id[f"{pair}/{position}"] = {**own, **score}
    return rule_scores(
        task_file("mediconfusion"), "rule v1", list(by_id.values()), list(by_id.values())
    )


def made_up(dataset, seed=1):
    """Return replies of a model that answers in many ways, mostly by letters."""
    draw = random.Random(seed)
    return texts({one["doc_id"]: draw.choice(WAYS) for one in load_documents(dataset)})


def collected(folder, **replies):
    write_run(folder, replies)
    return collect_run(open_run(folder))


def only(report):
    (task,) = report.tasks
    return task


def by_metric(rule):
    return {one.metric: one.value for one in rule.scores}


def edit_row(results, task, **changes):
    content = json.loads(results.read_text())
    content["results"][task] |= {
        key.replace("__", ","): value for key, value in changes.items()
    }
    results.write_text(json.dumps(content))


def check_scores(task, replies):
    expected = score_replies(task_file(task.name), load_documents(task.dataset), replies)
    assert [rule.name for rule in task.rules] == list(expected)
    for rule in task.rules:
        estimates = expected[rule.name].estimates
        assert by_metric(rule) == pytest.approx(
            {name: one.value for name, one in estimates.items()}, nan_ok=True
        )
        errors = {name: one.error for name, one in estimates.items() if one.has_error}
        shown = {one.metric: one.error for one in rule.scores if one.metric in errors}
        assert shown == pytest.approx(errors, nan_ok=True)
        assert (rule.rule, rule.reasons) == (
            expected[rule.name].rule,
            expected[rule.name].reasons,
        )
        assert rule.describes
        for score in rule.scores:
            known = estimates[score.metric]
            assert (score.low, score.high) == pytest.approx(
                (known.low, known.high), nan_ok=True
            )


def test_scores_of_pairs_are_those_of_medtasks_score(tmp_path):
    replies = made_up("mediconfusion")
    report = collected(tmp_path, mediconfusion=replies)
    task = only(report)
    check_scores(task, replies)
    counts = [one.name for one in SAMPLE_COUNTS]
    assert [one.metric for one in task.rules[0].scores] == [
        *PAIR_METRICS,
        "incomplete_pairs",
        *counts,
    ]
    # The last is a count.
    assert (task.rules[0].scores[0].share, task.rules[0].scores[-1].share) == (True, False)
    assert (report.notes, task.missing) == ((), ())
    assert (task.documents, task.answered, task.sample_data, task.withheld) == (
        32,
        32,
        True,
        False,
    )
    assert (task.access, task.protocol) == ("public", "MC")
    assert task.baselines
    assert task.published
    json.dumps(report_as_dict(report), allow_nan=False)


def test_likelihoods_have_a_calibration(tmp_path):
    draw = random.Random(5)
    documents = load_documents("mediconfusion")
    replies = {one["doc_id"]: Reply(losses=(draw.random(), draw.random())) for one in documents}

    task = only(collected(tmp_path, mediconfusion_gd=replies))

    assert {name: found.samples for name, found in task.calibration.items()} == {
        "reference": 32,
        "robust": 32,
    }
    assert (task.items[0].losses, task.items[0].reply) == (
        replies[documents[0]["doc_id"]].losses,
        "",
    )


def test_scores_of_other_families_are_those_of_medtasks_score(
    multimedeval_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    tasks = [
        f"multimedeval_{name}"
        for name in ("medqa", "path_vqa", "octmnist", "chestxray14", "octmnist_blank")
    ]
    replies = {
        name: made_up(str(task_file(name).dataset), number) for number, name in enumerate(tasks)
    }

    report = collected(tmp_path, **replies)

    assert report.notes == ()
    for task in report.tasks:
        check_scores(task, replies[task.name])


@pytest.fixture
def pairs_of_every_outcome(tmp_path):
    """Replies to pairs, of which seven are not right in seven ways, and the task of the report."""
    documents = load_documents("mediconfusion")
    pairs = list(dict.fromkeys(one["pair_id"] for one in documents))
    keys = {one["doc_id"]: one["answer"] for one in documents}
    other = {"A": "B", "B": "A"}
    said = dict(keys)
    ways = [lambda key: other[key], lambda _: "A", lambda _: "B", lambda _: "B", lambda _: ""]
    for pair, way in zip(pairs, ways, strict=False):
        said |= {doc_id: way(keys[doc_id]) for doc_id in keys if doc_id.startswith(f"{pair}/")}
    said[f"{pairs[5]}/1"] = "no idea"
    del said[f"{pairs[6]}/1"]
    write_run(tmp_path, {"mediconfusion": texts(said)}, limit=31)
    return texts(said), only(collect_run(open_run(tmp_path)))


def test_outcomes_of_pairs_are_counted(pairs_of_every_outcome):
    _, task = pairs_of_every_outcome

    outcomes = task.rules[1].pairs
    assert (outcomes.both_right, outcomes.swapped, outcomes.same) == (
        16 - 7,
        1,
        {"A": 1, "B": 2},
    )
    assert (outcomes.one_invalid, outcomes.both_invalid, outcomes.incomplete) == (1, 1, 1)


def test_questions_without_a_reply_are_missing(pairs_of_every_outcome):
    _, task = pairs_of_every_outcome

    assert task.missing == (
        "Only 31 of 32 questions were answered; the others are in no score.",
        "Only about 9.3 independent pairs: intervals are rough (set_accuracy).",
    )


def test_areas_of_pairs_have_the_scores_of_their_categories(pairs_of_every_outcome):
    replies, task = pairs_of_every_outcome
    documents = load_documents("mediconfusion")
    areas = {group.name: group for group in task.rules[1].groups["categories"]}
    table = score_replies(task_file("mediconfusion"), documents, replies)["robust"].categories

    assert areas.keys() | {TOTAL} == table.keys()
    for name, group in areas.items():
        of_set, of_images = group.scores
        assert group.questions == table[name].images
        assert (of_set.metric, of_images.metric) == ("set_accuracy", "individual_accuracy")
        assert of_images.value == table[name].individual_accuracy
        assert math.isnan(of_set.value) == math.isnan(table[name].set_accuracy)
    assert list(areas.values()) == sorted(areas.values(), key=lambda group: -group.questions)


def test_an_area_with_every_pair_in_it_has_the_errors_of_the_total(tmp_path):
    draw = random.Random(3)
    places = [(pair, position) for pair in range(25) for position in (1, 2)]
    records = {
        place: (f"i{draw.randrange(30)}", "AB"[place[1] - 1], draw.choice("AB"))
        for place in places
    }
    found = paired_scores(records, lambda pair: ["one", *(["two"] if pair < 9 else [])])
    expected = {one.metric: one.error for one in found.scores}
    one, two = found.groups["categories"]
    assert one.scores[1].error == expected["individual_accuracy"]
    # Each pair is in the area twice: the same mean over the same units.
    assert one.scores[0].error == pytest.approx(expected["set_accuracy"], rel=1e-12)
    assert (one.questions, two.questions) == (50, 18)
    assert (one.scores[0].low, one.scores[0].high) == pytest.approx(
        (found.scores[0].low, found.scores[0].high)
    )


def test_a_pair_with_the_same_right_answer_twice_is_no_confusion():
    said = {"p": "AA", "q": "BB", "r": "AB"}
    of_two = {
        (pair, n): (f"{pair}{n}", "A", said[pair][n - 1]) for pair in said for n in (1, 2)
    }
    outcomes = paired_scores(of_two).pairs
    assert (outcomes.both_right, dict(outcomes.same), outcomes.swapped) == (1, {"B": 1}, 0)


def test_a_group_of_pairs_that_mostly_share_one_image_says_so():
    records = {}
    for pair in range(9):
        shared = "hub" if pair < 5 else f"first {pair}"
        records |= {
            (pair, 1): (shared, "A", "AB"[pair % 2]),
            (pair, 2): (f"second {pair}", "B", "B"),
        }
    found = paired_scores(records, lambda pair: [["six", "rest"][pair > 5]])
    of_sets = {group.name: group.scores[0] for group in found.groups["categories"]}
    assert [(score.most_shared, score.clusters) for score in of_sets.values()] == [
        (5, 6),
        (1, 3),
    ]
    (note,) = cluster_notes(of_sets)
    assert (
        note == "One image decides, so that intervals are wide: it is in 5 of 6 pairs of six."
    )


def test_a_score_that_the_replies_do_not_give_is_noted(tmp_path):
    results = write_run(tmp_path, {"mediconfusion": made_up("mediconfusion")})
    honest = by_metric(only(collect_run(open_run(tmp_path))).rules[0])["individual_accuracy"]
    edit_row(results, "mediconfusion", individual_accuracy__reference=honest + 1e-6)
    report = collect_run(open_run(tmp_path))
    (note,) = report.notes
    assert note.startswith(
        f"mediconfusion, reference, individual_accuracy: the run recorded {honest + 1e-6:.12g}"
    )
    assert f"{honest:.12g}" in note
    assert by_metric(only(report).rules[0])["individual_accuracy"] == honest + 1e-6
    edit_row(results, "mediconfusion", individual_accuracy__reference=honest + 1e-12)
    assert collect_run(open_run(tmp_path)).notes == ()


@each_row("value", ["text", 7, [1], {"a": 1}, [{"filter": 7}]])
@each_row(
    "keys",
    [
        ("configs", "mediconfusion", "filter_list"),
        ("configs", "mediconfusion", "metadata", "data", "image_conversions"),
        ("configs", "mediconfusion", "metadata", "data", "left_out"),
        ("group_subtasks", "mediconfusion"),
        ("n-samples", "mediconfusion"),
    ],
)
def test_results_of_another_kind_than_they_should_be_are_no_traceback(tmp_path, keys, value):
    results = write_run(tmp_path, {"mediconfusion": made_up("mediconfusion")})
    content = json.loads(results.read_text())
    *folders, last = keys
    place = content
    for key in folders:
        place = place.setdefault(key, {})
    place[last] = value
    results.write_text(json.dumps(content))
    assert only(collect_run(open_run(tmp_path))).name == "mediconfusion"


def test_an_impossible_error_is_none_and_a_file_of_made_up_values_is_left_out(tmp_path):
    results = write_run(tmp_path, {"mediconfusion": made_up("mediconfusion")})
    edit_row(results, "mediconfusion", set_accuracy_stderr__reference=-1.0)
    rule = next(
        rule for rule in only(collect_run(open_run(tmp_path))).rules if rule.name == "reference"
    )
    assert all(not score.error < 0 for score in rule.scores)
    edit_row(
        results, "mediconfusion", **{f"m{number}__f{number}": 0.5 for number in range(2_000)}
    )
    (note, *_) = open_run(tmp_path).notes
    assert re.search(
        r"holds 20\d\d metrics under 20\d\d filters for mediconfusion, more than any task has, and is left out",
        note,
    )


def test_a_limited_run_and_one_without_samples(tmp_path):
    first = dict(list(made_up("mediconfusion").items())[:7])
    write_run(tmp_path / "logged", {"mediconfusion": first}, limit=7)
    write_run(tmp_path / "unlogged", {"mediconfusion": first}, limit=7, log_samples=False)
    logged, unlogged = (
        only(collect_run(open_run(tmp_path / name))) for name in ("logged", "unlogged")
    )
    keys = [one["answer"] for one in load_documents("mediconfusion")]
    for task, asked in ((logged, keys[:7]), (unlogged, keys)):
        assert (
            task.missing[0]
            == "Only 7 of 32 questions were answered; the others are in no score."
        )
        assert (task.answered, task.documents, len(task.baselines)) == (7, 32, 4)
        always = next(one for one in task.baselines if one.name == "always A")
        assert always.scores["reference"]["individual_accuracy"] == asked.count("A") / len(
            asked
        )
    assert logged.missing[1].endswith("independent pairs: intervals are rough (set_accuracy).")
    assert logged.rules[0].pairs.incomplete == 1
    assert "--log_samples" in unlogged.missing[1]
    assert "baselines are those of all questions" in unlogged.missing[-1]
    assert (unlogged.items, unlogged.rules[0].reasons, unlogged.rules[0].groups) == ((), {}, {})
    score = unlogged.rules[1].estimates["individual_accuracy"]
    assert (score.low, score.high) == interval(score.value, score.error, None, True)
    assert (
        unlogged.rules[0].rule == "mediconfusion_reference"
    )  # its version at that time is not known


def test_runs_that_only_collected_replies_say_how_to_score_them(tmp_path, monkeypatch):
    replies = made_up("mediconfusion")
    write_run(tmp_path / "scored", {"mediconfusion": replies})
    write_run(tmp_path / "collected", {"mediconfusion": replies}, predict_only=True)
    scored, task = (
        only(collect_run(open_run(tmp_path / name))) for name in ("scored", "collected")
    )
    assert "--predict_only" in task.missing[0]
    assert [by_metric(rule) for rule in task.rules] == [
        by_metric(rule) for rule in scored.rules
    ]
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    publish_own(
        "own_reports", REPORT, [{"report": "A mass.", "indication": "cough"} for _ in range(3)]
    )
    write_task("own_reports", "reports", {"reference": "report_text"})
    write_run(
        tmp_path / "own",
        {"own_reports": texts({f"d{n}": "a mass" for n in range(3)})},
        predict_only=True,
    )
    task = only(collect_run(open_run(tmp_path / "own")))
    assert task.missing == (
        "The run only collected replies (--predict_only).",
        "Scores are not computed here, because its metrics need a judge, a labeler or another model; run: medtasks "
        f"score own_reports {tmp_path / 'own' / f'{STAMP}_samples_own_reports.jsonl'}",
    )
    assert (task.rules[0].scores, task.rules[0].reasons) == ((), {"ok": 3})
    assert task.items[0].question == "cough"


def test_damaged_runs_show_what_is_left(tmp_path, monkeypatch):
    results = write_run(tmp_path, {"mediconfusion": made_up("mediconfusion")})
    whole = [by_metric(rule) for rule in only(collect_run(open_run(tmp_path))).rules]
    # Torn lines are counted, and the recorded scores stand.
    samples = tmp_path / f"{STAMP}_samples_mediconfusion.jsonl"
    lines = samples.read_text().splitlines(keepends=True)
    samples.write_text("".join([*lines[:20], lines[20][:80]]))
    report = collect_run(open_run(tmp_path))
    task = only(report)
    assert task.missing[:2] == (
        "The samples file holds replies to only 20 of the 32 questions that were asked.",
        f"Torn lines, left out: 1 of {samples}.",
    )
    assert [by_metric(rule) for rule in task.rules] == whole
    assert report.notes == (
        "mediconfusion: torn lines are missing, so that its scores cannot be checked.",
    )
    assert (len(task.items), task.answered) == (20, 32)
    samples.write_text(
        "".join(lines).replace('"doc_id": 3,', '"doc_id": 30,')
    )  # of other documents
    task = only(collect_run(open_run(tmp_path)))
    assert "line 4 answers document" in task.missing[0]
    assert (task.items, bool(task.rules)) == ((), True)
    samples.write_text("".join(lines))
    # A results file that is cut off: scores are those of the samples.
    text = results.read_text()
    results.write_text(text[:100])
    report = collect_run(open_run(tmp_path))
    task = only(report)
    assert task.missing == (
        "The run left samples without results, as it was stopped or failed before it wrote them; its scores are "
        "computed from them here.",
    )
    assert "cut off" in report.notes[0]
    assert ([by_metric(rule) for rule in task.rules], len(task.items)) == (whole, 32)
    # Data that are other, or gone.
    fingerprint = json.loads(text)["configs"]["mediconfusion"]["metadata"]["data"][
        "fingerprint"
    ]
    results.write_text(text.replace(fingerprint, "000000000000"))
    changed = only(collect_run(open_run(tmp_path)))
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "empty"))
    gone = only(collect_run(open_run(tmp_path)))
    assert "fingerprint 000000000000" in changed.missing[0]
    assert "medtasks data prepare mediconfusion" in gone.missing[0]
    for task in (changed, gone):
        assert (task.items, task.fingerprint, task.sample_data) == ((), "000000000000", True)
        assert by_metric(task.rules[1]) == pytest.approx(whole[1], nan_ok=True)


def test_tasks_of_others_and_groups(tmp_path):
    results = write_run(tmp_path, {"mediconfusion": made_up("mediconfusion")})
    content = json.loads(results.read_text())
    content["results"]["mme"] = {
        "alias": "mme",
        "score,none": 1400.0,
        "score_stderr,none": 12.5,
        "words,none": "many",
    }
    best = {
        "confusion,robust": 0.25,
        "confusion_stderr,robust": math.nan,
        "set_accuracy,reference": 0.5,
    }
    content["results"]["mediconfusion_all"] = {
        "alias": "all",
        **best,
        "set_accuracy,robust": 0.75,
    }
    content["group_subtasks"]["mediconfusion_all"] = ["mediconfusion", "mediconfusion_gd"]
    content["higher_is_better"]["mediconfusion_all"] = {"confusion": False}
    results.write_text(json.dumps(content))
    (tmp_path / f"{STAMP}_samples_mme.jsonl").write_text('{"doc_id": 0, "resps": ["yes"]}\n')
    tasks = {task.name: task for task in collect_run(open_run(tmp_path)).tasks}
    (score,) = tasks["mme"].rules[0].scores
    assert (score.metric, score.value, score.error, score.share) == (
        "score",
        1400.0,
        12.5,
        False,
    )
    assert score.low == pytest.approx(1400 - 1.959964 * 12.5, abs=1e-4)
    assert "no task of medtasks" in tasks["mme"].missing[0]
    assert (tasks["mme"].items, tasks["mme"].dataset, tasks["mme"].baselines) == ((), "", ())
    reference, robust = tasks["mediconfusion_all"].rules
    assert (reference.name, by_metric(reference)) == ("reference", {"set_accuracy": 0.5})
    assert list(by_metric(robust).items()) == [("set_accuracy", 0.75), ("confusion", 0.25)]
    assert (robust.rule, robust.scores[1].share, robust.scores[1].higher_is_better) == (
        "",
        True,
        False,
    )
    assert (
        tasks["mediconfusion_all"]
        .missing[0]
        .endswith("_gd; each score is the best of 2, chosen on the test set.")
    )
    assert tasks["mediconfusion_all"].sample_data
    assert (tasks["mediconfusion_all"].documents, tasks["mediconfusion_all"].answered) == (
        32,
        32,
    )


def test_a_mean_of_settings_has_the_error_of_its_questions_averages(tmp_path):
    names = ("mediconfusion", "mediconfusion_blank")
    replies = {name: made_up("mediconfusion", seed) for seed, name in enumerate(names)}
    results = write_run(tmp_path, replies)
    content = json.loads(results.read_text())
    content["group_subtasks"]["mediconfusion_all"] = list(replies)
    members = collect_run(open_run(tmp_path)).tasks
    values = [by_metric(task.rules[0])["individual_accuracy"] for task in members]
    errors, shown = (
        [task.rules[0].estimates["individual_accuracy"].error for task in members],
        [],
    )
    for value in (sum(values) / 2, max(values)):
        content["results"]["mediconfusion_all"] = {
            "alias": "all",
            "individual_accuracy,reference": value,
        }
        results.write_text(json.dumps(content))
        group = next(
            task
            for task in collect_run(open_run(tmp_path)).tasks
            if task.name == "mediconfusion_all"
        )
        shown.append(group.rules[0].estimates["individual_accuracy"])
    mean, best = shown
    assert min(errors) / 2 < mean.error < max(errors)
    assert mean.low < mean.value < mean.high
    assert math.isnan(best.error)


def test_sentences_on_tasks_of_others_and_groups_claim_no_data_and_advise_no_variant_that_does_not_exist(
    tmp_path,
):
    results = write_run(tmp_path / "run", {"mediconfusion": made_up("mediconfusion")})
    content = json.loads(results.read_text())
    content["results"]["mme"] = {
        "alias": "mme",
        "score,none": 1400.0,
        "score_stderr,none": 12.5,
    }
    content["results"]["pope"] = {"alias": "pope", "acc,none": 0.8}
    content["n-samples"]["pope"] = {"original": 100, "effective": 90}
    content["results"]["mediconfusion_all"] = {"alias": "all", "set_accuracy,robust": 0.75}
    content["results"]["mediconfusion_ff"] = {"alias": "ff", "set_accuracy,reference": 0.5}
    content["results"]["mediconfusion_ff_blind"] = {
        "alias": "ff",
        "set_accuracy,reference": 0.25,
    }
    results.write_text(json.dumps(content))
    report = collect_run(open_run(tmp_path / "run"))
    sentences = quotable_sentences(report)
    assert sentences["mme"] == (
        "On mme, made_up reaches score 1,400 [1375.500 to 1424.500] under rule none (95 % interval in brackets), for "
        "an unknown number of samples (data of lmms-eval).",
        "It is compared with nothing.",
        "model: made_up.",
    )
    assert (
        "reaches acc 0.800 under rule none, for 90 samples (data of lmms-eval)."
        in sentences["pope"][0]
    )
    assert (
        "(data of its members; each score is the best of 3, chosen on the test set)"
        in sentences["mediconfusion_all"][0]
    )
    group = "mediconfusion_all_ff"  # its row "robust" is of three members
    content["results"][group] = content["results"].pop("mediconfusion_all")
    results.write_text(json.dumps(content))
    assert (
        "best of up to 4, chosen"
        in quotable_sentences(collect_run(open_run(tmp_path / "run")))[group][0]
    )
    for task in ("pope", "mediconfusion_all", "mediconfusion_ff_blind"):
        assert sentences[task][1:] == ("It is compared with nothing.", "model: made_up.")
    advice = "It is compared with nothing: mediconfusion_ff_blind in the same run would show what the image adds."
    assert sentences["mediconfusion_ff"][1] == advice
    answered = {task.name: wording.questions(task) for task in report.tasks}
    assert (answered["mme"], answered["pope"], answered["mediconfusion"]) == (
        "unknown",
        "90 of 100",
        "32 of 32",
    )


def test_the_report_opens_with_a_main_metric_and_keeps_the_order_of_the_run(
    multimedeval_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    names = ("multimedeval_mimic_cxr_report", "multimedeval_vqa_rad", "multimedeval_medqa")
    replies = {
        name: made_up(str(task_file(name).dataset), number) for number, name in enumerate(names)
    }
    write_run(tmp_path / "run", replies, rows={names[0]: {"bleu_1,reference": 0.97}})
    report = collect_run(open_run(tmp_path / "run"))
    assert (
        tuple(task.name for task in report.tasks) == tuple(quotable_sentences(report)) == names
    )
    assert headline(report) == "multimedeval_vqa_rad"
    vqa = report.tasks[1].rules[0].scores
    assert [score.metric for score in vqa[:3]] == ["closed_accuracy", "open_recall", "bleu_1"]
    assert (
        "made_up reaches closed_accuracy"
        in quotable_sentences(report)["multimedeval_vqa_rad"][0]
    )
    only_reports = replace(report, tasks=report.tasks[:1])
    assert headline(only_reports) == names[0]
    assert "made_up reaches bleu_1 97.0%" in quotable_sentences(only_reports)[names[0]][0]
    assert headline(replace(report, tasks=())) == ""
    write_page(report, tmp_path / "page.html")
    opening = (
        (tmp_path / "page.html").read_text().partition('id="summary"')[2].partition("<table")[0]
    )
    assert "closed_accuracy" in opening
    assert "bleu_1" not in opening


def test_gains_over_the_variants_of_the_same_run(tmp_path):
    documents = load_documents("mediconfusion")
    right = texts({one["doc_id"]: one["answer"] for one in documents})
    always = texts({one["doc_id"]: "A" for one in documents})
    swapped = made_up("mediconfusion")
    report = collected(
        tmp_path, mediconfusion=right, mediconfusion_blind=always, mediconfusion_swapped=swapped
    )
    tasks = {task.name: task for task in report.tasks}
    assert [gain.variant for gain in tasks["mediconfusion"].gains] == ["blind"] * 4 + [
        "swapped"
    ] * 4
    gains = {
        (gain.variant, gain.rule, gain.metric): gain for gain in tasks["mediconfusion"].gains
    }
    # Letters alone are read alike, so that the rules are one test, and all gains of the report are one family.
    blind = [
        gain for gain in gains.values() if (gain.variant, gain.rule) == ("blind", "robust")
    ]
    assert [gain.same_as for gain in blind] == ["reference"] * 2
    names = [row[1].text for row in gains_table(tasks["mediconfusion"]).rows]
    assert names[:2] == ["reference, robust"] * 2
    tests = [gain for gain in gains.values() if not (gain.same_as or gain.by_construction)]
    assert [gain.p_holm for gain in tests] == holm([gain.p for gain in tests])
    assert (
        len(
            {
                gains["blind", rule, "individual_accuracy"].p_holm
                for rule in ("robust", "reference")
            }
        )
        == 1
    )
    of_set, of_images = (
        gains["blind", "robust", metric] for metric in ("set_accuracy", "individual_accuracy")
    )
    assert (of_set.score, of_set.variant_score, of_set.samples, of_set.task) == (
        1.0,
        0.0,
        16,
        "mediconfusion_blind",
    )
    assert (
        of_images.score,
        of_images.variant_score,
        of_images.difference,
        of_images.samples,
    ) == (
        1.0,
        0.5,
        0.5,
        32,
    )
    # Set accuracy without the image is 0 by construction, so that there is nothing to test.
    assert of_set.by_construction
    assert all(map(math.isnan, (of_set.low, of_set.high, of_set.p, of_set.p_holm)))
    assert not of_images.by_construction
    assert 0 < of_images.p <= of_images.p_holm < 0.01
    (blind,) = {rule.estimates["set_accuracy"] for rule in tasks["mediconfusion_blind"].rules}
    assert blind.by_construction
    assert all(map(math.isnan, (blind.error, blind.low, blind.high)))
    pairs = tasks["mediconfusion"].rules[0].pairs
    assert (pairs.both_right, pairs.both_wrong, pairs.solved_of_decided.value) == (16, 0, 1.0)
    assert 0.5 < pairs.solved_of_decided.low < pairs.solved_of_decided.high == 1.0
    summary = next(row for row in summary_table(report).rows if row[0].text == "mediconfusion")
    assert summary[6].text.startswith("+50.0 pts [")
    assert summary[6].text.endswith("] (individual_accuracy)")
    solved = (
        "mediconfusion, reference, robust: pairs solved : wrong on both sides 16 : 0, 100.0% ["
    )
    assert any(note.startswith(solved) for note in summary_table(report).notes)
    assert tasks["mediconfusion_blind"].items[0].images == ()
    assert (
        tasks["mediconfusion_swapped"].items[0].images != tasks["mediconfusion"].items[0].images
    )


def test_gains_over_a_task_on_the_same_images(tmp_path, monkeypatch):
    """Means of images are compared, however many questions each language asks about one."""
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    english = [
        {"question": "?", "options": ["a", "b"], "answer": "A", "image_id": f"i{row // 2}"}
        for row in range(16)
    ]
    chinese = [
        {"question": "?", "options": ["a", "b"], "answer": "A", "image_id": f"i{row}"}
        for row in range(8)
    ]
    rules = {"robust": "robust_choice"}
    publish_own("in_english", CHOICE, english)
    write_task("in_english", "choice", rules, same_as="in_chinese")
    publish_own("in_chinese", CHOICE, chinese)
    write_task("in_chinese", "choice", rules)
    replies = {
        "in_english": texts({f"d{row}": "A" if row < 12 else "B" for row in range(16)}),
        "in_chinese": texts({f"d{row}": "A" if row < 4 else "B" for row in range(8)}),
    }
    run_report = collected(tmp_path, **replies)
    assert quotable_sentences(run_report).keys() == {"in_english", "in_chinese"}
    report, _ = run_report.tasks
    (gain,) = report.gains
    assert (gain.variant, gain.task, gain.samples) == ("same images", "in_chinese", 8)
    assert (gain.score, gain.variant_score, gain.difference) == (0.75, 0.5, 0.25)
    assert list(task_problems(task_file("in_english"))) == []
    alone = only(collected(tmp_path / "alone", in_english=replies["in_english"]))
    assert any(
        "not compared with 'in_chinese' on the same images" in sentence
        for sentence in alone.missing
    )
    publish_own(
        "elsewhere", CHOICE, [{**row, "image_id": f"x{row['image_id']}"} for row in chinese]
    )
    write_task("elsewhere", "choice", rules)
    for other, why in (
        ("elsewhere", "'elsewhere' asks about none of its images"),
        ("in_chines", "did you mean 'in_chinese'"),
    ):
        write_task("in_english", "choice", rules, same_as=other)
        (problem,) = task_problems(task_file("in_english"))
        assert why in problem


def test_gains_over_stress_variants(multimedeval_home, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    name = "multimedeval_octmnist"
    degraded = {
        one["doc_id"]: one["severity"] for one in task_documents(task_file(f"{name}_degraded"))
    }
    right, worst = (
        {one["doc_id"]: one["options"][one["label"]] for one in load_documents(name)},
        max(degraded.values()),
    )
    others = {one["doc_id"]: one["options"][one["label"] - 1] for one in load_documents(name)}
    dim = {
        doc_id: (others if severity == worst else right)[doc_id]
        for doc_id, severity in degraded.items()
    }
    said = {"": right, "_nota": others, "_nota_control": right, "_degraded": dim}
    tasks = {
        task.name: task
        for task in collected(tmp_path, **{name + end: texts(said[end]) for end in said}).tasks
    }
    gains = {gain.variant: gain for gain in tasks[name].gains if gain.rule == "robust"}
    share = sum(severity == worst for severity in degraded.values()) / len(degraded)
    wanted = {
        f"degraded, severity {severity}": float(severity == worst)
        for severity in set(degraded.values())
    }
    wanted |= {"degraded": share, "nota": 1, "nota_control": 0}
    assert {variant: gain.difference for variant, gain in gains.items()} == pytest.approx(
        wanted
    )
    (control,) = {gain.difference for gain in tasks[f"{name}_nota_control"].gains}
    assert (control, {gain.variant for gain in tasks[f"{name}_nota_control"].gains}) == (
        1,
        {"nota"},
    )
    assert (
        tasks[f"{name}_degraded"].items[0].images == ()
    )  # they are not those that the model saw
    assert {
        group for item in tasks[f"{name}_degraded"].items for group in item.groups["severity"]
    } == {*map(str, degraded.values())}


def test_gains_without_samples_are_the_differences_of_the_recorded_scores(tmp_path):
    replies = {
        "mediconfusion": made_up("mediconfusion"),
        "mediconfusion_blind": made_up("mediconfusion", 2),
    }
    write_run(tmp_path, replies, log_samples=False)
    base, blind = collect_run(open_run(tmp_path)).tasks
    gain = next(
        one for one in base.gains if (one.rule, one.metric) == ("robust", "individual_accuracy")
    )
    assert (
        gain.difference
        == by_metric(base.rules[1])[gain.metric] - by_metric(blind.rules[1])[gain.metric]
    )
    assert (math.isnan(gain.low), math.isnan(gain.p), gain.samples) == (True, True, 32)
    write_run(tmp_path / "a", {"mediconfusion": made_up("mediconfusion")}, log_samples=False)
    blind = {"mediconfusion_blind": replies["mediconfusion_blind"]}
    write_run(tmp_path / "a", blind, log_samples=False, limit=8, stamp="20260302_101500")
    assert collect_run(open_run(tmp_path / "a")).tasks[0].gains == ()  # of another size
    # Those of tasks that a judge scores, even with samples.
    results = write_run(
        tmp_path, {"mediconfusion": replies["mediconfusion"]}, log_samples=False
    )
    content = json.loads(results.read_text())
    lines = [
        json.dumps({"doc_id": row, "resps": ["words"], "input": "?"}) + "\n"
        for row in range(32)
    ]
    for name, value in (("mediconfusion_ff", 0.75), ("mediconfusion_ff_blind", 0.5)):
        content["results"][name] = {"set_accuracy,reference": value}
        content["n-samples"][name] = {"original": 32, "effective": 32}
        (tmp_path / f"{STAMP}_samples_{name}.jsonl").write_text("".join(lines))
    results.write_text(json.dumps(content))
    tasks = {task.name: task for task in collect_run(open_run(tmp_path)).tasks}
    (gain,) = tasks["mediconfusion_ff"].gains
    assert (gain.rule, gain.metric, gain.difference, gain.samples) == (
        "reference",
        "set_accuracy",
        0.25,
        32,
    )
    assert math.isnan(gain.low)


def test_a_metric_of_reports_that_cannot_be_computed_is_named(
    multimedeval_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "multimedeval_mimic_cxr_report")
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float8")
    task_name = "multimedeval_mimic_cxr_report"
    documents = load_documents(task_name)
    replies = texts({document["doc_id"]: document["report"] for document in documents})
    write_run(tmp_path, {task_name: replies})

    task = only(collect_run(open_run(tmp_path)))

    cause = "MEDTASKS_METRICS_DTYPE=float8 is unknown; it is one of float32, bfloat16"
    assert f"bleu_1 could not be computed: {cause}." in task.missing
    assert {item.answers["reference"].reason for item in task.items} == {"ok"}


def test_reports_have_the_recorded_scores_and_no_model_is_loaded(
    multimedeval_home, tmp_path, monkeypatch
):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "multimedeval_mimic_cxr_report")
    task_name = "multimedeval_mimic_cxr_report"
    documents = load_documents("multimedeval_mimic_cxr_report")
    replies = texts(
        {one["doc_id"]: one["report"] if row % 2 else "" for row, one in enumerate(documents)}
    )
    row = {"bleu_1": 0.5, "bleu_4": math.nan, "radgraph_partial": math.nan}
    row |= {"chexbert_similarity": 0.75, "chexbert_similarity_stderr": 0.125}
    write_run(
        tmp_path,
        {task_name: replies},
        rows={task_name: {f"{name},reference": row[name] for name in row}},
    )
    monkeypatch.setattr(
        "medtasks.families.text_metrics.compare_texts",
        lambda *_: pytest.fail("a model was loaded"),
    )
    task = only(collect_run(open_run(tmp_path)))
    (rule,) = task.rules
    score = rule.estimates["chexbert_similarity"]
    assert (score.value, score.error, score.share) == (0.75, 0.125, False)
    assert rule.reasons == {
        "empty": len(documents) - len(documents) // 2,
        "ok": len(documents) // 2,
    }
    assert by_metric(rule).keys() == {
        "bleu_1",
        "bleu_4",
        "radgraph_partial",
        "chexbert_similarity",
    }
    assert rule.failures == dict.fromkeys(
        ("bleu_4", "radgraph_partial"), "It was not computed in the run."
    )
    samples = next(tmp_path.rglob("*_samples_*.jsonl"))
    assert (
        "Not computed in the run, as a model, its weights or a judge was missing or failed: bleu_4, radgraph_partial. "
        f"To compute them now: medtasks weights fetch radgraph pubmedbert; then: medtasks score {task_name} {samples}"
    ) in task.missing
    first, second = (item.answers["reference"] for item in task.items[:2])
    assert (first.reason, first.value, first.score) == ("empty", None, 0.0)
    assert second.value == task.items[1].key == documents[1]["report"]
    assert (second.right, second.score) == (None, pytest.approx(1.0))


def test_a_judge_is_never_asked_and_its_scores_are_one_row(tmp_path):
    documents = load_documents("mediconfusion")
    results = write_run(
        tmp_path, {"mediconfusion": made_up("mediconfusion")}, log_samples=False
    )
    content = json.loads(results.read_text())
    row = {
        "alias": "ff",
        "individual_accuracy,reference": 0.5,
        "judge_failed_rate,reference": 1 / 32,
    }
    content["results"] = {"mediconfusion_ff": row}
    results.write_text(json.dumps(content))
    lines = []
    for number, one in enumerate(documents):
        score = task_file("mediconfusion").family.score(
            Sample(one), Reply("A"), Rule("robust_choice")
        )
        score |= {"rule": "gap_of_3_reference"}
        score |= {} if number else {"value": None, "reason": "judge_failed"}
        kept = {"schema_version": 2, **score}
        lines.append(
            {"doc_id": number, "resps": [f"words {number}"], "input": "?", "score": kept}
        )
    samples = tmp_path / f"{STAMP}_samples_mediconfusion_ff.jsonl"
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    report = collect_run(open_run(tmp_path))
    task = only(report)
    (rule,) = task.rules
    assert (rule.name, rule.rule) == ("reference", "gap_of_3_reference")
    assert rule.reasons == {"ok": 31, "judge_failed": 1}
    assert (rule.pairs.one_invalid, rule.pairs.incomplete, dict(rule.pairs.same)) == (
        0,
        1,
        {"A": 15},
    )  # unjudged
    assert by_metric(rule)["judge_failed_rate"] == 1 / 32
    assert (task.items[1].reply, task.items[1].answers["reference"].value) == ("words 1", "A")
    assert report.notes[0].startswith(
        "mediconfusion_ff, reference, individual_accuracy: the run recorded 0.5,"
    )


@each_row("access, named", [("public", True), ("credentialed", False)])
def test_a_row_says_where_the_published_code_stops(tmp_path, monkeypatch, access, named):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    rows = [{"question": "Is it?", "answer": answer} for answer in ("yes", "a mass")]
    name = f"own_{access}"
    publish_own(name, OPEN_QUESTION, rows, access=access)
    write_task(
        name, "kit_questions", {"reference": "medevalkit_vqa", "robust": "robust_kit_vqa"}
    )
    write_run(tmp_path / "run", {name: texts({"d0": "yes", "d1": "."})})
    stopped, sound = only(collect_run(open_run(tmp_path / "run"))).rules
    why = stopped.failures["accuracy"]
    assert "gives no number" in why
    assert "no words for ROUGE" in why
    assert ("'d1'" in why) == named
    assert sound.failures == {}


def test_recorded_replies_without_a_run(tmp_path):
    replies = made_up("mediconfusion")
    file = tmp_path / "replies.jsonl"
    lines = [
        json.dumps({"doc_id": doc_id, "reply": reply.text}) for doc_id, reply in replies.items()
    ]
    file.write_text("\n".join(lines[:30]) + "\n")
    report = collect_replies("mediconfusion", [file])
    task = only(report)
    check_scores(task, dict(list(replies.items())[:30]))
    assert (task.answered, len(task.items), report.model) == (30, 30, "")
    assert (
        task.missing[0] == "Only 30 of 32 questions were answered; the others are in no score."
    )
    with pytest.raises(RepliesError, match="is a group"):
        collect_replies("mediconfusion_all", [file])
    with pytest.raises(UnknownName):
        collect_replies("mediconfusio", [file])
    documents = load_documents("mediconfusion")  # letters for a task of likelihoods
    file.write_text(
        "".join(
            json.dumps({"doc_id": one["doc_id"], "reply": one["answer"]}) + "\n"
            for one in documents
        )
    )
    task = only(collect_replies("mediconfusion_gd", [file]))
    assert [rule.rule.split(" ")[0] for rule in task.rules] == [
        "mediconfusion_reference",
        "robust_choice",
    ]
    assert task.rules[0].scores[0].value == 1.0
    assert all(item.answers["reference"].right for item in task.items)


def test_the_scale_of_a_metric_decides_what_is_a_share():
    for value, share in (
        (0.5, True),
        (1.0, True),
        (math.nan, True),
        (1.5, False),
    ):  # published code may count twice
        assert (
            with_interval(Declaration("bleu", scale=Scale.SHARE), Estimate(value)).share
            is share
        )
    for scale in (Scale.COUNT, Scale.RAW):
        assert not with_interval(Declaration("bleu", scale=scale), Estimate(0.5)).share
    beyond = with_interval(
        raw_declaration("accuracy", higher_is_better=False), Estimate(0.1, 0.2)
    )
    assert beyond.low < 0 < beyond.high  # no share, so that it may
    assert not beyond.higher_is_better


def test_what_asks_a_judge_or_a_model_is_not_computed():
    computed = {
        name for name, task in task_files().items() if task.has_family and task.is_computed
    }
    assert {
        "mediconfusion",
        "mediconfusion_gd",
        "gmai_mmbench_val",
        "multimedeval_chestxray14",
    } <= computed
    others = {
        "mediconfusion_ff",
        "mediconfusion_all",
        "gmai_mmbench_val_judged",
        "medheval_knowledge_open",
    }
    others |= {
        "multimedeval_mimic_cxr_classification",
        "multimedeval_mimic_cxr_report",
        "medheval_visual_report",
    }
    others |= {"iu_xray_report", "gmai_mmbench_test"}  # of the last, the metric writes a file
    assert others & computed == set()
    assert task_file("gmai_mmbench_val_judged").family.scores_suffice
    assert task_file("mediconfusion_rotated").is_computed
