"""The careful reader's rules for fixed words, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.answer import Reason

from .reading import outcome, reading, rows

read_yes_no_maybe, read_nli = reading("robust_yes_no_maybe"), reading("robust_nli")

YES_NO_MAYBE = ("yes", "no", "maybe")
RELATIONS = ("entailment", "contradiction", "neutral")
QUESTION = (
    "Determine the logical relationship between these two sentences. Does the second sentence logically follow from "
    "the first (entailment), contradicts the first (contradiction), or if there is no clear logical relationship "
    "between them (neutral)?"
)

# fmt: off
VERDICTS: dict[str, list[str | None]] = {
    "yes": [
        "yes", "Yes", "YES.", "**Yes**", "Yes, it does.", "Yes. No adverse events were seen.", "Yes, no doubt.",
        "(yes)",
        "Yes, no significant difference was found between the groups.", "Yes: the study shows it.", '"Yes"', "Yes!",
        "Yes - there is an association.", "yes\nyes\nyes", "Yes it does.", "Yes the results show this.",
        "Probably yes.",
        "The answer is yes.", "The answer is: yes", "Answer: Yes", "answer: yes, because p < 0.05", "Final answer: yes",
        "The answer to the question is yes.", "I would say yes.", "I think the answer is yes.", '{"answer": "yes"}',
        "There was no difference. The answer is yes.", "No effect was seen in mice. Therefore, the answer is yes.",
        "The data show a benefit.\n\nYes.", "The study reports a benefit. So, yes.", "Therefore, yes.", "\\boxed{yes}",
        "The answer is no. Final answer: yes", "<think>no?</think>Yes", "Yes</s>", "Yes\n\nQuestion: Is it? Answer: no",
        "Answer the question with yes, no or maybe. Yes", "Yes\nAnswer the question with yes, no or maybe. No",
        "Yes (p<0.05)",
        "I'm not sure, but I think the answer is yes.", "Yes, although it is not clear in children.",
        "Yes, maybe not always.",
        "I believe that yes, it does.", "Yes of course", "Yes indeed.",
    ],
    "no": [
        "no", "No", "No.", "No, it does not.", "No, yes-men were not asked.",
        "No. The answer depends on nothing else.", "no!",
        "No: there was no association.", "No - it is not.", "The answer is no.", "Answer: no", "**Answer:** No", "No\n",
        "The answer is no, although some said yes.", "Absolutely not.", "Definitely no.", "I would say no.",
        "Probably not.",
        "No, there is no significant difference.", "No there is not.",
        "The trial showed a benefit. However, the answer is no.",
        "In conclusion, no.", "Certainly not", "No, the evidence is uncertain.", "No (p = 0.7)",
        "No, but more studies are needed.",
    ],
    "maybe": [
        "maybe", "Maybe.", "Maybe, the evidence is mixed.", "Perhaps.", "uncertain", "Uncertain.",
        "The answer is maybe.",
        "The answer is uncertain.", "Answer: maybe", "Inconclusive.", "Possibly", "The answer is unclear.",
        "Maybe it does.",
        "Final answer: maybe", "Maybe. No significant difference was seen.", "The answer would be maybe", "Unclear",
    ],
    "ambiguous": [
        "Yes and no", "Yes or no", "yes/no", "yes, no or maybe", "Yes, no", "Yes. The answer is no.", "Yes\nNo",
        "Maybe yes",
        "Maybe no", "Maybe not.", "yes (maybe)", "yes, maybe", "No, maybe", "Yes, no, maybe",
        "The answer is yes. The answer is no.",
        "The answer is yes or no.", "No. So, yes.", "Answer the question with yes, no or maybe.", "Yes and no.",
        "yes/no/maybe",
    ],
    "refused": [
        "I cannot determine the answer.", "Not sure.", "I'm not sure.", "I don't know", "Unsure", "No idea.",
        "No, I cannot answer this question.", "I'm sorry, but I can't help with that.", "Not certain",
        "The abstract does not provide enough information.", "As an AI, I cannot say.",
    ],
    "no_match": [
        "No significant difference was found.", "There is no evidence.", "The results suggest a benefit.",
        "No one knows.",
        "There was no difference between the groups.", "Nothing", "It depends.", "not necessarily", "A", "yesterday",
        "Nova",
        "The answer is not yes.", "knowledge", "No evidence of benefit", "The answer is no significant difference.",
        "?",
        "The study says that yes-men exist.", "Possible benefits were seen.", "Note that the sample was small.",
    ],
    "empty": ["</s>"],
    "truncated": ["<think>Yes"],
}
NLI: dict[str, list[str | None]] = {
    "entailment": [
        "entailment", "Entailment", "ENTAILMENT.", "**Entailment**", "(entailment)", "entailed",
        "The sentence is entailed.",
        "The logical relationship is entailment.", "The logical relationship between the two sentences is entailment.",
        "Sentence 1 entails sentence 2.", "The second sentence logically follows from the first.",
        "It is an entailment.",
        "The relationship is not neutral; it is entailment.", "Entailment. It does not contradict the first sentence.",
        "Entailment: neither contradictory nor neutral.",
        "The second sentence follows logically from the first sentence.",
        "This is not a contradiction but an entailment.", "Answer: entailment", "entailment\nentailment",
        '{"label": "entailment"}',
        "Is it entailment, contradiction or neutral? The answer is entailment.", QUESTION + " Entailment",
        "The relationship could be neutral. Final answer: entailment.", "<think>neutral</think>Entailment",
        "most likely entailment",
        "The logical relationship is entailment.\n\nSentence 1: He is ill.\nSentence 2: He is well.\ncontradiction",
        "Entailment, because the first sentence implies the second.", "Entailment (the first implies the second)",
        "The second sentence does not contradict the first; it is entailed by it.",
    ],
    "contradiction": [
        "contradiction", "Contradiction.", "contradicts", "The second sentence contradicts the first.",
        "It is contradictory.",
        "The two sentences are contradictory.", "Not entailment, but contradiction.",
        "not entailment or neutral; contradiction",
        "contradiction - he cannot be both",
        "The logical relationship between these two sentences is that of contradiction.",
        "Contradiction: it is not entailed.",
        "They contradict each other.", "The relationship is a contradiction.", "Contradicted",
        "The answer is Contradiction",
    ],
    "neutral": [
        "neutral", "Neutral", "The relationship is neutral.", "neither entailment nor contradiction", "It is neutral.",
        "Neither entailment nor contradiction.", "The first sentence neither entails nor contradicts the second.",
        "The second sentence is not entailed by the first, nor does it contradict it.",
        "neutral (no clear relationship)",
        "There is no clear logical relationship between them.", "It does not entail or contradict the first sentence.",
        "There is neither contradiction nor entailment here.", "Neutral: neither entailed nor contradicted.",
        "The first sentence neither supports nor contradicts the second.", "The label is neutral.",
        "There is no clear logical relationship between the two sentences (neutral).",
    ],
    "ambiguous": [
        "entailment or contradiction", "entailment, neutral", "entailment and contradiction", "neutral or entailment",
        "entailment, contradiction or neutral", QUESTION, "The answer is entailment or neutral.",
        "The first entails it, and the second contradicts it.", "entailment/contradiction/neutral",
        "entailment contradiction",
        "The relationship is entailment. The relationship is neutral.",
    ],
    "no_match": [
        "not entailment", "It is not a contradiction.", "not neutral", "The patient is ill.", "yes", "A", "true",
        "normal",
        "It does not follow from the first sentence.", "neutrophils are low", "?", "not contradictory",
    ],
    "refused": ["I cannot determine the relationship.", "I'm sorry, I can't assist with that.", "I don't know."],
    "empty": ["**"],
    "truncated": ["<think>neutral"],
}
# fmt: on


def word(answer, options):
    return options[ord(answer.value) - ord("A")] if answer.value else outcome(answer)


@pytest.mark.parametrize(("reply", "expected"), rows(VERDICTS))
def test_reads_the_verdict_as_a_careful_reader_does(reply, expected):
    for options in (YES_NO_MAYBE, ("Maybe", "No", "Yes")):
        assert word(read_yes_no_maybe(reply, options), options).casefold() == expected


@pytest.mark.parametrize(("reply", "expected"), rows(NLI))
def test_reads_the_relation_as_a_careful_reader_does(reply, expected):
    for options in (RELATIONS, ("neutral", "contradiction", "entailment")):
        assert word(read_nli(reply, options), options) == expected


@given(
    verdict=st.sampled_from(YES_NO_MAYBE),
    explanation=st.lists(
        st.sampled_from(
            ["no significant difference", "yes-no questions", "not", "maybe in part", "no evidence", "was seen"]
        ),
        max_size=5,
    ),
)
def test_explanation_never_flips_a_leading_verdict(verdict, explanation):
    reply = f"{verdict.capitalize()}, as the abstract says: {' '.join(explanation)} was reported."
    assert word(read_yes_no_maybe(reply, YES_NO_MAYBE), YES_NO_MAYBE) == verdict


def test_verdict_that_is_no_option_is_no_answer():
    assert read_yes_no_maybe("maybe", ["yes", "no"]).reason is Reason.NO_MATCH
    assert read_yes_no_maybe("yes", ["yes", "Yes."]).reason is Reason.AMBIGUOUS
    assert read_nli("neutral", ["entailment"]).reason is Reason.NO_MATCH
