"""Closed and open questions: overlaps, and rules without and with a judge: what they make of the same replies."""

import json
import math

import pytest

from medtasks.data.samples import Sample
from medtasks.errors import JudgeRefused
from medtasks.extract.extractor_registry import Reason
from medtasks.families import kit_questions
from medtasks.families.kit_questions import FAMILY, JUDGED_QUESTIONS, OPEN_QUESTIONS
from medtasks.prompts import judged
from medtasks.stats.standard_error import mean_standard_error

from ..task_families import score_of, values_of
from .scripted_judge import ScriptedJudge, answer_in

HEAD, PATH, SLAKE, FIXED = (
    "medevalkit_vqa",
    "medevalkit_path_vqa",
    "medevalkit_slake",
    "medevalkit_vqa_fixed",
)
GOLDS = ["yes", "no", "left lung", "CT", "Doe's mass"]
REPLIES = ["yes", "yes", "left lung", "fog", "the mass"]
SAID = {
    "left lung": "<judge>0</judge>",
    "the mass": "right, I think",
    "mass": "<judge>0</judge>",
    "yes": "0",
}


@pytest.fixture
def judge(monkeypatch):
    """A judge that knows some answers and fails for all others; asked again it says that an answer is right."""

    def said(system, user, version):
        return (
            "<judge>0</judge>"
            if version > 1
            else SAID.get(answer_in(user, "The user's answer: "))
        )

    scripted = ScriptedJudge(said)
    monkeypatch.setattr(kit_questions, "judge_for", lambda dataset: scripted)
    return scripted


def asked_about(judge):
    return [
        (answer_in(user, "The user's answer: "), version) for _, user, version in judge.asked
    ]


def documents(**columns):
    return [
        {
            "doc_id": str(n),
            "dataset": "own",
            "image_id": f"scan{n}",
            "question": f"Is it {n}?",
            "answer": gold,
            **columns,
        }
        for n, gold in enumerate(GOLDS)
    ]


def scored(rule, replies=REPLIES, family=FAMILY, **columns):
    return [
        score_of(family, doc, reply, rule)
        for doc, reply in zip(documents(**columns), replies, strict=True)
    ]


def accuracies(family, scores):
    found = values_of(family, scores)
    return [found[name] for name in ("accuracy", "acc_closed", "acc_open")]


def test_without_a_judge_head_divides_twice():
    assert accuracies(FAMILY, scored(HEAD)) == pytest.approx([2 / 5, 1 / 2, 1 / 3 / 3])
    assert accuracies(FAMILY, scored(FIXED)) == pytest.approx([2 / 5, 1 / 2, 1 / 3])
    head, fixed = (values_of(FAMILY, scored(rule)) for rule in (HEAD, FIXED))
    assert head["acc_open_stderr"] == pytest.approx(fixed["acc_open_stderr"] / 3)
    assert (head["precision"], head["recall"], head["f1"]) == (
        fixed["f1"],
        fixed["precision"],
        fixed["recall"],
    )
    assert fixed["recall"] == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert fixed["exact_match"] == pytest.approx(1 / 3)


def test_a_score_says_nothing_of_the_patient(judge):
    for family in (FAMILY, JUDGED_QUESTIONS):
        written = json.dumps(
            scored("robust_kit_vqa", ["Doe is ill"] * 5, family=family)
        ).casefold()
        assert not [
            word
            for word in ("doe", "ill", "scan", "lung", "is it")
            if word in written.replace("cluster_id", "")
        ]


def test_what_the_judge_counts_for(judge):
    """Of three open answers it calls one right and fails for one; the third it does not judge as it is told."""
    found = {
        rule: accuracies(JUDGED_QUESTIONS, scored(rule, family=JUDGED_QUESTIONS))
        for rule in (HEAD, PATH, FIXED)
    }
    assert found[HEAD] == pytest.approx([2 / 4, 1 / 2, 1 / 2 / 2])
    assert found[PATH] == pytest.approx([1 / 4, 0, 1 / 2 / 2])
    assert found[FIXED] == pytest.approx([3 / 4, 1 / 2, 1])
    values = values_of(JUDGED_QUESTIONS, scored(FIXED, family=JUDGED_QUESTIONS))
    assert (
        values["judge_failed_rate"],
        values["scored_samples"],
        values["unjudged_samples"],
    ) == (
        1 / 5,
        4,
        1,
    )
    assert values["exact_match"] == pytest.approx(1 / 3)


def test_slake_s_closed_answers_count_twice_when_the_judge_agrees(judge):
    scores = scored(SLAKE, family=JUDGED_QUESTIONS)
    assert [score["right"] for score in scores] == [2, 1, 1, None, 0]
    assert accuracies(JUDGED_QUESTIONS, scores) == pytest.approx([4 / 4, 3 / 2, 1 / 2 / 2])
    assert [score["correct"] for score in scores] == [True, True, True, None, False]


def test_only_rules_that_need_more_than_the_first_reply_ask_again(judge):
    scored(HEAD, family=JUDGED_QUESTIONS)
    assert asked_about(judge) == [("left lung", 1), ("fog", 1), ("the mass", 1)]
    judge.asked.clear()
    scored(FIXED, family=JUDGED_QUESTIONS)
    assert asked_about(judge) == [
        ("left lung", 1),
        ("fog", 1),
        ("the mass", 1),
        ("the mass", 2),
    ]


def test_who_is_not_asked_about(judge):
    nothing = ["", "I cannot tell.", "<think>so", "[LMMS_EVAL_BUDGET_EXCEEDED]", None]
    documents_of_it = [{**doc, "answer": "CT"} for doc in documents()]
    for rule, asked in (
        ("robust_kit_vqa", []),
        (FIXED, ["i cannot tell.", "<think>so"]),
        (HEAD, ["i cannot tell."]),
    ):
        judge.asked.clear()
        made = [
            score_of(JUDGED_QUESTIONS, doc, reply, rule)
            for doc, reply in zip(documents_of_it, nothing, strict=True)
        ]
        assert [answer for answer, _ in asked_about(judge)][: len(asked)] == asked
        assert [score["reason"] for score in made[3:]] == [Reason.ADAPTER_FAILED] * 2
    # The release asks about an empty reply, too.
    judge.asked.clear()
    assert score_of(JUDGED_QUESTIONS, documents_of_it[0], "", "medevalkit_vqa_release")["asked"]
    assert asked_about(judge) == [("", 1)]


@pytest.mark.parametrize("family", [FAMILY, JUDGED_QUESTIONS], ids=["plain", "judged"])
def test_where_head_stops_its_row_has_no_number(judge, family, capsys):
    replies = ["yes", "", "..", "fog", "the mass"]
    scores = scored(HEAD, replies, family=family)
    assert [bool(score["stops"]) for score in scores] == [False, False, True, False, False]
    found = values_of(family, scores)
    assert all(math.isnan(found[name]) for name in found if name not in COUNTED)
    (sentence,) = {
        metric.warning(scores) for metric in family.metrics if metric.name == "accuracy"
    }
    assert "'2'" in sentence
    assert "no words for ROUGE" in sentence
    mended = scored(FIXED, replies, family=family)
    assert not math.isnan(values_of(family, mended)["accuracy"])
    assert family.metrics[0].warning(mended) == ""


@pytest.mark.parametrize(
    ("family", "golds"), [(FAMILY, ["yes", "no"]), (JUDGED_QUESTIONS, ["left lung", "CT"])]
)
def test_where_head_divides_by_no_questions_its_row_has_no_number(judge, family, golds):
    known = documents(question_type="Plane")
    asked = [doc for doc in known if doc["answer"] in golds]
    scores = {
        rule: [score_of(family, doc, "left lung", rule) for doc in asked]
        for rule in (HEAD, FIXED)
    }
    for settled in (list, family.final_scores):
        found = values_of(family, settled(scores[HEAD]))
        assert all(math.isnan(found[name]) for name in found if name not in COUNTED)
        assert not math.isnan(values_of(family, settled(scores[FIXED]))["accuracy"])
    kind = "open" if "yes" in golds else "closed"
    assert f"number of {kind} questions" in family.metrics[0].warning(
        family.final_scores(scores[HEAD])
    )
    assert family.metrics[0].warning(scores[FIXED]) == ""
    assert all(
        score["stops"] for score in family.final_scores(scores[HEAD])
    )  # nor has any group of it
    first = [{**score, "stops": "of its text"} for score in scores[HEAD]]
    assert "of its text" in family.metrics[0].warning(family.final_scores(first))
    both = family.final_scores([score_of(family, doc, "left lung", HEAD) for doc in known])
    part = [score for score, doc in zip(both, known, strict=True) if doc["answer"] in golds]
    assert not math.isnan(
        family.metrics[0].estimate(part).value
    )  # a group of a run that has a number


COUNTED = (
    *("scored_samples", "failed_samples", "unjudged_samples", "possible_injection"),
    *("judge_failed_rate", "judge_failed_rate_stderr"),
)


def test_the_column_says_what_is_closed():
    assert [score["closed"] for score in scored(HEAD)] == [True, True, False, False, False]
    assert [score["closed"] for score in scored(SLAKE, answer_type="CLOSED")] == [True] * 5
    assert math.isnan(values_of(FAMILY, scored(SLAKE, answer_type="CLOSED"))["acc_open"])


def test_constant_replies_say_yes_no_and_what_is_frequent():
    samples = [Sample(doc) for doc in documents()]
    found = {
        one.name: [meant.said[0] for meant in one.meant]
        for one in FAMILY.constant_replies(samples)
    }
    assert list(found) == ["always yes", "always no", "most frequent answer"]
    assert found["most frequent answer"] == ["no", "no", "CT", "CT", "CT"]


def test_a_judge_elsewhere_does_not_see_credentialed_data(monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "m")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "key")
    with pytest.raises(JudgeRefused, match="not on this machine"):
        score_of(JUDGED_QUESTIONS, documents()[2], "left lung", FIXED)
    with pytest.raises(JudgeRefused, match="not on this machine"):
        judged.prompt(documents()[2], {"template": "{{ question }}"})
    # A file that names no dataset counts as public.
    document = {"question": "Where is it?", "answer": "left lung"}
    assert judged.prompt(document, {"template": "{{ question }}"}) == "Where is it?"


def open_score(reply, answer="left lower lobe", number=1, rule="multimedeval_vqa_head", **more):
    document = {"doc_id": str(number), "question": "Where is it?", "answer": answer, **more}
    return score_of(OPEN_QUESTIONS, document, reply, rule)


def test_a_score_of_an_open_question_says_nothing_of_the_patient():
    found = open_score(
        "Mr. Doe has pneumonia", "Pneumonia of Mr. Doe", patient_id="p100", image_id="scan7"
    )
    facts = ("closed", "correct", "bleu_1", "token_f1", "token_recall")
    assert set(found) == {"sample", "cluster_id", "patient_image", *facts, "reason", "rule"}
    written = json.dumps(found).lower()
    assert not [
        word for word in ("doe", "pneumonia", "where", "p100", "scan7") if word in written
    ]


def test_metrics_over_their_subsets():
    closed = [
        open_score(reply, target, n)
        for n, (reply, target) in enumerate([("yes", "yes"), ("yes", "no"), ("", "no")])
    ]
    opened = [
        open_score(reply, number=n)
        for n, reply in enumerate(["left lower lobe", "left"], start=10)
    ]
    found = values_of(OPEN_QUESTIONS, closed + opened)
    of_samples = {
        "closed_accuracy": [1, 0, 0],
        "open_accuracy": [1, 0],
        "open_recall": [1, 1 / 3],
        "token_recall": [1, 0, 0, 1, 1 / 3],
        "token_f1": [1, 0, 0, 1, 1 / 2],
        "bleu_1": [1, 0, 0, 1, math.exp(-2)],
        "invalid_rate": [0, 0, 1, 0, 0],
    }
    for name, shares in of_samples.items():
        assert found[name] == pytest.approx(sum(shares) / len(shares), abs=1e-7)
        assert found[f"{name}_stderr"] == pytest.approx(mean_standard_error(shares), abs=1e-7)
    alone = values_of(
        OPEN_QUESTIONS, [open_score("yes", "yes", n) for n in range(3)]
    )  # without open questions
    assert {name for name, value in alone.items() if math.isnan(value)} == {
        n for n in alone if n.startswith("open")
    }
