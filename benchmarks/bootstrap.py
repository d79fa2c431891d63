"""What the standard errors of classification cost: all metrics of TissueMNIST's 11,820 samples with their errors.

Times the aggregations the way the harness calls them, one metric after the other, against a plain loop: for each
resample, draw units, count their samples, compute all metrics at once. Checks that both give the same errors, prints
one line per case, and exits with 1 when a case takes 2 seconds or more, or is not 10 times faster than the loop. The
loop is timed on a few resamples and scaled.

    python benchmarks/bootstrap.py [RESAMPLES_OF_THE_LOOP]
"""

import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from medtasks.hooks import classification, multilabel
from medtasks.metrics.class_scores import (
    count_classes,
    count_labels,
    multiclass_metrics,
    multilabel_metrics,
)
from medtasks.stats.bootstrap import RESAMPLES

SAMPLES, CLASSES, LABELS = 11_820, 8, 14
LONGEST_S, SMALLEST_RATIO = 2.0, 10.0
Records = list[dict[str, Any]]


def class_records(per_unit: int) -> Records:
    """Draw answers about one class per image, with ``per_unit`` images per patient."""
    draw = random.Random(4)
    records = []
    for number in range(SAMPLES):
        key = draw.choices(range(CLASSES), weights=range(1, CLASSES + 1))[0]
        value = key if draw.random() < 0.4 else draw.choice([*range(CLASSES), None])
        unit = f"patient-{number // per_unit}"
        records.append(
            {"unit": unit, "classes": CLASSES, "key": key, "value": value, "reason": "ok"}
        )
    return records


def label_records(per_unit: int) -> Records:
    """Draw answers about several labels per image, with ``per_unit`` images per patient."""
    draw = random.Random(4)
    records = []
    for number in range(SAMPLES):
        key = [int(draw.random() < 0.1) for _ in range(LABELS)]
        value = [label if draw.random() < 0.8 else 1 - label for label in key]
        records.append(
            {
                "unit": f"patient-{number // per_unit}",
                "key": key,
                "value": value,
                "reason": "ok",
            }
        )
    return records


def by_the_hooks(module: Any, records: Records) -> tuple[dict[str, float], float]:
    """Aggregate every metric of a task from a fresh cache; return the values and the seconds."""
    module._scores.cache_clear()
    began = time.perf_counter()
    values = {metric["metric"]: metric["aggregation"](records) for metric in module.METRIC_LIST}
    return values, time.perf_counter() - began


def by_a_loop(
    score: Callable[[Records], Mapping[str, Any]], records: Records, resamples: int
) -> tuple[Any, float]:
    """Draw units one resample at a time; return the values, shape (resamples, metrics), and the seconds."""
    draw = random.Random(1)
    began = time.perf_counter()
    units: dict[str, Records] = {}
    for record in records:
        units.setdefault(record["unit"], []).append(record)
    members = list(units.values())
    values = []
    for _ in range(resamples):
        drawn = [record for unit in draw.choices(members, k=len(members)) for record in unit]
        values.append([*score(drawn).values()])
    return np.array(values), time.perf_counter() - began


def case(
    what: str,
    module: Any,
    score: Callable[[Records], Mapping[str, Any]],
    records: Records,
    few: int,
) -> bool:
    """Compare both ways on one set of records; return whether the targets are met.

    The loop runs before and after, so that a busy machine slows both alike.
    """
    drawn, before = by_a_loop(score, records, few // 2)
    (values, fast) = min(
        (by_the_hooks(module, records) for _ in range(3)), key=lambda run: run[1]
    )
    more, after = by_a_loop(score, records[::-1], few // 2)
    ours = [values[f"{name}_stderr"] for name in score(records)]
    theirs = np.concatenate([drawn, more]).std(axis=0, ddof=1)
    if not np.allclose(ours, theirs, rtol=5 / np.sqrt(2 * few)):
        raise SystemExit(f"{what}: the errors differ, {ours} from {theirs.tolist()}")
    ratio = (slow := (before + after) / few * RESAMPLES) / fast
    print(
        f"{what}: {fast:.2f} s for {len(values)} numbers, the loop {slow:.1f} s "
        f"(measured on {few} of {RESAMPLES} resamples), {ratio:.0f}x"
    )
    return fast < LONGEST_S and ratio >= SMALLEST_RATIO


def score_classes(records: Records) -> Mapping[str, Any]:
    """Compute the metrics of one class per image, without errors."""
    keys, values = ([record[side] for record in records] for side in ("key", "value"))
    return multiclass_metrics(count_classes(keys, values, CLASSES).sum(axis=0))


def score_labels(records: Records) -> Mapping[str, Any]:
    """Compute the metrics of several labels per image, without errors."""
    keys, values = ([record[side] for record in records] for side in ("key", "value"))
    return multilabel_metrics(count_labels(keys, values, LABELS).sum(axis=0))


def main() -> None:
    """Run every case."""
    few = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    met = [
        case(
            "8 classes, one image per unit",
            classification,
            score_classes,
            class_records(1),
            few,
        ),
        case(
            "8 classes, 4 images per patient",
            classification,
            score_classes,
            class_records(4),
            few,
        ),
        case(
            "14 labels, 4 images per patient", multilabel, score_labels, label_records(4), few
        ),
    ]
    print("targets met" if all(met) else "targets MISSED")
    sys.exit(not all(met))


if __name__ == "__main__":
    main()
