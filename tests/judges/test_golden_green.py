"""GREEN's prompt and parser against recorded behaviour of the published code."""

import json
import math

import pytest

from medtasks.judges.green_judge import RAW_PROMPT, cleaned, green_prompt, published_counts, strict_counts


def records(golden, name):
    path = golden / "reports" / "green" / name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_golden_green_prompts(golden):
    for case in records(golden, "prompts.jsonl"):
        prompt = green_prompt(case["reference"], case["candidate"])
        assert prompt == case["prompt"]
        assert RAW_PROMPT.format(prompt) == case["rendered"]


def test_golden_green_cleaned_replies(golden):
    for case in records(golden, "clean.jsonl"):
        assert cleaned(case["decoded"]) == case["cleaned"]


def test_golden_green_reference_reads_as_published(golden):
    for case in records(golden, "parse.jsonl"):
        counts = published_counts(case["reply"])
        assert cleaned(case["reply"]) == case["cleaned"]
        assert (list(counts.significant), list(counts.insignificant), counts.matched) == (
            case["significant"],
            case["insignificant"],
            case["matched"],
        ), case["kind"]
        assert [*counts.significant, counts.matched] == case["row"]
        assert counts.score(as_published=True) == pytest.approx(case["score"], rel=1e-9)


def test_golden_green_strict_invents_nothing(golden):
    for case in records(golden, "parse.jsonl"):
        counts, careful = strict_counts(case["reply"]), case["careful"]
        if careful["verdict"] == "failed" or (careful["verdict"] == "either" and counts is None):
            assert counts is None, case["kind"]
            continue
        assert counts is not None, case["kind"]
        assert (list(counts.significant), counts.matched) == (careful["significant"], careful["matched"]), case["kind"]
        insignificant = careful["insignificant"]
        assert counts.insignificant == (None if insignificant is None else tuple(insignificant)), case["kind"]
        assert counts.score(as_published=False) == pytest.approx(
            math.nan if careful["score"] is None else careful["score"], rel=1e-9, nan_ok=True
        )


def test_golden_green_first_call_of_each_corpus(golden):
    """Later calls of the published object are wrong where a reply had no lettered lines, and are not reproduced."""
    for case in records(golden, "corpus.jsonl"):
        call = case["calls"][0]
        scores = call.get("scores", call.get("scores_before"))
        if scores is None or not call["replies"]:
            continue  # a reply that is None stops the published code
        assert [published_counts(reply).score(as_published=True) for reply in call["replies"]] == pytest.approx(
            scores, rel=1e-9
        )
