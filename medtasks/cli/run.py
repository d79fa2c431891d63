"""``medtasks run``: the harness with true exit codes, in which a task that cannot run costs that task alone."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.recording import RunRecording, first_manifest
from medtasks.cli.output import out, say
from medtasks.data.shards import SHARD_VARIABLE, Shard
from medtasks.errors import MedTasksError
from medtasks.harness.documents import Selection, select
from medtasks.harness.guards import check
from medtasks.harness.harness_options import HarnessOptions, read_options
from medtasks.harness.kept_replies import KEPT_VARIABLE, earlier_run
from medtasks.harness.manifest import Notice, RunManifest, Severity, TaskOutcome
from medtasks.harness.recipes import expansion
from medtasks.harness.redaction import redacted_arguments
from medtasks.harness.running import run_tasks, stopping_by_signal
from medtasks.harness.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.harness.task_files import including

Launcher = Annotated[
    str, typer.Option(help="Command in front of '-m lmms_eval', such as 'accelerate launch --num_processes 4'.")
]
MaxFailed = Annotated[
    str, typer.Option("--max-failed", help="Samples of a task (5), or share of them (1%), that may lack a reply.")
]
Part = Annotated[
    str,
    typer.Option(
        envvar=SHARD_VARIABLE,
        help="Ask only this part of every task's rows, such as 3/16; no pair, patient or image is in two parts.",
    ),
]
OnlyFailed = Annotated[
    bool,
    typer.Option(
        "--only-failed", help="Ask only what failed in the last run of the same into --output_path; keep the rest."
    ),
]
Journal = Annotated[
    bool,
    typer.Option(
        "--journal",
        help="Keep each answer of a server, so that a killed run goes on when it is started again (models openai, "
        "async_openai and their like; ours do so by themselves).",
    ),
]
RecipeName = Annotated[
    str,
    typer.Option(
        "--recipe", help="Run a published model as its recipe says (medtasks models list); --model_args win over it."
    ),
]
BackendName = Annotated[
    str, typer.Option("--backend", help="Where the recipe's model runs: hf, in this process, or server.")
]
PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(
    context: typer.Context,
    tasks: Annotated[str, typer.Option("--tasks", help="Tasks, groups and tags, separated by commas.")],
    output: Annotated[Path, typer.Option("--output_path", "--output-path", help="Folder for results.")],
    launcher: Launcher = "",
    max_failed: MaxFailed = DEFAULT_LIMIT,
    shard: Part = "",
    only_failed: OnlyFailed = False,
    journal: Journal = False,
    recipe: RecipeName = "",
    backend: BackendName = "",
) -> None:
    """Run lmms_eval; all its other options (--model, --model_args, --limit ...) are passed on.

    Tasks whose dataset is not prepared, or damaged, are named and left out; a task that fails does not take the others
    with it. Options that would spoil the scores are refused or warned of. The exit code is 0 only if every task has
    results and no more of its samples than --max-failed lack a reply or a verdict. What was run on what, and with what
    end, is in <output_path>/<UTC time>_run.json.
    """
    asked = [name.strip() for name in tasks.split(",") if name.strip()]
    if not asked:
        raise MedTasksError("--tasks names no task; see 'medtasks tasks'")
    start, limit, part = _words(launcher), FailureLimit.parse(max_failed), Shard.parse(shard) if shard else None
    own = ["--launcher", launcher] if launcher else []
    own += ["--max-failed", max_failed] if max_failed != DEFAULT_LIMIT else []
    own += ["--journal"] if journal else []
    own += ["--shard", str(part)] if part else []
    own += ["--recipe", recipe] if recipe else []
    own += ["--backend", backend] if backend else []
    command = ["medtasks", "run", "--tasks", tasks, "--output_path", str(output), *own, *context.args]
    named, facts = expansion(recipe, backend, read_options(context.args))
    options = read_options([*context.args, *named])
    # Without samples nobody can tell later which replies failed, or read them again.
    arguments = [*context.args, *named, *([] if options.flag("log_samples") else ["--log_samples"])]
    context.with_resource(including(options.folders()))
    selection = _selected(asked)
    others, variables = _journaling(options) if journal else ((), {})
    notices = _checked(selection.ready or asked, arguments, part, others)
    with stopping_by_signal():
        with out.status("Looking up versions, hardware and the model's weights ..."):
            manifest = first_manifest(command, arguments, asked, selection, notices, part, facts)
            earlier = earlier_run(output, manifest, arguments) if only_failed else None
            recording = RunRecording(output, manifest, arguments, limit, lambda text: say(f"warning: {text}"))
        say(f"manifest: {recording.path}")
        if earlier is not None:
            say(f"replies that did not fail are those of: {earlier.path}")
        variables |= {KEPT_VARIABLE: str(earlier.path)} if earlier else {}
        variables |= {SHARD_VARIABLE: str(part)} if part else {}
        try:
            with recording.until_its_end():
                if selection.ready:
                    run_tasks(selection.ready, arguments, output, start, recording.note, variables)
        finally:
            _show(recording.manifest, output)
    _conclude(recording.manifest, tasks)
    _refuse_lost(recording, command, limit)


def _journaling(options: HarnessOptions) -> tuple[Iterable[Notice], dict[str, str]]:
    # Imported here because it leans on the harness, which other commands do not need.
    from medtasks.harness.answer_journal import JOURNAL_VARIABLE, journal_notices

    return journal_notices(options), {JOURNAL_VARIABLE: "true"}


def _refuse_lost(recording: RunRecording, command: Sequence[str], limit: FailureLimit) -> None:
    """Raise if a task lost more samples than may fail."""
    if counted := "; ".join(f"{name}: {counts}" for name, counts in recording.over_limit().items()):
        raise MedTasksError(
            f"more samples than --max-failed {limit} lack a reply or a verdict and are in no score ({counted}); all "
            f"replies are kept; once the cause is mended, ask only for the missing ones: "
            f"{shlex.join([*redacted_arguments(command), '--only-failed'])}"
        )


def _selected(asked: Sequence[str]) -> Selection:
    """Return what can run, and print what cannot."""
    selection = select(asked)
    for task, cause in selection.missing.items():
        out.print(f"[yellow]left out[/] {task}: ", end="")
        say(cause)
    return selection


def _words(launcher: str) -> list[str]:
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise MedTasksError(f"--launcher {launcher} cannot be read ({error}); close the quotation mark") from error


def _checked(
    names: Sequence[str], arguments: Sequence[str], shard: Shard | None, others: Iterable[Notice]
) -> list[Notice]:
    """Print the warnings, others too, and return them; raise what is refused."""
    notices = [*check(names, arguments, shard), *others]
    refused = [notice.sentence for notice in notices if notice.kind is Severity.REFUSE]
    if refused:
        raise MedTasksError("; and ".join(refused))
    for notice in notices:
        out.print("[yellow]warning[/] ", end="")
        say(notice.sentence)
    return notices


def _show(manifest: RunManifest, output: Path) -> None:
    """Print what became of the tasks, also after an interruption."""
    for results in dict.fromkeys(record.results for record in manifest.tasks.values() if record.results):
        say(f"results: {output / results}")
    for task, record in manifest.tasks.items():
        if record.outcome is TaskOutcome.FAILED:
            say(f"failed: {task}; its error is in the log above ({record.reason})")
        elif record.outcome is TaskOutcome.NOT_RUN:
            say(f"not run: {task}")
        elif record.outcome is TaskOutcome.LEFT_OUT:
            say(f"left out: {task}; the reason is at the top")
    say(f"report: medtasks report {shlex.quote(str(output))}")


def _conclude(manifest: RunManifest, tasks: str) -> None:
    """Raise unless every task has results."""
    outcomes = [record.outcome for record in manifest.tasks.values()]
    lost = sum(outcome is not TaskOutcome.DONE for outcome in outcomes)
    if outcomes.count(TaskOutcome.LEFT_OUT) == len(outcomes):
        raise MedTasksError(f"none of the tasks in '{tasks}' can run, for the reasons above")
    if lost:
        others = "; the others are complete" if lost < len(outcomes) else ""
        raise MedTasksError(f"{lost} of {len(outcomes)} tasks without results{others}")
