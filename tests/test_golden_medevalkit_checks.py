"""What holds of MedEvalKit's protocol without any model, and the page that says what its faults do."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location(
        "medevalkit_faults", ROOT / "benchmarks" / "medevalkit_faults.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_golden_medevalkit_checks_the_page_is_what_the_script_writes(
    faults, recorded_data, monkeypatch
):
    """A part of the rows: all take half a minute."""
    page, samples = faults.PAGE.read_text(encoding="utf-8"), faults.medxpertqa(recorded_data)
    monkeypatch.setattr(faults, "FAULTS", faults.FAULTS[2::3])
    tables = [
        faults.choice_table(samples, (*faults.RIGHT, *faults.NO_ANSWER)[::5], ""),
        faults.faults_table(),
    ]
    tables.append(faults.text_table(faults.medxpertqa(recorded_data, faults.TEXTS)))
    rows = [row for table in tables for row in table.splitlines()[2:]]
    for part in (f"{len(samples):,} questions", *rows, faults.permuted_names()):
        assert part in page, "run: python benchmarks/medevalkit_faults.py DATA"


def test_golden_medevalkit_checks_release_and_fixed_read_as_reference(faults, recorded_data):
    samples = faults.medxpertqa(recorded_data)[::20]
    for wording in (*faults.RIGHT, *faults.NO_ANSWER):
        rules = (f"medevalkit_tagged_choice{ending}" for ending in ("", "_release", "_fixed"))
        assert len({faults.share_right(samples, wording, rule) for rule in rules}) == 1, wording


def test_golden_medevalkit_checks_an_empty_reply_is_a(golden):
    lines = (golden / "medevalkit" / "multi_choice.jsonl").read_text("utf-8").splitlines()
    asked = {(case["set"], tuple(case["choices"])) for case in map(json.loads, lines)}
    for rule in ("medevalkit_choice", "medevalkit_tagged_choice"):
        for ending in ("", "_release", "_fixed"):
            extract = extractor_of(rule + ending).extract
            for kind, choices in asked:
                sample = Sample(
                    {"options": choices, "option_lines": choices, "answer": "B", "gold": "B"}
                )
                assert extract("", sample).value == extract("A", sample).value == "A", (
                    rule,
                    ending,
                    kind,
                )


def test_golden_medevalkit_checks_perfect_replies(faults):
    def measured(questions, row="reference", reply="{a}", **how):
        return faults.measured(faults.Fault("", questions, reply, **how), questions.rules[row])

    assert measured(faults.MMMU)["accuracy"] == pytest.approx(145 / 150)
    assert measured(faults.MMMU, "reference_fixed")["accuracy"] == 1
    judged = {"verdict": "<judge>0</judge>"}
    assert measured(faults.VQA_RAD, **judged)["acc_open"] == pytest.approx(1 / 200)
    assert measured(faults.PATH_VQA, **judged)["acc_closed"] == 0
    slake = measured(faults.SLAKE, **judged)
    assert slake["acc_closed"] == 2
    assert slake["accuracy"] == pytest.approx((2 * 836 + 1258) / 2094)
    unjudged = measured(faults.SLAKE)
    assert (unjudged["accuracy"], unjudged["exact_match"]) == (1, 1)
    assert unjudged["acc_open"] == pytest.approx(1 / 1258)
    assert measured(faults.SLAKE, reply="The answer is {a}.")["accuracy"] == 0
    for questions in (faults.VQA_RAD, faults.PATH_VQA, faults.SLAKE):
        fixed = measured(questions, "reference_fixed", **judged)
        assert [fixed[part] for part in faults.PARTS] == [1, 1, 1]
