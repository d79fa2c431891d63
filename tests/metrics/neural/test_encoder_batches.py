"""Batches of like length, what happens when memory runs out, precision, and names of weights."""

import contextlib
import itertools
import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from medtasks.errors import MedTasksError
from medtasks.metrics.neural.text_encoders import (
    check_weights,
    encoding,
    length_batches,
    run_batches,
    tensor_fault,
    weights_digest,
)

from ...tables import each_row


@given(st.lists(st.integers(0, 600)), st.integers(1, 40))
def test_batches_hold_every_text_once_the_longest_first(lengths, size):
    batches = length_batches(lengths, size)
    order = [position for batch in batches for position in batch]
    assert sorted(order) == list(range(len(lengths)))
    assert [lengths[position] for position in order] == sorted(lengths, reverse=True)
    assert all(0 < len(batch) <= size for batch in batches)
    for batch, following in itertools.pairwise(batches):
        # A batch ends when it is full, or the next text is too short for it.
        longest = lengths[batch[0]]
        assert len(batch) == size or longest - lengths[following[0]] > max(0.1 * longest, 8)
    assert all(lengths[b[0]] - lengths[b[-1]] <= max(0.1 * lengths[b[0]], 8) for b in batches)
    in_segments = length_batches(lengths, size, window=100)
    assert sorted(position for batch in in_segments for position in batch) == list(
        range(len(lengths))
    )
    for sizes in ([lengths[position] for position in batch] for batch in in_segments):
        assert sizes == sorted(sizes, reverse=True)
        assert len(sizes) == 1 or sum(max(1, -(-length // 100)) for length in sizes) <= size
        assert min(sizes[-1], 100) >= min(sizes[0], 100) - 10


def results(batches, run):
    return dict(run_batches(batches, run, description="Model", progress=False))


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"),
        MemoryError(),
    ],
)
def test_where_memory_runs_out_batches_are_halved_and_nothing_is_lost(
    error, warnings, monkeypatch
):
    monkeypatch.setattr(
        "gc.collect", lambda: None
    )  # half a second with all that tests have loaded
    sizes = []

    def run(positions):
        sizes.append(len(positions))
        if len(positions) > 3:
            raise error
        return [position * 10 for position in positions]

    found = results(length_batches(range(20), 8), run)
    assert found == {position: position * 10 for position in range(20)}
    # Eight and four fail once each; later batches do not try again what cannot fit.
    assert sizes == [8, 4, *[2] * 10]
    assert len(warnings) == 2
    with pytest.raises(MedTasksError) as caught:
        results([[0, 1]], lambda positions: run(range(4)))
    expected = "Model: memory does not suffice for a single text; free some, or set MEDTASKS_METRICS_DEVICE=cpu"
    assert str(caught.value) == expected


def test_digest_is_of_the_bytes_and_reads_a_file_once(tmp_path, monkeypatch):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_bytes(b"abc")
    other.write_bytes(b"abc")
    assert weights_digest([one]) == weights_digest([other])
    assert (
        weights_digest([one])
        == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    assert len({weights_digest([one]), weights_digest([one, other])}) == 2
    opened = []
    original = type(one).open

    def counting(path, mode="r", *arguments, **named):
        opened.append((path, mode))
        return original(path, mode, *arguments, **named)

    monkeypatch.setattr(type(one), "open", counting)
    before = weights_digest([one, other])
    assert opened == []
    state = one.stat()
    one.write_bytes(b"abd")
    os.utime(
        one, ns=(state.st_atime_ns, state.st_mtime_ns)
    )  # same size and time, as after touch -r
    assert weights_digest([one, other]) != before
    assert opened == [(one, "wb"), (one, "rb")]
    with pytest.raises(FileNotFoundError):
        weights_digest([tmp_path / "none"])


@each_row(
    "tensor, fault",
    [
        (torch.tensor([1.0, torch.nan]), "not finite"),
        (torch.tensor([torch.inf], dtype=torch.float16), "not finite"),
        (torch.ones(2, dtype=torch.complex64), "complex"),
        (torch.ones(2, 2).to_sparse(), "sparse"),
        (torch.ones(2).to(torch.float8_e4m3fn), "8 bits"),
    ],
)
def test_numbers_that_are_no_weights(tensor, fault):
    assert fault in tensor_fault(tensor)
    with pytest.raises(ValueError, match=rf"'layer\.bias' .*{fault}"):
        check_weights(
            {"layer.weight": torch.ones(2, dtype=torch.bfloat16), "layer.bias": tensor}
        )


@each_row("error", [None, OSError])
def test_products_are_exact_within_and_as_before_afterwards(error):
    # Before 2.9 one setting is all there is.
    new = hasattr(torch.backends.cuda.matmul, "fp32_precision")
    backends = (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul) if new else ()
    torch.set_float32_matmul_precision("medium")
    try:
        with contextlib.suppress(OSError), encoding(torch.device("cpu"), "float32"):
            inside = [backend.fp32_precision for backend in backends]
            assert new or torch.get_float32_matmul_precision() == "highest"
            assert torch.is_inference_mode_enabled()
            assert not torch.is_autocast_enabled("cpu")
            if error:
                raise error
        after = [backend.fp32_precision for backend in backends]
        assert (inside, after) == ((["ieee", "ieee"], ["tf32", "bf16"]) if new else ([], []))
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
