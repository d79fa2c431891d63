"""Running the real harness: in this process, or in one of its own against the installed wheel."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import filelock
import pytest
from PIL import Image

from medtasks.cli.data import write_sample_home
from medtasks.data.catalogue import CATALOGUE
from medtasks.data.dataset_lookup import prepared_folder
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.data.schema import DEMONSTRATIONS_FOLDER
from medtasks.data.variants import SANITY
from medtasks.home import dataset_folder
from medtasks.tasks.task_files import task_config, task_file, task_files, variants_of

from .. import iu_xray_sources, medheval_sources, tiny_gmai, tiny_medevalkit, tiny_multimedeval
from ..processes import run_fresh, run_here
from ..scripted_server import Endpoint, serving
from . import tiny_mmmu_pro

REPOSITORY = Path(__file__).parents[2]
PARTS = (
    "medtasks",
    "model_adapters",
    "tasks_yaml",
    "setup.cfg",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel of this checkout is installed, without its dependencies."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    target, source = shared / "wheel", shared / "source"
    with filelock.FileLock(shared / "wheel.lock"):
        if not target.exists():
            source.mkdir()
            for part in PARTS:
                origin = REPOSITORY / part
                if origin.is_dir():
                    shutil.copytree(
                        origin, source / part, ignore=shutil.ignore_patterns("__pycache__")
                    )
                else:
                    shutil.copyfile(origin, source / part)
            pip = [
                sys.executable,
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--no-index",
                "--no-build-isolation",
            ]
            subprocess.run([*pip, "--target", str(target), str(source)], check=True)
    return target


@pytest.fixture
def run(wheel: Path, tmp_path: Path) -> Run:
    """Run a command in this test's folder, in a process of its own, with the wheel before any other installation."""

    def run_command(
        command: Sequence[str], **variables: str
    ) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(
            [str(wheel / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
        )
        places = {"PYTHONPATH": str(wheel), "PATH": path, "HF_HOME": str(tmp_path / "hf")}
        with pytest.MonkeyPatch.context() as patch:  # by which subprocess looks for the command
            patch.setenv("PATH", path)
            return run_fresh(command, tmp_path, **places | variables)

    return run_command


@pytest.fixture
def judging(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Callable[[Any], str]], Endpoint]]:
    """Start a judge on the loopback that answers a request's body, and name it in the environment."""
    with serving(Endpoint()) as server:

        def start(answer: Callable[[Any], str]) -> Endpoint:
            server.choose = lambda body: server.reply(answer(body))
            monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", server.url)
            monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", f"judge-{tmp_path.name}")
            return server

        yield start


@pytest.fixture
def drop_in(tmp_path: Path, sample_home: Path) -> Path:
    """A user's folder: a two-choice task built from our hooks, and a task in the style of the harness's own."""
    return put_drop_in(tmp_path / "drop_in", sample_home)


def put_drop_in(folder: Path, sample_home: Path) -> Path:
    """Write the two tasks and their questions into a new folder; return it."""
    folder.mkdir()
    source = sample_home / "source" / "mediconfusion"
    pairs = json.loads((source / "dataset.json").read_text())
    questions = [
        {
            "question": pair["question"],
            "options": [pair["option_A"], pair["option_B"]],
            "answer": pair["im_1_correct"],
            "image_file": f"{pair['im_1_local']}.jpg",
        }
        for pair in pairs.values()
    ]
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps(question) + "\n" for question in questions)
    )
    (folder / "sides.yaml").write_text(
        TWO_CHOICE_YAML.replace("IMAGES", str(source / "images"))
    )
    (folder / "shouting.yaml").write_text(GENERAL_YAML)
    (folder / "shouting.py").write_text(GENERAL_HOOKS)
    return folder


def choice_yaml(task: str, **changes: str) -> str:
    """Return the file of a task on questions with options, with other values for some keys and further keys."""
    keys = {
        "task": task,
        "dataset_path": "json",
        "dataset_kwargs": "{data_files: {test: questions.jsonl}}",
        "test_split": "test",
        "generation_kwargs": "{max_new_tokens: 8, until: []}",
        "doc_to_visual": "!function medtasks.hooks.images.images",
        "doc_to_text": "!function medtasks.hooks.prompts.lettered",
        "doc_to_target": "!function medtasks.hooks.prompts.target",
        "process_results": "!function medtasks.hooks.choice.process_results",
        "metric_list": "!function medtasks.hooks.choice.METRIC_LIST",
        "metadata": "{version: 1}",
    }
    return "".join(f"{key}: {value}\n" for key, value in {**keys, **changes}.items())


IMAGES_AND_PROMPT = (
    '{default: {image_root: IMAGES, template: "{{ question }}\\n{{ options }}\\nAnswer:"}}'
)
TWO_CHOICE_YAML = choice_yaml("sides", lmms_eval_specific_kwargs=IMAGES_AND_PROMPT)

GENERAL_YAML = """\
task: shouting
dataset_path: json
dataset_kwargs: {data_files: {test: questions.jsonl}}
test_split: test
output_type: generate_until
doc_to_visual: !function shouting.no_visual
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
process_results: !function shouting.process_results
metric_list:
  - metric: upper
    aggregation: mean
    higher_is_better: true
"""

GENERAL_HOOKS = """\
def no_visual(doc):
    return []


def process_results(doc, results):
    return {"upper": float(results[0].isupper())}
"""


DEMOS = "demonstrations"


@pytest.fixture(scope="session")
def every_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every dataset of the catalogue; tests must not change it."""
    folder = tmp_path_factory.mktemp("every_dataset")
    home, source = folder / "home", folder / "source"
    write_sample_home(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        for name in CATALOGUE:
            if name.startswith("multimedeval_"):
                tiny_multimedeval.prepare(name.removeprefix("multimedeval_"))
        medheval_sources.prepare_all(source / "medheval")
        _put_demonstrations(prepared_folder("mediconfusion") / DEMONSTRATIONS_FOLDER)
        prepare(
            "iu_xray_report",
            Options(iu_xray_sources.put_r2gen(source / "iu_xray"), allow_incomplete=True),
        )
        tiny_medevalkit.prepare_all(source / "medevalkit")
        tiny_mmmu_pro.prepare_all(source / "mmmu_pro")
        tiny_gmai.prepare_all(
            source / "gmai", tiny_gmai.rows(20), several=9, seed=50, unkeyed=2
        )
        for name, info in CATALOGUE.items():
            if not dataset_folder(name).is_dir():
                importlib.import_module(f"..data.test_{info.reader}", __package__).prepare_all(
                    source / name
                )
    return home


def _put_demonstrations(folder: Path) -> None:
    """Write Med-Flamingo's examples, which the synthetic sample lacks."""
    folder.mkdir(exist_ok=True)
    for number, name in enumerate(
        task_config("mediconfusion")["lmms_eval_specific_kwargs"]["med_flamingo"][DEMOS]
    ):
        Image.new("RGB", (6 + number, 5), (40 * number, 0, 90)).save(folder / name)


@pytest.fixture
def prepared(every_dataset: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same as this test's data folder."""
    monkeypatch.setenv("MEDTASKS_HOME", str(every_dataset))
    return every_dataset


OURS = [name for name, task in task_files().items() if task.kind == "task"]
JUDGED = [
    name for name in OURS if "_judged" in name or name == "mediconfusion_ff"
]  # which need a judge to run
PAIRED = [
    f"mediconfusion{mode}{ending}"
    for mode in ("", "_gd")
    for ending in ("", *(f"_{name}" for name in SANITY))
]
KINDS = [
    "vqa_rad",
    "pathmnist",
    "pad_ufes_20",
    "mimic_cxr_report",
    "ct_rate_report",
    "chestxray14",
]
MADE = [made for name in KINDS for made in variants_of(task_file(f"multimedeval_{name}"))]
VARIED = [made.name for made in MADE if made.variant in SANITY]
RUN = sorted({*OURS, *PAIRED, *VARIED} - {*JUDGED})


@pytest.fixture(scope="session")
def finished(
    tmp_path_factory: pytest.TempPathFactory, every_dataset: Path, sample_home: Path
) -> Path:
    """The folder of one run of the tiny model: every task that needs no judge, many variants, and a general task.

    All of them share one journal.
    """
    folder = tmp_path_factory.mktemp("finished")
    general = put_drop_in(folder / "drop_in", sample_home)
    command = [
        *(sys.executable, "-m", "medtasks.cli.main", "run", "--model", "medtasks_tiny"),
        *("--tasks", ",".join([*RUN, "shouting"]), "--include_path", str(general)),
        *(
            "--model_args",
            f"journal={folder / 'journal'}",
            "--device",
            "cpu",
            "--batch_size",
            "32",
            "--log_samples",
        ),
        *(
            "--gen_kwargs",
            "max_new_tokens=4",
            "--max-failed",
            "100%",
            "--output_path",
            str(folder / "results"),
        ),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lmms_eval.__main__.make_table", lambda *_: ""
        )  # of 7,000 rows it takes half a minute
        ran = run_here(command, general, MEDTASKS_HOME=str(every_dataset))
    assert ran.returncode == 0, ran.stderr[-4000:] + ran.stdout[-2000:]
    return folder / "results"


@pytest.fixture(scope="session")
def results(finished: Path) -> dict[str, Any]:
    (file,) = finished.rglob("*_results.json")
    content: dict[str, Any] = json.loads(file.read_text())
    return content
