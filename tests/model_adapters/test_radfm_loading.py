"""Loading RadFM: every tensor arrives, and a checkpoint that does not fit is refused by file and key."""

import shutil

import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError
from medtasks.model_adapters.base.generation import GenerationSettings
from medtasks.model_adapters.checkpoints import reading as published
from medtasks.model_adapters.checkpoints.reading import CheckpointError
from medtasks.model_adapters.radfm import RadFM

from medtasks.errors import MedTasksError

from .radfm_toy import HEADS, HIDDEN, UNUSED, E, P, V, adapter, put
from .toys import noise


@pytest.fixture
def model(radfm):
    return radfm


def test_every_tensor_arrives_and_nothing_else_is_needed(model, radfm_state):
    names = dict(model.network.named_parameters())
    dropped = {*UNUSED, f"{E}weight", *(key for key in radfm_state if key.endswith("inv_freq"))}
    assert set(names) == set(radfm_state) - dropped
    assert all(torch.equal(weight, radfm_state[key]) for key, weight in names.items())
    assert not any(weight.requires_grad or weight.is_meta for weight in names.values())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_keeps_the_rotary_frequencies_exact(radfm_folder, model, dtype):
    half = adapter(radfm_folder, dtype=dtype)
    assert {weight.dtype for weight in half.network.parameters()} == {getattr(torch, dtype)}
    frequencies = half.language_model.model.rotary_emb.inv_freq
    expected = 10000.0 ** -(torch.arange(0, HIDDEN // HEADS, 2) / (HIDDEN // HEADS))
    assert frequencies.dtype == torch.float32
    torch.testing.assert_close(frequencies, expected)
    pair = model.encode_pair("is the lung clear?", " yes", [noise()])
    (got,), (exact,) = half.score_batch([pair]), model.score_batch([pair])
    assert got.total == pytest.approx(exact.total, abs=0.5)


def test_weights_are_found_by_file_too_and_the_tokenizer_beside_them(radfm_folder, model, tmp_path):
    by_file = adapter(radfm_folder / "pytorch_model.bin")
    shutil.copy(radfm_folder / "pytorch_model.bin", tmp_path)
    shutil.copy(radfm_folder / "Language_files" / "tokenizer.model", tmp_path)
    flat = adapter(tmp_path)  # without config.json: the heads come from the rotary frequencies
    prompt = model.encode("is it clear?", [noise()])
    for other in (by_file, flat):
        assert other.encode("is it clear?", [noise()]).ids == prompt.ids
        assert other.generate_batch([prompt], GenerationSettings(4), 0) == model.generate_batch(
            [prompt], GenerationSettings(4), 0
        )


def test_heads_come_from_the_configuration_where_no_rotary_table_is_stored(changed_radfm):
    def without(state):
        for key in [key for key in state if key.endswith("inv_freq")]:
            del state[key]

    assert adapter(changed_radfm(without)).language_model.config.num_attention_heads == HEADS


def drop(key):
    return lambda state: state.pop(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("lang_model.lm_head.weight"), r"lacks 'lang_model\.lm_head\.weight'"),
        (drop(f"{P}layers.1.0.to_kv.weight"), rf"lacks '{P}layers\.1\.0\.to_kv\.weight'"),
        (drop(f"{V}transformer.layers.0.1.fn.net.3.bias"), r"lacks '.*layers\.0\.1\.fn\.net\.3\.bias'"),
        (drop("lang_model.model.embed_tokens.weight"), r"lacks 'lang_model\.model\.embed_tokens\.weight'"),
        (drop(f"{P}latents"), rf"lacks '{P}latents'"),
        (drop(f"{V}pos_embedding.dep_embed.weight"), r"lacks '.*dep_embed\.weight'"),
        (put(f"{E}box_head.weight", torch.ones(2)), rf"key '{E}box_head\.weight' is unknown"),
        (put("lang_model.model.layers.0.self_attn.q_proj.bias", torch.ones(2)), r"'.*q_proj\.bias' is unknown"),
        (put(f"{E}fc.weight", torch.ones(HIDDEN, 5)), rf"key '{E}fc\.weight' has shape \(32, 5\), expected \(32, 24\)"),
        (put(f"{P}latents", torch.ones(5)), rf"key '{P}latents' has shape \(5,\)"),
        (put(f"{V}to_patch_embedding.1.weight", torch.ones(70)), r"'.*embedding\.1\.weight' has shape \(70,\)"),
        (put(f"{E}figure_token_weight", torch.ones(3, HIDDEN)), r"figure_token_weight' has shape \(3, 32\)"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(changed_radfm, change, message):
    folder = changed_radfm(change)
    with pytest.raises(CheckpointError, match=message) as refusal:
        adapter(folder)
    assert str(folder) in str(refusal.value)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_unequal_copies_of_the_word_table_are_refused(changed_radfm, radfm_state, dtype):
    """Even where they differ by less than the rounding to half precision."""
    other = radfm_state[f"{E}weight"].clone()
    other[5, 5] *= 1 + 1e-5
    folder = changed_radfm(put(f"{E}weight", other))
    with pytest.raises(CheckpointError, match=rf"'lang_model.model.embed_tokens.weight' and '{E}weight' should be eq"):
        adapter(folder, dtype=dtype)


def test_missing_last_layer_is_noticed(changed_radfm):
    def shorten(state):
        for key in [key for key in state if ".layers.1." in key and key.startswith("lang_model")]:
            del state[key]

    with pytest.raises(CheckpointError, match=r"config\.json says num_hidden_layers 2, the weights have 1"):
        adapter(changed_radfm(shorten))


def test_a_truncated_file_is_refused(changed_radfm):
    file = changed_radfm(lambda _: None) / "pytorch_model.bin"
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is truncated"):
        adapter(file.parent)


def test_missing_or_foreign_tokenizer_is_refused(changed_radfm, radfm_state):
    folder = changed_radfm(lambda _: None)
    texts = folder / "Language_files" / "tokenizer.model"
    words = len(radfm_state[f"{E}weight"])
    longer = changed_radfm(
        lambda s: s.update({key: torch.ones(words + 1, HIDDEN) for key in s if s[key].shape == (words, HIDDEN)})
    )
    with pytest.raises(CheckpointError, match=rf"tokenizer\.model has {words} pieces, '.*' has {words + 1} rows"):
        adapter(longer)
    texts.unlink()
    with pytest.raises(MedTasksError, match=r"Language_files/tokenizer\.model is missing"):
        adapter(folder)


def test_missing_weights_and_the_hub(radfm_folder, model, monkeypatch, tmp_path):
    with pytest.raises(CheckpointError, match=r"/nowhere/here is no folder.*cat RadFM\.z"):
        adapter("/nowhere/here")
    with pytest.raises(CheckpointError, match=rf"{tmp_path} holds no"):
        adapter(tmp_path)

    def nothing(name, **_):
        raise LocalEntryNotFoundError(f"no {name} here")

    monkeypatch.setattr(published, "snapshot_download", nothing)
    with pytest.raises(CheckpointError, match=r"chaoyi-wu/RadFM is neither.*split archive"):
        RadFM(device="cpu", journal=False)
    monkeypatch.setattr(published, "snapshot_download", lambda name, **_: str(radfm_folder))
    assert RadFM(device="cpu", journal=False).arguments.max_new_tokens == 200
