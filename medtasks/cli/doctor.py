"""``medtasks doctor``: is everything there that a run needs?"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from medtasks import __version__
from medtasks.audit.doctor.check_results import CheckResult, State
from medtasks.audit.tables import plain
from medtasks.cli.output import IncludePath, look_into, out, say, write_json

_STYLES = {State.OK: "green", State.NOTE: "cyan", State.WARNING: "yellow", State.PROBLEM: "bold red"}
_ModelArgs = Annotated[
    str,
    typer.Option(
        "--model-args",
        "--model_args",
        metavar="base_url=...,model=...",
        help="Also ask this served model about synthetic images; written as for --model vlm_server.",
    ),
]


def doctor(
    context: typer.Context,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--task", help="Look only at what this task, group or tag needs; may be given several times."),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also read prepared data completely, and import the harness.")
    ] = False,
    model_args: _ModelArgs = "",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the findings as JSON.")] = None,
    include_path: IncludePath = None,
) -> None:
    """Check that everything a run needs is in place, and how to fix what is not.

    Checks the harness, packages, torch and GPUs, disk, memory, credentials, names of tasks, your own task files,
    prepared data, weights of metrics and the judge. Only the judge, and the served model that --model-args names, are
    asked over the network. The exit code is 1 if there is a problem; warnings do not count.
    """
    from medtasks.audit.doctor.examining import examine

    look_into(context, include_path)
    with Console(stderr=True).status("Checking everything, which takes some seconds ..."):
        findings = examine(tasks or (), verify=verify, model_args=model_args)
    counts = Counter(finding.state for finding in findings)
    asked = {"tasks": list(tasks or ()), "verified": verify}
    by_state = {str(state): counts[state] for state in State}
    listed = [asdict(finding) for finding in findings]
    write_json(json_file, {"medtasks": __version__, **asked, "counts": by_state, "findings": listed})
    _show(findings)
    endings = {state: "" if state is State.OK or counts[state] == 1 else "s" for state in State}
    say(", ".join(f"{counts[state]} {state}{endings[state]}" for state in reversed(State)) + ".")
    if counts[State.PROBLEM]:
        raise typer.Exit(1)


def _show(findings: Sequence[CheckResult]) -> None:
    for area, of_area in groupby(findings, key=lambda finding: finding.area):
        say(area)
        for one in of_area:
            out.print(Text.assemble("  ", (f"{one.state:<8}", _STYLES[one.state]), plain(f" {one.name}: {one.found}")))
            if one.fix:
                say(f"  {'':<8} fix: {one.fix}")
