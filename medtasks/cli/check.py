"""``medtasks check``: compare a printed number with the score of the replies under the published rule.

Exit code 1 is a verdict, so that anything which prevents a verdict has to leave as :class:`NoVerdict`, with 2.
"""

import math
from collections.abc import Iterator
from typing import Annotated

import typer
from typer import Option

from medtasks.cli.options import (
    FileColumns,
    IncludePath,
    JsonFile,
    KitName,
    ModelName,
    OneRun,
    TaskName,
    look_into,
    named_columns,
)
from medtasks.cli.output import print_state_of_data, say, write_json
from medtasks.errors import MedTasksError, NoVerdict
from medtasks.home import as_json
from medtasks.report.wording import estimate, number, points
from medtasks.runs.foreign.matching import MatchedReplies
from medtasks.runs.recorded_replies import read_with_data
from medtasks.runs.run import Source, replies_to
from medtasks.scores.printed_check import (
    PrintedCheck,
    RuleScore,
    check_printed,
    in_printed_unit,
    printed_number,
)
from medtasks.tasks.task_files import scored_task
from medtasks.version import __version__


def check(
    context: typer.Context,
    task: TaskName,
    replies: OneRun,
    printed: Annotated[
        str,
        Option(
            metavar="NUMBER",
            help="The number with its digits as printed; a share in percent, such as 72.5.",
        ),
    ],
    metric: Annotated[
        str | None, Option(help="Metric that the number is of; default: the task's main one.")
    ] = None,
    model: ModelName = None,
    kit: KitName = None,
    columns_of_file: FileColumns = None,
    json_file: JsonFile = None,
    include_path: IncludePath = None,
) -> None:
    """Check a printed score against the replies: what the published rule gives, and what a careful reading gives.

    The exit code is 0 if the published rule's number, rounded, is the printed one, 1 if it is not, and 2 if there is no
    verdict, as of a file that cannot be read.
    """
    look_into(context, include_path, replies)
    try:
        number_read = printed_number(printed)
        chosen = scored_task(task)
        files = [replies_to(task, Source(path, model)) for path in replies]
        read, documents, data = read_with_data(
            chosen, files, kit, named_columns(columns_of_file)
        )
        verdict = check_printed(chosen, documents, read.only_run, number_read, metric)
    except MedTasksError as error:
        raise NoVerdict(str(error)) from error
    record = {"schema_version": 1, "task": task, "medtasks": __version__, "data": data}
    if read.matched:
        record["matching"] = read.matched.counts
    record["consistent"] = verdict.is_consistent
    write_json(json_file, record | as_json(verdict))
    say(*_sentences(verdict, read.matched), *read.notes)
    print_state_of_data({"": data})
    if not verdict.is_consistent:
        raise typer.Exit(1)


def _sentences(verdict: PrintedCheck, matched: MatchedReplies | None) -> Iterator[str]:
    """Yield the sentences of a verdict: values of the rules, consistency, and other values that fit.

    Args:
        verdict: The verdict on the printed number.
        matched: Rows of a file of another kit and the samples they belong to; None for replies that name their samples.
    """
    compared = verdict.compared
    share = compared.score.share
    decimals = -int(verdict.printed.as_tuple().exponent)
    printed = f"{verdict.printed}%" if share else str(verdict.printed)
    subject = "the published rule"
    if not verdict.is_published:
        subject = "there is no published rule, and the task's own"
    sentence = (
        f"Printed {verdict.metric} {printed}; {subject} ({compared.rule}) gives {_value(compared, decimals)} on "
        f"{_samples(verdict)}"
    )
    if matched:
        left_out = len(matched.unmatched_rows) + len(matched.ambiguous)
        if left_out:
            sentence += (
                f"; {left_out} of {len(matched.file.rows)} rows of the file are matched to none"
            )
    if verdict.guessed:
        sentence += f"; {points(verdict.guessed, share)} of it are replies {verdict.guesses}"
    if verdict.careful:
        sentence += f"; a careful reading ({verdict.careful.rule}) gives {_value(verdict.careful, decimals)}"
    yield f"{sentence}."
    yield _consistency(verdict, printed, decimals)
    for explanation, value in verdict.explanations.items():
        yield f"It is {explanation}: {number(value, share, decimals)}."


def _consistency(verdict: PrintedCheck, printed: str, decimals: int) -> str:
    """Say whether the printed number is the compared rule's score, and how far apart the two are.

    Args:
        verdict: The verdict, with the score of the rule.
        printed: The printed number with its unit.
        decimals: Decimals of the printed number.
    """
    if verdict.is_consistent:
        return f"Consistent: rounded, it is {printed}."
    compared = verdict.compared
    share = compared.score.share
    difference = verdict.printed - in_printed_unit(compared.score.value, share)
    if difference.is_nan():
        return f"Not consistent. {compared.failure}".rstrip()
    gap = float(abs(difference)) / (100 if share else 1)
    side = "above" if difference > 0 else "below"
    return f"Not consistent: {printed} is {points(gap, share, decimals)} {side} it."


def _samples(verdict: PrintedCheck) -> str:
    """Count the samples that a score is from, and those without one by cause."""
    counts = verdict.counts
    losses = {
        "without a reply": verdict.missing,
        "failed": counts.failed,
        "unjudged": counts.unjudged,
    }
    text = f"{counts.scored} of {verdict.samples} samples"
    unscored = [f"{lost} {cause}" for cause, lost in losses.items() if lost]
    if unscored:
        text += f" ({', '.join(unscored)})"
    if verdict.valued not in (None, counts.scored):
        text += f", {verdict.valued} of which it is about"
    return text


def _value(rule_score: RuleScore, decimals: int) -> str:
    """Format a score with its interval, or say that the rule gives no number (NaN)."""
    score = rule_score.score
    if math.isnan(score.value):
        return "no number"
    return estimate(score.value, score.low, score.high, score.share, decimals)
