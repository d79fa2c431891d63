"""``medtasks run`` and ``merge``.

``run`` is the harness with reliable exit codes, in which a failing task does not affect the others.
"""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli.look_runs import read_looks
from medtasks.cli.options import IncludePath, MaxFailed, Yes, look_into, split_names
from medtasks.cli.output import out, say, show
from medtasks.cli.prepare_command import datasets_of_tasks, prepare_all
from medtasks.data.looks import LOOK_VARIABLE, Look
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.safe_parsing import parse_json
from medtasks.data.shards import SHARD_VARIABLE, Shard
from medtasks.errors import MedTasksError, near_match, unknown_name
from medtasks.lmms.earlier_replies import KEPT_VARIABLE, earlier_run, earlier_runs
from medtasks.net.journal import RUN_VARIABLE
from medtasks.running.harness_run import (
    repeat_notices,
    repeat_seed,
    run_tasks,
    seed_arguments,
    stopping_by_signal,
    wanted_tasks,
)
from medtasks.running.preflight import check
from medtasks.running.recipes import expansion
from medtasks.running.recording import RunRecording, first_manifest
from medtasks.runs.harness_options import HarnessOptions, option_names, read_options
from medtasks.runs.looks import LookRecord
from medtasks.runs.redaction import redact, redacted_arguments
from medtasks.runs.result_files import repeat_folder
from medtasks.runs.run_manifest import (
    Notice,
    PrimaryOutcome,
    RecipeFacts,
    RunManifest,
    RunState,
    Severity,
    TaskOutcome,
    check_primary,
    continued_run_id,
    manifest_files,
    read_manifests,
    warn,
)
from medtasks.runs.sample_counts import DEFAULT_LIMIT, FailureLimit
from medtasks.scores.run_values import chosen_metrics
from medtasks.tasks.documents import Selection, select
from medtasks.tasks.task_files import included_option, including, task_file

_PLANNED = ("difference", "needed", "needed_for_margin", "power")  # keys of such a file
PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def run(
    context: typer.Context,
    tasks: Annotated[str, Option(help="Tasks, groups and tags, separated by commas.")],
    output: Annotated[
        Path, Option("--output_path", "--output-path", help="Folder for results.")
    ],
    launcher: Annotated[
        str,
        Option(
            help="Command that starts processes, such as 'accelerate launch --num_processes 4'."
        ),
    ] = "",
    max_failed: MaxFailed = DEFAULT_LIMIT,
    shard: Annotated[
        str,
        Option(
            envvar=SHARD_VARIABLE,
            help="Ask only this part of every task's rows, such as 3/16; no pair, patient or image is split.",
        ),
    ] = "",
    only_failed: Annotated[
        bool,
        Option(
            "--only-failed",
            help="Ask only the samples that failed in the last such run, or changed since; keep the others' replies.",
        ),
    ] = False,
    recipe: Annotated[
        str, Option(help="Recipe of a published model, see 'medtasks models'.")
    ] = "",
    backend: Annotated[
        str,
        Option(help="Where the recipe's model runs: hf (in this process) or server."),
    ] = "",
    repeats: Annotated[
        int,
        Option(
            min=1,
            help="Repeat the run N times with new seeds; reports mean, spread, majority vote.",
        ),
    ] = 1,
    primary: Annotated[
        str,
        Option(
            metavar="TASK:METRIC",
            help="Record the primary outcome; others are exploratory. Also the file of 'medtasks plan --json'.",
        ),
    ] = "",
    margin: Annotated[
        float | None, Option(help="Margin of non-inferiority in the primary outcome.")
    ] = None,
    looks: Annotated[
        Path | None,
        Option(
            help="Plan of 'medtasks plan --looks': stop at the look that shows a difference."
        ),
    ] = None,
    against: Annotated[
        Path | None, Option(help="Run of the whole task, with which --looks compares.")
    ] = None,
    prepare: Annotated[
        bool,
        Option(
            "--prepare",
            help="Prepare missing data first, as 'medtasks data prepare' does with these tasks.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Run tasks with lmms-eval. Its options are passed on.

    Those are --model, --model_args, --limit, --include_path, --batch_size, --num_fewshot, --gen_kwargs, --device,
    --seed, --verbosity and others ('lmms_eval --help' explains them). --log_samples is always on.
    Tasks whose dataset is not prepared or damaged, or whose judge is missing, are left out by name; a failing task
    does not affect the others.
    Options that would spoil the scores are refused or warned about. The exit code is 0 only if every task has results
    and no more of its samples than --max-failed lack a reply or a verdict. <output_path>/<UTC time>_run.json records
    the command, data, model, versions and outcome.
    """
    names = split_names(tasks)
    if not names:
        raise MedTasksError("--tasks names no task; see 'medtasks tasks'")
    limit = FailureLimit.parse(max_failed)
    part = _shard_of(shard, repeats, prepare=prepare)
    start = _split_launcher(launcher)
    command = ["medtasks", "run", "--tasks", tasks, "--output_path", str(output)]
    command += [*_settings(context), *context.args]
    expanded, facts = expansion(recipe, backend, read_options(context.args))
    arguments = [*context.args, *expanded]
    options = read_options(arguments)
    _refuse_unknown(options, context)
    # Without samples, failed replies could not be found and no reply could be scored again.
    if not options.flag("log_samples"):
        arguments.append("--log_samples")
    context.with_resource(including(options.folders()))
    others = {
        "--shard": part,
        "--only-failed": only_failed,
        "--primary": primary,
        "--margin": margin,
        "--repeats": repeats > 1,
    }
    planned_looks = read_looks(looks, against, names, others)
    stated = _primary_outcome(
        planned_looks.primary if planned_looks else primary, margin, names
    )
    if prepare:
        _raise_refused(check(names, arguments))  # before hours of downloads
        datasets = {name: datasets_of_tasks(name) for name in names}
        prepare_all(datasets, Options(), yes=yes, sufficient=("yes", "incomplete", "sample"))
    selection = select(names)
    for task, cause in selection.missing.items():
        out.print(f"[yellow]left out[/] {task}: ", end="")
        say(cause)
    ready = selection.ready or names  # what else is wrong is said even if no task can run
    rows = planned_looks.rows if planned_looks else part
    notices = _check_run(ready, options, arguments, rows, output, repeats)
    call = _Call(
        tasks,
        names,
        command,
        selection,
        notices,
        part,
        facts,
        start,
        limit,
        only_failed,
        stated,
    )
    with stopping_by_signal():
        if planned_looks is not None:
            planned_looks.take(partial(call.run, output, arguments), limit)
        elif repeats > 1:
            _repeat(call, output, arguments, repeats)
        else:
            call.run(output, arguments)


def _split_launcher(launcher: str) -> list[str]:
    """Return the words of ``--launcher``, none if it is empty, or raise a MedTasksError if a quotation mark is open."""
    try:
        return shlex.split(launcher)
    except ValueError as error:
        raise MedTasksError(
            f"--launcher {launcher} cannot be read ({error}); close the quotation mark"
        ) from error


def _shard_of(text: str, repeats: int, *, prepare: bool) -> Shard | None:
    """Read ``--shard``.

    Args:
        text: Shard such as 3/16; empty without the option.
        repeats: Number of repeats of the run.
        prepare: Whether data are prepared first.

    Returns:
        The shard, or None for the whole run.

    Raises:
        MedTasksError: ``text`` is no shard, or comes with several repeats or ``--prepare``.
    """
    if not text:
        return None
    if repeats > 1:
        raise MedTasksError(
            "--repeats and --shard do not go together; run each shard with --seed N, and merge by seed"
        )
    if prepare:
        raise MedTasksError(
            "--prepare and --shard do not go together, as shards would prepare the same data; run 'medtasks data "
            "prepare' with the tasks once, before the shards"
        )
    return Shard.parse(text)


def _refuse_unknown(options: HarnessOptions, context: typer.Context) -> None:
    """Raise MedTasksError for the first argument that neither this command nor the harness has."""
    if not options.unknown:
        return
    argument = options.unknown[0]
    name = argument.partition("=")[0]
    if not name.startswith("-"):
        raise MedTasksError(
            f"'{redact(argument)}' belongs to no option; a value with blanks needs quotes"
        )
    known: list[str] = []
    for parameter in context.command.params:
        known += parameter.opts
    known += option_names()
    hint = near_match(name, known) or "; see medtasks run --help and lmms_eval --help"
    raise MedTasksError(f"there is no option '{name}'{hint}")


def _primary_outcome(
    text: str,
    margin: float | None,
    names: Sequence[str],
) -> PrimaryOutcome | None:
    """Read ``--primary`` and ``--margin``.

    Args:
        text: ``TASK:METRIC``, or the file of a plan, whose margin counts if none is given. Empty for no outcome.
        margin: Margin of non-inferiority; None without ``--margin``.
        names: Tasks of the command.

    Returns:
        The primary outcome, or None if ``text`` is empty.

    Raises:
        MedTasksError: The task is not asked, the metric compares no runs, the margin is no fraction or belongs to no
            outcome, or the file is not from 'medtasks plan --json'.
    """
    planned: dict[str, float] = {}
    file = Path(text)
    if file.is_file():
        try:
            plan = parse_json(file.read_text(encoding="utf-8"))
            planned = {name: float(plan[name]) for name in _PLANNED if plan[name] is not None}
            if margin is None:
                margin = plan["margin"]
            text = f"{plan['task']}:{plan['assumptions']['metric']}"
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise MedTasksError(
                f"{text} is not from 'medtasks plan --json'; give such a file, or TASK:METRIC"
            ) from error
    if margin is not None and not (text and 0 < margin < 1):
        raise MedTasksError("--margin is between 0 and 1, and belongs to --primary TASK:METRIC")
    if not text:
        return None
    task, _, metric = text.partition(":")
    known = wanted_tasks(names)
    if task not in known:
        raise unknown_name("task of --tasks", task, known)
    chosen_metrics(task_file(task), [metric])
    return PrimaryOutcome(task=task, metric=metric, margin=margin, planned=planned)


def _settings(context: typer.Context) -> list[str]:
    """Return the options of this command that differ from their defaults, as on a command line."""
    words: list[str] = []
    for option in context.command.params:
        value = context.params.get(str(option.name))
        if option.name in ("tasks", "output", "only_failed") or value in (option.default, None):
            continue
        words.append(option.opts[0])
        if value is not True:
            words.append(str(value))
    return words


@dataclass(frozen=True)
class _Call:
    """Arguments of one command, without its output folder."""

    tasks: str
    names: Sequence[str]
    command: Sequence[str]
    selection: Selection
    notices: Sequence[Notice]
    part: Shard | None
    recipe: RecipeFacts | None
    start: Sequence[str]  # launcher in front of the command
    limit: FailureLimit
    only_failed: bool
    primary: PrimaryOutcome | None

    def run(
        self,
        output: Path,
        arguments: Sequence[str],
        look: LookRecord | None = None,
    ) -> RunManifest:
        """Run once, or return the finished run of a look.

        A look that is not finished keeps the replies of earlier looks.

        Args:
            output: Folder for results.
            arguments: Arguments of the harness.
            look: The look, if the run is one of a comparison that may stop early.

        Raises:
            MedTasksError: A task has no results, or lost too many samples.
        """
        with out.status("Looking up versions, hardware and the model's weights ..."):
            manifest = first_manifest(
                self.command,
                arguments,
                self.names,
                self.selection,
                self.notices,
                self.part,
                self.recipe,
            )
            manifest = manifest.model_copy(update={"primary": self.primary, "look": look})
            check_primary(output, manifest)
            earlier = None
            if look is not None:
                earlier = _earlier_look(output, manifest, arguments, look)
                if earlier and _is_taken(earlier, look):
                    return earlier
            elif self.only_failed:
                earlier = earlier_run(output, manifest, arguments)
            # A run that goes on shares the id of the earlier one. Its answers come from the model's own journal
            # (medtasks.net.journal), where replies of another id count as copies.
            run = earlier.run if earlier else continued_run_id(output, manifest)
            manifest = manifest.model_copy(update={"run": run or manifest.run})
        recording = RunRecording(
            output, manifest, arguments, self.limit, lambda text: say(f"warning: {text}")
        )
        say(f"manifest: {recording.path}")
        environment = {RUN_VARIABLE: manifest.run}
        if earlier is not None:
            say(f"replies that did not fail are those of: {earlier.path}")
            environment[KEPT_VARIABLE] = str(earlier.path)
        if look is not None:
            environment[LOOK_VARIABLE] = str(look.rows)
        elif self.part is not None:
            environment[SHARD_VARIABLE] = str(self.part)
        try:
            with recording.until_its_end():
                if self.selection.ready:
                    run_tasks(
                        self.selection.ready,
                        arguments,
                        output,
                        self.start,
                        recording.note,
                        environment,
                    )
        finally:
            _print_outcomes(recording.manifest, output)
        self._check_complete(recording)
        return recording.manifest

    def _check_complete(self, recording: RunRecording) -> None:
        """Raise MedTasksError if a task has no results, or lost too many samples."""
        records = recording.manifest.tasks.values()
        outcomes = [record.outcome for record in records]
        if outcomes.count(TaskOutcome.LEFT_OUT) == len(outcomes):
            raise MedTasksError(
                f"none of the tasks in '{self.tasks}' can run, for the reasons above"
            )
        lost = len(outcomes) - outcomes.count(TaskOutcome.DONE)
        if lost:
            sentences = [f"{lost} of {len(outcomes)} tasks without results"]
            if lost < len(outcomes):
                sentences.append("the others are complete")
            failures = (
                record.reason for record in records if record.outcome is TaskOutcome.FAILED
            )
            sentences += dict.fromkeys(failures)
            raise MedTasksError("; ".join(sentences))
        reasons = [record.reason for record in records if record.reason]
        if reasons:
            raise MedTasksError(f"{'; '.join(reasons)}; the scores are kept")
        counts = recording.losses_over_limit()
        if counts:
            raise MedTasksError(
                f"more samples than --max-failed {self.limit} lack a reply or a verdict and are in no score "
                f"({counts}); all replies are kept; once the cause is fixed, ask only for the missing ones: "
                f"{shlex.join([*redacted_arguments(self.command), '--only-failed'])}"
            )


def _earlier_look(
    output: Path,
    current: RunManifest,
    arguments: Sequence[str],
    look: LookRecord,
) -> RunManifest | None:
    """Return the finished run of a look, else the newest of its comparison, or None without a finished run.

    Raises:
        MedTasksError: A look of the comparison in this folder was asked differently.
    """
    kept = list(earlier_runs(output, current, arguments))
    looks = []
    for earlier in read_manifests(output, lambda _: None):
        if earlier.part == current.part and any(
            task.samples for task in earlier.tasks.values()
        ):
            looks.append(earlier)
    if len(looks) > len(kept):
        raise MedTasksError(
            f"looks in {output} had another model, settings or versions; go on with those, or give another "
            f"--output_path"
        )
    return next((run for run in kept if _is_taken(run, look)), next(iter(kept), None))


def _is_taken(run: RunManifest, look: LookRecord) -> bool:
    """Return whether a run has answered all questions of a look."""
    return (
        run.state is RunState.FINISHED and run.look is not None and run.look.index == look.index
    )


def _print_outcomes(manifest: RunManifest, output: Path) -> None:
    """Print the results files of a run, its tasks without results, and the next step."""
    has_results = _print_results(manifest, output)
    for task, record in manifest.tasks.items():
        if record.outcome is TaskOutcome.FAILED:
            say(f"failed: {task}: {record.reason}")
        elif record.outcome is TaskOutcome.NOT_RUN:
            say(f"not run: {task}")
        elif record.outcome is TaskOutcome.LEFT_OUT:
            say(f"left out: {task}; the reason is at the top")
    if has_results:
        say(f"report: medtasks report {shlex.quote(str(output))}{included_option()}")


def _print_results(manifest: RunManifest, output: Path) -> bool:
    """Print the results files of a run, and return whether there are any."""
    files = dict.fromkeys(
        record.results for record in manifest.tasks.values() if record.results
    )
    for results in files:
        say(f"results: {output / results}")
    return bool(files)


def _repeat(call: _Call, output: Path, arguments: Sequence[str], repeats: int) -> None:
    """Run several times, and write and show the joint scores.

    Raises:
        MedTasksError: Repeats failed. The others are finished and joined all the same.
    """
    from medtasks.report.repeats import write_repeats
    from medtasks.report.task_tables import repeats_table

    errors = []
    for number in range(1, repeats + 1):
        say(f"repeat {number} of {repeats}, seed {repeat_seed(arguments, number)}")
        folder = repeat_folder(output, number)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            call.run(folder, seed_arguments(arguments, number))
        except MedTasksError as error:
            errors.append(f"repeat {number}: {error}")
    with out.status("Joining ..."):
        joined = write_repeats(output)
    if joined:
        say(f"repeats: {output / 'repeats.json'}")
    for task in joined.values():
        table = repeats_table(task)
        show(replace(table, caption=f"{task.task}: {table.caption}"))
        say(*table.notes)
    say(f"report of all repeats: medtasks report {shlex.quote(str(output))}{included_option()}")
    if errors:
        raise MedTasksError("; ".join(errors))


def _check_run(
    ready: Sequence[str],
    options: HarnessOptions,
    arguments: Sequence[str],
    part: Shard | Look | None,
    output: Path,
    repeats: int,
) -> list[Notice]:
    """Print and return all warnings about a run.

    Args:
        ready: Tasks that can be run.
        options: Options of the harness.
        arguments: The same options as words of the command.
        part: Shard or look of the run; None if all samples are asked.
        output: Folder for results, in which other runs may still write.
        repeats: Number of repeats.

    Raises:
        MedTasksError: The run is refused.
    """
    notices = check(ready, arguments, part)
    for path in manifest_files(output):
        with suppress(MedTasksError):
            earlier = RunManifest.read(path)
            if earlier.standing == "still running":
                sentence = (
                    f"another run (process {earlier.process.pid}) is still writing into {output}; reports would mix "
                    f"the two: give this one another --output_path"
                )
                notices.append(warn(sentence))
    notices += repeat_notices(ready, options, repeats)
    _raise_refused(notices)
    for notice in notices:
        out.print("[yellow]warning[/] ", end="")
        say(notice.sentence)
    return notices


def _raise_refused(notices: Sequence[Notice]) -> None:
    """Raise a MedTasksError with all notices that refuse the run, if there are any."""
    refused = [notice.sentence for notice in notices if notice.kind is Severity.REFUSE]
    if refused:
        raise MedTasksError("; and ".join(refused))


def merge(
    context: typer.Context,
    output: Annotated[Path, Argument(help="New folder for the joined run.")],
    shards: Annotated[
        list[Path], Argument(help="Folders (--output_path) of 'medtasks run --shard'.")
    ],
    max_failed: MaxFailed = DEFAULT_LIMIT,
    include_path: IncludePath = None,
) -> None:
    """Join the runs of all shards. Samples and results equal those of a single run, to the last digit.

    Standard errors of groups are left to the report. The newest complete run of each shard counts. If shards are
    missing, or differ in settings, data, code or model, they are named and nothing is written. The exit code is 1 if
    more samples of a task than --max-failed lack a reply or a verdict.
    """
    from medtasks.scores.merging import merge as merge_shards

    limit = FailureLimit.parse(max_failed)
    look_into(context, include_path, shards)
    with out.status("Joining ..."):
        manifest, lost = merge_shards(output, shards, limit)
    _print_results(manifest, output)
    for name, record in manifest.tasks.items():
        if record.counts is not None and record.counts.lost:
            say(f"in no score: {name}: {record.counts}")
    say(f"report: medtasks report {shlex.quote(str(output))}{included_option()}")
    if lost:
        counted = "; ".join(f"{name}: {counts}" for name, counts in lost.items())
        raise MedTasksError(
            f"more samples than --max-failed {limit} lack a reply or a verdict and are in no score ({counted}); run "
            f"the shards that lost them once more with --only-failed, and merge them again into another folder"
        )
