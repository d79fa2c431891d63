import pytest

from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.failure import failed_reply
from medtasks.judges.mediconfusion_judge import (
    INSTRUCTION,
    RULE_NAME,
    RULE_VERSION,
    SYSTEM,
    choose,
    judge_prompt,
    judge_reply,
    parse_scores,
)

from ..tables import each_row

# The reference's text, copied independently of the module.
REFERENCE = (
    "[Question]\n{question}\n\n[Answer A]\n{option A}\n\n[Answer B]\n{option B}\n\n[AI Assistant]\n{response}\n\n"
    "[End of AI Assistant]\n\n[System]\n{instruction}\n\n"
)
REFERENCE_INSTRUCTION = (
    "We would like to request your feedback on the performance of an AI assistant in response to the user"
    " question displayed above. The user asks the question on observing an image. We have provided two "
    "possible answers, [Answer A] and [Answer B] to the question. Your job is to evaluate how close the "
    "AI assistant's answer is to each of the answers. You don't have to decide whether the answers are "
    "correct or not. Each answer should receive an overall score on a scale of 1 to 10, where a higher "
    "score indicates the AI assistant's answer is closer to the specific answer. After providing the "
    "scores, concisely provide your explanation for the given scores. Remember, you don't need to comment"
    " on the correctness of the answers. Please provide your answer in the following format:"
    "\nA: <SCORE>\nB: <SCORE>\nYour explanation: <EXPLANATION>"
)


def test_the_texts_are_the_reference_s():
    assert SYSTEM == "You are a helpful and precise assistant for checking the quality of the answer."
    assert INSTRUCTION == REFERENCE_INSTRUCTION


def test_the_prompt_is_the_reference_s_to_the_letter():
    parts = {"question": "Which {side}?", "option A": "Left", "option B": "Right", "response": " It's {left}.\n"}
    expected = REFERENCE
    for name, text in (parts | {"instruction": REFERENCE_INSTRUCTION}).items():
        expected = expected.replace("{" + name + "}", text)
    assert judge_prompt("Which {side}?", ["Left", "Right"], " It's {left}.\n") == expected


@each_row("options", [[], ["Left"], ["Left", "Right", "Both"]])
def test_two_options_are_needed(options):
    with pytest.raises(ValueError, match="two options"):
        judge_prompt("Which side?", options, "left")


SCORED = {
    (9, 2): [
        *("A: 9\nB: 2\nYour explanation: it says left.", "A: 9\n\nB: 2\n\nYour explanation: it says left.\n\nMore."),
        *("A: 9 \r\nB: 2\r\n", "9\n2"),
    ],
    (10, 1): ["\n\n  A: 10\nB: 1"],
    None: [
        *(
            "",
            "A: 9",
            "A: 9 B: 2",
            "B: 9\nA: 2",
            "A:9\nB:2",
            "**A: 9**\n**B: 2**",
            "A: 9\n\n\nB: 2",
            "Sure!\nA: 9\nB: 2",
        ),
        *(f"A: {score}\nB: 2" for score in ("9/10", "9.0", "0", "11", "-3", "1_0", "\u0669", "\u00b2", "9" * 5000)),
    ],
}


@each_row("text, scores", [(text, scores) for scores, texts in SCORED.items() for text in texts])
def test_scores_are_read_strictly(text, scores):
    assert parse_scores(text) == scores


@each_row("scores, value", [((7, 4), "A"), ((6, 4), None), ((5, 5), None), ((4, 6), None), ((4, 7), "B")])
def test_the_gap_is_three(scores, value):
    assert choose(scores) == (Answer.ok(value) if value else Answer.invalid(Reason.AMBIGUOUS))
    assert (RULE_NAME, RULE_VERSION) == ("gap_of_3", 1)


def test_a_reply_is_judged(endpoint, judge):
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "left") == Answer.ok("A")
    system, user = endpoint.bodies[0]["messages"]
    assert system["content"] == SYSTEM
    assert user["content"] == judge_prompt("Which side?", ["Left", "Right"], "left")


@each_row(
    "reply, reason",
    [("", Reason.EMPTY), (" \n\t", Reason.EMPTY), (failed_reply("out of memory"), Reason.ADAPTER_FAILED)],
)
def test_nothing_to_judge_costs_nothing(endpoint, judge, reply, reason):
    assert judge_reply(judge, "Which side?", ["Left", "Right"], reply) == Answer.invalid(reason)
    assert endpoint.count == 0


def test_a_judge_without_a_verdict_is_judge_failed(endpoint, judge):
    endpoint.script = [*map(endpoint.reply, ("Both are fine.", "A: 12\nB: 1", "A: 9")), endpoint.status(401)]
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "left") == Answer.invalid(Reason.JUDGE_FAILED)
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "right") == Answer.invalid(Reason.JUDGE_FAILED)
    assert endpoint.count == 4
