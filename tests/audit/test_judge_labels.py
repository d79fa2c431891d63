"""Sheets of judged replies for people, and what their labels make of a judge and its score, for every judged family."""

import csv
import math

import pytest

from medtasks.audit.judge_labels import checked_scores, read_labels, write_sheet
from medtasks.errors import MedTasksError, RepliesError, UnknownName
from medtasks.families import choice, free_texts, kit_questions, paired_choice
from medtasks.families.family import Reply
from medtasks.judges.judge_client import JudgeSettings, JudgeVerdict
from medtasks.tasks.task_files import task_file

NUMBER = 40
ASKED = "reply {}"


class Judge:
    """A judge that reads the numbers of replies: it calls the first 30 of 40 right, and fails for the last."""

    settings = JudgeSettings("http://127.0.0.1:9/v1", "m")

    def __init__(self, right, wrong):
        self.texts = {True: right, False: wrong}

    def ask(self, system, user, parse, *, prompt_version):
        number = next(number for number in reversed(range(NUMBER)) if ASKED.format(number) in user)
        text = self.texts[number < 30]
        return JudgeVerdict(None if number == NUMBER - 1 else parse(text), None, False, text)


JUDGED = {  # task, module that asks, how, what the judge says of right and wrong replies, and the first row's score
    "medheval_knowledge_open": (free_texts, "scoring_judge", '{"model_1": 1}', '{"model_1": 0}', "knowledge_rate"),
    "gmai_mmbench_val_judged": (choice, "judge_for", "A", "B", "accuracy"),
    "mediconfusion_ff": (paired_choice, "judge_for", "A: 9\nB: 1\nSo", "A: 1\nB: 9\nSo", "individual_accuracy"),
    "medevalkit_vqa_rad_judged": (kit_questions, "judge_for", "<judge>0</judge>", "<judge>1</judge>", "accuracy"),
}


def document(number):
    return {
        "doc_id": f"{number:02}",
        "dataset": "own",
        "image_id": f"image {number // 2}",
        "pair_id": str(number // 2),
        "position": number % 2 + 1,
        "categories": [],
        "question": "What is this?",
        "options": ["mass", "fluid"],
        "answer": "A",
        "granularity": "Box Level",
        "hint": None,
    }


DOCUMENTS = [document(number) for number in range(NUMBER)]
REPLIES = {one["doc_id"]: Reply(text=ASKED.format(number)) for number, one in enumerate(DOCUMENTS)}


@pytest.fixture
def asked(monkeypatch):
    def of(name):
        module, function, right, wrong, _ = JUDGED[name]
        monkeypatch.setattr(module, function, lambda *_: Judge(right, wrong))
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", "own,medheval_knowledge_open")
        return task_file(name)

    return of


def filled(path, say):
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row in rows:
        row["right"] = say(row)
    with path.open("w", newline="") as stream:
        table = csv.DictWriter(stream, rows[0])
        table.writeheader()
        table.writerows(rows)
    return rows


def truth(row):
    """People call replies 3 to 32 right: the judge is wrong about 0, 1, 2, 30, 31 and 32."""
    return "yes" if 3 <= int(row["doc_id"]) <= 32 else "No"


@pytest.mark.parametrize("name", JUDGED)
def test_every_judged_family_is_checked(asked, tmp_path, name):
    task, sheet = asked(name), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, DOCUMENTS, REPLIES, 100, None) == (30, 9)
    rows = filled(sheet, truth)
    assert {float(row["weight"]) for row in rows} == {1.0}
    assert {row["reply"] for row in rows} == {reply.text for reply in list(REPLIES.values())[:-1]}
    checked = checked_scores(task, DOCUMENTS, REPLIES, read_labels(sheet))
    found = next(iter(checked.values()))
    inverted = found.metric == "knowledge_rate"
    assert found.metric == JUDGED[name][-1]
    assert found.judge.labels == 39  # one was not judged
    assert found.judged == pytest.approx(9 / 39 if inverted else 30 / 39)
    assert found.judge.sensitivity.value == pytest.approx(27 / 30)
    assert found.judge.specificity.value == pytest.approx(6 / 9)
    share = found.judge.corrected
    assert share.value == pytest.approx(9 / 39 if inverted else 30 / 39)
    assert share.low < share.value < share.high


def test_half_of_each_verdict_is_drawn_with_its_weight(asked, tmp_path):
    task, sheet = asked("medheval_knowledge_open"), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, DOCUMENTS, REPLIES, 10, None) == (5, 5)
    rows = filled(sheet, truth)
    weights = (
        {float(row["weight"]) for row in rows if int(row["doc_id"]) < 30},
        {float(row["weight"]) for row in rows if int(row["doc_id"]) >= 30},
    )
    assert weights == ({30 / 5}, {9 / 5})
    assert [row["doc_id"] for row in rows] != sorted(row["doc_id"] for row in rows)  # the order tells nothing
    write_sheet(tmp_path / "again.csv", task, DOCUMENTS, REPLIES, 10, None)
    assert [row["doc_id"] for row in filled(tmp_path / "again.csv", truth)] == [row["doc_id"] for row in rows]
    (found, *_) = checked_scores(task, DOCUMENTS, REPLIES, read_labels(sheet)).values()
    said = [[truth(row) == "yes" for row in rows if (int(row["doc_id"]) < 30) == verdict] for verdict in (True, False)]
    right = (30 * sum(said[0]) / 5 + 9 * sum(said[1]) / 5) / 39
    assert found.judge.corrected.value == pytest.approx(1 - right)
    assert write_sheet(tmp_path / "most.csv", task, DOCUMENTS, REPLIES, 30, None) == (21, 9)


def test_sheets_as_other_programs_save_them(asked, tmp_path):
    task, sheet = asked("mediconfusion_ff"), tmp_path / "sheet.csv"
    odd = {name: Reply(text=f'={reply.text};\u2028"a", b\r\n') for name, reply in REPLIES.items()}
    write_sheet(sheet, task, DOCUMENTS, odd, 10, "fenced")
    filled(sheet, truth)
    assert next(iter(checked_scores(task, DOCUMENTS, odd, read_labels(sheet)).values())).judge.labels == 10
    write_sheet(tmp_path / "plain.csv", task, DOCUMENTS, REPLIES, 10, "fenced")
    sheet = tmp_path / "plain.csv"
    filled(sheet, truth)
    text = sheet.read_text().replace(",", ";").replace(".0;", ",0;").replace(".8;", ",8;")
    (tmp_path / "other.csv").write_text(text, encoding="utf-8-sig")
    assert read_labels(tmp_path / "other.csv") == read_labels(sheet)


def test_what_cannot_be_read_or_used_is_said(asked, tmp_path, monkeypatch):
    task, sheet = asked("mediconfusion_ff"), tmp_path / "sheet.csv"
    write_sheet(sheet, task, DOCUMENTS, REPLIES, 10, None)
    with pytest.raises(RepliesError, match="exists, and may hold labels"):
        write_sheet(sheet, task, DOCUMENTS, REPLIES, 10, None)
    with pytest.raises(RepliesError, match="no reply of this run has a label; 10 of 10 lines"):
        checked_scores(task, DOCUMENTS, REPLIES, read_labels(sheet))
    filled(sheet, truth)
    others = {name: Reply(text=f"{reply.text}!") for name, reply in REPLIES.items()}
    with pytest.raises(RepliesError, match="0 of 10 lines are of its replies"):
        checked_scores(task, DOCUMENTS, others, read_labels(sheet))
    filled(sheet, lambda row: "perhaps")
    with pytest.raises(RepliesError, match="line 2: 'perhaps' under 'right' is neither yes nor no"):
        read_labels(sheet)
    (tmp_path / "bad.csv").write_text("doc_id,right\n1,yes\n")
    with pytest.raises(RepliesError, match="lacks the columns digest, weight"):
        read_labels(tmp_path / "bad.csv")
    with pytest.raises(RepliesError, match="cannot read labels"):
        read_labels(tmp_path / "none.csv")
    with pytest.raises(UnknownName, match="unknown rule 'robust'"):
        write_sheet(tmp_path / "more.csv", task, DOCUMENTS, REPLIES, 10, "robust")
    with pytest.raises(RepliesError, match="no score of 'mediconfusion' is the share of replies that a judge"):
        write_sheet(tmp_path / "more.csv", task_file("mediconfusion"), DOCUMENTS, REPLIES, 10, None)
    task = asked("medheval_knowledge_open")
    write_sheet(tmp_path / "half.csv", task, DOCUMENTS, REPLIES, 10, None)
    filled(tmp_path / "half.csv", lambda row: truth(row) if int(row["doc_id"]) < 30 else "")
    (found, *_) = checked_scores(task, DOCUMENTS, REPLIES, read_labels(tmp_path / "half.csv")).values()
    assert (found.judge.labels, math.isnan(found.judge.corrected.value)) == (5, True)
    monkeypatch.delenv("MEDTASKS_LOG_TEXT")
    with pytest.raises(MedTasksError, match="'medheval_knowledge_open,own' is credentialed, and a sheet of judged"):
        write_sheet(tmp_path / "sheet2.csv", task, DOCUMENTS, REPLIES, 10, None)
