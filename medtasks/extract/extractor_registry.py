"""Extractors: functions from a reply and its sample to an answer, registered with name and version, found by name."""

import enum
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, TypeVar

from medtasks.data.samples import Sample
from medtasks.errors import unknown_name
from medtasks.extract.answer import Answer

Extract = Callable[[Any, Sample], Answer]
E = TypeVar("E", bound=Extract)


class AnswerKind(enum.StrEnum):
    """Type of an extractor, which determines the value and facts of its answers.

    The first argument of an extractor is the raw reply, ``None`` counting as empty, or for ``LIKELIHOODS`` the mean
    negative log-likelihood of each option. No extractor raises, whatever the reply.
    """

    CHOICE = "choice"  # value: an option's letter; of open questions of MMMU a word (medevalkit_mmmu)
    LABELS = "labels"  # value: 1 or 0 per option
    OPEN = "open"  # value: the text compared with the target; facts: closed, correct, bleu_1, token_f1, token_recall
    CLOSED = "closed"  # value: an option's letter; facts: target, correct, counted
    REPORT = "report"  # value: the reply's text
    FREE_TEXT = "free_text"  # value: the text that is judged; facts: judged, labelled, compared
    KIT_QUESTION = "kit_question"  # value: the text compared; facts: closed, correct, measures, stops, judged, gold
    LIKELIHOODS = "likelihoods"  # value: an option's letter


@dataclass(frozen=True)
class RegisteredExtractor:
    """An extractor with the facts that make its numbers reproducible: see :func:`extractor`."""

    name: str
    kind: AnswerKind
    version: int
    summary: str
    extract: Extract


REGISTERED: dict[str, RegisteredExtractor] = {}
"""Extractors of the modules that were imported; the first look-up imports them all."""


def extractor(name: str, kind: AnswerKind, summary: str, *, version: int = 1) -> Callable[[E], E]:
    """Register a function under a unique name; raise the version when its answers change."""

    def register(extract: E) -> E:
        REGISTERED[name] = RegisteredExtractor(name, kind, version, summary, extract)
        return extract

    return register


# Imported at the first look-up; names are listed in this order.
_MODULES = (
    *("published.mediconfusion_reference", "careful.robust_choice", "careful.robust_class", "careful.yes_no"),
    *("careful.robust_nli", "published.multimedeval", "published.vlmevalkit_choice", "careful.open_text"),
    *("labels.labeler", "careful.robust_labels", "careful.listed_options", "careful.free_text"),
    *("published.medheval_closed", "published.medevalkit_choice", "published.medevalkit_mmmu"),
    *("published.medevalkit_vqa", "published.medvlthinker", "published.medxpertqa_authors", "likelihood"),
)
_CALLED: Mapping[AnswerKind | None, str] = {
    AnswerKind.LABELS: "label rule",
    AnswerKind.OPEN: "rule for open questions",
    AnswerKind.CLOSED: "rule for closed questions",
    AnswerKind.REPORT: "rule for reports",
    AnswerKind.FREE_TEXT: "rule for free text",
    AnswerKind.KIT_QUESTION: "rule for closed and open questions",
    AnswerKind.LIKELIHOODS: "likelihood rule",
}


def extractor_of(name: str, kind: AnswerKind | None = None) -> RegisteredExtractor:
    """Return the extractor ``name``, of one kind or of any, or raise UnknownName, which suggests the nearest name."""
    registered = extractors(kind)
    if name not in registered:
        raise unknown_name(_CALLED.get(kind, "answer rule"), name, registered)
    return registered[name]


@cache
def extractors(kind: AnswerKind | None = None) -> Mapping[str, RegisteredExtractor]:
    """Return the extractors of a kind, or of all kinds, by name."""
    modules = [importlib.import_module(f"medtasks.extract.{module}").__name__ for module in _MODULES]
    ordered = sorted(REGISTERED.values(), key=lambda registered: modules.index(registered.extract.__module__))
    return MappingProxyType({rule.name: rule for rule in ordered if kind in (None, rule.kind)})
