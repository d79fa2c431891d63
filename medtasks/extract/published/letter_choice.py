"""Published rules for the chosen option: MediConfusion, VLMEvalKit, MedVLThinker, MedXpertQA's authors, likelihoods.

Called by the registry for rows that reproduce published numbers. Faults of the originals must stay.

- MediConfusion: ``clean_up_manual`` of https://github.com/AIF4S/MediConfusion at a3045b0, also for letters that greedy
  decoding and prefix scoring produce.
- VLMEvalKit: ``vlmeval/utils/matching_util.py`` of https://github.com/open-compass/VLMEvalKit at c6bdffd (2024-03-19,
  in use until 2025-04) and 2cf2a36 (2026-06-25): a lone letter, else an option's text, without the judge and the random
  choice after it, as in GMAI-MMBench's paper. Since 2025 a lone letter counts only among the last four words, and a
  text only in a reply at most twice as long as all options; since 2026-06-17 ``answer is`` followed by a, b, c or d
  counts, whatever follows, so that "the answer is cardiomegaly" is read as C.
- MedVLThinker: ``eval/run_offline_inference.py`` and ``analysis/regrade_eval_results.py`` of
  https://github.com/UCSC-VLAA/MedVLThinker at a3163b1.
- MedXpertQA: ``answer_cleansing`` in ``eval/utils.py`` and ``eval/config/prompt_templates.py`` of
  https://github.com/TsinghuaC3I/MedXpertQA at f21247d, without examples: the first capital letter on its own. With ten
  options "I would choose C" is I.
- 3D-RAD: ``M3D/Bench/eval/eval_3DRAD.py`` of https://github.com/Tang-xiaoxiao/3D-RAD at 2e66113.
"""

import math
import re
from collections.abc import Sequence

from medtasks.data.samples import Sample, first_letters, letter
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor
from medtasks.extract.published.medevalkit_choice import tag_contents
from medtasks.extract.reading.reply_text import given_text

_SPELLINGS = 'L L: .L .L: L. L") ("L": ("L") ("L").'  # of the letter L


@extractor(
    "mediconfusion_reference",
    AnswerKind.CHOICE,
    "MediConfusion's published parser, exactly",
    given_text,
)
def mediconfusion_reference(reply: str, sample: Sample) -> Answer:
    """Read a letter from a reply to a two-option question.

    Newlines become spaces, the reply is cut at single spaces, and a letter counts when one of the pieces is the letter
    in one of nine exact spellings. Exactly one of A and B must count. Case matters; ``(A)``, ``**A**`` and ``a`` are
    invalid, and the article of ``A normal brain`` is read as the letter.
    """
    pieces = set(reply.replace("\n", " ").split(" "))
    names = []
    for name in "AB":
        if any(spelling.replace("L", name) in pieces for spelling in _SPELLINGS.split()):
            names.append(name)
    return Answer.only(names)


@extractor(
    "rad_3d", AnswerKind.CHOICE, "3D-RAD's: the right letter and a full stop", given_text
)
def rad_3d(reply: str, sample: Sample) -> Answer:
    """Read a letter before a full stop. The right one counts wherever it is, whatever other letters there are."""
    named = [name for name in first_letters(len(sample.options)) if f"{name}." in reply]
    target = sample.document.get("answer")
    return Answer.ok(target) if target in named else Answer.only(named[:1])


# ---- VLMEvalKit ----

NO_REPLY = "Failed to obtain answer via API"
NO_OPTION = "Z"  # a judge's answer for "none of them", which models imitate
_REFUSALS = (
    "Sorry, I can't help with images of people yet.",
    "I can't process this file.",
    "I'm sorry, but without the image provided",
    "Cannot determine the answer",
)
_TO_BLANKS = str.maketrans(dict.fromkeys(".()[],:;!*#{}", " "))
_ANSWER_IS = re.compile(r"answer\s+is\s+\**([ABCD])", re.IGNORECASE)
_NEWEST = "VLMEvalKit at 2cf2a36: a last letter, else text"
_PAPER = "GMAI-MMBench's paper: a lone letter, else text"


@extractor("vlmevalkit_2026_06", AnswerKind.CHOICE, _NEWEST, given_text, newest=True)
@extractor("vlmevalkit_2024_06", AnswerKind.CHOICE, _PAPER, given_text, newest=False)
def vlmevalkit(
    reply: str,
    sample: Sample,
    *,
    newest: bool,
) -> Answer:
    """Read an option, of at most 26.

    The published GMAI-MMBench numbers count invalid as wrong.

    Args:
        reply: Text of the reply.
        sample: The sample, with its options.
        newest: Whether to read as in 2026, else as in the paper.
    """
    options = sample.options
    letters = first_letters(len(options))
    # After a failure the reference goes on: an option whose text the message contains is chosen.
    if NO_REPLY not in reply:
        if any(map(reply.__contains__, _REFUSALS)):
            return Answer.invalid(Reason.REFUSED)
        answer = _lettered_answer(reply, letters, newest=newest)
        if answer is not None:
            return answer
    text = reply.lower()
    if newest and len(text) > 2 * sum(map(len, options)):
        return Answer.invalid(Reason.NO_MATCH)
    return Answer.only(
        [name for name, option in zip(letters, options, strict=True) if option.lower() in text]
    )


def _lettered_answer(
    reply: str,
    letters: Sequence[str],
    *,
    newest: bool,
) -> Answer | None:
    """Return the answer of a reply that has one option's letter, or an invalid one for the letter of "none of them".

    None if the reply has neither, so that its text counts.
    """
    words = spoken_words(reply)
    named = [name for name in letters if name in words]
    if len(named) == 1 and (not newest or words.index(named[0]) >= len(words) - 4):
        return Answer.ok(named[0])
    if not named and NO_OPTION in words:
        return Answer.invalid(Reason.NO_MATCH)
    declared = _ANSWER_IS.search(reply) if newest else None
    if declared and declared[1].upper() in letters:
        return Answer.ok(declared[1].upper())
    return None


def spoken_words(text: str) -> list[str]:
    """Return the words of a reply without the marks next to which a letter counts.

    Example:
        >>> spoken_words("The answer: (B).")
        ['The', 'answer', 'B']
    """
    return text.translate(_TO_BLANKS).split()


# ---- MedVLThinker ----

# The answer follows the first of these that occurs.
_LEADS = [
    re.compile(rf"{lead}\s*(.*)\s*", re.IGNORECASE)
    for lead in ("answer:", "answer is:", "answer is", "is:")
]
_ALONE = "MedVLThinker at evaluation: first <answer>, alone"
_TABLES = "MedVLThinker's tables, also 'answer is'"


@extractor(
    "medvlthinker_choice_regraded", AnswerKind.CHOICE, _TABLES, given_text, regraded=True
)
@extractor("medvlthinker_choice", AnswerKind.CHOICE, _ALONE, given_text, regraded=False)
def medvlthinker(
    reply: str,
    sample: Sample,
    *,
    regraded: bool,
) -> Answer:
    """Read the option that is the whole answer: letter, text, or ``B. text``.

    Args:
        reply: Text of the reply.
        sample: The sample, with its options.
        regraded: Whether to read as in the later pass for the tables, else as at evaluation.
    """
    answer = last_answer(reply) if regraded else [*tag_contents(reply, "answer"), reply][0]
    named = list(map(letter, named_options(answer, sample.options)))
    if not named:
        return Answer.invalid(Reason.NO_MATCH)
    target = sample.document.get("answer")
    # Of options with the same text each is right.
    return Answer.ok(target if target in named else named[0])


def last_answer(reply: str) -> str:
    """Return the first line of the last ``<answer>``, else the text after a lead-in, without tags.

    Example:
        >>> last_answer("So the answer is <answer>B. scar"), last_answer("<answer>A</answer>")
        ('B. scar', 'A')
    """
    text = reply
    contents = tag_contents(reply, "answer")
    if contents:
        text = re.split(r"[\n\r]", contents[-1].strip())[0]
    else:
        for lead in _LEADS:
            matches = lead.findall(reply)
            if matches:
                text = matches[-1]
                break
    for tag in ("<think>", "</think>", "<answer>", "</answer>"):
        text = text.replace(tag, "")
    return text.strip()


def named_options(answer: str, options: Sequence[str]) -> list[int]:
    """Return the indices of the options that an answer is: letter, text, or both. Case does not matter.

    Example:
        >>> named_options("b. SCAR", ["cyst", "scar"])
        [1]
    """
    plain = answer.strip().lower()
    indices = []
    for index, option in enumerate(options):
        forms = (letter(index), f"{letter(index)}. {option}", option)
        if plain in [form.strip().lower() for form in forms]:
            indices.append(index)
    return indices


# ---- MedXpertQA's authors ----

# Ends of the prompt, which a reply may repeat: for a direct answer, and for the second turn after reasoning.
DIRECT = "Among A through {last}, the answer is"
REASONED = "Therefore, among A through {last}, the answer is"
_FIRST_TURN = "MedXpertQA's authors: first capital letter"
_SECOND_TURN = "MedXpertQA's authors, answers of a second turn"


@extractor(
    "medxpertqa_authors_cot", AnswerKind.CHOICE, _SECOND_TURN, given_text, trigger=REASONED
)
@extractor("medxpertqa_authors", AnswerKind.CHOICE, _FIRST_TURN, given_text, trigger=DIRECT)
def first_letter(
    reply: str,
    sample: Sample,
    *,
    trigger: str,
) -> Answer:
    """Return the first of the options' letters after a trigger, else after "answer is".

    Args:
        reply: Text of the reply.
        sample: The sample, with its options.
        trigger: End of the prompt, with a slot for the last letter.
    """
    if not sample.options:
        return Answer.invalid(Reason.NO_MATCH)
    letters = first_letters(len(sample.options))
    text = reply
    for lead in (trigger.format(last=letters[-1]), " answer is "):
        if lead in text:
            text = text.split(lead)[1].strip()
            break
    for phrase in ("I understand", "A through J", "A through E", "A through D"):
        text = text.replace(phrase, "")
    match = re.search(rf"\b(?:{'|'.join(map(re.escape, letters))})\b", text)
    return Answer.ok(match[0]) if match else Answer.invalid(Reason.NO_MATCH)


# ---- likelihoods: the mean negative log-likelihood of each option's tokens ----
#
# MediConfusion's prefix score is the geometric mean of the token probabilities, so the smaller mean loss is the larger
# score. Its code counts NaN, a failed forward pass, as option B; here the sample failed.


def most_likely(losses: Sequence[float]) -> list[int]:
    """Return the indices of the options with the smallest loss, none without losses or if one is NaN.

    Args:
        losses: Mean negative log-likelihood of each option, shape (options,).

    Example:
        >>> most_likely([2.0, 0.5, 0.5]), most_likely([float("nan"), 0.5])
        ([1, 2], [])
    """
    if any(map(math.isnan, losses)):
        return []
    return [index for index, loss in enumerate(losses) if loss == min(losses)]


@extractor(
    "untied", AnswerKind.LIKELIHOODS, "most likely option, a tie is no answer", of_tied=None
)
@extractor(
    "prefix_reference",
    AnswerKind.LIKELIHOODS,
    "most likely option, a tie goes to the last",
    of_tied=-1,
)
@extractor(
    "greedy_reference",
    AnswerKind.LIKELIHOODS,
    "most likely option, a tie goes to the first",
    of_tied=0,
)
def choose_most_likely(
    losses: Sequence[float],
    sample: Sample,
    *,
    of_tied: int | None,
) -> Answer:
    """Choose the most likely option.

    Args:
        losses: Mean negative log-likelihood of each option, shape (options,).
        sample: The sample.
        of_tied: Position of the one to choose among equally likely ones. By default a tie is ``ambiguous``.
    """
    best = most_likely(losses)
    if not best:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    if len(best) > 1 and of_tied is None:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok(letter(best[of_tied or 0]))
