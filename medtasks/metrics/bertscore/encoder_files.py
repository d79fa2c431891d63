"""The files of an encoder; nothing here loads it."""

from pathlib import Path

from medtasks.errors import WeightsMissing
from medtasks.metrics.encoder_batches import weights_digest

_VOCABULARIES = (("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"))
_TEXT_FILES = (
    *("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt"),
)


def encoder_digest(folder: Path) -> str:
    """Return a fingerprint of all files of an encoder that its vectors depend on.

    Args:
        folder: As the Hugging Face Hub has it: ``config.json``, vocabulary, and weights as safetensors or ``.bin``.

    Raises:
        WeightsMissing: Part of it is not there.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    # Without its vocabulary transformers builds a tokenizer that knows no word, and says nothing.
    vocabulary = any(all((folder / name).is_file() for name in names) for names in _VOCABULARIES)
    if not (weights and vocabulary and (folder / "config.json").is_file()):
        raise WeightsMissing(
            f"{folder} lacks part of an encoder: config.json, a vocabulary (vocab.json and merges.txt, vocab.txt or "
            "tokenizer.json) and model.safetensors must be there"
        )
    files = [folder / name for name in _TEXT_FILES if (folder / name).is_file()] + weights
    return " ".join(f"{file.name}={weights_digest([file])}" for file in files)
