"""MultiMedEval's rule for several labels: those whose BLEU-1 against the reply is above one half.

Source: ``ChestXray14.get_predicted_answer`` in ``multimedeval/chestxray14.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283. The task came after v0.1.0; the rule with the older cleaner is
what that version would have done.

BLEU-1 is the share of the reply's words that the label has, so a label is found only in a reply with hardly another
word: "Edema" names one, and "Edema, Mass" has two words and names none.
"""

from collections.abc import Sequence
from functools import lru_cache

from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.extractor import Kind, extractor
from medtasks.extract.failure import failure_cause
from medtasks.extract.multimedeval_cleaning import clean_head, clean_v0_1_0
from medtasks.extract.multimedeval_option import Cleaner
from medtasks.metrics.bleu import References

_THRESHOLD = 0.5


@lru_cache(maxsize=64)
def _references(clean: Cleaner, names: tuple[str, ...]) -> References:
    return References.of([clean(name) for name in names])


def _close(reply: str | None, names: Sequence[str], clean: Cleaner) -> Answer:
    if reply is not None and failure_cause(reply) is not None:
        return Answer.invalid(Reason.ADAPTER_FAILED)
    scores = _references(clean, tuple(names)).scores(clean(reply or ""))
    return Answer.ok(tuple(int(score > _THRESHOLD) for score in scores))


@extractor(
    "multimedeval_labels_head",
    kind=Kind.LABELS,
    version=1,
    summary="MultiMedEval, ChestX-ray14, cleaner at d9ac283: labels with a BLEU-1 above one half",
)
def multimedeval_labels_head(reply: str | None, sample: Sample) -> Answer:
    """Read which labels the reply names, with the cleaner at d9ac283.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its options are the label names as published.

    Returns:
        1 or 0 per label; all 0 for a reply that is close to none of them, even for an empty one. A sample that the
        adapter could not run is ``adapter_failed``.

    Example:
        >>> labels = Sample({"options": ["Edema", "Mass"]})
        >>> [multimedeval_labels_head(reply, labels).value for reply in ("A mass.", "Edema, mass")]
        [(0, 1), (0, 0)]
    """
    return _close(reply, sample.options, clean_head)


@extractor(
    "multimedeval_labels_v0_1_0",
    kind=Kind.LABELS,
    version=1,
    summary="MultiMedEval, ChestX-ray14, cleaner of v0.1.0: labels with a BLEU-1 above one half",
)
def multimedeval_labels_v0_1_0(reply: str | None, sample: Sample) -> Answer:
    """Read which labels the reply names, with the cleaner of v0.1.0.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        sample: Its options are the label names as published.

    Returns:
        As for :func:`multimedeval_labels_head`.

    Example:
        >>> labels = Sample({"options": ["Edema", "Mass"]})
        >>> [multimedeval_labels_v0_1_0(reply, labels).value for reply in ("(Mass)", "A mass.")]
        [(0, 1), (0, 0)]
    """
    return _close(reply, sample.options, clean_v0_1_0)
