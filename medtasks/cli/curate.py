"""``medtasks curate``: build a benchmark from own images and reports, step by step."""

from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli import curate_pairs
from medtasks.cli.output import say, say_columns
from medtasks.curate.drafts import counted, read_drafted, read_drafts
from medtasks.curate.reviews import current, read_reviews
from medtasks.curate.study import StudyKind, read_images, read_pairs, read_study

app = typer.Typer(help="Build a benchmark of your own from your images and reports.", no_args_is_help=True)

StudyFolder = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder of the study.")]


@app.command()
def show(folder: StudyFolder) -> None:
    """Show what a study holds, and what became of each request and draft."""
    study = read_study(folder)
    drafts = read_drafts(folder)
    pairs = f", {len(read_pairs(folder))} pairs" if study.kind is StudyKind.PAIRS else ""
    say(f"{study.name}: {study.kind}, {study.access}, {len(read_images(folder))} images{pairs}, {len(drafts)} drafts")
    outcomes = counted(read_drafted(folder).values())
    if outcomes:
        rows = [(str(count), outcome, reason) for (outcome, reason), count in sorted(outcomes.items())]
        say_columns([("number", "outcome", "why"), *rows])
    for review in read_reviews(folder, study):
        scored = [said for said in current(review, drafts).values() if said.scores is not None]
        say(f"{review.reviewer}: scored {len(scored)} of {len(drafts)} drafts")


app.command("pairs")(curate_pairs.pairs)
