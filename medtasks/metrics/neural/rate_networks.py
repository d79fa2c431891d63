"""RaTEScore's two networks: entity recognition in sentences, and vectors of entities."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModel,
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from medtasks.errors import WeightsMissing
from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import text_encoders
from medtasks.metrics.neural.rate_sentences import ENCODER, KINDS, NER, entity_spans

_LONGEST_SENTENCE = 512  # tokens
_LONGEST_ENTITY = 30  # tokens
_CPU_BATCH = 32
_GPU_BATCH = 256
LABELS = {"O", *(f"B-{kind}" for kind in KINDS), *(f"I-{kind}" for kind in KINDS)}


def _load(
    name: str,
    model_class: Any,
    settings: ModelSettings,
) -> tuple[Any, Any]:
    """Load a tokenizer and a network, in float32 and on the device of the settings.

    Args:
        name: Entry of the weights.
        model_class: Class of transformers for the network.
        settings: Weights and device.

    Raises:
        WeightsMissing: The files are not on this machine, damaged or of another model.
    """
    folder = settings.find_weights(name)
    fix = f"fetch it again with 'medtasks weights fetch {name}', or give another folder"
    with (
        text_encoders.weights_errors(
            lambda kind, reason: f"{folder} cannot be read ({kind}: {reason}); {fix}"
        ),
        text_encoders.quiet(),
    ):
        vocabulary = folder / ("tokenizer.json" if name == NER else "vocab.txt")
        if not vocabulary.is_file():
            raise FileNotFoundError(f"no {vocabulary.name}")
        text_encoders.check_configuration(folder)
        if name == NER:
            # AutoTokenizer of transformers 5 leaves out the normaliser that this file declares.
            tokenizer: Any = PreTrainedTokenizerFast(
                tokenizer_file=str(vocabulary), pad_token="[PAD]"
            )
        else:
            tokenizer = AutoTokenizer.from_pretrained(folder, **text_encoders.LOCAL)
        options = {"use_safetensors": True, "output_loading_info": True}
        network, report = model_class.from_pretrained(folder, **options, **text_encoders.LOCAL)
        absent = [key for key in report["missing_keys"] if not key.startswith("pooler.")]
        absent += report["mismatched_keys"]
        if absent:
            raise ValueError(f"it lacks {len(absent)} tensors, first {absent[0]}")
        text_encoders.check_weights(network.state_dict())
    return tokenizer, network.float().to(settings.torch_device()).eval()


def _batches(
    ids: Sequence[Sequence[int]],
    padding: int,
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    description: str,
    settings: ModelSettings,
) -> Iterator[tuple[int, NDArray[Any]]]:
    """Run a network over texts of similar length together.

    Args:
        ids: Token ids of each text.
        padding: Id of the padding token.
        run: Takes ids and mask of a batch, shape (texts, longest), and returns one result per text.
        description: Name of the model, for messages and the progress bar.
        settings: Device, type of numbers and size of batches.

    Yields:
        ``(position, result)``, the longest texts first.
    """
    device = settings.torch_device()
    size = settings.batch_size or (_CPU_BATCH if device.type == "cpu" else _GPU_BATCH)

    def run_batch(positions: Sequence[int]) -> list[NDArray[Any]]:
        rows, mask = text_encoders.pad_rows(
            [ids[position] for position in positions],
            padding,
            device,
        )
        with text_encoders.encoding(device, settings.dtype):
            return list(run(rows, mask).cpu().numpy())

    batches = text_encoders.length_batches(list(map(len, ids)), size)
    return text_encoders.run_batches(
        batches,
        run_batch,
        description=description,
        progress=settings.progress,
    )


def _clean(texts: Sequence[str]) -> list[str]:
    # Tokenizers refuse half a surrogate pair, which a cut JSON escape leaves.
    return [text.encode("utf-8", "replace").decode() for text in texts]


def annotate_sentences(
    sentences: Sequence[str],
    settings: ModelSettings,
) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Find the entities of sentences.

    Args:
        sentences: Sentences of :func:`~.rate_sentences.split_sentences`.
        settings: Weights, device, type of numbers and size of batches.

    Yields:
        ``(position, [(text, type), ...])``, the longest sentences first.

    Raises:
        WeightsMissing: The weights are not on this machine, damaged or of another model.
    """
    tokenizer, network = _load(NER, AutoModelForTokenClassification, settings)
    names = network.config.id2label
    if set(names.values()) != LABELS:
        raise WeightsMissing(
            f"these weights name the labels {', '.join(sorted(names.values())[:4])}, ... in config.json, where "
            f"RaTEScore's are {', '.join(sorted(LABELS)[:4])}, ...; get them again by 'medtasks weights fetch {NER}'"
        )
    ids = tokenizer(_clean(sentences), truncation=True, max_length=_LONGEST_SENTENCE)[
        "input_ids"
    ]
    padding = tokenizer.pad_token_id

    def run(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        labels: torch.Tensor = network(rows, attention_mask=mask).logits.argmax(-1)
        return labels

    for position, labels in _batches(ids, padding, run, "RaTEScore, entities", settings):
        real = ids[position][: sum(token != padding for token in ids[position])]
        tokens = tokenizer.convert_ids_to_tokens(real)
        entities = []
        for start, end, kind in entity_spans(tokens, [names[int(label)] for label in labels]):
            text = tokenizer.convert_tokens_to_string(tokens[start : end + 1])
            entities.append((text, kind))
        yield position, entities


def embed_entities(
    entities: Sequence[str],
    settings: ModelSettings,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Return the unit vector of each text's first token.

    Args:
        entities: Texts of entities.
        settings: Weights, device, type of numbers and size of batches.

    Yields:
        ``(position, vector)``, the longest texts first.

    Raises:
        WeightsMissing: The weights are not on this machine, damaged or of another model.
    """
    tokenizer, network = _load(ENCODER, AutoModel, settings)
    ids = tokenizer(_clean(entities), truncation=True, max_length=_LONGEST_ENTITY)["input_ids"]

    def run(rows: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = network(rows, attention_mask=mask).last_hidden_state[:, 0].float()
        return torch.nn.functional.normalize(hidden, dim=-1)

    return _batches(ids, tokenizer.pad_token_id, run, "RaTEScore, vectors", settings)
