"""Answers behind reasoning, by every kind of question: closed, unclosed, nested, empty and cut."""

from medtasks.data.samples import Sample
from medtasks.extract.reading.reply_text import split_reasoning
from medtasks.families.choice import SINGLE_CHOICE
from medtasks.families.closed_questions import CLOSED_QUESTIONS
from medtasks.families.family import Reply, Rule
from medtasks.families.kit_questions import FAMILY, OPEN_QUESTIONS
from medtasks.families.paired_choice import PAIRED_CHOICE

from ..tables import each_row, rows_in

CHOICE = {
    "doc_id": "1",
    "image_id": "i",
    "options": ["liver", "spleen", "heart"],
    "answer": "B",
}
PAIR = {**CHOICE, "pair_id": "p", "position": 1, "categories": []}
BINARY = {
    "kind": "binary",
    "choices": "",
    "options": ["Yes", "No"],
    "gold": "No",
    "answer": "B",
}
CLOSED = {"doc_id": "1", "question": "Is it?", "source": None, "hallucination": None, **BINARY}
OPEN = {"doc_id": "1", "question": "Which organ?", "answer": "spleen"}
FAMILIES = [
    (SINGLE_CHOICE, CHOICE, "robust_choice", "B", "A"),
    (PAIRED_CHOICE, PAIR, "robust_choice", "B", "A"),
    (CLOSED_QUESTIONS, CLOSED, "medheval_strict", "No", "Yes"),
    (OPEN_QUESTIONS, OPEN, "robust_vqa", "spleen", "liver"),
    (FAMILY, OPEN, "robust_kit_vqa", "spleen", "liver"),
]
SAID = {
    template: reason for reason, template in rows_in("behind_reasoning")
}  # "ok", or why there is no answer


@each_row(("family", "document", "rule", "right", "wrong"), FAMILIES)
@each_row("said", SAID)
def test_the_answer_is_read_behind_the_reasoning(family, document, rule, right, wrong, said):
    score = family.score(
        Sample(document),
        Reply.of_text(said.format(right=right, wrong=wrong)),
        Rule(rule, reasoned=True),
    )
    assert score["reason"] == SAID[said]
    assert (score.get("value") == score.get("target")) is (
        SAID[said] == "ok" or "value" not in score
    )
    if "correct" in score:
        assert bool(score["correct"]) is (SAID[said] == "ok")
    assert score["rule"] == rule


def reasons(family, document, rule, *replies):
    """Return why each reply is read or not."""
    reasoned = Rule(rule, reasoned=True)
    return [family.score(Sample(document), reply, reasoned)["reason"] for reply in replies]


@each_row(("family", "document", "rule", "right", "wrong"), FAMILIES)
def test_what_a_server_cut_is_read_behind_its_reasoning(family, document, rule, right, wrong):
    all_reasoning = Reply(f"It might be {right}", cut=True)
    closed = Reply(f"<think>{wrong}</think>{right}", cut=True)
    opened = Reply(f"{wrong}? <answer>{right}", cut=True)
    assert reasons(family, document, rule, all_reasoning) == ["truncated"]
    assert reasons(family, document, rule, closed) == ["ok"]
    assert reasons(family, document, rule, opened) == ["ok"]


@each_row(("family", "document", "rule", "right", "wrong"), FAMILIES)
def test_what_a_server_told_apart_is_no_answer(family, document, rule, right, wrong):
    whole = Reply(right, reasoning=f"{wrong}.")
    cut = Reply(right, cut=True, reasoning=f"{wrong}.")
    cut_before = Reply("", cut=True, reasoning=f"{right}.")
    empty = Reply("", reasoning=f"{right}.")
    assert reasons(family, document, rule, whole) == ["ok"]
    assert reasons(family, document, rule, cut) == ["ok"]
    assert reasons(family, document, rule, cut_before) == ["truncated"]
    assert reasons(family, document, rule, empty) == ["empty"]


@each_row(("family", "document", "rule", "right", "wrong"), FAMILIES)
def test_a_failure_behind_reasoning_is_a_failure(family, document, rule, right, wrong):
    failures = [Reply.of_text(None), Reply.of_text("[[medtasks:adapter_failed]] x")]
    assert reasons(family, document, rule, *failures) == ["adapter_failed"] * 2


def test_published_rules_cannot_read_a_letter_out_of_nothing():
    row = Rule("medevalkit_choice", reasoned=True)
    document = {**CHOICE, "option_lines": ["A. a", "B. b"], "gold": "B"}
    assert SINGLE_CHOICE.score(Sample(document), Reply("<think>B"), row)["value"] is None


def test_the_reasoning_is_counted_in_words():
    assert split_reasoning("<think>one two three</think>B").words == 3
    assert split_reasoning("B", reasoning="one two").words == 2
    assert split_reasoning("<think>one two").words == 2
    assert (
        split_reasoning("").words == split_reasoning("<answer> </answer> is empty").words == 0
    )
