"""CheXbert in miniature: the published file formats with random weights, wide enough that words matter."""

import json
import string
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from medtasks.metrics.neural.chexbert_network import CLASS_COUNTS, ChexbertNetwork

WORDS = [
    "no",
    "edema",
    "effusion",
    "heart",
    "lungs",
    "clear",
    "left",
    "right",
    "small",
    "is",
    "there",
    "the",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
VOCABULARY = [*SPECIAL, *".,-", *string.digits, *LETTERS, *WORDS]
LONGEST = 512


def config() -> Any:
    return BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=LONGEST,
    )


def checkpoint(seed: int = 0) -> dict[str, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        # With the pooler, which the published file has and no label needs.
        network = ChexbertNetwork(config())
        network.bert = BertModel(config())
        state = {key: torch.randn_like(tensor) for key, tensor in network.state_dict().items()}
    for key in state:
        if "LayerNorm.weight" in key:
            state[key] = 1 + state[key] / 10
        elif "embeddings" not in key and key.startswith("bert."):
            state[key] /= 5
    assert len(CLASS_COUNTS) == 14
    optimiser = {
        "state": {0: {"step": 3, "exp_avg": torch.zeros(4)}},
        "param_groups": [{"lr": 2e-5}],
    }
    named = {f"module.{key}": tensor for key, tensor in state.items()}
    return {"epoch": 7, "model_state_dict": named, "optimizer_state_dict": optimiser}


def write_encoder(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config().to_dict()))
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY))
    (folder / "tokenizer_config.json").write_text(
        '{"do_lower_case": true, "tokenizer_class": "BertTokenizer"}'
    )
    return folder


def write_chexbert(folder: Path, *, zipped: bool = False, seed: int = 0) -> Path:
    """Write the checkpoint and, beside it, the folder ``bert-base-uncased``; return the folder."""
    write_encoder(folder / "bert-base-uncased")
    torch.save(checkpoint(seed), folder / "chexbert.pth", _use_new_zipfile_serialization=zipped)
    return folder


def write_fetched(weights: Path, *, seed: int = 0) -> Path:
    """Write what ``medtasks weights fetch chexbert bert-base-uncased`` leaves, below ``weights``."""
    write_encoder(weights / "bert-base-uncased")
    (weights / "chexbert").mkdir()
    torch.save(
        checkpoint(seed),
        weights / "chexbert" / "chexbert.pth",
        _use_new_zipfile_serialization=False,
    )
    return weights
