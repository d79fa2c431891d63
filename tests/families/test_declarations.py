"""What the metrics of shipped tasks declare of themselves."""

import re

from medtasks.metrics.metric import Scale, undeclared
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.tasks.task_files import task_files

RAW = re.compile("radcliq|bertscore|roberta_large|similarity|hallucination_score")
COUNT = re.compile(
    "^(answers|mentions|reports|submission|incomplete|failed|scored|unjudged)_|possible_injection|_(decided)$"
)


def test_every_metric_declares_its_scale_and_a_sentence():
    tasks = [task for task in task_files().values() if task.kind == "task" and not task.only_harness]
    metrics = {one for task in tasks for one in (*task.family.metrics, *task.family.compared_only)}
    assert len(metrics) > 80
    for metric in metrics:
        is_count = COUNT.search(metric.name) or metric.name == "positives_label"
        expected = Scale.RAW if RAW.search(metric.name) else Scale.COUNT if is_count else Scale.SHARE
        assert (metric.name, metric.scale) == (metric.name, expected)
        assert re.fullmatch(r"[A-Z].{8,110}\.", metric.description), metric


def test_report_metrics_and_metrics_of_others():
    assert {name for name, info in REPORT_METRICS.items() if info.scale is Scale.RAW} == {
        *("bertscore", "bertscore_multimedeval", "medheval_bertscore", "chexbert"),
        *("radcliq_bleu", "radcliq_v0", "radcliq_v1", "radcliq_v1_multimedeval"),
    }
    assert undeclared("accuracy").scale is Scale.RAW
