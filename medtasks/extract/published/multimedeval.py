"""MultiMedEval's two text cleaners, exactly as published, and its rules for questions and classes with each of them.

Source: https://github.com/corentin-ryr/MultiMedEval at d9ac283 (``head``) and v0.1.0: ``get_predicted_answer``
(``getPredictedAnswer`` in v0.1.0) in ``multimedeval/qa.py``, ``mnist.py``, ``image_classification.py``, ``mednli.py``
and ``chestxray14.py``, and the cleaners in ``multimedeval/utils.py``: ``clean_str`` at d9ac283 and in v0.1.1,
``cleanStr`` in v0.1.0. The versions differ in the cleaner alone, which is applied to replies, targets and options. The
published numbers for questions and image classification rest on the older one; ``chestxray14.py`` came after it.

``multimedeval_vqa_head`` is in :mod:`medtasks.extract.published.open_replies`.
"""

import re
import string
from collections.abc import Callable
from functools import lru_cache

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Extract, Reason, extractor
from medtasks.extract.reading.reply_text import answered_text, given_text
from medtasks.metrics.ngram_metrics import References

_MARKS = frozenset(';/[]"{}()=+\\_-><@`,?!')
_COUNTED = "zero one two three four five six seven eight nine ten"
NUMBERS = {"none": "0"} | {word: str(value) for value, word in enumerate(_COUNTED.split())}
_ARTICLES = frozenset(("a", "an", "the"))

_PUNCTUATION_TO_BLANK = str.maketrans(dict.fromkeys(string.punctuation, " "))
# The reference's table ``contractions``. Every entry but one restores a single apostrophe, so the full forms suffice;
# the other removes one. Left out are four entries with a capital, which never match lower case, and two without effect.
_FULL_FORMS = """
ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd've he'd he's
how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've o'clock
oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's someone'd
someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've there're there's
they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's what've when's
where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've wouldn't wouldn't've
y'all y'all'd've y'all'll you'd you'd've you'll you're you've
"""


def _contractions() -> dict[str, str]:
    """Return the full forms of words that lost an apostrophe."""
    full_forms = {}
    for word in _FULL_FORMS.split():
        for position, character in enumerate(word):
            if character == "'":
                full_forms[word[:position] + word[position + 1 :]] = word
    return full_forms | {"somebody'd": "somebodyd"}


CONTRACTIONS = _contractions()


def clean_head(text: str) -> str:
    """Clean a text as MultiMedEval does from v0.1.1 on.

    Lower case; 21 punctuation marks deleted if the text has the mark next to a blank, or a number with a comma
    anywhere, else replaced by blanks; the first 32 periods not before a digit deleted; number words up to ten in
    digits; articles dropped, also the letter A alone; apostrophes of contractions restored; single blanks. Colons,
    apostrophes, ``*``, ``#``, ``%``, ``&`` and others stay. The result may be empty.

    Example:
        >>> clean_head("The x-ray shows two masses.")
        'x ray shows 2 masses'
    """
    text = text.lower()
    has_number = re.search(r"\d,\d", text) is not None
    replacements = {}
    for mark in _MARKS.intersection(text):
        is_deleted = has_number or f"{mark} " in text or f" {mark}" in text
        replacements[ord(mark)] = "" if is_deleted else " "
    # The reference passes a regular expression flag, whose value is 32, where the number of replacements belongs.
    words = re.sub(r"\.(?!\d)", "", text.translate(replacements), count=32).split()
    numbered = (NUMBERS.get(word, word) for word in words)
    return " ".join(CONTRACTIONS.get(word, word) for word in numbered if word not in _ARTICLES)


def clean_v0_1_0(text: str) -> str:
    """Clean a text as MultiMedEval v0.1.0 did.

    Lower case; newlines become blanks; outer whitespace stripped, then ASCII punctuation replaced by blanks; runs of
    blanks become one. So one blank may lead or trail, and other whitespace stays. The result may be empty or a blank.

    Example:
        >>> clean_v0_1_0("The x-ray shows two masses.")
        'the x ray shows two masses '
    """
    line = text.lower().replace("\n", " ").strip()
    return re.sub(" +", " ", line.translate(_PUNCTUATION_TO_BLANK))


Cleaner = Callable[[str], str]
_WORDS = ("yes", "no", "maybe")  # of equally frequent words the earlier counts


def _in_both_versions(
    name: str,
    kind: AnswerKind,
    of: str,
    summary: str,
) -> Callable[[Extract], Extract]:
    """Register a function once for each cleaner, which it gets as ``clean``.

    Args:
        name: Name of the extractors without the version, which follows an underscore.
        kind: Kind of their answers.
        of: The questions they are for, for summaries.
        summary: What they read, for summaries.
    """

    def register(rule: Extract) -> Extract:
        """Register a function as two extractors, and return it as it is."""
        for version, clean, cleaner in (
            ("head", clean_head, "cleaner at d9ac283"),
            ("v0_1_0", clean_v0_1_0, "cleaner of v0.1.0"),
        ):
            whole = f"MultiMedEval, {of}, {cleaner}: {summary}"
            extractor(f"{name}_{version}", kind, whole, answered_text, clean=clean)(rule)
        return rule

    return register


@lru_cache(maxsize=4096)
def _references(clean: Cleaner, options: tuple[str, ...]) -> References:
    """Return cleaned options, prepared for BLEU, in their order."""
    return References(list(map(clean, options)))


@_in_both_versions("multimedeval_option", AnswerKind.CHOICE, "questions", "highest BLEU-1")
def closest_option(
    reply: str,
    sample: Sample,
    *,
    clean: Cleaner,
) -> Answer:
    """Read the first option with the highest BLEU-1 against the reply, in the form that the task compares."""
    cleaned = clean(reply)
    if not cleaned.strip():
        return Answer.invalid(Reason.EMPTY)
    scores = _references(clean, tuple(sample.options)).scores(cleaned)
    best = max(scores, default=0.0)
    return (
        Answer.ok(letter(scores.index(best))) if best > 0 else Answer.invalid(Reason.NO_MATCH)
    )


@_in_both_versions(
    "multimedeval_class", AnswerKind.CHOICE, "images", "highest BLEU-1, else the first class"
)
def closest_class(
    reply: str,
    sample: Sample,
    *,
    clean: Cleaner,
) -> Answer:
    """Read the class of an image: as an option, for example "1: adipose", and the first class if no word agrees."""
    answer = closest_option(reply, sample, clean=clean)
    return Answer.ok(letter(0)) if answer.value is None and sample.options else answer


@_in_both_versions(
    "multimedeval_yes_no_maybe",
    AnswerKind.CHOICE,
    "PubMedQA",
    "most frequent of yes, no, maybe",
)
def most_frequent_word(
    reply: str,
    sample: Sample,
    *,
    clean: Cleaner,
) -> Answer:
    """Read the word that the cleaned reply has most often, in a tie yes before no before maybe."""
    cleaned = clean(reply)
    if not cleaned.strip():
        return Answer.invalid(Reason.EMPTY)
    # Only at blanks: the older cleaner leaves tabs, and "yes\tno" is neither yes nor no.
    tokens = cleaned.split(" ")
    word = max(_WORDS, key=tokens.count)
    if word in tokens:
        for index, option in enumerate(sample.options):
            if word in clean(option).split():
                return Answer.ok(letter(index))
    return Answer.invalid(Reason.NO_MATCH)


@extractor(
    "multimedeval_nli",
    AnswerKind.CHOICE,
    "MultiMedEval, MedNLI: the one label in the reply",
    given_text,
)
def multimedeval_nli(reply: str, sample: Sample) -> Answer:
    """Read the one label whose text occurs in the reply, not cleaned, also inside words (the same in v0.1.0)."""
    named = [letter(index) for index, label in enumerate(sample.options) if label in reply]
    return Answer.only(named)


@_in_both_versions(
    "multimedeval_labels",
    AnswerKind.LABELS,
    "ChestX-ray14",
    "labels with a BLEU-1 above one half",
)
def close_labels(
    reply: str,
    sample: Sample,
    *,
    clean: Cleaner,
) -> Answer:
    """Read the labels whose BLEU-1, the share of the reply's words that the label has, is above one half."""
    scores = _references(clean, tuple(sample.options)).scores(clean(reply))
    return Answer.ok(tuple(int(score > 0.5) for score in scores))
