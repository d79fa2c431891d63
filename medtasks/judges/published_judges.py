"""Published judges of MediConfusion, GMAI-MMBench and MedEvalKit, with the prompts of their authors.

Question types ask through them. Each sees the question, the reply, and the options or the gold answer. None sees the
image, nor which of the options is right. Prompts are character for character those of the reference, unless the reply
is fenced. The temperature is that of ``JudgeSettings``.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from medtasks.data.samples import Sample, letter
from medtasks.errors import unknown_name
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor_of
from medtasks.extract.failure import failure_cause
from medtasks.extract.published.letter_choice import NO_OPTION, NO_REPLY, spoken_words
from medtasks.extract.published.medevalkit_choice import tag_content
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.home import packaged_facts
from medtasks.judges.fence import quote_reply
from medtasks.judges.judge_client import Judge

_PROMPTS = packaged_facts(__package__, "prompts")

# ---- GMAI-MMBench: a reply from which no option can be extracted is matched to one of the options ----
#
# Source: ``build_prompt`` and ``extract_answer_from_item`` of https://github.com/open-compass/VLMEvalKit at 2cf2a36.
# The judge's reply is read by the same rule as the model's. Differences: a reply of white space is not sent; after
# three of the judge's replies without an option there is no verdict, where the reference draws an option at random; a
# further request corrects the judge.

# By the rule that reads the judge's reply: on disk, a reply that only one rule can read must not replace another.
PROMPT_VERSIONS: Mapping[str, int] = MappingProxyType(
    {"vlmevalkit_2024_06": 1, "vlmevalkit_2026_06": 2}
)
RULE_NAME = "gap_of_3"
RULE_VERSION = 1
PROMPT_VERSION = 1
GAP = 3  # closer scores are ambiguous; the paper's main text picks the higher score whatever the gap
SYSTEM = str(_PROMPTS["mediconfusion"]["system"])
INSTRUCTION = str(_PROMPTS["mediconfusion"]["instruction"])
_SCORE = re.compile("0?[1-9]|10")
# On disk the first version holds the judge's first reply in any form. The second holds a later one in the right form,
# if the first was not.
FIRST_VERSION = 1
AGAIN_VERSION = 2
_USER: str = _PROMPTS["medevalkit"]["user"]
_FIELD = re.compile(r"\{(question|answer|response)\}")
_VERDICT = re.compile(r"<judge>\s*([01])\s*</judge>")
_RIGHT = "0"


def gmai_prompt(
    question: str,
    options: Sequence[str],
    reply: str,
    *,
    fenced: bool = False,
) -> str:
    """Return the user message for one reply.

    As published, a question mark follows every question, also one that ends in a question mark.

    Args:
        question: Without options.
        options: Texts in the order of their letters.
        reply: Reply of the model under test.
        fenced: Whether the reply is between marks, which is not as published.
    """
    quoted, note = quote_reply(reply, fenced=fenced)
    note = f"{note}\n" if note else ""
    listed = "".join(f"{letter(index)}. {option}\n" for index, option in enumerate(options))
    return (
        f"{_PROMPTS['gmai']['instruction']}Question: {question}?\nOptions: There are several options: \n{listed}\n"
        f"Answer: {quoted}\n{note}Your output: "
    )


def parse_choice(
    text: str,
    options: Sequence[str],
    rule: str,
) -> Answer | None:
    """Read the judge's choice of an option.

    Args:
        text: The judge's reply.
        options: Texts in the order of their letters.
        rule: One of :data:`PROMPT_VERSIONS`.

    Returns:
        The option. The letter Z is an answer without an option, ``NO_MATCH``, and so is a refusal, ``REFUSED``, which
        the reference takes for Z. ``None`` for an unusable reply, such as one with two letters.
    """
    if NO_REPLY in text:
        return None
    answer = extractor_of(rule, AnswerKind.CHOICE).extract(text, Sample({"options": options}))
    return answer if _needs_no_judge(answer, text, options) else None


def match_reply(
    judge: Judge,
    rule: str,
    question: str,
    options: Sequence[str],
    reply: str,
    *,
    fenced: bool = False,
) -> tuple[Answer, bool]:
    """Extract a reply's option by rule, or else by the judge. Never raises for a text.

    Args:
        judge: The judge.
        rule: One of :data:`PROMPT_VERSIONS`.
        question: Without options.
        options: Texts in the order of their letters.
        reply: Reply of the model under test.
        fenced: Whether the judge gets it between marks.

    Returns:
        The option, and whether the judge was asked. An empty reply, a refusal, the letter Z and an adapter's failure
        are no option without asking, as is a reply that the judge calls Z.

    Raises:
        UnknownName: There is no such rule.
    """
    if rule not in PROMPT_VERSIONS:
        raise unknown_name("rule with a judge", rule, PROMPT_VERSIONS)
    answer = extractor_of(rule, AnswerKind.CHOICE).extract(reply, Sample({"options": options}))
    needs_no_verdict = answer.reason in (Reason.EMPTY, Reason.ADAPTER_FAILED)
    if needs_no_verdict or _needs_no_judge(answer, reply, options):
        return answer, False
    parse = partial(parse_choice, options=options, rule=rule)
    prompt = gmai_prompt(question, options, reply, fenced=fenced)
    verdict = judge.ask("", prompt, parse, prompt_version=PROMPT_VERSIONS[rule]).value
    if verdict is None:
        return Answer.invalid(Reason.JUDGE_FAILED), True
    return verdict, True


def _needs_no_judge(
    answer: Answer,
    text: str,
    options: Sequence[str],
) -> bool:
    """Return whether the reference found an option, or takes the text for Z."""
    words = spoken_words(text)
    named = any(letter(index) in words for index in range(len(options)))
    counts_as_z = NO_OPTION in words and not named and NO_REPLY not in text
    return answer.value is not None or answer.reason is Reason.REFUSED or counts_as_z


# ---- MediConfusion's free-form protocol: the similarity of a reply to each of the two options ----
#
# Source: ``configs/prompts/answering.json`` and ``utils/answering.py`` of https://github.com/AIF4S/MediConfusion at
# a3045b0. The paper's appendix prints the label ``[Assistant]``; the code sends ``[AI Assistant]``, and so do we. The
# reference samples its judge at temperature 0.7 without a seed.


def mediconfusion_prompt(
    question: str,
    options: Sequence[str],
    reply: str,
    *,
    fenced: bool = False,
) -> str:
    """Return the user message for one reply.

    Args:
        question: Without options.
        options: Two texts without letters.
        reply: Reply of the model under test.
        fenced: Whether the reply is between marks, which is not as published.

    Raises:
        ValueError: There are not two options.
    """
    if len(options) != 2:
        raise ValueError(f"MediConfusion's judge compares two options, got {len(options)}")
    quoted, note = quote_reply(reply, fenced=fenced)
    return (
        f"[Question]\n{question}\n\n[Answer A]\n{options[0]}\n\n[Answer B]\n{options[1]}\n\n"
        f"[AI Assistant]\n{quoted}\n\n[End of AI Assistant]\n\n[System]\n{INSTRUCTION}\n\n{note}"
    )


def parse_scores(text: str) -> tuple[int, int] | None:
    r"""Read the scores of options A and B, each in 1..10, from the judge's reply, or ``None`` if it is malformed.

    As in the reference, double newlines are collapsed, line 1 minus ``A: `` and line 2 minus ``B: `` are the scores,
    and the explanation follows. Three differences: white space around the reply is dropped; a score outside 1..10, or
    in anything but plain digits, is no score; and after a malformed reply the judge is asked again, where the reference
    raises and ends the run.

    Example:
        >>> parse_scores("A: 8\nB: 2\nThe reply names the first one.")
        (8, 2)
    """
    lines = text.strip().replace("\n\n", "\n").split("\n")
    if len(lines) < 2:
        return None
    first = lines[0].removeprefix("A: ").strip()
    second = lines[1].removeprefix("B: ").strip()
    if not _SCORE.fullmatch(first) or not _SCORE.fullmatch(second):
        return None
    return int(first), int(second)


def judge_reply(
    judge: Judge,
    question: str,
    options: Sequence[str],
    reply: str,
    *,
    fenced: bool = False,
) -> Answer:
    """Have one free-form reply judged. Never raises for the text of the reply or the judge.

    Args:
        judge: The judge.
        question: Without options.
        options: Two texts without letters.
        reply: Reply of the model under test.
        fenced: Whether the judge gets it between marks, and without its reasoning.

    Returns:
        Option A or B. A sample that the adapter could not run is ``ADAPTER_FAILED`` without asking. So is a reply of
        white space alone ``EMPTY``, where the reference sends it: no honest verdict could prefer an option. Without a
        verdict the answer is ``JUDGE_FAILED``.
    """
    if failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    # For the published prompt the harness removes reasoning, see the task's YAML.
    text = without_thoughts(reply) if fenced else reply
    if text is None or not text.strip():
        return Answer.invalid(Reason.TRUNCATED if text is None else Reason.EMPTY)
    prompt = mediconfusion_prompt(question, options, text, fenced=fenced)
    verdict = judge.ask(SYSTEM, prompt, parse_scores, prompt_version=PROMPT_VERSION)
    if verdict.value is None:
        return Answer.invalid(Reason.JUDGE_FAILED)
    first, second = verdict.value
    if abs(first - second) < GAP:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok("A" if first > second else "B")


# ---- MedEvalKit: whether a short answer means the same as the gold, 0 for right ----
#
# Source: ``get_compare_messages`` and ``extract`` in ``utils/utils.py`` of
# https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b, the same at its release 1de51eb. The published rule
# takes every reply but one 0 for wrong, even a malformed one. The strict rule takes one tag with 0 or 1; after other
# replies the judge is asked again, and in the end there is no verdict. A failed request is no verdict in either. Both
# share the judge's first reply, so that their order does not matter.


def medevalkit_prompt(
    question: str,
    gold: str,
    answer: str,
    *,
    fenced: bool = False,
) -> str:
    """Return the user message for one answer.

    Args:
        question: Question of the sample.
        gold: Answer to the question in the dataset.
        answer: Answer of the model under test.
        fenced: Whether the answer is between marks, which is not as published.
    """
    quoted, note = quote_reply(answer, fenced=fenced)
    if note:
        quoted = f"{quoted}\n{note}"
    # By the names of the reference's fields.
    values = {"question": question, "answer": gold, "response": quoted}
    return _FIELD.sub(lambda field: values[field[1]], _USER)


def published_verdict(text: str) -> bool:
    """Return whether the reference takes a judge's reply for "right". It takes everything else for "wrong"."""
    return tag_content(text, "judge") == _RIGHT


def strict_verdict(text: str) -> bool | None:
    """Return whether a judge's reply says "right".

    Returns:
        ``None`` for a reply without exactly one tag with 0 or 1.

    Example:
        >>> [strict_verdict(f"<judge>{verdict}</judge>") for verdict in ("0", "1", "right")]
        [True, False, None]
    """
    match = _VERDICT.search(text)
    if match is None or text.count("<judge>") != 1:
        return None
    return match[1] == _RIGHT


def judge_answer(
    judge: Judge,
    question: str,
    gold: str,
    answer: str,
    *,
    as_published: bool,
    fenced: bool = False,
) -> bool | None:
    """Have one answer judged right or wrong. No text of the answer or of the judge's reply raises an error.

    Args:
        judge: The judge.
        question: Question of the sample.
        gold: Answer to the question in the dataset.
        answer: Answer of the model under test.
        as_published: Whether the judge's first reply is read by the published rule, which takes every form.
        fenced: Whether the judge gets the answer between marks.

    Returns:
        Whether the judge calls the answer right. ``None`` without a verdict: the request failed, or, unless
        ``as_published``, no reply followed the format.
    """
    ask = partial(judge.ask, "", medevalkit_prompt(question, gold, answer, fenced=fenced))
    text: str | None = ask(str, prompt_version=FIRST_VERSION).value
    if text is None:
        return None
    if as_published:
        return published_verdict(text)
    verdict = strict_verdict(text)
    if verdict is None:
        return ask(strict_verdict, prompt_version=AGAIN_VERSION).value
    return verdict
