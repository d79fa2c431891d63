"""Names of classes in a text: whole names, their parts, what brackets hold, abbreviations, and what a class denies.

Words are compared without accents and plural endings, and in British as in American spelling.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from medtasks.extract.reading.languages import Words, languages_of, pattern_of
from medtasks.extract.reading.option_mentions import Mention, fold
from medtasks.extract.reading.stems import words

_ROLES = ("abnormal", "normal", "benign", "malignant")  # names that other languages have, too
_BRACKET = re.compile(r"\(([^()]*)\)")
_DECLARES = re.compile(r"(?:\A|:|\bis\b)\W*\Z")  # before an abbreviation
_PARTS = re.compile(r"\s*(?:[,;/]|\band\b|\bor\b)\s*")
_SIDED = re.compile(r"(.+?)[\s,_-]+(left|right)", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_CAPITALS = re.compile(r"\b[A-Z]{2,5}\b")
# Other plurals and spellings of the endings of stems.
_VARIANTS = {
    "osis": "os[ei]s",
    "nevus": "n[ao]?ev(?:us|i)",
    "y": "(?:y|ies)",
    "ization": "i[sz]ation",
    "or": "ou?rs?",
}
_SYNONYMS = {"melanocytic nevus": "nevus"}
_PREFIXES = ("non-", "non ", "pre-")
_LEAD = 20  # characters before an abbreviation
_ATTRIBUTE = 40  # characters around "normal" in which it may be said of an attribute
_CLAUSE_END = re.compile(r"[.,;:\n]|\b(?:and|but|with|without)\b")
_GAP = r"[\W_]+(?:(?:an?|the)[\W_]+)?"

_Span = tuple[int, int, int]  # start, end and class of a name in a text


def absence(index: int) -> int:
    """Return the code of what a class denies, or the class of a code."""
    return -2 - index


@dataclass(frozen=True)
class ClassNames:
    """The classes of a question by their names."""

    options: tuple[str, ...]

    @cached_property
    def full(self) -> list[Words]:
        """Words of each name without brackets."""
        return [stems(_BRACKET.sub(" ", option)) for option in self.options]

    @cached_property
    def names(self) -> dict[Words, int]:
        """Class by name, and :func:`absence` of a class by what it denies, the longest name first.

        Names that several classes have are left out.
        """
        of_options = [{*map(stems, _aliases(option))} for option in self.options]
        counts = Counter(itertools.chain.from_iterable(of_options))
        unique: dict[Words, int] = {}
        for index, names in enumerate(of_options):
            unique |= dict.fromkeys((name for name in names if counts[name] == 1), index)
        for index, name in enumerate(self.full):
            if self.full.count(name) == 1:
                unique[name] = index
        for index, option in enumerate(self.options):
            denial = pattern_of("not", languages_of(option)).match(option)
            if denial:
                denied = stems(option[denial.end() :])
                unique.setdefault(denied, absence(index))
                unique.setdefault(denied[-1:], absence(index))
        unique.pop((), None)
        return dict(sorted(unique.items(), key=lambda name: -len(" ".join(name[0]))))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Pattern of all names in a folded text, a group for each."""
        if not self.names:
            return re.compile("(?!)")
        groups = "|".join(f"({_GAP.join(map(_spelling, name))})" for name in self.names)
        return re.compile(rf"(?<![^\W_])(?:{groups})(?![^\W_])")

    def mentions(self, text: str) -> list[Mention]:
        """Return the mentions of classes in a text, in order.

        Of names within one another the longest counts, of what a class denies its :func:`absence`. Names that are
        about something else are left out, as in "normal heart size".
        """
        lower = fold(text)
        classes = list(self.names.values())
        spans: list[_Span] = []
        for match in self.pattern.finditer(lower):
            spans.append((*match.span(), classes[(match.lastindex or 1) - 1]))
        for role in _ROLES:  # words such as "normal" of any language
            index = self.names.get((role,))
            if index is not None:
                spans += ((*match.span(), index) for match in pattern_of(role).finditer(text))
        spans += self._abbreviations_in(text)
        mentions: list[Mention] = []
        for start, end, index in sorted(spans, key=lambda span: (span[0], -span[1])):
            if mentions and start < mentions[-1].end:
                continue
            if not lower.endswith(_PREFIXES, 0, start) and not _is_aside(text, start, end):
                mentions.append(Mention(frozenset({index}), start, end, False, True))
        return mentions

    def _abbreviations_in(self, text: str) -> Iterator[_Span]:
        """Yield the abbreviations in a text, of which one may be all of it in any case."""
        is_alone = _WORD.fullmatch(text.strip(" .:()")) is not None
        if text.isupper() and not is_alone:
            return
        for match in _CAPITALS.finditer(text.upper() if is_alone else text):
            before = text[max(0, match.start() - _LEAD) : match.start()]
            is_last = not _WORD.search(text, match.end())
            index = self.class_of(
                match[0].lower(), 1 if is_last and _DECLARES.search(before) else 2
            )
            if index is not None:
                yield *match.span(), index

    def class_of(self, letters: str, least: int) -> int | None:
        """Return the only class that letters abbreviate, or None if they abbreviate none or several.

        Args:
            letters: An abbreviation in lower case.
            least: Number of words that an abbreviated name has at least.
        """
        is_word = pattern_of("plain").fullmatch(letters) is not None
        if is_word or any(letters in name for name in self.names):  # "CT", "MRI"
            return None
        matching = set()
        for name, index in self.names.items():
            if len(name) < least:
                continue
            # The first letters of all words, perhaps with later ones: "TB", "CNV".
            pattern = "".join(f"{re.escape(word[0])}[{re.escape(word)}]*?" for word in name)
            if re.fullmatch(pattern, letters):
                matching.add(index)
        return matching.pop() if len(matching) == 1 else None

    def beginning_with(self, text: str) -> set[int]:
        """Return the classes whose names begin with all words of a text, or have the same words.

        Example:
            >>> class_names(("mild edema", "mass")).beginning_with("Mild.")
            {0}
        """
        spoken = stems(text)
        if not spoken or any(pattern_of(role).fullmatch(text.strip(" .")) for role in _ROLES):
            return set()
        beginning = {
            index for index, name in enumerate(self.full) if name[: len(spoken)] == spoken
        }
        return beginning or {
            index for index, name in enumerate(self.full) if {*name} == {*spoken}
        }


@lru_cache(maxsize=1024)  # many samples have the same classes
def class_names(options: tuple[str, ...]) -> ClassNames:
    """Return the names of classes, prepared for comparison."""
    return ClassNames(options)


def _aliases(option: str) -> set[str]:
    """Return the names of a class: with and without its brackets, their parts, and a side before an organ."""
    base = _BRACKET.sub(" ", option).strip()
    brackets = _BRACKET.findall(option)
    names = {option, base, *brackets}
    for text in (base, *brackets):
        names.update(_PARTS.split(text))
    names.add(_SYNONYMS.get(" ".join(stems(base)), base))
    sided = _SIDED.fullmatch(base)
    if sided:
        names.add(f"{sided[2]} {sided[1]}")
    return names


def stems(text: str) -> Words:
    """Return the stems of a text's words. Those for "normal" and the like of any language become English.

    Example:
        >>> stems("Pathologischer Befund, no tumours")
        ('abnormal', 'befund', 'no', 'tumor')
    """
    return tuple(_meaning(word.what) for word in words(text.replace("call-back", "callback")))


@lru_cache(maxsize=1 << 14)
def _meaning(word: str) -> str:
    """Return the English word for "normal" and the like of any language, else the folded word."""
    return next((role for role in _ROLES if pattern_of(role).fullmatch(word)), fold(word))


def _spelling(stem: str) -> str:
    """Return a pattern of the words with a stem in a folded text, in any spelling and number."""
    variants = "(?:['’´]?s)?"
    for ending, spellings in _VARIANTS.items():
        if stem.endswith(ending):
            stem = stem.removesuffix(ending)
            variants = spellings
            break
    stem = re.escape(stem).replace("callback", "call[- ]?back")
    return re.sub("(?<=.)e", "[ao]?e", stem) + variants  # "e" may be "ae" or "oe"


def _is_aside(
    text: str,
    start: int,
    end: int,
) -> bool:
    """Return whether the name between two positions is about something else than the image.

    That is "normal" about an attribute ("normal heart size"), or "background" about a setting.
    """
    before = text[max(0, start - _ATTRIBUTE) : start]
    after = text[end : end + _ATTRIBUTE]
    if pattern_of("normal").fullmatch(text, start, end):
        clause = _CLAUSE_END.split(before)[-1] + _CLAUSE_END.split(after)[0]
        return pattern_of("attribute").search(clause) is not None
    if text[start:end].lower() != "background":
        return False
    return pattern_of("setting").search(f"{before}background") is not None
