"""One failing sample costs that sample, many cost the run; a batch that does not fit into memory is halved."""

import math
import re

import pytest
import torch
from medtasks.model_adapters.base.requests import FailureLog, read_requests

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause

from ..tables import each_row

SECRET = "patient Jane Doe"


def failing_on(*doc_numbers, error=OSError):
    """An image loader that fails for some documents and whose error quotes what must not be logged."""

    def to_visual(doc):
        if any(doc["question"].startswith(f"{number}:") for number in doc_numbers):
            raise error(f"{SECRET}: {doc['question']}")
        return None if doc["image"] is None else [doc["image"]]

    return to_visual


def test_a_failing_image_fails_its_own_reply_only(bench, log):
    expected = bench.adapter.generate_until(bench.generation())

    replies = bench.adapter.generate_until(bench.generation(visual=failing_on(4)))

    assert "OSError at test_adapter_failures.py" in failure_cause(replies[4])
    assert replies[:4] + replies[5:] == expected[:4] + expected[5:]
    assert SECRET not in replies[4] + "".join(log)
    (line,) = log
    assert (
        "WARNING generate_until failed on toy/test/4#0: OSError at test_adapter_failures.py"
        in line
    )


def test_a_failing_image_fails_its_own_scores_only(bench):
    expected = bench.adapter.loglikelihood(bench.scoring())

    scores = bench.adapter.loglikelihood(bench.scoring(visual=failing_on(4)))

    assert [math.isnan(loss) for loss, _ in scores] == [
        number in (8, 9) for number in range(24)
    ]
    assert not scores[8][1]
    losses = [[loss for loss, _ in pairs[:8] + pairs[10:]] for pairs in (scores, expected)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-9)


def test_the_message_of_an_error_is_added_where_errors_are_quoted(bench, log):
    bench.adapter.quote_errors(allowed=True)

    replies = bench.adapter.generate_until(bench.generation(visual=failing_on(4)))

    cause = failure_cause(replies[4])
    assert re.fullmatch(
        rf"OSError at test_adapter_failures\.py:\d+ in to_visual: {SECRET}: 4: .*", cause
    )
    assert cause in log[0]

    bench.adapter.quote_errors(allowed=False)
    assert SECRET not in bench.adapter.generate_until(bench.generation(visual=failing_on(4)))[4]


def test_a_long_message_of_an_error_is_cut(bench):
    long = FailureLog("x", 9, 1, quotes=True)
    (request,) = read_requests(bench.generation([0]), "generate_until")
    assert (
        long.record(request, ValueError("one\n two " + "x" * 999))
        == f"ValueError: one two {'x' * 292}"
    )
    assert long.record(request, ValueError()) == "ValueError"


@each_row("bad", ["", 3, lambda doc: None])
def test_a_continuation_that_cannot_be_scored_fails_alone(bench, bad):
    requests = bench.scoring((" clear",))
    requests[2].arguments = (requests[2].args[0], bad, *requests[2].args[2:])
    assert [math.isnan(loss) for loss, _ in bench.adapter.loglikelihood(requests)] == [
        i == 2 for i in range(12)
    ]


def test_a_batch_that_fails_is_repeated_one_by_one(bench, monkeypatch):
    expected = bench.adapter.generate_until(bench.generation())
    inner = bench.adapter.model_inputs
    ids = list(bench.adapter.encode(bench.docs[6]["question"], [bench.docs[6]["image"]]).ids)

    def model_inputs(batch, before=None):
        if any(row[-len(ids) :] == ids for row in batch.ids.tolist()):
            raise RuntimeError("device trouble")
        return inner(batch, before)

    monkeypatch.setattr(bench.adapter, "model_inputs", model_inputs)
    got = bench.adapter.generate_until(bench.generation())
    assert failure_cause(got[6]).startswith("RuntimeError at test_adapter_failures.py")
    assert got[:6] + got[7:] == expected[:6] + expected[7:]


@each_row("call", ["generation", "scoring"])
def test_too_many_failures_end_the_call_with_a_sentence(bench, call):
    requests = getattr(bench, call)(visual=failing_on(1, 2, 3))
    method = (
        bench.adapter.generate_until if call == "generation" else bench.adapter.loglikelihood
    )
    failed, total, allowed = (3, 12, 1) if call == "generation" else (6, 24, 2)
    words = f"^{failed} of {total} .* failed, {allowed} may .*OSError.*max_failed=1"
    with pytest.raises(MedTasksError, match=words) as error:
        method(requests)
    assert SECRET not in str(error.value)


@each_row(
    "share, requests, allowed",
    [(0.1, 1, 1), (0.1, 352, 35), (0.0, 352, 0), (0.01, 50, 1), (0.5, 7, 3)],
)
def test_the_allowance_is_the_share_but_at_least_one(bench, share, requests, allowed):
    (request,) = read_requests(bench.generation([0]), "generate_until")
    failures = FailureLog("x", requests, share)
    for _ in range(allowed):
        failures.record(request, OSError())
    failures.settle()
    failures.record(request, OSError())
    with pytest.raises(
        MedTasksError, match=f"^{allowed + 1} of {requests} x requests failed, {allowed} may"
    ):
        failures.settle()


def test_padding_between_ranks_is_not_counted(new_bench):
    bench = new_bench(max_failed=0)
    requests = bench.generation([0], visual=failing_on(0))
    requests[0].metadata["__padding_only__"] = True
    assert failure_cause(bench.adapter.generate_until(requests)[0])


def test_an_interrupt_ends_the_run(new_bench):
    bench = new_bench(max_failed=0)
    with pytest.raises(KeyboardInterrupt):
        bench.adapter.generate_until(
            bench.generation(visual=failing_on(2, error=KeyboardInterrupt))
        )


def test_an_error_of_ours_is_a_failure_in_its_own_words(bench):
    def refuse(doc):
        raise MedTasksError("images of this dataset are gone")

    (reply,) = bench.adapter.generate_until(bench.generation([0], visual=refuse))
    assert failure_cause(reply) == "images of this dataset are gone"


def test_requests_of_another_form_are_refused(bench):
    (request,) = bench.scoring((" a",), [0])
    request.arguments = ("", " a")
    with pytest.raises(MedTasksError, match="carries 2 values"):
        bench.adapter.loglikelihood([request])
    with pytest.raises(MedTasksError, match="medtasks_tiny answers in one round"):
        bench.adapter.generate_until_multi_round([])


def test_no_requests_have_no_answers(bench):
    assert (bench.adapter.generate_until([]), bench.adapter.loglikelihood([])) == ([], [])


class Memory:
    """Lets a model run on so many rows, and not on prompts with one text in them; notes the shapes."""

    def __init__(self, bench, monkeypatch, rows=10**9, never=None, error=None):
        self.tried, self.rows = [], rows
        self.error = error or torch.OutOfMemoryError("CUDA out of memory.")
        self.never = None if never is None else list(bench.adapter.encode(never, []).ids[1:])
        self._inner = bench.adapter.model_inputs
        monkeypatch.setattr(bench.adapter, "model_inputs", self)

    def __call__(self, batch, before=None):
        if before is not None:
            return self._inner(batch, before)
        self.tried.append(tuple(batch.ids.shape))
        huge = self.never and any(
            row[-len(self.never) :] == self.never for row in batch.ids.tolist()
        )
        if huge or batch.ids.shape[0] > self.rows:
            raise self.error
        return self._inner(batch)

    @property
    def sizes(self):
        return [rows for rows, _ in self.tried]


def warnings(log):
    return [line for line in log if "ran out of memory" in line]


def test_a_batch_too_large_for_the_memory_is_halved(new_bench, bench, monkeypatch, log):
    small = new_bench(batch_size=8)
    memory = Memory(small, monkeypatch, rows=3)

    got = small.adapter.generate_until(small.generation())

    assert got == bench.adapter.generate_until(bench.generation())
    assert memory.sizes == [8, 4, 2, 2, 4, 2, 2, 2, 2]
    assert len(warnings(log)) == 1
    assert (
        "generate_until ran out of memory with 8 requests at once and goes on with 2"
        in warnings(log)[0]
    )


def test_each_call_begins_with_the_batch_size_of_the_user(new_bench, monkeypatch):
    """The next call may have other prompts."""
    small = new_bench(batch_size=8)
    memory = Memory(small, monkeypatch, rows=3)
    small.adapter.generate_until(small.generation())
    memory.tried.clear()

    small.adapter.generate_until(small.generation())

    assert memory.sizes[0] == 8


def test_batches_by_tokens_are_no_larger_than_the_size_of_the_user(new_bench, monkeypatch):
    bench = new_bench(batch_tokens=10**6, batch_size=5)
    memory = Memory(bench, monkeypatch)
    bench.adapter.generate_until(bench.generation())
    assert memory.sizes == [5, 5, 2]
    limited = new_bench(batch_tokens=10**6, batch_size=1, max_batch_size=7)
    memory = Memory(limited, monkeypatch)
    limited.adapter.generate_until(limited.generation())
    assert memory.sizes == [7, 5]


def test_one_huge_sample_fails_alone(new_bench, bench, docs, monkeypatch, log):
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


@each_row("budget", [150, 1000, 10**6])
def test_batches_grow_up_to_the_token_budget(new_bench, bench, monkeypatch, budget):
    wide = new_bench(batch_tokens=budget, batch_size=1)
    memory = Memory(wide, monkeypatch)
    expected = bench.adapter.generate_until(bench.generation(max_new_tokens=2))
    assert wide.adapter.generate_until(wide.generation(max_new_tokens=2)) == expected
    for rows, length in memory.tried:
        assert rows == 1 or rows * length <= budget
    tokens = sum(rows * length for rows, length in memory.tried)
    if budget == 10**6:
        assert memory.sizes == [12]
    assert sum(memory.sizes) == 12
    assert len(memory.sizes) <= 2 * tokens / budget + 3, "batches are well filled"
