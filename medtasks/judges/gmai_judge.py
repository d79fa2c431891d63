"""GMAI-MMBench's judge: matches a reply from which no option can be extracted to one of the options.

Source: ``build_prompt`` and ``extract_answer_from_item`` of https://github.com/open-compass/VLMEvalKit at 2cf2a36. The
judge's reply is read by the same rule as the model's. The judge sees question, options and reply, and neither the image
nor the right option.

Differences: a reply of white space is not sent; after three of the judge's replies without an option there is no
verdict, where the reference draws an option at random; a further request corrects the judge. The temperature is that of
``JudgeSettings``.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from medtasks.data.samples import Sample, letter
from medtasks.errors import unknown_name
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor_of
from medtasks.extract.published.letter_choice import NO_OPTION, NO_REPLY, spoken_words
from medtasks.home import packaged_facts
from medtasks.judges.fence import shown_to_judge
from medtasks.judges.judge_client import Judge

# By the rule that reads the judge's reply: on disk, a reply that only one rule can read must not replace another.
PROMPT_VERSIONS: Mapping[str, int] = MappingProxyType({"vlmevalkit_2024_06": 1, "vlmevalkit_2026_06": 2})

INSTRUCTION: str = packaged_facts(__package__, "prompts")["gmai"]["instruction"]


def judge_prompt(question: str, options: Sequence[str], reply: str, *, fenced: bool = False) -> str:
    """Return the user message for one reply, character for character as the reference sends it unless it is fenced."""
    quoted, note = shown_to_judge(reply, fenced=fenced)
    note = f"{note}\n" if note else ""
    listed = "".join(f"{letter(index)}. {option}\n" for index, option in enumerate(options))
    return (
        f"{INSTRUCTION}Question: {question}?\nOptions: There are several options: \n{listed}\n"
        f"Answer: {quoted}\n{note}Your output: "
    )


def parse_choice(text: str, options: Sequence[str], rule: str) -> Answer | None:
    """Read the judge's reply by a rule of :data:`PROMPT_VERSIONS`; ``None`` for an unusable one (two letters).

    The letter Z is ``NO_MATCH``, and a refusal, which the reference takes for Z, ``REFUSED``.
    """
    if NO_REPLY in text:
        return None
    answer = extractor_of(rule, AnswerKind.CHOICE).extract(text, Sample({"options": options}))
    return answer if _settled(answer, text, options) else None


def match_reply(
    judge: Judge, rule: str, question: str, options: Sequence[str], reply: str, *, fenced: bool = False
) -> tuple[Answer, bool]:
    """Extract a reply's option by rule, or else by the judge, and whether it was asked; never raises for a text.

    An empty reply, a refusal, the letter Z and an adapter's failure are no option without asking, as is a reply that
    the judge calls Z. A rule that is not in :data:`PROMPT_VERSIONS` is an ``UnknownName``.
    """
    if rule not in PROMPT_VERSIONS:
        raise unknown_name("rule with a judge", rule, PROMPT_VERSIONS)
    answer = extractor_of(rule, AnswerKind.CHOICE).extract(reply, Sample({"options": options}))
    if answer.reason in (Reason.EMPTY, Reason.ADAPTER_FAILED) or _settled(answer, reply, options):
        return answer, False
    parse = partial(parse_choice, options=options, rule=rule)
    prompt = judge_prompt(question, options, reply, fenced=fenced)
    verdict = judge.ask("", prompt, parse, prompt_version=PROMPT_VERSIONS[rule]).value
    return Answer.invalid(Reason.JUDGE_FAILED) if verdict is None else verdict, True


def _settled(answer: Answer, text: str, options: Sequence[str]) -> bool:
    """Return whether the reference goes no further: an option was found, or the text counts as Z."""
    words = spoken_words(text)
    named = any(letter(index) in words for index in range(len(options)))
    counts_as_z = NO_OPTION in words and not named and NO_REPLY not in text
    return answer.value is not None or answer.reason is Reason.REFUSED or counts_as_z
