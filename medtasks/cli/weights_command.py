"""``medtasks weights``: list, fetch and locate the weights of metrics that are models."""

from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.doctor.metric_weights import WORDNET, weights_trouble
from medtasks.cli.output import say, say_columns
from medtasks.errors import MedTasksError, WeightsMissing, unknown_name
from medtasks.metrics.meteor import prepare_wordnet
from medtasks.metrics.model_settings import WEIGHTS, fetch, weights_path

app = typer.Typer(help="List and fetch the weights of metrics that are models.", no_args_is_help=True)
_ALL = "all"


@app.command("list")
def list_weights() -> None:
    """List all weights, whether they are on this machine, and under which licence."""
    rows = [("weights", "here", "MB", "description", "licence")]
    for info in WEIGHTS.values():
        rows.append((info.name, _here(info.name), f"{info.size:,.0f}", info.description, info.licence))
    rows.append((WORDNET, _here(WORDNET), "11", "synonyms of METEOR", "WordNet licence"))
    say_columns(rows)


def _here(name: str) -> str:
    return "no" if weights_trouble(name) else "yes"


@app.command("fetch")
def fetch_weights(
    names: Annotated[list[str], typer.Argument(help="Names, see 'medtasks weights list'; 'all' for all of them.")],
    source: Annotated[
        Path | None, typer.Option(help="For wordnet: a folder or archive to use instead of the download.")
    ] = None,
) -> None:
    """Download weights; those that are on this machine are not downloaded again."""
    existing = (*WEIGHTS, WORDNET)
    if unknown := [name for name in names if name not in (*existing, _ALL)]:
        raise unknown_name("weights", unknown[0], (*existing, _ALL))
    chosen = existing if _ALL in names else tuple(dict.fromkeys(names))
    if source is not None and chosen != (WORDNET,):
        raise typer.BadParameter("--source is for wordnet alone; other weights are put into their folder by hand")
    failures = []
    for name in chosen:
        try:
            path = prepare_wordnet(source) if name == WORDNET else fetch(name)
        except MedTasksError as error:
            failures.append(str(error))
        else:
            say(f"{name}: {path}")
    if failures:
        raise WeightsMissing("\n".join(failures))


@app.command()
def where(name: Annotated[str, typer.Argument(help="Name, see 'medtasks weights list'.")]) -> None:
    """Print the file or folder that metrics open."""
    print(weights_path(name))  # noqa: T201
