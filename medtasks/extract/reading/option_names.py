"""Finding options in a text: by their words, and by letters alone, declared, leading a line, named, or at the end."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache

from medtasks.extract.reading.negation import Mention, Stance, clauses, stance, stances_of
from medtasks.extract.reading.reply_text import declared

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


_WORD = re.compile(r"[^\W_]+(?:['’]s\b)?")
ORDINALS = ("zeroth", "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ARTICLES = frozenset({"a", "an", "the"})
_STEMS = {"nevi": "nevus", "keratoses": "keratosis", "leucocyte": "leukocyte", "tumour": "tumor"}


def words(text: str) -> list[Mention[str]]:
    """Return the words of a text without articles, singular and in one spelling."""
    stems = (Mention(_stem(match[0]), match.start(), match.end()) for match in _WORD.finditer(text))
    return [word for word in stems if word.what not in _ARTICLES]


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    plain = unicodedata.normalize("NFKC", word).casefold().replace("’", "'").removesuffix("'s")
    plain = plain.replace("isation", "ization").replace("ae", "e").replace("oe", "e")
    if len(plain) > 3 and plain.endswith("s") and not plain.endswith(("ss", "is", "us", "ses")):
        plain = plain[:-1]
    return _STEMS.get(plain, plain)


# ---- letters ----

# Names of bacteria and parasites begin with a letter and a full stop, too.
_SPECIES_NAMES = (
    *("albicans", "aureus", "baumannii", "burgdorferi", "cereus", "coli", "difficile", "fumigatus", "granulosus"),
    *("histolytica", "pylori"),
)
_SPECIES = rf"(?:{'|'.join(_SPECIES_NAMES)})\b"
_END = r"(?=\s*(?:$|[.,;:!?)\]\"'\n]|[-–—]\s|because\b|since\b|as\b|for\b|given\b|which\b|due\b))"
_OPEN, _CLOSE = r"[(\[\"']{0,4}", r"[)\]\"']{0,4}"
_ASIDE = r"(?:\s*\([^()\n]{0,80}\))?"  # the option's text after its letter
_MOST = r"most\s+(?:likely|probable|appropriate|consistent)(?:\s+[a-z]+){1,3}?"
PRAISE = (
    r"\s+(?:the\s+)?(?:(?:most|more|single)\s+)?(?:correct|right|best|likely|appropriate|answer|"
    r"(?:drug|treatment|test|method)\s+of\s+choice)\b"
)
NOUN = r"(?:answer|choice|option|response|selection|diagnosis)"


def leads(noun: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns of leads ("the answer is", "Diagnosis:"), strong ones first; not headings ("each option:")."""
    link = (
        r"(?:\s+(?:based on|given|considering|according to|for|to|in|among|from|of|here|that|which)\b"
        r"[^.:;?!\n]{0,100}?)?[\"']?\s*(?:\b(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*"
        r"(?:therefore|thus|(?:most )?likely|probably)?[:\s]*"
    )
    here = rf"(?<!each )(?<!every )(?<!other )(?<!following )(?<!differential ){noun}{link}(?<!\n)(?!\n)"
    good = rf"(?<!not )(?<!not the )(?:(?:correct|right|best|my|appropriate|predicted)\s+(?:\w+\s+)?{noun}|{_MOST})"
    tiers = (
        rf"final\s+{noun}{link}",
        rf"(?:{good}|the\s+(?:\w+\s+)?answer){link}|(?<!not )the\s+(?:\w+\s+)?{here}",
        rf"answer{link}|{here}",
    )
    return tuple(re.compile(rf"\b(?:{tier})", re.IGNORECASE) for tier in tiers)


LEADS = leads(NOUN)
_STATEMENT_ENDS = re.compile(r"(?i)[.;?!\n]|\b(?:not|rather|instead|unlike|because|since|as|while|which|with)\b")


def one_of(letters: Sequence[str]) -> str:
    """Return a pattern of one of the letters of options, which have two characters after Z."""
    return rf"(?:{'|'.join(reversed(letters))})"


def _capitals(matches: Iterable[str]) -> set[str]:
    # Ignoring case, a range of letters also matches a few letters outside ASCII, such as a dotted capital I.
    return {match.upper() for match in matches if match.isascii()}


def only_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letters of a reply that consists of nothing else: "B", "(b)", "A and B"."""
    named = set()
    for word in re.finditer(r"[^\W_]+", text):
        if word[0].upper() in letters:
            named.add(word[0].upper())
        elif word[0].upper() not in ("AND", "OR", "BOTH", "EITHER"):
            return set()
    return named


def declared_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return letters declared as the answer; a final answer overrules an earlier one."""
    group = one_of(letters)
    target = re.compile(
        rf"(?i)(?:{NOUN}\s*:?\s*)?{_OPEN}({group}){_CLOSE}(?!\s*,\s*{group}{_CLOSE}\s*(?:$|[.,;])){_END}{_also(group)}"
    )
    after_text = re.compile(rf"\(({group})\)|\b(?:option|choice)\s+({group})\b", re.IGNORECASE)

    def read(lead: re.Match[str]) -> set[str]:
        direct = target.match(text, lead.end())
        if direct:
            return _capitals(_groups(direct))
        statement = _STATEMENT_ENDS.split(text[lead.end() : lead.end() + 200])[0]
        return _capitals(letter for match in after_text.finditer(statement) for letter in _groups(match))

    stated = declared(LEADS, text, read)
    if stated:
        return stated
    praised = re.findall(
        rf"(?<![\w'-])(?<!nor ){_OPEN}({group}){_CLOSE}{_ASIDE}\s+(?i:(?:is|would be|seems|looks){PRAISE})", text
    )
    choosing = "choose|select|pick|guess|go with|opt for|(?:it|this|that)(?:'s| is| was| would be| must be| should be)"
    # A small letter only between brackets: "it is a" goes on with a noun.
    chosen = re.findall(
        rf"(?<!not )(?<!n't )(?<!if )(?<!whether )\b(?i:{choosing})\s+(?i:option\s+)?"
        rf"(?:{_OPEN}({group}){_CLOSE}|[(\[]({group.lower()})[)\]]){_END}",
        text,
    )
    return _capitals([*praised, *(large or small for large, small in chosen)])


def _also(group: str) -> str:
    """Return a pattern of a second label next to the first one and its text: " Aspirin or B. Heparin"."""
    joint = r"(?:[,;/&]|\bor\b|\band\b)\s*(?:or\s+|and\s+)?"
    return rf"(?:[.:]?\s[^.\n]{{1,80}}?{joint}(?:option\s+)?{_OPEN}({group})[).:](?=\s)(?!\.\s*{_SPECIES}))?"


def _groups(match: re.Match[str] | None) -> list[str]:
    return [group for group in match.groups() if group] if match else []


def leading_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letter a reply begins with, or the letters that are alone on a line."""
    group = one_of(letters)
    stop = rf"(?:[\"')\]]+\s*[:.,]?|\s*[:.](?!\w\.|\s*{_SPECIES})|,|\s+[-–—](?=\s)|\s*\n)"
    several = only_letters(text.split("\n")[0], letters)
    start = re.match(rf"{_OPEN}({group})(?!'\w){stop}{_also(group)}", text, re.IGNORECASE)
    if start and re.match(r"[a-z]\.\s+\w", text):  # a part of the question, if it is not the option's text
        return set()
    if several or start:
        return several | _capitals(_groups(start))
    return _capitals(re.findall(rf"^[ \t]*{_OPEN}({group}){_CLOSE}[.:]?[ \t]*$", text, re.MULTILINE | re.IGNORECASE))


def names_alternatives(text: str, letters: Sequence[str]) -> bool:
    """Return whether the reply names several letters side by side: "A or B.", "both A and B are"."""
    label = rf"{_OPEN}{one_of(letters)}\b{_CLOSE}"
    several = rf"{label}\s*(?:or\b|and\b|[/&,])\s*(?:option\s+)?{label}"
    return re.search(rf"\b{several}{_END}|\b(?i:both|either|between)\s+{several}", text) is not None


def named_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return letters called by name ("option B"), else letters in brackets, unless their clause denies them."""
    group = one_of(letters)
    called = (
        rf"\b(?i:option|choice|answer|letter)\s*:?\s*{_OPEN}({group}|{group.lower()}){_CLOSE}{_END}|"
        rf"\b(?:[Oo]ption|[Cc]hoice)\s+({group})\b"
    )
    return _not_denied(re.compile(called), text) or _not_denied(re.compile(rf"\(({group})\)"), text)


def _not_denied(pattern: re.Pattern[str], text: str) -> set[str]:
    return {
        letter.upper()
        for clause in (clauses(text) if pattern.search(text) else ())
        for match in pattern.finditer(clause)
        for letter in _groups(match)
        if stance(clause, *match.span()) is not Stance.DENIED
    }


_LABELLED = (
    r"(?:type|grade|stage|class|vitamin|hepatitis|ha?emophilia|influenza|\w*globulin|\w*protein|factor|level|group|segment|"
    r"figure|fig|panel|image|part|series)"
)


def bare_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return capitals that end a phrase, leaving out denied ones and names such as "hepatitis B"."""
    text = re.sub(rf"\b({_LABELLED}\s+)[A-Z]\b", r"\1", text, flags=re.IGNORECASE)
    return _not_denied(
        re.compile(rf"(?<![\w'-])(?<!\b\w\.)({one_of(letters)})(?![\w'-]|\.\w\b|\.\s*{_SPECIES}){_END}"), text
    )


def without_names(text: str, letters: Sequence[str]) -> str:
    """Remove capitals that are no letters of options: of "E. coli", "N/A", "4 degrees C" and "I would say"."""
    lower = text.lower()
    if any(hint in lower for hint in (*_SPECIES_NAMES, "n/a", "°", "degree")):  # much faster than the pattern
        species = rf"\b{one_of(letters)}\.(?=\s*{_SPECIES})"
        text = re.sub(rf"{species}|\bn/a\b|(?:°|\bdegrees?)\s*[a-z]\b", " ", text, flags=re.IGNORECASE)
    return re.sub(r"\bI(?=,\s|\s+(?!is\b)[a-z]|')", " ", text) if "I" in letters else text


def without_echo(text: str, letters: Sequence[str], options: Sequence[str]) -> str:
    """Remove a repetition of the whole option list, as base models produce it before or after their answer."""
    texts = [normalised(option) for option in options]
    # A text shorter than the options cannot repeat them.
    if not all(texts) or sum(map(len, texts)) > len(text) or any(lacks(text, option) for option in texts):
        return text
    labels = list(re.finditer(rf"{_OPEN}\b({one_of(letters)})[\"')\]]*\s*[:.)]\s*", text, re.IGNORECASE))
    outside, end_of_echo = [], 0
    for first in range(len(labels) - len(letters) + 1):
        run = labels[first : first + len(letters)]
        ends = [label.start() for label in run[1:]]
        if run[0].start() < end_of_echo or not all(
            label[1].upper() == letter and normalised(text[label.end() : end]) == option
            for label, letter, option, end in zip(run, letters, texts, ends, strict=False)
        ):
            continue
        last = re.compile(spelled(texts[-1]) + r"\b[\"')\].]*", re.IGNORECASE).match(text, run[-1].end())
        if run[-1][1].upper() == letters[-1] and last:
            outside.append(text[end_of_echo : run[0].start()])
            end_of_echo = last.end()
    if not outside:
        return text
    return re.sub(r"\s*\bAnswer:?\s*$", "", "\n".join([*outside, text[end_of_echo:]])).strip()
