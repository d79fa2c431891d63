"""Scoring of questions that are asked once for each rotation of their options (sanity variant ``_rotated``).

Letters in records are those of the published order, so that records of one question can be compared. Rotations of a
question may be answered on different ranks, so nothing is decided about a question before aggregation.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.errors import warn_once
from medtasks.extract.registry import Kind, extractor_of
from medtasks.harness.variant_documents import published_position
from medtasks.hooks.metric_list import SAMPLE_COUNTS, Aggregation, metric_entry
from medtasks.hooks.reading import read_answer, read_reply
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.metrics.multi_answer import multi_answer_accuracy
from medtasks.metrics.rotations import METRICS, RotatedQuestion, RotatedReply, mean_and_error, rotated_questions

Record = dict[str, Any]

# For a user's YAML that names no rule.
_CHOICE_DEFAULT, _CLASS_DEFAULT, _LISTED_DEFAULT = "robust_choice", "robust_class", "listed_options"


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read which option one reply chose.

    Args:
        doc: A rotated document (:mod:`medtasks.harness.variant_documents`) with one right option.
        results: One reply, or one log-likelihood per option.

    Returns:
        The same record for every metric and standard error.
    """
    of_classes = "label" in doc
    answer, rule = read_answer(doc, results, _CLASS_DEFAULT if of_classes else _CHOICE_DEFAULT)
    shown_key = letter(int(doc["label"])) if of_classes else str(doc["answer"])
    key = _published(doc, [shown_key])[0]
    value = None if answer.value is None else _published(doc, [answer.value])[0]
    return _entries(doc, results, {"key": key, "value": value, "right": float(value == key)}, answer.reason, rule)


def process_listed(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Read which options one reply lists.

    Args:
        doc: A rotated document with several right options, in ``answers``.
        results: One reply.

    Returns:
        The same record for every metric and standard error; the score is the share of listed options that are right.
    """
    rule, reply = read_reply(results[0], _LISTED_DEFAULT)
    answer = extractor_of(rule, Kind.LABELS).extract(reply, Sample(doc))
    listed = _published(doc, [letter(index) for index, one in enumerate(answer.value or ()) if one])
    key = _published(doc, doc["answers"])
    scored = {
        "key": key,
        "value": None if answer.value is None else listed,
        "right": multi_answer_accuracy(set(listed), set(key)),
    }
    return _entries(doc, results, scored, answer.reason, rule)


def incomplete_rotations(items: Sequence[Record]) -> int:
    """Return the number of questions of which not all rotations were asked, or answered."""
    number = sum(not question.complete for question in _questions(items))
    if number:
        warn_once(
            f"{number} questions lack an answer to a rotation of their options (cut by --limit or --offset, or failed) "
            f"and are left out of the worst case and of flips."
        )
    return number


def _published(doc: Mapping[str, Any], letters: Sequence[str]) -> list[str]:
    """Return the letters that options have in the published order."""
    shown = (ord(one) - ord("A") for one in letters)
    options = len(doc["options"])
    return sorted(letter(published_position(place, doc["rotation"], options)) for place in shown)


def _entries(
    doc: Mapping[str, Any], results: Sequence[Any], scored: Mapping[str, Any], reason: object, rule: str
) -> dict[str, Record]:
    entry = {
        "sample": doc["doc_id"],
        "rotation_of": doc["rotation_of"],
        "rotation": doc["rotation"],
        "rotations": len(doc["options"]),
        "unit": unit_of(doc),
        **scored,
        "reason": str(reason),
        "rule": rule,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _questions(items: Sequence[Record]) -> list[RotatedQuestion]:
    return list(_by_content(frozenset(map(_reply, items))))


# The harness asks for each metric on its own, with the same records; a task has up to three filters.
@lru_cache(maxsize=8)
def _by_content(replies: frozenset[RotatedReply]) -> Sequence[RotatedQuestion]:
    return rotated_questions(list(replies))


def _reply(item: Record) -> RotatedReply:
    value = item["value"]
    return RotatedReply(
        question=str(item["rotation_of"]),
        unit=item["unit"],
        rotation=item["rotation"],
        rotations=item["rotations"],
        score=float(item["right"]),
        choice=tuple(value) if isinstance(value, list) else value,
    )


_MEANINGS: Mapping[str, str] = {
    "mean_accuracy": "the mean score over all rotations",
    "published_order": "the mean score in the published order of the options",
    "worst_case": "the mean of each question's lowest score: the share of questions answered rightly in every rotation",
    "flip_rate": "the share of questions whose chosen option changes with the order",
    "invalid_rate": "the share of replies without a valid answer",
}
_HIGHER_IS_BETTER = frozenset({"mean_accuracy", "published_order", "worst_case"})


def _named(metric: str) -> tuple[Aggregation, Aggregation]:
    """Return the aggregations of a metric and of its standard error."""

    def part(place: int) -> Callable[[Sequence[Record]], float]:
        return lambda items: mean_and_error(_questions(items), metric)[place]

    mean, error = part(0), part(1)
    mean.__name__, error.__name__ = metric, f"{metric}_stderr"
    mean.__doc__ = f"Return {_MEANINGS[metric]}."
    error.__doc__ = f"Return the standard error of {_MEANINGS[metric]}, clustered by unit."
    return mean, error


METRIC_LIST = [
    *(
        metric_entry(aggregation, higher_is_better=place == 0 and metric in _HIGHER_IS_BETTER)
        for metric in METRICS
        for place, aggregation in enumerate(_named(metric))
    ),
    metric_entry(incomplete_rotations, higher_is_better=False),
    *SAMPLE_COUNTS,
]
