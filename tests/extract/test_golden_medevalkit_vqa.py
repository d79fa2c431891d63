"""Closed and open answers against what MedEvalKit returned for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of

medevalkit_slake, medevalkit_slake_fixed = (extractor_of(f"medevalkit_slake{end}").extract for end in ("", "_fixed"))

RECORDED = {
    **{f"bleu{order}": f"bleu_{order}" for order in range(1, 5)},
    **{f"rouge{kind}": f"rouge_{kind}" for kind in "12l"},
    **{name: name for name in ("precision", "recall", "f1")},
}
CRASHES = ("ROUGE", "F1", "recursion")
"""What the sentence says of one of which the published code raises."""


def cases(golden: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (golden / "medevalkit" / f"{name}.jsonl").read_text("utf-8").splitlines()]


def sample(case: dict[str, Any], answer_type: str) -> Sample:
    return Sample({"answer": case["gold"], "answer_type": answer_type})


def test_closed_answers(golden: Path) -> None:
    """SLAKE's rule takes yes and no in lower case by substring, all other answers by equality."""
    for case in cases(golden, "closed"):
        gold, reply = case["gold"], case["reply"]
        by_word = gold.lower() in ("yes", "no")
        exact = medevalkit_slake(reply, sample({"gold": gold.title() if by_word else gold}, "CLOSED"))
        assert exact.facts["correct"] == case["exact"], case
        if by_word:
            assert (
                medevalkit_slake(reply, sample({"gold": gold.lower()}, "CLOSED")).facts["correct"] == case["judgement"]
            )


def test_open_answers(golden: Path) -> None:
    for case in cases(golden, "open"):
        head = medevalkit_slake(case["reply"], sample(case, "OPEN"))
        mended = medevalkit_slake_fixed(case["reply"], sample(case, "OPEN"))
        assert (head.facts["stops"] is not None) == ("error" in case), case
        assert mended.facts["stops"] is None
        if "error" in case:
            assert any(word in head.facts["stops"] for word in CRASHES)
            assert not any(mended.facts["measures"].values())
            continue
        assert head.facts["correct"] is mended.facts["correct"] is case["em"], case
        expected = {RECORDED[name]: case[name] for name in RECORDED}
        assert head.facts["measures"] == pytest.approx(expected, rel=1e-9, abs=0), case
        # HEAD's names hold F1, precision and recall
        right = {"f1": case["precision"], "precision": case["recall"], "recall": case["f1"]}
        assert mended.facts["measures"] == pytest.approx(expected | right, rel=1e-9, abs=0), case
