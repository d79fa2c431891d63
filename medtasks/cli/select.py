"""``medtasks data select``: a part of a dataset as a task of its own."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from medtasks.audit.tables import number_table
from medtasks.cli.data import report_prepared
from medtasks.cli.output import out, say
from medtasks.cli.output import show as print_table
from medtasks.data.document_store import load_documents
from medtasks.data.selecting import Criteria, choose, described, selectable
from medtasks.tasks.own_tasks import select_as, whole_dataset

Values = Annotated[list[str] | None, typer.Option()]


def select(
    name: Annotated[str, typer.Argument(help="A prepared dataset, see 'medtasks data list'.")],
    new: Annotated[
        str | None, typer.Option("--as", help="Name of the new task; without it the choice is shown.")
    ] = None,
    department: Values = None,
    modality: Values = None,
    clinical_task: Values = None,
    granularity: Values = None,
    keyword: Values = None,
    original_task: Values = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=VALUE", help="Any other column: categories, hallucination, ...")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show the values of the chosen questions with counts.")] = False,
) -> None:
    """Choose questions by what their columns say, and make them a task of their own.

    Values of one option are alternatives, options must all fit. A value is a full name, its abbreviation in the paper,
    or a pattern with * and ?.
    """
    dataset = whole_dataset(name)
    options = {
        "department": department,
        "modality": modality,
        "clinical_task": clinical_task,
        "granularity": granularity,
        "keyword": keyword,
        "original_task": original_task,
    }
    criteria = _criteria(options, where or [])
    documents = load_documents(dataset)
    chosen = choose(documents, criteria)
    which = f" with {described(criteria)}" if criteria else ""
    pairs = ", of a pair both images if one has it" if criteria and "pair_id" in documents[0] else ""
    say(f"{dataset}: {len(chosen)} of {len(documents)} questions{which}{pairs}")
    if show or not criteria:
        _show(chosen)
    if "keyword" in criteria:
        out.print("The keyword is the right answer: accuracy on these questions is that answer's recall.")
    if new is None:
        return
    manifest, tasks = select_as(dataset, criteria, new)
    report_prepared(manifest)
    say(f"Run it with 'lmms_eval --tasks {','.join(tasks)}'")


def _criteria(options: Mapping[str, list[str] | None], where: Sequence[str]) -> Criteria:
    criteria: dict[str, tuple[str, ...]] = {column: tuple(values) for column, values in options.items() if values}
    for condition in where:
        column, _, value = condition.partition("=")
        if not (column and value):
            raise typer.BadParameter(f"--where {condition} is not of the form COLUMN=VALUE")
        criteria[column] = (*criteria.get(column, ()), value)
    return criteria


def _show(documents: Sequence[Mapping[str, Any]]) -> None:
    for column, counts in selectable(documents).items():
        rows = [(value, str(counts[value])) for value in sorted(counts, key=lambda value: (-counts[value], value))]
        print_table(number_table("", (column, "questions"), rows))
