"""Whole runs of MedHEval's open tasks against a judge on loopback that behaves, and one that does not."""

import json
import math
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare
from medtasks.data.store import load_documents
from medtasks.errors import JudgeRefused, forget_warnings
from medtasks.harness.replies import read_replies
from medtasks.harness.task_files import task_config, task_file
from medtasks.harness.task_index import resolved
from medtasks.judges import client
from medtasks.metrics import metric

from .. import medheval_sources as sources

pytestmark = pytest.mark.slow

CANARY = "zyzzyva"  # part of everything planted
REPORT, KNOWLEDGE = "medheval_visual_report", "medheval_knowledge_open"
TASKS = [REPORT, f"{REPORT}_paper_question", f"{REPORT}_eleven", KNOWLEDGE, f"{KNOWLEDGE}_eleven"]
ROWS = 6
BROKEN = {1: "quotes", 2: "empty object", 3: "best score of another", 4: "too much", 5: "no answer"}  # by row
NEEDS_MODELS = {"meteor", "roberta_large_precision", "roberta_large_recall", "roberta_large_f1"}


class Judge(ThreadingHTTPServer):
    """Calls every answer right and free of hallucination but for row 0, unless it misbehaves."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.prompts: list[str] = []
        self.broken: Mapping[int, str] = {}
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def variables(self) -> dict[str, str]:
        values = {"BASE_URL": f"http://127.0.0.1:{self.server_port}/v1", "MODEL": "m", "REASKS": "0", "ATTEMPTS": "1"}
        return {f"MEDTASKS_JUDGE_{name}": value for name, value in values.items()}

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Handler(BaseHTTPRequestHandler):
    server: Judge

    def do_POST(self) -> None:
        system, user = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        self.server.prompts.append(user["content"])
        row = next(row for row in range(ROWS) if f"row {row}." in user["content"])
        behaviour = self.server.broken.get(row)
        if behaviour == "no answer":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.rfile.close()
            self.connection.close()
            return
        good = self._good(system["content"], row)
        text = {
            None: good,
            "quotes": user["content"],
            "empty object": "{}",
            "best score of another": '{"model_2": 0}',
            "too much": good.replace("}", ', "model_2": 0}'),
        }[behaviour]
        body = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        body["choices"] = [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}]
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    @staticmethod
    def _good(system: str, row: int) -> str:
        if "range[0, 5]" in system:
            return json.dumps({"model_1": 5 if row == 0 else 0})
        if "binary output" in system:
            return json.dumps({"model_1": int(row != 0)})
        heart = {"recall_number": 1, "wrong_number": 3 if row == 0 else 0}
        nothing = {"recall_number": 0, "wrong_number": 0}
        return json.dumps({"model_1": {"anatomy": heart, "symptom": heart, "measurement": nothing}})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def judge() -> Iterator[Judge]:
    server = Judge()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def asked(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """The judge, named in this process's environment."""
    for name, value in judge.variables().items():
        monkeypatch.setenv(name, value)
    return judge


@pytest.fixture(autouse=True)
def _fresh() -> None:
    client._judge.cache_clear()
    forget_warnings()
    metric._computed.cache_clear()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both open sets as prepared from files in the published form, with the canary in all their texts."""
    folder = tmp_path_factory.mktemp("medheval_open")
    clone = folder / "MedHEval"
    records = {
        REPORT: [
            sources._report(row, 1 + row // 2, f"{CANARY} report row {row}.", anatomy=[f"{CANARY} row {row}."])
            for row in range(ROWS)
        ],
        KNOWLEDGE: [
            sources._knowledge(row, 1 + row // 2, f"{CANARY} question row {row}.", f"{CANARY} key row {row}.")
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
    package = folder / "package" / "echo_model-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-model\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[lmms_eval.models]\necho = echo_model:manifest\n")
    (package.parent / "echo_model.py").write_text(ECHO)
    return folder


@pytest.fixture
def home(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder of this test with the planted documents."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "datasets").symlink_to(planted / "home" / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(folder))
    return folder


Command = Callable[..., CompletedProcess[str]]


@pytest.fixture
def command(planted: Path, home: Path, tmp_path: Path) -> Command:
    """Run the harness's command, with everything it writes below this test's folder."""

    def run(*options: str, tasks: str, model: str = "echo", ranks: int = 1, **variables: str) -> CompletedProcess[str]:
        several = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
        line = [
            *(sys.executable, *several, "-m", "lmms_eval", "--model", model, "--tasks", tasks, "--batch_size", "1"),
            *("--output_path", str(tmp_path / f"out{ranks}"), "--log_samples", *options),
        ]
        environment = {
            **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
            "PYTHONPATH": str(planted / "package"),
            "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(tmp_path),
            "OMP_NUM_THREADS": "1",
            "ACCELERATE_USE_CPU": "true",
            **variables,
        }
        return subprocess.run(
            line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400, check=False
        )

    return run


@pytest.fixture(scope="module")
def evaluate() -> Callable[..., dict[str, Any]]:
    from lmms_eval.evaluator import simple_evaluate
    from lmms_eval.tasks import TaskManager

    def run(tasks: list[str], model: Any, **options: Any) -> dict[str, Any]:
        found: dict[str, Any] = simple_evaluate(model=model, tasks=tasks, task_manager=TaskManager(), **options)
        return found

    return run


@pytest.fixture(scope="module")
def parrot() -> Any:
    """Answers with the key, and remembers what it was asked."""
    from lmms_eval.api.model import lmms

    class Parrot(lmms):  # type: ignore[misc]
        prompts: dict[str, str]

        def generate_until(self, requests: Any) -> list[str]:
            self.prompts = {r.args[4]: r.args[0] for r in requests}
            docs = [self.task_dict[r.args[4]][r.args[5]][r.args[3]] for r in requests]
            return [f"Assistant: {doc['report' if 'report' in doc else 'answer']}" for doc in docs]

        def loglikelihood(self, requests: Any) -> list[Any]:
            raise NotImplementedError

        generate_until_multi_round = loglikelihood

    return Parrot()


def values(results: Mapping[str, Any], task: str, rule: str = "strict") -> dict[str, float]:
    names = [entry["metric"] for entry in resolved(task_config(task)["metric_list"])]
    return {name: results["results"][task][f"{name},{rule}"] for name in names}


def written(folder: Path, task: str) -> dict[str, float]:
    (file,) = folder.rglob("*_results.json")
    return values(json.loads(file.read_text()), task)


def test_a_real_model_runs_every_task_without_a_judge(evaluate, home):
    tiny = {"model_args": "journal=false", "batch_size": 8, "device": "cpu", "gen_kwargs": "max_new_tokens=4"}
    results = evaluate(TASKS, "medtasks_tiny", **tiny)
    for task in TASKS:
        found = values(results, task)
        assert results["n-samples"][task]["effective"] == ROWS
        judged = {"knowledge_rate", "hallucination_score"} | {name for name in found if name.startswith("chair_judge_")}
        assert all(math.isnan(value) for name, value in found.items() if name in judged)
        assert 0 <= found["stemmed_rouge_l"] <= 1
        assert {name for name in NEEDS_MODELS if not math.isnan(found[name])} == set()
        assert 0 <= found["judge_failed_rate"] + found["invalid_rate"] <= 1
        labels = results["configs"][task]["metadata"]["judge_prompts"]
        assert all(f"_{'eleven' if task.endswith('eleven') else 'single'} v1 " in label for label in labels)


def test_prompts(evaluate, home, parrot):
    evaluate([REPORT, f"{REPORT}_paper_question", KNOWLEDGE], parrot, limit=1)
    assert parrot.prompts[REPORT] == sources.INSTRUCTION
    assert parrot.prompts[KNOWLEDGE] == f"{CANARY} question row 0."
    assert parrot.prompts[f"{REPORT}_paper_question"] == (
        "List your findings of anatomical structures and measurements in detail, as well as the possible symptoms, "
        "abnormal findings on these structures."
    )


def test_a_judge_that_behaves_is_asked_once(evaluate, home, parrot, asked):
    results = evaluate([REPORT, KNOWLEDGE], parrot)
    report, knowledge = values(results, REPORT), values(results, KNOWLEDGE)
    assert (report["chair_judge_anatomy"], report["mentions_anatomy"]) == (3 / 9, 9)
    assert math.isnan(report["chair_judge_measurement"])
    assert knowledge["knowledge_rate"] == pytest.approx(1 / 6)
    assert knowledge["hallucination_score"] == pytest.approx(5 / 6)
    assert (report["judge_failed_rate"], knowledge["judge_failed_rate"]) == (0, 0)
    assert knowledge["stemmed_rouge_1"] == 1  # "Assistant:" is not part of the answer
    calls = len(asked.prompts)
    # Two rules, for which the label "Assistant:" makes two replies, and one of them between marks, too; three judges.
    assert calls == 3 * 3 * ROWS
    again = evaluate([REPORT, KNOWLEDGE], parrot)
    assert len(asked.prompts) == calls
    assert repr(values(again, REPORT)) == repr(report)
    assert repr(values(again, KNOWLEDGE)) == repr(knowledge)
    evaluate([f"{KNOWLEDGE}_eleven"], parrot)
    assert len(asked.prompts) == calls + 3 * 2 * ROWS  # another prompt is another question


def test_a_judge_that_misbehaves_invents_nothing_and_nothing_is_written(command, judge, home, planted, tmp_path):
    judge.broken = BROKEN
    ran = command("--verbosity", "DEBUG", tasks=f"{REPORT},{KNOWLEDGE}", **judge.variables())
    assert ran.returncode == 0, ran.stderr[-4000:]
    report, knowledge = written(tmp_path / "out1", REPORT), written(tmp_path / "out1", KNOWLEDGE)
    assert report["judge_failed_rate"] == knowledge["judge_failed_rate"] == len(BROKEN) / ROWS
    # Only row 0 got a verdict, and it is the worst one.
    assert (report["chair_judge_symptom"], report["mentions_symptom"]) == (3 / 4, 4)
    assert (knowledge["knowledge_rate"], knowledge["answers_judged"]) == (1, 1)
    assert (knowledge["hallucination_score"], knowledge["answers_scored"]) == (5, 1)
    assert len(list((tmp_path / "out1").rglob("*_samples_*.jsonl"))) == 2
    assert len(list((home / "judge").rglob("*.json"))) == 2 * 3  # in the published prompt, and between marks
    assert CANARY not in ran.stdout + ran.stderr
    kept = {home / "datasets", home / "replies"}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and not kept & set(path.parents)]
    assert [path for path in files if CANARY.encode() in path.read_bytes() or CANARY in path.name] == []


def test_two_ranks_see_the_same(command, judge, tmp_path):
    for ranks in (1, 2):
        ran = command(tasks=f"{REPORT},{KNOWLEDGE}", ranks=ranks, **judge.variables())
        assert ran.returncode == 0, ran.stderr[-4000:]
    for task in (REPORT, KNOWLEDGE):
        one, two = (written(tmp_path / f"out{ranks}", task) for ranks in (1, 2))
        assert repr(one) == repr(two)
        assert one["judge_failed_rate"] == 0
    assert len(judge.prompts) == 2 * 3 * ROWS  # the second run found every verdict on disk


def test_replies_are_judged_later(evaluate, home, parrot, judge, monkeypatch):
    first = values(evaluate([KNOWLEDGE], parrot), KNOWLEDGE)
    assert math.isnan(first["knowledge_rate"])
    files = list((home / "replies").rglob("*.jsonl"))
    for name, value in judge.variables().items():
        monkeypatch.setenv(name, value)
    documents = load_documents(KNOWLEDGE)
    scores = score_replies(task_file(KNOWLEDGE), documents, read_replies(files, documents))["strict"]
    assert scores.estimates["knowledge_rate"].value == pytest.approx(1 / 6)
    assert scores.estimates["stemmed_rouge_l"].value == first["stemmed_rouge_l"]
    assert scores.reasons == {"ok": ROWS}


def test_a_judge_elsewhere_is_refused_before_the_model_runs(evaluate, home, parrot, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "m")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "k")
    monkeypatch.setattr(parrot, "generate_until", None)
    with pytest.raises(
        JudgeRefused, match=rf"'{REPORT}' is credentialed.*MEDTASKS_TRUSTED_JUDGE=https://judge.example"
    ):
        evaluate([REPORT], parrot)


ECHO = f"""\
from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest

manifest = ModelManifest(model_id="echo", simple_class_path="echo_model.Echo")


class Echo(lmms):
    def __init__(self, batch_size=1, device="cpu", **_):
        super().__init__()
        from accelerate import Accelerator

        self.accelerator = Accelerator(cpu=True)
        self.device = self.accelerator.device
        self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes

    def generate_until(self, requests):
        return [f"I see {CANARY} in row {{request.args[3]}}." for request in requests]

    def loglikelihood(self, requests):
        raise NotImplementedError

    def generate_until_multi_round(self, requests):
        raise NotImplementedError
"""
