"""A review in a process of its own, which can be killed."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

_REUSABLE = """
import runpy
from medtasks.curate.review.review_server import ReviewServer
ReviewServer.allow_reuse_address = True
runpy.run_module("medtasks.cli.main", run_name="__main__")
"""


def start_review(
    folder: Path, files: int | None = None, *, port_is_free_at_once: bool = False
) -> tuple["subprocess.Popen[str]", str]:
    """Start a review by ``anna``, with at most ``files`` open files; return it and its address once it serves.

    The system keeps the port from others for a minute after its end, unless ``port_is_free_at_once``.
    """
    started = [sys.executable, *(("-c", _REUSABLE) if port_is_free_at_once else ("-m", "medtasks.cli.main"))]
    command = [*started, "curate", "review", str(folder), "--reviewer", "anna"]
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    process = subprocess.Popen([*limited, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", lines[0])
    assert address is not None, lines
    with urllib.request.urlopen(f"{address.group()}study", timeout=300) as reply:
        assert reply.status == 200
    return process, address.group()
