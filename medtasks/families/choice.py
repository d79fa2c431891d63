"""Questions with lettered options: one right, with a judge (GMAI-MMBench), several right, or MedEvalKit's.

Used by the hooks of the same names, and a base of others. A question without a target is in no accuracy.
"""

import random
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import ClassVar

from medtasks.data.samples import Sample, Samples, first_letters, letter, option_index
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import (
    ExpectedAnswer,
    Strategy,
    each_option,
    most_frequent,
    option_by_letter,
    option_strategies,
)
from medtasks.families.counts import (
    INVALID_RATE,
    JUDGED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    judge_failed_rate,
    judged_scores,
    stop_warning,
    unless_stopped,
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
from medtasks.metrics.metric import (
    Metric,
    MetricList,
    Role,
    Score,
    ScoreFilter,
    ScoreList,
    mean,
)
from medtasks.metrics.ngram_metrics import token_overlap

# The word decides, as the spelling is not documented
LEVELS = "image", "box", "mask", "contour"
ACCURACY = "Share of questions answered rightly."
CLOSED_ACCURACY = "Share of closed questions answered rightly."
ValueOf = Callable[[Sample, Sequence[int]], Sequence[str]]
_DRAWS = "draws"  # number of options to draw from; removed by the draw
_NO_OPTIONS = "no_options"
"""Why a question is in no score where options are compared by likelihood."""


def is_right(score: Score) -> float:
    """Return 1 for a right answer, else 0. An invalid reply is wrong.

    Example:
        >>> is_right({"value": "B", "target": "B"}), is_right({"value": None, "target": "B"})
        (1.0, 0.0)
    """
    return float(score["value"] == score["target"])


class SingleChoice(TaskFamily):
    """One right option, with errors that are clustered by patient, else by image."""

    name = "single choice"
    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    asked_for: ClassVar[AskedFor | None] = AskedFor.LETTER
    extractor = "robust_choice"
    rotated: ClassVar[str | None] = "rotated_choice"
    metrics: MetricList = (
        Metric(
            "accuracy",
            selection=answered,
            role=Role.MAIN,
            description=ACCURACY,
            of=is_right,
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {"target": sample.document["answer"], "value": answer.value}

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return each letter that every question has, of at most six, and the most frequent answer."""
        return option_strategies(samples)

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the expected accuracy of one guess, over all questions and over those of each level.

        Example:
            >>> samples = [Sample({"options": ["cyst", "scar"], "answer": "A"})]
            >>> SINGLE_CHOICE.expected_by_chance(samples)["accuracy"]
            0.5
        """
        if any(sample.target is None for sample in samples):
            return {}
        chances: dict[str, list[float]] = defaultdict(list)
        for sample in samples:
            chance = 1 / len(sample.options)
            chances["accuracy"].append(chance)
            level = level_of(sample)
            if level:
                chances[f"acc_{level}_level"].append(chance)
        return {"invalid_rate": 0.0, **{name: mean(values) for name, values in chances.items()}}


def level_of(sample: Sample) -> str | None:
    """Return the one of :data:`LEVELS` that a question's granularity names, None if it names none.

    Example:
        >>> level_of(Sample({"granularity": "Mask Level"}))
        'mask'
    """
    words = str(sample.document.get("granularity") or "").casefold()
    return next((level for level in LEVELS if level in words), None)


def _by_level(selection: ScoreFilter) -> MetricList:
    """Return accuracies in which every question counts once, as in the benchmark: means over questions, not groups."""
    accuracy: Metric[Score] = Metric(
        "accuracy", selection=selection, role=Role.MAIN, description=ACCURACY, of=is_right
    )

    by_level: list[Metric[Score]] = []
    for level in LEVELS:
        by_level.append(
            Metric(
                f"acc_{level}_level",
                selection=selection,
                description=f"Accuracy at the {level} level.",
                of=partial(_is_right_at, level),
            )
        )
    return (accuracy, *by_level, replace(INVALID_RATE, selection=selection))


def _is_right_at(level: str, score: Score) -> float | None:
    """Return whether a question of a level was answered rightly, None for one of another level."""
    return is_right(score) if score["level"] == level else None


class GroupedChoice(SingleChoice):
    """GMAI-MMBench: accuracy over all and by granularity.

    A case drawn as a mask and as a contour is one cluster.
    """

    name = "single choice in groups"
    metrics = (*_by_level(answered), *SAMPLE_COUNTS)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {**super()._fields(sample, answer), "level": level_of(sample)}


class JudgedChoice(GroupedChoice):
    """GMAI-MMBench with its toolkit's judge, which matches replies to options where no rule can.

    A reply that the judge calls none of the options is wrong. A judge that fails says nothing about the model: such
    replies are left out of all metrics but ``judge_failed_rate``. Where it failed for every reply it was asked about,
    there is no score at all, since the replies that a rule can read would represent all.
    """

    name = "single choice with a judge"
    columns: ClassVar[Columns] = {"question": Column.TEXT, **SingleChoice.columns}
    extractor = "vlmevalkit_2024_06"
    asked_for = None  # the judge is given whole replies
    asks = Asks.JUDGE
    rotated = None
    metrics = (
        *_by_level(judged_scores),
        Metric(
            "judge_asked_rate",
            False,
            answered,
            description="Share of replies that no rule could read, so that the judge was asked.",
            of=lambda score: float(score["asked"]),
        ),
        judge_failed_rate(
            "The judge failed for {failed} of {answered} replies; accuracies leave them out and are too "
            "high if they would be wrong. The replies can be judged later with 'medtasks score'.",
            say_if_all=True,
        ),
        *JUDGED_SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score a reply by the rule, or by the judge where it reads nothing. Without ``value`` the judge failed."""
        rule_name = rule.extractor or str(self.extractor)
        text = reply.text or ""
        judge = judge_for(sample.dataset)
        answer, was_asked = match_reply(
            judge, rule_name, sample.question, sample.options, text, fenced=rule.fenced
        )
        score: Score = {"level": level_of(sample), "target": sample.document["answer"]}
        if answer.reason is not Reason.JUDGE_FAILED:  # else it is neither right nor wrong
            score["value"] = answer.value
        return score | {
            "reason": answer.reason,
            "asked": was_asked,
            "judge": judge.label,
            "possible_injection": addresses_judge(text),
            "rule": rule_name,
        }


# ---- several right options (GMAI-MMBench's ``2D Mcls``), with errors over cases ----


class MultiSelect(TaskFamily):
    """Letters to list."""

    name = "several answers"
    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "answers": Column.LETTERS}
    kind = AnswerKind.LABELS
    extractor = "listed_options"
    rotated = "rotated_multi_answer"
    metrics: MetricList = (
        Metric(
            "mcls_accuracy",
            selection=answered,
            description="Share of the listed options that are right, mean over questions.",
            of=itemgetter("accuracy"),
        ),
        Metric(
            "mcls_recall",
            selection=answered,
            description="Share of the right options that are listed, mean over questions.",
            of=itemgetter("recall"),
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return the listed letters, None for an invalid reply, with the shares that are right and that are listed."""
        listed = letters_of(answer.value)
        target = list(sample.document["answers"])
        shares = token_overlap(set(listed), set(target))
        return {
            "target": target,
            "value": None if answer.value is None else listed,
            "accuracy": shares.precision,
            "recall": shares.recall,
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letters that were read."""
        letters = score["value"]
        listed = None if letters is None else ", ".join(letters) or NO_OPTION
        return ReadAnswer(listed, score["reason"], None, score["accuracy"])

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, lambda sample, indices: sorted(map(letter, indices)))

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the values of listing one option of each question.

        Example:
            >>> samples = [Sample({"options": ["cyst", "scar", "mass", "clip"], "answers": ["A", "B"]})]
            >>> MULTI_SELECT.expected_by_chance(samples)["mcls_recall"]
            0.25
        """
        accuracies = [
            len(sample.document["answers"]) / len(sample.options) for sample in samples
        ]
        recalls = [1 / len(sample.options) for sample in samples]
        return {
            "invalid_rate": 0.0,
            "mcls_accuracy": mean(accuracies),
            "mcls_recall": mean(recalls),
        }


def list_strategies(samples: Samples, value: ValueOf) -> list[Strategy]:
    """Return the strategies that list all options, and the one that is most often right.

    Args:
        samples: Samples with options and ``answers``.
        value: Function from a sample and indices of its options to the value of the score.
    """
    targets = []
    for sample in samples:
        for target in sample.document["answers"]:
            targets.append((len(sample.options), target))
    frequent = most_frequent(targets)

    def listing(sample: Sample, indices: Sequence[int]) -> ExpectedAnswer:
        reply = ", ".join(map(letter, indices))
        return ExpectedAnswer((reply,), tuple(value(sample, indices)), whole=True)

    every = []
    single = []
    for sample in samples:
        count = len(sample.options)
        every.append(listing(sample, range(count)))
        single.append(listing(sample, [option_index(frequent[count])]))
    return [
        Strategy("all options", "Lists every option of every question.", tuple(every)),
        Strategy(
            "most frequent answer",
            "Lists the one letter that is most often right of the questions with as many options.",
            tuple(single),
        ),
    ]


# ---- sets of MedEvalKit with options (PMC-VQA, OmniMedVQA, MedXpertQA, MMMU, MedFrameQA), also asked by likelihood
#
# Its rules read almost every reply as some option; ``fallback_rate`` is the share of replies that only similarity, or
# in MMMU a draw, made an option. Published code draws in the order of the questions from one seeded generator, so that
# the draw for a question depends on the replies to all others: scores hold the number of options to draw from, and
# the draws are made once the scores of a run are together, in an order that does not depend on theirs.


def draw_guesses(scores: ScoreList) -> ScoreList:
    """Return the scores of a run with the draws of MMMU's ``parse_multi_choice_response``, seeded as by MedEvalKit.

    Args:
        scores: Scores of a whole run. Those that wait for a draw have the number of options in ``draws``.

    Example:
        >>> draw_guesses([{"sample": "validation_Pharmacy_12", "value": None, "draws": 4}])
        [{'sample': 'validation_Pharmacy_12', 'value': 'A'}]
    """
    waiting = sorted((score for score in scores if _DRAWS in score), key=_position)
    if not waiting:
        return scores
    chance = random.Random(42)  # as MedEvalKit sets it before each dataset
    letters = {}
    for score in waiting:
        letters[id(score)] = chance.choice(first_letters(score[_DRAWS]))
    with_draws = []
    for score in scores:
        if id(score) in letters:
            score = {**score, "value": letters[id(score)]}
            del score[_DRAWS]
        with_draws.append(score)
    return with_draws


def _position(score: Score) -> list[tuple[bool, int, str]]:
    """Return the key that sorts scores by subject and number: ``validation_Pharmacy_12``."""
    key = []
    for part in re.split(r"(\d+)", str(score["sample"])):
        is_number = part.isdecimal()
        key.append((is_number, int(part) if is_number else 0, part))
    return key


def _with_options(scores: ScoreList) -> ScoreList:
    return [score for score in scores if score["reason"] != _NO_OPTIONS]


def _answered_with_draws(scores: ScoreList) -> ScoreList:
    return _with_options(draw_guesses(answered(scores)))


def _warning(scores: ScoreList) -> str:
    """Explain why all metrics are NaN, or which questions are in no accuracy, or return an empty text."""
    stop = stop_warning(scores)
    if stop:
        return stop
    selected = _answered_with_draws(scores)
    without_target = sum(score["target"] is None for score in selected)
    if not without_target:
        return ""
    return (
        f"{without_target} of {len(selected)} questions have no target under rule '{selected[0]['rule']}', because "
        f"their published answer is none of their options: they are in no accuracy there."
    )


_COUNTED = unless_stopped(_answered_with_draws)
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
_INVALID_RATE = replace(INVALID_RATE, selection=_COUNTED)


class KitChoice(SingleChoice):
    """One right option, or a text (MMMU's open questions), with errors that are clustered by patient, else by image."""

    name = "MedEvalKit's questions with options"
    columns: ClassVar[Columns] = {
        "options": Column.TEXTS,
        "answer": Column.LETTER_OR_NOTHING,
    }
    metrics: MetricList = (
        _ACCURACY,
        FALLBACK_RATE,
        _INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def final_scores(self, scores: ScoreList) -> ScoreList:
        """Return scores with their draws."""
        return draw_guesses(scores)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return target and letter, None for an invalid reply, and what the rule adds.

        ``fallback`` is whether the rule guessed, ``stops`` why published code stops, ``draws`` the number to draw from.
        """
        score: Score = {
            "target": answer.facts.get("target", sample.document.get("answer")),
            "value": answer.value,
        }
        for name in ("fallback", "stops", _DRAWS):
            if name in answer.facts:
                score[name] = answer.facts[name]
        return score

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return each letter that every question with options has, of at most six, and the most frequent answer."""
        with_target = [
            sample for sample in samples if sample.options and sample.target is not None
        ]
        if not with_target:
            return []
        frequent = most_frequent((len(sample.options), sample.target) for sample in with_target)

        def option(sample: Sample, index: int) -> ExpectedAnswer:
            if index < len(sample.options):
                return option_by_letter(sample, index)
            return ExpectedAnswer((letter(index),))  # anything where there are no options

        most = tuple(option(sample, frequent.get(len(sample.options), 0)) for sample in samples)
        return [
            *each_option(samples, option),
            Strategy(
                "most frequent answer",
                "Answers the letter that is most often right of the questions with as many options.",
                most,
            ),
        ]

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the expected accuracy of a guess: 0 for an open question, without questions that have no target."""
        guesses = []
        for sample in samples:
            if not sample.options:
                guesses.append(0.0)
            elif sample.target is not None:
                guesses.append(1 / len(sample.options))
        return {"invalid_rate": 0.0, "accuracy": mean(guesses)} if any(guesses) else {}


class KitLikelihoods(KitChoice):
    """MedEvalKit's questions, whose options are compared by likelihood. A question without options is in no score."""

    metrics: MetricList = (
        _ACCURACY,
        _INVALID_RATE,
        *(replace(count, selection=_with_options) for count in SAMPLE_COUNTS),
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score a reply. A question without options has no likelihoods to compare, so that it gets a reason alone."""
        if sample.options or reply.losses is None:
            return super()._score(sample, reply, rule)
        return {
            "target": None,
            "value": None,
            "reason": _NO_OPTIONS,
            "rule": rule.extractor or LIKELIHOOD_EXTRACTOR,
        }

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the expected accuracy of a guess."""
        return super().expected_by_chance([sample for sample in samples if sample.options])


SINGLE_CHOICE = SingleChoice()
GROUPED_CHOICE = GroupedChoice()
JUDGED_CHOICE = JudgedChoice()
MULTI_SELECT = MultiSelect()
KIT_CHOICE = KitChoice()
KIT_LIKELIHOODS = KitLikelihoods()
