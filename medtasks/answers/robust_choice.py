"""What a careful reader accepts as the answer to a question with lettered options.

The rule reads from strong evidence to weak and stops at the first step that finds something:

1. the whole reply is letters, or one option's text;
2. a declared answer ("the answer is (B)", "final answer: b", "I would choose B");
3. a leading letter with punctuation ("B) effusion", ``("A": ...``), or a letter alone on its line;
4. a refusal ("cannot be determined");
5. a named or bracketed letter ("option B", "(B)"), then a bare capital at the end of a phrase ("So it is B.");
6. the text of exactly one option, not negated.

Reasoning blocks, markup, a repeated option list and everything after an invented next question are not read. Two
different letters on one step, or a letter whose own words are another option's text, are ambiguous. The article of
"A normal brain" is never a letter: a bare ``A`` must end its phrase.
"""

import re
from collections.abc import Iterable, Sequence

from medtasks.answers.answer import Answer, Reason
from medtasks.answers.failure import failure_cause
from medtasks.answers.likelihood import letter as letter_of
from medtasks.answers.option_text import equal_option, leading_option, normalised, options_named
from medtasks.answers.own_words import first_turn, without_markup, without_thoughts

_CANNOT = r"(?:can(?:not| not|'t)|could(?: not|n't)|unable to|(?:not |im)possible to)"
_JUDGE = (
    r"(?:determine|tell|answer|say|identif|provide|assist|help|assess|interpret|confirm|diagnos|conclu|analy|view|choose|"
    r"see (?:the|any) image)"
)
_LACKING = r"(?:insufficient|not enough|do(?:es)?(?: not|n't) (?:have|provide) (?:enough|sufficient))"
_REFUSAL = re.compile(
    rf"\b{_CANNOT}\s+(?:be\s+)?(?:\w+ly\s+)?{_JUDGE}|\b{_LACKING} (?:information|detail|context)"
    r"|\bi(?: do not|'m not| am not| don't) (?:know|sure|able|qualified)|\bi(?:'m| am) sorry\b|\bas an ai\b|\bno idea\b"
    r"|\bneither(?: of| [a-z]\b| is\b|\W*$)|\bnone of (?:the|these)\b",
    re.IGNORECASE,
)
# Names of bacteria and parasites begin with a letter and a full stop, too.
_SPECIES = r"(?:albicans|aureus|baumannii|burgdorferi|cereus|coli|difficile|fumigatus|granulosus|histolytica|pylori)\b"
_END = r"(?=\s*(?:$|[.,;:!?)\]\"'\n]|[-–—]\s|because\b|since\b|as\b|for\b|given\b|which\b|due\b))"
_OPEN, _CLOSE = r"[(\[\"']{0,4}", r"[)\]\"']{0,4}"


def read(reply: str | None, options: Sequence[str]) -> Answer:
    """Read the chosen option from a free-text reply.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        options: Option texts in order A, B, ...; at most 26. An empty list stands for A and B with unknown texts.

    Returns:
        An option's letter, or no value with the reason why.

    Example:
        >>> read("**(b)**", ["Aortic arch", "Kidneys"]).value
        'B'
        >>> read("A normal brain", ["Oedema", "Infarct"]).reason.value
        'no_match'
        >>> read("The image shows an aortic arch.", ["Aortic arch", "Kidneys"]).value
        'A'
    """
    if reply is None or not reply.strip():
        return Answer.invalid(Reason.EMPTY)
    if failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    said = without_thoughts(reply)
    if said is None:
        return Answer.invalid(Reason.TRUNCATED)
    text = first_turn(without_markup(said))
    if not text:
        return Answer.invalid(Reason.EMPTY)
    options = options or ("", "")
    letters = [letter_of(index) for index in range(len(options))]
    text = _without_echo(text, letters, options)
    return _read(text, letters, options) if text else Answer.invalid(Reason.AMBIGUOUS)


def _read(text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    claims = _without_denials(text, letters)
    only, declared = _only_letters(text, letters), _declared(claims, letters)
    whole = equal_option(text, options)
    # A letter names its option even where another option's text is that letter; "A and B" may be an option itself.
    if whole is not None and len(only) != 1 and not declared:
        return Answer.ok(letters[whole])
    for found in (only, declared, _leading(claims, letters)):
        if found:
            return _settle(found, text, letters, options)
    if _REFUSAL.search(text):
        return Answer.invalid(Reason.REFUSED)
    if _alternatives(text, letters):
        return Answer.invalid(Reason.AMBIGUOUS)
    for found in (_named(claims, letters), _bare(claims, letters)):
        if found:
            return _settle(found, text, letters, options)
    named = options_named(text, options) or leading_option(text, options)
    if len(named) == 1:
        return Answer.ok(letters[named.pop()])
    return Answer.invalid(Reason.AMBIGUOUS if named else Reason.NO_MATCH)


def _settle(found: set[str], text: str, letters: Sequence[str], options: Sequence[str]) -> Answer:
    """Accept a single letter unless the words after it are another option's text."""
    if len(found) > 1:
        return Answer.invalid(Reason.AMBIGUOUS)
    letter = next(iter(found))
    rest = re.sub(rf"^\W*{letter}\W+", "", text, count=1, flags=re.IGNORECASE)
    other = equal_option(rest.split("\n")[0], options)
    if rest != text and other is not None and letters[other] != letter:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter)


def _class_of(letters: Sequence[str]) -> str:
    return f"[{letters[0]}-{letters[-1]}]"


def _capitals(matches: Iterable[str]) -> set[str]:
    # Ignoring case, a range of letters also matches a few letters outside ASCII, such as a dotted capital I.
    return {match.upper() for match in matches if match.isascii()}


def _only_letters(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letters of a reply that consists of nothing else: "B", "(b)", "A and B"."""
    words = [word.upper() for word in re.findall(r"[^\W_]+", text)]
    named = [word for word in words if word not in ("AND", "OR", "BOTH", "EITHER")]
    return set(named) if set(named) <= set(letters) else set()


def _declared(text: str, letters: Sequence[str]) -> set[str]:
    """Return letters declared as the answer; a final answer overrules an earlier one."""
    group = _class_of(letters)
    noun = r"(?:answer|choice|option|response|selection|diagnosis)"
    link = (
        r"[\"']?\s*(?:(?:is|was|would be|should be|must be|will be)\b|:|=|->|→)\s*(?:therefore|thus|most likely)?[:\s]*"
    )
    target = rf"(?:{noun}\s*:?\s*)?{_OPEN}({group}){_CLOSE}(?!\s*,\s*{group}{_CLOSE}\s*(?:$|[.,;])){_END}"
    for lead in (r"\bfinal\s+", r"\b(?:correct|right|best|my|the|appropriate|most likely)\s+(?:\w+\s+)?", r"\b"):
        found = _capitals(re.findall(rf"{lead}{noun}{link}{target}", text, re.IGNORECASE))
        if found:
            return found
    praise = r"(?:the\s+)?(?:most\s+|more\s+)?(?:correct|right|best|likely|appropriate|answer)\b"
    praised = re.findall(rf"(?<![\w'-]){_OPEN}({group}){_CLOSE}\s+(?:is|would be|seems|looks)\s+{praise}", text)
    choosing = r"(?<!not )(?<!n't )(?<!if )(?<!whether )\b(?i:choose|select|pick|guess|go with|opt for|it is|it's)"
    return _capitals([*praised, *re.findall(rf"{choosing}\s+(?i:option\s+)?{_OPEN}({group}){_CLOSE}{_END}", text)])


def _leading(text: str, letters: Sequence[str]) -> set[str]:
    """Return the letter a reply begins with, or the letters that stand alone on a line."""
    group = _class_of(letters)
    stop = rf"(?:[\"')\]]+\s*[:.,]?|\s*[:.](?!\w\.|\s*{_SPECIES})|,|\s+[-–—](?=\s)|\s*\n)"
    start = re.match(rf"{_OPEN}({group})(?!'\w){stop}", text, re.IGNORECASE)
    if start:
        return _capitals([start[1]])
    return _capitals(re.findall(rf"^[ \t]*{_OPEN}({group}){_CLOSE}[.:]?[ \t]*$", text, re.MULTILINE | re.IGNORECASE))


def _alternatives(text: str, letters: Sequence[str]) -> bool:
    """Return whether the reply names several letters side by side: "A or B.", "both A and B are"."""
    label = rf"{_OPEN}{_class_of(letters)}\b{_CLOSE}"
    several = rf"{label}\s*(?:or\b|and\b|[/&,])\s*(?:option\s+)?{label}"
    return re.search(rf"\b{several}{_END}|\b(?i:both|either|between)\s+{several}", text) is not None


def _named(text: str, letters: Sequence[str]) -> set[str]:
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


def _bare(text: str, letters: Sequence[str]) -> set[str]:
    """Return capitals that end a phrase, leaving out names such as "hepatitis B"."""
    pattern = rf"(?<![\w'-])(?<!\b\w\.)({_class_of(letters)})(?![\w'-]|\.\w\b|\.\s*{_SPECIES}){_END}"
    matches = (
        m for m in re.finditer(pattern, text) if not re.search(rf"\b{_LABELLED}\s*$", text[: m.start()], re.IGNORECASE)
    )
    return {match[1] for match in matches}


def _without_denials(text: str, letters: Sequence[str]) -> str:
    """Remove letters the reply speaks against: "not A", "B is wrong"."""
    group = _class_of(letters)
    label = rf"(?i:option\s+|choice\s+)?{_OPEN}\b{group}\b{_CLOSE}"
    against = rf"\b(?i:not|isn't|rather than|instead of|rule out|exclude)\s+{label}"
    verdict = r"(?:not|wrong|incorrect|false|unlikely|less likely|ruled out|excluded)\b"
    return re.sub(rf"{label}\s+(?:is|was|seems|would be|can be)\s+{verdict}|{against}", " ", text)


def _without_echo(text: str, letters: Sequence[str], options: Sequence[str]) -> str:
    """Remove a repetition of the whole option list, as base models produce it before or after their answer."""
    listed = [r"[\W_]+".join(map(re.escape, normalised(option).split(" "))) for option in options]
    if not all(listed):
        return text
    lines = [rf"{_OPEN}\b{letter}[\"')\]]*\s*[:.)]\s*{words}" for letter, words in zip(letters, listed, strict=True)]
    kept, repetitions = re.subn(r"\b[\W_]+".join(lines) + r"\b[\"')\].]*", "\n", text, flags=re.IGNORECASE)
    return re.sub(r"\s*\bAnswer:?\s*$", "", kept).strip() if repetitions else text
