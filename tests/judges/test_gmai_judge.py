import hashlib
import random

import pytest

from medtasks.errors import UnknownName
from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.judges.judge_client import CORRECTION
from medtasks.judges.published_judges import (
    PROMPT_VERSIONS,
    gmai_prompt,
    match_reply,
    parse_choice,
)

from ..tables import each_row

OLD, NEW = PROMPT_VERSIONS
OPTIONS = ["polyp", "ulcer", "normal colon"]
REPLY = "There is a stalked growth"


def ask(judge, reply=REPLY, rule=OLD):
    return match_reply(judge, rule, "What is this?", OPTIONS, reply)


def test_the_prompt_is_the_reference_s_to_the_letter():
    # The fingerprint of the reference's prompt, which was compared with ours letter by letter.
    prompt = gmai_prompt("What {is} this?", ["{0}", "ulcer"], " It's {a} polyp.\n")
    assert hashlib.sha256(prompt.encode()).hexdigest()[:16] == "d8a3ef1f2522f9ee"


@each_row("rule", [OLD, NEW])
@each_row(
    "text, expected",
    [
        *(
            (text, Answer.ok(letter))
            for text, letter in (
                ("B", "B"),
                (" C.\n", "C"),
                ("Your output: A", "A"),
                ("ulcer", "B"),
            )
        ),
        *((text, Answer.invalid(Reason.NO_MATCH)) for text in ("Z", "(Z)")),
        ("Cannot determine the answer", Answer.invalid(Reason.REFUSED)),
        *((f"Failed to obtain answer via API{more}", None) for more in ("", " Z", ": polyp")),
        *(
            (text, None)
            for text in (
                "D",
                "A or B",
                "A, B or Z",
                "b",
                "z",
                "",
                " \n",
                "polyp, or ulcer",
                "ZZ",
            )
        ),
        ("I would not know", None),
    ],
)
def test_what_a_judge_can_say(rule, text, expected):
    assert parse_choice(text, OPTIONS, rule) == expected


def test_the_judge_is_read_by_the_rule_of_the_reply():
    early = "A fits, and all the others do not"
    assert parse_choice(early, OPTIONS, OLD) == Answer.ok("A")
    assert parse_choice(early, OPTIONS, NEW) is None
    declared = "The correct answer is B and not A"
    assert parse_choice(declared, OPTIONS, OLD) is None
    assert parse_choice(declared, OPTIONS, NEW) == Answer.ok("B")


@each_row(
    "reply",
    [
        REPLY,
        "A or B",
        "A, B or Z",
        "polyp, ulcer",
        "Failed to obtain answer via API",
        "ü" * 5000,
    ],
)
def test_replies_for_the_judge(judge, endpoint, reply):
    endpoint.script = [endpoint.reply("A")]
    assert ask(judge, reply) == (Answer.ok("A"), True)
    assert endpoint.bodies[-1]["messages"][0]["content"] == gmai_prompt(
        "What is this?", OPTIONS, reply
    )


def test_an_unreadable_judge_is_asked_three_times_and_never_drawn_lots_for(judge, endpoint):
    endpoint.script = [endpoint.reply("A or B")]
    for seed in range(4):
        random.seed(seed)
        assert ask(judge, f"{REPLY} {seed}") == (Answer.invalid(Reason.JUDGE_FAILED), True)
        assert endpoint.count == 3 * (seed + 1)
    assert endpoint.bodies[2]["messages"][-1]["content"] == CORRECTION


def test_verdicts_are_kept_for_each_rule(judge, judge_at, endpoint):
    early = "A fits, and all the others do not"
    endpoint.script = [endpoint.reply(early), endpoint.reply("Z")]
    again = judge_at(endpoint.url)
    for same in (judge, again):
        assert ask(same, rule=OLD)[0] == Answer.ok("A")
        assert ask(same, rule=NEW)[0] == Answer.invalid(
            Reason.NO_MATCH
        )  # a verdict that is kept
    assert endpoint.count == 2


def test_other_rules_are_refused(judge):
    with pytest.raises(UnknownName, match="'robust_choice'"):
        ask(judge, rule="robust_choice")
