"""Models and metrics on a GPU: one command, at most eight minutes on an H200, nothing to download.

    python benchmarks/on_gpu.py [--part NAME ...] [--output FOLDER] [--peak TFLOPS] [--device cuda]
    python benchmarks/on_gpu.py --tiny

Every part runs in a process of its own, with a time of its own and what those before it have left: one that fails, or
runs out of memory or time, is told as such, what it had measured by then stays, and the others go on. ``FOLDER``
(``on_gpu`` by default) gets a JSON file per part, written anew with each measurement, ``results.json`` with all of them
and ``table.md`` for ``RESULTS.md``.
``--part`` runs some of the parts, ``--tiny`` all of them with toys on the CPU.

The limit of a model is the least work of ``least_work.py`` over what the device does in a large product of two
matrices: measured, or given by ``--peak`` as its vendor states it. Weights are random, in the published shapes, see
``drawn_checkpoints.py``; questions are those of ``gpu_models.py``, reports those of ``gpu_metrics.py``. Goals: GD and
PS with all caches within 2.5 times the limit, PS twice as fast with caches as without, and RadCliQ of 3,000 pairs below
60 s. Exits with 1 where a part was not done; the goals only stand in the table.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_scale import Report, Scale

WHOLE = 480.0  # seconds
MOST_OF_LIMIT, LEAST_GAIN, RADCLIQ_SECONDS = 2.5, 2.0, 60.0
MODELS = {
    "llava_med": "LLaVA-Med v1.5 7B",
    "radfm": "RadFM 14B",
    "med_flamingo": "Med-Flamingo 8B",
    "hf_vlm": "Qwen2.5-VL 7B, `hf_vlm`",
}
METRICS = {"radgraph": "RadGraph", "chexbert": "CheXbert", "bertscore": "BERTScore"}
SECONDS = {**dict.fromkeys(METRICS, 35.0), "radcliq": 70.0, **dict.fromkeys(MODELS, 75.0)}
"""Per part, in their order; together less than ``WHOLE``."""
SCHEMA = 1
Results = dict[str, dict[str, Any]]


class Options(NamedTuple):
    """What the command line says."""

    scale: Scale
    output: Path


# ---- one part ----


def run_part(name: str, options: Options) -> bool:
    """Run a part in this process and keep its file up to date; return whether it was done."""
    part: dict[str, Any] = {
        "status": "begun",
        "device": device_name(options.scale.device),
        "measures": [],
    }
    file = options.output / f"{name}.json"

    def report(measure: Mapping[str, Any]) -> None:
        part["measures"].append(dict(measure))
        write(file, part)
        print(f"{name}: {json.dumps(measure)}", flush=True)

    write(file, part)
    began = time.perf_counter()
    try:
        measure_part(name, options.scale, report)
        part["status"] = "done"
    except Exception as error:  # noqa: BLE001  # whatever it is, the other parts go on
        traceback.print_exc()
        part["status"] = f"failed: {type(error).__name__}: {str(error)[:300]}"
    part["seconds"] = time.perf_counter() - began
    write(file, part)
    return bool(part["status"] == "done")


def measure_part(name: str, scale: Scale, report: Report) -> None:
    """Do the work of a part. What a part needs is imported here: a metric does without the harness."""
    if name in MODELS:
        from gpu_models import measure_model

        return measure_model(name, scale, report)
    from gpu_metrics import measure_metric, measure_radcliq

    return (
        measure_radcliq(scale, report)
        if name == "radcliq"
        else measure_metric(name, scale, report)
    )


def device_name(device: str) -> str:
    """Return what a device is called."""
    cuda = torch.device(device).type == "cuda" and torch.cuda.is_available()
    return torch.cuda.get_device_name(device) if cuda else f"{platform.machine()} CPU"


def write(file: Path, content: Any) -> None:
    """Replace a file as a whole: whoever ends this process leaves the older one or the newer one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_suffix(".part")
    beside.write_text(
        content if isinstance(content, str) else json.dumps(content, indent=1), "utf-8"
    )
    beside.replace(file)


# ---- all parts ----


def run_all(
    names: Sequence[str], options: Options, command: Callable[[str], Sequence[str]]
) -> Results:
    """Run parts one after the other, each by its command; results and table are written anew after each."""
    results: Results = {}
    ends = time.monotonic()
    for name in names:
        ends += SECONDS[name]
        file = options.output / f"{name}.json"
        file.unlink(missing_ok=True)
        end = run_limited(command(name), ends - time.monotonic())
        part = (
            json.loads(file.read_text("utf-8"))
            if file.is_file()
            else {"status": "begun", "measures": []}
        )
        if part["status"] == "begun":
            part["status"] = end or "ended without a result"
        results[name] = part
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        write(
            options.output / "results.json",
            {"schema": SCHEMA, "tiny": options.scale.tiny, **versions, "parts": results},
        )
        write(options.output / "table.md", table(results, options.scale.tiny))
    return results


def run_limited(command: Sequence[str], seconds: float) -> str:
    """Run a command; return why it ended early, nothing where it did not."""
    try:
        code = subprocess.run(command, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        return f"out of time after {seconds:.0f} s"
    return f"ended by signal {-code}" if code < 0 else ""


# ---- the table ----


def table(results: Results, tiny: bool) -> str:
    """Return what was measured as tables in Markdown."""
    devices = {part["device"] for part in results.values() if part.get("device")}
    told = "Toys, whose figures say nothing. " if tiny else ""
    told += (
        f"Measured on {', '.join(sorted(devices)) or 'no device'}, torch {torch.__version__}."
    )
    lines = [told, ""]
    lines += [
        "| model | mode | caches | questions | questions/s | times the limit | share | peak GB | difference |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for name in MODELS:
        lines += [
            model_row(MODELS[name], measure)
            for measure in measures_of(results, name)
            if "mode" in measure
        ]
    lines += [
        "",
        "| metric | type | texts or pairs | seconds | loading | texts/s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in (*METRICS, "radcliq"):
        lines += [metric_row(name, measure) for measure in measures_of(results, name)]
    said = [*loaded(results), *verdicts(results), *unfinished(results)]
    lines += ["", *(f"- {line}" for line in said), ""]
    return "\n".join(lines)


def measures_of(results: Results, name: str) -> Sequence[Mapping[str, Any]]:
    """Return what a part has measured."""
    return results.get(name, {}).get("measures", [])


def model_row(name: str, measure: Mapping[str, Any]) -> str:
    """Return a line of the first table."""
    difference = measure.get("largest_difference")
    told = f"{difference:.1e}" if difference is not None else ""
    if "moved_by_another_image" in measure:
        told += f" (another image: {measure['moved_by_another_image']:.1e})"
    if "equal_replies" in measure:
        told = f"{measure['equal_replies']:.0%} equal replies"
    memory = measure["peak_memory_gb"]
    cells = [
        *(
            name,
            measure["mode"],
            measure["caches"],
            measure["questions"],
            f"{measure['questions_per_second']:.1f}",
        ),
        *(f"{measure['times_the_limit']:.2f}", f"{measure['share_of_the_limit']:.0%}"),
        *("" if memory is None else f"{memory:.1f}", told),
    ]
    return f"| {' | '.join(map(str, cells))} |"


def metric_row(name: str, measure: Mapping[str, Any]) -> str:
    """Return a line of the second table."""
    speed, loading = measure.get("texts_per_second"), measure.get("loading_seconds")
    cells = [
        *(
            METRICS.get(name, "RadCliQ v1"),
            measure["dtype"],
            measure.get("texts", measure.get("pairs")),
        ),
        *(f"{measure['seconds']:.2f}", "" if loading is None else f"{loading:.2f}"),
        "" if speed is None else f"{speed:.0f}",
    ]
    return f"| {' | '.join(map(str, cells))} |"


def loaded(results: Results) -> list[str]:
    """Say what each model is and by which rate its limit goes."""
    return [
        f"{MODELS[name]}: {one['parameters'] / 1e6:.1f} M parameters in {one['dtype']}, there after "
        f"{one['loading_seconds']:.1f} s; the limit is at {one['operations_per_second'] / 1e12:.2f} TFLOP/s"
        for name in MODELS
        for one in measures_of(results, name)
        if "parameters" in one
    ]


def verdicts(results: Results) -> list[str]:
    """Say of every goal whether it is met, as far as it was measured."""
    said = []
    for name, title in MODELS.items():
        by_way = {
            (one.get("mode"), one.get("caches")): one for one in measures_of(results, name)
        }
        for mode in ("GD", "PS"):
            cached, plain = by_way.get((mode, "prefix, image")), by_way.get((mode, "none"))
            if cached:
                said.append(
                    verdict(
                        f"{title}, {mode}: times the limit",
                        cached["times_the_limit"],
                        most=MOST_OF_LIMIT,
                    )
                )
            if cached and plain and mode == "PS":
                gain = cached["questions_per_second"] / plain["questions_per_second"]
                said.append(
                    verdict(f"{title}, {mode}: gain of the caches", gain, least=LEAST_GAIN)
                )
    for one in measures_of(results, "radcliq"):
        said.append(
            verdict(
                f"RadCliQ of {one['pairs']} pairs: seconds",
                one["seconds"],
                most=RADCLIQ_SECONDS,
            )
        )
    return said


def verdict(what: str, value: float, *, least: float = 0.0, most: float = float("inf")) -> str:
    """Return a line about one goal."""
    goal = f"at most {most:g}" if least == 0 else f"at least {least:g}"
    return f"{what} {value:.2f} (goal: {goal}){'' if least <= value <= most else ' MISSED'}"


def unfinished(results: Results) -> list[str]:
    """Say which parts were not done, and why."""
    return [
        f"{name}: {part['status']}"
        for name, part in results.items()
        if part["status"] != "done"
    ]


def read_options() -> tuple[Options, list[str], bool]:
    """Return the options, the parts, and whether they are to run in this process."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tiny", action="store_true", help="toys on the CPU")
    parser.add_argument(
        "--part", action="append", choices=list(SECONDS), help="a part; all by default"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("on_gpu"), help="folder of the results"
    )
    parser.add_argument(
        "--peak", type=float, help="dense TFLOP/s of the device; measured by default"
    )
    parser.add_argument("--device", help="cuda by default, cpu with --tiny")
    parser.add_argument(
        "--here", action="store_true", help="run parts in this process, without limits"
    )
    given = parser.parse_args()
    device = given.device or ("cpu" if given.tiny else "cuda")
    scale = Scale(given.tiny, device, given.peak * 1e12 if given.peak else None)
    return Options(scale, given.output), given.part or list(SECONDS), given.here


def main() -> None:
    """Run parts, here or each in a process of its own, and print the table."""
    options, names, here = read_options()
    scale = options.scale
    if torch.device(scale.device).type == "cuda" and not torch.cuda.is_available():
        sys.exit(
            "on_gpu.py: there is no GPU here that torch can use; --tiny runs everything on the CPU"
        )
    if here:
        done = [run_part(name, options) for name in names]
        sys.exit(not all(done))
    given = [
        *(["--tiny"] * scale.tiny),
        "--device",
        scale.device,
        "--output",
        str(options.output),
    ]
    given += ["--peak", str(scale.peak / 1e12)] if scale.peak else []
    results = run_all(
        names,
        options,
        lambda name: [sys.executable, __file__, "--here", "--part", name, *given],
    )
    print((options.output / "table.md").read_text("utf-8"))
    sys.exit(any(part["status"] != "done" for part in results.values()))


if __name__ == "__main__":
    main()
