"""Two ranks over gloo give what one process gives."""

import ast
import json
from pathlib import Path

import pytest
from lmms_eval.evaluator import simple_evaluate

from medtasks.cli.data import write_sample_home
from medtasks.data.mediconfusion import DEMONSTRATIONS

from ..two_processes import LEAVE, on_two_processes
from . import llava_med_toy, med_flamingo_toy, radfm_toy, tiny_hf_models

EVALUATE = (
    """
import json, sys
import torch
torch.set_num_threads(1)
from lmms_eval.evaluator import simple_evaluate
models, tasks, options = json.loads(sys.argv[1])
found = {}
for model, arguments in models.items():
    results = simple_evaluate(model=model, model_args=arguments, tasks=tasks, **options)
    if results is not None:
        samples = {
            task: {sample["doc_id"]: sample["resps"] for sample in rows} for task, rows in results["samples"].items()
        }
        found[model] = {"results": results["results"], "samples": samples}
if found:
    json.dump(found, open(sys.argv[2], "w"), default=repr)
"""
    + LEAVE
)
TASKS = ["mediconfusion", "mediconfusion_ps"]
OPTIONS = {"limit": 5, "batch_size": 4, "log_samples": True, "device": "cpu"}
SCRIPT = (
    """
import json, sys
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
open(f"{sys.argv[2]}/{adapter.rank}.json", "w").write(json.dumps(result))
"""
    + LEAVE
)


@pytest.fixture
def checkpoints(tmp_path):
    """Per adapter its arguments for a small random checkpoint in the published format."""
    (tmp_path / "radfm").mkdir()
    llava_med_toy.write_tower(tmp_path / "clip")
    llava = llava_med_toy.write_v15(tmp_path / "llava")
    radfm = radfm_toy.write_toy(tmp_path / "radfm")
    med_flamingo_toy.write_toy(tmp_path / "flamingo")
    flamingo = tmp_path / "flamingo"
    exact = "dtype=float32,journal=false"
    return {
        "llava_med": f"pretrained={llava},vision_tower={tmp_path / 'clip'},max_length=512,{exact}",
        "radfm": f"pretrained={radfm},{exact}",
        "med_flamingo": f"pretrained={flamingo},llama={flamingo / 'llama'},clip={flamingo / 'clip'},{exact}",
        "hf_vlm": f"pretrained={tiny_hf_models.build('llava', tmp_path / 'vlm')},{exact}",
    }


@pytest.fixture
def home_with_demonstrations(tmp_path):
    """The drawn sample, with pictures for the demonstrations of Med-Flamingo's prompts, which it does without."""
    write_sample_home(tmp_path / "data")
    folder = tmp_path / "data" / "datasets" / "mediconfusion" / DEMONSTRATIONS
    folder.mkdir(exist_ok=True)
    for seed, name in enumerate(("PMC1064097_F2.jpg", "PMC1065025_F1.jpg", "PMC1087855_F3.jpg")):
        med_flamingo_toy.scan(seed).save(folder / name)
    return tmp_path / "data"


def pairs(replies):
    """Read the likelihoods of a document, which the harness keeps as text."""
    return [ast.literal_eval(str(reply)) for (reply,) in replies]


@pytest.mark.slow
def test_every_adapter_scores_on_two_processes_like_on_one(
    checkpoints, home_with_demonstrations, monkeypatch, tmp_path
):
    monkeypatch.setenv("MEDTASKS_HOME", str(home_with_demonstrations))
    out = tmp_path / "two.json"
    on_two_processes(EVALUATE, tmp_path, json.dumps([checkpoints, TASKS, OPTIONS]), str(out))
    two = json.loads(out.read_text())
    assert list(two) == list(checkpoints)
    for model, arguments in checkpoints.items():
        one = simple_evaluate(model=model, model_args=arguments, tasks=TASKS, **OPTIONS)
        assert {task: scores.keys() for task, scores in two[model]["results"].items()} == {
            task: scores.keys() for task, scores in one["results"].items()
        }
        for task, rows in one["samples"].items():
            theirs = two[model]["samples"][task]
            assert {str(row["doc_id"]) for row in rows} == set(theirs) == {str(at) for at in range(OPTIONS["limit"])}
            for row in rows:
                reply, other = row["resps"], theirs[str(row["doc_id"])]
                if task == "mediconfusion":
                    assert other == reply, (model, task)
                    continue
                for (loss, greedy), (other_loss, other_greedy) in zip(pairs(reply), pairs(other), strict=True):
                    assert other_loss == pytest.approx(loss, abs=1e-5), (model, task)
                    assert other_greedy == greedy
            for metric, value in one["results"][task].items():
                assert repr(two[model]["results"][task][metric]) == repr(value), (model, task, metric)


@pytest.mark.slow
def test_two_processes_answer_like_one(bench, tmp_path):
    run = on_two_processes(SCRIPT, tmp_path, str(Path(__file__).parent), ".")
    assert run.stderr.count("loglikelihood:   0%") == 1, "the bar belongs to rank 0"
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    assert [rank["counts"] for rank in ranks] == [[6, 6], [6, 6]]

    def merged(key):
        return [ranks[number % 2][key][number // 2] for number in range(len(bench.docs))]

    adapter = bench.adapter
    assert merged("replies") == adapter.generate_until(bench.generation())
    assert merged("sampled") == adapter.generate_until(bench.generation(do_sample=True, temperature=1.3))
    expected = [pair[0] for pair in adapter.loglikelihood(bench.scoring((" clear",)))]
    assert merged("scores") == pytest.approx(expected, abs=1e-9)
