"""People's labels of judged replies: a sheet of sampled replies, and a check of the judge by the filled-in labels.

A sheet is a CSV file with a line per drawn reply and an empty column ``right`` to fill in. As many replies of each
verdict are drawn, so that mistakes of both kinds show; ``weight`` is the number of replies that a line represents. The
verdict itself is not in the sheet, as it would sway people.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from medtasks.data.samples import DRAWN, Document, Documents, Sample
from medtasks.data.table_files import read_table
from medtasks.errors import RepliesError, SourceError, unknown_name
from medtasks.families.counts import was_asked
from medtasks.families.family import Asks, Replies, Reply
from medtasks.metrics.metric import AnyMetric, Metric
from medtasks.net.journal import digest_of
from medtasks.scores.error_classes import image_names, write_replies
from medtasks.scores.run_values import ScoresById, Values, run_values
from medtasks.stats.judged_share import JudgedShare, judged_share
from medtasks.tasks.documents import private_datasets
from medtasks.tasks.task_file import TaskFile

_LABELS = {"yes": 1.0, "no": 0.0, "1": 1.0, "0": 0.0, "true": 1.0, "false": 0.0, "": math.nan}


@dataclass(frozen=True)
class Label:
    """One line of a sheet."""

    right: float  # 1 or 0; NaN where it is not filled in
    weight: float  # replies that it represents
    digest: str  # of the reply


@dataclass(frozen=True)
class CheckedScore:
    """A score from a judge's verdicts, next to its correction by people's labels."""

    metric: str
    judged: float
    judge: JudgedShare  # ``corrected`` is the metric, corrected
    # Cluster and corrected value by document id, whose mean that is; empty where it is not defined.
    values: Values = field(repr=False)


@dataclass(frozen=True)
class _Verdicts:
    """A judge's verdicts on the replies of one row, of which one metric is the share."""

    metric: str
    inverted: bool  # whether that is the share of wrong replies
    right: Values  # cluster and verdict by document id
    # Ids of replies that the judge read; of others a rule gives the verdict
    asked: frozenset[str]


def write_sheet(
    path: Path,
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    size: int,
    rule: str | None,
) -> tuple[int, int]:
    """Write a sheet of judged replies.

    Args:
        path: New file.
        task: Task that the replies answer.
        documents: All its documents.
        replies: Replies by document id.
        size: Largest number of replies in the sheet.
        rule: Row of the task's results whose verdicts are used, such as ``robust``; None for its first.

    Returns:
        Numbers of drawn replies that the judge called right and wrong.

    Raises:
        RepliesError: No judge says right or wrong of single replies to the task, or the file exists.
        UnknownName: No such row has verdicts.
        MedTasksError: The file cannot be written, or it would show text of credentialed data.
    """
    if path.exists():
        raise RepliesError(f"{path} exists, and may hold labels; name another file with --out")
    by_rule = _verdicts(task, documents, replies)
    if rule is not None and rule not in by_rule:
        raise unknown_name("rule", rule, by_rule)
    numbers, weights = _draw_replies(by_rule[rule or next(iter(by_rule))], size)
    by_id = {document["doc_id"]: document for document in documents}
    rows = []
    for doc_id, weight in weights.items():
        rows.append(_sheet_row(task, by_id[doc_id], replies[doc_id], weight))
    titles = (
        "doc_id",
        "question",
        "options",
        "target",
        "reply",
        "images",
        "right",
        "note",
        "weight",
        "digest",
    )
    write_replies(
        path, private_datasets(task, documents), "a sheet of judged replies", titles, rows
    )
    return numbers


def _sheet_row(
    task: TaskFile, document: Document, reply: Reply, weight: float
) -> tuple[Any, ...]:
    """Return a line of a sheet, in which a person has to fill in whether the reply is right, and may add a note.

    Args:
        task: Task of the reply.
        document: Its question.
        reply: The reply.
        weight: Number of replies that it represents.
    """
    return (
        document["doc_id"],
        document.get("question"),
        " | ".join(document.get("options") or ()),
        task.family.target_text(Sample(document)),
        reply.text or "",
        " | ".join(image_names(document)),
        "",
        "",
        repr(weight),
        _digest(reply),
    )


def _draw_replies(verdicts: _Verdicts, size: int) -> tuple[tuple[int, int], dict[str, float]]:
    """Draw about as many replies of each verdict.

    Returns:
        Numbers of drawn replies that are right and wrong, and the weight of each by document id, in random order.
    """
    right = [doc_id for doc_id in sorted(verdicts.asked) if verdicts.right[doc_id][1]]
    wrong = sorted(verdicts.asked.difference(right))
    number = min(len(right), max((size + 1) // 2, size - len(wrong)))
    numbers = (number, min(len(wrong), size - number))
    chance = random.Random(20261123)  # the same replies give the same sheet
    weights = {}
    for members, drawn in zip((right, wrong), numbers, strict=True):
        for doc_id in chance.sample(members, drawn):
            weights[doc_id] = len(members) / drawn
    ids = chance.sample(sorted(weights), len(weights))
    return numbers, {doc_id: weights[doc_id] for doc_id in ids}


def _digest(reply: Reply) -> str:
    """Return the digest by which a sheet's line is matched to a reply."""
    return digest_of(reply.text or "")[:16]


def read_labels(path: Path) -> dict[str, Label]:
    """Return the lines of a filled-in sheet by document id, as any spreadsheet program saves it.

    Raises:
        RepliesError: The file cannot be read or is no such sheet, or an answer that is filled in is neither yes nor no.
    """
    labels = {}
    try:
        for row in read_table(path).rows:
            if lost := {"doc_id", "right", "weight", "digest"} - row.values.keys():
                raise RepliesError(
                    f"{path} lacks the columns {', '.join(sorted(lost))} of 'medtasks judge sample'"
                )
            answer = (row.values["right"] or "").strip().casefold()
            if answer not in _LABELS:
                raise RepliesError(
                    f"{row.place}: '{answer}' under 'right' is neither yes nor no"
                )
            weight = float(row.values["weight"].replace(",", "."))
            doc_id = row.values["doc_id"].removeprefix("'")
            labels[doc_id] = Label(_LABELS[answer], weight, row.values["digest"])
    except (SourceError, ValueError, AttributeError) as error:
        raise RepliesError(f"cannot read labels from {path}: {error}") from error
    return labels


def checked_scores(
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    labels: Mapping[str, Label],
) -> dict[str, CheckedScore]:
    """Return each row's score from a judge's verdicts, with its correction by people's labels.

    Args:
        task: Task that the replies answer.
        documents: All its documents.
        replies: Replies of one run by document id.
        labels: Lines of a sheet by document id. Those of other replies are left out.

    Raises:
        RepliesError: No reply has a label, or the samples were drawn from a larger set.
    """
    if any(document.get(DRAWN) for document in documents):
        raise RepliesError(
            f"labels do not correct estimates from drawn questions such as those of '{task.name}'; leave them out"
        )
    labelled = {}
    for doc_id, label in labels.items():
        if doc_id in replies and _digest(replies[doc_id]) == label.digest:
            labelled[doc_id] = label
    if all(math.isnan(label.right) for label in labelled.values()):
        raise RepliesError(
            f"no reply of this run has a label; {len(labelled)} of {len(labels)} lines are of its replies"
        )
    by_row = _verdicts(task, documents, replies)
    return {row: _checked_score(verdicts, labelled) for row, verdicts in by_row.items()}


def _checked_score(verdicts: _Verdicts, labels: Mapping[str, Label]) -> CheckedScore:
    """Return one row's score, corrected by labels of some of its replies."""
    clusters, verdict_values = zip(*verdicts.right.values(), strict=True)
    row_labels = [labels.get(doc_id, Label(math.nan, 1.0, "")) for doc_id in verdicts.right]
    was_judged = [doc_id in verdicts.asked for doc_id in verdicts.right]
    right, weights = zip(*[(label.right, label.weight) for label in row_labels], strict=True)
    judge = judged_share(verdict_values, right, weights, was_judged, clusters)
    judged = math.fsum(verdict_values) / len(verdict_values)
    corrected = list(judge.replies)
    judge = replace(judge, replies=())
    if verdicts.inverted:
        judged = 1 - judged
        corrected = [1 - value for value in corrected]
        share = judge.corrected
        wrong = replace(share, value=1 - share.value, low=1 - share.high, high=1 - share.low)
        judge = replace(judge, corrected=wrong)
    values = dict(zip(verdicts.right, zip(clusters, corrected, strict=False), strict=False))
    return CheckedScore(verdicts.metric, judged, judge, values)


def _verdicts(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, _Verdicts]:
    """Return the verdicts by row, at least one, without rows whose score is not their share.

    Raises:
        RepliesError: There is no other row.
    """
    metrics: list[AnyMetric] = []
    if task.family.asks is not Asks.NOBODY:
        metrics = [
            metric
            for metric in task.metrics
            if isinstance(metric, Metric) and metric.is_compared
        ]
    verdicts: dict[str, _Verdicts] = {}
    computed = run_values(task, documents, replies, metrics)
    for (row, metric), values in computed.values.items():
        if row in verdicts:
            continue
        of_row = _row_verdicts(task, metric, values, computed.scores[row], replies)
        if of_row is not None:
            verdicts[row] = of_row
    if not verdicts:
        raise RepliesError(
            f"no score of '{task.name}' is the share of replies that a judge calls right or wrong"
        )
    return verdicts


def _row_verdicts(
    task: TaskFile,
    metric: str,
    values: Values,
    scores: ScoresById,
    replies: Replies,
) -> _Verdicts | None:
    """Return the verdicts of one row, or None if the metric is the share of neither right nor wrong replies."""
    if not values or not values.keys() <= scores.keys():
        return None
    is_right = []
    right = {}
    for doc_id, (cluster, _) in values.items():
        verdict = task.family.describe(scores[doc_id], replies[doc_id]).right
        is_right.append(verdict)
        right[doc_id] = (cluster, float(bool(verdict)))
    share = [value for _, value in values.values()]
    if is_right not in (share, [1 - value for value in share]):
        return None
    asked = frozenset(doc_id for doc_id in values if was_asked(scores[doc_id]))
    return _Verdicts(metric, is_right != share, right, asked)
