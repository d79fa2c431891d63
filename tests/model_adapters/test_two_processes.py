"""Two ranks over gloo give what one process gives."""

import ast
import json
from pathlib import Path

import pytest
from lmms_eval.evaluator import simple_evaluate
from lmms_eval.tasks import TaskManager

from medtasks.cli.data import write_sample_home
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.tasks.task_index import tasks_folder

from ..processes import LEAVE, on_two_processes
from . import llava_med_toy, med_flamingo_toy, radfm_toy, tiny_hf_models

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
models, folder, options = json.loads(sys.argv[2])
manager, found = TaskManager(include_path=folder, include_defaults=False), {}
for manager.model_name, arguments in models.items():
    results = simple_evaluate(manager.model_name, arguments, task_manager=manager, **options)
    if results is not None:
        samples = {
            task: {sample["doc_id"]: sample["resps"] for sample in rows} for task, rows in results["samples"].items()
        }
        found[manager.model_name] = {"results": results["results"], "samples": samples}
if found:
    json.dump(found, open("harness.json", "w"), default=repr)
"""
    + LEAVE
)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Per adapter its arguments for a small random checkpoint in the published format."""
    folder = tmp_path_factory.mktemp("checkpoints")
    (folder / "radfm").mkdir()
    llava_med_toy.write_tower(folder / "clip")
    llava = llava_med_toy.write_v15(folder / "llava")
    radfm = radfm_toy.write_toy(folder / "radfm")
    flamingo = med_flamingo_toy.write_toy(folder / "flamingo")
    exact = "dtype=float32,journal=false"
    return {
        "llava_med": f"pretrained={llava},vision_tower={folder / 'clip'},max_length=512,{exact}",
        "radfm": f"pretrained={radfm},{exact}",
        "med_flamingo": f"pretrained={flamingo},llama={flamingo / 'llama'},clip={flamingo / 'clip'},{exact}",
        "hf_vlm": f"pretrained={tiny_hf_models.build('llava', folder / 'vlm')},{exact}",
    }


@pytest.fixture(scope="module")
def home_with_demonstrations(tmp_path_factory):
    """The drawn sample, with pictures for the demonstrations of Med-Flamingo's prompts, which it does without."""
    home = tmp_path_factory.mktemp("data")
    write_sample_home(home)
    folder = home / "datasets" / "mediconfusion" / DEMONSTRATIONS_FOLDER
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(("PMC1064097_F2.jpg", "PMC1065025_F1.jpg", "PMC1087855_F3.jpg")):
        med_flamingo_toy.scan(seed).save(folder / name)
    return home


TASKS = str(tasks_folder() / "mediconfusion")
"""Reading all of the harness's tasks takes longer than these."""


@pytest.fixture(scope="module")
def two_ranks(checkpoints, home_with_demonstrations, tmp_path_factory):
    """What two ranks wrote: the folder, and their standard error."""
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home_with_demonstrations))
        given = json.dumps([checkpoints, TASKS, OPTIONS])
        return folder, on_two_processes(SCRIPT, folder, str(Path(__file__).parent), given).stderr


def pairs(replies):
    """Read the likelihoods of a document, which the harness keeps as text."""
    return [ast.literal_eval(str(reply)) for (reply,) in replies]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llava_med", "radfm", "med_flamingo", "hf_vlm"])
def test_every_adapter_scores_on_two_processes_like_on_one(
    checkpoints, two_ranks, home_with_demonstrations, monkeypatch, model
):
    monkeypatch.setenv("MEDTASKS_HOME", str(home_with_demonstrations))
    two = json.loads((two_ranks[0] / "harness.json").read_text())[model]
    manager = TaskManager(include_path=TASKS, include_defaults=False, model_name=model)
    one = simple_evaluate(model, checkpoints[model], task_manager=manager, **OPTIONS)
    assert {task: scores.keys() for task, scores in two["results"].items()} == {
        task: scores.keys() for task, scores in one["results"].items()
    }
    for task, rows in one["samples"].items():
        theirs = two["samples"][task]
        assert {str(row["doc_id"]) for row in rows} == set(theirs) == {str(at) for at in range(OPTIONS["limit"])}
        for row in rows:
            reply, other = row["resps"], theirs[str(row["doc_id"])]
            if task == "mediconfusion":
                assert other == reply, task
                continue
            for (loss, greedy), (other_loss, other_greedy) in zip(pairs(reply), pairs(other), strict=True):
                assert other_loss == pytest.approx(loss, abs=1e-5), task
                assert other_greedy == greedy
        for metric, value in one["results"][task].items():
            assert repr(two["results"][task][metric]) == repr(value), (task, metric)


@pytest.mark.slow
def test_two_processes_answer_like_one(bench, two_ranks):
    folder, log = two_ranks
    assert log.count("medtasks_tiny loglikelihood:   0%") == 1, "the bar belongs to rank 0"
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["counts"] for rank in ranks] == [[6, 6], [6, 6]]

    def merged(key):
        return [ranks[number % 2][key][number // 2] for number in range(len(bench.docs))]

    adapter = bench.adapter
    assert merged("replies") == adapter.generate_until(bench.generation())
    assert merged("sampled") == adapter.generate_until(bench.generation(do_sample=True, temperature=1.3))
    expected = [pair[0] for pair in adapter.loglikelihood(bench.scoring((" clear",)))]
    assert merged("scores") == pytest.approx(expected, abs=1e-9)
