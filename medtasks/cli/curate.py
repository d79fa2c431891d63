"""``medtasks curate``: build a benchmark from own images and reports, step by step."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli.output import say, say_columns
from medtasks.curate.drafts import DraftOutcome, check_not_all_failed, read_drafts, tally
from medtasks.curate.review.reviews import current, read_reviews
from medtasks.curate.study import StudyKind, read_images, read_pairs, read_study
from medtasks.data.catalogue import Access

app = typer.Typer(help="Build a benchmark of your own from your images and reports.", no_args_is_help=True)

StudyFolder = Annotated[Path, typer.Argument(metavar="STUDY", help="Folder of the study.")]

StudyName = Annotated[
    str | None, typer.Option("--name", help="Name of the dataset and tasks to be; by default that of the folder.")
]
AccessLevel = Annotated[
    Access, typer.Option("--access", help="Who may see images and reports: no credentialed ones leave this machine.")
]
MaxRequests = Annotated[
    int | None,
    typer.Option(min=0, help="Most requests to send; the next run goes on. MEDTASKS_JUDGE_MAX_REQUESTS."),
]


def show(folder: StudyFolder) -> None:
    """Show what a study holds, and what became of each request and draft."""
    study = read_study(folder)
    drafts = read_drafts(folder)
    pairs = f", {len(read_pairs(folder))} pairs" if study.kind is StudyKind.PAIRS else ""
    say(f"{study.name}: {study.kind}, {study.access}, {len(read_images(folder))} images{pairs}, {len(drafts)} drafts")
    say_outcomes(folder)
    for review in read_reviews(folder, study):
        scored = [said for said in current(review, drafts).values() if said.scores is not None]
        say(f"{review.reviewer}: scored {len(scored)} of {len(drafts)} drafts")


def say_outcomes(folder: Path) -> None:
    """Print what the requests and drafts of a study came to, and why."""
    rows = [(str(number), *about) for about, number in sorted(tally(folder, read_study(folder).kind).items())]
    say_columns([("number", "of", "outcome", "why"), *rows])


def say_drafted(folder: Path, counts: Counter[DraftOutcome]) -> None:
    """Print that likewise after drafting, and what to do about requests that failed; an error where all of them did."""
    say_outcomes(folder)
    check_not_all_failed(folder, counts)
    if counts[DraftOutcome.FAILED] or counts[DraftOutcome.NOT_ASKED]:
        say("Some requests failed or were not sent; run the same command again to go on.")
    if read_drafts(folder):
        say(f"Next: medtasks curate review {folder}, then medtasks curate publish {folder}")
