"""``medtasks doctor``: whether everything that a run needs is in place."""

from collections import Counter
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text
from typer import Option

from medtasks import __version__
from medtasks.audit.doctor.check_results import State
from medtasks.audit.tables import plain
from medtasks.cli.options import IncludePath, look_into
from medtasks.cli.output import out, say, write_json

_STYLES = {State.OK: "green", State.NOTE: "cyan", State.WARNING: "yellow", State.PROBLEM: "bold red"}
_ModelArgs = Annotated[
    str,
    Option(
        "--model-args",
        "--model_args",
        metavar="base_url=...,model=...",
        help="Also ask this served model about synthetic images; arguments as for --model vlm_server.",
    ),
]


def doctor(
    context: typer.Context,
    tasks: Annotated[
        list[str] | None, Option("--task", help="Check for this task, group or tag only; repeatable.")
    ] = None,
    verify: Annotated[bool, Option("--verify", help="Also read all prepared data.")] = False,
    model_args: _ModelArgs = "",
    json_file: Annotated[Path | None, Option("--json", help="Also write the results as JSON.")] = None,
    include_path: IncludePath = None,
) -> None:
    """Check that everything a run needs is in place, and how to fix what is not.

    Checks the harness, torch and GPUs, disk, memory, credentials, names of tasks, your own task files,
    prepared data, weights of metrics and the judge. Only the judge, and the served model in --model-args, are asked
    over the network. The exit code is 1 if there is a problem; warnings do not count.
    """
    from medtasks.audit.doctor.examining import examine

    look_into(context, include_path)
    with Console(stderr=True).status("Checking everything, which takes some seconds ..."):
        findings = examine(tasks or (), verify=verify, model_args=model_args)
    counts = Counter(finding.state for finding in findings)
    content = {
        "medtasks": __version__,
        "tasks": list(tasks or ()),
        "verified": verify,
        "counts": {str(state): counts[state] for state in State},
        "findings": [asdict(finding) for finding in findings],
    }
    write_json(json_file, content)
    for area, of_area in groupby(findings, key=lambda finding: finding.area):
        say(area)
        for each in of_area:
            state = (f"{each.state:<8}", _STYLES[each.state])
            out.print(Text.assemble("  ", state, plain(f" {each.name}: {each.found}")))
            if each.fix:
                say(f"  {'':<8} fix: {each.fix}")
    endings = {state: "" if state is State.OK or counts[state] == 1 else "s" for state in State}
    say(", ".join(f"{counts[state]} {state}{endings[state]}" for state in reversed(State)) + ".")
    if counts[State.PROBLEM]:
        raise typer.Exit(1)
