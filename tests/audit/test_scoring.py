"""Scores of recorded replies under every rule: of questions, of pairs, by group; and wrong answers."""

import csv
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from medtasks.audit.error_classes import ErrorClass, WrongAnswer, count_kinds, export_wrong_answers, wrong_answers
from medtasks.audit.scoring import by_group, rule_as_dict, score_replies
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.document_store import load_documents
from medtasks.errors import JudgeNotConfigured, MedTasksError, RepliesError
from medtasks.families.family import Reply, Row
from medtasks.metrics.pairs import TOTAL
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import task_file
from medtasks.tasks.task_index import DottedName

from ..tables import each_row

DOCUMENTS = [
    {"doc_id": str(number), "image_id": None, "options": ["aspirin", "heparin"], "answer": answer}
    for number, answer in enumerate("ABBA")
]
ALL_ANSWERED = {"scored_samples": 4, "failed_samples": 0}


def task(output_type="generate_until", **rows):
    return TaskFile(
        name="drugs",
        kind="task",
        path=Path("drugs.yaml"),
        description="",
        dataset="drugs",
        output_type=output_type,
        rows=rows,
        process_results=DottedName("medtasks.hooks.choice.process_results"),
        metric_list=DottedName("medtasks.hooks.choice.METRIC_LIST"),
    )


def texts(*replies):
    return {str(number): Reply(text=reply) for number, reply in enumerate(replies)}


def values(scores):
    return {name: one.value for name, one in scores.estimates.items()}


def test_every_rule_scores_every_reply():
    strict_and_robust = task(reference=Row("mediconfusion_reference"), robust=Row("robust_choice"))
    scores = score_replies(strict_and_robust, DOCUMENTS, texts("A", "(b)", "B", "I cannot tell from this image."))
    assert list(scores) == ["reference", "robust"]
    reference, robust = scores.values()
    assert (reference.rule, robust.rule) == ("mediconfusion_reference v1", "robust_choice v4")
    assert values(reference) == {"accuracy": 0.5, "invalid_rate": 0.5, **ALL_ANSWERED}
    assert values(robust) == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}
    assert robust.estimates["accuracy"].error == pytest.approx(0.25)
    assert sum(robust.reasons.values()) == 4
    assert robust.reasons["ok"] == 3
    expected = {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}
    assert rule_as_dict(strict_and_robust, robust)["metrics"] == expected
    (alone,) = score_replies(task(robust=Row("robust_choice")), DOCUMENTS, texts("A")).values()  # others are left out
    assert values(alone)["accuracy"] == 1
    assert rule_as_dict(task(), alone)["standard_errors"]["accuracy"] is None


def test_option_form_reaches_the_rule():
    numbered = task(robust=Row("robust_choice", "drug number {{ number }}, {{ text }}"))
    replies = texts("drug number 1, aspirin", "drug number 2, heparin", "heparin", "drug number 1, aspirin")
    found = score_replies(numbered, DOCUMENTS, replies)["robust"]
    assert values(found) == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}


def test_likelihoods():
    replies = {str(number): Reply(losses=losses) for number, losses in enumerate([(1, 2), (2, 1), (1, 1), (3, 4)])}
    scores = score_replies(task("multiple_choice", robust=Row("untied")), DOCUMENTS, replies)
    assert values(scores["robust"]) == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}
    with pytest.raises(RepliesError, match="'drugs' reads log-likelihoods, and some replies are texts"):
        score_replies(task("multiple_choice", robust=Row("untied")), DOCUMENTS, texts("A"))
    with pytest.raises(RepliesError, match="'drugs' reads texts, and some replies are log-likelihoods"):
        score_replies(task(robust=Row("robust_choice")), DOCUMENTS, replies)


MODES = ["mediconfusion", "mediconfusion_gd", "mediconfusion_ps"]
RULES = {
    "mediconfusion": ("mediconfusion_reference v1", "robust_choice v"),
    "mediconfusion_gd": ("greedy_reference v1", "untied v1"),
    "mediconfusion_ps": ("prefix_reference v1", "untied v1"),
}


@pytest.fixture
def pairs(sample):
    return load_documents("mediconfusion")


def each(documents, reply):
    return {document["doc_id"]: Reply(text=reply(document)) for document in documents}


@each_row("task", MODES)
def test_right_letters_are_all_right(pairs, task):
    scores = score_replies(task_file(task), pairs, each(pairs, lambda document: document["answer"]))
    assert list(scores) == ["reference", "robust"]
    for score in scores.values():
        total = score.categories[TOTAL]
        assert (total.set_accuracy, total.individual_accuracy, total.confusion, total.invalid_rate) == (1, 1, 0, 0)
        assert score.reasons == {"ok": 32}
        assert score.estimates["set_accuracy"].error == 0
    # Letters recorded for GD and PS are read as the reference reads them.
    assert scores["reference"].rule == "mediconfusion_reference v1"
    assert scores["robust"].rule.startswith("robust_choice v")


@each_row("task", MODES[1:])
def test_losses(pairs, task):
    def losses(document):
        right = document["answer"] == "A"
        tied = document["pair_id"] == "90001"
        return Reply(losses=(1.0, 1.0) if tied else (0.5, 1.5) if right else (1.5, 0.5))

    scores = score_replies(task_file(task), pairs, {d["doc_id"]: losses(d) for d in pairs})
    reference, robust = scores["reference"], scores["robust"]
    assert (reference.rule, robust.rule) == RULES[task]
    assert reference.categories[TOTAL].individual_score == 31
    assert reference.categories[TOTAL].confused == 1  # a tie is A in GD and B in PS, twice the same
    assert reference.reasons == {"ok": 32}
    assert robust.categories[TOTAL].individual_score == 30
    assert robust.reasons == {"ok": 30, "ambiguous": 2}


def test_rules_differ_where_they_should(pairs):
    scores = score_replies(task_file("mediconfusion"), pairs, each(pairs, lambda document: "**A**"))
    assert scores["reference"].categories[TOTAL].invalid_rate == 1
    assert scores["robust"].categories[TOTAL].invalid_rate == 0
    summary = rule_as_dict(task_file("mediconfusion"), scores["reference"])
    assert summary["categories"][TOTAL]["confusion"] is None  # NaN is no JSON
    json.loads(json.dumps(summary, allow_nan=False))
    half = each(pairs[:9], lambda document: "A")
    total = score_replies(task_file("mediconfusion"), pairs, half)["reference"].categories[TOTAL]
    assert (total.images, total.pairs, total.incomplete_pairs, total.invalid) == (9, 4, 1, 0)
    with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_BASE_URL"):
        score_replies(task_file("mediconfusion_ff"), pairs, half)


def test_replies_of_the_wrong_kind(pairs):
    mixed = {"90001/1": Reply(text="A"), "90001/2": Reply(losses=(1.0, 2.0))}
    with pytest.raises(RepliesError, match="'mediconfusion_gd' reads log-likelihoods, and some replies are texts"):
        score_replies(task_file("mediconfusion_gd"), pairs, mixed)
    del mixed["90001/1"]
    for task in ("mediconfusion", "mediconfusion_ff"):
        with pytest.raises(RepliesError, match=f"'{task}' reads texts, and some replies are log-likelihoods"):
            score_replies(task_file(task), pairs, mixed)
    with pytest.raises(RepliesError, match="'mediconfusion_all' is a group"):
        score_replies(task_file("mediconfusion_all"), pairs, mixed)


def test_golden_mediconfusion_categories_have_their_published_sizes(test_data, tmp_path, monkeypatch):
    from medtasks.data.prepare.prepare_dataset import prepare
    from medtasks.data.prepare.source_recipe import Options

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    prepare("mediconfusion", Options(test_data / "mediconfusion"))
    pairs = load_documents("mediconfusion")
    always_a = each(pairs, lambda document: "A")
    for score in score_replies(task_file("mediconfusion"), pairs, always_a).values():
        sizes = {name: counts.images for name, counts in score.categories.items()}
        assert sizes.pop(TOTAL) == 352
        assert sizes == json.loads((test_data / "mediconfusion/statistics.json").read_text())
        total = score.categories[TOTAL]
        assert (total.set_accuracy, total.individual_accuracy, total.confusion, total.invalid_rate) == (0, 0.5, 1, 0)


@pytest.fixture(scope="module")
def questions():
    rng = random.Random(2)
    return [
        {
            "doc_id": str(number),
            "dataset": "gmai_mmbench_val",
            "image_id": str(number // 2),
            "question": "What is it?",
            "options": ["polyp", "ulcer", "erosion"],
            "answer": rng.choice("ABC"),
            "department": rng.choice(["Urology", "None", None]),
            "clinical_task": rng.choice(["Counting", "Bone"]),
            "granularity": "Image Level",
            "modality": "CT",
        }
        for number in range(200)
    ]


@pytest.fixture(scope="module")
def replies(questions):
    rng = random.Random(4)
    words = ["A", "B", "C", "I cannot tell.", "A and B", "", "...."]
    return {document["doc_id"]: Reply(text=rng.choice(words)) for document in questions}


def test_groups_equal_a_plain_mean(questions, replies):
    pandas = pytest.importorskip("pandas")
    found = score_replies(task_file("gmai_mmbench_val"), questions, replies)["robust"]
    frame = pandas.DataFrame(questions)
    frame["right"] = [replies[one["doc_id"]].text == one["answer"] for one in questions]
    for column in ("department", "clinical_task"):
        means, sizes = frame.groupby(column)["right"].mean(), frame.groupby(column)["right"].size()
        groups = found.groups[column]
        assert {group.name: group.questions for group in groups} == sizes.to_dict()
        assert {group.name: group.scores[0].value for group in groups} == pytest.approx(means.to_dict())
        assert all(group.scores[0].error > 0 for group in groups)
    weighted = sum(group.scores[0].value * group.questions for group in found.groups["clinical_task"])
    assert weighted / len(questions) == pytest.approx(values(found)["accuracy"])


def test_wrong_answers_are_sorted_into_kinds(questions, replies):
    found = score_replies(task_file("gmai_mmbench_val"), questions, replies)["robust"]
    kinds = count_kinds(found.wrong)
    texts = [reply.text for reply in replies.values()]
    assert kinds[ErrorClass.REFUSAL] == texts.count("I cannot tell.")
    assert kinds[ErrorClass.IRRELEVANT] == texts.count("") + texts.count("....")
    assert kinds[ErrorClass.MISUNDERSTOOD] == texts.count("A and B")
    assert sum(kinds.values()) == round((1 - values(found)["accuracy"]) * len(questions))
    score, given = {"target": "A", "value": "B", "reason": "ok"}, {"0": Reply(losses=(2.0, 1.0, 3.0))}
    (wrong,) = wrong_answers(task_file("gmai_mmbench_val_ll"), questions[:1], [score], given)
    assert (wrong.kind, wrong.reply) == (ErrorClass.FOR_A_HUMAN, "")
    reports = replace(task_file("iu_xray_report"), breakdown=("department",))
    assert by_group(reports, questions, [{"reason": "ok"}] * len(questions)) == {}
    assert rule_as_dict(task_file("gmai_mmbench_val"), found)["wrong_answers"] == kinds


def test_export_leaves_a_column_for_the_human(questions, replies, tmp_path):
    found = score_replies(task_file("gmai_mmbench_val"), questions, replies)["robust"]
    path = tmp_path / "errors.csv"
    export_wrong_answers(path, [], {"robust": found.wrong})
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(found.wrong) > 0
    assert {row["class_by_human"] for row in rows} == {""}
    assert {row["class"] for row in rows} >= {"", "refusal"}
    assert rows[0]["options"] == "polyp | ulcer | erosion"


def test_credentialed_text_is_not_exported(questions, tmp_path, monkeypatch):
    private = next(name for name, info in CATALOGUE.items() if info.access == "credentialed")
    with pytest.raises(MedTasksError, match=f"MEDTASKS_LOG_TEXT={private}"):
        export_wrong_answers(tmp_path / "errors.csv", [private], {})
    assert not (tmp_path / "errors.csv").exists()
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", private)
    export_wrong_answers(tmp_path / "errors.csv", [], {})


def test_no_cell_of_an_export_is_a_formula(tmp_path):
    """Replies, questions and the user's own columns, their names included; images are named without their folder."""
    document = {
        "doc_id": "=1+1",
        "question": "@SUM(A1)",
        "options": ["+1", "-1"],
        "image_files": ["/secret/x/scan.png"],
    }
    document |= {"image_files": ["/secret/x/scan.png"], "site": "\tA", "=cmd": 7, "patient_id": "p1", "score": -3}
    score = {"target": "A", "value": "-1", "reason": "ok"}
    wrong = [WrongAnswer(document, score, "=cmd|'/c calc'!A0", ErrorClass.FOR_A_HUMAN)]
    path = tmp_path / "errors.csv"
    export_wrong_answers(path, [], {"robust": wrong})
    with path.open(encoding="utf-8", newline="") as stream:
        heads, cells = csv.reader(stream)
    assert not [cell for cell in (*heads, *cells) if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    row = dict(zip(heads, cells, strict=True))
    assert (row["reply"], row["images"], row["site"], row["'=cmd"]) == ("'=cmd|'/c calc'!A0", "scan.png", "'\tA", "7")
    assert "patient_id" not in row
