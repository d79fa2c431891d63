"""Every recipe of ours, run on a tiny random checkpoint of its class: its arguments as the harness reads them."""

import json
import math
from pathlib import Path

import pytest
from lmms_eval.utils import simple_parse_args_string
from medtasks.model_adapters.base.arguments import parse_arguments
from medtasks.model_adapters.hf_vlm import HfVlm
from medtasks.model_adapters.llava_med import LlavaMed
from medtasks.model_adapters.med_flamingo import MedFlamingo
from medtasks.model_adapters.radfm import RadFM
from medtasks.model_adapters.vlm_server.adapter import VlmServer

from medtasks.running.recipes import SERVER_MODEL, recipe, recipes

from ..tables import each_row
from .toys import SPLIT, TASK, instances, noise

CLASSES = {
    "Gemma3ForConditionalGeneration": "gemma3",
    "Gemma4ForConditionalGeneration": "gemma4",
    "Qwen2VLForConditionalGeneration": "qwen2_vl",
    "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
    "Qwen3VLForConditionalGeneration": "qwen3_vl",
    "Qwen3_5ForConditionalGeneration": "qwen3_5",
    "InternVLForConditionalGeneration": "internvl",
    "LlavaNextForConditionalGeneration": "llava_next",
    "MllamaForConditionalGeneration": "mllama",
}
DOCS = [
    {"question": "Is the left lung clear?", "images": [noise(0, (48, 36))]},
    {"question": "Why?", "images": []},
]
OPTIONS = (" yes", " no")
KINDS = {"hf_vlm": HfVlm, "llava_med": LlavaMed, "med_flamingo": MedFlamingo, "radfm": RadFM}
SERVED = [name for name, one in recipes().items() if "server" in one.backends]


@pytest.fixture(scope="module")
def twin(tiny_checkpoint, llava_med_folder, radfm_folder, med_flamingo_folder):
    """Arguments that name a tiny checkpoint of the same class in place of a recipe's weights."""
    own = {
        "llava_med": {
            "pretrained": llava_med_folder,
            "vision_tower": llava_med_folder.parent / "clip",
        },
        "radfm": {"pretrained": radfm_folder},
        "med_flamingo": {
            "pretrained": med_flamingo_folder / "model.pt",
            "llama": med_flamingo_folder / "llama",
            "clip": med_flamingo_folder / "clip",
        },
    }
    return lambda one: (
        own.get(one.hf.model) or {"pretrained": tiny_checkpoint(CLASSES[one.fact("class")])}
    )


def test_the_tiny_twin_answers_and_scores(twin, subtests):
    runs = {}  # recipes by their arguments: those of one family differ in the weights alone
    for name, one in recipes().items():
        if "hf" in one.backends:
            given = {
                **twin(one),
                "device": "cpu",
                "journal": "false",
                "batch_size": 4,
                "max_new_tokens": 4,
            }
            expanded = recipe(name).model_options(
                "hf", {key: str(value) for key, value in given.items()}
            )
            runs.setdefault(expanded, []).append(one)

    @each_row("model, arguments", runs)
    def check(model, arguments):
        built = KINDS[model].create_from_arg_string(arguments)
        dtype = (
            str(built.network.dtype) if model == "hf_vlm" else f"torch.{built.arguments.dtype}"
        )
        for one in runs[model, arguments]:
            assert "dtype" not in one.facts or f"torch.{one.fact('dtype')}" == dtype
            for setting, value in (one.hf.args.get("processor_kwargs") or {}).items():
                assert (
                    json.loads(built.processor.image_processor.to_json_string())[setting]
                    == value
                )
        built.task_dict = {TASK: {SPLIT: DOCS}}
        scores = built.loglikelihood(
            instances("loglikelihood", DOCS, OPTIONS, doc_ids=range(2))
        )
        assert all(math.isfinite(score) and score > 0 for score, _ in scores), scores
        assert scores[0] != scores[1]
        replies = built.generate_until(
            instances("generate_until", DOCS, [{"until": []}], doc_ids=range(2))
        )
        assert [isinstance(reply, str) for reply in replies] == [
            True,
            True,
        ]  # failures are no text

    check(subtests=subtests)


@each_row("name", SERVED)
def test_a_server_is_told_what_it_takes(name):
    model, arguments = recipe(name).model_options(
        "server", {"base_url": "http://127.0.0.1:8000/v1"}
    )
    assert model == SERVER_MODEL
    read = parse_arguments(VlmServer.arguments_type, simple_parse_args_string(arguments), model)
    assert [server.base_url for server in read.servers] == ["http://127.0.0.1:8000/v1"]


def test_what_a_recipe_names_is_where_it_says():
    """All classes of the recipes that run in this process have a twin, and every file of the folder is used."""
    named = {
        one.fact("class")
        for one in recipes().values()
        if "hf" in one.backends and one.hf.model == "hf_vlm"
    }
    assert named == set(CLASSES)
    folder = Path(__file__).parents[2] / "model_adapters" / "recipes"
    files = {path.stem: path.read_text() for path in folder.glob("*.yaml")}
    assert {name for name in files if not name.startswith("_")} == set(recipes())
    unused = [
        name
        for name in files
        if name.startswith("_") and f"extends: {name}.yaml" not in "".join(files.values())
    ]
    assert unused == []
