"""Harness filters that say which rule reads the replies, and let a labeler read all of them at once.

A labeler such as CheXbert is many times slower on single texts, and is loaded for every call. The harness's filters are
the place: they see all replies of their rank, after the evaluated model is gone and before anything is scored, so that
scores and samples hold what was read, on every rank. Use them by dotted name: the harness does not look up registered
filters for YAML.
"""

from collections.abc import Sequence
from typing import Any

from lmms_eval.api.filter import Filter

from medtasks.errors import unknown_name
from medtasks.extract.extractor_registry import AnswerKind, extractor_of, extractors
from medtasks.extract.labels.labeler import label_replies
from medtasks.families.family import Row, needs_labeler
from medtasks.families.templates import written_options
from medtasks.runs.reply_envelope import enveloped, opened, parse_loglikelihood


class ReadWith(Filter):  # type: ignore[misc]  # the harness is untyped
    """Attach the name of a rule to every reply, and the form in which the rule compares it with the options.

    The arguments are those of :class:`~medtasks.families.family.Row`.
    """

    def __init__(
        self, rule: str | None = None, option: str | None = None, *, fenced: bool = False, reasoned: bool = False
    ) -> None:
        of_replies = [name for name, one in extractors().items() if one.kind is not AnswerKind.LIKELIHOODS]
        if rule is not None and rule not in of_replies:
            raise unknown_name("answer rule", rule, of_replies, "medtasks parse --help")
        self._row = Row(rule, option, fenced, reasoned)
        written_options(option, [""])  # a form with a typing error shall stop the task before any model runs

    def apply(self, resps: Sequence[Sequence[Any]], docs: Any) -> list[str]:
        """Return one reply per sample in its envelope; of repeated replies the first is read."""
        first = [replies[0] for replies in resps]
        if not needs_labeler(self._row):
            return [enveloped(reply, self._row) for reply in first]
        labels = label_replies([opened(reply)[0].text for reply in first])
        return [enveloped(reply, self._row, labels=found) for reply, found in zip(first, labels, strict=True)]


class ChooseWith(Filter):  # type: ignore[misc]  # the harness is untyped
    """Repair log-likelihoods that the harness turned into text, and attach the name of a likelihood rule."""

    def __init__(self, rule: str) -> None:
        self._rule = extractor_of(rule, AnswerKind.LIKELIHOODS).name

    def apply(self, resps: Sequence[Sequence[Any]], docs: Any) -> list[dict[str, Any]]:
        """Return rule, loss and greedy flag per option."""
        parsed = [parse_loglikelihood(replies[0]) for replies in resps]
        return [{"rule": self._rule, "loss": loss, "is_greedy": greedy} for loss, greedy in parsed]
