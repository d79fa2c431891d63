"""``medtasks compare``: test whether one model is better than another on the same samples, or as good.

Tests and verdicts are those of :mod:`medtasks.scores.comparing` and ``verdicts``; this module only words them.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from medtasks.cli.options import IncludePath, JsonFile, look_into
from medtasks.cli.output import out, print_state_of_data, say, say_columns, show, write_json
from medtasks.errors import MedTasksError, RepliesError, near_match
from medtasks.home import as_json
from medtasks.metrics.metric import unit_of
from medtasks.report import wording
from medtasks.report.tables import number_table
from medtasks.report.wording import difference_interval, p_value
from medtasks.runs.harness_options import model_title
from medtasks.runs.run import Source, model_of
from medtasks.runs.run_manifest import PrimaryOutcome
from medtasks.scores.comparing import ComparedTask, Comparison, compare_all
from medtasks.scores.run_values import (
    NEAR_TIE,
    Agreement,
    LikelihoodAgreement,
    Overlap,
    TextAgreement,
)
from medtasks.scores.verdicts import (
    NonInferiority,
    TaskVerdict,
    Verdict,
    is_equivalent,
    verdict_on,
)
from medtasks.stats.equivalence import MARGIN, NON_INFERIORITY
from medtasks.stats.paired import (
    ALPHA,
    DRAWN_T,
    DRAWS,
    DYADIC,
    POWER,
    SEED,
    SIGN_FLIP,
    draws_for,
)
from medtasks.tasks.task_files import task_files, variant_of
from medtasks.version import __version__

Required = Literal["identical", "equivalent", "not-worse", "not-different"]
# Verdicts that are as good as the required one or better. "not-worse" is another test, see _regressions.
_FULFILLED: Mapping[str, frozenset[Verdict]] = {
    "identical": frozenset({Verdict.IDENTICAL}),
    "equivalent": frozenset({Verdict.IDENTICAL, Verdict.EQUIVALENT}),
    "not-different": frozenset(Verdict) - {Verdict.DIFFERENT},
}
_RUNS = "Folders of runs (their --output_path), repeated or not, or samples files; files of replies need TASK."
_LEAST_MARGIN = 1e-6  # no benchmark has the samples for a smaller one
_MARGIN = "largest score difference that does not matter; 0.01 is one percentage point."
_Lines = Iterator[tuple[str, str]]  # names and counts
_RunPair = tuple[str, str]  # letters of two runs
_Json = dict[str, Any]


@dataclass(frozen=True)
class ComparedRuns:
    """Runs of one command, and their comparisons."""

    runs: Mapping[str, Path]  # by letter
    models: Mapping[str, str]  # by letter; empty where none is recorded
    task: str | None  # the only task, if the command names one
    tasks: Mapping[str, ComparedTask]
    not_compared: Mapping[str, str]  # why a task was not compared, by name
    margin: float | None
    verdicts: Mapping[str, TaskVerdict]  # by task; none without a margin
    verdict: Verdict | None  # on all tasks
    tests: int  # that are corrected together
    primary: PrimaryOutcome | None  # that all runs state; of no task if they differ


def compare(
    context: typer.Context,
    names: Annotated[list[str], Argument(metavar="[TASK] RUN RUN [RUN ...]", help=_RUNS)],
    metric: Annotated[
        list[str] | None, Option(help="Compare only this metric: fewer tests to correct for.")
    ] = None,
    rule: Annotated[
        list[str] | None, Option(help="Compare only under this rule; repeatable.")
    ] = None,
    equivalence: Annotated[
        float | None,
        Option(
            "--equivalence",
            "--margin",
            metavar="MARGIN",
            help=f"Also test for equivalence: {_MARGIN}",
        ),
    ] = None,
    non_inferiority: Annotated[
        float | None,
        Option(
            metavar="MARGIN",
            help="Test whether the second run is worse than the first by less than the margin.",
        ),
    ] = None,
    labels: Annotated[
        list[Path] | None,
        Option(
            help="Labels of 'medtasks judge sample' for each RUN in order: corrects verdicts."
        ),
    ] = None,
    require: Annotated[
        Required | None,
        Option(
            help="Exit with 1 unless all tasks have this verdict or better. not-worse, for a nightly gate: the second "
            "run loses less than the margin."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        Option(
            help="Model to take from folders with runs of several; once for all, or once per RUN in order."
        ),
    ] = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Compare runs on the samples that both answered: agreement, and paired tests under every rule.

    Without TASK, all our tasks that two runs have in common are compared and corrected for as one family of tests.
    --equivalence gives a verdict on two runs (of two backends, precisions or versions): identical, equivalent or
    different. So does --require, with a margin of 0.01. --non-inferiority takes a margin, too, and gives the verdict
    of --require not-worse.
    """
    if equivalence is not None and non_inferiority is not None:
        raise MedTasksError(
            "give one margin, with --equivalence or --non-inferiority; both verdicts take the same"
        )
    look_into(context, include_path, list(map(Path, names)))
    margin = _chosen_margin(equivalence, non_inferiority, require)
    comparisons = _compare_runs(
        names, metric or (), rule or (), model or (), margin, labels or ()
    )
    write_json(json_file, _as_dict(comparisons))
    _print_comparisons(
        comparisons, is_one_sided=non_inferiority is not None or require == "not-worse"
    )
    if require is not None:
        _check_requirement(comparisons, require)


def _chosen_margin(
    equivalence: float | None,
    non_inferiority: float | None,
    required: Required | None,
) -> float | None:
    """Return the margin for verdicts, or None if no verdict is asked for.

    Raises:
        MedTasksError: It is no fraction.
    """
    margin = equivalence if non_inferiority is None else non_inferiority
    if margin is None:
        return MARGIN if required is not None else None
    if not _LEAST_MARGIN <= margin < 1:
        raise MedTasksError(
            f"the margin {margin:g} is no fraction between {_LEAST_MARGIN:g} and 1; 0.01 is one percentage point"
        )
    return margin


def _compare_runs(
    names: Sequence[str],
    metrics: Sequence[str],
    rules: Sequence[str],
    models: Sequence[str],
    margin: float | None,
    labels: Sequence[Path],
) -> ComparedRuns:
    """Compare the runs on a command line.

    Args:
        names: Words of the command: a task if only one is compared, then paths of runs.
        metrics: Names of the only metrics to compare; empty for all.
        rules: Names of the only rules to compare under; empty for all.
        models: Models to take from the folders: none, one for all runs, or one each.
        margin: Largest difference that does not matter, a fraction; None if no verdict is asked for.
        labels: Files with labels of people, none or one per run.

    Raises:
        RepliesError: A verdict is asked for, and there are not two runs; or a run cannot be read.
    """
    task = _named_task(names[0])
    paths = list(map(Path, names[task is not None :]))
    if margin is not None and len(paths) != 2:
        raise RepliesError(f"expected two runs, but got {len(paths)}")
    sources = _sources(paths, models, labels, task)
    tasks, causes = compare_all(sources, metrics, rules, margin, task)
    verdicts = {}
    tests = 0
    for name, compared in tasks.items():
        tests += sum(not test.same_as for test in compared.comparisons)
        if margin is not None:
            verdicts[name] = verdict_on(compared, margin)
    each_verdict = [task_verdict.verdict for task_verdict in verdicts.values()]
    return ComparedRuns(
        {label: source.path for label, source in sources.items()},
        {label: model_of(source) for label, source in sources.items()},
        task,
        tasks,
        causes,
        margin,
        verdicts,
        max(each_verdict, key=list(Verdict).index, default=None),
        tests,
        _stated_primary(sources.values()),
    )


def _named_task(name: str) -> str | None:
    """Return the first word of a command if it is a task, or None if it is a path.

    Raises:
        RepliesError: It is neither.
    """
    if name in task_files() or variant_of(name):
        return name
    if not Path(name).exists():
        raise RepliesError(
            f"'{name}' is neither a task of ours nor a folder or file{near_match(name, task_files())}; "
            f"see 'medtasks tasks'"
        )
    return None


def _sources(
    paths: Sequence[Path],
    models: Sequence[str],
    labels: Sequence[Path],
    task: str | None,
) -> dict[str, Source]:
    """Return the runs by letter, from A in the order of ``paths``.

    Args:
        paths: Folders or files of the runs, 2 to 26.
        models: Models to take from them: none, one for all, or one each.
        labels: Files with labels of people, none or one per run.
        task: The only task, or None if all tasks in common are compared. Labels need one.

    Raises:
        RepliesError: The numbers of runs, models and labels do not fit together, or labels come without a task.
    """
    if labels and (len(labels) != len(paths) or task is None):
        raise RepliesError(
            f"{len(labels)} files of labels for {len(paths)} runs; name TASK, and --labels once per run"
        )
    if not 2 <= len(paths) <= len(ascii_uppercase):
        raise RepliesError(
            f"expected 2 to {len(ascii_uppercase)} runs to compare, but got {len(paths)}"
        )
    if len(models) > 1 and len(models) != len(paths):
        raise RepliesError(
            f"{len(models)} models for {len(paths)} runs; give --model once, or once per run"
        )
    model_of_run = models if len(models) > 1 else [*models, None][:1] * len(paths)
    files: Sequence[Path | None] = labels or [None] * len(paths)
    return dict(zip(ascii_uppercase, map(Source, paths, model_of_run, files), strict=False))


def _stated_primary(sources: Iterable[Source]) -> PrimaryOutcome | None:
    """Return the primary outcome that all runs state: None if none states any, one of an empty task if they differ."""
    primaries: list[PrimaryOutcome | None] = []
    for source in sources:
        primary = None
        if source.path.is_dir():
            with contextlib.suppress(MedTasksError):  # a folder of replies
                primary = source.repeats[0].run.primary
        primaries.append(primary)
    if any(primary != primaries[0] for primary in primaries):
        return PrimaryOutcome(task="", metric="")
    return primaries[0]


def _print_comparisons(comparisons: ComparedRuns, *, is_one_sided: bool) -> None:
    """Print all comparisons of a command and the verdict on them, without the tests of identical runs."""
    for label, path in comparisons.runs.items():
        model = comparisons.models[label]
        say(f"{label}: {path}, model: {model}" if model else f"{label}: {path}")
    tests: list[Comparison] = []
    for name, task in comparisons.tasks.items():
        tests += _print_task(name, task, comparisons)
    _print_methods(tests, comparisons.tests)
    for name, cause in comparisons.not_compared.items():
        say(f"Not compared: {name}: {cause}")
    if comparisons.margin is not None:
        if tests:
            say(
                f"Equivalent: the 90 % interval lies within {100 * comparisons.margin:g} pts to both sides "
                f"(two one-sided tests at {ALPHA:.0%}).\n"
                f"Different: the paired test rejects (p, Holm), and the interval does not lie within."
            )
        say(f"\nVerdict on the scores: {comparisons.verdict}")
    if is_one_sided:
        _print_non_inferiority(comparisons)
    print_state_of_data({name: task.data for name, task in comparisons.tasks.items()})


def _print_methods(tests: Sequence[Comparison], number: int) -> None:
    """Explain the tests in tables, ``number`` of which are corrected together."""
    names = {test.result.test for test in tests}
    if SIGN_FLIP in names:
        more = ""
        if draws_for(number) > DRAWS:
            more = f", {draws_for(number)} where p is at most {ALPHA}"
        say(
            f"{SIGN_FLIP}: the models' values are exchanged by cluster; in all ways or {DRAWS} random ones{more}, with "
            f"seed {SEED}."
        )
    if DYADIC in names:
        say(
            f"{DYADIC}: pairs that share images are not independent; t test with the dyadic standard error."
        )
    if DRAWN_T in names:
        say(
            f"{DRAWN_T}: t test of the difference on all questions of the benchmark, with the error of the draw."
        )
    if tests:
        say(
            f"p, Holm: corrected for all {number} tests of this call, unlike p and the intervals.\n"
            f"detectable difference: the smallest true one found with {POWER:.0%} power at a level of {ALPHA:.0%} / "
            f"{number}, that of Holm's first step, given how often these runs differ."
        )


def _check_requirement(comparisons: ComparedRuns, required: Required) -> None:
    """Raise MedTasksError unless the verdict is the required one or better, and all tasks were compared."""
    unmet: list[str] = []
    if required == "not-worse":
        unmet += _regressions(comparisons)
    elif comparisons.verdict not in _FULFILLED[required]:
        unmet.append(f"the verdict is '{comparisons.verdict}'")
    if comparisons.not_compared:
        unmet.append(f"{len(comparisons.not_compared)} of their tasks not compared")
    if unmet:
        raise MedTasksError(f"--require {required} is not met: {', and '.join(unmet)}")


def _print_non_inferiority(comparisons: ComparedRuns) -> None:
    """Print whether the second run is shown to be not worse than the first, or what speaks against it."""
    unmet = ", and ".join(_regressions(comparisons))
    outcome = f"not shown: {unmet}"
    if not unmet:
        outcome = "shown: in every main score B loses less than the margin to A"
    say(f"Non-inferiority (one-sided tests at {NON_INFERIORITY:.1%}) {outcome}.")


def _regressions(comparisons: ComparedRuns) -> Iterator[str]:
    """Yield the evidence against "not worse" by task. Sanity variants count only if there is nothing else."""
    names = [name for name in comparisons.tasks if not variant_of(name)]
    for name in names or comparisons.tasks:
        verdict = comparisons.verdicts[name]
        if verdict.non_inferiority is NonInferiority.NOT_WORSE:
            continue
        finding = f"{name}: {verdict.non_inferiority}"
        if verdict.non_inferiority is NonInferiority.NOT_ENOUGH:
            finding += " ('medtasks plan' computes how many it takes)"
        test = verdict.deciding
        if test is None or test.equivalence is None:
            cause = verdict.explanation or verdict.lacking
            yield f"{finding}: {cause.rstrip('.')}"
            continue
        yield (
            f"{finding}: {test.metric} ({test.rule}) differs by "
            f"{wording.with_sign(test.result.difference, test.share)}, 95 % interval "
            f"{difference_interval(*test.equivalence.ends, test.share)}"
        )


def _sentences(name: str, task: ComparedTask, comparisons: ComparedRuns) -> list[str]:
    """Summarise each pair of runs in one sentence: the primary, else the main metric under the first rule."""
    primary = comparisons.primary
    metric = _quoted_metric(name, task, primary)
    lead = primary.lead(name, metric) if primary else ""
    firsts: dict[_RunPair, Comparison] = {}
    for test in task.comparisons:
        if test.metric == metric:
            firsts.setdefault((test.first, test.second), test)
    return [f"{lead}On {name} {_sentence(test, comparisons)}." for test in firsts.values()]


def _quoted_metric(name: str, task: ComparedTask, primary: PrimaryOutcome | None) -> str:
    """Return the primary metric if it is one of the task's, else the task's main one."""
    metrics = {test.metric for test in task.comparisons}
    if primary and primary.task == name and primary.metric in metrics:
        return primary.metric
    return next((test.metric for test in task.comparisons if test.main), "")


def _sentence(test: Comparison, comparisons: ComparedRuns) -> str:
    """Return the scores of two runs, their difference and its test, or why nothing could be tested."""
    result = test.result
    share = test.share
    unit = "pair" if test.metric == "set_accuracy" else "sample"
    first = _with_title(test.first, comparisons.models)
    second = _with_title(test.second, comparisons.models)
    scores = (
        f"({wording.quantity(result.samples, unit)}), {second} has {test.metric} "
        f"{wording.number(result.second, share)} and {first} {wording.number(result.first, share)} "
        f"under {test.rule}: difference {wording.with_sign(result.difference, share)}"
    )
    if not math.isnan(result.low):
        name = "95 % interval" if comparisons.tests == 1 else "95 % interval (not corrected)"
        scores += f", {name} {difference_interval(result.low, result.high, share)}"
    lacking = result.lacking(comparisons.tests, unit_of(test.values[2]))
    if not result.is_testable:
        return f"{scores}; {lacking}"
    if math.isnan(result.low):
        scores += ", no interval as all differences are equal"
    verdict = lacking or "not shown to differ"
    if test.holm < ALPHA:
        verdict = f"{test.second} is {'higher' if result.difference > 0 else 'lower'}"
    return f"{scores}, p = {p_value(result.p)} (Holm {p_value(test.holm)}): {verdict}"


def _with_title(label: str, models: Mapping[str, str]) -> str:
    """Return the letter of a run, followed by the title of its model in brackets if one is recorded."""
    title = model_title(models[label]).partition(" (")[0]
    return f"{label} ({title})" if title else label


def _print_task(
    name: str, task: ComparedTask, comparisons: ComparedRuns
) -> Sequence[Comparison]:
    """Print the verdict on a task and, unless its runs are identical, all comparisons.

    Returns:
        The printed tests.
    """
    verdict = comparisons.verdicts.get(name)
    if verdict is not None:
        say(f"\n{name}: {verdict.verdict}")
        say(*filter(None, (verdict.explanation, verdict.lacking)))
        if verdict.verdict is Verdict.IDENTICAL:
            _print_unshared_samples(task)
            return ()
    elif comparisons.task is None:
        out.print(f"\n[bold]{name}[/]")
    for warning in task.warnings:
        say(f"Note: {warning}.")
    say(*_sentences(name, task, comparisons))
    _print_origins(task)
    for runs, overlap in task.overlaps.items():
        say(f"\n{_compared_samples(runs, overlap)}")
        say_columns(list(_agreement_lines(task.agreements[runs], runs, verdict is not None)))
        _print_tests(runs, task.comparisons)
    _print_rules(task)
    return [test for test in task.comparisons if not test.same_as]


def _print_unshared_samples(task: ComparedTask) -> None:
    for runs, overlap in task.overlaps.items():
        if overlap.only_first or overlap.only_second:
            say(_compared_samples(runs, overlap))


def _print_origins(task: ComparedTask) -> None:
    """Print copied replies and repeats of the runs."""
    for label, origins in task.origins.items():
        if str(origins):
            say(f"{label}: {origins}.")
    repeated = [f"{number} of {label}" for label, number in task.repeats.items() if number > 1]
    if repeated:
        say(
            f"Repeats: {', '.join(repeated)}. Scores are means of each sample over its valid repeats."
        )


def _print_rules(task: ComparedTask) -> None:
    """Print the rules of a task, and metrics that are not compared."""
    named_rules = ", ".join(f"{row} is {rule}" for row, rule in task.rules.items())
    say(f"Rules: {named_rules}.")
    rules = wording.names_by(
        (rule, (metric, why)) for (rule, metric), why in task.skipped.items()
    )
    left_out = wording.names_by(
        (metric, (names, why)) for (metric, why), names in rules.items()
    )
    for (rule_names, why), metrics in left_out.items():
        say(f"Not compared: {metrics} ({rule_names}): {why}.")


def _compared_samples(runs: _RunPair, overlap: Overlap) -> str:
    """Count the documents that both runs answered, which are compared, and those that are left out."""
    first, second = runs
    return (
        f"{first} and {second}: {overlap.both} of {sum(astuple(overlap))} documents answered in both are compared. "
        f"Left out: {overlap.only_first} answered in {first} only, {overlap.only_second} in {second} only, "
        f"{overlap.neither} in neither."
    )


def _print_tests(runs: _RunPair, tests: Sequence[Comparison]) -> None:
    """Print those of the tests that compare two runs, a table per metric."""
    first, second = runs
    names = [
        "samples (clusters or pairs)",
        first,
        second,
        f"{second} - {first}",
        "95 % interval",
        "test",
        "p",
        "p, Holm",
        "detectable difference",
        "90 % interval",
        "p, equivalence",
        "95 % interval, non-inferiority",
    ]
    by_metric: dict[str, list[Comparison]] = {}
    repeated = []
    for test in tests:
        if (test.first, test.second) != runs:
            continue
        if test.same_as:
            repeated.append((test.metric, (test.rule, test.same_as)))
        else:
            by_metric.setdefault(test.metric, []).append(test)
    for metric, tests_of_metric in by_metric.items():
        rows = list(zip(names, *map(_cells, tests_of_metric), strict=False))
        rules = [test.rule for test in tests_of_metric]
        show(number_table(metric, (f"{second} compared with {first}", *rules), rows))
    for (rule, same), metrics in wording.names_by(repeated).items():
        say(f"{rule} gives every sample the same {metrics} as {same}; both are one test.")


def _cells(test: Comparison) -> list[str]:
    """Return the column of a test, which ends earlier without a margin."""
    result = test.result
    share = test.share
    cells = [
        f"{result.samples} ({result.units})",
        wording.number(result.first, share),
        wording.number(result.second, share),
        wording.with_sign(result.difference, share),
        difference_interval(result.low, result.high, share),
        result.test,
        p_value(result.p),
        p_value(test.holm),
        wording.points(result.detectable, share),
    ]
    equivalence = test.equivalence
    if equivalence is not None:
        cells += [
            difference_interval(equivalence.low, equivalence.high, share),
            p_value(equivalence.p),
            difference_interval(*equivalence.ends, share),
        ]
    return cells


def _agreement_lines(
    agreement: Agreement,
    runs: _RunPair,
    details: bool,
) -> _Lines:
    """Yield names and counts of agreement between two runs, with ``details`` also the size of differences."""
    failed = agreement.failed
    if failed.one_sided_failures:
        yield (
            "  failed",
            f"{failed.only_first} in {runs[0]} only, {failed.only_second} in {runs[1]} only",
        )
    if agreement.texts is not None:
        yield from _text_lines(agreement.texts, details)
    if agreement.likelihoods is not None:
        yield from _likelihood_lines(agreement.likelihoods, runs[0], details)
    rows = []
    for row, answers in agreement.answers.items():
        neither = (
            f"; {answers.neither} without an answer in either run" if answers.neither else ""
        )
        rows.append((row, f"{_equal(answers.equal, answers.samples)}{neither}"))
    for text, names in wording.names_by(rows).items():
        yield "  answers", f"{text}, read by {names}"
    if details and agreement.examples:
        yield "  look at", ", ".join(agreement.examples)


def _text_lines(texts: TextAgreement, details: bool) -> _Lines:
    """Yield the number of equal replies, with ``details`` also where different ones part."""
    equal = _equal(texts.equal, texts.samples)
    if texts.equal_but_spaces:
        equal += f", {texts.equal_but_spaces} more but for white space"
    yield "  replies", equal
    if details and texts.characters and texts.words:
        first_difference = (
            f"after {texts.characters['median']:.0f} characters, {texts.words['median']:.0f} words (median); "
            f"{texts.at_first_word} within the first word"
        )
        yield "  they part", first_difference


def _likelihood_lines(
    losses: LikelihoodAgreement,
    run: str,
    details: bool,
) -> _Lines:
    """Yield the agreement of likelihoods and of the options chosen by them.

    Args:
        losses: Agreement of two runs.
        run: Letter of the first run, whose margins between options tell which flips are near ties.
        details: Whether the size of differences is yielded, too.
    """
    yield "  likelihoods", f"{_equal(losses.equal, losses.samples)} to the last digit"
    if details and losses.absolute:
        size = ", ".join(f"{name} {value:.2g}" for name, value in losses.absolute.items())
        yield "  difference", f"{size} nats per token; mean with sign {losses.mean_signed:+.2g}"
    choices = _equal(losses.equal_choices, losses.samples)
    if losses.flips:
        near = sum(flip.margin <= NEAR_TIE for flip in losses.flips)
        choices += f"; {near} of {len(losses.flips)} flips at near ties ({run}'s margin at most {NEAR_TIE:g} nats)"
    yield "  choices", choices
    if losses.greedy_options:
        yield "  greedy flags", _equal(losses.equal_greedy, losses.greedy_options)


def _equal(part: int, total: int) -> str:
    """Say how many things are equal, with their share unless there are none at all."""
    share = f" ({wording.number(part / total)})" if total else ""
    return f"{part} of {total}{share} equal"


def _as_dict(comparisons: ComparedRuns) -> _Json:
    """Return the JSON of a comparison, with a single named task at the top."""
    tasks = {name: _task_as_dict(name, comparisons) for name in comparisons.tasks}
    settings: dict[str, float] = {"alpha": ALPHA}
    if comparisons.margin is not None:
        settings |= {"margin": comparisons.margin, "near_tie": NEAR_TIE}
    settings |= {"power": POWER, "draws": draws_for(comparisons.tests), "seed": SEED}
    head: _Json = {
        "schema_version": 1,
        "medtasks": __version__,
        "runs": {label: str(path) for label, path in comparisons.runs.items()},
        "settings": settings,
        "models": dict(comparisons.models),
    }
    if comparisons.task is not None:
        return {"task": comparisons.task, **head, **tasks[comparisons.task]}
    if comparisons.margin is not None:
        head["verdict"] = str(comparisons.verdict)
    return {**head, "tasks": tasks, "tasks_not_compared": dict(comparisons.not_compared)}


def _task_as_dict(name: str, comparisons: ComparedRuns) -> _Json:
    """Return the JSON of one task: its verdict, if a margin was given, and all tests."""
    task = comparisons.tasks[name]
    verdict = comparisons.verdicts.get(name)
    record: _Json = {}
    scores: list[_Json] = []
    if verdict:
        for key in ("verdict", "explanation", "lacking", "non_inferiority"):
            record[key] = str(getattr(verdict, key))
        agreement = as_json(verdict.agreement)
        record |= {
            "failed": agreement["failed"],
            "replies": agreement["texts"],
            "likelihoods": agreement["likelihoods"],
            "answers": agreement["answers"],
            "scores": scores,
            "examples": verdict.agreement.examples,
        }
    tests = []
    for test in task.comparisons:
        numbers = {"rule": test.rule, "metric": test.metric, **as_json(test.result)}
        numbers |= {"p_holm": test.holm, "same_as": test.same_as}
        tests.append({"first_run": test.first, "second_run": test.second, **numbers})
        if verdict:
            equivalence = {**as_json(test.equivalence), "shown": is_equivalent(test)}
            scores.append({**numbers, "main": test.main, "equivalence": equivalence})
    return record | {
        "summary": _sentences(name, task, comparisons),
        "data": as_json(task.data),
        "rules": dict(task.rules),
        "warnings": list(task.warnings),
        "repeats": dict(task.repeats),
        "not_compared": [
            {"rule": rule, "metric": metric, "why": why}
            for (rule, metric), why in task.skipped.items()
        ],
        "reply_origins": as_json(task.origins),
        "documents": [
            {"first": first, "second": second, **as_json(overlap)}
            for (first, second), overlap in task.overlaps.items()
        ],
        "comparisons": tests,
    }
