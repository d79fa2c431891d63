"""The chosen option, as a careful reader accepts it.

Of a reply in JSON only the answer's field is read. The rule goes from strong evidence to weak and stops at the first
step that finds something:

1. the whole reply is letters, or one option's text, with or without its letter;
2. the last line, if it is "Answer: ...";
3. a declared answer, by letter or text ("the answer is (B)", "the diagnosis given the CT is sepsis", "B is correct");
   "final answer" comes first, and what follows "wait" or "actually" replaces it;
4. a leading letter with punctuation ("B) effusion"), or a letter alone on its line; in a discussion of one option after
   the other ("A. Aspirin: no") the one that is called correct;
5. a sentence that is one option's text or calls it the best; else a refusal ("cannot be determined");
6. a named or bracketed letter ("option B", "(B)"), then a bare capital at the end of a phrase, if it is not denied;
7. the text of exactly one option, if it is not denied ("warfarin is contraindicated").

Two options on one step ("A. Aspirin or B. Warfarin") are ambiguous, as is a letter next to another option's text.
Reasoning blocks, markup, a repeated option list and everything after an invented next question are not read. The
article of "A normal brain" and the letters of "N/A", "4 degrees C" and "E. coli" are no options.
"""

import re
from collections.abc import Sequence

from medtasks.data.option_texts import without_marks
from medtasks.data.samples import Sample
from medtasks.data.samples import letter as letter_of
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.negation import Stance, clauses, stances_of
from medtasks.extract.reading.option_names import (
    LEADS,
    PRAISE,
    bare_letters,
    declared_letters,
    equal_option,
    lacks,
    leading_letters,
    leading_option,
    named_letters,
    names_alternatives,
    normalised,
    one_of,
    only_letters,
    options_named,
    spelled,
    whole_option,
    without_echo,
    without_names,
)
from medtasks.extract.reading.reply_text import REFUSAL, SENTENCES, declared, own_words

_LABEL = re.compile(r"[\s\"'(\[]*(?:option\s+)?[a-z][)\]\"']*\s*(?:[:.)=\-–,]|\s(?=\())\s*", re.IGNORECASE)
_ARTICLE = re.compile(r"[\s\"'(\[]*(?:(?:an?|the|to)\s+)?", re.IGNORECASE)
_CORRECT = re.compile(
    r"(?i)\b(?:(?:correct|true)(?=\s*(?:$|[^\w\s]|(?:answer|option|choice|because|since|as)\b))|yes\b|"
    r"(?:right|best) (?:answer|option|choice)\b)"
)
_CONCLUSION = re.compile(r"(?i)\n\s*(?:\n|(?:so|thus|therefore|hence|overall|in conclusion|the\b[^\n]{0,20} answer)\b)")
_NEAR = 400  # characters from a lead-in in which the option's text begins and ends


def _beginning(near: str, options: Sequence[str]) -> set[int]:
    """Return the option with the longest text that ``near`` begins with, or that its first words begin."""
    article = _ARTICLE.match(near)
    beginnings = {f"{normalised(near)} ", f"{normalised(near[article.end() if article else 0 :])} "}
    plain = [normalised(option) for option in options]
    sentence = normalised(re.split(r"[.;:?!\n]", near)[0]).join("  ")
    if " or " in sentence and sum(f" {option} " in sentence for option in plain if option) > 1:  # a choice still open
        return set()
    matching = [
        index
        for index, option in enumerate(plain)
        if option and any(words.startswith(f"{option} ") for words in beginnings)
    ]
    if matching:
        longest = max(len(plain[index]) for index in matching)
        return {index for index in matching if len(plain[index]) == longest}
    first = normalised(re.split(r"[.,;:\n]", near.strip())[0])
    begun = {index for index, option in enumerate(plain) if " " in first and option.startswith(f"{first} ")}
    return begun if len(begun) == 1 else set()


def _chosen_options(text: str, options: Sequence[str]) -> set[int]:
    """Return the options that are a sentence of the reply or are called the best: "Warfarin. It is", "B is correct"."""
    sentences = [equal_option(sentence, options) for sentence in SENTENCES.split(text)]
    named = [
        index for index, option in enumerate(options) if normalised(option) and not lacks(text, normalised(option))
    ]
    parts = clauses(text) if named and re.search(PRAISE, text, re.IGNORECASE) else []
    chosen = {index for index in sentences if index is not None}
    for index in named if parts else ():
        words = spelled(normalised(options[index]))
        praise = re.compile(rf"\b{words}[)\"']*\s+(?:is|are|would be|seems){PRAISE}", re.IGNORECASE)
        chosen |= {index} if Stance.AFFIRMED in stances_of(praise, parts) else set()
    return chosen


def discussion(text: str, letters: Sequence[str], options: Sequence[str]) -> tuple[set[str], str] | None:
    """Read lines on one option each: the letters they call correct, and the reply without them; None without any."""
    label = re.compile(
        rf"^[ \t]*(?:[-•*]\s*)?(?:option\s+)?[(\[\"']*({one_of(letters)})[)\]\"']*\s*[.:)–-][ \t]*\S",
        re.IGNORECASE | re.MULTILINE,
    )
    lines = [match for match in label.finditer(text) if match[1].isascii()]
    order = [match[1].upper() for match in lines]
    if len(set(order)) < 2:
        return None
    starts = [match.start() for match in lines]
    explained, *others = [text[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
    follows = letters.index(order[1]) == letters.index(order[0]) + 1
    is_answered = starts[0] == 0 and (
        order[0] in order[1:] or not follows or ("\n\n" in explained and "\n\n" not in others[0])
    )
    conclusion = _CONCLUSION.search(text, starts[-1])
    ends = [*starts[1:], conclusion.start() if conclusion else len(text)]
    items = list(zip(order, starts, ends, strict=True))[is_answered:]
    correct = set()
    for letter, start, end in items:
        item, option = text[start:end], options[letters.index(letter)]
        if _CORRECT.search(item):
            item = whole_option(option).sub(" ", item, count=1) if normalised(option) else item  # also an option's word
            correct |= {letter} if stances_of(_CORRECT, clauses(item)) == {Stance.AFFIRMED} else set()
    return set() if is_answered else correct, f"{text[: items[0][1]]}\n{text[items[-1][2] :]}".strip()


_QUESTION = re.compile(r"\bWhat is the correct answer\?\s*", re.IGNORECASE)
_FINAL = re.compile(r"\bfinal\s+(?:answer|choice|option)", re.IGNORECASE)
_CLOSING = re.compile(
    r"(?i)\n\W*(?:(?:the|so|thus|therefore|hence|my|final|correct|best)\b[, ]*)*answer\s*(?:is\s*)?:\s*(\S[^\n]*)\Z"
)
_CORRECTION = re.compile(
    r"(?i)\b(?:wait|actually|on second thoughts?|correction|re-?(?:consider|evaluat|examin|check)\w*|mistake|"
    r"however)\b"
)
_IN_CHINESE = re.compile(
    r"(?:答案(?:应该|应当|应)?(?:是|为|选|:)|(?<![不别未])选(?!项)(?:择)?(?:的是|是|为|:)?)\s*:?\s*(?:选项)?\s*[(\[\"']*"
    r"([A-Za-z])(?![A-Za-z']|\s*[或和与及/]\s*[A-Za-z])"
)
_LABELLED = re.compile(r"[\s\"'(\[]*([a-z])[)\]\"']*\s*[:.)]\s*(.+)", re.IGNORECASE | re.DOTALL)


@extractor("robust_choice", AnswerKind.CHOICE, "letters, texts and refusals, read with care", own_words, version=5)
def robust_choice(reply: str, sample: Sample) -> Answer:
    """Read the chosen option from a reply; a sample without options has A and B with unknown texts."""
    return _read_own(reply, sample)


def _read_own(text: str, sample: Sample) -> Answer:
    bare = without_marks(sample.options) if sample.dataset is None else None  # published options stay as they are
    options = bare or sample.options or ("", "")
    letters = [letter_of(index) for index in range(len(options))]
    text = without_echo(text, letters, options)
    if not text:
        return Answer.invalid(Reason.AMBIGUOUS)
    # A letter names its option even where another option's text is that letter.
    return _read(text, letters, ["" if normalised(option).upper() in letters else option for option in options])


@extractor("robust_kit_choice", AnswerKind.CHOICE, "robust_choice; letters as options, Chinese", own_words, version=4)
def robust_kit_choice(reply: str, sample: Sample) -> Answer:
    """Read as :func:`robust_choice`, also an option's letter with a letter as its text, and Chinese declarations."""
    named = {letter_of(index): normalised(option) for index, option in enumerate(sample.options)}
    label = _LABELLED.fullmatch(reply)
    if label and named.get(label[1].upper(), "") == normalised(label[2]) != "":
        return Answer.ok(label[1].upper())
    chinese = set() if reply.isascii() else {letter.upper() for letter in _IN_CHINESE.findall(reply)} & named.keys()
    return Answer.only(chinese) if chinese else _read_own(reply, sample)


def _read(text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    before, *after = _QUESTION.split(text)
    if after:  # a base model's answer comes before it repeats the question; what follows is invented
        first = only_letters(before, letters) or declared_letters(before, letters) or leading_letters(before, letters)
        text = before if first else "\n".join(after)
    only, whole, labelled = only_letters(text, letters), equal_option(text, options), set[str]()
    label = _LABELLED.fullmatch(text)  # "a: text" is its own letter, and the option whose text it is
    if label and (index := equal_option(label[2], options)) is not None:
        labelled = {label[1].upper(), letters[index]}
    if labelled or (whole is not None and len(only) != 1):
        return _settle(labelled or {letters[whole or 0]}, text, letters, options)
    closing = _CLOSING.search(text)
    if closing and (last := _read(closing[1], letters, options)).reason in (Reason.OK, Reason.AMBIGUOUS):
        return last

    def option_after(lead: re.Match[str]) -> set[int]:  # "the answer is warfarin", "Answer: (b) Heparin"
        near = text[lead.end() : lead.end() + _NEAR]
        label = _LABEL.match(near)
        return _beginning(near, options) or (_beginning(near[label.end() :], options) if label else set())

    claims = without_names(text, letters)
    stated = declared_letters(claims, letters) | {letters[index] for index in declared(LEADS, text, option_after)}
    if stated and not _FINAL.search(text):
        stated |= only_letters(text.split("\n")[0], letters)
    corrections = list(_CORRECTION.finditer(claims)) if stated else []
    if corrections and (len(stated) > 1 or corrections[-1][0].casefold() != "however"):
        stated = declared_letters(claims[corrections[-1].end() :], letters) or stated
    if only or stated:
        return _settle(only or stated, text, letters, options)
    talk = discussion(claims, letters, options)
    correct, remainder = talk or (set(), claims)
    leading = leading_letters(remainder, letters) | correct
    if leading:
        return _settle(leading, text, letters, options)
    chosen = {letters[index] for index in _chosen_options(text, options)}
    if not chosen and REFUSAL.search(text):
        return Answer.invalid(Reason.REFUSED)
    if not chosen and not names_alternatives(remainder, letters):
        chosen = named_letters(remainder, letters) or bare_letters(remainder, letters)
        if not chosen and not talk:
            by_text = options_named(text, options) or leading_option(text, options)
            chosen = {letters[index] for index in by_text}
            if not chosen:
                return Answer.invalid(Reason.NO_MATCH)
    return _settle(chosen, text, letters, options) if chosen else Answer.invalid(Reason.AMBIGUOUS)


def _settle(chosen: set[str], text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    """Accept a single letter unless the words after it are another option's text."""
    if len(chosen) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    (letter,) = chosen
    after = re.sub(rf"^\W*{letter}\W+", "", text, count=1, flags=re.IGNORECASE)
    other = equal_option(after.split("\n")[0], options)
    if after != text and other is not None and letters[other] != letter:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter)
