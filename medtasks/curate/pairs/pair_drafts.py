"""Drafting one question per pair by MediConfusion's prompt A.1 (arXiv 2409.15477, section 2 and appendix A.1).

The reply names ``Question:``, ``Option1:``, ``Option2:``, ``Image1:`` and ``Image2:``, each once, in this order and
with a text on the same line; only headings such as ``Correct answers:`` may be between them. Markdown and list numbers
around the names, and lines before and after, do not matter. Any other reply is malformed, not guessed at.

A digest of the pair's id settles which image has option A: an LLM names the first image's answer first, and a benchmark
in which the first image always had A would be solved by position. In the published set it has A in 88 of 176 pairs.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from medtasks.curate.drafts import LONGEST, Draft, Drafted, DraftOutcome, Job, draft_all
from medtasks.curate.llm import job_of, llm_label, one_line, prompts_in, why_not_sent
from medtasks.curate.study import IMAGES, PAIRS, ImagePair, read_images, read_pairs
from medtasks.errors import SourceError
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.judges.judge_client import Judge
from medtasks.net.journal import digest_of

PROMPTS = "pair_prompts"
_MARKS = ("**CAPTION OF IMAGE 1**", "**CAPTION OF IMAGE 2**")
_PARTS = ("question", "option1", "option2", "image1", "image2")
_LABELLED = re.compile(
    r"[\s>#*_`-]*+(?:\d++[.)]\s*+)?[*_`]*+(question(?: 1)?|option ?[12]|image ?[12])[*_`]*\s*:\s*(.*)", re.IGNORECASE
)
_MARKUP = " \t*_`"
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


def draft_pairs(folder: Path, llm: Judge) -> Counter[DraftOutcome]:
    """Draft a question for each pair of a study that has none yet, and count the outcomes.

    Errors are those of :func:`~medtasks.curate.drafts.draft_all`, and a SourceError for a pair of unknown images.
    """
    images, prompt = read_images(folder), prompts_in(PROMPTS)["question"]

    def drafted(pair: ImagePair, text: str) -> dict[str, tuple[Draft]] | None:
        reply = read_pair_reply(text)
        return None if reply is None else {"drafts": (draft_of(pair, reply),)}

    jobs: dict[str, Job] = {}
    for pair in read_pairs(folder):
        if not images.keys() >= set(pair.images):
            raise SourceError(f"{folder / PAIRS} has a pair of an image that {IMAGES} has not; make the study again")
        captions = [images[image].text for image in pair.images]
        values = dict(zip(_MARKS, map(one_line, captions), strict=True))
        if why := next(filter(None, map(why_not_sent, captions)), ""):
            asked = prompt.asked(values, llm_label(llm))
            line = Drafted(request=pair.pair_id, asked=asked, outcome=DraftOutcome.SKIPPED, reason=why)
            jobs[pair.pair_id] = asked, line.model_copy
        else:
            jobs[pair.pair_id] = job_of(llm, pair.pair_id, prompt, values, partial(drafted, pair))
    return draft_all(folder, jobs, llm.settings.concurrency)


def draft_of(pair: ImagePair, reply: PairReply) -> Draft:
    """Return the draft in a reply: as it is if a rule rejects it, else with its options in order."""
    options, answers = reply.options, reply.answers
    why = next(iter(broken_rules(reply)), "")
    if not why:
        letters = ("A", "B") if int(digest_of(pair.pair_id)[0], 16) % 2 else ("B", "A")
        positions = [chosen(answer, options) for answer in answers]
        texts = {letter: options[position or 0] for letter, position in zip(letters, positions, strict=True)}
        options, answers = (texts["A"], texts["B"]), letters
    return Draft(
        item_id=pair.pair_id,
        images=pair.images,
        question=reply.question,
        options=options,
        answers=answers,
        outcome=DraftOutcome.REJECTED if why else DraftOutcome.DRAFTED,
        reason=why,
    )


def read_pair_reply(text: str) -> PairReply | None:
    """Return the draft in a reply; None for a malformed one."""
    names, values = [], []
    for line in (without_thoughts(text) or "").splitlines():
        if match := _LABELLED.fullmatch(line):
            names.append(match[1].lower().replace("question 1", "question").replace(" ", ""))
            value = match[2].strip(_MARKUP)
            if len(value) > 1 and value[0] + value[-1] in _QUOTES:
                value = value[1:-1].strip(_MARKUP)
            values.append(one_line(value))
        elif 0 < len(names) < len(_PARTS) and (other := line.strip(f"{_MARKUP}#-")) and not other.endswith(":"):
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
    """List the rules that a draft breaks, as phrases without its text."""
    said = " | ".join((reply.question, *reply.options))
    answers = [chosen(answer, reply.options) for answer in reply.answers]
    short, long = sorted(map(_words, reply.options), key=len)
    within = (start for start in range(len(long) - len(short) + 1) if long[start : start + len(short)] == short)
    start = next(within, None)  # of one option in the other: "stenosis", "mild stenosis"; but not "no stenosis"
    rest = [] if start is None else long[:start] + long[start + len(short) :]
    rules = (
        (start is not None and _NEGATIONS.isdisjoint(rest), "the options overlap"),
        (None in answers, "an answer is none of the options"),
        (answers[0] == answers[1], "both answers are equal"),
        (bool(_OF_SEVERAL_IMAGES.search(said)), "it speaks of the images"),
        (bool(_COMPARING.search(said)), "it compares the images"),
    )
    return [reason for broken, reason in rules if broken]


def _words(text: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
