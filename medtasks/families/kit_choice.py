"""MedEvalKit's sets with options (PMC-VQA, OmniMedVQA, MedXpertQA, MMMU, MedFrameQA), also asked by likelihood.

Its rules read almost every reply as some option; ``fallback_rate`` is the share of replies that only similarity, or in
MMMU a draw, made an option. The published code draws in the order of the questions from one seeded generator, so that
the draw for a question depends on the replies to all others: scores hold the number of options to draw from, and
the draws are made once the scores of a run are together, in an order that does not depend on theirs.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import Answer
from medtasks.families.choice import ACCURACY, SingleChoice, is_right
from medtasks.families.constant_replies import Meant, Strategy, each_option, lettered, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered, stop_warning, unstopped
from medtasks.families.family import LIKELIHOOD_EXTRACTOR, Column, Reply, Row
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, Scores, mean

_DRAWS = "draws"  # number of options to draw from; removed by the draw
_NO_OPTIONS = "no_options"
"""Why a question is in no score where options are compared by likelihood."""


def settled(scores: Scores) -> Scores:
    """Return the scores of a run with the draws of MMMU's ``parse_multi_choice_response``, seeded as by MedEvalKit."""

    def position(score: Score) -> list[tuple[bool, int, str]]:  # by subject and number: ``validation_Pharmacy_12``
        parts = re.split(r"(\d+)", str(score["sample"]))
        return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

    waiting = sorted((score for score in scores if _DRAWS in score), key=position)
    if not waiting:
        return scores
    chance = random.Random(42)  # as MedEvalKit sets it before each dataset
    drawn = {id(score): chance.choice([letter(index) for index in range(score[_DRAWS])]) for score in waiting}

    def with_draw(score: Score) -> Score:
        rest = {name: value for name, value in score.items() if name != _DRAWS}
        return {**rest, "value": drawn[id(score)]} if id(score) in drawn else score

    return [with_draw(score) for score in scores]


def _with_options(scores: Scores) -> Scores:
    return [score for score in scores if score["reason"] != _NO_OPTIONS]


def _answered(scores: Scores) -> Scores:
    return _with_options(settled(answered(scores)))


def _warning(scores: Scores) -> str:
    if stop := stop_warning(scores):
        return stop
    selected = _answered(scores)
    without_target = sum(score["target"] is None for score in selected)
    if not without_target:
        return ""
    return (
        f"{without_target} of {len(selected)} questions have no target under rule '{selected[0]['rule']}', because "
        f"their published answer is none of their options: they are in no accuracy there."
    )


_COUNTED = unstopped(_answered)
_ACCURACY: Metric[Score] = Metric(
    "accuracy",
    selection=_COUNTED,
    role=Role.MAIN,
    warning=_warning,
    description=ACCURACY,
    of=lambda score: None if score["target"] is None else is_right(score),
)
_INVALID_RATE = replace(INVALID_RATE, selection=_COUNTED)


class KitChoice(SingleChoice):
    """One right option, or a text (MMMU's open questions); errors are clustered by patient, else by image."""

    name = "MedEvalKit's questions with options"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.TEXTS, "answer": Column.LETTER_OR_NOTHING}
    metrics: Sequence[AnyMetric] = (
        _ACCURACY,
        Metric(
            "fallback_rate",
            False,
            _COUNTED,
            role=Role.RATE,
            description="Share of replies without a readable answer, for which the rule guesses; careful rules do not.",
            of=lambda score: float(score["fallback"]) if "fallback" in score else None,
        ),
        _INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def settled(self, scores: Scores) -> Scores:
        """Return scores with their draws."""
        return settled(scores)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        facts = {name: answer.facts[name] for name in ("fallback", "stops", _DRAWS) if name in answer.facts}
        target = answer.facts.get("target", sample.document.get("answer"))
        return {"target": target, "value": answer.value, **facts}

    def target_text(self, sample: Sample) -> str:
        """Return the letter of the right option, or the answer as published."""
        return str(sample.document.get("answer") or sample.document.get("gold") or "")

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question with options has, of at most six, and the most frequent answer."""
        with_target = [sample for sample in samples if sample.options and sample.target is not None]
        if not with_target:
            return []
        frequent = most_frequent((len(sample.options), sample.target) for sample in with_target)

        def option(sample: Sample, index: int) -> Meant:  # anything where there are no options
            return lettered(sample, index) if index < len(sample.options) else Meant((letter(index),))

        most = tuple(option(sample, frequent.get(len(sample.options), 0)) for sample in samples)
        describes = "Answers the letter that is most often right of the questions with as many options."
        return [*each_option(samples, option), Strategy("most frequent answer", describes, most)]

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the expected accuracy of a guess: nothing for an open question; without those that have no target."""
        guesses = [
            1 / len(sample.options) if sample.options else 0.0
            for sample in samples
            if sample.target is not None or not sample.options
        ]
        return {"invalid_rate": 0.0, "accuracy": mean(guesses)} if any(guesses) else {}


class KitLikelihoods(KitChoice):
    """The same where options are compared by likelihood; questions without options are in no score."""

    metrics: Sequence[AnyMetric] = (
        _ACCURACY,
        _INVALID_RATE,
        *(replace(count, selection=_with_options) for count in SAMPLE_COUNTS),
    )

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        if sample.options or reply.losses is None:
            return super()._score(sample, reply, row)
        rule = row.extractor or LIKELIHOOD_EXTRACTOR
        return {"target": None, "value": None, "reason": _NO_OPTIONS, "rule": rule}

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the expected accuracy of a guess."""
        return super().expected_by_chance([sample for sample in samples if sample.options])


FAMILY, KIT_LIKELIHOODS = KitChoice(), KitLikelihoods()
