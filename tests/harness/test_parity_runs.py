"""Parity of real runs: one tiny checkpoint in float32 and in bfloat16, through ``medtasks run``."""

import sys

import pytest

from medtasks.audit.parity.records import Difference
from medtasks.audit.parity.runs import parity
from medtasks.audit.parity.verdict import Kind, Verdict
from medtasks.runs.sources import Source

from ..model_adapters import tiny_hf_models
from ..warm_python import run_fresh

pytestmark = pytest.mark.slow


def test_two_precisions_of_one_checkpoint(sample, tmp_path):
    checkpoint = tiny_hf_models.build("qwen2_5_vl", tmp_path / "checkpoint")
    runs = {}
    for dtype in ("float32", "bfloat16"):
        model = ["--model", "hf_vlm", "--model_args", f"pretrained={checkpoint},dtype={dtype},journal=false"]
        asked = ["--tasks", "mediconfusion,mediconfusion_ps", "--limit", "8", "--gen_kwargs", "max_new_tokens=4"]
        written = ["--device", "cpu", "--log_samples", "--output_path", dtype]
        command = [sys.executable, "-m", "medtasks.cli.main", "run", *model, *asked, *written]
        ran = run_fresh(command, tmp_path, MEDTASKS_HOME=str(sample))
        assert ran.returncode == 0, ran.stderr[-3000:] + ran.stdout[-2000:]
        runs[dtype] = Source(tmp_path / dtype)
    found = parity(runs["float32"], runs["bfloat16"], 0.01)
    assert found.verdict in (Verdict.NOT_ENOUGH, Verdict.SAME_ANSWERS)
    assert not found.not_compared
    for task in found.tasks.values():
        assert task.overlap.both == task.compared == 8
        assert task.warnings == ()  # prompts are recorded and the same
        assert task.differences == (Difference("model", "model argument dtype", "float32", "bfloat16"),)
    likely = found.tasks["mediconfusion_ps"]
    assert (likely.kind, likely.likelihoods.options, likely.likelihoods.equal) == (Kind.ROUNDING, 16, 0)
    assert 0 < likely.likelihoods.absolute.q90 < 0.125
    assert found.tasks["mediconfusion"].texts.samples == 8
    assert parity(runs["float32"], runs["float32"], 0.01).verdict is Verdict.IDENTICAL
