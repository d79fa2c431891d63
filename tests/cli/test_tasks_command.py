"""``medtasks tasks``, ``path``, ``--version`` and the entry itself."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import medtasks as package
from medtasks.cli import start as tasks
from medtasks.errors import MedTasksError

from ..tables import each_row

MODULE = [sys.executable, "-m", "medtasks.cli.main"]


def test_tasks(medtasks):
    lines = medtasks("tasks").out.splitlines()
    paired = [line for line in lines if line.startswith("mediconfusion")]
    assert [line.split()[0].removeprefix("mediconfusion") for line in paired] == ["", "_all", "_ff", "_gd", "_ps"]
    assert [line.split()[1] for line in paired] == ["task", "group", "task", "task", "task"]
    assert len({line.index("MediConfusion") for line in paired}) == 1
    assert ["multimedeval", "group"] in [line.split()[:2] for line in lines]
    lines = medtasks("tasks", "MediConfusion", "greedy").out.splitlines()
    assert [line.split()[0] for line in lines] == ["mediconfusion_gd"]
    assert [line.split()[0] for line in medtasks("tasks", "_ps", "--sanity").out.splitlines()] == ["mediconfusion_ps"]

    lines = [line.split() for line in medtasks("tasks", "--sanity").out.splitlines()]
    found = {name: endings for name, *endings in lines}
    assert found["mediconfusion"] == ["_blind", "_blank", "_swapped", "_rotated", "_sanity"]
    assert found["mediconfusion_ps"] == ["_blind", "_blank", "_swapped", "_sanity"]
    assert not {"mediconfusion_all", "multimedeval_medqa"} & found.keys()
    assert "mediconfusion_blind" not in medtasks("tasks").out
    assert "--sanity" in medtasks("tasks", "--help").out


def test_path_and_version(medtasks):
    folder = Path(medtasks("path").out.removesuffix("\n"))
    assert (folder / "mediconfusion" / "mediconfusion.yaml").is_file()
    assert medtasks("--version").out == f"medtasks {package.__version__}\n"


@each_row("arguments", [["tasks", "--no-such"], ["no-such"], ["score"], ["data", "prepare"]])
def test_wrong_usage(medtasks, arguments):
    ran = medtasks(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert "Usage: medtasks" in ran.err
    assert "Traceback" not in ran.err


SENTENCES = ["see [bold]this[/bold] and [/]", "C:\\[x]", "a [link=x]y[/link] \\[z]"]
LOCKED = PermissionError(13, "Permission denied", "/locked")


@each_row(
    "error, sentence",
    [*((MedTasksError(sentence), sentence) for sentence in SENTENCES), (LOCKED, "/locked: Permission denied")],
)
def test_sentences_are_printed_as_they_are(fails, monkeypatch, error, sentence):
    def stop():
        raise error

    monkeypatch.setattr(tasks, "tasks_folder", stop)
    assert fails(["path"]).err == f"medtasks: {sentence}\n"


def test_bugs_are_not_hidden(monkeypatch):
    from medtasks.cli.main import main

    def stop():
        raise ZeroDivisionError

    monkeypatch.setattr(tasks, "tasks_folder", stop)
    monkeypatch.setattr(sys, "argv", ["medtasks", "path"])
    with pytest.raises(ZeroDivisionError):
        main()


def test_exit_code_and_stderr_of_the_process(tmp_path):
    command, environment = [*MODULE, "score", "mediconfusion", "none"], {**os.environ, "MEDTASKS_HOME": str(tmp_path)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (1, "", 1)
    assert "medtasks data prepare mediconfusion" in ran.stderr


def test_ctrl_c(tmp_path):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([*MODULE, "parse", "robust_choice"], **pipes, text=True, bufsize=1) as process:
        process.stdin.write('{"reply": "A"}\n' * 1000)  # its output outgrows the buffer, so a line arrives here
        process.stdin.flush()
        assert process.stdout.readline() == '{"value": "A", "reason": "ok"}\n'
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=300)
    assert process.returncode == 130
    assert printed == ("medtasks: interrupted; what was finished is kept, run the same command again to go on\n")
