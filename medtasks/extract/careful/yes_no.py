"""Yes, no and maybe in any language, as a careful reader accepts them.

The verdict is what a reply begins with ("Yes, ..."), declares ("the answer is no", "Diagnose: ja"), or gives in a
sentence of its own ("So, yes."); a declared *final* answer overrules the others. "No significant difference" is no
verdict: it means "no" to one question and "yes" to another. "Not sure" and "I don't know" are refusals, "yes and no"
and "[Yes/No]" are ambiguous. "Perhaps", "uncertain", "inconclusive" and the like are maybe, which is ambiguous for a
closed question about an image. What a model says of itself is no part of its answer.

A closed question is also answered by "true", "present" or "it is not" alone, and by a statement about what it asks:
"There is no fracture." is "no" to "Is there a fracture?", and no match to "Is the bone intact?" or where the question
is unknown. A statement has to name all that the question asks for, or at least its main word and nothing else; a denial
nothing but what the question asks for. Statements about images in general, or about what cannot be told, answer
nothing. Of words of one kind only the stems are compared, of languages without blanks parts of the text.
"""

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from os.path import commonprefix
from typing import NamedTuple

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import (
    Signal,
    all_languages,
    languages_of,
    pattern_of,
    signals_in,
    words_of,
)
from medtasks.extract.reading.negation import ENGLISH, Mention, Stance, clauses, stance
from medtasks.extract.reading.reply_text import SENTENCES, own_words, with_plain_characters
from medtasks.extract.reading.stems import words

_NEAR = 160  # characters before a verdict that may declare it
_VERDICTS = ("yes", "no", "maybe")
_SURE = (
    r"(?:(?:(?:most|very|quite)\s+)?(?:likely|probably|definitely|certainly|absolutely|clearly|generally|overall|"
    r"in general|so|thus|therefore|hence|in short|in conclusion|in summary|finally|then|simply)\b[,:]?\s+)*"
)
_SUBJECT = (
    r"(?:it|there|the|this|that|these|those|they|he|she|we|you|i|because|since|as|indeed|of course|a|an|both|all|"
    r"neither|patients|in|at|but|according|based|although|however|though)\b"
)
_NOUN = r"(?:answer|conclusion|verdict|response|result|decision|choice|option)"
_LINK = (
    r"[\"']?\s*(?:to (?:the|this|your|that) question\s*)?(?:here\s*)?"
    r"(?:(?:is|was|would be|should be|must be)\b|:|=|->|→)"
)
_CHOOSES = (
    r"(?:i|i'd|i would|i will)\s+(?:say|answer|think|believe|conclude|choose|go with)(?:\s+that)?"
)
_FINAL = re.compile(rf"\bfinal\s+{_NOUN}{_LINK}\W*{_SURE}\Z", re.IGNORECASE)
_OPENING = re.compile(rf"\W*{_SURE}", re.IGNORECASE)
_ENDS_LINE = re.compile(r"\W*?(?:[.\n]|\Z)")
_ECHO = re.compile(
    r"(?i)(?:please\s+)?answer (?:the |this )?(?:following )?question with (?:either )?[\"']?yes[\"']?,? (?:or )?"
    r"[\"']?no[\"']?(?:,? or [\"']?maybe[\"']?)?\W*"
)
# "No, I cannot answer that" declines, "No, I cannot see a fracture" does not.
_OWN_LIMIT = re.compile(
    r"(?i)\bi(?:'m| am)? (?:cannot|can't|can not|unable to|not able to)\s+(?:\w+ly\s+)?(?:answer|help|assist|provide|"
    r"determine|tell|say|interpret|view|analy[sz]e|assess|diagnose)\b"
)
_IT_IS = r"(?:it|there|this|that|they) (?:is|are|does|do|has|have)"
_CERTAINLY = "(?:definitely|certainly|absolutely|of course|sure)"
_SHORT = {
    "yes": re.compile(
        rf"(?:(?:it's|that's|this is) )?(?:true|present)|(?:(?:yes|{_CERTAINLY}) )?{_IT_IS}|{_CERTAINLY}"
    ),
    "no": re.compile(
        rf"(?:(?:it's|that's|this is) )?(?:false|absent|none|not (?:present|seen|visible))|there (?:is|are) none|"
        rf"(?:no )?{_IT_IS}(?: not|n't)|(?:\w+ly )?not(?: that i can see| seen)?"
    ),
}
_NOT_SIMPLE = re.compile(r"(?i)\A\W*(?:wh\w+|how)\b|\b(?:absent|absence|free|clear|exclud\w+)\b")
_PART = r"(?:chest|brain|head|abdom\w+|pelvi\w+|spine|neck|lung|liver|hist\w+|patholog\w+|axial|mri?|ct|x-?ray)"
# The whole image is no part of what is asked about it: "in the chest x-ray".
_IMAGE = re.compile(
    rf"(?i)\b(?:(?:in|on|from|according to|based on)\s+)?(?:the|this|that|an?)\s+((?:ab)?normal\s+)?"
    rf"(?:{_PART}\s+){{0,3}}(?:images?|pictures?|photo\w*|x-?rays?|radiographs?|scans?|films?|studies|study|slides?|mri|ct)\b"
)
# Clauses about images in general, or about what is not said.
_NO_STATEMENT = re.compile(
    r"(?i)\b(?:would|may|might|could|perhaps|maybe|typically|usually|generally|sometimes|some cases|used (?:to|for)|"
    r"whether|if|not (?:\w+ly )?(?:mention|state|specif|describ|provid)\w*|(?:difficult|hard) to)\b"
)
_TELLS_NOTHING = (
    "plain common article present absent not not_after uncertain likely "
    "yes no maybe and or but except refusal"
)
_GAP = re.compile(r"[\W_]+")
_WITHOUT_BLANKS = re.compile("[\u0e00-\u9fff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_SENTENCE_ENDS = re.compile(rf"{SENTENCES.pattern}|(?<=(?-i:[\u0e00-\ud7af]))\.\s*")
_CAPITAL = re.compile(r"(?<=\s)(?=[^\W\d_a-zß-ÿ])")
_OPPOSITES = {"normal": "abnormal", "abnormal": "normal"}


@cache
def _after_verdict() -> re.Pattern[str]:
    """Return a pattern of what may follow a verdict: not the noun of "no fracture", nor the number of "no. 2"."""
    joined = pattern_of("and or").pattern
    answers = pattern_of("yes no maybe").pattern
    second = rf"\s+(?:(?:{joined})\s+(?:{answers})|(?:yes|no|maybe|not)\b)"
    return re.compile(
        rf"\W*$|\s*[,;:!?()\]/|\"'\n]|\.(?!\d)(?!\s*\d+\b)|\s*[-–—]+\s|\s+{_SUBJECT}|{second}",
        re.IGNORECASE,
    )


@cache
def _declaring(*, is_last: bool) -> re.Pattern[str]:
    """Return a pattern of the text before a verdict that it declares; of more if the verdict is last in its line."""
    denial = pattern_of("not not_after").pattern
    leads = [
        rf"\b(?:{_NOUN}{_LINK}|{_CHOOSES})\W*{_SURE}",
        rf"(?:{pattern_of('answer').pattern})(?:\s+(?!{denial})\w+){{0,2}}[\s:\"是为は]+",
    ]
    if is_last:
        leads += [r"(?:\A|\n)[^:\n]{1,60}:\W*", rf"(?:{pattern_of('final').pattern})[\s,:]+"]
    return re.compile(rf"(?:{'|'.join(leads)})\Z", re.IGNORECASE)


@cache
def _second() -> re.Pattern[str]:
    joint, verdicts = pattern_of("and or").pattern, pattern_of("yes no maybe").pattern
    return re.compile(
        rf"(?i)\W*(?:[,/|(]|{joint}|&|\s)\W*(?:also\s+)?({verdicts}|not\b)(?=\W*$|\s*[.,;:!?/|)\n]|\s+(?:{joint}))"
    )


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    return _GAP.sub(" ", with_plain_characters(text)).strip().casefold()


def plain_verdict(text: str) -> str | None:
    """Return "yes", "no" or "maybe" where a text is nothing but this word, in any language."""
    word = _plain(text)
    return next((role for role in _VERDICTS if pattern_of(role).fullmatch(word)), None)


@lru_cache(maxsize=4096)
def gold_verdict(answer: str) -> str | None:
    """Return "yes" or "no" where the answer to a question is this word, in the usual form of some language.

    Words such as "negative" are answers to other questions, too.
    """
    verdict = plain_verdict(answer)
    if verdict not in ("yes", "no") or not answer.isascii():
        return verdict if verdict in ("yes", "no") else None
    usual = (words_of(verdict, (language,))[:1] for language in all_languages())
    return verdict if _plain(answer) in itertools.chain.from_iterable(usual) else None


def own_part(text: str) -> str:
    """Return the text without a repeated instruction, up to the next instruction that a base model invents."""
    parts = [part.strip() for part in _ECHO.split(text)]
    return next((part for part in parts if part), "")


def verdicts(text: str) -> set[str]:
    """Return the verdicts, of ``yes``, ``no`` and ``maybe``, that a reply declares, begins with, or has alone."""
    read = set[str]()
    final = set[str]()
    starts = [0, *(match.end() for match in _SENTENCE_ENDS.finditer(text)), len(text)]
    for signal in signals_in(text, "yes no maybe", ()):
        if not _after_verdict().match(text, signal.end):
            continue
        near = text[max(0, signal.start - _NEAR) : signal.start]
        place = bisect_right(starts, signal.start)
        is_last = _ENDS_LINE.match(text, signal.end) is not None
        is_declared = _declaring(is_last=is_last).search(near) is not None
        if is_declared and _FINAL.search(near):
            final |= _with_second(signal, text)
        elif is_declared or _OPENING.fullmatch(text, starts[place - 1], signal.start):
            is_alone = not re.search(r"\w", text[signal.end : starts[place]])
            if (
                is_declared
                or is_alone
                or (place == 1 and not _OWN_LIMIT.search(text, 0, starts[1]))
            ):
                read |= _with_second(signal, text)
    return final or read


def _with_second(signal: Signal, text: str) -> set[str]:
    """Return the verdict of a signal, and a second one next to it ("yes and no", "maybe not")."""
    first = min(signal.roles, key=_VERDICTS.index)
    following = _second().match(text, signal.end)
    if following is None:
        return {first}
    is_echo = text.startswith(":", following.end())  # "Answer with yes or no: ..."
    return set() if is_echo else {first, plain_verdict(following[1]) or "no"}


def without_writer(text: str) -> str:
    """Remove what a model says of itself: the sentence, or what begins with the last capital before it."""
    writer = pattern_of("writer")
    if not writer.search(text):
        return text
    parts = []
    ends = [*(match.end() for match in _SENTENCE_ENDS.finditer(text)), len(text)]
    for start, end in itertools.pairwise([0, *ends]):
        sentence = text[start:end]
        mention = writer.search(sentence)
        if mention is not None:
            capitals = [match.start() for match in _CAPITAL.finditer(sentence, 0, mention.start())]
            sentence = sentence[: max(capitals, default=0)]
        parts.append(sentence)
    return "".join(parts).strip()


def is_unsure(text: str, languages: tuple[str, ...] = ("en",)) -> bool:
    """Return whether the reply is about its writer's limits: "I cannot tell", "not sure"."""
    return pattern_of("refusal", languages).search(text) is not None


def yes_no(reply: str | None, question: str = "", named: Sequence[str] = ()) -> Answer:
    """Read "yes" or "no" from a reply to a closed question; its text makes statements readable."""
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    languages = languages_of(text, named)
    languages = (
        ENGLISH
        if "en" in languages and question.isascii()
        else languages_of(f"{question} {text}", named)
    )
    text = own_part(text)
    answer = without_writer(text)
    plain = re.sub(r"[^\w']+", " ", answer).strip().casefold()
    read = verdicts(answer) or {
        verdict for verdict, form in _SHORT.items() if form.fullmatch(plain)
    }
    read = read or set(_statements(answer, question, languages))
    if not read and is_unsure(text, languages):
        return Answer.invalid(Reason.REFUSED)
    return Answer.invalid(Reason.AMBIGUOUS) if "maybe" in read else Answer.only(read)


class _Topic(NamedTuple):
    """The subject of a question: its words, the main one, and whether they are one noun with its adjectives."""

    words: frozenset[str] = frozenset()
    main: str | None = None
    is_noun: bool = False

    def name_of(self, word: str, *, denied: bool) -> str:
        """Return the word of the topic that a word means, or the word itself."""
        return next((name for name in self.words if _is_same(name, word, denied=denied)), word)

    def is_in(self, words_said: Sequence[Mention[str]]) -> bool:
        """Return whether a clause with these words may be about the topic."""
        asked = self.words | {_OPPOSITES.get(word, word) for word in self.words}
        return any(self.name_of(word.what, denied=True) in asked for word in words_said)


def _statements(text: str, question: str, languages: tuple[str, ...]) -> Iterator[str]:
    """Yield the verdict of each statement, or item of a list, on the subject of a question."""
    topic = _topic(question, languages)
    if not topic.words:
        return
    joint = pattern_of("and or", languages)
    degree = pattern_of("degree", languages)
    for clause in clauses(text, languages):
        words_said = _content(clause, languages)
        if not topic.is_in(words_said) or _NO_STATEMENT.search(clause):
            continue
        items: list[list[tuple[Stance, str]]] = [[]]
        end = 0
        for word in words_said:
            if "," in clause[end : word.start] or joint.search(clause, end, word.start):
                items.append([])
            said = stance(clause, word.start, word.end, languages)
            items[-1].append((said, topic.name_of(word.what, denied=said is Stance.DENIED)))
            end = word.end
        for item in (list(itertools.chain.from_iterable(items)), *items):
            if verdict := _verdict_of(topic, item, degree):
                yield verdict
                break


def _verdict_of(
    topic: _Topic, item: Sequence[tuple[Stance, str]], degree: re.Pattern[str]
) -> str | None:
    """Return the verdict of a statement with these words."""
    holds = {word for said, word in item if said in (Stance.AFFIRMED, Stance.HEDGED)}
    denied = {word for said, word in item if said is Stance.DENIED}
    doubtful = {word for said, word in item if said is Stance.OPEN} | denied
    others = {word for _, word in item} - topic.words
    if not any(map(degree.fullmatch, topic.words)):
        others = {word for word in others if not degree.fullmatch(word)}
    if topic.words <= holds - doubtful:
        return "yes"
    # The main word alone: "an effusion" for "a pleural effusion", but not "a pericardial effusion".
    if topic.main in holds - doubtful and not others:
        return "yes"
    asked = {topic.main} if topic.is_noun else topic.words & _OPPOSITES.keys() or topic.words
    # The subject of a denial does not limit it, unlike the words next to what it denies: "no displaced fracture".
    if denied & asked and not denied & others:
        return "no"
    # "The radius is normal", where something abnormal is asked for.
    is_opposite = not topic.words.isdisjoint(map(_OPPOSITES.get, holds)) or (
        "normal" in holds - topic.words and holds & topic.words
    )
    return "no" if is_opposite and not doubtful and others <= _OPPOSITES.keys() else None


@lru_cache(maxsize=4096)  # many replies to one question
def _topic(question: str, languages: tuple[str, ...]) -> _Topic:
    """Return the subject of a question, without words if the question has no single subject."""
    question = pattern_of("whether").sub(" ", question)
    is_simple = not (
        _NOT_SIMPLE.search(question)
        or pattern_of("not or lack missing", languages).search(question)
    )
    content = _content(question, languages) if is_simple else []
    if not content:
        return _Topic()
    gaps = [question[word.end : following.start] for word, following in itertools.pairwise(content)]
    breaks = [number for number, gap in enumerate(gaps, 1) if re.search(r"\w", gap)]
    # The noun is the last word before "of" and the like; of languages in which adjectives follow it, the first.
    first = breaks[0] if breaks else len(content)
    is_phrase = all(
        pattern_of("of", languages).fullmatch(gaps[number - 1].strip()) for number in breaks
    )
    orders = {bool(words_of("noun_first", (language,))) for language in languages}
    nouns = {content[0 if order else first - 1].what for order in orders}
    main = min(nouns) if is_phrase and len(nouns) == 1 else None
    return _Topic(frozenset(word.what for word in content), main, main is not None and not breaks)


@lru_cache(maxsize=1 << 14)
def _is_same(name: str, word: str, *, denied: bool) -> bool:
    """Return whether two words have the same stem; a denial may leave out the first part of a compound."""
    if name == word:
        return True
    shorter, longer = sorted((name, word), key=len)
    if _WITHOUT_BLANKS.search(name):
        return len(shorter) > 1 and shorter in longer
    common = len(commonprefix([name, word]))  # noqa: RUF071 - of words, not of paths
    if _HANGUL.search(name):
        return common > 1 and common >= len(shorter) - 1
    if denied and len(shorter) > 4 and name.endswith(word) and len(longer) > len(shorter) + 3:
        return True
    return common > 3 and common >= (0.75 if common == 4 and name.isascii() else 0.6) * len(longer)


@lru_cache(maxsize=4096)
def _content(text: str, languages: tuple[str, ...]) -> list[Mention[str]]:
    """Return the words of a text that tell one question about an image from another."""

    def blank(match: re.Match[str]) -> str:
        is_kept = pattern_of("normal abnormal", languages).fullmatch(match[0])
        return match[0] if is_kept else " " * len(match[0])

    text = _IMAGE.sub(lambda match: (match[1] or "").rjust(len(match[0])), text)
    text = pattern_of(_TELLS_NOTHING, languages).sub(blank, text)
    normal = {role: pattern_of(role, languages) for role in _OPPOSITES}

    def meaning(word: Mention[str]) -> str:
        written = text[word.start : word.end]
        return next(
            (role for role, pattern in normal.items() if pattern.fullmatch(written)), word.what
        )

    return [word._replace(what=meaning(word)) for word in words(text)]


@extractor(
    "robust_yes_no_maybe",
    AnswerKind.CHOICE,
    "verdict on a question, read with care",
    own_words,
    version=3,
)
def robust_yes_no_maybe(reply: str, sample: Sample) -> Answer:
    """Read a verdict (PubMedQA); options are words for yes, no and maybe in the order of the letters."""
    text = own_part(reply)
    if not text:  # nothing but the instruction
        return Answer.invalid(Reason.AMBIGUOUS)
    equal = [
        letter(index)
        for index, option in enumerate(sample.options)
        if _plain(option) == _plain(text)
    ]
    if len(equal) == 1:
        return Answer.ok(equal[0])
    answer = worded_option(verdicts(without_writer(text)), sample.options)
    if answer is None:
        is_refusal = is_unsure(text, languages_of(f"{text} {sample.question}", sample.languages))
        answer = Answer.invalid(Reason.REFUSED if is_refusal else Reason.NO_MATCH)
    return answer


def worded_option(read: set[str], options: Sequence[str]) -> Answer | None:
    """Turn words into the letter of the one option that means this word, or into None without any word."""
    if not read:
        return None
    if len(read) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    meanings = [{_plain(option), plain_verdict(option)} for option in options]
    return Answer.only([letter(index) for index, meaning in enumerate(meanings) if meaning & read])
