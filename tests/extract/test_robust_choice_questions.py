"""The careful reader's rule on examination questions: three and more options, replies that discuss them first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .reading import outcome, reading, rows

read = reading("robust_choice")

LETTERS = "ABCDEFGHIJ"
STEM = (
    "Placing the infant supine on a firm mattress while sleeping",
    "Routine postnatal electrocardiogram (ECG)",
    "Keeping the infant covered and maintaining a high room temperature",
    "Application of a device to maintain the sleeping position",
    "Avoiding pacifier use during sleep",
)
MCM = (
    "Impulse through myelinated fibers is slower",
    "Membrane currents are generated at nodes of Ranvier",
    "Saltatory conduction is seen",
    "Local anesthesia is effective only when the nerve is not covered by myelin sheath",
)
DRUG = ("Aspirin", "Warfarin", "Aspirin and clopidogrel", "Heparin", "No therapy")
NOTA = ("Hyperkalemia", "Hypokalemia", "Both", "None of the above")
ALL = ("Vitamin A", "Vitamin B", "Vitamin C", "All of the above")
ABC = ("A and B", "B and C", "A, B and C", "None")
NUM = ("10%", "20%", "30%", "40%")
NUM2 = ("1", "2", "3", "4")
MMLU = ("True, True", "False, False", "True, False", "False, True")
TEN = tuple(
    f"Choice number {word}" for word in ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
)
HEP = ("Hepatitis A", "Hepatitis B", "Hepatitis C", "Hepatitis D", "Hepatitis E")
SUB = (
    "Myocardial infarction",
    "Acute myocardial infarction with cardiogenic shock",
    "Unstable angina",
    "Pericarditis",
)
LONG = (
    "Increase in cardiac output",
    "Decrease in cardiac output",
    "No change in cardiac output",
    "Increase in heart rate",
)
TOX = ("Arsenic", "Lead", "Mercury", "Cadmium")
BLOOD = ("A", "B", "AB", "O")
LIVER = ("Sepsis", "Pneumonia", "Liver cancer", "Heparin")
YNM = ("yes", "no", "maybe")
SIGNS = ("Mean < Mode", "Mean > Mode", "Mean = Mode", "Mean<Median>Mode")
IONS = ("pH", "[OH-]", "[H+]", "none", "[Na+]", "[Cl-]", "[K+]", "pOH")
GENE = ("Protein C deficiency", "Protein S deficiency", "Factor V Leiden", "Antithrombin deficiency")

# fmt: off
EXPECTED: dict[tuple[tuple[str, ...], str], list[str]] = {
    (STEM, "A"): ["The best way to prevent SIDS is placing the infant supine on a firm mattress while sleeping."],
    (STEM, "C"): ["C: Keeping the infant covered and maintaining a high room temperature."],
    (STEM, "no_match"): ["A healthy infant should sleep", "A device", "pacifier"],
    (DRUG, "A"): [
        "A. Aspirin\n\nExplanation:\nA. Aspirin is given first.\nB. Warfarin acts slowly.",
        "the answer is a: aspirin..", "A) Aspirin is correct.", "a: Aspirin..\n", "It is A.", "I would give aspirin.",
        "1. Aspirin",
    ],
    (DRUG, "B"): [
        "B: it acts for long.\nA: it is too weak.\nC: it is too strong.",
        "B. Warfarin\nA. Aspirin is too weak.\nC. Aspirin and clopidogrel is too strong.", "The answer is b: Warfarin.",
        "The answer is b: Warfarin.\nExplanation: Aspirin is an antiplatelet.", "the answer is b",
        "Answer: b: Warfarin.", "The correct answer is:\n\nb: Warfarin",
        "The best answer is warfarin because aspirin is not enough.",
        "The patient has AF. Aspirin alone is not sufficient. Heparin is for acute care. Therefore, the "
        "answer is B: Warfarin.",
        "Let's think step by step.\nA: Aspirin is an antiplatelet.\nB: Warfarin is indicated.\n"
        "C: dual is for stents.\nD: heparin acute.\nE: no.\nSo the answer is B.",
        "A. Aspirin - incorrect.\nB. Warfarin - correct.\nC. Aspirin and clopidogrel - incorrect.\nThe answer is B.",
        "A: Aspirin.\nB: Warfarin.\nC: Aspirin and clopidogrel.\nD: Heparin.\nE: No therapy.\n"
        "What is the correct answer?\nThe answer is B.",
        "Options:\nA: Aspirin.\nB: Warfarin.\nC: Aspirin and clopidogrel.\nD: Heparin.\nE: No therapy.\n"
        "What is the correct answer?\nB",
        "Options:\nA: Aspirin.\nB: Warfarin.\nC: Aspirin and clopidogrel.\nD: Heparin.\nE: No therapy.\n"
        "What is the correct answer?\nWarfarin",
        "The answer is B.\n\nA patient with fever ...\nOptions:\nA: x.\nB: y.\nWhat is the correct answer?\n"
        "The answer is A.",
        "Step 1: consider aspirin. Step 2: consider warfarin. Final answer: B",
        "**Answer: B. Warfarin**\n\n**Explanation:** A. Aspirin is inferior.", "The correct option is B",
        "option b: Warfarin", "B (Warfarin)", "The correct answer is (B) Warfarin. (A) Aspirin is wrong.",
        "I believe the correct answer is B, Warfarin.", "The answer is not A. It is B.", "### Final Answer\nB",
        "$\\boxed{B}$", "Therefore, B is the correct answer.", "B is correct", 'The answer is "b".', "Answer b",
        "Answer: [B]", "The most appropriate therapy is B. Warfarin.",
        "The most appropriate next step is warfarin (B).", "Correct answer: **B: Warfarin.**",
        "So the answer would be B: Warfarin", "My answer is B) Warfarin",
        "Based on the above, the answer is: B: Warfarin.", "The right choice here is B.",
        "A is an antiplatelet. B is an anticoagulant, therefore B.",
        "Warfarin\n\nExplanation: Aspirin is an antiplatelet agent and heparin acts fast.",
        "Warfarin. Aspirin is an antiplatelet agent and heparin acts fast.",
        "Warfarin is the best choice; aspirin is inferior.", "The answer is not aspirin, it is warfarin.",
        "Option A: Aspirin is wrong.\nOption B: Warfarin is right.\nOption D: Heparin is wrong.",
        "A: Incorrect.\nB: Correct.\nC: Incorrect.\nD: Incorrect.\nE: Incorrect.",
        "A) Aspirin: no\nB) Warfarin: yes\nC) no\n\nThus B.",
    ],
    (DRUG, "C"): [
        "The correct answer is aspirin and clopidogrel.", "Give aspirin and clopidogrel.",
        "Answer: C.\nA. wrong\nB. wrong", "C\nC\nC\nC", "The answer is C: Aspirin and clopidogrel, not A: Aspirin.",
    ],
    (DRUG, "D"): [
        "Aspirin is not indicated; heparin is.",
        "Warfarin would not be appropriate. Heparin is the treatment of choice.",
        "Aspirin is an antiplatelet agent. Warfarin is a vitamin K antagonist. The treatment of choice is heparin.",
        "Aspirin is an antiplatelet agent. Warfarin is a vitamin K antagonist. Therefore, the correct answer "
        "is heparin.",
        "Aspirin is an antiplatelet agent. Warfarin is a vitamin K antagonist.\n\nAnswer: Heparin",
        "Answer: D\n\nWhat is the correct answer?\nThe answer is A.",
        "I am an AI model and cannot provide medical advice, but the answer is D: Heparin.",
        "The drug is heparin (D).", "D (heparin)", "The answer is “D”.", "[D]", "Heparin, i.e. option D.",
        "The best treatment is D", "D.\n\nRationale: ... A. Aspirin is not...\nB. Warfarin...",
        "A. Aspirin: This is incorrect because ...\nB. Warfarin: This is incorrect ...\n"
        "C. Aspirin and clopidogrel: incorrect\nD. Heparin: This is correct.\nE. No therapy: incorrect.",
        "The final answer is: heparin.", "Final Answer: Heparin",
    ],
    (DRUG, "E"): ["No therapy is needed.", "The correct answer is E: No therapy because A is harmful."],
    (DRUG, "ambiguous"): [
        "B\n\n\nA 45-year-old man comes to the physician. The answer is C.", "A or B", "A and B",
        "aspirin or warfarin", "A: Warfarin", "The answer is A or B",
        "A: Aspirin.\nB: Warfarin.\nC: Aspirin and clopidogrel.\nD: Heparin.\nE: No therapy.",
        "The answer is either A or C, but I lean towards C.", "A, C", "A and C", "a and c",
        "The answer is b: Heparin.", "b: Heparin", "B. Heparin", "The answer is B, heparin.",
        "The answer is (B) Heparin.", "The correct answer is B. Heparin",
        "The answer is A.\n\nThe answer is B.", "a, b",
        "A B C D E", "Let's analyze:\nA. Aspirin: bad\nB. Warfarin: slow\n",
    ],
    (DRUG, "no_match"): [
        "ans: b", "A 45-year-old man", "A patient", "Clopidogrel", "F", "f: x", "The answer is f.", "Not warfarin",
        "The answer is unclear.", "All of the above", "a drug",
        "A: Aspirin.\nB: Warfarin.\nC: Aspirin and clopidogrel.\nD: Heparin.\nE: No therapy.\n"
        "What is the correct answer?",
        "Warfarin is incorrect.", "Warfarin is contraindicated.", "The answer is E. coli",
        "The answer is A 45-year-old man", "The answer is a beta blocker.", "a beta blocker", "ABCDE", "2",
    ],
    (DRUG, "refused"): [
        "I don't know", "None of the above", "I cannot answer medical questions.",
        "Insufficient information to answer", "As an AI language model, I think warfarin",
    ],
    (NOTA, "A"): ["The answer is hyperkalemia"],
    (NOTA, "D"): [
        "The correct answer is D: None of the above.", "None of the above is correct", "(d) None of the above",
        "The correct answer is none of the above because potassium is normal.", "None",
    ],
    (NOTA, "ambiguous"): ["hyperkalemia or hypokalemia"],
    (NOTA, "refused"): ["I don't know"],
    (ALL, "A"): ["The answer is vitamin A."],
    (ALL, "B"): ["The deficiency is of vitamin B."],
    (ALL, "C"): ["The answer is vitamin C"],
    (NUM, "B"): ["about 20%", "20 %"],
    (NUM, "ambiguous"): ["20% or 30%"],
    (NUM, "no_match"): ["25%", "120%"],
    (TEN, "J"): ["The answer is j: Choice number ten."],
    (TEN, "no_match"): ["I think so", " I would say so", "I'd guess"],
    (TEN, "refused"): ["I am not sure", "I don't know the answer", "I, as a doctor, cannot say"],
    (HEP, "A"): ["The answer is hepatitis A."],
    (HEP, "B"): [
        "The answer is hepatitis B", "The answer is Hepatitis B, not hepatitis A.", "This is hepatitis B infection.",
    ],
    (HEP, "ambiguous"): ["Hepatitis", "hepatitis A or hepatitis B"],
    (SUB, "A"): ["The patient has a myocardial infarction."],
    (SUB, "B"): ["The patient has an acute myocardial infarction with cardiogenic shock."],
    (LONG, "C"): ["No change"],
    (LONG, "ambiguous"): ["Increase"],
    (LONG, "no_match"): ["There is no increase in cardiac output."],
    (TOX, "A"): ["Arsenic poisoning leads to garlic breath."],
    (TOX, "ambiguous"): ["This can lead to arsenic poisoning"],
    # Forms of real replies.
    (LIVER, "B"): [
        "OPTION B IS CORRECT.", "B IS CORRECT.", "THE CORRECT ANSWER IS B.", '{"answer": "B", "why": "A is wrong"}',
        '{"step_by_step_thinking": "The answer is A, {so}.", "answer_choice": "B. Pneumonia"}', '{"answer": ["B"]}',
        "The answer is A. Wait, actually the answer is B.", "I think the answer is A... Actually, no, it is B.",
        "The correct answer is A. However, the closest correct answer would be B.", "The answer is likely B.",
        "This rules out option A. Option B fits.", "The correct option that matches is (B).",
        "Options A, C and D can be excluded. The remaining option is B.",
        "Since A and C are incorrect, and D is not supported, the best choice is B.",
    ],
    (LIVER, "C"): [
        "Let's analyze each option:\n\nA. Sepsis is bad.\n\nB. Pneumonia: no.\n\nC. Liver cancer.\n\nAnswer: C",
        "The answer could be A. B is correct, too.\n\n**Answer:** C", "THE ANSWER IS LIVER CANCER.",
        "Differential Diagnosis:\n- Sepsis\n- Pneumonia\n\nThe CT shows a mass, so the answer is C.",
        "The most likely diagnosis based on the CT is liver cancer (C).",
        "The most likely diagnosis is hepatocellular carcinoma (C), not sepsis (A).",
        "The correct answer based on the image is: C.", "We can eliminate option D, so it is C.",
        "**C. Liver cancer**\n\nWhy others are less likely:\n\n* **A:** no\n* **D:** partly correct",
    ],
    (LIVER, "ambiguous"): [
        "A. Venlafaxine or B. Imipramine", "A. Sepsis, C. Liver cancer", "**A, B**\n\n* **A.** It ...",
        '{"answer": ["A", "B"]}', "Answer: A, C", "Differential Diagnosis:\n- Sepsis\n- Pneumonia",
    ],
    (LIVER, "no_match"): [
        "d. The correct number of significant figures", "This rules out option A.", "We can eliminate option D.",
        "neither option A nor B is likely", "N/A", "n/a", "Answer: N/A", "It was kept at 4 degrees C.", "at 4 °C",
        '{"answer_index": 2}',
    ],
    (LIVER, "A"): ['{"why": "B", "answer": "A\\nSepsis", "others": [{"answer": "C"}]}'],
    (LIVER, "empty"): ['{"answer": null, "why": "B is right"}', '{"reasoning": "B is right", "answer": ""}'],
    (YNM, "C"): ["the answer is yes, no, or maybe. C. maybe"],
    (SIGNS, "A"): ["Mean < Mode", "A. Mean < Mode"],
    (SIGNS, "B"): ["The answer is Mean > Mode."],
    (SIGNS, "D"): ["Mean<Median>Mode"],
    (IONS, "H"): ["Answer: H"],
    (GENE, "A"): [
        "The patient has protein C deficiency.", "Protein C", "The answer is protein C.", "Answer: Protein C",
    ],
    (GENE, "no_match"): ["deficiency of protein C"],
}
# fmt: on
CASES = rows(EXPECTED)


@pytest.mark.parametrize(("reply", "expected"), CASES)
def test_reads_as_a_careful_reader_does(reply, expected):
    options, answer = expected
    assert outcome(read(reply, options)) == answer


@pytest.mark.parametrize(
    "options", [STEM, MCM, DRUG, NOTA, ALL, ABC, NUM, NUM2, MMLU, TEN, HEP, SUB, LONG, TOX, BLOOD, GENE]
)
@pytest.mark.parametrize(
    "frame",
    ["{upper}", "{lower}", "({lower})", "({upper})", "{lower}:", "{upper}:", "{lower}.", "{upper}.", "{lower})",
     "{upper}. {text}", "{lower}: {text}.", "{lower}: {text}..", "{lower}: {text}", "{upper}: {text}",
     "{lower}) {text}", "{upper}) {text}", "{text}", "{text}.", "{small}", "{small}.",
     "The answer is {lower}: {text}..", "The answer is {upper}: {text}", "The answer is {lower}",
     "The answer is {upper}", "The answer is {lower}.", "The answer is {upper}.", "The answer is ({upper}).",
     "The answer is {text}", "The answer is {text}.", "The answer is {small}.", "The correct answer is {text}.",
     "**{upper}. {text}**", "Answer: {upper}", "Option {upper}",
     "I have thought about it. So the answer is ({upper}) {text}.", "Final answer: {text}"],
)  # fmt: skip
def test_every_option_is_read_in_every_usual_form(options, frame):
    read_as = {}
    for letter, text in zip(LETTERS, options, strict=False):
        if frame != "{upper}. {text}" or (letter, text) != ("A", "A and B"):
            reply = frame.format(upper=letter, lower=letter.lower(), text=text, small=text.lower())
            read_as[reply, letter] = read(reply, options).value
    assert read_as == {(reply, letter): letter for reply, letter in read_as}


@given(data=st.data(), options=st.sampled_from([DRUG, SUB, STEM, MCM, LONG, TOX]))
def test_a_text_means_its_option_wherever_it_stands(options, data):
    shuffled = data.draw(st.permutations(options))
    chosen = data.draw(st.sampled_from(options))
    for frame in ("{}", "The answer is {}.", "The best choice is {}, because of the history."):
        value = read(frame.format(chosen), shuffled).value
        assert value is not None
        assert shuffled[ord(value) - ord("A")] == chosen


@given(
    right=st.integers(0, 4),
    yes=st.sampled_from(["correct", "This is correct.", "yes", "This is the right answer."]),
    no=st.sampled_from(["incorrect", "This is not correct.", "no", "This is wrong.", "contraindicated here"]),
    mark=st.sampled_from(["{}. {}: {}", "{}) {} - {}", "Option {}: {}: {}", "- {}: {}, {}"]),
    conclusion=st.booleans(),
)
def test_discussion_of_every_option_ends_in_the_one_called_correct(right, yes, no, mark, conclusion):
    lines = [mark.format(LETTERS[n], text, yes if n == right else no) for n, text in enumerate(DRUG)]
    reply = "\n".join([*lines, f"Therefore, the answer is {LETTERS[right]}."] if conclusion else lines)
    assert read(reply, DRUG).value == LETTERS[right]
    other = LETTERS[(right + 1) % 5]
    assert read("\n".join([*lines, f"So the answer is {other}."]), DRUG).value in (None, other)
