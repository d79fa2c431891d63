"""Harness filters that read answers from replies, and let a labeler label all of them at once.

Before scoring of ours, a filter only attaches the extractor to the reply, as scoring needs the whole reply. Before any
other metric or hook it hands on the answer.

A labeler such as CheXbert is much slower on single texts, and is loaded for every call. Filters see all replies of a
rank, after the evaluated model is gone and before scoring, so that scores and samples on every rank hold the labels.
Use them by dotted name: the harness does not look up registered filters for YAML.
"""

from collections.abc import Sequence
from typing import Any

from lmms_eval.api.filter import Filter

from medtasks.data.samples import Documents, Sample
from medtasks.errors import unknown_name
from medtasks.extract.extractor_registry import AnswerKind, extractor_of, extractors
from medtasks.extract.labeler import label_replies
from medtasks.families.family import Rule, letters_of, needs_labeler, without_its_reasoning
from medtasks.families.templates import written_options
from medtasks.runs.reply_envelope import make_envelope, open_envelope, parse_loglikelihood


class ReadWith(Filter):  # type: ignore[misc]  # the harness is untyped
    """Filter that reads every reply by an extractor.

    Its arguments are those of :class:`~medtasks.families.family.Rule`.
    """

    documents: Documents | None = None
    """Documents of the replies, shape (samples,), where metrics or hooks of others take the answers; else None."""

    def __init__(
        self,
        rule: str | None = None,
        option: str | None = None,
        *,
        fenced: bool = False,
        reasoned: bool = False,
    ) -> None:
        names = []
        for name, extractor in extractors().items():
            if extractor.kind is not AnswerKind.LIKELIHOODS:
                names.append(name)
        if rule is not None and rule not in names:
            raise unknown_name("rule", rule, names, "medtasks parse --help")
        self._row = Rule(rule, option, fenced, reasoned)
        written_options(option, [""])  # a malformed form stops the task before any model runs

    def apply(self, resps: Sequence[Sequence[Any]], docs: Any) -> list[str]:
        """Read the replies of a rank.

        Args:
            resps: Replies to each sample. Of repeated ones the first counts.
            docs: Documents of the harness, which are not used.

        Returns:
            One reply per sample in its envelope. With ``documents``, the answer that was read in it, empty without one.
        """
        first = [replies[0] for replies in resps]
        if self.documents is not None:
            return self._answers(first, self.documents)
        if not needs_labeler(self._row):
            return [make_envelope(reply, self._row) for reply in first]
        labels = label_replies([open_envelope(reply)[0].text for reply in first])
        return [
            make_envelope(reply, self._row, labels=of_reply)
            for reply, of_reply in zip(first, labels, strict=True)
        ]

    @property
    def rule(self) -> str:
        """Name of the rule, empty where replies are handed on unread."""
        return self._row.extractor or ""

    def _answers(
        self,
        replies: Sequence[Any],
        documents: Documents,
    ) -> list[str]:
        """Read the answers as texts, such as the letter of an option, empty where a reply has none."""
        texts = [open_envelope(reply)[0] for reply in replies]
        if self._row.reasoned:
            texts = list(map(without_its_reasoning, texts))
        if not self.rule:
            return [reply.text or "" for reply in texts]
        extract = extractor_of(self.rule).extract
        answers = []
        for reply, document in zip(texts, documents, strict=True):
            options = written_options(self._row.option_form, Sample(document).options)
            value = extract(reply.text, Sample(document, options)).value
            if isinstance(value, tuple):
                value = ", ".join(letters_of(value))
            answers.append("" if value is None else str(value))
        return answers


class ChooseWith(Filter):  # type: ignore[misc]  # the harness is untyped
    """Parse log-likelihoods that the harness turned into text, and attach the name of a likelihood rule."""

    def __init__(self, rule: str) -> None:
        self._rule = extractor_of(rule, AnswerKind.LIKELIHOODS).name

    def apply(
        self,
        resps: Sequence[Sequence[Any]],
        docs: Any,
    ) -> list[dict[str, Any]]:
        """Read the likelihoods of a rank.

        Args:
            resps: Replies to each request, of which there is one per option. Of repeated replies the first counts.
            docs: Documents of the harness, which are not used.

        Returns:
            For each request the rule, ``loss`` (mean negative log-likelihood per token, the smallest is the likeliest;
            NaN for a failed sample) and ``is_greedy``.
        """
        parsed = [parse_loglikelihood(replies[0]) for replies in resps]
        return [
            {"rule": self._rule, "loss": loss, "is_greedy": greedy} for loss, greedy in parsed
        ]
