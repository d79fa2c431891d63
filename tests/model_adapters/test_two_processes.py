"""Two ranks over gloo give what one process gives."""

import ast
import json
from pathlib import Path

import pytest
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from medtasks.tasks.task_index import tasks_folder

from ..processes import LEAVE, on_two_processes

MODEL = ("medtasks_tiny", "journal=false")
OPTIONS = {
    "tasks": ["mediconfusion", "mediconfusion_ps"],
    "limit": 5,
    "batch_size": 4,
    "log_samples": True,
    "device": "cpu",
}
SCRIPT = (
    """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from toys import Bench, make_docs

bench = Bench(make_docs(), batch_size=5)
adapter = bench.adapter
mine = range(adapter.rank, len(bench.docs), adapter.world_size)
counts = adapter.accelerator.gather(torch.tensor(len(mine), device=adapter.device))
replies = adapter.generate_until(bench.generation(mine))
sampled = adapter.generate_until(bench.generation(mine, do_sample=True, temperature=1.3))
scores = adapter.loglikelihood(bench.scoring((" clear",), mine))
adapter.accelerator.wait_for_everyone()
result = {"counts": counts.tolist(), "replies": replies, "sampled": sampled, "scores": [pair[0] for pair in scores]}
open(f"{adapter.rank}.json", "w").write(json.dumps(result))

from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager
(model, arguments), folder, options = json.loads(sys.argv[2])
manager = TaskManager(include_path=folder, include_defaults=False, model_name=model)
results = simple_evaluate(model, arguments, task_manager=manager, **options)
if results is not None:
    samples = {
        task: {sample["doc_id"]: sample["resps"] for sample in rows} for task, rows in results["samples"].items()
    }
    json.dump({"results": results["results"], "samples": samples}, open("harness.json", "w"), default=repr)
"""
    + LEAVE
)


TASKS = str(tasks_folder() / "mediconfusion")
"""Reading all of the harness's tasks takes longer than these."""


def pairs(replies):
    """Read the likelihoods of a document, which the harness keeps as text."""
    return [ast.literal_eval(str(reply)) for (reply,) in replies]


@pytest.mark.slow
def test_two_processes_answer_like_one(bench, sample_home, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(sample_home))
    log = on_two_processes(SCRIPT, tmp_path, str(Path(__file__).parent), json.dumps([MODEL, TASKS, OPTIONS])).stderr
    assert log.count("medtasks_tiny loglikelihood:   0%") == 2, "the bars belong to rank 0"
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["counts"] for rank in ranks] == [[6, 6], [6, 6]]

    def merged(key):
        return [ranks[number % 2][key][number // 2] for number in range(len(bench.docs))]

    adapter = bench.adapter
    assert merged("replies") == adapter.generate_until(bench.generation())
    assert merged("sampled") == adapter.generate_until(bench.generation(do_sample=True, temperature=1.3))
    expected = [pair[0] for pair in adapter.loglikelihood(bench.scoring((" clear",)))]
    assert merged("scores") == pytest.approx(expected, abs=1e-9)

    two = json.loads((tmp_path / "harness.json").read_text())
    manager = TaskManager(include_path=TASKS, include_defaults=False, model_name=MODEL[0])
    alone = simple_evaluate(*MODEL, task_manager=manager, **OPTIONS)
    for task, rows in alone["samples"].items():
        replies = two["samples"][task]
        assert {str(row["doc_id"]) for row in rows} == set(replies) == {str(at) for at in range(OPTIONS["limit"])}
        for row in rows:
            if task == "mediconfusion":
                assert replies[str(row["doc_id"])] == row["resps"]
                continue
            for pair, expected in zip(pairs(replies[str(row["doc_id"])]), pairs(row["resps"]), strict=True):
                assert pair == (pytest.approx(expected[0], abs=1e-9), expected[1])
        for metric, value in alone["results"][task].items():
            assert repr(two["results"][task][metric]) == repr(value), (task, metric)
