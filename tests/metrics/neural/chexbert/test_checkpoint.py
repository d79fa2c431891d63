"""CheXbert's checkpoint in its formats, its conversion, and what is said of one that cannot be used."""

import pickle
import shutil
from pathlib import Path

import pytest
import torch

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.chexbert import Chexbert
from medtasks.metrics.neural.chexbert_network import load_network, read_config
from medtasks.metrics.neural.metric_checkpoints import find_chexbert

from .... import tiny_chexbert
from ....tables import each_row

TEXTS = ["No edema.", "Small left effusion, the heart is 12."]


@pytest.fixture
def own(tiny, tmp_path):
    """A copy of the files that the test may damage."""
    return shutil.copytree(tiny, tmp_path / "own")


def settings(weights=None, **named):
    named |= {"chexbert": weights} if weights else {}
    return ModelSettings(named_weights=named, device="cpu", cache=None, progress=False)


def classes(chosen):
    return [reading.classes for reading in Chexbert(chosen)(TEXTS)]


def saved(folder, change, zipped=True):
    """Write a checkpoint whose tensors were changed."""
    content = tiny_chexbert.checkpoint()
    change(content["model_state_dict"])
    torch.save(content, folder / "chexbert.pth", _use_new_zipfile_serialization=zipped)
    return folder


def test_files_are_found_or_named(tiny, tmp_path, monkeypatch):
    with pytest.raises(WeightsMissing, match=r"does not hold chexbert.pth"):
        find_chexbert(settings(tmp_path))
    with pytest.raises(WeightsMissing, match="does not exist"):
        find_chexbert(settings(tmp_path / "nothing"))
    monkeypatch.setenv("MEDTASKS_HOME", str(home := tmp_path / "home"))
    with pytest.raises(WeightsMissing, match="medtasks weights fetch chexbert'"):
        find_chexbert(settings())
    (home / "weights" / "chexbert").mkdir(parents=True)
    shutil.copy(tiny / "chexbert.pth", home / "weights" / "chexbert")
    with pytest.raises(WeightsMissing, match="medtasks weights fetch bert-base-uncased'"):
        find_chexbert(settings())
    shutil.copytree(tiny / "bert-base-uncased", home / "weights" / "bert-base-uncased")
    assert classes(settings()) == classes(settings(tiny))
    for file in ("config.json", "vocab.txt"):
        (home / "weights" / "bert-base-uncased" / file).rename(tmp_path / file)
        with pytest.raises(WeightsMissing, match=r"'medtasks weights fetch bert-base-uncased'"):
            find_chexbert(settings())
        (tmp_path / file).rename(home / "weights" / "bert-base-uncased" / file)


def test_configuration_and_vocabulary_come_from_beside_the_weights_or_by_name(tiny, tmp_path):
    alone = tmp_path / "alone" / "chexbert"
    alone.mkdir(parents=True)
    weights = Path(shutil.copy(tiny / "chexbert.pth", alone))
    with pytest.raises(WeightsMissing, match="'medtasks weights fetch bert-base-uncased'"):
        find_chexbert(settings(weights))
    wanted = classes(settings(tiny))
    named = {"chexbert": alone, "bert-base-uncased": tiny / "bert-base-uncased"}
    assert classes(settings(None, **named)) == wanted
    shutil.copytree(tiny / "bert-base-uncased", tmp_path / "alone" / "bert-base-uncased")
    assert find_chexbert(settings(weights)).encoder == tmp_path / "alone" / "bert-base-uncased"
    assert classes(settings(alone)) == wanted


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


class Touching:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def changed(change, zipped=True):
    return lambda own: saved(own, change, zipped)


def stored(content):
    return lambda own: torch.save(content, own / "chexbert.pth")


def written(name, content):
    return lambda own: (own / name).write_text(content)


def malicious(own):
    (own / "chexbert.pth").write_bytes(
        pickle.dumps({"model_state_dict": Touching(own / "touched")}, protocol=2)
    )


CONFIG, HEADS = "bert-base-uncased/config.json", "module.linear_heads"


@each_row(
    "damage, message",
    [
        (
            lambda own: cut(own / "chexbert.pth"),
            "is damaged, incomplete or no plain torch checkpoint",
        ),
        (
            lambda own: cut(changed(dict, zipped=False)(own) / "chexbert.pth"),
            "is damaged, incomplete or no plain",
        ),
        (written("chexbert.pth", ""), "is damaged, incomplete or no plain torch checkpoint"),
        (malicious, "is damaged, incomplete or no plain torch checkpoint"),
        (stored({"weight": torch.ones(2)}), "it has no 'model_state_dict' of tensors"),
        (
            stored({"model_state_dict": {"module.roberta.weight": torch.ones(2)}}),
            "has no 'bert.embeddings.word_embedd",
        ),
        (changed(lambda state: state.pop(f"{HEADS}.4.bias")), "Missing.*linear_heads.4.bias"),
        (
            changed(lambda state: state.update({f"{HEADS}.14.weight": torch.ones(4, 24)})),
            "Unexpected.*heads.14.weight",
        ),
        (
            changed(lambda state: state.update({f"{HEADS}.13.bias": torch.ones(4)})),
            "size mismatch for linear_heads.13",
        ),
        (
            changed(
                lambda state: state.update({f"{HEADS}.0.bias": torch.full((4,), torch.nan)})
            ),
            "that are not finite",
        ),
        *(
            (written(CONFIG, text), "is damaged or not the configuration of a BERT")
            for text in ("{", "[]")
        ),
        (
            written(CONFIG, '{"model_type": "roberta"}'),
            "is damaged or not the configuration of a BERT encoder",
        ),
        (
            written(CONFIG, '{"model_type": "bert", "vocab_size": 70}'),
            "vocabulary in .* has 82 entries",
        ),
        (
            written(CONFIG, '{"model_type": "bert", "vocab_size": 82}'),
            "does not fit CheXbert's network",
        ),
        (
            written(
                "bert-base-uncased/vocab.txt", "\n".join([*tiny_chexbert.VOCABULARY, "more"])
            ),
            "has 83 entries, its config.json 82",
        ),
        (written("bert-base-uncased/tokenizer.json", "{"), "the vocabulary in .* is damaged"),
    ],
)
def test_what_is_damaged_foreign_or_does_not_fit_is_told(tiny, tmp_path, damage, message):
    own = shutil.copytree(tiny, tmp_path / "own")
    damage(own)
    with pytest.raises(WeightsMissing, match=message) as caught:
        classes(settings(own))
    assert "'medtasks weights fetch " in str(caught.value)
    assert not (own / "touched").exists()
    assert "\n" not in str(caught.value)


def test_pooler_and_old_buffers_play_no_part_and_parameters_are_in_float32(own):
    wanted = classes(settings(own))

    def older(state):
        for key in [key for key in state if "pooler" in key]:
            del state[key]
        state["module.bert.embeddings.position_ids"] = torch.arange(512)[None]

    assert (
        classes(settings(saved(own, older, zipped=False))) == wanted
    )  # also in the older format
    halved = lambda state: state.update({key: tensor.half() for key, tensor in state.items()})  # noqa: E731
    files = find_chexbert(settings(saved(own, halved)))
    network = load_network(files, read_config(files))
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    assert not any(tensor.is_meta for tensor in (*network.parameters(), *network.buffers()))
    assert not network.training


def test_a_vocabulary_cut_short_is_told(own, warnings):
    classes(settings(own))
    assert warnings == []
    (own / "bert-base-uncased" / "vocab.txt").write_text(
        "\n".join(tiny_chexbert.VOCABULARY[:60])
    )
    classes(settings(own))
    (warning,) = warnings
    assert "has 60 entries, its config.json 82; if it was cut short" in warning
