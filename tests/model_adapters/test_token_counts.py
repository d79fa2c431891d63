"""Counts of tokens beside replies and scores."""

import json
import math

import pytest
from lmms_eval.api.instance import GenerationResult, unwrap_generation_output
from lmms_eval.caching.response_cache import ResponseCache
from medtasks.model_adapters.base.generation import CountedReply

from medtasks.runs.reply_envelope import parse_loglikelihood


def failing(doc):
    raise OSError("gone")


def test_replies_carry_counts_only_if_asked_for(new_bench, bench, docs):
    counting = new_bench(batch_size=5, token_counts=True)
    plain = bench.adapter.generate_until(bench.generation(until=[]))
    counted = counting.adapter.generate_until(counting.generation(until=[]))
    assert {type(reply) for reply in plain} == {CountedReply}  # texts, for the harness
    assert {type(reply) for reply in counted} == {GenerationResult}
    assert [reply.text for reply in counted] == plain
    assert {type(reply.text) for reply in counted} == {str}
    for doc, reply in zip(docs, counted, strict=True):
        prompt = bench.adapter.encode(doc["question"], [doc["image"]] if doc["image"] else [])
        assert reply.token_counts.input_tokens == len(prompt.ids)
        # One character is one token; a reply that ended by itself has the end token too.
        ended = reply.token_counts.output_tokens < 12
        assert reply.token_counts.output_tokens >= len(reply.text) + ended


def test_rows_that_ended_early_are_not_counted_on(new_bench):
    """By a stop string, in a batch whose other row goes on."""
    bench = new_bench(batch_size=1, token_counts=True)
    whole = bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=20))
    stop = whole[0].text[3]
    alone = bench.adapter.generate_until(bench.generation(until=[stop], max_new_tokens=20))
    together = new_bench(batch_size=12, token_counts=True)
    batched = together.adapter.generate_until(together.generation(until=[stop], max_new_tokens=20))
    counts = [reply.token_counts.output_tokens for reply in batched]
    assert counts == [reply.token_counts.output_tokens for reply in alone]
    assert min(counts) < max(counts)


def test_scores_as_json_pass_through_the_harness_and_its_cache(new_bench, bench):
    as_json = new_bench(batch_size=5, loglikelihood_format="json")
    got = as_json.adapter.loglikelihood(as_json.scoring((" clear", "x")))
    expected = bench.adapter.loglikelihood(bench.scoring((" clear", "x")))
    for result, pair, tokens in zip(got, expected, [6, 1] * 12, strict=True):
        text, counts = unwrap_generation_output(result)
        assert parse_loglikelihood(text) == pair
        assert counts.output_tokens == tokens
        record = json.loads(text)
        assert record["tokens"] == tokens
        assert record["sum"] == pytest.approx(tokens * pair[0], abs=1e-12)
        assert ResponseCache._is_valid_response(result, "loglikelihood")
        assert unwrap_generation_output(json.loads(json.dumps(result)))[0] == text


def test_a_failed_score_as_json_is_read_as_failed(new_bench):
    bench = new_bench(loglikelihood_format="json")
    ((text, _),) = bench.adapter.loglikelihood(bench.scoring(("x",), [0], visual=failing))
    loss, greedy = parse_loglikelihood(text)
    assert math.isnan(loss)
    assert greedy is False
