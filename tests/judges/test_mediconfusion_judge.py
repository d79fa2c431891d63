import hashlib

import pytest

from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.failure import failed_reply
from medtasks.judges.published_judges import (
    RULE_NAME,
    RULE_VERSION,
    SYSTEM,
    judge_reply,
    mediconfusion_prompt,
    parse_scores,
)

from ..tables import each_row


def test_the_prompt_is_the_reference_s_to_the_letter():
    # Fingerprints of the reference's texts, which were compared with ours letter by letter.
    texts = (
        SYSTEM,
        mediconfusion_prompt("Which {side}?", ["Left", "Right"], " It's {left}.\n"),
    )
    fingerprints = [hashlib.sha256(text.encode()).hexdigest()[:16] for text in texts]
    assert fingerprints == ["8ec001fd8f1a623f", "a4397ca4e0ffc608"]


def test_two_options_are_needed():
    with pytest.raises(ValueError, match="two options"):
        mediconfusion_prompt("Which side?", ["Left", "Right", "Both"], "left")


SCORED = {
    (9, 2): [
        *(
            "A: 9\nB: 2\nYour explanation: it says left.",
            "A: 9\n\nB: 2\n\nYour explanation: it says left.\n\nMore.",
        ),
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
        ),
        "Sure!\nA: 9\nB: 2",
        *(
            f"A: {score}\nB: 2"
            for score in ("9/10", "9.0", "0", "11", "-3", "1_0", "\u0669", "\u00b2", "9" * 5000)
        ),
    ],
}


@each_row(
    "text, scores", [(text, scores) for scores, texts in SCORED.items() for text in texts]
)
def test_scores_are_read_strictly(text, scores):
    assert parse_scores(text) == scores


@each_row(
    "scores, value",
    [((7, 4), "A"), ((6, 4), None), ((5, 5), None), ((4, 6), None), ((4, 7), "B")],
)
def test_the_gap_is_three(endpoint, judge, scores, value):
    endpoint.script = [endpoint.reply("A: {}\nB: {}".format(*scores))]
    answer = judge_reply(judge, "Which side?", ["Left", "Right"], f"reply {scores}")
    assert answer == (Answer.ok(value) if value else Answer.invalid(Reason.AMBIGUOUS))
    assert (RULE_NAME, RULE_VERSION) == ("gap_of_3", 1)


def test_a_reply_is_judged(endpoint, judge):
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "left") == Answer.ok("A")
    system, user = endpoint.bodies[0]["messages"]
    assert system["content"] == SYSTEM
    assert user["content"] == mediconfusion_prompt("Which side?", ["Left", "Right"], "left")


@each_row(
    "reply, reason",
    [
        ("", Reason.EMPTY),
        (" \n\t", Reason.EMPTY),
        (failed_reply("out of memory"), Reason.ADAPTER_FAILED),
    ],
)
def test_nothing_to_judge_costs_nothing(endpoint, judge, reply, reason):
    assert judge_reply(judge, "Which side?", ["Left", "Right"], reply) == Answer.invalid(reason)
    assert endpoint.count == 0


def test_a_judge_without_a_verdict_is_judge_failed(endpoint, judge):
    endpoint.script = [
        *map(endpoint.reply, ("Both are fine.", "A: 12\nB: 1", "A: 9")),
        endpoint.status(401),
    ]
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "left") == Answer.invalid(
        Reason.JUDGE_FAILED
    )
    assert judge_reply(judge, "Which side?", ["Left", "Right"], "right") == Answer.invalid(
        Reason.JUDGE_FAILED
    )
    assert endpoint.count == 4
