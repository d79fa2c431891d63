"""What holds of every rule that reads reply texts."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from medtasks.data.samples import Sample
from medtasks.errors import UnknownName
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failed_reply, failure_cause
from medtasks.extract.registry import Kind, extractor_of, extractors

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
CHOICES = extractors(Kind.CHOICE)
RULES = pytest.mark.parametrize("rule", CHOICES.values(), ids=CHOICES)


@RULES
@given(reply=REPLIES, options=OPTIONS)
@example(reply="\u212a", options=["x"] * 26)
@example(reply="(\u0130)", options=["x"] * 26)
@example(reply="A", options=["B", "A"])
@example(reply="\ud800", options=["\ud800", ""])
def test_any_reply_becomes_one_of_the_letters_or_none(rule, reply, options):
    sample = Sample({"options": options})
    answer = rule.extract(reply, sample)
    count = 2 if rule.name == "mediconfusion_reference" else len(options) or 2
    letters = [chr(ord("A") + n) for n in range(count)]
    assert answer.value is None or answer.value in letters
    assert (answer.value is not None) == (answer.reason is Reason.OK)
    if answer.value is not None and rule.name in LETTER_RULES:
        assert rule.extract(answer.value, sample) == answer


@RULES
@given(reply=REPLIES, options=OPTIONS)
def test_same_reply_gives_the_same_answer(rule, reply, options):
    as_list, as_tuple = Sample({"options": options}), Sample({"options": tuple(options)})
    assert rule.extract(reply, as_list) == rule.extract(reply, as_tuple)


@given(cause=st.text())
def test_failed_reply_is_recognised_by_every_rule(cause):
    reply = failed_reply(cause)
    assert failure_cause(reply) == " ".join(cause.split())
    assert "\n" not in reply
    for rule in CHOICES.values():
        assert rule.extract(f" {reply}\n", Sample({"options": ["A", "B"]})) == Answer.invalid(Reason.ADAPTER_FAILED)


def test_failed_reply_survives_the_stripping_of_blanks():
    assert failure_cause(failed_reply("").strip()) == ""
    assert failure_cause("A") is None


@pytest.mark.parametrize(
    ("value", "reason", "message"),
    [
        (None, Reason.OK, "exactly when"),
        ("A", Reason.EMPTY, "exactly when"),
        ((1, 0), Reason.EMPTY, "exactly when"),
        ((2,), Reason.OK, "0 or 1"),
    ],
)
def test_answer_has_a_value_exactly_when_it_is_ok_and_labels_are_0_or_1(value, reason, message):
    with pytest.raises(ValueError, match=message):
        Answer(value, reason)


def test_unknown_rules_are_named_with_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'robust_choice'"):
        extractor_of("robust_choise", Kind.CHOICE)
    with pytest.raises(UnknownName, match="did you mean 'untied'"):
        extractor_of("untide", Kind.LIKELIHOODS)


def test_rules_are_registered_under_their_names():
    for name, rule in extractors().items():
        assert rule.name == name
        assert rule.version >= 1
        assert rule.summary
    assert sum(len(extractors(kind)) for kind in Kind) == len(extractors())


def test_a_kind_knows_its_own_extractors_only():
    with pytest.raises(UnknownName, match="unknown label rule 'robust_choice'"):
        extractor_of("robust_choice", Kind.LABELS)
    assert extractor_of("robust_choice") is extractor_of("robust_choice", Kind.CHOICE)
