"""How fast RadGraph annotates, against the ``radgraph`` package on the same texts.

Random weights in the published network's size (BERT base), float32, one thread of the CPU; processor time, not the
time that other processes hold the core. The package gets the two tokenizer methods that transformers 5 dropped, nothing
else is changed in it. Annotations of both must be equal, the order of relations included. Then the same texts again,
from the cache. The script exits with 1 when a target is missed.

Needs the package (``pip install medtasks[dev]``); the name of this script is not its name, or it would import itself.

    python benchmarks/radgraph_annotations.py [REPORTS [ROUNDS]]
"""

import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from medtasks.metrics.model_settings import ModelSettings
from medtasks.metrics.neural.metric_checkpoints import open_archive
from medtasks.metrics.neural.radgraph import RadGraph, words_of
from medtasks.metrics.neural.radgraph_network import Annotator

_TESTS = Path(__file__).parents[1] / "tests" / "metrics"
sys.path += [str(_TESTS), str(_TESTS / "neural" / "radgraph")]
from published_packages import package_radgraph  # noqa: E402
from random_archive import Size, invented_reports, write_archive  # noqa: E402

BERT_BASE = Size(
    768, 12, 12, 3072, 30522, feedforward=150, feature=20, width=12, max_length=512
)
WORDS_PER_REPORT = 55
FASTER, FASTER_CACHED = 1.4, 100


def timed(annotate: Callable[[], list]) -> tuple[list, float]:
    """Return annotations and the seconds of processor time they took."""
    began = time.process_time()
    found = annotate()
    return found, time.process_time() - began


def against_package(folder: Path, texts: Sequence[str], rounds: int) -> bool:
    """Compare loaded models: the package's text by text, as it always goes, and ours in batches.

    They take turns, as other processes also slow down memory.
    """
    settings = ModelSettings(
        named_weights={"radgraph": folder}, device="cpu", cache=None, progress=False
    )
    archive = open_archive("radgraph", settings)
    own = Annotator(archive, settings)
    words = [words_of(text, "radgraph") for text in texts]
    ratios, best = [], [float("inf"), float("inf")]
    with package_radgraph(archive) as model:
        for _ in range(rounds):
            theirs, slow = timed(lambda: list(model(texts).values()))
            found, fast = timed(lambda: list(own.entities(words)))
            ours = [entities for _, entities in sorted(found, key=lambda item: item[0])]
            if ours != [annotation["entities"] for annotation in theirs]:
                raise SystemExit("the two annotate differently")
            ratios.append(slow / fast)
            best = [min(best[0], slow), min(best[1], fast)]
            print(
                f"package {slow:.1f} s, medtasks {fast:.1f} s, {slow / fast:.2f}x", flush=True
            )
    entities = [entity for annotation in theirs for entity in annotation["entities"].values()]
    relations = sum(len(entity["relations"]) for entity in entities)
    print(
        f"{len(texts)} reports with {len(entities)} entities and {relations} relations, equal; best of {rounds}: "
        f"{len(texts) / best[0]:.1f} and {len(texts) / best[1]:.1f} reports/s, {best[0] / best[1]:.2f}x; "
        f"median of rounds {sorted(ratios)[rounds // 2]:.2f}x"
    )
    return best[0] / best[1] >= FASTER


def from_cache(folder: Path, texts: Sequence[str]) -> bool:
    """Compare a first run, which loads the model and fills the cache, with a second one.

    A new process has to read the weights once to know that the cache is theirs; that is told apart.
    """
    settings = ModelSettings(
        named_weights={"radgraph": folder}, device="cpu", cache=folder / "cache", progress=False
    )
    first, slow = timed(lambda: RadGraph("radgraph", settings).annotate(texts))
    again, fast = timed(lambda: RadGraph("radgraph", settings).annotate(texts))
    if first != again:
        raise SystemExit("the cache gives other annotations")
    (folder / "radgraph" / "weights.th").touch()
    _, anew = timed(lambda: RadGraph("radgraph", settings).annotate(texts))
    print(
        f"first run {slow:.2f} s with loading, from cache {fast * 1000:.1f} ms, {slow / fast:.0f}x; "
        f"in a new process {anew * 1000:.0f} ms, whatever the number of reports"
    )
    return slow / fast >= FASTER_CACHED


def main() -> None:
    """Run both comparisons."""
    reports = int(sys.argv[1]) if len(sys.argv) > 1 else 96
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    torch.set_num_threads(1)
    texts = invented_reports(reports, WORDS_PER_REPORT, seed=7)
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), "radgraph", BERT_BASE, encoder=f"{folder}/encoder")
        met = [against_package(Path(folder), texts, rounds), from_cache(Path(folder), texts)]
    for target, reached in zip((FASTER, FASTER_CACHED), met, strict=True):
        print(f"target {target}x: {'met' if reached else 'MISSED'}")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
