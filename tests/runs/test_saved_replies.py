"""Replies on disk: one file per process and run, for their owner only, whatever the disk does."""

import errno
import json
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from medtasks.families.family import Rule
from medtasks.runs import logged_samples
from medtasks.runs.logged_samples import (
    SCORED_TASK,
    faults_of_saving,
    replies_folder,
    save_reply,
    score_command,
)
from medtasks.runs.reply_envelope import make_envelope


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    monkeypatch.setattr(logged_samples, "_runs", {})
    return tmp_path


def save(number, reply, rule="report_text", dataset="reports"):
    return save_reply(
        {"doc_id": f"d{number}", "dataset": dataset}, make_envelope(reply, Rule(rule))
    )


def saved(home):
    files = sorted((home / "replies").rglob("*.jsonl"))
    return {
        path.relative_to(home / "replies").as_posix(): [
            json.loads(line) for line in path.read_text().splitlines()
        ]
        for path in files
    }


def lines(*replies):
    return [{"doc_id": f"d{number}", "reply": reply} for number, reply in enumerate(replies)]


def test_replies_are_written_as_they_come_for_their_owner(home):
    before = os.umask(0)
    try:
        names = {save(0, "No effusion.\n\nNormal.")}
    finally:
        os.umask(before)
    assert list(saved(home).values()) == [lines("No effusion.\n\nNormal.")]
    names |= {save(1, "é \u2028 \ud800 <b>"), save(2, "")}
    (name,) = names
    assert saved(home) == {name: lines("No effusion.\n\nNormal.", "é \u2028 \ud800 <b>", "")}
    paths = (home / "replies" / name, home / "replies/reports", home / "replies")
    modes = [path.stat().st_mode & 0o777 for path in paths]
    assert modes == [0o600, 0o700, 0o700]


def test_each_run_has_one_file_for_all_rules(home):
    first = [
        save(number, "the same", rule)
        for rule in ("reference", "report_text")
        for number in (0, 1)
    ]
    second = [save(number, reply) for number, reply in ((1, "other"), (0, "the same"))]
    assert (len(set(first)), len(set(second)), set(first) & set(second)) == (1, 1, set())
    assert sorted(map(len, saved(home).values())) == [2, 2]
    assert saved(home)[second[0]] == lines("the same", "other")[::-1]


def test_a_reply_without_an_id_is_not_saved(home):
    # It could not be found again.
    assert save_reply({"dataset": "reports"}, "a") is None
    assert saved(home) == {}


def test_replies_are_saved_in_a_folder_of_their_task_or_dataset(home):
    before = SCORED_TASK.set("reports_indication")
    assert save(0, "a").split("/")[0] == "reports_indication"
    SCORED_TASK.reset(before)
    assert save(0, "a").split("/")[0] == "reports"
    assert save_reply({"doc_id": "d0"}, "a").split("/")[0] == "unknown"


def test_no_name_of_a_task_leads_out_of_the_data_folder(home):
    assert replies_folder("../../odd task").parent == home / "replies"


def test_each_rank_has_a_file_of_its_own(home, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "3")
    assert save(1, "a", dataset="of_ranks").endswith(f"-{os.getpid()}-rank3of4.jsonl")


def test_threads_share_one_file(home):
    with ThreadPoolExecutor(8) as pool:
        names = set(
            pool.map(lambda number: save(number, f"reply {number} " + "x" * 5000), range(200))
        )
    (name,) = names
    assert sorted(int(line["doc_id"][1:]) for line in saved(home)[name]) == list(range(200))


def test_replies_are_saved_once_the_full_disk_has_room(home, monkeypatch, warnings):
    full, partly = [True], []
    write = os.write

    def limited(file, data):
        if not full[0]:
            return write(file, data)
        if not partly:  # some of it gets there
            partly.append(True)
            return write(file, data[:10])
        partly.clear()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", limited)

    names = {save(0, "zyz first"), save(1, "zyz second")}
    assert len(warnings) == 1
    assert "No space left on device" in warnings[0]
    assert "zyz" not in warnings[0]
    assert faults_of_saving() == [warnings[0].replace(str(home), "$MEDTASKS_HOME")]
    assert "could not be saved" in score_command(names)

    full[0] = False
    names |= {save(2, "zyz third")}
    assert faults_of_saving() == []
    (name,) = names
    assert saved(home) == {name: lines("zyz first", "zyz second", "zyz third")}
    assert "All replies are saved" in score_command(names)


def test_the_command_names_the_files_of_all_ranks(home):
    folder = home / "replies" / "mimic"
    folder.mkdir(parents=True)
    for rank in range(2):
        (folder / f"r {rank}.jsonl").write_text("")
    sentence = score_command(["mimic/r 1.jsonl", "mimic/r 0.jsonl", "mimic/r 1.jsonl"])
    assert sentence.endswith(
        f"run: medtasks score mimic '{folder}/r 0.jsonl' '{folder}/r 1.jsonl'"
    )
    assert "could not be saved" in score_command(["mimic/r 0.jsonl", "mimic/gone.jsonl"])
    assert "could not be saved" in score_command([None])
