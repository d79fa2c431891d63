"""Whole data sets against the numbers that MedEvalKit printed for them, without and with its judge."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from medtasks.families import kit_questions
from medtasks.families.family import TaskFamily
from medtasks.families.kit_questions import FAMILY, JUDGED_QUESTIONS
from medtasks.metrics.metric import Score

from ..task_families import score_of, values_of
from .scripted_judge import ScriptedJudge

RULES = {"vqa_rad": "medevalkit_vqa", "path_vqa": "medevalkit_path_vqa", "slake": "medevalkit_slake"}
OPEN = {
    "acc": "acc_open",
    "em": "exact_match",
    **{f"bleu{order}": f"bleu_{order}" for order in range(1, 5)},
    **{f"rouge{kind}": f"rouge_{kind}" for kind in "12l"},
    **{name: name for name in ("precision", "recall", "f1")},
}


def cases(golden: Path, name: str) -> list[dict[str, Any]]:
    lines = (golden / "medevalkit" / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["set"] in RULES]


def scored(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, rule: str) -> tuple[TaskFamily, list[Score]]:
    judge_replies = iter(case.get("judge_replies") or [])
    judge = ScriptedJudge(lambda *prompts: next(judge_replies) or "")
    monkeypatch.setattr(kit_questions, "judge_for", lambda dataset: judge)
    family = JUDGED_QUESTIONS if case.get("judge", True) else FAMILY
    documents = [{"doc_id": str(n), "image_id": str(n), **row} for n, row in enumerate(case["rows"])]
    scores = [score_of(family, doc, reply, rule) for doc, reply in zip(documents, case["replies"], strict=True)]
    if "error" not in case:
        assert next(judge_replies, None) is None  # as many were asked for as there
    return family, scores


def expected(case: dict[str, Any], part: str, names: dict[str, str]) -> dict[str, float]:
    return {name: case["metrics"][part][recorded] for recorded, name in names.items()}


def test_metrics(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases(golden, "metrics"):
        family, scores = scored(case, monkeypatch, RULES[case["set"]])
        found = values_of(family, scores)
        if "error" in case:
            assert_nothing_raises(case, scores, found)
            continue
        numbers = {
            **expected(case, "total metrics", {"acc": "accuracy"}),
            **expected(case, "close", {"acc": "acc_closed"}),
            **expected(case, "open", OPEN),
        }
        assert {name: found[name] for name in numbers} == pytest.approx(numbers, rel=1e-9, abs=1e-12), case
        assert [score["correct"] for score in scores] == case["correct"], case


def assert_nothing_raises(case: dict[str, Any], scores: list[Score], found: dict[str, float]) -> None:
    """Where the reference raises, its row has no number, or the sample that it cannot score is in none."""
    if case["error"] == "AttributeError":  # a model that gave no reply
        assert found["failed_samples"] == case["replies"].count(None)
    else:  # a ZeroDivisionError: there are no open questions, or no closed ones
        assert any(score["stops"] for score in scores) == (case["error"] != "ZeroDivisionError")
        numbers = {name: value for name, value in found.items() if not name.startswith("judge_failed_rate")}
        assert all(math.isnan(value) or type(value) is int for value in numbers.values())


def test_metrics_of_the_release(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases(golden, "metrics_release"):
        case["replies"] = [reply or "" for reply in case["replies"]]  # as the release takes a model that gave none
        family, scores = scored(case, monkeypatch, "medevalkit_vqa_release")
        found = values_of(family, scores)
        if "error" in case:
            assert math.isnan(found["acc_closed"]) or math.isnan(found["acc_open"])
            continue
        numbers = {
            **expected(case, "total metrics", {"acc": "accuracy"}),
            **expected(case, "close-ended", {"acc": "acc_closed"}),
            **expected(case, "open-ended", {"acc": "acc_open"}),
        }
        assert {name: found[name] for name in numbers} == pytest.approx(numbers, rel=1e-9, abs=1e-12), case
        assert [score["correct"] for score in scores] == case["correct"], case
