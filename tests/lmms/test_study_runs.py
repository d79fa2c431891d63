"""Published studies run like the benchmarks whose protocol they follow, with every audit of theirs."""

import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from typer.testing import CliRunner

from medtasks.audit.report.collecting import collect_run
from medtasks.audit.report.page import write_page
from medtasks.cli.main import app
from medtasks.curate.study import DRAFTS, IMAGES, PAIRS, StudyKind
from medtasks.data.catalogue import Access
from medtasks.home import dataset_folder
from medtasks.runs.run import read_run

from ..curate.reviewed_study import detailed_study, even, review
from ..processes import run_here
from ..scripted_server import Endpoint, serving
from .test_canary import CANARY, MEDTASKS, found_in, outside, samples

pytestmark = pytest.mark.slow

MODES = ("made_up", "made_up_gd", "made_up_ps")
VARIANTS = ("made_up_blind", "made_up_blank", "made_up_swapped", "made_up_rotated")
TASKS = (*MODES, *VARIANTS, "made_up_ff", *(f"made_up_{kind}" for kind in StudyKind if kind is not StudyKind.PAIRS))
LIKELIHOODS = ("made_up_visual_closed_ll", "made_up_knowledge_closed_ll", "made_up_contextual_ll")
PRIVATE = ("made_up_all", "made_up_ff", "made_up_rotated", "made_up_visual_closed", "made_up_visual_open")


def judged(body: dict[str, Any]) -> str:
    """Return what a judge says that prefers option A, and finds half of the components wrong."""
    asked = " ".join(message["content"] for message in body["messages"])
    if "[Answer A]" in asked:
        return "A: 9\nB: 2\nIt is close to A."
    if "range[0, 5]" in asked:
        return '{"model_1": 2}'
    if "binary output" in asked:
        return '{"model_1": 0}'
    return json.dumps({"model_1": dict.fromkeys(("anatomy", "symptom", "measurement"), half)})


half = {"recall_number": 1, "wrong_number": 1}


def publish_all(root: Path, access: Access, change: Callable[[Path], None] = lambda study: None) -> str:
    """Make up, review, change and publish a study of each kind in the data folder in force; return what was printed."""
    printed = []
    for kind in StudyKind:
        name = "made_up" if kind is StudyKind.PAIRS else f"made_up_{kind}"
        review(detailed_study(root / kind, kind, name=name, access=access), said=even)
        change(root / kind)
        done = CliRunner().invoke(app, ["curate", "publish", str(root / kind), "--allow-incomplete"])
        assert done.exit_code == 0, done.output
        printed.append(done.output)
    return "".join(printed)


def run_tiny(root: Path, judge: Endpoint, tasks: Sequence[str]) -> CompletedProcess[str]:
    """Run the tiny model, with everything that is written below the folder with the data folder."""
    judge.choose = lambda body: judge.reply(judged(body))
    options = ["--tasks", ",".join(tasks), "--output_path", "out", "--log_samples"]
    line = [*MEDTASKS, "run", "--model", "medtasks_tiny", *options]
    named = {"MEDTASKS_JUDGE_BASE_URL": judge.url, "MEDTASKS_JUDGE_MODEL": "m"}
    places = {"MEDTASKS_HOME": str(root / "home"), "HF_HOME": str(root / "hf"), "TMPDIR": str(root)}
    return run_here([*line, "--batch_size", "1"], root, **named, **places)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data folder and a run on all studies that were published."""
    root = tmp_path_factory.mktemp("studies")
    with pytest.MonkeyPatch.context() as patch, serving(Endpoint()) as judge:
        patch.setenv("MEDTASKS_HOME", str(root / "home"))
        publish_all(root / "made_up", Access.PUBLIC)
        ran = run_tiny(root, judge, ("made_up_all", *TASKS[len(MODES) :], *LIKELIHOODS))
    assert ran.returncode == 0, ran.stderr[-4000:]
    return root


@pytest.fixture
def run(made: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDTASKS_HOME", str(made / "home"))
    return made / "out"


def results(run: Path) -> dict[str, dict[str, Any]]:
    (file,) = run.rglob("*_results.json")
    found: dict[str, dict[str, Any]] = json.loads(file.read_text())["results"]
    return found


def test_every_task_has_scores_and_the_group_the_best_of_its_modes(run: Path) -> None:
    found = results(run)
    assert set(found) == {"made_up_all", *TASKS, *LIKELIHOODS}
    for metric, best in (("set_accuracy", max), ("individual_accuracy", max), ("confusion", min)):
        of_modes = [found[mode][f"{metric},reference"] for mode in MODES]
        assert found["made_up_all"][f"{metric},reference"] == best(of_modes)
        assert math.isnan(found["made_up_all"].get(f"{metric}_stderr,reference", math.nan))
    assert found["made_up_ff"]["scored_samples,reference"] == 6
    assert found["made_up_ff"]["confusion,reference"] == 1  # the judge says A each time
    assert found["made_up_rotated"]["scored_samples,robust"] == 12
    closed = found["made_up_visual_closed"]
    assert (closed["scored_samples,strict"], closed["always_yes,strict"]) == (5, 1 / 5)
    assert closed["acc_anatomy,reference"] == closed["accuracy,reference"] > 0
    assert found["made_up_visual_open"]["chair_judge_anatomy,strict"] == 0.5
    assert found["made_up_knowledge_open"]["knowledge_rate,strict"] == 1
    assert found["made_up_contextual"]["always_no,strict"] == 0.2


def test_report_shows_the_study_and_no_published_results_beside_it(run: Path) -> None:
    report = collect_run(read_run(run))
    tasks = {task.name: task for task in report.tasks}
    assert set(TASKS) <= set(tasks)
    assert [task.published for task in tasks.values() if task.published] == []
    pairs = tasks["made_up"]
    assert (pairs.access, pairs.withheld, len(pairs.items), len(pairs.pictures)) == ("public", False, 6, 6)
    assert {gain.variant for gain in pairs.gains} == {"blind", "blank", "swapped"}
    assert {group.name for group in pairs.rules[0].groups["categories"]} == {"pulmonary", "vascular"}
    assert {"hallucination", "kind", "source"} <= set(tasks["made_up_visual_closed"].rules[0].groups)
    write_page(report, run / "report.html")
    assert "arXiv 2409" not in (run / "report.html").read_text()


def test_nothing_of_a_credentialed_study_is_logged(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = tmp_path_factory.mktemp(CANARY)
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    printed = publish_all(studies, Access.CREDENTIALED, planted)
    assert CANARY not in printed.replace(str(studies), "")
    assert printed.count("left out: the image in line 1 of images.jsonl cannot be used: its file cannot be read") == 1
    with serving(Endpoint()) as judge:
        ran = run_tiny(tmp_path, judge, PRIVATE)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert CANARY in str(judge.bodies)  # on this machine
    assert found_in(ran, tmp_path / "out", *outside(tmp_path / "home")) == []
    rows = [row for of_task in samples(tmp_path / "out").values() for row in of_task]
    assert len(rows) > 60
    assert all("is credentialed" in str(row["target"]) for row in rows)
    sheets = [(dataset_folder("made_up") / name).read_text() for name in ("datasheet.json", "datasheet.md")]
    assert CANARY not in str(sheets)
    report = collect_run(read_run(tmp_path / "out"))
    write_page(report, tmp_path / "out" / "report.html")
    assert {task.withheld for task in report.tasks if task.dataset} == {True}
    assert found_in(ran, tmp_path / "out") == []


def planted(study: Path) -> None:
    """Put the canary before every text and id of a study, and lose an image of one of pairs."""
    of_images = r"im\d|p\d|patient|Radiograph|left|right|lingula|opacity"
    starts = rf"{of_images}|Where|In|Is|Describe|What|A follow|nowhere|every|the heart"
    for name in (IMAGES, PAIRS, DRAFTS):
        if (study / name).is_file():
            text = (study / name).read_text()
            (study / name).write_text(re.sub(rf'"(?=(?:{starts}))', f'"{CANARY} ', text))
    review(study, said=even)
    if (study / PAIRS).is_file():
        (study / "drawn" / "im1.png").unlink()
