"""The files of LLaVA-Med, RadFM and Med-Flamingo: what is read, and one clear sentence for what is not."""

import json
import math
import re
import shutil
import socket

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from medtasks.model_adapters.base import checkpoints as published
from medtasks.model_adapters.base.batching import GenerationSettings
from medtasks.model_adapters.base.checkpoints import CheckpointError
from medtasks.model_adapters.radfm import RadFM
from safetensors.torch import load_file

from medtasks.errors import AdapterArgumentError, MedTasksError

from ..tables import each_row
from .llava_med_toy import SHARDS, V15, VISION
from .med_flamingo_toy import DOCS, OPTIONS, scores
from .radfm_toy import HIDDEN, UNUSED, E, P, put
from .toys import noise, tower

MODELS = LLAVA, RADFM, FLAMINGO = ("llava_med", "radfm", "med_flamingo")
ONE, TWO, BIN, PT = *SHARDS, "pytorch_model.bin", "model.pt"
LLAMA, CLIP = "llama/model.safetensors", "clip/model.safetensors"


def without(*keys):
    return lambda state: {name: tensor for name, tensor in state.items() if name not in keys}


def only(part):
    return lambda state: {name: tensor for name, tensor in state.items() if part not in name}


def rename(old, new):
    return lambda state: state.update({new: state.pop(old)})


NORM, WORDS = "model.norm.weight", "lang_model.model.embed_tokens.weight"
BIAS = "model.mm_projector.{}.bias"
LATE = "lang_encoder.gated_cross_attn_layers.3.ff.1.weight"
TWIN = "lang_encoder.model.layers.3.gated_cross_attn_layer.ff.1.weight"
GATE = "lang_encoder.model.layers.0.decoder_layer.mlp.gate.weight"
UP = "model.layers.2.mlp.up_proj.weight"


def differing(key, other):
    def edit(state):
        state[other] = state[key].clone()
        state[other][0, 0] += 0.5

    return edit


def spoilt(key, change, *arguments):
    return lambda state: state.update({key: change(state[key], *arguments)})


MORE = "model.layers.2.mlp.up_proj.rank"
DECODER = "vision_model.decoder.layers.1.mlp.fc2.bias"


@each_row(
    "model, file, edit, message",
    [
        (LLAVA, ONE, without(NORM), r"v15 lacks '\S*model\.norm\.weight'"),
        (
            LLAVA,
            ONE,
            rename("lm_head.weight", "score.weight"),
            r"00001\S* key 'score\.weight' is unknown",
        ),
        (
            LLAVA,
            TWO,
            rename(BIAS.format(2), BIAS.format(4)),
            r"00002\S* key '\S*4\.bias' leads to",
        ),
        (
            LLAVA,
            ONE,
            put(NORM, torch.ones(3)),
            r"00001\S* key '\S*norm\.weight' has .*\(3,\), expected \(64,\)",
        ),
        (RADFM, BIN, without(f"{P}latents"), rf"lacks '{P}latents'"),
        (
            RADFM,
            BIN,
            put(f"{E}box_head.weight", torch.ones(2)),
            rf"key '{E}box_head\.weight' is unknown",
        ),
        (
            RADFM,
            BIN,
            differing(WORDS, f"{E}weight"),
            rf"'{WORDS}' and '{E}weight' should be eq",
        ),
        (
            RADFM,
            BIN,
            only("lang_model.model.layers.1."),
            "num_hidden_layers 2, the weights have 1",
        ),
        (
            RADFM,
            BIN,
            spoilt(WORDS, torch.full_like, torch.nan),
            rf"key '{WORDS}' holds values that are not finite",
        ),
        (
            RADFM,
            BIN,
            spoilt(WORDS, torch.Tensor.to, torch.complex64),
            rf"key '{WORDS}' holds no floating-point",
        ),
        (
            RADFM,
            BIN,
            spoilt(WORDS, torch.Tensor.to, torch.int8),
            rf"key '{WORDS}' holds no floating-point",
        ),
        (
            FLAMINGO,
            PT,
            spoilt(LATE, torch.Tensor.to_sparse),
            rf"key '{re.escape(LATE)}' is sparse",
        ),
        (FLAMINGO, PT, only("perceiver.latents"), r"perceiver\.latents"),
        (FLAMINGO, PT, put(GATE, torch.zeros(1)), re.escape(GATE)),
        (FLAMINGO, PT, differing(LATE, TWIN), f"(?=.*{re.escape(LATE)}).*{re.escape(TWIN)}"),
        (FLAMINGO, PT, lambda state: {"a": 1}, r"model\.pt"),
        (FLAMINGO, LLAMA, without(UP), f"llama.*{re.escape(UP)}"),
        (FLAMINGO, LLAMA, put(MORE, torch.zeros(3)), f"llama.*{re.escape(MORE)}"),
        (FLAMINGO, CLIP, put(DECODER, torch.zeros(3)), f"clip.*{re.escape(DECODER)}"),
    ],
)
def test_a_checkpoint_that_is_not_exactly_right_is_refused_by_file_and_key(
    build, copied, model, file, edit, message
):
    folder = copied(model, {file: edit})
    with pytest.raises(CheckpointError, match=message) as refusal:
        build(model, folder, **({"vision_weights": "checkpoint"} if model == LLAVA else {}))
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


FILES = [("llava_med", TWO), ("radfm", BIN), ("med_flamingo", PT), ("med_flamingo", CLIP)]


@each_row("model, file", FILES)
@each_row("share", [0, 0.99])
def test_a_truncated_file_is_refused(build, copied, model, file, share):
    folder = copied(model)
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=rf"{re.escape(str(folder / file))} is truncated"):
        build(model, folder)


MISSING = [("llava_med", file) for file in ("tokenizer.model", "config.json", TWO)]
MISSING += [("radfm", "Language_files/tokenizer.model")]
MISSING += [
    ("med_flamingo", f)
    for f in (PT, "llama/tokenizer.model", "llama/config.json", "clip/config.json", LLAMA)
]


@each_row("model, file", MISSING)
def test_a_missing_file_is_named(build, copied, model, file):
    folder = copied(model)
    (folder / file).unlink()
    said = (
        "llama holds no model.safetensors" if file == LLAMA else f"{folder / file} is missing"
    )
    with pytest.raises(MedTasksError, match=re.escape(said)):
        build(model, folder, **({"pretrained": str(folder)} if model == "med_flamingo" else {}))


@each_row("name", MODELS)
def test_all_parameters_get_the_wanted_type(build, name):
    half, exact = build(name, dtype="bfloat16"), build(name)

    parameters = list(half.network.parameters())
    assert {parameter.dtype for parameter in parameters} == {torch.bfloat16}
    assert not any(parameter.is_meta or parameter.requires_grad for parameter in parameters)
    assert not any(buffer.is_meta for buffer in half.network.buffers())
    assert len(parameters) == len({parameter.data_ptr() for parameter in parameters})
    assert not half.network.training
    pair = exact.encode_pair("is the lung clear?", " yes", [noise()])
    (got,), (wanted,) = half.score_batch([pair]), exact.score_batch([pair])
    assert got.total == pytest.approx(wanted.total, abs=0.5)


@each_row("name", MODELS)
def test_rotary_tables_stay_exact(build, name):
    table = dict(build(name, dtype="bfloat16").network.named_buffers())

    (frequencies,) = (table[key] for key in table if key.endswith("rotary_emb.inv_freq"))
    width, base = 2 * len(frequencies), 1e6 if name == "llava_med" else 1e4
    assert frequencies.dtype == torch.float32
    torch.testing.assert_close(frequencies, base ** -(torch.arange(0, width, 2) / width))


@pytest.fixture
def empty_hub(monkeypatch):
    """A hub that has nothing."""

    def nothing(name, **_):
        raise LocalEntryNotFoundError(f"no {name} here")

    monkeypatch.setattr(published, "snapshot_download", nothing)


@each_row(
    "model, argument",
    [
        ("llava_med", "vision_tower"),
        *(("med_flamingo", name) for name in ("pretrained", "llama", "clip")),
    ],
)
def test_a_folder_that_is_missing_here_and_on_the_hub_is_named_with_its_argument(
    empty_hub, build, model, argument
):
    with pytest.raises(MedTasksError, match=f"/nowhere/at_all.*{argument}="):
        build(model, **{argument: "/nowhere/at_all"})


@each_row("weights", ["openai", "checkpoint"])
def test_a_missing_tower_is_named_with_its_argument(empty_hub, build, weights):
    with pytest.raises(
        CheckpointError, match=r"openai/clip-vit-large-patch14-336 is neither .* vision_tower="
    ):
        build("llava_med", vision_tower=None, vision_weights=weights)


def test_a_missing_folder_of_radfm_is_named_with_its_archive(empty_hub, build, tmp_path):
    with pytest.raises(CheckpointError, match=r"/nowhere/here is no folder.*cat RadFM\.z"):
        build("radfm", "/nowhere/here")
    with pytest.raises(CheckpointError, match=rf"{tmp_path} holds no"):
        build("radfm", tmp_path)
    with pytest.raises(CheckpointError, match=r"chaoyi-wu/RadFM is neither.*split archive"):
        RadFM(device="cpu", journal=False)


def test_radfm_is_loaded_from_the_hub(radfm_folder, monkeypatch):
    monkeypatch.setattr(published, "snapshot_download", lambda name, **_: str(radfm_folder))
    assert RadFM(device="cpu", journal=False).arguments.max_new_tokens == 200


def test_hub_weights_in_torch_format_are_the_second_choice(tmp_path, monkeypatch):
    asked = []

    def deliver(name, allow_patterns):
        asked.append(allow_patterns[-1])
        if "*.bin" in allow_patterns:
            (tmp_path / "pytorch_model.bin").touch()
        return str(tmp_path)

    monkeypatch.setattr(published, "snapshot_download", deliver)
    assert published.published_folder("openai/clip", "vision_tower") == tmp_path
    assert asked == ["*.safetensors", "*.bin"]


@pytest.fixture
def _no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("_no_network")
def test_llava_med_ignores_no_weight(build, llava_med_folder):
    loaded = build("llava_med", vision_weights="checkpoint").network

    assert torch.equal(
        loaded.lm_head.weight, load_file(llava_med_folder / ONE)["lm_head.weight"]
    )
    assert torch.equal(
        loaded.model.vision_tower.pre_layrnorm.weight, tower(VISION, 3)["pre_layrnorm.weight"]
    )


def test_llava_med_sees_by_the_published_tower(llava_med):
    name = "embeddings.patch_embedding.weight"
    weights = dict(llava_med.network.model.vision_tower.named_parameters())
    assert torch.equal(weights[name], tower(VISION, 7)[name])


@pytest.mark.usefixtures("_no_network")
def test_llava_med_attends_as_the_argument_says(build, llava_med):
    eager = build("llava_med", attn_implementation="eager").language_model.config
    assert (eager._attn_implementation, eager.text_config._attn_implementation) == (
        "eager",
        "eager",
    )
    assert llava_med.language_model.config._attn_implementation == "sdpa"


@each_row(
    "name, value, message",
    [
        *(
            (name, None, f"lacks '{name}'")
            for name in ("rope_theta", "sliding_window", "mm_vision_select_layer")
        ),
        ("model_type", "llava", "model_type 'llava' is not that of LLaVA-Med v1.5"),
        ("mm_projector_type", "linear", "mm_projector_type 'linear' is not supported"),
        (
            "mm_hidden_size",
            9,
            "mm_hidden_size is 9, but the vision tower is 32 wide; give vision_tower=",
        ),
    ],
)
def test_a_config_of_another_kind_or_without_a_value_is_refused(
    build, copied, name, value, message
):
    folder = copied("llava_med")
    changed = {key: stored for key, stored in V15.items() if key != name} | (
        {} if value is None else {name: value}
    )
    (folder / "config.json").write_text(json.dumps(changed))
    with pytest.raises(CheckpointError, match=rf"config\.json.*{re.escape(message)}"):
        build("llava_med", folder)


def test_every_tensor_of_radfm_arrives(radfm, radfm_folder):
    names, radfm_state = dict(radfm.network.named_parameters()), torch.load(radfm_folder / BIN)
    dropped = {*UNUSED, f"{E}weight", *(key for key in radfm_state if key.endswith("inv_freq"))}
    assert set(names) == set(radfm_state) - dropped
    assert all(torch.equal(weight, radfm_state[key]) for key, weight in names.items())


def test_radfm_loads_from_a_file_or_a_flat_folder(radfm, build, radfm_folder, tmp_path):
    """Without config.json the heads come from the rotary frequencies."""
    shutil.copy(radfm_folder / BIN, tmp_path)
    shutil.copy(radfm_folder / "Language_files" / "tokenizer.model", tmp_path)
    prompt, settings = radfm.encode("is it clear?", [noise()]), GenerationSettings(4)

    for place in (radfm_folder / BIN, tmp_path):
        other = build("radfm", place)
        assert other.encode("is it clear?", [noise()]).ids == prompt.ids
        assert other.generate_batch([prompt], settings, 0) == radfm.generate_batch(
            [prompt], settings, 0
        )


def test_radfm_without_a_number_of_heads_is_refused(build, copied):
    with pytest.raises(
        CheckpointError, match=f"width {HIDDEN} is no multiple of the attention heads' 128"
    ):
        build("radfm", copied("radfm", {BIN: only("inv_freq")}))


def test_a_foreign_tokenizer_is_refused(build, copied, radfm_folder):
    words = len(torch.load(radfm_folder / BIN)[f"{E}weight"])

    def longer(state):
        state.update(
            {
                key: torch.ones(words + 1, HIDDEN)
                for key in state
                if state[key].shape == (words, HIDDEN)
            }
        )

    folder = copied("radfm", {BIN: longer})
    with pytest.raises(
        CheckpointError,
        match=rf"tokenizer\.model has {words} pieces, '.*' has {words + 1} rows",
    ):
        build("radfm", folder)


def test_impossible_arguments_are_refused(build):
    with pytest.raises(AdapterArgumentError, match=r"'max_length' must be at most 512"):
        build("llava_med", max_length=513)
    for model, argument in (
        ("llava_med", "vision_weights"),
        ("med_flamingo", "media_attention"),
        ("radfm", "crop"),
    ):
        with pytest.raises(
            AdapterArgumentError, match=f"argument '{argument}' must be .* not 'hub'"
        ):
            build(model, **{argument: "hub"})


@pytest.fixture(scope="module")
def expected(build):
    return scores(build("med_flamingo"))


def full_dump(state):
    layers = [f"model.layers.{n}.decoder_layer.self_attn.q_proj.weight" for n in range(4)]
    blocks = [f"old_decoder_blocks.{n}.mlp.up_proj.weight" for n in range(4)]
    others = (
        "lm_head.weight",
        "model.norm.weight",
        "old_decoder_blocks.0.input_layernorm.weight",
    )
    towers = ("visual.conv1.weight", "transformer.resblocks.0.ln_1.bias", "class_embedding")
    frozen = [
        *(f"lang_encoder.{name}" for name in (*layers, *blocks, *others)),
        *(f"vision_encoder.{n}" for n in towers),
    ]
    return state | {name: torch.zeros(2) for name in frozen}


FORMS = {
    "blocks under the layers only": only("gated_cross_attn_layers."),
    "blocks in the list only": only("gated_cross_attn_layer."),
    "without rotary tables": only("inv_freq"),
    "outer key, module prefix and frozen parts": lambda state: {
        "epoch": 3,
        "model_state_dict": {
            f"module.{name}": tensor for name, tensor in full_dump(state).items()
        },
    },
}


@each_row("form", FORMS)
def test_every_published_form_gives_the_same_model(build, copied, expected, form):
    assert scores(build("med_flamingo", copied("med_flamingo", {PT: FORMS[form]}))) == expected
    assert [math.isfinite(loss) for loss, _ in expected] == [True] * len(DOCS) * len(OPTIONS)


def test_a_tower_stored_alone_is_read(build, copied, expected):
    prefix = "vision_model."
    bare = {
        CLIP: lambda state: {
            name.removeprefix(prefix): t for name, t in state.items() if name.startswith(prefix)
        }
    }
    folder = copied("med_flamingo", bare)
    config = json.loads((folder / "clip" / "config.json").read_text())
    alone = config["vision_config"] | {"model_type": "clip_vision_model"}
    (folder / "clip" / "config.json").write_text(json.dumps(alone))

    assert scores(build("med_flamingo", folder)) == expected


def test_torch_shards_are_read(build, copied, expected):
    folder = copied("med_flamingo", {})
    language = load_file(folder / LLAMA)
    (folder / LLAMA).unlink()
    places = {name: f"part-{number % 2}.bin" for number, name in enumerate(sorted(language))}
    for file in set(places.values()):
        torch.save(
            {n: t for n, t in language.items() if places[n] == file}, folder / "llama" / file
        )
    (folder / "llama" / "pytorch_model.bin.index.json").write_text(
        json.dumps({"weight_map": places})
    )

    assert scores(build("med_flamingo", folder)) == expected


def test_damaged_torch_files_are_one_sentence(tmp_path):
    """Of a pickle that pushes nothing, names a memo entry that is not there, or has numbers as keys."""
    file = tmp_path / "model.bin"
    for content in (b"\x80\x02.", b"\x80\x02h\x05."):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match="truncated or no torch checkpoint"):
            next(published.stored_tensors(file))
    torch.save({1: torch.zeros(1)}, file)
    with pytest.raises(CheckpointError, match="no plain dictionary of tensors"):
        next(published.stored_tensors(file))


@each_row(
    "name, content, complaint",
    [
        (".", None, "does not exist; give the file or folder"),
        ("other.txt", "", "holds no model.safetensors, pytorch_model.bin or index of shards"),
        ("model.safetensors.index.json", "{", "index.json is damaged; download it again"),
        ("model.safetensors.index.json", "[]", "index.json is damaged; download it again"),
        (
            "model.safetensors.index.json",
            "[" * 100_000,
            "index.json is damaged; download it again",
        ),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": 1, "b": "c"}}',
            "1 is missing; model",
        ),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": [1]}}',
            "index.json is damaged; download it again",
        ),
        (
            "model.safetensors.index.json",
            '{"weight_map": {"a": "x.safetensors"}}',
            "x.safetensors is missing; model",
        ),
        ("config.json", "{", "config.json is damaged; download it again"),
        ("config.json", "[" * 100_000, "config.json is damaged; download it again"),
        ("config.json", "[]", "config.json is damaged; download it again"),
    ],
)
def test_damaged_folders_are_one_sentence(tmp_path, name, content, complaint):
    folder = tmp_path / "checkpoint"
    if content is not None:
        folder.mkdir()
        (folder / name).write_text(content)
    with pytest.raises(CheckpointError, match=complaint):
        published.read_json(folder / name, "") if name == "config.json" else next(
            published.stored_tensors(folder)
        )
