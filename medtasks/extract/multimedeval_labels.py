"""MultiMedEval's rule for several labels: those whose BLEU-1 against the reply is above one half.

Source: ``ChestXray14.get_predicted_answer`` in ``multimedeval/chestxray14.py`` of
https://github.com/corentin-ryr/MultiMedEval at d9ac283. The task came after v0.1.0; the rule with the older cleaner is
what that version would have done.

BLEU-1 is the share of the reply's words that the label has, so a label is found only in a reply with hardly another
word: "Edema" names one, and "Edema, Mass" has two words and names none.
"""

from collections.abc import Sequence
from functools import lru_cache

from medtasks.extract.answer import Reason
from medtasks.extract.failure import failure_cause
from medtasks.extract.label_answer import LabelAnswer
from medtasks.extract.multimedeval_cleaning import clean_head, clean_v0_1_0
from medtasks.extract.multimedeval_option import Cleaner
from medtasks.metrics.bleu import References

_THRESHOLD = 0.5


@lru_cache(maxsize=64)
def _references(clean: Cleaner, names: tuple[str, ...]) -> References:
    return References.of([clean(name) for name in names])


def _close(reply: str | None, names: Sequence[str], clean: Cleaner) -> LabelAnswer:
    if reply is not None and failure_cause(reply) is not None:
        return LabelAnswer.invalid(Reason.ADAPTER_FAILED)
    scores = _references(clean, tuple(names)).scores(clean(reply or ""))
    return LabelAnswer.ok(tuple(int(score > _THRESHOLD) for score in scores))


def multimedeval_labels_head(reply: str | None, names: Sequence[str]) -> LabelAnswer:
    """Read which labels the reply names, with the cleaner at d9ac283.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        names: Label names as published, in order.

    Returns:
        1 or 0 per label; all 0 for a reply that is close to none of them, even for an empty one. A sample that the
        adapter could not run is ``adapter_failed``.

    Example:
        >>> [multimedeval_labels_head(reply, ["Edema", "Mass"]).values for reply in ("A mass.", "Edema, mass")]
        [(0, 1), (0, 0)]
    """
    return _close(reply, names, clean_head)


def multimedeval_labels_v0_1_0(reply: str | None, names: Sequence[str]) -> LabelAnswer:
    """Read which labels the reply names, with the cleaner of v0.1.0.

    Args:
        reply: Raw reply; ``None`` is read as empty.
        names: Label names as published, in order.

    Returns:
        As for :func:`multimedeval_labels_head`.

    Example:
        >>> [multimedeval_labels_v0_1_0(reply, ["Edema", "Mass"]).values for reply in ("(Mass)", "A mass.")]
        [(0, 1), (0, 0)]
    """
    return _close(reply, names, clean_v0_1_0)
