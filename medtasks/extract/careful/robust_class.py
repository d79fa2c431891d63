"""The class of an image, read with care.

The options are class names or grades; prompts number them from 1. The first of these steps that finds something counts:

1. the whole reply is a number, a class name, an acronym of one, or the beginning of exactly one name;
2. a declared answer ("the answer is 2", "diagnosis: BCC"); a final answer overrules an earlier one;
3. a leading number or name ("2: background", "2. The image ...", "Melanoma, because ...");
4. a refusal ("cannot be determined", "none of the above");
5. a called number or grade ("option 2", "BI-RADS 4", "category IV");
6. the one class that the text affirms, or holds possible ("may be a melanoma").

Two different classes on one step, and a number next to another class's name, are ambiguous. Measurements, counts and
years are no option numbers. "Not malignant" says nothing about the other class. Of names that contain one another the
longest counts, so "benign without callback" is not "benign".

Grades: of options 1, 2, ... a number is its own position. If the options are numbers that differ from their positions
("1: 0", "2: 1", ...), a bare number is a position, or a grade if it is no position; "grade 2" is the option "2".
"""

import itertools
import re
from collections import Counter
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.reading.languages import languages_of, pattern_of
from medtasks.extract.reading.negation import ENGLISH, Mention, Stance, clauses, stance, stances
from medtasks.extract.reading.option_names import ORDINALS, leads, words
from medtasks.extract.reading.reply_text import REFUSAL, declared, own_words

Name = TypeVar("Name", bound=Hashable)

# ---- numbers of options and grades, in contrast to measurements, counts and years ----

_CARDINALS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_ROMAN = ("", "I", "II", "III", "IV", "V", "VI")
_UNIT = (
    r"(?:[cmkµn]?m[23²³]?\b|millimet|centimet|micro|inch|%|percent|°|degrees?\b|years?\b|days?\b|weeks?\b|months?\b|hours?\b|"
    r"times\b|x\b|×|fold\b|[mk]g\b|ml\b|cc\b|m?hz\b|kv\b|tesla\b|t\b|pixels?\b|out of\b|of\b|in\s+\d|per\b)"
)
# No part of a decimal, a fraction, a measurement or a word such as "T2".
_NUMBER = rf"(?<![\w.,/])\d{{1,2}}(?![\w%°²³]|[.,/:]\d|\s*/\s*\d|\s*-?\s*{_UNIT})"
_BRACKETED = rf"[(\[\"']{{0,3}}{_NUMBER}[)\]\"']{{0,3}}"
_OTHER = r"\s*(?:,|/|&|\band\b|\bor\b|\bto\b|[-–])\s*(?:and\s+|or\s+)?(?:option\s+|class\s+|grade\s+|bi-?rads\s+)?"
_LIST = rf"{_BRACKETED}(?:{_OTHER}{_BRACKETED})*"
_KIND = r"(?:options?|choices?|class(?:es)?|labels?|categor(?:y|ies)|numbers?|no\.|answers?|#)"
_ONLY = re.compile(
    rf"(?i)\W*(?:(?:the|it is|it's|between|either|both)\s+)?(?:{_KIND}\W*)?"
    rf"({_LIST}|{_BRACKETED}(?:\s+{_BRACKETED})+)\W*"
)
_AT_START = re.compile(rf"(?:{_KIND}\s*)?({_LIST})", re.IGNORECASE)
_CALLED = re.compile(rf"(?<!\w){_KIND}\s*+(?:number|no\.|#)?\s*+:?\s*+({_LIST})", re.IGNORECASE)
_SPELLED = (
    (re.compile(rf"\b(?:option|choice|number)\s+({'|'.join(_CARDINALS)})\b", re.IGNORECASE), _CARDINALS),
    (re.compile(rf"\b({'|'.join(ORDINALS)})\s+(?:option|choice)\b", re.IGNORECASE), ORDINALS),
)
_SCALE = re.compile(r"\b(?:bi[\s-]?rads|grade|stage|level|severity|score|category|class|label)(?![a-z])", re.IGNORECASE)
_FILL = (
    r"(?:bi[\s-]?rads|level|category|grade|score|assessment|classification|class|stage|rating|label|of|is|was|be|would|in|"
    r"this|the|an?|as|mammography|mammogram|image|most|likely|probably|number|for|picture|it|diabetic|retinopathy|to)"
)
_GRADE = re.compile(
    rf"(?:[?\s:=(\"'®-]++(?:(?i:{_FILL})\b)?)*?[?\s:=(\"'®-]*+(?:(?<![\d.])(\d)(?i:[abc])?(?!\w|[.,/]\d|\s*-?\s*(?!o){_UNIT})|"
    rf"\b({'|'.join(reversed(_ROMAN[1:]))}|(?i:iii?|iv|vi))\b(?!\s+[a-z]|')|\b((?i:{'|'.join(_CARDINALS[:7])}))\b)"
    rf"(?:{_OTHER}(\d)(?!\w|[.]\d))?"
)


def numbers_at(text: str, start: int = 0) -> tuple[list[int], int]:
    """Return the numbers that begin at ``start``, with "or" and "and" between them, and where they end."""
    match = _AT_START.match(text, start)
    return (_digits(match[1]), match.end()) if match else ([], start)


def grades_called(text: str) -> list[Mention[int]]:
    """Return the grades of a scale, one for every word that names it: "BI-RADS 4a", "category IV"."""
    grades = set()
    for scale in _SCALE.finditer(text):
        match = _GRADE.match(text, scale.end(), scale.end() + 160)
        if match:
            word = match[2] or match[3] or ""
            spelled = _ROMAN if word.upper() in _ROMAN else _CARDINALS
            value = int(match[1]) if match[1] else spelled.index(word.upper() if spelled is _ROMAN else word.casefold())
            grades.add(Mention(value, scale.start(), match.end()))
            if match[4]:
                grades.add(Mention(int(match[4]), scale.start(), match.end()))
    return sorted(grades, key=lambda number: (number.start, number.what))


def _digits(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


# ---- classes ----

_JOINED = re.compile(r"\bcall[- ]backs?\b", re.IGNORECASE)
_PARTS = re.compile(r"\s*(?:[,;/]|\band\b|\bor\b)\s*")
_BRACKET = re.compile(r"\(([^()]*)\)")
_SIDED = re.compile(r"(.+?)[\s,_-]+(left|right)", re.IGNORECASE)
# Other names in use for a class, by its word stems; capitals are acronyms. Initials are known anyway.
_ALSO_CALLED = {
    "choroidal neovascularization": ("CNV",),
    "actinic keratosis": ("AK",),
    "melanocytic nevus": ("nevus",),
    "nevus": ("melanocytic nevus",),
}
_CLASSES = ("abnormal", "normal", "benign", "malignant")  # names that other languages have, too
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
NO_OPTION = -1
_UNSPACED = re.compile("[\u0e00-\u9fff]")
_NUMBER_WORD = re.compile(rf"(?i)\d|\b(?:{'|'.join((*_CARDINALS, *ORDINALS, *_ROMAN[1:]))})\b")
_FILLER = re.compile(
    r"(?:[\s\"'(\[:,]|\b(?:an?|the|that|of|most likely|likely|probably|to be|it is|this is|it's)\b)*", re.IGNORECASE
)
_SCALE_FILLER = re.compile(rf"(?:{_FILLER.pattern}|\b(?:bi-?rads|grade|level|category)\b)*", re.IGNORECASE)
_SIGN = re.compile(
    r"(?i)[)\]\"'\s]*(?:[:.,=)\-–—]|\bis\b|\bwhich is\b|\bcorresponds to\b)?[\s\"'(\[]*(?:(?:an?|the)\s)?"
)
_ALSO = re.compile(r"(?i)[)\]\"']*\s*(?:[,/&(:]|\b(?:and|or|versus|vs\.?)\b)\s*(?:(?:or|and)\s+)?(?:(?:an?|the)\s+)?")
_NUMBER_AFTER = re.compile(r"\s*[(\[,:-]\s*(?:option|class|number|#)?\s*(\d{1,2})\s*(?:[)\]]|$)", re.IGNORECASE)
_NUMBER_ENDS = re.compile(r"[)\]\"']*(?:\s*[:.)\],]|\s+[-–—]\s|\s*$|\s*\n|\s*\(|\s+(?:because|since|due)\b)")
_NAME_ENDS = re.compile(r"(?i)[)\]\"']*\s*(?:$|[.,;:!?)(\n]|[-–—]\s|(?:because|since|as|for|given|which|due|is)\b)")
_GRADE_NAME = re.compile(r"\s*(\D*?)\s*(\d{1,2})\s*")
_NEAR = 300  # characters in which an answer begins


@dataclass(frozen=True)
class ClassChoices:
    """The classes of one question: their names, or the grades that are their names."""

    options: tuple[str, ...]
    grades: tuple[int, ...]
    # Word stems of every name and alias, to the position of its class; of what it denies, to :func:`_absence`.
    names: dict[tuple[str, ...], int]
    acronyms: dict[str, int]  # the same of capital letters
    full: tuple[tuple[str, ...], ...]  # word stems of the full names, in order
    languages: tuple[str, ...]
    unspaced: re.Pattern[str]  # names in scripts without blanks

    @property
    def shifted(self) -> bool:
        """Whether the classes are grades that differ from their positions."""
        return bool(self.grades) and self.grades != tuple(range(1, len(self.options) + 1))

    def position(self, number: int) -> int:
        """Return the class of a bare number, counted from 0: a position, else a grade."""
        return number - 1 if 1 <= number <= len(self.options) else self.grade(number)

    def positions(self, numbers: Sequence[int]) -> set[int]:
        """Return the classes of several numbers; different numbers are never one class."""
        return {self.position(number) for number in numbers} | ({NO_OPTION} if len(set(numbers)) > 1 else set())

    def grade(self, number: int) -> int:
        """Return the class with this number as its name, or ``NO_OPTION``."""
        return self.grades.index(number) if number in self.grades else NO_OPTION

    def at(self, text: str, start: int, languages: tuple[str, ...], *, leading: bool = False) -> set[int]:
        """Return the classes named at ``start`` after fillers; ``leading`` words must be set off from the rest."""
        near = text[start : start + _NEAR]
        filler = (_SCALE_FILLER if self.grades and not self.shifted else _FILLER).match(near)
        begin = filler.end() if filler else 0
        numbers, end = numbers_at(near, begin)
        if numbers:
            positions, sign = self.positions(numbers), _SIGN.match(near, end)
            after = sign.end() if sign else end
            if self.shifted and near[after:].strip():  # "2: 1" names option 2, "2: moderate" may mean grade 2
                labels, _ = numbers_at(near, after)
                return positions | {self.grade(label) for label in labels} if labels else set()
            if len(numbers) == 1 and not self.grades:
                names = {
                    mention.what for mention in self.mentions(near) if mention.start == after and mention.what >= 0
                }
                if names:
                    return positions | names
            return positions if not leading or _NUMBER_ENDS.match(near, end) else set()
        mentions = {mention.start: mention for mention in self.mentions(near)}
        named, end, start = set(), begin, begin
        while mention := mentions.get(start):
            named.add(mention.what)
            end = mention.end
            following = _ALSO.match(near, end)
            if following is None:
                break
            start = following.end()
        if not named or min(named) < NO_OPTION:
            return set()
        clause = next(iter(clauses(near[begin:], languages)), "")
        denied = stance(clause, 0, min(end - begin, len(clause)), languages) is Stance.DENIED
        if denied or (leading and not _NAME_ENDS.match(near, end)):
            return set()
        number = _NUMBER_AFTER.match(near, end)
        return named | {self.position(int(number[1]))} if number else named

    def stances(self, text: str, languages: tuple[str, ...]) -> dict[Stance, set[int]]:
        """Return the classes that a text mentions, by stance; to deny what a class denies is to affirm it."""
        by_stance = stances(text, self.mentions, languages)
        by_stance[Stance.AFFIRMED] |= {_absence(code) for code in by_stance[Stance.DENIED] if code < NO_OPTION}
        return {kind: {option for option in options if option >= 0} for kind, options in by_stance.items()}

    def mentions(self, text: str) -> list[Mention[int]]:
        """Return the classes named in ``text`` in order: the longest names, "normal" only of the whole image."""
        text = _JOINED.sub(lambda match: "callback".ljust(len(match[0])), text)
        mentions, last, spoken = [], 0, _meanings(text)
        longest = max((len(name) for name in self.names), default=0)
        may_be_normal = self.languages == ENGLISH and ("normal",) in self.names and "normal" in text.lower()
        normal_images = (
            {max(match.start(1), match.start(2)) for match in _NORMAL.finditer(text)} if may_be_normal else ()
        )
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
                is_aside = (may_be_normal and stems == ("normal",) and mention.start not in normal_images) or (
                    stems == ("background",) and _SETTING.search(text, max(0, mention.start - 60), mention.start)
                )
                if mention.start >= last and not is_aside:
                    mentions.append(mention)
                    last = mention.end
        return mentions

    def without_echo(self, text: str) -> str:
        """Remove a repetition of all options, with or without numbers, and of the whole scale of grades."""
        if self.grades:
            low, high = min(self.grades), max(self.grades)
            text = re.sub(rf"\(?\b(?:from\s+|between\s+)?{low}\s*(?:to|and|[-–]|through)\s*{high}\b\)?", " ", text)
        listed = [r"[\W_]+".join(re.findall(r"[^\W_]+", option)) for option in self.options]
        lower = text.lower()
        if not all(listed) or any(word not in lower for option in self.options for word in option.lower().split()):
            return text.strip()
        numbered = [rf"(?:\(?{n}\s*[:.)]+\s*){words}" for n, words in enumerate(listed, 1)]
        text = re.sub(r"\b[\W_]+".join(numbered) + r"\b[)\]\".]*", "\n", text, flags=re.IGNORECASE)
        if not self.grades:
            joint = r"\b[)\"']*\s*(?:,|,?\s*\bor\b|\n)[\W_]*"
            text = re.sub(rf"\b{joint.join(listed)}\b[)\"']*", "\n", text, flags=re.IGNORECASE)
        return re.sub(
            r"^\W*Options?\s*:\s*|^\W*Which options? correspond[^?\n]*\?", "", text.strip(), flags=re.I
        ).strip()


@lru_cache(maxsize=64)
def class_choices(options: tuple[str, ...]) -> ClassChoices:
    """Return the classes of a question, by grades ("1", "BI-RADS 2") or by names ("Melanoma (MEL)", "femur-left")."""
    languages = _english_or(languages_of(" ".join(options)))
    unspaced = re.compile("|".join(map(re.escape, filter(_UNSPACED.search, options))) or r"(?!)")
    numbered = [match for option in options if (match := _GRADE_NAME.fullmatch(option))]
    if options and len(numbered) == len(options) and len({match[1].casefold() for match in numbered}) == 1:
        grades = tuple(int(match[2]) for match in numbered)
        return ClassChoices(options, grades, {}, {}, ((),) * len(options), languages, unspaced)
    full = tuple(_stems(_BRACKET.sub(" ", option)) for option in options)
    aliases = [_aliases(option, stems) for option, stems in zip(options, full, strict=True)]
    names = _unique([{stems for alias in called if (stems := _stems(alias))} for called in aliases])
    names |= {name: index for index, name in enumerate(full) if name and full.count(name) == 1}
    acronyms = _unique([_acronyms(option, stems) for option, stems in zip(options, full, strict=True)])
    for index, option in enumerate(options):
        denial = pattern_of("not", languages).match(option)
        denied = _stems(option[denial.end() :]) if denial else ()
        for name in filter(None, (denied, denied[-1:])):
            names.setdefault(name, _absence(index))
        if len(denied) > 1:
            acronyms.setdefault("".join(stem[0] for stem in denied).upper(), _absence(index))
    return ClassChoices(options, (), names, acronyms, full, languages, unspaced)


def _english_or(languages: tuple[str, ...]) -> tuple[str, ...]:
    return ENGLISH if "en" in languages else languages


def _absence(index: int) -> int:
    """Return the code of what a class denies, or the class of a code."""
    return -2 - index


def _aliases(option: str, stems: tuple[str, ...]) -> set[str]:
    """Return the names of a class: with and without its brackets, its parts, other names in use."""
    base = _BRACKET.sub(" ", option)
    called = {option, base, *(alias for alias in _ALSO_CALLED.get(" ".join(stems), ()) if not alias.isupper())}
    for text in (base, *_BRACKET.findall(option)):
        if text == base or not text.isupper():
            called.update(_PARTS.split(text))
    sided = _SIDED.fullmatch(base.strip())
    return called | ({f"{sided[2]} {sided[1]}"} if sided else set())


def _acronyms(option: str, stems: tuple[str, ...]) -> set[str]:
    bracketed = {text for text in _BRACKET.findall(option) if text.isupper() and text.isalpha()}
    also_called = {alias for alias in _ALSO_CALLED.get(" ".join(stems), ()) if alias.isupper()}
    initials = {"".join(stem[0] for stem in stems).upper()} if len(stems) > 2 else set()
    return bracketed | also_called | initials


def _unique(names: Sequence[Set[Name]]) -> dict[Name, int]:
    # only names that one class alone has
    counts = Counter(itertools.chain.from_iterable(names))
    return {name: index for index, own in enumerate(names) for name in own if counts[name] == 1}


def _stems(text: str) -> tuple[str, ...]:
    return tuple(word.what for word in _meanings(text))


def _meanings(text: str) -> list[Mention[str]]:
    """Return the words of a text; those for "normal", "benign" and the like of any language are English."""
    return [word._replace(what=_meaning(word.what)) for word in words(text)]


@lru_cache(maxsize=1 << 14)
def _meaning(stem: str) -> str:
    return next((role for role in _CLASSES if pattern_of(role).fullmatch(stem)), stem)


_NOUN = (
    r"(?:answer|option|choice|class|label|diagnosis|category|classification|prediction|response|selection|result|"
    r"conclusion)"
)
_DECLARED = leads(_NOUN)
_CHOOSING = re.compile(
    r"(?i)(?<!not )(?<!n't )(?<!if )(?<!whether )\b(?:corresponds? (?:best |most closely )?to|belongs? to|"
    r"classif(?:y|ied)(?: it| this)? as|(?:diagnosed|identified|labell?ed|rated|graded|assessed) as|"
    r"(?:rate|grade|assess) (?:it|this) as|(?:i|i'd|i would|i will) (?:choose|select|pick|say|guess|go with))\b"
)
_NEGATIVE = re.compile(r"\(?\bnegative\b\)?", re.IGNORECASE)  # the name of BI-RADS 1
_MARKER = re.compile(r"(?:^|\s)\(?(\d{1,2})[.):]\s")
_BOTH_SIDES = re.compile(
    r"(?i)\b(?:left\s*(?:and|or|/|&)\s*(?:the\s+)?right|right\s*(?:and|or|/|&)\s*(?:the\s+)?left|both|bilateral)\b"
)


@extractor("robust_class", AnswerKind.CHOICE, "numbers, grades and names, read with care", version=3)
def robust_class(reply: str | None, sample: Sample) -> Answer:
    """Read the class of an image; options are names without numbers, none at all two classes with unknown names."""
    classes = class_choices(tuple(sample.options) or ("", ""))
    own = own_words(reply, split_names=True, is_answer=lambda value: len(_whole(value, classes)) == 1)
    if isinstance(own, Reason):
        return Answer.invalid(own)
    text = classes.without_echo(own)
    if not text:
        return Answer.invalid(Reason.AMBIGUOUS)
    languages = _english_or(languages_of(f"{text} {' '.join(classes.options)}", sample.languages))
    if not text.isascii():
        text = classes.unspaced.sub(r" \g<0> ", pattern_of(" ".join(_CLASSES), ("zh", "ja")).sub(r" \g<0> ", text))
    options = set() if classes.shifted and grades_called(text) else _stated(text, classes, languages)
    if not options and _declines(text, languages):
        return Answer.invalid(Reason.REFUSED)
    options = options or _called(text, classes, languages)
    if options == {NO_OPTION}:
        return Answer.invalid(Reason.NO_MATCH)
    if len(options) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    chosen = _checked(options, text, classes, languages)
    return Answer.ok(letter(chosen)) if isinstance(chosen, int) else Answer.invalid(chosen)


def _declines(text: str, languages: tuple[str, ...]) -> bool:
    others = tuple(language for language in languages if language != "en")
    return bool(REFUSAL.search(text) or (others and pattern_of("refusal none", others).search(text)))


def _called(text: str, classes: ClassChoices, languages: tuple[str, ...]) -> set[int]:
    """Return the options and grades called by number that their clause does not deny: "option 2", else "(2)"."""
    options = set[int]()
    has_numbers = _NUMBER_WORD.search(text) is not None
    for clause in clauses(text, languages) if has_numbers else ():
        numbers = [Mention(value, *name.span(1)) for name in _CALLED.finditer(clause) for value in _digits(name[1])]
        for pattern, spelled in _SPELLED:
            named = pattern.finditer(clause)
            numbers += [Mention(spelled.index(name[1].casefold()), *name.span(1)) for name in named]
        in_brackets = re.finditer(r"\((\d{1,2})\)", clause)
        numbers = numbers or [Mention(int(name[1]), *name.span(1)) for name in in_brackets]
        called = [(classes.position(number.what), number) for number in numbers]
        if classes.grades:
            clause = _NEGATIVE.sub(lambda match: " " * len(match[0]), clause)
            called += [(classes.grade(number.what), number) for number in grades_called(clause)]
        for option, number in called:
            if stance(clause, number.start, number.end, languages) is not Stance.DENIED:
                options.add(option)
    return options if options == {NO_OPTION} else options - {NO_OPTION}


def _checked(options: set[int], text: str, classes: ClassChoices, languages: tuple[str, ...]) -> int | Reason:
    """Return the one option unless the text denies it, or affirms exactly one other; of none, the one it affirms."""
    by_stance = classes.stances(text, languages)
    affirmed, hedged, denied = by_stance[Stance.AFFIRMED], by_stance[Stance.HEDGED], by_stance[Stance.DENIED]
    if options:
        another = (len(affirmed) == 1 and not options <= affirmed) or options & denied
    else:
        options = affirmed or hedged
        another = len(options | hedged) > 1 or options & denied
    if not options:
        either = by_stance[Stance.OPEN]
        unclear = len(either) > 1 or not all(_distinct(option, text, classes) for option in either)
        return Reason.AMBIGUOUS if unclear else Reason.NO_MATCH
    if another or not _distinct(min(options), text, classes):
        return Reason.AMBIGUOUS
    return min(options)


def _distinct(option: int, text: str, classes: ClassChoices) -> bool:
    """Return whether the text excludes the class's look-alikes: a longer name, the other side of a paired organ."""
    stems = classes.full[option]
    longer = [set(name) - set(stems) for name in classes.full if name != stems and name[: len(stems)] == stems]
    spoken = set(_stems(_JOINED.sub("callback", text)))
    if any((extra - {"without", "with", "no"}) & spoken for extra in longer):
        return False
    sided = re.search(r"\b(?:left|right)\b", classes.options[option], re.IGNORECASE)
    return not (sided and _BOTH_SIDES.search(text))


def _stated(text: str, classes: ClassChoices, languages: tuple[str, ...]) -> set[int]:
    """Return the classes that are the whole reply, else those that it declares, else those that it begins with."""
    if whole := _whole(text, classes):
        return whole
    stated = declared((*_DECLARED, _CHOOSING), text, lambda lead: classes.at(text, lead.end(), languages))
    if stated:
        return stated
    is_list = _MARKER.match(text) and len(set(_MARKER.findall(text))) > 1  # of thoughts, whose "1." is no option
    return set() if is_list else classes.at(text, 0, languages, leading=True)


def _whole(text: str, classes: ClassChoices) -> set[int]:
    """Return the classes that a text is: by number, by name, or by what only one name begins with."""
    plain, whole = re.sub(r"[\W_]+", " ", text).strip().casefold(), _ONLY.fullmatch(text)
    # "2", "(2).", "Option 2", "2 and 5", "two"
    numbers = [_CARDINALS.index(plain)] if plain in _CARDINALS else _digits(whole[1]) if whole else []
    if numbers and not (classes.shifted and len(numbers) > 1):  # "(2) 1" is option 2, grade 1
        return classes.positions(numbers)
    mentions = classes.mentions(text)
    if len(mentions) == 1 and not re.search(r"\w", text[: mentions[0].start] + text[mentions[0].end :]):
        return {mentions[0].what} - {_absence(index) for index in range(len(classes.options))}
    begun = {
        index for index, option in enumerate(classes.options) if plain and option.casefold().startswith(f"{plain} ")
    }
    stems = _stems(text)  # the beginning of one name, as "basal cell"
    begun |= {index for index, name in enumerate(classes.full) if len(stems) > 1 and name[: len(stems)] == stems}
    return begun if not mentions and len(begun) == 1 and plain not in _CLASSES else set()
