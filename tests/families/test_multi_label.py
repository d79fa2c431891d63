"""Several findings per image: scores, metrics, and what a missing labeler does to them."""

import importlib
import json
import random
from pathlib import Path

import pytest

from medtasks.audit.scoring import score_replies
from medtasks.extract.failure import failed_reply
from medtasks.families.classification import MULTI_LABEL
from medtasks.families.family import Reply, Row
from medtasks.hooks import published
from medtasks.lmms.filters import ReadWith
from medtasks.metrics.class_scores import MULTILABEL_METRICS, count_labels, multilabel_metrics
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_index import DottedName

from ..task_families import score_of, values_of

HEAD, ROBUST, LABELED = "multimedeval_labels_head", "robust_labels", "chexbert_labels"
OPTIONS = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]
COUNTS = ["scored_samples", "failed_samples", "unjudged_samples"]
OWN = [*MULTILABEL_METRICS, "invalid_rate", "judge_failed_rate"]
SCORES = [name for own in OWN for name in (own, f"{own}_stderr")]


def score(reply, labels=(0, 0, 0, 1, 0), number=1, rule=HEAD, **more):
    doc = {"doc_id": str(number), "image_id": None, "options": OPTIONS, "labels": list(labels), **more}
    return score_of(MULTI_LABEL, doc, reply, rule)


def entry(key, value, number, cluster=None, reason="no_match"):
    """A score as another rank sends it."""
    return {
        "sample": str(number),
        "cluster_id": cluster or f"doc-{number}",
        "target": list(key),
        "value": None if value is None else list(value),
        "reason": reason if value is None else "ok",
        "rule": "any",
    }


def drawn(seed, number=60, invalid=0.1):
    draw = random.Random(seed)
    rows = [[[int(draw.random() < 0.3) for _ in OPTIONS] for _ in "kv"] for _ in range(number)]
    return [
        entry(key, None if draw.random() < invalid else value, n, f"patient-{n // 3}")
        for n, (key, value) in enumerate(rows)
    ]


def values(items):
    return values_of(MULTI_LABEL, items)


def test_a_score_has_numbers_only():
    found = score("edema", number=7, image_id="scan7", patient_id="p100")
    cluster, image = found.pop("cluster_id"), found.pop("patient_image")
    assert found == {"sample": "7", "target": [0, 0, 0, 1, 0], "value": [0, 0, 0, 1, 0], "reason": "ok", "rule": HEAD}
    assert cluster.startswith("patient-")
    assert not [word for word in ("dema", "p100", "scan7") if word in f"{json.dumps(found)}{cluster}{image}"]


def test_values_are_those_of_the_metrics():
    items = drawn(1)
    gold, predicted = [item["target"] for item in items], [item["value"] for item in items]
    found = values(items)
    expected = multilabel_metrics(count_labels(gold, predicted, len(OPTIONS)).total())
    assert {name: found[name] for name in MULTILABEL_METRICS} == {name: float(v) for name, v in expected.items()}
    assert found["invalid_rate"] == predicted.count(None) / len(items) > 0
    assert (found["judge_failed_rate"], found["judge_failed_rate_stderr"]) == (0.0, 0.0)
    assert all(type(found[name]) is float for name in SCORES)
    assert [found[name] for name in COUNTS] == [len(items), 0, 0]


def test_a_warning_says_how_many_are_left_out(warnings):
    unread = entry([1, 0], None, 1, reason="judge_failed")
    published("medtasks.hooks.multilabel.judge_failed_rate")([unread, entry([1, 0], [1, 0], 2)])
    assert warnings == ["The labeler failed for 50.0% of 2 replies; they are left out of the other metrics."]


@pytest.fixture
def labeler(tmp_path, monkeypatch):
    """A labeler that calls what a text names positive; returns the texts of each call."""
    name = f"labeler_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "calls = []\n\n\ndef factory():\n    return label\n\n\ndef label(texts):\n    calls.append(list(texts))\n"
        f"    return [{{name: int(name.lower() in text) for name in {OPTIONS}}} for text in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MEDTASKS_LABELER", f"{name}:factory")
    return importlib.import_module(name).calls


REPLIES = ["edema", "", "atelectasis and <b>pleural effusion", failed_reply("gone"), "nothing", "edema"]


def test_the_filter_labels_all_replies_in_one_call(labeler):
    results = ReadWith(LABELED).apply([[reply, "a repeat"] for reply in REPLIES], None)
    assert labeler == [["edema", "atelectasis and <b>pleural effusion", "nothing", "edema"]]
    documents = [{"doc_id": str(n), "options": OPTIONS, "labels": [0] * 5} for n in range(len(REPLIES))]
    process = published("medtasks.hooks.multilabel.process_results")
    found = [process(doc, [one])["macro_f1"] for doc, one in zip(documents, results, strict=True)]
    assert len(labeler) == 1
    assert [item["value"] for item in found] == [
        [0, 0, 0, 1, 0],
        None,
        [1, 0, 0, 0, 1],
        None,
        [0, 0, 0, 0, 0],
        [0, 0, 0, 1, 0],
    ]
    assert [item["reason"] for item in found] == ["ok", "empty", "ok", "adapter_failed", "ok", "ok"]
    assert {item["rule"] for item in found} == {LABELED}
    assert not any("<" in one for one in results)
    # The options of a document are in its own order.
    turned = dict(documents[0], options=OPTIONS[::-1])
    assert process(turned, [results[0]])["macro_f1"]["value"] == [0, 1, 0, 0, 0]


def test_scoring_recorded_replies_labels_them_in_one_call(labeler):
    task = TaskFile(
        name="findings",
        kind="task",
        path=Path("findings.yaml"),
        description="",
        dataset="findings",
        output_type="generate_until",
        rows={"reference": Row(LABELED), "robust": Row(ROBUST)},
        process_results=DottedName("medtasks.hooks.multilabel.process_results"),
        metric_list=DottedName("medtasks.hooks.multilabel.METRIC_LIST"),
    )
    documents = [{"doc_id": str(n), "options": OPTIONS, "labels": [0, 0, 0, 1, 0]} for n in range(len(REPLIES))]
    recorded = {str(n): Reply(text=reply) for n, reply in enumerate(REPLIES)}
    scores = score_replies(task, documents, recorded)
    assert labeler == [["edema", "atelectasis and <b>pleural effusion", "nothing", "edema"]]
    reference = scores["reference"].estimates
    assert scores["reference"].reasons == {"ok": 4, "empty": 1, "adapter_failed": 1}
    assert reference["judge_failed_rate"].value == 0
    # Not the failed sample: two replies name edema, one names two other findings, one none, one is empty.
    assert reference["macro_accuracy"].value == pytest.approx((5 + 2 + 4 + 5) / 25)
    assert (reference["scored_samples"].value, reference["failed_samples"].value) == (5, 1)
    assert scores["robust"].reasons["ok"] >= 3
