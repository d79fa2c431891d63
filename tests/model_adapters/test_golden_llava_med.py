"""LLaVA-Med against what the published code computed from small random weights in the published layout."""

import pytest
import torch
from medtasks.model_adapters.base.batching import pad_left
from medtasks.model_adapters.base.generation import GenerationSettings
from medtasks.model_adapters.llava_med import LlavaMed
from PIL import Image

from .golden import GOLDEN, assert_statistics, recorded, without_record

FOLDER = GOLDEN / "llava_med"
RECORD = recorded("llava_med")
CASES = {case["id"]: case for case in RECORD.get("cases", [])}
VARIANTS = ("openai", "checkpoint")

pytestmark = pytest.mark.skipif(not RECORD, reason=without_record("llava_med"))


@pytest.fixture(scope="module", params=VARIANTS)
def variant(request):
    tower = str(FOLDER / "vision_tower_openai")
    return request.param, LlavaMed(
        pretrained=str(FOLDER),
        vision_tower=tower,
        vision_weights=request.param,
        dtype="float32",
        device="cpu",
        journal="false",
    )


def text_of(case):
    return case["prompt"].removeprefix("[INST] <image>\n").removesuffix(" [/INST]")


def images_of(case):
    mode = case["image_mode_given_to_preprocessing"]
    return [Image.open(FOLDER / "images" / name).convert(mode) for name in case["images"]]


def close(value, recorded, kind):
    assert value == pytest.approx(recorded, abs=RECORD["tolerance"][kind])


def same_statistics(tensor, expected, kind):
    assert_statistics(tensor, expected, RECORD["tolerance"][kind])


@pytest.mark.parametrize("name", CASES)
def test_golden_llava_med_ids_and_pixels(variant, name):
    _, model = variant
    case, slots = CASES[name], RECORD["architecture"]["image_tokens"]
    prompt = model.encode(text_of(case), images_of(case))
    expanded = [token for stored in case["input_ids"] for token in ([0] * slots if stored == -200 else [stored])]
    assert list(prompt.ids) == expanded
    assert len(prompt.ids) == case["n_positions_after_image_expansion"]
    same_statistics(prompt.pixels, case["pixels"], "pixels")


@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_golden_llava_med_features_and_logits(variant, name):
    weights, model = variant
    case, expected = CASES[name], CASES[name]["expected"][weights]
    prompt = model.encode(text_of(case), images_of(case))
    same_statistics(model.image_features(prompt.pixels), expected["intermediate"]["projected_features"], "logits")
    inputs = model.model_inputs(pad_left([prompt], model.pad_id, model.device))
    logits = model.language_model(**inputs, logits_to_keep=1).logits[0, -1]
    close(logits.tolist(), expected["last_position_logits"], "logits")
    assert logits.argmax() == expected["last_position_argmax"]


@pytest.mark.parametrize("name", CASES)
@torch.inference_mode()
def test_golden_llava_med_greedy_tokens(variant, name):
    weights, model = variant
    case, expected = CASES[name], CASES[name]["expected"][weights]["generation"]
    prompt = model.encode(text_of(case), images_of(case))
    inputs = model.model_inputs(pad_left([prompt], model.pad_id, model.device))
    length = expected["max_new_tokens"]
    ids = model.language_model.generate(**inputs, max_new_tokens=length, do_sample=False)[0].tolist()
    assert ids == expected["ids"]
    reply = model.generate_batch([prompt], GenerationSettings(max_new_tokens=length), 0)
    assert reply == ["".join(expected["pieces"]).replace("▁", " ").strip()]


@pytest.mark.parametrize("name", CASES)
def test_golden_llava_med_continuations(variant, name):
    """All of a case in one batch, sharing their prompt, and one by one."""
    weights, model = variant
    case, expected = CASES[name], CASES[name]["expected"][weights]["continuations"]
    items = [model.encode_pair(text_of(case), wanted["text"], images_of(case)) for wanted in expected]
    for item, wanted in zip(items, expected, strict=True):
        assert list(item.sequence.ids[-item.tokens :]) == wanted["ids"]
    alone = [model.score_batch([item])[0] for item in items]
    for scores in (model.score_batch(items), alone):
        for score, wanted in zip(scores, expected, strict=True):
            close(-score.total, wanted["sum_logprob"], "logprob")
            close(-score.mean, wanted["mean_logprob"], "logprob")
            assert (score.tokens, score.greedy) == (wanted["n_tokens"], wanted["is_greedy"])


def test_golden_llava_med_loaded_whole():
    """Nothing above is vacuous: there are cases, of both greyscale kinds, and greedy continuations among them."""
    modes = {case["image_mode_given_to_preprocessing"] for case in CASES.values()}
    flags = {part["is_greedy"] for case in CASES.values() for part in case["expected"]["openai"]["continuations"]}
    assert modes == {"L", "RGB"}
    assert flags == {True, False}
