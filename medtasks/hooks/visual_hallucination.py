"""MedHEval's reports: what a judge and a labeler of chest findings say of them, and how close their words come.

``chair_judge_*`` is the paper's CHAIR, from the components that a judge counts; ``chair_label`` the repository's, from
labels (:mod:`medtasks.metrics.chair`). For both lower is better, and a model that says nothing mentions nothing wrong:
read them beside ``mentions_*``. A report without text mentions nothing, without asking. A judge that fails leaves the
report out of its metric, and ``judge_failed_rate`` stands beside it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.hooks import answer_texts, label_hallucination, open_answers
from medtasks.hooks.metric_list import metric_entry
from medtasks.hooks.open_answers import Record, SavedReply, names_of, saved_reply, with_verdict
from medtasks.hooks.optional_judge import scoring_judge
from medtasks.hooks.withheld import withhold_saved
from medtasks.judges.client import Judge
from medtasks.judges.medheval import ASPECTS, judge_components
from medtasks.judges.medheval_prompts import WORDINGS, Wording
from medtasks.metrics.chair import component_ratio, ratios_with_errors

Counts = dict[str, list[int]]


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Have one report judged with the prompt for one model.

    Args:
        doc: A document of the family ``COMPONENT_REPORT`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        A record for every metric and standard error, the same for all that need the same.
    """
    return _judged(doc, results, WORDINGS["single"])


def process_results_eleven(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Have one report judged with the reference's prompt for eleven models; see :func:`process_results`."""
    return _judged(doc, results, WORDINGS["eleven"])


def _judged(doc: Mapping[str, Any], results: Sequence[Any], wording: Wording) -> dict[str, Record]:
    reply = saved_reply(doc, results)
    judge = scoring_judge(doc)
    counts = None if judge is None else _counts(judge, wording, doc, reply)
    records = {
        **dict.fromkeys(_JUDGED, reply.judged(judge, [wording.components], {"components": counts})),
        **dict.fromkeys(label_hallucination.NAMES, reply.beside(doc["report"], reply.read.facts["labelled"])),
        **dict.fromkeys(answer_texts.NAMES, reply.beside(doc["report"], reply.read.facts["compared"])),
    }
    return withhold_saved(doc, results, records)


def _counts(judge: Judge, wording: Wording, doc: Mapping[str, Any], reply: SavedReply) -> Counts | None:
    report = reply.read.facts["judged"]
    if not report:
        return {aspect: [0, 0] for aspect in ASPECTS}
    found = judge_components(judge, wording.components, doc, report, fenced=reply.fenced).value
    return None if found is None else found.counts()


def _entries(aspect: str) -> list[dict[str, Any]]:
    """Return CHAIR of one aspect, its standard error, and the number of mentions behind it."""
    name = f"chair_judge_{aspect}"

    def scores(items: Sequence[Record]) -> dict[str, float]:
        known = with_verdict(items, "components")
        counts = [item["components"][aspect] for item in known]
        return ratios_with_errors(
            counts, [item["unit"] for item in known], lambda cells: {name: component_ratio(cells)}
        )

    def value(items: Sequence[Record]) -> float:
        return scores(items).get(name, float("nan"))

    def error(items: Sequence[Record]) -> float:
        return scores(items).get(f"{name}_stderr", float("nan"))

    def mentions(items: Sequence[Record]) -> int:
        return sum(sum(item["components"][aspect]) for item in with_verdict(items, "components"))

    value.__name__, error.__name__, mentions.__name__ = name, f"{name}_stderr", f"mentions_{aspect}"
    return [
        metric_entry(value, higher_is_better=False),
        metric_entry(error, higher_is_better=False),
        metric_entry(mentions, higher_is_better=True),
    ]


_JUDGE_METRICS = [entry for aspect in ASPECTS for entry in _entries(aspect)]
METRIC_LIST = [
    *_JUDGE_METRICS,
    *label_hallucination.METRIC_LIST,
    *answer_texts.METRIC_LIST,
    *open_answers.RATES,
]
_JUDGED = names_of([*_JUDGE_METRICS, *open_answers.RATES])
