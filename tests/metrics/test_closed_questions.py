"""Accuracies over closed questions against the released formula, and errors against a plain clustered one."""

import math
import random
from collections import defaultdict

import pytest

from medtasks.extract.published.medheval_closed import Counted
from medtasks.families.closed_questions import CLOSED_QUESTIONS
from medtasks.metrics.metric import evaluate
from medtasks.stats.standard_error import clustered_error

from ..tables import each_row


def question(right, cell=("a", "x", "m"), counted=Counted.SCORED, cluster=None):
    """The score of a question in a cell of source, type of hallucination and kind."""
    source, hallucination, kind = cell
    cell_of = {"source": source, "hallucination": hallucination, "kind": kind}
    return {**cell_of, "correct": float(right), "counted": str(counted), "cluster_id": cluster}


def drawn(seed, shares):
    """Questions of several cells; ``shares`` are the chances to be scored, averaged and left out."""
    draw, kinds = random.Random(seed), (Counted.SCORED, Counted.AVERAGED, Counted.LEFT_OUT)
    return [
        question(
            draw.random() < 0.4,
            (draw.choice("ab"), draw.choice("xy"), draw.choice("mn")),
            draw.choices(kinds, shares)[0],
            f"u{draw.randrange(12)}",
        )
        for _ in range(150)
    ]


def accuracy(questions):
    """The accuracy that ClosedQuestions declares, with its error."""
    return evaluate(CLOSED_QUESTIONS.metrics[:1], questions)["accuracy"]


@each_row("seed", range(5))
def test_averaged_questions_count_like_their_cell_and_left_out_ones_do_not(seed):
    """The released average per cell over the scored, weighted by all questions of the cell."""
    questions, cells = drawn(seed, (0.8, 0.2, 0)), defaultdict(list)
    for item in questions:
        cells[item["source"], item["hallucination"], item["kind"]].append(item)
    total = number = 0.0
    for members in cells.values():
        if scored := [item["correct"] for item in members if item["counted"] == Counted.SCORED]:
            total += sum(scored) / len(scored) * len(members)
            number += len(members)
    assert accuracy(questions).value == pytest.approx(total / number, abs=1e-12)
    questions = drawn(seed, (0.8, 0, 0.2))
    scored = [item for item in questions if item["counted"] == Counted.SCORED]
    values, clusters = (
        [item["correct"] for item in scored],
        [item["cluster_id"] for item in scored],
    )
    assert accuracy(questions).value == pytest.approx(sum(values) / len(values), abs=1e-12)
    assert accuracy(questions).error == pytest.approx(
        clustered_error(values, clusters).error, abs=1e-12
    )


def test_a_cell_without_scored_questions_does_not_count():
    questions = [question(True), question(False, ("b", "x", "m"), Counted.AVERAGED)]
    assert CLOSED_QUESTIONS.metrics[0].weights(questions) == [1.0, 0.0]
    assert accuracy(questions).value == 1.0
    nothing = accuracy([question(False, counted=Counted.LEFT_OUT)])
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.error)
