"""What all open tasks of MedHEval record of a reply, and the rates that say how much of it can be used."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from medtasks.data.samples import Sample
from medtasks.errors import warn_once
from medtasks.extract.answer import Answer, Reason
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.saved_replies import save_reply, score_command
from medtasks.hooks.metric_list import JUDGED_SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import rule_name, untagged
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import PrivateText
from medtasks.judges.client import Judge
from medtasks.judges.fence import addresses_judge
from medtasks.judges.medheval_prompts import JudgePrompt
from medtasks.metrics.report_scores import mean
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]

_DEFAULT = "medheval_open_strict"  # for a user's YAML that names no rule


@dataclass(frozen=True)
class SavedReply:
    """A reply on disk, and what scoring needs of it.

    Attributes:
        doc: Its document.
        rule: Name of the rule that read it, as records have it.
        read: The reply as each kind of metric takes it.
        fenced: Whether a judge gets it between marks.
        saved: Its file, see :func:`medtasks.harness.saved_replies.save_reply`.
    """

    doc: Mapping[str, Any]
    rule: str
    read: Answer
    fenced: bool
    saved: str | None

    def judged(self, judge: Judge | None, prompts: Sequence[JudgePrompt], verdicts: Mapping[str, Any]) -> Record:
        """Return the record of what was judged, by whom and how; it holds no text.

        Args:
            judge: Who was asked, if anybody.
            prompts: What it was told.
            verdicts: What it said, by field of the record; None where there is no verdict.
        """
        asked = bool(self.read.facts["judged"])
        failed = asked and None in verdicts.values()
        return {
            **self._identity(),
            **verdicts,
            "asked": asked,  # there is nothing to ask about an empty reply
            "judge_failed": failed,
            "judge": None if judge is None else f"{judge.settings.model}, temperature {judge.settings.temperature:g}",
            "judge_prompts": [prompt.label for prompt in prompts],
            "possible_injection": addresses_judge(self.read.facts["judged"]),
            "reason": str(Reason.JUDGE_FAILED if failed else self.read.reason),
            "rule": self.rule,
        }

    def beside(self, key: str, reply: str) -> Record:
        """Return the record of two texts that are compared once all replies are there.

        Args:
            key: The published answer or report.
            reply: One of the texts of ``read``.
        """
        texts = {"reference": PrivateText(key), "reply": PrivateText(reply)}
        return {**self._identity(), **texts, "reason": str(self.read.reason), "saved": self.saved}

    def _identity(self) -> Record:
        return {"sample": self.doc.get("doc_id"), "unit": unit_of(self.doc)}


def saved_reply(doc: Mapping[str, Any], results: Sequence[Any]) -> SavedReply:
    """Put one reply on disk before anything is computed from it.

    Args:
        doc: A document of one of the open tasks.
        results: One reply.
    """
    reply = untagged(results[0])
    rule = reply.rule or _DEFAULT
    read = extractor_of(rule, Kind.FREE_TEXT).extract(reply.reply, Sample(doc))
    return SavedReply(doc, rule_name(rule, reply), read, reply.fenced, save_reply(doc, results[0]))


def how_to_repeat(files: Iterable[str | None]) -> str:
    """Return the sentence, if any, that says how a metric that failed is computed later.

    Args:
        files: ``saved`` of the records; all None where the replies come from a file, which the user knows.
    """
    known = {file for file in files if file}
    return f" {score_command(known)}" if known else ""


def names_of(metrics: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names in a metric list."""
    return tuple(metric["metric"] for metric in metrics)


def with_verdict(items: Sequence[Record], verdict: str) -> list[Record]:
    """Return the records that hold a verdict.

    Replies about which nobody is asked, such as empty ones, have theirs without a judge. They must not stand for all
    replies when the judge read none of the others: then there is no verdict at all.

    Args:
        items: Records of :meth:`SavedReply.judged`.
        verdict: Name of the field that is None where there is no verdict.
    """
    asked = [item for item in items if item["asked"]]
    if asked and all(item[verdict] is None for item in asked):
        return []
    return [item for item in items if item[verdict] is not None]


def _invalid(item: Record) -> float:
    return float(item["reason"] not in (Reason.OK, Reason.JUDGE_FAILED))


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that say nothing: empty, or cut off while reasoning."""
    return mean([_invalid(item) for item in items])


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by patient or image."""
    return clustered_standard_error([_invalid(item) for item in items], [item["unit"] for item in items])


def _judge_failed(item: Record) -> float:
    return float(item["judge_failed"])


def judge_failed_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that lack a verdict of a judge; the metric that needs it leaves them out."""
    failed = sum(bool(item["judge_failed"]) for item in items)
    if 0 < failed < len(items):
        warn_once(f"The judge failed for {failed} of {len(items)} replies; the metrics that need it omit them.")
    return mean([_judge_failed(item) for item in items])


def judge_failed_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the share of replies without verdict, clustered by patient or image."""
    return clustered_standard_error([_judge_failed(item) for item in items], [item["unit"] for item in items])


RATES = [
    metric_entry(judge_failed_rate, higher_is_better=False),
    metric_entry(judge_failed_rate_stderr, higher_is_better=False),
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    *JUDGED_SAMPLE_COUNTS,
]
