"""The careful reader's rules for questions without options, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.answer import Reason
from medtasks.extract.careful.open_text import open_reply
from medtasks.extract.careful.yes_no import yes_no

from .reading import outcome, rows

# fmt: off
VERDICTS: dict[str, list[str | None]] = {
    "yes": [
        "yes", "Yes.", "**Yes**", "Yes, there is a fracture.", "Yes, there is no doubt.",
        "Yes. No pneumothorax is seen.",
        "The answer is yes.", "Answer: Yes", "Final answer: yes", "yes\nyes", "So, yes.", "True", "Present.",
        "It is.", "It does.",
        "Yes the heart is enlarged", "Answer the following question with yes or no. Yes", "<think>no</think> yes",
        "Yes, the lungs are not clear.", "Yes\n\nQuestion: And now? Answer: no",
        "There is no effusion. The answer is yes.",
    ],
    "no": [
        "no", "No.", "No, there is no fracture.", "No, I cannot see a fracture.", "The answer is no.",
        "No. The heart is normal.",
        "False.", "absent", "Not seen.", "None", "It is not.", "It does not.", "there isn't", "Definitely not.",
        "No there is not",
        "No, yes-men are rare.", "The image shows a fracture, but the answer is no.", "No, but there is an effusion.",
    ],
    "ambiguous": [
        "yes and no", "Yes or no", "Yes, no", "Yes.\nNo.", "maybe", "Maybe.", "Possibly", "Yes. The answer is no.",
        "uncertain",
        "yes/no", "The answer is maybe.", "No. Final answer: maybe",
    ],
    "refused": [
        "I cannot determine this.", "I'm sorry, I can't help with that.", "Not sure.", "No, I cannot answer that.",
        "I don't know",
        "As an AI, I can't interpret images.",
    ],
    "no_match": [
        "There is no fracture.", "There is a fracture.", "No fracture is seen.", "No evidence of disease",
        "Not normal", "A", "?",
        "The chest X-ray shows an effusion.", "left", "knowing", "yesterday", "not necessarily", "nodule",
    ],
    "truncated": ["<think>yes"],
}
# By question and what the reply comes to.
STATEMENTS: dict[tuple[str, str], list[str]] = {
    ("Is there a fracture?", "no"): [
        "There is no fracture.", "No fracture is seen.", "No evidence of fractures in this image.",
        "There is no fracture. The lungs are clear.", "There is no fracture, so the answer is no.",
    ],
    ("Is there a fracture?", "yes"): [
        "There is a fracture.", "There is a healed fracture of the left rib.", "Yes, there is no fracture.",
    ],
    ("Is there a fracture?", "no_match"): ["There may be a fracture.", "A fracture cannot be excluded."],
    ("Is there a fracture?", "ambiguous"): ["There is a fracture. There is no fracture."],
    ("Is there evidence of a pneumothorax?", "no"): [
        "The x-ray does not show any pneumothorax.", "The chest x-ray does not show a pneumothorax.",
        "Based on the image, there is no evidence of a pneumothorax.",
    ],
    ("Is a pneumothorax present?", "yes"): ["A pneumothorax is present."],
    ("Does the image show a pleural effusion?", "yes"): ["The image shows a pleural effusion."],
    ("Does the image show a pleural effusion?", "no_match"): [
        "The image shows an effusion.", "There is no pericardial effusion.",
    ],
    ("Does the image show a pleural effusion?", "no"): ["There is no effusion."],
    ("does this image show autoimmune hepatitis?", "no"): [
        "The image does not show autoimmune hepatitis.",
        "The slide is used to diagnose autoimmune hepatitis. However, it does not show autoimmune hepatitis.",
        "The histology of the biopsy does not show autoimmune hepatitis.",
    ],
    ("Does this image look normal?", "yes"): [
        "The image appears to be normal, as it shows no abnormalities.",
        "The chest x-ray appears to be normal, with no significant abnormalities detected.",
    ],
    ("Does this image look normal?", "no_match"): [
        "It is difficult to determine if the image is normal or not. A normal image would typically show clear lungs.",
    ],
    ("Are there abnormalities in this image?", "no"): [
        "The chest x-ray appears to be normal, with no significant abnormalities detected.",
    ],
    ("Is the brain abnormal?", "no"): ["The brain appears to be normal in the mri image."],
    ("is the pancreas present?", "no_match"): ["The presence of the pancreas is not explicitly mentioned."],
    ("Is the heart enlarged?", "no"): ["The heart is not enlarged."],
    ("Is the heart enlarged?", "yes"): ["The heart is enlarged."],
    ("Is the heart enlarged?", "no_match"): ["The heart is normal in size."],
    ("Is the lung normal?", "yes"): ["The lungs are normal."],
    ("Is the lung normal?", "no_match"): ["There is no infiltrate."],
    ("Is the bone intact?", "no_match"): ["There is no fracture."],
    ("Is there a fracture in the left hand?", "no_match"): [
        "There is no fracture in the right hand.", "There is a fracture in the right hand.",
    ],
    ("Is there no fracture?", "no_match"): ["There is no fracture."],
    ("Is it a CT or an MRI?", "no_match"): ["It is a CT."],
    ("Is this a CT?", "no_match"): ["This is not a CT."],
    ("Where is the fracture?", "no_match"): ["There is no fracture."],
}
# What a reply states in answer to an open question: all of it, a part, or why nothing.
WHOLE = ["Left lower lobe.", "There is no pneumothorax.", "none", "None of the lobes is affected."]
PARTS: dict[str, str] = {
    "**MRI**": "MRI",
    "<think>CT?</think>MRI\n\nQuestion: Which plane? Answer: axial": "MRI",
    "I cannot determine the exact type, but it appears to be an MRI.": "it appears to be an MRI",
    "Left lobe. The exact size cannot be determined.": "Left lobe",
    "I'm not sure, but the mass is in the liver.": "the mass is in the liver",
}
NOTHING: dict[Reason, list[str]] = {
    Reason.REFUSED: [
        "I'm sorry, but I can't assist with that.", "I'm sorry, but I can't diagnose. Please consult a doctor.",
        "As an AI model, I do not have the ability to view images. Please provide more context.",
        "I cannot determine whether there is pneumonia.", "I don't know.", "Not sure",
    ],
    Reason.EMPTY: ["</s>"],
    Reason.TRUNCATED: ["<think>MRI"],
}
# fmt: on


@pytest.mark.parametrize(("reply", "expected"), rows(VERDICTS))
def test_reads_the_verdict_as_a_careful_reader_does(reply, expected):
    assert outcome(yes_no(reply)) == expected


@pytest.mark.parametrize(("reply", "asked"), rows(STATEMENTS))
def test_statement_answers_only_the_question_that_asks_for_it(reply, asked):
    question, expected = asked
    assert outcome(yes_no(reply, question)) == expected


@given(finding=st.sampled_from(["fracture", "effusion", "nodule"]), asked=st.sampled_from(["fracture", "effusion"]))
def test_affirmed_and_denied_statements_are_read_alike(finding, asked):
    question = f"Is there a {asked}?"
    values = [yes_no(f"There is {some} {finding}.", question).value for some in ("a", "no")]
    assert values == (["yes", "no"] if finding == asked else [None, None])


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        *((reply, (reply, Reason.OK)) for reply in WHOLE),
        *((reply, (text, Reason.OK)) for reply, text in PARTS.items()),
        *((reply, (None, reason)) for reply, reason in rows(NOTHING)),
    ],
)
def test_text_to_compare(reply, expected):
    assert open_reply(reply) == expected
