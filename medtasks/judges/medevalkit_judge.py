"""MedEvalKit's judge of short answers: does an answer mean the same as the gold?

Source: ``get_compare_messages`` and ``extract`` in ``utils/utils.py`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b; prompt and reading are the same at its release 1de51eb.
The judge sees question, gold and answer, not the image, and says 0 for right. Any open question can be judged so.

Published, whatever the judge says but one 0 is wrong, even a reply of no form. The strict reading takes one tag with 0
or 1; another reply has the judge asked again, and in the end there is no verdict. A request that fails is no verdict in
either. Both share the judge's first reply, so that neither depends on which of them asked first.
"""

import re
from functools import partial

from medtasks.extract.published.medevalkit_text import tagged
from medtasks.home import packaged_facts
from medtasks.judges.fence import shown_to_judge
from medtasks.judges.judge_client import Judge

# Under the first version any reply is kept on disk; under the second one those that follow the format, where the first
# reply did not.
FIRST_VERSION, AGAIN_VERSION = 1, 2

_USER: str = packaged_facts(__package__, "prompts")["medevalkit"]["user"]
_FIELD = re.compile(r"\{(question|answer|response)\}")
_VERDICT = re.compile(r"<judge>\s*([01])\s*</judge>")
_RIGHT = "0"


def judge_prompt(question: str, gold: str, answer: str, *, fenced: bool = False) -> str:
    """Return the user message for one answer, character for character as the reference sends it unless it is fenced."""
    shown, note = shown_to_judge(answer, fenced=fenced)
    said = {"question": question, "answer": gold, "response": f"{shown}\n{note}" if note else shown}
    return _FIELD.sub(lambda field: said[field[1]], _USER)


def published_verdict(text: str) -> bool:
    """Return whether the reference takes a judge's reply for "right"; everything else is "wrong" to it."""
    return tagged(text, "judge") == _RIGHT


def strict_verdict(text: str) -> bool | None:
    """Return whether a judge's reply says "right"; ``None`` for one that has not exactly one tag with 0 or 1.

    Example:
        >>> strict_verdict("<think>no</think> <judge> 1 </judge>"), strict_verdict("0")
        (False, None)
    """
    found = _VERDICT.search(text)
    return found[1] == _RIGHT if found and text.count("<judge>") == 1 else None


def judge_answer(
    judge: Judge, question: str, gold: str, answer: str, *, as_published: bool, fenced: bool = False
) -> bool | None:
    """Have one answer judged right or wrong; ``None`` where there is no verdict. Never raises for what either says."""
    ask = partial(judge.ask, "", judge_prompt(question, gold, answer, fenced=fenced))
    text: str | None = ask(str, prompt_version=FIRST_VERSION).value
    if text is None:
        return None
    if as_published:
        return published_verdict(text)
    found = strict_verdict(text)
    if found is None:
        found = ask(strict_verdict, prompt_version=AGAIN_VERSION).value
    return found
