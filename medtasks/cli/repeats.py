"""What ``medtasks run --repeats`` prints of all repeats together."""

import math
from collections.abc import Mapping

from medtasks.audit.report.contents import RepeatedScore, RepeatedTask
from medtasks.audit.report.rows import votes
from medtasks.audit.report.words import estimate, number, points
from medtasks.cli.output import number_table, out, say


def show_repeats(found: Mapping[str, RepeatedTask]) -> None:
    """Print mean, spread and majority of each metric of tasks that were repeated."""
    for task in found.values():
        title = f"{task.task}: {task.repeats} repeats, seeds {', '.join(map(str, task.seeds))}"
        table = number_table("row, metric", ("mean", "spread", "lowest", "highest", "majority"), title)
        for row in task.rows:
            for score in row.scores:
                table.add_row(f"{row.name} {score.metric}", *_cells(score))
        out.print(table)
        for row in task.rows:
            say(votes(row))
        say("mean: with its 95 % interval over questions and replies; spread: of replies to the same questions alone;")
        say("majority: score of the answer that most repeats gave, another quantity than the mean")
        for note in task.notes:
            say(f"note: {note}")


def _cells(score: RepeatedScore) -> list[str]:
    voted = math.nan if score.majority is None else score.majority.value
    known = [value for value in score.values if not math.isnan(value)]
    ends = (min(known, default=math.nan), max(known, default=math.nan))
    values = [number(value, score.share) for value in (*ends, voted)]
    return [estimate(score.mean, score.low, score.high, score.share), points(score.spread, score.share), *values]
