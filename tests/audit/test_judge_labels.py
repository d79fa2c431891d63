"""Sheets of judged replies for people, and what their labels make of a judge and its score, for every judged family."""

import math

import pandas as pd
import pytest

from medtasks.audit.judge_labels import checked_scores, read_labels, write_sheet
from medtasks.errors import MedTasksError
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
    "medheval_knowledge_open": (free_texts, "judge_if_there", '{"model_1": 1}', '{"model_1": 0}', "knowledge_rate"),
    "gmai_mmbench_val_judged": (choice, "judge_for", "A", "B", "accuracy"),
    "mediconfusion_ff": (paired_choice, "judge_for", "A: 9\nB: 1\nSo", "A: 1\nB: 9\nSo", "individual_accuracy"),
    "medevalkit_vqa_rad_judged": (kit_questions, "judge_for", "<judge>0</judge>", "<judge>1</judge>", "accuracy"),
}


DOCUMENTS = [
    {
        "doc_id": f"{number:02}",
        "image_id": f"image {number // 2}",
        "pair_id": str(number // 2),
        "position": number % 2 + 1,
        "dataset": "own",
        "categories": [],
        "granularity": "Box Level",
        "hint": None,
        "question": "What is this?",
        "options": ["mass", "fluid"],
        "answer": "A",
    }
    for number in range(NUMBER)
]
REPLIES = {item["doc_id"]: Reply(text=ASKED.format(number)) for number, item in enumerate(DOCUMENTS)}


@pytest.fixture
def asked(monkeypatch):
    def of(name):
        module, function, right, wrong, _ = JUDGED[name]
        monkeypatch.setattr(module, function, lambda *_: Judge(right, wrong))
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", "own,medheval_knowledge_open")
        return task_file(name)

    return of


def filled(path, answer):
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    table["right"] = [answer(row) for row in table.to_dict("records")]
    table.to_csv(path, index=False)
    return table.to_dict("records")


def truth(row):
    """People call replies 3 to 32 right: the judge is wrong about 0, 1, 2, 30, 31 and 32."""
    return "yes" if 3 <= int(row["doc_id"]) <= 32 else "No"


def first_score(task, sheet, replies=REPLIES):
    return next(iter(checked_scores(task, DOCUMENTS, replies, read_labels(sheet)).values()))


@pytest.mark.parametrize("name", JUDGED)
def test_every_judged_family_is_checked(asked, tmp_path, name):
    task, sheet = asked(name), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, DOCUMENTS, REPLIES, 100, None) == (30, 9)
    rows = filled(sheet, truth)
    assert {float(row["weight"]) for row in rows} == {1.0}
    assert {row["reply"] for row in rows} == {reply.text for reply in list(REPLIES.values())[:-1]}
    score = first_score(task, sheet)
    expected = pytest.approx(9 / 39 if score.metric == "knowledge_rate" else 30 / 39)
    assert score.metric == JUDGED[name][-1]
    assert score.judge.labels == 39  # one was not judged
    assert (score.judged, score.judge.corrected.value) == (expected, expected)
    assert score.judge.sensitivity.value == pytest.approx(27 / 30)
    assert score.judge.specificity.value == pytest.approx(6 / 9)
    assert score.judge.corrected.low < score.judge.corrected.value < score.judge.corrected.high


def test_half_of_each_verdict_is_drawn_with_its_weight(asked, tmp_path):
    task, sheet = asked("medheval_knowledge_open"), tmp_path / "sheet.csv"
    assert write_sheet(sheet, task, DOCUMENTS, REPLIES, 10, None) == (5, 5)
    rows = filled(sheet, truth)
    assert {(int(row["doc_id"]) < 30, float(row["weight"])) for row in rows} == {(True, 30 / 5), (False, 9 / 5)}
    assert [row["doc_id"] for row in rows] != sorted(row["doc_id"] for row in rows)  # the order tells nothing
    write_sheet(tmp_path / "again.csv", task, DOCUMENTS, REPLIES, 10, None)
    assert filled(tmp_path / "again.csv", truth) == rows
    right = sum(float(row["weight"]) for row in rows if truth(row) == "yes") / 39
    assert first_score(task, sheet).judge.corrected.value == pytest.approx(1 - right)
    assert write_sheet(tmp_path / "most.csv", task, DOCUMENTS, REPLIES, 30, None) == (21, 9)
    # Sheets as other programs save them.
    task, sheet, plain = asked("mediconfusion_ff"), tmp_path / "odd.csv", tmp_path / "plain.csv"
    odd = {name: Reply(text=f'={reply.text};\u2028"a", b\r\n') for name, reply in REPLIES.items()}
    write_sheet(sheet, task, DOCUMENTS, odd, 10, "fenced")
    filled(sheet, truth)
    assert first_score(task, sheet, odd).judge.labels == 10
    write_sheet(plain, task, DOCUMENTS, REPLIES, 10, "fenced")
    filled(plain, truth)
    text = plain.read_text().replace(",", ";").replace(".0;", ",0;").replace(".8;", ",8;")
    (tmp_path / "other.csv").write_text(text, encoding="utf-8-sig")
    assert read_labels(tmp_path / "other.csv") == read_labels(plain)


def test_what_cannot_be_read_or_used_is_said(asked, tmp_path, monkeypatch):
    def refuse(sentence, call, *arguments):
        with pytest.raises(MedTasksError, match=sentence):
            call(*arguments)

    def sheet_of(task, name="more.csv", rule=None):
        write_sheet(tmp_path / name, task, DOCUMENTS, REPLIES, 10, rule)
        return tmp_path / name

    task = asked("mediconfusion_ff")
    sheet = sheet_of(task, "sheet.csv")
    refuse("exists, and may hold labels", sheet_of, task, "sheet.csv")
    refuse("no reply of this run has a label; 10 of 10 lines", first_score, task, sheet)
    filled(sheet, truth)
    others = {name: Reply(text=f"{reply.text}!") for name, reply in REPLIES.items()}
    refuse("0 of 10 lines are of its replies", first_score, task, sheet, others)
    filled(sheet, lambda row: "perhaps")
    refuse("line 2: 'perhaps' under 'right' is neither yes nor no", read_labels, sheet)
    (tmp_path / "bad.csv").write_text("doc_id,right\n1,yes\n")
    refuse("lacks the columns digest, weight", read_labels, tmp_path / "bad.csv")
    refuse("cannot read labels", read_labels, tmp_path / "none.csv")
    refuse("unknown rule 'robust'", sheet_of, task, "more.csv", "robust")
    refuse("no score of 'mediconfusion' is the share of replies that a judge", sheet_of, task_file("mediconfusion"))
    task = asked("medheval_knowledge_open")
    filled(sheet_of(task), lambda row: truth(row) if int(row["doc_id"]) < 30 else "")
    judge = first_score(task, tmp_path / "more.csv").judge
    assert (judge.labels, math.isnan(judge.corrected.value)) == (5, True)
    monkeypatch.delenv("MEDTASKS_LOG_TEXT")
    private = "'medheval_knowledge_open,own' is credentialed, and a sheet of judged"
    refuse(private, sheet_of, task, "sheet2.csv")
