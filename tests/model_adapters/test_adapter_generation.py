"""Replies, against a greedy loop written here."""

import copy

import pytest
import torch
from medtasks.model_adapters.base.generation import cut_reply, read_settings

from medtasks.errors import MedTasksError

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
    got = bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=12))
    assert got == [plain_greedy(bench.adapter, doc["question"], doc["image"], 12).strip() for doc in docs]
    assert len(set(got)) > 6


@each_row("size", [1, 12])
@each_row("beams", [1, 3])
def test_the_batch_size_does_not_matter(new_bench, bench, size, beams):
    other = new_bench(batch_size=size)
    expected = bench.adapter.generate_until(bench.generation(num_beams=beams))
    assert other.adapter.generate_until(other.generation(num_beams=beams)) == expected


def test_a_model_that_takes_ids_gets_its_prompt_cut_off(bench, monkeypatch):
    expected = bench.adapter.generate_until(bench.generation(visual=None, until=["oo"]))
    monkeypatch.setattr(bench.adapter, "model_inputs", lambda batch: batch.inputs(input_ids=batch.ids))
    assert bench.adapter.generate_until(bench.generation(visual=None, until=["oo"])) == expected


def test_requests_with_different_settings_can_be_mixed(bench):
    short, long = bench.generation(max_new_tokens=2, until=[]), bench.generation(max_new_tokens=9, until=[])
    mixed = [pair[number % 2] for number, pair in enumerate(zip(short, long, strict=True))]
    expected = zip(bench.adapter.generate_until(short), bench.adapter.generate_until(long), strict=True)
    assert bench.adapter.generate_until(mixed) == [pair[number % 2] for number, pair in enumerate(expected)]


def test_stop_strings_cut_the_reply(bench):
    whole = bench.adapter.generate_until(bench.generation(until=[]))
    doc_id = next(i for i, reply in enumerate(whole) if len(set(reply)) > 8 and " " not in reply)
    stop = whole[doc_id][5:7]
    expected = whole[doc_id].split(stop)[0].strip()
    for until in ([stop], stop, ["never there", stop]):
        assert bench.adapter.generate_until(bench.generation([doc_id], until=until)) == [expected]


def test_generation_ends_early_when_all_rows_are_stopped(bench, monkeypatch):
    (whole,) = bench.adapter.generate_until(bench.generation([0], until=[], max_new_tokens=30))
    lengths = []
    inner = bench.adapter.language_model.generate
    monkeypatch.setattr(
        bench.adapter.language_model, "generate", lambda **given: lengths.append(len((r := inner(**given))[0])) or r
    )
    bench.adapter.generate_until(bench.generation([0], until=[whole[2]], max_new_tokens=30))
    assert lengths == [whole.index(whole[2]) + 1]


def test_max_new_tokens_comes_from_the_task_or_else_from_the_argument(new_bench):
    bench = new_bench(max_new_tokens=3)
    longest = [
        max(map(len, bench.adapter.generate_until(bench.generation(until=[], max_new_tokens=limit))))
        for limit in (1, 7, None)
    ]
    assert longest == [1, 7, 3]


def test_gen_kwargs_are_not_changed_and_unknown_ones_cost_one_debug_line(bench, log):
    requests = bench.generation(image_aspect_ratio="pad", length_penalty=None)
    before = copy.deepcopy([request.args[1] for request in requests])
    bench.adapter.generate_until(requests)
    assert [request.args[1] for request in requests] == before
    assert log == ["DEBUG medtasks_tiny ignores generation_kwargs image_aspect_ratio, length_penalty\n"]


def test_sampled_replies_depend_on_the_seed_but_not_on_batch_or_order(new_bench, bench):
    sampled = {"do_sample": True, "temperature": 1.5, "top_p": 0.9}
    expected = bench.adapter.generate_until(bench.generation(**sampled))
    assert expected != bench.adapter.generate_until(bench.generation())
    torch.manual_seed(99)
    single = new_bench(batch_size=1)
    assert single.adapter.generate_until(single.generation(**sampled)[::-1])[::-1] == expected


@each_row("sampled", [False, True])
def test_the_global_random_state_is_left_alone(bench, sampled):
    state = torch.get_rng_state()
    bench.adapter.generate_until(bench.generation([0, 1], do_sample=sampled, temperature=1.0))
    bench.adapter.loglikelihood(bench.scoring(doc_ids=[0, 1]))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("given", "temperature"),
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


@pytest.mark.parametrize("given", [{"max_new_tokens": 0}, {"top_p": 0}, {"temperature": "warm"}, {"until": 3}])
def test_impossible_gen_kwargs_are_refused(bench, given):
    with pytest.raises(MedTasksError, match="generation_kwargs"):
        bench.adapter.generate_until(bench.generation([0], **given))


def test_a_reply_ends_at_the_first_stop_id_and_the_earliest_stop_string():
    def decode(ids):
        return "".join(map(chr, ids))

    assert cut_reply(b" one. two; three", decode, (), ("; ", ".")) == "one"
    assert cut_reply(b"one\x03two", decode, (3,), ()) == "one"
    assert cut_reply(b"", decode, (3,), ("x",)) == ""
