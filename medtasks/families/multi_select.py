"""Questions with several right options (GMAI-MMBench's ``2D Mcls``), with errors over cases."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from medtasks.data.samples import Sample, letter, option_index
from medtasks.extract.answer import Answer
from medtasks.extract.registry import Kind
from medtasks.families.constant_replies import Meant, Strategy, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS, answered
from medtasks.families.family import NO_OPTION, Column, ReadAnswer, Reply, TaskFamily, letters_of
from medtasks.metrics.metric import AnyMetric, Metric, Score
from medtasks.metrics.report_scores import mean
from medtasks.metrics.set_overlap import multi_answer_accuracy, multi_answer_recall

ValueOf = Callable[[Sample, Sequence[int]], Sequence[str]]


class MultiSelect(TaskFamily):
    """Letters to list."""

    name = "several answers"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answers": Column.LETTERS}
    kind = Kind.LABELS
    extractor = "listed_options"
    rotated = "medtasks.hooks.rotations.process_listed"
    metrics: Sequence[AnyMetric] = (
        Metric("mcls_accuracy", selection=answered, of=lambda score: float(score["accuracy"])),
        Metric("mcls_recall", selection=answered, of=lambda score: float(score["recall"])),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        listed, target = letters_of(answer.value), list(sample.document["answers"])
        return {
            "target": target,
            "value": None if answer.value is None else listed,
            "accuracy": multi_answer_accuracy(set(listed), set(target)),
            "recall": multi_answer_recall(set(listed), set(target)),
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Return the letters that were read."""
        given = score["value"]
        listed = None if given is None else ", ".join(given) or NO_OPTION
        return ReadAnswer(listed, score["reason"], None, score["accuracy"])

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """List all options, or the one that is most often right."""
        return list_strategies(samples, lambda sample, indices: sorted(map(letter, indices)))

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """List one option of each question: the share of it that is right, and its share of what is right."""
        return {
            "invalid_rate": 0.0,
            "mcls_accuracy": mean([len(one.document["answers"]) / len(one.options) for one in samples]),
            "mcls_recall": mean([1 / len(one.options) for one in samples]),
        }


def list_strategies(samples: Sequence[Sample], value: ValueOf) -> list[Strategy]:
    """Return the strategies that list all options, and the one that is most often right.

    ``value`` is what the score says of a list of options, by sample and indices.
    """
    frequent = most_frequent(
        (len(sample.options), target) for sample in samples for target in sample.document["answers"]
    )

    def mean_list(sample: Sample, indices: Sequence[int]) -> Meant:
        return Meant((", ".join(map(letter, indices)),), tuple(value(sample, indices)), whole=True)

    every = tuple(mean_list(sample, range(len(sample.options))) for sample in samples)
    single = tuple(mean_list(sample, [option_index(frequent[len(sample.options)])]) for sample in samples)
    describes = "Lists the one letter that is most often right of the questions with as many options."
    return [
        Strategy("all options", "Lists every option of every question.", every),
        Strategy("most frequent answer", describes, single),
    ]


MULTI_SELECT = MultiSelect()
