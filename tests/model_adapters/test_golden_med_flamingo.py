"""Med-Flamingo against what the official code computed; the recordings have a README of their own."""

import copy
import dataclasses

import pytest
import torch
from medtasks.model_adapters.base.batching import pad_left
from PIL import Image

from .golden import GOLDEN, assert_statistics, recorded, without_record
from .med_flamingo_toy import adapter_from, asked, replies

FOLDER = GOLDEN / "med_flamingo"
VARIANTS = {
    "preceding": {},
    "following": {"media_attention": "following"},
    "following_first_id_0": {"media_attention": "following", "bos_id": 0},
    "preceding_post_norm": {"vision_post_norm": True},
}


@pytest.fixture(scope="module")
def golden():
    record = recorded("med_flamingo")
    if not record:
        pytest.skip(without_record("med_flamingo"))
    return record


@pytest.fixture(scope="module")
def golden_adapters(golden):
    return {name: adapter_from(FOLDER, max_new_tokens=12, **switches) for name, switches in VARIANTS.items()}


def cases_of(golden, variant):
    """Yield case, what it should give, and its images."""
    assert all(set(case["expected"]) == set(VARIANTS) for case in golden["cases"])
    for case in golden["cases"]:
        yield case, case["expected"][variant], [Image.open(FOLDER / "images" / name) for name in case["images"]]


EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS)


@EVERY_VARIANT
def test_golden_med_flamingo_inputs(golden, golden_adapters, variant):
    adapter = golden_adapters[variant]
    for case, expected, images in cases_of(golden, variant):
        prompt = adapter.encode(case["prompt"], images)
        assert list(prompt.ids) == expected["input_ids"]
        assert_statistics(prompt.pixels, case["pixels"], golden["tolerance"]["pixels"])
        vision = case["intermediate_post_norm" if "post_norm" in variant else "intermediate"]
        with torch.inference_mode():
            assert_statistics(adapter.image_features(prompt.pixels), vision["perceiver_latents"], 1e-4)


@EVERY_VARIANT
def test_golden_med_flamingo_logits_and_greedy_tokens(golden, golden_adapters, variant):
    adapter = golden_adapters[variant]
    for case, expected, images in cases_of(golden, variant):
        batch = pad_left([adapter.encode(case["prompt"], images)], adapter.pad_id, adapter.device)
        with torch.inference_mode():
            inputs = adapter.model_inputs(batch)
            logits = adapter.language_model(**inputs).logits[0, -1, : golden["architecture"]["vocabulary"]]
            reply = adapter.language_model.generate(
                **inputs, max_new_tokens=12, do_sample=False, eos_token_id=adapter.stop_ids, pad_token_id=adapter.pad_id
            )
        difference = (logits - torch.tensor(expected["last_position_logits"])).abs().max().item()
        assert difference < golden["tolerance"]["logits"]
        assert logits.argmax().item() == expected["last_position_argmax"]
        assert reply[0, batch.ids.shape[1] :].tolist() == expected["generation"]["ids"]


def plain_docs(golden):
    def opened(doc):
        return [Image.open(FOLDER / "images" / name) for name in doc["images"]]

    return [{"question": case["prompt"], "images": case["images"], "visuals": opened} for case in golden["cases"]]


@EVERY_VARIANT
@pytest.mark.parametrize("shared", [True, False])
def test_golden_med_flamingo_likelihoods(golden, golden_adapters, variant, shared):
    adapter = golden_adapters[variant]
    for case, expected, images in cases_of(golden, variant):
        items = []
        for wanted in expected["continuations"]:
            items.append(adapter.encode_pair(case["prompt"], wanted["text"], images))
            assert list(items[-1].sequence.ids[-items[-1].tokens :]) == wanted["ids"]
        whole = copy.copy(adapter)
        whole.arguments = dataclasses.replace(adapter.arguments, prefix_cache=shared)
        for got, wanted in zip(whole.score_batch(items), expected["continuations"], strict=True):
            assert -got.total == pytest.approx(wanted["sum_logprob"], abs=golden["tolerance"]["logprob"])
            assert (got.tokens, got.greedy) == (wanted["n_tokens"], wanted["is_greedy"])


@EVERY_VARIANT
def test_golden_med_flamingo_through_the_harness_calls(golden, golden_adapters, variant):
    """All cases in one padded batch."""
    adapter, docs = golden_adapters[variant], plain_docs(golden)
    expected = [case["expected"][variant] for case in golden["cases"]]
    options = [[wanted["text"] for wanted in case["continuations"]] for case in expected]
    requests = [
        request
        for request in asked(adapter, docs, "loglikelihood", range(max(map(len, options))))
        if request.idx < len(options[request.args[3]])
    ]
    for request in requests:
        request.arguments = (request.args[0], options[request.args[3]][request.idx], *request.args[2:])
    got = adapter.loglikelihood(requests)
    wanted = [one for case in expected for one in case["continuations"]]
    assert [-loss for loss, _ in got] == pytest.approx([one["mean_logprob"] for one in wanted], abs=1e-4)
    assert [greedy for _, greedy in got] == [one["is_greedy"] for one in wanted]
    texts = [adapter.decode(case["generation"]["ids"]) for case in expected]
    assert replies(adapter, docs, max_new_tokens=12) == texts
