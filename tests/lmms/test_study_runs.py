"""Published studies run like the benchmarks whose protocol they follow, with every audit of theirs."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner

from medtasks.cli.main import app
from medtasks.curate.study import DRAFTS, IMAGES, PAIRS, StudyKind
from medtasks.data.catalogue import Access
from medtasks.home import dataset_folder
from medtasks.report.collecting import collect_run
from medtasks.report.page import write_page
from medtasks.runs.run import open_run

from ..curate.reviewed_study import detailed_study, even, review
from ..processes import run_here
from ..scripted_server import Endpoint, serving
from .test_canary import CANARY, MEDTASKS, found_in, outside, samples

pytestmark = pytest.mark.slow

MODES = ("made_up", "made_up_gd", "made_up_ps")
TASKS = (
    *(f"made_up_{variant}" for variant in ("blind", "blank", "swapped", "rotated", "ff")),
    *(f"made_up_{kind}" for kind in StudyKind if kind is not StudyKind.PAIRS),
    *("made_up_visual_closed_ll", "made_up_knowledge_closed_ll", "made_up_contextual_ll"),
)


def judged(body):
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


def publish_all(root, access, change=lambda study: None):
    """Make up, review, change and publish a study of each kind in the data folder in force; return what was printed."""
    printed = []
    for kind in StudyKind:
        name = "made_up" if kind is StudyKind.PAIRS else f"made_up_{kind}"
        review(detailed_study(root / kind, kind, name=name, access=access), said=even)
        change(root / kind)
        done = CliRunner().invoke(
            app, ["curate", "publish", str(root / kind), "--allow-incomplete"]
        )
        assert done.exit_code == 0, done.output
        printed.append(done.output)
    return "".join(printed)


@dataclass(frozen=True)
class StudyRun:
    """A run of all published studies: its folder, the process, what publishing printed, and what a judge was asked."""

    folder: Path
    ran: CompletedProcess[str]
    printed: str
    judged: str

    def results(self):
        (file,) = (self.folder / "out").rglob("*_results.json")
        return json.loads(file.read_text())["results"]


@pytest.fixture(scope="module")
def study_run(tmp_path_factory):
    """Publish a credentialed study of each kind and run every audit of them."""
    studies, folder = tmp_path_factory.mktemp(CANARY), tmp_path_factory.mktemp("studies")
    line = [*MEDTASKS, "run", "--model", "medtasks_tiny", "--batch_size", "32", "--log_samples"]
    line += ["--tasks", ",".join(("made_up_all", *TASKS)), "--output_path", "out"]
    line += ["--gen_kwargs", "max_new_tokens=8"]
    with pytest.MonkeyPatch.context() as patch, serving(Endpoint()) as judge:
        patch.setenv("MEDTASKS_HOME", str(folder / "home"))
        printed = publish_all(studies, Access.CREDENTIALED, planted).replace(str(studies), "")
        judge.choose = lambda body: judge.reply(judged(body))
        variables = {"MEDTASKS_JUDGE_BASE_URL": judge.url, "MEDTASKS_JUDGE_MODEL": "m"}
        variables |= {"HF_HOME": str(folder / "hf"), "TMPDIR": str(folder)}
        ran = run_here(line, folder, **variables)
    assert ran.returncode == 0, ran.stderr[-4000:]
    return StudyRun(folder, ran, printed, str(judge.bodies))


@pytest.fixture(autouse=True)
def _home(study_run, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(study_run.folder / "home"))


def test_publishing_prints_nothing_of_a_study(study_run):
    assert CANARY not in study_run.printed
    assert (
        study_run.printed.count(
            "left out: the image in line 1 of images.jsonl cannot be used: its file cannot be read"
        )
        == 1
    )
    sheets = [
        (dataset_folder("made_up") / name).read_text()
        for name in ("datasheet.json", "datasheet.md")
    ]
    assert CANARY not in str(sheets)


def test_a_run_logs_nothing_of_a_study(study_run):
    folder = study_run.folder
    assert CANARY in study_run.judged  # by a judge on this machine
    assert found_in(study_run.ran, folder / "out", *outside(folder / "home")) == []
    rows = [row for of_task in samples(folder / "out").values() for row in of_task]
    assert len(rows) > 60
    assert all("is credentialed" in str(row["target"]) for row in rows)


def test_the_group_of_a_study_has_the_best_of_its_modes(study_run):
    found = study_run.results()
    assert set(found) == {"made_up_all", *MODES, *TASKS}
    for metric, best in (
        ("set_accuracy", max),
        ("individual_accuracy", max),
        ("confusion", min),
    ):
        of_modes = [found[mode][f"{metric},reference"] for mode in MODES]
        assert found["made_up_all"][f"{metric},reference"] == best(of_modes)
        assert math.isnan(found["made_up_all"].get(f"{metric}_stderr,reference", math.nan))


def test_pairs_of_a_study_are_judged_and_rotated(study_run):
    found = study_run.results()
    assert found["made_up_ff"]["confusion,reference"] == 1  # the judge says A each time
    counts = {
        name: found[f"made_up_{name}"]["scored_samples,robust"] for name in ("gd", "rotated")
    }
    assert counts["rotated"] == 2 * counts["gd"] > 0


def test_hallucination_studies_are_scored_by_their_kind(study_run):
    found = study_run.results()
    closed = found["made_up_visual_closed"]
    assert closed["acc_anatomy,reference"] == closed["accuracy,reference"]
    assert found["made_up_visual_open"]["chair_judge_anatomy,strict"] == 0.5
    assert found["made_up_knowledge_open"]["knowledge_rate,strict"] == 1
    assert found["made_up_contextual"]["always_no,strict"] == 0.2


def test_a_report_shows_nothing_of_a_study(study_run, tmp_path):
    report = collect_run(open_run(study_run.folder / "out"))
    write_page(report, tmp_path / "report.html")
    assert {task.withheld for task in report.tasks if task.dataset} == {True}
    assert found_in(study_run.ran, tmp_path) == []


def test_a_report_has_no_published_results_next_to_a_study(study_run, tmp_path):
    report = collect_run(open_run(study_run.folder / "out"))
    write_page(report, tmp_path / "report.html")
    assert "arXiv 2409" not in (tmp_path / "report.html").read_text()
    assert [task.published for task in report.tasks if task.published] == []


def test_a_report_has_the_audits_of_a_study(study_run):
    report = collect_run(open_run(study_run.folder / "out"))
    tasks = {task.name: task for task in report.tasks}
    assert {gain.variant for gain in tasks["made_up"].gains} == {"blind", "blank", "swapped"}
    assert {"hallucination", "kind", "source"} <= set(
        tasks["made_up_visual_closed"].rules[0].groups
    )


def planted(study):
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
