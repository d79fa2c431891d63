"""What lexical metrics of reports cost, against the calls of the reference implementation on the same texts.

The reference's way is one call per pair of torchmetrics' BLEU for 1, 2 and 4 words and of its ROUGE, and NLTK's METEOR
on words that NLTK parted, here without synonyms, because WordNet is not on every machine. Both ways must give the same
scores. METEOR with WordNet is timed with the others where WordNet is here. Times are processor time of this process,
imports left out; the slow way is timed on the first pairs only, before and after ours, and scaled. Needs torchmetrics
(``pip install medtasks[dev]``).

    python benchmarks/lexical_metrics.py [PAIRS_FOR_THE_SLOW_WAY]
"""

import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from drawn_reports import PAIRS, report_pairs
from nltk.tokenize import NLTKWordTokenizer
from nltk.translate.meteor_score import meteor_score
from torchmetrics.text import BLEUScore, ROUGEScore

from medtasks.metrics.missing_weights import weights_trouble
from medtasks.metrics.model_settings import WORDNET
from medtasks.metrics.report_metrics import report_metric

SECONDS = 10  # for all metrics on all pairs, on one core
CIDER_SECONDS = 5  # for CIDEr-D on all pairs, its published tokenizer's words included
SAME = ("bleu", "rouge", "meteor_without_synonyms")
OTHERS = ("corpus_bleu", "radcliq_bleu", "medheval_bleu", "rouge_stemmed")
KEYS = ("bleu_1", "bleu_2", "bleu_4", "rouge_1", "rouge_l", "meteor_without_synonyms")


class NoSynonyms:
    """Stands in NLTK's METEOR for WordNet."""

    def synsets(self, word: str) -> list[Any]:
        """Return no senses."""
        return []


def reference_way(
    references: Sequence[str], hypotheses: Sequence[str]
) -> list[tuple[float, ...]]:
    """Return BLEU-1, -2 and -4, ROUGE-1 and -L and METEOR of every pair, in the order of ``KEYS``."""
    bleus = [BLEUScore(n_gram=order) for order in (1, 2, 4)]
    rouge = ROUGEScore(rouge_keys=("rougeL", "rouge1"))
    tokenizer = NLTKWordTokenizer()

    def words(text: str) -> list[str]:
        return [
            word
            for part in re.split(r"(?<=[.!?])\s+", text)
            for word in tokenizer.tokenize(part)
        ]

    rows = []
    for reference, hypothesis in zip(references, hypotheses, strict=True):
        by_bleu = [bleu([hypothesis], [[reference]]).item() for bleu in bleus]
        by_rouge = rouge([hypothesis], [[reference]])
        meteor = meteor_score([words(reference)], words(hypothesis), wordnet=NoSynonyms())
        rows.append(
            (
                *by_bleu,
                by_rouge["rouge1_fmeasure"].item(),
                by_rouge["rougeL_fmeasure"].item(),
                meteor,
            )
        )
    return rows


def timed(
    score: Callable[..., Any], references: Sequence[str], hypotheses: Sequence[str]
) -> tuple[Any, float]:
    """Return the scores and the seconds per pair."""
    began = time.process_time()
    scores = score(references=references, hypotheses=hypotheses)
    return scores, (time.process_time() - began) / len(references)


def lexical(few: int) -> bool:
    """Compare our way with the reference's on ``few`` pairs; the target is for all metrics on all pairs."""
    references, hypotheses = report_pairs()
    half = few // 2
    before, first = timed(reference_way, references[:half], hypotheses[:half])
    ours = [timed(report_metric(name), references, hypotheses) for name in SAME]
    after, second = timed(reference_way, references[half:few], hypotheses[half:few])

    samples = {key: values for scores, _ in ours for key, values in scores.samples.items()}
    rows = [[samples[key][pair] for key in KEYS] for pair in range(few)]
    apart = max(
        abs(a - b)
        for pair in zip(rows, before + after, strict=True)
        for a, b in zip(*pair, strict=True)
    )
    if apart > 1e-6:
        raise SystemExit(f"the two ways differ by {apart}")
    fast, slow = sum(seconds for _, seconds in ours), (first + second) / 2
    others = [*OTHERS, *([] if weights_trouble(WORDNET) else ["meteor"])]
    everything = PAIRS * (
        fast + sum(timed(report_metric(name), references, hypotheses)[1] for name in others)
    )
    words = sum(len(text.split()) for text in references) / PAIRS
    print(
        f"{', '.join(SAME)}: {fast * PAIRS:.2f} s for {PAIRS} pairs of {words:.0f} words against {slow * PAIRS:.1f} s "
        f"(measured on {few}), {slow / fast:.0f}x, scores differ by {apart:.0e} at most; with {', '.join(others)} "
        f"{everything:.2f} s"
    )
    scores, cider = timed(report_metric("cider_d"), references, hypotheses)
    print(
        f"cider_d: {cider * PAIRS:.2f} s for {PAIRS} pairs, mean {scores.totals['cider_d']:.3f}"
    )
    return everything < SECONDS and cider * PAIRS < CIDER_SECONDS


def main() -> None:
    """Run the comparison."""
    torch.set_num_threads(1)  # the tensors have one element
    met = lexical(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
    print(f"lexical: target {'met' if met else 'MISSED'}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
