"""One class per image in the harness: records, metrics, and that the bootstrap runs once per set of records."""

import copy
import itertools
import json
import math
import random

import pytest

from medtasks.extract.failure import failed_reply
from medtasks.families.counts import COUNTS
from medtasks.harness.filters import ChooseWith, ReadWith
from medtasks.hooks import classification
from medtasks.metrics.classification import MULTICLASS_METRICS, count_classes, multiclass_metrics, values_with_errors
from medtasks.stats.standard_error import clustered_standard_error

REFERENCE, NUMBERED = "multimedeval_class_v0_1_0", "{number}: {text}"
OPTIONS = ["adipose", "background", "debris"]
NAMES = [metric["metric"] for metric in classification.METRIC_LIST]
SCORES = [name for name in NAMES if name not in COUNTS]


def document(label, number=1, **more):
    return {"doc_id": str(number), "image_id": None, "patient_id": None, "options": OPTIONS, "label": label, **more}


def record(reply, label=0, number=1, rule=REFERENCE, **more):
    results = ReadWith(rule, NUMBERED).apply([[reply]], None)
    return classification.process_results(document(label, number, **more), results)["macro_f1"]


def entry(key, value, number, unit=None, classes=3):
    """A record as another rank sends it."""
    return {
        "sample": str(number),
        "unit": unit or f"doc-{number}",
        "classes": classes,
        "key": key,
        "value": value,
        "reason": "ok" if value is not None else "no_match",
        "rule": "any",
    }


def values(items):
    return {metric["metric"]: metric["aggregation"](items) for metric in classification.METRIC_LIST}


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
    classification._scores.cache_clear()
    return calls


def test_names():
    assert NAMES[len(SCORES) :] == ["scored_samples", "failed_samples"]
    own = [name for name in SCORES if not name.endswith("_stderr")]
    assert own == [*MULTICLASS_METRICS, "invalid_rate"]
    assert not [(a, b) for a, b in itertools.permutations([*own, *COUNTS], 2) if a in b]
    assert [name for pair in zip(own, (f"{name}_stderr" for name in own), strict=True) for name in pair] == SCORES


def test_only_what_is_missing_and_errors_are_better_when_lower():
    lower = {metric["metric"] for metric in classification.METRIC_LIST if not metric["higher_is_better"]}
    assert lower == {name for name in NAMES if name.endswith("_stderr")} | {"invalid_rate", "failed_samples"}


def test_a_record_stands_under_every_metric_and_has_numbers_only():
    doc = document(0, patient_id="p100", image_id="scan7", details="age 55, smokes", options=["Nevus", "Melanoma"])
    results = ReadWith(REFERENCE).apply([["Mr. Doe has a melanoma"]], None)
    records = classification.process_results(doc, results)
    assert set(records) == set(NAMES)
    found = records["macro_auroc"]
    assert all(item == found for item in records.values())
    unit = found.pop("unit")
    assert found == {"sample": "1", "classes": 2, "key": 0, "value": 1, "reason": "ok", "rule": REFERENCE}
    written = json.dumps(found) + unit
    assert unit.startswith("patient-")
    assert not [word for word in ("Doe", "elanoma", "smokes", "p100", "scan7") if word in written]


@pytest.mark.parametrize(
    ("reply", "value"), [("1: adipose", 0), ("2", 1), ("It is debris.", 2), ("nothing fits", 0), ("", 0)]
)
def test_replies_are_classes(reply, value):
    found = record(reply)
    assert (found["value"], found["reason"]) == (value, "ok")


def test_the_rule_is_the_filters_and_else_the_robust_one():
    untagged = classification.process_results(document(0), ["No image was given."])["macro_f1"]
    assert (untagged["rule"], untagged["value"]) == ("robust_class", None)
    assert record("No image was given.")["value"] == 0  # the reference takes the first class


def test_a_failed_sample_is_in_no_metric():
    """Its class is in no mean over classes, either: here nothing else has class 2."""
    found = record(failed_reply("no memory"), label=2)
    assert (found["value"], found["reason"]) == (None, "adapter_failed")
    rest = [record("2: background", label=1, number=2), record("2: background", label=0, number=3)]
    scored, expected = values([found, *rest]), values(rest)
    assert {name: scored[name] for name in SCORES} == {name: expected[name] for name in SCORES}
    assert (scored["balanced_accuracy"], scored["invalid_rate"]) == (0.5, 0.0)
    assert (scored["scored_samples"], scored["failed_samples"]) == (2, 1)


def test_likelihoods_are_read_too():
    results = ChooseWith("untied").apply([[(3.0, False)], [(1.0, True)], [(2.0, False)]], None)
    found = classification.process_results(document(2), results)["macro_f1"]
    assert (found["value"], found["rule"]) == (1, "untied")


def test_values_are_those_of_the_metrics():
    items = drawn(1)
    gold, predicted = [item["key"] for item in items], [item["value"] for item in items]
    found = values(items)
    expected = multiclass_metrics(count_classes(gold, predicted, 3).total())
    assert {name: found[name] for name in MULTICLASS_METRICS} == {name: float(v) for name, v in expected.items()}
    invalid = [float(value is None) for value in predicted]
    assert found["invalid_rate"] == sum(invalid) / len(invalid)
    units = [item["unit"] for item in items]
    assert found["invalid_rate_stderr"] == pytest.approx(clustered_standard_error(invalid, units))
    assert all(type(found[name]) is float for name in SCORES)
    assert (found["scored_samples"], found["failed_samples"]) == (len(items), 0)


def test_classes_that_no_record_has_still_count():
    """The number of classes is the document's, not that of the answers."""
    items = [entry(n % 2, n % 2, n, classes=4) for n in range(6)]
    assert values(items)["macro_auroc"] == 0.5
    assert values(items)["present_class_auroc"] == 1.0


def test_errors_are_over_patients():
    """Two images of one patient that always agree carry as much as one."""
    once = [entry(n % 2, n % 3, n, f"patient-{n}") for n in range(40)]
    twice = [dict(item, sample=f"{item['sample']}/{n}") for item in once for n in range(2)]
    apart = [dict(item, unit=f"doc-{item['sample']}") for item in twice]
    alone, together, independent = (values(items) for items in (once, twice, apart))
    for name in (*MULTICLASS_METRICS, "invalid_rate"):
        assert together[f"{name}_stderr"] == pytest.approx(alone[f"{name}_stderr"])
    assert together["macro_f1_stderr"] > 1.2 * independent["macro_f1_stderr"] > 0


def test_a_run_of_one_patient_has_no_error():
    found = values([entry(n % 2, 0, n, "patient-1") for n in range(9)])
    assert {name for name, value in found.items() if math.isnan(value)} == {n for n in NAMES if n.endswith("_stderr")}


def test_without_records_everything_is_nan():
    found = values([])
    assert all(math.isnan(found[name]) for name in SCORES)
    assert (found["scored_samples"], found["failed_samples"]) == (0, 0)


def test_all_metrics_of_one_filter_are_computed_at_once(computed):
    items = drawn(2)
    expected = values(items)
    assert len(computed) == 1
    for seed in range(3):  # gathered from other ranks, in another order
        other = copy.deepcopy(items)
        random.Random(seed).shuffle(other)
        assert values(other) == expected  # to the last digit
    assert len(computed) == 1


def test_filters_and_tasks_do_not_mix(computed):
    """Sets of records that differ in one answer, unit, key, class or copy, also when they come by turns."""
    items = [entry(0, 0, 0), *drawn(3)]
    spoilt = [[dict(items[0], **change), *items[1:]] for change in ({"value": 1}, {"unit": "patient-1"}, {"key": 1})]
    sets = [items, *spoilt, [dict(item, classes=4) for item in items], [*items, items[0]]]
    first = [values(one) for one in sets]
    assert len(computed) == len(sets)
    by_turns = [[metric["aggregation"](one) for one in sets] for metric in classification.METRIC_LIST]
    assert [dict(zip(NAMES, column, strict=True)) for column in zip(*by_turns, strict=True)] == first
    classification._scores.cache_clear()
    assert [values(one) for one in reversed(sets)] == first[::-1]
    assert len({json.dumps(one) for one in first}) == len(sets)


@pytest.mark.parametrize(
    ("sizes", "accuracy", "f1"),
    [([42, 114], 0.5, 0.212), ([174, 46, 92, 68, 20], 0.2, 0.121)],
)
def test_a_model_that_names_no_class_has_the_published_row(sizes, accuracy, f1):
    """The reference takes the first class then; BreastMNIST and RetinaMNIST, RadFM's rows."""
    options = [f"class {name}" for name in "vwxyz"[: len(sizes)]]
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    items = [record("I cannot say.", label, n, options=options) for n, label in enumerate(labels)]
    found = values(items)
    assert (found["macro_accuracy"], found["macro_auroc"], found["invalid_rate"]) == (accuracy, 0.5, 0.0)
    assert found["macro_f1"] == pytest.approx(f1, abs=1e-3)
