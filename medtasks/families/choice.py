"""Questions with lettered options: one right, with a judge (GMAI-MMBench), several right, or MedEvalKit's."""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import ClassVar

from medtasks.data.samples import Sample, letter, option_index
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason
from medtasks.families import counts
from medtasks.families.columns import Column
from medtasks.families.constant_replies import (
    ExpectedAnswer,
    Strategy,
    each_option,
    most_frequent,
    option_by_letter,
    option_strategies,
)
from medtasks.families.family import (
    LIKELIHOOD_EXTRACTOR,
    NO_OPTION,
    AskedFor,
    Asks,
    ReadAnswer,
    Reply,
    Rule,
    TaskFamily,
    letters_of,
)
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import judge_for
from medtasks.judges.published_judges import match_reply
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, ScoreFilter, ScoreList, mean
from medtasks.metrics.ngram_metrics import token_overlap

LEVELS = (
    "image",
    "box",
    "mask",
    "contour",
)  # granularity: the word decides, the spelling is not documented
ACCURACY = "Share of questions answered rightly."
CLOSED_ACCURACY = "Share of closed questions answered rightly."
ValueOf = Callable[[Sample, Sequence[int]], Sequence[str]]
_DRAWS = "draws"  # number of options to draw from; removed by the draw
_NO_OPTIONS = "no_options"
"""Why a question is in no score where options are compared by likelihood."""


def is_right(score: Score) -> float:
    """Return 1 for a right answer, else 0; an invalid reply is wrong."""
    return float(score["value"] == score["target"])


class SingleChoice(TaskFamily):
    """One right option; errors are clustered by patient, else by image."""

    name = "single choice"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    asked_for: ClassVar[AskedFor | None] = AskedFor.LETTER
    extractor = "robust_choice"
    rotated: ClassVar[str | None] = "rotated_choice"
    metrics: Sequence[AnyMetric] = (
        Metric(
            "accuracy", selection=counts.answered, role=Role.MAIN, description=ACCURACY, of=is_right
        ),
        counts.INVALID_RATE,
        *counts.SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {"target": sample.document["answer"], "value": answer.value}

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question has, of at most six, and the most frequent answer."""
        return option_strategies(samples)

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the expected accuracy of one guess, over all questions and over those of each level."""
        if any(sample.target is None for sample in samples):
            return {}
        parts: dict[str, list[float]] = defaultdict(list)
        for sample in samples:
            parts["accuracy"].append(1 / len(sample.options))
            if level := level_of(sample):
                parts[f"acc_{level}_level"].append(1 / len(sample.options))
        return {"invalid_rate": 0.0, **{name: mean(values) for name, values in parts.items()}}


def level_of(sample: Sample) -> str | None:
    """Return the one of :data:`LEVELS` that a question's granularity names, if any."""
    words = str(sample.document.get("granularity") or "").casefold()
    return next((level for level in LEVELS if level in words), None)


def _by_level(selection: ScoreFilter) -> tuple[AnyMetric, ...]:
    """Return accuracies in which every question counts once, as in the benchmark: means over questions, not groups."""
    accuracy: Metric[Score] = Metric(
        "accuracy", selection=selection, role=Role.MAIN, description=ACCURACY, of=is_right
    )

    by_level = (
        replace(
            accuracy,
            name=f"acc_{level}_level",
            role=Role.PART,
            description=f"Accuracy at the {level} level.",
            of=partial(
                lambda level, score: is_right(score) if score["level"] == level else None, level
            ),
        )
        for level in LEVELS
    )
    return (accuracy, *by_level, replace(counts.INVALID_RATE, selection=selection))


class GroupedChoice(SingleChoice):
    """GMAI-MMBench: accuracy over all and by granularity; a case drawn as a mask and as a contour is one cluster."""

    name = "single choice in groups"
    metrics = (*_by_level(counts.answered), *counts.SAMPLE_COUNTS)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {**super()._fields(sample, answer), "level": level_of(sample)}


class JudgedChoice(GroupedChoice):
    """GMAI-MMBench with its toolkit's judge, which matches replies to options where no rule can.

    A reply that the judge calls none of the options is wrong. A judge that fails says nothing about the model: such
    replies are left out of all metrics but ``judge_failed_rate``. Where it failed for every reply it was asked about,
    there is no score at all, since the replies that a rule can read would represent all.
    """

    name = "single choice with a judge"
    columns: ClassVar[Mapping[str, Column]] = {"question": Column.TEXT, **SingleChoice.columns}
    extractor = "vlmevalkit_2024_06"
    asked_for = None  # the judge is given whole replies
    asks = Asks.JUDGE
    rotated = None
    metrics = (
        *_by_level(counts.judged_scores),
        Metric(
            "judge_asked_rate",
            False,
            counts.answered,
            description="Share of replies that no rule could read, so that the judge was asked.",
            of=lambda score: float(score["asked"]),
        ),
        counts.judge_failed_rate(
            "The judge failed for {failed} of {answered} replies; accuracies leave them out and are too "
            "high if they would be wrong. The replies can be judged later with 'medtasks score'.",
            say_if_all=True,
        ),
        *counts.JUDGED_SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        rule_name, text = rule.extractor or str(self.extractor), reply.text or ""
        judge = judge_for(sample.dataset)
        answer, asked = match_reply(
            judge, rule_name, sample.question, sample.options, text, fenced=rule.fenced
        )
        failed = answer.reason is Reason.JUDGE_FAILED
        return {
            "level": level_of(sample),
            "target": sample.document["answer"],
            **({} if failed else {"value": answer.value}),  # the reply is neither right nor wrong
            "reason": answer.reason,
            "asked": asked,
            "judge": judge.label,
            "possible_injection": addresses_judge(text),
            "rule": rule_name,
        }


# ---- several right options (GMAI-MMBench's ``2D Mcls``), with errors over cases ----


class MultiSelect(TaskFamily):
    """Letters to list."""

    name = "several answers"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answers": Column.LETTERS}
    kind = AnswerKind.LABELS
    extractor = "listed_options"
    rotated = "rotated_multi_answer"
    metrics: Sequence[AnyMetric] = (
        *(
            Metric(
                f"mcls_{name}",
                selection=counts.answered,
                description=description,
                of=itemgetter(name),
            )
            for name, description in (
                ("accuracy", "Share of the listed options that are right, mean over questions."),
                ("recall", "Share of the right options that are listed, mean over questions."),
            )
        ),
        counts.INVALID_RATE,
        *counts.SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        listed, target = letters_of(answer.value), list(sample.document["answers"])
        shares = token_overlap(set(listed), set(target))
        value = None if answer.value is None else listed
        return {
            "target": target,
            "value": value,
            "accuracy": shares.precision,
            "recall": shares.recall,
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letters that were read."""
        letters = score["value"]
        listed = None if letters is None else ", ".join(letters) or NO_OPTION
        return ReadAnswer(listed, score["reason"], None, score["accuracy"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, lambda sample, indices: sorted(map(letter, indices)))

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the values of listing one option of each question."""
        accuracies = [len(sample.document["answers"]) / len(sample.options) for sample in samples]
        recalls = [1 / len(sample.options) for sample in samples]
        return {
            "invalid_rate": 0.0,
            "mcls_accuracy": mean(accuracies),
            "mcls_recall": mean(recalls),
        }


def list_strategies(samples: Sequence[Sample], value: ValueOf) -> list[Strategy]:
    """Return the strategies that list all options, and the one most often right; ``value`` is that of the score."""
    frequent = most_frequent(
        (len(sample.options), target) for sample in samples for target in sample.document["answers"]
    )

    every, single = (
        tuple(
            ExpectedAnswer(
                (", ".join(map(letter, indices)),), tuple(value(sample, indices)), whole=True
            )
            for sample, indices in zip(samples, listed, strict=True)
        )
        for listed in (
            [range(len(sample.options)) for sample in samples],
            [[option_index(frequent[len(sample.options)])] for sample in samples],
        )
    )
    describes = (
        "Lists the one letter that is most often right of the questions with as many options."
    )
    return [
        Strategy("all options", "Lists every option of every question.", every),
        Strategy("most frequent answer", describes, single),
    ]


# ---- sets of MedEvalKit with options (PMC-VQA, OmniMedVQA, MedXpertQA, MMMU, MedFrameQA), also asked by likelihood
#
# Its rules read almost every reply as some option; ``fallback_rate`` is the share of replies that only similarity, or
# in MMMU a draw, made an option. Published code draws in the order of the questions from one seeded generator, so that
# the draw for a question depends on the replies to all others: scores hold the number of options to draw from, and
# the draws are made once the scores of a run are together, in an order that does not depend on theirs.


def draw_guesses(scores: ScoreList) -> ScoreList:
    """Return the scores of a run with the draws of MMMU's ``parse_multi_choice_response``, seeded as by MedEvalKit."""

    def position(
        score: Score,
    ) -> list[tuple[bool, int, str]]:  # by subject and number: ``validation_Pharmacy_12``
        parts = re.split(r"(\d+)", str(score["sample"]))
        return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]

    waiting = sorted((score for score in scores if _DRAWS in score), key=position)
    if not waiting:
        return scores
    chance = random.Random(42)  # as MedEvalKit sets it before each dataset
    drawn = {
        id(score): chance.choice([letter(index) for index in range(score[_DRAWS])])
        for score in waiting
    }
    return [
        {
            **{name: value for name, value in score.items() if name != _DRAWS},
            "value": drawn[id(score)],
        }
        if id(score) in drawn
        else score
        for score in scores
    ]


def _with_options(scores: ScoreList) -> ScoreList:
    return [score for score in scores if score["reason"] != _NO_OPTIONS]


def _drawn(scores: ScoreList) -> ScoreList:
    return _with_options(draw_guesses(counts.answered(scores)))


def _warning(scores: ScoreList) -> str:
    if stop := counts.stop_warning(scores):
        return stop
    selected = _drawn(scores)
    without_target = sum(score["target"] is None for score in selected)
    if not without_target:
        return ""
    return (
        f"{without_target} of {len(selected)} questions have no target under rule '{selected[0]['rule']}', because "
        f"their published answer is none of their options: they are in no accuracy there."
    )


_COUNTED = counts.unstopped(_drawn)
_ACCURACY: Metric[Score] = Metric(
    "accuracy",
    selection=_COUNTED,
    role=Role.MAIN,
    warning=_warning,
    description=ACCURACY,
    of=lambda score: None if score["target"] is None else is_right(score),
)
FALLBACK_RATE: Metric[Score] = Metric(
    "fallback_rate",
    False,
    _COUNTED,
    role=Role.RATE,
    description="Share of replies without a readable answer, for which the rule guesses; careful rules do not.",
    of=lambda score: float(score["fallback"]) if "fallback" in score else None,
)
_INVALID_RATE = replace(counts.INVALID_RATE, selection=_COUNTED)


class KitChoice(SingleChoice):
    """One right option, or a text (MMMU's open questions); errors are clustered by patient, else by image."""

    name = "MedEvalKit's questions with options"
    columns: ClassVar[Mapping[str, Column]] = {
        "options": Column.TEXTS,
        "answer": Column.LETTER_OR_NOTHING,
    }
    metrics: Sequence[AnyMetric] = (
        _ACCURACY,
        FALLBACK_RATE,
        _INVALID_RATE,
        *counts.SAMPLE_COUNTS,
    )

    def settled(self, scores: ScoreList) -> ScoreList:
        """Return scores with their draws."""
        return draw_guesses(scores)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        facts = {
            name: answer.facts[name]
            for name in ("fallback", "stops", _DRAWS)
            if name in answer.facts
        }
        target = answer.facts.get("target", sample.document.get("answer"))
        return {"target": target, "value": answer.value, **facts}

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question with options has, of at most six, and the most frequent answer."""
        with_target = [sample for sample in samples if sample.options and sample.target is not None]
        if not with_target:
            return []
        frequent = most_frequent((len(sample.options), sample.target) for sample in with_target)

        def option(
            sample: Sample, index: int
        ) -> ExpectedAnswer:  # anything where there are no options
            return (
                option_by_letter(sample, index)
                if index < len(sample.options)
                else ExpectedAnswer((letter(index),))
            )

        most = tuple(option(sample, frequent.get(len(sample.options), 0)) for sample in samples)
        describes = (
            "Answers the letter that is most often right of the questions with as many options."
        )
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
        *(replace(count, selection=_with_options) for count in counts.SAMPLE_COUNTS),
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        if sample.options or reply.losses is None:
            return super()._score(sample, reply, rule)
        rule_name = rule.extractor or LIKELIHOOD_EXTRACTOR
        return {"target": None, "value": None, "reason": _NO_OPTIONS, "rule": rule_name}

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the expected accuracy of a guess."""
        return super().expected_by_chance([sample for sample in samples if sample.options])


SINGLE_CHOICE, GROUPED_CHOICE, JUDGED_CHOICE = SingleChoice(), GroupedChoice(), JudgedChoice()
MULTI_SELECT = MultiSelect()
KIT_CHOICE, KIT_LIKELIHOODS = KitChoice(), KitLikelihoods()
