r"""Words of captions as the tokenizer of pycocoevalcap splits them, without Java.

pycocoevalcap and cidereval run ``PTBTokenizer -preserveLines -lowerCase`` of Stanford CoreNLP 3.4.1 and drop
punctuation. Of all patterns that match at a position, the longest match wins, including the context that a pattern
demands after its token, and of equally long ones the first. The token is the pattern's group if it has one. Text that
no pattern matches is a token of one character, or dropped. Lists of words were made by asking the tokenizer about each
candidate; file names, telephone numbers and most smileys are left out.

Brackets are words such as ``-lrb-``: the published list of punctuation has them in capitals and therefore keeps them.
A blank inside a token, as in ``<br />`` or ``5 1/2``, becomes a no-break space.
"""

from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]  # it has no types

_NUMBER = r"(?:\p{Nd}*(?:[.:,]\p{Nd}+)+|\p{Nd}+)"
_LETTER = r"[\p{L}\p{M}\u00ad\u2010\u2011]"
_SYLLABLE = rf"{_LETTER}[\p{{L}}\p{{M}}\p{{Nd}}\u00ad\u2010\u2011]*"
_WORD = rf"{_SYLLABLE}(?:[.!?]{_SYLLABLE})*"
_ALNUM = r"[\p{L}\p{Nd}\u00ad\u2010\u2011]"
_APOSTROPHE, _QUOTE = "['’\x92´]", "['’\x92´`‘‛\x91]"
_ENDING = rf"{_APOSTROPHE}(?:[msd]|re|ve|ll)"
_LETTERS = r"[A-Za-z](?:\.[A-Za-z])*"  # as in U.S. and p.m.
# The next four lists are all that keep, or lose, their full stop among the words of up to four letters and those of
# 27,000 medical and other texts.
_ABBREVIATIONS = (
    "adj|adm|adv|al|ala|alex|apr|ariz|assn|asst|atty|aug|ave|bhd|bldg|blvd|brig|bros|capt|cf|cie|cmdr|co|col|colo|"
    "conn|corp|cos|cpl|ct|dak|dec|dept|det|dr|drs|elec|ens|esq|est|etc|ext|feb|fla|fri|ft|ga|gen|gov|govs|hon|inc|"
    "ind|insp|intl|invt|jan|jos|jr|jul|jun|kan|kans|ky|lt|ltd|maj|mar|md|mfg|mich|minn|mlle|mme|mo|mon|mont|mr|mrs|"
    "ms|msgr|mt|mtg|natl|neb|nev|nov|oct|okla|penn|pfc|ph|plc|ppte|ppty|pres|prof|pte|ptes|pty|ptys|pvt|rd|rep|reps|"
    "rev|rt|sen|sens|sep|sept|seq|sfc|sgt|spc|sq|sr|st|ste|supt|sys|tel|tenn|thu|tue|tues|univ|va|vs|vt|wed|wis|wisc|"
    "wm|wyo"
)
_CAPITAL_ABBREVIATIONS = "Ark|Az|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash"
BEFORE_NUMBER = "p|art|ca|fig|figs|no|nos|op|pp|prop"  # before a number only
_OPENERS = (  # words after which an initial's full stop ends a sentence before
    "A|About|According|Additionally|After|An|As|At|But|Earlier|He|Her|Here|However|If|In|It|Last|Many|More|Now|Once|"
    "One|Other|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They|This|We|What|When|While|Yet|You"
)
_HYPHENATED = rf"{_ALNUM}[A-Za-z0-9.,\u00ad]*(?:-{_ALNUM}+)+"
_PART = rf"(?:{_ALNUM}+|{_NUMBER})"
_PATTERNS = [
    regex.compile(pattern, regex.IGNORECASE)
    for pattern in (
        # Words, and words that are split
        r"(can)not",
        r"(gon)na|(got)ta|(lem)me|(gim)me|(wan)na",
        rf"({_APOSTROPHE}t)(?:is|was)",
        r"</?[A-Za-z][\w:.-]*(?: [A-Za-z][\w:.-]*(?:=\"?[^\"<>]*\"?)?)* */?>",
        rf"([A-Za-z]*[a-mo-z])n{_QUOTE}t",
        rf"({_WORD}){_ENDING}",
        _WORD,
        rf"[dlno]{_QUOTE}{_LETTER}{{2,}}",
        rf"(?:{_ENDING}|n{_QUOTE}t)(?![A-Za-z])",
        r"https?://\S*[A-Za-z0-9/]|[^\s@<>()]+@[^\s@<>()]*[A-Za-z]",
        r"[@#][a-zA-Z_]\w*",
        # Numbers and fractions
        rf"[\-+]?{_NUMBER}",
        r"\d+/\d+|\d+[- \u00a0]\d+/\d+",
        r"[\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+",
        r"pro-|anti-|-[lr][crs]b-",
        r"[A-Za-z0-9]+(?:-[A-Za-z]+)*(?:/[A-Za-z0-9]+(?:-[A-Za-z]+)*){1,2}",
        # Abbreviations and initials
        rf"((?:{BEFORE_NUMBER})\.)[ \t\n\u00a0]?\d",
        rf"([A-Za-z])\.[ \t\n\u00a0]+(?-i:{_OPENERS})[ \t\n\u00a0?!]",
        rf"(?:(?:ph|ed)\.d|{_ABBREVIATIONS}|(?-i:{_CAPITAL_ABBREVIATIONS})|{_LETTERS})\.",
        rf"((?:{_WORD}|{_HYPHENATED}|\d+)\.)[,;:]",
        # Marks
        r"[:;]-?[()D](?![A-Za-z0-9])",
        r"\.\.\.+|-+|@+|#+|_+|\*+|[?!]+|<<|>>|&(?:amp|lt|gt);",
        "[`'‘’]'|\"|(?:[‘-‟‹›«»`\x91-\x94]|'(?!'))[‘-‟‹›«»`\x91-\x94]?",
        # Words with hyphens
        _HYPHENATED,
        rf"(?={_ALNUM}){_PART}(?:[-_]{_PART})*",
        r"(?-i:[A-Z]+(?:&[A-Z]+)+)",
    )
]
# Most words of reports need no search for the longest match.
_COMMON = regex.compile(r"([A-Za-z]{2,}|a(?= ))(?:[.,;:](?= [A-Za-z]|$)|(?= |$)) *")
_SPECIAL = regex.compile(
    rf"(?:can|go|le|gi|wa)(?:not|nna|tta|mme)|{_ABBREVIATIONS}|{_CAPITAL_ABBREVIATIONS}|{BEFORE_NUMBER}|pro|anti",
    regex.IGNORECASE,
)
_DROPPED = regex.compile(r"\ufffd+|[\p{C}\p{Z}\p{Nl}\u0800-\u1fff\u2e00-\u3000\u3003-\ufeff\ufff0-\uffff]")
_RARE = regex.compile(r"[\U00010000-\U0010ffff]")
_PUNCTUATION = regex.compile(
    "[\"'`‘’‛“”‹›«»\x91-\x94]{1,2}|[.?!,:;]|-{1,4}|[–—―\x96\x97]|&(?:md|mdash|ndash);|\\.[. \u00a0]+|…"
)
_SPELLING = {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3", "¢": "cents", "£": "#"}
_SPELLING |= {**dict.fromkeys("¤₠€\x80", "$"), "&amp;": "&", "&lt;": "<", "&gt;": ">"}
_SPELLING |= {"{": "-lcb-", "}": "-rcb-", "[": "-lsb-", "]": "-rsb-"}
_WITHIN = str.maketrans(
    {"(": "-lrb-", ")": "-rrb-", "’": "'", " ": "\u00a0", **dict.fromkeys("\u00ad\u058a\u2010\u2011", "")}
)


@lru_cache(maxsize=1 << 10)
def _patterns_from(character: str) -> tuple[Any, ...]:
    """Return the patterns that can match a text that starts with this character."""
    return tuple(pattern for pattern in _PATTERNS if pattern.match(character, partial=True))


@lru_cache(maxsize=1 << 16)
def _ordinary(word: str) -> str:
    """Return a word of ASCII letters in lower case, or nothing if it may be split or keep a full stop."""
    return "" if _SPECIAL.fullmatch(word) else word.lower()


@lru_cache(maxsize=1 << 14)
def line_tokens(line: str, next_line: str) -> tuple[str, ...]:
    """Return the words of a text without line ends, in lower case and without punctuation.

    The published code tokenizes all captions in one text, a line each. There, whether an initial or ``no.`` at
    the end of a line keeps its full stop depends on the first word of the next line.
    """
    line = _RARE.sub("\ufffd", line)  # half a character each to the published code, in no pattern
    text = f"{line}\n{next_line}" if next_line else line
    words, position = [], 0
    while position < len(line):
        common = _COMMON.match(line, position)
        if common and (lowered := _ordinary(common[1])):
            words.append(lowered)
            position = common.end()
            continue
        end, longest = position, position
        for pattern in _patterns_from(line[position]):
            match = pattern.match(text, position)
            if match and match.end() > longest:
                longest = match.end()
                end = match.end(match.lastindex or 0)
        if end == position:
            end += 1
            if dropped := _DROPPED.match(line, position):
                position = dropped.end()
                continue
        token = line[position:end]
        position = end
        if not _PUNCTUATION.fullmatch(token) and (word := _SPELLING.get(token) or token.translate(_WITHIN)):
            words.append(word.lower())
    return tuple(words)
