"""The option that a reply means without naming it by letter or by its whole text.

In this order: its position ("the third option", "2", a letter of another script), an option for "none" or "all" of the
others, the one option whose words all occur, the one that has words of its own in the reply, and what a statement says
about a yes/no question. Replies with a denial are read for yes or no alone.
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.yes_no import yes_no
from medtasks.extract.extractor_registry import Reason
from medtasks.extract.reading.languages import pattern_of, words_of
from medtasks.extract.reading.option_mentions import OptionSet, folded, is_content, numeral, same_word, tokens_of

_MOST_WORDS = 60  # of a reply that is compared by single words
_FEW_WORDS = 8
_FOREIGN = 3  # words that are not the option's
_PRONOUN = re.compile(r"(?:^|(?<=[.,;!?]\s)|(?<=\bso\s)|(?<=\band\s)|(?<=\bbut\s))I(?=['’]|\s+[a-z])")
_ENCLOSING = re.compile("[\ufe0f\u20e3]")  # a digit on a key
_LOOK_ALIKE = frozenset("весор")  # Cyrillic letters that are other Latin ones


def unnamed_option(text: str, options: OptionSet, sample: Sample, languages: tuple[str, ...]) -> int | Reason:
    """Return the index of the option that a reply without any mention means, or why there is none."""
    words = [token.word for token in tokens_of(folded(_ENCLOSING.sub("", text)))]
    is_short = len(words) <= _FEW_WORDS
    position = _position(text, words, options, languages) if is_short else None
    if position is None and is_short:
        position = quantity_option(text, options)
    if position is not None:
        return position
    if pattern_of("refusal", languages).search(text) or (is_short and pattern_of("none", languages).search(text)):
        return Reason.REFUSED
    said = _yes_or_no(text, options, sample)
    if said is not None:
        return said
    if pattern_of("not wrong not_after", languages).search(text) or len(words) > _MOST_WORDS:
        return Reason.NO_MATCH
    return _by_words(text, options, languages)


def _position(text: str, words: list[str], options: OptionSet, languages: tuple[str, ...]) -> int | None:
    """Return the option at the position that is all a short reply says, apart from words for an answer."""
    if all(own and all(word[0].isdigit() for word in own) for own in options.words):
        return None
    rest = pattern_of("answer option correct choose final article", languages).sub(" ", text)
    left = [numeral(token.word) for token in tokens_of(folded(_ENCLOSING.sub("", rest)))]
    if len(left) == 1 and left[0].isdigit():
        return int(left[0]) - 1 if 0 < int(left[0]) <= len(options) else None
    is_about_options = pattern_of("option", languages).search(text) is not None
    for language in languages:
        lists = ("letters", *(("first",) if is_about_options else ()))
        for place, entry in ((p, e) for role in lists for p, e in enumerate(words_of(role, (language,)))):
            stem = folded(entry.strip("*"))
            is_letter = left == [stem] and stem not in _LOOK_ALIKE
            is_ordinal = len(stem) > 1 and re.search(rf"(?<![^\W\u3040-\u9fff]){re.escape(stem)}", folded(text))
            if place < len(options) and (is_letter or is_ordinal):
                return place
    return None


def quantity_option(text: str, options: OptionSet, roles: tuple[str, ...] = ("none", "all")) -> int | None:
    """Return the option for none or for all of the others, if a text says so."""
    for role in roles:
        matching = [index for index, option in enumerate(options.texts) if pattern_of(role).match(option)]
        if len(matching) == 1 and pattern_of(role).search(text):
            return matching[0]
    return None


def _yes_or_no(text: str, options: OptionSet, sample: Sample) -> int | None:
    """Return the option that a statement chooses of options with a yes and a no."""
    plain = [folded(option) for option in options.texts]
    of_yes = [index for index, option in enumerate(plain) if option in {folded(word) for word in words_of("yes")}]
    of_no = [index for index, option in enumerate(plain) if option in {folded(word) for word in words_of("no")}]
    if len(of_yes) != 1 or len(of_no) != 1:
        return None
    return {"yes": of_yes[0], "no": of_no[0]}.get(str(yes_no(text, sample.question).value))


def _by_words(text: str, options: OptionSet, languages: tuple[str, ...]) -> int | Reason:
    """Return the option whose words all occur, or begin with all of a reply, or of which most own words occur."""
    rest = pattern_of("answer option correct choose final article is", languages).sub(" ", _PRONOUN.sub(" ", text))
    words = [numeral(token.word) for token in tokens_of(folded(rest))]
    plain = set(words)
    of_options = [[numeral(word) for word in own] for own in options.words]
    whole = [index for index, own in enumerate(of_options) if own and plain.issuperset(own)]
    if len(whole) == 1:
        return whole[0]
    begun = [index for index, own in enumerate(of_options) if words and own[: len(words)] == words]
    if begun:
        return begun[0] if len(begun) == 1 else Reason.AMBIGUOUS
    having = []
    for index, parts in enumerate(options.parts):
        occurring = sum(_occurs(part, plain) for part in parts)
        foreign = sum(not _occurs(word, {*of_options[index]}) for word in plain if is_content(word))
        is_enough = 2 * occurring > len(parts) or (2 * occurring == len(parts) and foreign < _FOREIGN) or not foreign
        if occurring and (is_enough or occurring > 1):
            having.append(index)
        elif occurring:
            return Reason.NO_MATCH
    if len(having) == 1:
        return having[0]
    return Reason.AMBIGUOUS if having else Reason.NO_MATCH


def _occurs(part: str, words: set[str]) -> bool:
    """Return whether a word occurs, also with an ending or in a compound."""
    return any(same_word(part, word) or (len(part) > 4 and part in word) for word in words)
