"""Options of ``hf_vlm`` that change what a model is asked, or the model: against forward passes written here."""

import functools
import json
import shutil

import pytest
from lmms_eval.utils import simple_parse_args_string
from medtasks.model_adapters.base import shared_scoring
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.base.checkpoints import CheckpointError
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.hf_vlm.loading import HfVlmArguments
from medtasks.model_adapters.vlm_server.server_client import VlmServerArguments
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText, AutoProcessor

from medtasks.errors import AdapterArgumentError, MedTasksError

from ..tables import each_row
from . import tiny_hf_models
from .tiny_hf_models import plain_scores
from .toys import SPLIT, TASK, assert_pairs, instances, noise

IMAGE = noise(0, (24, 36))
DOCS = [
    {"question": text, "images": [IMAGE]}
    for text in ("Is it clear?", "Which side, left or right?")
]
DOCS.append({"question": "No image?", "images": []})
OPTIONS = (" yes", "a large effusion in the right lung")
# Qwen2.5-VL's: without a system turn it writes one of its own. With Qwen3's switch.
QWEN = (
    "{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}{{ '<|system|>Default.<|end|>\n' }}{% endif %}"
    + tiny_hf_models.TURN.split("{% for message in messages %}", 1)[1]
    + "{% if add_generation_prompt and "
    "enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}"
).replace("IMAGE", "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}")


@pytest.fixture(scope="module")
def folder(tiny_checkpoint, tmp_path_factory):
    """Copies of tiny checkpoints, Qwen's with the template above."""
    root = tmp_path_factory.mktemp("options")

    def copy(name):
        shutil.copytree(tiny_checkpoint(name), root / name)
        if name == "qwen2_5_vl":
            (root / name / "chat_template.jinja").write_text(QWEN)
        return root / name

    return functools.cache(copy)


@pytest.fixture(scope="module")
def adapter(folder):
    def get(name, **given):
        built = HfVlm(
            pretrained=str(folder(name)),
            device="cpu",
            batch_size=6,
            **{"journal": False} | given,
        )
        built.task_dict = {TASK: {SPLIT: DOCS}}
        return built

    return get


def scores(built):
    return built.loglikelihood(
        instances("loglikelihood", DOCS, OPTIONS, doc_ids=range(len(DOCS)))
    )


def parts(source):
    return AutoModelForImageTextToText.from_pretrained(source), AutoProcessor.from_pretrained(
        source
    )


@each_row(
    "system, variables, before, after, prefix_cache",
    [
        (None, None, "<|system|>Default.<|end|>\n", "", True),
        ("", None, "<|system|><|end|>\n", "", True),
        (
            "You are a radiologist.",
            None,
            "<|system|>You are a radiologist.<|end|>\n",
            "",
            False,
        ),
        (
            None,
            {"enable_thinking": False},
            "<|system|>Default.<|end|>\n",
            "<think>\n\n</think>\n\n",
            True,
        ),
    ],
)
def test_a_system_turn_and_a_switch_are_scored_as_the_template_writes_them(
    adapter, folder, system, variables, before, after, prefix_cache, monkeypatch
):
    monkeypatch.setattr(
        shared_scoring, "OWN_LENGTH", 4
    )  # prompts are cut after images of few tokens
    monkeypatch.setattr(shared_scoring, "LEAST_LENGTH", 3)

    def turn(doc):
        image = "<|vision_start|><|image_pad|><|vision_end|>" * len(doc["images"])
        return f"{before}<|user|>{image}{doc['question']}<|end|>\n<|assistant|>\n{after}"

    expected = plain_scores(*parts(folder("qwen2_5_vl")), turn, DOCS, OPTIONS)
    built = adapter(
        "qwen2_5_vl",
        system_prompt=system,
        chat_template_kwargs=variables,
        prefix_cache=prefix_cache,
    )
    assert_pairs(scores(built), expected, 1e-4)
    assert built._fits.get(("a shared prefix", True)) == (True if prefix_cache else None)
    assert built.writer.turn_end() == built.processor.tokenizer.convert_tokens_to_ids("<|end|>")


def test_each_of_them_is_another_model_to_the_journal(adapter, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    variants = [{}, {"system_prompt": ""}, {"system_prompt": "A. " * 200}]
    variants += [
        {"chat_template_kwargs": {"enable_thinking": 0}},
        {"attn_implementation": "eager"},
    ]
    variants += [{"processor_kwargs": {"max_pixels": 256}}]
    for number, arguments in enumerate(variants, 1):
        built = adapter("qwen2_5_vl", **arguments, journal=True)
        built.loglikelihood(instances("loglikelihood", DOCS, [" yes"], doc_ids=[0]))
        assert len(list((tmp_path / "journal" / "hf_vlm").iterdir())) == number, arguments
    assert built.processor.image_processor.size["longest_edge"] == 256
    assert len(built.encode("?", [IMAGE]).ids) < len(
        adapter("qwen2_5_vl").encode("?", [IMAGE]).ids
    )


def read(text):
    """Read arguments as the harness hands them over."""
    return parse_arguments(HfVlmArguments, simple_parse_args_string(text), "hf_vlm")


def test_the_harness_hands_over_objects_and_long_texts():
    arguments = read(
        'pretrained=x,system_prompt="Think, step by step; it\'s \\"fine\\".\\nNow",processor_kwargs={"size":'
        '{"shortest_edge":1,"longest_edge":2},"do_resize":true},batch_size=4,'
    )

    assert arguments.system_prompt == 'Think, step by step; it\'s "fine".\nNow'
    assert arguments.processor_kwargs == {
        "size": {"shortest_edge": 1, "longest_edge": 2},
        "do_resize": True,
    }
    assert arguments.batch_size == 4


def test_an_argument_may_be_in_a_file(tmp_path):
    (tmp_path / "prompt.txt").write_text("From a file, with a line\nbreak, isn't it")
    (tmp_path / "kwargs.json").write_text('{"a": [1, 2]}')

    arguments = read(
        f"system_prompt=@{tmp_path / 'prompt.txt'},chat_template_kwargs=@{tmp_path / 'kwargs.json'}"
    )

    assert arguments.system_prompt == (tmp_path / "prompt.txt").read_text()
    assert arguments.chat_template_kwargs == {"a": [1, 2]}


def test_a_text_in_quotes_is_taken_as_it_is():
    quoted = {"system_prompt": '"@x"'}
    assert read("system_prompt=").system_prompt == ""
    assert parse_arguments(HfVlmArguments, quoted, "hf_vlm").system_prompt == "@x"
    assert (
        parse_arguments(
            VlmServerArguments, {"system_prompt": '"a, b"'}, "vlm_server"
        ).system_prompt
        == "a, b"
    )


@pytest.fixture(scope="module")
def lora(folder, tmp_path_factory):
    """An adapter saved by PEFT, and the model as PEFT computes it."""
    saved = tmp_path_factory.mktemp("lora")
    model = AutoModelForImageTextToText.from_pretrained(folder("qwen2_5_vl"))
    made = get_peft_model(
        model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    )
    made.save_pretrained(saved)
    plain = AutoModelForImageTextToText.from_pretrained(folder("qwen2_5_vl"))
    return saved, PeftModel.from_pretrained(plain, saved).eval()


def test_an_adapter_changes_the_model_as_peft_does(adapter, lora):
    saved, model = lora
    built, base = adapter("qwen2_5_vl", adapter=str(saved)), adapter("qwen2_5_vl")
    expected = plain_scores(
        model,
        built.processor,
        lambda doc: base.writer.write(doc["question"], len(doc["images"])),
        DOCS,
        OPTIONS,
    )
    assert_pairs(scores(built), expected, 1e-4)
    assert abs(scores(base)[0][0] - expected[0][0]) > 1e-3
    assert built.fingerprint() != base.fingerprint()
    assert not built.network.training


def test_an_adapter_that_does_not_fit_or_cannot_be_read_is_refused(
    adapter, lora, tmp_path, monkeypatch
):
    saved, _ = lora
    with pytest.raises(
        CheckpointError, match=r"the adapter .* is for another model: nothing here takes"
    ):
        adapter("gemma3", adapter=str(saved))
    with pytest.raises(
        CheckpointError, match=r"the adapter .* cannot be put on the model[^\n]*$"
    ):
        adapter("qwen2_5_vl", adapter=str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        AdapterArgumentError, match="needs PEFT, which is not installed; pip install peft"
    ):
        adapter("qwen2_5_vl", adapter=str(saved))


def test_a_quantisation_reaches_transformers(adapter, monkeypatch):
    seen = {}
    loading = AutoModelForImageTextToText.from_pretrained

    def spy(*given, quantization_config=None, **named):
        seen["config"] = quantization_config
        return loading(*given, **named)

    monkeypatch.setattr(AutoModelForImageTextToText, "from_pretrained", spy)
    built = adapter(
        "qwen2_5_vl", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}
    )
    assert (type(seen["config"]).__name__, seen["config"].load_in_4bit) == (
        "BitsAndBytesConfig",
        True,
    )
    assert built.network is not None


@each_row(
    "given, message",
    [
        (
            {"chat_template_kwargs": {"enable_thinkng": True}},
            "has no variable 'enable_thinkng'; correct the name",
        ),
        (
            {"processor_kwargs": {"max_pixel": 5}},
            "has no setting 'max_pixel'; did you mean 'max_pixels'",
        ),
        (
            {"system_prompt": "x", "chat_template": False},
            "are for the chat template, which chat_template=false leaves",
        ),
        ({"system_prompt": '"open'}, "must be text, as it is or as a JSON string"),
        ({"system_prompt": "an <|image_pad|>"}, "which stands for an image"),
        (
            {"quantization_config": {"quant_method": "magic"}},
            "is none of transformers' .*magic",
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "bitsandbytes",
                    "load_in_4bit": True,
                    "typ": 1,
                }
            },
            "no setting 'typ'",
        ),
        (
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            "bitsandbytes",
        ),
    ],
)
def test_options_that_cannot_be_right(adapter, given, message):
    with pytest.raises(MedTasksError, match=message) as caught:
        adapter("qwen2_5_vl", **given)
    assert "\n" not in str(caught.value)


def test_a_template_without_a_system_turn(folder, adapter, tmp_path):
    dull = tiny_hf_models.template("<image>\n").replace(
        "{% for message in messages %}", "{% for message in messages[-1:] %}"
    )
    (folder("llava") / "chat_template.jinja").write_text(dull)
    with pytest.raises(
        AdapterArgumentError, match="writes no system turn; leave system_prompt out"
    ):
        adapter("llava", system_prompt="x")
    assert json.loads((folder("llava") / "config.json").read_text())["model_type"] == "llava"
