"""No word of a credentialed record and no reply to it is logged: unmistakable strings are planted and sought."""

import functools
import json
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from lmms_eval.models import MODEL_REGISTRY_V2, ModelManifest
from PIL import Image

from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.document_store import load_documents, publish, work_folder
from medtasks.data.images.image_store import ImageStore
from medtasks.data.schema import CHOICE, OPEN_QUESTION, REPORT, arrow_schema
from medtasks.data.variants import VARIANTS
from medtasks.errors import RepliesError
from medtasks.report.collecting import collect_run
from medtasks.report.report_model import report_as_dict
from medtasks.runs.replies import read_replies
from medtasks.runs.run import open_run
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_file

from ..processes import LEAVE, on_two_processes, run_here
from ..scripted_server import Endpoint, serving
from .conftest import choice_yaml

pytestmark = pytest.mark.slow

CANARY = "zyzzyva"  # part of everything planted
TASKS = {
    "canary_report": REPORT,
    "canary_open": OPEN_QUESTION,
    "canary_choice": CHOICE,
    "canary_likelihood": CHOICE,
}
DOCUMENTS = 4


def planted(dataset, row, columns, image):
    """Return a document in which every text of a record holds the canary."""
    texts = {
        name: f"{CANARY} {name} {row} of {dataset}"
        for name, kind in columns.items()
        if kind == "string"
    }
    document = {**dict.fromkeys(columns), **texts}
    document |= {
        "dataset": dataset,
        "image_files": [image.file],
        "image_sha256": [image.sha256],
    }
    document |= {"options": [f"{CANARY} effusion {row}", f"{CANARY} no effusion {row}"]}
    document |= {"answer": "A"} if columns is CHOICE else {}
    return {name: document[name] for name in columns}


@pytest.fixture(scope="module")
def planted_home(tmp_path_factory):
    """A data folder with a credentialed dataset and a task file per task, and a package with a model beside it."""
    root = tmp_path_factory.mktemp("canary")
    (root / "home" / "tasks").mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(root / "home"))
        for task, columns in TASKS.items():
            publish_planted(task, columns)
            (root / "home" / "tasks" / f"{task}.yaml").write_text(
                YAML.replace("TASK", task) + OWN[task]
            )
    write_echo(root / "package")
    return root


def write_echo(package):
    """Write a package with the model ``echo`` into a folder, as if it were installed there."""
    about = package / "echo_model-1.dist-info"
    about.mkdir(parents=True)
    (package / "echo_model.py").write_text(ECHO)
    (about / "entry_points.txt").write_text("[lmms_eval.models]\necho = echo_model:manifest\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-model\nVersion: 1\n")


def publish_planted(name, columns):
    with work_folder(name, Access.CREDENTIALED) as work:
        images = ImageStore(work)
        rows = []
        for row in range(DOCUMENTS):
            image = images.add_pixels(Image.new("RGB", (8, 8), (row, 0, 0)))
            renamed = Path(image.file).with_name(f"{CANARY}_patient_{row}.png")
            (work / image.file).rename(work / renamed)
            rows.append(
                planted(name, row, columns, type(image)(renamed.as_posix(), image.sha256))
            )
        manifest = Manifest(
            name=name,
            source=f"/data/{CANARY}",
            revision="local",
            access="credentialed",
            sample=False,
            complete=False,
            rows=DOCUMENTS,
            images=DOCUMENTS,
            text_sha256="0",
            pixels_sha256="0",
            left_out=(f"row 9: its image p10/{CANARY}.jpg is missing",),
        )
        publish(work, manifest, rows, arrow_schema(columns))


MEDTASKS = [sys.executable, "-m", "medtasks.cli.main"]
TWO_RANKS = f"from lmms_eval.cli.dispatch import main\nmain()\n{LEAVE}"


def run_echo(
    planted_home,
    folder,
    *options,
    model="echo",
    tasks=tuple(TASKS),
    code=0,
    shows_text=False,
    ranks=1,
    **variables,
):
    """Run tasks with the model ``echo``, or another one, with everything it writes below a folder.

    Nothing of a record may be there afterwards, unless ``shows_text``.
    """
    line = [
        "--model",
        model,
        "--tasks",
        ",".join(tasks),
        "--output_path",
        "out",
        "--log_samples",
    ]
    line += ["--batch_size", "1", *options]
    if ranks == 1:
        ran = execute([*MEDTASKS, "run", *line], planted_home, folder, **variables)
    else:
        printed = on_two_processes(TWO_RANKS, folder, *line, **places(planted_home, folder))
        ran = CompletedProcess(line, 0, printed, "")
        for file in folder.glob("rank_*"):  # which hold that
            file.unlink()
    assert ran.returncode == code, ran.stderr[-4000:]
    assert shows_text or found_in(ran, folder, *outside(planted_home / "home")) == []
    return ran


@pytest.fixture
def evaluate(planted_home, tmp_path):
    """Run tasks with everything below this test's folder."""
    return functools.partial(run_echo, planted_home, tmp_path)


def places(planted_home, folder):
    """Return the variables of a run on the planted data, with everything it writes below ``folder``."""
    return {
        "PYTHONPATH": str(planted_home / "package"),
        "MEDTASKS_HOME": str(planted_home / "home"),
        "MEDTASKS_TRUSTED_MODEL": "class:echo_model.Echo",
        "LM_HARNESS_CACHE_PATH": str(folder / "requests"),
        "HF_HOME": str(folder / "hf"),
        "TMPDIR": str(folder),
        "ACCELERATE_USE_CPU": "true",
        "HF_TOKEN": f"hf_{CANARY}",  # the harness logs it
    }


def execute(line, planted_home, folder, **variables):
    """Run a command on the planted data."""
    with pytest.MonkeyPatch.context() as patch:  # the model is known without its entry point
        patch.syspath_prepend(planted_home / "package")
        patch.delitem(sys.modules, "echo_model", raising=False)
        for table in ("_manifests", "_alias_to_model_id"):
            patch.setattr(MODEL_REGISTRY_V2, table, dict(getattr(MODEL_REGISTRY_V2, table)))
        MODEL_REGISTRY_V2.register_manifest(
            ModelManifest(model_id="echo", simple_class_path="echo_model.Echo")
        )
        return run_here(line, folder, **places(planted_home, folder) | variables)


def found_in(ran, *folders):
    """Return where the canary is: files below folders, by content or name, and what the command printed."""
    places = [stream for stream in ("stdout", "stderr") if CANARY in getattr(ran, stream)]
    for path in (path for folder in folders for path in (folder, *folder.rglob("*"))):
        if CANARY in path.name or (path.is_file() and CANARY.encode() in path.read_bytes()):
            places.append(str(path))
    return places


def outside(home):
    """Return what is in the data folder besides documents and saved replies."""
    return [path for path in home.iterdir() if path.name not in ("datasets", "replies")]


def samples(folder):
    files = {
        path.stem.split("_samples_")[1]: path for path in folder.rglob("*_samples_*.jsonl")
    }
    return {
        task: [json.loads(line) for line in path.read_text().splitlines()]
        for task, path in files.items()
    }


VARIED = [f"canary_choice_{variant}" for variant in VARIANTS]
REASONED = ["canary_choice_think", "canary_open_think_boxed"]
FILES = [
    "--markdown",
    "out/found.md",
    "--latex",
    "out/found.tex",
    "--json",
    "out/found.json",
    "--figures",
    "out/drawn",
]


def test_replies_that_cannot_be_saved_are_among_the_notices_of_the_run(
    evaluate, planted_home, tmp_path
):
    folder = planted_home / "home" / "replies"
    kept = folder.with_name("kept_replies")
    if folder.exists():
        folder.rename(kept)
    folder.write_text("in the way, for root as well")
    try:
        evaluate(tasks=["canary_open"])
    finally:
        folder.unlink()
        if kept.exists():
            kept.rename(folder)
    (file,) = (tmp_path / "out").rglob("*_run.json")
    sentences = [notice["sentence"] for notice in json.loads(file.read_text())["notices"]]
    assert [
        sentence
        for sentence in sentences
        if "replies cannot be saved in $MEDTASKS_HOME" in sentence
    ] != []


ALL_TASKS = [*TASKS, *VARIED, *REASONED, "canary_open_blind", "canary_likelihood_swapped"]


@pytest.fixture(scope="module")
def all_run(planted_home, tmp_path_factory):
    """Run all tasks and their variants, with and without images, rotated, and reasoned about.

    Nothing of a record is in what the run wrote or printed.
    """
    folder = tmp_path_factory.mktemp("all")
    ran = run_echo(planted_home, folder, "--verbosity", "DEBUG", tasks=ALL_TASKS)
    return ran, folder


@pytest.fixture(scope="module")
def all_samples(all_run):
    return samples(all_run[1] / "out")


def test_every_task_on_credentialed_data_has_its_samples(all_run, all_samples):
    ran, folder = all_run

    assert set(all_samples) == set(ALL_TASKS), ran.stderr[-4000:]
    lines = dict.fromkeys(TASKS, DOCUMENTS) | {"canary_open": 2 * DOCUMENTS}  # two filters
    assert {task: len(all_samples[task]) for task in TASKS} == lines
    (manifest,) = (folder / "out").glob("*_run.json")
    assert sorted(json.loads(manifest.read_text())["tasks"]) == sorted(ALL_TASKS)


def test_messages_about_credentialed_data_are_withheld(all_run):
    ran, _ = all_run
    assert "message withheld" in ran.stdout
    assert "echoing: 100%" in ran.stderr


def test_what_hides_text_is_listed_as_no_metric(all_run):
    _, folder = all_run
    (results,) = (folder / "out").rglob("*_results.json")
    assert '"doc,' not in results.read_text()


def test_targets_and_inputs_of_credentialed_data_are_withheld(all_samples):
    for row in (row for rows in all_samples.values() for row in rows):
        assert "is credentialed" in str(row["target"])
        assert "is credentialed" in str(row["input"])


def test_samples_of_credentialed_data_have_hidden_ids(all_samples):
    ids = [row["score"]["sample"] for row in all_samples["canary_choice"]]
    assert len(set(ids)) == DOCUMENTS
    assert all(name.startswith("doc-") for name in ids)


def test_reasoning_about_credentialed_data_is_only_counted(all_samples):
    for row in (row for task in REASONED for row in all_samples[task]):
        assert "is credentialed" in str(row["filtered_resps"])
        assert row["score"]["reasoning_words"] > 0  # numbers say no word of a patient


def test_nothing_of_a_record_is_in_the_files_of_a_report(all_run, planted_home):
    _, folder = all_run

    reported = execute([*MEDTASKS, "report", "out", *FILES], planted_home, folder)

    assert reported.returncode == 0, reported.stderr[-4000:]
    made = {path.name for path in (folder / "out").iterdir()}
    assert {"report.html", "found.md", "found.tex", "found.json", "drawn"} <= made
    assert found_in(reported, folder) == []


@pytest.fixture
def all_report(all_run, planted_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(planted_home / "home"))
    return collect_run(open_run(all_run[1] / "out"))


def test_nothing_of_a_record_is_in_a_report(all_report):
    for task in all_report.tasks:
        assert (task.withheld, task.pictures) == (True, {}), task.missing
        assert all(item.doc_id.startswith("doc-") for item in task.items)
    assert CANARY not in repr(asdict(all_report))
    assert CANARY not in json.dumps(report_as_dict(all_report))


def test_a_report_has_the_scores_of_credentialed_data(all_report):
    found = {task.name: task for task in all_report.tasks}
    assert set(TASKS) <= set(found)
    for task in (found[name] for name in TASKS):
        assert len(task.items) == DOCUMENTS
        assert all(
            rule.scores and sum(rule.reasons.values()) == DOCUMENTS for rule in task.rules
        ), task.name
    for task in (found[name] for name in REASONED):
        assert task.thinking
        assert task.thinking.answered == DOCUMENTS


@pytest.fixture(scope="module")
def two_ranks(planted_home, tmp_path_factory):
    """Run two tasks on two ranks; return what was printed, the folder of the run, and the files of its replies."""
    saved = planted_home / "home" / "replies" / "canary_open"
    before = set(saved.glob("*"))
    folder = tmp_path_factory.mktemp("ranks")
    ran = run_echo(planted_home, folder, ranks=2, tasks=["canary_report", "canary_open"])
    return ran.stdout, folder / "out", sorted(set(saved.glob("*")) - before)


@pytest.fixture
def home_of_ranks(planted_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(planted_home / "home"))


def test_a_metric_that_fails_on_two_ranks_says_how_to_finish_it(two_ranks):
    printed, out, _ = two_ranks
    assert len(samples(out)["canary_report"]) == DOCUMENTS
    assert "medtasks score canary_report" in printed  # no weights here
    assert "medtasks weights fetch chexbert" in printed


def test_replies_to_credentialed_data_are_saved_for_their_owner(two_ranks):
    _, _, files = two_ranks
    folder = files[0].parent
    assert len(files) == 2
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*files, folder, folder.parent))
    replies = [json.loads(line) for path in files for line in path.read_text().splitlines()]
    asked = {f"{CANARY} doc_id {row} of canary_open" for row in range(DOCUMENTS)}
    assert {reply["doc_id"] for reply in replies} == asked
    assert all(f"reply {CANARY}" in reply["reply"] for reply in replies)


@pytest.mark.usefixtures("home_of_ranks")
def test_saved_replies_score_again_as_in_the_run(two_ranks):
    _, out, files = two_ranks
    documents = load_documents("canary_open")

    replies = read_replies(files, documents)
    again = score_replies(task_file("canary_open"), documents, replies)["robust"]

    (results,) = out.rglob("*_results.json")
    first = json.loads(results.read_text())["results"]["canary_open"]
    assert again.estimates["token_f1"].value > 0
    for name, one in again.estimates.items():
        assert repr(first[f"{name},robust"]) == repr(one.value), name


@pytest.mark.usefixtures("home_of_ranks")
def test_scoring_saves_no_replies(two_ranks):
    _, _, files = two_ranks
    before = set(files[0].parent.glob("*"))
    documents = load_documents("canary_open")

    score_replies(task_file("canary_open"), documents, read_replies(files, documents))

    assert set(files[0].parent.glob("*")) == before


@pytest.mark.usefixtures("home_of_ranks")
def test_withheld_samples_are_read_from_the_saved_replies(two_ranks):
    _, out, files = two_ranks
    documents = load_documents("canary_open")
    (file,) = out.rglob("*_samples_canary_open.jsonl")
    assert read_replies(file, documents) == read_replies(files, documents)


@pytest.mark.usefixtures("home_of_ranks")
def test_withheld_samples_without_all_saved_replies_are_refused(two_ranks, tmp_path):
    _, out, files = two_ranks
    (file,) = out.rglob("*_samples_canary_open.jsonl")
    lost = shutil.move(files[0], tmp_path / "lost")
    try:
        with pytest.raises(
            RepliesError, match="holds no reply, because its dataset is credentialed"
        ):
            read_replies(file, load_documents("canary_open"))
    finally:
        shutil.move(lost, files[0])


def test_predictions_only_and_the_error_of_a_model(evaluate, planted_home, tmp_path):
    tasks = ["canary_report", "canary_choice"]
    evaluate("--predict_only", tasks=tasks)
    assert {
        task: len(rows) for task, rows in samples(tmp_path / "out").items()
    } == dict.fromkeys(tasks, DOCUMENTS)
    ran = evaluate("--verbosity", "DEBUG", tasks=["canary_open"], code=1, ECHO_FAILS="yes")
    assert re.search("without results.*TypeError at echo_model.py", ran.stderr.splitlines()[-1])


def test_an_adapter_that_fails_and_its_journal(evaluate, planted_home, tmp_path):
    images = planted_home / "home" / "datasets" / "canary_open" / "images"
    hidden = images / f"{CANARY}_patient_2.png"
    hidden.rename(tmp_path / "away")
    try:
        ran = evaluate(
            *("--model_args", "max_failed=1", "--max-failed", "100%"),
            model="medtasks_tiny",
            tasks=["canary_report", "canary_open"],
        )
    finally:
        (tmp_path / "away").rename(hidden)
    journals = list((planted_home / "home" / "journal").rglob("*.jsonl"))
    assert journals
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in journals)
    assert "generate_until failed on" in ran.stdout


@pytest.mark.parametrize("model", ["openai", "async_openai"])
def test_a_server_that_repeats_requests_or_sends_them_elsewhere(
    evaluate, planted_home, tmp_path, model
):
    with serving(Endpoint()) as elsewhere, serving(Endpoint()) as server:

        def answer(body):
            if "question 0 of" in str(body):
                return server.status(307, Location=f"{elsewhere.url}/chat/completions")
            return server.status(400, body=json.dumps({"error": {"message": str(body)}}))

        server.choose = answer
        arguments = f"base_url={server.url},model=m,max_retries=1,retry_backoff_s=0"
        ran = evaluate(
            *("--model_args", arguments, "--max-failed", "100%"),
            model=model,
            tasks=["canary_open"],
            OPENAI_API_KEY="none",
        )
    assert CANARY in str(server.bodies)
    assert elsewhere.count == 0
    assert f"{DOCUMENTS} failed of {DOCUMENTS} samples" in ran.stderr


ALLOWED = "canary_report, canary_open"


@pytest.fixture(scope="module")
def allowed_run(planted_home, tmp_path_factory):
    """Run three tasks, of which the user lets two show their text."""
    folder = tmp_path_factory.mktemp("allowed")
    tasks = ["canary_report", "canary_open", "canary_choice"]
    ran = run_echo(
        planted_home, folder, tasks=tasks, shows_text=True, MEDTASKS_LOG_TEXT=ALLOWED
    )
    return ran, folder


def test_samples_show_text_that_the_user_asks_for_by_name(allowed_run):
    ran, folder = allowed_run
    written = samples(folder / "out")
    for row in (*written["canary_report"], *written["canary_open"]):
        assert CANARY in str(row["target"])
        assert CANARY in str(row["input"])
        assert f"reply {CANARY}" in str(row["filtered_resps"])
    assert CANARY not in str(written["canary_choice"])
    assert any("samples_canary_report" in place for place in found_in(ran, folder))


def test_a_report_shows_text_that_the_user_asks_for_by_name(allowed_run, planted_home):
    _, folder = allowed_run

    reported = execute(
        [*MEDTASKS, "report", "out"], planted_home, folder, MEDTASKS_LOG_TEXT=ALLOWED
    )

    assert reported.returncode == 0, reported.stderr[-4000:]
    page = (folder / "out" / "report.html").read_text()
    assert f"{CANARY} question 0 of canary_open" in page
    assert f"{CANARY} question 0 of canary_choice" not in page


def test_a_report_hides_text_that_only_the_run_might_show(allowed_run, planted_home):
    _, folder = allowed_run

    hidden = execute(
        [*MEDTASKS, "report", "out", "--html", "hidden.html"], planted_home, folder
    )

    assert hidden.returncode == 0, hidden.stderr[-4000:]
    assert CANARY not in (folder / "hidden.html").read_text() + hidden.stdout + hidden.stderr


YAML = choice_yaml(
    "TASK",
    dataset_path="!function medtasks.data.path_of.TASK",
    dataset_kwargs="{load_from_disk: true}",
    num_fewshot="0",
    reasoning_tags="none",
    output_type="generate_until",
    doc_to_text="!function medtasks.hooks.prompts.question",
    doc_to_target="!function medtasks.hooks.prompts.target",
    lmms_eval_specific_kwargs='{default: {template: "{{ question }} {{ options }}", option: "{{ text }}"}}',
    metadata="{version: 1, description: planted, dataset: TASK, data: !function medtasks.data.provenance_of.TASK}",
)
OWN = {  # what a task has instead, and its filters
    "canary_report": """\
doc_to_text: "{{indication}}"
doc_to_target: "{{report}}"
process_results: !function medtasks.hooks.multimedeval_reports.process_results
metric_list: !function medtasks.hooks.multimedeval_reports.METRIC_LIST
filter_list: [{name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: report_text}]}]
""",
    "canary_open": """\
process_results: !function medtasks.hooks.open_questions.process_results
metric_list: !function medtasks.hooks.open_questions.METRIC_LIST
filter_list:
  - {name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: robust_vqa}]}
  - {name: reference, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: multimedeval_vqa_head}]}
""",
    "canary_choice": """\
filter_list: [{name: robust, filter: [{function: !function medtasks.hooks.filters.ReadWith, rule: robust_choice}]}]
""",
    "canary_likelihood": """\
output_type: multiple_choice
doc_to_choice: "{{options}}"
doc_to_target: 0
filter_list: [{name: robust, filter: [{function: !function medtasks.hooks.filters.ChooseWith, rule: untied}]}]
""",
}
ECHO = f"""\
import logging
import os
import sys
import traceback
import warnings

from lmms_eval.api.model import lmms
from lmms_eval.models.registry_v2 import ModelManifest
from loguru import logger
from tqdm import tqdm

manifest = ModelManifest(model_id="echo", simple_class_path="echo_model.Echo")


class Echo(lmms):
    def __init__(self, batch_size=1, device="cpu", **_):
        super().__init__()
        from accelerate import Accelerator

        self.accelerator = Accelerator(cpu=True)
        self.device = self.accelerator.device
        self._rank, self._world_size = self.accelerator.process_index, self.accelerator.num_processes

    def generate_until(self, requests):
        return [self.reply(*request.args[:1], request.doc_id) for request in tqdm(requests, desc="echoing")]

    def reply(self, prompt, row):
        print(prompt)
        print(prompt, file=sys.stderr)
        tqdm.write(prompt)
        warnings.warn(prompt)
        logger.debug(prompt)
        logger.error("Attempt failed: {{}}", prompt)
        logging.getLogger("openai").error(prompt)
        try:
            raise ValueError(prompt)
        except ValueError:
            traceback.print_exc()
            logger.exception(prompt)
            if "ECHO_FAILS" in os.environ:
                raise TypeError(prompt)
        thought = "<think>thought of {CANARY}</think>" if "within <think>" in prompt or "boxed" in prompt else ""
        return f"{{thought}}reply {CANARY} to {{prompt}} in row {{row}}."

    def loglikelihood(self, requests):
        return [(1.0 + request.idx, False) for request in requests]

    def generate_until_multi_round(self, requests):
        raise NotImplementedError
"""
