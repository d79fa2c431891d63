"""Paired questions: one question asked of two images with opposite answers (MediConfusion).

A pair's two samples may be answered on different ranks, so nothing is decided about a pair before its scores are
together. In free-form mode the model answers without options, and a judge says which option it comes close to.

Used by MediConfusion's hooks and a user's own pairs. A pair with one answer is in no score of pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from medtasks.data.samples import Sample, Samples
from medtasks.extract.extractor_registry import Answer
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import Strategy, option_strategies
from medtasks.families.counts import (
    INVALID_RATE,
    JUDGE_FAILED_RATE,
    JUDGED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    is_unjudged,
    judged_scores,
)
from medtasks.families.family import (
    FENCED,
    AskedFor,
    Asks,
    ClusteredSample,
    Reply,
    Rule,
    SampleValues,
    TaskFamily,
)
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import judge_for
from medtasks.judges.published_judges import RULE_NAME, RULE_VERSION, judge_reply
from medtasks.metrics.metric import (
    AnyMetric,
    CorpusMetric,
    Metric,
    MetricList,
    Role,
    Score,
    ScoreFilter,
    ScoreList,
    counting,
    mean,
    with_image_clusters,
)
from medtasks.metrics.pairs import (
    PairedAnswer,
    ScoredPair,
    answers_by_pair,
    complete_pairs,
    distinct_answers,
)
from medtasks.stats.standard_error import Dyad, connected_components

PairAnswers = tuple[PairedAnswer, ...]  # one or two, to one pair


def paired_answers(scores: ScoreList) -> list[PairedAnswer]:
    """Return scores as answers to images of pairs, one for each image, sorted.

    Args:
        scores: Scores of a run with ``pair_id``, ``position``, ``target``, ``value`` and ``categories``.
    """
    answers = []
    for score in with_image_clusters(scores):
        answers.append(
            PairedAnswer(
                score["pair_id"],
                score["position"],
                str(score.get("cluster_id") or score["image_id"]),
                score["target"],
                score["value"],
                tuple(score["categories"]),
            )
        )
    return distinct_answers(answers)


def _incomplete(scores: ScoreList) -> int:
    answers = paired_answers(scores)
    return len({answer.pair_id for answer in answers}) - len(complete_pairs(answers))


def _incomplete_warning(scores: ScoreList) -> str:
    """Warn of pairs with an answer to one image only, or return an empty text if there are none."""
    selected = answered(scores)
    incomplete = _incomplete(selected)
    if not incomplete:
        return ""
    complete = len(complete_pairs(paired_answers(selected)))
    return (
        f"{incomplete} pairs lack an answer to one image (cut by --limit or --offset, or failed) and "
        f"are left out of set accuracy and confusion; {complete} complete pairs remain."
    )


def mean_over_pairs(
    name: str,
    of: Callable[[ScoredPair], float | None],
    **declared: Any,
) -> Metric[ScoredPair]:
    """Return a mean over complete pairs, which are dyads of images.

    Args:
        name: Name of the metric.
        of: Function from a pair to its value, None for a pair without one.
        declared: Other fields of the metric.
    """
    images = (lambda pair: pair.first.image_id, lambda pair: pair.second.image_id)
    units = {"units": lambda scores: complete_pairs(paired_answers(scores))}
    return Metric(name, of=of, clusters=images, **{**units, **declared})


def mean_over_answers(
    name: str,
    of: Callable[[PairedAnswer], bool],
    **declared: Any,
) -> Metric[PairAnswers]:
    """Return a mean over answers, with errors over the dyads of images that answers to one pair make together.

    Args:
        name: Name of the metric.
        of: Function from an answer to whether it counts.
        declared: Other fields of the metric.
    """
    return Metric(
        name,
        of=lambda answers: mean([float(of(answer)) for answer in answers]),
        clusters=(lambda answers: answers[0].image_id, lambda answers: answers[-1].image_id),
        weights=lambda units: [float(len(answers)) for answers in units],
        **{"units": lambda scores: answers_by_pair(paired_answers(scores)), **declared},
    )


def _metrics(selection: ScoreFilter) -> MetricList:
    """Declare the metrics of pairs and of their single answers, over the selected scores."""
    return (
        mean_over_pairs(
            "set_accuracy",
            lambda pair: float(pair.both_correct),
            selection=selection,
            role=Role.MAIN,
            zero_if_blind=True,
            warning=_incomplete_warning,
            description="Share of pairs with both images answered rightly.",
        ),
        mean_over_answers(
            "individual_accuracy",
            lambda answer: answer.correct,
            selection=selection,
            role=Role.MAIN,
            description="Share of images answered rightly; an invalid reply is wrong.",
        ),
        # Without a valid pair it is NaN. The reference guards its division by printing 0 there, which would make a
        # model that never gives a valid answer look like the least confused one; no published row has that case.
        mean_over_pairs(
            "confusion",
            lambda pair: float(pair.same_option) if pair.valid else None,
            higher_is_better=False,
            selection=selection,
            role=Role.ASIDE,
            description="Share of pairs in which both images got the same answer, of pairs with two valid replies.",
        ),
        mean_over_answers(
            INVALID_RATE.name,
            lambda answer: answer.value is None,
            higher_is_better=False,
            selection=selection,
            role=Role.ASIDE,
            description=INVALID_RATE.description,
        ),
        counting(
            "incomplete_pairs",
            _incomplete,
            higher_is_better=False,
            selection=selection,
            description="Pairs of which only one image was asked; in no score of pairs.",
        ),
    )


class PairedChoice(TaskFamily):
    """Two questions to a pair, each with the letter of an option."""

    name = "pairs"
    columns: ClassVar[Columns] = {
        "pair_id": Column.ID,
        "position": Column.POSITION,
        "options": Column.OPTIONS,
        "answer": Column.LETTER,
    }
    asked_for: ClassVar[AskedFor | None] = AskedFor.LETTER
    extractor: ClassVar[str | None] = "robust_choice"
    paired = True
    rotated: ClassVar[str | None] = "rotated_choice"
    # Replies of modes that compare likelihoods, recorded as letters, are read by the reference's parser of choices.
    letter_rows: ClassVar[Mapping[str, Rule]] = {
        "reference": Rule("mediconfusion_reference"),
        "robust": Rule("robust_choice"),
    }
    metrics: MetricList = (*_metrics(answered), *SAMPLE_COUNTS)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return place in the pair, image, target and letter, which is None for an invalid reply."""
        document = sample.document
        return {
            "pair_id": document["pair_id"],
            "position": document["position"],
            "image_id": document["image_id"],
            "target": document["answer"],
            "value": answer.value,
            "categories": list(document["categories"]),
        }

    def independent_clusters(self, samples: Samples) -> list[str]:
        """Return for each sample the first of all pairs that are connected with its own by shared images."""
        ids = [sample.document["pair_id"] for sample in samples]
        pairs = [("pair", pair_id) for pair_id in ids]
        keys = list(zip(pairs, super().independent_clusters(samples), strict=True))
        return [f"pair {ids[first]}" for first in connected_components(keys)]

    def sample_values(
        self,
        metric: AnyMetric,
        scores: ScoreList,
        samples: Sequence[ClusteredSample],
    ) -> SampleValues:
        """Return the values of pairs under a mean over pairs, else those of single samples. Clusters are dyads."""
        dyads = {}
        for answers in answers_by_pair(paired_answers(scores)):
            first = answers[0]
            dyads[first.pair_id] = Dyad(first.pair_id, first.image_id, answers[-1].image_id)
        values: SampleValues = {}
        if metric.name in ("set_accuracy", "confusion"):
            pairs: Sequence[tuple[Any, float]] = metric.values(scores)
            for pair, value in pairs:
                values[pair.first.pair_id] = (dyads[pair.first.pair_id], value)
            return values
        for score, (doc_id, _) in zip(scores, samples, strict=True):
            for _, value in metric.values([score]):
                values[doc_id] = (dyads[score["pair_id"]], value)
        return values

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return each letter, and the most frequent answer."""
        return option_strategies(samples)

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return the values of guessing both images of a pair independently of each other.

        Example:
            >>> samples = [Sample({"pair_id": 1, "options": ["left", "right"]}) for _ in range(2)]
            >>> PAIRED_CHOICE.expected_by_chance(samples)["set_accuracy"]
            0.25
        """
        sizes: dict[str, list[int]] = defaultdict(list)
        for sample in samples:
            sizes[sample.document["pair_id"]].append(len(sample.options))
        complete = [pair for pair in sizes.values() if len(pair) == 2]
        expected = {
            "invalid_rate": 0.0,
            "individual_accuracy": mean([1 / len(sample.options) for sample in samples]),
        }
        if complete:
            expected["set_accuracy"] = mean(
                [(1 / first) * (1 / second) for first, second in complete]
            )
            # Letters are compared, and the options of both images begin with the same letters.
            expected["confusion"] = mean([1 / max(pair) for pair in complete])
        return expected


class FreeForm(PairedChoice):
    """MediConfusion's free-form mode.

    Replies that the judge did not score can be judged again, and are in no metric.
    """

    name = "pairs with a judge"
    columns: ClassVar[Columns] = {**PairedChoice.columns, "question": Column.TEXT}
    kind = None
    extractor = None
    asked_for = None  # the judge is given whole replies
    asks = Asks.JUDGE
    rotated = None
    letter_rows: ClassVar[Mapping[str, Rule]] = {}
    metrics = (
        *_metrics(judged_scores),
        CorpusMetric(
            "judge_failed_rate",
            False,
            answered,
            has_error=False,
            role=Role.ASIDE,
            description=JUDGE_FAILED_RATE,
            count=lambda scores: mean([float(is_unjudged(score)) for score in scores]),
        ),
        *JUDGED_SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score a reply by the judge, which says to which option it comes close. The letter is None if to none."""
        judge = judge_for(sample.dataset)
        text = reply.text or ""
        answer = judge_reply(judge, sample.question, sample.options, text, fenced=rule.fenced)
        return self._fields(sample, answer) | {
            "reason": answer.reason,
            "rule": RULE_NAME,
            "possible_injection": addresses_judge(text),
            "judge": judge.label,
        }

    def rule_with_version(self, rule: Rule) -> str:
        """Return the rule that turns the judge's scores into an option."""
        return f"{RULE_NAME}{FENCED if rule.fenced else '_reference'} v{RULE_VERSION}"


PAIRED_CHOICE = PairedChoice()
FREE_FORM = FreeForm()
