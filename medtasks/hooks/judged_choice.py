"""GMAI-MMBench with its toolkit's judge: what no rule reads from a reply, a judge matches to the options.

A reply that the judge calls none of the options is wrong. A judge that fails says nothing about the model: such replies
are left out of all metrics but ``judge_failed_rate``. Where it failed for every reply it was asked about, there is no
score at all, since the replies that a rule can read would stand for all.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.own_datasets import access_of
from medtasks.errors import warn_once
from medtasks.extract.answer import Reason
from medtasks.hooks import grouped_choice, multimedeval_prompts
from medtasks.hooks.grouped_choice import Record, level_of
from medtasks.hooks.metric_list import JUDGED_SAMPLE_COUNTS, is_unjudged, judged, metric_entry, over
from medtasks.hooks.reading import rule_name, untagged
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.judges.client import Judge, judge_for
from medtasks.judges.fence import addresses_judge
from medtasks.judges.gmai import match_reply
from medtasks.stats.standard_error import clustered_standard_error

_DEFAULT = "vlmevalkit_2024_06"  # for a user's YAML that names no rule
Settings = Mapping[str, Any]


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None) -> str:
    """Return the prompt of a simple model, see :func:`medtasks.hooks.multimedeval_prompts.prompt`.

    Raises:
        JudgeNotConfigured: No judge is set up. The harness asks for a first prompt before it runs the model, so nothing
            is computed in vain.
        JudgeRefused: The judge may not see this dataset.
        MedTasksError: The template cannot be filled in.
    """
    _judge(doc)
    return multimedeval_prompts.prompt(doc, lmms_eval_specific_kwargs)


def messages(
    doc: Mapping[str, Any], lmms_eval_specific_kwargs: Settings | None = None
) -> list[multimedeval_prompts.Message]:
    """Return the conversation of a chat model.

    Raises:
        JudgeNotConfigured: See :func:`prompt`.
        JudgeRefused: See :func:`prompt`.
        MedTasksError: The template cannot be filled in, or an image is broken.
    """
    _judge(doc)
    return multimedeval_prompts.messages(doc, lmms_eval_specific_kwargs)


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read one reply by rule, and let the judge match it where the rule finds nothing.

    Args:
        doc: A document of the family ``GROUPED_CHOICE`` with a key (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        The same record for every metric and standard error. Without a verdict it has no ``value``: the reply is neither
        right nor wrong.

    Raises:
        JudgeNotConfigured: No judge is set up.
        JudgeRefused: The judge may not see this dataset.
        UnknownName: The filter names a rule that takes no judge.
    """
    read = untagged(results[0])
    rule, judge = read.rule or _DEFAULT, _judge(doc)
    matched = match_reply(judge, rule, doc["question"], doc["options"], read.reply, fenced=read.fenced)
    failed = matched.answer.reason is Reason.JUDGE_FAILED
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "level": level_of(doc.get("granularity")),
        "key": doc["answer"],
        **({} if failed else {"value": matched.answer.value}),
        "reason": str(matched.answer.reason),
        "asked": matched.asked,
        "judge": f"{judge.settings.model}, temperature {judge.settings.temperature:g}",
        "possible_injection": addresses_judge(read.reply),
        "rule": rule_name(rule, read),
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def judge_asked_rate(items: Sequence[Record]) -> float:
    """Return the share of replies in which the rule found nothing, so that the judge was needed."""
    return _share(_asked(items))


def judge_asked_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the share of replies for the judge, clustered by case."""
    return clustered_standard_error(_asked(items), [item["unit"] for item in items])


def judge_failed_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that lack the judge's verdict; the other metrics leave them out."""
    failed = _failed(items)
    if any(failed):
        warn_once(
            f"The judge failed for {sum(failed):.0f} of {len(items)} replies; accuracies leave them out and are too "
            f"high if they would be wrong. The replies can be judged later with 'medtasks score'."
        )
    return _share(failed)


def judge_failed_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the share of replies without verdict, clustered by case."""
    return clustered_standard_error(_failed(items), [item["unit"] for item in items])


def _judge(doc: Mapping[str, Any]) -> Judge:
    return judge_for(str(doc["dataset"]), str(access_of(str(doc["dataset"]))))


def _asked(items: Sequence[Record]) -> list[float]:
    return [float(item["asked"]) for item in items]


def _failed(items: Sequence[Record]) -> list[float]:
    return [float(is_unjudged(item)) for item in items]


def _share(flags: Sequence[float]) -> float:
    return math.fsum(flags) / len(flags) if flags else math.nan


METRIC_LIST = [
    *(
        metric_entry(over(judged, entry["aggregation"]), higher_is_better=entry["higher_is_better"])
        for entry in grouped_choice.SCORES
    ),
    metric_entry(judge_asked_rate, higher_is_better=False),
    metric_entry(judge_asked_rate_stderr, higher_is_better=False),
    metric_entry(judge_failed_rate, higher_is_better=False),
    metric_entry(judge_failed_rate_stderr, higher_is_better=False),
    *JUDGED_SAMPLE_COUNTS,
]
