"""Questions that are asked once for each rotation of their options (sanity variant ``_rotated``).

Letters in scores are those of the published order, so that scores of one question can be compared. Rotations of a
question may be answered on different ranks, so nothing is decided about a question before its scores are together.

Used by the hooks named ``rotated_...``, for every family of one or several right options.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from medtasks.data.samples import Sample, Samples, letter, option_index
from medtasks.data.variants import published_position
from medtasks.extract.extractor_registry import Answer, AnswerKind
from medtasks.families.choice import list_strategies
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import (
    ExpectedAnswer,
    Strategy,
    each_option,
    option_by_letter,
)
from medtasks.families.counts import (
    INVALID_RATE,
    SAMPLE_COUNTS,
    answered,
    stop_warning,
    unless_stopped,
)
from medtasks.families.family import (
    NO_OPTION,
    ClusteredSample,
    ReadAnswer,
    Reply,
    SampleValues,
    TaskFamily,
    letters_of,
)
from medtasks.metrics.metric import (
    AnyMetric,
    Metric,
    MetricList,
    Role,
    Score,
    ScoreList,
    counting,
    mean,
)
from medtasks.metrics.ngram_metrics import token_overlap


@dataclass(frozen=True)
class RotatedQuestion:
    """One question, of which all rotations were asked or not.

    A metric without a value for it is not in ``values``.
    """

    cluster: str
    complete: bool
    values: Mapping[str, float]


def rotated_questions(scores: ScoreList) -> list[RotatedQuestion]:
    """Return the questions of rotated replies, each once, whatever the order of their scores.

    ``flip_rate`` is 1 if not every rotation led to the same option, wherever it was. An invalid reply counts as
    another answer than any option. A question without a valid reply has no value, or a model that never answers would
    look like one that never changes its mind.

    Args:
        scores: Scores with ``rotation_of``, ``rotation``, ``rotations``, ``right`` and ``value``.
    """
    by_question: dict[str, dict[int, Score]] = defaultdict(dict)
    for score in scores:
        by_question[str(score["rotation_of"])][score["rotation"]] = score
    questions = []
    for _, rotations in sorted(by_question.items()):
        ordered = [rotations[rotation] for rotation in sorted(rotations)]
        shares = [float(score["right"]) for score in ordered]
        choices = [score["value"] for score in ordered]
        complete = len(ordered) == ordered[0]["rotations"]
        invalid = choices.count(None)
        values = {"mean_accuracy": mean(shares), "invalid_rate": invalid / len(choices)}
        if 0 in rotations:
            values["published_order"] = float(rotations[0]["right"])
        if complete:
            values["worst_case"] = min(shares)
            if invalid < len(choices):
                values["flip_rate"] = float(choices.count(choices[0]) < len(choices))
        questions.append(RotatedQuestion(ordered[0]["cluster_id"], complete, values))
    return questions


def _published_letters(sample: Sample, indices: Sequence[int]) -> list[str]:
    """Return the letters in the published order of options of a rotation."""
    rotation = sample.document["rotation"]
    options = len(sample.options)
    return sorted(letter(published_position(index, rotation, options)) for index in indices)


def _mean_over_questions(
    name: str,
    description: str,
    **declared: Any,
) -> Metric[RotatedQuestion]:
    """Declare the mean of a value of :class:`RotatedQuestion` over the questions that have it.

    Args:
        name: Name of the metric and of the value.
        description: One sentence.
        declared: Other fields of the metric.
    """
    return Metric(
        name,
        selection=unless_stopped(answered),
        description=description,
        of=lambda question: question.values.get(name),
        units=rotated_questions,
        clusters=(lambda question: question.cluster,),
        **declared,
    )


class RotatedChoice(TaskFamily):
    """One right option, whatever its place."""

    name = "rotated options"
    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    extractor = "robust_choice"
    metrics: MetricList = (
        _mean_over_questions(
            "mean_accuracy",
            "Share of rotations answered rightly, mean over questions.",
            warning=stop_warning,
        ),
        _mean_over_questions(
            "published_order", "Score with the options in the published order."
        ),
        _mean_over_questions(
            "worst_case", "Lowest score over all rotations: right in every one."
        ),
        _mean_over_questions(
            "flip_rate",
            "Share of questions whose answer depends on the order of the options.",
            higher_is_better=False,
        ),
        _mean_over_questions(
            "invalid_rate",
            INVALID_RATE.description,
            higher_is_better=False,
            role=Role.RATE,
        ),
        counting(
            "incomplete_rotations",
            lambda scores: sum(not question.complete for question in rotated_questions(scores)),
            higher_is_better=False,
            selection=answered,
            description="Questions that lack a rotation; not in the worst case or the flip rate.",
        ),
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return target and letter in the published order, None for an invalid reply, and whether they are equal."""
        assert sample.target is not None
        (target,) = _published_letters(sample, [sample.target])
        value = None
        if answer.value is not None:
            (value,) = _published_letters(sample, [option_index(answer.value)])
        score = _rotation(sample)
        score |= {"target": target, "value": value, "right": float(value == target)}
        if "stops" in answer.facts:
            score["stops"] = answer.facts["stops"]
        return score

    def sample_values(
        self,
        metric: AnyMetric,
        scores: ScoreList,
        samples: Sequence[ClusteredSample],
    ) -> SampleValues:
        """Return the values of single rotations, each as if its question was asked in no other."""
        values = {}
        for score, (doc_id, cluster) in zip(scores, samples, strict=True):
            for _, value in metric.values([score]):
                values[doc_id] = (cluster, value)
        return values

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letters that were read, None for an invalid reply, in the order of the model's prompt."""
        is_single = isinstance(score["target"], str)
        if score["value"] is None:
            return ReadAnswer(None, score["reason"], False if is_single else None)
        positions = []
        for name in score["value"]:
            positions.append((option_index(name) - score["rotation"]) % score["rotations"])
        letters = ", ".join(sorted(map(letter, positions))) or NO_OPTION
        if is_single:
            return ReadAnswer(letters, score["reason"], score["right"] == 1.0)
        return ReadAnswer(letters, score["reason"], None, score["right"])

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return each letter that every question has, each of which is right equally often."""

        def answer(sample: Sample, index: int) -> ExpectedAnswer:
            (value,) = _published_letters(sample, [index])
            return ExpectedAnswer(option_by_letter(sample, index).said, value, index)

        return each_option(samples, answer)

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the values of guessing each rotation of a question independently of the others.

        Example:
            >>> documents = [{"rotation_of": "1", "rotation": n, "options": ["left", "right"]} for n in (0, 1)]
            >>> ROTATED_CHOICE.expected_by_chance(list(map(Sample, documents)))["worst_case"]
            0.25
        """
        questions: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            questions[sample.document["rotation_of"]].append(sample)
        chances = [_chance(rotations[0]) for rotations in questions.values()]
        expected = {"invalid_rate": 0.0, "mean_accuracy": mean(chances)}
        published = [_chance(sample) for sample in samples if sample.document["rotation"] == 0]
        if published:
            expected["published_order"] = mean(published)
        always_right = []
        flips = []
        for rotations in questions.values():
            options = len(rotations[0].options)
            if len(rotations) == options:
                always_right.append(_chance(rotations[0]) ** options)
                # Of options ** options outcomes, all rotations agree in one per option.
                flips.append(1 - options ** (1 - options))
        if flips:
            expected["worst_case"] = mean(always_right)
            expected["flip_rate"] = mean(flips)
        return expected


def _chance(sample: Sample) -> float:
    """Return the share of options that are right."""
    return len(sample.document.get("answers", "?")) / len(sample.options)


def _rotation(sample: Sample) -> Score:
    return {
        "rotation_of": sample.document["rotation_of"],
        "rotation": sample.document["rotation"],
        "rotations": len(sample.options),
    }


class RotatedClasses(RotatedChoice):
    """One class per image."""

    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "label": Column.LABEL}
    extractor = "robust_class"

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return an empty list: each class is right equally often, and has many names."""
        return []


class RotatedMultiSelect(RotatedChoice):
    """Several right options. The score is the share of listed options that are right."""

    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "answers": Column.LETTERS}
    kind = AnswerKind.LABELS
    extractor = "listed_options"

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return targets and listed letters in the published order, and the share of listed ones that is right.

        Letters are None for an invalid reply.
        """
        listed = _published_letters(sample, list(map(option_index, letters_of(answer.value))))
        target = _published_letters(sample, list(map(option_index, sample.document["answers"])))
        return {
            **_rotation(sample),
            "target": target,
            "value": None if answer.value is None else listed,
            "right": token_overlap(set(listed), set(target)).precision,
        }

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, _published_letters)


ROTATED_CHOICE = RotatedChoice()
ROTATED_CLASSES = RotatedClasses()
ROTATED_MULTI_SELECT = RotatedMultiSelect()
