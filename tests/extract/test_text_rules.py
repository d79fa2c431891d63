"""What holds of every rule that reads reply texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medtasks.errors import UnknownName
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failed_reply, failure_cause
from medtasks.extract.registry import LIKELIHOOD_RULES, TEXT_RULES, likelihood_rule, text_rule

PIECES = st.sampled_from(
    [
        *("A", "B", "b", "Z", " ", "\n", "\r\n", ".", ":", "(", ")", '"', "'", "**", "<think>", "</think>", "</s>"),
        *("answer is ", "not ", "or", "option ", "Yes", "No", "hepatitis ", "Question: ", "\\boxed{"),
        *("\u0130", "\u0131", "\u017f", "\u212a", "\u2460", "\u202e"),  # letters that are A to Z only without case
    ]
)
REPLIES = st.none() | st.text() | st.lists(PIECES, max_size=12).map("".join)
OPTIONS = st.lists(
    st.text(max_size=12) | st.sampled_from(["", "A", "B", "Yes", "No", "(", "[", "\\", "\n"]), max_size=26
)
LETTER_RULES = ("mediconfusion_reference", "robust_choice")  # the others compare words: a letter is one word of many
RULES = pytest.mark.parametrize("rule", TEXT_RULES.values(), ids=TEXT_RULES)


@RULES
@given(reply=REPLIES, options=OPTIONS)
@example(reply="\u212a", options=["x"] * 26)
@example(reply="(\u0130)", options=["x"] * 26)
@example(reply="A", options=["B", "A"])
@example(reply="\ud800", options=["\ud800", ""])
def test_any_reply_becomes_one_of_the_letters_or_none(rule, reply, options):
    answer = rule.read(reply, options)
    count = 2 if rule.name == "mediconfusion_reference" else len(options) or 2
    letters = [chr(ord("A") + n) for n in range(count)]
    assert answer.value is None or answer.value in letters
    assert (answer.value is not None) == (answer.reason is Reason.OK)
    if answer.value is not None and rule.name in LETTER_RULES:
        assert rule.read(answer.value, options) == answer


@RULES
@given(reply=REPLIES, options=OPTIONS)
def test_same_reply_gives_the_same_answer(rule, reply, options):
    assert rule.read(reply, options) == rule.read(reply, tuple(options))


@given(cause=st.text())
def test_failed_reply_is_recognised_by_every_rule(cause):
    reply = failed_reply(cause)
    assert failure_cause(reply) == " ".join(cause.split())
    assert "\n" not in reply
    for rule in TEXT_RULES.values():
        assert rule.read(f" {reply}\n", ["A", "B"]) == Answer.invalid(Reason.ADAPTER_FAILED)


def test_failed_reply_survives_the_stripping_of_blanks():
    assert failure_cause(failed_reply("").strip()) == ""
    assert failure_cause("A") is None


@pytest.mark.parametrize(("value", "reason"), [(None, Reason.OK), ("A", Reason.EMPTY)])
def test_answer_has_a_value_exactly_when_it_is_ok(value, reason):
    with pytest.raises(ValueError, match="exactly when"):
        Answer(value, reason)


def test_unknown_rules_are_named_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'robust_choice'"):
        text_rule("robust_choise")
    with pytest.raises(UnknownName, match="did you mean 'untied'"):
        likelihood_rule("untide")


def test_rules_are_registered_under_their_names():
    for rules in (TEXT_RULES, LIKELIHOOD_RULES):
        assert all(rule.name == name and rule.version >= 1 and rule.summary for name, rule in rules.items())
