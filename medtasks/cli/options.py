"""Options that several commands share."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from medtasks.cli.output import say
from medtasks.metrics.clinical import at_prevalence
from medtasks.runs.foreign.named_columns import FIELDS
from medtasks.runs.foreign.recognition import FORMATS
from medtasks.runs.result_files import recorded_folders
from medtasks.scores.score_model import RuleScores
from medtasks.tasks.task_files import INCLUDE, including, refuse_shipped_names

TaskName = Annotated[str, Argument(help="One of our tasks, see 'medtasks tasks'.")]
OneRun = Annotated[
    list[Path], Argument(help="Folder or files of one run, as for 'medtasks score'.")
]
ModelName = Annotated[
    str | None,
    Option(help="Model to take from a folder with runs of several models."),
]
HelpedBy = Annotated[
    Path | None,
    Option(
        metavar="RUN",
        help="Another model's run on all questions: narrows the intervals of a task of 'data select --draw'.",
    ),
]
MaxFailed = Annotated[
    str,
    Option(help="Number (5) or share (1%) of samples without reply or verdict."),
]
Yes = Annotated[bool, Option("--yes", help="Download more than 5 GB without asking.")]
JsonFile = Annotated[Path | None, Option("--json", help="Also write everything as JSON.")]
GroupColumns = Annotated[
    str | None,
    Option(
        metavar="COLUMN,...",
        help="Compare groups by these columns of the data, such as sex,site.",
    ),
]
Prevalence = Annotated[
    float | None,
    Option(help="Also print the predictive values for this prevalence, such as 0.05."),
]
KitName = Annotated[
    str | None,
    Option(
        "--format", help=f"Kit that wrote the replies, if not recognised: {', '.join(FORMATS)}."
    ),
]
FileColumns = Annotated[
    str | None,
    Option(
        "--columns",
        metavar="reply=COLUMN,...",
        help=f"Columns of a table: {', '.join(FIELDS)}, sheet.",
    ),
]
IncludePath = Annotated[
    list[Path] | None,
    Option(
        INCLUDE,
        "--include-path",
        metavar="FOLDER",
        help="Folder with your own task files. They can run code: give only a folder you trust.",
    ),
]


def named_values(option: str, texts: Sequence[str], form: str) -> list[tuple[str, str]]:
    """Split the values of a repeatable option at their first equals sign.

    Args:
        option: The option, as the message names it.
        texts: Values such as ``chexbert=weights.pth``.
        form: Form of a value, as the message describes it.

    Raises:
        BadParameter: One side of a value is empty.

    Example:
        >>> named_values("--weights", ["chexbert=weights.pth"], "NAME=PATH")
        [('chexbert', 'weights.pth')]
    """
    pairs = []
    for text in texts:
        name, _, value = text.partition("=")
        if not (name and value):
            raise typer.BadParameter(f"{option} {text} is not of the form {form}")
        pairs.append((name, value))
    return pairs


def columns_of(by: str | None) -> list[str]:
    """Return the columns that --by names, each once, or none if the option is missing (None).

    Example:
        >>> columns_of("sex, site,sex")
        ['sex', 'site']
    """
    return list(dict.fromkeys(split_names(by or "")))


def split_names(text: str) -> list[str]:
    """Return the names between commas.

    Example:
        >>> split_names("sex, site,")
        ['sex', 'site']
    """
    return list(filter(None, map(str.strip, text.split(","))))


def named_columns(text: str | None) -> dict[str, str]:
    """Return the columns that --columns names, by our names of them.

    A comma that none of our names follows is part of a column's name, or of the list of columns with options.

    Raises:
        BadParameter: A part is not of the form ``NAME=COLUMN``.

    Example:
        >>> named_columns("options=A,B,C, reply=answer")
        {'options': 'A,B,C', 'reply': 'answer'}
    """
    names = "|".join((*FIELDS, "sheet"))
    parts = re.split(rf",\s*(?=(?:{names})=)", text) if text else []
    columns = {}
    for part in parts:
        name, _, column = part.partition("=")
        if not column or re.fullmatch(names, name.strip()) is None:
            raise typer.BadParameter(
                f"--columns {text} is not of the form reply=COLUMN,id=COLUMN; names: {names}"
            )
        columns[name.strip()] = column.strip()
    return columns


def for_prevalence(
    tasks: Sequence[Sequence[RuleScores]], prevalence: float | None
) -> list[tuple[RuleScores, ...]]:
    """Add predictive values for another prevalence to the scores of tasks under each rule.

    Args:
        tasks: For each task its scores, one per rule.
        prevalence: Share of samples with the finding, between 0 and 1; None adds nothing.

    Raises:
        BadParameter: The prevalence does not lie between 0 and 1, or no task has clinical numbers.
    """
    if prevalence is None:
        return list(map(tuple, tasks))
    if not 0 < prevalence < 1:
        raise typer.BadParameter(f"--prevalence {prevalence:g} is not between 0 and 1")
    if not any(rule.by_class for rule in itertools.chain.from_iterable(tasks)):
        raise typer.BadParameter(
            "--prevalence needs yes/no questions, classes or findings, and there are none here"
        )
    extended_tasks = []
    for rules in tasks:
        extended_rules = []
        for rule in rules:
            classes = tuple(
                at_prevalence(class_numbers, prevalence) for class_numbers in rule.by_class
            )
            extended_rules.append(replace(rule, by_class=classes))
        extended_tasks.append(tuple(extended_rules))
    return extended_tasks


def look_into(
    context: typer.Context,
    folders: Sequence[Path] | None,
    runs: Sequence[Path] = (),
) -> None:
    """Find tasks in the user's folders, too, until the command ends.

    Folders that runs recorded are only mentioned: their task files can run code, and a run may be a stranger's.

    Args:
        context: Context of the command, which closes the folders when it ends.
        folders: Folders of --include_path; None without the option.
        runs: Folders or files of runs that the command reads.
    """
    context.with_resource(including(folders or ()))
    if runs:
        refuse_shipped_names()
    recorded = [] if folders else recorded_folders(runs)
    if recorded:
        say(
            f"note: the run took tasks from {', '.join(recorded)}, which is not loaded: its task files can run code; "
            f"give it with {INCLUDE} only if you trust them"
        )
