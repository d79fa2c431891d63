"""The models in miniature: random weights in the published formats. Tests must not change the folders."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import (
    BertConfig,
    BertForMaskedLM,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

from ... import tiny_chexbert
from .radgraph.random_archive import write_archive

torch.set_num_threads(
    1
)  # more cost time in models this small, most of all beside other workers
SIZE = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
}


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random checkpoint of CheXbert."""
    return tiny_chexbert.write_chexbert(tmp_path_factory.mktemp("chexbert") / "files")


@pytest.fixture(scope="session")
def v1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``radgraph/`` and ``encoder/``."""
    folder = tmp_path_factory.mktemp("radgraph_v1")
    write_archive(folder, "radgraph")
    return folder


@pytest.fixture(scope="session")
def xl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``radgraph-xl/`` and ``encoder/``."""
    folder = tmp_path_factory.mktemp("radgraph_xl")
    write_archive(folder, "radgraph-xl")
    return folder


def save(model: PreTrainedModel, folder: Path) -> None:
    """Weights spread so wide that the cosines of words differ."""
    for name, parameter in model.named_parameters():
        if "LayerNorm" not in name:
            torch.nn.init.normal_(parameter, std=0.6)
    model.save_pretrained(folder)


def write_roberta(folder: Path, **sizes: int) -> Path:
    """A RoBERTa whose tokens are single bytes; without a stated length."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *sorted(ByteLevel.alphabet())]
    (folder / "vocab.json").write_text(
        json.dumps({token: place for place, token in enumerate(vocabulary)})
    )
    (folder / "merges.txt").write_text("#version: 0.2\n")
    torch.manual_seed(1)
    save(
        RobertaForMaskedLM(
            RobertaConfig(vocab_size=len(vocabulary), type_vocab_size=1, **SIZE | sizes)
        ),
        folder,
    )
    return folder


@pytest.fixture(scope="session")
def roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of three layers and 62 tokens at most."""
    return write_roberta(tmp_path_factory.mktemp("roberta"), max_position_embeddings=64)


@pytest.fixture(scope="session")
def deep_roberta(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A RoBERTa of as many layers as BERTScore's metrics read."""
    return write_roberta(
        tmp_path_factory.mktemp("deep"), max_position_embeddings=514, num_hidden_layers=17
    )


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT of three layers and 40 tokens at most, which knows a few words."""
    folder = tmp_path_factory.mktemp("bert")
    words = [
        "no",
        "pleural",
        "effusion",
        "the",
        "heart",
        "is",
        "large",
        "normal",
        "mild",
        "left",
        ".",
        ",",
        "edema",
    ]
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])
    )
    torch.manual_seed(2)
    save(
        BertForMaskedLM(
            BertConfig(vocab_size=5 + len(words), max_position_embeddings=40, **SIZE)
        ),
        folder,
    )
    return folder
