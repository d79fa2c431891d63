"""Parity of real runs: one tiny checkpoint in float32 and in bfloat16, through ``medtasks run``."""

import sys

import pytest

from medtasks.audit.comparing import TaskVerdict, Verdict, compare_all, overall
from medtasks.runs.run import Source

from ..model_adapters import tiny_hf_models
from ..processes import run_here

pytestmark = pytest.mark.slow


def test_two_precisions_of_one_checkpoint(sample, tmp_path):
    checkpoint = tiny_hf_models.build("qwen2_5_vl", tmp_path / "checkpoint")
    runs = {}
    for dtype in ("float32", "bfloat16"):
        model = ["--model", "hf_vlm", "--model_args", f"pretrained={checkpoint},dtype={dtype},journal=false"]
        asked = ["--tasks", "mediconfusion,mediconfusion_ps", "--limit", "8", "--gen_kwargs", "max_new_tokens=4"]
        written = ["--device", "cpu", "--log_samples", "--output_path", dtype]
        command = [sys.executable, "-m", "medtasks.cli.main", "run", *model, *asked, *written]
        ran = run_here(command, tmp_path, MEDTASKS_HOME=str(sample))
        assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-2000:]
        runs[dtype] = Source(tmp_path / dtype)
    compared, not_compared = compare_all({"A": runs["float32"], "B": runs["bfloat16"]}, margin=0.01)
    assert not not_compared
    verdicts = {name: TaskVerdict(task, 0.01) for name, task in compared.items()}
    assert overall([one.verdict for one in verdicts.values()]) in (Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS)
    for name, task in compared.items():
        found = verdicts[name].agreement
        assert (found.overlap.both, found.failed.one_sided, found.failed.both) == (8, 0, 0)
        assert task.warnings == ()  # prompts are recorded and the same
    likely = verdicts["mediconfusion_ps"].agreement.likelihoods
    assert (likely.options, likely.equal) == (16, 0)
    assert 0 < likely.absolute["q90"] < 0.125
    assert verdicts["mediconfusion"].agreement.texts.samples == 8
    same, _ = compare_all({"A": runs["float32"], "B": runs["float32"]}, margin=0.01)
    assert {TaskVerdict(task, 0.01).verdict for task in same.values()} == {Verdict.IDENTICAL}
