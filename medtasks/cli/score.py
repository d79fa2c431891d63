"""``medtasks score``, ``judge`` and ``parse``: read recorded replies again, without a model.

Every sample that is in no score has to be counted in the printed lines: a failure is never a number.
"""

import json
import math
import sys
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from medtasks.cli.options import (
    FileColumns,
    GroupColumns,
    HelpedBy,
    IncludePath,
    JsonFile,
    KitName,
    MaxFailed,
    ModelName,
    OneRun,
    Prevalence,
    TaskName,
    columns_of,
    for_prevalence,
    look_into,
    named_columns,
)
from medtasks.cli.output import print_state_of_data, say, show, write_json
from medtasks.data.safe_parsing import parse_json
from medtasks.data.samples import Documents
from medtasks.errors import MedTasksError, RepliesError
from medtasks.extract.extractor_registry import AnswerKind, extractor_of, extractors
from medtasks.families.family import Replies
from medtasks.home import as_json
from medtasks.judges.judge_check import check_judge
from medtasks.judges.judge_client import judge_for
from medtasks.metrics.missing_weights import fetch_command
from medtasks.report.group_tables import class_tables, group_tables
from medtasks.report.report_model import TaskReport
from medtasks.report.tables import Table, number_table
from medtasks.report.task_tables import class_table
from medtasks.report.wording import (
    cluster_notes,
    estimate,
    measure_text,
    names_by,
    number,
    with_error,
)
from medtasks.runs.recorded_replies import read_recorded, read_with_data
from medtasks.runs.replies import take_answer_field
from medtasks.runs.reply_origins import read_origins
from medtasks.runs.run import Source, replies_to
from medtasks.runs.sample_counts import DEFAULT_LIMIT, GREEN_FAILED, FailureLimit, SampleCounts
from medtasks.scores.draw_notes import UNWEIGHTED_TABLES, draw_notes, metrics_without_mean
from medtasks.scores.error_classes import (
    OF_ANSWERS,
    WrongAnswer,
    count_kinds,
    draw_wrong_answers,
    export_wrong_answers,
)
from medtasks.scores.error_labels import kinds_by_human, read_error_labels
from medtasks.scores.helped_scores import with_help
from medtasks.scores.joint_judging import judge_side_by_side
from medtasks.scores.judge_labels import CheckedScore, checked_scores, read_labels, write_sheet
from medtasks.scores.reply_parsing import EXAMPLE, parse_reply
from medtasks.scores.score_model import MetricScore, RuleScores
from medtasks.scores.scoring import PAIR_METRICS, rule_as_dict, score_replies, verdict_scores
from medtasks.scores.subgroups import grouped_by
from medtasks.scores.task_calibration import class_areas
from medtasks.stats.calibration import ClassArea
from medtasks.tasks.documents import private_datasets, task_documents
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_files import scored_task
from medtasks.version import __version__

Tables = Iterator[Table]
ScoresByRule = Mapping[str, RuleScores]
CheckedByRule = Mapping[str, CheckedScore]  # none without labels
judge_app = typer.Typer(
    help="Check a judge, or have several runs judged together.", no_args_is_help=True
)


_REPLY_RULES = [
    name for name, rule in extractors().items() if rule.kind is not AnswerKind.LIKELIHOODS
]


def score(
    context: typer.Context,
    task: TaskName,
    replies: Annotated[
        list[Path],
        Argument(
            help="Folder of a run (its --output_path), with the newest results of TASK; or files of one run: samples "
            'files of the harness, lines of {"doc_id", "reply"} or {"id", "reply"}, or files of other kits and tables.'
        ),
    ],
    answer_field: Annotated[
        str | None, Option(help="Score only this field of replies that are JSON objects.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        Option(help="For reports: one more of 'medtasks metrics'; repeatable."),
    ] = None,
    export_errors: Annotated[
        Path | None, Option(help="CSV file for all wrong answers, for a human to judge.")
    ] = None,
    size: Annotated[
        int | None, Option(min=1, help="Export a sample: wrong answers to this many questions.")
    ] = None,
    error_labels: Annotated[
        Path | None, Option(help="Such a CSV file with a human's judgements: counts them.")
    ] = None,
    labels: Annotated[
        Path | None, Option(help="Labels of 'medtasks judge sample': corrects the score.")
    ] = None,
    model: ModelName = None,
    max_failed: MaxFailed = DEFAULT_LIMIT,
    by: GroupColumns = None,
    helped_by: HelpedBy = None,
    prevalence: Prevalence = None,
    kit: KitName = None,
    columns_of_file: FileColumns = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Score recorded replies under every rule of a task. Pairs are also scored by category, others by group.

    Samples without a reply or a judge's verdict are in no score; the exit code is 1 if they are more than --max-failed.
    """
    limit = FailureLimit.parse(max_failed)
    look_into(context, include_path, replies)
    chosen = scored_task(task)
    _check_options(chosen, export_errors, error_labels, size)
    files = [replies_to(task, Source(path, model)) for path in replies]
    read, documents, data = read_with_data(chosen, files, kit, named_columns(columns_of_file))
    columns = columns_of(by)
    chosen = grouped_by(chosen, documents, columns)
    runs = [take_answer_field(run, answer_field) for run in read.runs]
    recorded = dict(ChainMap(*runs))
    rules = _scores_of_runs(chosen, documents, runs, metric or ())
    scores: Sequence[RuleScores] = list(rules.values())
    help_notes: list[str] = []
    if helped_by is not None:
        scores, help_notes = with_help(chosen, read.only_run, scores, Source(helped_by))
    (scores,) = for_prevalence([scores], prevalence)
    rules = dict(zip(rules, scores, strict=True))
    _export_errors(export_errors, chosen, documents, rules, size)
    by_human = _kinds_by_human(error_labels, rules)
    checked = _checked_scores(chosen, documents, runs, labels)
    classes = class_areas(chosen, documents, recorded)
    summary: dict[str, Any] = {
        "schema_version": 1,
        "task": task,
        "medtasks": __version__,
        "data": data,
        "replies": len(recorded),
        "missing": len(documents) - len(recorded),
    }
    replied = {doc_id for doc_id, reply in recorded.items() if not reply.is_failure}
    unweighted = [*metrics_without_mean(chosen.metrics), UNWEIGHTED_TABLES]
    notes = draw_notes(data, documents, replied, unweighted) + help_notes
    # Parts that not every score has.
    if read.matched is not None:
        summary["matching"] = read.matched.counts
    if answer_field is not None:
        summary["answer_field"] = answer_field
    if classes:
        summary["likelihood_auroc"] = as_json(classes)
    if notes:
        summary["draw_notes"] = notes
    write_json(
        json_file, {**summary, "rules": _rules_as_json(chosen, rules, checked, by_human)}
    )
    _print_origins(files, replies, read.notes)
    title = f"{task}: {len(replied)} of {len(documents)} questions answered"
    if len(replied) < len(recorded):
        title = f"{task}: {len(recorded)} asked, {len(replied)} answered"
    tables = _tables(title, chosen, rules, classes, by_human, checked, columns)
    say(*notes)
    _print_scores(tables, rules, data, len(recorded), len(documents), limit)


def _checked_scores(
    task: TaskFile,
    documents: Documents,
    runs: Sequence[Replies],
    labels: Path | None,
) -> CheckedByRule:
    """Correct the scores of the only run by people's labels.

    Args:
        task: The task.
        documents: Its documents.
        runs: Replies of each run.
        labels: File with the labels; None if there are none.

    Returns:
        Corrected scores by rule, none without labels.

    Raises:
        RepliesError: There are labels and several runs.
    """
    if labels is None:
        return {}
    if len(runs) > 1:
        raise RepliesError(
            f"--labels are those of one run, and there are {len(runs)}; leave them out"
        )
    return checked_scores(task, documents, runs[0], read_labels(labels))


def _check_options(
    task: TaskFile,
    export_errors: Path | None,
    error_labels: Path | None,
    size: int | None,
) -> None:
    """Refuse options on wrong answers that do not fit the task or each other.

    Args:
        task: The task.
        export_errors: File for wrong answers; None writes none.
        error_labels: File with a human's judgements; None without one.
        size: Number of questions to draw wrong answers to; None for all.

    Raises:
        RepliesError: The task scores no answers as right or wrong.
        BadParameter: ``size`` comes without a file to write.
    """
    names = {declared.name for declared in task.metrics}
    for option, path in (("--export-errors", export_errors), ("--error-labels", error_labels)):
        if path and names.isdisjoint(OF_ANSWERS):
            raise RepliesError(
                f"'{task.name}' scores no single answers as right or wrong, so {option} would list none"
            )
    if size and not export_errors:
        raise typer.BadParameter(
            "--size is the number of questions that --export-errors lists; name its file"
        )


def _export_errors(
    path: Path | None,
    task: TaskFile,
    documents: Documents,
    rules: ScoresByRule,
    size: int | None,
) -> None:
    """Write wrong answers to a file.

    Args:
        path: The file; None writes none.
        task: The task.
        documents: Its documents.
        rules: Scores by rule, with their wrong answers.
        size: Number of questions to draw; None writes the wrong answers to all questions.
    """
    if path is None:
        return
    wrong: Mapping[str, Sequence[WrongAnswer]]
    wrong = {name: scores.wrong for name, scores in rules.items()}
    if size:
        wrong = draw_wrong_answers(wrong, size, task.breakdown)
    export_wrong_answers(path, private_datasets(task, documents), wrong)


def _kinds_by_human(path: Path | None, rules: ScoresByRule) -> dict[str, RuleScores]:
    """Return the kinds of wrong answers by a human's judgements in a file, if there is one, by name of the rule."""
    if path is None:
        return {}
    labels = read_error_labels(path)
    answers = chain.from_iterable(rule.wrong for rule in rules.values())
    unmatched = labels.keys() - {answer.key for answer in answers}
    if unmatched:
        say(
            f"Judgements in {path} of no wrong answer of this run, left out: {len(unmatched)} of {len(labels)}."
        )
    by_rule = {}
    for name, rule in rules.items():
        by_rule[name] = replace(
            rule, scores=tuple(kinds_by_human(rule.wrong, labels)), reasons={}
        )
    return by_rule


def _rules_as_json(
    task: TaskFile,
    rules: ScoresByRule,
    checked: CheckedByRule,
    by_human: ScoresByRule,
) -> dict[str, dict[str, Any]]:
    """Return scores as JSON by rule, with corrected scores and a human's judgements under the rules that have them."""
    by_rule = {name: rule_as_dict(task, scores) for name, scores in rules.items()}
    for name, check in checked.items():
        by_rule[name]["judge"] = {
            "metric": check.metric,
            "judged": check.judged,
            **as_json(check.judge),
        }
    for name, kinds in by_human.items():
        by_rule[name]["wrong_answers_by_human"] = as_json(kinds.estimates)
    return by_rule


def _scores_of_runs(
    task: TaskFile,
    documents: Documents,
    runs: Sequence[Replies],
    metrics: Sequence[str],
) -> dict[str, RuleScores]:
    """Score the replies of each run. The names of rules tell several runs apart."""
    own_metrics = {declared.name for declared in task.metrics}
    further = [name for name in metrics if name not in own_metrics]
    rules: dict[str, RuleScores] = {}
    for count, replies in enumerate(runs, start=1):
        for name, scores in score_replies(task, documents, replies, further).items():
            rules[name if len(runs) == 1 else f"{name}, run {count}"] = scores
    return rules


def _print_origins(
    files: Sequence[Path], replies: Sequence[Path], matching: Sequence[str]
) -> None:
    """Print the files that were read in place of folders, and where their replies come from.

    Args:
        files: Files that were read.
        replies: Files and folders that the user named.
        matching: Sentences on rows of another kit's files and their samples; empty for files of ours.
    """
    for file in sorted({*files} - {*replies}):
        say(f"Replies: {file}")
    say(*matching)
    origins = "" if matching else str(read_origins(*files))
    if origins:
        say(f"{origins}.")


def _print_scores(
    tables: Tables,
    rules: ScoresByRule,
    data: Mapping[str, Any],
    replies: int,
    documents: int,
    limit: FailureLimit,
) -> None:
    """Print tables and notes.

    Raises:
        MedTasksError: Too many samples are in no score, or a metric fails.
    """
    _show_with_notes(tables)
    if replies < documents:
        say(
            f"Questions without a reply, left out and not counted as wrong: {documents - replies}."
        )
    incomplete = [rule.pairs.incomplete for rule in rules.values() if rule.pairs]
    if any(incomplete):
        say(
            f"Pairs with one reply only, left out of set accuracy and confusion: {max(incomplete)}."
        )
    _print_remarks(rules)
    print_state_of_data({"": data})
    injections = max(map(int, _estimates_of("possible_injection", rules)), default=0)
    if injections:
        say(
            f"Replies that seem to address the judge: {injections} of {replies}; compare 'fenced'."
        )
    problems = [*_print_losses(rules, limit), *_failed_metrics(rules)]
    if problems:
        raise MedTasksError("\n".join(problems))


def _print_remarks(rules: ScoresByRule) -> None:
    """Print the sentences of metrics on their scores, each once."""
    say(*dict.fromkeys(chain.from_iterable(rule.remarks for rule in rules.values())))


def _show_with_notes(tables: Tables) -> None:
    """Print tables, each with the notes that no earlier one has."""
    notes: dict[str, None] = {}
    for table in tables:
        show(table)
        say(*(note for note in table.notes if note not in notes))
        notes |= dict.fromkeys(table.notes)


def _print_losses(rules: ScoresByRule, limit: FailureLimit) -> Iterator[str]:
    """Print how many samples are in no score, and yield one sentence if they are too many."""
    counts = [rule.counts for rule in rules.values()]
    worst = max(counts, key=lambda count: count.lost, default=SampleCounts(0, 0))
    score_name = "score"
    if any(_estimates_of(GREEN_FAILED, rules)) and not worst.failed:
        score_name = "score of their judge"  # other scores need no judge
    if worst.lost:
        say(f"In no {score_name}: {worst}.")
    if not limit.allows(worst):
        retry = ""
        if worst.unjudged:
            retry = "; judge them again with this command once the judge answers"
        yield f"{worst}, which is more than --max-failed {limit}, and they are in no {score_name}{retry}"


def _estimates_of(metric: str, rules: ScoresByRule) -> list[float]:
    """Return the values of a metric under the rules that have it."""
    estimates = [rule.estimates for rule in rules.values()]
    return [by_metric[metric].value for by_metric in estimates if metric in by_metric]


def _failed_metrics(rules: ScoresByRule) -> Iterator[str]:
    """Yield why metrics could not be computed, with one command for all missing weights."""
    failures: dict[str, str] = {}
    for rule in rules.values():
        failures |= rule.failures
    fetch = fetch_command(failures)
    for name, cause in failures.items():
        if fetch and "medtasks weights fetch" in cause:
            failures[name] = f"weights are missing; run: {fetch}"
    for cause, names in names_by(failures.items()).items():
        yield f"{names} could not be computed: {cause}"


def _category_tables(rules: ScoresByRule) -> Tables:
    """Yield the counts by category, a table per rule."""
    columns = ("category", "images", "set", "individual", "confusion", "invalid")
    for name, rule in rules.items():
        rows = []
        for category, counts in rule.categories.items():
            values = [number(getattr(counts, metric)) for metric in PAIR_METRICS]
            rows.append((category, str(counts.images), *values))
        # The last row is the total.
        yield number_table(f"{name} ({rule.rule})", columns, rows, split=len(rows) - 1)


def _accuracy_tables(rules: ScoresByRule, by: Sequence[str]) -> Tables:
    """Yield the accuracy by groups, a table per column, but for those in ``by``, which have tables of their own."""
    first = next(iter(rules.values()))
    for column, groups in first.groups.items():
        if column in by or not groups:
            continue
        by_rule = []
        for rule in rules.values():
            by_rule.append({group.name: group.scores[0] for group in rule.groups[column]})
        rows = []
        for group in groups:
            scores = [by_group[group.name] for by_group in by_rule]
            rows.append((group.name, str(group.questions), *map(_error_cell, scores)))
        table = number_table(
            f"accuracy by {column.replace('_', ' ')} ± standard error",
            (column, "questions", *rules),
            rows,
        )
        yield replace(table, notes=(*table.notes, *cluster_notes(by_rule[0])))


def _tables(
    title: str,
    task: TaskFile,
    rules: ScoresByRule,
    classes: Sequence[ClassArea],
    by_human: ScoresByRule,
    checked: CheckedByRule,
    by: Sequence[str],
) -> Tables:
    """Yield the tables of a task.

    Args:
        title: Title of the first table.
        task: The task.
        rules: Scores by name of the rule.
        classes: Areas under curves; none without likelihoods of classes.
        by_human: Numbers of wrong answers as a human judged them, by rule; none without such judgements.
        checked: Scores corrected by people's labels, by rule; none without labels.
        by: Columns of groups that are compared, a table each.
    """
    paired = task.family.paired
    yield _score_table(title, rules, paired=paired)
    if paired:
        yield from _category_tables(rules)
    # Groups and wrong answers are defined where there is an accuracy.
    scored = {} if paired else _rules_with_accuracy(rules)
    if scored:
        yield from _accuracy_tables(scored, by)
        yield from _wrong_answer_tables(scored)
    yield from class_tables(task.name, rules.values())
    if classes:
        yield class_table(task.name, classes)
    if by_human:
        yield _score_table("wrong answers, as a human judged them", by_human, paired=False)
    report = TaskReport("", "", rules=tuple(rules.values()))
    for column in by:
        yield from group_tables(report, column)
    if checked:
        yield _label_table(checked)


def _rules_with_accuracy(rules: ScoresByRule) -> ScoresByRule:
    """Return the rules under which a task has an accuracy that is defined, by name."""
    with_accuracy = {}
    for name, rule in rules.items():
        accuracy = rule.estimates.get("accuracy")
        if accuracy and math.isfinite(accuracy.value):
            with_accuracy[name] = rule
    return with_accuracy


def _score_table(title: str, rules: ScoresByRule, *, paired: bool) -> Table:
    """Return the scores, and the number of replies by reason, per rule."""
    rows: list[tuple[str, ...]] = []
    for name in next(iter(rules.values())).estimates:
        if not paired or name in PAIR_METRICS:
            scores = [rule.estimates[name] for rule in rules.values()]
            rows.append((name, *map(_error_cell, scores)))
    for reason in sorted(set().union(*(rule.reasons for rule in rules.values()))):
        counts = [str(rule.reasons.get(reason, 0)) for rule in rules.values()]
        rows.append((f"replies: {reason}", *counts))
    return number_table(title, ("score ± standard error", *rules), rows)


def _wrong_answer_tables(rules: ScoresByRule) -> Tables:
    """Yield the number of wrong answers of each kind, if there are any."""
    by_rule = [count_kinds(rule.wrong) for rule in rules.values()]
    kinds: dict[str, None] = {}
    for counts in by_rule:
        kinds |= dict.fromkeys(counts)
    rows = []
    for kind in kinds:
        rows.append((kind, *(str(counts.get(kind, 0)) for counts in by_rule)))
    if rows:
        yield number_table("", ("wrong answers", *rules), rows)


def _label_table(checked: CheckedByRule) -> Table:
    """Return the agreement of a judge with people, and the corrected score, per rule."""
    checks = checked.values()
    rows = [("labelled replies", *(str(check.judge.labels) for check in checks))]
    for name in ("sensitivity", "specificity", "kappa", "corrected"):
        share = name != "kappa"
        texts = [measure_text(getattr(check.judge, name), share=share) for check in checks]
        rows.append((name, *texts))
    judged = [f"{check.metric} {number(check.judged)}" for check in checks]
    rows.insert(-1, ("judged score", *judged))  # above the corrected one
    return number_table("judge against people's labels [95 % interval]", ("", *checked), rows)


def _error_cell(score: MetricScore) -> str:
    return with_error(score.value, score.error, score.share, score.low, score.high)


@judge_app.command()
def sample(
    context: typer.Context,
    task: Annotated[str, Argument(help="One of our tasks with a judge, see 'medtasks tasks'.")],
    replies: OneRun,
    sheet: Annotated[Path, Option("--out", help="New CSV file to write.")] = Path(
        "judge_labels.csv"
    ),
    size: Annotated[
        int, Option(min=4, help="Largest number of replies, half of each verdict.")
    ] = 200,
    rule: Annotated[
        str | None, Option(help="Rule with the verdicts; default: the task's first.")
    ] = None,
    model: ModelName = None,
    include_path: IncludePath = None,
) -> None:
    """Draw judged replies for people to label. 'medtasks score TASK RUN --labels FILE' reads the labels.

    The judge is asked for verdicts that are missing. Half of the replies have each verdict; if too few have one, more
    have the other.
    """
    look_into(context, include_path, replies)
    chosen = scored_task(task)
    documents = task_documents(chosen)
    files = [replies_to(task, Source(path, model)) for path in replies]
    recorded = read_recorded(chosen, documents, files).logged_run(task)
    right, wrong = write_sheet(sheet, chosen, documents, recorded, size, rule)
    say(
        f"replies in {sheet}: {right} that the judge calls right, {wrong} that it calls wrong",
        f"Write yes or no under 'right'; then run: medtasks score {task} RUN --labels {sheet}",
    )


@judge_app.command()
def joint(
    context: typer.Context,
    task: Annotated[
        str,
        Argument(
            help="Task with a prompt about several models: medheval_knowledge_open_eleven, ..."
        ),
    ],
    runs: Annotated[
        list[Path],
        Argument(help="A folder or samples file of each of 2 to 11 runs, model_1 first."),
    ],
    max_failed: MaxFailed = DEFAULT_LIMIT,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Have the replies of several runs judged side by side, one request per sample, as in MedHEval's paper.

    Verdicts are kept for each run: 'medtasks score' and 'compare' use them, as long as its replies stay the same.
    """
    limit = FailureLimit.parse(max_failed)
    look_into(context, include_path, runs)
    chosen = scored_task(task)
    documents = task_documents(chosen)
    files = [replies_to(task, Source(path)) for path in runs]
    replies = [read_recorded(chosen, documents, [file]).logged_run(task) for file in files]
    fewer = judge_side_by_side(chosen, documents, replies)
    by_model = {}
    as_dict = {}
    rules: dict[str, RuleScores] = {}
    for n, (file, run) in enumerate(zip(files, replies, strict=True), start=1):
        model = f"model_{n}"
        say(f"{model}: {file}")
        rows = verdict_scores(chosen, documents, run)
        by_model[model] = rows
        as_dict[model] = _rules_as_json(chosen, rows, {}, {})
        rules |= {f"{model}, {name}": scores for name, scores in rows.items()}
    for rule in chosen.rows:
        scores_by_model = {model: rows[rule] for model, rows in by_model.items()}
        show(_score_table(rule, scores_by_model, paired=False))
    if fewer:
        say(
            f"Questions without a reply in some run, judged with fewer answers side by side: {fewer}."
        )
    _print_remarks(rules)
    write_json(
        json_file,
        {"schema_version": 1, "task": task, "medtasks": __version__, "models": as_dict},
    )
    for problem in _print_losses(rules, limit):
        raise MedTasksError(problem)


@judge_app.command()
def check(json_file: JsonFile = None) -> None:
    """Ask the judge of MEDTASKS_JUDGE_* made-up cases with known answers. Its scores then show how many it gets right.

    Cases are pairs of reports with a planted error, short answers, and answers that address the judge. The exit code is
    1 if a case gets no reply.
    """
    judge = judge_for(None, "there is no judge to check")
    shares = check_judge(judge)
    rows = []
    for name, share in shares.items():
        interval = estimate(share.right / share.cases, share.low, share.high, True)
        rows.append((name.replace("_", " "), f"{share.right} of {share.cases}", interval))
    show(
        number_table(
            f"check of {judge.settings.label}",
            ("cases", "right", "share [95 % interval]"),
            rows,
        )
    )
    by_kind = {name: asdict(share) for name, share in shares.items()}
    write_json(
        json_file, {"medtasks": __version__, "judge": judge.settings.label, "shares": by_kind}
    )


def parse(
    rule: Annotated[str, Argument(help=f"One of: {', '.join(_REPLY_RULES)}.")],
    language: Annotated[
        str | None,
        Option(help="Language of the replies, such as de; default: found by itself."),
    ] = None,
) -> None:
    """Read {"reply", "options"} per line from standard input. Print value and reason per line, and facts if there are.

    Rules for yes/no also look at a line's "question", and those that compare need its "answer".
    """
    extractor_of(rule)
    try:
        for number, line in enumerate(sys.stdin, start=1):
            if line.strip():
                place = f"standard input line {number}"
                item = {"language": language, **_object_in(line, place)}
                print(json.dumps(parse_reply(rule, item, place)))  # noqa: T201
    except UnicodeDecodeError as error:
        raise RepliesError(f"standard input is not UTF-8 text: {error}") from error


def _object_in(line: str, place: str) -> dict[str, Any]:
    """Read a line of JSON, or raise a RepliesError that names its place if it is no object."""
    item: Any = None
    cause = "it is no object"
    try:
        item = parse_json(line)
    except ValueError as error:
        cause = str(error)
    if not isinstance(item, dict):
        raise RepliesError(f"{place} is not an object like {EXAMPLE}: {cause}")
    return item
