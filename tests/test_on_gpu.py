"""The benchmark of a GPU, with toys on the CPU, and what holds of it whatever the device."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def load() -> Iterator:
    """Imports a script of the benchmarks as Python does when one is run."""
    before = list(sys.path)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module
    sys.path[:] = before
    for name in [
        name
        for name, module in sys.modules.items()
        if str(FOLDER) in str(getattr(module, "__file__", ""))
    ]:
        del sys.modules[name]


@pytest.fixture(scope="module")
def on_gpu(load) -> ModuleType:
    return load("on_gpu")


def test_parts_run_tiny_through_the_real_code(on_gpu, tmp_path, monkeypatch):
    assert (
        sum(on_gpu.SECONDS.values()) <= on_gpu.WHOLE == 480
    )  # the parts together keep to eight minutes
    names, options = (
        ["chexbert", "radcliq", "radfm", "hf_vlm"],
        on_gpu.Options(on_gpu.Scale(True, "cpu", 1e12), tmp_path),
    )
    monkeypatch.setattr(
        on_gpu,
        "run_limited",
        lambda names, _: "" if on_gpu.run_part(names[0], options) else "failed",
    )
    results = on_gpu.run_all(names, options, lambda name: [name])
    assert {name: part["status"] for name, part in results.items()} == dict.fromkeys(
        names, "done"
    )
    assert json.loads((tmp_path / "results.json").read_text())["parts"] == results
    for name in ("radfm", "hf_vlm"):
        measures = results[name]["measures"]
        ways = {
            (measure["mode"], measure["caches"]) for measure in measures if "mode" in measure
        }
        assert ways >= {
            ("PS", "prefix, image"),
            ("PS", "none"),
            ("GD", "prefix, image"),
            ("GD", "none"),
        }
        for measure in measures:
            if "largest_difference" in measure:
                assert measure["largest_difference"] < 1e-4, (name, measure)
            if "moved_by_another_image" in measure:  # or no difference would tell anything
                assert measure["moved_by_another_image"] > 10 * measure["largest_difference"], (
                    name,
                    measure,
                )
            assert (
                measure.get("equal_replies", 1) >= 0.5
            )  # of two equally likely tokens, kernels may choose another
    table = (tmp_path / "table.md").read_text()
    for text in (
        *(
            "RadFM 14B | GD | prefix, image | 11 |",
            "RadCliQ of 20 pairs: seconds",
            "gain of the caches",
        ),
        *("M parameters in float32", "the limit is at 1.00 TFLOP/s"),
    ):
        assert text in table


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_command_says_so(on_gpu, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["on_gpu.py"])
    with pytest.raises(SystemExit, match="there is no GPU here that torch can use; --tiny"):
        on_gpu.main()
