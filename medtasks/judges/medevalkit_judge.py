"""MedEvalKit's judge of short answers: whether an answer means the same as the gold.

Source: ``get_compare_messages`` and ``extract`` in ``utils/utils.py`` of
https://github.com/alibaba-damo-academy/MedEvalKit at 9b12e3b; prompt and reading are the same at its release 1de51eb.
The judge sees question, gold and answer, not the image, and says 0 for right. Any open question can be judged so.

The published rule takes every reply but one 0 for wrong, even a malformed one. The strict rule takes one tag with 0 or
1; after other replies the judge is asked again, and in the end there is no verdict. A failed request is no verdict in
either. Both share the judge's first reply, so that their order does not matter.
"""

import re
from functools import partial

from medtasks.extract.published.medevalkit_choice import tagged
from medtasks.home import packaged_facts
from medtasks.judges.fence import shown_to_judge
from medtasks.judges.judge_client import Judge

# On disk, the first version has any reply, and the second one replies in the right format if the first was not.
FIRST_VERSION, AGAIN_VERSION = 1, 2

_USER: str = packaged_facts(__package__, "prompts")["medevalkit"]["user"]
_FIELD = re.compile(r"\{(question|answer|response)\}")
_VERDICT = re.compile(r"<judge>\s*([01])\s*</judge>")
_RIGHT = "0"


def judge_prompt(question: str, gold: str, answer: str, *, fenced: bool = False) -> str:
    """Return the user message for one answer, character for character as the reference sends it unless it is fenced."""
    quoted, note = shown_to_judge(answer, fenced=fenced)
    values = {"question": question, "answer": gold, "response": f"{quoted}\n{note}" if note else quoted}
    return _FIELD.sub(lambda field: values[field[1]], _USER)


def published_verdict(text: str) -> bool:
    """Return whether the reference takes a judge's reply for "right"; it takes everything else for "wrong"."""
    return tagged(text, "judge") == _RIGHT


def strict_verdict(text: str) -> bool | None:
    """Return whether a judge's reply says "right"; ``None`` for one without exactly one tag with 0 or 1."""
    match = _VERDICT.search(text)
    return match[1] == _RIGHT if match and text.count("<judge>") == 1 else None


def judge_answer(
    judge: Judge, question: str, gold: str, answer: str, *, as_published: bool, fenced: bool = False
) -> bool | None:
    """Have one answer judged right or wrong; ``None`` without a verdict. Never raises for the text of either."""
    ask = partial(judge.ask, "", judge_prompt(question, gold, answer, fenced=fenced))
    text: str | None = ask(str, prompt_version=FIRST_VERSION).value
    if text is None:
        return None
    if as_published:
        return published_verdict(text)
    verdict = strict_verdict(text)
    return ask(strict_verdict, prompt_version=AGAIN_VERSION).value if verdict is None else verdict
