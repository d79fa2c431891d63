"""Scores of a task under each rule, computed again from the replies or from the scores that a run recorded.

What would load a model, ask a judge or write a file is never computed again. Replies that do not fit their task raise
RepliesError.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    """Scores of one rule, computed from the replies."""

    rule: str  # name and version
    samples: Mapping[str, metric.Score]  # what the task's family made of each reply, by document id
    scores: tuple[Score, ...] = ()  # all metrics, in the task's order
    groups: Mapping[str, tuple[Group, ...]] = field(default_factory=dict)  # scores by column and group
    pairs: PairOutcomes | None = None  # outcomes of pairs, for paired questions
    wrong_kinds: Mapping[str, int] = field(default_factory=dict)  # how many wrong answers are of which kind

    @property
    def reasons(self) -> dict[str, int]:
        """How many replies were ok, ambiguous, refused, ..., the most frequent first."""
        return dict(Counter(str(one["reason"]) for one in self.samples.values() if "reason" in one).most_common())


def compute(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to a task whose scores follow from replies alone, by name of the row."""
    computed = {}
    for name, (rule, by_id) in scores_by_id(task, documents, replies).items():
        wrong = wrong_answers(task, documents, list(by_id.values()), replies)
        computed[name] = replace(of_scores(task, rule, by_id, documents), wrong_kinds=count_kinds(wrong))
    return computed


def scores_by_id(
    task: TaskFile, documents: Documents, replies: Replies
) -> dict[str, tuple[str, dict[str, metric.Score]]]:
    """Return name and version of the rule, and scores by id, by name of the row; all documents have a reply."""
    ids = [str(document["doc_id"]) for document in documents]
    rows = rows_of(task, documents, replies)
    return {name: (rule, dict(zip(ids, scores, strict=True))) for name, (rule, scores) in rows.items()}


def of_scores(task: TaskFile, rule: str, by_id: Mapping[str, metric.Score], columns: Documents) -> Computed:
    """Return what follows from the scores of samples, by document id, of a task whose metrics follow from them alone.

    ``columns`` group the scores and are in the same order: documents, or scores with the same columns.
    """
    scores = list(by_id.values())
    estimates = evaluate(task.metrics, scores)
    table = tuple(score(one.name, estimates[one.name], higher_is_better=one.higher_is_better) for one in task.metrics)
    computed = Computed(rule, by_id, table)
    if not task.family.paired:
        groups = {
            column: tuple(
                Group(value, one.questions, (score("accuracy", one.accuracy, higher_is_better=True),))
                for value, one in by_value.items()
            )
            for column, by_value in by_group(task, columns, scores).items()
        }
        return replace(computed, groups=groups)
    answers = paired_answers(task.metrics[0].selection(scores))
    return replace(computed, groups={CATEGORIES: _categories(answers)}, pairs=_outcomes(answers))


def score(name: str, estimate: Estimate, *, higher_is_better: bool) -> Score:
    """Return a metric with its interval; a value that is a whole number is a count."""
    share = is_share(name, estimate.value)
    low, high = interval(estimate.value, estimate.error, estimate.clusters, share)
    return Score(name, estimate.value, estimate.error, low, high, share, higher_is_better)


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
