"""How fast all hashes are compared with all, against the obvious loop over pairs, and how fast pictures are hashed.

Compares 12,000 hashes with each other and 25,000 with 100,000 (300,000 takes three times as long), some of which are
near another, checks that both ways find the same pairs, and exits with 1 when the search does not need 300 times less
processor time than the loop. The loop (``first - second`` of ``imagehash``) is timed on a few hashes and scaled. Then
hashes pictures of 512 x 512 pixels, with and without the cache.

    python benchmarks/duplicate_search.py [HASHES_OF_THE_LOOP]
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from imagehash import ImageHash
from PIL import Image

from medtasks.data.duplicates.image_hashes import BITS, DISTANCE, close_pairs, hash_images
from medtasks.home import HOME_VARIABLE

SMALLEST_RATIO = 300.0
PICTURES, WIDTH = 400, 512
_draw = np.random.default_rng(8)


def drawn(count: int) -> np.ndarray:
    """Draw hashes, one in a hundred with up to 50 bits changed from the one before it; shape (count, 4)."""
    bits = _draw.integers(0, 2, (count, BITS), dtype=np.uint8)
    for near in range(100, count, 100):
        bits[near] = bits[near - 1]
        bits[near, _draw.permutation(BITS)[: _draw.integers(0, 50)]] ^= 1
    return np.packbits(bits, axis=1).view(np.uint64)


def search(first: np.ndarray, second: np.ndarray) -> tuple[set[tuple[int, int]], float]:
    """Find pairs as the package does; return them and the seconds of processor time."""
    began = time.process_time()
    found: set[tuple[int, int]] = set()
    for _, ones, twos, *_ in close_pairs(first, second, DISTANCE):
        found.update(zip(ones.tolist(), twos.tolist(), strict=True))
    return found, time.process_time() - began


def loop(first: np.ndarray, second: np.ndarray) -> tuple[set[tuple[int, int]], float]:
    """Find pairs one by one; return them and the seconds of processor time."""
    hashes = [
        [ImageHash(np.unpackbits(one.view(np.uint8)).reshape(16, 16)) for one in side]
        for side in (first, second)
    ]
    began = time.process_time()
    found = set()
    for one, left in enumerate(hashes[0]):
        for two, right in enumerate(hashes[1]):
            if left - right <= DISTANCE:
                found.add((one, two))
    return found, time.process_time() - began


def case(first: np.ndarray, second: np.ndarray, few: int) -> bool:
    """Compare both ways on two sets; return whether the target is met."""
    ours, fast = search(first, second)
    theirs, slow = loop(first[:few], second[:few])
    if theirs != {(one, two) for one, two in ours if one < few and two < few}:
        raise SystemExit("the two ways found different pairs")
    pairs = len(first) * len(second)
    ratio = slow / few**2 * pairs / fast
    print(
        f"{len(first):,} x {len(second):,}: {fast:.2f} s of processor time ({pairs / fast / 1e6:,.0f} million/s), "
        f"{len(ours):,} found; the loop {slow / few**2 * pairs:,.0f} s (measured on {few} x {few}), {ratio:,.0f}x"
    )
    return ratio >= SMALLEST_RATIO


def hashing() -> None:
    """Time the hashing of pictures, fresh and from the cache."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ[HOME_VARIABLE] = folder
        cloud = Image.fromarray(_draw.integers(0, 255, (40, 40), dtype=np.uint8)).resize(
            (WIDTH, WIDTH)
        )
        files = [Path(folder, f"{number}.jpg") for number in range(PICTURES)]
        for number, file in enumerate(files):
            cloud.rotate(number).save(file, quality=90)
        for what in ("fresh", "from the cache"):
            began = time.perf_counter()
            hash_images(files)
            print(
                f"hashing {what}: {PICTURES / (time.perf_counter() - began):,.0f} pictures/s of {WIDTH} x {WIDTH}"
            )


def main() -> None:
    """Run every case."""
    few = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    one_set = drawn(12_000)
    training = drawn(100_000)
    benchmark = np.concatenate([training[:100], drawn(24_900)])
    met = [case(one_set, one_set, few), case(benchmark, training, few)]
    hashing()
    print("targets met" if all(met) else "targets MISSED")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
