"""Words as NLTK parts them."""

import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from medtasks.errors import MedTasksError
from medtasks.metrics import overlaps as module
from medtasks.metrics.overlaps import word_tokens

from ..tables import each_row

PIECES = [
    *("lung", "No", "1", "2.5", "1,500", "9:39", "p.m", "T1-weighted", "isn't", "patient's", "can't've", "they'll"),
    *("WE'RE", "cannot", "gimme", "gonna", "Gotta", "lemme", "wanna", "d'ye", "more'n", "'tis", "'twas", "n't", "'s"),
    *("'ve", "a's's", "--", "...", "``", "''", "«", "»", "“", "”", "‘", "’", "„", "–", "—", "…", "é", "肺", "ſ"),
    *("\u00a0", "\u2028", "\x1c"),
]
TEXTS = st.lists(st.sampled_from([*PIECES, *string.punctuation, " ", " ", " ", "\n", "\t"]), max_size=14).map("".join)
PLAIN = st.lists(
    st.sampled_from([*PIECES[:16], " ", " ", ", ", ": ", "; ", ". ", "(", ")", "%", "-", "/"]), max_size=14
)


def nltk_words(text):
    tokenizer = NLTKWordTokenizer()
    return [word for sentence in re.split(r"(?<=[.!?])\s+", text) for word in tokenizer.tokenize(sentence)]


@settings(max_examples=400)
@given(TEXTS | PLAIN.map("".join) | st.text(max_size=20))
@example("Dr. Smith, 2.5 cm (series 2; image 4): 50%.")
@example("It isn't the patient's, they've said: can't've.")
@example("\"Stable,\" he said, 'no change'.")
def test_is_nltk_on_each_sentence(text):
    assert word_tokens(text) == nltk_words(text)


@each_row(
    "text, words",
    [
        ("", []),
        (" \n", []),
        ("Dr. Example was told at 9:39 p.m. Stable.", "Dr . Example was told at 9:39 p.m . Stable ."),
        ("Heart isn't enlarged", "Heart is n't enlarged"),
        ("yesterday's study, 1,500 ml", "yesterday 's study , 1,500 ml"),
        ("(grade 6/5).", "( grade 6/5 ) ."),
        ("We cannot say!", "We can not say !"),
        ('"Clear"', "`` Clear ''"),
        ("Épanchement modéré.", "Épanchement modéré ."),
    ],
)
def test_known_words(text, words):
    assert word_tokens(text) == (words.split() if isinstance(words, str) else words)


def test_long_texts():
    text = "No acute finding, " * 1700 + '"quoted".'
    assert len(word_tokens(text)) == 4 * 1700 + 4


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nltk.tokenize.destructive", None)
    module._sentence_words.cache_clear()
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        word_tokens("Clear.")
