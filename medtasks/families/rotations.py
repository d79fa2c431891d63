"""Questions that are asked once for each rotation of their options (sanity variant ``_rotated``).

Letters in scores are those of the published order, so that scores of one question can be compared. Rotations of a
question may be answered on different ranks, so nothing is decided about a question before its scores are together.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from medtasks.data.samples import Sample, letter, option_index
from medtasks.data.variants import published_position
from medtasks.extract.extractor_registry import Answer, AnswerKind
from medtasks.families.choice import list_strategies
from medtasks.families.columns import Column
from medtasks.families.constant_replies import (
    ExpectedAnswer,
    Strategy,
    each_option,
    option_by_letter,
)
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered, stop_warning, unstopped
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply, TaskFamily, letters_of
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, ScoreList, counting, mean
from medtasks.metrics.ngram_metrics import token_overlap


@dataclass(frozen=True)
class RotatedQuestion:
    """One question, of which all rotations were asked or not; a metric without a value for it is not in ``values``."""

    cluster: str
    complete: bool
    values: Mapping[str, float]


def rotated_questions(scores: ScoreList) -> list[RotatedQuestion]:
    """Return the questions of rotated replies, each once, whatever the order of their scores.

    ``flip_rate`` is 1 if not every rotation led to the same option, wherever it stood. An invalid reply counts as
    another answer than any option. A question without a valid reply has no value, or a model that never answers would
    look like one that never changes its mind.
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
        values = {"mean_accuracy": mean(shares), "invalid_rate": choices.count(None) / len(choices)}
        if 0 in rotations:
            values["published_order"] = float(rotations[0]["right"])
        if complete:
            values["worst_case"] = min(shares)
            if any(choice is not None for choice in choices):
                values["flip_rate"] = float(any(choice != choices[0] for choice in choices))
        questions.append(RotatedQuestion(ordered[0]["cluster_id"], complete, values))
    return questions


def _published(sample: Sample, indices: Sequence[int]) -> list[str]:
    rotation, options = sample.document["rotation"], len(sample.options)
    return sorted(letter(published_position(index, rotation, options)) for index in indices)


def _mean_over_questions(
    name: str, description: str, *, higher_is_better: bool = True
) -> Metric[RotatedQuestion]:
    return Metric(
        name,
        higher_is_better,
        unstopped(answered),
        role=Role.RATE if name == "invalid_rate" else Role.PART,
        warning=stop_warning if name == "mean_accuracy" else None,
        description=description,
        of=lambda question: question.values.get(name),
        units=rotated_questions,
        clusters=(lambda question: question.cluster,),
    )


class RotatedChoice(TaskFamily):
    """One right option, whatever its place."""

    name = "rotated options"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    extractor = "robust_choice"
    metrics: Sequence[AnyMetric] = (
        _mean_over_questions(
            "mean_accuracy", "Share of rotations answered rightly, mean over questions."
        ),
        _mean_over_questions("published_order", "Score with the options in the published order."),
        _mean_over_questions("worst_case", "Lowest score over all rotations: right in every one."),
        _mean_over_questions(
            "flip_rate",
            "Share of questions whose answer depends on the order of the options.",
            higher_is_better=False,
        ),
        _mean_over_questions("invalid_rate", INVALID_RATE.description, higher_is_better=False),
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
        assert sample.target is not None
        target = _published(sample, [sample.target])[0]
        value = (
            None if answer.value is None else _published(sample, [option_index(answer.value)])[0]
        )
        stops = {"stops": answer.facts["stops"]} if "stops" in answer.facts else {}
        return {
            **_rotation(sample),
            "target": target,
            "value": value,
            "right": float(value == target),
            **stops,
        }

    def sample_values(
        self, metric: AnyMetric, scores: ScoreList, samples: Sequence[tuple[str, Hashable]]
    ) -> dict[str, tuple[Hashable, float]]:
        """Return the values of single rotations, each as if its question was asked in no other."""
        return {
            doc_id: (cluster, value)
            for score, (doc_id, cluster) in zip(scores, samples, strict=True)
            for _, value in metric.values([score])
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letters that were read, in the order of the model's prompt."""
        published, is_single = score["value"], isinstance(score["target"], str)
        if published is None:
            return ReadAnswer(None, score["reason"], False if is_single else None)
        positions = [
            (option_index(name) - score["rotation"]) % score["rotations"] for name in published
        ]
        letters = ", ".join(sorted(map(letter, positions))) or NO_OPTION
        if is_single:
            return ReadAnswer(letters, score["reason"], score["right"] == 1.0)
        return ReadAnswer(letters, score["reason"], None, score["right"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question has; every letter is right equally often."""

        def meant(sample: Sample, index: int) -> ExpectedAnswer:
            return ExpectedAnswer(
                option_by_letter(sample, index).said, _published(sample, [index])[0], index
            )

        return each_option(samples, meant)

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the values of guessing each rotation of a question independently of the others."""

        def chance(sample: Sample) -> float:
            return len(sample.document.get("answers", "?")) / len(sample.options)

        questions: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            questions[sample.document["rotation_of"]].append(sample)
        complete = [
            rotations[0]
            for rotations in questions.values()
            if len(rotations) == len(rotations[0].options)
        ]
        published = [sample for sample in samples if sample.document["rotation"] == 0]
        expected = {
            "invalid_rate": 0.0,
            "mean_accuracy": mean([chance(rotations[0]) for rotations in questions.values()]),
        }
        if published:
            expected["published_order"] = mean([chance(sample) for sample in published])
        if complete:
            expected["worst_case"] = mean(
                [chance(sample) ** len(sample.options) for sample in complete]
            )
            expected["flip_rate"] = mean(
                [1 - len(sample.options) ** (1 - len(sample.options)) for sample in complete]
            )
        return expected


def _rotation(sample: Sample) -> dict[str, Any]:
    facts = {name: sample.document[name] for name in ("rotation_of", "rotation")}
    return {**facts, "rotations": len(sample.options)}


class RotatedClasses(RotatedChoice):
    """One class per image."""

    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "label": Column.LABEL}
    extractor = "robust_class"

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return an empty list: each class is right equally often, and has many names."""
        return []


class RotatedMultiSelect(RotatedChoice):
    """Several right options; the score is the share of listed options that are right."""

    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answers": Column.LETTERS}
    kind = AnswerKind.LABELS
    extractor = "listed_options"

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        listed = _published(sample, [option_index(name) for name in letters_of(answer.value)])
        target = _published(sample, [option_index(name) for name in sample.document["answers"]])
        return {
            **_rotation(sample),
            "target": target,
            "value": None if answer.value is None else listed,
            "right": token_overlap(set(listed), set(target)).precision,
        }

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, _published)


ROTATED_CHOICE, ROTATED_CLASSES, ROTATED_MULTI_SELECT = (
    RotatedChoice(),
    RotatedClasses(),
    RotatedMultiSelect(),
)
