"""Recorded whole-dataset results of MedEvalKit: choice sets, MMMU with its draws, and answers in words."""

import ast
import math
import random
from pathlib import Path
from typing import Any

import pytest

from medtasks.extract.failure import failure_cause
from medtasks.families import kit_questions
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.families.kit_questions import FAMILY, JUDGED_QUESTIONS
from medtasks.metrics.metric import Score
from medtasks.scores.scoring import score_replies

from ..extract.reading import recorded
from ..task_families import score_of, task_of, values_of
from .scripted_judge import ScriptedJudge

GROUPS = {
    "question type metrics": "question_type",
    "modality type metrics": "modality",
    "task type metrics": "medical_task",
}


def score(rule, documents, replies, *breakdown):
    """Return the scores of one row, whatever order the samples come in."""
    task = task_of("kit_choice", {"row": Rule(rule)}, breakdown=breakdown)
    given = {
        one["doc_id"]: Reply.of_text(reply)
        for one, reply in zip(documents, replies, strict=True)
    }
    shuffled = random.Random(len(documents)).sample(documents, len(documents))
    return score_replies(task, shuffled, given)["row"]


def document(number, row, name):
    """Return the document that preparing makes of a published row."""
    if name == "pmc_vqa":
        lines, gold = [row[f"Choice {one}"] for one in "ABCD"], row["Answer"]
        columns = {
            "options": lines,
            "option_lines": lines,
            "gold": gold,
            "answer": gold.strip(),
        }
    elif name == "medframeqa":
        lines = [f"{chr(65 + place)}.{text}" for place, text in enumerate(row["options"])]
        columns = {
            "options": row["options"],
            "option_lines": lines,
            **_lettered(row["correct_answer"]),
        }
    elif name == "omnimedvqa":
        options = [row[f"option_{one}"] for one in "ABCD" if f"option_{one}" in row]
        gold = row["gt_answer"]
        equal = [
            chr(65 + place)
            for place, text in enumerate(options)
            if text.strip() == gold.strip()
        ]
        flags = [] if "modality_type" in row else ["no_modality_type"]
        columns = {
            "options": options,
            "gold": gold,
            "answer": equal[0] if equal else None,
            "flags": flags,
        }
    else:
        columns = {"options": list(row["options"].values()), **_lettered(row["label"])}
    known = {"question_type": row.get("question_type"), "medical_task": row.get("medical_task")}
    return {
        "doc_id": f"d{number}",
        "image_id": None,
        "modality": row.get("modality_type"),
        **known,
        **columns,
    }


def _lettered(gold):
    return {"gold": gold, "answer": gold}


def test_golden_medevalkit_choice_metrics(golden):
    sets = [
        case for case in recorded(golden / "medevalkit", "metrics", 1) if case["set"] in RULES
    ]
    assert {case["set"] for case in sets} == set(RULES)
    for case in sets:
        name, rule = case["set"], RULES[case["set"]]
        documents = [document(number, row, name) for number, row in enumerate(case["rows"])]
        # Where MedEvalKit takes a missing reply for an empty one, it is one; elsewhere it raises, and here it failed.
        replies = [
            ("" if "tagged" in rule else None) if reply is None else reply
            for reply in case["replies"]
        ]
        found = score(rule, documents, replies, *GROUPS.values())
        if "error" in case:
            assert_stops(case, found, score(f"{rule}_fixed", documents, replies))
        elif not any(reply is None or failure_cause(reply) is not None for reply in replies):
            assert_equal(case["metrics"], found)
        else:
            told = [
                right
                for right, reply in zip(case["correct"], replies, strict=True)
                if failure_cause(reply) is None
            ]
            assert found.estimates["accuracy"].value == pytest.approx(
                sum(told) / len(told), rel=1e-9
            )


RULES = {
    "pmc_vqa": "medevalkit_choice",
    "medframeqa": "medevalkit_choice",
    "omnimedvqa": "medevalkit_tagged_choice",
    "medxpertqa_mm": "medevalkit_tagged_choice",
    "medxpertqa_text": "medevalkit_tagged_choice",
}


def assert_equal(metrics, found):
    total = metrics["total metrics"]
    assert found.estimates["accuracy"].value == pytest.approx(total["acc"], rel=1e-9)
    assert found.estimates["scored_samples"].value == total["total"]
    for part, column in GROUPS.items():
        groups = {
            group.name: (group.questions, group.scores[0].value)
            for group in found.groups[column]
            if part in metrics
        }
        assert groups == {
            name: (one["total"], pytest.approx(one["acc"], rel=1e-9))
            for name, one in metrics.get(part, {}).items()
        }


def assert_stops(case, found, fixed):
    """A missing column stops the set; without questions there is no score; a missing reply is a failed sample."""
    assert case["error"] in ("KeyError", "ZeroDivisionError", "AttributeError")
    failed = sum(reply is None for reply in case["replies"])
    assert bool(failed) == (case["error"] == "AttributeError")
    assert found.estimates["failed_samples"].value == failed
    assert math.isnan(found.estimates["accuracy"].value) == (case["error"] != "AttributeError")
    assert math.isnan(fixed.estimates["accuracy"].value) == (not case["rows"])
    assert not found.groups if case["error"] == "KeyError" else True


def test_golden_medevalkit_mmmu_validation(golden):
    for case in recorded(golden / "medevalkit", "mmmu_validation", 1):
        documents = [_mmmu(row) for row in case["rows"]]
        found = score("medevalkit_mmmu", documents, case["replies"], "subject")
        results = dict(case["results"])
        assert found.estimates["accuracy"].value == pytest.approx(
            results.pop("total")["acc"], rel=1e-9
        )
        groups = {
            group.name: (group.questions, group.scores[0].value)
            for group in found.groups["subject"]
        }
        assert groups == {
            name: (one["num_example"], pytest.approx(one["acc"], rel=1e-9))
            for name, one in results.items()
        }
        wrong = {one.score["sample"]: one.score["value"] for one in found.wrong}
        for row, parsed in zip(case["rows"], case["parsed"], strict=True):
            if row["question_type"] != "open":
                assert wrong.get(row["id"], row["answer"]) == parsed, row
            else:
                assert wrong[row["id"]] == "other"


def _mmmu(row):
    options = ast.literal_eval(row["options"])
    gold = row["answer"]
    _, _, subject = row["id"].rpartition("_")[0].partition("_")
    known = {
        "question_type": row["question_type"],
        "subject": subject,
        "gold": gold,
        "options": options,
    }
    return {"doc_id": row["id"], "image_id": None, "answer": gold if options else None, **known}


RULES_IN_WORDS = {
    "vqa_rad": "medevalkit_vqa",
    "path_vqa": "medevalkit_path_vqa",
    "slake": "medevalkit_slake",
}
OPEN = {
    "acc": "acc_open",
    "em": "exact_match",
    **{f"bleu{order}": f"bleu_{order}" for order in range(1, 5)},
    **{f"rouge{kind}": f"rouge_{kind}" for kind in "12l"},
    **{name: name for name in ("precision", "recall", "f1")},
}


def cases(golden: Path, name: str) -> list[dict[str, Any]]:
    return [
        case
        for case in recorded(golden / "medevalkit", name, 1)
        if case["set"] in RULES_IN_WORDS
    ]


def scored(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch, rule: str
) -> tuple[TaskFamily, list[Score]]:
    judge_replies = iter(case.get("judge_replies") or [])
    judge = ScriptedJudge(lambda *prompts: next(judge_replies) or "")
    monkeypatch.setattr(kit_questions, "judge_for", lambda dataset: judge)
    family = JUDGED_QUESTIONS if case.get("judge", True) else FAMILY
    documents = [
        {"doc_id": str(n), "image_id": str(n), **row} for n, row in enumerate(case["rows"])
    ]
    scores = [
        score_of(family, doc, reply, rule)
        for doc, reply in zip(documents, case["replies"], strict=True)
    ]
    if "error" not in case:
        assert next(judge_replies, None) is None  # as many were asked for as there
    return family, scores


def test_golden_medevalkit_vqa_metrics(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases(golden, "metrics"):
        family, scores = scored(case, monkeypatch, RULES_IN_WORDS[case["set"]])
        found = values_of(family, scores)
        if "error" in case:
            assert_nothing_raises(case, scores, found)
            continue
        assert_numbers(case, scores, found, {"close": {"acc": "acc_closed"}, "open": OPEN})


def assert_numbers(case, scores, found, parts):
    """Compare a row's metrics and its right answers with those recorded."""
    of_parts = {"total metrics": {"acc": "accuracy"}, **parts}
    numbers = {
        ours: case["metrics"][part][name]
        for part, names in of_parts.items()
        for name, ours in names.items()
    }
    assert {name: found[name] for name in numbers} == pytest.approx(
        numbers, rel=1e-9, abs=1e-12
    ), case
    assert [score["correct"] for score in scores] == case["correct"], case


def assert_nothing_raises(
    case: dict[str, Any], scores: list[Score], found: dict[str, float]
) -> None:
    """Where the reference raises, its row has no number, or the sample that it cannot score is in none."""
    if case["error"] == "AttributeError":  # a model that gave no reply
        assert found["failed_samples"] == case["replies"].count(None)
    else:  # a ZeroDivisionError: there are no open questions, or no closed ones
        assert any(score["stops"] for score in scores) == (case["error"] != "ZeroDivisionError")
        numbers = {
            name: value
            for name, value in found.items()
            if not name.startswith("judge_failed_rate")
        }
        assert all(math.isnan(value) or type(value) is int for value in numbers.values())


def test_golden_medevalkit_vqa_release(golden: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases(golden, "metrics_release"):
        case["replies"] = [
            reply or "" for reply in case["replies"]
        ]  # as the release takes a model that gave none
        family, scores = scored(case, monkeypatch, "medevalkit_vqa_release")
        found = values_of(family, scores)
        if "error" in case:
            assert math.isnan(found["acc_closed"]) or math.isnan(found["acc_open"])
            continue
        assert_numbers(
            case,
            scores,
            found,
            {"close-ended": {"acc": "acc_closed"}, "open-ended": {"acc": "acc_open"}},
        )
