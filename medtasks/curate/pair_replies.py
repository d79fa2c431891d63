"""Reading what an LLM drafts by MediConfusion's prompt A.1, and the rules that a draft has to keep.

The reply names ``Question:``, ``Option1:``, ``Option2:``, ``Image1:`` and ``Image2:``, each once, in this order, with
something behind it on the same line. Markdown, numbers of a list and blanks around the names do not matter, nor do
lines before the first and behind the last; between them only headings such as ``Correct answers:`` may stand. Anything
else is malformed: two drafts in one reply, or a question of several lines, would have to be guessed at.
"""

import re
import unicodedata
from dataclasses import dataclass

from medtasks.curate.drafts import LONGEST
from medtasks.extract.reply_text import without_thoughts

_PARTS = ("question", "option1", "option2", "image1", "image2")
_LABELLED = re.compile(
    r"[\s>#*_`-]*+(?:\d++[.)]\s*+)?[*_`]*+(question(?: 1)?|option ?[12]|image ?[12])[*_`]*\s*:\s*(.*)", re.IGNORECASE
)
_MARKS = " \t*_`"
_QUOTES = {"<>", '""', "''", "“”", "‘’"}
_NAMED = re.compile(r"option ?([12])\b[\s:.,()–—-]*(.*?)\)?", re.IGNORECASE)
# Signs tell options apart: "< 5 mm" and "> 5 mm", "HER2+" and "HER2-".
_WORD = re.compile(r"\w+(?:[.,]\d+)*|[<>≤≥±+]|(?<=\w)[-−](?!\w)")
_NEGATIONS = frozenset(("no", "not", "non", "without", "absent", "absence", "lack", "lacks", "neither", "never", "nor"))

_SHOWN = r"(?:images|scans|pictures|radiographs)"
# "on the T2-weighted images" asks of one image; "in the images" of several.
_OF_SEVERAL_IMAGES = re.compile(
    r"\bimages? ?(?:no\. ?|# ?)?[12]\b"
    rf"|\bthe (?:two |given |provided |above )?images\b|\b(?:both|these|those|two|either of the)(?: of the)? {_SHOWN}\b"
    r"|\b(?:first|second|other|each|either) (?:image|scan|picture|radiograph)\b",
    re.IGNORECASE,
)
# "brighter compared to the liver" and "the disc between the two vertebrae" can be seen on one image.
_COMPARING = re.compile(
    r"\bwhich (?:image|picture|radiograph)(?: (?:shows?|has|is|was|does|contains?|depicts?|displays?|demonstrates?|"
    r"reveals?|exhibits?)\b|\s*\?)"
    r"|\bcompar\w+ (?:to|with) (?:the |an?)?(?:other|first|second|previous|prior|former|latter)\b"
    rf"|\bcompar\w+ (?:the |both |two )*{_SHOWN}\b"
    rf"|\bbetween the (?:two )?(?:{_SHOWN}|patients|cases)\b|\bbetween the two\s*(?:[?.,]|$)"
    r"|\b(?:than|unlike|from) (?:in |on |that of )?the other(?: one| image| scan| patient)?\s*(?:[?.,]|$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PairReply:
    """A question of two images as the LLM wrote it; answers are in the words of the reply."""

    question: str
    options: tuple[str, str]
    answers: tuple[str, str]  # of the first and the second image


def read_pair_reply(text: str) -> PairReply | None:
    r"""Return what a reply drafts; None for a malformed one.

    Example:
        >>> read_pair_reply("**Question:** Which side?\nOption1: Left\nOption2: Right\nImage1: Left\nImage2: Option2")
        PairReply(question='Which side?', options=('Left', 'Right'), answers=('Left', 'Option2'))
    """
    names, values = [], []
    for line in (without_thoughts(text) or "").splitlines():
        if found := _LABELLED.fullmatch(line):
            names.append(found[1].lower().replace("question 1", "question").replace(" ", ""))
            values.append(_bare(found[2]))
        elif 0 < len(names) < len(_PARTS) and (said := line.strip(f"{_MARKS}#-")) and not said.endswith(":"):
            return None
    if tuple(names) != _PARTS or not all(0 < len(value) <= LONGEST for value in values):
        return None
    question, first, second, of_first, of_second = values
    return PairReply(question, (first, second), (of_first, of_second))


def chosen(answer: str, options: tuple[str, str]) -> int | None:
    """Return the position of the option that an answer repeats or names; None where it is none of them, or both.

    Example:
        >>> [chosen(answer, ("Left", "Right")) for answer in ("right.", "Option 1", "Option2: Left", "Both")]
        [1, 0, None, None]
    """
    if named := _NAMED.fullmatch(answer):
        number = int(named[1]) - 1
        return number if _words(named[2]) in ([], _words(options[number])) else None
    same = [number for number, option in enumerate(options) if _words(option) == _words(answer)]
    return same[0] if len(same) == 1 else None


def broken_rules(reply: PairReply) -> list[str]:
    """Return which rules a draft breaks, as phrases without its text."""
    said = " | ".join((reply.question, *reply.options))
    answers = [chosen(answer, reply.options) for answer in reply.answers]
    rules = (
        (_overlap(*map(_words, reply.options)), "the options overlap"),
        (None in answers, "an answer is none of the options"),
        (answers[0] == answers[1], "both answers are equal"),
        (bool(_OF_SEVERAL_IMAGES.search(said)), "it speaks of the images"),
        (bool(_COMPARING.search(said)), "it compares the images"),
    )
    return [reason for broken, reason in rules if broken]


def _overlap(first: list[str], second: list[str]) -> bool:
    """Return whether one option says the other, too: "stenosis", "mild stenosis"; but for "stenosis", "no stenosis"."""
    short, long = sorted((first, second), key=len)
    for start in range(len(long) - len(short) + 1):
        if long[start : start + len(short)] == short:
            return _NEGATIONS.isdisjoint(long[:start] + long[start + len(short) :])
    return False


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _bare(value: str) -> str:
    value = value.strip(_MARKS)
    if len(value) > 1 and value[0] + value[-1] in _QUOTES:
        value = value[1:-1].strip(_MARKS)
    return " ".join(value.split())
