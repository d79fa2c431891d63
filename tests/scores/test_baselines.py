"""Baselines, which score as in a run and guess as the mean of all guesses, and calibration from recorded losses."""

import dataclasses
import itertools
import json
import math
from collections import Counter
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.samples import Sample
from medtasks.data.variants import blind, rotated
from medtasks.extract import labeler
from medtasks.extract.extractor_registry import extractor_of
from medtasks.extract.failure import failed_reply
from medtasks.families import family
from medtasks.families.family import Reply, needs_labeler
from medtasks.metrics.metric import evaluate
from medtasks.metrics.pairs import TOTAL
from medtasks.metrics.report_metrics import report_metric
from medtasks.runs.logged_samples import FOLDER_NAME
from medtasks.scores.baselines import baselines
from medtasks.scores.scoring import score_replies, score_rows, scores_of
from medtasks.scores.task_calibration import task_calibration
from medtasks.tasks.task_files import task_file, task_files

from .. import medheval_sources, tiny_gmai
from ..tables import each_row
from .two_runs import texts

TASKS = [name for name, task in task_files().items() if task.kind == "task"]


def by_name(task, documents):
    made = baselines(task_file(task), documents)
    assert len({baseline.name for baseline in made}) == len(made)
    return {baseline.name: baseline for baseline in made}


def choice(number, answer, options=4, **further):
    names = ["liver", "left kidney", "spleen", "bladder", "heart"][:options]
    options = [f"{name} {number}" for name in names]
    document = {
        "doc_id": str(number),
        "image_id": f"i{number}",
        "granularity": "Image Level",
        "options": options,
    }
    return {**document, "answer": answer, **further}


def images(column, values, **columns):
    return [
        {"doc_id": str(n), "image_id": str(n), **columns, column: value}
        for n, value in enumerate(values)
    ]


def no_score(baseline):
    return {
        name
        for name, scores in baseline.scores.items()
        if all(map(math.isnan, scores.values()))
    }


@pytest.fixture(scope="module")
def medheval(tmp_path_factory):
    return medheval_sources.prepared_home(tmp_path_factory.mktemp("medheval"))


@each_row("benchmark", ["multimedeval_", "medheval_"])
def test_every_rule_reads_every_constant_reply_as_meant(
    benchmark, multimedeval_home, medheval, monkeypatch
):
    monkeypatch.setenv(
        "MEDTASKS_HOME", str(medheval if benchmark == "medheval_" else multimedeval_home)
    )
    for name in (
        name for name in TASKS if name.startswith(benchmark) and not name.endswith("_5shot")
    ):
        task = task_file(name)
        documents = load_documents(task.dataset)
        for baseline in baselines(task, documents):
            missing = {row_name for row_name, row in task.rows.items() if needs_labeler(row)}
            if name.startswith("multimedeval_chestxray14") and baseline.name == "all findings":
                missing = {
                    "reference"
                }  # a reply of several labels is none of them for the reference
            assert no_score(baseline) == missing, (name, baseline)
            assert set(baseline.scores) == set(task.rows)
            assert all(f"No score under {rule}: " in baseline.describes for rule in missing)
            for rule in set(task.rows) - missing:
                invalid = baseline.scores[rule].get("invalid_rate", 0.0)
                assert invalid == 0 or benchmark == "medheval_", (name, baseline)


@each_row("task", ["mediconfusion", "mediconfusion_gd"])
def test_pairs(sample, task):
    documents = load_documents("mediconfusion")
    made, metrics = (
        by_name(task, documents),
        ("set_accuracy", "individual_accuracy", "confusion", "invalid_rate"),
    )
    assert list(made) == ["always A", "always B", "most frequent answer", "random answer"]
    for name, baseline in made.items():
        scores = (0.25, 0.5, 0.5, 0) if name == "random answer" else (0, 0.5, 1, 0)
        assert baseline.scores == {
            rule: dict(zip(metrics, scores, strict=True)) for rule in task_file(task).rows
        }
    cut = documents[:21]  # the last pair is incomplete
    recorded = score_replies(task_file("mediconfusion"), cut, texts(cut, lambda _: "B"))
    for rule, scores in by_name("mediconfusion", cut)["always B"].scores.items():
        assert scores == {
            name: getattr(recorded[rule].categories[TOTAL], name) for name in scores
        }


def test_tasks_of_judges_or_reports_have_no_constant_baseline():
    read = {
        "doc_id": "1",
        "question": "?",
        "answer": "A",
        "options": ["x", "y"],
        "report": "Normal.",
    }
    judged = (
        "mediconfusion_ff",
        "gmai_mmbench_val_judged",
        "medheval_knowledge_open",
        "medheval_visual_report",
    )
    for task in (*judged, "medheval"):
        assert baselines(task_file(task), [read, {**read, "doc_id": "2"}]) == ()


def test_documents_without_a_target_have_no_baseline():
    assert baselines(task_file("gmai_mmbench_test"), [choice(1, None), choice(2, None)]) == ()
    assert baselines(task_file("gmai_mmbench_val"), []) == ()


def test_constants_are_named_by_texts_only_where_these_differ():
    documents = [
        {**choice(n, "A"), "dataset": "mediconfusion", "options": ["yes", "no", "maybe"]}
        for n in range(3)
    ]
    assert list(by_name("multimedeval_pubmedqa", documents))[:3] == [
        "always yes",
        "always no",
        "always maybe",
    ]
    same = [{**document, "options": ["yes", "yes", "maybe"]} for document in documents]
    assert list(by_name("gmai_mmbench_val", same))[:3] == ["always A", "always B", "always C"]


def test_of_equally_frequent_answers_the_first_counts():
    documents = [choice(n, "CBCBA"[n]) for n in range(5)]

    assert (
        by_name("gmai_mmbench_val", documents)["most frequent answer"].scores["robust"][
            "accuracy"
        ]
        == 0.4
    )
    assert by_name("gmai_mmbench_val", documents) == by_name(
        "gmai_mmbench_val", documents[::-1]
    )


def test_scores_of_questions_are_those_of_recorded_replies(tmp_path):
    tiny_gmai.write(tmp_path / "GMAI-MMBench_VAL.tsv", tiny_gmai.rows(60))
    prepare("gmai_mmbench_val", Options(tmp_path, allow_changed=True))
    gmai = load_documents("gmai_mmbench_val")
    scored = score_replies(task_file("gmai_mmbench_val"), gmai, texts(gmai, lambda _: "B"))
    made = by_name("gmai_mmbench_val", gmai)
    assert list(made) == [
        "always A",
        "always B",
        "most frequent answer",
        "random answer",
    ]  # all have two options
    for rule, scores in made["always B"].scores.items():
        assert scores == pytest.approx(
            {name: scored[rule].estimates[name].value for name in scores}, nan_ok=True
        )
    groups = {}  # the most frequent among questions with as many options
    for document in gmai:
        groups.setdefault(len(document["options"]), Counter())[document["answer"]] += 1
    right = sum(max(counts.values()) for counts in groups.values())
    for task in ("gmai_mmbench_val", "gmai_mmbench_val_ll"):
        for scores in by_name(task, gmai)["most frequent answer"].scores.values():
            assert scores["accuracy"] == pytest.approx(right / len(gmai))


NEVER_READ = "No score under reference: it reads no reply as this answer for {} questions."


def test_an_option_that_a_rule_cannot_read_has_no_score():
    """Of option A, "a", the reference's cleaner leaves no word: both are articles."""
    documents = [choice(n, "AB"[n % 2], options=2) for n in range(9)] + [
        {**choice(9, "A"), "options": ["a", "the"]}
    ]
    first, second = itertools.islice(by_name("multimedeval_mmlu", documents).values(), 2)
    assert (first.name, no_score(first)) == ("always A", {"reference"})
    assert (second.name, no_score(second)) == ("always B", set())
    assert first.describes.endswith(NEVER_READ.format("1 of 10"))
    assert (first.scores["robust"]["accuracy"], second.scores["reference"]["accuracy"]) == (
        0.6,
        0.4,
    )


def test_labels_that_a_rule_cannot_read_have_no_score():
    options = ["Mass", "Nodule", "Edema"]
    documents = images("labels", [[1, 0, 0], [0, 0, 0], [1, 1, 0], [0, 0, 0]], options=options)
    made = by_name("multimedeval_chestxray14", documents)
    assert made["no finding"].scores["reference"]["macro_accuracy"] == 0.75
    assert made["all findings"].scores["robust"]["macro_accuracy"] == 0.25
    assert no_score(made["all findings"]) == {"reference"}
    assert made["all findings"].describes.endswith(NEVER_READ.format("4 of 4"))


def test_a_rule_with_a_labeler_has_no_baseline(monkeypatch):
    for module in (family, labeler):
        monkeypatch.setattr(
            module, "label_replies", Mock(side_effect=AssertionError("a labeler was asked"))
        )
    made = by_name(
        "multimedeval_mimic_cxr_classification", images("labels", [[1], [0]], options=["Edema"])
    )
    assert no_score(made["no finding"]) == {"reference"}
    assert made["no finding"].scores["robust"]["macro_accuracy"] == 0.5
    assert "it needs a labeler" in made["no finding"].describes


SEVERAL = [
    {**choice(1, None), "answers": ["A", "C"]},
    {**choice(2, None), "answers": ["C"]},
    {**choice(3, None, options=2), "answers": ["B"]},
]


def test_baselines_of_questions_with_several_right_options():
    scores = {
        name: made.scores["robust"]
        for name, made in by_name("gmai_mmbench_mcls", SEVERAL).items()
    }
    expected = {"mcls_accuracy": pytest.approx(1.25 / 3), "mcls_recall": 1, "invalid_rate": 0}
    assert {name: scores["all options"][name] for name in expected} == expected
    assert scores["most frequent answer"]["mcls_accuracy"] == 1
    assert scores["most frequent answer"]["mcls_recall"] == pytest.approx(2.5 / 3)
    assert scores["random answer"]["mcls_accuracy"] == pytest.approx(1.25 / 3)


def test_baselines_of_classes():
    made = by_name(
        "multimedeval_bloodmnist",
        images("label", [1, 1, 2, 1], options=["cyst", "stone", "tumor"]),
    )
    assert list(made) == ["most frequent class", "random answer"]
    for scores in made["most frequent class"].scores.values():
        assert (scores["balanced_accuracy"], scores["macro_f1"]) == (
            0.5,
            pytest.approx((6 / 7) / 2),
        )
    assert (
        "macro_f1" not in made["random answer"].scores["robust"]
    )  # its expectation has no formula


def test_the_baseline_of_reports_has_metrics_that_count_words():
    normal = "The heart is normal . No effusion ."
    reports = ["Large mass .", normal, normal, "Old rib fracture ."]
    documents = images("report", reports, indication=None, context=None)
    made = by_name("iu_xray_report", documents)
    assert list(made) == ["most frequent report"]
    scores = made["most frequent report"].scores["reference"]
    assert set(scores) == {"bleu_1", "bleu_4", "rouge_l"}
    compared = {"references": reports, "hypotheses": [normal] * 4}
    counted = {
        **report_metric("bleu")(**compared).totals,
        **report_metric("rouge")(**compared).totals,
    }
    assert scores == {name: pytest.approx(counted[name]) for name in scores}
    assert normal not in str(made)
    assert by_name("iu_xray_report", documents[:2]) == {}


def open_questions(*answers):
    questions = {"yes": "Is there a mass?", "no": "Is there a stone?"}
    documents = images("answer", answers)
    return [
        {**item, "question": questions.get(item["answer"].lower(), "What is it?")}
        for item in documents
    ]


def test_baselines_of_open_questions():
    documents = open_questions(
        "Yes", "no", "no", "The left lung", "left lung", "left lung", "CT"
    )
    made = by_name("multimedeval_vqa_rad", documents)
    expected = {
        "always yes": (1 / 3, 0),
        "always no": (2 / 3, 0),
        "most frequent answer": (2 / 3, 0.75),
    }
    assert list(made) == list(expected)
    for name, values in expected.items():
        for rule in ("reference", "robust"):
            scores = made[name].scores[rule]
            assert (scores["closed_accuracy"], scores["open_accuracy"]) == pytest.approx(values)
    assert list(by_name("multimedeval_vqa_rad", documents[3:])) == ["most frequent answer"]


def test_baselines_tell_nothing_of_credentialed_data(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    secret = "Zanzibar"
    documents = [
        {**item, "dataset": "multimedeval_diff_vqa"}
        for item in open_questions("yes", secret, secret, "MRI")
    ]
    made = baselines(task_file("multimedeval_diff_vqa"), documents)
    assert made[-1].scores["robust"]["open_accuracy"] == pytest.approx(2 / 3)
    nli = images("answer", "AAA", dataset="multimedeval_mednli", options=[secret, "y"])
    made += baselines(task_file("multimedeval_mmlu"), nli)
    text = json.dumps([dataclasses.asdict(baseline) for baseline in made])
    assert ("always A" in text, secret in text, (tmp_path / FOLDER_NAME).exists()) == (
        True,
        False,
        False,
    )


def test_each_kind_of_question_has_its_most_frequent_answer(medheval, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(medheval))
    documents = load_documents("medheval_visual_mm")
    keyed = [document for document in documents if document["answer"] is not None]
    kinds = {}
    for document in keyed:
        key = (document["kind"], len(document["options"]))
        kinds.setdefault(key, Counter())[document["answer"]] += 1
    right = sum(max(counts.values()) for counts in kinds.values())
    for task in ("medheval_visual_mm", "medheval_visual_mm_ll"):
        made = by_name(task, documents)
        assert list(made) == [
            "always yes",
            "always no",
            "most frequent answer",
            "random answer",
        ]
        assert (
            not {"always_yes", "random_choice", "unscored_rate"}
            & made["always no"].scores["strict"].keys()
        )
        assert made["most frequent answer"].scores["strict"]["accuracy"] == right / len(keyed)


@pytest.mark.slow
def test_golden_closed_questions_of_medheval(test_data):
    folder = test_data / "medheval"
    if not folder.is_dir():
        pytest.skip(f"no published files in {folder}")
    prepare("medheval_visual_mm", Options(folder))
    documents = load_documents("medheval_visual_mm")
    same = {
        "always yes": "always_yes",
        "always no": "always_no",
        "random answer": "random_choice",
    }
    for task, reply in (
        ("medheval_visual_mm", Reply(text="")),
        ("medheval_visual_mm_ll", Reply(losses=(1.0, 2.0))),
    ):
        if task.endswith("_ll"):
            documents = documents[::5]
        made = by_name(task, documents)
        assert not any(map(no_score, made.values()))
        scored = score_replies(
            task_file(task), documents, {document["doc_id"]: reply for document in documents}
        )
        for rule, recorded in scored.items():
            accuracies = {
                name: baseline.scores[rule]["accuracy"] for name, baseline in made.items()
            }
            for name, metric in same.items():
                assert accuracies[name] == pytest.approx(recorded.estimates[metric].value)
            assert max(accuracies, key=accuracies.get) == "most frequent answer"
        if "reference" in scored:
            published = [
                made[name].scores["reference"]["accuracy"]
                for name in ("always yes", "always no")
            ]
            assert published == pytest.approx([0.3614, 0.4664], abs=5e-5)


def test_rotated_questions_keep_no_letter_right(sample):
    documents = rotated(load_documents("mediconfusion"))
    for task in ("mediconfusion_rotated", "mediconfusion_gd_rotated"):
        made = by_name(task, documents)
        assert list(made) == ["always A", "always B", "random answer"]
        for scores in made["always A"].scores.values():
            assert (scores["mean_accuracy"], scores["worst_case"], scores["flip_rate"]) == (
                0.5,
                0,
                1,
            )
            assert scores["invalid_rate"] == 0
    documents = load_documents("mediconfusion")  # other variants have those of their task
    assert by_name("mediconfusion_blind", blind(documents)) == by_name(
        "mediconfusion", documents
    )


def by_chance(task, documents):
    return task_file(task).family.expected_by_chance(
        [Sample(document) for document in documents]
    )


def pair(number, options=2, answers="AB"):
    columns = {"pair_id": str(number), "categories": ["Chest"]}
    return [
        choice(
            f"{number}-{position}", answers[position - 1], options, **columns, position=position
        )
        for position in (1, 2)
    ]


def check(task, documents, metrics, say=lambda document, index: "ABCD"[index]):
    """The expected values are the means over all combinations of options, as the family scores each."""
    values, expected = {}, by_chance(task, documents)
    for guesses in itertools.product(
        *(range(len(document["options"])) for document in documents)
    ):
        replies = [
            Reply(text=say(document, index))
            for document, index in zip(documents, guesses, strict=True)
        ]
        scores = scores_of(task_file(task), task_file(task).rows["robust"], documents, replies)
        for name, estimate in evaluate(task_file(task).metrics, scores).items():
            values.setdefault(name, []).append(float(estimate.value))
    assert set(expected) == {*metrics, "invalid_rate"}
    assert {name: sum(values[name]) / len(values[name]) for name in expected} == pytest.approx(
        expected
    )


def test_guesses_of_pairs_have_their_expected_values():
    paired = ("set_accuracy", "individual_accuracy", "confusion")
    check("mediconfusion", [*pair(1), *pair(2)], paired)
    check("mediconfusion", [*pair(1), pair(2)[0]], paired)
    check("mediconfusion", pair(1)[:1], ("individual_accuracy",))
    check("mediconfusion", [pair(1)[0], pair(1, 3, "AC")[1]], paired)


def test_guesses_of_questions_have_their_expected_values():
    levels = (
        ("A", 2, "Image Level"),
        ("C", 3, "image level"),
        ("B", 4, "Contour Level"),
        ("B", 2, None),
    )
    documents = [
        choice(n, answer, options, granularity=level)
        for n, (answer, options, level) in enumerate(levels)
    ]
    check("gmai_mmbench_val", documents, ("accuracy", "acc_image_level", "acc_contour_level"))
    check("gmai_mmbench_mcls", SEVERAL, ("mcls_accuracy", "mcls_recall"))


def test_guesses_of_rotated_questions_have_their_expected_values():
    names = ("mean_accuracy", "published_order", "worst_case", "flip_rate")
    turned = rotated([choice(1, "A", 2), choice(2, "C", 3)])
    for part, metrics in ((turned, names), (turned[:1], names[:2]), (turned[1:2], names[:1])):
        check("gmai_mmbench_val_rotated", part, metrics)
    check(
        "gmai_mmbench_mcls_rotated",
        rotated([{**choice(1, None, 3), "answers": ["A", "C"]}]),
        names,
    )


def test_guesses_of_classes_have_their_expected_values():
    names = ("balanced_accuracy", "macro_auroc", "present_class_auroc")
    for labels in ([0, 1, 2], [0, 0, 1], [0, 2, 2, 2]):
        documents = images("label", labels, options=["cyst", "stone", "tumor"])
        check(
            "multimedeval_bloodmnist",
            documents,
            names,
            lambda document, index: document["options"][index],
        )
    one_class = images("label", [1, 1, 1], options=["cyst", "stone"])
    expected = {"invalid_rate": 0, "balanced_accuracy": 0.5, "macro_auroc": 0}
    assert by_chance("multimedeval_bloodmnist", one_class) == expected


def test_guesses_without_a_formula_have_no_expected_value():
    for task, further in (
        ("multimedeval_vqa_rad", {"answer": "left lung"}),
        ("multimedeval_chestxray14", {"options": ["Edema", "Mass"], "labels": [0, 1]}),
        (
            "medheval_visual_mm",
            {"options": ["Yes", "No"], "choices": "", "kind": "binary", "answer": "A"},
        ),
        ("gmai_mmbench_val", {"options": ["x", "y"], "answer": None}),
    ):
        assert by_chance(task, [{"question": "?", **further}]) == {}


def test_the_best_constant_is_tested_against_the_run(sample):
    task, documents = task_file("mediconfusion"), load_documents("mediconfusion")
    replies = {
        document["doc_id"]: Reply.of_text("AB"[place % 3 == 0])
        for place, document in enumerate(documents)
    }
    replies[documents[0]["doc_id"]] = Reply.of_text(failed_reply("no memory"))
    rows = score_rows(task, documents, replies)
    of_run = {
        name: dict(zip(replies, scores, strict=True)) for name, (_, scores) in rows.items()
    }
    made = baselines(task, documents, of_run)
    tested = {
        row: (baseline.name, *test) for baseline in made for row, test in baseline.tests.items()
    }
    answered = {doc_id: reply for doc_id, reply in replies.items() if not reply.is_failure}
    assert tested.keys() == task.rows.keys()
    for row, (constant, metric, test) in tested.items():
        assert metric == "individual_accuracy"  # constants solve no pair
        values = {
            baseline.name: baseline.scores[row][metric]
            for baseline in made
            if baseline.name != "random answer"
        }
        assert values[constant] == max(values.values())
        assert test.samples == 31  # one has no reply
        assert (
            test.second
            == score_replies(task, documents, answered)[row]
            .categories[TOTAL]
            .individual_accuracy
        )
    assert all(baseline.tests == {} for baseline in baselines(task, documents))


LIKELIHOODS = [
    name for name, task in task_files().items() if task.output_type == "multiple_choice"
]
GMAI, PAIRS = "gmai_mmbench_val_ll", "mediconfusion_gd"


def question(number, answer="A", options=2, **further):
    return {
        "doc_id": f"q{number}",
        "options": ["x", "y", "z", "w"][:options],
        "answer": answer,
        **further,
    }


def losses(*values):
    return Reply(losses=values)


def calibrated(documents, replies, name=GMAI):
    by_row = task_calibration(task_file(name), documents, replies)
    assert list(by_row) == list(task_file(name).rows)
    assert len({id(calibration) for calibration in by_row.values()}) == 1
    return next(iter(by_row.values()))


def test_probabilities_are_those_of_the_losses():
    documents = [question(1), question(2, "B"), question(3, "C", options=3)]
    probabilities = [(0.8, 0.2), (0.7, 0.3), (0.25, 0.25, 0.5)]
    replies = {
        document["doc_id"]: losses(
            *(-math.log(value / 7) for value in row)
        )  # a common factor cancels out
        for document, row in zip(documents, probabilities, strict=True)
    }
    calibration = calibrated(documents, replies)
    assert (calibration.samples, calibration.left_out) == (3, 0)
    assert calibration.accuracy.value == pytest.approx(2 / 3)
    assert calibration.confidence == pytest.approx((0.8 + 0.7 + 0.5) / 3)
    assert calibration.brier.value == pytest.approx((0.08 + 0.98 + 0.375) / 3)
    large = calibrated([question(1)], {"q1": losses(5000.0, 5000.0 + math.log(3))})
    assert large.confidence == pytest.approx(0.75)  # without underflow


def test_texts_have_no_calibration():
    for name in ("mediconfusion", "mediconfusion_ff", GMAI):
        assert task_calibration(task_file(name), [question(1)], {"q1": Reply(text="A")}) == {}
    assert task_calibration(task_file(GMAI), [question(1)], {}) == {}


def test_losses_that_cannot_be_read_are_counted():
    documents = [question(1), question(2), question(3, None), question(4)]
    unreadable = (
        (math.nan, 1.0),
        (math.inf, 1.0),
        (-math.inf, 1.0),
        (1.0,),
        (1.0, 2.0, 3.0),
        (),
    )
    for bad in (*(losses(*values) for values in unreadable), Reply(text="A")):
        calibration = calibrated(
            documents, {"q1": losses(0.1, 2.0), "q2": bad, "q3": losses(0.1, 2.0)}
        )
        assert (calibration.samples, calibration.left_out) == (1, 2), (
            bad
        )  # q3 has no key, q4 was not asked
        assert calibration.accuracy.value == 1


@each_row("name", LIKELIHOODS)
def test_the_note_says_whether_probabilities_are_the_models_own(name):
    calibration = calibrated(
        [question(1, pair_id="1", image_id="i")], {"q1": losses(0.1, 2.0)}, name
    )
    letters = name in (PAIRS, GMAI) or name.startswith("medevalkit_")
    assert ("where each letter is one token" in calibration.note) == letters
    assert ("not the model's own probabilities" in calibration.note) == (not letters)
    assert (bool(calibration.bins), math.isnan(calibration.brier.value)) == (
        letters,
        not letters,
    )


def test_calibration_is_clustered_by_patient():
    replies = {f"q{n}": losses(*((0.1, 2.0) if n % 4 else (2.0, 0.1))) for n in range(40)}
    apart = calibrated([question(n) for n in range(40)], replies).brier
    same = calibrated([question(n, patient_id=str(n % 4)) for n in range(40)], replies).brier
    assert same.value == apart.value
    assert same.high - same.low > 2 * (
        apart.high - apart.low
    )  # a patient's answers are all alike
    alone = calibrated([question(n, patient_id="p") for n in range(40)], replies)
    assert math.isnan(alone.brier.low)


def test_calibration_is_clustered_by_pairs_connected_by_images(sample):
    documents = load_documents("mediconfusion")
    replies = {document["doc_id"]: losses(0.2, 1.0) for document in documents}
    chained = [
        {**item, "image_id": "one" if item["position"] == 1 else item["image_id"]}
        for item in documents
    ]
    assert math.isnan(calibrated(chained, replies, PAIRS).accuracy.low)  # all are one unit
    by_pair = calibrated(
        [{**item, "image_id": item["doc_id"]} for item in documents], replies, PAIRS
    )
    # Of each pair one answer is right: pairs do not differ, and count as one answer each.
    assert by_pair.accuracy.value == 0.5
    assert by_pair.accuracy.high - by_pair.accuracy.low == pytest.approx(0.466, abs=0.01)


def test_tied_losses_of_a_pair_are_between_the_rules(sample):
    documents = load_documents("mediconfusion")
    tied = calibrated(
        documents, {document["doc_id"]: losses(1.0, 1.0) for document in documents}, PAIRS
    )
    rules = ("greedy_reference", "prefix_reference")
    assert [extractor_of(rule).extract([1.0, 1.0], Sample({})).value for rule in rules] == [
        "A",
        "B",
    ]
    assert (tied.accuracy.value, tied.ece.value) == (0.5, 0.0)  # a tie is between the rules


def test_classes_have_areas_only_if_all_questions_share_their_options():
    draw = np.random.default_rng(2)
    documents = [
        {"doc_id": f"q{n}", "options": ["x", "y", "z"], "label": n % 3} for n in range(60)
    ]
    probabilities = draw.dirichlet([1.0] * 3, 60)
    replies = {
        f"q{n}": losses(*(-math.log(value) for value in row))
        for n, row in enumerate(probabilities)
    }
    classes = calibrated(documents, replies).classes
    assert [(area.name, area.samples) for area in classes] == [("x", 20), ("y", 20), ("z", 20)]
    for number, area in enumerate(classes):
        target = [n % 3 == number for n in range(60)]
        assert area.auroc.value == pytest.approx(
            roc_auc_score(target, probabilities[:, number])
        )
        assert area.auroc.low < area.auroc.value < area.auroc.high
    documents[0]["options"] = ["x", "y", "other"]
    assert calibrated(documents, replies).classes == ()
