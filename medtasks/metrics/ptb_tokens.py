r"""Words of captions as the tokenizer of pycocoevalcap splits them, without Java.

pycocoevalcap and cidereval run ``PTBTokenizer -preserveLines -lowerCase`` of Stanford CoreNLP 3.4.1 and drop
punctuation. The rules here were found by observing its output: of all patterns that match at a position, the longest
match wins, including the context that a pattern demands after its token, and of equally long ones the first. The token
is the pattern's group if it has one. Text that no pattern matches is a token of one character, or dropped.

Brackets are words such as ``-lrb-``: the published list of punctuation has them in capitals and therefore keeps them.
A blank inside a token, as in ``<br />`` or ``5 1/2``, becomes a no-break space.
"""

from functools import lru_cache
from typing import Any

import regex  # type: ignore[import-untyped]  # it has no types

_NUMBER = r"(?:\p{Nd}*(?:[.:,]\p{Nd}+)+|\p{Nd}+)"
_LETTER = r"[\p{L}\p{M}\u02c2-\u02df\u02e5-\u02ff\u00ad\u058a\u2010\u2011]"
_SYLLABLE = rf"{_LETTER}[\p{{L}}\p{{M}}\p{{Nd}}\u02c2-\u02df\u02e5-\u02ff\u00ad\u058a\u2010\u2011]*"
_WORD = rf"{_SYLLABLE}(?:[.!?]{_SYLLABLE})*"
_ALNUM = r"[\p{L}\p{Nd}\u00ad\u2010\u2011]"
_APOSTROPHE, _QUOTE, _BLANK = "['’\x92´]", "['’\x92´`‘‛\x91]", r"[ \t\u00a0]"
_ENDING = rf"{_APOSTROPHE}(?:[msd]|re|ve|ll)"
_LETTERS = r"[A-Za-z](?:\.[A-Za-z])*"  # as in U.S. and p.m.
_TITLES = (
    "mr|mrs|ms|miss|drs?|profs?|sens?|reps?|attys?|lt|col|gen|messrs|govs?|adm|rev|maj|sgt|cpl|pvt|capt|ste?|ave|pres|"
    "lieut|hon|brig|co?mdr|pfc|spc|supts?|det|vs|alex|wm|jos|cie|cf|treas|ph|invt|elec|natl|m[ft]g|dept|v"
)
_ABBREVIATIONS = (
    "jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec|mon|tues?|wed|thu|thurs|fri|ala|ariz|calif|colo|conn|ct|dak|fla|ga|"
    "ind|kans?|ky|md|mich|minn|mo|mont|neb|nev|okla|penn|tenn|va|vt|wisc?|wyo|inc|cos?|corp|pp?t[ye]s?|ltd|plc|bancorp|"
    "bhd|assn|univ|intl|sys|tel|est|ext|sq|jr|bros|ed\\.d|ph\\.d|esq|etc|al|seq|bldg|rt|"
    "(?-i:Az|Ark|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash)"
)
BEFORE_NUMBER = "ca|figs?|prop|nos?|sect?s?|arts?|paras?|pp|op|p"  # abbreviations before a number only
_OPENERS = (  # words after which an initial's full stop ends a sentence before
    "About|According|Additionally|After|An?|As|At|But|Did|During|Earlier|He|Her|Here|How|However|If|In|It|Last|Many|"
    "More|Mr\\.|Ms\\.|Now|Once|One|Other|Our|She|Since|So|Some|Such|That|The|Their|Then|There|These|They|This|We|When|"
    "While|What|Who|Why|Yet|You"
)
_NAME, _VALUE = r"[A-Za-z][A-Za-z0-9_:.\-]*", r"""(?:'[^']*'|"[^"]*"|[A-Za-z][A-Za-z0-9_:.\-]*)"""
_HYPHENATED = rf"{_ALNUM}[A-Za-z0-9.,\u00ad]*(?:-{_ALNUM}+)+"
_PART = rf"(?:[dol]{_QUOTE}{_ALNUM})?(?:{_ALNUM}+|{_NUMBER})"
_OPENER = rf"[ \t\n\u00a0]+(?-i:{_OPENERS})[ \t\n\u00a0?!]"
_PATTERNS = [
    regex.compile(pattern, regex.IGNORECASE)
    for pattern in (
        # Words, and words that are split
        r"(can)not|('t)was",
        rf"({_APOSTROPHE}t)is|(gon)na|(got)ta|(lem)me|(gim)me|(wan)na",
        rf"</?{_NAME}(?:[ \u00a0]+{_NAME}(?: *= *{_VALUE})?)*[ ]*/?[ ]*>|<[!?][A-Za-z\-][^>]*>",
        rf"([A-Za-z]*[a-mo-z])n{_QUOTE}t",
        rf"({_WORD}){_ENDING}",
        _WORD,
        rf"[ldj]{_APOSTROPHE}|o{_QUOTE}o|[a-hj-xz]{_QUOTE}{_LETTER}{{2,}}",
        rf"{_LETTER}+[aeiouy]{_QUOTE}(?:[aeiou]|(?-i:[A-Z])){_LETTER}*",
        rf"{_APOSTROPHE}(?:n{_APOSTROPHE}|n(?!\p{{L}})|em|[2-9]0s|till?|cause)|cont'd\.?|(?:ol|somethin){_APOSTROPHE}",
        rf"(?:{_ENDING}|n{_QUOTE}t)(?![A-Za-z])",
        # Addresses and names of files
        r"https?://[^\s\"<>|(){}\[\]]+[^\s\"'<>|.!?(){},;:&\[\]\-]",
        r"(?:www\.(?:[^\s\"<>|.!?(){},]+\.)+[a-zA-Z]{2,4}|(?:[^\s\"`'<>|.!?(){},\-_$]+\.)+(?:com|net|org|edu))"
        r"(?:/[^\s\"<>|()]+[^\s\"<>|.!?(){},\-])?",
        r"<?[a-zA-Z0-9][^\s\"<>|()\u00a0{}]*@(?:[^\s\"<>|(){}.\u00a0]+\.)*[^\s\"<>|(){}\[\].\u00a0]+>?",
        r"[@#][a-zA-Z_]\w*",
        r"[\p{L}\d]+(?:\.[\p{L}\d]+)*\.(?:bmp|docx?|gif|gz|html?|jpe?g|pdf|png|py|tar|txt|xml|zip)(?![\p{L}\d])",
        # Numbers, dates and codes
        r"\d{1,2}[\-/]\d{1,2}[\-/]\d{2,4}",
        rf"[\-+]?{_NUMBER}",
        r"(?:\d{1,4}[- \u00a0])?\d{1,4}(?:\\?/|⁄)\d{1,4}",
        r"[\u00b2\u00b3\u00b9\u2070\u2074-\u2079\u2080-\u2089]+",
        r"-[LR][RCS]B-|c\.d\.s|pro-|anti-",
        r"[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}(?:\\?/[A-Za-z0-9]+(?:-[A-Za-z]+){0,2}){1,2}",
        r"(?-i:[A-Z])*\$|#",
        rf"{_APOSTROPHE}\d\d(?={_BLANK})",
        r"(?:\([0-9]{2,3}\)[ \u00a0]?|(?:\+\+?)?(?:[0-9]{2,4}[\- \u00a0])?[0-9]{2,4}[\- \u00a0])"
        r"[0-9]{3,4}[\- \u00a0]?[0-9]{3,5}|(?:(?:\+\+?)?[0-9]{2,4}\.)?[0-9]{2,4}\.[0-9]{3,4}\.[0-9]{3,5}",
        # Abbreviations and initials
        rf"((?:{BEFORE_NUMBER})\.)[ \t\n\u00a0]?\d",
        rf"([A-Za-z])\.{_OPENER}",
        rf"(?:{_TITLES}|{_LETTERS})\.",
        rf"(?:{_ABBREVIATIONS})\.",
        rf"({_LETTERS}){_BLANK}",
        rf"((?:{_WORD}|{_HYPHENATED}|\d+)\.)[,;:]",
        # Marks
        r"[<>]?[:;=][\-o*']?[()DPdpO\\{@|\[\]](?![A-Za-z0-9])",
        r"\.\.\.+|\.[ \u00a0](?:\.[ \u00a0])+\.|-+|@+|#+|_+|\\?\*+|[?!]+|<<|>>|&(?:amp|lt|gt|MD|mdash|ndash);",
        "[`'‘’]'|\"|(?:[‘-‟‹›«»`\x91-\x94]|'(?!'))[‘-‟‹›«»`\x91-\x94]?",
        # Words with hyphens
        _HYPHENATED,
        rf"(?={_ALNUM}){_PART}(?:[-_]{_PART})*",
        r"(?-i:[A-Z]+(?:(?:[+&]|&amp;)[A-Z]+)+)",
    )
]
# Most words of reports need no search for the longest match.
_COMMON = regex.compile(r"([A-Za-z]{2,}|a(?= ))(?:[.,;:](?= [A-Za-z]|$)|(?= |$)) *")
_SPECIAL = regex.compile(
    rf"(?:can|go|le|gi|wa)(?:not|nna|tta|mme)|{_TITLES}|{_ABBREVIATIONS}|{BEFORE_NUMBER}|pro|anti",
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
