"""Answers, and extractors: functions from a reply and its sample to an answer, registered by name and version.

Task families and the command line look extractors up here. No extractor raises, and none returns a value that the
reply does not give: what is not read is an answer with a reason.
"""

import enum
import functools
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import unknown_name


class Reason(enum.StrEnum):
    """Why a reply has, or has not, a value."""

    OK = "ok"
    EMPTY = "empty"
    AMBIGUOUS = "ambiguous"
    REFUSED = "refused"
    NO_MATCH = "no_match"
    TRUNCATED = "truncated"
    ADAPTER_FAILED = "adapter_failed"
    JUDGE_FAILED = "judge_failed"


@dataclass(frozen=True)
class Answer:
    """Value and facts read from a reply, as its :class:`AnswerKind` says.

    ``value`` is ``None``, and ``reason`` is not ``Reason.OK``, if the reply has no valid answer, which is not the same
    as wrong, nor as no label at all; labels are a tuple of 0 and 1. An invalid answer has facts, too.

    Example:
        >>> Answer.ok("B").value, Answer.invalid(Reason.REFUSED).value
        ('B', None)
    """

    value: Any
    reason: Reason
    facts: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if (self.value is None) == (self.reason is Reason.OK):
            raise ValueError(
                f"an answer has a value exactly when its reason is ok, got {self.value!r}, {self.reason}"
            )
        if isinstance(self.value, tuple) and not set(self.value) <= {0, 1}:
            raise ValueError(f"label values are 0 or 1, got {self.value!r}")

    @classmethod
    def ok(cls, value: Any, **facts: Any) -> "Answer":
        """Return a valid answer."""
        return cls(value, Reason.OK, facts)

    @classmethod
    def only(cls, values: Collection[Any]) -> "Answer":
        """Return a valid answer for a single value. None at all is ``no_match``, and several are ``ambiguous``.

        Example:
            >>> Answer.only({"A", "B"}).reason
            <Reason.AMBIGUOUS: 'ambiguous'>
        """
        if len(values) == 1:
            return cls.ok(*values)
        return cls.invalid(Reason.AMBIGUOUS if values else Reason.NO_MATCH)

    @classmethod
    def invalid(cls, reason: Reason, **facts: Any) -> "Answer":
        """Return an answer without a value."""
        return cls(None, reason, facts)


Extract = Callable[..., Answer]  # of a reply and its sample
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
    """An extractor with the facts that make its numbers reproducible."""

    name: str
    kind: str  # an :class:`AnswerKind`, or one of a question type's own
    version: int
    summary: str
    extract: Extract


REGISTERED: dict[str, RegisteredExtractor] = {}
"""Extractors of the modules imported so far; the first look-up imports them all."""

_AMONG_OPTIONS = (AnswerKind.CHOICE, AnswerKind.LABELS, AnswerKind.CLOSED)
_TITLES: Mapping[str | None, str] = {
    AnswerKind.LABELS: "label rule",
    AnswerKind.OPEN: "rule for open questions",
    AnswerKind.CLOSED: "rule for closed questions",
    AnswerKind.REPORT: "rule for reports",
    AnswerKind.FREE_TEXT: "rule for free text",
    AnswerKind.KIT_QUESTION: "rule for closed and open questions",
    AnswerKind.LIKELIHOODS: "likelihood rule",
}
NO_OPTIONS = (
    "the rule '{}' reads an answer among options, and the documents have no column 'options' with a list of texts; add "
    "it, or choose a rule for texts (medtasks parse --help)"
)


def extractor(
    name: str,
    kind: str,
    summary: str,
    reader: Reader | None = None,
    *,
    version: int = 1,
    **settings: Any,
) -> Callable[[Extract], Extract]:
    """Register a function under a unique name.

    Args:
        name: Name by which task files choose the extractor.
        kind: Its :class:`AnswerKind`, or one of a question type's own.
        summary: What it reads, in a few words, for lists of extractors.
        reader: Function that reads the text that the extractor gets from the raw reply, by default the reply itself.
            Without a text, the answer is invalid for the reader's reason.
        version: Number to raise when answers change.
        settings: Keyword arguments of the function, which may have a name for each choice of them.
    """

    def register(extract: Extract) -> Extract:
        """Register a function, and return it as it is if it has settings, else with the reader in front."""

        @functools.wraps(extract)
        def extract_text(reply: Any, sample: Sample) -> Answer:
            text = reply if reader is None else reader(reply)
            if isinstance(text, Reason):
                return Answer.invalid(text)
            return extract(text, sample, **settings)

        REGISTERED[name] = RegisteredExtractor(name, kind, version, summary, extract_text)
        return extract if settings else extract_text

    return register


def extractor_of(name: str, kind: str | None = None) -> RegisteredExtractor:
    """Return the extractor with a name.

    Args:
        name: Its registered name.
        kind: Its :class:`AnswerKind`, any by default.

    Raises:
        UnknownName: No extractor of this kind has the name. The message suggests the nearest name.

    Example:
        >>> extractor_of("robust_choice", AnswerKind.CHOICE).extract("(B)", Sample({"options": ["cyst", "scar"]})).value
        'B'
    """
    registered = extractors(kind)
    if name not in registered:
        raise unknown_name(_TITLES.get(kind, "rule"), name, registered)
    return registered[name]


def extractors(kind: str | None = None) -> Mapping[str, RegisteredExtractor]:
    """Return the extractors of a kind by name: those of this room, and of question types in use.

    Args:
        kind: An :class:`AnswerKind`, or one of a question type's own; None for all kinds.

    Example:
        >>> sorted(extractors(AnswerKind.LIKELIHOODS))
        ['greedy_reference', 'prefix_reference', 'untied']
    """
    _import_all()
    return _of_kind(kind, len(REGISTERED))


@functools.cache
def _import_all() -> None:
    """Import all modules of this room, which registers their extractors."""
    import medtasks.extract

    for module in pkgutil.walk_packages(medtasks.extract.__path__, "medtasks.extract."):
        importlib.import_module(module.name)


@functools.cache
def _of_kind(kind: str | None, _count: int) -> Mapping[str, RegisteredExtractor]:
    """Return the extractors of a kind, None for all, by module. With the count of all, a new one renews the cache."""
    ordered = sorted(REGISTERED.values(), key=lambda rule: rule.extract.__module__)
    return MappingProxyType({rule.name: rule for rule in ordered if kind in (None, rule.kind)})


def lacks_options(rule: str, document: Mapping[str, Any]) -> bool:
    """Return whether a rule reads answers among options, of which a document has none."""
    return (
        bool(rule)
        and extractor_of(rule).kind in _AMONG_OPTIONS
        and not Sample(document).options
    )
