"""Reading an encoder: tokens, layers, and what is refused."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import RobertaModel

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.bertscore import ContextualEncoder, encoder_digest

from ....tables import each_row


@pytest.fixture
def copy(roberta, tmp_path):
    """A RoBERTa that a test may damage."""
    folder = tmp_path / "encoder"
    shutil.copytree(roberta, folder)
    return folder


def encoder(folder, layer=2, **options):
    return ContextualEncoder(folder, layer, ModelSettings(device="cpu", **options))


def test_the_first_word_is_read_like_any_other(roberta):
    vocabulary = json.loads((roberta / "vocab.json").read_text())
    first, later = encoder(roberta).token_ids(["heart", "a heart"])
    assert first[1:-1] == later[3:-1]
    assert first[1] == vocabulary["Ġ"]
    assert encoder(roberta).token_ids(["a \ud83d"]) == encoder(roberta).token_ids(["a ?"])


def test_white_space_at_the_ends_is_dropped_and_inside_kept(roberta):
    one, same, other, *empty = encoder(roberta).token_ids(["a b", "\n a b\u00a0", "a  b", "", " \t"])
    assert one == same != other
    assert [len(ids) for ids in empty] == [2, 2]


@each_row("family, longest", [("roberta", 62), ("bert", 40)])
def test_long_texts_are_cut_at_the_positions_of_the_model(request, family, longest):
    read = encoder(request.getfixturevalue(family))
    (ids,) = read.token_ids(["heart " * 200])
    assert len(ids) == longest
    assert ids[-1] == read.token_ids([""])[0][-1]
    assert read.vectors([ids])[0].shape == (longest, 16)


def test_a_stated_length_goes_before_the_positions(copy, capfd):
    (copy / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 20}))
    assert len(encoder(copy).token_ids(["heart " * 200])[0]) == 20
    assert capfd.readouterr() == ("", "")  # nothing is printed


@each_row("layer", [1, 2, 3])
def test_vectors_are_those_of_the_layer_at_unit_length(roberta, layer):
    ids = encoder(roberta).token_ids(["the heart is large"])[0]
    with torch.no_grad():
        states = RobertaModel.from_pretrained(roberta, add_pooling_layer=False)(
            torch.tensor([ids]), output_hidden_states=True
        ).hidden_states
    wanted = torch.nn.functional.normalize(states[layer][0], dim=-1)
    (got,) = encoder(roberta, layer).vectors([ids])
    assert torch.allclose(got, wanted, atol=1e-5)


@each_row("layer", [0, 4])
def test_a_layer_that_is_not_there(roberta, layer):
    with pytest.raises(WeightsMissing, match=f"has 3 layers, layer {layer} is required"):
        encoder(roberta, layer)


def test_weights_that_lack_a_tensor_are_refused(copy):
    state = load_file(copy / "model.safetensors")
    (gone,) = [key for key in state if key.endswith("layer.1.output.dense.weight")]
    del state[gone]
    save_file(state, copy / "model.safetensors", {"format": "pt"})
    with pytest.raises(WeightsMissing, match=r"lack 1 tensors of the encoder, first encoder\.layer\.1\.output\.dense"):
        encoder(copy)
    assert encoder(copy, layer=1)


def test_damaged_weights_and_other_families_are_refused(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"model_type": "xlm-roberta"}))
    with pytest.raises(WeightsMissing, match="it is a 'xlm-roberta'"):
        encoder(copy)
    (copy / "config.json").write_text(json.dumps(config))
    (copy / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(WeightsMissing, match=r"cannot be read as an encoder"):
        encoder(copy)


@each_row("gone", ["config.json", "vocab.json", "merges.txt", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_refused_before_loading(copy, gone):
    if gone in ("vocab.json", "merges.txt"):
        (copy / "tokenizer.json").unlink(missing_ok=True)
    (copy / gone).unlink()
    with pytest.raises(WeightsMissing, match="lacks part of an encoder"):
        encoder_digest(copy)


def test_the_digest_is_of_contents_not_of_places(roberta, copy):
    assert encoder_digest(copy) == encoder_digest(roberta)
    (copy / "merges.txt").write_text("#version: 0.2\nt h\n")
    assert encoder_digest(copy) != encoder_digest(roberta)
