"""One class or several findings per image: scores, metrics, one bootstrap per set of scores, and labelers."""

import copy
import importlib
import json
import random

import pytest

from medtasks.extract.failure import failed_reply
from medtasks.families import classification
from medtasks.families.classification import CLASSIFICATION, MULTI_LABEL
from medtasks.families.family import Reply, Rule
from medtasks.hooks import multilabel
from medtasks.lmms.filters import ReadWith
from medtasks.metrics.class_scores import (
    MULTICLASS_METRICS,
    MULTILABEL_METRICS,
    count_classes,
    count_labels,
    multiclass_metrics,
    multilabel_metrics,
)
from medtasks.metrics.metric import clear_results
from medtasks.scores.scoring import score_replies, with_interval
from medtasks.stats.bootstrap import values_with_errors
from medtasks.stats.standard_error import clustered_error

from ..tables import each_row
from ..task_families import score_of, task_of, values_of

REFERENCE, HEAD, LABELED = (
    "multimedeval_class_v0_1_0",
    "multimedeval_labels_head",
    "chexbert_labels",
)
FINDINGS = ["Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion"]


def entry(target, value, number, cluster=None, reason="no_match", **more):
    """A score as another rank sends it."""
    reason = "ok" if value is not None else reason
    ids = {"sample": str(number), "cluster_id": cluster or f"doc-{number}"}
    return {**ids, "target": target, "value": value, "reason": reason, "rule": "any", **more}


def image(target, value, number, cluster=None, classes=3):
    return entry(target, value, number, cluster, classes=classes)


def values(scores):
    return values_of(CLASSIFICATION, scores)


def drawn(seed):
    draw = random.Random(seed)
    return [
        image(
            draw.randrange(3), draw.choice([0, 1, 2, None]), n, f"patient-{draw.randrange(20)}"
        )
        for n in range(80)
    ]


@pytest.fixture
def computed(monkeypatch):
    """The calls of the computation, from an empty cache on."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return values_with_errors(*arguments)

    monkeypatch.setattr(classification, "values_with_errors", counted)
    return calls


@each_row(
    ("family", "columns", "reply", "rule", "expected"),
    [
        (
            CLASSIFICATION,
            {"options": ["Nevus", "Melanoma"], "label": 0},
            "Mr. Doe has a melanoma",
            REFERENCE,
            {"classes": 2, "target": 0, "value": 1},
        ),
        (
            MULTI_LABEL,
            {"options": FINDINGS, "labels": [0, 0, 0, 1, 0]},
            "edema",
            HEAD,
            {"target": [0, 0, 0, 1, 0], "value": [0, 0, 0, 1, 0]},
        ),
    ],
)
def test_a_score_has_numbers_only(family, columns, reply, rule, expected):
    document = {
        "doc_id": "1",
        "patient_id": "p100",
        "image_id": "scan7",
        "details": "age 55, smokes",
        **columns,
    }
    score = score_of(family, document, reply, rule)
    written = json.dumps(score)
    cluster, _ = score.pop("cluster_id"), score.pop("patient_image")
    assert score == {"sample": "1", **expected, "reason": "ok", "rule": rule}
    assert cluster.startswith("patient-")
    assert not [
        word
        for word in ("Doe", "elanoma", "dema", "smokes", "p100", "scan7")
        if word in written
    ]


def test_values_are_those_of_the_metrics():
    scores, draw = drawn(1), random.Random(1)
    targets, predicted = (
        [score["target"] for score in scores],
        [score["value"] for score in scores],
    )
    by_name = values(scores)
    expected = multiclass_metrics(count_classes(targets, predicted, 3).sum(axis=0))
    assert {name: by_name[name] for name in MULTICLASS_METRICS} == {
        name: float(v) for name, v in expected.items()
    }
    invalid = [float(value is None) for value in predicted]
    assert by_name["invalid_rate"] == sum(invalid) / len(invalid)
    clusters = [score["cluster_id"] for score in scores]
    assert by_name["invalid_rate_stderr"] == pytest.approx(
        clustered_error(invalid, clusters).error
    )
    assert (by_name["scored_samples"], by_name["failed_samples"]) == (len(scores), 0)
    labels = [[[int(draw.random() < 0.3) for _ in FINDINGS] for _ in "tv"] for _ in range(60)]
    scores = [
        entry(target, value if n % 9 else None, n) for n, (target, value) in enumerate(labels)
    ]
    targets, predicted = (
        [score["target"] for score in scores],
        [score["value"] for score in scores],
    )
    by_name = values_of(MULTI_LABEL, scores)
    expected = multilabel_metrics(count_labels(targets, predicted, len(FINDINGS)).sum(axis=0))
    assert {name: by_name[name] for name in MULTILABEL_METRICS} == {
        name: float(v) for name, v in expected.items()
    }
    assert by_name["invalid_rate"] == 7 / 60
    assert (by_name["judge_failed_rate"], by_name["judge_failed_rate_stderr"]) == (0.0, 0.0)
    assert [
        by_name[name] for name in ("scored_samples", "failed_samples", "unjudged_samples")
    ] == [
        60,
        0,
        0,
    ]


def test_classes_that_no_score_has_still_count():
    """The number of classes is the document's, not that of the answers."""
    found = values([image(n % 2, n % 2, n, classes=4) for n in range(6)])
    assert (found["macro_auroc"], found["present_class_auroc"]) == (0.5, 1.0)


def test_all_metrics_of_one_row_are_computed_at_once(computed):
    scores = drawn(2)
    expected = values(scores)
    assert len(computed) == 1
    for seed in range(3):  # gathered from other ranks, in another order
        other = copy.deepcopy(scores)
        random.Random(seed).shuffle(other)
        assert values(other) == expected  # to the last digit
    assert len(computed) == 1


@each_row(
    ("sizes", "accuracy", "f1"), [([42, 114], 0.5, 0.212), ([174, 46, 92, 68, 20], 0.2, 0.121)]
)
def test_a_model_that_names_no_class_has_the_published_row(sizes, accuracy, f1):
    """The reference takes the first class then; BreastMNIST and RetinaMNIST, RadFM's rows."""
    options = [f"class {name}" for name in "vwxyz"[: len(sizes)]]
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    documents = [
        {"doc_id": str(n), "options": options, "label": label} for n, label in enumerate(labels)
    ]
    scores = [
        score_of(CLASSIFICATION, document, "I cannot say.", REFERENCE) for document in documents
    ]
    found = values(scores)
    assert (found["macro_accuracy"], found["macro_auroc"], found["invalid_rate"]) == (
        accuracy,
        0.5,
        0.0,
    )
    assert found["macro_f1"] == pytest.approx(f1, abs=1e-3)


def test_means_over_classes_have_the_interval_of_their_posterior():
    clear_results()
    scores = [image(0, int(n < 20), n) for n in range(100)] + [image(1, 1, 100)]
    for name, value in (
        ("balanced_accuracy", 0.9),
        ("macro_f1", (160 / 180 + 2 / 22) / 2),
        ("present_class_auroc", 0.9),
    ):
        metric = CLASSIFICATION.metric(name)
        estimate = metric.estimate(scores)
        assert estimate.value == pytest.approx(value)
        reported = with_interval(metric, estimate)
        assert (reported.low, reported.high) == estimate.ends
        assert reported.low <= estimate.value <= reported.high
        assert (
            name == "macro_f1" or reported.high - reported.low > 0.3
        )  # one image of a class says little
    # All of 30 right: the bootstrap has no error, and the interval is not a point.
    estimate = CLASSIFICATION.metric("macro_f1").estimate(
        [image(n % 2, n % 2, n) for n in range(30)]
    )
    assert (estimate.value, estimate.error, estimate.ends[1]) == (1, 0, 1)
    assert 0.85 < estimate.ends[0] < 0.97


def test_findings_have_the_interval_of_their_posterior():
    """A finding of 3 images of 60, all of them found."""
    scores = [entry([int(n < 3), n % 2], [int(n < 3), int(n % 4 > 1)], n) for n in range(60)]
    for name in ("macro_f1", "present_label_f1", "present_label_auroc", "macro_accuracy"):
        metric = MULTI_LABEL.metric(name)
        estimate = metric.estimate(scores)
        low, high = estimate.ends
        assert low < estimate.value < high
        assert (high - low > 0.15) == (name != "macro_accuracy"), (
            "few images tell little of a finding's F1"
        )
    low, high = MULTI_LABEL.metric("macro_accuracy").estimate(scores).ends
    assert (low, high) == pytest.approx(
        (0.75 - 0.065, 0.75 + 0.065), abs=0.02
    )  # Wald's: 30 of 60 images, half wrong


def test_classes_of_few_images_are_warned_of():
    failed = image(0, None, 500) | {"reason": "adapter_failed"}
    scores = [*(image(int(n < 3), 1, n) for n in range(50)), failed]
    metric = CLASSIFICATION.metric("macro_f1")
    assert metric.remark(scores) == "Images per class: A 47, B 3, C 0."
    assert metric.warning(scores).startswith("Fewer than 10 images of B (3): ")
    assert metric.warning([image(n % 3, 1, n) for n in range(30)]) == ""
    assert (metric.remark([failed]), metric.warning([])) == ("", "")

    scores = [{"target": [1, int(n < 12)], "value": None} for n in range(20)]
    assert MULTI_LABEL.metric("macro_f1").remark(scores) == "Images per class: A 20, B 12."
    assert (
        MULTI_LABEL.metric("macro_f1")
        .warning(scores[:14][-4:])
        .startswith("Fewer than 10 images of A (4), B (2): ")
    )


def test_a_warning_says_how_many_are_left_out(warnings):
    unread = entry([1, 0], None, 1, reason="judge_failed")
    aggregated = {entry["metric"]: entry["aggregation"] for entry in multilabel.METRIC_LIST}
    aggregated["judge_failed_rate"]([unread, entry([1, 0], [1, 0], 2)])
    assert warnings == [
        "The labeler failed for 50.0% of 2 replies; they are left out of the other metrics."
    ]


@pytest.fixture
def labeler(tmp_path, monkeypatch):
    """A labeler that calls what a text names positive; returns the texts of each call."""
    name = f"labeler_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "calls = []\n\n\ndef factory():\n    return label\n\n\ndef label(texts):\n    calls.append(list(texts))\n"
        f"    return [{{name: int(name.lower() in text) for name in {FINDINGS}}} for text in texts]\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MEDTASKS_LABELER", f"{name}:factory")
    return importlib.import_module(name).calls


REPLIES = [
    "edema",
    "",
    "atelectasis and <b>pleural effusion",
    failed_reply("gone"),
    "nothing",
    "edema",
]


def test_the_filter_labels_all_replies_in_one_call(labeler):
    results = ReadWith(LABELED).apply([[reply, "a repeat"] for reply in REPLIES], None)
    assert labeler == [["edema", "atelectasis and <b>pleural effusion", "nothing", "edema"]]
    documents = [
        {"doc_id": str(n), "options": FINDINGS, "labels": [0] * 5} for n in range(len(REPLIES))
    ]
    process = multilabel.process_results
    found = [
        process(doc, [one])["macro_f1"] for doc, one in zip(documents, results, strict=True)
    ]
    assert len(labeler) == 1
    edema = [0, 0, 0, 1, 0]
    assert [item["value"] for item in found] == [
        edema,
        None,
        [1, 0, 0, 0, 1],
        None,
        [0] * 5,
        edema,
    ]
    assert [item["reason"] for item in found] == [
        "ok",
        "empty",
        "ok",
        "adapter_failed",
        "ok",
        "ok",
    ]
    assert {item["rule"] for item in found} == {LABELED}
    assert not any("<" in one for one in results)
    # The options of a document are in its own order.
    turned = dict(documents[0], options=FINDINGS[::-1])
    assert process(turned, [results[0]])["macro_f1"]["value"] == [0, 1, 0, 0, 0]


def test_scoring_recorded_replies_labels_them_in_one_call(labeler):
    task = task_of("multilabel", {"reference": Rule(LABELED), "robust": Rule("robust_labels")})
    documents = [
        {"doc_id": str(n), "options": FINDINGS, "labels": [0, 0, 0, 1, 0]}
        for n in range(len(REPLIES))
    ]
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
