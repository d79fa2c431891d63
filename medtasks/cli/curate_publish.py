"""``medtasks curate publish``: from reviewed drafts to a dataset and tasks of the harness."""

from typing import Annotated

import typer

from medtasks.cli.curate import StudyFolder
from medtasks.cli.data import report_prepared
from medtasks.cli.output import say, say_columns
from medtasks.curate.review.reviewer_agreement import DISAGREED
from medtasks.curate.review.reviews import HIGHEST, LOWEST, PASSING
from medtasks.data.catalogue import Access


def publish(
    folder: StudyFolder,
    min_score: Annotated[
        int, typer.Option(min=LOWEST, max=HIGHEST, help="What every question needs from every reviewer who scored it.")
    ] = PASSING,
    name: Annotated[
        str | None, typer.Option("--as", help="What to call dataset and tasks, if not as the study.")
    ] = None,
    wording: Annotated[
        str | None, typer.Option(metavar="REVIEWER", help="Whose words count where reviewers differ.")
    ] = None,
    balance: Annotated[
        bool, typer.Option(help="Hallucination studies: leave out yes/no questions until both answers are as frequent.")
    ] = True,
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Leave out questions whose image is gone; results will say so.")
    ] = False,
) -> None:
    """Make the questions that reviewers let through a dataset and tasks; the same again after more reviews."""
    from medtasks.curate.datasheet import shared_by_pairs
    from medtasks.curate.publishing import publish_study

    made = publish_study(
        folder, min_score, name=name, wording=wording, balance=balance, allow_incomplete=allow_incomplete
    )
    report_prepared(made.manifest)
    sheet = made.sheet
    rows = [("published", str(sheet["published"])), *((why, str(count)) for why, count in sheet["left_out"].items())]
    say_columns([(f"of {sheet['drafts']} drafts", "number"), *rows])
    if DISAGREED in sheet["left_out"]:
        say("Where reviewers differ in the wording, --wording REVIEWER says whose words count.")
    if sheet["labels"]:
        say("Right answers: " + ", ".join(f"{label} {count}" for label, count in sheet["labels"].items()))
    if shared := shared_by_pairs(sheet["kind"], sheet["published"], sheet["clusters"]):
        say(shared)
    say(f"Datasheet: {folder / 'datasheet.md'}")
    for task in (*made.tasks, *made.groups):
        say(f"  {task}")
    if made.manifest.access == Access.CREDENTIALED:
        say("It counts as credentialed, as its study: models and judges on other machines may not see it.")
    say(f"Run it with 'lmms_eval --tasks {','.join(made.groups or made.tasks)}'")
