"""Scores of paired questions, by medical area, and what became of the pairs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from medtasks.audit.pair_scoring import METRICS, score_replies
from medtasks.audit.report.contents import Group, PairOutcomes, Score
from medtasks.audit.report.reading.rule_scores import Computed, Documents, Replies, score
from medtasks.data.samples import Sample
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.task_files import TaskFile
from medtasks.hooks import pairs as hook
from medtasks.hooks.metric_list import LABELLED_SAMPLE_COUNTS, SAMPLE_COUNTS, answered, is_unjudged, judged
from medtasks.hooks.reading import cut_record
from medtasks.metrics.pairs import (
    TOTAL,
    Counts,
    PairedAnswer,
    ScoredPair,
    complete_pairs,
    count,
    distinct_answers,
    standard_errors,
)
from medtasks.stats.standard_error import clustered_standard_error, two_way_standard_error

CATEGORIES = "categories"
_HIGHER = {entry["metric"]: entry["higher_is_better"] for entry in hook.METRIC_LIST}


def compute_pairs(task: TaskFile, documents: Documents, replies: Replies) -> dict[str, Computed]:
    """Score replies to paired questions, as ``medtasks score`` does.

    Args:
        task: A paired-choice task that needs no judge.
        documents: Those that have a reply, in order.
        replies: By document id.

    Returns:
        By filter name.

    Raises:
        RepliesError: The replies do not fit the task.
    """
    found = {}
    for name, scored in score_replies(task, documents, replies).items():
        rule = scored.rule.rpartition(" v")[0]
        found[name] = of_records(scored.rule, {one["doc_id"]: _record(one, replies, rule) for one in documents})
    return found


def _record(document: Mapping[str, Any], replies: Replies, rule: str) -> hook.Record:
    reply = replies[document["doc_id"]]
    if reply.losses is not None:
        answer = extractor_of(rule, Kind.LIKELIHOODS).extract(list(reply.losses), Sample(document))
        return hook.record(document, answer, rule)
    entry = hook.record(document, extractor_of(rule, Kind.CHOICE).extract(reply.text, Sample(document)), rule)
    found: hook.Record = cut_record(entry) if reply.cut else entry
    return found


def of_records(rule: str, records: Mapping[str, hook.Record]) -> Computed:
    """Return the scores of what :func:`medtasks.hooks.pairs.process_results` made of replies.

    Args:
        rule: Name and version of the rule.
        records: By document id.
    """
    made = list(records.values())
    answers = distinct_answers(hook.answers(judged(answered(made))))
    pairs = complete_pairs(answers)
    table = count(answers)
    by_category = {name: counts for name, counts in table.items() if name != TOTAL}
    ordered = sorted(by_category, key=lambda name: (-by_category[name].images, name))
    return Computed(
        rule=rule,
        scores=(*_totals(table[TOTAL], answers, pairs), *_sample_counts(made)),
        samples={doc_id: hook.records(record) for doc_id, record in records.items()},
        reasons=dict(Counter(str(record["reason"]) for record in records.values()).most_common()),
        groups={CATEGORIES: tuple(_category(name, by_category[name], answers, pairs) for name in ordered)},
        pairs=_outcomes(pairs, table[TOTAL].incomplete_pairs),
    )


def _totals(counts: Counts, answers: Sequence[PairedAnswer], pairs: Sequence[ScoredPair]) -> tuple[Score, ...]:
    errors = standard_errors(answers)
    asked = len({answer.pair_id for answer in answers})
    units = {"set_accuracy": len(pairs), "confusion": sum(pair.valid for pair in pairs)}
    found = [
        score(name, getattr(counts, name), errors[name], units.get(name, asked), higher_is_better=_HIGHER[name])
        for name in METRICS
    ]
    incomplete = score(
        "incomplete_pairs", counts.incomplete_pairs, float("nan"), None, higher_is_better=_HIGHER["incomplete_pairs"]
    )
    return (*found, incomplete)


def _sample_counts(records: Sequence[hook.Record]) -> Iterator[Score]:
    for one in LABELLED_SAMPLE_COUNTS if any(map(is_unjudged, records)) else SAMPLE_COUNTS:
        value = one["aggregation"](records)
        yield score(one["metric"], value, float("nan"), None, higher_is_better=one["higher_is_better"])


def _category(name: str, counts: Counts, answers: Sequence[PairedAnswer], pairs: Sequence[ScoredPair]) -> Group:
    """Return the scores of one medical area; a pair counts once for each of its images there, as in the benchmark."""
    solved = [
        (float(pair.solved), pair.first.pair_id)
        for pair in pairs
        for answer in (pair.first, pair.second)
        if name in answer.categories
    ]
    here = [one for one in answers if name in one.categories]
    pairs_here = [one.pair_id for one in here]
    by_pair = [pair for _, pair in solved]
    of_set = clustered_standard_error([value for value, _ in solved], by_pair)
    right = [float(one.correct) for one in here]
    of_images = two_way_standard_error(right, pairs_here, [one.image_id for one in here])
    return Group(
        name,
        counts.images,
        (
            score("set_accuracy", counts.set_accuracy, of_set, len(set(by_pair)), higher_is_better=True),
            score(
                "individual_accuracy",
                counts.individual_accuracy,
                of_images,
                len(set(pairs_here)),
                higher_is_better=True,
            ),
        ),
    )


def _outcomes(pairs: Sequence[ScoredPair], incomplete: int) -> PairOutcomes:
    valid = [pair for pair in pairs if pair.valid and not pair.solved]
    invalid = Counter((pair.first.value is None) + (pair.second.value is None) for pair in pairs)
    same = Counter(str(pair.first.value) for pair in valid if pair.confused)
    return PairOutcomes(
        both_right=sum(pair.solved for pair in pairs),
        swapped=sum((one.first.value, one.second.value) == (one.second.key, one.first.key) for one in valid),
        same=dict(sorted(same.items())),
        one_invalid=invalid[1],
        both_invalid=invalid[2],
        incomplete=incomplete,
    )
