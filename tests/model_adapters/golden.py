"""What the official codes computed from small random weights; the recordings have a README of their own."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

GOLDEN = Path(os.environ.get("MEDTASKS_GOLDEN", Path(__file__).parents[2] / ".." / "shared" / "golden")) / "adapters"


def recorded(model: str) -> dict[str, Any]:
    """The record of a model; empty where there is none."""
    file = GOLDEN / model / "golden.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def without_record(model: str) -> str:
    return f"no recorded results in {GOLDEN / model}; set MEDTASKS_GOLDEN"


def assert_statistics(tensor: torch.Tensor, expected: Mapping[str, Any], tolerance: float) -> None:
    assert list(tensor.shape) == expected["shape"]
    tensor = tensor.double()  # in float32 a sum over values that an expanded tensor repeats loses digits
    got = {"mean": tensor.mean(), "std": tensor.std(correction=0), "min": tensor.min(), "max": tensor.max()}
    for name, value in got.items():
        assert value.item() == pytest.approx(expected[name], abs=tolerance)
    for sample in expected["samples"]:
        assert tensor[tuple(sample["index"])].item() == pytest.approx(sample["value"], abs=tolerance)
