"""``hf_vlm`` on tiny checkpoints of nine architectures, against forward passes and generation written here."""

import functools
import json
import math
import shutil
from types import SimpleNamespace

import pytest
import torch
from medtasks.model_adapters.base import batching, shared_scoring
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.hf_vlm import adapter as adapter_module
from medtasks.model_adapters.hf_vlm.loading import HfVlmArguments
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from medtasks.errors import AdapterArgumentError, MedTasksError

from ..tables import each_row
from .tiny_hf_models import plain_inputs, plain_scores
from .toys import SPLIT, TASK, assert_pairs, instances, noise

ARCHITECTURES = [
    "llava",
    "llava_next",
    "qwen2_5_vl",
    "qwen3_vl",
    "gemma3",
    "idefics3",
    "internvl",
    "mllama",
]
OPTIONS = (" yes", "a large effusion in the right lung")
QWEN_IMAGE = "<|vision_start|><|image_pad|><|vision_end|>"
BARE_IMAGE = {
    "llava": "<image>\n",
    "llava_next": "<image>\n",
    "qwen2_5_vl": QWEN_IMAGE,
    "qwen3_vl": QWEN_IMAGE,
}
BARE_IMAGE |= {
    "gemma3": "<start_of_image>",
    "idefics3": "<image>",
    "internvl": "<IMG_CONTEXT>\n",
}
BARE_IMAGE |= {"mllama": "<|image|>", "paligemma": "<image>"}


def scan(seed, width, height):
    return noise(seed, (width, height)).resize((2 * width, 2 * height))


DOCS = [
    {"question": "Is it clear?", "images": [scan(0, 10, 15)]},
    {
        "question": "Is there a large effusion in the right lung, or is it the left one?",
        "images": [scan(1, 30, 10)],
    },
    {"question": "No image: no nodule?", "images": []},
    {"question": "Which one?", "images": [scan(2, 9, 9), scan(3, 20, 24)]},
    {"question": "Answer", "images": []},
    {"question": "Grey?", "images": [scan(4, 12, 12).convert("L")]},
    {"question": "And is the heart normal?", "images": [scan(0, 10, 15)]},
    {"question": "Is one like the other?", "images": [scan(2, 9, 9), scan(3, 20, 24)]},
]


@pytest.fixture(scope="session")
def parts(tiny_checkpoint):
    def load(name):
        source = tiny_checkpoint(name)
        return AutoModelForImageTextToText.from_pretrained(
            source
        ), AutoProcessor.from_pretrained(source)

    return functools.cache(load)


@pytest.fixture
def adapter(tiny_checkpoint):
    def get(name, **arguments):
        built = HfVlm(
            **{
                "pretrained": str(tiny_checkpoint(name)),
                "device": "cpu",
                "batch_size": 7,
                "journal": False,
            }
            | arguments
        )
        built.task_dict = {TASK: {SPLIT: DOCS}}
        return built

    return get


@pytest.fixture
def cut(monkeypatch):
    """Prompts are cut behind their images although those of tiny models take few tokens."""
    monkeypatch.setattr(shared_scoring, "OWN_LENGTH", 4)
    monkeypatch.setattr(shared_scoring, "LEAST_LENGTH", 3)


def scoring(doc_ids, options=OPTIONS):
    return instances("loglikelihood", DOCS, options, doc_ids=doc_ids)


def generation(doc_ids, **settings):
    settings = {"until": [], "max_new_tokens": 6, "do_sample": False} | settings
    return instances("generate_until", DOCS, [settings], doc_ids=doc_ids)


def text_of(processor, name, chat, doc):
    """A prompt as it is written by hand."""
    if not chat:
        return BARE_IMAGE[name] * len(doc["images"]) + doc["question"]
    content = [{"type": "image"} for _ in doc["images"]] + [
        {"type": "text", "text": doc["question"]}
    ]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}], add_generation_prompt=True
    )


def plain(parts, name, chat=True, docs=DOCS):
    return plain_scores(
        *parts(name), lambda doc: text_of(parts(name)[1], name, chat, doc), docs, OPTIONS
    )


@pytest.mark.usefixtures("cut")
@each_row("name", ARCHITECTURES)
def test_bare_texts_score_as_without_the_adapter(adapter, parts, name):
    plain_text = adapter(name, chat_template=False, prefix_cache=False)
    some = [0, 2, 3]  # one image, none, and two

    expected = plain(parts, name, False, [DOCS[at] for at in some])

    assert_pairs(plain_text.loglikelihood(scoring(some)), expected, 1e-4)


@pytest.mark.usefixtures("cut")
@each_row("name", ARCHITECTURES)
def test_every_architecture_scores_as_without_the_adapter(adapter, parts, name, monkeypatch):
    """Several batches over images of several sizes, two images, none, and prompts of very different length."""
    everything = range(len(DOCS))
    built, expected = adapter(name, batch_size=13), plain(parts, name)

    scores = built.loglikelihood(scoring(everything))

    assert_pairs(scores, expected, 1e-5)
    # Mllama's images are in no column of the cache. Gemma's window is shorter than the prompts here.
    assert built._fits.get(("a shared prefix", True)) == (
        None if name in ("gemma3", "mllama") else True
    )
    assert built.loglikelihood(scoring(everything)) == scores, (
        "kept prefixes do not change the last bit"
    )
    monkeypatch.setattr(built, "image_spans", lambda prompt: None)  # options share their prompt
    assert_pairs(built.loglikelihood(scoring(everything)), expected, 1e-4)


def plain_reply(model, processor, name, doc):
    """Return what a model says without the adapter, up to the end of its turn."""
    ends = {
        processor.tokenizer.eos_token_id,
        processor.tokenizer.convert_tokens_to_ids("<|end|>"),
    }
    inputs = plain_inputs(processor, text_of(processor, name, True, doc), doc["images"])
    asked = inputs["input_ids"].shape[1]
    ids = model.generate(**inputs, max_new_tokens=6, do_sample=False)[0, asked:].tolist()
    stop = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return processor.tokenizer.decode(ids[:stop], skip_special_tokens=True).strip()


@pytest.mark.usefixtures("cut")
@each_row("name", ARCHITECTURES)
def test_every_architecture_replies_as_without_the_adapter(adapter, parts, name):
    replies = [plain_reply(*parts(name), name, doc) for doc in DOCS[:6]]

    assert adapter(name, batch_size=13).generate_until(generation(range(6))) == replies

    assert len(set(replies)) > 2


def test_a_model_that_closes_its_prompts_and_reads_them_in_both_directions(adapter, parts):
    """PaliGemma puts a line break behind every text; what follows it is causal, what precedes it is not."""
    model, processor = parts("paligemma")
    docs = [number for number, doc in enumerate(DOCS) if doc["images"]]
    expected = []
    for doc in docs:
        inputs = plain_inputs(
            processor, text_of(processor, "paligemma", False, DOCS[doc]), DOCS[doc]["images"]
        )
        for option in OPTIONS:
            ids = processor.tokenizer(option, add_special_tokens=False)["input_ids"]
            tail = torch.tensor([ids])
            given = inputs | {
                "input_ids": torch.cat([inputs["input_ids"], tail], 1),
                "attention_mask": torch.ones_like(torch.cat([inputs["input_ids"], tail], 1)),
                "token_type_ids": torch.cat(
                    [torch.zeros_like(inputs["input_ids"]), torch.ones_like(tail)], 1
                ),
            }
            with torch.no_grad():
                logs = model(**given).logits[0].log_softmax(-1)[-len(ids) - 1 : -1]
            expected.append(-logs.gather(1, tail.T).mean().item())

    for arguments in ({}, {"prefix_cache": False}, {"batch_size": 1}):
        built = adapter("paligemma", chat_template=False, **arguments)
        got = [pair[0] for pair in built.loglikelihood(scoring(docs))]
        assert got == pytest.approx(expected, abs=1e-4)


def test_tokens_merged_at_the_seam_are_scored_after_the_common_prefix(adapter, parts):
    model, processor = parts("llava")
    built = adapter("llava", chat_template=False)
    context, whole = (
        processor.tokenizer(text)["input_ids"] for text in ("Is the le", "Is the left lung")
    )
    common = next(
        n for n, pair in enumerate(zip(context, whole, strict=False)) if pair[0] != pair[1]
    )
    assert common < len(context)
    with torch.no_grad():
        logs = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(-1)
    expected = -sum(logs[place - 1, whole[place]].item() for place in range(common, len(whole)))

    (score,) = built.score_batch([built.encode_pair("Is the le", "ft lung", [])])
    assert score.total == pytest.approx(expected, abs=1e-4)
    assert score.tokens == len(whole) - common

    pair = [built.encode_pair("Is the le", text, []) for text in ("ft lung", "an", "ft lung")]
    assert [score.total for score in built.score_batch(pair)][::2] == pytest.approx(
        [expected] * 2, abs=1e-4
    )


@pytest.mark.usefixtures("cut")
def test_a_way_of_scoring_that_is_wrong_is_reported_once_and_given_up(
    adapter, parts, monkeypatch, log
):
    expected = [loss for loss, _ in plain(parts, "qwen2_5_vl", docs=DOCS[:1])]

    def shifted(items, logits_of, *more):
        return batching.score(items, lambda *batch: logits_of(*batch).roll(1, -1), *more)

    def broken(*_):
        raise IndexError

    monkeypatch.setattr(adapter_module, "score", shifted)
    monkeypatch.setattr(shared_scoring, "_score_options", broken)
    built = adapter("qwen2_5_vl")
    for _ in range(2):
        assert [pair[0] for pair in built.loglikelihood(scoring([0]))] == pytest.approx(
            expected, abs=1e-4
        )
    warnings = [line for line in log if line.startswith("WARNING")]
    told = [line.partition("scores with ")[2][:15] for line in warnings]
    assert told == ["a shared prefix", "a shared prompt", "one pass differ"]


def test_logits_are_computed_for_the_longest_option_alone(adapter):
    built, rows = adapter("llava", prefix_cache=False), []
    built.loglikelihood(scoring([0]))  # the way is compared with generation once
    built.network.lm_head.register_forward_hook(
        lambda _, given, __: rows.append(given[0].shape[1])
    )

    built.loglikelihood(scoring([0]))

    assert rows == [
        1 + max(built.encode_pair("Clear?", option, []).tokens for option in OPTIONS)
    ]


def test_placeholders_in_a_prompt_place_its_images(adapter):
    built, images = adapter("llava"), DOCS[3]["images"]
    text = built.encode("First <image> then <image>?", images).text
    assert text == "<|user|>First <image>\n then <image>\n?<|end|>\n<|assistant|>\n"
    with pytest.raises(MedTasksError, match="holds 1 image marks for 2 images"):
        built.encode("First <image>", images)


def test_template_and_image_size_are_in_the_fingerprint(adapter):
    built = adapter("llava")
    fingerprints = {built.fingerprint(), adapter("llava", chat_template=False).fingerprint()}
    built.processor.image_processor.size = {"shortest_edge": 20}
    assert len(fingerprints | {built.fingerprint()}) == 3


def test_stop_tokens_of_the_template_and_samples_that_fail_alone(
    tiny_checkpoint, adapter, tmp_path
):
    copy = shutil.copytree(tiny_checkpoint("llava"), tmp_path / "copy")
    (copy / "generation_config.json").unlink()
    words = json.loads((copy / "tokenizer_config.json").read_text())
    words.pop("pad_token")
    (copy / "tokenizer_config.json").write_text(json.dumps(words))
    built = adapter("llava", pretrained=str(copy))
    assert set(built.stop_ids) == set(
        built.processor.tokenizer.convert_tokens_to_ids(["</s>", "<|end|>"])
    )
    original = adapter("llava")
    assert built.generate_until(generation(range(6))) == original.generate_until(
        generation(range(6))
    )
    built = adapter("llava", max_length=40, max_failed=1)
    scores = built.loglikelihood(scoring([0, 1], ["", " yes"]))
    assert [math.isfinite(loss) for loss, _ in scores] == [False, True, False, False]


@each_row(
    "arguments, message",
    [
        ({"pretrained": ""}, "argument 'pretrained' is missing; give a folder or a hub id"),
        ({"pretrained": "/no/such/folder"}, "/no/such/folder is no folder; give pretrained="),
        ({"attn_implementation": "magic"}, "cannot be loaded .*magic"),
    ],
)
def test_arguments_that_cannot_be_right(adapter, arguments, message):
    with pytest.raises(MedTasksError, match=message) as caught:
        adapter("llava", **arguments)
    assert "\n" not in str(caught.value)


def removing(*names):
    return lambda folder: [(folder / name).unlink() for name in names]


def of_kind(kind):
    return lambda folder: (folder / "config.json").write_text(json.dumps({"model_type": kind}))


def without_a_norm(folder):
    weights = load_file(folder / "model.safetensors")
    dropped = next(
        name for name in weights if name.endswith("norm.weight") and "layers" not in name
    )
    del weights[dropped]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@each_row(
    "edit, message",
    [
        (removing("config.json"), "holds no config.json"),
        (removing("processor_config.json"), "usable processor|without image_processor"),
        (
            removing("tokenizer.json", "tokenizer_config.json"),
            "usable processor|without tokenizer",
        ),
        (removing("chat_template.jinja"), "has no chat template; give chat_template=false"),
        (without_a_norm, r"lacks '.*norm\.weight'; is the checkpoint complete"),
        (of_kind("udop"), "is an encoder-decoder"),
        (of_kind("llama"), "is a llama; hf_vlm runs the image-text-to-text models"),
    ],
)
def test_a_folder_that_cannot_be_run_is_refused(
    tiny_checkpoint, adapter, tmp_path, edit, message
):
    source = str(shutil.copytree(tiny_checkpoint("llava"), tmp_path / "copy"))
    edit(tmp_path / "copy")
    with pytest.raises(MedTasksError, match=message) as caught:
        adapter("llava", pretrained=source)
    assert source in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_device_map_is_for_one_process(tiny_checkpoint, adapter):
    arguments = HfVlmArguments(pretrained=str(tiny_checkpoint("llava")), device_map="auto")
    with pytest.raises(
        AdapterArgumentError,
        match="device_map='auto' spreads a model over one process, but 2 run",
    ):
        HfVlm.load(
            SimpleNamespace(arguments=arguments, accelerator=SimpleNamespace(num_processes=2))
        )
    built = adapter("llava", device_map="cpu")
    assert built.loglikelihood(scoring([0])) == adapter("llava").loglikelihood(scoring([0]))
