"""A board's numbers at Weights & Biases: five per task at each step of training, and no text."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from medtasks.errors import MedTasksError
from medtasks.scores.board_model import Board, BoardCell, without_step


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
        keys: dict[str, float] = {}
        for task, cell in row.cells.items():
            keys |= _keys(task, cell)
        by_name.setdefault(name, {})[row.step or 0] = keys
    for name, steps in by_name.items():
        _log_run(wandb, project, name, steps)
    return list(by_name)


def _log_run(
    wandb: Any, project: str, name: str, steps: Mapping[int, Mapping[str, float]]
) -> None:
    """Log the steps of one run in order. Its id follows from the name, so that the next night goes on with it."""
    run_id = hashlib.sha256(f"{project}/{name}".encode()).hexdigest()[:12]
    run = wandb.init(
        project=project,
        name=name,
        id=run_id,
        resume="allow",
        settings=wandb.Settings(silent=True),
    )
    try:
        run.define_metric("step")
        run.define_metric("*", step_metric="step")
        for step, keys in sorted(steps.items()):
            run.log({"step": step, **keys})
    finally:
        run.finish()


def _keys(task: str, cell: BoardCell) -> dict[str, float]:
    """Return main metric, interval, invalid and failed samples of a task, without undefined numbers."""
    score = cell.score
    numbers = {
        score.metric: score.value,
        "low": score.low,
        "high": score.high,
        "invalid": float(cell.invalid),
        "failed": float(cell.lost),
    }
    return {f"{task}/{name}": value for name, value in numbers.items() if not math.isnan(value)}
