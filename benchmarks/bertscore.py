"""What BERTScore costs, against the ``bert-score`` package on the same texts and weights, and from the cache.

An encoder of distilroberta-base's size with random weights, of which the first five layers run, float32, one thread
of the CPU; processor time, both with loading. The package runs batches of 256, as MultiMedEval and CXR-Report-Metric
call it, and gets the space in front of the first word that transformers 5 drops. Scores of both must agree. The script
exits with 1 when a target is missed.

What we gain is padding: on 256 pairs a batch of 256 has half as many padded places as words, on 3,000 pairs a ninth.
MultiMedEval calls the package twice, for raw and for rescaled scores, which are one pass here.

Needs the package (``pip install medtasks[dev]``).

    python benchmarks/bertscore.py [PAIRS]
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from drawn_reports import report_pairs
from tokenizers import ByteLevelBPETokenizer
from transformers import RobertaConfig, RobertaModel

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.bertscore import (
    RADCLIQ_ENCODER,
    RADCLIQ_LAYER,
    BertScore,
    BertScores,
)

sys.path.append(str(Path(__file__).parents[1] / "tests" / "metrics"))
from published_packages import package_bertscore

FASTER, FASTER_CACHED = 1.5, 100
BATCH = 256
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def write_encoder(folder: Path, texts: Sequence[str], **sizes: int) -> None:
    """Write an encoder of distilroberta-base's size, or of other ones, with word pieces learnt from ``texts``."""
    torch.manual_seed(0)
    published = {
        "vocab_size": 50265,
        "num_hidden_layers": 6,
        "max_position_embeddings": 514,
        "type_vocab_size": 1,
    }
    config = RobertaConfig(**{**published, **sizes})
    RobertaModel(config).save_pretrained(folder)
    pieces = ByteLevelBPETokenizer()
    pieces.train_from_iterator(
        texts, vocab_size=5000, min_frequency=2, special_tokens=SPECIAL, show_progress=False
    )
    pieces.save_model(str(folder))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 512}))


def timed(score: Callable[[], Any]) -> tuple[Any, float]:
    """Return scores and the seconds of processor time they took."""
    began = time.process_time()
    scores = score()
    return scores, time.process_time() - began


def package_way(
    folder: Path, references: Sequence[str], hypotheses: Sequence[str]
) -> Sequence[float]:
    """Return F1 of the package."""
    *_, f1 = package_bertscore(
        folder, RADCLIQ_LAYER, references, hypotheses, idf="none", batch_size=BATCH
    )
    return f1


def own_way(
    settings: ModelSettings, references: Sequence[str], hypotheses: Sequence[str]
) -> BertScores:
    """Return our scores."""
    return BertScore(RADCLIQ_ENCODER, RADCLIQ_LAYER, settings).score(
        references=references, hypotheses=hypotheses
    )


def compare(folder: Path, references: Sequence[str], hypotheses: Sequence[str]) -> list[bool]:
    """Time both ways, the package before and after ours, so that a busy machine slows both alike."""
    settings = ModelSettings(
        named_weights={RADCLIQ_ENCODER: folder},
        device="cpu",
        cache=folder / "cache",
        progress=False,
    )
    theirs, before = timed(lambda: package_way(folder, references, hypotheses))
    ours, fast = timed(lambda: own_way(settings, references, hypotheses))
    _, after = timed(lambda: package_way(folder, references, hypotheses))
    slow = (before + after) / 2
    apart = max(abs(a - b) for a, b in zip(ours.f1, theirs, strict=True))
    if apart > 1e-5:
        raise SystemExit(f"the two differ by {apart:.1e}")
    pairs = len(references)
    print(
        f"{pairs} pairs, package {pairs / slow:.1f} pairs/s, medtasks {pairs / fast:.1f} pairs/s, {slow / fast:.2f}x, "
        f"against the two calls of MultiMedEval {2 * slow / fast:.2f}x, F1 differs by {apart:.0e} at most"
    )
    again, cached = timed(lambda: own_way(settings, references, hypotheses))
    if again != ours:
        raise SystemExit("the cache gives other scores")
    print(f"from cache {cached * 1000:.0f} ms, {fast / cached:.0f}x")
    rough, rough_time = timed(
        lambda: own_way(replace(settings, dtype="bfloat16"), references, hypotheses)
    )
    moved = max(abs(a - b) for a, b in zip(ours.f1, rough.f1, strict=True))
    print(f"bfloat16 {pairs / rough_time:.1f} pairs/s, F1 differs by {moved:.0e} at most")
    return [slow / fast >= FASTER, fast / cached >= FASTER_CACHED]


def main() -> None:
    """Run the comparison."""
    torch.set_num_threads(1)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    references, hypotheses = report_pairs()
    with tempfile.TemporaryDirectory() as folder:
        write_encoder(Path(folder), references + hypotheses)
        met = compare(Path(folder), references[:count], hypotheses[:count])
    for target, reached in zip((FASTER, FASTER_CACHED), met, strict=True):
        print(f"target {target}x: {'met' if reached else 'MISSED'}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
