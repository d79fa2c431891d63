"""What every extractor is: a function from a reply and its sample to an answer, registered with name and version."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer

Extract = Callable[[Any, Sample], Answer]
E = TypeVar("E", bound=Extract)


class Kind(enum.StrEnum):
    """What extractors read, and so what an answer's value and facts are.

    The first argument of an extractor is the raw reply, ``None`` being read as empty; of ``LIKELIHOODS`` it is the mean
    negative log-likelihood of each option. No extractor raises, whatever the reply.
    """

    CHOICE = "choice"  # value: an option's letter
    LABELS = "labels"  # value: 1 or 0 per option
    OPEN = "open"  # value: the text compared with the target; facts: closed, correct, bleu_1, token_f1, token_recall
    CLOSED = "closed"  # value: an option's letter; facts: target, correct, counted
    REPORT = "report"  # value: the reply's text
    FREE_TEXT = "free_text"  # value: the text that is judged; facts: judged, labelled, compared
    LIKELIHOODS = "likelihoods"  # value: an option's letter


@dataclass(frozen=True)
class RegisteredExtractor:
    """An extractor with the facts that make its numbers reproducible: see :func:`extractor`."""

    name: str
    kind: Kind
    version: int
    summary: str
    extract: Extract


REGISTERED: dict[str, RegisteredExtractor] = {}
"""Extractors of the modules that were imported; :mod:`medtasks.extract.registry` imports them all."""


def extractor(name: str, *, kind: Kind, summary: str, version: int = 1) -> Callable[[E], E]:
    """Register a function under a name that no other kind has; the version is raised when its answers change."""

    def register(extract: E) -> E:
        REGISTERED[name] = RegisteredExtractor(name, kind, version, summary, extract)
        return extract

    return register
