"""Reports: one score per reply, all metrics once over all scores, and metrics that fail alone."""

import json
import math
import pickle
import random

import numpy as np
import pytest
from loguru import logger

from medtasks.data.privacy import PrivateText
from medtasks.errors import MedTasksError, UnknownName, WeightsMissing
from medtasks.families import text_metrics as text_metrics_module
from medtasks.families.counts import COUNTS
from medtasks.families.family import TaskFamily
from medtasks.families.free_texts import MULTIMEDEVAL_REPORTS, REPORTS
from medtasks.families.text_metrics import compare_texts, text_metrics
from medtasks.hooks import multimedeval_reports, reports
from medtasks.lmms.filters import ReadWith
from medtasks.metrics.chest_findings import label_scores
from medtasks.metrics.metric import mean
from medtasks.metrics.report_metrics import REPORT_METRICS as REGISTRY
from medtasks.metrics.report_metrics import ReportScores, metric_info, report_metric
from medtasks.runs import logged_samples
from medtasks.stats.standard_error import clustered_error

from ..task_families import TextMetrics, flat, score_of, values_of

KEYS = [
    metric.name
    for metric in MULTIMEDEVAL_REPORTS.metrics
    if metric.name not in {"invalid_rate", *COUNTS}
]
OPEN, CREDENTIALED = "mediconfusion", "multimedeval_mednli"  # any of that access
FAMILIES = {"multimedeval": MULTIMEDEVAL_REPORTS, "report": REPORTS}
every_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> TextMetrics:
    made = TextMetrics()
    monkeypatch.setattr(text_metrics_module, "report_metric", made.report_metric)
    monkeypatch.setattr(logged_samples, "_runs", {})
    return made


@pytest.fixture
def said():
    messages: list[tuple[str, str]] = []
    sink = logger.add(
        lambda m: messages.append((m.record["level"].name, m.record["message"])), level="INFO"
    )
    yield messages
    logger.remove(sink)


def document(number=1, report="Left effusion seen.", dataset=OPEN, **more):
    doc = {
        "doc_id": f"s{number}",
        "dataset": dataset,
        "patient_id": None,
        "image_id": None,
        "context": None,
    }
    return {**doc, "indication": "Cough.", "report": report, **more}


def score(reply, number=1, **more):
    return score_of(REPORTS, document(number, **more), reply, "report_text")


def values(scores, family: TaskFamily = MULTIMEDEVAL_REPORTS):
    return values_of(family, scores)


def run(number=40, seed=0):
    """What the harness does with many replies under MultiMedEval's metrics."""
    process = multimedeval_reports.process_results
    samples = [process(doc, [reply]) for doc, reply in many_replies(number, seed)]
    return {
        entry["metric"]: entry["aggregation"]([sample[entry["metric"]] for sample in samples])
        for entry in multimedeval_reports.METRIC_LIST
    }


# ---- names ----


def test_report_metrics_have_errors_where_they_have_values_per_report():
    names = [entry["metric"] for entry in reports.METRIC_LIST]
    assert names[-2:] == ["scored_samples", "failed_samples"]
    own = [name for name in names[:-2] if not name.endswith("_stderr")]
    assert len(own) == 17
    assert all(f"{name}_stderr" in names for name in own)


def test_scores_of_all_reports_together_have_the_error_of_patients(monkeypatch):
    """Errors nearly as the jackknife's over patients; the value for summed counts is that of the texts."""
    labels = np.random.default_rng(1).integers(0, 4, (2, 60, 14))
    f1 = label_scores(*labels.tolist(), uncertain="positive", prefix="chexbert")
    texts = [(doc["report"], reply) for doc, reply in many_replies(60)]
    bleu = report_metric("corpus_bleu")(
        references=[a for a, _ in texts], hypotheses=[b for _, b in texts]
    )
    patients = [number // 3 for number in range(60)]
    rows = [
        (str(patient), PrivateText(a), PrivateText(b), None)
        for patient, (a, b) in zip(patients, texts, strict=True)
    ]
    for name, scores in (("f1_chexbert", f1), ("corpus_bleu", bleu)):
        monkeypatch.setattr(
            "medtasks.families.text_metrics._scores", lambda *_, scores=scores: scores
        )
        estimates = compare_texts([name], rows).estimates
        by_patient = np.add.reduceat(scores.counts.cells, range(0, 60, 3))
        whole = scores.counts.scores(by_patient.sum(axis=0))
        without = scores.counts.scores(by_patient.sum(axis=0) - by_patient)
        assert len(whole) == (6 if name == "f1_chexbert" else 1)
        for key, value in whole.items():
            assert estimates[key].value == pytest.approx(float(value))
            expected = np.sqrt(19 / 20 * ((without[key] - without[key].mean()) ** 2).sum())
            assert estimates[key].error == pytest.approx(expected, rel=0.25)


# ---- scores ----


def test_a_credentialed_score_has_hashed_ids_and_the_sample_no_text(fakes):
    reply = ReadWith("report_text").apply([["Small effusion"]], None)
    process = reports.process_results
    returned = process(document(dataset=CREDENTIALED, patient_id="p9"), reply)
    assert "is credentialed" in returned["target"]
    assert returned["bleu_1"]["sample"].startswith("doc-")
    sample: dict[str, object] = {}
    sample.update(returned)
    written = json.dumps(sample)
    for secret in ("effusion", "Cough", '"s1"', "p9"):
        assert secret not in written
    (file,) = logged_samples.home().rglob("*.jsonl")
    saved = json.loads(file.read_text())
    assert {*saved.pop("fingerprint")} == {"context", "indication", "report"}
    assert saved == {"doc_id": "s1", "reply": "Small effusion"}


# ---- metrics ----


def many_replies(count=40, seed=0):
    chance = random.Random(seed)
    words = ["left", "right", "effusion", "no", "normal", "heart"]
    for number in range(count):
        reply, report = (
            " ".join(chance.choices(words, k=chance.randrange(6))),
            " ".join(chance.choices(words, k=4)),
        )
        yield document(number, report=report, patient_id=f"p{number // 3}"), reply


def many():
    return [score_of(REPORTS, doc, reply) for doc, reply in many_replies()]


@every_family
def test_values_and_errors_clustered_by_patient(fakes, family):
    items = many()
    found = values(items, family)
    shares = [
        len({*i["reference"].text.split()} & {*i["reply"].text.split()})
        / len({*i["reference"].text.split()})
        for i in items
    ]
    clusters = [item["cluster_id"] for item in items]
    assert (found.pop("scored_samples"), found.pop("failed_samples")) == (len(items), 0)
    for name, value in found.items():
        key = name.removesuffix("_stderr")
        cases = (
            [float(i["reason"] != "ok") for i in items]
            if key == "invalid_rate"
            else [s + len(key) for s in shares]
        )
        expected = mean(cases) if name == key else clustered_error(cases, clusters).error
        if (
            name != key and key.startswith("chexbert_") and key.endswith("_f1")
        ):  # the stand-in has no counts
            expected = math.nan
        assert value == pytest.approx(expected, abs=1e-12, nan_ok=True)
    assert 0 < found["invalid_rate"] < 1


def test_each_metric_is_computed_once(fakes):
    items = many()
    first = values(items, REPORTS)
    shuffled = pickle.loads(
        pickle.dumps(random.Random(1).sample(items, len(items)))
    )  # as from another rank
    assert values(shuffled, REPORTS) == first
    expected = {
        "bleu",
        "rouge",
        "meteor",
        "bertscore",
        "chexbert",
        "f1_chexbert",
        "radgraph",
        "radgraph_combined",
    }
    assert sorted(fakes.calls) == sorted(expected | {"radcliq_v0", "radcliq_v1"})
    values(items[:-1], REPORTS)
    assert len(fakes.calls) == 20


def test_a_total_that_is_no_mean_has_no_error_of_a_mean(fakes, monkeypatch):
    def corpus(*, references, hypotheses):
        keys = metric_info("bleu").keys
        return ReportScores({key: [0.0, 1.0] for key in keys}, dict.fromkeys(keys, 0.9))

    monkeypatch.setattr(text_metrics_module, "report_metric", lambda name: corpus)
    found = values([score("Left", 1), score("x", 2)])
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
    "weights": (
        WeightsMissing("a file is missing; fetch it with 'medtasks weights fetch chexbert'."),
        "weights fetch",
    ),
    "memory": (OutOfMemoryError("CUDA out of memory"), "MEDTASKS_METRICS_DEVICE=cpu"),
    "ram": (MemoryError(), "MEDTASKS_METRICS_DEVICE=cpu"),
    "extra": (
        ModuleNotFoundError("No module named 'nltk'", name="nltk"),
        "pip install 'medtasks[report]'",
    ),
    "bug": (chained(), "ValueError at test_reports.py"),
    "key": (KeyError("zyz of the report"), "KeyError"),
    "ours": (MedTasksError("WordNet is missing; run X"), "WordNet is missing; run X"),
}


@pytest.mark.parametrize(("error", "told"), FAILURES.values(), ids=FAILURES)
def test_a_failing_metric_costs_its_own_numbers(fakes, said, error, told):
    whole = values(many())
    fakes.broken = {"chexbert": error}
    found = run()
    no_counts = "chexbert_certain_5_macro_f1_stderr"  # of the stand-in
    lost = {"chexbert_similarity", "chexbert_similarity_stderr", no_counts}
    assert {name for name, value in found.items() if math.isnan(value)} == lost
    assert all(found[name] == whole[name] for name in found.keys() - lost)
    (warning,) = [message for level, message in said if level == "WARNING"]
    assert told in warning
    assert warning.startswith("chexbert could not be computed: ")
    assert "zyz" not in warning
    (file,) = logged_samples.home().rglob("*.jsonl")
    assert warning.endswith(f"All replies are saved; then run: medtasks score {OPEN} {file}")


def test_all_metrics_may_fail(fakes, said):
    fakes.broken = {name: RuntimeError("zyz") for name in REGISTRY}
    found = run()
    kept = {"invalid_rate", "invalid_rate_stderr", "scored_samples", "failed_samples"}
    assert {name for name, value in found.items() if not math.isnan(value)} == kept
    (warning,) = [
        message for level, message in said if level == "WARNING"
    ]  # the cause is the same
    names = warning.partition(" could not be computed: ")[0].split(", ")
    assert sorted(names) == sorted(
        {metric_info(name).name for name in found.keys() & set(KEYS)}
    )


def test_another_run_tries_a_failed_metric_again(fakes, said, monkeypatch):
    monkeypatch.setenv("MEDTASKS_METRICS_DTYPE", "float8")  # no settings for models stop a run
    fakes.broken = {"chexbert": WeightsMissing("gone")}
    assert math.isnan(run()["chexbert_similarity"])
    assert ("INFO", "bertscore_multimedeval: fake yes") in said
    fakes.broken = {}
    assert not math.isnan(run()["chexbert_similarity"])  # the weights were fetched meanwhile


def test_further_metrics(fakes):
    scores = many()
    found = flat(text_metrics(("radcliq_v1", "bleu_1", "bleu_2")), scores)
    assert found["bleu_1"] == values(scores)["bleu_1"]
    assert not any(map(math.isnan, found.values()))
    with pytest.raises(UnknownName, match="did you mean 'radcliq_v1'"):
        text_metrics(["radcliq_v2"])
