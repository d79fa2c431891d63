"""Single questions with lettered options: alone, in groups (GMAI-MMBench), and with a judge for what no rule reads."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from medtasks.data.own_datasets import access_of
from medtasks.data.samples import Sample
from medtasks.extract.answer import Answer, Reason
from medtasks.families.constant_replies import Strategy, lettered, option_strategies
from medtasks.families.counts import (
    INVALID_RATE,
    JUDGED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    judge_failed_rate,
    judged,
)
from medtasks.families.family import Asks, Column, Reply, Row, TaskFamily
from medtasks.judges.client import judge_for
from medtasks.judges.fence import addresses_judge
from medtasks.judges.gmai import match_reply
from medtasks.metrics.metric import AnyMetric, Metric, Role, Score, Selection
from medtasks.metrics.report_scores import mean

LEVELS = ("image", "box", "mask", "contour")
"""What a question is about. Their spelling in the file is not documented; the word decides."""


def is_right(score: Score) -> float:
    """Return 1 for a right answer, else 0; an invalid reply is wrong."""
    return float(score["value"] == score["target"])


class SingleChoice(TaskFamily):
    """One right option; errors are clustered by image."""

    name = "single choice"
    columns: ClassVar[Mapping[str, Column]] = {"options": Column.OPTIONS, "answer": Column.LETTER}
    extractor = "robust_choice"
    rotated: ClassVar[str | None] = "medtasks.hooks.rotations.process_results"
    metrics: Sequence[AnyMetric] = (
        Metric("accuracy", selection=answered, role=Role.MAIN, of=is_right),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def cluster_id(self, sample: Sample) -> str | None:
        """Return the image, whoever's it is; None for a question without."""
        image = sample.document.get("image_id")
        return None if image is None else Sample({"image_id": image}).cluster_id

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {"target": sample.document["answer"], "value": answer.value}

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return each letter that every question has, of at most six, and the most frequent answer."""
        return option_strategies(samples, lettered)

    def expected_by_chance(self, samples: Sequence[Sample]) -> Mapping[str, float]:
        """Return the expected accuracy of one guess, over all questions and over those of each level.

        Example:
            >>> questions = [Sample({"options": list(options), "answer": "A"}) for options in ("ab", "abcd")]
            >>> SINGLE_CHOICE.expected_by_chance(questions)
            {'invalid_rate': 0.0, 'accuracy': 0.375}
        """
        if any(sample.target is None for sample in samples):
            return {}
        parts: dict[str, list[float]] = defaultdict(list)
        for sample in samples:
            parts["accuracy"].append(1 / len(sample.options))
            if level := level_of(sample):
                parts[f"acc_{level}_level"].append(1 / len(sample.options))
        return {"invalid_rate": 0.0, **{name: mean(values) for name, values in parts.items()}}


def level_of(sample: Sample) -> str | None:
    """Return which of :data:`LEVELS` a question's granularity names.

    Example:
        >>> level_of(Sample({"granularity": "Contour Level"})), level_of(Sample({}))
        ('contour', None)
    """
    words = str(sample.document.get("granularity") or "").casefold()
    return next((level for level in LEVELS if level in words), None)


def _by_level(selection: Selection) -> tuple[AnyMetric, ...]:
    """Every question counts once, as in the benchmark: the accuracy is the mean over questions, not over groups."""

    def at(level: str) -> Callable[[Score], float | None]:
        return lambda score: is_right(score) if score["level"] == level else None

    return (
        Metric("accuracy", selection=selection, role=Role.MAIN, of=is_right),
        *(Metric(f"acc_{level}_level", selection=selection, of=at(level)) for level in LEVELS),
        replace(INVALID_RATE, selection=selection),
    )


class GroupedChoice(SingleChoice):
    """GMAI-MMBench: accuracy over all and by granularity; a case drawn as a mask and as a contour is one cluster."""

    name = "single choice in groups"
    metrics = (*_by_level(answered), *SAMPLE_COUNTS)

    def cluster_id(self, sample: Sample) -> str | None:
        """Return patient, case or question."""
        return sample.cluster_id

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {**super()._fields(sample, answer), "level": level_of(sample)}


class JudgedChoice(GroupedChoice):
    """GMAI-MMBench with its toolkit's judge: what no rule reads from a reply, a judge matches to the options.

    A reply that the judge calls none of the options is wrong. A judge that fails says nothing about the model: such
    replies are left out of all metrics but ``judge_failed_rate``. Where it failed for every reply it was asked about,
    there is no score at all, since the replies that a rule can read would stand for all.
    """

    name = "single choice with a judge"
    columns: ClassVar[Mapping[str, Column]] = {"question": Column.TEXT, **SingleChoice.columns}
    extractor = "vlmevalkit_2024_06"
    asks = Asks.JUDGE
    rotated = None
    metrics = (
        *_by_level(judged),
        Metric("judge_asked_rate", False, answered, of=lambda score: float(score["asked"])),
        judge_failed_rate(
            "The judge failed for {failed} of {answered} replies; accuracies leave them out and are too "
            "high if they would be wrong. The replies can be judged later with 'medtasks score'.",
            say_if_all=True,
        ),
        *JUDGED_SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        rule, text = row.extractor or str(self.extractor), reply.text or ""
        judge = judge_for(str(sample.dataset), str(access_of(str(sample.dataset))))
        matched = match_reply(judge, rule, sample.question, sample.options, text, fenced=row.fenced)
        failed = matched.answer.reason is Reason.JUDGE_FAILED
        return {
            "level": level_of(sample),
            "target": sample.document["answer"],
            **({} if failed else {"value": matched.answer.value}),  # the reply is neither right nor wrong
            "reason": matched.answer.reason,
            "asked": matched.asked,
            "judge": f"{judge.settings.model}, temperature {judge.settings.temperature:g}",
            "possible_injection": addresses_judge(text),
            "rule": rule,
        }


SINGLE_CHOICE, GROUPED_CHOICE, JUDGED_CHOICE = SingleChoice(), GroupedChoice(), JudgedChoice()
