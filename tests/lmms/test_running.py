"""``medtasks run``: failing tasks, with a stand-in for the harness that fails on demand, and a killed run."""

import contextlib
import json
import os
import shutil
import signal
import sys
import textwrap
from pathlib import Path

import pytest
from lmms_eval.utils import simple_parse_args_string

from medtasks.errors import MedTasksError
from medtasks.lmms.harness_process import unclaimed_stamp
from medtasks.running import harness_run
from medtasks.running.harness_run import run_tasks, stopping_by_signal
from medtasks.runs import run_manifest as process_records
from medtasks.tasks import documents, task_files
from medtasks.tasks.documents import Selection, select

from ..tables import each_row
from ..waiting import wait_until

SCRIPT = """
    import json, os, pathlib, signal, sys, time
    output = pathlib.Path(sys.argv[sys.argv.index("--output_path") + 1])
    tasks = sys.argv[sys.argv.index("--tasks") + 1].split(",")
    def write(*names):
        output.mkdir(exist_ok=True)
        file = output / f"{'-'.join(names)}_results.json"
        file.write_text(json.dumps({"results": dict.fromkeys(names, {})}))
"""


@pytest.fixture
def script(tmp_path):
    """Build a launcher that runs a few lines in place of the harness; ``write`` leaves results of tasks."""
    count = iter(range(100))

    def build(body):
        path = tmp_path / f"script{next(count)}.py"
        path.write_text(textwrap.dedent(SCRIPT) + body)
        return [sys.executable, str(path)]

    return build


@pytest.fixture
def tasks(monkeypatch, tmp_path):
    """Two tasks in a group, both with a tag; the dataset of the second one is not there."""

    def task(name, dataset):
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n")
        return task_files.TaskFile(
            name, "task", tmp_path / f"{name}.yaml", "", dataset=dataset, tags=("tagged",)
        )

    known = {
        "one": task("one", None),
        "two": task("two", "mediconfusion"),
        "medical": task_files.TaskFile(
            "medical", "group", tmp_path, "", members=("one", "two")
        ),
    }
    possible = documents.check_possible
    monkeypatch.setattr(task_files, "task_files", lambda: known)
    monkeypatch.setattr(
        documents, "check_possible", lambda task: task.dataset and possible(task)
    )
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    return known


@each_row(
    ("names", "failing", "calls"),
    [
        ("one two", "", ["one,two"]),
        ("one two general", "two", ["one,two,general", "one", "two", "general"]),
        ("first middle last", "middle last", ["first,middle,last", "first", "middle", "last"]),
        ("one", "one", ["one"]),
        ("general", "", ["general"]),  # which the harness alone understands
        ("medical", "", ["medical"]),  # a group, which is done when its members are
    ],
)
def test_a_failing_task_costs_itself_alone(script, tmp_path, tasks, names, failing, calls):
    members = ["one", "two"] if names == "medical" else []
    body = f"if not set(tasks) & set({failing.split()}): write(*tasks, *{members})"
    outcome = run_tasks(names.split(), [], tmp_path / "out", script(body))
    assert [",".join(process.tasks) for process in outcome.processes] == calls
    assert all(process.exit_code == 0 and process.seconds > 0 for process in outcome.processes)
    assert outcome.failed == failing.split()
    assert set(outcome.done) == {*names.split(), *members} - set(outcome.failed)
    assert len(outcome.results) == (len(outcome.done) if failing else 1)
    assert set(outcome.files.values()) == set(outcome.results)


def test_a_killed_harness_is_the_reason_of_a_task(script, tmp_path, tasks):
    body = "if 'two' in tasks: os.kill(os.getpid(), 9)\nwrite(*tasks)"

    outcome = run_tasks(["one", "two"], [], tmp_path / "out", script(body))

    assert (outcome.done, outcome.failed) == (["one"], ["two"])
    assert [process.exit_code for process in outcome.processes] == [-9, 0, -9]
    killed = "the harness was ended by SIGKILL, as the system does when memory is short"
    assert outcome.reasons["two"].startswith(killed)


def test_results_that_are_cut_off_are_none(script, tmp_path, tasks):
    body = "output.mkdir()\n(output / 'b_results.json').write_text('{\"results\": {\"one\"')\nsys.exit(3)"

    outcome = run_tasks(["one"], [], tmp_path / "cut_off", script(body))

    assert (outcome.done, outcome.failed, outcome.results) == ([], ["one"], [])
    assert "exit code 3" in outcome.reasons["one"]


def test_a_launcher_that_cannot_start_ends_the_run(tmp_path, tasks):
    with pytest.raises(MedTasksError, match=r"cannot start 'no-such-launcher' .*--launcher"):
        run_tasks(["one"], [], tmp_path / "out", ["no-such-launcher"])


def test_two_runs_into_one_folder_never_share_the_time_in_their_names(tmp_path, monkeypatch):
    seconds = iter(["20260101_000000"] * 3 + ["20260101_000001"] * 3)
    with contextlib.ExitStack() as claims:

        def stamp(folder=tmp_path):
            return unclaimed_stamp(
                lambda timezone: next(seconds), folder, claims, timezone="UTC"
            )

        assert [stamp(), stamp()] == ["20260101_000000", "20260101_000001"]
        monkeypatch.setenv("RANK", "1")
        assert stamp() == "20260101_000001"  # rank 0 alone writes files
        monkeypatch.delenv("RANK")
        assert stamp(tmp_path / "none") == "20260101_000001"
        assert len(list(tmp_path.iterdir())) == 2
    assert list(tmp_path.iterdir()) == []  # nothing stays behind


def test_results_of_the_same_size_and_time_are_new(script, tmp_path, tasks):
    command = script("write(*tasks)")
    (first,) = run_tasks(["one"], [], tmp_path / "out", command).results
    state = first.stat()
    again = script(
        f"write(*tasks)\nos.utime({str(first)!r}, ns=({state.st_atime_ns}, {state.st_mtime_ns}))"
    )
    assert run_tasks(["one"], [], tmp_path / "out", again).done == ["one"]
    assert (first.stat().st_size, first.stat().st_mtime_ns) == (
        state.st_size,
        state.st_mtime_ns,
    )


def test_results_written_over_older_ones_are_new(script, tmp_path, tasks):
    command = script("write(*tasks)")
    first = run_tasks(["one"], [], tmp_path / "out", command)
    os.utime(first.results[0], ns=(0, 0))
    assert run_tasks(["one"], [], tmp_path / "out", command).done == ["one"]
    idle = run_tasks(["one"], [], tmp_path / "out", script("pass"))
    assert (idle.done, idle.failed, idle.results) == ([], ["one"], [])


@pytest.mark.parametrize("patience", [600, 0.1])
def test_what_was_finished_counts_when_the_run_is_stopped(
    script, tmp_path, tasks, monkeypatch, patience
):
    """With patience the harness ends by itself after Ctrl-C; without, it is told to."""
    monkeypatch.setattr(harness_run, "_PATIENCE", patience)
    ends = "signal.signal(signal.SIGINT, lambda *_: sys.exit(7))\n" if patience > 1 else ""
    hang = f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{ends}os.kill(os.getppid(), 2)\n"
    hang += "os.kill(os.getpid(), 2)\n" if ends else ""
    hang = textwrap.indent(hang + "time.sleep(600)", "  ")
    body = f"if 'two' not in tasks: write(*tasks)\nif tasks == ['two']:\n{hang}"
    seen = []
    with pytest.raises(KeyboardInterrupt):
        run_tasks(["one", "two"], [], tmp_path / "out", script(body), seen.append)
    assert (seen[-1].done, seen[-1].failed) == (["one"], [])
    assert seen[-1].processes[-1].exit_code == (7 if ends else -signal.SIGTERM)


def test_ctrl_c_at_the_end_of_the_harness_keeps_its_exit_code(
    script, tmp_path, tasks, monkeypatch
):
    ended = os.waitid

    def interrupted(*arguments):
        ended(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "waitid", interrupted)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        run_tasks(["one"], [], tmp_path / "out", script("sys.exit(7)"), seen.append)
    assert seen[-1].processes[-1].exit_code == 7


def test_a_request_to_end_reaches_the_harness(script, tmp_path, tasks):
    body = "os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(600)"
    seen = []
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as exit_, stopping_by_signal():
        run_tasks(["one"], [], tmp_path / "out", script(body), seen.append)
    assert exit_.value.code == 128 + signal.SIGTERM
    assert seen[-1].processes[-1].exit_code == -signal.SIGTERM
    assert seen[-1].failed == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("stubborn", [False, True])
def test_what_a_launcher_has_started_ends_with_it(
    script, tmp_path, tasks, monkeypatch, stubborn
):
    """As 'accelerate launch' does: it dies of the signal and leaves its own process alone."""
    monkeypatch.setattr(harness_run, "_PATIENCE", 0.3 if stubborn else 600)
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); " if stubborn else ""
    inner = f"import signal, time; {deaf}print('up', flush=True); time.sleep(600)"
    body = (
        f"import subprocess\nchild = subprocess.Popen([sys.executable, '-c', {inner!r}], stdout=subprocess.PIPE)\n"
        f"child.stdout.readline()\npathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(child.pid))\n"
        f"os.kill(os.getppid(), signal.SIGTERM)\ntime.sleep(600)"
    )
    with pytest.raises(SystemExit), stopping_by_signal():
        run_tasks(["one"], [], tmp_path / "out", script(body))
    wait_until(lambda: process_records._began(int((tmp_path / "pid").read_text())) is None)


@pytest.mark.parametrize("name", ["medical", "tagged"])
def test_a_missing_dataset_is_left_out_of_its_group(tasks, name):
    chosen = select([name, "general"])

    assert chosen.ready == ("one", "general")
    assert list(chosen.missing) == ["two"]
    assert "medtasks data prepare mediconfusion" in chosen.missing["two"]


@pytest.mark.parametrize("name", ["medical", "tagged"])
def test_a_damaged_dataset_is_left_out_of_its_group(tasks, sample_home, name):
    home = Path(os.environ["MEDTASKS_HOME"])
    shutil.copytree(sample_home, home, dirs_exist_ok=True)
    assert select([name]) == Selection((name,), {})
    (damaged,) = (home / "datasets").rglob("test/*.arrow")
    damaged.write_bytes(damaged.read_bytes()[:-400])

    chosen = select([name])

    assert chosen.ready == ("one",)
    assert (
        "prepare the dataset again: medtasks data prepare mediconfusion"
        in chosen.missing["two"]
    )


def test_arguments_that_the_harness_gets(tmp_path, script, monkeypatch):
    """Its files are named by the zone that ours have, and it reads the folder once more as ``key=value``."""
    monkeypatch.chdir(tmp_path)
    body = f"pathlib.Path({str(tmp_path / 'seen')!r}).write_text(json.dumps(sys.argv))"
    for arguments, zones in (
        ([], ["UTC"]),
        (["--timezone=Asia/Tokyo"], []),
        (["--timez", "Asia/Tokyo"], []),
    ):
        run_tasks(["one"], arguments, Path("3"), script(body))
        words = json.loads((tmp_path / "seen").read_text())
        assert [
            words[place + 1] for place, word in enumerate(words) if word == "--timezone"
        ] == zones
        folder = words[words.index("--output_path") + 1]
        assert simple_parse_args_string(f"output_path={folder}") == {"output_path": "./3"}
