"""Questions that are asked once for each rotation of their options (sanity variant ``_rotated``).

Letters in scores are those of the published order, so that scores of one question can be compared. Rotations of a
question may be answered on different ranks, so nothing is decided about a question before its scores are together.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar

from medtasks.data.samples import Sample, letter, option_index
from medtasks.data.variants import published_position
from medtasks.extract.answer import Answer
from medtasks.extract.extractor_registry import AnswerKind
from medtasks.families.choice import list_strategies
from medtasks.families.constant_replies import Meant, Strategy, each_option, lettered
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered, stop_warning, unstopped
from medtasks.families.family import NO_OPTION, Column, ReadAnswer, Reply, TaskFamily, letters_of
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, Scores, counting
from medtasks.metrics.report_scores import mean
from medtasks.metrics.rotations import RotatedQuestion, RotatedReply, rotated_questions
from medtasks.metrics.set_overlap import multi_answer_accuracy


def _published(sample: Sample, indices: Sequence[int]) -> list[str]:
    """Return the letters that options have in the published order."""
    rotation, options = sample.document["rotation"], len(sample.options)
    return sorted(letter(published_position(index, rotation, options)) for index in indices)


def _questions(scores: Scores) -> list[RotatedQuestion]:
    replies = {
        RotatedReply(
            question=str(one["rotation_of"]),
            cluster=one["cluster_id"],
            rotation=one["rotation"],
            rotations=one["rotations"],
            score=float(one["right"]),
            choice=tuple(one["value"]) if isinstance(one["value"], list) else one["value"],
        )
        for one in scores
    }
    return rotated_questions(list(replies))


def _incomplete(scores: Scores) -> int:
    return sum(not question.complete for question in _questions(scores))


def _incomplete_warning(scores: Scores) -> str:
    if not (number := _incomplete(answered(scores))):
        return ""
    return (
        f"{number} questions lack an answer to a rotation of their options (cut by --limit or --offset, or failed) "
        f"and are left out of the worst case and of flips."
    )


def _mean_over_questions(name: str, description: str, *, higher_is_better: bool = True) -> Metric[RotatedQuestion]:
    return Metric(
        name,
        higher_is_better,
        unstopped(answered),
        role=Role.RATE if name == "invalid_rate" else Role.PART,
        warning=stop_warning if name == "mean_accuracy" else None,
        description=description,
        of=lambda question: question.values.get(name),
        units=_questions,
        clusters=(lambda question: question.cluster,),
    )


class RotatedChoice(TaskFamily):
    """One right option, whatever its place."""

    name = "rotated options"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    extractor = "robust_choice"
    metrics: Sequence[AnyMetric] = (
        _mean_over_questions("mean_accuracy", "Share of rotations answered rightly, mean over questions."),
        _mean_over_questions("published_order", "Score with the options in the published order."),
        _mean_over_questions("worst_case", "Lowest score over all rotations: right in every one."),
        _mean_over_questions(
            "flip_rate", "Share of questions whose answer depends on the order of the options.", higher_is_better=False
        ),
        _mean_over_questions("invalid_rate", INVALID_RATE.description, higher_is_better=False),
        counting(
            "incomplete_rotations",
            _incomplete,
            higher_is_better=False,
            selection=answered,
            description="Questions that lack a rotation; not in the worst case or the flip rate.",
        ),
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        assert sample.target is not None
        target = _published(sample, [sample.target])[0]
        value = None if answer.value is None else _published(sample, [option_index(answer.value)])[0]
        stops = {"stops": answer.facts["stops"]} if "stops" in answer.facts else {}
        return {**_rotation(sample), "target": target, "value": value, "right": float(value == target), **stops}

    def sample_values(
        self, metric: AnyMetric, scores: Sequence[Score], samples: Sequence[tuple[str, Hashable]]
    ) -> dict[str, tuple[Hashable, float]]:
        """Return what single rotations are worth, each as if its question was asked in no other."""
        return {
            doc_id: (cluster, value)
            for score, (doc_id, cluster) in zip(scores, samples, strict=True)
            for _, value in metric.values([score])
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Return what was read in the order that the model was shown."""
        given = score["value"]
        if given is None:
            return ReadAnswer(None, score["reason"], False if isinstance(score["target"], str) else None)
        places = [(option_index(one) - score["rotation"]) % score["rotations"] for one in given]
        shown = ", ".join(sorted(map(letter, places))) or NO_OPTION
        if isinstance(given, str):
            return ReadAnswer(shown, score["reason"], score["right"] == 1.0)
        return ReadAnswer(shown, score["reason"], None, score["right"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question has; every letter is right equally often."""
        return each_option(samples, _mean_published)

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return what it is worth to guess each rotation of a question independently of the others."""
        questions: dict[str, list[Sample]] = defaultdict(list)
        for sample in samples:
            questions[sample.document["rotation_of"]].append(sample)
        complete = [asked[0] for asked in questions.values() if len(asked) == len(asked[0].options)]
        published = [sample for sample in samples if sample.document["rotation"] == 0]
        found = {"invalid_rate": 0.0, "mean_accuracy": mean([_chance(asked[0]) for asked in questions.values()])}
        if published:
            found["published_order"] = mean([_chance(sample) for sample in published])
        if complete:
            sizes = [len(sample.options) for sample in complete]
            found["worst_case"] = mean([_chance(one) ** size for one, size in zip(complete, sizes, strict=True)])
            found["flip_rate"] = mean([1 - size ** (1 - size) for size in sizes])
        return found


def _rotation(sample: Sample) -> dict[str, Any]:
    document = sample.document
    names = ("rotation_of", "rotation")
    return {**{name: document[name] for name in names}, "rotations": len(sample.options)}


def _chance(sample: Sample) -> float:
    return len(sample.document.get("answers", "?")) / len(sample.options)


def _mean_published(sample: Sample, index: int) -> Meant:
    meant = lettered(sample, index)
    return Meant(meant.said, _published(sample, [index])[0], index)


class RotatedClasses(RotatedChoice):
    """One class per image."""

    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "label": Column.LABEL}
    extractor = "robust_class"

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return nothing: each class is right equally often, and has many names."""
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
            "right": multi_answer_accuracy(set(listed), set(target)),
        }

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, _published)


ROTATED_CHOICE, ROTATED_CLASSES, ROTATED_MULTI_SELECT = RotatedChoice(), RotatedClasses(), RotatedMultiSelect()
