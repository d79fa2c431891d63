"""Curves over training: checkpoints of one model in one column of a board, and whether the best one is better."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from medtasks.scores.board_model import Board, BoardCell, BoardColumn, without_step
from medtasks.scores.comparing import paired_values
from medtasks.stats.paired import PairedResult, compare_paired, correct_by_holm


@dataclass(frozen=True)
class CheckpointTest:
    """Paired test of one checkpoint against another one of the same curve."""

    step: int
    other_step: int
    result: PairedResult  # difference of ``step`` from ``other_step``
    p_holm: float  # corrected for all checkpoints that were compared with the same one


@dataclass(frozen=True)
class Curve:
    """Checkpoints of one model in one column, in order of their steps, at least two."""

    name: str
    column: BoardColumn
    points: Sequence[tuple[int, BoardCell]]
    best: int  # step with the best value
    # Of the best checkpoint over the first. None if it is the first, or cannot be tested.
    gain: CheckpointTest | None
    # Of the last checkpoint from the best. None if it is the best, or cannot be tested.
    decline: CheckpointTest | None


def curves(board: Board) -> list[Curve]:
    """Return the curves of a board: rows with a step whose names are otherwise equal, column by column.

    Checkpoints without a value are left out, and a curve with fewer than two others.
    """
    by_name: dict[str, list[tuple[int, str]]] = {}
    for row in board.rows:
        if row.step is not None:
            by_name.setdefault(without_step(row.name), []).append((row.step, row.name))
    all_curves = []
    for name, rows in by_name.items():
        ordered = sorted(rows, key=itemgetter(0))
        for column in board.columns:
            fullest = board.fullest(column)
            points = {}
            for step, row_name in ordered:
                if row_name in fullest and fullest[row_name].is_defined:
                    points[step] = fullest[row_name]
            if len(points) > 1:
                all_curves.append(_curve(name, column, points))
    return all_curves


def _curve(name: str, column: BoardColumn, points: Mapping[int, BoardCell]) -> Curve:
    """Return a curve with its tests.

    Args:
        name: Name of the curve.
        column: Column of the board.
        points: At least two cells with a value, by step in ascending order.
    """
    sign = -1 if column.higher_is_better is False else 1
    first, *_, last = points
    best = max(points, key=lambda step: (sign * points[step].score.value, -step))
    gains = _tests_against(points, first)
    decline = _tests_against(points, last).get(best)
    if decline is not None:  # read as the last checkpoint's difference from the best
        result = decline.result
        reversed_result = replace(
            result,
            first=result.second,
            second=result.first,
            difference=-result.difference,
            low=-result.high,
            high=-result.low,
        )
        decline = CheckpointTest(last, best, reversed_result, decline.p_holm)
    return Curve(name, column, list(points.items()), best, gains.get(best), decline)


def _tests_against(
    points: Mapping[int, BoardCell], reference: int
) -> dict[int, CheckpointTest]:
    """Test all other checkpoints against one, corrected for the number of looks.

    Args:
        points: Cells by step.
        reference: Step of the one checkpoint.

    Returns:
        Tests by step of the other checkpoint, without those that are not possible. There are none if some checkpoint
        shares no sample with the reference.
    """
    tests = {}
    for step, cell in points.items():
        if step == reference:
            continue
        pair = paired_values(points[reference].values, cell.values)
        if not pair[0]:
            return {}
        tests[step] = (compare_paired(*pair), pair)
    corrected = correct_by_holm(list(tests.values()))
    checkpoints = {}
    for step, (result, p) in zip(tests, corrected, strict=True):
        if not math.isnan(p):
            checkpoints[step] = CheckpointTest(step, reference, result, p)
    return checkpoints
