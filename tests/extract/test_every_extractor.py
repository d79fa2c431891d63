"""What holds of every extractor: it reads any reply in linear time, and a failed sample is no answer."""

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from medtasks.data.samples import Sample
from medtasks.errors import UnknownName
from medtasks.extract.extractor_registry import (
    Answer,
    AnswerKind,
    Reason,
    extractor_of,
    extractors,
)
from medtasks.extract.failure import failed_reply, failure_cause
from medtasks.extract.reading.reply_text import split_reasoning
from medtasks.judges.fence import addresses_judge
from medtasks.judges.medheval_judges import parse_components
from medtasks.runs.redaction import redact
from medtasks.runs.reply_envelope import parse_loglikelihood
from medtasks.scores.error_classes import error_class

from ..growth import assert_linear
from ..tables import each_row

OF_SECOND = ("class", "labels", "nli", "vqa", "yes_no_maybe", "kit_vqa")
VERSIONS = {
    "robust_choice": 6,
    "robust_kit_choice": 5,
    "robust_mmmu": 4,
    "medheval_strict": 4,
    "listed_options": 3,
}
VERSIONS |= {f"robust_{name}": 3 for name in OF_SECOND} | {
    "robust_class": 4
}  # 1 for the others
LETTER_RULES = (
    "mediconfusion_reference",
    "robust_choice",
)  # the others compare words: a letter is one word of many
OF_REPLIES = {
    name: one for name, one in extractors().items() if one.kind is not AnswerKind.LIKELIHOODS
}
# One that needs a labeler has tests of its own.
EVERY = pytest.mark.parametrize(
    "name", [name for name in OF_REPLIES if name != "chexbert_labels"]
)

# Marks of every rule, letters that are A to Z only without case among them, words that single rules look for, pieces
# that a reply may repeat without end, what comes before them, and options, by rule.
_PATH = Path(__file__).parent / "readings" / "vocabulary.json"
MARKS, VOCABULARY, LEADS, ENDLESS_OF_ALL, ENDLESS, OPTIONS = json.loads(
    _PATH.read_text(encoding="utf-8")
).values()
OWN = ["", "A", "B", "Yes", "No", "(", "[", "\\", "\n"]
QUESTIONS = ["", "Is there a fracture?", "Is the lung (left) [clear]?"]


def sample_of(rule, options, target="yes", question=""):
    """Return a sample with the columns that any extractor looks at."""
    binary = rule.kind is AnswerKind.CLOSED and len(options) % 2 == 0
    columns = {
        "kind": "binary" if binary else "multi-choice",
        "choices": ", ".join(options),
        "gold": target,
    }
    answer = "A" if rule.kind is AnswerKind.CLOSED else target
    return Sample(
        {
            "options": ["Yes", "No"] if binary else options,
            "answer": answer,
            "question": question,
            **columns,
        }
    )


@EVERY
@settings(max_examples=20)  # of each rule
@given(data=st.data())
def test_any_reply_is_read_without_an_error(name, data):
    rule = extractor_of(name)
    pieces = st.sampled_from([*MARKS, *VOCABULARY.get(rule.name, ("yes", "no"))])
    reply = data.draw(st.none() | st.text() | st.lists(pieces, max_size=14).map("".join))
    options = data.draw(
        st.sampled_from(OPTIONS.get(rule.name, [("polyp", "ulcer")]))
        | st.lists(st.text(max_size=12) | st.sampled_from(OWN), max_size=26)
    )
    target = data.draw(st.sampled_from(["yes", "no", "left lobe", "the"]) | st.text())
    question = data.draw(st.sampled_from(QUESTIONS) | st.text())
    check(rule, reply, sample_of(rule, options, target, question))


# What published code takes an empty reply for, where it does not call it invalid.
OF_NOTHING = {
    **{f"multimedeval_class_{version}": "A" for version in ("head", "v0_1_0")},
    **{f"multimedeval_labels_{version}": (0, 0) for version in ("head", "v0_1_0")},
    "medheval_reference": "A",
    **{
        f"medevalkit_{kind}choice{version}": "A"
        for kind in ("", "tagged_")
        for version in ("", "_release", "_fixed")
    },
}


@each_row("reply", [None, "", " \n\t"])
@each_row("name", OF_REPLIES)
def test_a_reply_without_text_is_empty(name, reply):
    rule = extractor_of(name)
    answer = rule.extract(reply, sample_of(rule, ["Edema", "Mass"]))
    assert answer.value == OF_NOTHING.get(name)
    assert answer.reason is (Reason.OK if name in OF_NOTHING else Reason.EMPTY)
    assert not answer.facts.get("correct") or name in OF_NOTHING


def check(rule, reply, sample):
    answer = rule.extract(reply, sample)
    assert (answer.value is not None) == (answer.reason is Reason.OK)
    if rule.kind in (AnswerKind.CHOICE, AnswerKind.CLOSED):
        unknown = 6 if rule.kind is AnswerKind.CLOSED else 2
        fixed = {
            "mediconfusion_reference": 2,
            "medheval_reference": 6,
        }  # the latter takes the options from a text
        count = fixed.get(rule.name, len(sample.options) or unknown)
        assert answer.value is None or answer.value in [chr(ord("A") + n) for n in range(count)]
        if answer.value is not None and rule.name in LETTER_RULES:
            assert rule.extract(answer.value, sample) == answer
    if rule.kind is AnswerKind.LABELS and answer.value is not None:
        assert len(answer.value) == len(sample.options)
        assert rule.name != "listed_options" or any(answer.value)
    if rule.kind in (AnswerKind.OPEN, AnswerKind.KIT_QUESTION):
        facts = answer.facts if rule.kind is AnswerKind.OPEN else answer.facts["measures"] or {}
        assert all(0 <= float(value) <= 1 for value in facts.values())
        assert answer.value is None or answer.value.strip()
        assert answer.value is not None or not answer.facts["correct"]
    assert (
        rule.extract(reply, Sample({**sample.document, "options": tuple(sample.options)}))
        == answer
    )


@given(cause=st.text())
@example(cause="yes: the answer is A, edema")
def test_a_failed_sample_is_no_answer_to_any_extractor(cause):
    reply = failed_reply(cause)
    assert failure_cause(reply) == " ".join(cause.split())
    assert "\n" not in reply
    for rule in OF_REPLIES.values():
        for options in (["A", "B"], ["Edema"]):
            answer = rule.extract(f" {reply}\n", sample_of(rule, options))
            assert (answer.value, answer.reason) == (None, Reason.ADAPTER_FAILED)
            assert not answer.facts.get("correct")


def test_an_open_reply_of_5000_words():
    reply, sample = (
        "left lung " + "of which much " * 1666,
        Sample({"answer": "left lung", "question": ""}),
    )
    rules = ("medevalkit_vqa", "medevalkit_vqa_fixed", "robust_kit_vqa")
    head, fixed, robust = (extractor_of(name).extract(reply, sample).facts for name in rules)
    assert "recursion" in head["stops"]
    assert fixed["measures"]["recall"] == 1
    assert robust["correct"] is False


def readers_of(rule):
    """Return the rule for one sample of a kind, and for a second one where it then works in another way."""
    options = OPTIONS.get(rule.name, [("Yes", "No")])
    targets = (
        ("yes", "left fracture")
        if rule.kind in (AnswerKind.OPEN, AnswerKind.KIT_QUESTION)
        else ("yes",)
    )
    samples = [
        sample_of(rule, options[0], target, "Is there a fracture?") for target in targets
    ]
    samples += [sample_of(rule, options[1])] if rule.name == "robust_class" else []
    return [partial(rule.extract, sample=sample) for sample in samples]


READERS = {
    **{name: readers_of(rule) for name, rule in OF_REPLIES.items()},
    "behind_reasoning": [lambda text: split_reasoning(text + "}" * text.count("{"))],
    "error_class": [partial(error_class, value=None)],
    "addresses_judge": [addresses_judge],
    "redacted": [redact],
    "parse_loglikelihood": [parse_loglikelihood],
    "parse_components": [partial(parse_components, most=5)],
}
del READERS["chexbert_labels"]


@pytest.mark.parametrize("part", range(8))  # so that they run side by side
def test_time_grows_no_faster_than_the_reply(part):
    for name in [*READERS][part::8]:
        for read in READERS[name]:
            for piece in dict.fromkeys([*ENDLESS_OF_ALL, *ENDLESS.get(name, ())]):
                assert_linear(read, piece, LEADS.get(name, "The answer"))


@each_row(
    ("value", "reason"),
    [(None, Reason.OK), ("A", Reason.EMPTY), ((1, 0), Reason.EMPTY), ((2,), Reason.OK)],
)
def test_answer_has_a_value_exactly_when_it_is_ok_and_labels_are_0_or_1(value, reason):
    with pytest.raises(ValueError, match="0 or 1" if value == (2,) else "exactly when"):
        Answer(value, reason)


def test_extractors_are_registered_under_their_names():
    for name, rule in extractors().items():
        assert rule.name == name
        assert rule.version == VERSIONS.get(name, 1)
        assert rule.summary
        assert extractor_of(name) is extractor_of(name, rule.kind) is rule


def test_extractors_have_one_kind_each():
    assert sum(
        len(extractors(kind)) for kind in {rule.kind for rule in extractors().values()}
    ) == len(extractors())


def test_an_extractor_of_another_kind_is_unknown():
    with pytest.raises(UnknownName, match="unknown label rule 'robust_choice'"):
        extractor_of("robust_choice", AnswerKind.LABELS)
