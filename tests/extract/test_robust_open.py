"""The careful reader's rules for questions without options, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.answer import Reason
from medtasks.extract.failure import failed_reply
from medtasks.extract.open_text import open_reply
from medtasks.extract.yes_no import yes_no

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
    "empty": ["", None, " "],
    "truncated": ["<think>yes"],
}
STATEMENTS: list[tuple[str, str, str | None]] = [
    ("Is there a fracture?", "There is no fracture.", "no"),
    ("Is there a fracture?", "There is a fracture.", "yes"),
    ("Is there a fracture?", "There is a healed fracture of the left rib.", "yes"),
    ("Is there a fracture?", "No fracture is seen.", "no"),
    ("Is there a fracture?", "No evidence of fractures in this image.", "no"),
    ("Is there evidence of a pneumothorax?", "The chest x-ray does not show a pneumothorax.", None),
    ("Is there evidence of a pneumothorax?", "The x-ray does not show any pneumothorax.", "no"),
    ("Is a pneumothorax present?", "A pneumothorax is present.", "yes"),
    ("Does the image show a pleural effusion?", "The image shows a pleural effusion.", "yes"),
    ("Does the image show a pleural effusion?", "The image shows an effusion.", None),
    ("Does the image show a pleural effusion?", "There is no effusion.", "no"),
    ("Does the image show a pleural effusion?", "There is no pericardial effusion.", None),
    ("Is the heart enlarged?", "The heart is not enlarged.", "no"),
    ("Is the heart enlarged?", "The heart is enlarged.", "yes"),
    ("Is the heart enlarged?", "The heart is normal in size.", None),
    ("Is the lung normal?", "The lungs are normal.", "yes"),
    ("Is the lung normal?", "There is no infiltrate.", None),
    ("Is the bone intact?", "There is no fracture.", None),
    ("Is there a fracture in the left hand?", "There is no fracture in the right hand.", None),
    ("Is there a fracture in the left hand?", "There is a fracture in the right hand.", None),
    ("Is there a fracture?", "There may be a fracture.", None),
    ("Is there a fracture?", "A fracture cannot be excluded.", None),
    ("Is there a fracture?", "There is a fracture. There is no fracture.", "ambiguous"),
    ("Is there a fracture?", "There is no fracture. The lungs are clear.", "no"),
    ("Is there no fracture?", "There is no fracture.", None),
    ("Is it a CT or an MRI?", "It is a CT.", None),
    ("Is this a CT?", "This is not a CT.", None),
    ("Where is the fracture?", "There is no fracture.", None),
    ("Is there a fracture?", "Yes, there is no fracture.", "yes"),
    ("Is there a fracture?", "There is no fracture, so the answer is no.", "no"),
]
OPEN: list[tuple[str | None, str | None, str]] = [
    ("Left lower lobe.", "Left lower lobe.", "ok"),
    ("**MRI**", "MRI", "ok"),
    ("There is no pneumothorax.", "There is no pneumothorax.", "ok"),
    ("none", "none", "ok"),
    ("None of the lobes is affected.", "None of the lobes is affected.", "ok"),
    ("<think>CT?</think>MRI\n\nQuestion: Which plane? Answer: axial", "MRI", "ok"),
    ("I cannot determine the exact type, but it appears to be an MRI.", "it appears to be an MRI", "ok"),
    ("Left lobe. The exact size cannot be determined.", "Left lobe", "ok"),
    ("I'm not sure, but the mass is in the liver.", "the mass is in the liver", "ok"),
    ("I'm sorry, but I can't assist with that.", None, "refused"),
    ("I'm sorry, but I can't diagnose. Please consult a doctor.", None, "refused"),
    ("As an AI model, I do not have the ability to view images. Please provide more context.", None, "refused"),
    ("I cannot determine whether there is pneumonia.", None, "refused"),
    ("I don't know.", None, "refused"),
    ("Not sure", None, "refused"),
    ("", None, "empty"),
    (None, None, "empty"),
    ("</s>", None, "empty"),
    ("<think>MRI", None, "truncated"),
    (failed_reply("MRI"), None, "adapter_failed"),
]
# fmt: on


@pytest.mark.parametrize(
    ("reply", "expected"), [(reply, key) for key, replies in VERDICTS.items() for reply in replies]
)
def test_reads_the_verdict_as_a_careful_reader_does(reply, expected):
    answer = yes_no(reply)
    assert (answer.value or str(answer.reason)) == expected


@pytest.mark.parametrize(("question", "reply", "expected"), STATEMENTS)
def test_statement_answers_only_the_question_that_asks_for_it(question, reply, expected):
    answer = yes_no(reply, question)
    assert (answer.value or str(answer.reason)) == (expected or "no_match")


@given(finding=st.sampled_from(["fracture", "effusion", "nodule"]), asked=st.sampled_from(["fracture", "effusion"]))
def test_affirmed_and_denied_statements_are_read_alike(finding, asked):
    question = f"Is there a {asked}?"
    values = [yes_no(f"There is {some} {finding}.", question).value for some in ("a", "no")]
    assert values == (["yes", "no"] if finding == asked else [None, None])


@pytest.mark.parametrize(("reply", "text", "reason"), OPEN)
def test_text_to_compare(reply, text, reason):
    assert open_reply(reply) == (text, Reason(reason))
