"""What preparing a dataset costs, on drawn sources of the published sizes: images per second and memory.

Prints one line per section; each runs in a process of its own, so that its peak memory is its own.

    python benchmarks/preparing.py [SECTION ...]
"""

import csv
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy
from PIL import Image

from medtasks.data.prepare.source_recipe import Options

LEAST_PATHMNIST = 2000  # images per second of processor time
OMNI_IMAGES = 82059


def path_vqa(folder: Path) -> str:
    """PathVQA: 2,000 images of 100 kB in one parquet file, in row groups of 100 as the Hub has them."""
    source = folder / "source"
    drawn_in_another_process("draw_path_vqa", source)
    images = 2000
    seconds, grown = prepared("multimedeval_path_vqa", source, images)
    size = sum(file.stat().st_size for file in source.iterdir())
    return (
        f"{images} images, {size / 1e6:.0f} MB of parquet: {images / seconds:.0f} images/s, memory grew by "
        f"{grown / 1e6:.0f} MB"
    )


def draw_path_vqa(source: Path) -> None:
    """Write the source of :func:`path_vqa`: noise, so that nothing compresses and no two images are equal."""
    import pyarrow
    import pyarrow.parquet

    source.mkdir()
    noise = numpy.random.default_rng(0)
    rows: list[dict[str, object]] = []
    image = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})
    schema = pyarrow.schema(
        {"image": image, "question": pyarrow.string(), "answer": pyarrow.string()}
    )
    with pyarrow.parquet.ParquetWriter(
        source / "test-00000-of-00001.parquet", schema
    ) as writer:
        for number in range(2000):
            buffer = io.BytesIO()
            Image.fromarray(noise.integers(0, 256, (167, 200, 3), numpy.uint8)).save(
                buffer, "PNG", compress_level=0
            )
            picture = {"bytes": buffer.getvalue(), "path": None}
            rows.append({"image": picture, "question": f"what is {number}?", "answer": "noise"})
            if len(rows) == 100:
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))
                rows.clear()


def pathmnist(folder: Path) -> str:
    """PathMNIST: all 7,180 test images, 28 x 28 in colour, of an archive that holds 90,000 training images as well.

    Exits with 1 below 2,000 images per second of processor time, which is the time on an idle machine. One file per
    image is made; what that alone costs on this disk is measured beside it, because a disk that is slow at it
    (``TMPDIR`` chooses another) misses the target by itself.
    """
    import datasets  # noqa: F401  # as in prepared

    source = folder / "source"
    drawn_in_another_process("draw_pathmnist", source)
    images = 7180
    files = images / seconds_of_making_files(folder / "files", images)
    began = time.process_time()
    seconds, grown = prepared("multimedeval_pathmnist", source, images)
    speed = images / (time.process_time() - began)
    text = (
        f"{images} images: {speed:.0f} images per second of processor time, {images / seconds:.0f} images/s in all, "
        f"memory grew by {grown / 1e6:.0f} MB; the disk makes {files:.0f} such files/s"
    )
    if speed < LEAST_PATHMNIST:
        raise SystemExit(f"pathmnist: {text}, MISSED the target of {LEAST_PATHMNIST}")
    return text


def seconds_of_making_files(folder: Path, count: int) -> float:
    """Write files as large as the images and return the processor time it took."""
    folder.mkdir()
    began = time.process_time()
    for number in range(count):
        (folder / str(number)).write_bytes(bytes(2500))
    return time.process_time() - began


def draw_pathmnist(source: Path) -> None:
    """Write the source of :func:`pathmnist`: patches of few colours with some noise."""
    source.mkdir()
    noise = numpy.random.default_rng(0)

    def images(count: int) -> numpy.ndarray:
        patches = (
            noise.integers(0, 216, (count, 7, 7, 3), numpy.uint8).repeat(4, 1).repeat(4, 2)
        )
        return patches + noise.integers(0, 40, patches.shape, numpy.uint8)

    arrays = {"train": 89996, "val": 10004, "test": 7180}
    numpy.savez_compressed(
        source / "pathmnist.npz",
        **{f"{split}_images": images(count) for split, count in arrays.items()},
        **{
            f"{split}_labels": noise.integers(0, 9, (count, 1), numpy.uint8)
            for split, count in arrays.items()
        },
    )


def omnimedvqa(folder: Path) -> str:
    """OmniMedVQA: 88,996 questions on 82,059 images as small as can be, so that what the texts cost is seen."""
    source, images = folder / "source", OMNI_IMAGES
    drawn_in_another_process("draw_omnimedvqa", source)
    return _against_copying("medevalkit_omnimedvqa", source, images, folder / "copy")


def draw_omnimedvqa(source: Path) -> None:
    """Write the source of :func:`omnimedvqa`: one part of 56,697 questions and 41 equal ones."""
    folder = source / "QA_information/Open-access"
    folder.mkdir(parents=True)
    rows, number = 88996, 0
    sizes = [56697, *[787] * 40, rows - 56697 - 40 * 787]
    for part, size in enumerate(sizes):
        questions = []
        for place in range(size):
            image = number * OMNI_IMAGES // rows
            name = f"Images/Part {part}/radiology/MR/knee/abnormal/{image // 1000}/image_{image}.png"
            _draw_small(source / name, image)
            finding = f"Meniscal abnormality {place % 7}"
            texts = {
                "option_A": "Fracture",
                "option_B": finding,
                "option_C": "Cyst of the ligament",
                "option_D": "No",
            }
            ids = {
                "dataset": f"Part {part}",
                "question_id": f"Part {part}_{place}",
                "question_type": "Diagnosis",
            }
            asked = {
                "question": f"Which abnormality can be seen in this image of number {place}?",
                "image_path": name,
            }
            questions.append(
                {**ids, **asked, "gt_answer": finding, **texts, "modality_type": "MR"}
            )
            number += 1
        (folder / f"Part {part}.json").write_text(json.dumps(questions, indent=4))


def pmc_vqa(folder: Path) -> str:
    """PMC-VQA: 33,430 questions on 29,021 of 149,000 small images in an archive."""
    source, images = folder / "source", 29021
    drawn_in_another_process("draw_pmc_vqa", source)
    seconds, _ = prepared("medevalkit_pmc_vqa", source, images)
    return f"33,430 questions on {images} images: {seconds:.1f} s, {_peak_below(500)}"


def draw_pmc_vqa(source: Path) -> None:
    """Write the source of :func:`pmc_vqa`."""
    source.mkdir()
    with zipfile.ZipFile(source / "images_2.zip", "w") as archive:
        for number in range(149000):
            archive.writestr(f"figures/PMC{number}_Fig1_1.jpg", _small(number))
    with (source / "test_2.csv").open("w", newline="") as stream:
        stream.write(
            "index,Figure_path,Caption,Question,Choice A,Choice B,Choice C,Choice D,Answer,split\n"
        )
        writer = csv.writer(stream)
        for row in range(33430):
            file = f"PMC{5 * (row * 29021 // 33430)}_Fig1_1.jpg"
            options = (" A: Green arrow ", " B: White arrow ", " C: Light blue ", " D: Yellow ")
            writer.writerow(
                [
                    row,
                    file,
                    "A caption. " * 20,
                    f" Which colour is {row}?",
                    *options,
                    "ABCD"[row % 4],
                    "test",
                ]
            )


def _small(number: int) -> bytes:
    """Return a PNG file of 8 pixels; no two are equal."""
    buffer = io.BytesIO()
    Image.frombytes("RGB", (4, 2), number.to_bytes(24, "big")).save(buffer, "PNG")
    return buffer.getvalue()


def _draw_small(path: Path, number: int) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_small(number))


def _against_copying(name: str, source: Path, images: int, copy: Path) -> str:
    seconds, _ = prepared(name, source, images)
    copy.mkdir()
    began = time.perf_counter()
    for number, path in enumerate(source.rglob("*.png")):
        (copy / str(number)).write_bytes(path.read_bytes())
    copied = time.perf_counter() - began
    return f"{images} images: {seconds:.1f} s, copying the files {copied:.1f} s, {_peak_below(500)}"


def _peak_below(limit: int) -> str:
    """Return the peak memory of this process in words; exit where it is not below ``limit`` MB."""
    text = f"peak memory {peak() / 1e6:.0f} MB"
    if peak() >= limit * 1e6:
        raise SystemExit(f"{text}, MISSED the target of {limit} MB")
    return text


def prepared(name: str, source: Path, images: int) -> tuple[float, int]:
    """Prepare a dataset; return the seconds it took and the bytes by which it raised the peak memory."""
    import datasets  # noqa: F401  # importing it is not what is measured
    import pyarrow.parquet  # noqa: F401

    from medtasks.data.prepare.prepare_dataset import prepare

    before, began = peak(), time.perf_counter()
    manifest = prepare(name, Options(source, allow_incomplete=True))
    seconds = time.perf_counter() - began
    if manifest.images != images:
        raise SystemExit(f"{name}: {manifest.images} images were prepared and not {images}")
    return seconds, peak() - before


def peak() -> int:
    """Return the peak memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def drawn_in_another_process(function: str, source: Path) -> None:
    """Write a source without raising this process's own peak."""
    code = f"import sys, pathlib, preparing; preparing.{function}(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-c", code, str(source)], check=True, env=environment)


SECTIONS: dict[str, Callable[[Path], str]] = {
    "path_vqa": path_vqa,
    "pathmnist": pathmnist,
    "omnimedvqa": omnimedvqa,
    "pmc_vqa": pmc_vqa,
}


def main() -> None:
    """Run the named sections, or all, one process each."""
    chosen = sys.argv[1:] or list(SECTIONS)
    if len(chosen) > 1:
        for section in chosen:
            subprocess.run([sys.executable, __file__, section], check=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEDTASKS_HOME"] = str(Path(folder) / "home")
        print(f"{chosen[0]}: {SECTIONS[chosen[0]](Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
