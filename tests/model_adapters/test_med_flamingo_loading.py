"""Med-Flamingo's files: the forms that are read, and one clear sentence for those that are not."""

import json
import math
import re
from pathlib import Path

import pytest
import torch
from medtasks.model_adapters.checkpoints.reading import CheckpointError
from medtasks.model_adapters.med_flamingo import MedFlamingo
from medtasks.model_adapters.med_flamingo.checkpoint import read_trained_shape
from safetensors.torch import load_file, save_file

from medtasks.errors import AdapterArgumentError, MedTasksError

from .med_flamingo_toy import DEPTH, DOCS, EVERY, LATENTS, LAYERS, OPTIONS, WIDTH, adapter_from, scores


@pytest.fixture(scope="module")
def expected(med_flamingo_folder):
    """Scores of the undamaged checkpoint."""
    return scores(adapter_from(med_flamingo_folder))


@pytest.fixture
def copied(med_flamingo_folder, tmp_path):
    """A copy of the checkpoint that may be damaged; returns its folder and a function to change ``model.pt``."""
    for file in med_flamingo_folder.rglob("*"):
        if file.is_file():
            target = tmp_path / file.relative_to(med_flamingo_folder)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(file.read_bytes())

    def change(edit):
        state = {name: tensor.clone() for name, tensor in torch.load(tmp_path / "model.pt").items()}
        torch.save(edit(state) or state, tmp_path / "model.pt")

    return tmp_path, change


def test_all_parameters_are_filled_in_the_wanted_type_and_rotary_tables_stay_float32(med_flamingo_folder):
    adapter = adapter_from(med_flamingo_folder, dtype="bfloat16")
    parameters = dict(adapter.network.named_parameters())
    assert {parameter.dtype for parameter in parameters.values()} == {torch.bfloat16}
    assert not any(parameter.is_meta or parameter.requires_grad for parameter in parameters.values())
    tables = [buffer for name, buffer in adapter.network.named_buffers() if "inv_freq" in name]
    assert tables
    assert all(table.dtype == torch.float32 for table in tables)
    assert tables[0].tolist() == pytest.approx([10000 ** (-place / 4) for place in range(4)])
    assert not adapter.network.training
    assert [math.isfinite(loss) for loss, _ in scores(adapter)] == [True] * len(DOCS) * len(OPTIONS)
    assert len(parameters) == len({p.data_ptr() for p in parameters.values()})


def test_the_default_type_is_bfloat16_and_the_embedding_is_the_trained_one(med_flamingo_folder):
    adapter = MedFlamingo(
        pretrained=str(med_flamingo_folder),
        llama=str(med_flamingo_folder / "llama"),
        clip=str(med_flamingo_folder / "clip"),
        device="cpu",
        journal="false",
    )
    trained = torch.load(med_flamingo_folder / "model.pt")["lang_encoder.model.embed_tokens.weight"]
    assert torch.equal(adapter.language_model.model.embed_tokens.weight, trained.bfloat16())


def only(part):
    return lambda state: {name: tensor for name, tensor in state.items() if part not in name}


def full_dump(state):
    frozen = {f"lang_encoder.model.layers.{n}.decoder_layer.self_attn.q_proj.weight": torch.zeros(2) for n in range(4)}
    frozen |= {f"lang_encoder.old_decoder_blocks.{n}.mlp.up_proj.weight": torch.zeros(2) for n in range(4)}
    others = ("lm_head.weight", "model.norm.weight", "old_decoder_blocks.0.input_layernorm.weight")
    frozen |= {f"lang_encoder.{name}": torch.zeros(2) for name in others}
    towers = ("visual.conv1.weight", "transformer.resblocks.0.ln_1.bias", "class_embedding")
    return state | frozen | {f"vision_encoder.{name}": torch.zeros(2) for name in towers}


FORMS = {
    "blocks under the layers only": only("gated_cross_attn_layers."),
    "blocks in the list only": only("gated_cross_attn_layer."),
    "without rotary tables": only("inv_freq"),
    "module prefix": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
    "outer key": lambda state: {"epoch": 3, "model_state_dict": state},
    "full dump": full_dump,
    "outer key and module prefix": lambda state: {
        "model_state_dict": {f"module.{name}": tensor for name, tensor in full_dump(state).items()}
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_published_form_gives_the_same_model(copied, expected, form):
    folder, change = copied
    change(FORMS[form])
    assert scores(adapter_from(folder)) == expected


def test_a_tower_stored_alone_and_torch_shards_are_read_too(copied, expected):
    folder, _ = copied
    config = json.loads((folder / "clip" / "config.json").read_text())
    (folder / "clip" / "config.json").write_text(
        json.dumps(config["vision_config"] | {"model_type": "clip_vision_model"})
    )
    stored = load_file(folder / "clip" / "model.safetensors")
    tower = {name.removeprefix("vision_model."): t for name, t in stored.items() if name.startswith("vision_model.")}
    save_file(tower, folder / "clip" / "model.safetensors")
    language = load_file(folder / "llama" / "model.safetensors")
    (folder / "llama" / "model.safetensors").unlink()
    places = {name: f"part-{number % 2}.bin" for number, name in enumerate(sorted(language))}
    for file in set(places.values()):
        torch.save({n: t for n, t in language.items() if places[n] == file}, folder / "llama" / file)
    (folder / "llama" / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert scores(adapter_from(folder)) == expected


LATE = "lang_encoder.gated_cross_attn_layers.3.ff.1.weight"
TWIN = "lang_encoder.model.layers.3.gated_cross_attn_layer.ff.1.weight"


def without(*keys):
    return lambda state: {name: tensor for name, tensor in state.items() if name not in keys}


def differing(by):
    def edit(state):
        state[LATE][0, 0], state[TWIN][0, 0] = 1.0, 1.0 + by

    return edit


REFUSED = {
    "missing in a block": (without(LATE, TWIN), [LATE]),
    "missing norm": (only("perceiver.norm.bias"), ["perceiver.norm.bias"]),
    "missing latents": (only("perceiver.latents"), ["perceiver.latents"]),
    "missing embedding": (only("embed_tokens"), ["lang_encoder.model.embed_tokens.weight"]),
    "no block": (only("gated_cross_attn"), ["lang_encoder.gated_cross_attn_layers"]),
    "unknown": (lambda state: state | {"perceiver.frame_embs": torch.zeros(1)}, ["perceiver.frame_embs"]),
    "unknown part": (lambda state: state | {"optimizer.step": torch.zeros(1)}, ["optimizer.step"]),
    "unknown in a layer": (
        lambda state: state | {"lang_encoder.model.layers.0.decoder_layer.mlp.gate.weight": torch.zeros(1)},
        ["lang_encoder.model.layers.0.decoder_layer.mlp.gate.weight"],
    ),
    "shape": (
        lambda state: state | {"perceiver.norm.weight": torch.ones(3)},
        ["perceiver.norm.weight", "(3,)", "(16,)"],
    ),
    "shape of latents": (lambda state: state | {"perceiver.latents": torch.ones(3)}, ["perceiver.latents"]),
    "vocabulary": (
        lambda state: state | {"lang_encoder.model.embed_tokens.weight": torch.zeros(5, WIDTH)},
        ["lang_encoder.model.embed_tokens.weight", "(5, 32)"],
    ),
    "copies": (differing(0.5), [LATE, TWIN]),
    "copies, by less than half precision can tell": (differing(2**-20), [LATE, TWIN]),
    "no tensors": (lambda state: {"a": 1}, ["model.pt"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_model_pt_is_refused_by_file_and_key(copied, case):
    folder, change = copied
    edit, named = REFUSED[case]
    change(edit)
    with pytest.raises(CheckpointError) as caught:
        adapter_from(folder, dtype="bfloat16")
    assert str(folder / "model.pt") in str(caught.value)
    assert all(name in str(caught.value) for name in named)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "key"),
    [
        ("llama", "model.layers.2.mlp.up_proj.weight"),
        ("llama", "lm_head.weight"),
        ("clip", "vision_model.encoder.layers.1.mlp.fc2.bias"),
    ],
)
def test_llama_and_clip_are_read_as_strictly(copied, part, key):
    folder, _ = copied
    file = folder / part / "model.safetensors"
    stored = load_file(file)
    extra = key.replace("weight", "rank").replace("encoder", "decoder")
    for wrong, named in (
        ({name: tensor for name, tensor in stored.items() if name != key}, key),
        (stored | {key: torch.zeros(3)}, key),
        (stored | {extra: torch.zeros(3)}, extra),
    ):
        save_file(wrong, file)
        with pytest.raises(CheckpointError, match=rf"{re.escape(str(folder / part))}.*{re.escape(named)}"):
            adapter_from(folder)


@pytest.mark.parametrize("file", ["model.pt", "llama/model.safetensors", "clip/model.safetensors"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_file_is_refused(copied, file, share):
    folder, _ = copied
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=re.escape(str(folder / file))):
        adapter_from(folder)


@pytest.mark.parametrize(
    "file", ["model.pt", "llama/tokenizer.model", "llama/config.json", "clip/config.json", "llama/model.safetensors"]
)
def test_a_missing_file_is_named(copied, file):
    folder, _ = copied
    (folder / file).unlink()
    with pytest.raises(MedTasksError, match=re.escape(str((folder / file).parent))) as caught:
        adapter_from(folder, pretrained=str(folder))
    assert Path(file).name in str(caught.value)


@pytest.mark.parametrize("argument", ["pretrained", "llama", "clip"])
def test_a_missing_folder_is_named(med_flamingo_folder, argument):
    with pytest.raises(MedTasksError, match=f"/nowhere/at_all.*{argument}="):
        adapter_from(med_flamingo_folder, **{argument: "/nowhere/at_all"})


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("llama", {"model_type": "mistral"}, "model_type is 'mistral'"),
        ("clip", {"model_type": "siglip"}, "model_type is 'siglip'"),
        ("clip", {"vision_config": {"hidden_act": "gelu"}}, "hidden_act is 'gelu'"),
        ("llama", {"vocab_size": 999}, "tokenizer.model has .* vocab_size 999"),
        ("llama", None, "config.json is damaged"),
    ],
)
def test_another_kind_of_model_is_refused(copied, part, change, message):
    folder, _ = copied
    file = folder / part / "config.json"
    file.write_text("{" if change is None else json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(MedTasksError, match=message):
        adapter_from(folder)


def test_beside_the_published_llama_the_published_sizes_are_demanded(med_flamingo_folder):
    assert read_trained_shape(med_flamingo_folder / "model.pt", LAYERS) == (EVERY, DEPTH, LATENTS)
    assert read_trained_shape(med_flamingo_folder / "model.pt", 32) == (4, 6, LATENTS)
    with pytest.raises(CheckpointError, match="LLaMA's 1 layers"):
        read_trained_shape(med_flamingo_folder / "model.pt", 1)


@pytest.mark.parametrize(
    "wrong",
    [{"media_attention": "both"}, {"dtype": "int8"}, {"bos_id": 2}, {"vision_post_norm": "maybe"}, {"shots": 3}],
)
def test_impossible_arguments_are_refused(med_flamingo_folder, wrong):
    with pytest.raises(AdapterArgumentError, match=next(iter(wrong))):
        adapter_from(med_flamingo_folder, **wrong)


PUBLISHED_NAMES = {
    "perceiver.": "latents layers.N.N.norm_media.weight layers.N.N.norm_media.bias layers.N.N.norm_latents.weight "
    "layers.N.N.norm_latents.bias layers.N.N.to_q.weight layers.N.N.to_kv.weight layers.N.N.to_out.weight "
    "layers.N.N.N.weight layers.N.N.N.bias norm.weight norm.bias",
    "lang_encoder.gated_cross_attn_layers.N.": "attn_gate ff_gate attn.norm.weight attn.norm.bias attn.to_q.weight "
    "attn.to_kv.weight attn.to_out.weight ff.N.weight ff.N.bias",
}


@pytest.mark.parametrize("prefix", PUBLISHED_NAMES)
def test_the_toy_has_the_published_names(med_flamingo_folder, prefix):
    """It is drawn from our modules, whose names are the file's."""
    names = {re.sub(r"\b\d+\b", "N", name) for name in torch.load(med_flamingo_folder / "model.pt")}
    found = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    assert found == set(PUBLISHED_NAMES[prefix].split())
