"""The LLM that drafts questions: an OpenAI-compatible endpoint, asked as judges are, with the same guard.

``MEDTASKS_JUDGE_BASE_URL``, ``MEDTASKS_JUDGE_MODEL`` and the other variables of judges name it. Replies that can be
read are kept on disk like verdicts.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from medtasks.curate.drafts import Outcome
from medtasks.curate.prompts import Prompt
from medtasks.curate.study import Study
from medtasks.extract.reply_text import without_thoughts
from medtasks.judges.cache import VerdictCache, default_cache_folder
from medtasks.judges.client import BAD_FORMAT, Judge, Role, Verdict
from medtasks.judges.settings import MAX_REQUESTS, check_access, settings_from_environment

T = TypeVar("T")

_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:very )?sorry|sorry[,.]|i apologi[sz]e|unfortunately,? i|as an ai\b"
    r"|i (?:can(?:no|['’])t|am unable|am not able|won['’]?t|must decline))",
    re.IGNORECASE,
)
_DRAFTING = Role(
    "LLM",
    "A request got no usable reply from the LLM: {}. Further ones of this kind are not reported.",
    "Nothing more is asked for in this run because {} requests in a row failed: {}. Run the same command again to go "
    "on.",
    f"--max-requests ({MAX_REQUESTS})",
)


@dataclass(frozen=True)
class Refusal:
    """What an LLM says that will not."""


def refusal(reply: str) -> Refusal | None:
    """Return a refusal if a reply begins like one, behind its reasoning.

    Example:
        >>> refusal("I'm sorry, but I can't help with that."), refusal("Question: Is there a mass?")
        (Refusal(), None)
    """
    return Refusal() if _REFUSAL.match(without_thoughts(reply) or "") else None


def free_text(reply: str) -> str | None:
    """Return what a reply says, without reasoning; None for one that says nothing or refuses."""
    said = (without_thoughts(reply) or "").strip()
    return None if not said or refusal(said) else said


@dataclass(frozen=True)
class Asked(Generic[T]):
    """What came of one request."""

    value: T | None  # what was read from the reply; there is one exactly where it was drafted
    outcome: Outcome
    reason: str = ""  # why there is none, one phrase or sentence without sample text


def ask(llm: Judge, prompt: Prompt, user: str, read: Callable[[str], T | None]) -> Asked[T]:
    """Ask for a reply that ``read`` can read, again where it cannot and is no refusal; nothing raises.

    ``user`` is the prompt's user part with its marks filled.
    """

    def read_or_refused(reply: str) -> T | Refusal | None:
        text = reply.encode(errors="replace").decode()  # half a surrogate pair could not be written down
        found = read(text)
        return refusal(text) if found is None else found

    verdict: Verdict[T | Refusal] = llm.ask(prompt.system, user, read_or_refused, prompt_version=prompt.version)
    if isinstance(verdict.value, Refusal):
        return Asked(None, Outcome.REFUSED, "the LLM would not")
    if verdict.value is not None:
        return Asked(verdict.value, Outcome.DRAFTED)
    outcome = Outcome.MALFORMED if verdict.failure == BAD_FORMAT else Outcome.FAILED
    return Asked(None, outcome if verdict.sent else Outcome.NOT_ASKED, verdict.failure or "")


def open_llm(study: Study, max_requests: int | None = None) -> Judge:
    """Return the LLM that the environment names, cleared for the captions and reports of a study.

    It sends at most ``max_requests``, where that is given in place of the environment's. Errors are those of
    :func:`~medtasks.judges.settings.settings_from_environment` and :func:`~medtasks.judges.settings.check_access`.
    """
    settings = settings_from_environment(what="drafting needs an LLM")
    check_access(settings, study.access, study.name)
    if max_requests is not None:
        settings = replace(settings, max_requests=max_requests)
    return Judge(settings, VerdictCache(default_cache_folder()), role=_DRAFTING)


def llm_label(llm: Judge) -> str:
    """Return model and temperature, as a journal records them."""
    return f"{llm.settings.model}, temperature {llm.settings.temperature:g}"
