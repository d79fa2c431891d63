"""Question types, metrics and the extractor of CONTRIBUTING.md: each works as printed, next to those of the package."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

import medtasks.hooks
from medtasks.data.samples import Sample, letter
from medtasks.extract.extractor_registry import (
    REGISTERED,
    Answer,
    AnswerKind,
    Reason,
    extractor,
)
from medtasks.families.counts import answered
from medtasks.metrics.metric import CorpusMetric, Metric, Scale, evaluate
from medtasks.tasks.documents import task_documents, task_problems
from medtasks.tasks.hook_names import families, hook_modules
from medtasks.tasks.task_files import including, task_file

from ..task_families import score_of

PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
PART = PAGE[PAGE.index("## A new question type") : PAGE.index("## A new metric")]
ORDERED, TEST, LENGTHS = re.findall(r"```python\n(.*?)```", PART, re.DOTALL)
(TASK,) = re.findall(r"```yaml\n(.*?)```", PART, re.DOTALL)
METRICS = PAGE[PAGE.index("## A new metric") : PAGE.index("## What is stable")]
EXTRACTOR = PAGE[PAGE.index("## A new extractor") : PAGE.index("## A new dataset")]


@pytest.fixture
def types(tmp_path, monkeypatch):
    """The modules of the page among the hooks, for this test only."""
    folder = tmp_path / "hooks"
    folder.mkdir()
    (folder / "ordered_classes.py").write_text(ORDERED)
    (folder / "lengths.py").write_text(LENGTHS)
    monkeypatch.setattr(medtasks.hooks, "__path__", [*medtasks.hooks.__path__, str(folder)])
    hook_modules.cache_clear()
    yield families()
    for name in ("ordered_classes", "lengths"):
        sys.modules.pop(f"medtasks.hooks.{name}")
        delattr(medtasks.hooks, name)
    REGISTERED.pop("length_mm")
    hook_modules.cache_clear()


def test_the_printed_test_passes(types):
    importlib.import_module("medtasks.hooks.ordered_classes")
    names = {"__name__": __name__, "__package__": __package__}
    exec(TEST, names)
    next(value for name, value in names.items() if name.startswith("test_"))()


def test_a_task_of_five_lines_has_the_printed_type(types, tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    Image.new("RGB", (9, 9)).save(folder / "1.png")
    rows = [
        {"options": ["none", "mild", "severe"], "label": grade, "image_file": "1.png"}
        for grade in range(3)
    ]
    (folder / "grades.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "grades.yaml").write_text(TASK)
    lengths = (
        TASK.partition("lmms_eval")[0]
        .replace("ordered_classes", "lengths")
        .replace("grades", "lengths")
    )
    (folder / "lengths.yaml").write_text(lengths)
    (folder / "lengths.jsonl").write_text(
        '{"question": "How long?", "answer": "20", "image_file": "1.png"}'
    )
    with including([folder]):
        for name, row in (("own_grades", "robust_class"), ("own_lengths", "length_mm")):
            task = task_file(name)
            assert (list(task_problems(task)), task.rows["robust"].extractor) == ([], row)
        assert task_documents(task)[0]["answer"] == 20.0
        (folder / "lengths.jsonl").write_text(
            '{"question": "How long?", "answer": "wide", "image_file": "1.png"}'
        )
        with pytest.raises(
            Exception, match="'answer' is 'wide', and the family 'lengths' needs a length in mm"
        ):
            task_documents(task)


def test_lengths_are_right_within_ten_per_cent(types):
    family = types["lengths"]
    sample = {"doc_id": "1", "question": "How long?", "answer": 20.0}
    scores = [
        score_of(family, sample, reply)
        for reply in ("It is 21 mm.", "30 mm", "20 mm or 30 mm", "long")
    ]
    values = evaluate(family.metrics, scores)
    assert (values["within_ten_percent"].value, values["invalid_rate"].value) == (1 / 4, 1 / 2)


def test_the_printed_metrics_count_exact_answers_and_different_ones():
    names = {
        "Metric": Metric,
        "CorpusMetric": CorpusMetric,
        "Scale": Scale,
        "answered": answered,
    }
    blocks = re.findall(r"```python\n(.*?)```", METRICS, re.DOTALL)
    metrics = [eval(block, names) for block in blocks]
    record = {"target": ["C", "A"], "reason": "ok", "cluster_id": None}
    scores = [{**record, "value": list(letters)} for letters in ("A", "AC", "A", "B")]
    exact = evaluate(metrics[:1], scores)
    different = evaluate(
        metrics[1:], [{**score, "value": score["value"][0]} for score in scores]
    )
    assert exact["exact_match"].value == 1 / 4
    assert different["different_answers"].value == 2


def test_the_printed_extractor_reads_the_last_option():
    names = {thing.__name__: thing for thing in (Sample, letter, Answer, AnswerKind, Reason)}
    names |= {"extractor": extractor, "re": re}
    (block,) = re.findall(r"```python\n(.*?)```", EXTRACTOR, re.DOTALL)
    try:
        exec(block, names)
    finally:
        REGISTERED.pop("last_letter", None)
    sample = Sample({"options": ["cyst", "scar"], "answer": "A"})
    read = [
        names["last_letter"](reply, sample).value for reply in ("A? No, B. See X", "Z", None)
    ]
    assert read == ["B", None, None]
