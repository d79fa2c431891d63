"""The options that a reply lists, for questions with several right ones.

GMAI-MMBench asks for letters separated by commas and does not publish its rule, so this is our own. A reply that is
nothing but letters or positions lists them ("A, C", "ACD", "1,4"). "All except B" lists the others. Else the options
count that the last final statement, or else all declared statements name, those that a walk through all options calls
right, or those that the reply names without denying them; see :mod:`medtasks.extract.careful.robust_choice`.
"""

import re

from medtasks.data.samples import Sample
from medtasks.extract.careful.unnamed_options import quantity_option, unnamed_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import languages_of, pattern_of
from medtasks.extract.reading.option_mentions import OptionSet, folded, option_set, tokens_of
from medtasks.extract.reading.option_statements import OptionStatements, option_statements
from medtasks.extract.reading.reply_text import own_words

_TOGETHER = re.compile(r"\W*([A-Z]{2,})\W*")


@extractor("listed_options", AnswerKind.LABELS, "letters, positions and texts that are listed", version=3)
def listed_options(reply: str | None, sample: Sample) -> Answer:
    """Read the options that a reply lists: 1 or 0 per option, at least one of them 1."""
    options = option_set(tuple(sample.options))
    text = own_words(reply, is_answer=lambda value: bool(_nothing_else(value, options)))
    if isinstance(text, Reason):
        return Answer.invalid(text)
    listed = _nothing_else(text, options) or _listed(text, options, sample)
    if isinstance(listed, Reason):
        return Answer.invalid(listed)
    if -1 in listed:
        return Answer.invalid(Reason.AMBIGUOUS if len(listed) > 1 else Reason.NO_MATCH)
    return Answer.ok(tuple(int(index in listed) for index in range(len(options))))


def _nothing_else(text: str, options: OptionSet) -> frozenset[int]:
    """Return the options of a text of nothing but letters or positions; letters of no option are -1."""
    words = _bare_names(text, options)
    positions = frozenset(int(word) - 1 for word in words if word.isdigit())
    if positions and len(positions) == len(words):
        return positions if positions <= {*options.letters.values()} else frozenset()
    if any(len(word) > 1 or not word.isascii() for word in words):
        return frozenset()
    return frozenset(options.letters.get(word.upper(), -1) for word in words)


def _bare_names(text: str, options: OptionSet) -> list[str]:
    """Return the words of a text without those around an answer; "ACD" is three words."""
    together = _TOGETHER.fullmatch(text)
    if together and {*together[1]} <= options.letters.keys():
        return list(together[1])

    def without(word: re.Match[str]) -> str:
        is_letter = word[0].upper() in options.letters and (word[0].isupper() or text.islower())
        return word[0] if is_letter else " "

    rest = pattern_of("and answer option choose correct final", languages_of(text)).sub(without, text)
    return [token.word for token in tokens_of(folded(rest)) if token.word.isalnum()]


def _listed(text: str, options: OptionSet, sample: Sample) -> frozenset[int] | Reason:
    languages = languages_of(text)
    everything = frozenset(options.letters.values())
    statements = option_statements(text, options, languages)
    if statements is None:
        if quantity_option("all", options, ("all",)) is None and _is_all(text, languages):
            return everything
        unnamed = unnamed_option(text, options, sample, languages)
        return unnamed if isinstance(unnamed, Reason) else frozenset({unnamed})
    if statements.named != everything and _excepts(text, languages):
        return everything - statements.named
    listed = statements.decided or statements.affirmed
    if listed:
        return listed
    return Reason.REFUSED if pattern_of("refusal none", languages).search(text) else Reason.NO_MATCH


def _excepts(text: str, languages: tuple[str, ...]) -> bool:
    """Return whether a reply names the options that are left out: "all but B", "except B"."""
    excepts = pattern_of("except", languages).search(text)
    if excepts is None:
        return False
    is_whole = excepts.start() == 0 or not re.search(r"\w", text[excepts.end() :])
    return is_whole or _is_all(text, languages)


def _is_all(text: str, languages: tuple[str, ...]) -> bool:
    return pattern_of("all", languages).search(text) is not None

