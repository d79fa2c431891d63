"""Extractors: functions from a reply and its sample to an answer, registered by name and version."""

import enum
import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import unknown_name
from medtasks.extract.answer import Answer, Reason

Extract = Callable[[Any, Sample], Answer]
Reader = Callable[[str | None], str | Reason]


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
"""Extractors of the modules imported so far; the first look-up imports them all."""


def extractor(
    name: str, kind: AnswerKind, summary: str, reader: Reader | None = None, *, version: int = 1
) -> Callable[[Extract], Extract]:
    """Register a function under a unique name; raise the version when its answers change.

    With a ``reader`` the function gets the text that this reads from the raw reply; without a text, the answer is
    invalid for the reader's reason.
    """

    def register(extract: Extract) -> Extract:
        @functools.wraps(extract)
        def extract_read(reply: str | None, sample: Sample) -> Answer:
            assert reader is not None
            text = reader(reply)
            return Answer.invalid(text) if isinstance(text, Reason) else extract(text, sample)

        registered = extract if reader is None else extract_read
        REGISTERED[name] = RegisteredExtractor(name, kind, version, summary, registered)
        return registered

    return register


# Imported at the first look-up; names are listed in this order.
_MODULES = (
    *("published.letter_choice", "careful.robust_choice", "careful.robust_class", "careful.yes_no"),
    *("careful.robust_nli", "published.multimedeval", "careful.open_text"),
    *("labels.labeler", "careful.robust_labels", "careful.free_text"),
    *("published.medheval_closed", "published.medevalkit_choice", "published.medevalkit_mmmu"),
    *("published.medevalkit_vqa", "likelihood"),
)
_TITLES: Mapping[AnswerKind | None, str] = {
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
        raise unknown_name(_TITLES.get(kind, "answer rule"), name, registered)
    return registered[name]


@functools.cache
def extractors(kind: AnswerKind | None = None) -> Mapping[str, RegisteredExtractor]:
    """Return the extractors of a kind, or of all kinds, by name."""
    modules = [importlib.import_module(f"medtasks.extract.{module}").__name__ for module in _MODULES]
    ordered = sorted(REGISTERED.values(), key=lambda registered: modules.index(registered.extract.__module__))
    return MappingProxyType({rule.name: rule for rule in ordered if kind in (None, rule.kind)})
