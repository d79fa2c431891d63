"""The careful reader's rule for the class of an image, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .reading import outcome, reading, rows

read = reading("robust_class")

# The label sets of MedMNIST 3.0.2 (OrganS has the names of OrganC), in option order.
PATH = (
    *("adipose", "background", "debris", "lymphocytes", "mucus", "smooth muscle", "normal colon mucosa"),
    *("cancer-associated stroma", "colorectal adenocarcinoma epithelium"),
)
OCT = ("choroidal neovascularization", "diabetic macular edema", "drusen", "normal")
BLOOD = (
    *("basophil", "eosinophil", "erythroblast"),
    "immature granulocytes(myelocytes, metamyelocytes and promyelocytes)",
    *("lymphocyte", "monocyte", "neutrophil", "platelet"),
)
BREAST = ("malignant", "normal, benign")
DERMA = (
    *("actinic keratoses and intraepithelial carcinoma", "basal cell carcinoma", "benign keratosis-like lesions"),
    *("dermatofibroma", "melanoma", "melanocytic nevi", "vascular lesions"),
)
ORGAN = (
    *("bladder", "femur-left", "femur-right", "heart", "kidney-left", "kidney-right", "liver", "lung-left"),
    *("lung-right", "pancreas", "spleen"),
)
PNEUMONIA = ("normal", "pneumonia")
RETINA = ("0", "1", "2", "3", "4")
TISSUE = (
    *("Collecting Duct, Connecting Tubule", "Distal Convoluted Tubule", "Glomerular endothelial cells"),
    *("Interstitial endothelial cells", "Leukocytes", "Podocytes", "Proximal Tubule Segments", "Thick Ascending Limb"),
)
PAD = (
    *("Basal Cell Carcinoma (BCC)", "Squamous Cell Carcinoma (SCC)", "Actinic Keratosis (ACK)"),
    *("Seborrheic Keratosis (SEK)", "Bowen’s disease (BOD)", "Melanoma (MEL)", "Nevus (NEV)"),
)
CBIS = ("benign", "malignant", "benign without callback")
CBIS_RAW = ("BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK")
VINDR = ("1", "2", "3", "4", "5")
VINDR_NAMED = ("BI-RADS 1", "BI-RADS 2", "BI-RADS 3", "BI-RADS 4", "BI-RADS 5")
ALL_SETS = (PATH, OCT, BLOOD, BREAST, DERMA, ORGAN, PNEUMONIA, RETINA, TISSUE, PAD, CBIS, CBIS_RAW, VINDR, VINDR_NAMED)

# fmt: off
EXPECTED: dict[tuple[tuple[str, ...], str], list[str | None]] = {
    (PATH, "B"): [
        "2:", "[2]", "#2", "option 2.", "Option (2)", "2) background", "2 background", "2 - background",
        "2: Background.\n\nThe image is empty.", "**Background**", "background (2)", "background (option 2)",
        "The correct option is 2", "answer is option 2", "The image shows background.",
        "The image corresponds to option 2.", "The image corresponds to option 2: background.",
        "Option 2 corresponds to the image.", "The correct answer is (2) background.", "$\\boxed{2}$",
        "<answer>2</answer>", "It is not adipose tissue; it is background.",
        "The image is not adipose. The answer is 2.", "I think it is 5, no. Final answer: 2", "<think>maybe 5</think>2",
        "the second option", "The second option.", "Two", "option two", "2</s>", "2\n\nQuestion: and now?\n5",
        "Label: 2", "Class 2", "class: background", "2\n2\n2", "I would choose option 2.", "2, background",
        "2 is background",
        "1: adipose\n2: background\n3: debris\n4: lymphocytes\n5: mucus\n6: smooth muscle\n7: normal colon mucosa\n"
        "8: cancer-associated stroma\n9: colorectal adenocarcinoma epithelium\n"
        "Which options correspond to the image?\n2",
        "Options:\n1: adipose \n 2: background \n 3: debris \n 4: lymphocytes \n 5: mucus \n 6: smooth muscle \n"
        " 7: normal colon mucosa \n 8: cancer-associated stroma \n 9: colorectal adenocarcinoma epithelium \n"
        " Which options correspond to the image?\n2: background",
        "1. The image has no cells.\n2. It is evenly lit.\n3. The answer is 2.",
        "1. adipose: no\n2. background: yes\n3. debris: no", "Option 1 is incorrect. Option 2 is correct.",
        "The answer is 2, not 5.", "not option 5 but option 2",
    ],
    (PATH, "A"): [
        "The image shows adipose tissue.", "Adipose tissue", "adipose tissue (1)",
        "The image shows adipose tissue with a 2 mm vessel.", "It shows adipose tissue on a white background.",
        "The image depicts adipose tissue, which was sampled in 2019.", "This may be adipose tissue.",
        "Option 1, adipose.", "1: adipose. There is no mucus.",
    ],
    (PATH, "G"): ["The tissue is normal colon mucosa.", "normal colon", "The image shows the normal colon mucosa."],
    (PATH, "I"): ["colorectal adenocarcinoma", "The image most likely shows colorectal adenocarcinoma epithelium."],
    (PATH, "D"): [
        "The image is labeled as 4.", "The image corresponds to the options: 4: lymphocytes",
        "Neither mucus nor debris; the answer is lymphocytes.", "A lymphocyte.", "The image shows lymphocytes.",
    ],
    (PATH, "ambiguous"): [
        "2 or 3", "2, 3", "2 and 5", "options 2 and 3", "Options 2, 3", "2\n3", "adipose or background", "2: adipose",
        "2: mucus.", "0: adipose", "1: background", "adipose (2)", "mucus and debris", "The answer is 2 or 3.",
        "The answer is 2. The answer is 3.", "The answer is adipose or mucus.", "(1) (2)", "Option 2 or option 3",
        "The image shows adipose and mucus.", "12: mucus", "2. The image shows mucus.", "1-9", "between 2 and 3",
        "1: adipose\n2: background\n3: debris\n4: lymphocytes\n5: mucus\n6: smooth muscle\n7: normal colon mucosa\n"
        "8: cancer-associated stroma\n9: colorectal adenocarcinoma epithelium", "The answer is 2: mucus",
        "It is mucus. It is not mucus.", "mucus, background", "Mucus versus debris",
    ],
    (PATH, "no_match"): [
        "The answer is 2 mm.", "Class: 2 cm", "The result is 5 of 9.", "option 3 mm", "The diagnosis is 2 weeks old.",
        "Image 4", "The correct options are 1, 2 and 3.",
        "0", "10", "12", "99", "2 mm", "2.5", "1 of 9", "4/9", "2023", "20%", "x2", "T2", "2nd", "tissue", "normal",
        "The image shows 2 cells.", "The image was taken in 2 minutes.", "There are 3 glands in the image.",
        "The mass measures 2 cm.", "Not mucus.", "It is not adipose.", "not option 2", "Option 2 is incorrect",
        "The section shows cancer.", "B", "b", "a", "A histology image", "?", "...", "nonadipose", "non-adipose",
        "a cell on a white background", "Mucus cannot be excluded.", "mucus: no", "No mucus or debris is seen.", "-",
        "The answer is not 2.", "The answer is unclear.", "option", "magnification 2x", "Step 2",
    ],
    (PATH, "refused"): [
        "I cannot determine the answer.", "None of the above", "I'm sorry, but I can't assist with that.",
        "I don't know.", "As an AI, I cannot analyze medical images.", "None of these.",
    ],
    (PATH, "empty"): ["</s>", "<think></think>"],
    (PATH, "truncated"): ["<think>The answer is 2", "2 <think>"],
    (OCT, "A"): ["CNV", "Choroidal neovascularisation.", "1: CNV", "The answer is CNV."],
    (OCT, "B"): ["DME", "diabetic macular edema (DME)", "diabetic macular oedema", "dme"],
    (OCT, "C"): ["The scan shows drusen.", "There are drusen, and no fluid is seen."],
    (OCT, "D"): [
        "The retina is normal.", "The OCT image appears normal.", "A normal retina.", "The image is normal.",
        "It is normal.", "It's normal", "This is a normal OCT scan.", "normal (4)", "The image shows a normal retina.",
        "The macula appears completely normal.",
    ],
    (OCT, "no_match"): [
        "abnormal", "not normal", "The retina is not normal.", "The image shows normal thickness of the choroid.",
        "The normal layers are disrupted.", "There is no normal contour.", "normally", "macular edema is absent",
        "The foveal contour is normal.",
    ],
    (OCT, "ambiguous"): ["CNV or DME", "normal or drusen", "1: drusen", "DME and CNV"],
    (BLOOD, "D"): [
        "immature granulocytes", "An immature granulocyte.", "myelocyte", "promyelocytes", "metamyelocyte",
        "The cell is an immature granulocyte (promyelocyte).", "immature granulocytes (myelocytes)",
    ],
    (BLOOD, "G"): ["neutrophils", "The cell is a neutrophil.", "a neutrophil"],
    (BLOOD, "ambiguous"): ["neutrophil or eosinophil", "lymphocyte, monocyte", "1. eosinophil"],
    (BLOOD, "no_match"): ["granulocytes", "red blood cell", "white blood cell", "phil"],
    (BREAST, "A"): [
        "The tumor is malignant.", "It is most likely malignant.", "The lesion appears malignant.",
        "probably malignant",
    ],
    (BREAST, "B"): [
        "benign", "Normal", "The lesion is benign.", "normal or benign", "The breast is normal.", "2. benign",
        "not malignant but benign", "It is not malignant, it is benign.", "normal/benign",
        "Benign. There is no sign of a malignant mass.",
    ],
    (BREAST, "no_match"): [
        "not malignant", "The lesion is not malignant.", "non-malignant", "nonmalignant", "not benign", "premalignant",
        "No malignant lesion is seen.", "a mass", "cancer", "There is a 2 cm mass.", "pre-malignant",
        "The skin is normal in thickness.", "A malignant mass cannot be excluded.", "malignant: no",
    ],
    (BREAST, "refused"): ["Neither."],
    (BREAST, "ambiguous"): [
        "malignant or benign", "1: benign", "2: malignant", "1 or 2", "malignant, benign", "benign vs malignant",
        "malignant or normal, benign",
    ],
    (DERMA, "A"): ["actinic keratosis", "Actinic keratoses", "intraepithelial carcinoma"],
    (DERMA, "B"): ["BCC", "basal cell carcinoma (BCC)", "basal cell", "The lesion is a basal cell carcinoma."],
    (DERMA, "F"): ["melanocytic nevus", "nevus", "a melanocytic naevus"],
    (DERMA, "E"): ["Melanoma, not a nevus.", "melanoma rather than a nevus", "This could be melanoma."],
    (DERMA, "G"): ["vascular lesion", "a vascular lesion"],
    (DERMA, "no_match"): ["benign", "carcinoma", "keratosis", "lesion", "actinic"],
    (DERMA, "ambiguous"): ["melanoma or nevus", "melanoma vs. nevus", "It could be a melanoma or a nevus."],
    (ORGAN, "E"): [
        "left kidney", "The left kidney.", "Kidney, left", "kidney (left)", "The image shows the left kidney.",
        "Answer: left kidney",
    ],
    (ORGAN, "I"): ["right lung", "9: right lung"],
    (ORGAN, "K"): ["the spleen is shown"],
    (ORGAN, "A"): ["The bladder, not the spleen."],
    (ORGAN, "ambiguous"): [
        "left and right kidney", "left or right lung", "the liver and the spleen", "5: kidney-right",
        "both the left lung",
    ],
    (ORGAN, "no_match"): ["kidney", "lung", "femur", "left", "brain", "12", "11 cm"],
    (PNEUMONIA, "A"): [
        "No signs of pneumonia, normal chest X-ray.", "The X-ray appears to be normal.",
        "The image shows a normal chest X-ray with no evidence of pneumonia.", "The chest X-ray is normal.",
        "The lungs are normal.", "Normal chest.", "There is no pneumonia; the chest is normal.",
        "This is a normal chest X-ray without pneumonia.",
    ],
    (PNEUMONIA, "B"): [
        "The image shows signs of pneumonia.", "consistent with pneumonia",
        "The heart size is normal, but there is pneumonia.", "Pneumonia in the right lower lobe.", "likely pneumonia",
        "The normal heart shadow is seen with pneumonia of the left lung.",
    ],
    (PNEUMONIA, "no_match"): [
        "This image is of a normal heart size.", "The cardiac silhouette is normal. The lungs are clear.",
        "There are no abnormalities.",
        "no pneumonia", "There is no evidence of pneumonia.", "The heart size is normal.", "The lungs are clear.",
        "Pneumonia has been ruled out.", "Normal heart size.", "pneumothorax", "There is no pneumonia or effusion.",
    ],
    (PNEUMONIA, "ambiguous"): [
        "normal chest with possible pneumonia", "The image is normal except for pneumonia.","normal or pneumonia",
        "normal, pneumonia", "1: pneumonia", "2: normal"],
    (RETINA, "A"): ["0", "grade 0", "Grade: 0", "the severity is 0"],
    (RETINA, "B"): ["grade 1", "option 2", "stage 1", "Severity level 1"],
    (RETINA, "E"): ["grade 4", "Grade 4."],
    (RETINA, "ambiguous"): ["1: 2", "2: 2", "2 or 3", "option 2, grade 2", "class 2", "grade 2 or 3"],
    (RETINA, "no_match"): ["6", "severe", "2 mm", "grade 5", "2: moderate", "2: mild disease"],
    (TISSUE, "A"): ["Collecting duct", "connecting tubule", "1: collecting duct"],
    (TISSUE, "H"): ["Thick ascending limb of Henle", "TAL"],
    (TISSUE, "C"): ["glomerular endothelial cell"],
    (TISSUE, "no_match"): ["Glomerular", "endothelial cells", "tubule", "kidney cortex", "cells"],
    (PAD, "A"): [
        "BCC", "basal cell carcinoma", "basal cell", "bcc", "The answer is BCC.", "Basal Cell Carcinoma (BCC) (BCC)",
        "The most likely diagnosis is Basal Cell Carcinoma (BCC).",
        "Based on the image, the most likely diagnosis is basal cell carcinoma.", "basal-cell carcinoma", "(BCC)",
        "The lesion is most consistent with BCC, and a 5 mm margin is advised.",
    ],
    (PAD, "E"): ["Bowen's disease", "Bowen disease", "BOD", "Diagnosis: Bowen´s disease (BOD)"],
    (PAD, "F"): [
        "MEL", "melanoma", "Melanoma (MEL) (MEL)", "The lesion is suspicious for melanoma.",
        "It may be a melanoma, no nevus.", "Basal cell carcinoma is unlikely. It is a melanoma.",
    ],
    (PAD, "C"): [
        "Diagnosis: ACK\nDifferential: BCC, SCC",
        "Actinic Keratosis (ACK) is the most likely diagnosis. Squamous Cell Carcinoma (SCC) is less likely.",
        "actinic keratosis", "ACK", "AK", "Actinic Keratoses",
    ],
    (PAD, "G"): [
        "Likely a nevus, possibly a melanoma.", "melanocytic naevus", "Nevus", "nevus (NEV)", "a melanocytic nevus",
        "NEV",
    ],
    (PAD, "ambiguous"): [
        "squamous cell carcinoma in situ (Bowen's disease)",
        "1. Basal Cell Carcinoma (BCC)\n2. Squamous Cell Carcinoma (SCC)\n3. Actinic Keratosis (ACK)",
       "keratosis ACK or SEK", "BCC (SCC)", "melanoma or nevus", "BCC, SCC",
        "1: SCC"],
    (PAD, "no_match"): [
        "Basal", "carcinoma", "keratosis", "a mole", "cancer", "melanoma is ruled out", "cell", "skin cancer",
    ],
    (PAD, "refused"): ["I cannot diagnose skin lesions. See a dermatologist.", "I am not able to diagnose a melanoma."],
    (CBIS, "A"): ["The mass is benign.", "likely benign", "benign, not malignant"],
    (CBIS, "B"): ["The calcification is malignant.", "It is malignant, not benign."],
    (CBIS, "C"): [
        "benign without a callback", "benign without call-back", "The mass is benign without callback.",
        "Benign, without callback", "benign (without callback)", "BENIGN_WITHOUT_CALLBACK", "benign_without_callback",
    ],
    (CBIS, "ambiguous"): [
        "The mass is benign and does not need a callback.",
        "It is difficult to determine if the mass is benign or malignant.",
        "benign or malignant", "benign, malignant or benign without callback", "benign; no callback is needed",
        "benign with callback",
        "benign or benign without callback", "malignant: benign",
    ],
    (CBIS, "no_match"): [
        "Is the mass benign, malignant or benign without callback?","not benign", "callback", "a mass",
        "BI-RADS 2", "non-benign"],
    (CBIS_RAW, "C"): ["benign without callback", "BENIGN WITHOUT CALLBACK"],
    (VINDR, "D"): [
        "bi rads iv", "I would rate this as a 4.", "Breast density B, BI-RADS 4", "BI-RADS 4", "BI-RADS: 4", "BIRADS 4",
        "BI-RADS category IV", "BI-RADS 4A", "bi-rads 4c", "category 4", "The BI-RADS level in this mammography is 4.",
        "The BI-RADS level is 4 out of 5.", "BI-RADS level: 4", "Level 4",
        "The BI-RADS level in this mammography (from 1 to 5) is 4.", "BI-RADS 4 (suspicious abnormality)", "grade 4",
        "BI-RADS 4: a 12 mm mass", "A 12 mm mass is seen in 1 of 2 views. BI-RADS 4.", "four", "BI-RADS four",
        "BI-RADS 4, not 5", "BI-RADS 4 rather than BI-RADS 5", "The answer is BI-RADS 4.", "BI-RADS® 4",
        "Final: BI-RADS 4", "BI RADS 4", "BI-RADS Category 4", "**BI-RADS 4**", "Assessment: BI-RADS 4",
    ],
    (VINDR, "A"): ["bi rads 1", "1 - negative", "BIRADS-1", "BI-RADS 1", "BI-RADS I", "BI-RADS: 1 (negative)"],
    (VINDR, "E"): [
        "5 (highly suggestive of malignancy)", "This mammography is BI-RADS 5.", "BI-RADS5", "5 because of the mass",
        "BI-RADS V", "highly suggestive of malignancy, BI-RADS 5",
    ],
    (VINDR, "ambiguous"): [
        "4 or 5", "4-5", "BI-RADS 4-5", "BI-RADS 4 or 5", "between 3 and 4",
        "BI-RADS 3 on the left, BI-RADS 4 on the right",
        "BI-RADS 4 to 5", "The answer is 3 or 4.",
    ],
    (VINDR, "no_match"): [
        "Level: 3/5",
        "0", "6", "BI-RADS 0", "BI-RADS 6", "benign", "suspicious", "4 mm", "4.5", "BI-RADS", "40", "a mass of 3 cm",
        "not BI-RADS 4", "The mammography was taken in 2015.", "ACR C", "12", "level",
    ],
    (VINDR_NAMED, "D"): ["BI-RADS category 4b"],
}
# fmt: on
CASES = rows(EXPECTED)


@pytest.mark.parametrize(("reply", "expected"), CASES)
def test_reads_as_a_careful_reader_does(reply, expected):
    options, answer = expected
    assert outcome(read(reply, options)) == answer


@pytest.mark.parametrize("options", ALL_SETS, ids=lambda options: options[0])
@pytest.mark.parametrize(
    "frame",
    ["{text}", "{text}.", "{upper}", "{small}", "{capital}", "{capital}.", "Answer: {text}", "The answer is {text}.",
     "**{text}**", "{number}", "{number}.", "({number})", "**{number}**", "Answer: {number}", "Option {number}",
     "The answer is {number}.", "{number}: {text}", "{number}: {text}.", "{number}. {small}", "({number}) {text}",
     "{number} ({text})", "The answer is {number}: {text}.", "Option {number}: {text}"],
)  # fmt: skip
def test_every_published_class_is_read_in_every_usual_form(options, frame):
    if "number" not in frame and options is RETINA:
        return
    read_as = {}
    for n, text in enumerate(options):
        spellings = {"upper": text.upper(), "small": text.lower(), "capital": text.capitalize()}
        reply = frame.format(text=text, number=n + 1, **spellings)
        read_as[reply, chr(ord("A") + n)] = read(reply, options).value
    assert read_as == {(reply, letter): letter for reply, letter in read_as}


@pytest.mark.parametrize("options", ALL_SETS, ids=lambda options: options[0])
def test_number_and_another_class_contradict(options):
    for n, text in enumerate(options[1:], 1):
        assert read(f"{n}: {text}", options).value is None or options in (VINDR, VINDR_NAMED)
        assert read(f"{text} or {options[0]}", options).value is None


@given(options=st.sampled_from([PATH, BLOOD, DERMA, ORGAN, TISSUE, PAD, CBIS]), data=st.data())
def test_a_name_means_its_class_wherever_the_class_stands(options, data):
    shuffled = data.draw(st.permutations(options))
    chosen = data.draw(st.sampled_from(options))
    for frame in ("{}", "The image shows {}.", "Diagnosis: {}"):
        value = read(frame.format(chosen), shuffled).value
        assert value is not None
        assert shuffled[ord(value) - ord("A")] == chosen


@given(words=st.lists(st.sampled_from(["no", "not", "3 mm", "2015", "mass", "in the", "of", "5 of 9"]), max_size=6))
def test_numbers_of_the_finding_are_no_answer(words):
    assert read(f"There is a lesion {' '.join(words)}.", PATH).value is None
