"""What CheXbert costs: our way against the whole network on one report at a time, bfloat16, and a second run.

The network has the published size and random weights, the reports are random words of the published vocabulary size, 55
on average. Every section checks that both ways read the same, prints one line, and says whether its target is met; the
script exits with 1 when one is missed.

    python benchmarks/chexbert.py [REPORTS] [DEVICE]
"""

import json
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertTokenizer

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural import text_encoders
from medtasks.metrics.neural.chexbert import Chexbert, ReportLabels
from medtasks.metrics.neural.chexbert_network import ChexbertNetwork, load_network, read_config
from medtasks.metrics.neural.metric_checkpoints import find_chexbert

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "."]


def write_checkpoint(folder: Path, config: BertConfig | None = None) -> list[str]:
    """Write a network, by default of the published size, in the published format; return its vocabulary's words."""
    config = config or BertConfig()
    torch.manual_seed(0)
    network = ChexbertNetwork(config)
    state = {f"module.{key}": tensor for key, tensor in network.state_dict().items()}
    torch.save(
        {"epoch": 0, "model_state_dict": state, "optimizer_state_dict": {}},
        folder / "chexbert.pth",
    )
    encoder = folder / "bert-base-uncased"
    encoder.mkdir()
    (encoder / "config.json").write_text(json.dumps(config.to_dict()))
    words = [f"w{number}" for number in range(config.vocab_size - len(SPECIAL))]
    (encoder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    return words


def draw_reports(words: list[str], count: int) -> list[str]:
    """Draw reports of 5 to about 200 words, 55 on average."""
    draw = random.Random(5)
    lengths = [5 + round(draw.gammavariate(2, 25)) for _ in range(count)]
    return [" ".join(draw.choices(words, k=length)) for length in lengths]


def timed(settings: ModelSettings, reports: list[str]) -> tuple[list[ReportLabels], float]:
    """Return what was read, and the seconds with loading."""
    began = time.perf_counter()
    readings = Chexbert(settings)(reports)
    return readings, time.perf_counter() - began


def one_by_one(settings: ModelSettings, reports: list[str]) -> tuple[list[ReportLabels], float]:
    """Do the same with the network as published, text by text."""
    began = time.perf_counter()
    files = find_chexbert(settings)
    network = load_network(files, read_config(files))
    last = network.bert.encoder.layer[-1]
    network.bert.encoder.layer[-1] = last.layer
    device = settings.torch_device()
    network.to(device)
    tokenizer = BertTokenizer.from_pretrained(files.encoder)
    readings = []
    with torch.inference_mode():
        for report in reports:
            encoded = tokenizer(
                report, truncation=True, max_length=512, return_tensors="pt"
            ).to(device)
            vector = network(encoded["input_ids"], encoded["attention_mask"])
            readings.append(
                ReportLabels(
                    tuple(network.classes(vector)[0].tolist()), vector[0].cpu().numpy()
                )
            )
    return readings, time.perf_counter() - began


def difference(one: list[ReportLabels], other: list[ReportLabels]) -> float:
    """Return the largest difference between two vectors' entries."""
    return max(
        float(np.abs(a.vector - b.vector).max()) for a, b in zip(one, other, strict=True)
    )


def check(what: str, slow: float, fast: float, target: float) -> bool:
    """Print one comparison; return whether its target is met."""
    print(f"{what}: {fast:.2f} s against {slow:.2f} s, {slow / fast:.2f}x (target {target:g}x)")
    return slow / fast >= target


def main() -> int:
    """Run all sections."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    device = sys.argv[2] if len(sys.argv) > 2 else "auto"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports = draw_reports(write_checkpoint(folder), count)
        plain = ModelSettings(
            named_weights={"chexbert": folder}, device=device, cache=None, progress=False
        )
        kept = replace(plain, cache=folder / "cache")
        timed(plain, reports[:1])
        # The slow way runs before and after ours, so that a busy machine slows both alike.
        half = count // 2
        first, before = one_by_one(plain, reports[:half])
        ours, fast = timed(kept, reports)
        second, after = one_by_one(plain, reports[half:])
        worst = difference(first + second, ours)
        if worst > 1e-4 or any(
            a.classes != b.classes for a, b in zip(first + second, ours, strict=True)
        ):
            raise SystemExit(f"batches read something else than single reports, by {worst:.1e}")
        met = [
            check(f"{count} reports in batches against one by one", before + after, fast, 1.3)
        ]
        text_encoders._digest.cache_clear()  # a new process reads the weights once for their name
        again, cached = timed(kept, reports)
        if difference(ours, again) != 0:
            raise SystemExit("the cache gave other vectors")
        met.append(check("second run", fast, cached, 100))
        rough, half_precision = timed(replace(plain, dtype="bfloat16"), reports)
        print(
            f"float32 {count / fast:.1f} reports/s, bfloat16 {count / half_precision:.1f} reports/s,",
            end=" ",
        )
        print(f"whose vectors differ by up to {difference(ours, rough):.3f}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
