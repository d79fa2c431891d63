"""A reply that is a report: nothing is read from it, it is compared as it stands."""

from collections.abc import Callable
from dataclasses import dataclass

from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause


@dataclass(frozen=True)
class ReportText:
    """What metrics compare with the radiologist's report.

    Attributes:
        text: The reply as the model gave it; empty where there is none.
        reason: ``ok``, ``empty`` or ``adapter_failed``.
    """

    text: str
    reason: Reason


ReportRule = Callable[[str | None], ReportText]


def read(reply: str | None) -> ReportText:
    """Return the reply as a report.

    An empty reply and one of white space are scored as the empty text. MultiMedEval at d9ac283 crashes on it; v0.1.0
    scored the words "Invalid Response" instead, which share words with no report but are a text to BERTScore and
    CheXbert. A sample that the model adapter could not run has no text to score. Half of a surrogate pair, which no
    tokenizer takes, becomes the replacement character.

    Example:
        >>> read("No effusion.")
        ReportText(text='No effusion.', reason=<Reason.OK: 'ok'>)
        >>> read(None).reason
        <Reason.EMPTY: 'empty'>
    """
    text = (reply or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if failure_cause(text) is not None:
        return ReportText("", Reason.ADAPTER_FAILED)
    return ReportText(text, Reason.OK) if text.strip() else ReportText("", Reason.EMPTY)
