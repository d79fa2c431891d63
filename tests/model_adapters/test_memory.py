"""Batches by tokens, and batches that do not fit into memory."""

import pytest
import torch
from medtasks.model_adapters.base.requests import is_out_of_memory

from medtasks.extract.failure import failure_cause


class Memory:
    """Lets a model run on so many rows, and not on prompts with one text in them; notes the shapes."""

    def __init__(self, bench, monkeypatch, rows=10**9, never=None):
        self.tried, self.rows = [], rows
        self.never = None if never is None else list(bench.adapter.encode(never, []).ids[1:])
        self._inner = bench.adapter.model_inputs
        monkeypatch.setattr(bench.adapter, "model_inputs", self)

    def __call__(self, batch, before=None):
        if before is not None:
            return self._inner(batch, before)
        self.tried.append(tuple(batch.ids.shape))
        huge = self.never and any(row[-len(self.never) :] == self.never for row in batch.ids.tolist())
        if huge or batch.ids.shape[0] > self.rows:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return self._inner(batch)

    @property
    def sizes(self):
        return [rows for rows, _ in self.tried]


def warnings(log):
    return [line for line in log if "ran out of memory" in line]


def test_a_batch_too_large_for_the_memory_is_halved_and_the_size_remembered(new_bench, bench, monkeypatch, log):
    small = new_bench(batch_size=8)
    memory = Memory(small, monkeypatch, rows=3)
    got = small.adapter.generate_until(small.generation())
    assert got == bench.adapter.generate_until(bench.generation())
    assert memory.sizes == [8, 4, 2, 2, 4, 2, 2, 2, 2]
    assert len(warnings(log)) == 1
    assert "generate_until ran out of memory with 8 requests at once and goes on with 2" in warnings(log)[0]
    memory.tried.clear()
    small.adapter.generate_until(small.generation())
    assert memory.sizes[0] == 8, "the next call may have other prompts"


def test_one_huge_sample_fails_alone_and_does_not_shrink_the_others(new_bench, bench, docs, monkeypatch, log):
    longest = max(docs, key=lambda doc: len(doc["question"]))
    small = new_bench(batch_size=4)
    memory = Memory(small, monkeypatch, never=longest["question"])
    got = small.adapter.generate_until(small.generation())
    expected = bench.adapter.generate_until(bench.generation())
    place = docs.index(longest)
    assert failure_cause(got[place]).startswith("OutOfMemoryError")
    assert got[:place] + got[place + 1 :] == expected[:place] + expected[place + 1 :]
    assert memory.sizes == [4, 2, 1, 1, 2, 2, 2, 2, 2]
    assert len(warnings(log)) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_scores_survive_halving_too(new_bench, bench, monkeypatch, log, shared):
    options = ("x", " clear", " no")
    small = new_bench(batch_size=12, prefix_cache=shared)
    Memory(small, monkeypatch, rows=2)
    got = [loss for loss, _ in small.adapter.loglikelihood(small.scoring(options))]
    expected = [loss for loss, _ in bench.adapter.loglikelihood(bench.scoring(options))]
    assert got == pytest.approx(expected, abs=1e-9)
    assert len(warnings(log)) == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("x"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 8 bytes"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("CUBLAS_STATUS_ALLOC_FAILED"), False),
    ],
)
def test_what_counts_as_out_of_memory(error, expected):
    assert is_out_of_memory(error) == expected


@pytest.mark.parametrize("budget", [150, 400, 1000, 10**6])
def test_batches_grow_up_to_the_token_budget(new_bench, bench, docs, monkeypatch, budget):
    wide = new_bench(batch_tokens=budget, batch_size=1)
    memory = Memory(wide, monkeypatch)
    got = wide.adapter.generate_until(wide.generation())
    assert got == bench.adapter.generate_until(bench.generation())
    for rows, length in memory.tried:
        assert rows == 1 or rows * length <= budget
    lengths = sorted(
        (len(bench.adapter.encode(doc["question"], [doc["image"]] if doc["image"] else []).ids) for doc in docs),
        reverse=True,
    )
    if budget == 10**6:
        assert memory.sizes == [12]
    assert sum(memory.sizes) == 12
    assert len(memory.sizes) <= sum(lengths) * 2 / budget + 3, "batches are well filled"


def test_the_batch_size_bounds_batches_by_tokens(new_bench, monkeypatch):
    bench = new_bench(batch_tokens=10**6, batch_size=5)
    memory = Memory(bench, monkeypatch)
    bench.adapter.generate_until(bench.generation())
    assert memory.sizes == [5, 5, 2]
    limited = new_bench(batch_tokens=10**6, batch_size=1, max_batch_size=7)
    memory = Memory(limited, monkeypatch)
    limited.adapter.generate_until(limited.generation())
    assert memory.sizes == [7, 5]
