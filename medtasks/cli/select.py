"""``medtasks data select`` and ``tree``: part of a dataset as a task of its own."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.tables import number_table
from medtasks.cli.data import report_prepared
from medtasks.cli.output import out, say
from medtasks.cli.output import show as print_table
from medtasks.data.document_store import load_documents
from medtasks.data.selecting import SELECTABLE, Criteria, choose, described, selectable

Values = Annotated[list[str] | None, typer.Option()]


def select(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="A prepared dataset, see 'medtasks data list'.")],
    new: Annotated[
        str | None, typer.Option("--as", help="Name of the new task; without it the selection is only shown.")
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
    show: Annotated[
        bool, typer.Option("--list", help="Show the values of the selected questions with counts.")
    ] = False,
) -> None:
    """Select questions by their columns, and make them a task of their own.

    Values of one option are alternatives; all options must match. A value is a full name, its abbreviation in the
    paper, or a pattern with * and ?.
    """
    from medtasks.tasks.own_tasks import select_as, whole_dataset  # imports download libraries

    dataset = whole_dataset(name)
    criteria = read_criteria({column: context.params[column] for column in options()}, where or ())
    documents = load_documents(dataset)
    chosen = choose(documents, criteria)
    condition = f" with {described(criteria)}" if criteria else ""
    pairs = ", of a pair both images if one has it" if criteria and "pair_id" in documents[0] else ""
    say(f"{dataset}: {len(chosen)} of {len(documents)} questions{condition}{pairs}")
    if show or not criteria:
        for column, counts in selectable(chosen).items():
            rows = [(value, str(counts[value])) for value in sorted(counts, key=lambda value: (-counts[value], value))]
            print_table(number_table("", (column, "questions"), rows))
    if "keyword" in criteria:
        out.print("The keyword is the right answer: accuracy on these questions is that answer's recall.")
    if new is None:
        return
    manifest, tasks = select_as(dataset, criteria, new)
    report_prepared(manifest)
    say(f"Run it with 'lmms_eval --tasks {','.join(tasks)}'")


def tree(
    name: Annotated[str, typer.Argument(help="A prepared dataset, see 'medtasks data list'.")],
    page: Annotated[Path | None, typer.Option("--out", help="The page. Default: NAME_tree.html here.")] = None,
) -> None:
    """Write a self-contained page with a dataset's groups: counts, search, tick boxes and the resulting command.

    The page needs no server and no network. It holds the groups' names and numbers of questions, no texts and no ids.
    """
    from medtasks.audit.report.selection_tree import write_tree_page
    from medtasks.data.dataset_manifest import Manifest
    from medtasks.home import dataset_folder
    from medtasks.tasks.own_tasks import tasks_of_part, whole_dataset

    dataset = whole_dataset(name)
    documents = load_documents(dataset)
    path = page or Path(f"{name}_tree.html")
    sample = Manifest.read(dataset_folder(dataset)).sample
    write_tree_page(dataset, documents, options(), path, selects=bool(tasks_of_part(dataset, dataset)), sample=sample)
    say(f"Page: {path} ({len(documents)} questions)")


def read_criteria(chosen: Mapping[str, Sequence[str] | None], where: Sequence[str]) -> Criteria:
    """Return the values of all options and conditions ``COLUMN=VALUE``, by column."""
    criteria = {column: tuple(values) for column, values in chosen.items() if values}
    for condition in where:
        column, _, value = condition.partition("=")
        if not (column and value):
            raise typer.BadParameter(f"--where {condition} is not of the form COLUMN=VALUE")
        criteria[column] = (*criteria.get(column, ()), value)
    return criteria


def options() -> dict[str, str]:
    """Return the options of ``medtasks data select`` by column; other columns are selected with --where."""
    return {name: f"--{name.replace('_', '-')}" for name in inspect.signature(select).parameters if name in SELECTABLE}
