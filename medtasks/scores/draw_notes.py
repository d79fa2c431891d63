"""Sentences on scores of a dataset that was drawn at random from a benchmark: what they estimate, what is assumed.

Scores and reports call this, so that no number of a draw is shown without them.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from medtasks.data.dataset_manifest import Draw
from medtasks.data.samples import DRAWN, Documents
from medtasks.families.family import compares_texts
from medtasks.metrics.metric import AnyMetric, Metric

Provenance = Mapping[str, Any]
"""Facts about data, such as ``fingerprint``, ``complete``, ``sample`` and ``draw``."""
UNWEIGHTED_TABLES = "numbers by class or category, calibration"


def draw_notes(
    data: Provenance,
    documents: Documents,
    replied: Container[str],
    unweighted: Sequence[str],
) -> list[str]:
    """Describe the scores of drawn data, with one more sentence each for missing replies and unweighted numbers.

    Args:
        data: Provenance of the data; none of a whole dataset has a draw.
        documents: All documents of the drawn dataset.
        replied: Ids of those with a reply that did not fail.
        unweighted: Names of numbers that are no means.
    """
    if not data.get("draw"):
        return []
    draw = Draw.model_validate(data["draw"])
    existing = sum(stratum.existing_rows for stratum in draw.strata)
    drawn = sum(stratum.rows for stratum in draw.strata)
    by = f", by {draw.by}" if draw.by else ""
    notes = [
        f"Estimate of all {existing:,} questions from {drawn:,} drawn ones (seed {draw.seed}{by}): weighted, interval "
        "for the full benchmark; assumes only that the draw was random."
    ]
    missing = sum(document["doc_id"] not in replied for document in documents)
    if missing:
        note = (
            f"{missing:,} drawn questions have no reply: the others of their stratum stand for them, which assumes "
            "that replies are missing at random"
        )
        with_reply = {doc[DRAWN]["stratum"] for doc in documents if doc["doc_id"] in replied}
        empty = len(draw.strata) - len(with_reply)
        if empty:
            note += f"; {empty} of {len(draw.strata)} strata have none and are in no score"
        notes.append(f"{note}.")
    elif drawn == existing:
        notes = [
            f"All {existing:,} questions of the benchmark were drawn and answered: the interval has no width, and says "
            "nothing about other questions."
        ]
    if unweighted:
        notes.append(f"Of the drawn questions alone, unweighted: {', '.join(unweighted)}.")
    return notes


def metrics_without_mean(metrics: Iterable[AnyMetric]) -> list[str]:
    """Return the names of the metrics that are no means over samples, but for counts."""
    names = []
    for metric in metrics:
        is_mean = isinstance(metric, Metric) or compares_texts(metric)
        if metric.has_error and not is_mean:
            names.append(metric.name)
    return names
