"""Time and memory of the search for confusing pairs among embeddings, and whether it finds exactly the planted pairs.

Made-up embeddings of 512 and 768 numbers in float16: nine of ten images lie in clusters that are alike to both
encoders, so that there are many medical neighbours and no pair; the others lie at some distance of a cluster, and some
of these make the planted pairs. Exits with 1 if other pairs are found, or if 20,000 images, the default, take more than
20 s or 1.5 GB.

    python benchmarks/curate_pairs.py [IMAGES]
"""

import resource
import sys
import time

import numpy as np

from medtasks.curate.pairs.pair_search import find_pairs

MEDICAL, GENERAL = 512, 768
IMAGES, MOST_SECONDS, MOST_BYTES = 20_000, 20.0, 1.5e9
PER_CLUSTER, SPREAD, LOOSE, PART = 100, 0.3, 1.0, 20_000


def units(vectors: np.ndarray) -> np.ndarray:
    """Return vectors at length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def drawn(
    count: int, planted: int, per_cluster: int
) -> tuple[np.ndarray, np.ndarray, set[tuple[int, int]]]:
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
            space[start : start + PART] = units(
                centres[part] + spread[start : start + PART] * noise
            )
        spaces.append(space)
    noise = units(draw.standard_normal((planted, MEDICAL), np.float32))
    spaces[0][pairs[:, 1]] = units(spaces[0][pairs[:, 0]] + SPREAD * noise)
    return spaces[0], spaces[1], {(min(pair), max(pair)) for pair in pairs.tolist()}


def main() -> None:
    """Search, print what it took, and exit with 1 if a target is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    few = count <= IMAGES
    medical, general, planted = drawn(
        count, 200 if few else 2_000, PER_CLUSTER if few else PER_CLUSTER // 5
    )
    wall, processor = time.perf_counter(), time.process_time()
    confusing = find_pairs(medical, general)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    pairs = set(zip(confusing.first.tolist(), confusing.second.tolist(), strict=True))
    print(
        f"{count:,} images of {MEDICAL} and {GENERAL} numbers: {wall:.1f} s ({processor:.1f} s of processor time), "
        f"peak memory {peak / 1e9:.2f} GB; {len(pairs & planted)} of {len(planted)} planted pairs, "
        f"{len(pairs - planted)} others"
    )
    met = pairs == planted and (count > IMAGES or (wall <= MOST_SECONDS and peak <= MOST_BYTES))
    print("targets met" if met else "targets MISSED")
    sys.exit(not met)


if __name__ == "__main__":
    main()
