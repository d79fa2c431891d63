"""Sensitivity, specificity and AUROC of single classes, by which runs are compared on request."""

from collections.abc import Hashable, Mapping, Sequence

from medtasks.audit.scoring import Documents, Replies, class_names
from medtasks.audit.task_calibration import areas_by_sample
from medtasks.families.counts import judged
from medtasks.families.family import TaskFamily
from medtasks.metrics.metric import CorpusMetric, Scale, Score
from medtasks.tasks.task_file import TaskFile

SENSITIVITY, SPECIFICITY, AUROC = "sensitivity", "specificity", "auroc"


def class_metrics(task: TaskFile) -> dict[str, CorpusMetric]:
    """Return the metrics of single classes that a task has, by name."""
    names = [SENSITIVITY, SPECIFICITY] if type(task.family).decisions is not TaskFamily.decisions else []
    metrics = {name: CorpusMetric(name) for name in names}
    if task.compares_likelihoods:
        metrics[AUROC] = CorpusMetric(AUROC, scale=Scale.RAW)
    return metrics


def metric_of_class(name: str) -> str:
    """Return the metric of a name such as ``sensitivity (Edema)``."""
    return name.partition(" (")[0]


def class_values(
    name: str,
    task: TaskFile,
    documents: Documents,
    replies: Replies,
    scores: Sequence[Score],
    samples: Sequence[tuple[str, Hashable]],
) -> Mapping[str, Mapping[str, tuple[Hashable, float]]]:
    """Return cluster and value by sample for each class.

    Args:
        name: A metric of :func:`class_metrics`, for all classes, or with a class in brackets for this one.
        task: The task.
        documents: All its documents.
        replies: Replies by document id.
        scores: Scores of the answered documents, shape (samples,).
        samples: Their ids and clusters, shape (samples,).

    Returns:
        Values by names such as ``sensitivity (Edema)``.
    """
    metric = metric_of_class(name)
    by_class: dict[str, dict[str, tuple[Hashable, float]]] = {}
    if metric == AUROC:
        by_class = areas_by_sample(task, documents, replies)
        scores = ()
    names = class_names(documents)
    counted = [] if any(score.get("stops") for score in scores) else judged(scores)
    ids = {id(score): sample for score, sample in zip(scores, samples, strict=False)}
    for score in counted:
        doc_id, cluster = ids[id(score)]
        for option, (present, called) in task.family.decisions(score).items():
            if present is (metric == SENSITIVITY):
                by_class.setdefault(names.get(option, option), {})[doc_id] = (cluster, float(called is present))
    named = {f"{metric} ({of_class})": values for of_class, values in by_class.items()}
    return {full: values for full, values in named.items() if name in (metric, full)}
