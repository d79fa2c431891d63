"""The careful reader's rule, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.data.samples import Sample
from medtasks.extract.careful.robust_choice import robust_kit_choice

from .reading import outcome, reading, rows

read = reading("robust_choice")

AB = ("Aortic arch", "Kidneys")
FOUR = ("Oedema", "Infarct", "Abscess", "Glioma")
FIVE = (*FOUR, "Metastasis")
YN = ("Yes", "No")
UPTAKE = ("Yes, uptake is seen.", "No, uptake is not seen.")
FX = ("Fracture of the radius", "No fracture of the radius")
IN = ("Effusion", "Pleural effusion")
SIDE = ("Left", "Right")
NORM = ("Normal", "Abnormal")
HEP = ("Hepatitis B", "Hepatitis C")
SUM = ("Oedema", "Infarct", "Neither", "Both A and B", "None of these")
CD, SWAPPED = ("C", "D"), ("B", "A")

# fmt: off
EXPECTED: dict[tuple[tuple[str, ...], str], list[str | None]] = {
    (AB, "A"): [
        "A", "(A)", "**A**", "a)", '"A"', "A.", "A,", "A!", "A</s>", 'A")', "_A_", "Answer：A", "【A】", "Option A。",
        "The answer is A.", "Answer: A\n\nExplanation: B shows the wrong organ.",
        "The best choice is A because the arch is seen.", "Final answer: A", "**Answer:** (A) Aortic arch",
        "The final answer is $\\boxed{A}$.", "\\boxed{\\textbf{A}}", "\\[\\boxed{A}\\]", "{'answer': 'A'}",
        '{"choice": "A"}', "I choose option A", "It's A.", "Therefore, the answer must be A.",
        "A is correct, B is not.", "the answer is a", "the answer is A: Aortic arch", "A: Aortic arch",
        "A. Aortic arch", "A Aortic arch", "A. Because the arch is visible", "Aortic arch (A)",
        "Aortic arch, option A", "A<|endofchunk|><image>Question: Where? Answer: B", "Aortic arch", "aortic arch.",
        "It is the aortic arch.", "There is no evidence of kidneys; the aortic arch is seen.", "a", "A, normal",
        "I think A is the answer", "(A) is correct", "I'm not sure, but I think it is A.",
        "Neither kidney is visible, but the aortic arch is.", "A: Aortic arch B: Kidneys Answer: A",
        "a: aortic arch\r\nb: kidneys\r\nanswer: a", "A\tAortic arch",
        "The arch is wide. <answer>A</answer> B is wrong.", "The correct answer is:\nA. Aortic arch", "Choose A.",
    ],
    (AB, "B"): [
        "b", "(b)", "**(b)**", "[B]", "{B}", "<|im_start|>B<|im_end|>", "`B`", "# B", '("B")', "  B\t", "\r\nB\r\n",
        "（B）", "Ｂ", "B。", "答案：B", "“B”", "«B»", "B）", "B、Kidneys", "The correct answer is (B).", "Answer: B",
        "Answer:B", "answer: b", "ANSWER: B", "My answer is **B**.", "Answer: B. Because A is wrong",
        "The correct option is option B.", "At first the answer is A. Final answer: B", "**Final Answer:** B",
        '#answer: ("B")', "\\boxed{B}", "$\\boxed{\\text{B}}$", "The answer is \\(B\\).", '{"answer": "B"}',
        '{"answer":"B"}', '```json\n{"answer": "B"}\n```', '{"answer": "B", "explanation": "A is wrong"}',
        '{"answer": "Kidneys"}', "<answer>B</answer>", "<answer>Kidneys</answer>", "I would choose B.", "It is B.",
        "It is (b).", "I think it is (b)", "That would be [b], not (a).", "I'd choose (b).",
        "So, B", "Option B is correct.", "B is the correct answer.", "The answer is not A, it is B.", "Not A but B.",
        "Option A is incorrect. Option B is correct.", "The answer would be B", "Answer is B) Kidneys", "B) Kidneys",
        "B - Kidneys", "B – Kidneys", "B, because the kidneys are seen.", '("B": Kidneys)', "B Kidneys", "B\nKidneys",
        "B\n\nA is wrong.", "b. kidneys", "Option B: Kidneys", "Option B", "(B) Kidneys",
        "(B) Kidneys. The image shows the kidneys and not the aortic arch.", "B. The image shows two organs.",
        "Kidneys (Option B)", "B\n\nQuestion: What is seen?\nA: Lung\nB: Liver\nAnswer: A",
        "B\nQuestion: Next? Answer: A", "Kidneys\n\nQuestion: What is it?\nAnswer: A",
        "B: Kidneys<|endofchunk|>Question: And?\nA: x\nB: y\nAnswer: A: x",
        "Answer: B\n\nQuestion: Which?\nAnswer: A", "The answer is B.\n### Question: What? The answer is A.",
        "B\n\nUser: next question\nAssistant: A", "B\nA: Aortic arch\nB: Kidneys\nAnswer:",
        "A: Aortic arch\nB: Kidneys\nAnswer: B", '("A": Aortic arch)\n("B": Kidneys)\nB',
        "Question: What is seen?\nA: Aortic arch\nB: Kidneys\nThe answer is B.", "**Kidneys**", "*kidneys*",
        "The kidneys.", "This image shows the kidneys.", "A patient with kidneys",
        "A normal brain, so the answer is B", "I cannot view images. However, the answer is B.",
        "<think>It could be A.</think>B", "<think>A</think>\n\n**B**", "It may be A.</think> B",
        "<thinking>A?</thinking>The answer is B.", "<THINK>A</THINK> B", "<think>\nA\n</think>\n\n<answer>B</answer>",
        "I'd go with B.", "My choice: B", "The image corresponds to option B", "Option (B)", "Ans: B", "Correct: B",
        "B is right.", "The correct answer is B, not A.", "The correct answer is not A but B.",
        "Between A and B, I choose B.", "B seems more likely.", "The answer is: \n\nB",
        "The answer is:\n\n**B) Kidneys**", "Answer\nB", "Answer - B", "The answer is B Kidneys",
        "I cannot determine this for sure, but I would choose B.", "A) Aortic arch, B) Kidneys. Answer: B", "Ⓑ", "𝐁",
        "answer\tB", "B\t- Kidneys", "B</answer>", "B<|im_end|>\n<|im_start|>user\nA", "B<|endoftext|>A",
        "B\n\nHuman: And now?\n\nAssistant: A", "<image>Question: What?\nAnswer: B",
        "The image shows the kidneys; therefore option B) fits", "B.\nA is wrong because of the signal.",
        "Answer: (B) Kidneys\nReason: A is not visible.", "Kidneys.\n\nQuestion: Where is it?\nAnswer: A",
        "The answer is B. Question: is it C? Answer: A", "I think the answer to the question is B", "the kidneys (B)",
        "B (Kidneys)", "Only B",
    ],
    (AB, "ambiguous"): [
        "The answer is A or B.", "A or B", "A/B", "A and B", "A, B", "A B", "(A) (B)", "Either A or B",
        "Both A and B are possible", "A\nB", "The answer is A. The answer is B.", "A: Kidneys", "(A) Kidneys",
        "A: Aortic arch\nB: Kidneys", "A: Aortic arch\nB: Kidneys\nAnswer:",
        "The aortic arch and the kidneys are seen.", "The answer is A, B.", "The answer is A and B.",
        "A. Aortic arch B. Kidneys", "A: B",
    ],
    (AB, "empty"): ["<think></think>", "<think>B</think>", "</s>", "**"],
    (AB, "no_match"): [
        "It is (a) large and (b) round.", "It is (a) or (b).", "It is not (b).", "It is unclear whether it is (b).",
        "C", "Not A.", "A is wrong", "A. baumannii is seen", "The image shows no kidneys.", "Not the kidneys",
        "A normal brain", "A 3 cm mass", "This is a B-mode image", "This is A mass.", "A CT scan of the chest.",
        "A large, round lesion is present", "There is a mass in the liver.", "The image shows A lesion",
        "A chest X-ray", "The patient has a", "A well-defined mass", "A kidney is seen", "In a large majority",
        "A\xa0normal brain", "Vitamin B is low", "Figure A shows a mass.", "Panel B.", "Figure B",
        "The type B dissection", "Stanford type A.", "hepatitis B", "Chronic hepatitis B.", "B cells",
        "B-cell lymphoma", "Group A, streptococcus", "A-line placement", "A's", "T.B.", "Grade B.", "plan b",
        "I.B. smith", "A&E", "a.m.", "B.C. Smith", "...", "?", "1", "The", "🙂",
        "A normal brain\n\nQuestion: What?\nAnswer: B", "Statement B is true", "B it is",
        "The image is of a type B, aortic dissection", "Apolipoprotein A.", "immunoglobulin A", "Haemophilia A.",
    ],
    (AB, "refused"): [
        "Neither A nor B.", "I cannot determine the answer.", "I'm sorry, but I can't help with that.",
        "Unable to determine from the image.", "As an AI language model, I cannot interpret medical images.",
        "It is not possible to tell whether it is A or B.", "I don't know.", "None of the above",
        "The image does not provide enough information.", "I'm not able to see the image", "I can’t say.",
        "Insufficient information", "I am unable to view the image, so neither aortic arch nor kidneys",
        "I cannot choose B", "It is not possible to tell if it is A.", "Neither.", "Neither of these",
    ],
    (AB, "truncated"): ["<think>The answer is A", "B <think>A", "<think>A</think><think>"],
    (FOUR, "D"): ["D", "The answer is D."],
    (FOUR, "ambiguous"): ["A, B and C", "Both C and D"],
    (FOUR, "no_match"): ["E", "C. difficile colitis", "D dimer", "The C3 vertebra"],
    (FIVE, "E"): ["E", "(e) Metastasis"],
    (FIVE, "no_match"): ["E. coli"],
    (YN, "A"): ["Yes", "Yes, it is.", "The answer is yes.", "yes\nyes\nyes", "Yes, no doubt."],
    (YN, "B"): [
        "no", "No.", "No, there is none.", "No evidence of disease", "**No**, nothing is seen.", "Answer: No",
        '("A": Yes)\n("B": No)\n#answer: ("B', "No or minimal change",
    ],
    (YN, "ambiguous"): ["Yes and no", "Yes or no", "A: Yes\nB: No"],
    (YN, "no_match"): ["The image shows no fracture."],
    (FX, "A"): [
        "The answer is a fracture of the radius.", "There is a fracture of the radius.", "fracture of the radius",
    ],
    (FX, "B"): [
        "No fracture of the radius", "There is no fracture of the radius.", "I see no fracture of the radius here.",
    ],
    (FX, "no_match"): ["The answer is A fracture"],
    (IN, "A"): ["Effusion", "There is an effusion."],
    (IN, "B"): ["Pleural effusion", "There is a pleural effusion."],
    (IN, "no_match"): ["Not a pleural effusion"],
    (SIDE, "A"): ["Left", "It is on the left, not on the right."],
    (SIDE, "B"): ["the right", "On the right side.", "Not on the left; on the right."],
    (SIDE, "ambiguous"): ["left or right"],
    (NORM, "A"): ["Normal"],
    (NORM, "B"): ["Abnormal", "The scan is abnormal."],
    (NORM, "no_match"): ["not normal"],
    (HEP, "A"): ["hepatitis B"],
    (HEP, "B"): ["The patient has hepatitis C."],
    (SUM, "C"): ["Neither"],
    (SUM, "D"): ["Both A and B", "The answer is both A and B."],
    (SUM, "E"): ["None of these"],
    (SUM, "ambiguous"): ["A and B"],
    ((), "A"): ["A"],
    ((), "B"): ["The answer is B."],
    ((), "no_match"): ["A normal brain"],
    (CD, "A"): ["C"],
    (SWAPPED, "A"): ["A", "Answer: A"],
    (UPTAKE, "A"): ["Yes"],
    (UPTAKE, "B"): ["No"],
}
# fmt: on
CASES = rows(EXPECTED)


@pytest.mark.parametrize(("reply", "expected"), CASES)
def test_reads_as_a_careful_reader_does(reply, expected):
    options, answer = expected
    assert outcome(read(reply, options)) == answer


@pytest.mark.parametrize("newline", ["\r\n", "\n\n", "\n\t"])
def test_kind_of_newline_does_not_matter(newline):
    for reply, (options, expected) in CASES:
        if reply and "\n" in reply:
            assert outcome(read(reply.replace("\n", newline), options)) == expected, reply


FINDINGS = st.sampled_from(
    ["normal", "brain", "3 cm", "round", "mass", "in the lung", "CT", "X-ray", "without contrast"]
)


@given(words=st.lists(FINDINGS, min_size=1, max_size=6), end=st.sampled_from(["", ".", "!", "\n"]))
def test_article_is_never_a_letter(words, end):
    assert read(f"A {' '.join(words)}{end}", AB).value is None


@given(
    letter=st.sampled_from("AB"),
    frame=st.sampled_from(["{}", "({})", "**{}**", "Answer: {}", "The answer is {}.", "I choose {}", "{}) because"]),
    before=st.sampled_from(["", " ", "\n", "\t", "\r\n"]),
    after=st.sampled_from(["", " ", "\n", "\t", "\r\n", "\u00a0"]),
)
def test_case_and_blanks_do_not_matter(letter, frame, before, after):
    reply = frame.format(letter)
    for spelling in (reply, reply.upper(), reply if "choose" in frame else reply.lower()):
        assert read(before + spelling + after, AB).value == letter


def test_letter_beyond_the_options_is_no_answer():
    alphabet = [chr(ord("A") + n) for n in range(26)]
    options = [f"Finding number {n}" for n in range(26)]
    for count in range(1, 27):
        valid = [letter for letter in alphabet if read(f"({letter})", options[:count]).value == letter]
        assert valid == alphabet[:count]


@pytest.mark.parametrize("reply", ["İ", "(İ)", "the answer is İ", "İ)"])
def test_letters_outside_ascii_are_no_options(reply):
    assert read(reply, [f"Finding number {n}" for n in range(26)]).value is None


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        *[(reply, "B") for reply in ("正确答案是B。", "答案：（B）", "我选择B", "本题选B，不选A", "B. spleen")],
        ("The answer is (B).", "B"),
        *[(reply, None) for reply in ("不选B", "答案不是B", "答案是A或B", "选项B是错误的", "答案是A，也可以说答案是B")],
        *[(reply, "C") for reply in ("C. B", "(c) B", "应选C项")],  # the third option's text is a letter
        *[(reply, None) for reply in ("", "I cannot tell.")],
    ],
)  # fmt: skip
def test_options_that_are_letters_and_chinese_declarations(reply, value):
    assert robust_kit_choice(reply, Sample({"options": ["liver", "spleen", "B", "D"]})).value == value
