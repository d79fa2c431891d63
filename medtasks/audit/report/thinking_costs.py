"""What reasoning before the answer costs: replies that never came to one, and accuracy by the replies' length."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from medtasks.audit.comparing import main_metrics
from medtasks.audit.groups import with_interval
from medtasks.audit.report.contents import Gain, LengthBin, Thinking
from medtasks.audit.report.task_reading import TaskReading
from medtasks.data.samples import Sample
from medtasks.errors import MedTasksError
from medtasks.extract.answer import Reason
from medtasks.families.counts import answered, is_failed
from medtasks.metrics.metric import AnyMetric, Metric
from medtasks.metrics.metric import Score as SampleScore
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import mapping_in

TOKENS, WORDS = "tokens", "words"
_TRUNCATED: Metric[SampleScore] = Metric(
    "truncated", False, answered, of=lambda score: float(score["reason"] == Reason.TRUNCATED)
)
_BINS, _LEAST_IN_BIN = 4, 5

Scores = Mapping[str, SampleScore]


def thinking_of(reading: TaskReading, gains: Sequence[Gain]) -> Thinking | None:
    """Return what the replies to a thinking variant tell, under its first row; None without single scores."""
    rule = next(iter(reading.computed), None)
    scores = {} if rule is None else reading.computed[rule].samples
    known = {doc_id: score for doc_id, score in scores.items() if not is_failed(score)}
    if not known:
        return None
    if all(doc_id in reading.samples.tokens for doc_id in known):
        unit, lengths = TOKENS, {doc_id: reading.samples.tokens[doc_id] for doc_id in known}
    else:
        counts = {doc_id: one["reasoning_words"] for doc_id, one in known.items() if "reasoning_words" in one}
        unit, lengths = WORDS, {doc_id: int(count) for doc_id, count in counts.items()}
    ordered = sorted(lengths.values())
    configs = (reading.recorded.config, task_config(reading.task.name))
    limits = (mapping_in(config, "generation_kwargs").get("max_new_tokens") for config in configs)
    given = str(next(filter(None, limits), ""))
    limit = int(given) if given.isdecimal() else None
    counted = unit == TOKENS and limit is not None
    return Thinking(
        base=str(reading.task.base),
        gains=tuple(gains),
        rule=str(rule),
        answered=len(known),
        truncated=with_interval(_TRUNCATED, _TRUNCATED.estimate(list(known.values()))),
        unit=unit,
        mean=statistics.fmean(ordered) if ordered else math.nan,
        median=statistics.median(ordered) if ordered else math.nan,
        most=ordered[-1] if ordered else math.nan,
        limit=limit,
        at_limit=sum(length >= (limit or 0) for length in ordered) if counted else None,
        bins=_bins(reading, known, lengths),
    )


def _bins(reading: TaskReading, known: Scores, lengths: Mapping[str, int]) -> tuple[LengthBin, ...]:
    """Return the score of questions by the length of their replies, in at most four parts of about equal size."""
    metric = _of_samples(reading, known)
    if metric is None or not lengths:
        return ()
    order = sorted(lengths, key=lambda doc_id: (lengths[doc_id], doc_id))
    parts = max(1, min(_BINS, len(order) // _LEAST_IN_BIN))
    edges = sorted({lengths[order[len(order) * part // parts]] for part in range(1, parts)})
    found: dict[int, list[str]] = {}
    for doc_id in order:  # equal lengths are never divided
        found.setdefault(sum(lengths[doc_id] >= edge for edge in edges), []).append(doc_id)
    return tuple(
        LengthBin(
            lengths[members[0]],
            lengths[members[-1]],
            len(members),
            with_interval(metric, metric.estimate([known[one] for one in members])),
        )
        for _, members in sorted(found.items())
    )


def _of_samples(reading: TaskReading, known: Scores) -> AnyMetric | None:
    """Return the first main metric that has a value for single samples, which that of pairs has not."""
    scores: list[Any] = list(known.values())
    by_id = {str(document["doc_id"]): document for document in reading.documents}
    clusters = [(doc_id, Sample(by_id[doc_id]).cluster_id) for doc_id in known]
    try:
        metrics = main_metrics(reading.task)
    except MedTasksError:
        return None
    for metric in metrics:
        values = reading.task.family.sample_values(metric, scores, clusters)
        if values and values.keys() <= known.keys():
            return metric
    return None
