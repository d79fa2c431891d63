"""A board's numbers at Weights & Biases: five per task at each step of training, and no text."""

import hashlib
import math

from medtasks.errors import MedTasksError
from medtasks.scores.board_model import Board, BoardRow, without_step


def log_board(board: Board, project: str) -> list[str]:
    """Log each row of a board to the run of its curve, which is resumed if it is there.

    ``WANDB_MODE=offline`` writes to the disk only.

    Args:
        board: The board.
        project: Name of the project at Weights & Biases.

    Returns:
        The names of the runs.

    Raises:
        MedTasksError: wandb is not installed.
    """
    try:
        import wandb
    except ImportError as error:
        raise MedTasksError(
            "--wandb needs the package wandb; install it with pip install wandb"
        ) from error
    by_name: dict[str, dict[int, dict[str, float]]] = {}
    for row in board.rows:
        name = row.name if row.step is None else without_step(row.name)
        by_name.setdefault(name, {})[row.step or 0] = _defined_numbers(row)
    settings = wandb.Settings(silent=True)
    for name, steps in by_name.items():
        # The id of a run follows from its name, so that the next night goes on with it.
        run_id = hashlib.sha256(f"{project}/{name}".encode()).hexdigest()[:12]
        run = wandb.init(
            project=project, name=name, id=run_id, resume="allow", settings=settings
        )
        try:
            run.define_metric("step")
            run.define_metric("*", step_metric="step")
            for step, keys in sorted(steps.items()):
                run.log({"step": step, **keys})
        finally:
            run.finish()
    return list(by_name)


def _defined_numbers(row: BoardRow) -> dict[str, float]:
    """Return the numbers of a row by key, without those that are NaN, which curves cannot show."""
    numbers: dict[str, float] = {}
    for task, cell in row.cells.items():
        score = cell.score
        numbers[f"{task}/{score.metric}"] = score.value
        numbers[f"{task}/low"] = score.low
        numbers[f"{task}/high"] = score.high
        numbers[f"{task}/invalid"] = float(cell.invalid)
        numbers[f"{task}/failed"] = float(cell.lost)
    return {key: value for key, value in numbers.items() if not math.isnan(value)}
