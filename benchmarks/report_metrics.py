"""Everything that is measured of report metrics, in one run: the scripts of the single metrics, then RadCliQ's inputs.

The scripts run one after the other in processes of their own and print what they find. The last part scores 3,000
pairs of 55 words with the four inputs of RadCliQ, networks of the published sizes with random weights, float32; wall
time with loading, without a cache. Its target, 60 s, is for a GPU of a data centre; without one fewer pairs are scored
and nothing is asked of them. Exits with 1 when a target is missed.

    python benchmarks/report_metrics.py [PAIRS [DEVICE]]
    python benchmarks/report_metrics.py --radcliq [PAIRS [DEVICE]]
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import bertscore
import chexbert
import torch
from drawn_reports import report_pairs
from radgraph_annotations import BERT_BASE, Size, write_archive
from transformers import BertConfig

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.report_metrics import report_metric

SCRIPTS = ("lexical_metrics.py", "radgraph_annotations.py", "chexbert.py", "bertscore.py")
INPUTS = ("radgraph_combined", "bertscore", "chexbert", "radcliq_bleu")
SECONDS = 60  # on a GPU of a data centre
CPU_PAIRS = 48


def run_scripts() -> dict[str, bool]:
    """Run every script; return by its name whether its targets are met."""
    met = {}
    for name in SCRIPTS:
        print(f"== {name}", flush=True)
        met[name] = (
            subprocess.run(
                [sys.executable, Path(__file__).with_name(name)], check=False
            ).returncode
            == 0
        )
    return met


def radcliq_inputs(pairs: int, device: str) -> bool:
    """Time the four inputs; return whether the target is met, on a CPU whatever the time."""
    references, hypotheses = (texts[:pairs] for texts in report_pairs())
    on_gpu = torch.device(device).type != "cpu"
    total = 0.0
    with tempfile.TemporaryDirectory() as name:
        settings = drawn_settings(Path(name), references + hypotheses, device)
        for metric in INPUTS:
            began = time.perf_counter()
            report_metric(metric, settings)(references=references, hypotheses=hypotheses)
            seconds = time.perf_counter() - began
            total += seconds
            print(f"{metric}: {seconds:.2f} s, {pairs / seconds:.1f} pairs/s", flush=True)
    print(
        f"RadCliQ's inputs for {pairs} pairs on {_name(device)}: {total:.1f} s, {pairs / total:.1f} pairs/s"
    )
    return not on_gpu or total < SECONDS


MODELS = ("radgraph", "chexbert", "distilroberta-base")


def drawn_settings(
    folder: Path,
    texts: list[str],
    device: str,
    *,
    models: Sequence[str] = MODELS,
    tiny: bool = False,
) -> ModelSettings:
    """Write models, of the published sizes or tiny, with random weights; return settings that name them."""
    small = (
        {"hidden_size": 48, "intermediate_size": 64, "num_attention_heads": 4} if tiny else {}
    )
    for name in models:
        (folder / name).mkdir()
    if "radgraph" in models:
        write_archive(folder / "radgraph", "radgraph", Size() if tiny else BERT_BASE)
    if "chexbert" in models:
        config = BertConfig(num_hidden_layers=2, vocab_size=300, **small) if tiny else None
        chexbert.write_checkpoint(folder / "chexbert", config)
    if "distilroberta-base" in models:
        bertscore.write_encoder(folder / "distilroberta-base", texts, **small)
    weights = {name: folder / name for name in models}
    return ModelSettings(named_weights=weights, device=device, cache=None, progress=False)


def _name(device: str) -> str:
    return torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else device


def main() -> None:
    """Run what was asked for."""
    arguments = sys.argv[1:]
    alone = arguments[:1] == ["--radcliq"]
    arguments = arguments[alone:]
    device = (
        arguments[1] if len(arguments) > 1 else "cuda" if torch.cuda.is_available() else "cpu"
    )
    pairs = int(arguments[0]) if arguments else 3000 if device != "cpu" else CPU_PAIRS
    met = {} if alone else run_scripts()
    print("== RadCliQ's inputs", flush=True)
    met["RadCliQ's inputs"] = radcliq_inputs(pairs, device)
    for name, reached in met.items():
        print(f"{name}: {'targets met' if reached else 'TARGET MISSED'}")
    sys.exit(not all(met.values()))


if __name__ == "__main__":
    main()
