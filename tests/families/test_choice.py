"""Questions with options: alone, by level, and GMAI-MMBench's judged form: who counts, and who is asked."""

import math
import random

import pytest

from medtasks.errors import JudgeNotConfigured
from medtasks.extract.extractor_registry import Reason
from medtasks.families import choice
from medtasks.families.choice import GROUPED_CHOICE, JUDGED_CHOICE, LEVELS, SINGLE_CHOICE
from medtasks.families.family import Reply
from medtasks.prompts import judged
from medtasks.scores.error_classes import wrong_answers
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

from ..stats import error_matrices
from ..task_families import score_of, values_of
from .scripted_judge import ScriptedJudge, answer_in

TASK = "gmai_mmbench_val_judged"
DOC = {
    "doc_id": "7",
    "dataset": "gmai_mmbench_val",
    "image_id": "abc",
    "image_files": ["images/a.png"],
    "hint": None,
    "question": "What is this?",
    "options": ["polyp", "ulcer"],
    "answer": "A",
    "granularity": "Box Level",
    "department": "None",
    "clinical_task": "Bone",
    "modality": "CT",
}
SAID = {"a growth": "A", "a hole": "B", "rain": "Z"}


@pytest.fixture
def _told(monkeypatch):
    """A judge that knows three replies and fails for all others."""
    scripted = ScriptedJudge(
        lambda system, user, version: SAID.get(answer_in(user, "Answer: "))
    )
    monkeypatch.setattr(choice, "judge_for", lambda dataset: scripted)


def scored(*replies, family=JUDGED_CHOICE, rule=None):
    documents = [{**DOC, "doc_id": str(n), "image_id": str(n)} for n in range(len(replies))]
    return [
        score_of(family, doc, reply, rule)
        for doc, reply in zip(documents, replies, strict=True)
    ]


@pytest.mark.usefixtures("_told")
def test_a_judge_that_fails_takes_its_replies_out_of_the_score():
    found = values_of(
        JUDGED_CHOICE, scored("A", "B", "a growth", "a hole", "rain", "fog", "mist", "")
    )
    assert found["accuracy"] == found["acc_box_level"] == 2 / 6
    assert found["invalid_rate"] == 2 / 6
    assert found["judge_asked_rate"] == 5 / 8
    assert found["judge_failed_rate"] == 2 / 8
    alone = values_of(JUDGED_CHOICE, scored("A", "B", "a growth", "a hole", "rain", ""))
    assert alone["accuracy_stderr"] == found["accuracy_stderr"] > 0
    assert math.isnan(found["acc_mask_level"])


@pytest.mark.usefixtures("_told")
def test_without_need_for_a_judge_the_scores_are_those_of_the_plain_task():
    replies = ["A", "B", "", "polyp"]
    plain = values_of(
        GROUPED_CHOICE, scored(*replies, family=GROUPED_CHOICE, rule="vlmevalkit_2024_06")
    )
    found = values_of(JUDGED_CHOICE, scored(*replies))
    assert {name: found[name] for name in plain} == pytest.approx(plain, nan_ok=True)
    assert found["judge_asked_rate"] == 0


@pytest.mark.usefixtures("_told")
def test_score_says_who_decided():
    replies = ["A", "a growth", "rain", "fog"]
    scores = scored(*replies)
    letter, judged, _, failed = scores
    assert [score["asked"] for score in scores] == [False, True, True, True]
    assert judged["value"] == judged["target"] == letter["value"] == "A"
    assert (judged["judge"], judged["rule"]) == ("m, temperature 0", "vlmevalkit_2024_06")
    assert (failed.get("value", "no verdict"), failed["reason"]) == (
        "no verdict",
        Reason.JUDGE_FAILED,
    )
    documents = [{**DOC, "doc_id": str(n)} for n in range(4)]
    recorded = {str(n): Reply(text) for n, text in enumerate(replies)}
    # A reply without a verdict is no wrong answer.
    assert [
        wrong.reply for wrong in wrong_answers(task_file(TASK), documents, scores, recorded)
    ] == ["rain"]


@pytest.mark.usefixtures("_told")
def test_recorded_replies_are_judged_under_both_rules():
    documents = [{**DOC, "doc_id": str(n), "image_id": str(n)} for n in range(4)]
    replies = ["a growth", "The answer is a hole or a growth", "B", "fog"]
    recorded = {str(n): Reply(text) for n, text in enumerate(replies)}
    scores = score_replies(task_file(TASK), documents, recorded)
    assert list(scores) == ["reference", "reference_2026", "fenced"]
    assert scores["reference"].estimates["accuracy"].value == 1 / 2
    assert scores["reference_2026"].estimates["accuracy"].value == 2 / 3
    assert scores["reference"].reasons == {"ok": 2, "judge_failed": 2}
    departments = {
        group.name: group.questions for group in scores["reference"].groups["department"]
    }
    assert departments["None"] == 2  # of which it is the accuracy
    counts = ("scored_samples", "failed_samples", "unjudged_samples")
    assert [scores["reference"].estimates[name].value for name in counts] == [2, 0, 2]
    assert [scores["reference_2026"].estimates[name].value for name in counts] == [3, 0, 1]


def test_the_prompt_is_that_of_the_plain_task(monkeypatch):
    for build in (judged.prompt, judged.messages):
        with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_MODEL"):
            build(DOC, {})
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "m")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "k")
    settings, plain = (
        resolve_names(task_config(TASK)["lmms_eval_specific_kwargs"]),
        task_config("gmai_mmbench_val"),
    )
    assert settings == resolve_names(plain["lmms_eval_specific_kwargs"])
    # The dataset is gated and not credentialed, so that a judge on another machine may see its text.
    assert judged.prompt(DOC, settings["default"]) == plain["doc_to_text"].resolve()(
        DOC, settings["default"]
    )


def choices(*answers):
    """Scores of single questions: (image, target, reply)."""
    documents = [
        {"doc_id": str(number), "options": ["x", "y"], "answer": key, "image_id": image}
        for number, (image, key, _) in enumerate(answers)
    ]
    return [
        score_of(SINGLE_CHOICE, document, reply, "robust_choice")
        for document, (*_, reply) in zip(documents, answers, strict=True)
    ]


def test_metrics_of_single_questions():
    found = values_of(
        SINGLE_CHOICE, choices((1, "A", "A"), (1, "A", "B"), (2, "B", "?"), (3, "B", "B"))
    )
    assert found["accuracy"] == 0.5
    assert found["invalid_rate"] == 0.25
    for name, of_samples in (("accuracy", [1, 0, 0, 1]), ("invalid_rate", [0, 0, 1, 0])):
        assert found[f"{name}_stderr"] == pytest.approx(
            error_matrices.clustered(of_samples, [1, 1, 2, 3])[0]
        )


# ---- by level, as in GMAI-MMBench ----


def leveled(levels_and_rights):
    return [
        {
            "level": level,
            "target": "A",
            "value": "A" if right else None,
            "reason": "ok",
            "cluster_id": str(number),
        }
        for number, (level, right) in enumerate(levels_and_rights)
    ]


def test_overall_is_the_question_weighted_mean_of_the_levels():
    rng = random.Random(3)
    scores = leveled([(rng.choice(LEVELS), rng.random() < 0.4) for _ in range(500)])
    found = values_of(GROUPED_CHOICE, scores)
    weights = {level: sum(score["level"] == level for score in scores) for level in LEVELS}
    weighted = sum(
        found[f"acc_{level}_level"] * weight for level, weight in weights.items()
    ) / len(scores)
    assert math.isclose(found["accuracy"], weighted)
    rng.shuffle(scores)
    assert values_of(GROUPED_CHOICE, scores) == pytest.approx(found, rel=1e-12)
