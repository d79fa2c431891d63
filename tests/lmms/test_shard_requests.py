"""Shards within the harness: which rows are asked and scored, in this process and on two."""

import json
import shutil

import pytest

from medtasks.data.shards import SHARD_VARIABLE, Shard
from medtasks.errors import MedTasksError
from medtasks.home import own_tasks_folder
from medtasks.lmms.evaluation import refuse_other_parts

from .whole_runs import answering, evaluate, on_two

pytestmark = pytest.mark.slow

NUMBERED_YAML = """\
task: numbered
dataset_path: json
dataset_kwargs: {data_files: {test: FILE}}
test_split: test
output_type: generate_until
doc_to_visual: !function numbered.no_visual
doc_to_text: "{{question}}"
doc_to_target: "A"
process_results: !function numbered.process_results
metric_list:
  - {metric: number, aggregation: mean, higher_is_better: true}
"""
NUMBERED = """\
def no_visual(doc):
    return []


def process_results(doc, results):
    return {"number": float(doc["number"])}
"""


@pytest.fixture
def numbered(sample_home, tmp_path, monkeypatch):
    """Beside the drawn sample, a task that is not ours and scores each of its ten rows by its number."""
    monkeypatch.setenv("MEDTASKS_HOME", str(shutil.copytree(sample_home, tmp_path / "home")))
    own_tasks_folder().mkdir(exist_ok=True)
    rows = [json.dumps({"question": f"Number {number}?", "number": number}) for number in range(10)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    (own_tasks_folder() / "numbered.yaml").write_text(NUMBERED_YAML.replace("FILE", str(tmp_path / "rows.jsonl")))
    (own_tasks_folder() / "numbered.py").write_text(NUMBERED)


def test_two_processes_ask_a_shard_as_one(numbered, monkeypatch, tmp_path):
    """One of them has no row of ``numbered``: what it asks to keep step with the other is in no score."""
    monkeypatch.setenv(SHARD_VARIABLE, "4/10")
    tasks = ["numbered", "mediconfusion_gd"]
    one = evaluate(tasks, batch_size=1)["results"]
    assert one["numbered"]["number,none"] == 3.0
    assert one["mediconfusion_gd"]["scored_samples,reference"] == 2
    two = on_two(tmp_path, tasks, batch_size=1)
    assert two == {task: {key: repr(value) for key, value in row.items()} for task, row in one.items()}


def test_what_chooses_rows_too_is_refused(sample, monkeypatch):
    monkeypatch.setenv(SHARD_VARIABLE, "1/2")
    for options in ({"limit": 4}, {"offset": 2}, {"cache_requests": True}):
        with pytest.raises(MedTasksError, match="MEDTASKS_SHARD=1/2 chooses the rows"):
            evaluate(["mediconfusion"], answering(lambda doc: "A"), **options)
    monkeypatch.setenv(SHARD_VARIABLE, "3/2")
    with pytest.raises(MedTasksError, match="such as --shard 3/16"):
        evaluate(["mediconfusion"], answering(lambda doc: "A"))


def test_another_harness_has_no_shards():
    def of_another_harness():
        raise AssertionError

    of_another_harness.__module__ = "lm_eval.evaluator"
    with pytest.raises(MedTasksError, match=r"MEDTASKS_SHARD=1/2 is for runs of lmms_eval; unset it for lm_eval"):
        refuse_other_parts(Shard(1, 2), of_another_harness, {})
    refuse_other_parts(None, of_another_harness, {"limit": 4})
