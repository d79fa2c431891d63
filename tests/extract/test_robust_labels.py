"""The careful reader's rule for findings in a chest image, on replies as models give them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .reading import reading, rows

read_labels = reading("robust_labels")

MIMIC = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")
NIH = (
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
)
CT = (
    *("Cardiomegaly", "Pericardial effusion", "Hiatal hernia", "Lymphadenopathy", "Emphysema", "Atelectasis"),
    *("Lung nodule", "Lung opacity", "Pleural effusion", "Consolidation", "Interlobular septal thickening"),
)
CHEXPERT = ("No Finding", "Cardiomegaly", "Edema", "Support Devices")

# fmt: off
EXPECTED: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {
    (MIMIC, ("Cardiomegaly",)): [
        "Cardiomegaly", "cardiomegaly.", "CARDIOMEGALY", "The heart is enlarged.", "Enlarged heart", "**Cardiomegaly**",
        "enlarged cardiac silhouette", "The cardiac silhouette is mildly enlarged.", "Cardiac enlargement is noted.",
        "There is cardiomegaly without edema.", "Cardiomegaly, no effusion.",
        "No pleural effusion, but cardiomegaly is present.",
        "There is no effusion or edema, and the heart is enlarged.", "Stable cardiomegaly. No focal consolidation.",
        "No pneumothorax, mild cardiomegaly", "Heart size is enlarged", "Cardiomegaly; effusion is absent",
        "Atelectasis: No\nCardiomegaly: Yes\nConsolidation: No\nEdema: No\nPleural Effusion: No",
        "Atelectasis: absent, Cardiomegaly: present, Edema: negative", "Atelectasis - no\nCardiomegaly - yes",
        "Atelectasis: 0, Cardiomegaly: 1, Consolidation: 0", "| Edema | No |\n| Cardiomegaly | Yes |",
        "- Cardiomegaly\n- No edema", "1. Cardiomegaly\n2. No pleural effusion", "No change in cardiomegaly.",
        "Cardiomegaly, possible edema", "Cardiomegaly. Edema cannot be excluded.", "Cardiomegaly and possible edema",
        "No abnormality other than cardiomegaly.", "Likely cardiomegaly", "Findings are consistent with cardiomegaly.",
        "It could be edema. Final answer: cardiomegaly", "Cardiomegaly\n\nQuestion: And here? Answer: Edema",
        "<think>edema?</think>Cardiomegaly", "The conditions are cardiomegaly and pneumonia.",
        "Enlargement of the heart",
        "Cardiomegaly\nList the conditions that can be seen in this picture. Edema",
        "The lungs are clear. There is moderate cardiomegaly.", "Cardiomegaly (edema is not seen)",
        "I cannot exclude edema. There is cardiomegaly.", "No evidence of edema; cardiomegaly.",
        "Cardiomegaly is seen, and there is no pleural effusion, pneumothorax, or edema.",
    ],
    (MIMIC, ("Pleural Effusion",)): [
        "Pleural effusion", "pleural effusions", "Bilateral effusions", "small left effusion", "pleural_effusion",
        "Pleural_Effusion", "There is pleural fluid.", "A large right-sided pleural effusion is seen.",
        "PleuralEffusion",
        "Without contrast, the image shows an effusion.", "The effusion has not resolved; no edema",
        "Effusion but no edema", "Edema is not seen. There is effusion.", "not only an effusion",
    ],
    (MIMIC, ("Atelectasis",)): [
        "Retrocardiac opacity, likely atelectasis, less likely consolidation.",
        "Neither edema nor effusion, but atelectasis.",
        "Interval resolution of pleural effusion. Persistent atelectasis.", "Atelectasis (+), effusion (-), edema (-)",
        "Atelectasis Yes, Cardiomegaly No, Edema No", "[x] Atelectasis [ ] Edema",
        "It is unlikely edema; atelectasis is seen.",
        "{'Atelectasis': true, 'Cardiomegaly': false}", "{\"Atelectasis\": 1, \"Edema\": 0}",
        "The following conditions can be seen: 1. Atelectasis 2. Pneumonia", "Stable atelectasis; no larger effusions",
        "Opacity at the base may represent edema or consolidation. Atelectasis is unchanged.",
    ],
    (MIMIC, ("Atelectasis", "Pleural Effusion")): [
        "Atelectasis, Pleural Effusion", "atelectasis and effusion", "Bibasilar atelectasis with small effusions.",
        "The X-ray shows atelectasis, and there is an effusion.", "Atelectasis\nPleural Effusion",
        "['Atelectasis', 'Pleural Effusion']",
        "There is atelectatic change. Pleural effusion is present, whereas edema is absent.",
    ],
    (MIMIC, ("Edema",)): [
        "edema", "pulmonary edema", "Interstitial oedema", "mild pulmonary oedema.",
        "Cardiomegaly has resolved. Edema.",
    ],
    (MIMIC, MIMIC): ["Atelectasis, Cardiomegaly, Consolidation, Edema, Pleural Effusion"],
    (MIMIC, ()): [
        "No finding", "No findings.", "Normal", "The chest X-ray is normal.", "Normal chest radiograph.", "None",
        "None.",
        "No acute cardiopulmonary abnormality.", "The lungs are clear.", "No abnormalities can be seen.",
        "Unremarkable.",
        "There is no evidence of pneumothorax or pleural effusion.", "no effusion or edema",
        "No effusion, edema, or consolidation.",
        "There is neither edema nor effusion.", "negative for edema", "Edema has been ruled out.",
        "Effusion is not seen.",
        "The patient denies edema.", "Absence of effusion", "Edema: no",
        "effusion, edema, and consolidation are absent",
        "possible edema", "There may be an effusion.", "Edema cannot be excluded.", "edema versus consolidation",
        "atelectasis or consolidation", "Edema?", "no new effusion", "suspicious for consolidation",
        "probable atelectasis",
        "The heart is not enlarged.", "Heart size is normal.", "no evidence of\npleural effusion", "pneumonia",
        "A rib fracture and a nodule.", "pericardial effusion", "soft tissue edema",
        "The image does not show any abnormality.",
        "There are no conditions that can be seen in this picture.", "There is no pneumonia.",
        "No cardiomegaly, edema or effusion is seen.",
        "Pleural effusion is unlikely.", "history of edema", "Edema is absent (no effusion).",
        "borderline cardiomegaly",
        "No: Atelectasis, Cardiomegaly", "free of effusion", "without edema, consolidation, or effusion",
        "Edema: uncertain",
    ],
    (MIMIC, ("no_match",)): [
        "A chest X-ray of an adult.", "I see an image.", "The image shows a person.", "yes", "1", "[0, 1, 0, 0, 1]",
        "?", "A",
        "The picture is not normal.", "abnormal", "This is an X-ray of the heart and lungs.",
        "It is clear that this is a chest.",
    ],
    (MIMIC, ("refused",)): [
        "I'm sorry, but I can't help with that.", "As an AI, I cannot interpret medical images.",
        "I cannot determine whether there is an effusion.", "I am unable to assess this X-ray for edema.",
        "I don't know.",
    ],
    (MIMIC, ("empty",)): ["</s>"],
    (MIMIC, ("truncated",)): ["<think>edema"],
    (MIMIC, ("ambiguous",)): [
        "No finding, cardiomegaly", "The chest X-ray is normal. Cardiomegaly.",
        "No findings. Pleural effusion is present.",
    ],
    (NIH, ("Effusion",)): ["Effusion", "pleural effusion", "Effusion, no pneumothorax"],
    (NIH, ("Pleural_Thickening",)): ["Pleural_Thickening", "pleural thickening", "Pleural Thickening is seen."],
    (NIH, ("Infiltration", "Nodule")): ["Infiltration|Nodule", "infiltrates and nodules", "Infiltration, Nodule"],
    (NIH, ("Pneumothorax",)): ["right pneumothorax", "Pneumothorax, not pneumonia", "pneumothorax with mass effect"],
    (NIH, ("Mass",)): ["Mass", "a mass in the left lung, no hernia", "lung masses"],
    (NIH, ()): ["No Finding", "no mass or nodule", "subcutaneous emphysema", "cystic fibrosis"],
    (CT, ("Pericardial effusion",)): ["pericardial effusion", "Pericardial effusion, no pleural effusion"],
    (CT, ("Pleural effusion",)): ["pleural effusion", "bilateral pleural effusions without pericardial effusion"],
    (CT, ()): ["an effusion", "no pericardial or pleural effusion"],
    (CT, ("Hiatal hernia", "Lung nodule")): ["hiatal hernia and lung nodule", "Hiatal hernia; pulmonary nodules"],
    (CHEXPERT, ("No Finding",)): ["No Finding", "normal chest", "No edema, no cardiomegaly, no other findings."],
    (CHEXPERT, ("Edema",)): ["Edema"],
    (CHEXPERT, ()): ["no edema", "possible edema"],
}
# fmt: on
CASES = rows(EXPECTED)


@pytest.mark.parametrize(("reply", "asked"), CASES)
def test_reads_as_a_careful_reader_does(reply, asked):
    names, expected = asked
    answer = read_labels(reply, names)
    if answer.value is None:
        assert (str(answer.reason),) == expected
    else:
        assert tuple(name for name, value in zip(names, answer.value, strict=True) if value) == expected


@given(data=st.data())
def test_order_of_the_labels_does_not_matter(data):
    reply, (names, _) = data.draw(st.sampled_from(CASES))
    order = data.draw(st.permutations(range(len(names))))
    answer, shuffled = read_labels(reply, names), read_labels(reply, [names[n] for n in order])
    assert shuffled.reason is answer.reason
    assert shuffled.value == (answer.value and tuple(answer.value[n] for n in order))


@given(present=st.sets(st.sampled_from(MIMIC)), absent=st.sets(st.sampled_from(MIMIC)), data=st.data())
def test_list_of_present_and_absent_findings(present, absent, data):
    absent -= present
    lines = [f"{name}: yes" for name in present] + [f"{name}: no" for name in absent]
    lines = data.draw(st.permutations(lines))
    answer = read_labels("\n".join(lines), MIMIC)
    assert answer.value == (tuple(int(name in present) for name in MIMIC) if lines else None)
    sentences = [f"There is {name}." for name in present] + [f"No {name} is seen." for name in absent]
    assert read_labels(" ".join(data.draw(st.permutations(sentences))), MIMIC) == answer
