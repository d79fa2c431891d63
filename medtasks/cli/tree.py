"""``medtasks data tree``: a dataset's groups as a page to choose questions from."""

import inspect
from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli.output import say
from medtasks.cli.select import select
from medtasks.data.selecting import SELECTABLE


def tree(
    name: Annotated[str, typer.Argument(help="A prepared dataset, see 'medtasks data list'.")],
    page: Annotated[Path | None, typer.Option("--out", help="The page; by default NAME_tree.html here.")] = None,
) -> None:
    """Write a self-contained page with a dataset's groups: counts, search, tick boxes and the command they make.

    The page needs no server and no network. It holds the groups' names and numbers of questions, no texts and no ids.
    """
    from medtasks.audit.report.tree import write_tree_page
    from medtasks.data.dataset_manifest import Manifest
    from medtasks.data.document_store import load_documents
    from medtasks.home import dataset_folder
    from medtasks.tasks.own_tasks import tasks_of_part, whole_dataset

    dataset = whole_dataset(name)
    documents = load_documents(dataset)
    path = page or Path(f"{name}_tree.html")
    sample = Manifest.read(dataset_folder(dataset)).sample
    write_tree_page(dataset, documents, options(), path, selects=bool(tasks_of_part(dataset, dataset)), sample=sample)
    say(f"Page: {path} ({len(documents)} questions)")


def options() -> dict[str, str]:
    """Return the options of ``medtasks data select`` by the column they choose by; other columns go with --where."""
    return {name: f"--{name.replace('_', '-')}" for name in inspect.signature(select).parameters if name in SELECTABLE}
