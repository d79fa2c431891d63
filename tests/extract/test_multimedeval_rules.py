"""MultiMedEval's rules for questions, image classes, PubMedQA, MedNLI, and several labels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.published.multimedeval import clean_head, clean_v0_1_0
from medtasks.families.family import written_options

from ..tables import each_row
from .reading import outcome, reading, recorded, rows

OPTION, CLASS, YES_NO_MAYBE, LABELS = (
    [reading(f"multimedeval_{kind}_{version}") for version in ("head", "v0_1_0")]
    for kind in ("option", "class", "yes_no_maybe", "labels")
)
RULES = dict(zip(("head", "v0_1_0"), zip(OPTION, CLASS, strict=True), strict=True))
multimedeval_nli = reading("multimedeval_nli")
VERSIONS = pytest.mark.parametrize("version", RULES)
ORGANS = ["aortic arch", "bladder", "femur left", "femur right", "kidney left"]
MEDQA = written_options("{{ letter }} {{ text }}", ORGANS)
MEDMCQA = written_options("{{ lower }}: {{ text }}.", ORGANS)
MEDMNIST = written_options("{{ number }}: {{ text }}", ORGANS)
CBIS = ["BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK"]


@VERSIONS
def test_golden_multimedeval_choice(golden, version):
    read_option, read_class = RULES[version]
    for case in recorded(golden, "multimedeval_choice", 400):
        published, options = case[version], case["options"]
        letter = chr(ord("A") + published["index"])
        assert read_class(case["reply"], options) == Answer.ok(letter), case
        answer = read_option(case["reply"], options)
        assert answer.value == (None if published["all_zero"] else letter), case


@VERSIONS
@pytest.mark.parametrize(
    ("reply", "letter"),
    [("Bladder", "B"), ("The answer is: femur, right.", "D"), ("B bladder", "B"), ("left", "C"), ("femur", "C")],
)
def test_closest_option_and_of_equals_the_first(version, reply, letter):
    assert RULES[version][0](reply, MEDQA).value == letter


# By options: what is read behind the newer cleaner and behind the older one.
BY_CLEANER = {
    (tuple(MEDQA), "empty", "A"): ["A"],
    (tuple(MEDQA), "no_match", "A"): ["The answer is A."],
    (tuple(MEDQA), "E", "E"): ["E"],
    (tuple(MEDQA), "no_match", "no_match"): ["I do not know"],
    (tuple(MEDQA), "empty", "empty"): ["?!"],
    (tuple(MEDMCQA), "no_match", "B"): ["(b)"],
    (tuple(MEDMCQA), "B", "B"): ["b:"],
    (tuple(MEDMNIST), "no_match", "B"): ["2"],
    (tuple(MEDMNIST), "B", "B"): ["2:"],
}


@each_row(("reply", "asked"), rows(BY_CLEANER))
def test_versions_of_the_cleaner_differ(reply, asked):
    options, *expected = asked
    assert [outcome(read(reply, options)) for read in OPTION] == expected


@VERSIONS
@pytest.mark.parametrize(
    ("reply", "letter"),
    [("benign", "A"), ("It is malignant", "B"), ("benign without", "C"), ("unclear", "A"), ("?!", "A"), ("", "A")],
)
def test_image_without_a_match_gets_the_first_class(version, reply, letter):
    assert RULES[version][1](reply, CBIS).value == letter


def test_eleventh_class_has_the_eleventh_letter():
    options = written_options(
        "{{ number }}: {{ text }}", [*ORGANS, "kidney right", "liver", "lung", "heart", "colon", "spleen"]
    )
    assert CLASS[0]("spleen", options).value == "K"
    assert CLASS[1]("11", options).value == "K"


def test_word_against_a_very_long_option_scores_nothing_in_single_precision():
    assert OPTION[0]("b", ["cyst", "b" + " word" * 102]).value == "B"
    assert OPTION[0]("b", ["cyst", "b" + " word" * 120]).reason is Reason.NO_MATCH


# Behind the newer cleaner and behind the older one.
VERDICTS = {
    ("A", "A"): ["yes", "maybe no yes"],
    ("B", "B"): ["No.", "No effect. No, and yes", "maybe no", "no\u00a0effect yes\u00a0but no", "no-no, yes"],
    ("C", "C"): ["Maybe, maybe not"],
    ("no_match", "A"): ["**Yes**"],
    ("no_match", "B"): ["Answer:no"],
    ("A", "no_match"): ["yes\tno"],
    ("no_match", "no_match"): ["nothing known"],
    ("empty", "no_match"): ["The"],
    ("empty", "empty"): ["..."],
}


@each_row(("reply", "expected"), rows(VERDICTS))
def test_yes_no_maybe(reply, expected):
    assert tuple(outcome(read(reply, ["yes", "no", "maybe"])) for read in YES_NO_MAYBE) == expected


def test_yes_no_maybe_by_text_and_not_by_place():
    options = ["maybe", "no", "yes"]
    newer, older = YES_NO_MAYBE
    assert newer("yes and no", options).value == "C"
    assert older("maybe", written_options("{{ letter }}: {{ text }}.", options)).value == "A"
    assert newer("maybe", ["yes", "no"]).reason is Reason.NO_MATCH


RELATIONS = {
    "A": ["entailment"],
    "B": ["Two contradictions."],
    "C": ["It is neutral, neutral!"],
    "no_match": ["Neutral", "contradicts"],
    "ambiguous": ["not entailment but neutral"],
}


@each_row(("reply", "expected"), rows(RELATIONS))
def test_nli_label_occurs_alone_and_with_case(reply, expected):
    assert outcome(multimedeval_nli(reply, ["entailment", "contradiction", "neutral"])) == expected


@given(reply=st.text(), options=st.lists(st.text(max_size=6), max_size=12))
def test_image_always_gets_a_class_and_a_question_only_with_a_match(reply, options):
    for read_option, read_class in RULES.values():
        found, classified = read_option(reply, options), read_class(reply, options)
        assert (classified.value is None) == (not options)
        assert found.value is None or found == classified
        assert found.reason in (Reason.OK, Reason.EMPTY, Reason.NO_MATCH)


NAMES = [
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
]
WORDS = st.sampled_from(["Mass", "mass", "Edema,", "a", "the", "Pleural_Thickening", "pleural", "Thickening.", "no"])
REPLIES = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=20)
CLEANERS = [*zip(LABELS, (clean_head, clean_v0_1_0), strict=True)]
# Behind the newer cleaner and behind the older one.
NAMED = {
    ("Mass", "Mass"): ["Mass", "mass."],
    ("Mass", ""): ["A mass.", "the mass"],  # the newer drops articles; one word of two is not above one half
    ("", "Mass"): ["Mass: "],  # the newer keeps the colon
    ("Pleural_Thickening", "Pleural_Thickening"): [
        *("Pleural_Thickening", "Pleural thickening"),
        "Right pleural thickening",  # two words of three
    ],
    ("", ""): [
        *("Mass, Edema", "mass mass", "No Finding", "masses", "..."),
        "Pleural",  # half of the label, and the penalty for shortness
        "There is pleural thickening",  # two words of four
    ],
}


@each_row(("reply", "expected"), rows(NAMED))
def test_labels_with_more_than_half_of_the_words(reply, expected):
    for read, name in zip(LABELS, expected, strict=True):
        assert read(reply, NAMES).value == tuple(int(label == name) for label in NAMES)


@pytest.mark.parametrize(("rule", "clean"), CLEANERS)
@given(reply=REPLIES)
def test_a_label_needs_more_than_half_of_the_replys_words(rule, clean, reply):
    """With labels of one word, BLEU-1 is above one half exactly when the reply is that word."""
    assert rule(reply, ["Mass", "Edema"]).value == tuple(
        int(clean(reply).split() == [name]) for name in ("mass", "edema")
    )


@pytest.mark.parametrize(("rule", "clean"), CLEANERS)
@given(reply=REPLIES)
def test_values_are_those_of_torchmetrics(rule, clean, reply):
    text = pytest.importorskip("torchmetrics.text")
    bleu = text.BLEUScore(n_gram=1)
    expected = tuple(int(bleu([clean(reply)], [[clean(name)]]) > 0.5) for name in NAMES[-3:])
    assert rule(reply, NAMES[-3:]).value == expected
