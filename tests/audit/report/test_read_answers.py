import pytest

from medtasks.audit.report.reading.audit_items import as_logged
from medtasks.families.family import ReadAnswer, Reply
from medtasks.harness.task_files import task_file


@pytest.mark.parametrize("value", [None, "A", "A, C", "12", "none"])
def test_letters_and_numbers_of_options_are_logged_anyway(value: str | None) -> None:
    answer = ReadAnswer(value, "ok", right=True)
    assert as_logged(answer) == answer


@pytest.mark.parametrize("value", ["pneumonia", "AB", "A, mass", "2019-03-01", ""])
def test_words_are_not_shown(value: str) -> None:
    assert as_logged(ReadAnswer(value, "ok", right=True)) == ReadAnswer("", "ok", right=True)


def test_a_question_without_a_score_of_its_own_is_neither_right_nor_wrong() -> None:
    describe = task_file("medheval_visual_mm").family.describe
    score = {"value": "A", "reason": "ok", "correct": 1.0, "counted": "scored"}
    assert describe(score, Reply(), None) == ReadAnswer("A", "ok", right=True)
    assert describe({**score, "correct": 0.0}, Reply(), None).right is False
    assert describe({**score, "counted": "averaged"}, Reply(), None).right is None


def test_a_reply_without_verdict_is_neither_right_nor_wrong() -> None:
    describe = task_file("gmai_mmbench_val_judged").family.describe
    score = {"target": "A", "reason": "judge_failed"}
    assert describe(score, Reply(), None) == ReadAnswer(None, "judge_failed", right=None)
    assert describe({**score, "value": None, "reason": "no_match"}, Reply(), None).right is False


def test_a_question_without_a_published_key() -> None:
    describe = task_file("gmai_mmbench_test").family.describe
    score = {"value": "B", "reason": "ok"}
    assert describe(score, Reply(), None) == ReadAnswer("B", "ok", right=None)


def test_findings_that_no_labeler_read() -> None:
    describe = task_file("multimedeval_mimic_cxr_classification").family.describe
    score = {"target": [1, 0], "value": None, "reason": "judge_failed"}
    assert describe(score, Reply(), None) == ReadAnswer(None, "judge_failed", right=None)
    assert describe({**score, "reason": "empty"}, Reply(), None).score == 0.0
    assert describe({**score, "value": [1, 1], "reason": "ok"}, Reply(), None).score == 0.5
