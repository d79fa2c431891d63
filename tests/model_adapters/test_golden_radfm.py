"""RadFM against the numbers that the original code computed from the same weights."""

import numpy as np
import pytest
import torch
from medtasks.model_adapters.base.batching import pad_left
from medtasks.model_adapters.base.generation import decoding_config, read_settings
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.radfm.adapter import place_images
from PIL import Image

from .golden import GOLDEN, assert_statistics, recorded, without_record

FOLDER = GOLDEN / "radfm"
RECORD = recorded("radfm")
CASES = {case["id"]: case for case in RECORD.get("cases", [])} | (
    {"volume_case": RECORD["volume_case"]} if "volume_case" in RECORD else {}
)
LOGITS, PIXELS = 1e-4, 1e-5

pytestmark = pytest.mark.skipif(not CASES, reason=without_record("radfm"))
each_case = pytest.mark.parametrize("name", list(CASES) or ["none"])


@pytest.fixture(scope="module")
def model():
    return RadFM(pretrained=str(FOLDER), dtype="float32", device="cpu", journal=False)


def images(case):
    if "images" in case:
        return [Image.open(FOLDER / "images" / name) for name in case["images"]]
    channel, height, width, depth = np.indices(case["pixels"]["shape"][2:])
    values = (7 * channel + 3 * height + 5 * width + 11 * depth + height * width) % 32 / 31
    return [values.astype(np.float32)]


@each_case
def test_golden_radfm_ids_and_pixels(model, name):
    case = CASES[name]
    prompt = model.encode(case["text"], images(case))
    assert list(prompt.ids) == case["input_ids"]
    assert_statistics(prompt.pixels[None], case["pixels"], PIXELS)


@each_case
def test_golden_radfm_position_switch(model, name):
    case = CASES[name]
    position = {(0,): "front", (-1,): "before_last_character"}.get(tuple(case.get("image_positions", ())))
    if position is None:
        pytest.skip("images stand elsewhere in this case")
    assert place_images(case["question"], len(case["images"]), model._latents, position) == case["text"]


@each_case
@torch.inference_mode()
def test_golden_radfm_intermediate(model, name):
    case = CASES[name]
    if "intermediate" not in case:
        pytest.skip("nothing recorded in between")
    expected, parts = case["intermediate"], model.network.embedding_layer
    pixels = model.encode(case["text"], images(case)).pixels
    tokens = parts.vision_encoder(pixels)
    assert_statistics(tokens, expected["vit_tokens"], LOGITS)
    assert_statistics(parts.perceiver(tokens), expected["perceiver_latents"], LOGITS)
    assert_statistics(model.image_features(pixels), expected["image_embeddings"], LOGITS)


@each_case
@torch.inference_mode()
def test_golden_radfm_logits_and_tokens(model, name):
    case = CASES[name]
    inputs = model.model_inputs(pad_left([model.encode(case["text"], images(case))], model.pad_id, model.device))
    logits = model.language_model(**inputs).logits[0, -1]
    torch.testing.assert_close(logits, torch.tensor(case["last_position_logits"]), atol=LOGITS, rtol=0)
    assert int(logits.argmax()) == case["last_position_argmax"]
    settings = read_settings({}, case["generation"]["max_new_tokens"])
    config = decoding_config(settings, model.stop_ids, model.pad_id)
    tokens = model.language_model.generate(**inputs, generation_config=config)[0].tolist()
    assert tokens == case["generation"]["ids"]


def test_golden_radfm_scores_in_one_batch(model):
    pairs, expected = [], []
    for case in CASES.values():
        for continuation in case.get("continuations", []):
            pairs.append(model.encode_pair(case["text"], continuation["text"], images(case)))
            expected.append(continuation)
    assert len(pairs) > 10
    for scores in (model.score_batch(pairs), model._score_whole(pairs)):
        for pair, score, wanted in zip(pairs, scores, expected, strict=True):
            assert list(pair.sequence.ids[-pair.tokens :]) == wanted["ids"]
            assert score.total == pytest.approx(-wanted["sum_logprob"], abs=LOGITS)
            assert score.mean == pytest.approx(-wanted["mean_logprob"], abs=LOGITS)
            assert score.greedy == wanted["is_greedy"]


def test_golden_radfm_batch_of_all_cases_generates_the_same(model):
    """As one padded batch, prompts with pictures and with the volume side by side."""
    prompts = [model.encode(case["text"], images(case)) for case in CASES.values()]
    settings = read_settings({}, next(iter(CASES.values()))["generation"]["max_new_tokens"])
    replies = model.generate_batch(prompts, settings, 0)
    assert replies == [model.decode(case["generation"]["ids"]).strip() for case in CASES.values()]


def test_golden_radfm_unused_keys_are_the_recorded_ones(model):
    """What the record calls unused is exactly what the loader leaves out."""
    stored = torch.load(FOLDER / "pytorch_model.bin", mmap=True)
    unused = [name.replace("*", "0") for name in RECORD["checkpoint"]["keys_without_use_in_inference"]]
    left = [key for key in stored if not key.startswith(tuple(unused)) and not key.endswith("inv_freq")]
    assert len(stored) == RECORD["checkpoint"]["n_keys"]
    assert len(left) == len(list(model.network.parameters()))
