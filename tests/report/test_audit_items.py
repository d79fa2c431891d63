"""What the audit shows of one question, family by family."""

import json
import random
from typing import Any

import pytest
from PIL import Image

from medtasks.data.document_store import load_documents
from medtasks.data.privacy import hidden_id
from medtasks.data.schema import CHOICE, CLASSIFICATION, MULTI_ANSWER, MULTILABEL, OPEN_QUESTION
from medtasks.families.family import NO_OPTION, ReadAnswer, Reply
from medtasks.report.collecting import collect_replies, collect_run
from medtasks.report.report_model import report_as_dict
from medtasks.runs.run import open_run
from medtasks.scores.audit_items import answer_for_log
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from ..tables import each_row, tables_of
from .harness_output import publish_own, texts, write_run, write_task

CANARY = "zyzzyva"


def task_of(folder, task_name, replies):
    write_run(folder, {task_name: replies})
    (task,) = collect_run(open_run(folder)).tasks
    return task


def items_of(folder, task_name, say):
    documents = task_documents(task_file(task_name))
    task = task_of(folder, task_name, texts({one["doc_id"]: say(one) for one in documents}))
    return {item.doc_id: item for item in task.items}


@pytest.fixture
def multimedeval(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))


def test_a_pair(sample, tmp_path):
    documents = load_documents("mediconfusion")
    items = items_of(tmp_path, "mediconfusion", lambda one: "A")
    first = items[documents[0]["doc_id"]]
    assert (first.unit, first.question, first.reply) == (
        documents[0]["pair_id"],
        documents[0]["question"],
        "A",
    )
    assert first.options == tuple(documents[0]["options"])
    assert (first.key, first.prompt) == (
        documents[0]["answer"],
        f"Asked: {documents[0]['question']}",
    )
    assert first.groups == {"categories": tuple(documents[0]["categories"])}
    for item in items.values():
        assert set(item.answers.values()) == {ReadAnswer("A", "ok", item.key == "A", None)}
    assert list(first.answers) == ["reference", "robust"]
    (task,) = collect_run(open_run(tmp_path)).tasks
    folder = sample / "datasets" / "mediconfusion"
    assert task.pictures == {one["image_file"]: folder / one["image_file"] for one in documents}
    assert first.images == (documents[0]["image_file"],)


@pytest.mark.usefixtures("multimedeval")
def test_classes_have_letters(tmp_path):
    items = items_of(tmp_path, "multimedeval_octmnist", lambda one: one["options"][1])
    for one in load_documents("multimedeval_octmnist"):
        item = items[one["doc_id"]]
        answer = item.answers["robust"]
        assert item.key == "ABCDEFGH"[one["label"]]
        assert (answer.value, answer.right) == ("B", one["label"] == 1)
        assert item.options[1] == one["options"][1]
    blank = items_of(
        tmp_path / "blank", "multimedeval_octmnist_blank", lambda one: one["options"][0]
    )
    assert {item.images for item in blank.values()} == {()}
    documents = {
        one["doc_id"]: one for one in task_documents(task_file("multimedeval_octmnist_rotated"))
    }
    rotated = items_of(
        tmp_path / "rotated", "multimedeval_octmnist_rotated", lambda one: one["options"][1]
    )
    assert len(rotated) == sum(
        len(one["options"]) for one in load_documents("multimedeval_octmnist")
    )
    for doc_id, item in rotated.items():  # letters as the model was shown them
        assert item.answers["robust"].value == "B"
        assert (
            item.answers["robust"].right
            == (item.key == "B")
            == (documents[doc_id]["label"] == 1)
        )
    assert {item.unit for item in rotated.values()} == {
        one["rotation_of"] for one in documents.values()
    }
    (one, *_) = load_documents("multimedeval_pubmedqa")
    item = items_of(tmp_path / "context", "multimedeval_pubmedqa", lambda _: "yes")[
        one["doc_id"]
    ]
    assert (item.question, item.images) == (f"{one['context']}\n\n{one['question']}", ())


@pytest.mark.usefixtures("multimedeval")
def test_findings_have_the_share_of_right_decisions(tmp_path):
    documents = load_documents("multimedeval_chestxray14")
    items = items_of(
        tmp_path,
        "multimedeval_chestxray14",
        lambda one: f"There is {one['options'][0].lower()}.",
    )
    assert len({item.key for item in items.values()}) > 1
    for one in documents:
        marked = [
            letter
            for letter, label in zip("ABCDEFGHIJKLMN", one["labels"], strict=False)
            if label
        ]
        assert items[one["doc_id"]].key == (", ".join(marked) or NO_OPTION)
        decisions = [1, *[0] * (len(one["labels"]) - 1)]
        right = sum(a == b for a, b in zip(decisions, one["labels"], strict=True)) / len(
            decisions
        )
        assert items[one["doc_id"]].answers["robust"] == ReadAnswer("A", "ok", None, right)


@pytest.mark.usefixtures("multimedeval")
def test_only_closed_questions_are_right_or_wrong(tmp_path):
    documents = load_documents("multimedeval_vqa_rad")
    items = items_of(tmp_path, "multimedeval_vqa_rad", lambda one: f"  {one['answer']}\n")
    closed = [one for one in documents if one["answer"].lower() in ("yes", "no")]
    assert 0 < len(closed) < len(documents)
    for one in documents:
        item = items[one["doc_id"]]
        answer = item.answers["reference"]
        assert (item.key, answer.value, item.reply) == (
            one["answer"],
            one["answer"],
            f"  {one['answer']}\n",
        )
        assert (answer.right, answer.score) == ((True, None) if one in closed else (None, 1.0))
        assert item.groups.get("question_type") == (
            (one["question_type"],) if one["question_type"] else None
        )


@pytest.mark.usefixtures("multimedeval")
def test_a_volume_is_no_picture(tmp_path, monkeypatch):
    documents = load_documents("multimedeval_ct_rate_report")
    assert documents[0]["image_files"]
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "multimedeval_ct_rate_report")
    replies = texts({one["doc_id"]: one["report"] for one in documents})
    task = task_of(tmp_path, "multimedeval_ct_rate_report", replies)
    assert (task.items[0].images, task.pictures) == ((), {})


# Datasets of one's own, with a task file each


def test_a_question_with_several_right_options_has_a_score(tmp_path):
    rows = [
        {
            "question": "Which?",
            "options": ["one", "two", "three"],
            "answers": ["A", "C"],
            "department": "Eyes",
        }
    ]
    publish_own("own_lists", MULTI_ANSWER, rows * 2)
    write_task("own_lists", "multi_answer", {"robust": "listed_options"})
    items = items_of(
        tmp_path, "own_lists", lambda one: "A, B" if one["doc_id"] == "d0" else "nothing at all"
    )
    assert (items["d0"].key, items["d0"].groups) == ("A, C", {"department": ("Eyes",)})
    assert items["d0"].answers["robust"] == ReadAnswer("A, B", "ok", None, 0.5)
    assert items["d1"].answers["robust"].value is None


def test_a_column_with_too_many_values_is_no_group(tmp_path):
    same = {"question": "?", "options": ["a", "b"], "answer": "A"}
    rows = [{**same, "subject": f"subject {n % 7}", "context": str(n)} for n in range(70)]
    many = [{**row, "subject": f"subject {n}"} for n, row in enumerate(rows)]
    for name, published, groups in (
        ("own_few", rows, {"subject": ("subject 3",)}),
        ("own_many", many, {}),
    ):
        publish_own(name, CHOICE, published)
        write_task(name, "choice", {"robust": "robust_choice"})
        assert items_of(tmp_path / name, name, lambda _: "A")["d3"].groups == groups


def test_an_image_with_an_absolute_path_is_shown_without_its_path(tmp_path):
    picture = tmp_path / "elsewhere" / "scan.png"
    picture.parent.mkdir()
    Image.new("L", (4, 4)).save(picture)
    row = {"question": "?", "options": ["a", "b"], "answer": "A"}
    publish_own(
        "own_absolute", CHOICE, [{**row, "image_files": [str(picture)], "image_sha256": ["0"]}]
    )
    write_task("own_absolute", "choice", {"robust": "robust_choice"})
    task = task_of(tmp_path / "run", "own_absolute", texts({"d0": "A"}))
    (key,) = task.items[0].images
    assert task.pictures == {key: picture}
    assert str(tmp_path) not in json.dumps(
        report_as_dict(collect_run(open_run(tmp_path / "run")))["tasks"][0]["items"]
    )
    picture.unlink()
    (task,) = collect_run(open_run(tmp_path / "run")).tasks
    assert task.pictures == {}


def test_scores_of_groups_have_intervals_of_their_own_units(tmp_path):
    same = {"options": ["a", "b"], "answer": "A"}
    rows = [
        {**same, "question": f"{n}?", "subject": "yx"[n < 6], "image_id": f"i{n // 2}"}
        for n in range(20)
    ]
    publish_own("own_groups", CHOICE, rows)
    write_task("own_groups", "choice", {"robust": "robust_choice"}, breakdown=["subject"])
    task = task_of(
        tmp_path,
        "own_groups",
        texts({f"d{n}": "A" if n < 6 or n % 3 else "B" for n in range(20)}),
    )
    y, x = task.rules[0].groups["subject"]
    assert (y.name, y.questions, x.name, x.questions) == ("y", 14, "x", 6)
    assert (x.scores[0].value, x.scores[0].error) == (1.0, 0.0)
    assert x.scores[0].low == pytest.approx(
        1 / (1 + 4.302653**2 / 3), abs=1e-6
    )  # of three images
    assert y.scores[0].low < y.scores[0].value < y.scores[0].high
    kinds = task.rules[0].wrong_kinds
    assert kinds == {
        "perception or knowledge, for a human to tell": sum(
            n >= 6 and n % 3 == 0 for n in range(20)
        )
    }


def test_scores_of_few_questions_have_intervals_of_their_own_units(tmp_path):
    rows = [
        {"question": f"{n}?", "answer": "yes" if n < 3 else f"word{n}", "image_id": f"i{n}"}
        for n in range(60)
    ]
    publish_own("own_open", OPEN_QUESTION, rows)
    write_task("own_open", "open_questions", {"robust": "robust_vqa"})

    task = task_of(
        tmp_path, "own_open", texts({f"d{n}": row["answer"] for n, row in enumerate(rows)})
    )
    low = {score.metric: score.low for score in task.rules[0].scores}
    assert low["closed_accuracy"] == pytest.approx(1 / (1 + 4.302653**2 / 3), abs=1e-6)
    assert low["open_accuracy"] > 0.9


def test_answers_that_a_judge_called_right(tmp_path, monkeypatch):
    rows = [{"question": f"{n}?", "answer": "a mass", "image_id": f"i{n}"} for n in range(4)]
    publish_own("own_judged", OPEN_QUESTION, rows)
    write_task("own_judged", "knowledge_hallucination", {"strict": "medheval_open_strict"})
    said = texts({"d0": "Assistant: a mass", "d1": "a cyst", "d2": "", "d3": "a scar"})
    row = {"knowledge_rate,strict": 0.5, "knowledge_rate_stderr,strict": 0.25}
    write_run(tmp_path, {"own_judged": said}, rows={"own_judged": row})
    samples = next(tmp_path.glob("*_samples_*"))
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    for line, verdict, reason in zip(
        lines, [1, 0, 0, None], ["ok", "ok", "empty", "judge_failed"], strict=True
    ):
        line["score"] |= {"correct": verdict, "reason": reason}
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(
        "medtasks.judges.judge_client._judge", lambda *_: pytest.fail("a judge was asked")
    )
    (task,) = collect_run(open_run(tmp_path)).tasks
    answers = [item.answers["strict"] for item in task.items]
    assert [one.value for one in answers] == ["a mass", "a cyst", None, "a scar"]
    assert [one.right for one in answers] == [True, False, False, None]
    assert task.rules[0].reasons == {"ok": 2, "empty": 1, "judge_failed": 1}
    rate = task.rules[0].scores[0]
    assert (rate.metric, rate.value, rate.error, rate.higher_is_better) == (
        "knowledge_rate",
        0.5,
        0.25,
        False,
    )
    assert task.items[0].reply == "Assistant: a mass"
    samples.write_text(
        samples.read_text().replace(
            '"rule": "medheval_open_strict"', '"rule": "of_another_version"', 2
        )
    )
    (task,) = collect_run(open_run(tmp_path)).tasks
    assert len(task.items) == 4


# Nothing of a credentialed record


def planted(columns, row):
    made = {
        name: f"{CANARY} {name} {row}"
        for name, kind in columns.items()
        if kind == "string" and name != "dataset"
    }
    options = [f"{CANARY} effusion {row // 9}", f"{CANARY} no effusion {row // 9}"]
    keys: dict[str, Any] = {"options": options, "label": row % 2, "labels": [1, row % 2]}
    answer = {"answer": "A"} if columns is CHOICE else {}
    return {
        **made,
        **{name: value for name, value in keys.items() if name in columns},
        **answer,
    }


@each_row(
    "name, columns, hook, rule, logged_in_clear",
    [
        ("secret_choice", CHOICE, "choice", "robust_choice", True),
        ("secret_open", OPEN_QUESTION, "open_questions", "robust_vqa", False),
        ("secret_class", CLASSIFICATION, "classification", "robust_class", True),
        ("secret_labels", MULTILABEL, "multilabel", "robust_labels", False),
    ],
)
def test_no_word_of_a_credentialed_record(
    name, columns, hook, rule, logged_in_clear, tmp_path, monkeypatch
):
    publish_own(name, columns, [planted(columns, row) for row in range(8)], "credentialed")
    write_task(name, hook, {"robust": rule}, breakdown=["subject"])
    documents = load_documents(name)
    draw = random.Random(1)
    said = texts(
        {
            one["doc_id"]: draw.choice(["A", "B", f"a reply on {CANARY}", "1", "yes"])
            for one in documents
        }
    )
    if logged_in_clear:  # by a user who allows it for the run, and not for the report
        monkeypatch.setenv("MEDTASKS_LOG_TEXT", name)
    write_run(tmp_path, {name: said})
    assert any(CANARY in path.read_text() for path in tmp_path.iterdir()) == logged_in_clear
    monkeypatch.delenv("MEDTASKS_LOG_TEXT", raising=False)
    for path in tmp_path.glob(
        "*_samples_secret_choice.jsonl"
    ):  # as of a family that logs the words it read
        path.write_text(path.read_text().replace('"value": "B"', f'"value": "{CANARY}"'))
    report = collect_run(open_run(tmp_path))
    (task,) = report.tasks
    assert CANARY not in repr(report)
    assert CANARY not in json.dumps(report_as_dict(report))
    assert (task.withheld, task.pictures) == (True, {})
    assert [item.doc_id for item in task.items] == [
        hidden_id("doc", one["doc_id"]) for one in documents
    ]
    texts_of_items = {
        (item.question, item.prompt, item.reply, item.key, item.options) for item in task.items
    }
    assert texts_of_items == {("", "", "", "", ())}
    assert (report.notes, sum(task.rules[0].reasons.values())) == ((), 8)
    if hook == "choice":
        right = [item.answers["robust"].right for item in task.items]
        score = next(one for one in task.rules[0].scores if one.metric == "accuracy")
        assert score.value == right.count(True) / 8
        assert {item.answers["robust"].value for item in task.items} == {"A", "", None}

    replies = tmp_path / "replies.jsonl"
    replies.write_text(
        "".join(
            json.dumps({"doc_id": one["doc_id"], "reply": CANARY}) + "\n" for one in documents
        )
    )
    again = collect_replies(name, [replies])
    assert CANARY not in repr(again)
    assert again.tasks[0].withheld


def test_the_user_may_ask_for_text_by_name(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "secret_choice")
    publish_own(
        "secret_choice", CHOICE, [planted(CHOICE, row) for row in range(4)], "credentialed"
    )
    write_task("secret_choice", "choice", {"robust": "robust_choice"})
    documents = load_documents("secret_choice")
    task = task_of(
        tmp_path, "secret_choice", texts({one["doc_id"]: f"A {CANARY}" for one in documents})
    )
    assert (task.withheld, task.items[0].doc_id, len(task.pictures)) == (
        False,
        documents[0]["doc_id"],
        4,
    )
    assert CANARY in task.items[0].question
    assert task.items[0].reply == f"A {CANARY}"
    monkeypatch.delenv("MEDTASKS_LOG_TEXT")
    write_run(
        tmp_path / "withheld",
        {"secret_choice": texts({one["doc_id"]: "A" for one in documents})},
    )
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "secret_choice")
    (task,) = collect_run(
        open_run(tmp_path / "withheld")
    ).tasks  # what a run withheld is not there later
    assert not task.withheld
    assert (task.items[0].reply, task.items[0].prompt) == ("", "")
    assert task.items[0].answers["robust"].value == "A"
    assert any("withheld" in sentence for sentence in task.missing)


# One answer


def test_only_letters_and_numbers_of_options_are_logged_anyway():
    for value in (None, "A", "A, C", "12", "none"):
        assert answer_for_log(ReadAnswer(value, "ok", right=True)).value == value
    for value in ("pneumonia", "AB", "A, mass", "2019-03-01", ""):
        assert answer_for_log(ReadAnswer(value, "ok", right=True)) == ReadAnswer(
            "", "ok", right=True
        )


@each_row("task, score, expected", tables_of(__file__)["what_is_right_or_wrong"])
def test_what_is_right_or_wrong(task, score, expected):
    assert task_file(task).family.describe(
        {"reason": "ok", **score}, Reply(), None
    ) == ReadAnswer(*expected)
