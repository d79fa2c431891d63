"""Draws from real replies: in how many the interval holds the score of all questions, and how wide it is.

Each pair of a model and a benchmark is drawn from many times, with the functions behind ``medtasks data select --draw``
and ``medtasks score``. MMMU-Pro and MMLU are stratified by subject. In benchmarks that end in "forms", one model
answered each question in several forms, which are a cluster. MedQA and PubMedQA have no strata.
"""

import argparse
import gzip
import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from medtasks.data.drawing import DrawRequest, draw_documents
from medtasks.stats.intervals import interval
from medtasks.stats.sample_design import (
    DrawnUnit,
    drawn_mean,
    drawn_units,
    helped_mean,
)
from medtasks.stats.standard_error import clustered_error

_MANY = 2_000  # questions
_SHARES_OF_MANY = (0.1, 0.25)
_SHARES = (0.25, 0.5)

Right = Mapping[str, float]
"""Whether each question was answered rightly, by its id."""


class Benchmark(NamedTuple):
    """Questions and the replies of several models to all of them."""

    documents: list[dict[str, Any]]
    models: Mapping[str, Right]
    by: str | None


class Width(NamedTuple):
    """Result of one draw."""

    holds: bool
    width: float


def read_replies(file: Path) -> dict[str, float]:
    """Read the authors' reading of one model's replies."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return {
        record["id"]: float(record["authors_answer"] == record["gold"]) for record in records
    }


def subject_of(question: str) -> str:
    """Return the subject that an id of MMMU-Pro or MMLU names; ids of other sets name none."""
    match = re.match(r"(?:test|validation|dev)_(\w+)_\d+|([a-z_]+)-\d+", question)
    return next(filter(None, match.groups()), "") if match else ""


def benchmarks(folder: Path) -> dict[str, Benchmark]:
    """Read all benchmarks, each with the models that answered all of its questions."""
    by_setting: dict[str, dict[str, Right]] = defaultdict(dict)
    for file in sorted((folder / "mirage").glob("*.jsonl.gz")):
        name, model, form, *_ = file.name.split(".")
        by_setting[name][f"{model} {form}"] = read_replies(file)
    for file in sorted((folder / "mmmu_pro").glob("*.jsonl.gz")):
        model = file.name.removesuffix(".jsonl.gz")
        setting = "vision" if "vision" in model or "-vo-" in model else "10 options"
        setting = "4 options" if "4opts" in model else setting
        by_setting[f"mmmu_pro {setting}"][model] = read_replies(file)
    result = {}
    for name, models in by_setting.items():
        shared = sorted(set.intersection(*(set(right) for right in models.values())))
        documents = [
            {"doc_id": question, "subject": subject_of(question) or None} for question in shared
        ]
        has_strata = all(document["subject"] for document in documents)
        result[name] = Benchmark(documents, models, "subject" if has_strata else None)
    for name in ("mmlu", "medqa"):
        result[f"{name}, 2 forms"] = in_forms(result[name], ("gpt-35-turbo-16k", "gpt-4-32k"))
    return result


def in_forms(benchmark: Benchmark, models: Sequence[str]) -> Benchmark:
    """Return a benchmark in which each question comes once per form, and the forms are a cluster."""
    documents = []
    merged: dict[str, dict[str, float]] = {model: {} for model in models}
    for document in benchmark.documents:
        for form in ("cot", "rag"):
            doc_id = f"{document['doc_id']} {form}"
            documents.append({**document, "doc_id": doc_id, "unit_id": document["doc_id"]})
            for model in models:
                right = benchmark.models[f"{model} {form}"]
                merged[model][doc_id] = right[document["doc_id"]]
    return Benchmark(documents, merged, benchmark.by)


def width_of(value: float, error: Any, truth: float) -> Width:
    """Return whether an interval holds the score of all questions, and its width."""
    value = min(max(value, 0.0), 1.0)
    low, high = interval(value, error.error, error.degrees, True, error.effective)
    return Width(low - 1e-12 <= truth <= high + 1e-12, high - low)


def plain_width(values: Sequence[float], clusters: Sequence[str], truth: float) -> Width:
    """Return the interval of questions taken for a sample of all that there could be, as after ``--limit``."""
    return width_of(float(np.mean(values)), clustered_error(values, clusters), truth)


def measure(
    benchmark: Benchmark, share: float, draws: int
) -> dict[str, dict[str, list[Width]]]:
    """Return the results of all draws by model and estimator."""
    documents = benchmark.documents
    rows = max(1, round(share * len(documents)))
    ids = [document["doc_id"] for document in documents]
    truths = {
        model: float(np.mean([right[doc_id] for doc_id in ids]))
        for model, right in benchmark.models.items()
    }
    results: dict[str, dict[str, list[Width]]] = {
        model: defaultdict(list) for model in benchmark.models
    }
    names = list(benchmark.models)
    for seed in range(draws):
        drawn, _ = draw_documents(documents, DrawRequest(rows, benchmark.by, seed))
        chosen = [document["doc_id"] for document in drawn]
        units = [
            unit for unit in drawn_units([row["drawn"] for row in drawn]) if unit is not None
        ]
        clusters = [str(document.get("unit_id", document["doc_id"])) for document in drawn]
        for place, (model, right) in enumerate(benchmark.models.items()):
            values = [right[doc_id] for doc_id in chosen]
            helper = names[place - 1]
            others = [benchmark.models[helper][doc_id] for doc_id in chosen]
            truth = truths[model]
            helped = helped_mean(values, units, others, truths[helper])
            of_model = results[model]
            of_model["drawn"].append(width_of(*drawn_mean(values, units), truth))
            of_model["helped"].append(width_of(helped.value, helped.error, truth))
            of_model["simple"].append(plain_width(values, clusters, truth))
    for model, right in benchmark.models.items():
        first = documents[:rows]
        clusters = [str(document.get("unit_id", document["doc_id"])) for document in first]
        values = [right[document["doc_id"]] for document in first]
        results[model]["limit"].append(plain_width(values, clusters, truths[model]))
    return results


def check_whole(benchmark: Benchmark) -> None:
    """Check that a draw of all questions gives their score exactly, and an interval without a width."""
    drawn, _ = draw_documents(
        benchmark.documents, DrawRequest(len(benchmark.documents), benchmark.by)
    )
    units: list[DrawnUnit] = [
        unit for unit in drawn_units([row["drawn"] for row in drawn]) if unit is not None
    ]
    for right in benchmark.models.values():
        values = [right[row["doc_id"]] for row in drawn]
        mean, error = drawn_mean(values, units)
        ends = interval(mean, error.error, error.degrees, True, error.effective)
        assert ends == (mean, mean)
        assert mean == sum(values) / len(values)


def main() -> None:
    """Print one line per benchmark and share, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="folder with real_replies")
    parser.add_argument("--draws", type=int, default=400)
    arguments = parser.parse_args()
    print(
        "| benchmark | questions, share drawn | models | coverage | lowest | helped |", end=""
    )
    print(
        " width | helped | simple | first N holds it |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    pairs: dict[str, list[float]] = defaultdict(list)
    limits = []
    for name, benchmark in sorted(
        benchmarks(arguments.data / "real_replies").items(),
        key=lambda item: len(item[1].documents),
    ):
        check_whole(benchmark)
        for share in _SHARES_OF_MANY if len(benchmark.documents) > _MANY else _SHARES:
            results = measure(benchmark, share, arguments.draws)
            coverage: dict[str, list[float]] = defaultdict(list)
            widths: dict[str, list[float]] = defaultdict(list)
            for of_model in results.values():
                for estimator, of_draws in of_model.items():
                    coverage[estimator].append(
                        float(np.mean([draw.holds for draw in of_draws]))
                    )
                    widths[estimator].append(float(np.mean([draw.width for draw in of_draws])))
            for estimator in ("drawn", "helped", "simple"):
                pairs[estimator] += coverage[estimator]
            limits += coverage["limit"]
            cells = [name, f"{len(benchmark.documents):,}, {share:.0%}", str(len(results))]
            cells += [f"{np.mean(coverage['drawn']):.1%}", f"{min(coverage['drawn']):.1%}"]
            cells.append(f"{np.mean(coverage['helped']):.1%}")
            cells += [
                f"{100 * np.mean(widths[kind]):.1f} pts"
                for kind in ("drawn", "helped", "simple")
            ]
            cells.append(f"{sum(coverage['limit']):.0f} of {len(coverage['limit'])}")
            print(f"| {' | '.join(cells)} |", flush=True)
    for estimator, of_pairs in pairs.items():
        inside = sum(0.93 <= share <= 0.97 for share in of_pairs)
        print(
            f"{estimator}: mean {np.mean(of_pairs):.1%}, from {min(of_pairs):.1%} to {max(of_pairs):.1%}, "
            f"{inside} of {len(of_pairs)} from 93 to 97 %"
        )
    print(
        f"first N: {sum(limits):.0f} of {len(limits)} intervals hold the score of all questions"
    )


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
