"""Boards: cells, readings, ranks, curves and what is left out."""

import json
import math

import numpy as np
import pytest

import medtasks
from medtasks.errors import MedTasksError
from medtasks.report.board_tables import (
    board_csv,
    board_table,
    curve_sentences,
    published_rows,
    write_board_page,
)
from medtasks.report.board_wandb import log_board
from medtasks.report.tables import latex, markdown
from medtasks.scores.board_model import board_of, step_in
from medtasks.scores.curves import curves
from medtasks.tasks.task_files import tasks_of

from ..made_up_runs import write_run

TASK = "mediconfusion"


@pytest.fixture
def runs(sample, tmp_path):
    skills = {"strong": 0.95, "weak": 0.3, "middle": 0.6}
    return [
        write_run(tmp_path / name, (TASK,), skill, seed)
        for seed, (name, skill) in enumerate(skills.items())
    ]


@pytest.fixture
def board(runs):
    return board_of([str(run) for run in runs])


def cells(board):
    return {row.name: row.cells[TASK] for row in board.rows}


def test_a_column_shows_the_main_metric_under_the_reference_rule(board):
    (column,) = board.columns

    assert (column.task, column.metric, column.row, column.higher_is_better) == (
        TASK,
        "set_accuracy",
        "reference",
        True,
    )


def test_cells_are_the_scores_of_single_runs(runs, board):
    found = cells(board)
    tests = (
        medtasks.compare(runs[0], runs[1], metrics="set_accuracy")
        .set_index("row")
        .loc["reference"]
    )
    assert (found["strong"].score.value, found["weak"].score.value) == (
        tests["first"],
        tests["second"],
    )


def test_ranks_follow_from_paired_tests(board):
    found = cells(board)

    assert found["strong"].ranks[0] == 1 < found["weak"].ranks[0]
    assert found["weak"].ranks[1] == 3


def test_the_two_highest_scores_are_the_best(board):
    scores = [cell.score.value for cell in cells(board).values()]

    assert board.best(board.columns[0]) == tuple(sorted(scores, reverse=True)[:2])


def test_a_recorded_score_that_the_replies_do_not_give_is_noted(board):
    # The files say 0.5 of each run, which is not what their replies give.
    assert any(
        "strong, mediconfusion: the run recorded 0.5, its replies give" in note
        for note in board.notes
    )


def test_the_table_in_python_has_the_cells_of_the_board(runs, board):
    table = medtasks.board(runs)

    assert list(table["model"]) == ["strong", "weak", "middle"]
    assert table["value"].tolist() == [cell.score.value for cell in cells(board).values()]


@pytest.fixture
def partly_answered(runs):
    """Board on which the strongest run answered 8 of 32 questions."""
    (samples,) = runs[0].glob("*.jsonl")
    samples.write_text("".join(samples.read_text().splitlines(keepends=True)[:8]))
    return board_of([str(run) for run in runs])


def test_sample_data_are_marked(board, tmp_path):
    warning = "SAMPLE DATA: synthetic images, no score of a model (mediconfusion)"
    table = board_table(board)
    write_board_page(board, (), tmp_path / "board.html", {})

    assert board.columns[0].data_warning == "SAMPLE DATA"
    assert table.warnings == (warning,)
    assert warning in (tmp_path / "board.html").read_text()
    assert warning in markdown("Board", [("", [table])])


def test_a_score_of_some_questions_is_never_the_best(partly_answered):
    board = partly_answered
    others = sorted(
        (cells(board)[name].score.value for name in ("weak", "middle")), reverse=True
    )
    assert cells(board)["strong"].score.value > others[0]
    assert board.best(board.columns[0]) == tuple(others)
    assert [row[1].place for row in board_table(board).rows] == [0, 2, 1]


def test_a_score_of_some_questions_is_noted(partly_answered, tmp_path):
    write_board_page(partly_answered, (), tmp_path / "board.html", {})

    assert "strong: mediconfusion 8 of 32 questions." in board_table(partly_answered).notes
    assert "8 of 32 questions" in (tmp_path / "board.html").read_text()


@pytest.fixture
def careful_board(runs):
    """Board of the careful reading, with one invalid and one failed reply in the strongest run."""
    (samples,) = runs[0].glob("*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    lines[0] |= {"resps": ["no idea"], "filtered_resps": ["no idea"]}
    lines[1] |= {"resps": [None], "filtered_resps": [None]}
    samples.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return board_of([str(run) for run in runs], "careful")


def test_one_reading_counts_in_all_columns(careful_board):
    text = markdown("Board", [("", [board_table(careful_board)])])

    assert careful_board.columns[0].row == "robust"
    assert "read by a careful rule" in text


def test_invalid_and_failed_replies_are_counted(careful_board):
    cell = cells(careful_board)["strong"]
    text = markdown("Board", [("", [board_table(careful_board)])])

    assert (cell.samples, cell.invalid, cell.lost) == (31, 1, 1)
    assert any("from 31 to 32 scored samples" in note for note in careful_board.notes)
    assert "strong: mediconfusion 1 invalid, 1 failed." in text


def test_published_scores_are_not_shown_next_to_a_careful_reading(careful_board):
    assert published_rows(careful_board) == []


def test_published_rows_have_their_source(board):
    assert {row.source for row in published_rows(board)} == {
        "Sepehri et al., MediConfusion, arXiv 2409.15477, Table 1"
    }


def test_published_rows_come_first(runs):
    board = board_of([str(runs[0])])
    published = published_rows(board)
    table = board_table(board, published)
    assert [row[0].text for row in table.rows] == [*(row.model for row in published), "strong"]
    assert table.split == len(published)
    assert table.rows[0][1].text == f"{100 * published[0].scores[TASK].value:.1f}%"
    lines = board_csv(board, published).splitlines()
    assert len(lines) == 2 + len(published)
    assert r"\midrule" in latex([("Board", [table])]).split(r"\midrule", 1)[1]


def test_a_paper_s_table_with_a_run_of_ones_own(tmp_path):
    """Results alone are enough: no data are prepared, so there are no ranks."""
    tasks = tasks_of("medevalkit")
    values = {
        task: {"alias": task, "accuracy,reference": 0.4 + place / 100}
        for place, task in enumerate(tasks)
    }
    (tmp_path / "mine").mkdir()
    config = {"model": "hf_vlm", "model_args": "pretrained=my/model"}
    content = {"results": values, "configs": {}, "n-samples": {}, "config": config}
    (tmp_path / "mine" / "20260102_030405_results.json").write_text(json.dumps(content))
    board = board_of([str(tmp_path / "mine")], tasks=["medevalkit"])
    assert [column.task for column in board.columns] == tasks
    published = published_rows(board)
    assert {"GPT-5", "Lingshu-7B"} <= {row.model for row in published}
    table = board_table(board, published)
    assert table.rows[-1][0].text == "hf_vlm: model"
    assert [cell.text for cell in table.rows[-1]][1:3] == ["40.0%", "41.0%"]
    with pytest.raises(MedTasksError, match="medevalkit_slake"):
        board_of([str(tmp_path / "mine")], tasks=["medevalkit_slak"])


@pytest.fixture
def twin(runs, tmp_path):
    """Run of the same model as the first one, on other data."""
    twin = write_run(tmp_path / "nested", (TASK,), 0.5, 9)
    (results,) = twin.glob("*_results.json")
    content = json.loads(results.read_text())
    content["config"]["model"] = "strong"
    content["configs"][TASK]["metadata"]["data"]["fingerprint"] = "other"
    results.write_text(json.dumps(content))
    return twin


def test_rows_of_one_model_are_named_after_their_folders_too(runs, twin):
    board = board_of([str(runs[0]), str(twin)])

    assert [row.name for row in board.rows] == ["strong (strong)", "strong (nested)"]


def test_a_run_on_other_data_keeps_its_recorded_score(runs, twin):
    board = board_of([str(runs[0]), str(twin)])
    recorded = board.rows[1].cells[TASK]

    assert any("was made on data with fingerprint other" in note for note in board.notes)
    assert (recorded.score.value, recorded.ranks) == (0.5, None)


def test_each_run_needs_a_step(runs):
    with pytest.raises(MedTasksError, match="there are 1 steps for 2 runs"):
        board_of([str(run) for run in runs[:2]], steps=[1])


def test_a_board_without_a_run_is_refused(sample, tmp_path):
    with pytest.raises(MedTasksError, match="there is no run"):
        board_of([TASK])

    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(MedTasksError, match=r"no run has a score to show: .*is empty"):
        board_of([TASK, str(tmp_path / "empty.jsonl")])


def test_versions_of_a_task_are_not_ranked_together(runs):
    for run, version in zip(runs, (6, 1, 6), strict=True):
        (path,) = run.glob("*_results.json")
        path.write_text(
            json.dumps({**json.loads(path.read_text()), "versions": {TASK: version}})
        )
    board = board_of([str(run) for run in runs])
    assert [cell.ranks for cell in cells(board).values()] == [None] * 3
    assert any(
        "asked different versions of the task (6 in strong, 1 in weak)" in note
        for note in board.notes
    )
    assert all(cell.ranks for cell in cells(board_of([str(run) for run in runs[::2]])).values())


def test_a_repeated_run_is_one_row_of_means(runs, tmp_path):
    (tmp_path / "again").mkdir()
    folders = [
        write_run(tmp_path / "again" / f"repeat_{number}", (TASK,), 0.6, number)
        for number in (1, 2)
    ]
    board = board_of([str(tmp_path / "again"), str(runs[1])])
    single = [board_of([str(folder)]).rows[0].cells[TASK].score.value for folder in folders]
    row = board.rows[0]
    assert row.cells[TASK].score.value == pytest.approx(sum(single) / 2)
    assert row.cells[TASK].score.low < row.cells[TASK].score.value < row.cells[TASK].score.high
    assert row.cells[TASK].ranks is not None


@pytest.fixture
def checkpoints(sample, tmp_path):
    skills = {0: 0.05, 500: 0.97, 1000: 0.2}
    folders = {step: tmp_path / f"checkpoint-{step}" for step in skills}
    return [write_run(folders[step], (TASK,), skill, step) for step, skill in skills.items()]


def test_checkpoints_are_a_curve_in_the_order_of_their_steps(checkpoints):
    board = board_of([str(checkpoints[number]) for number in (2, 0, 1)])
    assert [row.step for row in board.rows] == [0, 500, 1000]
    (curve,) = curves(board)
    assert curve.best == 500
    assert curve.gain.result.difference == pytest.approx(
        curve.points[1][1].score.value - curve.points[0][1].score.value
    )
    assert curve.decline.result.difference == pytest.approx(
        curve.points[2][1].score.value - curve.points[1][1].score.value
    )


def test_a_sentence_names_the_best_checkpoint(checkpoints):
    (sentence,) = curve_sentences(board_of([str(run) for run in checkpoints]))

    assert "the best checkpoint is step 500" in sentence
    assert "than step 0" in sentence
    assert "p corrected for 2 looks" in sentence


def test_the_step_of_a_checkpoint_is_read_from_its_name():
    assert step_in("lora/epoch_3") == 3


def test_steps_of_the_command_line_count_before_names(checkpoints):
    assert [
        row.step for row in board_of([str(run) for run in checkpoints], steps=[7, 8, 9]).rows
    ] == [7, 8, 9]


@pytest.fixture
def page_text(checkpoints, tmp_path):
    from medtasks.report.board_figures import curve_figures

    board = board_of([str(run) for run in checkpoints])
    page = tmp_path / "board.html"
    write_board_page(board, published_rows(board), page, curve_figures(board))
    return page.read_text()


def test_the_page_sorts_by_whole_numbers(checkpoints, page_text):
    for row in board_of([str(run) for run in checkpoints]).rows:
        assert f'data-value="{row.cells[TASK].score.value!r}"' in page_text


def test_the_page_shows_the_curve(page_text):
    assert page_text.count("<svg") == 1
    assert "the best checkpoint is step 500" in page_text


def test_each_step_logs_five_numbers_per_task(checkpoints, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    logged, settings = [], {}

    class Run:
        def define_metric(self, *_, **__):
            pass

        def log(self, numbers):
            logged.append(numbers)

        def finish(self):
            settings["finished"] = True

    monkeypatch.setattr(wandb, "init", lambda **given: settings.update(given) or Run())
    board = board_of([str(run) for run in checkpoints])

    assert log_board(board, "nightly") == ["model"]
    assert (settings["project"], settings["resume"], settings["finished"]) == (
        "nightly",
        "allow",
        True,
    )
    assert [line["step"] for line in logged] == [0, 500, 1000]
    names = {"set_accuracy", "low", "high", "invalid", "failed"}
    assert all(
        line.keys() == {"step", *(f"{TASK}/{name}" for name in names)} for line in logged
    )
    assert all(math.isfinite(value) for line in logged for value in line.values())
    assert np.isclose(logged[1][f"{TASK}/set_accuracy"], board.rows[1].cells[TASK].score.value)
