"""GREEN's prompt and parser against recorded behaviour of the published code."""

import json
import math

import pytest

from medtasks.judges.green_judge import (
    RAW_PROMPT,
    clean_reply,
    green_prompt,
    published_counts,
    strict_counts,
)


@pytest.fixture
def records(golden):
    folder = golden / "reports" / "green"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    return lambda name: map(
        json.loads, (folder / name).read_text(encoding="utf-8").splitlines()
    )


def test_golden_green_prompts_and_cleaned_replies(records):
    for case in records("prompts.jsonl"):
        prompt = green_prompt(case["reference"], case["candidate"])
        assert (prompt, RAW_PROMPT.format(prompt)) == (case["prompt"], case["rendered"])
    for case in records("clean.jsonl"):
        assert clean_reply(case["decoded"]) == case["cleaned"]


def test_golden_green_readings(records):
    for case in records("parse.jsonl"):
        counts, careful = published_counts(case["reply"]), case["careful"]
        assert clean_reply(case["reply"]) == case["cleaned"]
        numbers = list(counts.significant), list(counts.insignificant), counts.matched
        assert numbers == (case["significant"], case["insignificant"], case["matched"]), case[
            "kind"
        ]
        assert [*counts.significant, counts.matched] == case["row"]
        assert counts.score(as_published=True) == pytest.approx(case["score"], rel=1e-9)
        counts = strict_counts(case["reply"])
        if careful["verdict"] == "failed" or (
            careful["verdict"] == "either" and counts is None
        ):
            assert counts is None, case["kind"]
            continue
        insignificant = counts.insignificant and list(counts.insignificant)
        assert [list(counts.significant), insignificant, counts.matched] == [
            careful[name] for name in ("significant", "insignificant", "matched")
        ], case["kind"]
        score = math.nan if careful["score"] is None else careful["score"]
        assert counts.score(as_published=False) == pytest.approx(score, rel=1e-9, nan_ok=True)


def test_golden_green_first_call_of_each_corpus(records):
    """Later calls of the published object are wrong where a reply had no lettered lines, and are not reproduced."""
    for case in records("corpus.jsonl"):
        call = case["calls"][0]
        if scores := call.get("scores", call.get("scores_before")):
            values = [
                published_counts(reply).score(as_published=True) for reply in call["replies"]
            ]
            assert values == pytest.approx(scores, rel=1e-9)
            assert "mean" not in call or sum(values) / len(values) == pytest.approx(
                call["mean"], rel=1e-9
            )
