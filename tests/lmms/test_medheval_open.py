"""Whole runs of MedHEval's open tasks against a judge on loopback that behaves, and one that does not."""

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing

import pytest

from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.errors import JudgeRefused
from medtasks.judges import judge_client
from medtasks.judges.medheval_judges import ASPECTS
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolve_names

from .. import medheval_sources as sources
from ..processes import run_here
from ..scripted_server import Endpoint, serving
from .test_canary import CANARY, execute, write_echo
from .whole_runs import answering, evaluate

pytestmark = pytest.mark.slow

REPORT, KNOWLEDGE = "medheval_visual_report", "medheval_knowledge_open"
ROWS = 6
BROKEN = {
    1: "quotes",
    2: "empty object",
    3: "best score of another",
    4: "too much",
    5: "no answer",
}  # by row


class Judge(Endpoint):
    """Calls every answer right and free of hallucination but for row 0, unless it misbehaves."""

    def __init__(self):
        super().__init__(self._answer)
        self.broken: Mapping[int, str] = {}

    def variables(self):
        values = {"BASE_URL": self.url, "MODEL": "m", "REASKS": "0", "ATTEMPTS": "1"}
        return {f"MEDTASKS_JUDGE_{name}": value for name, value in values.items()}

    def _answer(self, body):
        system, user = (message["content"] for message in body["messages"])
        row = next(row for row in range(ROWS) if f"row {row}." in user)
        if "range[0, 5]" in system:
            verdict = 5 if row == 0 else 0
        elif "binary output" in system:
            verdict = int(row != 0)
        else:
            heart = {"recall_number": 1, "wrong_number": 3 if row == 0 else 0}
            nothing = {"recall_number": 0, "wrong_number": 0}
            verdict = {"anatomy": heart, "symptom": heart, "measurement": nothing}
        texts = {
            "quotes": user,
            "empty object": "{}",
            "best score of another": '{"model_2": 0}',
            "too much": json.dumps({"model_1": verdict, "model_2": 0}),
        }
        behaviour = self.broken.get(row, "")
        good = json.dumps({"model_1": verdict})
        return (
            self.reset() if behaviour == "no answer" else self.reply(texts.get(behaviour, good))
        )


@pytest.fixture
def judge():
    judge_client._judge.cache_clear()
    with serving(Judge()) as server:
        yield server


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Both open sets as prepared from files in the published form, with the canary in all their texts."""
    folder = tmp_path_factory.mktemp("medheval_open")
    clone = folder / "MedHEval"
    records = {
        REPORT: [
            sources._report(
                row,
                1 + row // 2,
                f"{CANARY} report row {row}.",
                anatomy=[f"{CANARY} row {row}."],
            )
            for row in range(ROWS)
        ],
        KNOWLEDGE: [
            sources._knowledge(
                row, 1 + row // 2, f"{CANARY} question row {row}.", f"{CANARY} key row {row}."
            )
            for row in range(ROWS)
        ],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        for name, rows in records.items():
            sources.write_records(clone, name, rows)
            for record in rows:
                sources.draw(clone / "images", record["img_name"])
            prepare(name, Options(clone, allow_changed=True))
    write_echo(folder / "package")
    return folder


@pytest.fixture
def home(planted, tmp_path, monkeypatch):
    """A data folder of this test with the planted documents."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "datasets").symlink_to(planted / "home" / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    return folder


@pytest.fixture
def parrot():
    """Answers with the key, and remembers what it was asked."""
    return answering(lambda doc: f"Assistant: {doc['report' if 'report' in doc else 'answer']}")


def values(results, task, rule="strict"):
    names = [entry["metric"] for entry in resolve_names(task_config(task)["metric_list"])]
    return {name: results["results"][task][f"{name},{rule}"] for name in names}


def written(folder, task):
    (file,) = folder.rglob("*_results.json")
    return values(json.loads(file.read_text()), task)


def test_a_judge_that_behaves_is_asked_once(home, parrot, judge, monkeypatch):
    for name, value in judge.variables().items():
        monkeypatch.setenv(name, value)
    results = evaluate([REPORT, KNOWLEDGE, f"{KNOWLEDGE}_eleven"], parrot)
    report, knowledge = values(results, REPORT), values(results, KNOWLEDGE)
    assert (report["chair_judge_anatomy"], report["mentions_anatomy"]) == (3 / 9, 9)
    assert math.isnan(report["chair_judge_measurement"])
    assert knowledge["knowledge_rate"] == pytest.approx(1 / 6)
    assert knowledge["hallucination_score"] == pytest.approx(5 / 6)
    assert (report["judge_failed_rate"], knowledge["judge_failed_rate"]) == (0, 0)
    assert knowledge["stemmed_rouge_1"] == 1  # "Assistant:" is not part of the answer
    # Two rules, for which the label "Assistant:" makes two replies, and one of them between marks, too; three judges.
    # With eleven grades the prompt of two of them is another question.
    assert judge.count == 3 * 3 * ROWS + 3 * 2 * ROWS


@pytest.fixture
def misjudged(judge, home, planted, tmp_path):
    """Run both open tasks with a judge that misbehaves on all rows but the first; return the process and its output."""
    judge.broken = BROKEN
    line = ["lmms_eval", "--model", "echo", "--tasks", f"{REPORT},{KNOWLEDGE}"]
    line += ["--output_path", str(tmp_path / "out1"), "--log_samples", "--batch_size", "1"]
    line += ["--verbosity", "DEBUG"]
    ran = execute(line, planted, tmp_path, MEDTASKS_HOME=str(home), **judge.variables())
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran, tmp_path / "out1"


def test_a_judge_that_misbehaves_invents_nothing(misjudged):
    _, out = misjudged
    report, knowledge = written(out, REPORT), written(out, KNOWLEDGE)
    assert report["judge_failed_rate"] == knowledge["judge_failed_rate"] == len(BROKEN) / ROWS
    # Only row 0 got a verdict, and it is the worst one.
    assert (report["chair_judge_symptom"], report["mentions_symptom"]) == (3 / 4, 4)
    assert (knowledge["knowledge_rate"], knowledge["answers_judged"]) == (1, 1)
    assert (knowledge["hallucination_score"], knowledge["answers_scored"]) == (5, 1)
    assert len(list(out.rglob("*_samples_*.jsonl"))) == 2


def test_only_verdicts_of_a_judge_that_misbehaves_are_kept(misjudged, home):
    with closing(sqlite3.connect(home / "judge" / "verdicts.sqlite")) as connection:
        kept_verdicts = connection.execute("SELECT key FROM verdicts").fetchall()
    assert len(kept_verdicts) == 2 * 3  # in the published prompt, and between marks


def test_nothing_of_a_record_is_written_where_a_judge_misbehaves(misjudged, home, tmp_path):
    ran, _ = misjudged
    assert CANARY not in ran.stdout + ran.stderr
    kept = {home / "datasets", home / "replies"}
    files = [
        path for path in tmp_path.rglob("*") if path.is_file() and not kept & set(path.parents)
    ]
    assert [
        path for path in files if CANARY.encode() in path.read_bytes() or CANARY in path.name
    ] == []


def test_a_judge_elsewhere_is_refused_before_the_model_runs(home, parrot, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "m")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "k")
    monkeypatch.setattr(parrot, "generate_until", None)
    with pytest.raises(
        JudgeRefused,
        match=rf"'{REPORT}' is credentialed.*MEDTASKS_TRUSTED_JUDGE=https://judge.example",
    ):
        evaluate([REPORT], parrot)


class PanelOfModels(Endpoint):
    """Calls an answer right if it says so, or is that of ``model_2``; leaves out a model in row 5."""

    def __init__(self):
        super().__init__(self._answer)
        self.shown: list[dict[str, str]] = []

    def _answer(self, body):
        system, user = (message["content"] for message in body["messages"][:2])
        models = json.JSONDecoder().raw_decode(user[user.index("{") :])[0]["models"]
        self.shown.append(models)
        if "recall_number" in system:
            aspect = {"recall_number": 1, "wrong_number": 1}
            verdicts = {name: dict.fromkeys(ASPECTS, aspect) for name in models}
        else:
            verdicts = {
                name: int("right" in text or name == "model_2") for name, text in models.items()
            }
        if "row 5" in user and len(models) > 1:
            verdicts.pop("model_1")
        return self.reply(json.dumps(verdicts))


@pytest.fixture
def panel(monkeypatch, home):
    judge_client._judge.cache_clear()
    with serving(PanelOfModels()) as server:
        for name, value in {"BASE_URL": server.url, "MODEL": "m", "REASKS": "0"}.items():
            monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
        yield server


def replies_file(path, replies):
    lines = [{"doc_id": row, "reply": reply} for row, reply in enumerate(replies)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


ELEVEN = f"{KNOWLEDGE}_eleven"


@pytest.fixture
def joint(panel, tmp_path):
    """Judge two runs side by side; return the process, the files, and the rate of each model."""
    first = replies_file(tmp_path / "first.jsonl", ["right", "no", "no", "", "no", "right"])
    second = replies_file(tmp_path / "second.jsonl", ["right", "no", "other", "more", "else"])
    table = tmp_path / "joint.json"
    command = ["medtasks", "judge", "joint", ELEVEN, first, second, "--max-failed", "1"]
    ran = run_here([*command, "--json", str(table)], tmp_path)
    assert ran.returncode == 0, ran.stderr
    models = json.loads(table.read_text())["models"]
    rates = {
        name: rules["reference"]["metrics"]["knowledge_rate"] for name, rules in models.items()
    }
    return ran, (first, second), rates


def test_several_runs_are_judged_in_one_request(joint, panel):
    ran, _, rates = joint

    assert "judged with fewer answers side by side: 1." in ran.stdout + ran.stderr
    # Rows 0 to 5 of both prompts, as published and between marks: row 3 of one model, row 5 lacks one of both.
    assert panel.count == 2 * 2 * ROWS
    plain = [
        models for models in panel.shown if not any("=====" in text for text in models.values())
    ]
    assert plain.count({"model_1": "no", "model_2": "other"}) == 2
    assert plain.count({"model_2": "more"}) == 2
    assert rates == {"model_1": pytest.approx(4 / 6), "model_2": 0}


def test_runs_that_were_judged_together_keep_their_verdicts(joint, panel, tmp_path):
    _, files, rates = joint
    alone = tmp_path / "score.json"

    for file, name in zip(files, ("model_1", "model_2"), strict=True):
        run_here(["medtasks", "score", ELEVEN, file, "--json", str(alone)], tmp_path)
        rules = json.loads(alone.read_text())["rules"]
        assert rules["reference"]["metrics"]["knowledge_rate"] == rates[name]
        assert "the answers of up to 2 runs side by side" in rules["reference"]["remarks"][0]
    # Although both runs say "no" to row 1.
    assert panel.count == 2 * 2 * ROWS


def test_runs_that_were_judged_together_are_compared(joint, panel, tmp_path):
    _, files, _ = joint
    compared = tmp_path / "compared.json"

    ran = run_here(["medtasks", "compare", ELEVEN, *files, "--json", str(compared)], tmp_path)

    assert ran.returncode == 0, ran.stderr
    content = json.loads(compared.read_text())
    assert (
        "B has knowledge_rate 0.0% and A 80.0% under reference" in content["summary"][0]
    )  # rows that both answered
    assert sum("2 runs side by side" in warning for warning in content["warnings"]) == 1
    assert panel.count == 2 * 2 * ROWS


def test_another_run_is_judged_alone(joint, panel, tmp_path):
    alone = tmp_path / "score.json"
    third = replies_file(tmp_path / "third.jsonl", ["right", "no", "no"])

    run_here(["medtasks", "score", ELEVEN, third, "--json", str(alone)], tmp_path)

    assert panel.count > 2 * 2 * ROWS
    assert "side by side" not in alone.read_text()


def test_a_judge_that_forgets_a_model_gives_no_verdict_on_any(panel, tmp_path):
    runs = [
        replies_file(tmp_path / f"{name}.jsonl", [f"{name} {row}" for row in range(ROWS)])
        for name in "ab"
    ]
    table = tmp_path / "joint.json"
    ran = run_here(
        ["medtasks", "judge", "joint", f"{REPORT}_eleven", *runs, "--json", table], tmp_path
    )
    assert ran.returncode == 1
    assert "1 unjudged of 6 samples" in ran.stderr
    for rules in json.loads(table.read_text())["models"].values():
        assert rules["reference"]["metrics"]["mentions_anatomy"] == 2 * (ROWS - 1)
        assert rules["reference"]["metrics"]["unjudged_samples"] == 1


def test_runs_that_cannot_be_judged_together_are_refused(panel, tmp_path):
    runs = [
        replies_file(tmp_path / f"{count}.jsonl", [f"reply {count}"]) for count in range(12)
    ]
    for task, files, why in (
        (KNOWLEDGE, runs[:2], "medheval_knowledge_open_eleven"),
        (f"{KNOWLEDGE}_eleven", runs, "of 2 to 11 runs, and the command names 12"),
        (f"{KNOWLEDGE}_eleven", runs[:1], "and the command names 1"),
        (f"{KNOWLEDGE}_eleven", [runs[0], runs[0]], "two of the runs have the same replies"),
    ):
        ran = run_here(["medtasks", "judge", "joint", task, *files], tmp_path)
        assert (ran.returncode, why in ran.stderr, panel.count) == (1, True, 0), ran.stderr
