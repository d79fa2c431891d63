"""``medtasks doctor``: what is printed and written, and the exit code."""

import json
import sys

import pytest
import typer
from typer.testing import CliRunner

from medtasks import __version__
from medtasks.audit.doctor.check_results import CheckResult, State
from medtasks.cli import start as command

from ..processes import run_fresh
from ..tables import each_row

app = typer.Typer()
app.command("doctor")(command.doctor)
app.callback()(lambda: None)

FINE = CheckResult("harness", "version", State.OK, "lmms-eval [0.7.3] fits")
NOTE = CheckResult("harness", "command", State.NOTE, "it is elsewhere", "look there")
WARNING = CheckResult("machine", "disk", State.WARNING, "4.0 GB are free", "make room")
PROBLEM = CheckResult("datasets", "mediconfusion", State.PROBLEM, "not prepared", "medtasks data prepare mediconfusion")


@pytest.fixture
def doctor(monkeypatch):
    """Run the command with these findings; returns what it did and what it asked for."""

    def run(*arguments, findings):
        asked = []

        def examine(names, *, verify, model_args):
            asked.append((list(names), verify, *([model_args] if model_args else [])))
            return list(findings)

        monkeypatch.setattr("medtasks.audit.doctor.examining.examine", examine)
        return CliRunner().invoke(app, ["doctor", *map(str, arguments)]), asked

    return run


@each_row(
    "findings, code, last",
    [
        ([FINE], 0, "0 problems, 0 warnings, 0 notes, 1 ok."),
        ([FINE, NOTE, WARNING], 0, "0 problems, 1 warning, 1 note, 1 ok."),
        ([FINE, PROBLEM, PROBLEM], 1, "2 problems, 0 warnings, 0 notes, 1 ok."),
        ([], 0, "0 problems, 0 warnings, 0 notes, 0 ok."),
    ],
)
def test_exit_code(doctor, findings, code, last):
    ran, _ = doctor(findings=findings)
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (code, last)


def test_plain_where_nobody_reads_a_terminal(doctor):
    ran, asked = doctor(findings=[FINE, NOTE, PROBLEM])
    assert ran.stdout.splitlines()[:-1] == [
        "harness",
        "  ok       version: lmms-eval [0.7.3] fits",
        "  note     command: it is elsewhere",
        "           fix: look there",
        "datasets",
        "  problem  mediconfusion: not prepared",
        "           fix: medtasks data prepare mediconfusion",
    ]
    assert asked == [([], False)]


def test_served_model_and_json(doctor, tmp_path):
    for option in ("--model-args", "--model_args"):
        _, asked = doctor(option, "base_url=http://127.0.0.1:9/v1", findings=[FINE])
        assert asked == [([], False, "base_url=http://127.0.0.1:9/v1")]
    ran, _ = doctor("--json", tmp_path / "gone" / "doctor.json", findings=[FINE])
    assert "cannot write" in str(ran.exception)
    path = tmp_path / "doctor.json"
    ran, asked = doctor("--json", path, "--task", "a", "--task", "b", "--verify", findings=[FINE, PROBLEM])
    assert ran.exit_code == 1
    assert asked == [(["a", "b"], True)]
    assert json.loads(path.read_text()) == {
        "medtasks": __version__,
        "tasks": ["a", "b"],
        "verified": True,
        "counts": {"ok": 1, "note": 0, "warning": 0, "problem": 1},
        "findings": [
            {"area": "harness", "name": "version", "state": "ok", "found": "lmms-eval [0.7.3] fits", "fix": ""},
            {
                "area": "datasets",
                "name": "mediconfusion",
                "state": "problem",
                "found": "not prepared",
                "fix": "medtasks data prepare mediconfusion",
            },
        ],
    }


@pytest.mark.slow
def test_real_surroundings_with_secrets(tmp_path):
    key = "sk-canary-0123456789"
    path = tmp_path / "doctor.json"
    variables = {
        "MEDTASKS_HOME": str(tmp_path / "home"),
        "MEDTASKS_JUDGE_BASE_URL": "http://127.0.0.1:9/v1",
        "MEDTASKS_JUDGE_MODEL": "judge",
        "MEDTASKS_JUDGE_API_KEY": key,
        "HF_TOKEN": "hf_canary0123456789",
    }
    program = (
        "import typer; from medtasks.cli import start; app = typer.Typer(); "
        "app.command('doctor')(start.doctor); app.callback()(lambda: None); app()"
    )
    arguments = ["doctor", "--task", "mediconfusion_ff", "--verify", "--json", str(path)]
    ran = run_fresh([sys.executable, "-c", program, *arguments], tmp_path, **variables)
    findings = json.loads(path.read_text())["findings"]
    assert ran.returncode == 1
    assert "Traceback" not in ran.stdout + ran.stderr
    assert key not in ran.stdout + ran.stderr + path.read_text()
    assert "canary" not in ran.stdout + ran.stderr + path.read_text()
    assert {one["name"] for one in findings if one["state"] == "problem"} == {"mediconfusion", "reply"}
    assert {one["name"] for one in findings if one["state"] == "ok"} >= {"version", "torch"}
    assert not (tmp_path / "home").exists()  # looking changes nothing
