"""The options that a reply lists, for questions with several right ones.

GMAI-MMBench asks for letters separated by commas and does not publish its rule, so this is our own. A reply that is
nothing but letters or positions lists them ("A, C", "ACD", "1,4"). "All except B" lists the others. Else the options
count that the last final statement, or else all declared statements name, those that a walk through all options calls
right, or those that the reply names without denying them; see :mod:`medtasks.extract.careful.robust_choice`.
"""

import re
from collections.abc import Sequence

from medtasks.data.samples import Sample
from medtasks.extract.careful.unnamed_options import quantity_option, unnamed_option
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import (
    Languages,
    few_languages_of,
    pattern_of,
    signals_in,
)
from medtasks.extract.reading.option_mentions import OptionSet, option_set, words_in
from medtasks.extract.reading.option_statements import option_statements
from medtasks.extract.reading.reply_text import own_words

NO_OPTION = -1  # index of a letter of no option


@extractor(
    "listed_options",
    AnswerKind.LABELS,
    "letters, positions and texts that are listed",
    version=3,
)
def listed_options(reply: str | None, sample: Sample) -> Answer:
    """Read the options that a reply lists: 1 or 0 per option, at least one of them 1.

    None is an empty reply.
    """
    options = option_set(tuple(sample.options))
    text = own_words(reply, is_answer=lambda value: bool(_nothing_else(value, options)))
    if isinstance(text, Reason):
        return Answer.invalid(text)
    listed = _nothing_else(text, options) or _stated_options(text, options, sample)
    if isinstance(listed, Reason):
        return Answer.invalid(listed)
    if NO_OPTION in listed:
        return Answer.invalid(Reason.AMBIGUOUS if len(listed) > 1 else Reason.NO_MATCH)
    return Answer.ok(tuple(int(index in listed) for index in range(len(options))))


def _nothing_else(text: str, options: OptionSet) -> frozenset[int]:
    """Return the options of a text of nothing but letters or positions, ``NO_OPTION`` for other letters."""
    names = _bare_names(text, options)
    if all(map(str.isdigit, names)):
        positions = frozenset(int(name) - 1 for name in names)
        return positions.intersection(options.letters.values())
    if any(len(name) > 1 or not name.isascii() for name in names):
        return frozenset()
    return frozenset(options.letters.get(name.upper(), NO_OPTION) for name in names)


def _bare_names(text: str, options: OptionSet) -> Sequence[str]:
    """Return the words of a text without those around an answer, where "ACD" is three words."""

    def keep_letters(word: re.Match[str]) -> str:
        """Return a word around an answer only if it is an option's letter, else a blank."""
        is_letter = word[0].upper() in options.letters and (word[0].isupper() or text.islower())
        return word[0] if is_letter else " "

    around = pattern_of("and answer option choose correct final", few_languages_of(text))
    words = words_in(around.sub(keep_letters, text))
    return words[0] if len(words) == 1 and text.isupper() else words


def _stated_options(
    text: str,
    options: OptionSet,
    sample: Sample,
) -> frozenset[int] | Reason:
    """Return the indices of the options that the statements of a reply list, or why there are none."""
    languages = few_languages_of(text, sample.languages)
    statements = option_statements(text, options, languages)
    if statements is None:
        if _says_all(text, languages) and quantity_option("all", options) is None:
            return frozenset(options.letters.values())
        unnamed = unnamed_option(text, options, sample, languages)
        return unnamed if isinstance(unnamed, Reason) else frozenset({unnamed})
    excepts = pattern_of("except", languages)
    if excepts.match(text) or (excepts.search(text) and _says_all(text, languages)):
        return frozenset(options.letters.values()) - statements.named or Reason.AMBIGUOUS
    listed = statements.stated_options
    if listed:
        return listed
    is_refusal = pattern_of("refusal none", languages).search(text)
    return Reason.REFUSED if is_refusal else Reason.NO_MATCH


def _says_all(text: str, languages: Languages) -> bool:
    """Return whether a text says "all", and not as part of a phrase that only looks like it ("not at all")."""
    return any("all" in signal.roles for signal in signals_in(text, "all aside", languages))
