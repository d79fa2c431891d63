"""Open tasks of MedHEval: scores without text, metrics of judges and labels, and what lacks them."""

import json
import math

import pytest

from medtasks.errors import JudgeNotConfigured, JudgeRefused, LabelerError
from medtasks.extract.labeler import CONDITIONS, Finding
from medtasks.families import free_texts
from medtasks.families.free_texts import (
    COMPONENT_REPORTS,
    COMPONENT_REPORTS_ELEVEN,
    KNOWLEDGE_QUESTIONS,
    KNOWLEDGE_QUESTIONS_ELEVEN,
)
from medtasks.judges import judge_client
from medtasks.metrics.metric import CorpusMetric, clear_results
from medtasks.prompts import judged
from medtasks.tasks.task_index import DottedName

from ..tables import each_row
from ..task_families import score_of
from .scripted_judge import ScriptedJudge

REFERENCE, STRICT = "medheval_open_reference", "medheval_open_strict"
QUESTION = {
    "dataset": "medheval_knowledge_open",
    "question": "What treats it?",
    "answer": "Rest and fluids.",
}
TRUTH = {"anatomy": ["heart"], "measurement": [], "symptom": ["enlarged heart"]}
REPORT = {
    "dataset": "medheval_visual_report",
    "question": "Report.",
    "report": "The heart is enlarged.",
    **TRUTH,
}


@pytest.fixture
def judge(monkeypatch):
    """Put a judge in the place of the configured one."""

    def install(**texts):
        def said(system, user, version):
            by_severity = "severity" if "range[0, 5]" in system else "correctness"
            text = texts.get("components" if "recall_number" in system else by_severity)
            return text(user) if callable(text) else text

        scripted = ScriptedJudge(said)
        monkeypatch.setattr(free_texts, "judge_if_there", lambda dataset: scripted)
        return scripted

    return install


def knowledge(reply, number=1, rule=STRICT, family=KNOWLEDGE_QUESTIONS, document=QUESTION):
    ids = {"doc_id": f"q/{number}", "patient_id": f"p{number}", "image_id": f"i{number}"}
    return score_of(family, {**document, **ids}, reply, rule)


def report(reply, number=1, rule=STRICT, family=COMPONENT_REPORTS):
    return knowledge(reply, number, rule, family, REPORT)


def aggregated(module, scores, chosen):
    """What the harness computes of each metric, by name."""
    metric_list = DottedName(f"medtasks.hooks.{module}.METRIC_LIST").resolve()
    names = {entry["metric"]: entry["aggregation"] for entry in metric_list}
    return {
        name: of(scores) for name, of in names.items() if chosen(name.removesuffix("_stderr"))
    }


OF_TEXTS = {
    metric.name
    for metric in COMPONENT_REPORTS.metrics
    if isinstance(metric, CorpusMetric)
    and metric.panel is not None
    and not metric.name.startswith("chair_judge")
}


def values(module, scores):
    """The metrics that compare no texts and need no labeler."""
    return aggregated(module, scores, lambda name: name not in OF_TEXTS)


def components(**counts):
    found = {name: counts.get(name, (0, 0)) for name in ("anatomy", "symptom", "measurement")}
    named = {
        name: {"recall_number": right, "wrong_number": wrong}
        for name, (right, wrong) in found.items()
    }
    return json.dumps({"model_1": named})


def test_two_judges_read_every_answer(judge):
    asked = judge(correctness='{"model_1": 1}', severity='{"model_1": 2}').asked
    record = knowledge("Assistant: Rest.")
    assert (record["correct"], record["severity"], record["reason"]) == (1, 2, "ok")
    assert record["judge"] == "m, temperature 0"
    assert [name.split()[0] for name in record["judge_prompts"]] == [
        "correctness_single",
        "severity_single",
    ]
    assert ["range[0, 5]" in system for system, *_ in asked] == [False, True]
    assert all('"model_1": "Rest."' in user for _, user, _ in asked)
    assert not any("eleven" in system for system, *_ in asked)
    knowledge("Rest.", family=KNOWLEDGE_QUESTIONS_ELEVEN)
    assert "eleven different models" in asked[2][0]
    assert "multiple different models" in asked[3][0]


def test_the_rate_counts_answers_that_the_judge_calls_wrong(judge):
    right = {"One.": 1, "Two.": 0, "Three.": 1, "Four.": 0}
    judge(
        correctness=lambda user: json.dumps(
            {"model_1": next(v for k, v in right.items() if f'"{k}"' in user)}
        ),
        severity=lambda user: json.dumps({"model_1": 0 if '"One."' in user else 4}),
    )
    found = values(
        "knowledge_hallucination", [knowledge(reply, n) for n, reply in enumerate(right)]
    )
    assert (found["knowledge_rate"], found["answers_judged"]) == (0.5, 4)
    assert (found["hallucination_score"], found["answers_scored"]) == (3.0, 4)
    assert found["knowledge_rate_stderr"] == pytest.approx(math.sqrt(1 / 12))
    assert found["hallucination_score_stderr"] == pytest.approx(1.0)
    assert (found["judge_failed_rate"], found["invalid_rate"]) == (0, 0)


@each_row(("reply", "reason"), [(" \n\t", "empty"), ("<think>so", "truncated")])
def test_a_reply_that_says_nothing_is_the_worst_without_asking(judge, reply, reason):
    scripted = judge(correctness='{"model_1": 1}', severity='{"model_1": 0}')
    silent, said = knowledge(reply, 1), knowledge("Rest.", 2)
    assert (len(scripted.asked), silent["reason"]) == (2, reason)
    found = values("knowledge_hallucination", [silent, said])
    assert (found["knowledge_rate"], found["hallucination_score"], found["invalid_rate"]) == (
        0.5,
        2.5,
        0.5,
    )


def test_without_a_judge_the_task_runs(warnings):
    samples = [knowledge("Rest.", 1), knowledge("", 2), knowledge("Fluids.", 3)]
    found = values("knowledge_hallucination", samples)
    assert math.isnan(found["knowledge_rate"])
    assert math.isnan(found["knowledge_rate_stderr"])
    assert found["judge_failed_rate"] == pytest.approx(2 / 3)
    # Nobody was set up to judge, so that nobody failed; texts are compared all the same.
    assert (found["scored_samples"], found["failed_samples"], found["unjudged_samples"]) == (
        3,
        0,
        0,
    )
    assert [text for text in warnings if "No judge is configured" in text] == [
        judge_client._MISSING
    ]


def test_components_are_summed_over_reports(judge):
    one, another = (
        components(anatomy=(1, 1), symptom=(0, 2)),
        components(anatomy=(8, 0), symptom=(2, 0)),
    )
    asked = judge(components=lambda user: one if '"One report."' in user else another).asked
    samples = [report("One report.", 1), report("Another report.", 2)]
    found = values("visual_hallucination", samples)
    assert (found["chair_judge_anatomy"], found["mentions_anatomy"]) == (0.1, 10)
    assert (found["chair_judge_symptom"], found["mentions_symptom"]) == (0.5, 4)
    assert (math.isnan(found["chair_judge_measurement"]), found["mentions_measurement"]) == (
        True,
        0,
    )
    assert found["chair_judge_anatomy_stderr"] > 0
    assert samples[0]["components"] == {
        "anatomy": [1, 1],
        "symptom": [0, 2],
        "measurement": [0, 0],
    }
    truth = '{"structured_ground_truth": {"anatomy": ["heart"], "symptom": ["enlarged heart"], "measurement": []}'
    assert truth in asked[0][1]
    assert "eleven" not in asked[0][0]
    report("Heart.", family=COMPONENT_REPORTS_ELEVEN)
    assert "eleven models" in asked[2][0]


def test_what_the_harness_writes_holds_no_text(judge):
    judge(correctness='{"model_1": 1}', severity='{"model_1": 1}', components=components())
    canary = "Canary Example"
    changes = {"patient_id": canary, "image_id": canary, "question": canary}
    documents = {
        "knowledge_hallucination": {**QUESTION, "doc_id": "q", **changes, "answer": canary},
        "visual_hallucination": {
            **REPORT,
            "doc_id": "r",
            **changes,
            "report": canary,
            "symptom": [canary],
        },
    }
    for module, doc in documents.items():
        sample = DottedName(f"medtasks.hooks.{module}.process_results").resolve()(
            doc, [f"{canary} says so"]
        )
        written = json.dumps(sample, default=str) + repr(sample) + repr(dict(sample.items()))
        assert "Canary" not in written
        assert {"doc", "target", "arguments", "resps", "filtered_resps"} <= sample.keys()


# Labels


def label(**found):
    """The findings of a text: blank but for what is named."""
    return {name: Finding[found.get(name.replace(" ", "_"), "BLANK")] for name in CONDITIONS}


SAID = {
    "The heart is enlarged.": label(
        Cardiomegaly="POSITIVE", Edema="NEGATIVE", Fracture="UNCERTAIN"
    ),
    "Right report.": label(Cardiomegaly="POSITIVE", Edema="NEGATIVE", Fracture="POSITIVE"),
    "Wrong report.": label(
        Cardiomegaly="NEGATIVE", Edema="POSITIVE", Pneumonia="POSITIVE", No_Finding="POSITIVE"
    ),
    "No report generated.": label(No_Finding="POSITIVE"),
}


@pytest.fixture
def labeled(monkeypatch):
    """Put a labeler in the place of the configured one; returns the batches it was given."""
    batches = []

    def labels_of(texts):
        batches.append(list(texts))
        return [SAID[text] for text in texts]

    monkeypatch.setattr(free_texts, "label_texts", labels_of)
    return batches


def label_values(scores):
    return aggregated("visual_hallucination", scores, lambda name: name in LABEL_METRICS)


LABEL_METRICS = {metric.name for metric in free_texts._LABEL_METRICS}


def test_labels_of_all_reports_come_from_one_call(labeled):
    found = label_values([report("Right report.", 1), report("Wrong report.", 2)])
    assert labeled == [["Right report.", "The heart is enlarged.", "Wrong report."]]
    # Right: TP, TN. Wrong: FN, FP, and two findings of which the reference says nothing.
    assert found["reports_labelled"] == 2
    assert (found["chair_label"], found["mentions_label"]) == (2 / 6, 6)
    assert (found["label_recall"], found["positives_label"]) == (1 / 2, 2)
    assert (found["label_specificity"], found["negatives_decided"]) == (1 / 2, 2)
    assert (found["label_accuracy"], found["labels_decided"]) == (2 / 4, 4)
    assert found["chair_label_stderr"] > 0


def test_a_short_report_is_no_report_under_the_reference_rule_only(labeled):
    assert report("Heart.", rule=REFERENCE)["labelled"].text == "No report generated."
    assert report("Heart.", rule=STRICT)["labelled"].text == "Heart."
    reference = label_values([report("", 1, REFERENCE)])
    assert (reference["mentions_label"], reference["chair_label"]) == (
        1,
        0,
    )  # "No Finding" is a mention
    clear_results()
    strict = label_values([report("", 1, STRICT)])
    assert labeled[-1] == ["The heart is enlarged."]
    assert (
        strict["mentions_label"],
        math.isnan(strict["chair_label"]),
        strict["label_recall"],
    ) == (0, True, 0)


def test_what_a_labeler_that_fails_costs(monkeypatch, warnings):
    samples = [report("Right report.", 1), report("Odd report.", 2)]
    without = label_values(samples)
    assert without["reports_labelled"] == 0
    assert all(
        math.isnan(without[name])
        for name in ("chair_label", "chair_label_stderr", "label_recall")
    )
    (warning,) = [text for text in warnings if "metrics of labels" in text]
    assert (
        "2 of 2 reports: reading findings as CheXbert does takes a labeler, and none is configured"
        in warning
    )
    assert "\n" not in warning

    def labels_of(texts):
        return [SAID.get(text, LabelerError("the labeler raised ValueError")) for text in texts]

    def raising(texts):
        raise RuntimeError(f"bad text: {texts[0]}")

    monkeypatch.setattr(free_texts, "label_texts", labels_of)
    clear_results()
    found = label_values(samples)
    assert (found["reports_labelled"], found["chair_label"]) == (1, 0)
    assert any("1 of 2 reports: the labeler raised ValueError" in text for text in warnings)
    monkeypatch.setattr(free_texts, "label_texts", raising)
    clear_results()
    label_values(samples)
    assert any("RuntimeError" in text for text in warnings)
    assert not any(
        "Right report" in text for text in warnings
    )  # a labeler's own words may quote a report


# The judge before the model runs


def test_a_judge_that_cannot_be_asked_stops_the_task_before_the_model_runs_but_no_scoring(
    monkeypatch, warnings
):
    def named(url, model="m", **more):
        for variable, text in {
            "JUDGE_BASE_URL": url,
            "JUDGE_MODEL": model,
            "JUDGE_API_KEY": "k",
            **more,
        }.items():
            monkeypatch.setenv(f"MEDTASKS_{variable}", text)

    def ask():
        document = {**QUESTION, "doc_id": "q/1", "image_files": []}
        return judged.prompt_with_judge_or_without(document, {"template": "{{ question }}"})

    assert ask() == ask() == "What treats it?"  # without a judge the task runs
    assert len(warnings) == 1
    named("https://judge.example/v1")
    with pytest.raises(JudgeRefused, match="'medheval_knowledge_open' is credentialed"):
        ask()
    found = values("knowledge_hallucination", [knowledge("Rest.", 1)])
    assert math.isnan(found["knowledge_rate"])
    assert found["judge_failed_rate"] == 1
    assert warnings[1].startswith(
        "The judge cannot be asked, so the metrics that need it are NaN: 'medheval_knowledge"
    )
    named("https://judge.example/v1", TRUSTED_JUDGE="https://judge.example/v1")
    assert ask() == "What treats it?"
    named("http://127.0.0.1:9/v1", model=" ")
    with pytest.raises(JudgeNotConfigured):
        ask()
