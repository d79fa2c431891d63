"""Commands as users give them: from the installed wheel, and all that README and docs show."""

import doctest
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lmms_eval.models import MODEL_REGISTRY_V2
from PIL import Image

from medtasks.doctor.check_results import State
from medtasks.doctor.examining import importable_model
from medtasks.tasks.task_files import installed_tasks, task_files
from medtasks.tasks.task_index import tasks_folder

from ..curate.reviewed_study import detailed_study, review
from ..processes import run_here
from ..scripted_server import Endpoint, serving
from .conftest import REPOSITORY
from .test_own_task_page import write_blocks


@pytest.mark.slow
def test_command_line_comes_from_the_wheel(run, wheel):
    shown = run(["medtasks", "path"])
    assert shown.returncode == 0
    assert Path(shown.stdout.strip()).is_relative_to(wheel)
    # This command of the harness loads no plugins.
    listed = run_here(
        ["lmms_eval", "tasks", "list", "--include-path", shown.stdout.strip()], wheel
    )
    in_files = {name for name, task in task_files().items() if task.origin is None}
    assert in_files <= {line.strip() for line in listed.stdout.splitlines()}


@pytest.fixture(scope="module")
def wheel_files(wheel):
    return {str(path.relative_to(wheel)) for path in wheel.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_wheel_holds_tasks_and_package(wheel_files):
    ours = [
        path
        for path in tasks_folder().rglob("*")
        if path.is_file() and path.suffix in ("", ".yaml", ".md")
    ]
    tasks = {f"medtasks/tasks_yaml/{path.relative_to(tasks_folder())}" for path in ours}
    assert tasks <= wheel_files
    package = [path for path in (REPOSITORY / "medtasks").rglob("*") if path.is_file()]
    modules = {str(path.relative_to(REPOSITORY)) for path in package if path.suffix != ".pyc"}
    assert modules <= wheel_files
    assert {
        "medtasks/py.typed",
        "medtasks/tasks_yaml/mediconfusion/_paired_choice_yaml",
        "medtasks/model_adapters/tiny.py",
    } <= wheel_files


@pytest.mark.slow
def test_a_wheel_installs_nothing_besides_the_package(wheel_files):
    outside = ("tasks_yaml/", "model_adapters/", "tests/")
    assert not any(name.startswith(outside) for name in wheel_files)


@pytest.mark.slow
def test_a_wheel_names_its_entry_points(wheel):
    (entry_points,) = wheel.glob("medtasks-*.dist-info/entry_points.txt")
    text = entry_points.read_text()
    assert "[lmms_eval.models]\nmedtasks = medtasks.lmms.plugin:model_manifests" in text
    assert "lmms_eval = lmms_eval.cli.dispatch:main" in text


PAGES = sorted(
    page
    for pattern in ("*.md", "docs/*.md", "tasks_yaml/*/README.md", "model_adapters/README.md")
    for page in REPOSITORY.glob(pattern)
)
NOT_TESTED = re.compile(r"# not tested: \w")
JUDGE = "127.0.0.1:8000"


INSTALLS_FOLDER = "pip install ./"


def shell_lines(page):
    """Lines of the page's shell blocks that can be run; what installs medtasks is for the gate, see ``.ci/run``."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    lines = "".join(blocks).splitlines()
    return [
        line
        for line in lines
        if not NOT_TESTED.search(line)
        and (line.startswith(INSTALLS_FOLDER) or not line.startswith("pip install"))
    ]


def commands(lines):
    """Yield the commands of shell lines: a document that is part of one stays with it, and ``&&`` parts two."""
    remaining = iter(lines)
    for line in remaining:
        if match := re.search(r"<<'(\w+)'", line):
            document = [line]
            while document[-1] != match[1]:
                document.append(next(remaining))
            yield "\n".join(document)
        elif line and not line.startswith("#"):
            yield from line.split(" && ")


def run_command(command, folder, patch):
    """Run one command of a page: ours and the harness's in this process, all else in a shell."""
    if command.startswith("export "):
        for word in shlex.split(command)[1:]:
            name, _, value = word.partition("=")
            patch.setenv(name, value.replace("$PWD", str(folder)))
    elif command.startswith(INSTALLS_FOLDER):
        install_folder(folder / command.removeprefix(INSTALLS_FOLDER), folder / "site", patch)
    elif command.startswith(("medtasks ", "lmms_eval ")):
        alone, may_fail, _ = command.partition(" || true")
        words = [os.path.expandvars(word) for word in shlex.split(alone, comments=True)]
        for option, value in {"--batch_size": "32", "--gen_kwargs": "max_new_tokens=8"}.items():
            if "medtasks_tiny" in words and option not in words:  # or it takes a minute longer
                words += [option, value]
        ran = run_here(words, folder)
        assert ran.returncode == 0 or may_fail, (
            f"{command}\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"
        )
    else:
        torchrun = (
            f'torchrun() {{ {shlex.quote(sys.executable)} -m torch.distributed.run "$@"; }}'
        )
        line = ["bash", "-euo", "pipefail", "-c", f"{torchrun}\n{command}"]
        ran = subprocess.run(line, cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, f"{command}\n{ran.stdout[-3000:]}{ran.stderr[-3000:]}"


def install_folder(folder, site, patch):
    """Put a package where Python finds it until the test ends, as pip would, which may need the network."""
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    name = project["project"]["name"]
    assert project["tool"]["setuptools"]["package-dir"] == {name: "."}
    shutil.copytree(folder, site / name)
    about = site / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in project["project"]["entry-points"].items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    patch.syspath_prepend(str(site))
    installed_tasks.cache_clear()


def run_examples(page):
    """Run the page's Python examples and compare what they return with what the page prints."""
    text = page.read_text(encoding="utf-8")
    source = "\n".join(re.findall(r"^```python\n(>>> .*?)^```", text, re.DOTALL | re.MULTILINE))
    examples = doctest.DocTestParser().get_doctest(source, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(examples).failed == 0


def with_my_images(folder):
    """Write the folder that the page on publishing begins with; its DICOM file is a PNG here, which needs no extra."""
    (folder / "my_images").mkdir()
    page = (REPOSITORY / "docs" / "publish.md").read_text(encoding="utf-8")
    content = json.loads(re.search(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[1])
    for number, sample in enumerate(content["samples"]):
        sample["images"] = [f"{number}.png"]
        Image.linear_gradient("L").rotate(90 * number).save(
            folder / "my_images" / f"{number}.png"
        )
    (folder / "my_images" / "dataset.json").write_text(json.dumps(content))


def curated(folder):
    """Make what the commands that are not tested would: a study with drafts, and an expert's review."""
    review(detailed_study(folder / "chest_pairs", name="chest_pairs"))


PREPARED = {
    "own_tasks.md": lambda folder: write_blocks(folder / "my_tasks"),
    "curate.md": curated,
    "publish.md": with_my_images,
    "start.md": with_my_images,
}


def harness_models():
    """Return the harness's models that pages name, in a command or as code."""
    words = {
        word
        for page in PAGES
        for word in re.findall(r"(?<=`)\w+(?=`)|(?<=--model )\w+", page.read_text("utf-8"))
    }
    return sorted(words.intersection(MODEL_REGISTRY_V2.list_model_names()))


@pytest.mark.slow
def test_models_that_pages_name_can_be_imported_after_the_readme_command():
    """The gate runs this also in the environment that the README's first command makes, without any extra."""
    results = [result for name in harness_models() for result in importable_model(name)]
    assert {"qwen2_5_vl", "hf_vlm"} <= {result.name for result in results}
    assert [result.found for result in results if result.state is not State.OK] == []


def test_scripts_can_be_read():
    for page in PAGES:
        for script in re.findall(
            r"^```bash\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
        ):
            subprocess.run(["bash", "-n"], input=script, text=True, check=True)


@pytest.fixture
def packages_of_its_own():
    """Forget the packages that a page installs."""
    yield
    installed_tasks.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [page for page in PAGES if shell_lines(page)], ids=lambda page: page.stem
)
def test_page_runs_from_top_to_bottom(page, tmp_path, monkeypatch, packages_of_its_own):
    PREPARED.get(page.name, lambda folder: None)(tmp_path)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("lmms_eval.__main__.make_table", lambda *_: "")  # no test reads it
    monkeypatch.chdir(tmp_path)
    with serving(Endpoint()) as judge:
        for command in commands(shell_lines(page)):
            run_command(command.replace(f"http://{JUDGE}/v1", judge.url), tmp_path, monkeypatch)
        if "```python\n>>> " in page.read_text(encoding="utf-8"):
            run_examples(page)
