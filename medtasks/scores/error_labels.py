"""A human's judgements of wrong answers, read back from an export: the kinds of GMAI-MMBench's case study."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from medtasks.data.table_files import read_table
from medtasks.errors import RepliesError, SourceError
from medtasks.metrics.metric import AnyMetric, Metric, Score, counting
from medtasks.scores.error_classes import HUMAN_COLUMN, AnswerKey, WrongAnswer
from medtasks.scores.score_model import MetricScore
from medtasks.scores.subgroups import with_interval

HUMAN_KINDS = (
    "question misunderstanding",
    "perceptual error",
    "lack of knowledge",
    "irrelevant response",
    "refusal",
)


def read_error_labels(path: Path) -> dict[AnswerKey, str]:
    """Return a human's judgements in an exported table, by document id and digest of the reply.

    Wrong answers without a judgement are left out.

    Raises:
        RepliesError: The file cannot be read or is no such table, it has no judgement, a judgement is none of
            :data:`HUMAN_KINDS`, or two judgements on one reply differ.
    """
    labels: dict[AnswerKey, str] = {}
    try:
        rows = read_table(path).rows
    except SourceError as error:
        raise RepliesError(f"cannot read labels from {path}: {error}") from error
    for row in rows:
        if lost := {"doc_id", "digest", HUMAN_COLUMN} - row.values.keys():
            raise RepliesError(
                f"{path} lacks the columns {', '.join(sorted(lost))} of --export-errors"
            )
        label = " ".join(str(row.values[HUMAN_COLUMN] or "").casefold().split())
        if not label:
            continue
        if label not in HUMAN_KINDS:
            raise RepliesError(
                f"{row.place}: '{label}' under '{HUMAN_COLUMN}' is none of {', '.join(HUMAN_KINDS)}"
            )
        key = (str(row.values["doc_id"]).removeprefix("'"), str(row.values["digest"]))
        if labels.setdefault(key, label) != label:
            raise RepliesError(
                f"{row.place}: '{label}' under '{HUMAN_COLUMN}', and '{labels[key]}' of the same reply"
            )
    if not labels:
        raise RepliesError(
            f"{path} has no judgement under '{HUMAN_COLUMN}'; write one of {', '.join(HUMAN_KINDS)}"
        )
    return labels


def kinds_by_human(
    wrong: Sequence[WrongAnswer], labels: Mapping[AnswerKey, str]
) -> list[MetricScore]:
    """Return the share of each kind among the wrong answers that a human judged, after two counts.

    The counts are those of all wrong answers and of the judged ones. Without any of these, the shares are NaN.
    """
    scores = []
    for answer in wrong:
        kind = labels.get(answer.key)
        if kind is not None:
            scores.append({**answer.score, "kind": kind})
    metrics: list[AnyMetric] = [
        counting("wrong answers", lambda _: len(wrong)),
        counting("judged by a human", len),
    ]
    metrics += [Metric[Any](kind, None, of=partial(_is_of_kind, kind)) for kind in HUMAN_KINDS]
    return [with_interval(metric, metric.estimate(scores)) for metric in metrics]


def _is_of_kind(kind: str, score: Score) -> float:
    """Return 1 if a human judged an answer to be of a kind, else 0."""
    return float(score["kind"] == kind)
