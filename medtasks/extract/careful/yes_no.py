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

Called by the careful extractors for closed questions, options and text labels. Guesses no verdict: an unclear reply
is ambiguous, refused or no match.
"""

import itertools
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from functools import cache, lru_cache
from os.path import commonprefix
from typing import NamedTuple

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import (
    ENGLISH,
    Languages,
    Signal,
    all_languages,
    languages_of,
    pattern_of,
    signals_in,
    words_of,
)
from medtasks.extract.reading.negation import (
    WITHOUT_BLANKS,
    Mention,
    Stance,
    clauses,
    stance,
    starts_of,
)
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
_CHOOSES = r"(?:i|i'd|i would|i will)\s+(?:say|answer|think|believe|conclude|choose|go with)(?:\s+that)?"
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
_NOT_SIMPLE = re.compile(
    r"(?i)\A\W*(?:wh\w+|how)\b|\b(?:absent|absence|free|clear|exclud\w+)\b"
)
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
    """Return a pattern of the text before a verdict that it declares.

    Args:
        is_last: Whether the verdict is the last word of its line, so that more texts declare it.
    """
    denial = pattern_of("not not_after").pattern
    leads = [
        rf"\b(?:{_NOUN}{_LINK}|{_CHOOSES})\W*{_SURE}",
        rf"(?:{pattern_of('answer').pattern})(?:\s+(?!{denial})\w+){{0,2}}[\s:\"是为は]+",
    ]
    if is_last:
        leads += [r"(?:\A|\n)[^:\n]{1,60}:\W*", rf"(?:{pattern_of('final').pattern})[\s,:]+"]
    return re.compile(rf"(?:{'|'.join(leads)})\Z", re.IGNORECASE)


@cache
def _second_verdict() -> re.Pattern[str]:
    """Return a pattern of a verdict that follows another one, in its only group."""
    joint = pattern_of("and or").pattern
    verdicts = pattern_of("yes no maybe").pattern
    return re.compile(
        rf"(?i)\W*(?:[,/|(]|{joint}|&|\s)\W*(?:also\s+)?({verdicts}|not\b)(?=\W*$|\s*[.,;:!?/|)\n]|\s+(?:{joint}))"
    )


@lru_cache(maxsize=1024)
def _plain(text: str) -> str:
    """Return a text in lower case, with single blanks in place of marks."""
    return _GAP.sub(" ", with_plain_characters(text)).strip().casefold()


def plain_verdict(text: str) -> str | None:
    """Return "yes", "no" or "maybe" where a text is nothing but this word, in any language, else None.

    Example:
        >>> plain_verdict("Nein."), plain_verdict("No effusion.")
        ('no', None)
    """
    word = _plain(text)
    for verdict in _VERDICTS:
        if pattern_of(verdict).fullmatch(word):
            return verdict
    return None


@lru_cache(maxsize=4096)
def gold_verdict(answer: str) -> str | None:
    """Return "yes" or "no" where the answer to a question is this word, in the usual form of some language, else None.

    Words such as "negative" are answers to other questions, too.

    Example:
        >>> gold_verdict("Yes"), gold_verdict("negative")
        ('yes', None)
    """
    verdict = plain_verdict(answer)
    if verdict not in ("yes", "no"):
        return None
    if not answer.isascii():
        return verdict
    word = _plain(answer)
    for language in all_languages():
        if word in words_of(verdict, (language,))[:1]:
            return verdict
    return None


def own_part(text: str) -> str:
    """Return the text without a repeated instruction, up to the next instruction that a base model invents.

    Example:
        >>> own_part("Answer the question with yes or no. Yes, it is.")
        'Yes, it is.'
    """
    parts = map(str.strip, _ECHO.split(text))
    return next(filter(None, parts), "")


def verdicts(text: str) -> set[str]:
    """Return the verdicts that a reply declares, begins with, or has in a sentence of their own.

    Args:
        text: The model's own words, as :func:`without_writer` returns them.

    Returns:
        Some of ``yes``, ``no`` and ``maybe``: those declared as final, or else all others.

    Example:
        >>> verdicts("Yes, there is. So the final answer is no.")
        {'no'}
    """
    read = set[str]()
    final = set[str]()
    starts = [0, *(match.end() for match in _SENTENCE_ENDS.finditer(text)), len(text)]
    for signal in signals_in(text, "yes no maybe", ()):
        if not _after_verdict().match(text, signal.end):
            continue
        before = text[max(0, signal.start - _NEAR) : signal.start]
        is_last = _ENDS_LINE.match(text, signal.end) is not None
        if _declaring(is_last=is_last).search(before):
            group = final if _FINAL.search(before) else read
            group |= _with_second(signal, text)
        elif _is_whole_or_begins(signal, text, starts):
            read |= _with_second(signal, text)
    return final or read


def _is_whole_or_begins(
    signal: Signal,
    text: str,
    starts: Sequence[int],
) -> bool:
    """Return whether a verdict is all of its sentence, or begins the reply.

    Args:
        signal: The verdict.
        text: The reply.
        starts: Positions where its sentences begin, and that of its end.
    """
    number = bisect_right(starts, signal.start)
    if not _OPENING.fullmatch(text, starts[number - 1], signal.start):
        return False
    if not re.search(r"\w", text[signal.end : starts[number]]):
        return True
    return number == 1 and not _OWN_LIMIT.search(text, 0, starts[1])


def _with_second(signal: Signal, text: str) -> set[str]:
    """Return the verdict of a signal, and a second one next to it ("yes and no", "maybe not").

    Empty for an instruction that is repeated ("yes or no: ...").
    """
    first = min(signal.roles, key=_VERDICTS.index)
    following = _second_verdict().match(text, signal.end)
    if following is None:
        return {first}
    if text.startswith(":", following.end()):  # "Answer with yes or no: ..."
        return set()
    return {first, plain_verdict(following[1]) or "no"}


def without_writer(text: str) -> str:
    """Remove what a model says of itself: the sentence, or what begins with the last capital before it.

    Example:
        >>> without_writer("There is an effusion. As an AI I am no doctor.")
        'There is an effusion.'
    """
    writer = pattern_of("writer")
    if not writer.search(text):
        return text
    parts = []
    ends = [*(match.end() for match in _SENTENCE_ENDS.finditer(text)), len(text)]
    for start, end in itertools.pairwise([0, *ends]):
        sentence = text[start:end]
        mention = writer.search(sentence)
        if mention is not None:
            capitals = starts_of(_CAPITAL, sentence, 0, mention.start())
            sentence = sentence[: max(capitals, default=0)]
        parts.append(sentence)
    return "".join(parts).strip()


def is_unsure(text: str, languages: Languages = ("en",)) -> bool:
    """Return whether the reply is about its writer's limits: "I cannot tell", "not sure"."""
    return pattern_of("refusal", languages).search(text) is not None


def yes_no(
    reply: str | None,
    question: str = "",
    named: Sequence[str] = (),
) -> Answer:
    """Read "yes" or "no" from a reply to a closed question.

    Args:
        reply: The raw reply.
        question: Text of the question. Without it statements such as "There is no fracture" cannot be read.
        named: Languages that the task names; see :func:`~medtasks.extract.reading.languages.languages_of`.

    Example:
        >>> yes_no("There is no fracture.", "Is there a fracture?").value
        'no'
    """
    text = own_words(reply)
    if isinstance(text, Reason):
        return Answer.invalid(text)
    languages = ENGLISH
    if "en" not in languages_of(text, named) or not question.isascii():
        languages = languages_of(f"{question} {text}", named)
    text = own_part(text)
    answer = without_writer(text)
    read = verdicts(answer)
    if not read:  # it may be nothing but "true", "not seen", "it is" and the like
        plain = re.sub(r"[^\w']+", " ", answer).strip().casefold()
        read = {verdict for verdict, form in _SHORT.items() if form.fullmatch(plain)}
    read = read or set(_statements(answer, question, languages))
    if not read and is_unsure(text, languages):
        return Answer.invalid(Reason.REFUSED)
    return Answer.invalid(Reason.AMBIGUOUS) if "maybe" in read else Answer.only(read)


class _Topic(NamedTuple):
    """The subject of a question: its words, the main one, and whether they are one noun with its adjectives.

    A question without a single subject has no words. The main word is None if it cannot be told.
    """

    words: frozenset[str] = frozenset()
    main: str | None = None
    is_noun: bool = False

    @property
    def core(self) -> Set[str | None]:
        """Words of which a denial answers the question."""
        if self.is_noun:
            return {self.main}
        return self.words & _OPPOSITES.keys() or self.words

    def name_of(self, word: str, *, denied: bool) -> str:
        """Return the word of the topic that a word means, or the word itself."""
        for name in self.words:
            if _is_same(name, word, denied=denied):
                return name
        return word


def _statements(
    text: str,
    question: str,
    languages: Languages,
) -> Iterator[str]:
    """Yield the verdict of each statement, or item of a list, on the subject of a question."""
    topic = _topic(question, languages)
    if not topic.words:
        return
    degree = pattern_of("degree", languages)
    joint = pattern_of("and or", languages)
    names = topic.words | {_OPPOSITES.get(word, word) for word in topic.words}
    for clause in clauses(text, languages):
        words_said = _content(clause, languages)
        is_on_topic = any(topic.name_of(word.what, denied=True) in names for word in words_said)
        if not is_on_topic or _NO_STATEMENT.search(clause):
            continue
        # A clause may be a list. Its items are words, each with the clause's stance on it.
        items: list[list[tuple[Stance, str]]] = [[]]
        end = 0
        for word in words_said:
            if "," in clause[end : word.start] or joint.search(clause, end, word.start):
                items.append([])
            certainty = stance(clause, word.start, word.end, languages)
            name = topic.name_of(word.what, denied=certainty is Stance.DENIED)
            items[-1].append((certainty, name))
            end = word.end
        for item in (list(itertools.chain.from_iterable(items)), *items):
            verdict = _verdict_of(topic, item, degree)
            if verdict:
                yield verdict
                break


def _verdict_of(
    topic: _Topic,
    item: Sequence[tuple[Stance, str]],
    degree: re.Pattern[str],
) -> str | None:
    """Return the verdict of a statement, "yes" or "no", None if it does not answer the question.

    Args:
        topic: Subject of the question.
        item: Words of the statement, each with the statement's stance on it.
        degree: Pattern of words such as "mild", which count only if the question has one.
    """
    by_stance = defaultdict[Stance, set[str]](set)
    for certainty, word in item:
        by_stance[certainty].add(word)
    denied = by_stance[Stance.DENIED]
    doubtful = by_stance[Stance.OPEN] | denied
    holds = by_stance[Stance.AFFIRMED] | by_stance[Stance.HEDGED]
    others = (holds | doubtful) - topic.words
    if not any(map(degree.fullmatch, topic.words)):
        others = set(itertools.filterfalse(degree.fullmatch, others))
    certain = holds - doubtful
    # The main word alone: "an effusion" for "a pleural effusion", but not "a pericardial effusion".
    if topic.words <= certain or (topic.main in certain and not others):
        return "yes"
    # The subject of a denial does not limit it, unlike the words next to what it denies: "no displaced fracture".
    if denied & topic.core and not denied & others:
        return "no"
    is_limited = doubtful or others - _OPPOSITES.keys()
    return "no" if not is_limited and _affirms_opposite(topic, holds) else None


def _affirms_opposite(topic: _Topic, holds: set[str]) -> bool:
    """Return whether a statement calls normal what the question calls abnormal, or the other way round."""
    if not topic.words.isdisjoint(map(_OPPOSITES.get, holds)):
        return True
    # "The radius is normal", where something abnormal is asked for.
    return "normal" in holds - topic.words and not holds.isdisjoint(topic.words)


def _breaks(question: str, content: Sequence[Mention[str]]) -> dict[int, str]:
    """Return other words between two words of a question's content, by the number of the second one, from 0."""
    breaks = {}
    for number, (word, following) in enumerate(itertools.pairwise(content), 1):
        gap = question[word.end : following.start].strip()
        if re.search(r"\w", gap):
            breaks[number] = gap
    return breaks


@lru_cache(maxsize=4096)  # many replies to one question
def _topic(question: str, languages: Languages) -> _Topic:
    """Return the subject of a question, without words if the question has no single subject."""
    question = pattern_of("whether").sub(" ", question)
    denial = pattern_of("not or lack missing", languages)
    if _NOT_SIMPLE.search(question) or denial.search(question):
        return _Topic()
    content = _content(question, languages)
    if not content:
        return _Topic()
    breaks = _breaks(question, content)
    # The noun is the last word before "of" and the like, but the first in languages in which adjectives follow it.
    nouns = set()
    if all(map(pattern_of("of", languages).fullmatch, breaks.values())):
        last = min(breaks, default=len(content)) - 1
        for language in languages:
            position = 0 if words_of("noun_first", (language,)) else last
            nouns.add(content[position].what)
    main = nouns.pop() if len(nouns) == 1 else None  # the languages may differ in which it is
    is_noun = main is not None and not breaks
    return _Topic(frozenset(word.what for word in content), main, is_noun)


@lru_cache(maxsize=1 << 14)
def _is_same(
    name: str,
    word: str,
    *,
    denied: bool,
) -> bool:
    """Return whether two words have the same stem.

    Args:
        name: Word of the question.
        word: Word of the reply.
        denied: Whether the reply denies it. A denial may leave out the first part of a compound.
    """
    if name == word:
        return True
    shorter, longer = sorted((name, word), key=len)
    if WITHOUT_BLANKS.search(name):
        return len(shorter) > 1 and shorter in longer
    common = len(commonprefix([name, word]))  # noqa: RUF071 - of words, not of paths
    if _HANGUL.search(name):
        return common >= max(2, len(shorter) - 1)
    is_last_part = len(word) > 4 and name.endswith(word) and len(name) > len(word) + 3
    if denied and is_last_part:
        return True
    least_share = 0.75 if common == 4 and name.isascii() else 0.6
    return common >= max(4, least_share * len(longer))


@lru_cache(maxsize=4096)
def _content(text: str, languages: Languages) -> list[Mention[str]]:
    """Return the words of a text that tell one question about an image from another."""

    def blank(match: re.Match[str]) -> str:
        """Return a word that tells nothing as blanks of its length, but "normal" and "abnormal" as they are."""
        is_kept = pattern_of("normal abnormal", languages).fullmatch(match[0])
        return match[0] if is_kept else " " * len(match[0])

    text = _IMAGE.sub(lambda match: (match[1] or "").rjust(len(match[0])), text)
    text = pattern_of(_TELLS_NOTHING, languages).sub(blank, text)
    content = []
    for word in words(text):
        for role in _OPPOSITES:
            if pattern_of(role, languages).fullmatch(text[word.start : word.end]):
                word = word._replace(what=role)
                break
        content.append(word)
    return content


@extractor(
    "robust_yes_no_maybe",
    AnswerKind.CHOICE,
    "verdict on a question, read with care",
    own_words,
    version=3,
)
def robust_yes_no_maybe(reply: str, sample: Sample) -> Answer:
    """Read a verdict (PubMedQA), where options are words for yes, no and maybe in the order of the letters."""
    text = own_part(reply)
    if not text:  # nothing but the instruction
        return Answer.invalid(Reason.AMBIGUOUS)
    plain_options = list(map(_plain, sample.options))
    if plain_options.count(_plain(text)) == 1:
        return Answer.ok(letter(plain_options.index(_plain(text))))
    answer = worded_option(verdicts(without_writer(text)), sample.options)
    if answer is not None:
        return answer
    languages = languages_of(f"{text} {sample.question}", sample.languages)
    reason = Reason.REFUSED if is_unsure(text, languages) else Reason.NO_MATCH
    return Answer.invalid(reason)


def worded_option(read: set[str], options: Sequence[str]) -> Answer | None:
    """Turn a word into the letter of the one option that means it.

    Args:
        read: Words that were read from a reply. Several are ambiguous.
        options: Options, in the order of the letters, in any language.

    Returns:
        An answer, or None without any word.

    Example:
        >>> worded_option({"no"}, ["Ja", "Nein"]).value
        'B'
    """
    if not read:
        return None
    if len(read) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    letters = []
    for index, option in enumerate(options):
        if not read.isdisjoint({_plain(option), plain_verdict(option)}):
            letters.append(letter(index))
    return Answer.only(letters)
