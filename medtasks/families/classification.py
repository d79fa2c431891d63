"""One class per image, or several findings: counts over all scores, with errors from the bootstrap over patients.

Intervals are those of the posterior, which hold for classes with few samples (:mod:`medtasks.stats.bootstrap`).

Used by the hooks for classes and findings. A mean over classes is no mean over samples: it has no value for a single
one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from medtasks.data.samples import Sample, Samples, letter, option_index
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason
from medtasks.extract.labeler import from_labels
from medtasks.families.choice import ACCURACY, is_right
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import ExpectedAnswer, Strategy, most_frequent_option
from medtasks.families.counts import (
    INVALID_RATE,
    LABELLED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    judge_failed_rate,
    judged_scores,
)
from medtasks.families.family import (
    NO_OPTION,
    Decisions,
    ReadAnswer,
    Reply,
    Rule,
    TaskFamily,
    letters_of,
)
from medtasks.metrics import class_scores
from medtasks.metrics.metric import (
    STDERR,
    CorpusMetric,
    Estimate,
    Metric,
    MetricList,
    Panel,
    PanelResult,
    Role,
    Score,
    ScoreFilter,
    ScoreList,
)
from medtasks.stats.bootstrap import Floats, posterior_ends, values_with_errors
from medtasks.stats.exchange import SummedCounts

_MULTICLASS = (
    "Mean F1 over classes in the target or in a prediction.",
    "Mean recall over classes in the target or in a prediction.",
    "Mean recall over classes in the target.",
    "MultiMedEval's mean AUROC of hard labels over all classes; an absent one counts 0.",
    "Mean AUROC over classes with samples in and outside of them.",
)
_MULTILABEL = (
    "Mean F1 over all labels; an absent one counts 0.",
    "Mean share of right decisions over all labels; high for a model that finds nothing.",
    "MultiMedEval's mean AUROC of hard labels over all labels; an absent one counts 0.",
    "Mean F1 over labels that an image has.",
    "Mean AUROC over labels that some images have and some have not.",
)
_NO_FINDING = ("No finding", "Normal chest, no abnormality.")
ClassRow = tuple[str, int, int | None, int]  # cluster, target, value, number of classes
# cluster, targets and values of all labels, None for an invalid reply, as bytes, which are cheaper to hash than tuples
LabelRow = tuple[str, bytes, bytes | None]
# Images of a class, below which values and intervals of means over classes depend on single images.
FEW_IMAGES = 10


def estimates_of(values: Mapping[str, float]) -> dict[str, Estimate]:
    """Return each value with its error, which has the same name with ``_stderr`` after it.

    Example:
        >>> estimates_of({"f1": 0.5, "f1_stderr": 0.1})["f1"].error
        0.1
    """
    estimates = {}
    for name, value in values.items():
        if not name.endswith(STDERR):
            estimates[name] = Estimate(value, values[f"{name}{STDERR}"])
    return estimates


def _class_counts(_name: str, rows: Sequence[ClassRow]) -> SummedCounts:
    """Count targets and values of classes, None for an invalid reply. ``_name`` is for other panels."""
    _, targets, values, classes = zip(*rows, strict=True)
    return SummedCounts(
        class_scores.count_classes(targets, values, max(classes)),
        class_scores.multiclass_metrics,
    )


def _label_counts(_name: str, rows: Sequence[LabelRow]) -> SummedCounts:
    """Count targets and decisions of each label, None for an invalid reply. ``_name`` is for other panels."""
    targets = [list(target) for _, target, _ in rows]
    values = [None if value is None else list(value) for *_, value in rows]
    return SummedCounts(
        class_scores.count_labels(targets, values, len(targets[0])),
        class_scores.multilabel_metrics,
    )


def _estimates(
    counts: SummedCounts,
    clusters: Sequence[str],
    unseen: tuple[Floats, Sequence[float]],
) -> PanelResult:
    """Return the metrics of counts, with errors from the bootstrap and intervals of the posterior.

    Args:
        counts: Counts by sample, and the function from their sums to metrics.
        clusters: Cluster of each sample.
        unseen: Counts and weights of samples that were not seen, for the posterior.
    """
    estimates = estimates_of(values_with_errors(counts.cells, clusters, counts.scores))
    for name, (low, high) in posterior_ends(
        counts.cells, clusters, counts.scores, *unseen
    ).items():
        value = estimates[name].value
        estimates[name] = replace(estimates[name], ends=(min(low, value), max(high, value)))
    return PanelResult(estimates)


def _class_panel(rows: Sequence[ClassRow]) -> PanelResult:
    """Return the metrics of classes, none without rows."""
    if not rows:
        return PanelResult()
    clusters, targets, values, classes = zip(*rows, strict=True)
    unseen = class_scores.unseen_classes(targets, values, max(classes))
    return _estimates(_class_counts("", rows), clusters, unseen)


def _label_panel(rows: Sequence[LabelRow]) -> PanelResult:
    """Return the metrics of findings, none without rows."""
    if not rows:
        return PanelResult()
    counts = _label_counts("", rows)
    return _estimates(
        counts, [cluster for cluster, *_ in rows], class_scores.unseen_labels(counts.cells)
    )


_CLASSES = Panel(
    lambda score: (score["cluster_id"], score["target"], score["value"], score["classes"]),
    _class_panel,
    counts=_class_counts,
)
_LABELS = Panel(
    lambda score: (
        score["cluster_id"],
        bytes(score["target"]),
        None if score["value"] is None else bytes(score["value"]),
    ),
    _label_panel,
    counts=_label_counts,
)


def _class_remark(scores: ScoreList) -> str:
    """List the images per class, or return an empty text without classes."""
    images = _images_per_class(scores)
    listed = ", ".join(f"{name} {count}" for name, count in images.items())
    return f"Images per class: {listed}." if listed else ""


def _class_warning(scores: ScoreList) -> str:
    """Warn of classes with few images, or return an empty text if there are none."""
    images = _images_per_class(scores)
    rare = [f"{name} ({count})" for name, count in images.items() if 0 < count < FEW_IMAGES]
    if not rare:
        return ""
    return (
        f"Fewer than {FEW_IMAGES} images of {', '.join(rare)}: means over classes, such as macro F1, depend on single "
        f"images, and their standard errors are too small; their intervals hold for the classes that occur."
    )


def _images_per_class(scores: ScoreList) -> dict[str, int]:
    """Return the number of answered images by the letter of their class, also of classes that no image has."""
    images: Counter[int] = Counter()
    classes = 0
    for score in answered(scores):
        target = score["target"]
        if isinstance(target, int):
            images[target] += 1
        else:
            images.update(number for number, present in enumerate(target) if present)
        classes = max(classes, score.get("classes") or len(target))
    return {letter(number): images[number] for number in range(classes)}


def _panel_metrics(
    names: Sequence[str],
    descriptions: Sequence[str],
    panel: Panel[Any],
    selection: ScoreFilter,
) -> tuple[CorpusMetric, ...]:
    """Declare the metrics of a panel, one per name and description, in this order."""
    metrics = []
    for name, text in zip(names, descriptions, strict=True):
        metrics.append(CorpusMetric(name, selection=selection, panel=panel, description=text))
    # Macro F1 carries the remarks for all of them.
    first = replace(metrics[0], warning=_class_warning, remark=_class_remark)
    return first, *metrics[1:]


class Classification(TaskFamily):
    """One class per image, of which scores hold the numbers from 0."""

    name = "classification"
    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "label": Column.LABEL}
    extractor = "robust_class"
    rotated = "rotated_classes"
    metrics: MetricList = (
        *_panel_metrics(class_scores.MULTICLASS_METRICS, _MULTICLASS, _CLASSES, answered),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )
    # A value for single samples; the metrics above are means over classes.
    compared_only: ClassVar[tuple[Metric[Score], ...]] = (
        Metric(
            "right_answers",
            selection=answered,
            role=Role.MAIN,
            description=ACCURACY,
            of=is_right,
        ),
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {
            "classes": len(sample.options),
            "target": int(sample.document["label"]),
            "value": None if answer.value is None else option_index(answer.value),
        }

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letter of the class that was read."""
        value_read = score["value"]
        name = None if value_read is None else letter(value_read)
        return ReadAnswer(name, score["reason"], value_read == score["target"])

    def decisions(self, score: Score) -> Decisions:
        """Return the decision about each class.

        Example:
            >>> CLASSIFICATION.decisions({"target": 1, "value": 0, "classes": 2})
            {'A': (False, True), 'B': (True, False)}
        """
        target, value = score["target"], score["value"]
        classes = range(score["classes"])
        return {
            letter(n): (n == target, None if value is None else n == value) for n in classes
        }

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return the most frequent class."""
        return most_frequent_option(
            "most frequent class",
            "Gives every image the class that most of them have.",
            samples,
            lambda sample, index: ExpectedAnswer((sample.options[index],), index, index),
        )

    def expected_by_chance(self, samples: Samples) -> Mapping[str, float]:
        """Return recalls of 1 / k for k classes, and AUROCs of 1/2. A class that is absent, or alone, has one of 0.

        Example:
            >>> samples = [Sample({"options": ["benign", "malignant"], "label": label}) for label in (0, 1)]
            >>> CLASSIFICATION.expected_by_chance(samples)["balanced_accuracy"]
            0.5
        """
        classes = max(len(sample.options) for sample in samples)
        present = len({sample.target for sample in samples})
        expected = {"invalid_rate": 0.0, "balanced_accuracy": 1 / classes, "macro_auroc": 0.0}
        if present > 1:
            expected["macro_auroc"] = present / classes / 2
            expected["present_class_auroc"] = 0.5
        return expected


def _right_share(score: Score) -> float:
    """Return the share of findings that are rightly called present or absent, 0 without a valid answer."""
    labels = score["value"]
    target = score["target"]
    if not labels:
        return 0.0
    right = sum(int(label == gold) for label, gold in zip(labels, target, strict=True))
    return right / len(target)


class MultiLabel(TaskFamily):
    """Several findings per image, of which scores hold 0 or 1 each.

    A reply that its labeler could not read (``judge_failed``) says nothing about the model: metrics leave it out, and
    ``judge_failed_rate`` is shown next to them. Any other invalid reply is wrong. Where the labeler read none, metrics
    are NaN: empty replies, which need no labeler, would represent all.
    """

    name = "several findings"
    columns: ClassVar[Columns] = {"options": Column.OPTIONS, "labels": Column.LABELS}
    kind = AnswerKind.LABELS
    extractor = "robust_labels"
    metrics: MetricList = (
        *_panel_metrics(class_scores.MULTILABEL_METRICS, _MULTILABEL, _LABELS, judged_scores),
        replace(INVALID_RATE, selection=judged_scores),
        judge_failed_rate(
            "The labeler failed for {share} of {answered} replies; they are left out of the other metrics."
        ),
        *LABELLED_SAMPLE_COUNTS,
    )

    compared_in_groups = (
        Metric(
            "right_decisions",
            selection=judged_scores,
            role=Role.MAIN,
            description="Share of findings that are rightly called present or absent, mean over images.",
            of=_right_share,
        ),
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        return {
            "target": list(sample.document["labels"]),
            "value": None if answer.value is None else list(answer.value),
        }

    def read(self, sample: Sample, reply: Reply, rule: Rule) -> tuple[Answer, str]:
        """Return the answer of a rule, or from a labeler's earlier labels, and the rule's name."""
        if not reply.labelled:
            return super().read(sample, reply, rule)
        return from_labels(reply.text, reply.labels, sample.options), rule.extractor or ""

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the letters of the findings that were read, with the share of right decisions.

        They are None without a valid answer.
        """
        labels = score["value"]
        reason = score["reason"]
        if reason == Reason.JUDGE_FAILED:
            return ReadAnswer(None, reason, None)
        listed = None if labels is None else ", ".join(letters_of(labels)) or NO_OPTION
        return ReadAnswer(listed, reason, None, _right_share(score))

    def decisions(self, score: Score) -> Decisions:
        """Return the decision about each finding.

        Example:
            >>> MULTI_LABEL.decisions({"target": [1, 0], "value": [1, 1]})
            {'A': (True, True), 'B': (False, True)}
        """
        value = score["value"] or [None] * len(score["target"])
        calls = (None if label is None else bool(label) for label in value)
        return {letter(n): (bool(score["target"][n]), call) for n, call in enumerate(calls)}

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return no finding at all, and all of them."""
        options = samples[0].options
        count = len(samples)
        none = ExpectedAnswer(_NO_FINDING, (0,) * len(options), whole=True)
        every = ExpectedAnswer((", ".join(options),), (1,) * len(options), whole=True)
        return [
            Strategy("no finding", "Calls every image normal.", (none,) * count),
            Strategy("all findings", "Lists every finding for every image.", (every,) * count),
        ]


CLASSIFICATION = Classification()
MULTI_LABEL = MultiLabel()
