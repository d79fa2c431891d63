"""Options whose texts depend on their order: marks of their own ("A. left"), and references to other options."""

import re
import unicodedata
from collections.abc import Sequence

from medtasks.data.samples import Document, first_letters, letter

_MARK = re.compile(
    r"(?i)\s*(?:(?:option|choice|answer|选项)\s*)?[(\[（【]?\s*([^\W_]{1,2})\s*(?:[.:)\]．：。、）】]+|(?<!\d)\s[-–—](?=\s))"
    r"(?!(?<=\d[.:])\d)\s*",
)
# Of Chinese, a character is a word.
_WORD = re.compile(r"[^\W\d_\u3040-\u30ff\u3400-\u9fff]+|\d+|[\u3040-\u30ff\u3400-\u9fff]")
# An option of these words alone refers to other options: to those it names by letter ("neither A nor C"), or to all of
# them, by a word for them and one of quantity ("all options are correct").
_KNOWN_WORD = re.compile(
    r"(?P<options>options?|choices?|answers?|alternatives?|antwort(?:en)?|réponses?|propositions?|opci[oó]n(?:es)?"
    r"|opç(?:ão|ões)|respuestas?|alternativas?|rispost[ae]|above|preceding|foregoing|aforementioned|following|th[eo]se"
    r"|them|others|(?:in)?correct|true|false|apply|richtig|falsch|corr?e(?:c?t)[aeo]s?|[选選项項答案以述对對正])"
    r"|(?P<quantity>all|none|no|any|some|most|both|either|neither|each|one|two|three|first|last|same|as|alle|keiner?|beide"
    r"|tou(?:te)?s|aucune?|tod[ao]s|ningun[ao]|amb[ao]s|nenhuma?|tutt[ei]|nessun[ao]|[全都均皆所任无無])"
    r"|the|of|and|n?or|plus|with|is|are|but|except|not|only|other|given|listed|possible|right|wrong|at|least|more|than|a"
    r"|und|oder|sowohl|als|auch|weder|noch|nur|sind|et|ou|ni|que|l[aeo]s?|des|s[oó]n?t?|y|o|e|s[oó](?:lo)?|são|sono|il|i"
    r"|[和与與及或但只是的上有部不非确確错錯误誤可能两兩者とやも]"
)
_JOINED = re.compile(r"\w\W*[^\w\s]\W*\w")  # letters by a sign
_REFERRING = re.compile(
    r"(?i)\b(?:of|all|none|any|both|either|neither|each) the (?:above|preceding|foregoing|aforementioned)\b"
    r"|^\W*(?:alle|keine\w?|beide\w?|toutes|tous|aucune?|tod[ao]s|ningun[ao]|nenhuma?|amb[ao]s|tutt[ei]|nessun[ao])\b"
    r".*\b(?:genannten|obigen|antworten|dessus|réponses|propositions|anteriores|acima|opciones|respuestas|alternativas"
    r"|precedenti|risposte)\b"
    r"|\b(?:options?|choices?|answers?) \(?\d"
    r"|以上(?:都|均|皆|全|所有|各|任)|(?:有|部|何|无|無)以上|上記|上述|위의|ما سبق|ما ذكر|перечисленн|उपरोक्त",
)


def without_marks(options: Sequence[str]) -> list[str] | None:
    """Remove the marks of options that all begin with the letter or the number of their place.

    Returns:
        The texts without marks; None where an option has none or that of another place, or nothing else, and where only
        the numbers tell the options apart ("1. rib", "2. rib").

    Example:
        >>> without_marks(["(a) CT", "(b) MRI"]), without_marks(["A. baumannii", "E. coli"])
        (['CT', 'MRI'], None)
    """
    marks = list(filter(None, map(_MARK.match, options)))
    names = [unicodedata.normalize("NFKC", mark[1]).upper() for mark in marks]
    texts = [mark.string[mark.end() :].strip() for mark in marks]
    is_lettered = names == first_letters(len(options))
    is_numbered = names == [str(number) for number in range(1, len(options) + 1)]
    tells_apart = is_lettered or (is_numbered and len({*texts}) == len(texts))
    return texts if tells_apart and all(texts) else None


def refers_to_others(option: str, count: int) -> bool:
    """Return whether the text of one of ``count`` options refers to others, by letters or as a whole.

    Example:
        >>> [refers_to_others(text, 4) for text in ("Both A and B", "All of the above", "Hepatitis A and B", "A")]
        [True, True, False, False]
    """
    text = unicodedata.normalize("NFKC", option).casefold()
    if _REFERRING.search(text):
        return True
    letters = {name.casefold() for name in first_letters(count)}
    named = []
    kinds = set()
    for word in _WORD.findall(text):
        if word in letters:
            named.append(word)
            continue
        match = _KNOWN_WORD.fullmatch(word)
        if match is None:
            return False
        kinds.add(match.lastgroup)
    if not named:
        return {"options", "quantity"} <= kinds
    is_in_order = named[:2] == sorted({*named[:2]})  # "D&C" is a procedure, "A b" a protein
    return is_in_order and bool(kinds or named[2:] or _JOINED.search(text))


def depends_on_order(document: Document) -> bool:
    """Return whether the options of a question would mean something else in another order.

    Example:
        >>> depends_on_order({"question": "Which?", "options": ["CT", "MRI", "Both of the above"]})
        True
    """
    options = document["options"]
    refers = any(refers_to_others(option, len(options)) for option in options)
    return refers or is_listed_otherwise(document) or bool(without_marks(options))


def is_listed_otherwise(document: Document) -> bool:
    """Return whether a question lists its options with letters, in another form than :func:`listed_options`.

    Example:
        >>> is_listed_otherwise({"question": "Which? A. CT B. MRI", "options": ["CT", "MRI"]})
        True
    """
    options = document["options"]
    question = str(document.get("question"))
    if listed_options(options) in question:
        return False
    if not re.search(r"\bA[.:)].*\bB[.:)]", question, re.DOTALL):
        return False
    return all(option.strip().casefold() in question.casefold() for option in options)


def listed_options(options: Sequence[str]) -> str:
    """Return options in the form in which MedXpertQA's questions repeat them.

    Example:
        >>> listed_options(["CT", "MRI"])
        '(A) CT (B) MRI'
    """
    return " ".join(f"({letter(index)}) {text}" for index, text in enumerate(options))
