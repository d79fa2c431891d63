"""Every command that README and docs show is run as it stands there, page by page, or says why it is not tested."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from ..curate.reviewed_study import detailed_study, review
from ..scripted_server import Endpoint, serving
from ..warm_python import warm
from .conftest import REPOSITORY, Run
from .test_own_task_page import BLOCKS, NAMES

PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "tasks_yaml/*/README.md", "model_adapters/README.md")
    for page in REPOSITORY.glob(pattern)
)
COMMAND = re.compile(r"\s*(pip|medtasks|lmms[_-]eval|lm_eval|python3? -m|accelerate|torchrun|git|export) ")
NOT_TESTED = re.compile(r"# not tested: \w")
JUDGE = "127.0.0.1:8000"


def commands(page: Path) -> list[str]:
    """Lines of the page's shell blocks that can be run; what installs is the gate's to run, see ``.ci/run``."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).splitlines()
    return [line for line in lines if not NOT_TESTED.search(line) and not line.startswith("pip install")]


# Runs the examples of a page and compares what they return with what the page prints.
EXAMPLES = """
import doctest, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
source = "\\n".join(re.findall(r"^```python\\n(>>> .*?)^```", text, re.DOTALL | re.MULTILINE))
test = doctest.DocTestParser().get_doctest(source, {}, sys.argv[1], sys.argv[1], 0)
sys.exit(doctest.DocTestRunner().run(test).failed)
"""


def own_tasks(folder: Path) -> None:
    """Do what the page on own tasks says before its commands: copy its blocks into ``my_tasks``."""
    images = folder / "my_tasks" / "images"
    images.mkdir(parents=True)
    for name, (text, rows) in zip(NAMES, BLOCKS, strict=True):
        (folder / "my_tasks" / f"{name}.yaml").write_text(text)
        (folder / "my_tasks" / f"{name}.jsonl").write_text(rows)
        for row in map(json.loads, rows.splitlines()):
            for image in [row["image_file"]] if "image_file" in row else row.get("image_files", []):
                Image.new("RGB", (40, 30), (90, 20, len(name))).save(images / image)


def curated(folder: Path) -> None:
    """Make what the commands that are not tested would: a study with drafts, and an expert's review."""
    review(detailed_study(folder / "chest_pairs", name="chest_pairs"))


PREPARED: dict[str, Callable[[Path], None]] = {"own_tasks.md": own_tasks, "curate.md": curated}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_stand_in_shell_blocks(page):
    outside = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert [line for line in outside.splitlines() if line.startswith("    ") and COMMAND.match(line)] == []


def test_scripts_can_be_read():
    scripts = re.findall(
        r"^```bash\n(.*?)^```", (REPOSITORY / "docs" / "scale.md").read_text(), re.DOTALL | re.MULTILINE
    )
    assert scripts
    for script in scripts:
        subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_page_runs_from_top_to_bottom(page: Path, run: Run, wheel: Path, tmp_path: Path):
    PREPARED.get(page.name, lambda folder: None)(tmp_path)
    (tmp_path / "bin").mkdir()
    path = os.pathsep.join([str(wheel / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in ("medtasks", "lmms_eval", "torchrun"):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {shlex.join(warm([name], path))} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    with serving(Endpoint()) as judge:
        script = "\n".join(commands(page)).replace(f"http://{JUDGE}/v1", judge.url)
        if "```python\n>>> " in page.read_text(encoding="utf-8"):
            script += f"\n{shlex.join([sys.executable, '-c', EXAMPLES, str(page)])}"
        places = {"MEDTASKS_HOME": str(tmp_path / "home"), "PATH": f"{tmp_path / 'bin'}{os.pathsep}{path}"}
        shown = run(["bash", "-euxo", "pipefail", "-c", script], cold=True, **places)
    assert shown.returncode == 0, shown.stdout[-3000:] + shown.stderr[-3000:]
