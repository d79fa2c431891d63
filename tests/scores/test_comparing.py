"""Comparing runs: which samples are paired, by which unit, which metrics; tests corrected together; agreement."""

import json
import math
import random
import re
from dataclasses import replace

import pytest
import scipy.stats

from medtasks.data.dataset_lookup import provenance
from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.privacy import hidden_id
from medtasks.errors import RepliesError, UnknownName, WeightsMissing
from medtasks.families.family import Reply, Rule
from medtasks.metrics.class_scores import MULTICLASS_METRICS
from medtasks.metrics.metric import mean
from medtasks.metrics.pairs import TOTAL
from medtasks.metrics.report_metrics import ReportScores
from medtasks.runs.replies import read_replies
from medtasks.runs.reply_origins import ReplyOrigins
from medtasks.runs.run import Source
from medtasks.scores.comparing import compare_all, compare_runs, compare_task
from medtasks.scores.run_values import (
    Failures,
    Overlap,
    agreement,
    chosen_metrics,
    likelihood_agreement,
    run_values,
    text_agreement,
)
from medtasks.scores.scoring import score_replies
from medtasks.scores.task_calibration import class_areas
from medtasks.scores.verdicts import Verdict, verdict_on
from medtasks.stats.exchange import EXCHANGE
from medtasks.stats.paired import DELONG, DYADIC, MCNEMAR, SIGN_FLIP, compare_paired, holm
from medtasks.tasks.task_files import task_file
from medtasks.tasks.task_index import DottedName

from .. import tiny_multimedeval
from ..made_up_runs import write_run
from ..stats import error_matrices
from ..task_families import FAMILIES
from .two_runs import texts

CLINICAL = ("sensitivity", "specificity")


def model(documents, accuracy, seed):
    """A model that gives the right letter with this probability."""
    chance = random.Random(seed)
    wrong = {"A": "B", "B": "A"}
    return texts(
        documents, lambda d: d["answer"] if chance.random() < accuracy else wrong[d["answer"]]
    )


def by_metric(compared, rule="robust"):
    return {test.metric: test for test in compared.comparisons if test.rule == rule}


def choice_task(hook="choice", rule="robust_choice"):
    hooks = {
        name: DottedName(f"medtasks.hooks.{hook}.{name}")
        for name in ("process_results", "METRIC_LIST")
    }
    task = replace(FAMILIES["choice"].task(None), rows={"robust": Rule(rule)}, breakdown=())
    return replace(
        task, process_results=hooks["process_results"], metric_list=hooks["METRIC_LIST"]
    )


@pytest.fixture
def documents(sample):
    return load_documents("mediconfusion")


@pytest.fixture
def questions():
    return [
        {
            "doc_id": str(n),
            "image_id": f"i{n // 3}",
            "options": ["red", "blue"],
            "answer": "AB"[n % 2],
        }
        for n in range(60)
    ]


def test_every_metric_has_the_dyads_of_shared_images(documents):
    """Pairs that share images are dyads under every metric; pairs that share none are independent."""
    task = task_file("mediconfusion")
    runs = {"A": model(documents, 0.6, 1), "B": model(documents, 0.85, 2)}
    tests = {}
    for kind, docs in (
        ("shared", documents),
        ("apart", [{**d, "image_id": d["doc_id"]} for d in documents]),
    ):
        by_name = by_metric(compare_runs(task, docs, runs))
        assert list(by_name) == ["set_accuracy", "individual_accuracy"]
        pairs, answers = (test.result for test in by_name.values())
        assert (pairs.samples, pairs.units, answers.samples, answers.units) == (16, 16, 32, 16)
        tests[kind] = (pairs.test, answers.test)
        total = score_replies(task, docs, runs["A"])["robust"].categories[TOTAL]
        assert (pairs.first, answers.first) == (total.set_accuracy, total.individual_accuracy)
    assert tests == {"shared": (DYADIC, DYADIC), "apart": (MCNEMAR, SIGN_FLIP)}


def test_golden_mediconfusion_two_models_of_known_difference(test_data):
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    task, documents = task_file("mediconfusion"), load_documents("mediconfusion")
    runs = {"A": model(documents, 0.55, 3), "B": model(documents, 0.7, 4)}
    tests = compare_runs(task, documents, runs).comparisons
    keys = {d["doc_id"]: d["answer"] for d in documents}
    right = {
        name: {doc: reply.text == keys[doc] for doc, reply in run.items()}
        for name, run in runs.items()
    }
    pairs = sorted({d["pair_id"] for d in documents})
    solved = {
        name: {p: run[f"{p}/1"] and run[f"{p}/2"] for p in pairs} for name, run in right.items()
    }
    for test in tests:
        units = solved if test.metric == "set_accuracy" else right
        gained = sum(units["B"][unit] and not units["A"][unit] for unit in units["A"])
        lost = sum(units["A"][unit] and not units["B"][unit] for unit in units["A"])
        assert test.result.samples == len(units["A"])
        assert test.result.mcnemar == scipy.stats.binomtest(gained, gained + lost).pvalue
        assert test.result.difference == pytest.approx((gained - lost) / len(units["A"]))
    images = [[d["image_id"] for d in documents if d["pair_id"] == pair] for pair in pairs]
    error, degrees = error_matrices.dyadic(
        [solved["B"][pair] - float(solved["A"][pair]) for pair in pairs], images
    )
    expected = 2 * scipy.stats.t.sf(tests[0].result.difference / error, degrees)
    assert tests[0].result.p == pytest.approx(expected)
    # Both rules read every reply alike, so that two of the four are the same tests: Holm multiplies by two.
    assert min(test.holm for test in tests) == 2 * min(test.result.p for test in tests)
    assert [test.same_as for test in tests] == ["", "", "reference", "reference"]
    with_margin = compare_runs(task, documents, runs, margin=0.01).comparisons
    assert [(test.same_as, test.holm) for test in with_margin] == [
        (test.same_as, test.holm) for test in tests
    ]
    for test in tests:
        (alone,) = compare_runs(task, documents, runs, [test.metric], ["robust"]).comparisons
        assert test.result.detectable > alone.result.detectable


@pytest.fixture
def right(documents):
    return texts(documents, lambda document: document["answer"])


def test_each_rule_is_a_test_of_its_own(documents, right):
    task = task_file("mediconfusion")
    vague = {
        **right,
        documents[0]["doc_id"]: Reply.of_text(
            f"I think it is {documents[0]['answer']}, clearly."
        ),
    }
    tests = compare_runs(task, documents, {"A": right, "B": vague}).comparisons
    assert [test.same_as for test in tests] == [""] * 4
    (alone,) = compare_runs(
        task, documents, {"A": right, "B": vague}, ["set_accuracy"], ["robust"]
    ).comparisons
    assert (alone.rule, alone.holm) == ("robust", alone.result.p)
    with pytest.raises(UnknownName, match="unknown rule 'robst'"):
        compare_runs(task, documents, {"A": right, "B": vague}, rules=["robst"])


def test_only_common_documents_are_compared(documents, right):
    task = task_file("mediconfusion")
    first = dict(list(right.items())[:20])
    second = dict(list(right.items())[5:30])

    compared = compare_runs(task, documents, {"A": first, "B": second})
    overlap = compared.overlaps["A", "B"]
    assert (overlap.both, overlap.only_first, overlap.only_second, overlap.neither) == (
        15,
        5,
        10,
        2,
    )
    assert by_metric(compared)["individual_accuracy"].result.samples == 15
    assert (
        by_metric(compared)["set_accuracy"].result.samples == 7
    )  # row 5 is the second of its pair
    backwards = compare_runs(
        task, documents[::-1], {"A": dict(reversed(first.items())), "B": second}
    )
    assert repr(replace(compared, agreements={})) == repr(replace(backwards, agreements={}))


def test_runs_without_a_common_document_are_refused(documents, right):
    first = dict(list(right.items())[:4])
    second = dict(list(right.items())[5:30])

    with pytest.raises(
        RepliesError,
        match="A and B answered no document in common, so that there is nothing to",
    ):
        compare_runs(task_file("mediconfusion"), documents, {"A": first, "B": second})


def test_a_metric_of_pairs_is_left_out_where_no_pair_is_whole(documents, right):
    first = {doc_id: reply for doc_id, reply in right.items() if doc_id.endswith("/1")}
    compared = compare_runs(task_file("mediconfusion"), documents, {"A": first, "B": right})

    assert list(by_metric(compared)) == ["individual_accuracy"]
    assert (
        compared.skipped["robust", "set_accuracy"]
        == "has no sample with a value in both A and B"
    )


def test_questions_about_one_image_are_one_unit(questions):
    runs = {"A": model(questions, 0.5, 1), "B": model(questions, 0.9, 2)}

    result = by_metric(compare_runs(choice_task(), questions, runs))["accuracy"].result
    assert (result.samples, result.units, result.test) == (60, 20, SIGN_FLIP)

    single = [{**question, "image_id": question["doc_id"]} for question in questions]
    result = by_metric(compare_runs(choice_task(), single, runs))["accuracy"].result
    assert (result.units, result.test, result.p) == (60, MCNEMAR, result.mcnemar)


def test_a_rate_of_invalid_replies_is_compared_if_asked_for(questions):
    runs = {"A": model(questions, 0.5, 1), "B": texts(questions, lambda _: "I cannot tell.")}
    (test,) = compare_runs(choice_task(), questions, runs, ["invalid_rate"]).comparisons
    assert (test.metric, test.result.difference) == ("invalid_rate", 1)


def test_an_unknown_metric_is_refused_with_the_nearest_name(questions):
    runs = {"A": model(questions, 0.5, 1), "B": model(questions, 0.9, 2)}

    with pytest.raises(UnknownName, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        compare_runs(choice_task(), questions, runs, ["acuracy"])


def test_a_metric_of_some_questions_is_compared_on_these(questions):
    asked = [{**item, "question": "What?", "answer": "left lung"} for item in questions[:10]]
    asked += [
        {**item, "question": "Is there an effusion?", "answer": "yes"}
        for item in questions[30:40]
    ]
    runs = {"A": texts(asked, lambda _: "yes"), "B": texts(asked, lambda d: d["answer"])}
    tests = by_metric(compare_runs(choice_task("open_questions", "robust_vqa"), asked, runs))
    assert tests["closed_accuracy"].result.samples == tests["open_recall"].result.samples == 10
    assert (
        tests["closed_accuracy"].result.difference,
        tests["open_recall"].result.difference,
    ) == (
        0,
        1,
    )
    assert tests["token_f1"].result.samples == 20
    assert "invalid_rate" not in tests


@pytest.fixture
def images(questions):
    return [
        {**item, "image_id": item["doc_id"], "label": n % 2} for n, item in enumerate(questions)
    ]


@pytest.fixture
def constant_and_right(images):
    return {
        "A": texts(images, lambda _: "red"),
        "B": texts(images, lambda d: d["options"][d["label"]]),
    }


def test_right_answers_of_classes_are_compared_image_by_image(images, constant_and_right):
    task = choice_task("classification", "robust_class")
    test, *_ = compare_runs(task, images, constant_and_right).comparisons

    assert (test.metric, test.result.first, test.result.second) == ("right_answers", 0.5, 1)
    assert test.result.p == scipy.stats.binomtest(30, 30).pvalue


def test_scores_of_all_samples_together_are_tested_by_exchange(images, constant_and_right):
    task = choice_task("classification", "robust_class")
    compared = compare_runs(task, images, constant_and_right)
    _, *together = compared.comparisons

    # Only the exchange of all images, or of none, is as extreme.
    assert [test.metric for test in together] == [*MULTICLASS_METRICS]
    assert {test.result.test for test in together} == {EXCHANGE}
    (macro_f1,) = (test.result for test in together if test.metric == "macro_f1")
    assert (macro_f1.first, macro_f1.second, macro_f1.samples) == pytest.approx((1 / 3, 1, 60))
    assert macro_f1.p == 1 / 10_001
    assert not compared.skipped

    (alone,) = compare_runs(task, images, constant_and_right, ["macro_f1"]).comparisons
    assert (alone.metric, alone.main, alone.result.p) == ("macro_f1", True, macro_f1.p)


def images_of_ill(per_patient):
    """Images of 120 with as many of each patient, every fourth of which shows the illness."""
    return [
        {
            "doc_id": str(n),
            "image_id": f"i{n // per_patient}",
            "options": ["healthy", "ill"],
            "label": int(n % 4 == 0),
        }
        for n in range(120)
    ]


def runs_on(images, seed):
    """Two runs on images of ill and healthy people: an invalid reply in one, a failed one in each."""
    chance = random.Random(seed)
    runs = {}
    for name, right in (("A", 0.6), ("B", 0.85)):
        called = {
            d["doc_id"]: d["label"] if chance.random() < right else 1 - d["label"]
            for d in images
        }
        runs[name] = texts(images, lambda d, called=called: d["options"][called[d["doc_id"]]])
    runs["B"]["0"] = Reply.of_text("I cannot tell.")
    runs["A"]["4"] = Reply.of_text(None)
    runs["B"]["8"] = Reply.of_text(None)
    return runs


CLASSES = choice_task("classification", "robust_class")


@pytest.mark.parametrize("per_patient", [1, 3])
def test_sensitivity_is_tested_among_the_ill(per_patient):
    images = images_of_ill(per_patient)
    runs = runs_on(images, per_patient)
    of_ill = {d["doc_id"] for d in images if d["label"] == 1} - {"4", "8"}
    right = {
        name: {
            d["doc_id"]: reply.text == d["options"][d["label"]]
            for d in images
            for reply in (of_run[d["doc_id"]],)
        }
        for name, of_run in runs.items()
    }

    tests = by_metric(compare_runs(CLASSES, images, runs, [*CLINICAL]))

    # A failed reply is left out, an invalid one is wrong, as in the cross table.
    sensitivity = tests["sensitivity (ill)"].result
    assert sensitivity.samples == len(of_ill) == 28
    assert (sensitivity.first, sensitivity.second) == pytest.approx(
        [sum(right[n][d] for d in of_ill) / 28 for n in "AB"]
    )
    gained = sum(right["B"][d] and not right["A"][d] for d in of_ill)
    lost = sum(right["A"][d] and not right["B"][d] for d in of_ill)
    assert sensitivity.mcnemar == scipy.stats.binomtest(gained, gained + lost).pvalue


@pytest.mark.parametrize("per_patient", [1, 3])
def test_specificity_is_tested_among_the_healthy(per_patient):
    images = images_of_ill(per_patient)

    tests = by_metric(compare_runs(CLASSES, images, runs_on(images, per_patient), [*CLINICAL]))

    specificity = tests["specificity (ill)"].result
    assert specificity.samples == 90
    assert (specificity.test, specificity.p == specificity.mcnemar) == (
        (MCNEMAR, True),
        (SIGN_FLIP, False),
    )[per_patient > 1]


def test_the_sensitivity_of_one_class_is_the_specificity_of_the_other():
    images = images_of_ill(1)

    tests = by_metric(compare_runs(CLASSES, images, runs_on(images, 1), [*CLINICAL]))

    assert list(tests) == [
        f"{metric} ({name})" for name in images[0]["options"] for metric in CLINICAL
    ]
    assert (tests["sensitivity (healthy)"].result, tests["specificity (healthy)"].result) == (
        tests["specificity (ill)"].result,
        tests["sensitivity (ill)"].result,
    )


@pytest.mark.parametrize("per_patient", [1, 3])
def test_clinical_values_compared_are_those_of_single_runs(per_patient):
    images = images_of_ill(per_patient)
    runs = runs_on(images, per_patient)

    tests = by_metric(compare_runs(CLASSES, images, runs, [*CLINICAL]))

    scored = score_replies(CLASSES, images, {n: r for n, r in runs["A"].items() if n != "8"})[
        "robust"
    ].by_class
    (numbers,) = (of_class.numbers for of_class in scored if of_class.name == "ill")
    compared = [
        tests["sensitivity (ill)"].result.first,
        tests["specificity (ill)"].result.first,
    ]
    assert tuple(compared) == (
        numbers["sensitivity"].value,
        numbers["specificity"].value,
    )


@pytest.mark.parametrize("per_patient", [1, 3])
def test_a_clinical_value_alone_needs_no_correction(per_patient):
    images = images_of_ill(per_patient)
    runs = runs_on(images, per_patient)
    tests = by_metric(compare_runs(CLASSES, images, runs, [*CLINICAL]))
    sensitivity = tests["sensitivity (ill)"].result

    (single,) = compare_runs(CLASSES, images, runs, ["sensitivity (ill)"]).comparisons

    assert (single.result.p, single.holm) == (sensitivity.p, sensitivity.p)


@pytest.mark.parametrize("per_patient", [1, 3])
def test_a_clinical_value_of_runs_in_turn_has_the_same_p_value(per_patient):
    images = images_of_ill(per_patient)
    runs = runs_on(images, per_patient)
    turned_runs = {name: runs[name] for name in "BA"}

    (test,) = compare_runs(CLASSES, images, runs, ["sensitivity (ill)"]).comparisons
    (turned,) = compare_runs(CLASSES, images, turned_runs, ["sensitivity (ill)"]).comparisons

    sensitivity = test.result
    assert (turned.result.difference, turned.result.p) == (
        -sensitivity.difference,
        sensitivity.p,
    )


def test_questions_without_classes_have_no_sensitivity():
    images = images_of_ill(1)
    questions = [{**image, "answer": "A"} for image in images]

    with pytest.raises(UnknownName, match="unknown metric 'sensitivity'"):
        compare_runs(choice_task(), questions, runs_on(images, 1), ["sensitivity"])


def test_areas_from_likelihoods_are_tested_for_each_class():
    chance = random.Random(4)
    documents = [
        {
            "doc_id": str(n),
            "image_id": f"i{n}",
            "options": ["healthy", "ill"],
            "answer": "AAB"[n % 3],
        }
        for n in range(90)
    ]
    runs = {}
    for name, lead in (("A", 0.5), ("B", 2.0)):
        signs = {
            d["doc_id"]: lead * (1 if d["answer"] == "B" else -1) + chance.gauss(0, 1)
            for d in documents
        }
        runs[name] = {
            doc: Reply(losses=(2.0 + sign / 2, 2.0 - sign / 2)) for doc, sign in signs.items()
        }
    task = replace(choice_task(rule="untied"), output_type="multiple_choice")
    compared = compare_runs(task, documents, runs, ["auroc"], margin=0.05)
    tests = {test.metric: test for test in compared.comparisons}
    assert list(tests) == ["auroc (healthy)", "auroc (ill)"]
    result = tests["auroc (ill)"].result
    areas = [
        {area.name: area.auroc.value for area in class_areas(task, documents, runs[name])}
        for name in "AB"
    ]
    assert (result.first, result.second) == pytest.approx([area["ill"] for area in areas])
    assert (result.test, result.samples, tests["auroc (ill)"].share) == (DELONG, 90, False)
    assert result.p < 0.01
    assert tests["auroc (healthy)"].result.p == pytest.approx(
        result.p
    )  # the same order, turned around
    assert tests["auroc (ill)"].equivalence.ends[0] > 0
    (alike,) = compare_runs(
        task, documents, {"A": runs["A"], "B": runs["A"]}, ["auroc (ill)"]
    ).comparisons
    assert (alike.result.difference, alike.result.p) == (0, 1)


@pytest.fixture
def reports(monkeypatch):
    """Task, documents and two runs of reports, whose metrics are lengths, missing weights and an error."""

    def report_metric(name):
        def lengths_in_words(*, references, hypotheses):
            if name == "chexbert":
                raise WeightsMissing("the weights of CheXbert are missing")
            if name == "meteor":
                raise ZeroDivisionError("patient Doe")
            lengths = [float(len(hypothesis.split())) for hypothesis in hypotheses]
            return ReportScores(
                {"bleu_1": lengths, "bleu_4": lengths}, {"bleu_1": mean(lengths), "bleu_4": 0.1}
            )

        assert name in ("bleu", "meteor", "chexbert")  # no other metric of the task is computed
        return lengths_in_words

    monkeypatch.setattr("medtasks.families.text_metrics.report_metric", report_metric)
    tiny_multimedeval.prepare("mimic_cxr_report")
    documents = load_documents("multimedeval_mimic_cxr_report")
    runs = {
        "A": texts(documents, lambda _: "clear lungs"),
        "B": texts(documents, lambda _: "the lungs are clear"),
    }
    return task_file("multimedeval_mimic_cxr_report"), documents, runs


REPORT_METRICS = ["bleu_1", "bleu_4", "meteor", "chexbert_similarity"]


def test_a_metric_of_reports_is_compared_if_it_is_a_mean(reports):
    compared = compare_runs(*reports, REPORT_METRICS)

    assert {test.metric for test in compared.comparisons} == {"bleu_1"}
    for result in (test.result for test in compared.comparisons):
        assert (result.first, result.second, result.difference, result.p) == (
            2,
            4,
            2,
            2 / 2**result.units,
        )
        assert math.isnan(result.detectable)


def test_metrics_of_reports_that_cannot_be_compared_have_a_cause(reports):
    compared = compare_runs(*reports, REPORT_METRICS)

    causes = {metric: cause for (_, metric), cause in compared.skipped.items()}
    # Type and location of the error, without its message, which may quote a report.
    failed = r"could not be computed: ZeroDivisionError at \S+:\d+ in lengths_in_words"
    assert re.fullmatch(failed, causes.pop("meteor"))
    assert causes == {
        "bleu_4": "is no mean over samples",
        "chexbert_similarity": "could not be computed: the weights of CheXbert are missing",
    }


def test_the_name_of_a_package_is_all_of_its_scores(reports):
    compared = compare_runs(*reports, ["bleu"])

    left_out = {metric for _, metric in compared.skipped}
    assert {test.metric for test in compared.comparisons} | left_out == {"bleu_1", "bleu_4"}


def test_a_metric_of_other_tasks_is_unknown(reports):
    with pytest.raises(UnknownName, match="unknown metric 'corpus_bleu'"):
        compare_runs(*reports, ["corpus_bleu"])


@pytest.fixture
def right_losses(questions):
    return {
        q["doc_id"]: Reply(losses=(0.5, 1.0) if q["answer"] == "A" else (1.0, 0.5))
        for q in questions
    }


def test_likelihoods_are_compared_like_answers(questions, right_losses):
    task = replace(choice_task(rule="untied"), output_type="multiple_choice")
    always_a = {q["doc_id"]: Reply(losses=(0.5, 1.0)) for q in questions}

    (test,) = compare_runs(task, questions, {"A": always_a, "B": right_losses}).comparisons

    assert (test.result.first, test.result.second) == (0.5, 1.0)


def test_likelihoods_are_refused_by_a_rule_of_texts(questions, right_losses):
    with pytest.raises(RepliesError, match="reads texts, and some replies are log-likelihoods"):
        compare_runs(choice_task(), questions, {"A": right_losses, "B": right_losses})


def test_letters_are_not_compared_with_likelihoods(documents):
    letters = texts(documents, lambda document: document["answer"])
    losses = {document["doc_id"]: Reply(losses=(0.5, 1.0)) for document in documents}
    with pytest.raises(RepliesError, match="A and B hold replies of different kinds"):
        compare_runs(task_file("mediconfusion_gd"), documents, {"A": letters, "B": losses})


def test_a_rule_that_stops_at_a_question_is_not_compared():
    task = task_file("medevalkit_omnimedvqa")
    question = {
        "dataset": "medevalkit_omnimedvqa",
        "options": ["liver", "spleen"],
        "answer": "A",
        "gold": "liver",
    }
    flags = {"a": ["no_modality_type"], "b": []}
    documents = [
        {**question, "doc_id": name, "image_id": name, "flags": names}
        for name, names in flags.items()
    ]
    replies = {name: Reply(text="A") for name in flags}

    values = run_values(task, documents, replies, chosen_metrics(task))

    assert "the published code stops" in values.skipped["reference", "accuracy"]
    assert values.values["reference_fixed", "accuracy"]


# Whole runs


@pytest.fixture
def runs(sample, tmp_path):
    tasks = {
        "A": ("mediconfusion", "sides"),
        "B": ("mediconfusion", "sides", "mediconfusion_blind"),
    }
    tasks["C"] = ("mediconfusion_blind", "mediconfusion")
    skills = zip(tasks.items(), (0.9, 0.5, 0.7), strict=True)
    return {
        name: Source(write_run(tmp_path / name, of_run, skill, 1))
        for (name, of_run), skill in skills
    }


def test_tasks_of_all_runs_are_compared(runs):
    compared, _ = compare_all(runs)

    # The blind variant says nothing about which model is better.
    assert list(compared) == ["mediconfusion"]
    assert list(compared["mediconfusion"].overlaps) == [("A", "B"), ("A", "C"), ("B", "C")]


def test_a_foreign_task_is_named_with_the_cause(runs):
    _, causes = compare_all(runs)

    assert list(causes) == ["sides"]
    assert "no task of medtasks" in causes["sides"]


def test_all_tasks_are_one_family_of_tests(runs):
    compared, _ = compare_all({name: runs[name] for name in "BC"}, margin=0.01)

    tests = [test for task in compared.values() for test in task.comparisons]
    own = [test for test in tests if not test.same_as]
    assert (list(compared), len(own) < len(tests)) == (
        ["mediconfusion", "mediconfusion_blind"],
        True,
    )
    assert [test.holm for test in own] == holm([test.result.p for test in own])


def test_a_run_without_samples_is_not_compared(runs, tmp_path):
    silent = Source(write_run(tmp_path / "silent", ("mediconfusion",), 0.9, 6, samples=False))
    with pytest.raises(RepliesError, match="--log_samples"):
        compare_all({"A": runs["A"], "B": silent})
    no_samples = "mediconfusion: The run logged no samples, so that there are no single replies"
    with pytest.raises(RepliesError, match=no_samples):
        compare_task(task_file("mediconfusion"), {"A": runs["A"], "B": silent})


def test_a_file_without_a_task_is_not_compared(runs, tmp_path):
    path = tmp_path / "replies.jsonl"
    path.write_text(json.dumps({"doc_id": "90001/1", "reply": "A"}))

    with pytest.raises(RepliesError, match="does not say which task it answers"):
        compare_all({"A": runs["A"], "B": Source(path)})


def test_a_task_of_different_versions_is_not_compared(sample, tmp_path):
    """Unknown versions do not matter; two tasks show that the others are compared, and corrected without it."""
    tasks = ("mediconfusion", "mediconfusion_ps")
    folders = {
        name: write_run(tmp_path / name, tasks, 0.7, seed) for seed, name in enumerate("ABC")
    }
    for name, version in (("A", 6), ("B", 1)):
        (path,) = folders[name].glob("*_results.json")
        versions = {"mediconfusion": version, "mediconfusion_ps": 2}
        path.write_text(json.dumps({**json.loads(path.read_text()), "versions": versions}))
    runs = {name: Source(folder) for name, folder in folders.items()}
    sentence = "the runs asked different versions of the task (6 in A, 1 in B), so that their numbers cannot"
    with pytest.raises(RepliesError, match=re.escape(sentence)):
        compare_task(task_file("mediconfusion"), runs)
    compared, causes = compare_all(runs)
    assert (list(compared), list(causes)) == (["mediconfusion_ps"], ["mediconfusion"])
    assert causes["mediconfusion"].startswith(sentence)
    assert list(compare_all({"A": runs["A"], "C": runs["C"]})[0]) == list(tasks)


def test_an_unknown_metric_is_an_unknown_name(runs):
    with pytest.raises(UnknownName, match="unknown metric 'acuracy'"):
        compare_all(runs, ["acuracy"])


# Repeated runs


def test_repeats_are_compared_by_the_means_of_questions(questions):
    repeats = [model(questions, 0.5, seed) for seed in range(4)]
    for document in questions[:3]:
        repeats[1][document["doc_id"]] = Reply(text=None)  # one repeat failed
    for replies in repeats:
        replies[questions[5]["doc_id"]] = Reply(text=None)  # all failed
    better = [model(questions, 0.9, seed) for seed in (8, 9)]
    compared = compare_runs(choice_task(), questions, {"A": repeats, "B": better})
    assert compared.repeats == {"A": 4, "B": 2}
    (overlap,) = compared.overlaps.values()
    assert (overlap.both, overlap.only_second) == (len(questions) - 1, 1)
    answered = [document for document in questions if document is not questions[5]]

    def means(run):
        replies = [
            (document["answer"], [repeat[document["doc_id"]] for repeat in run])
            for document in answered
        ]
        return [
            mean([float(reply.text == key) for reply in given if not reply.is_failure])
            for key, given in replies
        ]

    (test,) = compared.comparisons
    expected = compare_paired(
        means(repeats), means(better), [document["image_id"] for document in answered]
    )
    assert (test.result.difference, test.result.p) == pytest.approx(
        (expected.difference, expected.p), abs=0.005
    )
    assert test.result.first == pytest.approx(expected.first)
    assert (test.result.samples, test.result.units) == (expected.samples, expected.units)
    (agreement,) = compared.agreements.values()
    assert agreement.overlap.both == 2 * len(questions)  # replies of the first two repeats


@pytest.fixture
def repeated(sample, tmp_path):
    def write(name, share, number):
        (tmp_path / name).mkdir()
        for repeat in range(1, number + 1):
            write_run(
                tmp_path / name / f"repeat_{repeat}",
                ("mediconfusion", "mediconfusion_blind"),
                share,
                repeat,
            )
        return tmp_path / name

    return write


def test_folders_with_repeats_are_compared_as_their_replies_are(repeated, runs):
    task, documents, folder = (
        task_file("mediconfusion"),
        load_documents("mediconfusion"),
        repeated("again", 0.6, 3),
    )
    folders = [*(folder / f"repeat_{number}" for number in (1, 2, 3)), runs["A"].path]
    *replies, single = (
        read_replies(next(f.glob("*_samples_mediconfusion.jsonl")), documents) for f in folders
    )
    expected = compare_runs(task, documents, {"A": replies, "B": single})
    origins = {"A": ReplyOrigins(96, 0, 0), "B": ReplyOrigins(32, 0, 0)}
    expected = replace(expected, data=provenance("mediconfusion"), origins=origins)
    sources = {"A": Source(folder), "B": runs["A"]}
    assert compare_task(task, sources) == compare_all(sources)[0]["mediconfusion"] == expected


def test_a_verdict_takes_as_many_repeats_of_each_run(repeated, runs):
    def verdict(second):
        runs = {"A": Source(folder), "B": second}
        return verdict_on(compare_task(task_file("mediconfusion"), runs, margin=0.1), 0.1)

    folder = repeated("again", 0.6, 3)
    with pytest.raises(RepliesError, match="different numbers of repeats"):
        verdict(runs["A"])
    assert verdict(Source(folder)).verdict is Verdict.IDENTICAL
    (samples,) = (repeated("changed", 0.6, 3) / "repeat_3").glob(
        "*_samples_mediconfusion.jsonl"
    )
    samples.write_text(samples.read_text().replace('["A"]', '["B"]', 1))
    changed = verdict(Source(samples.parents[1]))
    assert changed.verdict is not Verdict.IDENTICAL
    assert changed.agreement.examples[0].endswith(", repeat 3")


def paired_texts(*pairs):
    return {str(number): (Reply(text=a), Reply(text=b)) for number, (a, b) in enumerate(pairs)}


def test_texts_agree_up_to_the_first_difference():
    agreed = text_agreement(
        paired_texts(
            ("the lung is clear", "the lung is clear"),
            ("the  lung", "the lung\n"),
            ("the lung is clear", "the lungs are clear"),
            ("no", "yes"),
            ("no finding", "no finding in the left lung"),
        )
    )

    assert (agreed.samples, agreed.equal, agreed.equal_but_spaces) == (5, 1, 1)
    assert (agreed.first_is_beginning, agreed.second_is_beginning) == (1, 0)
    assert agreed.differing == ("3", "2", "4")  # after 0, 8 and 10 characters
    assert (agreed.characters["median"], agreed.characters["max"]) == (8, 10)
    assert (agreed.words["median"], agreed.words["max"]) == (1, 2)
    assert agreed.at_first_word == 1
    assert text_agreement(paired_texts(("a", "a"))).characters is None


def test_texts_have_no_agreement_of_likelihoods():
    assert likelihood_agreement(paired_texts(("A", "B"))) is None


@pytest.fixture
def paired_losses():
    pairs = [
        ((1.0, 2.0), (1.0, 2.0)),
        ((1.0, 1.25), (1.5, 1.25)),  # flips, at a lead of 0.25
        ((1.0, 3.0), (4.0, 3.0)),  # flips, at a lead of 2
        ((1.0, 1.0), (1.0, 1.5)),  # a tie is another choice than either option
        ((1.0, math.inf), (1.25, math.inf)),
    ]
    return {
        str(number): (
            Reply(losses=a, greedy=(True, False)),
            Reply(losses=b, greedy=(False, False)),
        )
        for number, (a, b) in enumerate(pairs)
    }


def test_likelihoods_agree_in_values_choices_or_greedy_tokens(paired_losses):
    agreed = likelihood_agreement(paired_losses)

    assert (agreed.samples, agreed.equal, agreed.options, agreed.equal_choices) == (5, 1, 10, 2)
    assert [(flip.sample, flip.margin) for flip in agreed.flips] == [
        ("2", 2.0),
        ("1", 0.25),
        ("3", 0.0),
    ]
    # of nine options: 0, 0, 0.5, 0, 3, 0, 0, 0.5, 0.25, and one without a finite difference
    assert agreed.mean_signed == agreed.mean_absolute == pytest.approx(4.25 / 9)
    assert (agreed.absolute["median"], agreed.absolute["max"]) == (0, 3)
    assert (agreed.greedy_options, agreed.equal_greedy) == (10, 5)


def test_likelihoods_have_no_agreement_of_texts(paired_losses):
    assert text_agreement(paired_losses) is None


def test_likelihoods_without_greedy_flags_count_no_greedy_option():
    without_flags = {"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0, 2.0)))}
    assert likelihood_agreement(without_flags).greedy_options == 0


def test_likelihoods_of_other_options_have_no_agreement():
    assert likelihood_agreement({"1": (Reply(losses=(1.0, 2.0)), Reply(losses=(1.0,)))}) is None


def test_answers_agree_only_where_one_run_has_one():
    values = [("A", "A"), ("B", "A"), (None, "B"), (None, None), (["A"], ["A"])]
    first, second = (
        {str(number): {"value": pair[run]} for number, pair in enumerate(values)}
        for run in (0, 1)
    )
    without = {"1": {"reason": "ok"}}
    answers = agreement(
        {}, {}, 5, {"robust": (first, second), "reports": (without, without)}
    ).answers
    assert list(answers) == ["robust"]
    agreed = answers["robust"]
    assert (agreed.samples, agreed.equal, agreed.neither) == (4, 2, 1)
    assert (agreed.only_first, agreed.only_second, agreed.differing) == (0, 1, ("1", "2"))


def test_failed_samples_are_counted_next_to_the_agreement():
    first = {name: Reply(text="A" if name in "ab" else None) for name in "abcd"}
    second = {name: Reply(text="A" if name in "abf" else None) for name in "abdef"}
    scores = {"robust": ({"a": {"value": "A"}}, {"a": {"value": "B"}, "b": {"value": "B"}})}
    agreed = agreement(first, second, 9, scores, hashed=True)
    assert (agreed.overlap, agreed.failed) == (Overlap(3, 1, 2, 3), Failures(0, 0, 1))
    assert (agreed.texts.samples, agreed.texts.equal, agreed.likelihoods, agreed.all_equal) == (
        2,
        2,
        None,
        True,
    )
    assert (agreed.answers["robust"].samples, agreed.examples) == (1, [hidden_id("doc", "a")])
