"""Scores of a task under each rule, computed again from the replies or from the scores that a run recorded.

What would load a model, ask a judge or write a file is never computed again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medtasks.audit.report.contents import Group, PairOutcomes, Score
from medtasks.audit.scoring import Documents, Replies, by_group, count_kinds, rows_of, wrong_answers
from medtasks.families.paired_choice import paired_answers
from medtasks.harness.task_file import TaskFile
from medtasks.metrics import metric
from medtasks.metrics.metric import Estimate, Metric, evaluate
from medtasks.metrics.pairs import TOTAL, PairedAnswer, ScoredPair, complete_pairs, count
from medtasks.stats.intervals import interval
from medtasks.stats.score_text import is_share

CATEGORIES = "categories"


@dataclass(frozen=True)
class Computed:
    """Scores of one rule, computed from the replies.

    Attributes:
        rule: Name and version of the rule.
        scores: All metrics, in the task's order.
        samples: What the task's family made of each reply, by document id.
        reasons: How many replies were ok, ambiguous, refused, ...
        groups: Scores by column and group.
        pairs: Outcomes of pairs, for paired questions.
        wrong_kinds: How many wrong answers are of which kind.
    """

    rule: str
    scores: tuple[Score, ...]
    samples: Mapping[str, metric.Score]
    reasons: Mapping[str, int] = field(default_factory=dict)
    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)
    pairs: PairOutcomes | None = None
    wrong_kinds: Mapping[str, int] = field(default_factory=dict)


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies.

    Args:
        task: A task whose scores follow from replies alone.
        documents: Those that have a reply, in order.
        replies: By document id.

    Returns:
        By name of the row.

    Raises:
        RepliesError: The replies do not fit the task.
    """
    found = {}
    for name, (rule, scores) in rows_of(task, documents, replies).items():
        by_id = {str(one["doc_id"]): score for one, score in zip(documents, scores, strict=True)}
        computed = of_scores(task, rule, by_id, documents)
        wrong = [] if task.family.paired else wrong_answers(task, documents, scores, replies)
        found[name] = replace(computed, wrong_kinds=count_kinds(wrong))
    return found


def of_scores(task: TaskFile, rule: str, by_id: Mapping[str, metric.Score], columns: Documents) -> Computed:
    """Return what follows from the scores of samples under one rule.

    Args:
        task: A task whose metrics follow from scores alone.
        rule: Name and version of the rule.
        by_id: What the task's family made of each reply, by document id.
        columns: What groups the scores, in the same order: documents, or scores with the same columns.
    """
    scores = list(by_id.values())
    estimates = evaluate(task.metrics, scores)
    table = tuple(score(one.name, estimates[one.name], higher_is_better=one.higher_is_better) for one in task.metrics)
    found = Computed(rule, table, by_id, reasons_of(scores))
    if not task.family.paired:
        return replace(found, groups=_groups(task, columns, scores))
    answers = paired_answers(task.metrics[0].selection(scores))
    return replace(found, groups={CATEGORIES: _categories(answers)}, pairs=_outcomes(answers))


def reasons_of(scores: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many replies were ok, ambiguous, refused, ..., the most frequent first."""
    return dict(Counter(str(one["reason"]) for one in scores if "reason" in one).most_common())


def score(name: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """Return a metric with its interval.

    Args:
        name: Its name.
        estimate: Its value, which is a count if it is a whole number, its error, and the clusters behind that.
        higher_is_better: Direction.
    """
    share = is_share(name, estimate.value)
    low, high = interval(estimate.value, estimate.error, estimate.clusters, share)
    return Score(name, estimate.value, estimate.error, low, high, share, higher_is_better)


def _groups(task: TaskFile, documents: Documents, scores: Sequence[metric.Score]) -> dict[str, tuple[Group, ...]]:
    """Return accuracy by the columns that the task names."""
    return {
        column: tuple(
            Group(value, one.questions, (score("accuracy", one.accuracy, higher_is_better=True),))
            for value, one in groups.items()
        )
        for column, groups in by_group(task, documents, scores).items()
    }


def _categories(answers: Sequence[PairedAnswer]) -> tuple[Group, ...]:
    """Return scores by medical area; a pair counts once for each of its images there, as in the benchmark."""
    by_category = {name: counts for name, counts in count(answers).items() if name != TOTAL}
    pairs = complete_pairs(answers)
    ordered = sorted(by_category, key=lambda name: (-by_category[name].images, name))
    return tuple(_category(name, by_category[name].images, answers, pairs) for name in ordered)


def _category(name: str, images: int, answers: Sequence[PairedAnswer], pairs: Sequence[ScoredPair]) -> Group:
    here = [one for one in answers if name in one.categories]
    both = [pair for pair in pairs for one in (pair.first, pair.second) if name in one.categories]
    solved: Metric[ScoredPair] = Metric(
        "set_accuracy",
        of=lambda pair: float(pair.solved),
        units=lambda _: both,
        clusters=(lambda pair: pair.first.pair_id,),
    )
    right: Metric[PairedAnswer] = Metric(
        "individual_accuracy",
        of=lambda answer: float(answer.correct),
        units=lambda _: here,
        clusters=(lambda answer: answer.pair_id, lambda answer: answer.image_id),
    )
    return Group(
        name, images, tuple(score(one.name, one.estimate(()), higher_is_better=True) for one in (solved, right))
    )


def _outcomes(answers: Sequence[PairedAnswer]) -> PairOutcomes:
    pairs = complete_pairs(answers)
    valid = [pair for pair in pairs if pair.valid and not pair.solved]
    invalid = Counter((pair.first.value is None) + (pair.second.value is None) for pair in pairs)
    same = Counter(str(pair.first.value) for pair in valid if pair.confused)
    return PairOutcomes(
        both_right=sum(pair.solved for pair in pairs),
        swapped=sum((one.first.value, one.second.value) == (one.second.target, one.first.target) for one in valid),
        same=dict(sorted(same.items())),
        one_invalid=invalid[1],
        both_invalid=invalid[2],
        incomplete=len({one.pair_id for one in answers}) - len(pairs),
    )
