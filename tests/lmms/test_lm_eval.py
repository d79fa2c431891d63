"""Text-only tasks under lm-eval: found by its option, same prompts, same numbers as everywhere else."""

import functools
import hashlib
import json
import sys
from pathlib import Path

import pytest

import medtasks
from medtasks.data.document_store import load_documents
from medtasks.errors import DatasetNotPrepared, MedTasksError, ModelRefused
from medtasks.families.counts import COUNTS
from medtasks.families.family import Reply
from medtasks.lmms.remote_models import TRUSTED
from medtasks.runs.replies import read_replies
from medtasks.scores.scoring import score_replies
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import resolve_names

from ..processes import run_here

pytest.importorskip(
    "lm_eval", reason="lm-eval is not installed; pip install 'medtasks[lm-eval]'"
)
from lm_eval import simple_evaluate
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

FOLDER = Path(medtasks.__file__).parent / "lm_eval_tasks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


class Parrot(LM):
    """A model whose reply is a word of the prompt."""

    def __init__(self, base_url=None):
        super().__init__()
        self.base_url = base_url
        self.asked = set()

    def generate_until(self, requests, disable_tqdm=False):
        self.asked |= {request.args[0] for request in requests}
        return [reply(request.args[0]) for request in requests]

    loglikelihood = loglikelihood_rolling = None


def reply(prompt):
    words = [*prompt.split(), "yes", "no", "neutral", "contradiction", ""]
    return words[int(hashlib.sha256(prompt.encode()).hexdigest(), 16) % len(words)]


def manager():
    return TaskManager(include_path=str(FOLDER), include_defaults=False)


@pytest.fixture(autouse=True)
def _home(multimedeval_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))


def test_numbers_are_those_of_recorded_replies(monkeypatch):
    assert [
        f"multimedeval_{name}"
        for name in ("medmcqa", "mednli", "medqa", "mimic_iii_summary", "mmlu", "pubmedqa")
    ] == NAMES
    monkeypatch.setenv(TRUSTED, f"class:{Parrot.__module__}.{Parrot.__qualname__}")
    model = Parrot()
    results = simple_evaluate(
        model=model, tasks=NAMES, task_manager=manager(), bootstrap_iters=0
    )["results"]
    for name in NAMES:
        task = task_file(name)
        config = resolve_names(
            {key: value for key, value in task_config(name).items() if key != "dataset_path"}
        )
        settings = config["lmms_eval_specific_kwargs"]["default"]
        documents = load_documents(task.dataset)
        prompts = {
            document["doc_id"]: config["doc_to_text"](document, settings)
            for document in documents
        }
        assert set(prompts.values()) <= model.asked
        replies = {doc_id: Reply(text=reply(prompt)) for doc_id, prompt in prompts.items()}
        assert results[name]["alias"] == f"{name} [SAMPLE DATA]"
        for rule, scores in score_replies(task, documents, replies).items():
            for metric, estimate in scores.estimates.items():
                assert results[name][f"{metric},{rule}"] == pytest.approx(
                    estimate.value, rel=0, abs=0, nan_ok=True
                )
                if metric not in COUNTS:
                    assert results[name][f"{metric}_stderr,{rule}"] == pytest.approx(
                        estimate.error, nan_ok=True
                    )


@pytest.mark.slow
def test_command(tmp_path, monkeypatch):
    # Its own tasks, of which there are thousands, take a minute to read.
    monkeypatch.setattr(
        "lm_eval.tasks.TaskManager", functools.partial(TaskManager, include_defaults=False)
    )
    task = "multimedeval_medqa"
    path = run_here([sys.executable, "-m", "medtasks.cli.main", "path", "--lm-eval"], tmp_path)
    command = ["--include_path", path.stdout.strip(), "--model", "dummy", "--tasks", task]
    ran = run_here(
        [sys.executable, "-m", "lm_eval", *command, "--output_path", "out", "--log_samples"],
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    (file,), (samples,) = tmp_path.rglob("results*.json"), tmp_path.rglob("samples*.jsonl")
    (results,) = json.loads(file.read_text())["results"].values()
    assert results["invalid_rate,reference"] == 1
    documents = load_documents(task)
    for rule, scores in score_replies(
        task_file(task), documents, read_replies(samples, documents)
    ).items():
        assert scores.reasons == {"no_match": len(documents)}
        values = {metric: estimate.value for metric, estimate in scores.estimates.items()}
        assert {metric: results[f"{metric},{rule}"] for metric in values} == values


def test_examples_are_refused_because_they_would_be_test_questions_with_their_answers(
    monkeypatch,
):
    monkeypatch.setenv(TRUSTED, f"class:{Parrot.__module__}.{Parrot.__qualname__}")
    model, name = Parrot(), "multimedeval_medqa"
    with pytest.raises(
        MedTasksError, match=f"no examples to draw for {name}, .* choose {name}_5shot instead"
    ):
        simple_evaluate(
            model=model, tasks=[name], task_manager=manager(), bootstrap_iters=0, num_fewshot=3
        )
    assert not model.asked


def test_what_cannot_be_run(tmp_path, monkeypatch):
    away = Parrot("http://api.vendor.invalid/v1")
    with pytest.raises(ModelRefused, match="multimedeval_mednli"):
        simple_evaluate(
            model=away, tasks=["multimedeval_mednli"], task_manager=manager(), bootstrap_iters=0
        )
    assert not away.asked
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    with pytest.raises(
        DatasetNotPrepared, match="run 'medtasks data prepare multimedeval_medqa'"
    ):
        manager().load(["multimedeval_medqa"])
