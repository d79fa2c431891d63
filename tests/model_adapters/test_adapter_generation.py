"""Replies, against a greedy loop written here, their token counts, and what a checkpoint says about decoding."""

import copy
import json
import math

import pytest
import torch
from lmms_eval.api.instance import GenerationResult, unwrap_generation_output
from lmms_eval.caching.response_cache import ResponseCache
from medtasks.model_adapters.base.batching import (
    CountedReply,
    GenerationSettings,
    decoding_config,
    pad_left,
    read_settings,
)
from medtasks.model_adapters.hf_vlm import HfVlm
from transformers import GenerationConfig

from medtasks.errors import MedTasksError
from medtasks.extract.failure import failure_cause
from medtasks.runs.reply_envelope import parse_loglikelihood

from ..tables import each_row
from .toys import plain_forward


def plain_greedy(adapter, question, image, tokens):
    prompt, text = adapter.encode(question, [] if image is None else [image]), ""
    ids = list(prompt.ids)
    for _ in range(tokens):
        ids.append(plain_forward(adapter.network, ids, prompt.pixels)[-1].argmax().item())
        if ids[-1] == 3:
            break
        text += "\n" if ids[-1] == 5 else chr(ids[-1] - 6 + 32)
    return text


def test_padded_batches_generate_like_a_plain_greedy_loop(bench, docs):
    some = range(5, 12)  # the last has no image
    replies = bench.adapter.generate_until(bench.generation(some, until=[], max_new_tokens=12))
    assert replies == [
        plain_greedy(bench.adapter, doc["question"], doc["image"], 12).strip()
        for doc in docs[5:]
    ]
    assert len(set(replies)) > 3
    short, long = (bench.generation(some, max_new_tokens=limit, until=[]) for limit in (2, 9))
    mixed = [pair[number % 2] for number, pair in enumerate(zip(short, long, strict=True))]
    expected = zip(
        bench.adapter.generate_until(short), bench.adapter.generate_until(long), strict=True
    )
    assert bench.adapter.generate_until(mixed) == [
        pair[number % 2] for number, pair in enumerate(expected)
    ]


def test_no_reply_is_read_as_a_mark(bench, monkeypatch):
    text = "[[medtasks:adapter_failed]] I pass"
    forge = lambda prompts, *_: [CountedReply(text, 3, 4) for _ in prompts]  # noqa: E731
    monkeypatch.setattr(bench.adapter, "generate_batch", forge)
    (reply,) = bench.adapter.generate_until(bench.generation([0]))
    assert failure_cause(reply) is None
    assert (reply.replace("\u2060", ""), reply.input_tokens, reply.output_tokens) == (
        text,
        3,
        4,
    )


@each_row("size, beams", [(1, 1), (12, 3)])
def test_the_batch_size_does_not_matter(new_bench, bench, size, beams):
    other = new_bench(batch_size=size)
    expected = bench.adapter.generate_until(bench.generation(range(6), num_beams=beams))
    assert other.adapter.generate_until(other.generation(range(6), num_beams=beams)) == expected


def test_a_model_that_takes_ids_gets_its_prompt_cut_off(bench, monkeypatch):
    expected = bench.adapter.generate_until(bench.generation(visual=None, until=["oo"]))
    monkeypatch.setattr(
        bench.adapter, "model_inputs", lambda batch: batch.inputs(input_ids=batch.ids)
    )
    assert bench.adapter.generate_until(bench.generation(visual=None, until=["oo"])) == expected


def test_stop_strings_end_a_reply(bench):
    whole = bench.adapter.generate_until(bench.generation(until=[]))
    doc_id = next(
        i for i, reply in enumerate(whole) if len(set(reply)) > 8 and " " not in reply
    )
    stop = whole[doc_id][5:7]
    expected = whole[doc_id].split(stop)[0].strip()
    for until in ([stop], stop, ["never there", stop]):
        assert bench.adapter.generate_until(bench.generation([doc_id], until=until)) == [
            expected
        ]


def test_generation_ends_with_the_last_row(bench, monkeypatch):
    (whole,) = bench.adapter.generate_until(bench.generation([0], until=[], max_new_tokens=30))
    lengths, model = [], bench.adapter.language_model
    inner = model.generate
    monkeypatch.setattr(
        model, "generate", lambda **given: lengths.append(len((r := inner(**given))[0])) or r
    )

    bench.adapter.generate_until(bench.generation([0], until=[whole[2]], max_new_tokens=30))

    assert lengths == [whole.index(whole[2]) + 1]


def test_the_limit_is_that_of_the_task_or_else_the_argument(new_bench):
    bench = new_bench(max_new_tokens=3)
    for limit, longest in ((1, 1), (7, 7), (None, 3)):
        replies = bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=limit))
        assert max(map(len, replies)) == longest


def test_gen_kwargs_are_not_changed_and_unknown_ones_cost_one_debug_line(bench, log):
    requests = bench.generation(image_aspect_ratio="pad", length_penalty=None)
    before = copy.deepcopy([request.args[1] for request in requests])
    bench.adapter.generate_until(requests)
    assert [request.args[1] for request in requests] == before
    assert log == [
        "DEBUG medtasks_tiny ignores generation_kwargs image_aspect_ratio, length_penalty\n"
    ]


def test_sampled_replies_depend_on_the_seed_but_not_on_batch_or_order(new_bench, bench):
    sampled = {"do_sample": True, "temperature": 1.5, "top_p": 0.9}
    expected = bench.adapter.generate_until(bench.generation(range(6), **sampled))
    assert expected != bench.adapter.generate_until(bench.generation(range(6)))
    torch.manual_seed(99)
    single = new_bench(batch_size=1)
    assert (
        single.adapter.generate_until(single.generation(range(6), **sampled)[::-1])[::-1]
        == expected
    )


@each_row("sampled", [False, True])
def test_the_global_random_state_is_left_alone(bench, sampled):
    state = torch.get_rng_state()
    bench.adapter.generate_until(bench.generation([0, 1], do_sample=sampled, temperature=1.0))
    bench.adapter.loglikelihood(bench.scoring(doc_ids=[0, 1]))
    assert torch.equal(torch.get_rng_state(), state)


@each_row(
    "given, temperature",
    [
        ({}, 0),
        ({"temperature": 0, "do_sample": True}, 0),
        ({"temperature": 0.7, "do_sample": False}, 0),
        ({"temperature": 0.7}, 0.7),
        ({"do_sample": True}, 1.0),
    ],
)
def test_temperature_zero_and_no_sampling_are_greedy(given, temperature):
    assert read_settings(given, 5).temperature == temperature


@each_row("given", [{"max_new_tokens": 0}, {"top_p": 0}, {"temperature": "warm"}, {"until": 3}])
def test_impossible_gen_kwargs_are_refused(bench, given):
    with pytest.raises(MedTasksError, match="generation_kwargs"):
        bench.adapter.generate_until(bench.generation([0], **given))


def failing(doc):
    raise OSError("gone")


@pytest.fixture
def counted(new_bench):
    """Replies of all documents, with token counts."""
    counting = new_bench(batch_size=5, token_counts=True)
    return counting.adapter.generate_until(counting.generation(until=[]))


def test_replies_carry_counts_if_asked_for(counted, bench):
    plain = bench.adapter.generate_until(bench.generation(until=[]))

    assert {type(reply) for reply in plain} == {CountedReply}  # texts, for the harness
    assert {type(reply) for reply in counted} == {GenerationResult}
    assert [reply.text for reply in counted] == plain
    assert {type(reply.text) for reply in counted} == {str}


def test_counts_are_of_the_prompt_and_the_reply_with_its_end(counted, bench, docs):
    for doc, reply in zip(docs, counted, strict=True):
        images = [doc["image"]] if doc["image"] else []
        assert reply.token_counts.input_tokens == len(
            bench.adapter.encode(doc["question"], images).ids
        )
        # One character is one token; a reply that ended by itself has the end token too.
        ended = reply.token_counts.output_tokens < 12
        assert reply.token_counts.output_tokens >= len(reply.text) + ended


def test_what_follows_a_stop_string_in_a_longer_batch_is_not_counted(new_bench, bench):
    stop = bench.adapter.generate_until(bench.generation(until=[]))[0][3]
    counts = []
    for size in (1, 12):
        sized = new_bench(batch_size=size, token_counts=True)
        replies = sized.adapter.generate_until(sized.generation(range(4), until=[stop]))
        counts.append([reply.token_counts.output_tokens for reply in replies])
    assert counts[0] == counts[1]
    assert min(counts[0]) < max(counts[0])


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


def test_a_failed_score_as_json_has_no_number(new_bench):
    bench = new_bench(loglikelihood_format="json")

    ((text, _),) = bench.adapter.loglikelihood(bench.scoring(("x",), [0], visual=failing))

    loss, greedy = parse_loglikelihood(text)
    assert math.isnan(loss)
    assert greedy is False


PENALTY = {
    "repetition_penalty": 20.0,
    "no_repeat_ngram_size": 1,
    "min_new_tokens": 3,
    "bad_words_ids": [[40]],
}


SAMPLING = {"do_sample": True, "temperature": 3.0, "top_k": 2, "num_beams": 3}


@pytest.mark.filterwarnings(
    "ignore:Passing"
)  # transformers: penalties do not count the prompt's ids
def test_medical_models_take_nothing_over(new_bench, bench):
    changed = new_bench(batch_size=5)
    adapter = changed.adapter
    adapter.language_model.generation_config = GenerationConfig(
        **PENALTY, **SAMPLING, eos_token_id=[50]
    )
    prompts = [adapter.encode(doc["question"], []) for doc in changed.docs[:3]]
    inputs = adapter.model_inputs(pad_left(prompts, adapter.pad_id, adapter.device))
    config = decoding_config(GenerationSettings(12), adapter.stop_ids, adapter.pad_id)
    with torch.inference_mode():  # without the adapter the stored values do count
        steered = adapter.language_model.generate(**inputs, generation_config=config)

    replies = adapter.generate_batch(prompts, GenerationSettings(12), 0)
    assert replies == bench.adapter.generate_batch(prompts, GenerationSettings(12), 0)
    assert [adapter.decode(row).strip() for row in steered.tolist()] != replies

    sampled = {"do_sample": True, "temperature": 1}
    expected = bench.adapter.generate_until(bench.generation(range(4), **sampled))
    assert adapter.generate_until(changed.generation(range(4), **sampled)) == expected


def test_hf_vlm_keeps_the_penalties_of_a_checkpoint_and_no_way_of_sampling(tiny_checkpoint):
    built = HfVlm(
        pretrained=str(tiny_checkpoint("llava")), device="cpu", dtype="float32", journal=False
    )
    prompts = [
        built.encode(f"Is the {side} lung clear?", []) for side in ("left", "right", "other")
    ]

    def replies():
        return built.generate_batch(prompts, GenerationSettings(12), 0)

    plain = replies()
    built.network.generation_config.update(**SAMPLING)
    assert replies() == plain
    built.network.generation_config.update(**PENALTY)
    penalised = replies()
    assert penalised != plain
    assert penalised == replies()
