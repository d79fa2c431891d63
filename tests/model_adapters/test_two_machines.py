"""Two agents of torchrun, one of which goes down with its worker in the middle of a run, as a machine does."""

import ast
import json
import os
import signal
import sys

import pytest
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from medtasks.tasks.task_index import tasks_folder

from ..processes import start_fresh
from ..waiting import wait_until

TASKS = ["mediconfusion", "mediconfusion_ps"]
FOLDER = str(tasks_folder() / "mediconfusion")
# The worker that is to go down says so at its third batch, and waits: the other one is soon at a barrier.
WORKER = """
import os, pathlib, time
import torch
torch.set_num_threads(1)
from lmms_eval.__main__ import cli_evaluate
from medtasks.model_adapters.tiny import MedTasksTiny

score_batch, batches, note = MedTasksTiny.score_batch, [], pathlib.Path("doomed")

def scored(self, items):
    batches.append(len(items))
    if len(batches) == 3 and "DOOMED" in os.environ:
        note.with_suffix(".part").write_text(str(os.getpid()))
        note.with_suffix(".part").rename(note)
        time.sleep(600)
    return score_batch(self, items)

MedTasksTiny.score_batch = scored
cli_evaluate()
"""


@pytest.fixture
def start(tmp_path):
    """Start an agent, with the command of docs/scale.md; one without a heartbeat for 20 seconds is taken for dead."""
    (tmp_path / "worker.py").write_text(WORKER)
    port = 20_000 + os.getpid() % 10_000  # where systems give out none, and another suite takes another
    agent = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc_per_node", "1", "--max_restarts", "3"]
    agent += ["--rdzv_backend", "c10d", "--rdzv_id", "run", "--rdzv_endpoint", f"127.0.0.1:{port}"]
    run = ["worker.py", "--model", "medtasks_tiny", "--tasks", ",".join(TASKS), "--batch_size", "2"]
    run += ["--log_samples", "--output_path", "out"]
    settings = {"ACCELERATE_USE_CPU": "true", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "TMPDIR": str(tmp_path)}
    started = []

    def start_agent(name, **variables):
        # By its address each of them could be the one that holds what they agree on.
        alive = f"keep_alive_interval=1,keep_alive_max_attempt=20,is_host={int(not started)}"
        command = [sys.executable, *agent, "--rdzv_conf", alive, *run]
        started.append(start_fresh(command, tmp_path, tmp_path / f"{name}.log", **settings, **variables))
        return started[-1]

    yield start_agent
    for process in started:
        process.kill()
        process.wait()


def replies(samples):
    """Return what was answered, by document; a likelihood as its numbers, which the harness keeps as text."""
    found = {}
    for sample in samples:
        for place, (reply,) in enumerate(
            sample["resps"] if isinstance(sample["resps"][0], list) else [sample["resps"]]
        ):
            scored = isinstance(reply, tuple) or reply.startswith("(")
            loss, greedy = ast.literal_eval(str(reply)) if scored else (0.0, reply)
            found[sample["doc_id"], place] = (greedy, pytest.approx(loss, abs=1e-12))
    return found


@pytest.mark.slow
def test_a_machine_that_goes_down_costs_what_it_had_under_way(start, tmp_path, sample_home, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    (home / "datasets").symlink_to(sample_home / "datasets")
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    first, second = start("first"), start("second", DOOMED="yes")
    manager = TaskManager(include_path=FOLDER, include_defaults=False, model_name="medtasks_tiny")
    options = {"tasks": list(TASKS), "batch_size": 2, "device": "cpu", "log_samples": True}
    calm = simple_evaluate("medtasks_tiny", "journal=false", task_manager=manager, **options)
    wait_until((tmp_path / "doomed").exists, second)
    second.kill()
    os.kill(int((tmp_path / "doomed").read_text()), signal.SIGKILL)
    agents = {"first": first, "again": start("again")}
    codes = {name: agent.wait(timeout=600) for name, agent in agents.items()}
    said = {name: (tmp_path / f"{name}.log").read_text() for name in agents}
    assert codes == {"first": 0, "again": 0}, {name: text[-3000:] for name, text in said.items()}
    assert "failed (exitcode: 1)" in said["first"], "the one that was left had failed, and was restarted"

    (results,) = (tmp_path / "out").glob("*_results.json")
    found = json.loads(results.read_text())["results"]
    journal = [json.loads(line) for file in (home / "journal").rglob("*.jsonl") for line in file.open()]
    for task in TASKS:
        assert found[task] == pytest.approx(calm["results"][task], abs=1e-12, nan_ok=True)
        (file,) = (tmp_path / "out").glob(f"*_samples_{task}.jsonl")
        assert replies(map(json.loads, file.open())) == replies(calm["samples"][task])
    assert len({line["key"] for line in journal}) == len(journal), "nothing is computed twice but what was under way"
