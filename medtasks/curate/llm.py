"""Requests to an LLM for drafts: prompts, captions and the endpoint, named by ``MEDTASKS_JUDGE_*`` as for judges.

The prompts are in TOML files of this package: those of the papers letter by letter, and corrected wordings, with the
marks of the paper (``**CAPTION OF IMAGE 1**``, ``{report}``) for the texts of an image or pair.

The published prompts do not fence off captions. A caption is therefore sent as one line, and not at all if it seems to
give orders or to bring a draft of its own; and no draft counts before an expert has read it.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

from medtasks.curate.drafts import Drafted, DraftOutcome, Job
from medtasks.curate.study import Study
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.home import packaged_facts
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import (
    BAD_FORMAT,
    MAX_REQUESTS,
    Judge,
    JudgeRole,
    JudgeVerdict,
    VerdictCache,
    check_access,
    default_cache_folder,
    settings_from_environment,
)
from medtasks.net.journal import digest_of

T = TypeVar("T")

SHORTEST = 100
"""Characters; shorter captions tell too little of the image (MediConfusion, section 2)."""
_LIKE_A_DRAFT = re.compile(r"\b(?:question|option ?[12ab]|image ?[12])\s*:", re.IGNORECASE)
_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:very )?sorry|sorry[,.]|i apologi[sz]e|unfortunately,? i|as an ai\b"
    r"|i (?:can(?:no|['’])t|am unable|am not able|won['’]?t|must decline))",
    re.IGNORECASE,
)
_DRAFTING = JudgeRole(
    "LLM",
    "A request got no usable reply from the LLM: {}. Further ones of this kind are not reported.",
    "Nothing more is asked for in this run because {} requests in a row failed: {}. Run the same command again to go "
    "on.",
    f"--max-requests ({MAX_REQUESTS})",
)


@dataclass(frozen=True)
class DraftingPrompt:
    """One prompt with its marks."""

    name: str
    version: int  # raised when the texts change
    source: str  # publication
    system: str
    user: str
    block: str = ""  # repeated for each of several images or pairs

    @property
    def label(self) -> str:
        """Name and version, as a journal records them."""
        return f"{self.name} v{self.version}"

    def filled(self, values: Mapping[str, str]) -> str:
        """Fill the marks of the user's part; KeyError for a mark that the prompt does not have."""
        return _filled(self.user, values)

    def with_blocks(self, blocks: Sequence[Mapping[str, str]]) -> str:
        """Return the user's part, followed by the block filled from each mapping."""
        return self.user + "".join(_filled(self.block, values) for values in blocks)

    def asked(self, values: Mapping[str, str], llm: str) -> str:
        """Return the digest of the request to an ``llm`` (its model and temperature)."""
        return digest_of(self.label, self.system, self.filled(values), llm)[:32]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for mark in values:
        if mark not in text:
            raise KeyError(mark)
    marks = "|".join(re.escape(mark) for mark in sorted(values, key=len, reverse=True))
    return re.sub(marks, lambda match: values[match[0]], text)


@cache
def prompts_in(file: str) -> Mapping[str, DraftingPrompt]:
    """Return the prompts of ``<file>.toml`` of this package by name."""
    return {name: DraftingPrompt(name, **facts) for name, facts in packaged_facts(__package__, file).items()}


def one_line(text: str) -> str:
    """Join a caption into one line, as prompts show it and rules count it."""
    return " ".join(text.split())


def why_not_sent(text: str) -> str:
    """Return the reason to draft no question from a caption, or an empty text."""
    caption = one_line(text)
    if len(caption) < SHORTEST:
        return f"a caption is shorter than {SHORTEST} characters"
    if addresses_judge(caption) or _LIKE_A_DRAFT.search(caption):
        return "a caption seems to address the LLM"
    return ""


def refuses(reply: str) -> bool:
    """Return whether a reply begins with a refusal, after its reasoning."""
    return bool(_REFUSAL.match(without_thoughts(reply) or ""))


def free_text(reply: str) -> str | None:
    """Return a reply without reasoning; None for an empty one or a refusal."""
    text = (without_thoughts(reply) or "").strip()
    return None if not text or refuses(text) else text


@dataclass(frozen=True)
class LlmAnswer(Generic[T]):
    """Result of one request."""

    value: T | None  # read from the reply; not None exactly if the outcome is DRAFTED
    outcome: DraftOutcome
    reason: str = ""  # for no value: one phrase or sentence without sample text


def ask(llm: Judge, prompt: DraftingPrompt, user: str, read: Callable[[str], T | None]) -> LlmAnswer[T]:
    """Ask for a reply that ``read`` can read, again if it cannot and it is no refusal; nothing raises.

    ``user`` is the prompt's user part with its marks filled.
    """

    def read_or_refused(reply: str) -> tuple[T | None] | None:
        text = reply.encode(errors="replace").decode()  # half a surrogate pair could not be written down
        value = read(text)
        return None if value is None and not refuses(text) else (value,)

    verdict: JudgeVerdict[tuple[T | None]] = llm.ask(
        prompt.system, user, read_or_refused, prompt_version=prompt.version
    )
    if verdict.value is not None:
        (value,) = verdict.value
        if value is None:
            return LlmAnswer(None, DraftOutcome.REFUSED, "the LLM would not")
        return LlmAnswer(value, DraftOutcome.DRAFTED)
    outcome = DraftOutcome.MALFORMED if verdict.failure == BAD_FORMAT else DraftOutcome.FAILED
    return LlmAnswer(None, outcome if verdict.sent else DraftOutcome.NOT_ASKED, verdict.failure or "")


def job_of(
    llm: Judge,
    request: str,
    prompt: DraftingPrompt,
    values: Mapping[str, str],
    read: Callable[[str], Mapping[str, Any] | None],
) -> Job:
    """Return the job that sends a prompt; ``read`` turns the reply into fields of the request's journal line."""
    label = llm.settings.label
    digest = prompt.asked(values, label)

    def job() -> Drafted:
        answer = ask(llm, prompt, prompt.filled(values), read)
        about: dict[str, Any] = {"request": request, "asked": digest, "llm": label, "prompt": prompt.label}
        return Drafted(outcome=answer.outcome, reason=answer.reason, **about, **(answer.value or {}))

    return digest, job


def open_llm(study: Study, max_requests: int | None = None) -> Judge:
    """Return the LLM that the environment names, cleared for the captions and reports of a study.

    ``max_requests`` replaces that of the environment. Errors are those of :func:`settings_from_environment` and
    :func:`check_access`.
    """
    settings = settings_from_environment(what="drafting needs an LLM")
    check_access(settings, study.access, study.name)
    if max_requests is not None:
        settings = replace(settings, max_requests=max_requests)
    return Judge(settings, VerdictCache(default_cache_folder()), role=_DRAFTING)
