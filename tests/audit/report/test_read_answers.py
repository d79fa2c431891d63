import pytest
from medtasks.audit.report.reading.read_answers import as_logged, reader_of

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
    read = reader_of(task_file("medheval_visual_mm"))
    record = {"value": "A", "reason": "ok", "correct": 1.0, "counted": "scored"}
    assert read(record, Reply(), None) == ReadAnswer("A", "ok", right=True)
    assert read({**record, "correct": 0.0}, Reply(), None).right is False
    assert read({**record, "counted": "averaged"}, Reply(), None).right is None


def test_a_reply_without_verdict_is_neither_right_nor_wrong() -> None:
    read = reader_of(task_file("gmai_mmbench_val_judged"))
    record = {"key": "A", "reason": "judge_failed"}
    assert read(record, Reply(), None) == ReadAnswer(None, "judge_failed", right=None)
    assert read({**record, "value": None, "reason": "no_match"}, Reply(), None).right is False


def test_a_question_without_a_published_key() -> None:
    read = reader_of(task_file("gmai_mmbench_test"))
    record = {"value": "B", "reason": "ok"}
    assert read(record, Reply(), None) == ReadAnswer("B", "ok", right=None)


def test_findings_that_no_labeler_read() -> None:
    read = reader_of(task_file("multimedeval_mimic_cxr_classification"))
    record = {"key": [1, 0], "value": None, "reason": "judge_failed"}
    assert read(record, Reply(), None) == ReadAnswer(None, "judge_failed", right=None)
    assert read({**record, "reason": "empty"}, Reply(), None).score == 0.0
    assert read({**record, "value": [1, 1], "reason": "ok"}, Reply(), None).score == 0.5
