"""CheXbert's network, a BERT encoder whose [CLS] vector feeds 14 linear outputs, and batches of texts.

Source: ``src/models/bert_labeler.py`` of https://github.com/stanfordmlgroup/CheXbert, whose ``run_bert.py`` writes the
checkpoint: the network (438 MB) and the optimiser's state, which is not used.
"""

import json
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel, BertTokenizer

from medtasks.errors import WeightsMissing
from medtasks.metrics.chest_findings import CONDITIONS, Finding
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import text_encoders
from medtasks.metrics.neural.metric_checkpoints import CHEXBERT, CHEXBERT_ENCODER, ChexbertFiles
from medtasks.version import check_unpickling

Reading = tuple[tuple[int, ...], NDArray[np.float32]]
"""Class of each condition in a text, and its [CLS] vector."""

# Classes of each output: all of Finding, and only blank and positive for No Finding.
CLASS_COUNTS = (*(len(Finding) for _ in CONDITIONS[:-1]), 2)
# Stored but not used: the pooler, and buffers that old versions of transformers saved.
_UNUSED = ("bert.pooler.", "bert.embeddings.position_ids", "bert.embeddings.token_type_ids")
# Tensors of this checkpoint, and of no other with the same encoder.
_OWN_TENSORS = (
    "bert.embeddings.word_embeddings.weight",
    f"linear_heads.{len(CONDITIONS) - 1}.weight",
)
_CPU_BATCH = 16
_GPU_BATCH = 256


class ChexbertNetwork(torch.nn.Module):
    """Encoder, built from its configuration, and outputs. Parameters are named as in the checkpoint."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.bert = BertModel(config, add_pooling_layer=False)
        self.linear_heads = torch.nn.ModuleList(
            torch.nn.Linear(config.hidden_size, classes) for classes in CLASS_COUNTS
        )

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the [CLS] vector of each text.

        Args:
            input_ids: Token ids, shape (texts, tokens).
            attention_mask: 1 for tokens and 0 for padding, of the same shape.

        Returns:
            Vectors in float32, shape (texts, hidden size).
        """
        encoded: torch.Tensor = self.bert(
            input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return encoded[:, 0].float()

    def classes(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the most likely class of each condition.

        Args:
            vectors: Result of :meth:`forward`.

        Returns:
            Numbers of :class:`Finding`, shape (texts, 14).
        """
        classes = [head(vectors).argmax(dim=-1) for head in self.linear_heads]
        return torch.stack(classes, dim=-1)


def read_config(files: ChexbertFiles) -> Any:
    """Read the encoder's configuration.

    Raises:
        WeightsMissing: The file is damaged, or of another kind of network.
    """
    path = files.encoder / "config.json"
    fix = f"remove it and run 'medtasks weights fetch {CHEXBERT_ENCODER}'"
    with text_encoders.weights_errors(
        lambda *_: f"{path} is damaged or not the configuration of a BERT encoder; {fix}"
    ):
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["model_type"] != "bert":
            raise ValueError(stored["model_type"])
        return BertConfig(**{**stored, "attn_implementation": "sdpa"})


def load_network(files: ChexbertFiles, config: Any) -> ChexbertNetwork:
    """Build the network and fill it, in float32.

    Args:
        files: Files with the checkpoint.
        config: Result of :func:`read_config`.

    Raises:
        WeightsMissing: The checkpoint is damaged, of another model, or does not fit the configuration.
    """
    fix = f"remove it and run 'medtasks weights fetch {CHEXBERT}'"
    damage = f"{files.weights} is damaged, incomplete or no plain torch checkpoint"
    check_unpickling(files.weights)
    with text_encoders.weights_errors(lambda kind, _: f"{damage} ({kind}); {fix}"):
        # mapped into memory; torch's format before zip takes 1.3 GB for a moment
        is_zip = zipfile.is_zipfile(files.weights)
        stored = torch.load(files.weights, map_location="cpu", mmap=is_zip, weights_only=True)
    tensors = stored.get("model_state_dict") if isinstance(stored, dict) else None
    foreign = f"{files.weights} is no checkpoint of CheXbert: it has no"
    if not isinstance(tensors, dict) or not all(
        isinstance(tensor, torch.Tensor) for tensor in tensors.values()
    ):
        raise WeightsMissing(f"{foreign} 'model_state_dict' of tensors; {fix}")
    state = {str(key).removeprefix("module."): tensor for key, tensor in tensors.items()}
    for key in _OWN_TENSORS:
        if key not in state:
            raise WeightsMissing(f"{foreign} '{key}'; {fix}")
    used = {key: tensor for key, tensor in state.items() if not key.startswith(_UNUSED)}
    fetches = (
        f"'medtasks weights fetch {CHEXBERT}' and 'medtasks weights fetch {CHEXBERT_ENCODER}'"
    )
    problem = (
        f"{files.weights} does not fit CheXbert's network of {files.encoder / 'config.json'}"
    )
    with text_encoders.weights_errors(
        lambda _, reason: f"{problem}: {reason}; remove both and run {fetches}"
    ):
        return text_encoders.load_tensors(lambda: ChexbertNetwork(config), used)


def token_ids(
    texts: Sequence[str],
    files: ChexbertFiles,
    config: Any,
) -> list[list[int]]:
    """Return the ids of each text between [CLS] and [SEP], cut at the encoder's maximum length.

    A vocabulary that is smaller than configured is logged.

    Args:
        texts: Texts, each the result of :func:`~.chexbert.prepare`.
        files: Files with the vocabulary.
        config: Result of :func:`read_config`.

    Raises:
        WeightsMissing: The vocabulary is damaged, or larger than configured.
    """
    fix = f"remove the folder and run 'medtasks weights fetch {CHEXBERT_ENCODER}'"
    with text_encoders.weights_errors(
        lambda kind, _: f"the vocabulary in {files.encoder} is damaged ({kind}); {fix}"
    ):
        tokenizer = BertTokenizer.from_pretrained(files.encoder, **text_encoders.LOCAL)
    sizes = f"the vocabulary in {files.encoder} has {len(tokenizer)} entries, its config.json {config.vocab_size}"
    smaller = f"{sizes}; if it was cut short, labels are wrong: {fix}"
    text_encoders.check_vocabulary(
        len(tokenizer), config.vocab_size, f"{sizes}; {fix}", smaller
    )
    encoded = tokenizer(list(texts), truncation=True, max_length=config.max_position_embeddings)
    return list(encoded["input_ids"])


def read_texts(
    texts: Sequence[str],
    files: ChexbertFiles,
    settings: ModelSettings,
) -> Iterator[tuple[int, Reading]]:
    """Load the network and read texts with it.

    Args:
        texts: Texts, each the result of :func:`~.chexbert.prepare`.
        files: CheXbert's files.
        settings: Device, type of numbers and size of batches.

    Yields:
        ``(position, (classes, vector))``, the longest texts first.
    """
    device = settings.torch_device()
    config = read_config(files)
    ids = token_ids(texts, files, config)
    network = load_network(files, config).to(device)

    def run(positions: Sequence[int]) -> list[Reading]:
        """Read the texts at these positions, which fit into one batch."""
        batch = [ids[position] for position in positions]
        rows, mask = text_encoders.pad_rows(batch, config.pad_token_id, device)
        with text_encoders.encoding(device, settings.dtype):
            vectors = network(rows, mask)
        with text_encoders.encoding(device, "float32"):
            classes = network.classes(vectors)
        findings = map(tuple, classes.tolist())
        return list(zip(findings, vectors.cpu().numpy(), strict=True))

    size = settings.batch_size or (_CPU_BATCH if device.type == "cpu" else _GPU_BATCH)
    batches = text_encoders.length_batches(list(map(len, ids)), size)
    return text_encoders.run_batches(
        batches,
        run,
        description="CheXbert",
        progress=settings.progress,
    )
