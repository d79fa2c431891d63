"""Reports: one record per reply, all metrics once over all records, and metrics that fail alone."""

import itertools
import json
import math
import pickle
import random
from collections.abc import Callable, Sequence

import pytest
from loguru import logger
from medtasks.hooks.reports import (
    MULTIMEDEVAL_METRICS,
    REPORT_METRICS,
    metrics_for,
    multimedeval_process_results,
    process_results,
    score_records,
)

from medtasks.data.privacy import PrivateText
from medtasks.errors import MedTasksError, UnknownName, WeightsMissing
from medtasks.extract.failure import failed_reply
from medtasks.families.counts import COUNTS
from medtasks.harness import saved_replies
from medtasks.harness.filters import ReadWith
from medtasks.hooks import report_panel, reports
from medtasks.metrics.report_metrics import REPORT_METRICS as REGISTRY
from medtasks.metrics.report_metrics import metric_info
from medtasks.metrics.report_scores import ReportScores, mean
from medtasks.stats.standard_error import clustered_standard_error

OPEN, CREDENTIALED = "mediconfusion", "multimedeval_mednli"  # any of that access
LISTS = {"multimedeval": MULTIMEDEVAL_METRICS, "report": REPORT_METRICS}


class Fakes:
    """Stand-ins for all metrics: the share of the reference's words in the hypothesis, shifted by the key's length."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: dict[str, Exception] = {}

    def report_metric(self, name: str) -> Callable[..., ReportScores]:
        def metric(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
            self.calls.append(name)
            if name in self.broken:
                raise self.broken[name]
            shares = [
                len(set(reference.split()) & set(hypothesis.split())) / (len(set(reference.split())) or 1)
                for reference, hypothesis in zip(references, hypotheses, strict=True)
            ]
            samples = {key: [share + len(key) for share in shares] for key in metric_info(name).keys}
            totals = {key: mean(values) for key, values in samples.items()}
            return ReportScores(samples if name != "f1_chexbert" else {}, totals, {"fake": "yes"})

        return metric


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> Fakes:
    made = Fakes()
    monkeypatch.setattr(report_panel, "report_metric", made.report_metric)
    monkeypatch.setattr(saved_replies, "_runs", {})
    reports._scores.cache_clear()
    return made


@pytest.fixture
def said():
    messages: list[tuple[str, str]] = []
    sink = logger.add(lambda m: messages.append((m.record["level"].name, m.record["message"])), level="INFO")
    yield messages
    logger.remove(sink)


def document(number=1, report="Left effusion seen.", dataset=OPEN, **more):
    doc = {"doc_id": f"s{number}", "dataset": dataset, "patient_id": None, "image_id": None, "context": None}
    return {**doc, "indication": "Cough.", "report": report, **more}


def record(reply, number=1, **more):
    return both(document(number, **more), ReadWith("report_text").apply([[reply]], None))["bleu_1"]


def both(doc, results):
    """Return the records under the metrics of either list."""
    of_reports = process_results(doc, results)
    with saved_replies.nothing_saved():
        of_multimedeval = multimedeval_process_results(doc, results)
    for hook, returned in ((REPORT_METRICS, of_reports), (MULTIMEDEVAL_METRICS, of_multimedeval)):
        assert dict(returned.items()).keys() == {metric["metric"] for metric in hook}
    return dict([*of_multimedeval.items(), *of_reports.items()])


def values(items, metric_list=MULTIMEDEVAL_METRICS):
    return {metric["metric"]: metric["aggregation"](items) for metric in metric_list}


# ---- names ----


def test_multimedeval_reports_what_it_prints_with_errors():
    names = [metric["metric"] for metric in MULTIMEDEVAL_METRICS]
    own = ["bleu_1", "bleu_4", "rouge_1", "rouge_l", "meteor", "idf_bertscore_f1", "chexbert_similarity"]
    own += ["radgraph_partial", "radcliq_v1_multimedeval", "invalid_rate"]
    assert names == [*(name for key in own for name in (key, f"{key}_stderr")), "scored_samples", "failed_samples"]


def test_report_metrics_have_errors_where_they_have_values_per_report():
    names = [metric["metric"] for metric in REPORT_METRICS]
    assert names[-2:] == ["scored_samples", "failed_samples"]
    own = [name for name in names[:-2] if not name.endswith("_stderr")]
    assert len(own) == 17
    without = {name for name in own if f"{name}_stderr" not in names}
    assert without == {f"chexbert_{labels}_{average}_f1" for labels in (14, 5) for average in ("micro", "macro")}


@pytest.mark.parametrize("metric_list", LISTS.values(), ids=LISTS)
def test_no_name_is_part_of_another_and_all_are_known(metric_list):
    own = [metric["metric"] for metric in metric_list if not metric["metric"].endswith("_stderr")]
    assert not [(a, b) for a, b in itertools.permutations(own, 2) if a in b]
    for metric in metric_list:
        assert metric["aggregation"].__name__ == metric["metric"]
    higher = {metric["metric"] for metric in metric_list if metric["higher_is_better"]}
    expected = {name for name in own if not name.startswith("radcliq") and name not in {"invalid_rate", *COUNTS}}
    assert higher == expected | {"scored_samples"}
    for key in expected:
        assert REGISTRY[metrics_for([key])[0]].higher_is_better


def test_metrics_for():
    assert metrics_for(["rouge_1", "bleu_4", "invalid_rate", "rouge_l"]) == ("rouge", "bleu")
    assert metrics_for([]) == ()
    with pytest.raises(KeyError):
        metrics_for(["acc"])


# ---- records ----


def test_one_record_for_all_metrics(fakes):
    returned = process_results(document(patient_id="p9"), ReadWith("report_text").apply([["Small effusion"]], None))
    assert len({id(entry) for _, entry in returned.items()}) == 1
    entry = returned["bleu_1"]
    assert entry["reference"] == PrivateText("Left effusion seen.")
    assert entry["reply"] == PrivateText("Small effusion")
    assert (entry["sample"], entry["reason"], entry["rule"]) == ("s1", "ok", "report_text")
    assert entry["unit"].startswith("patient-")
    records = dict(returned.items())
    assert pickle.loads(pickle.dumps(records)) == records
    sample: dict[str, object] = {}
    sample.update(returned)
    assert sample.keys() == records.keys()
    assert "effusion" not in json.dumps(sample)  # which W&B writes without a default
    assert "withheld (sha256" in json.dumps(sample)
    both(document(), ["x"])


def test_a_credentialed_record_has_hashed_ids_and_the_sample_no_text(fakes):
    reply = ReadWith("report_text").apply([["Small effusion"]], None)
    returned = process_results(document(dataset=CREDENTIALED, patient_id="p9"), reply)
    assert "is credentialed" in returned["target"]
    assert returned["bleu_1"]["sample"].startswith("doc-")
    sample: dict[str, object] = {}
    sample.update(returned)
    written = json.dumps(sample)
    for secret in ("effusion", "Cough", '"s1"', "p9"):
        assert secret not in written
    (file,) = saved_replies.home().rglob("*.jsonl")
    assert json.loads(file.read_text()) == {"doc_id": "s1", "reply": "Small effusion"}


@pytest.mark.parametrize(
    ("reply", "reason", "text"),
    [
        ("", "empty", ""),
        (" \n\t\u2003", "empty", ""),
        (failed_reply("out of memory"), "adapter_failed", ""),
        ("None.", "ok", "None."),
        ("  kept as it is \n\n x", "ok", "  kept as it is \n\n x"),
        ("<think>x</think>", "ok", "<think>x</think>"),
        ("é \U0001fac1 \ud83e\udec1 \ud800.", "ok", "é \U0001fac1 \U0001fac1 \ufffd."),
    ],
)
def test_reasons(fakes, reply, reason, text):
    entry = record(reply)
    assert (entry["reason"], entry["reply"].text) == (reason, text)


def test_a_reply_without_a_filter_and_a_rule_nobody_knows(fakes):
    assert process_results(document(), ["plain"])["bleu_1"]["rule"] == "report_text"
    with pytest.raises(UnknownName, match="report_text"):
        process_results(document(), ['{"rule": "report_txt", "reply": "x"}'])


# ---- aggregation ----


def many(count=40, seed=0):
    chance = random.Random(seed)
    words = ["left", "right", "effusion", "no", "normal", "heart"]
    return [
        record(
            " ".join(chance.choices(words, k=chance.randrange(6))),
            number,
            report=" ".join(chance.choices(words, k=4)),
            patient_id=f"p{number // 3}",
        )
        for number in range(count)
    ]


def test_empty_replies_are_invalid_and_failed_samples_in_no_metric(fakes):
    rest = [record("", 1), record("left", 3), record("heart", 4)]
    for metric_list in LISTS.values():
        found, expected = values([record(failed_reply("seen"), 2), *rest], metric_list), values(rest, metric_list)
        assert found.keys() == expected.keys()
        assert {name: value for name, value in found.items() if value != expected[name]} == {"failed_samples": 1}
        assert (found["invalid_rate"], found["scored_samples"]) == (pytest.approx(1 / 3), 3)


@pytest.mark.parametrize("metric_list", LISTS.values(), ids=LISTS)
def test_values_and_errors_clustered_by_patient(fakes, metric_list):
    items = many()
    found = values(items, metric_list)
    shares = [
        len({*i["reference"].text.split()} & {*i["reply"].text.split()}) / len({*i["reference"].text.split()})
        for i in items
    ]
    units = [item["unit"] for item in items]
    assert (found.pop("scored_samples"), found.pop("failed_samples")) == (len(items), 0)
    for name, value in found.items():
        key = name.removesuffix("_stderr")
        cases = [float(i["reason"] != "ok") for i in items] if key == "invalid_rate" else [s + len(key) for s in shares]
        expected = mean(cases) if name == key else clustered_standard_error(cases, units)
        assert value == pytest.approx(expected, abs=1e-12)
    assert 0 < found["invalid_rate"] < 1


def test_each_metric_is_computed_once(fakes):
    items = many()
    first = values(items, REPORT_METRICS)
    shuffled = pickle.loads(pickle.dumps(random.Random(1).sample(items, len(items))))  # as from another rank
    assert values(shuffled, REPORT_METRICS) == first
    expected = {"bleu", "rouge", "meteor", "bertscore", "chexbert", "f1_chexbert", "radgraph", "radgraph_combined"}
    assert sorted(fakes.calls) == sorted(expected | {"radcliq_v0", "radcliq_v1"})
    values(items[:-1], REPORT_METRICS)
    assert len(fakes.calls) == 20


def test_equal_reports_of_one_patient_count_each(fakes):
    items = [record("Left", 1, patient_id="p"), record("Left", 2, patient_id="p"), record("x", 3, patient_id="q")]
    assert values(items)["bleu_1"] == pytest.approx(6 + (1 / 3 + 1 / 3 + 0) / 3)


@pytest.mark.parametrize("metric_list", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("failed", [0, 2])
def test_no_answered_records(fakes, said, metric_list, failed):
    found = values([record(failed_reply("seen"), n) for n in range(failed)], metric_list)
    assert (found.pop("scored_samples"), found.pop("failed_samples")) == (0, failed)
    assert all(math.isnan(value) for value in found.values())
    assert fakes.calls == []  # metrics are not asked about nothing, which some cannot take
    assert [message for level, message in said if level == "WARNING"] == []


def test_one_record_has_values_without_errors(fakes):
    found = values([record("Left")])
    assert all(math.isnan(value) == name.endswith("_stderr") for name, value in found.items())


def test_a_total_that_is_no_mean_has_no_error_of_a_mean(fakes, monkeypatch):
    def corpus(*, references, hypotheses):
        keys = metric_info("bleu").keys
        return ReportScores({key: [0.0, 1.0] for key in keys}, dict.fromkeys(keys, 0.9))

    monkeypatch.setattr(report_panel, "report_metric", lambda name: corpus)
    found = values([record("Left", 1), record("x", 2)])
    assert found["bleu_1"] == 0.9
    assert math.isnan(found["bleu_1_stderr"])


# ---- failures ----


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


def chained() -> Exception:
    try:
        raise ValueError("zyz of the report")
    except ValueError as error:
        return error


FAILURES = {
    "weights": (WeightsMissing("a file is missing; fetch it with 'medtasks weights fetch chexbert'."), "weights fetch"),
    "memory": (OutOfMemoryError("CUDA out of memory"), "MEDTASKS_METRICS_DEVICE=cpu"),
    "ram": (MemoryError(), "MEDTASKS_METRICS_DEVICE=cpu"),
    "extra": (ModuleNotFoundError("No module named 'nltk'", name="nltk"), "pip install 'medtasks[report]'"),
    "bug": (chained(), "ValueError at test_reports.py"),
    "key": (KeyError("zyz of the report"), "KeyError"),
    "ours": (MedTasksError("WordNet is missing; run X"), "WordNet is missing; run X"),
}


@pytest.mark.parametrize(("error", "told"), FAILURES.values(), ids=FAILURES)
def test_a_failing_metric_costs_its_own_numbers(fakes, said, error, told):
    items = many()
    whole = values(items)
    reports._scores.cache_clear()
    said.clear()
    fakes.broken = {"chexbert": error}
    found = values(items)
    lost = {"chexbert_similarity", "chexbert_similarity_stderr"}
    assert {name for name, value in found.items() if math.isnan(value)} == lost
    assert all(found[name] == whole[name] for name in found.keys() - lost)
    (warning,) = [message for level, message in said if level == "WARNING"]
    assert told in warning
    assert warning.startswith("chexbert could not be computed: ")
    assert "zyz" not in warning
    (file,) = saved_replies.home().rglob("*.jsonl")
    assert warning.endswith(f"All replies are saved; then run: medtasks score {OPEN} {file}")


def test_all_metrics_may_fail(fakes, said):
    fakes.broken = {name: RuntimeError("zyz") for name in REGISTRY}
    found = values(many())
    kept = {"invalid_rate", "invalid_rate_stderr", "scored_samples", "failed_samples"}
    assert {name for name, value in found.items() if not math.isnan(value)} == kept
    assert len([message for level, message in said if level == "WARNING"]) == len(
        metrics_for(reports._MULTIMEDEVAL_KEYS)
    )


def test_a_metric_that_forgets_a_key_fails_alone(fakes, monkeypatch):
    whole = fakes.report_metric

    def forgetful(name):
        return (lambda **_: ReportScores({}, {})) if name == "rouge" else whole(name)

    monkeypatch.setattr(report_panel, "report_metric", forgetful)
    found = values(many())
    assert math.isnan(found["rouge_l"])
    assert not math.isnan(found["bleu_1"])


def test_another_run_tries_a_failed_metric_again(fakes):
    fakes.broken = {"chexbert": WeightsMissing("gone")}
    assert math.isnan(values(many())["chexbert_similarity"])
    fakes.broken = {}
    assert not math.isnan(values(many())["chexbert_similarity"])  # the weights were fetched meanwhile


def test_settings_are_told(fakes, said):
    values(many())
    assert ("INFO", "bertscore_multimedeval: fake yes") in said


def test_no_settings_for_models_stop_the_run(fakes, monkeypatch):
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float8")
    assert not math.isnan(values(many())["bleu_1"])


def test_score_records_with_further_metrics(fakes):
    items = many()
    scores = score_records(items, ("radcliq_v1", "bleu"))
    assert scores.values.keys() == {"radcliq_v1", "bleu_1", "bleu_2", "bleu_4", "invalid_rate"}
    assert scores.values["bleu_1"] == values(items)["bleu_1"]
    assert scores.failures == {}
    with pytest.raises(UnknownName, match="did you mean 'radcliq_v1'"):
        score_records(items, ("radcliq_v2",))
