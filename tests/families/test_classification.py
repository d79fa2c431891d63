"""One class per image: scores, metrics, and that the bootstrap runs once per set of scores."""

import copy
import json
import random

import pytest

from medtasks.audit.scoring import with_interval
from medtasks.extract.failure import failed_reply
from medtasks.families import classification
from medtasks.families.classification import CLASSIFICATION, MULTI_LABEL
from medtasks.metrics.class_scores import MULTICLASS_METRICS, count_classes, multiclass_metrics, values_with_errors
from medtasks.metrics.metric import forget_computed
from medtasks.stats.recall import mean_recall_posterior
from medtasks.stats.standard_error import clustered_standard_error

from ..tables import each_row
from ..task_families import score_of, values_of

REFERENCE, NUMBERED = "multimedeval_class_v0_1_0", "{{ number }}: {{ text }}"
OPTIONS = ["adipose", "background", "debris"]


def document(label, number=1, **more):
    return {"doc_id": str(number), "image_id": None, "patient_id": None, "options": OPTIONS, "label": label, **more}


def score(reply, label=0, number=1, rule=REFERENCE, **more):
    return score_of(CLASSIFICATION, document(label, number, **more), reply, rule, option_form=NUMBERED)


def entry(key, value, number, cluster=None, classes=3):
    """A score as another rank sends it."""
    return {
        "sample": str(number),
        "cluster_id": cluster or f"doc-{number}",
        "classes": classes,
        "target": key,
        "value": value,
        "reason": "ok" if value is not None else "no_match",
        "rule": "any",
    }


def values(scores):
    return values_of(CLASSIFICATION, scores)


def drawn(seed, number=80, patients=20):
    draw = random.Random(seed)
    return [
        entry(draw.randrange(3), draw.choice([0, 1, 2, None]), n, f"patient-{draw.randrange(patients)}")
        for n in range(number)
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


def test_a_score_has_numbers_only():
    doc = document(0, patient_id="p100", image_id="scan7", details="age 55, smokes", options=["Nevus", "Melanoma"])
    found = score_of(CLASSIFICATION, doc, "Mr. Doe has a melanoma", REFERENCE)
    cluster, image = found.pop("cluster_id"), found.pop("patient_image")
    assert found == {"sample": "1", "classes": 2, "target": 0, "value": 1, "reason": "ok", "rule": REFERENCE}
    assert cluster.startswith("patient-")
    assert not [
        word for word in ("Doe", "elanoma", "smokes", "p100", "scan7") if word in json.dumps(found) + cluster + image
    ]


def test_values_are_those_of_the_metrics():
    scores = drawn(1)
    gold, predicted = [one["target"] for one in scores], [one["value"] for one in scores]
    found = values(scores)
    expected = multiclass_metrics(count_classes(gold, predicted, 3).total())
    assert {name: found[name] for name in MULTICLASS_METRICS} == {name: float(v) for name, v in expected.items()}
    invalid = [float(value is None) for value in predicted]
    assert found["invalid_rate"] == sum(invalid) / len(invalid)
    clusters = [one["cluster_id"] for one in scores]
    assert found["invalid_rate_stderr"] == pytest.approx(clustered_standard_error(invalid, clusters))
    assert {type(value) for name, value in found.items() if not name.endswith("_samples")} == {float}
    assert (found["scored_samples"], found["failed_samples"]) == (len(scores), 0)


def test_classes_that_no_score_has_still_count():
    """The number of classes is the document's, not that of the answers."""
    found = values([entry(n % 2, n % 2, n, classes=4) for n in range(6)])
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
    ("sizes", "accuracy", "f1"),
    [([42, 114], 0.5, 0.212), ([174, 46, 92, 68, 20], 0.2, 0.121)],
)
def test_a_model_that_names_no_class_has_the_published_row(sizes, accuracy, f1):
    """The reference takes the first class then; BreastMNIST and RetinaMNIST, RadFM's rows."""
    options = [f"class {name}" for name in "vwxyz"[: len(sizes)]]
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    found = values([score("I cannot say.", label, n, options=options) for n, label in enumerate(labels)])
    assert (found["macro_accuracy"], found["macro_auroc"], found["invalid_rate"]) == (accuracy, 0.5, 0.0)
    assert found["macro_f1"] == pytest.approx(f1, abs=1e-3)


def test_balanced_accuracy_has_the_posterior_of_the_mean_recall():
    forget_computed()
    scores = [entry(0, int(n < 20), n) for n in range(100)] + [entry(1, 1, 100)]
    metric = CLASSIFICATION.metric("balanced_accuracy")
    estimate = metric.estimate(scores)
    right, targets = [float(n >= 20) for n in range(100)] + [1.0], [0] * 100 + [1]
    error, low, high = mean_recall_posterior(right, targets, range(101))
    assert estimate.value == pytest.approx(0.9)
    assert (estimate.error, estimate.ends) == (error, (low, max(high, estimate.value)))
    reported = with_interval(metric, estimate)
    assert (reported.low, reported.high) == estimate.ends
    assert high - low > 0.3  # one image of a class says little


def test_numbers_per_class_are_told_and_few_warned_of():
    failed = score_of(CLASSIFICATION, document(0, 500), failed_reply("out of memory"), "robust_class")
    scores = [*(entry(int(n < 3), 1, n) for n in range(50)), failed]
    metric = CLASSIFICATION.metric("macro_f1")
    assert metric.remark(scores) == "Images per class: A 47, B 3, C 0."
    assert metric.warning(scores).startswith("Fewer than 10 images of B (3): ")
    assert metric.warning([entry(n % 3, 1, n) for n in range(30)]) == ""
    assert (metric.remark([failed]), metric.warning([])) == ("", "")


def test_numbers_per_finding():
    scores = [{"target": [1, int(n < 12)], "value": None} for n in range(20)]
    assert MULTI_LABEL.metric("macro_f1").remark(scores) == "Images per class: A 20, B 12."
    assert MULTI_LABEL.metric("macro_f1").warning(scores[:14][-4:]).startswith("Fewer than 10 images of A (4), B (2): ")
