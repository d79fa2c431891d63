"""MediConfusion's free-form mode: the model answers without options, a judge says which option it comes close to."""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.data.catalogue import dataset_info
from medtasks.hooks import pairs
from medtasks.hooks.metric_list import JUDGED_SAMPLE_COUNTS, is_unjudged, judged, metric_entry, over
from medtasks.hooks.pairs import Record, record
from medtasks.hooks.prompts import prompt as choice_prompt
from medtasks.hooks.reading import rule_name, untagged
from medtasks.hooks.withheld import withhold
from medtasks.judges.client import judge_for
from medtasks.judges.fence import addresses_judge
from medtasks.judges.mediconfusion import RULE_NAME, judge_reply


def prompt(doc: Mapping[str, Any], lmms_eval_specific_kwargs: Mapping[str, Any] | None = None) -> str:
    """Fill the model family's template.

    Raises:
        JudgeNotConfigured: No judge is set up. The harness asks for a first prompt before it runs the model, so nothing
            is computed in vain.
        JudgeRefused: The judge may not see this dataset.
    """
    judge_for(doc["dataset"], dataset_info(doc["dataset"]).access)
    return choice_prompt(doc, lmms_eval_specific_kwargs)


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Let the judge read one reply.

    Args:
        doc: A document in the paired-choice schema.
        results: One reply.

    Returns:
        The same record for every metric of the task.
    """
    read = untagged(results[0])
    judge = judge_for(doc["dataset"], dataset_info(doc["dataset"]).access)
    answer = judge_reply(judge, doc["question"], doc["options"], read.reply, fenced=read.fenced)
    entry = {**record(doc, answer, rule_name(RULE_NAME, read)), "possible_injection": addresses_judge(read.reply)}
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def judge_failed_rate(items: Sequence[Record]) -> float:
    """Return the share of replies the judge did not score; they are in no other metric and can be judged again."""
    return sum(map(is_unjudged, items)) / len(items) if items else float("nan")


METRIC_LIST = [
    *(
        metric_entry(over(judged, entry["aggregation"]), higher_is_better=entry["higher_is_better"])
        for entry in pairs.SCORES
    ),
    metric_entry(judge_failed_rate, higher_is_better=False),
    *JUDGED_SAMPLE_COUNTS,
]
