"""``medtasks compare``: is one model better than another on the same questions?"""

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from medtasks import __version__
from medtasks.comparing import ComparedRuns, Comparison, check_fingerprints, compare_runs
from medtasks.data.provenance_of import provenance
from medtasks.data.store import load_documents
from medtasks.errors import MedTasksError, RepliesError
from medtasks.replies import read_replies
from medtasks.stats.paired import ALPHA, POWER, SIGN_FLIP
from medtasks.stats.sign_flip import DRAWS, SEED
from medtasks.task_files import task_file

_out = Console(soft_wrap=True, highlight=False)


def compare(
    task: Annotated[str, typer.Argument(help="One of our tasks, see 'medtasks tasks'.")],
    runs: Annotated[
        list[Path],
        typer.Argument(help="Two or more runs, each a file of replies, a samples file of the harness or a folder."),
    ],
    metric: Annotated[
        list[str] | None, typer.Option(help="Compare this metric only, so that fewer tests are corrected for.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write everything as JSON.")] = None,
) -> None:
    """Compare runs of one task on the documents that both answered, with paired tests under every answer rule."""
    chosen = task_file(task)
    if chosen.dataset is None:
        raise RepliesError(f"'{task}' is a group; compare its member tasks one by one")
    if not 2 <= len(runs) <= len(ascii_uppercase):
        raise RepliesError(f"expected 2 to {len(ascii_uppercase)} runs to compare, but got {len(runs)}")
    documents, data = load_documents(chosen.dataset), provenance(chosen.dataset)
    check_fingerprints(runs, task, data["fingerprint"])
    names = dict(zip(ascii_uppercase, runs, strict=False))
    replies = {name: read_replies(path, documents) for name, path in names.items()}
    found = compare_runs(chosen, documents, replies, metric or ())
    if json_file:
        _write(json_file, {"task": task, "medtasks": __version__, "data": data, **_as_dict(names, found)})
    for name, path in names.items():
        _out.print(f"{name}: {path}", markup=False)
    for (first, second), overlap in found.overlaps.items():
        _out.print(
            f"\n{first} and {second}: {overlap.both} of {len(documents)} documents answered in both are compared. "
            f"Left out: {overlap.only_first} answered in {first} only, {overlap.only_second} in {second} only, "
            f"{overlap.neither} in neither."
        )
        by_metric = defaultdict(list)
        for one in found.comparisons:
            if (one.first, one.second) == (first, second):
                by_metric[one.metric].append(one)
        for name, rows in by_metric.items():
            _out.print(_table(name, rows))
    _print_notes(found)
    if data["sample"]:
        _out.print("SAMPLE DATA: drawn pictures; these scores say nothing about a model.")
    elif not data["complete"]:
        _out.print("INCOMPLETE DATA: parts of the published set were left out; do not compare with published scores.")


def _table(metric: str, comparisons: Sequence[Comparison]) -> Table:
    """Return the table of one metric and two runs; rules are columns."""
    first, second = comparisons[0].first, comparisons[0].second
    results = [one.result for one in comparisons]
    table = Table(f"{second} compared with {first}", title=metric)
    for one in comparisons:
        table.add_column(one.rule, justify="right")
    table.add_row("samples (independent units)", *(f"{found.samples} ({found.units})" for found in results))
    table.add_row(first, *(_number(found.first) for found in results))
    table.add_row(second, *(_number(found.second) for found in results))
    table.add_row(f"{second} - {first}", *(_number(found.difference, "+") for found in results))
    table.add_row("95 % interval", *(f"{_number(found.low, '+')} to {_number(found.high, '+')}" for found in results))
    table.add_row("test", *(found.test for found in results))
    table.add_row("p", *(_p_value(found.p) for found in results))
    table.add_row("p, Holm", *(_p_value(one.holm) for one in comparisons))
    table.add_row("detectable difference", *(_number(found.detectable) for found in results))
    return table


def _print_notes(found: ComparedRuns) -> None:
    _out.print("Rules: " + ", ".join(f"{name} is {rule}" for name, rule in found.rules.items()) + ".", markup=False)
    if any(one.result.test == SIGN_FLIP for one in found.comparisons):
        _out.print(
            f"{SIGN_FLIP}: the models' values of whole units are exchanged; all ways or {DRAWS} drawn with seed {SEED}."
        )
    if found.comparisons:
        _out.print(
            f"p, Holm: corrected for all {len(found.comparisons)} tests of this call.\n"
            f"detectable difference: the smallest true one found with {POWER:.0%} power at a level of {ALPHA:.0%}, "
            f"given how often these runs differ."
        )
    by_reason = defaultdict(list)
    for (rule, metric), why in found.skipped.items():
        by_reason[metric, why].append(rule)
    for (metric, why), rules in by_reason.items():
        _out.print(f"Not compared: {metric} ({', '.join(rules)}) {why}.", markup=False)


def _as_dict(names: Mapping[str, Path], found: ComparedRuns) -> dict[str, Any]:
    return {
        "runs": {name: str(path) for name, path in names.items()},
        "rules": dict(found.rules),
        "settings": {"alpha": ALPHA, "power": POWER, "draws": DRAWS, "seed": SEED},
        "documents": [
            {"first": first, "second": second, **asdict(overlap)} for (first, second), overlap in found.overlaps.items()
        ],
        "comparisons": [
            {
                "first_run": one.first,
                "second_run": one.second,
                "rule": one.rule,
                "metric": one.metric,
                **{name: _finite(value) for name, value in asdict(one.result).items()},
                "p_holm": one.holm,
            }
            for one in found.comparisons
        ],
        "not_compared": [{"rule": rule, "metric": metric, "why": why} for (rule, metric), why in found.skipped.items()],
    }


def _write(path: Path, summary: Mapping[str, Any]) -> None:
    try:
        path.write_text(json.dumps(summary, indent=2) + "\n")
    except OSError as error:
        raise MedTasksError(f"cannot write {path}: {error.strerror or error}") from error


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _number(value: float, sign: str = "") -> str:
    return "n/a" if math.isnan(value) else f"{value:{sign}.4f}"


def _p_value(p: float) -> str:
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"
