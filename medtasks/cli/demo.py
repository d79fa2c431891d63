"""``medtasks demo``: the harness's own command on the synthetic sample with the built-in model."""

import math
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from medtasks.audit.report.wording import with_error
from medtasks.audit.tables import number_table
from medtasks.cli.data import write_sample_home
from medtasks.cli.output import out, say, show
from medtasks.errors import MedTasksError
from medtasks.home import HOME_VARIABLE
from medtasks.metrics.metric import undeclared
from medtasks.runs.result_files import ResultsFile, read_results, results_files
from medtasks.tasks.task_files import main_metrics_first, task_file

_TASKS = ("mediconfusion", "mediconfusion_gd", "mediconfusion_ps")


def demo(
    output: Annotated[Path | None, Option(help="Folder for data, log and results. Default: a temporary one.")] = None,
    device: Annotated[str, Option(help="Torch device of the model.")] = "cpu",
) -> None:
    """Run MediConfusion's three automatic modes on synthetic images with a tiny random model, and write a report."""
    folder = (output or Path(tempfile.mkdtemp(prefix="medtasks-demo-"))).absolute()
    home, results = folder / "home", folder / "results"
    write_sample_home(home)
    arguments = [
        *("--model", "medtasks_tiny", "--tasks", ",".join(_TASKS), "--device", device),
        *("--output_path", str(results), "--log_samples", "--timezone", "UTC"),
    ]
    say(f"\n{HOME_VARIABLE}={shlex.quote(str(home))} lmms_eval {shlex.join(arguments)}\n")
    newest = _run(arguments, home, results, folder / "lmms_eval.log")
    for task, scores in newest.rows().items():
        metrics = [key.split(",") for key in scores if "," in key and "_stderr" not in key]
        filters = sorted({name for _, name in metrics})
        names = main_metrics_first(task, (metric for metric, _ in metrics))
        rows = [(metric, *(_cell(task, scores, metric, name) for name in filters)) for metric in names]
        show(number_table(scores["alias"], ("score ± standard error", *filters), rows))
    page = results / "report.html"
    with out.status("Writing the report ..."):
        made = _python(
            *("medtasks.cli.main", "report", str(results), "--html", str(page)),
            home=home,
            capture_output=True,
            text=True,
        )
    if made.returncode:
        raise MedTasksError(f"the report could not be written: {made.stderr.strip()}")
    say(
        "Synthetic images and a random model: these scores say nothing about medicine.\n"
        f"Results: {newest.path}\nReplies: {newest.path.parent}\nLog:     {folder / 'lmms_eval.log'}\n"
        f"Report:  {page} (open it in a browser)"
    )


def _run(arguments: list[str], home: Path, results: Path, log: Path) -> ResultsFile:
    """Run the harness and return its results; it exits with 0 after a failure, so only a new file counts."""
    before = results_files(results)
    with out.status("Running the harness (about a minute) ..."), log.open("w") as stream:
        code = _python("lmms_eval", *arguments, home=home, stdout=stream, stderr=subprocess.STDOUT).returncode
    new = [path for path in results_files(results) if path not in before]
    newest = read_results(new[-1], say) if new and not code else None
    if newest is None:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        raise MedTasksError(f"the harness produced no results (exit code {code}); the end of {log}:\n{tail}")
    return newest


def _python(*arguments: str, home: Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, HOME_VARIABLE: str(home)}
    return subprocess.run([sys.executable, "-m", *arguments], env=environment, check=False, **options)


def _cell(task: str, scores: Mapping[str, Any], metric: str, name: str) -> str:
    value, error = scores.get(f"{metric},{name}"), scores.get(f"{metric}_stderr,{name}")
    if value is None:
        return ""
    declared = task_file(task).family.metric(metric) or undeclared(metric)
    return with_error(value, error if isinstance(error, float) else math.nan, declared.is_share(value))
