"""A program runs in the warm Python as it does in a cold one."""

import json
import os
import signal
import subprocess
import sys

import pytest

from .waiting import PATIENCE, wait_until
from .warm_python import reasons_to_start_cold, run_fresh

TELLING = """
import atexit, json, os, sys, tempfile
print(json.dumps({
    "arguments": sys.argv, "folder": os.getcwd(), "first": sys.path[0], "name": __name__, "random": os.environ["A"],
    "path": [entry for entry in sys.path if "elsewhere" in entry], "input": sys.stdin.read(),
    "temporary": tempfile.gettempdir(), "names": sorted(set(globals()) - set(__builtins__.__dict__)),
    "ours": [name for name in sys.modules if name.partition(".")[0] in ("lmms_eval", "medtasks")],
}))
print("last", file=sys.stderr)
atexit.register(print, "at the end")
"""


@pytest.fixture
def both(tmp_path):
    """Run a program cold and warm; return what it did, as far as a caller can tell."""

    def run(*arguments, **variables):
        before = len(reasons_to_start_cold())
        done = [run_fresh([sys.executable, *arguments], tmp_path, cold=cold, **variables) for cold in (True, False)]
        assert reasons_to_start_cold()[before:] == []
        return [(one.returncode, one.stdout, one.stderr) for one in done]

    return run


@pytest.mark.parametrize("way", ["-c", "-m", "script", "-P"])
def test_surroundings_are_those_of_the_caller(both, tmp_path, way):
    (tmp_path / "told.py").write_text(TELLING)
    line = {"-c": ["-c", TELLING], "-m": ["-m", "told"], "script": ["told.py"], "-P": ["-P", "told.py"]}[way]
    (tmp_path / "elsewhere").mkdir()
    variables = {"A": "1", "PYTHONPATH": str(tmp_path / "elsewhere"), "TMPDIR": str(tmp_path)}
    cold, warm = both(*line, "--an-option", "ä b", **variables)
    assert cold[::2] == warm[::2] == (0, "last\n")
    (told, *after), (tells, *later) = (done[1].splitlines() for done in (cold, warm))
    assert json.loads(tells) == json.loads(told)
    assert after == later == ["at the end"]


@pytest.mark.parametrize(
    "program",
    [
        "raise SystemExit(3)",
        "raise SystemExit('a word')",
        "raise SystemExit",
        "import os; os._exit(7)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
        "import threading; threading.Timer(0.1, print, ['a thread']).start()",
        "import sys; sys.stdout.write('no end of line')",
        "import warnings; warnings.warn('a warning')",
    ],
)
def test_ends(both, program):
    (*cold, said), (*warm, says) = both("-c", program)
    assert warm == cold
    assert says.splitlines()[-1:] == said.splitlines()[-1:]


def test_an_error_is_told_as_python_does(both):
    cold, warm = both("-c", "def fail():\n    {}['key']\nfail()")
    assert cold[:2] == (1, "")
    assert warm == cold


def test_a_start_from_within_is_warm_too(both):
    cold, warm = both("-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1)'], check=True)")
    assert warm == cold == (0, "1\n", "")


def test_seeds_differ(tmp_path):
    program = "import numpy, random; print(random.random(), numpy.random.rand())"
    first, second = (run_fresh([sys.executable, "-c", program], tmp_path).stdout.split() for _ in "12")
    assert set(first).isdisjoint(second)


@pytest.mark.parametrize(
    ("arguments", "variables", "why"),
    [
        (["-c", "import huggingface_hub"], {"HF_HUB_OFFLINE": "0"}, "HF_HUB_OFFLINE=0 instead of 1"),
        (["-c", ""], {"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS=2 instead of 1"),
        (["-c", ""], {"PYTHONHASHSEED": "0"}, "PYTHONHASHSEED=0 instead of None"),
        (["-I", "-c", ""], {}, "options of Python"),
    ],
)
def test_what_reads_its_surroundings_too_early_is_cold(tmp_path, arguments, variables, why):
    assert run_fresh([sys.executable, *arguments], tmp_path, **variables).returncode == 0
    assert reasons_to_start_cold()[-1].startswith(why)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_the_program(tmp_path, number):
    program = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    executable = run_fresh([sys.executable, "-c", "import sys; print(sys.executable)"], tmp_path).stdout.strip()
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [executable, "-c", program], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    )
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() and pid.read_text(), process)
    os.killpg(process.pid, number)
    assert process.wait(PATIENCE) == -number
    wait_until(lambda: not os.path.exists(f"/proc/{pid.read_text()}"))
