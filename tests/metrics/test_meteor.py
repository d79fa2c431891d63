"""METEOR against NLTK and published values."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate import meteor_score as nltk_meteor

from medtasks.metrics.meteor import meteor_score, prepare_wordnet
from medtasks.metrics.report_metrics import report_metric

from .guide_to_action import BAD, GOOD, REFERENCES
from .wordnet_sources import ListedSynonyms, wordnet_files, write_wordnet

SYNONYMS = {
    "larg": {"large", "big"},
    "big": {"larg", "big"},
    "lung": {"x"},
    "x": {"lung", "no", "y"},
    "y": {"x", "lung"},
}
WORDS = st.lists(
    st.sampled_from(["Large", "larger", "big", "lung", "Lungs", "x", "y", "no", "No", ".", "İ"]), max_size=14
)


@given(WORDS, WORDS)
def test_is_nltk_to_the_bit(reference, hypothesis):
    """Whatever was cached of stems."""
    for synonyms in ({}, SYNONYMS):
        wordnet = ListedSynonyms(synonyms)
        theirs = nltk_meteor.meteor_score([reference], hypothesis, wordnet=wordnet)
        assert meteor_score(reference, hypothesis, wordnet if synonyms else None) == theirs


def test_published_values_of_nltk():
    reference = REFERENCES[0].split()
    assert meteor_score(reference, GOOD.split()) == 0.6944444444444445
    assert meteor_score(reference, BAD.split()) == 0.3035391371738569
    assert meteor_score(["this", "is", "a", "cat"], ["non", "matching", "hypothesis"]) == 0


def test_each_step_finds_what_the_one_before_left():
    assert meteor_score(["Opacities"], ["opacities"]) == 0.5
    assert meteor_score(["opacities"], ["opacity"]) == 0.5
    assert meteor_score(["nodule"], ["tubercle"]) == 0
    assert meteor_score(["nodul"], ["lump"], ListedSynonyms({"lump": ["nodul"]})) == 0.5
    # NLTK compares stems in the last step, so that the word itself does not match.
    assert meteor_score(["nodule"], ["lump"], ListedSynonyms({"lump": ["nodule"]})) == 0


def test_order_and_length_count():
    words = ["no", "left", "pleural", "effusion"]
    assert meteor_score(words, words) == 1 - 0.5 / 4**3
    assert meteor_score(words, words[::-1]) == 0.5
    assert meteor_score(words, words[:2]) < meteor_score(words[:2], words)  # recall weighs more


def test_long_texts():
    words = [f"word{number % 700}" for number in range(5000)]
    assert meteor_score(words, words) == pytest.approx(1)
    assert 0 < meteor_score(words, words[::-1]) < 1


def test_metric_with_wordnet(tmp_path):
    prepare_wordnet(write_wordnet(tmp_path / "dict", wordnet_files()))
    references = ["They travel.", "Lungs are large.", "", "left", "Épanchement"]
    hypotheses = ["They go.", "Lungs are large.", "left", "", "Épanchement"]
    with_synonyms = report_metric("meteor")(references=references, hypotheses=hypotheses)
    without = report_metric("meteor_without_synonyms")(references=references, hypotheses=hypotheses)
    found, plain = with_synonyms.samples["meteor"], without.samples["meteor_without_synonyms"]
    assert found == [1 - 0.5 / 3**3, 1 - 0.5 / 4**3, 0, 0, 0.5]
    assert plain == [pytest.approx(2 / 3 * (1 - 0.5)), *found[1:]]
    assert with_synonyms.totals["meteor"] == pytest.approx(sum(found) / 5)
    assert (with_synonyms.settings["synonyms"], without.settings["synonyms"]) == ("WordNet 3.0", "none")
    assert "NLTKWordTokenizer" in with_synonyms.settings["words"] == without.settings["words"]
