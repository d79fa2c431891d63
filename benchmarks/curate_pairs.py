"""How fast confusing pairs are found among embeddings, in how much memory, and whether it is those that were planted.

Made-up embeddings of 512 and 768 numbers in float16: nine of ten images lie in clusters that are alike to both
encoders, so that there are many medical neighbours and no pair; the others lie at some distance of a cluster, and some
of these make the planted pairs. Compares 20,000 images exactly and, for its recall, through FAISS; exits with 1 where
the exact search takes more than 20 s or 1.5 GB or finds anything else than what was planted, or FAISS less than 99 %.
With a number, does that many through FAISS alone.

    python benchmarks/curate_pairs.py [IMAGES]
"""

import resource
import sys
import time

import numpy as np

from medtasks.curate.pairs.pair_search import EXACT_UP_TO, Limits, find_pairs

MEDICAL, GENERAL = 512, 768
MOST_SECONDS, MOST_BYTES, LEAST_RECALL = 20.0, 1.5e9, 0.99
PER_CLUSTER, SPREAD, LOOSE, PART = 100, 0.3, 1.0, 20_000


def units(vectors: np.ndarray) -> np.ndarray:
    """Return vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def drawn(count: int, planted: int, per_cluster: int) -> tuple[np.ndarray, np.ndarray, set[tuple[int, int]]]:
    """Draw embeddings for both encoders, and the pairs that are confusing."""
    draw = np.random.default_rng(0)
    cluster = draw.integers(0, count // per_cluster, count)
    spread = np.full((count, 1), SPREAD, np.float32)
    loose = draw.permutation(count)[: count // 10]
    spread[loose] = LOOSE
    pairs = loose[: 2 * planted].reshape(-1, 2)
    spaces = []
    for size in (MEDICAL, GENERAL):
        centres = units(draw.standard_normal((cluster.max() + 1, size), np.float32))
        space = np.empty((count, size), np.float16)
        for start in range(0, count, PART):
            part = cluster[start : start + PART]
            noise = units(draw.standard_normal((len(part), size), np.float32))
            space[start : start + PART] = units(centres[part] + spread[start : start + PART] * noise)
        spaces.append(space)
    noise = units(draw.standard_normal((planted, MEDICAL), np.float32))
    spaces[0][pairs[:, 1]] = units(spaces[0][pairs[:, 0]] + SPREAD * noise)
    return spaces[0], spaces[1], {(min(pair), max(pair)) for pair in pairs.tolist()}


def case(what: str, spaces: tuple[np.ndarray, np.ndarray], planted: set[tuple[int, int]], exact_up_to: int) -> bool:
    """Search, say what it took, and return whether the targets are met."""
    wall, processor = time.perf_counter(), time.process_time()
    found = find_pairs(*spaces, Limits(), exact_up_to=exact_up_to)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pairs = set(zip(found.first.tolist(), found.second.tolist(), strict=True))
    print(
        f"{what}, {len(spaces[0]):,} images of {MEDICAL} and {GENERAL} numbers: {wall:.1f} s ({processor:.1f} s of "
        f"processor time), peak memory {peak / 1e9:.2f} GB; {len(pairs & planted)} of {len(planted)} planted pairs, "
        f"{len(pairs - planted)} others{f'; {found.recall}' if found.recall else ''}",
        flush=True,
    )
    if pairs - planted or len(pairs) < LEAST_RECALL * len(planted):
        return False
    return found.recall is not None or (pairs == planted and wall <= MOST_SECONDS and peak <= MOST_BYTES)


def main() -> None:
    """Run the cases."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else EXACT_UP_TO
    few = count <= EXACT_UP_TO
    medical, general, planted = drawn(count, 200 if few else 2_000, PER_CLUSTER if few else PER_CLUSTER // 5)
    met = [case("exact", (medical, general), planted, EXACT_UP_TO)] if few else []
    met.append(case("FAISS", (medical, general), planted, 0))
    print("targets met" if all(met) else "targets MISSED")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
