"""Scores, runs and comparisons from Python: the numbers of the commands, and the errors of a user."""

import io
import json
import math
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import medtasks
from medtasks.data.document_store import load_documents
from medtasks.data.schema import CHOICE
from medtasks.errors import MedTasksError, RepliesError, UnknownName, forget_warnings
from medtasks.families.choice import SingleChoice
from medtasks.report.collecting import collect_run
from medtasks.runs.logged_samples import make_logged_sample
from medtasks.runs.run import open_run
from medtasks.tasks.task_files import including

from .recorded_runs import medtasks as command
from .report.harness_output import STAMP, publish_own, texts, write_run, write_task
from .tables import each_row

TASK = "mediconfusion"
CANARY = "zyzzyva"


@pytest.fixture
def ids(sample: Path) -> list[str]:
    return [document["doc_id"] for document in load_documents(TASK)]


def values(scores: medtasks.Scores, metric: str) -> dict[str, float]:
    table = scores.table()
    return dict(table[table.metric == metric].set_index("row").value)


def test_the_import_loads_no_library():
    heavy = ("numpy", "pandas", "torch", "lmms_eval", "pydantic", "datasets")
    program = f"import sys, medtasks; print([name for name in {heavy} if name in sys.modules], dir(medtasks))"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.startswith("[] ")
    assert "'read_run'" in ran.stdout
    with pytest.raises(AttributeError, match="no attribute 'scored'"):
        medtasks.scored  # noqa: B018


def test_replies_are_parsed_without_a_task():
    read = medtasks.parse(
        "robust_choice", ["B", None, "The answer is A."], options=["liver", "spleen"]
    )
    assert read.value.tolist() == ["B", None, "A"]
    assert read.reason.tolist() == ["ok", "empty", "ok"]
    texts = {"question": ["Liegt ein Erguss vor?", "¿Se observa derrame?"], "answer": "nein"}
    statements = medtasks.parse("robust_vqa", ["Kein Erguss.", "Se observa derrame."], **texts)
    assert statements.value.tolist() == ["no", "yes"]
    assert medtasks.parse("robust_choice", []).empty
    with pytest.raises(
        RepliesError, match=r"there are 2 replies and 1 of 'options'; give one for each"
    ):
        medtasks.parse("robust_choice", ["A", "B"], options=[["liver", "spleen"]])


def test_scores_equal_those_of_the_command_whatever_holds_the_replies(ids, tmp_path):
    replies = ["A", "The answer is (B).", "none of them", ""] * (len(ids) // 4)
    by_id = dict(zip(ids, replies, strict=True))
    recorded = tmp_path / "replies.jsonl"
    recorded.write_text(
        "".join(
            f"{json.dumps({'doc_id': name, 'reply': text})}\n" for name, text in by_id.items()
        )
    )
    command("score", TASK, recorded, "--json", tmp_path / "scores.json")
    rules = json.loads((tmp_path / "scores.json").read_text())["rules"]
    first, frame = (
        medtasks.score(TASK, replies),
        pd.DataFrame({"doc_id": ids, "reply": replies}),
    )
    fields = pd.DataFrame(
        {"id": ids, "reply": [json.dumps({"answer": text}) for text in replies]}
    )
    for same in (by_id, pd.Series(by_id), frame.sample(frac=1, random_state=1)):
        assert medtasks.score(TASK, same).table().equals(first.table())
    assert medtasks.score(TASK, fields, answer_field="answer").table().equals(first.table())
    with pytest.raises(
        RepliesError, match=f"none of the {len(ids)} replies has a JSON field 'choice'"
    ):
        medtasks.score(TASK, fields, answer_field="choice")
    for name, rule in rules.items():
        table = first.table().set_index(["row", "metric"]).loc[name]
        for metric, error in rule["standard_errors"].items():
            total = rule["categories"]["total"][metric]
            expected = (
                math.nan if total is None else total,
                math.nan if error is None else error,
            )
            assert (table.value[metric], table.standard_error[metric]) == pytest.approx(
                expected, abs=0, nan_ok=True
            )
        assert (table.low.dropna() <= table.value[table.low.notna()]).all()
    samples = first.samples()
    assert set(samples.row) == set(rules)
    assert dict(samples.groupby("row").correct.mean()) == values(first, "individual_accuracy")


@each_row("nothing", [None, float("nan"), pd.NA])
def test_no_reply_is_a_failed_sample_and_no_wrong_answer(ids, nothing):
    scores = medtasks.score(TASK, {ids[0]: "A", ids[1]: nothing})
    assert (scores.answered, scores.questions) == (2, len(ids))
    assert set(values(scores, "failed_samples").values()) == {1}
    assert set(values(scores, "individual_accuracy").values()) == {1.0}
    failed = scores.samples().query("doc_id == @ids[1]")
    assert failed.correct.isna().all()
    assert failed.reply.isna().all()


@each_row(
    "replies, sentence",
    [
        (["A"], "questions, but 1 replies came; give a list with one reply per question"),
        ("A", "there is no file or folder A; give one, or a list with a text per question"),
        ({"x": "A"}, "the reply to 'x': no document 'x' in the prepared dataset"),
        (pd.DataFrame({"id": ["90001/1"]}), r"has no column \['doc_id', 'reply'\]"),
        (
            pd.DataFrame({"doc_id": ["90001/1"] * 2, "reply": ["A", "B"]}),
            "two different replies to '90001/1'",
        ),
        ({"90001/1": 3}, "the reply to '90001/1' is no text but int; give a text or None"),
        ({}, "there are no replies; give at least one"),
    ],
)
def test_replies_that_do_not_fit_are_one_sentence(sample, replies, sentence):
    with pytest.raises(RepliesError, match=sentence):
        medtasks.score(TASK, replies)


NUMBERED = """task: numbered
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
lmms_eval_specific_kwargs: {default: {template: "{{ question }} {{ options }}"}}
doc_to_text: !function medtasks.hooks.prompts.lettered
process_results: !function medtasks.hooks.choice.process_results
metric_list: !function medtasks.hooks.choice.METRIC_LIST
metadata: {version: 2}
"""


@pytest.fixture
def numbered(tmp_path):
    """A folder with a task whose ids are the numbers from 1 on; right are A, B, A and B."""
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "numbered.yaml").write_text(NUMBERED)
    write_questions(folder, [question(number) for number in range(1, 5)])
    return folder


def question(number, **changed):
    of_all = {
        "doc_id": number,
        "question": f"Is it {number}?",
        "options": ["no", "yes"],
        "answer": "BA"[number % 2],
    }
    return of_all | changed


def write_questions(folder, questions):
    (folder / "questions.jsonl").write_text(
        "".join(f"{json.dumps(one)}\n" for one in questions)
    )


def right_replies():
    """Right replies to the first three questions, which are wrong one row further on."""
    return {1: "A", 2: "B", 3: "A"}


@each_row(
    "replies",
    [
        right_replies(),
        {str(number): text for number, text in right_replies().items()},
        {float(number): text for number, text in right_replies().items()},
        pd.Series(right_replies()),
        pd.DataFrame({"doc_id": right_replies().keys(), "reply": right_replies().values()}),
        pd.DataFrame({"id": right_replies().keys(), "reply": right_replies().values()}),
        pd.DataFrame({"doc_id": ["001", "002", "003"], "reply": right_replies().values()}),
        pd.read_csv(io.StringIO("doc_id,reply\n1,A\n2,B\n3,A\n")),
    ],
)
def test_ids_that_are_numbers_are_no_rows(numbered, replies):
    scores = medtasks.score("numbered", replies, include_path=numbered)
    assert (values(scores, "accuracy"), scores.answered) == ({"none": 1.0}, 3)
    assert scores.samples().doc_id.tolist() == ["1", "2", "3"]


def test_rows_and_ids_are_not_mixed(numbered):
    with pytest.raises(
        RepliesError,
        match=r"the reply to '0': '0' is no id of the questions .* while '1' is an id",
    ):
        medtasks.score("numbered", pd.Series(["A", "B", "A", "B"]), include_path=numbered)


def test_samples_of_a_task_in_a_folder_and_a_short_description(numbered):
    scores = medtasks.score("numbered", iter("ABAA"), include_path=str(numbered))
    assert scores.samples().correct.tolist() == [True, True, True, False]
    assert repr(scores) == "Scores(task='numbered', answered=4, questions=4)"
    for wrong, came in (({"A", "B"}, "a set"), (None, "a NoneType"), (iter("AB"), "2 replies")):
        with pytest.raises(
            RepliesError, match=f"the task asks 4 questions, but {came} came; give a list"
        ):
            medtasks.score("numbered", wrong, include_path=numbered)


def test_each_reply_is_scored_once(numbered, monkeypatch):
    asked = []
    score = SingleChoice.score

    def counted(self, sample, reply, row):
        asked.append(sample.doc_id)
        return score(self, sample, reply, row)

    monkeypatch.setattr(SingleChoice, "score", counted)
    scores = medtasks.score("numbered", list("ABAB"), include_path=numbered)
    assert len(scores.table()) > 0
    assert len(scores.samples()) == 4
    assert asked == ["1", "2", "3", "4"]


def test_two_scores_compared(numbered):
    first, second = (
        medtasks.score("numbered", list(texts), include_path=numbered)
        for texts in ("ABAA", "BBAB")
    )
    tests = medtasks.compare(first, second, metrics="accuracy")
    assert tests[["task", "metric", "samples", "first", "second"]].values.tolist() == [
        ["numbered", "accuracy", 4, 0.75, 0.75]
    ]
    assert medtasks.compare(first, second).equals(tests)
    with pytest.raises(UnknownName, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        medtasks.compare(first, second, metrics="acuracy")
    with pytest.raises(RepliesError, match=r"different tasks \(numbered, mediconfusion\)"):
        medtasks.compare(first, second, task=TASK)
    with pytest.raises(RepliesError, match="can be compared with scores only"):
        medtasks.compare(first, numbered)
    write_questions(numbered, [question(number, answer="A") for number in range(1, 5)])
    changed = medtasks.score("numbered", list("ABAB"), include_path=numbered)
    with pytest.raises(RepliesError, match="the data of 'numbered' changed between"):
        medtasks.compare(first, changed)


def write_own_run(folder, texts, version=2):
    """Write what a run of ``numbered`` leaves, with the fingerprints of its samples."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for row, text in enumerate(texts):
        document = question(row + 1)
        score = {"sample": str(row + 1), "rule": "robust_choice"}
        lines.append(
            {
                "doc_id": row,
                "resps": [text],
                **dict.copy(make_logged_sample(document, [text], [], score)),
            }
        )
    (folder / "1_samples_numbered.jsonl").write_text(
        "".join(f"{json.dumps(line)}\n" for line in lines)
    )
    results = {
        "results": {"numbered": {"accuracy,none": 0.25}},
        "config": {"model": "m", "model_args": ""},
    }
    results |= {
        "versions": {"numbered": version},
        "n-samples": {"numbered": {"original": 4, "effective": 4}},
    }
    (folder / "1_results.json").write_text(json.dumps(results))
    return folder


def test_samples_that_changed_since_the_run_are_in_no_number(numbered, tmp_path, warnings):
    forget_warnings()
    warnings.clear()
    runs = [
        write_own_run(tmp_path / name, texts)
        for name, texts in (("one", "ABAB"), ("two", "ABAA"))
    ]
    run = medtasks.read_run(runs[0], include_path=numbered)
    assert run.samples().correct.tolist() == [True] * 4
    assert warnings == []
    write_questions(
        numbered,
        [
            question(0),
            question(1),
            question(2, options=["yes", "no"]),
            question(3),
            question(4),
        ],
    )
    samples = run.samples()
    assert samples.doc_id.tolist() == ["1", "3", "4"]
    table = run.table().set_index("metric").value
    assert (table["accuracy"], table["scored_samples"]) == (1.0, 3)
    assert medtasks.compare(*runs, include_path=numbered, metrics="accuracy")[
        "second"
    ].tolist() == [2 / 3]
    with including([numbered]):
        (section,) = collect_run(open_run(runs[0])).tasks
    assert section.missing[1].startswith("1 of 4 samples in ")
    assert {score.metric: score.value for score in section.rules[0].scores}["accuracy"] == 1.0
    for folder in runs:
        beginning = f"1 of 4 samples in {folder / '1_samples_numbered.jsonl'} are in no score, because they"
        assert [
            line for line in warnings if line.startswith(beginning) and "'2' (options)" in line
        ]


def test_runs_of_different_versions_are_not_compared(numbered, tmp_path):
    runs = [write_own_run(tmp_path / str(version), "ABAB", version) for version in (1, 6)]
    for task in (None, "numbered"):
        with pytest.raises(
            RepliesError, match=r"different versions of the task \(1 in first, 6 in second\)"
        ):
            medtasks.compare(*runs, task=task, include_path=numbered)
    with pytest.raises(UnknownName, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        medtasks.compare(runs[0], runs[0], metrics="acuracy", include_path=numbered)


def test_a_run_gives_its_recorded_scores_and_samples(ids, tmp_path):
    write_run(tmp_path, {TASK: texts(dict.fromkeys(ids, "A"))})
    run = medtasks.read_run(
        tmp_path, include_path=str(tmp_path)
    )  # one folder need not be a list
    assert run.tasks == (TASK,)
    (results,) = tmp_path.glob("*_results.json")
    recorded = json.loads(results.read_text())["results"][TASK]
    table = run.table().set_index(["metric", "row"]).value
    scores = {
        key: value for key, value in recorded.items() if ",r" in key and "_stderr" not in key
    }
    assert scores
    for key, value in scores.items():
        assert table[tuple(key.split(","))] == value
    samples = run.samples(TASK)
    assert list(samples[samples.row == "robust"].doc_id) == ids
    assert set(samples.reply) == {"A"}
    assert all(Path(image).is_file() for images in samples.images for image in images)
    again = medtasks.score(TASK, samples).table()
    assert (
        again.set_index(["metric", "row"]).value["set_accuracy", "robust"]
        == table["set_accuracy", "robust"]
    )
    with pytest.raises(UnknownName, match="mediconfusion"):
        run.samples("mediconfusoin")
    with pytest.raises(MedTasksError, match="there is no folder"):
        medtasks.read_run(tmp_path / "nowhere")


def test_two_runs_compared_as_the_command_compares_them(ids, tmp_path):
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, replies in zip(folders, ("A", "ABA"), strict=True):
        folder.mkdir()
        write_run(
            folder,
            {TASK: texts({name: replies[n % len(replies)] for n, name in enumerate(ids)})},
        )
    command("compare", *folders, "--json", tmp_path / "compared.json")
    expected = json.loads((tmp_path / "compared.json").read_text())["tasks"][TASK][
        "comparisons"
    ]
    runs = [medtasks.read_run(folder) for folder in folders]
    for pair in (folders, runs):
        tests = medtasks.compare(*pair).to_dict("records")
        for test, printed in zip(tests, expected, strict=True):
            assert (test["row"], test["metric"]) == (printed["rule"], printed["metric"])
            for key in ("difference", "p", "p_holm", "samples", "units"):
                assert test[key] == printed[key]
    assert set(medtasks.compare(*runs, task=TASK, metrics=["set_accuracy"]).metric) == {
        "set_accuracy"
    }


def test_a_comparison_warns_of_copies_and_of_tasks_that_it_leaves_out(ids, tmp_path, warnings):
    for name in "ab":
        (tmp_path / name).mkdir()
        write_run(tmp_path / name, {TASK: texts(dict.fromkeys(ids, "A"))})
        (tmp_path / name / f"{STAMP}_samples_mme.jsonl").write_text(
            '{"doc_id": 0, "resps": ["yes"]}\n'
        )
    (samples,) = (tmp_path / "b").glob(f"*_samples_{TASK}.jsonl")
    samples.write_text(
        samples.read_text().replace(
            '{"doc_id": 0,', '{"reply_of": "an earlier run", "doc_id": 0,'
        )
    )
    assert set(medtasks.compare(tmp_path / "a", tmp_path / "b").task) == {TASK}
    assert f"{TASK}, second: 1 of 32 replies are copies of an earlier run." in warnings
    assert (
        "Not compared: mme: is no task of medtasks, so that its samples cannot be scored one by one"
        in warnings
    )


def test_no_text_of_credentialed_data_is_in_a_frame_unless_allowed(tmp_path, monkeypatch):
    rows = [
        {"question": f"{CANARY} {row}", "options": [CANARY, "no"], "answer": "A"}
        for row in range(4)
    ]
    publish_own("secret_choice", CHOICE, rows, "credentialed")
    write_task("secret_choice", "choice", {"robust": "robust_choice"})
    scores = medtasks.score("secret_choice", ["A", f"B {CANARY}", CANARY, "B"])
    samples = scores.samples()
    assert CANARY not in samples.to_json()
    assert "d0" not in set(samples.doc_id)
    assert samples.correct.tolist()[0] is True
    write_run(
        tmp_path, {"secret_choice": texts({f"d{row}": f"A {CANARY}" for row in range(4)})}
    )
    assert CANARY not in medtasks.read_run(tmp_path).samples().to_json()
    monkeypatch.setenv("MEDTASKS_LOG_TEXT", "secret_choice")
    assert CANARY in medtasks.score("secret_choice", ["A"] * 4).samples().to_json()
