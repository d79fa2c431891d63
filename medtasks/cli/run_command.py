"""``medtasks run``: the harness with true exit codes, in which a task that cannot run costs that task alone."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from medtasks.audit.recording import RunRecording, first_manifest
from medtasks.cli.output import MaxFailed, out, say, show
from medtasks.data.shards import SHARD_VARIABLE, Shard
from medtasks.errors import MedTasksError, near_match
from medtasks.lmms.earlier_replies import KEPT_VARIABLE, earlier_run
from medtasks.running.harness_run import run_tasks, stopping_by_signal
from medtasks.running.preflight import check
from medtasks.running.recipes import expansion
from medtasks.running.repeated_runs import repeat_notices, repeat_seed, repeat_variables, seeded
from medtasks.runs.harness_options import HarnessOptions, option_names, read_options
from medtasks.runs.redaction import redacted, redacted_arguments
from medtasks.runs.repeat_folders import REPEATS, repeat_folder
from medtasks.runs.run_manifest import Notice, RecipeFacts, RunManifest, Severity, TaskOutcome, manifest_files, warn
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.tasks.documents import Selection, select
from medtasks.tasks.task_files import included_option, including

Launcher = Annotated[
    str, typer.Option(help="Command that starts several processes, such as 'accelerate launch --num_processes 4'.")
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
Repeats = Annotated[
    int,
    typer.Option(
        REPEATS, min=1, help="Repeat the run N times, with a new seed each time; mean, spread, majority vote."
    ),
]
PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def _passed_on(name: str, text: str) -> Any:
    return typer.Option("", name, help=text, rich_help_panel="Options of lmms-eval (passed on)")


def _harness_options(
    model: str = _passed_on("--model", "Name of the model; 'lmms-eval models' lists all."),
    model_args: str = _passed_on("--model_args", "Arguments of the model: key=value,key=value."),
    limit: str = _passed_on("--limit", "Ask only the first N samples of each task, for a try."),
    include_path: str = _passed_on("--include_path", "Folder with task files of your own."),
    batch_size: str = _passed_on("--batch_size", "Number of samples that the model answers at once."),
    num_fewshot: str = _passed_on("--num_fewshot", "Number of solved examples in each prompt."),
    gen_kwargs: str = _passed_on("--gen_kwargs", "Settings of generation, before the task's: temperature=0,top_p=1."),
    log_samples: bool = _passed_on("--log_samples", "Keep every reply; this command always does."),
    device: str = _passed_on("--device", "Device of the model, such as cuda or cpu."),
    seed: str = _passed_on("--seed", "Random seed."),
    verbosity: str = _passed_on("--verbosity", "Level of the log, such as WARNING or DEBUG."),
) -> None:
    """Hold the options that the help shows; the harness reads them."""


class RunCommand(TyperCommand):
    """The command, whose help also shows options of the harness."""

    def get_help(self, ctx: Any) -> str:
        """Return the help with the options that are passed on."""
        shown = typer.Typer(add_completion=False)
        shown.command(add_help_option=False)(_harness_options)
        self.params += typer.main.get_command(shown).params
        return super().get_help(ctx)


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
    repeats: Repeats = 1,
) -> None:
    """Run tasks with lmms-eval; its other options are passed on.

    Tasks whose dataset is not prepared, or damaged, are named and left out; a task that fails does not take the others
    with it. Options that would spoil the scores are refused or warned of. The exit code is 0 only if every task has
    results and no more of its samples than --max-failed lack a reply or a verdict. What was run on what, and with what
    end, is in <output_path>/<UTC time>_run.json.
    """
    asked = [name.strip() for name in tasks.split(",") if name.strip()]
    if not asked:
        raise MedTasksError("--tasks names no task; see 'medtasks tasks'")
    start, limit, part = _words(launcher), FailureLimit.parse(max_failed), Shard.parse(shard) if shard else None
    if repeats > 1 and part is not None:
        raise MedTasksError("--repeats and --shard do not go together; run each shard with --seed N, and merge by seed")
    own = ["--launcher", launcher] if launcher else []
    own += ["--max-failed", max_failed] if max_failed != DEFAULT_LIMIT else []
    own += ["--journal"] if journal else []
    own += ["--shard", str(part)] if part else []
    own += ["--recipe", recipe] if recipe else []
    own += ["--backend", backend] if backend else []
    own += [REPEATS, str(repeats)] if repeats > 1 else []
    command = ["medtasks", "run", "--tasks", tasks, "--output_path", str(output), *own, *context.args]
    named, facts = expansion(recipe, backend, read_options(context.args))
    options = read_options([*context.args, *named])
    _refuse_unknown(options, [name for param in context.command.params for name in param.opts])
    # Without samples nobody can tell later which replies failed, or read them again.
    arguments = [*context.args, *named, *([] if options.flag("log_samples") else ["--log_samples"])]
    context.with_resource(including(options.folders()))
    selection = _selected(asked)
    others, variables = _journaling(options) if journal else ((), {})
    others = [*others, *_other_runs(output), *repeat_notices(selection.ready or asked, options, repeats)]
    notices = _checked(selection.ready or asked, arguments, part, others)
    this = _Run(tasks, asked, command, selection, notices, part, facts, start, limit, only_failed)
    with stopping_by_signal():
        if repeats > 1:
            _repeat(this, output, arguments, variables, repeats)
        else:
            this.go(output, arguments, variables)


@dataclass(frozen=True)
class _Run:
    """What is asked, wherever its results go."""

    tasks: str
    asked: Sequence[str]
    command: Sequence[str]
    selection: Selection
    notices: Sequence[Notice]
    part: Shard | None
    recipe: RecipeFacts | None
    start: Sequence[str]
    limit: FailureLimit
    only_failed: bool

    def go(self, output: Path, arguments: Sequence[str], variables: Mapping[str, str]) -> None:
        """Run it once; MedTasksError where a task has no results, or lost too many samples."""
        with out.status("Looking up versions, hardware and the model's weights ..."):
            of_run = (self.command, arguments, self.asked, self.selection, self.notices, self.part, self.recipe)
            manifest = first_manifest(*of_run)
            earlier = earlier_run(output, manifest, arguments) if self.only_failed else None
            recording = RunRecording(output, manifest, arguments, self.limit, lambda text: say(f"warning: {text}"))
        say(f"manifest: {recording.path}")
        if earlier is not None:
            say(f"replies that did not fail are those of: {earlier.path}")
        kept = {KEPT_VARIABLE: str(earlier.path)} if earlier else {}
        sharded = {SHARD_VARIABLE: str(self.part)} if self.part else {}
        try:
            with recording.until_its_end():
                if self.selection.ready:
                    told = {**variables, **kept, **sharded}
                    run_tasks(self.selection.ready, arguments, output, self.start, recording.note, told)
        finally:
            _show(recording.manifest, output)
        _conclude(recording.manifest, self.tasks)
        _refuse_lost(recording, self.command, self.limit)


def _repeat(this: _Run, output: Path, arguments: Sequence[str], variables: Mapping[str, str], repeats: int) -> None:
    """Run it several times, and write and show what that comes to; what failed is raised at the end."""
    from medtasks.audit.repeats import joined_repeats, write_repeats
    from medtasks.audit.report.task_tables import repeats_table

    errors = []
    for number in range(1, repeats + 1):
        say(f"repeat {number} of {repeats}, seed {repeat_seed(arguments, number)}")
        place = repeat_folder(output, number)
        place.mkdir(parents=True, exist_ok=True)
        try:
            this.go(place, seeded(arguments, number), repeat_variables(variables, arguments, number))
        except MedTasksError as error:
            errors.append(f"repeat {number}: {error}")
    with out.status("Joining ..."):
        found = joined_repeats(output)
    if found:
        say(f"repeats: {write_repeats(output, found)}")
    for task in found.values():
        table = repeats_table(task)
        show(replace(table, caption=f"{task.task}: {table.caption}"))
        for note in table.notes:
            say(note)
    say(f"report of all repeats: medtasks report {shlex.quote(str(output))}{included_option()}")
    if errors:
        raise MedTasksError("; ".join(errors))


def _journaling(options: HarnessOptions) -> tuple[Iterable[Notice], dict[str, str]]:
    # Imported here because it leans on the harness, which other commands do not need.
    from medtasks.lmms.server_journal import JOURNAL_VARIABLE, journal_notices

    return journal_notices(options), {JOURNAL_VARIABLE: "true"}


def _refuse_unknown(options: HarnessOptions, own: Sequence[str]) -> None:
    """Raise for the first argument that neither this command nor the harness has."""
    for argument in options.unknown[:1]:
        name = argument.partition("=")[0]
        if not name.startswith("-"):
            raise MedTasksError(f"'{redacted(argument)}' belongs to no option; a value with blanks needs quotes")
        hint = near_match(name, [*own, *option_names()]) or "; see medtasks run --help and lmms_eval --help"
        raise MedTasksError(f"there is no option '{name}'{hint}")


def _other_runs(output: Path) -> Iterator[Notice]:
    for path in manifest_files(output):
        with suppress(MedTasksError):
            earlier = RunManifest.read(path)
            if earlier.standing == "still running":
                yield warn(
                    f"another run (process {earlier.process.pid}) is still writing into {output}; reports would mix "
                    f"the two: give this one another --output_path"
                )


def _refuse_lost(recording: RunRecording, command: Sequence[str], limit: FailureLimit) -> None:
    """Raise if a task lost more samples than may fail."""
    if counted := "; ".join(f"{name}: {counts}" for name, counts in recording.over_limit().items()):
        raise MedTasksError(
            f"more samples than --max-failed {limit} lack a reply or a verdict and are in no score ({counted}); all "
            f"replies are kept; once the cause is fixed, ask only for the missing ones: "
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
            say(f"failed: {task}: {record.reason}")
        elif record.outcome is TaskOutcome.NOT_RUN:
            say(f"not run: {task}")
        elif record.outcome is TaskOutcome.LEFT_OUT:
            say(f"left out: {task}; the reason is at the top")
    say(f"report: medtasks report {shlex.quote(str(output))}{included_option()}")


def _conclude(manifest: RunManifest, tasks: str) -> None:
    """Raise unless every task has results and all its samples."""
    records = manifest.tasks.values()
    outcomes = [record.outcome for record in records]
    lost = sum(outcome is not TaskOutcome.DONE for outcome in outcomes)
    if outcomes.count(TaskOutcome.LEFT_OUT) == len(outcomes):
        raise MedTasksError(f"none of the tasks in '{tasks}' can run, for the reasons above")
    if lost:
        others = "; the others are complete" if lost < len(outcomes) else ""
        causes = dict.fromkeys(record.reason for record in records if record.outcome is TaskOutcome.FAILED)
        raise MedTasksError("; ".join([f"{lost} of {len(outcomes)} tasks without results{others}", *causes]))
    if incomplete := "; ".join(record.reason for record in records if record.reason):
        raise MedTasksError(f"{incomplete}; the scores are kept")
