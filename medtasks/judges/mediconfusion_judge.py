"""MediConfusion's free-form protocol: a judge scores the similarity of a reply to each of the two options.

Source: https://github.com/AIF4S/MediConfusion at a3045b0, ``configs/prompts/answering.json`` and
``utils/answering.py``. The judge sees neither the image nor the right option.

The paper's appendix prints the label ``[Assistant]``; the code sends ``[AI Assistant]``, and so do we. The reference
samples its judge at temperature 0.7 without a seed; ours follows ``JudgeSettings.temperature``, which defaults to 0.
"""

import re
from collections.abc import Sequence

from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.home import packaged_facts
from medtasks.judges.fence import shown_to_judge
from medtasks.judges.judge_client import Judge

RULE_NAME = "gap_of_3"
RULE_VERSION = 1
PROMPT_VERSION = 1
GAP = 3  # closer scores are ambiguous; the paper's main text picks the higher score whatever the gap

_PROMPTS = packaged_facts(__package__, "prompts")["mediconfusion"]
SYSTEM, INSTRUCTION = str(_PROMPTS["system"]), str(_PROMPTS["instruction"])


def judge_prompt(question: str, options: Sequence[str], reply: str, *, fenced: bool = False) -> str:
    """Return the user message for one reply, character for character as the reference sends it unless it is fenced.

    The two options come without letters; another number of them is a ``ValueError``.
    """
    if len(options) != 2:
        raise ValueError(f"MediConfusion's judge compares two options, got {len(options)}")
    quoted, note = shown_to_judge(reply, fenced=fenced)
    return (
        f"[Question]\n{question}\n\n[Answer A]\n{options[0]}\n\n[Answer B]\n{options[1]}\n\n"
        f"[AI Assistant]\n{quoted}\n\n[End of AI Assistant]\n\n[System]\n{INSTRUCTION}\n\n{note}"
    )


def parse_scores(text: str) -> tuple[int, int] | None:
    """Read the scores of options A and B, each in 1..10, from the judge's reply; ``None`` if it is malformed.

    As in the reference, double newlines are collapsed, line 1 minus ``A: `` and line 2 minus ``B: `` are the scores,
    and the explanation follows. Three differences: white space around the reply is dropped; a score outside 1..10, or
    in anything but plain digits, is no score; and after a malformed reply the judge is asked again, where the reference
    raises and ends the run.
    """
    lines = text.strip().replace("\n\n", "\n").split("\n")
    digits = [line.removeprefix(label).strip() for line, label in zip(lines, ("A: ", "B: "), strict=False)]
    if len(digits) < 2 or not all(re.fullmatch("0?[1-9]|10", score) for score in digits):
        return None
    return int(digits[0]), int(digits[1])


def judge_reply(judge: Judge, question: str, options: Sequence[str], reply: str, *, fenced: bool = False) -> Answer:
    """Have one free-form reply judged; never raises for the text of the reply or the judge.

    A sample that the adapter could not run is ``ADAPTER_FAILED`` without asking. So is a reply of white space alone
    ``EMPTY``, where the reference sends it: no honest verdict could prefer an option. Without a verdict the answer is
    ``JUDGE_FAILED``.
    """
    if failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    # For the published prompt the harness removes reasoning, see the task's YAML.
    text = without_thoughts(reply) if fenced else reply
    if text is None or not text.strip():
        return Answer.invalid(Reason.TRUNCATED if text is None else Reason.EMPTY)
    prompt = judge_prompt(question, options, text, fenced=fenced)
    verdict = judge.ask(SYSTEM, prompt, parse_scores, prompt_version=PROMPT_VERSION)
    if verdict.value is None:
        return Answer.invalid(Reason.JUDGE_FAILED)
    first, second = verdict.value
    if abs(first - second) < GAP:
        return Answer.invalid(Reason.AMBIGUOUS)
    return Answer.ok("A" if first > second else "B")
