"""Finding options in a text by their words, and classes by their names, parts, acronyms, plurals and spellings."""

import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from medtasks.extract.reading.negation import Mention, Stance, clauses, stances_of

_BARE_WORDS = frozenset({"yes", "no", "true", "false", "maybe", "normal", "present", "absent"})
_FRAME = re.compile(
    r"^(?:(?:the |my )?(?:correct |right |best |final |most likely )*(?:answer|option|diagnosis) (?:is |would be )?"
    r"|(?:it|this|that) (?:is|s) )?(?:an |the )?"
)
_WORDS = re.compile(r"[^\W_]+|[=≠<>≤≥↑↓]")
_SIGNS = frozenset("=≠<>≤≥↑↓")
_SIGN = re.compile(r"(?<=[\w%)])\s*([=≠<>≤≥])\s*(?=[\w(-])|([↑↓])|[=≠<>≤≥]")  # a sign between two things, or any other


@lru_cache(maxsize=512)  # the same options are compared in several steps
def normalised(text: str) -> str:
    """Return ``text`` in lower case, with one space for each run of blanks and of punctuation but "<" and arrows."""
    plain = (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
    if not _SIGNS.isdisjoint(plain):
        plain = _SIGN.sub(r" \1\2 ", plain)
    return " ".join(_WORDS.findall(plain))


def spelled(words: str) -> str:
    """Return a pattern of :func:`normalised` words as texts write them."""
    return re.sub(r"\\? ", r"[\\W_]*" if _SIGN.search(words) else r"[\\W_]+", re.escape(words))


def lacks(text: str, words: str) -> bool:
    """Return whether one of :func:`normalised` words surely does not occur in a text; much faster than a pattern."""
    lower = text.lower()
    return text.isascii() and words.isascii() and any(word not in lower for word in words.split(" "))


def equal_option(text: str, options: Sequence[str]) -> int | None:
    """Return the index of the only option whose words are all of ``text``, else None."""
    words = normalised(text)
    framed = _FRAME.sub("", words)
    equal = [i for i, option in enumerate(options) if normalised(option) in (words, framed) and normalised(option)]
    return equal[0] if len(equal) == 1 else None


def leading_option(text: str, options: Sequence[str]) -> set[int]:
    """Return options that begin with the whole reply ("Yes" for "Yes, uptake is seen") or whose one word opens it."""
    words = normalised(text)
    if not words:
        return set()
    first, *others = words.split(" ", 3)
    opening = {first, others[1]} if len(others) > 1 and others[0] in ("and", "or") else {first}
    plain = enumerate(map(normalised, options))
    return {index for index, option in plain if option.startswith(f"{words} ") or option in opening & _BARE_WORDS}


def options_named(text: str, options: Sequence[str]) -> set[int]:
    """Return the options whose words occur in ``text``, without denied ones and those inside a longer one."""
    words = f" {normalised(text)} "
    spans = []
    for index, option in enumerate(options):
        needle = normalised(option)
        if needle and needle not in _BARE_WORDS and f" {needle} " in words:
            starts = (match.start() for match in re.finditer(rf"(?= {re.escape(needle)} )", words))
            spans += [(start, start + len(needle), index) for start in starts]
    named, widest = set(), (-1, -1)
    for start, end, index in sorted(spans, key=lambda span: (span[0], -span[1])):
        inside = end <= widest[1] and (start, end) != widest
        widest = (start, end) if end > widest[1] else widest
        named |= set() if inside else {index}
    parts = clauses(text) if named else []
    return {index for index in named if stances_of(whole_option(options[index]), parts) != {Stance.DENIED}}


@lru_cache(maxsize=4096)  # many questions have the same options, and compiling takes longer than all else here
def whole_option(option: str) -> re.Pattern[str]:
    """Return a pattern of the words of an option."""
    return re.compile(rf"\b{spelled(normalised(option))}\b", re.IGNORECASE)


Name = TypeVar("Name", bound=Hashable)

_WORD = re.compile(r"[^\W_]+(?:['’]s\b)?")
ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ARTICLES = frozenset({"a", "an", "the"})
_STEMS = {"nevi": "nevus", "keratoses": "keratosis", "leucocyte": "leukocyte", "tumour": "tumor"}
_JOINED = re.compile(r"\bcall[- ]backs?\b", re.IGNORECASE)
_PARTS = re.compile(r"\s*(?:[,;/]|\band\b|\bor\b)\s*")
_BRACKET = re.compile(r"\(([^()]*)\)")
_SIDED = re.compile(r"(.+?)[\s,_-]+(left|right)", re.IGNORECASE)
# Other names in use for a class, by its word stems; capitals are acronyms.
_ALSO_CALLED = {
    "choroidal neovascularization": ("CNV",),
    "diabetic macular edema": ("DME",),
    "actinic keratosis": ("AK",),
    "seborrheic keratosis": ("SK",),
    "basal cell carcinoma": ("BCC",),
    "squamous cell carcinoma": ("SCC",),
    "melanocytic nevus": ("nevus",),
    "nevus": ("melanocytic nevus",),
    "distal convoluted tubule": ("DCT",),
    "thick ascending limb": ("TAL",),
}
_WHOLE = (
    r"(?:images?|scans?|pictures?|x-?rays?|radiographs?|films?|photographs?|oct|retina|macula|fundus|chest|lungs?|study|"
    r"examination|exam|ultrasound|mammogram|breast|tissue|eye|case|appearance|anatomy|class|category|option|label)"
)
_NORMAL = re.compile(
    rf"(?i)(?:^\W*(?:a\s+)?|\b\d{{1,2}}\s*[:.)\-]+\s*|\b(?:{_WHOLE}|it|this|that|these|they|diagnosis|answer|findings|result)\b(?:'s)?\W+(?:\w+\W+){{0,3}}?"
    rf"(?:(?:is|are|appears?|looks?|seems?|as|of|shows?|showing|be)\W+)?(?:(?:a|an|the|completely|entirely)\W+)?|"
    rf"\b(?:is|are|appears?|looks?|shows?|with)\s+an?\s+)(normal)\b"
    rf"(?=\W*$|\s*[,.;:)]|\s+(?:in|on|with|without|for|and|or|{_WHOLE})\b)|\b(normal)\s+{_WHOLE}\b"
)
_SETTING = re.compile(r"\b(?:in|on|against|from|with)\s+(?:an?\s+|the\s+)?(?:\w+\s+)?$", re.IGNORECASE)


def words(text: str) -> list[Mention[str]]:
    """Return the words of a text without articles, singular and in one spelling."""
    stems = []
    for match in _WORD.finditer(text):
        plain = unicodedata.normalize("NFKC", match[0]).casefold().replace("’", "'").removesuffix("'s")
        plain = plain.replace("isation", "ization").replace("ae", "e").replace("oe", "e")
        if len(plain) > 3 and plain.endswith("s") and not plain.endswith(("ss", "is", "us", "ses")):
            plain = plain[:-1]
        stem = _STEMS.get(plain, plain)
        if stem not in _ARTICLES:
            stems.append(Mention(stem, match.start(), match.end()))
    return stems


@dataclass(frozen=True)
class ClassNames:
    """The names of a set of classes."""

    names: dict[tuple[str, ...], int]  # word stems of every name and alias to the position of its class
    acronyms: dict[str, int]  # the same of capital letters
    full: tuple[tuple[str, ...], ...]  # word stems of the full names, in order

    def mentions(self, text: str) -> list[Mention[int]]:
        """Return the classes named in ``text`` in order: the longest names, "normal" only of the whole image."""
        text = _JOINED.sub(lambda match: "callback".ljust(len(match[0])), text)
        mentions, last, spoken = [], 0, words(text)
        longest = max((len(name) for name in self.names), default=0)
        for first, word in enumerate(spoken):
            raw = text[word.start : word.end]
            candidates: list[tuple[Mention[int], tuple[str, ...]]] = []
            if raw.upper() in self.acronyms and (len(spoken) == 1 or raw.isupper()):
                candidates.append((Mention(self.acronyms[raw.upper()], word.start, word.end), (raw,)))
            for size in range(min(longest, len(spoken) - first), 0, -1):
                stems = tuple(item.what for item in spoken[first : first + size])
                if stems in self.names:
                    candidates.append((Mention(self.names[stems], word.start, spoken[first + size - 1].end), stems))
                    break
            for mention, stems in candidates:
                is_aside = (stems == ("normal",) and mention.start not in _normal_images(text)) or (
                    stems == ("background",) and _SETTING.search(text, max(0, mention.start - 60), mention.start)
                )
                if mention.start >= last and not is_aside:
                    mentions.append(mention)
                    last = mention.end
        return mentions

    def begun_by(self, text: str) -> int | None:
        """Return the only class whose name begins with all the words of ``text``, two or more, as "basal cell" does."""
        stems = _stems(text)
        begun = [index for index, name in enumerate(self.full) if len(stems) > 1 and name[: len(stems)] == stems]
        return begun[0] if len(begun) == 1 else None

    def told_apart(self, option: int, text: str) -> bool:
        """Return whether ``text`` leaves no doubt that it means ``option`` and not a longer name that contains it."""
        stems = self.full[option]
        longer = [set(name) - set(stems) for name in self.full if name != stems and name[: len(stems)] == stems]
        spoken = {word.what for word in words(_JOINED.sub("callback", text))}
        return not any((extra - {"without", "with", "no"}) & spoken for extra in longer)


@lru_cache(maxsize=256)
def _normal_images(text: str) -> frozenset[int]:
    return frozenset(max(match.start(1), match.start(2)) for match in _NORMAL.finditer(text))


@lru_cache(maxsize=64)
def class_names(options: tuple[str, ...]) -> ClassNames:
    """Return the names, parts and acronyms of classes such as "Melanoma (MEL)" or "femur-left"."""
    full = tuple(_stems(_BRACKET.sub(" ", option)) for option in options)
    aliases, acronyms = [], []
    for option, stems in zip(options, full, strict=True):
        base, inside = _BRACKET.sub(" ", option), _BRACKET.findall(option)
        sided = _SIDED.fullmatch(base.strip())
        others = _ALSO_CALLED.get(" ".join(stems), ())
        called = [option, base, *(alias for alias in others if not alias.isupper())]
        called += [
            part for text in (base, *inside) if text == base or not text.isupper() for part in _PARTS.split(text)
        ]
        called += [f"{sided[2]} {sided[1]}"] if sided else []
        aliases.append({alias_stems for alias in called if (alias_stems := _stems(alias))})
        bracketed = {text for text in inside if text.isupper() and text.isalpha()}
        acronyms.append(bracketed | {alias for alias in others if alias.isupper()})
    whole = {name: index for index, name in enumerate(full) if name and full.count(name) == 1}
    return ClassNames(_unique(aliases) | whole, _unique(acronyms), full)


def _unique(names: Sequence[Set[Name]]) -> dict[Name, int]:
    # only names that one class alone has
    counts = Counter(name for names_of_class in names for name in names_of_class)
    return {name: index for index, its_names in enumerate(names) for name in its_names if counts[name] == 1}


def _stems(text: str) -> tuple[str, ...]:
    return tuple(word.what for word in words(text))
