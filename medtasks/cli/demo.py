"""``medtasks demo``: the real harness command on the drawn sample with the built-in model."""

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from medtasks.audit.report.words import with_error
from medtasks.cli.data import write_sample_home
from medtasks.cli.output import number_table, out, say
from medtasks.data.home import HOME_VARIABLE
from medtasks.errors import MedTasksError
from medtasks.harness.task_files import main_metrics_first, task_file
from medtasks.metrics.metric import undeclared

_TASKS = ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps")


def demo(
    output: Annotated[
        Path | None, typer.Option(help="Folder for data, log and results; default: a new temporary folder.")
    ] = None,
    device: Annotated[str, typer.Option(help="Torch device of the model.")] = "cpu",
) -> None:
    """Run MediConfusion's three automatic modes on drawn pictures with a tiny random model, and report on them."""
    folder = (output or Path(tempfile.mkdtemp(prefix="medtasks-demo-"))).absolute()
    home, results = folder / "home", folder / "results"
    write_sample_home(home)
    arguments = [
        *("--model", "medtasks_tiny", "--tasks", ",".join(_TASKS), "--device", device),
        *("--output_path", str(results), "--log_samples", "--timezone", "UTC"),
    ]
    say(f"\n{HOME_VARIABLE}={shlex.quote(str(home))} lmms_eval {shlex.join(arguments)}\n")
    _run(arguments, home, folder / "lmms_eval.log", known=_result_files(results))
    new = _result_files(results)
    _show(json.loads(new[-1].read_text()))
    page = _report(results, home)
    say(
        "Drawn pictures and a random model: these scores say nothing about medicine.\n"
        f"Results: {new[-1]}\nReplies: {new[-1].parent}\nLog:     {folder / 'lmms_eval.log'}\n"
        f"Report:  {page} (open it in a browser)"
    )


def _result_files(results: Path) -> list[Path]:
    return sorted(results.rglob("*_results.json"), key=lambda path: path.stat().st_mtime)


def _run(arguments: list[str], home: Path, log: Path, known: list[Path]) -> None:
    """Run the harness; it returns 0 after a failure, so a new results file is what counts."""
    results = Path(arguments[arguments.index("--output_path") + 1])
    with out.status("Running the harness (about a minute) ..."), log.open("w") as stream:
        code = _python("lmms_eval", *arguments, home=home, stdout=stream, stderr=subprocess.STDOUT).returncode
    if code or len(_result_files(results)) <= len(known):
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise MedTasksError(f"the harness produced no results (exit code {code}); the end of {log}:\n{tail}")


def _report(results: Path, home: Path) -> Path:
    """Write the report in a process of its own, which has the drawn sample as its data folder."""
    page = results / "report.html"
    arguments = ("medtasks.cli.main", "report", str(results), "--html", str(page))
    with out.status("Writing the report ..."):
        made = _python(*arguments, home=home, capture_output=True, text=True)
    if made.returncode:
        raise MedTasksError(f"the report could not be written: {made.stderr.strip()}")
    return page


def _python(*arguments: str, home: Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, HOME_VARIABLE: str(home)}
    return subprocess.run([sys.executable, "-m", *arguments], env=environment, check=False, **options)


def _show(results: dict[str, Any]) -> None:
    for task, scores in results["results"].items():
        metrics = [key.split(",") for key in scores if "," in key and "_stderr" not in key]
        filters = sorted({name for _, name in metrics})
        table = number_table("score ± standard error", filters, Text(scores["alias"]))
        for metric in main_metrics_first(task, (metric for metric, _ in metrics)):
            table.add_row(metric, *(_cell(task, scores, metric, name) for name in filters))
        out.print(table, markup=False)


def _cell(task: str, scores: Mapping[str, Any], metric: str, name: str) -> str:
    value, error = scores.get(f"{metric},{name}"), scores.get(f"{metric}_stderr,{name}")
    if value is None:
        return ""
    declared = task_file(task).family.metric(metric) or undeclared(metric)
    return with_error(value, error if isinstance(error, float) else math.nan, declared.is_share(value))
