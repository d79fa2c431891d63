"""The harness's models on a server that fails: no failed request is in a score."""

import itertools
import json
import math
import re
import threading

import pytest

from medtasks.cli.data import write_sample_home
from medtasks.extract.extractor_registry import Reason
from medtasks.families.family import Reply
from medtasks.runs.sample_counts import counts_of
from medtasks.scores.scoring import PAIR_METRICS, score_replies
from medtasks.tasks.documents import task_documents
from medtasks.tasks.task_files import task_file

from .. import medheval_sources, tiny_gmai, tiny_multimedeval
from ..scripted_server import Endpoint, serving
from .whole_runs import every_task, harness

pytestmark = pytest.mark.slow

PAIRS = ("mediconfusion",)
FAMILIES = (  # one task of each
    *PAIRS,
    "mediconfusion_rotated",
    "multimedeval_medqa",
    "multimedeval_vqa_rad",
    "multimedeval_pathmnist",
    "multimedeval_chestxray14",
    "multimedeval_mimic_iii_summary",
    "medheval_visual_mm",
    "medheval_knowledge_open",
    "gmai_mmbench_val",
    "gmai_mmbench_mcls",
    "gmai_mmbench_test",
)
SETS = ("medqa", "vqa_rad", "pathmnist", "chestxray14", "mimic_iii_summary")
MODELS = {
    "async_openai": {"model": "async_openai"},
    "openai_simple": {"model": "openai", "force_simple": True},
}
WAITS = "max_retries=1,retry_backoff_s=0,timeout=2,num_cpus=16,num_concurrent=16"
REPLY = "A. The answer is yes: Atelectasis."


class Faults:
    """Faults of the server: every second request fails, with one fault after the other."""

    def __init__(self, server):
        self.failing = {
            "400": server.status(400),
            "429": server.status(429),
            "429 with Retry-After": server.status(429, Retry_After="0"),
            "500": server.status(500),
            "html": server.status(502, body="<html>option A</html>", content_type="text/html"),
            "hang": lambda handler: server.over.wait(2.5),  # some models know no time-out
            "reset": server.reset(),
            "half a JSON": server.reply(REPLY, cut=True),
            "content null": server.reply(None),
            "no choices": server.reply(REPLY, choices=0),
            "two choices": server.reply(REPLY, choices=2),
            "content filter": server.reply("A", finish="content_filter"),
        }
        self.steps = {
            **self.failing,
            "cut": server.reply(REPLY, finish="length"),
            "ok": server.reply(REPLY),
        }
        self._turns = itertools.cycle(
            [name for fault in (*self.failing, "cut") for name in (fault, "ok")]
        )
        self._chosen: dict[str, str] = {}
        self._lock = threading.Lock()

    def name_of(self, body):
        """Return what happens to a request, the same each time it is sent."""
        key = json.dumps(body["messages"], sort_keys=True)
        with self._lock:
            if key not in self._chosen:
                self._chosen[key] = next(self._turns)
            return self._chosen[key]

    def step(self, body):
        return self.steps[self.name_of(body)]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("families")
    home = folder / "home"
    write_sample_home(home)
    tiny_multimedeval.prepare_all(home, list(SETS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEDTASKS_HOME", str(home))
        medheval_sources.prepare_all(folder)
        tiny_gmai.prepare_all(folder, tiny_gmai.rows(8), several=8, seed=0, unkeyed=1)
    return home


@pytest.fixture(autouse=True)
def _prepared(home, _own_home, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0)


@pytest.fixture
def server():
    with serving(Endpoint()) as endpoint:
        yield endpoint


def evaluate(server, model):
    options = {
        "tasks": list(FAMILIES),
        "task_manager": every_task(),
        "limit": 4,
        "log_samples": True,
        **MODELS[model],
    }
    return harness().simple_evaluate(
        model_args=f"base_url={server.url},model=tiny,{WAITS}", **options
    )


def first_tries(server):
    """Return the requests that are no repetition of the openai client, one per sample."""
    tries = zip(server.bodies, server.headers, strict=True)
    return [body for body, headers in tries if headers["x-stainless-retry-count"] == "0"]


def assert_scores_are_those_of_the_rest(results, task):
    """The scores of a run equal those of recorded replies that lack the failed samples altogether."""
    documents = task_documents(task_file(task))
    replies = {
        documents[row]["doc_id"]: Reply.of_text(REPLY)
        for row, record in _records(results["samples"][task])
        if record["reason"] != Reason.ADAPTER_FAILED
    }
    harness = {
        key: value
        for key, value in results["results"][task].items()
        if isinstance(value, float)
    }
    if not replies:  # failed samples are blank rows of a submission
        assert all(
            math.isnan(value)
            for key, value in harness.items()
            if not re.match("submission_rows|.*stderr", key)
        )
        return
    for rule, score in score_replies(task_file(task), documents, replies).items():
        if task in PAIRS:
            expected = {name: getattr(score.categories["total"], name) for name in PAIR_METRICS}
        else:
            expected = {name: estimate.value for name, estimate in score.estimates.items()}
        for name in expected.keys() - {"failed_samples", "submission_rows"}:
            actual = results["results"][task][f"{name},{rule}"]
            assert actual == pytest.approx(expected[name], rel=1e-12, abs=1e-12, nan_ok=True), (
                task,
                name,
                rule,
            )


@pytest.mark.parametrize("model", MODELS)
def test_no_failed_request_is_in_a_score(server, model):
    faults = Faults(server)
    server.choose = faults.step
    disturbed = evaluate(server, model)
    names = [faults.name_of(body) for body in first_tries(server)]
    assert set(names) == set(faults.steps), "some fault met no request"
    failed = {task: counts_of(disturbed["results"][task]).failed for task in FAMILIES}
    assert sum(failed.values()) == sum(name in faults.failing for name in names) > len(FAMILIES)
    for task in FAMILIES:
        assert_scores_are_those_of_the_rest(disturbed, task)
    cut = sum(
        bool(score.get("cut"))
        for task in FAMILIES
        for _, score in _records(disturbed["samples"][task])
    )
    assert cut == sum(name == "cut" for name in names)


def _records(samples):
    """Yield row and record of each sample under the first filter: the harness logs one filter after the other."""
    return {sample["doc_id"]: sample["score"] for sample in reversed(samples)}.items()
