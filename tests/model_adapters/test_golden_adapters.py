"""The adapters against what the official codes computed from the same weights; the recordings have a README."""

import functools
import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from medtasks.model_adapters.base.batching import GenerationSettings, decoding_config, pad_left
from medtasks.model_adapters.radfm.adapter import place_images
from PIL import Image

from ..tables import each_row
from . import llava_med_toy, radfm_toy
from .med_flamingo_toy import adapter_from
from .toys import GOLDEN, SPLIT, TASK, assert_statistics, instances, recorded, without_record

RECORDS = {name: recorded(name) for name in ("llava_med", "med_flamingo", "radfm")}
TOWER = {"vision_tower": str(GOLDEN / "llava_med" / "vision_tower_openai")}
VARIANTS = {
    "llava_med": {name: TOWER | {"vision_weights": name} for name in ("openai", "checkpoint")},
    "med_flamingo": {
        "preceding": {},
        "following": {"media_attention": "following"},
        "following_first_id_0": {"media_attention": "following", "bos_id": 0},
        "preceding_post_norm": {"vision_post_norm": True},
    },
    "radfm": {"": {}},
}
MAKERS = {
    "llava_med": llava_med_toy.adapter,
    "med_flamingo": adapter_from,
    "radfm": radfm_toy.adapter,
}
MARKERS = {"med_flamingo": 3}  # logits of ours that the official code does not have


@functools.cache
def adapter(name, variant):
    return MAKERS[name](
        GOLDEN / name, **VARIANTS[name][variant], batch_size=64, max_new_tokens=12, max_failed=0
    )


@dataclass
class Case:
    name: str  # of the model
    variant: str
    record: dict
    expected: dict = field(init=False)  # what the variant computed

    def __post_init__(self):
        self.expected = (
            self.record["expected"][self.variant] if "expected" in self.record else self.record
        )

    @property
    def model(self):
        return adapter(self.name, self.variant)

    @property
    def text(self):
        text = self.record.get("text") or self.record["prompt"]
        return text.removeprefix("[INST] <image>\n").removesuffix(" [/INST]")

    @property
    def images(self):
        if "images" not in self.record:
            channel, height, width, depth = np.indices(self.record["pixels"]["shape"][2:])
            values = (
                (7 * channel + 3 * height + 5 * width + 11 * depth + height * width) % 32 / 31
            )
            return [values.astype(np.float32)]
        images = [
            Image.open(GOLDEN / self.name / "images" / name) for name in self.record["images"]
        ]
        mode = self.record.get("image_mode_given_to_preprocessing")
        return [image.convert(mode) for image in images] if mode else images

    @property
    def prompt(self):
        return self.model.encode(self.text, self.images)

    @property
    def pairs(self):
        """The continuations as model input, and what was recorded of each."""
        wanted = self.expected.get("continuations", [])
        return [
            (self.model.encode_pair(self.text, part["text"], self.images), part)
            for part in wanted
        ]

    def close(self, value, recorded, kind):
        assert value == pytest.approx(
            recorded, rel=0, abs=RECORDS[self.name]["tolerance"][kind]
        )


def cases_of(name, variant):
    record = RECORDS[name]
    cases = [
        *record.get("cases", []),
        *({"id": "volume", **case} for case in [record.get("volume_case")] if case),
    ]
    return [Case(name, variant, case) for case in cases]


MISSING = {
    name: pytest.mark.skipif(not record, reason=without_record(name))
    for name, record in RECORDS.items()
}
EVERY_VARIANT = pytest.mark.parametrize(
    ("name", "variant"),
    [
        pytest.param(name, variant, marks=MISSING[name])
        for name in VARIANTS
        for variant in VARIANTS[name]
    ],
)


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def ids_and_pixels(case):
    prompt, expected = case.prompt, case.expected.get("input_ids") or case.record["input_ids"]
    slots = RECORDS[case.name]["architecture"].get("image_tokens")
    ids = [
        token for stored in expected for token in ([0] * slots if stored == -200 else [stored])
    ]
    assert list(prompt.ids) == ids
    assert len(prompt.ids) == case.record.get("n_positions_after_image_expansion", len(ids))
    pixels = prompt.pixels[None] if case.name == "radfm" else prompt.pixels
    assert_statistics(pixels, case.record["pixels"], RECORDS[case.name]["tolerance"]["pixels"])


def features(case):
    place = "intermediate_post_norm" if "post_norm" in case.variant else "intermediate"
    recorded = case.expected.get("intermediate") or case.record.get(place)
    if recorded is None:
        return
    pixels = case.prompt.pixels
    made = {}
    if case.name == "radfm":
        parts = case.model.network.embedding_layer
        made["vit_tokens"] = parts.vision_encoder(pixels)
        made["perceiver_latents"] = parts.perceiver(made["vit_tokens"])
    last = {
        "llava_med": "projected_features",
        "med_flamingo": "perceiver_latents",
        "radfm": "image_embeddings",
    }
    made[last[case.name]] = case.model.image_features(pixels)
    for part, tensor in made.items():
        assert_statistics(tensor, recorded[part], RECORDS[case.name]["tolerance"]["logits"])


def logits_and_greedy_tokens(case):
    model, expected = case.model, case.expected
    inputs = model.model_inputs(pad_left([case.prompt], model.pad_id, model.device))
    logits = model.language_model(**inputs, logits_to_keep=1).logits[0, -1]
    assert len(logits) == len(expected["last_position_logits"]) + MARKERS.get(case.name, 0)
    case.close(
        logits[: len(expected["last_position_logits"])].tolist(),
        expected["last_position_logits"],
        "logits",
    )
    assert logits.argmax() == expected["last_position_argmax"]
    config = decoding_config(
        GenerationSettings(expected["generation"]["max_new_tokens"]),
        model.stop_ids,
        model.pad_id,
    )
    ids = model.language_model.generate(**inputs, generation_config=config)[0]
    skip = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    assert ids[skip:].tolist() == expected["generation"]["ids"]


@EVERY_VARIANT
@each_row("way", ["case by case", "in one batch", "without sharing"])
def test_golden_continuations(name, variant, way):
    cases = [
        (case, case.pairs)
        for case in cases_of(name, variant)
        if "continuations" in case.expected
    ]
    assert sum(len(pairs) for _, pairs in cases) > 1  # or nothing would be shared
    if way in ("in one batch", "without sharing"):
        cases = [(cases[0][0], [pair for _, pairs in cases for pair in pairs])]
    for case, pairs in cases:
        items = [item for item, _ in pairs]
        scores = (
            case.model._score_whole(items)
            if way == "without sharing"
            else case.model.score_batch(items)
        )
        for (item, wanted), score in zip(pairs, scores, strict=True):
            assert item.targets == wanted["ids"]
            case.close(-score.total, wanted["sum_logprob"], "logprob")
            case.close(-score.mean, wanted["mean_logprob"], "logprob")
            assert (score.tokens, score.greedy) == (wanted["n_tokens"], wanted["is_greedy"])


@EVERY_VARIANT
def test_golden_through_the_harness_calls(name, variant):
    """All cases in one padded batch, with and without images, flat and deep ones side by side."""
    cases = cases_of(name, variant)
    model, docs = (
        cases[0].model,
        [{"question": case.text, "images": case.images} for case in cases],
    )
    model.task_dict = {TASK: {SPLIT: docs}}
    requests, wanted = [], []
    for number, case in enumerate(cases):
        parts = case.expected.get("continuations", [])
        requests += instances(
            "loglikelihood", docs, [part["text"] for part in parts], doc_ids=[number]
        )
        wanted += parts
    scores = model.loglikelihood(requests)
    cases[0].close(
        [-loss for loss, _ in scores], [part["mean_logprob"] for part in wanted], "logprob"
    )
    assert [greedy for _, greedy in scores] == [part["is_greedy"] for part in wanted]
    generated = [case.expected["generation"] for case in cases]
    length = max(part["max_new_tokens"] for part in generated)
    replies = model.generate_until(
        instances("generate_until", docs, [{"until": [], "max_new_tokens": length}])
    )
    assert replies == [model.decode(part["ids"]).strip() for part in generated]
    if name == "llava_med":
        assert replies == [
            "".join(part["pieces"]).replace("▁", " ").strip() for part in generated
        ]


@EVERY_VARIANT
def test_golden_cases(name, variant, subtests):
    assert name != "med_flamingo" or all(
        set(case.record["expected"]) == set(VARIANTS[name]) for case in cases_of(name, variant)
    )

    @each_row(
        "case, check",
        itertools.product(
            cases_of(name, variant), (ids_and_pixels, features, logits_and_greedy_tokens)
        ),
    )
    def check_case(case, check):
        check(case)

    check_case(subtests=subtests)


@MISSING["radfm"]
def test_golden_radfm_position_switch():
    for case in cases_of("radfm", ""):
        position = {(0,): "front", (-1,): "before_last_character"}.get(
            tuple(case.record.get("image_positions", ()))
        )
        if position is not None:  # else its images stand elsewhere
            placed = place_images(
                case.record["question"], len(case.images), case.model._latents, position
            )
            assert placed == case.record["text"], case.record["id"]


@MISSING["radfm"]
def test_golden_radfm_unused_keys_are_the_recorded_ones():
    """What the record calls unused is exactly what the loader leaves out."""
    checkpoint = RECORDS["radfm"]["checkpoint"]
    stored = torch.load(GOLDEN / "radfm" / "pytorch_model.bin", mmap=True)
    unused = [name.replace("*", "0") for name in checkpoint["keys_without_use_in_inference"]]
    left = [
        key
        for key in stored
        if not key.startswith(tuple(unused)) and not key.endswith("inv_freq")
    ]
    assert len(stored) == checkpoint["n_keys"]
    assert len(left) == len(list(adapter("radfm", "").network.parameters()))
