"""Two ranks over gloo give what one process gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from conftest import Bench, make_docs
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


@pytest.mark.slow
def test_two_processes_answer_like_one(bench, tmp_path):
    (tmp_path / "ranks.py").write_text(SCRIPT)
    # `accelerate launch --cpu` starts one process whatever --num_processes says.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "ranks.py"]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment["ACCELERATE_USE_CPU"] = "true"
    run = subprocess.run(
        [*launch, str(Path(__file__).parent), "."], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
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
