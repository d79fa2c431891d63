import math

import pytest

from medtasks.audit.report.reading.recorded import score
from medtasks.harness.task_files import task_file, task_files
from medtasks.metrics.metric import Estimate


@pytest.mark.parametrize(
    ("metric", "value", "share"),
    [
        ("accuracy", 0.5, True),
        ("accuracy", 1.0, True),
        ("accuracy", math.nan, True),
        ("incomplete_pairs", 0, False),
        ("hallucination_score", 0.5, False),
        ("radcliq_v1", 0.9, False),
        ("bertscore_f1", 0.9, False),
        ("a_users_own_metric", 17.5, False),
        ("a_users_own_metric", -0.5, False),
    ],
)
def test_what_is_a_share(metric: str, value: float, share: bool) -> None:
    found = score(metric, Estimate(value), higher_is_better=True)
    assert (found.share, found.metric) == (share, metric)


def test_a_score_that_is_no_share_may_leave_its_interval() -> None:
    found = score("radcliq_v1", Estimate(0.1, 0.2), higher_is_better=False)
    assert found.low < 0 < found.high
    assert not found.higher_is_better


def test_what_asks_a_judge_or_a_model_is_not_computed() -> None:
    computed = {name for name, task in task_files().items() if task.has_family and task.is_computed}
    assert {"mediconfusion", "mediconfusion_gd", "gmai_mmbench_val", "multimedeval_chestxray14"} <= computed
    for name in (
        "mediconfusion_ff",
        "mediconfusion_all",
        "gmai_mmbench_val_judged",
        "gmai_mmbench_test",  # its metric writes a file
        "multimedeval_mimic_cxr_classification",
        "multimedeval_mimic_cxr_report",
        "medheval_knowledge_open",
        "medheval_visual_report",
        "iu_xray_report",
    ):
        assert name not in computed
    assert task_file("gmai_mmbench_val_judged").family.scores_suffice
    assert task_file("mediconfusion_rotated").is_computed
