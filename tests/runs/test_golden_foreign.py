"""Recorded files of other kits: which reply each question of ours gets, and what is counted and named."""

import json
import shutil
from pathlib import Path

import pytest

from medtasks.errors import RepliesError
from medtasks.runs.foreign.matching import match_rows
from medtasks.runs.foreign.recognition import read_foreign
from medtasks.runs.recorded_replies import read_recorded
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import including, scored_task

OURS = ("questions.jsonl", "expected.jsonl", "counts.json", "expected_refusals.json")
TASK = "task: asked\nfamily: {}\ndata: questions.jsonl\nimage: none\n"
OWN_RUN = "as_before_0_3_206"  # the same log in another compression
KINDS_OF_ROWS = ("unmatched_rows", "ambiguous_rows")


def lines_of(path):
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]


def cases_with(golden, name):
    cases = sorted(path.parent for path in golden.glob(f"foreign/*/*/{name}"))
    assert cases
    return cases


def asked_task(folder, case):
    """The task of a case's questions, and all its documents."""
    questions = lines_of(case / "questions.jsonl")
    family = "single_choice" if "options" in questions[0] else "yes_no"
    (folder / "asked.yaml").write_text(TASK.format(family))
    (folder / "questions.jsonl").write_bytes((case / "questions.jsonl").read_bytes())
    with including([folder]):
        task = scored_task("asked")
        return task, task_documents(task)


def files_of(case, folder):
    """What a user would name: the kit's folder, or the files of a table of one's own."""
    files = [path for path in case.iterdir() if path.name not in (*OURS, OWN_RUN)]
    if case.parent.name == "plain":
        return files
    for path in files:
        copy = shutil.copytree if path.is_dir() else shutil.copy
        copy(path, folder / path.name)
    return [folder]


def columns_of(counts):
    """The columns as a user names them."""
    columns = counts.get("columns") or {}
    return {
        name: column if isinstance(column, str) else ",".join(column)
        for name, column in columns.items()
    }


def text_of(reply):
    return None if reply is None or reply.is_failure else plain(reply.text)


def plain(text):
    return text and text.replace("\r\n", "\n")


@pytest.fixture
def folders(tmp_path):
    """Make new empty folders for a case: one for the task, one for the files of the kit."""

    def make(case):
        for name in ("task", "kit"):
            folder = tmp_path / case.parent.name / case.name / name
            folder.mkdir(parents=True)
            yield folder

    return make


def test_golden_foreign_replies_and_counts(golden, folders):
    for case in cases_with(golden, "expected.jsonl"):
        task_folder, kit_folder = folders(case)
        task, documents = asked_task(task_folder, case)
        counts = json.loads((case / "counts.json").read_text())
        file = read_foreign(files_of(case, kit_folder), columns=columns_of(counts))
        assert file is not None, case
        matched = match_rows(file, documents, task)
        assert len(matched.runs) == counts.get("runs", 1), case
        for expected in lines_of(case / "expected.jsonl"):
            doc_id = expected["doc_id"]
            assert matched.statuses[doc_id] == expected["status"], (case, doc_id)
            replies = [text_of(run.get(doc_id)) for run in matched.runs]
            assert replies == [
                plain(text) for text in expected.get("replies", [expected.get("reply")])
            ], (case, doc_id)
            if reasoning := expected.get("reasoning"):
                assert matched.runs[0][doc_id].reasoning == reasoning, (case, doc_id)
        is_asked = {
            name: value for name, value in counts.items() if name not in ("columns", "runs")
        }
        assert {name: matched.counts[name] for name in is_asked} == is_asked, case
        rows = matched.counts
        assert (
            rows["rows"] == sum(matched.steps.values()) + rows["unmatched"] + rows["ambiguous"]
        ), case
        description = " ".join(matched.sentences())
        for name in KINDS_OF_ROWS:
            assert all(f"row {row} (" in description for row in counts.get(name, ())[:1]), case


def test_golden_foreign_only_files_of_the_task_are_scored(golden, folders):
    """Where most rows answer none of the questions, as after options were shown in another order, nothing is scored."""
    refused = set()
    for case in cases_with(golden, "expected.jsonl"):
        task_folder, kit_folder = folders(case)
        task, documents = asked_task(task_folder, case)
        counts = json.loads((case / "counts.json").read_text())
        paths = files_of(case, kit_folder)
        if counts["matched"] * 2 >= counts["samples"]:
            recorded = read_recorded(task, documents, paths, columns=columns_of(counts))
            assert recorded.matched is not None, case
            assert any(recorded.runs), case
            continue
        refused.add(case.name)
        with pytest.raises(RepliesError, match="options in another order"):
            read_recorded(task, documents, paths, columns=columns_of(counts))
    assert any("shuffled" in name for name in refused)


def test_golden_foreign_numbers_of_another_task_are_no_ids(golden, folders):
    """Cut to as many rows as there are questions, so that each row number is one of ours."""
    for case in cases_with(golden, "questions.jsonl"):
        samples = sorted(case.glob("*/*samples_*.jsonl"))
        if case.parent.name not in ("lm_eval", "lmms_eval") or not samples:
            continue
        others = [
            other
            for other in cases_with(golden, "questions.jsonl")
            if other.parent.name == "medevalkit"
        ]
        for other in others:
            task_folder, _ = folders(other / case.name)
            task, documents = asked_task(task_folder, other)
            lines = samples[0].read_text("utf-8").split("\n")[: len(documents)]
            cut = task_folder / "samples_other.jsonl"
            cut.write_text("\n".join(lines) + "\n", "utf-8")
            with pytest.raises(RepliesError, match="answers another task than 'asked'"):
                read_recorded(task, documents, [cut])


def test_golden_foreign_refusals(golden):
    """A pickle is never opened, and a workbook that its writer gave up is not scored in silence."""
    for case in cases_with(golden, "expected_refusals.json"):
        for refusal in json.loads((case / "expected_refusals.json").read_text()):
            with pytest.raises(RepliesError, match=r"pickle|\.pkl"):
                read_foreign([Path(case / refusal["file"])])


def test_golden_foreign_the_same_log_in_another_compression(golden):
    for old in golden.glob(f"foreign/inspect_ai/*/{OWN_RUN}/*"):
        logs = [read_foreign([path]) for path in (old, old.parents[1] / old.name)]
        assert logs[0] is not None
        replies = [[(row.identifier, row.reply) for row in log.rows] for log in logs]
        assert replies[0] == replies[1]
