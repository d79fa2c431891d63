"""A review in a process of its own, which can be killed."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path


def start_review(folder: Path) -> tuple["subprocess.Popen[str]", str]:
    """Start a review of a study by ``anna`` and return it and its address once it serves."""
    command = [sys.executable, "-m", "medtasks.cli.main", "curate", "review", str(folder), "--reviewer", "anna"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline(), process.stdout.readline()]
    address = re.search(r"http://127\.0\.0\.1:\d+/[\w-]+/", lines[0])
    assert address is not None, lines
    with urllib.request.urlopen(f"{address.group()}study", timeout=300) as reply:
        assert reply.status == 200
    return process, address.group()
