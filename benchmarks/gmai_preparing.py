"""Prepare a generated GMAI-MMBench TSV: megabytes per second against reading and base64-decoding it, and peak memory.

    python benchmarks/gmai_preparing.py [--gigabytes 3]

The images are smoothed noise, which PNG packs about as badly as photographs, written by OpenCV as the published ones.
Each measurement runs in a process of its own, so that its peak memory is its own.
"""

import argparse
import base64
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cv2
import numpy as np
from PIL import Image, ImageFilter

COLUMNS = (
    "index\timage\tquestion\tA\tB\tC\tanswer\tcategory\tclinical VQA task\tdepartment\tperceptual granularity\t"
    "modality\toriginal task\n"
)
SIDES = (320, 512, 700, 900)  # pixels
AIM_RATE, AIM_RATIO, AIM_MEMORY = 80, 1.5, 500  # MB/s, times, MB


def write_tsv(path: Path, size: float) -> None:
    """Write rows until the file has ``size`` bytes."""
    rng = np.random.default_rng(0)
    pictures = [Image.fromarray(rng.integers(0, 256, (s, s, 3), dtype=np.uint8)) for s in SIDES]
    pictures = [picture.filter(ImageFilter.GaussianBlur(1.5)) for picture in pictures]
    with path.open("wb") as stream:
        stream.write(COLUMNS.encode())
        number = 0
        while stream.tell() < size:
            picture = pictures[number % len(pictures)]
            picture.putpixel((number % 256, number // 256 % 256), (number % 251, 7, 9))
            _, encoded = cv2.imencode(".png", np.asarray(picture))
            image = base64.b64encode(encoded.tobytes()).decode()
            texts = "What is it?\tliver\tspleen\tpolyp\tB\tspleen\tCounting\tNone\tImage Level\tCT\tclassification"
            stream.write(f"{number}\t{image}\t{texts}\n".encode())
            number += 1


def obvious(path: Path) -> None:
    """Read the file and decode the base64 of every row."""
    with path.open("rb") as stream:
        next(stream)
        for line in stream:
            base64.b64decode(line.split(b"\t")[1])


def prepare(path: Path) -> None:
    """Prepare the file as a user would."""
    from medtasks.data.prepare.prepare_dataset import prepare
    from medtasks.data.prepare.source_recipe import Options

    prepare("gmai_mmbench_val", Options(path.parent, allow_changed=True))


def timed(what: str, path: Path, folder: Path) -> tuple[float, float]:
    """Return seconds of the work alone, and peak memory in MB, of a fresh process."""
    command = [sys.executable, __file__, "--run", what, str(path)]
    environment = {**os.environ, "MEDTASKS_HOME": str(folder / "home")}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    seconds, memory = ran.stdout.split()[-2:]
    return float(seconds), float(memory)


def run(what: str, path: Path) -> None:
    """Do one measurement in this process and print it."""
    import medtasks.data.prepare.prepare_dataset  # noqa: F401 - imports are no part of the measurement

    start = time.perf_counter()
    {"obvious": obvious, "prepare": prepare}[what](path)
    print(
        time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    )


def main() -> None:
    """Print rates, ratio and memory; exit with 1 if an aim is missed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=3.0)
    parser.add_argument("--run", nargs=2, metavar=("WHAT", "FILE"))
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.run[0], Path(arguments.run[1]))
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "source" / "GMAI-MMBench_VAL.tsv"
        path.parent.mkdir()
        write_tsv(path, arguments.gigabytes * 1e9)
        size = path.stat().st_size / 1e6
        plain, _ = timed("obvious", path, Path(name))
        ours, memory = timed("prepare", path, Path(name))
        print(
            f"{size:,.0f} MB: read and decode base64 {size / plain:.0f} MB/s, prepare {size / ours:.0f} MB/s"
        )
        print(f"prepare takes {ours / plain:.1f} times as long, peak memory {memory:.0f} MB")
        met = (size / ours >= AIM_RATE or ours / plain <= AIM_RATIO) and memory < AIM_MEMORY
        print(
            f"aim: {AIM_RATE} MB/s or {AIM_RATIO} times as long, below {AIM_MEMORY} MB: {'met' if met else 'missed'}"
        )
        sys.exit(not met)


if __name__ == "__main__":
    main()
