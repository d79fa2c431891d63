"""The judged form of GMAI-MMBench: who counts, who does not, and who is asked."""

import math

import pytest

from medtasks.audit.error_classes import wrong_answers
from medtasks.audit.scoring import score_replies
from medtasks.errors import JudgeNotConfigured
from medtasks.extract.extractor_registry import Reason
from medtasks.families import choice
from medtasks.families.choice import GROUPED_CHOICE, JUDGED_CHOICE
from medtasks.families.family import Reply
from medtasks.prompts import judged
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolved

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
    scripted = ScriptedJudge(lambda system, user, version: SAID.get(answer_in(user, "Answer: ")))
    monkeypatch.setattr(choice, "judge_for", lambda dataset: scripted)


def scored(*replies, family=JUDGED_CHOICE, rule=None):
    documents = [{**DOC, "doc_id": str(n), "image_id": str(n)} for n in range(len(replies))]
    return [score_of(family, doc, reply, rule) for doc, reply in zip(documents, replies, strict=True)]


def values(scores):
    return values_of(JUDGED_CHOICE, scores)


@pytest.mark.usefixtures("_told")
def test_a_judge_that_fails_takes_its_replies_out_of_the_score():
    found = values(scored("A", "B", "a growth", "a hole", "rain", "fog", "mist", ""))
    assert found["accuracy"] == found["acc_box_level"] == 2 / 6
    assert found["invalid_rate"] == 2 / 6
    assert found["judge_asked_rate"] == 5 / 8
    assert found["judge_failed_rate"] == 2 / 8
    alone = values(scored("A", "B", "a growth", "a hole", "rain", ""))
    assert alone["accuracy_stderr"] == found["accuracy_stderr"] > 0
    assert math.isnan(found["acc_mask_level"])


@pytest.mark.usefixtures("_told")
def test_without_need_for_a_judge_the_scores_are_those_of_the_plain_task():
    replies = ["A", "B", "", "polyp"]
    plain = values_of(GROUPED_CHOICE, scored(*replies, family=GROUPED_CHOICE, rule="vlmevalkit_2024_06"))
    found = values(scored(*replies))
    assert {name: found[name] for name in plain} == pytest.approx(plain, nan_ok=True)
    assert found["judge_asked_rate"] == 0


@pytest.mark.usefixtures("_told")
def test_score_says_who_decided():
    letter, judged, failed = scored("A", "a growth", "fog")
    assert (letter["asked"], judged["asked"], failed["asked"]) == (False, True, True)
    assert judged["value"] == judged["target"] == "A"
    assert judged["judge"] == "m, temperature 0"
    assert judged["rule"] == "vlmevalkit_2024_06"
    assert "value" not in failed
    assert failed["reason"] == Reason.JUDGE_FAILED


@pytest.mark.usefixtures("_told")
def test_replies_without_verdict_are_no_wrong_answers():
    replies = ["A", "B", "rain", "fog"]
    documents = [{**DOC, "doc_id": str(n)} for n in range(4)]
    recorded = {str(n): Reply(text) for n, text in enumerate(replies)}
    assert [one.reply for one in wrong_answers(task_file(TASK), documents, scored(*replies), recorded)] == ["B", "rain"]


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
    departments = {group.name: group.questions for group in scores["reference"].groups["department"]}
    assert departments["None"] == 2  # of which it is the accuracy
    counts = ("scored_samples", "failed_samples", "unjudged_samples")
    assert [scores["reference"].estimates[name].value for name in counts] == [2, 0, 2]
    assert [scores["reference_2026"].estimates[name].value for name in counts] == [3, 0, 1]


def test_no_prompt_without_a_judge():
    settings = resolved(task_config(TASK)["lmms_eval_specific_kwargs"])["default"]
    for build in (judged.prompt, judged.messages):
        with pytest.raises(JudgeNotConfigured, match="MEDTASKS_JUDGE_MODEL"):
            build(DOC, settings)


def test_the_prompt_is_that_of_the_plain_task(monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "m")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "k")
    settings = resolved(task_config(TASK)["lmms_eval_specific_kwargs"])
    plain = task_config("gmai_mmbench_val")
    assert settings == resolved(plain["lmms_eval_specific_kwargs"])
    # The dataset is gated and not credentialed, so that a judge on another machine may see its text.
    assert judged.prompt(DOC, settings["default"]) == plain["doc_to_text"].resolve()(DOC, settings["default"])
