"""``medtasks weights``: list, fetch, locate and convert the weights of metrics that are models."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from medtasks.errors import MedTasksError, WeightsMissing, unknown_name
from medtasks.metrics.weights import WEIGHTS, fetch, weights_info, weights_path
from medtasks.metrics.wordnet import load_wordnet, prepare_wordnet

app = typer.Typer(help="List, fetch and convert the weights of metrics that are models.", no_args_is_help=True)
_out = Console(soft_wrap=True, highlight=False)
_ALL = "all"
_WORDNET = "wordnet"
_CONVERTIBLE = "chexbert"


def _here(name: str) -> bool:
    try:
        _ = load_wordnet() if name == _WORDNET else weights_path(name)
    except MedTasksError:
        return False
    return True


@app.command("list")
def list_weights() -> None:
    """List all weights, whether they are on this machine, and under which licence."""
    rows = [("weights", "here", "MB", "what", "licence")]
    for info in WEIGHTS.values():
        here = "yes" if _here(info.name) else "no"
        rows.append((info.name, here, f"{info.size:,.0f}", info.description, info.licence))
    rows.append((_WORDNET, "yes" if _here(_WORDNET) else "no", "11", "synonyms of METEOR", "WordNet licence"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        _out.print(line.rstrip(), markup=False)


@app.command("fetch")
def fetch_weights(
    names: Annotated[list[str], typer.Argument(help="Names, see 'medtasks weights list'; 'all' for all of them.")],
    source: Annotated[
        Path | None, typer.Option(help="For wordnet: a folder or archive with it, in place of the download.")
    ] = None,
) -> None:
    """Download weights; what is here already is not downloaded again."""
    known = (*WEIGHTS, _WORDNET)
    for name in names:
        if name not in (*known, _ALL):
            raise unknown_name("weights", name, (*known, _ALL))
    chosen = known if _ALL in names else tuple(dict.fromkeys(names))
    if source is not None and chosen != (_WORDNET,):
        raise typer.BadParameter("--source is for wordnet alone; other weights are put into their folder by hand")
    failures = []
    for name in chosen:
        try:
            path = prepare_wordnet(source) if name == _WORDNET else fetch(name)
        except MedTasksError as error:
            failures.append(str(error))
        else:
            _out.print(f"{name}: {path}", markup=False)
    if failures:
        raise WeightsMissing("\n".join(failures))


@app.command()
def where(name: Annotated[str, typer.Argument(help="Name, see 'medtasks weights list'.")]) -> None:
    """Print the file or folder that metrics open."""
    print(weights_path(name))  # noqa: T201


@app.command()
def convert(
    name: Annotated[str, typer.Argument(help=f"Only '{_CONVERTIBLE}'.")],
    source: Annotated[Path | None, typer.Option(help="The published file; by default the fetched one.")] = None,
    target: Annotated[Path | None, typer.Option(help="File to write; by default beside the published one.")] = None,
) -> None:
    """Write a published checkpoint as safetensors: smaller, and read at once."""
    if weights_info(name).name != _CONVERTIBLE:
        raise MedTasksError(f"'{name}' needs no conversion; only '{_CONVERTIBLE}' has one")
    published = source or weights_path(name)
    if published.suffix == ".safetensors":
        raise MedTasksError(f"{published} is safetensors already; nothing is left to convert")
    from medtasks.metrics.neural.chexbert.checkpoint import convert as write

    written = write(published, target)
    _out.print(f"Wrote {written} ({written.stat().st_size / 1e6:,.0f} MB)", markup=False)
