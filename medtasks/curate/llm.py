"""The LLM that drafts questions: an OpenAI-compatible endpoint, asked as judges are, with the same guard.

``MEDTASKS_JUDGE_BASE_URL``, ``MEDTASKS_JUDGE_MODEL`` and the other variables of judges name it. Replies that can be
read are kept on disk like verdicts.
"""

import re
from dataclasses import dataclass

from medtasks.curate.study import Study
from medtasks.judges.cache import VerdictCache, default_cache_folder
from medtasks.judges.client import Judge
from medtasks.judges.settings import check_access, settings_from_environment

_REFUSAL = re.compile(
    r"\s*(?:i['’]?m (?:very )?sorry|sorry[,.]|i apologi[sz]e|unfortunately,? i|as an ai\b"
    r"|i (?:can(?:no|['’])t|am unable|am not able|won['’]?t|must decline))",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Refusal:
    """What an LLM says that will not."""


def refusal(reply: str) -> Refusal | None:
    """Return a refusal if a reply begins like one.

    Example:
        >>> refusal("I'm sorry, but I can't help with that."), refusal("Question: Is there a mass?")
        (Refusal(), None)
    """
    return Refusal() if _REFUSAL.match(reply) else None


def open_llm(study: Study) -> Judge:
    """Return the LLM that the environment names, cleared for the captions and reports of a study.

    Errors are those of :func:`~medtasks.judges.settings.settings_from_environment` and
    :func:`~medtasks.judges.settings.check_access`.
    """
    settings = settings_from_environment()
    check_access(settings, study.access, study.name)
    return Judge(settings, VerdictCache(default_cache_folder()))


def llm_label(llm: Judge) -> str:
    """Return model and temperature, as a journal records them."""
    return f"{llm.settings.model}, temperature {llm.settings.temperature:g}"
