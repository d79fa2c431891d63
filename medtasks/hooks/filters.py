"""Harness filters that say which rule reads the replies.

A filter sees one rank's replies without their documents, and scoring is not told which filter it follows. So a filter
here only attaches the name of its rule; :mod:`medtasks.hooks.reading` applies the rule where the document is at hand.
Use them by dotted name: the harness does not look up registered filters for YAML.
"""

from collections.abc import Sequence
from typing import Any

from lmms_eval.api.filter import Filter

from medtasks.errors import unknown_name
from medtasks.extract.registry import Kind, extractor_of, extractors
from medtasks.hooks.labelling import tagged_replies
from medtasks.hooks.loglikelihood import parse_loglikelihood
from medtasks.hooks.reading import written_options


class ReadWith(Filter):  # type: ignore[misc]
    """Attach the name of a rule to every reply, and the form in which the rule compares it with the options.

    The result is JSON text and not an object, because the harness strips white space from generated replies. It also
    cuts ``<think>`` blocks out of what it gets, so the JSON holds no ``<``; a rule sees the reply as the model gave it.

    Args:
        rule: Name of a rule that reads text; None where a judge alone reads it.
        option: How one option is written for the rule, see :func:`medtasks.hooks.reading.written_options`; None: its
            bare text.
        fenced: Have a judge get the reply between marks, see :mod:`medtasks.judges.fence`.
    """

    def __init__(self, rule: str | None = None, option: str | None = None, *, fenced: bool = False) -> None:
        if rule is not None and rule in extractors(Kind.LIKELIHOODS):
            raise unknown_name("answer rule", rule, extractors())
        self._rule = None if rule is None else extractor_of(rule).name
        self._option, self._fenced = option, fenced
        written_options(option, [""])  # a form with a typing error shall stop the task before any model runs

    def apply(self, resps: Sequence[Sequence[Any]], docs: Any) -> list[str]:
        """Return one tagged reply per sample; of repeated replies the first is read."""
        return tagged_replies([replies[0] for replies in resps], self._rule, self._option, fenced=self._fenced)


class ChooseWith(Filter):  # type: ignore[misc]
    """Repair log-likelihoods that the harness turned into text, and attach the name of a likelihood rule."""

    def __init__(self, rule: str) -> None:
        self._rule = extractor_of(rule, Kind.LIKELIHOODS).name

    def apply(self, resps: Sequence[Sequence[Any]], docs: Any) -> list[dict[str, Any]]:
        """Return rule, loss and greedy flag per option."""
        parsed = [parse_loglikelihood(replies[0]) for replies in resps]
        return [{"rule": self._rule, "loss": loss, "is_greedy": greedy} for loss, greedy in parsed]
