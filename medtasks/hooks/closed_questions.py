"""Scoring of MedHEval's closed questions: yes/no and options mixed, errors clustered by patient or image.

Beside the model's scores stand those of three blind models under the same rule and on the same questions: one that
always says "Yes", one that always says "No", and the expected score of one that names an option at random.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from medtasks.data.samples import Sample, letter
from medtasks.extract.answer import Answer
from medtasks.extract.medheval_reference import BINARY, YES
from medtasks.extract.medheval_strict import judged
from medtasks.extract.registry import Kind, extractor_of
from medtasks.hooks.metric_list import SAMPLE_COUNTS, metric_entry
from medtasks.hooks.reading import read_answer, read_reply
from medtasks.hooks.units import unit_of
from medtasks.hooks.withheld import withhold
from medtasks.metrics.closed_questions import Counted, ScoredQuestion, accuracy_error
from medtasks.metrics.closed_questions import accuracy as accuracy_of
from medtasks.stats.standard_error import clustered_standard_error

Record = dict[str, Any]

_STRICT = "medheval_strict"  # also for a user's YAML that names no rule, and for likelihoods
_SCORES = ("correct", "always_yes", "always_no", "random_choice")


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Any]:
    """Read one sample's answer.

    Args:
        doc: A document of the family ``CLOSED_QUESTION``.
        results: One reply, or one log-likelihood per option.

    Returns:
        The same record for every metric and standard error.
    """
    sample = Sample(doc)
    if len(results) > 1 or isinstance(results[0], dict):
        answer, name = read_answer(doc, results)
        judge, answer = _STRICT, judged(answer, sample)
    else:
        name, reply = read_reply(results[0], _STRICT)
        judge, answer = name, extractor_of(name, Kind.CLOSED).extract(reply, sample)
    entry = {
        "sample": doc.get("doc_id"),
        "unit": unit_of(doc),
        "source": doc["source"],
        "hallucination": doc["hallucination"],
        "kind": doc["kind"],
        **_judgement(answer),
        **blind_scores(judge, sample),
        "rule": name,
    }
    return withhold(doc, results, {metric["metric"]: entry for metric in METRIC_LIST})


def _judgement(answer: Answer) -> Record:
    return {
        "key": answer.facts["target"],
        "value": answer.value,
        "reason": str(answer.reason),
        "correct": float(answer.facts["correct"]),
        "counted": str(answer.facts["counted"]),
    }


def blind_scores(rule: str, sample: Sample) -> Mapping[str, float]:
    """Return what models without eyes score on one question: always "Yes", always "No", and an option at random.

    The last is the mean over the replies "Yes" and "No", or "A. text" for every option.

    Args:
        rule: Name of the rule that reads them.
        sample: A sample of the family ``CLOSED_QUESTION``.
    """
    looked_at = ("kind", "question", "choices", "answer", "gold")
    return _blind_scores(rule, tuple((name, sample.document[name]) for name in looked_at), sample.options)


@lru_cache(maxsize=16384)
def _blind_scores(rule: str, columns: tuple[tuple[str, Any], ...], options: tuple[str, ...]) -> Mapping[str, float]:
    sample = Sample({**dict(columns), "options": options})
    extract = extractor_of(rule, Kind.CLOSED).extract
    random = ["Yes", "No"]
    if sample.document["kind"] != BINARY:
        random = [f"{letter(index)}. {text}" for index, text in enumerate(options)]
    right = {reply: float(extract(reply, sample).facts["correct"]) for reply in {"Yes", "No", *random}}
    return {
        "always_yes": right["Yes"],
        "always_no": right["No"],
        "random_choice": math.fsum(right[reply] for reply in random) / len(random) if random else 0.0,
    }


def _questions(items: Sequence[Record], hallucination: str | None = None) -> list[ScoredQuestion]:
    return [
        ScoredQuestion(
            sample=str(item["sample"]),
            unit=item["unit"],
            cell=(item["source"], item["hallucination"], item["kind"]),
            counted=Counted(item["counted"]),
            values={name: item[name] for name in _SCORES},
        )
        for item in items
        if hallucination in (None, item["hallucination"])
    ]


def accuracy(items: Sequence[Record]) -> float:
    """Return the share of right answers over all questions; an invalid reply is wrong."""
    return accuracy_of(_questions(items), "correct")


def accuracy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of accuracy, clustered by patient or image."""
    return accuracy_error(_questions(items), "correct")


def acc_anatomy(items: Sequence[Record]) -> float:
    """Return the accuracy over questions on anatomy."""
    return accuracy_of(_questions(items, "anatomy"), "correct")


def acc_anatomy_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the accuracy on anatomy, clustered by patient or image."""
    return accuracy_error(_questions(items, "anatomy"), "correct")


def acc_measurement(items: Sequence[Record]) -> float:
    """Return the accuracy over questions on measurements."""
    return accuracy_of(_questions(items, "measurement"), "correct")


def acc_measurement_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the accuracy on measurements, clustered by patient or image."""
    return accuracy_error(_questions(items, "measurement"), "correct")


def acc_symptom(items: Sequence[Record]) -> float:
    """Return the accuracy over questions on symptoms."""
    return accuracy_of(_questions(items, "symptom"), "correct")


def acc_symptom_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the accuracy on symptoms, clustered by patient or image."""
    return accuracy_error(_questions(items, "symptom"), "correct")


def acc_technique(items: Sequence[Record]) -> float:
    """Return the accuracy over questions on imaging technique."""
    return accuracy_of(_questions(items, "technique"), "correct")


def acc_technique_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the accuracy on technique, clustered by patient or image."""
    return accuracy_error(_questions(items, "technique"), "correct")


def invalid_rate(items: Sequence[Record]) -> float:
    """Return the share of replies without a valid answer, among all questions."""
    return _share(items, lambda item: item["value"] is None)


def invalid_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the invalid rate, clustered by patient or image."""
    return _share_error(items, lambda item: item["value"] is None)


def yes_rate(items: Sequence[Record]) -> float:
    """Return the share of replies that say yes, among all yes/no questions."""
    return _share(_yes_no(items), lambda item: item["value"] == YES)


def yes_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the yes rate, clustered by patient or image."""
    return _share_error(_yes_no(items), lambda item: item["value"] == YES)


def always_yes(items: Sequence[Record]) -> float:
    """Return the accuracy of the constant reply "Yes" on the same questions."""
    return accuracy_of(_questions(items), "always_yes")


def always_no(items: Sequence[Record]) -> float:
    """Return the accuracy of the constant reply "No" on the same questions."""
    return accuracy_of(_questions(items), "always_no")


def random_choice(items: Sequence[Record]) -> float:
    """Return the expected accuracy of naming an option at random on the same questions."""
    return accuracy_of(_questions(items), "random_choice")


def unscored_rate(items: Sequence[Record]) -> float:
    """Return the share of questions without a score of their own, because no single option is known to be right."""
    return _share(items, lambda item: item["counted"] != Counted.SCORED)


def _yes_no(items: Sequence[Record]) -> list[Record]:
    return [item for item in items if item["kind"] == BINARY]


def _share(items: Sequence[Record], holds: Callable[[Record], bool]) -> float:
    return sum(map(holds, items)) / len(items) if items else math.nan


def _share_error(items: Sequence[Record], holds: Callable[[Record], bool]) -> float:
    ordered = sorted(items, key=lambda item: str(item["sample"]))
    return clustered_standard_error([float(holds(item)) for item in ordered], [item["unit"] for item in ordered])


_ACCURACY = [
    metric_entry(accuracy, higher_is_better=True),
    metric_entry(accuracy_stderr, higher_is_better=False),
]
_BY_TYPE = [
    metric_entry(acc_anatomy, higher_is_better=True),
    metric_entry(acc_anatomy_stderr, higher_is_better=False),
    metric_entry(acc_measurement, higher_is_better=True),
    metric_entry(acc_measurement_stderr, higher_is_better=False),
    metric_entry(acc_symptom, higher_is_better=True),
    metric_entry(acc_symptom_stderr, higher_is_better=False),
    metric_entry(acc_technique, higher_is_better=True),
    metric_entry(acc_technique_stderr, higher_is_better=False),
]
_RATES = [
    metric_entry(invalid_rate, higher_is_better=False),
    metric_entry(invalid_rate_stderr, higher_is_better=False),
    metric_entry(yes_rate, higher_is_better=False),
    metric_entry(yes_rate_stderr, higher_is_better=False),
    metric_entry(always_yes, higher_is_better=True),
    metric_entry(always_no, higher_is_better=True),
    metric_entry(random_choice, higher_is_better=True),
    metric_entry(unscored_rate, higher_is_better=False),
    *SAMPLE_COUNTS,
]
METRIC_LIST = [*_ACCURACY, *_BY_TYPE, *_RATES]
YES_NO_METRIC_LIST = [*_ACCURACY, *_RATES]
"""Metrics of sets that have no types of hallucination."""
