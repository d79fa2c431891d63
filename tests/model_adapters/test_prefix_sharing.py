"""Options that share the pass over image and prompt score as if each had its own."""

import pytest
import torch
from medtasks.model_adapters.base.batching import Continuation, Encoded
from medtasks.model_adapters.base.shared_scoring import Questions
from medtasks.model_adapters.tiny import MedTasksTiny

from ..tables import each_row

OPTIONS = ("x", " clear", " a large effusion in the left lung", " no", "y")


class Passes:
    """Notes the calls of a language model."""

    def __init__(self, bench, monkeypatch):
        self.rows, self.columns, self.cached, self.logits = [], [], [], []
        self._inner = bench.adapter.language_model.forward
        monkeypatch.setattr(bench.adapter.language_model, "forward", self)

    def __call__(self, **given):
        ids = given.get("input_ids")
        shape = (given["inputs_embeds"] if ids is None else ids).shape
        self.rows.append(shape[0])
        self.columns.append(shape[1])
        self.cached.append(given.get("past_key_values") is not None)
        output = self._inner(**given)
        self.logits.append(tuple(output.logits.shape))
        return output


def assert_pairs(got, expected, tolerance):
    assert [loss for loss, _ in got] == pytest.approx([loss for loss, _ in expected], abs=tolerance)
    assert [greedy for _, greedy in got] == [greedy for _, greedy in expected]


def losses(bench, requests):
    return [loss for loss, _ in bench.adapter.loglikelihood(requests)]


@pytest.fixture(scope="module")
def unshared(docs, new_bench):
    """Per document and option the pair of the path without sharing, at batch size 1."""
    bench = new_bench(prefix_cache=False, batch_size=1)
    pairs = bench.adapter.loglikelihood(bench.scoring(OPTIONS))
    return {
        (doc_id, option): pairs[doc_id * len(OPTIONS) + number]
        for doc_id in range(len(docs))
        for number, option in enumerate(OPTIONS)
    }


@each_row("size", [1, 2, 7, 60])
@each_row("shared", [True, False])
def test_every_batch_size_scores_like_one_pass_per_option(new_bench, unshared, size, shared):
    bench = new_bench(batch_size=size, prefix_cache=shared)
    got = bench.adapter.loglikelihood(bench.scoring(OPTIONS))
    assert_pairs(got, unshared.values(), 1e-9)


def test_greedy_flags_agree_for_options_the_model_would_say(new_bench, bench):
    replies = bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=6))
    doc_id = next(number for number, reply in enumerate(replies) if len(reply) == 6)
    said = replies[doc_id]
    options = (said, said[:3], said[0], said[:-1] + "~", "~" + said[1:], said[:2] + "~" + said[3:])
    pairs = bench.adapter.loglikelihood(bench.scoring(options, [doc_id]))
    assert [greedy for _, greedy in pairs] == [True, True, True, False, False, False]


def test_the_prompt_is_run_once_however_many_options_it_has(new_bench, monkeypatch):
    bench = new_bench(batch_size=1)
    passes = Passes(bench, monkeypatch)
    bench.adapter.loglikelihood(bench.scoring(OPTIONS, [0, 1]))
    assert passes.cached == [False, True] * 2
    assert passes.rows == [1, 3] * 2, "one prompt, then the options of more than one token"
    assert passes.columns[1::2] == [len(OPTIONS[2]) - 1] * 2


def test_options_of_one_token_need_the_prompt_only(new_bench, monkeypatch):
    bench = new_bench(batch_size=8)
    passes = Passes(bench, monkeypatch)
    bench.adapter.loglikelihood(bench.scoring(("A", "B", "C", "D"), [3, 4]))
    assert passes.cached == [False]
    assert passes.rows == [2]


def test_equal_prompts_with_other_images_share_nothing(new_bench, docs, monkeypatch):
    twins = [{**docs[number], "question": "Is it clear?"} for number in (0, 1, 0)]
    bench, apart = (new_bench(docs=twins, batch_size=12, prefix_cache=shared) for shared in (True, False))
    passes = Passes(bench, monkeypatch)
    got = losses(bench, bench.scoring(OPTIONS))
    assert passes.rows[0] == 2, "two different images, one of them in two documents"
    assert got == pytest.approx(losses(apart, apart.scoring(OPTIONS)), abs=1e-9)
    assert abs(got[0] - got[len(OPTIONS)]) > 1e-6


class Merging(MedTasksTiny):
    """Its tokenizer makes one token of a question mark and an x."""

    def encode(self, text, images, reply=""):
        return super().encode((text + reply).replace("?x", "\t"), images)


def test_an_option_that_merges_with_its_prompt_is_scored_as_without_sharing(new_bench):
    results = []
    for shared in (True, False):
        bench = new_bench(kind=Merging, batch_size=6, prefix_cache=shared)
        results.append(losses(bench, bench.scoring((" no", "x", "xyz", " clear"), [0, 1, 2])))
    assert results[0] == pytest.approx(results[1], abs=1e-9)
    items = [bench.adapter.encode_pair("a?", option, []) for option in (" no", "x", "xyz", " clear")]
    assert Questions.of(items, bench.adapter).places == [[0, 3], [1, 2]]


def test_images_are_told_apart_by_content(bench):
    def item(value, *ids):
        return Continuation(Encoded(ids, None if value is None else torch.full((1, 3), value)), 1)

    items = [item(0.0, 1, 2, 3), item(1.0, 1, 2, 3), item(0.0, 1, 2, 4), item(None, 1, 2, 3), item(0.0, 1, 9, 3)]
    assert Questions.of(items, bench.adapter).places == [[0, 2], [1], [3], [4]]


def test_a_question_with_a_failing_option_keeps_the_others(bench, unshared):
    requests = bench.scoring(OPTIONS, [0])
    requests[2].arguments = (requests[2].args[0], "", *requests[2].args[2:])
    got = losses(bench, requests)
    assert got[2] != got[2]
    kept = [number for number in range(5) if number != 2]
    assert [got[i] for i in kept] == pytest.approx([unshared[0, OPTIONS[i]][0] for i in kept], abs=1e-9)


def test_models_that_take_ids_continue_with_ids(new_bench, monkeypatch):
    """A prompt without image may go in as ids; the options follow after the prompts they belong to."""
    bench, plain = new_bench(batch_size=10), new_bench(prefix_cache=False)
    asked = []

    def model_inputs(batch, before=None):
        if before is not None:
            asked.append((batch.ids.shape[0], before.ids.shape[0], len(before.prompts)))
        return batch.inputs(input_ids=batch.ids)

    monkeypatch.setattr(bench.adapter, "model_inputs", model_inputs)
    expected = losses(plain, plain.scoring(OPTIONS, [0, 1, 2], visual=None))
    assert losses(bench, bench.scoring(OPTIONS, [0, 1, 2], visual=None)) == pytest.approx(expected, abs=1e-9)
    assert asked == [(6, 6, 6), (3, 3, 3)]
