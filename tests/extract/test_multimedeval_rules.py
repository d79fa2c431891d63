"""MultiMedEval's rules for questions, image classes, PubMedQA, MedNLI, and several labels."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from medtasks.extract.answer import Answer, Reason
from medtasks.extract.failure import failed_reply
from medtasks.extract.multimedeval import clean_head, clean_v0_1_0
from medtasks.families.family import written_options

from .reading import reading

RULES = {
    version: (reading(f"multimedeval_option_{version}"), reading(f"multimedeval_class_{version}"))
    for version in ("head", "v0_1_0")
}
multimedeval_option_head, multimedeval_class_head = RULES["head"]
_, multimedeval_class_v0_1_0 = RULES["v0_1_0"]
multimedeval_yes_no_maybe_head = reading("multimedeval_yes_no_maybe_head")
multimedeval_yes_no_maybe_v0_1_0 = reading("multimedeval_yes_no_maybe_v0_1_0")
multimedeval_nli = reading("multimedeval_nli")
VERSIONS = pytest.mark.parametrize("version", RULES)
ORGANS = ["aortic arch", "bladder", "femur left", "femur right", "kidney left"]
MEDQA = written_options("{letter} {text}", ORGANS)
MEDMCQA = written_options("{lower}: {text}.", ORGANS)
MEDMNIST = written_options("{number}: {text}", ORGANS)
CBIS = ["BENIGN", "MALIGNANT", "BENIGN_WITHOUT_CALLBACK"]
YES_NO_MAYBE = ["yes", "no", "maybe"]
LABELS = ["entailment", "contradiction", "neutral"]


@VERSIONS
def test_golden_multimedeval_choice(golden, version):
    lines = (golden / "multimedeval_choice.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert len(cases) >= 400
    read_option, read_class = RULES[version]
    for case in cases:
        recorded, options = case[version], case["options"]
        letter = chr(ord("A") + recorded["index"])
        assert read_class(case["reply"], options) == Answer.ok(letter), case
        answer = read_option(case["reply"], options)
        assert answer.value == (None if recorded["all_zero"] else letter), case


@VERSIONS
@pytest.mark.parametrize(
    ("reply", "letter"),
    [("Bladder", "B"), ("The answer is: femur, right.", "D"), ("B bladder", "B"), ("left", "C"), ("femur", "C")],
)
def test_closest_option_and_of_equals_the_first(version, reply, letter):
    assert RULES[version][0](reply, MEDQA).value == letter


@pytest.mark.parametrize(
    ("reply", "options", "head", "v0_1_0"),
    [
        ("A", MEDQA, Reason.EMPTY, "A"),
        ("The answer is A.", MEDQA, Reason.NO_MATCH, "A"),
        ("E", MEDQA, "E", "E"),
        ("(b)", MEDMCQA, Reason.NO_MATCH, "B"),
        ("b:", MEDMCQA, "B", "B"),
        ("2", MEDMNIST, Reason.NO_MATCH, "B"),
        ("2:", MEDMNIST, "B", "B"),
        ("I do not know", MEDQA, Reason.NO_MATCH, Reason.NO_MATCH),
    ],
)
def test_versions_of_the_cleaner_differ(reply, options, head, v0_1_0):
    for expected, version in ((head, "head"), (v0_1_0, "v0_1_0")):
        answer = RULES[version][0](reply, options)
        assert answer == (Answer.invalid(expected) if isinstance(expected, Reason) else Answer.ok(expected))


@VERSIONS
@pytest.mark.parametrize(
    ("reply", "letter"),
    [("benign", "A"), ("It is malignant", "B"), ("benign without", "C"), ("unclear", "A"), ("?!", "A"), ("", "A")],
)
def test_image_without_a_match_gets_the_first_class(version, reply, letter):
    assert RULES[version][1](reply, CBIS).value == letter


def test_eleventh_class_has_the_eleventh_letter():
    options = written_options(
        "{number}: {text}", [*ORGANS, "kidney right", "liver", "lung", "heart", "colon", "spleen"]
    )
    assert multimedeval_class_head("spleen", options).value == "K"
    assert multimedeval_class_v0_1_0("11", options).value == "K"


def test_word_against_a_very_long_option_scores_nothing_in_single_precision():
    assert multimedeval_option_head("b", ["cyst", "b" + " word" * 102]).value == "B"
    assert multimedeval_option_head("b", ["cyst", "b" + " word" * 120]).reason is Reason.NO_MATCH


@VERSIONS
@pytest.mark.parametrize("reply", [None, "", " \n", "?!"])
def test_reply_without_words_is_empty(version, reply):
    assert RULES[version][0](reply, MEDQA) == Answer.invalid(Reason.EMPTY)


@pytest.mark.parametrize(
    ("reply", "head", "v0_1_0"),
    [
        ("yes", "A", "A"),
        ("No.", "B", "B"),
        ("Maybe, maybe not", "C", "C"),
        ("No effect. No, and yes", "B", "B"),
        ("maybe no yes", "A", "A"),
        ("maybe no", "B", "B"),
        ("**Yes**", Reason.NO_MATCH, "A"),
        ("Answer:no", Reason.NO_MATCH, "B"),
        ("yes\tno", "A", Reason.NO_MATCH),
        ("no\u00a0effect yes\u00a0but no", "B", "B"),
        ("no-no, yes", "B", "B"),
        ("nothing known", Reason.NO_MATCH, Reason.NO_MATCH),
        ("The", Reason.EMPTY, Reason.NO_MATCH),
        ("...", Reason.EMPTY, Reason.EMPTY),
        (None, Reason.EMPTY, Reason.EMPTY),
    ],
)
def test_yes_no_maybe(reply, head, v0_1_0):
    rules = ((head, multimedeval_yes_no_maybe_head), (v0_1_0, multimedeval_yes_no_maybe_v0_1_0))
    for expected, read in rules:
        answer = read(reply, YES_NO_MAYBE)
        assert expected in (answer.value, answer.reason), (read.__name__, answer)


def test_yes_no_maybe_by_text_and_not_by_place():
    options = ["maybe", "no", "yes"]
    assert multimedeval_yes_no_maybe_head("yes and no", options).value == "C"
    assert multimedeval_yes_no_maybe_v0_1_0("maybe", written_options("{letter}: {text}.", options)).value == "A"
    assert multimedeval_yes_no_maybe_head("maybe", ["yes", "no"]).reason is Reason.NO_MATCH


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("entailment", "A"),
        ("Two contradictions.", "B"),
        ("It is neutral, neutral!", "C"),
        ("Neutral", Reason.NO_MATCH),
        ("contradicts", Reason.NO_MATCH),
        ("not entailment but neutral", Reason.AMBIGUOUS),
        ("  \n", Reason.EMPTY),
        (None, Reason.EMPTY),
    ],
)
def test_nli_label_occurs_alone_and_with_case(reply, expected):
    answer = multimedeval_nli(reply, LABELS)
    assert expected in (answer.value, answer.reason)


@VERSIONS
@pytest.mark.parametrize("kind", [0, 1], ids=["option", "class"])
def test_failed_sample_is_no_first_class(version, kind):
    reply = failed_reply("out of memory: benign")
    assert RULES[version][kind](reply, CBIS) == Answer.invalid(Reason.ADAPTER_FAILED)


@given(reply=st.text(), options=st.lists(st.text(max_size=6), max_size=12))
def test_image_always_gets_a_class_and_a_question_only_with_a_match(reply, options):
    for read_option, read_class in RULES.values():
        found, classified = read_option(reply, options), read_class(reply, options)
        assert (classified.value is None) == (not options)
        assert found.value is None or found == classified
        assert found.reason in (Reason.OK, Reason.EMPTY, Reason.NO_MATCH)


multimedeval_labels_head = reading("multimedeval_labels_head")
multimedeval_labels_v0_1_0 = reading("multimedeval_labels_v0_1_0")
NAMES = [
    *("Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax"),
    *("Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia"),
]
WORDS = st.sampled_from(["Mass", "mass", "Edema,", "a", "the", "Pleural_Thickening", "pleural", "Thickening.", "no"])
REPLIES = st.lists(WORDS, max_size=6).map(" ".join) | st.text(max_size=20)
CLEANERS = [(multimedeval_labels_head, clean_head), (multimedeval_labels_v0_1_0, clean_v0_1_0)]


def named(reply, rule=multimedeval_labels_head):
    return [name for name, value in zip(NAMES, rule(reply, NAMES).value, strict=True) if value]


@pytest.mark.parametrize(
    ("reply", "head", "older"),
    [
        ("Mass", ["Mass"], ["Mass"]),
        ("mass.", ["Mass"], ["Mass"]),
        ("A mass.", ["Mass"], []),  # the newer cleaner drops articles; one word of two is not above one half
        ("the mass", ["Mass"], []),
        ("Mass, Edema", [], []),
        ("Mass: ", [], ["Mass"]),  # the newer cleaner keeps the colon
        ("mass mass", [], []),
        ("Pleural_Thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),
        ("Pleural thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),
        ("Pleural", [], []),  # half of the label, and the penalty for shortness
        ("Right pleural thickening", ["Pleural_Thickening"], ["Pleural_Thickening"]),  # two words of three
        ("There is pleural thickening", [], []),  # two words of four
        ("No Finding", [], []),
        ("masses", [], []),
        ("", [], []),
        ("...", [], []),
        (None, [], []),
    ],
)
def test_labels_with_more_than_half_of_the_words(reply, head, older):
    assert (named(reply), named(reply, multimedeval_labels_v0_1_0)) == (head, older)


@pytest.mark.parametrize(("rule", "clean"), CLEANERS)
@given(reply=REPLIES)
def test_a_label_needs_more_than_half_of_the_replys_words(rule, clean, reply):
    """With labels of one word, BLEU-1 is above one half exactly when the reply is that word."""
    assert rule(reply, ["Mass", "Edema"]).value == tuple(
        int(clean(reply).split() == [name]) for name in ("mass", "edema")
    )


@pytest.mark.parametrize(("rule", "clean"), CLEANERS)
@given(reply=REPLIES)
@settings(deadline=None)  # the first call imports torch
def test_values_are_those_of_torchmetrics(rule, clean, reply):
    text = pytest.importorskip("torchmetrics.text")
    bleu = text.BLEUScore(n_gram=1)
    expected = tuple(int(bleu([clean(reply)], [[clean(name)]]) > 0.5) for name in NAMES[-3:])
    assert rule(reply, NAMES[-3:]).value == expected
