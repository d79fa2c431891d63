"""``medtasks curate review``: experts judge and mend the drafts of a study, on a page or in a spreadsheet."""

import contextlib
import getpass
import re
import signal
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.tables import number_table
from medtasks.cli.curate import StudyFolder
from medtasks.cli.output import say, show
from medtasks.curate.review.reviews import ReviewerFile, opened, read_reviews
from medtasks.curate.study import read_images, read_study
from medtasks.errors import MedTasksError


def review(
    folder: StudyFolder,
    reviewer: Annotated[str | None, typer.Option(help="Name of the reviewer; default: your login name.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of the page; default: any free one.")] = None,
    shuffle: Annotated[int | None, typer.Option(metavar="SEED", help="Show the drafts in a random order.")] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in your browser.")] = False,
    spreadsheet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a spreadsheet (.xlsx) to fill in instead of the page.")
    ] = None,
    read: Annotated[Path | None, typer.Option(metavar="FILE", help="Read a filled-in spreadsheet back.")] = None,
    agreement: Annotated[bool, typer.Option("--agreement", help="Only print how far reviewers agree.")] = False,
) -> None:
    """Judge and mend the drafts of a study on a page of this machine: correctness, relevance, language, score 1-10.

    Nothing leaves the machine. Each reviewer has a file of their own, written after every key.
    """
    from medtasks.curate.drafts import read_drafts
    from medtasks.curate.review.review_sheet import read_sheet, write_sheet
    from medtasks.curate.review.reviewer_agreement import agreements

    if spreadsheet and read:
        raise MedTasksError("--spreadsheet writes and --read reads; take one of them")
    study = read_study(folder)
    if not agreement:
        try:
            name = reviewer or re.sub(r"[^\w-]", "-", getpass.getuser())
        except (KeyError, OSError):
            raise MedTasksError("your login name is not known here; say with --reviewer whose file it is") from None
        with opened(folder, name) as file:
            if spreadsheet:
                write_sheet(file, spreadsheet)
                say(f"drafts in {spreadsheet}: {len(file.drafts)}; keep it as safe as the study")
                say(f"Its reviewer is {file.reviewer}; --reviewer NAME writes one for somebody else.")
            elif read:
                say(f"drafts changed by {read}: {read_sheet(file, read)}")
            else:
                _serve(file, port, shuffle, open_page)
            say(f"{file.summary()}; {file.path}")
    found = agreements(read_reviews(folder, study), read_drafts(folder), read_images(folder))
    if not found and agreement:
        say("There are no two reviewers yet whose agreement could be told.")
    for pair in dict.fromkeys(one.reviewers for one in found):
        of_pair = [one for one in found if one.reviewers == pair]
        rows = [(one.what, str(one.questions), *one.figures) for one in of_pair]
        show(number_table("", (" and ".join(pair), "questions", "equal", "kappa", "95 % interval"), rows))
        for sentence in dict.fromkeys(one.remark for one in of_pair if one.remark):
            say(sentence)


def _serve(file: ReviewerFile, port: int | None, seed: int | None, open_page: bool) -> None:
    from medtasks.curate.review.review_server import doorway, listening

    for ending in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, signal.default_int_handler)  # as Ctrl-C does
    with listening(file, port, seed) as server, doorway(server) as door, contextlib.suppress(KeyboardInterrupt):
        say(f"{file.study.name}, reviewed by {file.reviewer}: {server.url}")
        say("Open it in a browser on this machine; Ctrl-C ends the review.")
        if open_page:
            webbrowser.open(door.as_uri())
        server.serve_forever(poll_interval=0.2)
