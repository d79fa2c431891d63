"""Text-only tasks under lm-eval: found by its option, same prompts, same numbers as everywhere else."""

import hashlib
import json
import sys

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.data.document_store import load_documents
from medtasks.errors import ModelRefused
from medtasks.families.counts import COUNTS
from medtasks.families.family import Reply
from medtasks.lmms.remote_models import TRUSTED
from medtasks.runs.replies import read_replies
from medtasks.tasks.task_files import task_config, task_file
from medtasks.tasks.task_index import lm_eval_tasks_folder, resolved

from ..processes import run_here
from ..tables import each_row

pytest.importorskip("lm_eval", reason="lm-eval is not installed; pip install 'medtasks[lm-eval]'")
NAMES = sorted(path.stem for path in lm_eval_tasks_folder().glob("*.yaml"))


@pytest.fixture(scope="module")
def evaluated(multimedeval_home):
    """Run every task once in lm-eval on a model whose reply is a word of the prompt; return results and prompts."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Parrot(LM):
        def __init__(self):
            super().__init__()
            self.asked = {}

        def generate_until(self, requests, disable_tqdm=False):
            for request in requests:
                self.asked[request.args[0]] = reply(request.args[0])
            return [self.asked[request.args[0]] for request in requests]

        def loglikelihood(self, requests):
            raise AssertionError

        def loglikelihood_rolling(self, requests):
            raise AssertionError

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(multimedeval_home))
        model = Parrot()
        patch.setenv(TRUSTED, f"class:{Parrot.__module__}.{Parrot.__qualname__}")
        manager = TaskManager(include_path=str(lm_eval_tasks_folder()), include_defaults=False)
        ran = simple_evaluate(model=model, tasks=NAMES, task_manager=manager, bootstrap_iters=0)
        yield ran["results"], model.asked


def reply(prompt):
    words = [*prompt.split(), "yes", "no", "neutral", "contradiction", ""]
    return words[int(hashlib.sha256(prompt.encode()).hexdigest(), 16) % len(words)]


def test_which_tasks_there_are():
    assert [f"multimedeval_{name}" for name in ("medmcqa", "mednli", "medqa", "mmlu", "pubmedqa")] == NAMES


@each_row("name", NAMES)
def test_numbers_are_those_of_recorded_replies(evaluated, multimedeval_home, monkeypatch, name):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    results, asked = evaluated
    task = task_file(name)
    config = resolved({key: value for key, value in task_config(name).items() if key != "dataset_path"})
    settings = config["lmms_eval_specific_kwargs"]["default"]
    documents = load_documents(task.dataset)
    prompts = {document["doc_id"]: config["doc_to_text"](document, settings) for document in documents}
    assert set(prompts.values()) <= set(asked)
    replies = {doc_id: Reply(text=reply(prompt)) for doc_id, prompt in prompts.items()}
    assert results[name]["alias"] == f"{name} [SAMPLE DATA]"
    for rule, scores in score_replies(task, documents, replies).items():
        for metric, found in scores.estimates.items():
            assert results[name][f"{metric},{rule}"] == found.value
            if metric not in COUNTS:
                assert results[name][f"{metric}_stderr,{rule}"] == pytest.approx(found.error)


@pytest.mark.slow
def test_command(multimedeval_home, tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    path = run_here([sys.executable, "-m", "medtasks.cli.main", "path", "--lm-eval"], tmp_path)
    command = ["--include_path", path.stdout.strip(), "--model", "dummy", "--tasks", "multimedeval_medqa"]
    ran = run_here([sys.executable, "-m", "lm_eval", *command, "--output_path", "out", "--log_samples"], tmp_path)
    assert ran.returncode == 0, ran.stderr[-2000:]
    (file,) = tmp_path.rglob("results*.json")
    (results,) = json.loads(file.read_text())["results"].values()
    assert results["invalid_rate,reference"] == 1
    (samples,) = tmp_path.rglob("samples*.jsonl")
    documents = load_documents("multimedeval_medqa")
    again = score_replies(task_file("multimedeval_medqa"), documents, read_replies(samples, documents))
    for rule, scores in again.items():
        assert scores.reasons == {"no_match": len(documents)}
        values = {metric: found.value for metric, found in scores.estimates.items()}
        assert {metric: results[f"{metric},{rule}"] for metric in values} == values


def test_a_missing_dataset_is_one_sentence(tmp_path, monkeypatch):
    from lm_eval.tasks import TaskManager

    from medtasks.errors import DatasetNotPrepared

    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path))
    manager = TaskManager(include_path=str(lm_eval_tasks_folder()), include_defaults=False)
    with pytest.raises(DatasetNotPrepared, match="run 'medtasks data prepare multimedeval_medqa'"):
        manager.load(["multimedeval_medqa"])


def test_credentialed_questions_do_not_go_to_another_machine(multimedeval_home, monkeypatch):
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Remote(LM):
        base_url = None

        def __init__(self):
            super().__init__()
            self.base_url = "http://api.vendor.invalid/v1"

        def generate_until(self, requests, disable_tqdm=False):
            raise AssertionError("it was asked")

        loglikelihood = loglikelihood_rolling = generate_until

    monkeypatch.setenv("MEDTASKS_HOME", str(multimedeval_home))
    manager = TaskManager(include_path=str(lm_eval_tasks_folder()), include_defaults=False)
    with pytest.raises(ModelRefused, match="multimedeval_mednli"):
        simple_evaluate(model=Remote(), tasks=["multimedeval_mednli"], task_manager=manager, bootstrap_iters=0)
