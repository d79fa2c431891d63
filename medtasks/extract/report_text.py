"""A reply that is a report: nothing is read from it, it is compared as it stands."""

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.failure import failure_cause


@extractor("report_text", kind=Kind.REPORT, version=1, summary="the reply as it stands, for metrics of report texts")
def report_text(reply: str | None, sample: Sample) -> Answer:
    """Return the reply as a report.

    An empty reply and one of white space are scored as the empty text. MultiMedEval at d9ac283 crashes on it; v0.1.0
    scored the words "Invalid Response" instead, which share words with no report but are a text to BERTScore and
    CheXbert. A sample that the model adapter could not run has no text to score. Half of a surrogate pair, which no
    tokenizer takes, becomes the replacement character.

    Example:
        >>> report_text("No effusion.", Sample({})).value
        'No effusion.'
        >>> report_text(None, Sample({})).reason
        <Reason.EMPTY: 'empty'>
    """
    text = (reply or "").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if failure_cause(text) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    return Answer.ok(text) if text.strip() else Answer.invalid(Reason.EMPTY)
