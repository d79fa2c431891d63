"""Words as NLTK parts them, token overlap, and when an answer counts as right."""

import re
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer

from medtasks.errors import MedTasksError
from medtasks.metrics import ngram_metrics
from medtasks.metrics.ngram_metrics import closed_correct, is_closed, open_correct, token_overlap, word_tokens

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


@settings(max_examples=400)
@given(TEXTS | PLAIN.map("".join) | st.text(max_size=20))
@example("Dr. Smith, 2.5 cm (series 2; image 4): 50%.")
@example("It isn't the patient's, they've said: can't've.")
@example("\"Stable,\" he said, 'no change'.")
def test_is_nltk_on_each_sentence(text):
    tokenizer = NLTKWordTokenizer()
    words = [word for sentence in re.split(r"(?<=[.!?])\s+", text) for word in tokenizer.tokenize(sentence)]
    assert word_tokens(text) == words


def test_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "nltk.tokenize.destructive", None)
    ngram_metrics._sentence_words.cache_clear()
    with pytest.raises(MedTasksError, match=r"pip install 'medtasks\[report\]'"):
        word_tokens("Clear.")


@each_row(
    "reply, target, precision, recall, f1",
    [
        ({"left", "lobe"}, {"left", "lobe"}, 1, 1, 2 / (2 + 1e-8)),  # equal sets stay below one
        ({"the", "left", "lower", "lobe"}, {"left"}, 0.25, 1, 0.5 / (1.25 + 1e-8)),
        *(
            (reply, target, 0, 0, 0)
            for reply, target in ((set(), {"a"}), ({"a"}, set()), (set(), set()), ({"b"}, {"a"}))
        ),
    ],
)
def test_token_overlap(reply, target, precision, recall, f1):
    overlap = token_overlap(reply, target)
    assert (overlap.precision, overlap.recall) == (precision, recall)
    assert overlap.f1 == pytest.approx(f1, abs=1e-15)


@each_row(
    "reply, target, right",
    [
        *((reply, "no", True) for reply in ({"no"}, {"not", "seen"}, {"no", "not"}, {"yes", "no"})),
        *((reply, "no", False) for reply in ({"none"}, set())),
        *((reply, "yes", "yes" in reply) for reply in ({"not"}, {"yes"}, {"yes", "no"})),
    ],
)
def test_closed_correct(reply, target, right):
    assert closed_correct(reply, target) is right
    assert [key for key in ("yes", "no", "not", "Yes", "", "yes left") if is_closed(key)] == ["yes", "no"]
    assert [open_correct(recall) for recall in (0.75, 0.7499, 1.0, 0.0)] == [True, False, True, False]
