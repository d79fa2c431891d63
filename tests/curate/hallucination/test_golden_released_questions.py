"""What MedHEval's own LLM drafted goes through our rules: what it published is drafted again, but for known faults."""

import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from medtasks.curate.drafts import prompts_in
from medtasks.curate.hallucination_questions import (
    PROMPTS,
    TypedQuestion,
    banned_phrases,
    drafts_in,
)
from medtasks.curate.review.reviews import balance_answers

FILE = "medheval/Visual_Misinterpretation_Hallucination/close-ended/MM-VisHal.json"


@pytest.fixture(scope="module")
def drafts(test_data: Path):
    """The drafts of all published questions of SLAKE and VQA-RAD, as if one reply per image had held them."""
    replies = defaultdict(list)
    for row in json.loads((test_data / FILE).read_text(encoding="utf-8")):
        published = {
            "type": row["hallucination_type"],
            "ground_truth_type": row["question_type"],
        }
        replies[row["img_name"]].append(
            {**{key: row[key] for key in ("question", "answer", "choices")}, **published}
        )
    found = []
    for image, reply in replies.items():
        prompt = prompts_in(PROMPTS)[
            "visual_closed_boxes" if image.startswith("xmlab") else "visual_closed_pairs"
        ]
        found += drafts_in(
            TypedQuestion, image, banned_phrases(prompt.system), json.dumps(reply)
        )["drafts"]
    return found


def test_nearly_all_are_drafted_and_the_others_say_why(drafts):
    assert Counter(draft.reason for draft in drafts) == {
        "": 3507,
        "its answer is neither yes nor no": 55,
        "its answer names several options": 23,
        "its answer names no option": 15,
        "it has fewer than two options that can be told apart": 6,
        "it says 'mentioned', which its prompt forbids": 2,
        "its answer contradicts itself": 2,
    }


def test_its_labels_are_made_even(drafts):
    """The paper's set says no in 59% of its yes/no questions, and has D right in 7% of those with four options."""
    drafted = {draft.item_id: draft for draft in drafts if not draft.reason}
    kept, left_out = balance_answers(drafted)
    assert left_out == {"surplus of no": 473}
    assert len(kept) == len(drafted) - 473
    letters = Counter(draft.answers[0] for draft in drafted.values() if len(draft.options) == 4)
    assert letters.keys() == set("ABCD")
    assert all(0.2 < count / letters.total() < 0.3 for count in letters.values())
