"""``medtasks judge``: check a judge's verdicts against people's labels."""

from pathlib import Path
from typing import Annotated

import typer

from medtasks.audit.judge_labels import write_sheet
from medtasks.cli.output import IncludePath, ModelName, look_into, say
from medtasks.runs.replies import read_replies
from medtasks.runs.run import Source, replies_to
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import scored_task

app = typer.Typer(help="Check a judge's verdicts against people's labels.", no_args_is_help=True)


@app.command()
def sample(
    context: typer.Context,
    task: Annotated[str, typer.Argument(help="One of our tasks with a judge, see 'medtasks tasks'.")],
    replies: Annotated[list[Path], typer.Argument(help="Folder or files of one run, as for 'medtasks score'.")],
    out: Annotated[Path, typer.Option(help="CSV file to write.")] = Path("judge_labels.csv"),
    size: Annotated[int, typer.Option(min=4, help="Number of replies to draw, half of each verdict.")] = 200,
    rule: Annotated[str | None, typer.Option(help="Answer rule with the verdicts; default: the task's first.")] = None,
    model: ModelName = None,
    include_path: IncludePath = None,
) -> None:
    """Draw judged replies for people to label; 'medtasks score TASK RUN --labels FILE' reads the labels."""
    look_into(context, include_path, replies)
    chosen = scored_task(task)
    documents = task_documents(chosen)
    recorded = read_replies([replies_to(task, Source(path, model)) for path in replies], documents)
    right, wrong = write_sheet(out, chosen, documents, recorded, size, rule)
    say(f"replies in {out}: {right} that the judge calls right, {wrong} that it calls wrong")
    say(f"Write yes or no under 'right'; then run: medtasks score {task} RUN --labels {out}")
