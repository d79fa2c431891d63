"""Comparisons of runs as ``medtasks compare`` and ``parity`` print and write them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from medtasks import __version__
from medtasks.audit.comparing import ComparedTask, Comparison, TaskVerdict, Verdict, is_equivalent, overall
from medtasks.audit.report import wording
from medtasks.audit.report.contents import as_json
from medtasks.audit.report.wording import p_value
from medtasks.audit.run_agreement import NEAR_TIE, Agreement
from medtasks.audit.tables import Table, number_table
from medtasks.cli.output import out, print_state_of_data, say, say_columns, show
from medtasks.runs.harness_options import model_title
from medtasks.stats.paired import ALPHA, DRAWS, DYADIC, POWER, SEED, SIGN_FLIP, draws_for


@dataclass(frozen=True)
class ComparedRuns:
    """Runs of one command, and their comparisons."""

    runs: Mapping[str, Path]  # by letter
    models: Mapping[str, str]  # by letter; empty where none is recorded
    task: str | None  # the only task, if the command names one
    tasks: Mapping[str, ComparedTask]
    not_compared: Mapping[str, str]  # why a task was not compared, by name
    margin: float | None

    @property
    def verdicts(self) -> dict[str, TaskVerdict]:
        """Verdicts by task; none without a margin."""
        if self.margin is None:
            return {}
        return {name: TaskVerdict(task, self.margin) for name, task in self.tasks.items()}

    @property
    def tests(self) -> int:
        """Number of tests that are corrected together."""
        return sum(not test.same_as for task in self.tasks.values() for test in task.comparisons)

    @property
    def verdict(self) -> Verdict:
        """The verdict on all tasks; needs a margin."""
        return overall([verdict.verdict for verdict in self.verdicts.values()])


def print_comparisons(comparisons: ComparedRuns) -> None:
    """Print all comparisons of a command and the verdict on them, without the tests of identical runs."""
    for label, path in comparisons.runs.items():
        say(f"{label}: {path}{comparisons.models[label] and f', model: {comparisons.models[label]}'}")
    tests: list[Comparison] = []
    for name, task in comparisons.tasks.items():
        if (verdict := comparisons.verdicts.get(name)) is not None:
            say(f"\n{name}: {verdict.verdict}")
            for sentence in (verdict.explanation, verdict.lacking, *(f"Note: {warning}." for warning in task.warnings)):
                if sentence:
                    say(sentence)
        elif comparisons.task is None:
            out.print(f"\n[bold]{name}[/]")
        if verdict is None or verdict.verdict is not Verdict.IDENTICAL:
            _print_task(name, task, comparisons.models, details=verdict is not None)
            tests += [test for test in task.comparisons if not test.same_as]
    if any(test.result.test == SIGN_FLIP for test in tests):
        more = f", {draws_for(comparisons.tests)} where p is at most {ALPHA}" * (draws_for(comparisons.tests) > DRAWS)
        out.print(
            f"{SIGN_FLIP}: the models' values are exchanged by cluster; in all ways or {DRAWS} random ones{more}, with "
            f"seed {SEED}."
        )
    if any(test.result.test == DYADIC for test in tests):
        out.print(f"{DYADIC}: pairs that share images are not independent; t test with the dyadic standard error.")
    if tests:
        out.print(
            f"p, Holm: corrected for all {comparisons.tests} tests of this call.\n"
            f"detectable difference: the smallest true one found with {POWER:.0%} power at a level of {ALPHA:.0%} / "
            f"{comparisons.tests}, that of Holm's first step, given how often these runs differ."
        )
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
    print_state_of_data({name: task.data for name, task in comparisons.tasks.items()})


def _sentences(name: str, task: ComparedTask, models: Mapping[str, str]) -> list[str]:
    """Summarise each pair of runs in one sentence: the main metric under the first rule."""
    main = next((test.metric for test in task.comparisons if test.main), "")
    firsts: dict[tuple[str, str], Comparison] = {}
    for test in task.comparisons:
        if test.metric == main:
            firsts.setdefault((test.first, test.second), test)
    titles = {label: model_title(model).partition(" (")[0] for label, model in models.items()}
    names = {label: f"{label} ({title})" if title else label for label, title in titles.items()}
    sentences = []
    for test in firsts.values():
        result = test.result
        on = f"{name} ({wording.counted(result.samples, 'pair' if test.metric == 'set_accuracy' else 'sample')})"
        first, second = (wording.number(mean, test.share) for mean in (result.first, result.second))
        verdict = f"{test.second} is {'higher' if result.difference > 0 else 'lower'}"
        sentences.append(
            f"On {on}, {names[test.second]} has {test.metric} {second} and {names[test.first]} {first} "
            f"under {test.rule}: difference {wording.signed(result.difference, test.share)}, 95 % interval "
            f"{wording.difference_interval(result.low, result.high, test.share)}, p = {p_value(result.p)} "
            f"(Holm {p_value(test.holm)}): {verdict if test.holm < ALPHA else 'not shown to differ'}."
        )
    return sentences


def _print_task(name: str, task: ComparedTask, models: Mapping[str, str], *, details: bool) -> None:
    for sentence in _sentences(name, task, models):
        say(sentence)
    repeated = [f"{number} of {label}" for label, number in task.repeats.items() if number > 1]
    if repeated:
        say(f"Repeats: {', '.join(repeated)}. Scores are means of each sample over its valid repeats.")
    for (first, second), overlap in task.overlaps.items():
        out.print(
            f"\n{first} and {second}: {overlap.both} of {sum(astuple(overlap))} documents answered in both are "
            f"compared. Left out: {overlap.only_first} answered in {first} only, {overlap.only_second} in {second} "
            f"only, {overlap.neither} in neither."
        )
        say_columns(list(_agreement_lines(task.agreements[first, second], (first, second), details)))
        by_metric, alike = defaultdict(list), defaultdict[tuple[str, str], list[str]](list)
        for test in task.comparisons:
            if (test.first, test.second) == (first, second) and test.same_as:
                alike[test.rule, test.same_as].append(test.metric)
            elif (test.first, test.second) == (first, second):
                by_metric[test.metric].append(test)
        for metric, tests in by_metric.items():
            show(_table(metric, tests))
        for (rule, same), metrics in alike.items():
            say(f"{rule} gives every sample the same {', '.join(metrics)} as {same}; both are one test.")
    say("Rules: " + ", ".join(f"{row} is {rule}" for row, rule in task.rules.items()) + ".")
    rules, left_out = defaultdict[tuple[str, str], list[str]](list), defaultdict[tuple[str, str], list[str]](list)
    for (rule, metric), why in task.skipped.items():
        rules[metric, why].append(rule)
    for (metric, why), names in rules.items():
        left_out[", ".join(names), why].append(metric)
    for (rows, why), metrics in left_out.items():
        say(f"Not compared: {', '.join(metrics)} ({rows}): {why}.")


def _agreement_lines(agreement: Agreement, runs: tuple[str, str], details: bool) -> Iterator[tuple[str, str]]:
    """Yield names and counts of agreement between two runs; with ``details`` also the size of differences."""
    if (failed := agreement.failed).one_sided:
        yield "  failed", f"{failed.only_first} in {runs[0]} only, {failed.only_second} in {runs[1]} only"
    if (texts := agreement.texts) is not None:
        spaces = f", {texts.equal_but_spaces} more but for white space" if texts.equal_but_spaces else ""
        yield "  replies", f"{_share(texts.equal, texts.samples)} equal{spaces}"
        if details and texts.characters and texts.words:
            common = f"{texts.characters['median']:.0f} characters, {texts.words['median']:.0f} words"
            yield "  they part", f"after {common} (median); {texts.at_first_word} within the first word"
    if (losses := agreement.likelihoods) is not None:
        yield "  likelihoods", f"{_share(losses.equal, losses.samples)} equal to the last digit"
        if details and losses.absolute:
            size = ", ".join(f"{name} {value:.2g}" for name, value in losses.absolute.items())
            yield "  difference", f"{size} nats per token; mean with sign {losses.mean_signed:+.2g}"
        near = sum(flip.margin <= NEAR_TIE for flip in losses.flips)
        flips = f"; {near} of {len(losses.flips)} flips at near ties ({runs[0]}'s margin at most {NEAR_TIE:g} nats)"
        yield "  choices", f"{_share(losses.equal_choices, losses.samples)} equal{flips if losses.flips else ''}"
        if losses.greedy_options:
            yield "  greedy flags", f"{_share(losses.equal_greedy, losses.greedy_options)} equal"
    rows = defaultdict[str, list[str]](list)
    for row, answers in agreement.answers.items():
        neither = f"; {answers.neither} without an answer in either run" if answers.neither else ""
        rows[f"{_share(answers.equal, answers.samples)} equal{neither}"].append(row)
    yield from (("  answers", f"{text}, read by {', '.join(names)}") for text, names in rows.items())
    if details and agreement.examples:
        yield "  look at", ", ".join(agreement.examples)


def _share(part: int, total: int) -> str:
    return f"{part} of {total}" + (f" ({wording.number(part / total)})" if total else "")


def _table(metric: str, tests: Sequence[Comparison]) -> Table:
    """Return the table of one metric and two runs; rules are columns."""
    first, second = tests[0].first, tests[0].second
    results = [test.result for test in tests]
    rows: list[tuple[str, ...]] = []
    rows.append(("samples (independent units)", *(f"{result.samples} ({result.units})" for result in results)))
    rows.append((first, *(wording.number(test.result.first, test.share) for test in tests)))
    rows.append((second, *(wording.number(test.result.second, test.share) for test in tests)))
    rows.append((f"{second} - {first}", *(wording.signed(test.result.difference, test.share) for test in tests)))
    intervals = (wording.difference_interval(test.result.low, test.result.high, test.share) for test in tests)
    rows.append(("95 % interval", *intervals))
    rows.append(("test", *(result.test for result in results)))
    rows.append(("p", *(p_value(result.p) for result in results)))
    rows.append(("p, Holm", *(p_value(test.holm) for test in tests)))
    rows.append(("detectable difference", *(wording.points(test.result.detectable, test.share) for test in tests)))
    tested = [(test.equivalence, test.share) for test in tests if test.equivalence]
    if tested:
        ends = (wording.difference_interval(result.low, result.high, share) for result, share in tested)
        rows.append(("90 % interval", *ends))
        rows.append(("p, equivalence", *(p_value(result.p) for result, _ in tested)))
    return number_table(metric, (f"{second} compared with {first}", *(test.rule for test in tests)), rows)


def comparisons_as_dict(comparisons: ComparedRuns) -> dict[str, Any]:
    """Return the JSON of ``compare``, with a margin also that of ``parity``; a single named task is at the top."""
    verdicts = verdicts_as_dict(comparisons) if comparisons.margin is not None else {"tasks": {}, "settings": {}}
    settings = {
        "alpha": ALPHA,
        "power": POWER,
        "draws": draws_for(comparisons.tests),
        "seed": SEED,
        **verdicts["settings"],
    }
    head = {**_head(comparisons), "models": dict(comparisons.models), "settings": settings}
    tasks = {}
    for name, task in comparisons.tasks.items():
        tests = [
            {"first_run": test.first, "second_run": test.second, **_test_as_dict(test)} for test in task.comparisons
        ]
        tasks[name] = {
            **verdicts["tasks"].get(name, {}),
            "summary": _sentences(name, task, comparisons.models),
            **_task_as_dict(task),
            "documents": [
                {"first": first, "second": second, **as_json(overlap)}
                for (first, second), overlap in task.overlaps.items()
            ],
            "comparisons": tests,
        }
    if comparisons.task is not None:
        return {"task": comparisons.task, **head, **tasks[comparisons.task]}
    return {**verdicts, **head, "tasks": tasks, "tasks_not_compared": dict(comparisons.not_compared)}


def verdicts_as_dict(comparisons: ComparedRuns) -> dict[str, Any]:
    """Return the JSON of ``parity``."""
    tasks = {}
    for name, verdict in comparisons.verdicts.items():
        task = comparisons.tasks[name]
        tasks[name] = {
            "verdict": str(verdict.verdict),
            "explanation": verdict.explanation,
            "lacking": verdict.lacking,
            "warnings": list(task.warnings),
            **_task_as_dict(task),
            "documents": as_json(verdict.agreement.overlap),
            "failed": as_json(verdict.agreement.failed),
            "replies": as_json(verdict.agreement.texts),
            "likelihoods": as_json(verdict.agreement.likelihoods),
            "answers": as_json(verdict.agreement.answers),
            "scores": [
                {
                    **_test_as_dict(test),
                    "main": test.main,
                    "equivalence": {**as_json(test.equivalence), "shown": is_equivalent(test)},
                }
                for test in task.comparisons
            ],
            "examples": verdict.agreement.examples,
        }
    return {
        **_head(comparisons),
        "settings": {"margin": comparisons.margin, "alpha": ALPHA, "near_tie": NEAR_TIE},
        "verdict": str(comparisons.verdict),
        "tasks": tasks,
        "tasks_not_compared": dict(comparisons.not_compared),
    }


def _head(comparisons: ComparedRuns) -> dict[str, Any]:
    runs = {label: str(path) for label, path in comparisons.runs.items()}
    return {"schema_version": 1, "medtasks": __version__, "runs": runs}


def _task_as_dict(task: ComparedTask) -> dict[str, Any]:
    left_out = [{"rule": rule, "metric": metric, "why": why} for (rule, metric), why in task.skipped.items()]
    return {
        "data": as_json(task.data),
        "rules": dict(task.rules),
        "repeats": dict(task.repeats),
        "not_compared": left_out,
    }


def _test_as_dict(test: Comparison) -> dict[str, Any]:
    return {
        "rule": test.rule,
        "metric": test.metric,
        **as_json(test.result),
        "p_holm": test.holm,
        "same_as": test.same_as,
    }
