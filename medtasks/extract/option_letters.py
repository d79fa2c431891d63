"""Finding the letters of options in a reply: alone, declared, leading a line, named, or ending a phrase."""

import re
from collections.abc import Iterable, Sequence

from medtasks.extract.option_names import lacks, normalised

# Names of bacteria and parasites begin with a letter and a full stop, too.
_SPECIES = r"(?:albicans|aureus|baumannii|burgdorferi|cereus|coli|difficile|fumigatus|granulosus|histolytica|pylori)\b"
_END = r"(?=\s*(?:$|[.,;:!?)\]\"'\n]|[-–—]\s|because\b|since\b|as\b|for\b|given\b|which\b|due\b))"
NOUN = r"(?:answer|choice|option|response|selection|diagnosis)"
LINK = r"[\"']?\s*(?:(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*(?:therefore|thus|most likely)?[:\s]*"
"""What declares an answer: "the answer is", "Diagnosis:"."""
_OPEN, _CLOSE = r"[(\[\"']{0,4}", r"[)\]\"']{0,4}"


def _class_of(letters: Sequence[str]) -> str:
    return f"[{letters[0]}-{letters[-1]}]"


def _capitals(matches: Iterable[str]) -> set[str]:
    # Ignoring case, a range of letters also matches a few letters outside ASCII, such as a dotted capital I.
    return {match.upper() for match in matches if match.isascii()}


def only_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letters of a reply that consists of nothing else: "B", "(b)", "A and B"."""
    words = [word.upper() for word in re.findall(r"[^\W_]+", text)]
    named = [word for word in words if word not in ("AND", "OR", "BOTH", "EITHER")]
    return set(named) if set(named) <= set(letters) else set()


def declared_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return letters declared as the answer; a final answer overrules an earlier one."""
    group = _class_of(letters)
    target = rf"(?:{NOUN}\s*:?\s*)?{_OPEN}({group}){_CLOSE}(?!\s*,\s*{group}{_CLOSE}\s*(?:$|[.,;])){_END}"
    for lead in (r"\bfinal\s+", r"\b(?:correct|right|best|my|the|appropriate|most likely)\s+(?:\w+\s+)?", r"\b"):
        found = _capitals(re.findall(rf"{lead}{NOUN}{LINK}{target}", text, re.IGNORECASE))
        if found:
            return found
    praise = r"(?:the\s+)?(?:most\s+|more\s+)?(?:correct|right|best|likely|appropriate|answer)\b"
    praised = re.findall(rf"(?<![\w'-]){_OPEN}({group}){_CLOSE}\s+(?:is|would be|seems|looks)\s+{praise}", text)
    start, choosing = r"(?<!not )(?<!n't )(?<!if )(?<!whether )\b", "choose|select|pick|guess|go with|opt for"
    chosen = re.findall(rf"{start}(?i:{choosing}|it is|it's)\s+(?i:option\s+)?{_OPEN}({group}){_CLOSE}{_END}", text)
    being = "(?:it|this|that)(?:'s| is| was| would be| must be| should be)"
    # A small letter only between brackets: "it is a" goes on with a noun.
    small = rf"[(\[]({group.lower()})[)\]]"
    if re.search(small, text):
        chosen += re.findall(rf"{start}(?i:{choosing}|{being})\s+(?i:option\s+)?{small}{_END}", text)
    return _capitals([*praised, *chosen])


def leading_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letter a reply begins with, or the letters that stand alone on a line."""
    group = _class_of(letters)
    stop = rf"(?:[\"')\]]+\s*[:.,]?|\s*[:.](?!\w\.|\s*{_SPECIES})|,|\s+[-–—](?=\s)|\s*\n)"
    start = re.match(rf"{_OPEN}({group})(?!'\w){stop}", text, re.IGNORECASE)
    if start:
        return _capitals([start[1]])
    return _capitals(re.findall(rf"^[ \t]*{_OPEN}({group}){_CLOSE}[.:]?[ \t]*$", text, re.MULTILINE | re.IGNORECASE))


def names_alternatives(text: str, letters: Sequence[str]) -> bool:
    """Return whether the reply names several letters side by side: "A or B.", "both A and B are"."""
    label = rf"{_OPEN}{_class_of(letters)}\b{_CLOSE}"
    several = rf"{label}\s*(?:or\b|and\b|[/&,])\s*(?:option\s+)?{label}"
    return re.search(rf"\b{several}{_END}|\b(?i:both|either|between)\s+{several}", text) is not None


def named_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return letters called by name ("option B"), else letters in brackets."""
    group = _class_of(letters)
    called = re.findall(
        rf"\b(?:option|choice|answer|letter)\s*:?\s*{_OPEN}({group}){_CLOSE}{_END}", text, re.IGNORECASE
    )
    called += re.findall(rf"\b(?:[Oo]ption|[Cc]hoice)\s+([{letters[0]}-{letters[-1]}])\b", text)
    return _capitals(called) or _capitals(re.findall(rf"\(({group})\)", text))


_LABELLED = (
    r"(?:type|grade|stage|class|vitamin|hepatitis|ha?emophilia|influenza|\w*globulin|\w*protein|factor|level|group|segment|"
    r"figure|fig|panel|image|part|series)"
)


def bare_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return capitals that end a phrase, leaving out names such as "hepatitis B"."""
    pattern = rf"(?<![\w'-])(?<!\b\w\.)({_class_of(letters)})(?![\w'-]|\.\w\b|\.\s*{_SPECIES}){_END}"
    matches = list(re.finditer(pattern, text))
    named = {match.end() for match in re.finditer(rf"\b{_LABELLED}\s+", text, re.IGNORECASE)} if matches else set()
    return {match[1] for match in matches if match.start() not in named}


def without_denials(text: str, letters: Sequence[str]) -> str:
    """Remove letters the reply speaks against: "not A", "B is wrong"."""
    group = _class_of(letters)
    label = rf"(?i:option\s+|choice\s+)?{_OPEN}\b{group}\b{_CLOSE}"
    against = rf"\b(?i:not|isn't|rather than|instead of|rule out|exclude)\s+{label}"
    verdict = r"(?:not|wrong|incorrect|false|unlikely|less likely|ruled out|excluded)\b"
    return re.sub(rf"{label}\s+(?:is|was|seems|would be|can be)\s+{verdict}|{against}", " ", text)


def without_names(text: str, letters: Sequence[str]) -> str:
    """Remove capitals that are no letters of options: the "E." of "E. coli", the "I" of "I would say"."""
    text = re.sub(rf"\b[{letters[0]}-{letters[-1]}]\.(?=\s*{_SPECIES})", " ", text)
    return re.sub(r"\bI(?=,\s|\s+(?!is\b)[a-z]|')", " ", text) if "I" in letters else text


def without_echo(text: str, letters: Sequence[str], options: Sequence[str]) -> str:
    """Remove a repetition of the whole option list, as base models produce it before or after their answer."""
    texts = [normalised(option) for option in options]
    # A text shorter than the options cannot repeat them, and compiling a pattern for each question is slow.
    if not all(texts) or sum(len(option.replace(" ", "")) for option in texts) > len(text):
        return text
    if any(lacks(text, option) for option in texts):
        return text
    listed = [r"[\W_]+".join(map(re.escape, option.split(" "))) for option in texts]
    lines = [rf"{_OPEN}\b{letter}[\"')\]]*\s*[:.)]\s*{words}" for letter, words in zip(letters, listed, strict=True)]
    kept, repetitions = re.subn(r"\b[\W_]+".join(lines) + r"\b[\"')\].]*", "\n", text, flags=re.IGNORECASE)
    return re.sub(r"\s*\bAnswer:?\s*$", "", kept).strip() if repetitions else text
