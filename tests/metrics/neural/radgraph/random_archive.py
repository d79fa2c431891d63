"""RadGraph archives with random weights in the published format, and invented texts for them."""

import json
import math
import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

V1_LABELS = ("ANAT-DP", "OBS-DP", "OBS-DA", "OBS-U")
XL_LABELS = (
    *(
        "Observation::definitely present",
        "Anatomy::definitely present",
        "Observation::definitely absent",
    ),
    *(
        "Observation::uncertain",
        "Anatomy::uncertain",
        "Observation::measurement::definitely present",
    ),
    *("Anatomy::measurement::definitely present", "Anatomy::definitely absent"),
)
RELATIONS = ("modify", "located_at", "suggestive_of")
WORDS = (
    *(
        "the",
        "is",
        "are",
        "no",
        "of",
        "in",
        "with",
        "and",
        "a",
        "there",
        "left",
        "right",
        "lower",
        "upper",
        "lobe",
    ),
    *(
        "lung",
        "lungs",
        "heart",
        "size",
        "normal",
        "small",
        "large",
        "mild",
        "moderate",
        "severe",
        "pleural",
        "None",
    ),
    *(
        "effusion",
        "pneumothorax",
        "opacity",
        "edema",
        "atelectasis",
        "consolidation",
        "cardiomegaly",
        "pneumonia",
    ),
    *(
        "tube",
        "tip",
        "projects",
        "above",
        "carina",
        "unchanged",
        "stable",
        "clear",
        "bilateral",
        "basilar",
        "process",
    ),
    *(
        "acute",
        "bony",
        "thorax",
        "mediastinal",
        "contour",
        "nodule",
        "fracture",
        "evidence",
        "may",
        "represent",
    ),
)
MARKS = (
    ".",
    ",",
    ":",
    "(",
    ")",
    "/",
    "?",
    "!",
    "-",
    ";",
    "%",
    "'",
    '"',
    "[",
    "]",
    "`",
    "~",
    "<",
    ">",
    "&",
)


@dataclass(frozen=True)
class Size:
    """Sizes of a network; the published one has BERT base's, feedforward 150 and feature 20."""

    hidden: int = 32
    layers: int = 2
    heads: int = 4
    intermediate: int = 64
    vocabulary: int = 300
    feedforward: int = 40
    feature: int = 10
    width: int = 8
    max_length: int = 64


def write_encoder(folder: Path, size: Size) -> BertConfig:
    """Write configuration and vocabulary: whole words, single characters, and words that no text has."""
    characters = [*"abcdefghijklmnopqrstuvwxyz0123456789é中µ", *MARKS]
    known = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *sorted({word.lower() for word in WORDS} - set(characters)),
    ]
    known += [
        *characters,
        *(f"##{character}" for character in characters if character.isalnum()),
    ]
    assert len(known) <= size.vocabulary
    known += [f"unused{index}" for index in range(size.vocabulary - len(known))]
    config = BertConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=size.intermediate,
    )
    folder.mkdir(parents=True)
    config.save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(known), "utf-8")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "tokenizer_class": "BertTokenizer"})
    )
    return config


def random_encoder(config: BertConfig) -> BertModel:
    """Draw an encoder whose weights are spread wide enough that words matter."""
    encoder = BertModel(config).eval()
    for name, parameter in encoder.named_parameters():
        if parameter.dim() == 2 and "embeddings" not in name:
            parameter.data = torch.randn(parameter.shape) * (1.5 / parameter.shape[1]) ** 0.5
        elif "word_embeddings" in name:
            parameter.data = torch.randn(parameter.shape)
    return encoder


def random_spans(encoder: BertModel, widths: torch.Tensor) -> torch.Tensor:
    """Return features of spans of random words, shape (spans, features)."""
    with torch.no_grad():
        ids = torch.randint(5, encoder.config.vocab_size, (20, 40))
        words = encoder(input_ids=ids).last_hidden_state
    longest = len(widths)
    features = [
        torch.cat(
            [words[:, first], words[:, first + width], widths[width].expand(len(ids), -1)],
            dim=1,
        )
        for width in range(longest)
        for first in range(0, ids.shape[1] - longest, 2)
    ]
    return torch.cat(features)


def random_state(
    model_type: str, labels: Sequence[str], size: Size, config: BertConfig
) -> dict[str, torch.Tensor]:
    """Draw all tensors the package's network has; entities and relations occur, but are not the rule."""
    encoder, widths = random_encoder(config), torch.randn(size.width, size.feature)
    spans = random_spans(encoder, widths)
    other = spans[torch.randperm(len(spans))]
    pairs = torch.cat([spans, other, spans * other], dim=1)
    prefix = "_embedder.token_embedder_bert._matched_embedder.transformer_model"
    state = {f"{prefix}.{name}": tensor for name, tensor in encoder.state_dict().items()}
    state["_endpoint_span_extractor._span_width_embedding.weight"] = widths

    def linear(name: str, values: torch.Tensor, outputs: int) -> torch.Tensor:
        weight, bias = (
            torch.randn(outputs, values.shape[1]) * (2 / values.shape[1]) ** 0.5,
            torch.randn(outputs) * 0.1,
        )
        state[f"{name}.weight"], state[f"{name}.bias"] = weight, bias
        sums: torch.Tensor = values @ weight.T + bias
        return sums

    def scorer(
        hidden: str, last: str, values: torch.Tensor, outputs: int, share: float
    ) -> None:
        """Draw a perceptron; each output is above 0 for this share of ``values``."""
        for layer in range(2):
            values = linear(f"{hidden}._linear_layers.{layer}", values, size.feedforward).relu()
        scores = linear(last, values, outputs)
        state[f"{last}.bias"] -= scores.quantile(1 - share, dim=0)

    ner, relation = (
        f"_ner._ner_scorers.{model_type}__ner_labels",
        f"{model_type}__relation_labels",
    )
    scorer(f"{ner}.0._module", f"{ner}.1._module", spans, len(labels), 0.1 / len(labels))
    for name in (f"_relation._mention_pruners.{relation}", "_coref._mention_pruner"):
        scorer(f"{name}._scorer.0._module", f"{name}._scorer.1._module", spans, 1, 0.1)
    scorers = (
        f"_relation._relation_feedforwards.{relation}",
        f"_relation._relation_scorers.{relation}",
    )
    scorer(*scorers, pairs, len(RELATIONS), 0.3)
    distances = torch.randn(len(spans), size.feature)
    scorers = ("_coref._antecedent_feedforward._module", "_coref._antecedent_scorer._module")
    scorer(*scorers, torch.cat([pairs, distances], dim=1), 1, 0.1)
    linear(
        "_coref._f_network._linear_layers.0", torch.cat([spans, other], dim=1), spans.shape[1]
    )
    for name in ("_coref", "_events"):
        state[f"{name}._distance_embedding.weight"] = torch.randn(10, size.feature)
    return state


def archive_config(encoder: str, size: Size) -> dict[str, Any]:
    """Return an archive's config.json."""
    bert = {
        "type": "pretrained_transformer_mismatched",
        "model_name": encoder,
        "max_length": size.max_length,
    }
    events: dict[str, Any] = {"trigger_spans_per_word": 0.3, "argument_spans_per_word": 0.8}
    events["loss_weights"] = {"trigger": 0.2, "arguments": 1.0}
    coreferences = {"spans_per_word": 0.3, "max_antecedents": 100, "coref_prop": 0}
    model = {
        "type": "dygie",
        "embedder": {"token_embedders": {"bert": bert}},
        "initializer": {"regexes": []},
        "module_initializer": {"regexes": []},
        "feature_size": size.feature,
        "feedforward_params": {
            "num_layers": 2,
            "hidden_dims": size.feedforward,
            "dropout": 0.4,
        },
        "loss_weights": {"ner": 0.2, "relation": 1.0, "coref": 0.0, "events": 0.0},
        "max_span_width": size.width,
        "target_task": "relation",
        "modules": {
            "ner": {},
            "relation": {"spans_per_word": 0.5},
            "coref": coreferences,
            "events": events,
        },
    }
    reader = {"type": "dygie", "max_span_width": size.width, "token_indexers": {"bert": bert}}
    return {"dataset_reader": reader, "model": model}


def write_archive(
    folder: Path, model_type: str, size: Size | None = None, *, encoder: str = "encoder"
) -> Path:
    """Write ``MODEL_TYPE/`` and ``encoder/`` into a folder; return the unpacked archive.

    ``encoder`` is the name that the archive gives its encoder; the package needs the path of the folder.
    """
    size = size or Size()
    labels = V1_LABELS if model_type == "radgraph" else XL_LABELS
    config = write_encoder(folder / "encoder", size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        state = random_state(model_type, labels, size, config)
    archive = folder / model_type
    (archive / "vocabulary").mkdir(parents=True)
    torch.save(state, archive / "weights.th")
    (archive / "config.json").write_text(json.dumps(archive_config(encoder, size)))
    for kind, lines in (("ner", ("", *labels)), ("relation", RELATIONS)):
        (archive / "vocabulary" / f"{model_type}__{kind}_labels.txt").write_text(
            "\n".join(lines)
        )
    (archive / "vocabulary" / "non_padded_namespaces.txt").write_text("*labels\n*tags\n")
    return archive


def pack(archive: Path) -> Path:
    """Pack an unpacked archive as it is published, into a file beside it."""
    packed = archive.parent / f"{archive.name}.tar.gz"
    with tarfile.open(packed, "w:gz") as tar:
        for name in ("config.json", "weights.th", "vocabulary"):
            tar.add(archive / name, name)
    return packed


def invented_reports(count: int, words: int, seed: int = 0) -> list[str]:
    """Draw texts of report vocabulary, of ``words`` words on average."""
    draw = random.Random(seed)
    reports = []
    for _ in range(count):
        length = max(1, math.floor(draw.gauss(words, words / 3)))
        text = [
            draw.choice(WORDS) + draw.choice(["", "", "", "", "", ",", "."])
            for _ in range(length)
        ]
        reports.append(" ".join(text).capitalize() + ".")
    return reports
