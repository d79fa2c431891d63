"""IU X-Ray's task: what it asks, what it is scored with, and a whole run."""

import math
import re

import pytest

from medtasks.data.document_store import load_documents
from medtasks.data.prepare.prepare_dataset import prepare
from medtasks.data.prepare.source_recipe import Options
from medtasks.metrics.report_metrics import REPORT_METRICS
from medtasks.prompts.template import messages, prompt
from medtasks.tasks.task_files import task_config
from medtasks.tasks.task_index import resolved, tasks_folder

from . import iu_xray_sources
from .lmms.whole_runs import answering, evaluate

TASK = "iu_xray_report"


@pytest.fixture
def doc(tmp_path, monkeypatch):
    monkeypatch.setenv("MEDTASKS_HOME", str(tmp_path / "home"))
    prepare(TASK, Options(iu_xray_sources.put_r2gen(tmp_path / "source")))
    return load_documents(TASK)[0]


def metrics():
    names = [entry["metric"] for entry in resolved(task_config(TASK)["metric_list"])]
    return [name for name in names if not name.endswith("_stderr")]


def test_it_is_asked_as_mimic_cxr(doc):
    families = task_config(TASK)["lmms_eval_specific_kwargs"]
    assert prompt(doc, families["llava"]).endswith("for this medical image? <image> <image> ")
    (turn,) = messages(doc, families["default"])
    assert [part["type"] for part in turn["content"]] == ["text", "image", "text", "image", "text"]


def test_readme_names_every_metric():
    readme = (tasks_folder() / "iu_xray" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"`(\w+)`", readme.partition("## Metrics")[2].partition("## Compared")[0])
    assert set(listed) == set(metrics())


@pytest.mark.slow
@pytest.mark.parametrize("reply", ["", "Report 7.\n\nReport 5."], ids=["empty", "paragraphs"])
def test_a_whole_run(doc, reply):
    results = evaluate([TASK], answering(lambda doc: reply))
    values = {key.partition(",")[0]: value for key, value in results["results"][TASK].items() if "," in key}
    assert values["invalid_rate"] == float(not reply)
    needing = {key for info in REPORT_METRICS.values() if info.weights or info.wordnet for key in info.keys}
    scored = {name: values[name] for name in metrics() if name not in needing}
    assert {"bleu_1", "bleu_4", "rouge_l"} <= scored.keys()
    assert all(math.isfinite(value) for value in scored.values())
    assert (scored["bleu_1"] > 0) == reply.startswith("Report")
    if reply.startswith("Report"):  # neither paragraph is cut away: each is the report of one of the two studies
        assert scored["bleu_1"] == pytest.approx(0.5)
