"""Scoring recorded replies through a task's own hooks."""

import math
from pathlib import Path

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.errors import RepliesError
from medtasks.families.family import Reply
from medtasks.harness.task_file import TaskFile
from medtasks.harness.task_index import DottedName

DOCUMENTS = [
    {"doc_id": str(number), "image_id": None, "options": ["aspirin", "heparin"], "answer": answer}
    for number, answer in enumerate("ABBA")
]
ALL_ANSWERED = {"scored_samples": 4, "failed_samples": 0}


def task(output_type="generate_until", **rules):
    return TaskFile(
        name="drugs",
        kind="task",
        path=Path("drugs.yaml"),
        description="",
        dataset="drugs",
        output_type=output_type,
        rules=rules,
        process_results=DottedName("medtasks.hooks.choice.process_results"),
        metric_list=DottedName("medtasks.hooks.choice.METRIC_LIST"),
    )


def texts(*replies):
    return {str(number): Reply(text=reply) for number, reply in enumerate(replies)}


def test_every_rule_scores_every_reply():
    strict_and_robust = task(reference="mediconfusion_reference", robust="robust_choice")
    scores = score_replies(strict_and_robust, DOCUMENTS, texts("A", "(b)", "B", "I cannot tell from this image."))
    assert list(scores) == ["reference", "robust"]
    reference, robust = scores.values()
    assert (reference.rule, robust.rule) == ("mediconfusion_reference v1", "robust_choice v2")
    assert reference.values == {"accuracy": 0.5, "invalid_rate": 0.5, **ALL_ANSWERED}
    assert robust.values == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}
    assert robust.errors["accuracy"] == pytest.approx(0.25)
    assert sum(robust.reasons.values()) == 4
    assert robust.reasons["ok"] == 3
    assert robust.as_dict()["metrics"] == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}


def test_documents_without_a_reply_are_left_out():
    scores = score_replies(task(robust="robust_choice"), DOCUMENTS, texts("A"))
    assert scores["robust"].values["accuracy"] == 1
    assert math.isnan(scores["robust"].errors["accuracy"])
    assert scores["robust"].as_dict()["standard_errors"]["accuracy"] is None


def test_option_form_reaches_the_rule():
    numbered = TaskFile(
        **{**vars(task(robust="robust_choice")), "option_forms": {"robust": "drug number {number}, {text}"}}
    )
    replies = texts("drug number 1, aspirin", "drug number 2, heparin", "heparin", "drug number 1, aspirin")
    found = score_replies(numbered, DOCUMENTS, replies)["robust"]
    assert found.values == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}


def test_likelihoods():
    replies = {str(number): Reply(losses=losses) for number, losses in enumerate([(1, 2), (2, 1), (1, 1), (3, 4)])}
    scores = score_replies(task("multiple_choice", robust="untied"), DOCUMENTS, replies)
    assert scores["robust"].values == {"accuracy": 0.75, "invalid_rate": 0.25, **ALL_ANSWERED}
    with pytest.raises(RepliesError, match="'drugs' reads log-likelihoods, and some replies are texts"):
        score_replies(task("multiple_choice", robust="untied"), DOCUMENTS, texts("A"))
    with pytest.raises(RepliesError, match="'drugs' reads texts, and some replies are log-likelihoods"):
        score_replies(task(robust="robust_choice"), DOCUMENTS, replies)
