"""The evaluated model leaves the GPU while metrics' models run, and comes back to where it was."""

import gc
import types
from collections.abc import Iterator

import pytest
import torch
from lmms_eval.api.model import lmms

from medtasks.harness import model_offloading
from medtasks.harness.model_offloading import evaluated_models_on_cpu
from medtasks.metrics.model_settings import ModelSettings


class FakeTensor:
    """A tensor that notes where it is; some kinds cannot move."""

    def __init__(self, device: str, stuck: bool = False) -> None:
        self.device = torch.device(device)
        self.stuck = stuck

    @property
    def data(self) -> "FakeTensor":
        return self

    @data.setter
    def data(self, moved: "FakeTensor") -> None:
        self.device = moved.device

    def to(self, device: object) -> "FakeTensor":
        if self.stuck:
            raise RuntimeError("this tensor lives on its device")
        return FakeTensor(str(device))


class FakeModule(torch.nn.Module):
    def __init__(self, *tensors: FakeTensor) -> None:
        super().__init__()
        object.__setattr__(self, "tensors", tensors)

    def parameters(self, recurse: bool = True) -> Iterator[FakeTensor]:
        return iter(self.tensors[:1])

    def buffers(self, recurse: bool = True) -> Iterator[FakeTensor]:
        return iter(self.tensors[1:])


class Adapter(lmms):
    def generate_until(self, requests):
        return []

    loglikelihood = generate_until_multi_round = generate_until


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    gc.collect()  # adapters of other tests
    monkeypatch.setattr(model_offloading, "_on_gpu", lambda settings: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)


def places(*tensors: FakeTensor) -> list[str]:
    return [str(tensor.device) for tensor in tensors]


def test_weights_wherever_the_adapter_keeps_them(gpu):
    tensors = [FakeTensor("cuda:0") for _ in range(6)]
    adapter = Adapter()
    adapter.model = FakeModule(tensors[0], tensors[1])
    adapter.runner = types.SimpleNamespace(inner=FakeModule(tensors[2]))
    adapter.experts = {"a": [FakeModule(tensors[3])], "b": (FakeModule(tensors[4]),)}
    adapter.runner.back = adapter  # a cycle
    adapter.nothing, adapter.number, adapter.kind = None, 3, FakeModule
    other = FakeModule(tensors[5])  # not the evaluated model's
    with evaluated_models_on_cpu(ModelSettings()):
        assert places(*tensors) == ["cpu"] * 5 + ["cuda:0"]
    assert places(*tensors) == ["cuda:0"] * 6
    assert other.tensors[0] is tensors[5]


def test_each_tensor_goes_back_to_its_own_device(gpu):
    tensors = [FakeTensor("cuda:0"), FakeTensor("cuda:1"), FakeTensor("cpu")]
    adapter = Adapter()
    adapter.model, adapter.tied = FakeModule(*tensors), FakeModule(tensors[1])
    away = []

    def fail() -> None:
        with evaluated_models_on_cpu(ModelSettings()):
            away.extend(places(*tensors))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert away == ["cpu"] * 3
    assert places(*tensors) == ["cuda:0", "cuda:1", "cpu"]


def test_what_cannot_move_stays(gpu):
    stuck, free = FakeTensor("cuda:0", stuck=True), FakeTensor("cuda:0")
    adapter = Adapter()
    adapter.model = FakeModule(stuck, free)
    with evaluated_models_on_cpu(ModelSettings()):
        assert places(stuck, free) == ["cuda:0", "cpu"]
    assert places(stuck, free) == ["cuda:0", "cuda:0"]


def test_a_gpu_that_was_filled_meanwhile_is_one_warning(gpu, warnings):
    tensors = [FakeTensor("cuda:0"), FakeTensor("cuda:0")]
    adapter = Adapter()
    adapter.model = FakeModule(*tensors)
    with evaluated_models_on_cpu(ModelSettings()):
        tensors[0].stuck = True
    assert places(*tensors) == ["cpu", "cuda:0"]
    assert len(warnings) == 1
    assert warnings[0].startswith("1 of 2 tensors of the evaluated model could not go back")


@pytest.mark.parametrize("device", ["cpu", "nonsense"])
def test_nothing_moves_when_metrics_run_on_the_cpu(device):
    tensor = FakeTensor("cuda:0")
    adapter = Adapter()
    adapter.model = FakeModule(tensor)
    with evaluated_models_on_cpu(ModelSettings(device=device)):
        assert places(tensor) == ["cuda:0"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_real_module_on_a_gpu():
    adapter = Adapter()
    adapter.wrapped = types.SimpleNamespace(
        model=torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.BatchNorm1d(512))
    )
    model = adapter.wrapped.model.cuda().eval()
    inputs = torch.randn(4, 512, device="cuda")
    before, filled = model(inputs), torch.cuda.memory_allocated()
    with evaluated_models_on_cpu(ModelSettings(device="cuda")):
        assert {tensor.device.type for tensor in (*model.parameters(), *model.buffers())} == {"cpu"}
        assert torch.cuda.memory_allocated() < filled - 512 * 512 * 4 + 4096
    assert torch.equal(model(inputs), before)
