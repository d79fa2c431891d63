"""What holds of MedEvalKit's protocol without any model, and the page that says what its faults do."""

import csv
import importlib.util
import json
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import extractor_of

from .conftest import reference_folder

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def faults():
    spec = importlib.util.spec_from_file_location("medevalkit_faults", ROOT / "benchmarks" / "medevalkit_faults.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_golden_medevalkit_checks_the_page_is_what_the_script_writes(faults, test_data):
    page = faults.PAGE.read_text(encoding="utf-8")
    assert faults.page_with_tables(page, test_data) == page, "run: python benchmarks/medevalkit_faults.py DATA"


def test_golden_medevalkit_checks_release_and_fixed_read_as_reference(faults, test_data):
    samples = faults.medxpertqa(test_data)[::20]
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
                sample = Sample({"options": choices, "option_lines": choices, "answer": "B", "gold": "B"})
                assert extract("", sample).value == extract("A", sample).value == "A", (rule, ending, kind)


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


def printed(name):
    found = defaultdict(dict)
    with (reference_folder("MEDTASKS_PUBLISHED", "published") / name).open(encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            found[row["model"]][row.get("benchmark") or row["subset"]] = row["percent"]
    return list(found.values())


def fits(percent, questions):
    """Return whether a printed percentage is a number of right answers to so many questions."""
    near, digits = int(float(percent) * questions / 100), len(percent.partition(".")[2])
    return any(f"{100 * right / questions:.{digits}f}" == percent for right in range(near - 1, near + 3))


def test_golden_medevalkit_checks_what_lingshus_table_counts():
    columns = printed("medevalkit_lingshu_multimodal.csv")
    assert [sum(fits(row["MMMU-Med"], count) for row in columns) for count in (150, 1752)] == [4, len(columns)]
    assert sum(fits(row["VQA-RAD"], 451) for row in columns) == len(columns) - 1
    for row in columns:
        cells = [float(value) for name, value in row.items() if name != "Avg" and value]
        assert row["Avg"] in ("", f"{sum(cells) / len(cells):.1f}") or len(cells) < 7, row


def test_golden_medevalkit_checks_medxpertqas_totals_are_weighted_means():
    for row in printed("medevalkit_medxpertqa_authors.csv"):
        if {"MM", "MM Reasoning", "MM Understanding"} <= row.keys():
            parts = 1446 * float(row["MM Reasoning"]) + 554 * float(row["MM Understanding"])
            assert parts / 2000 == pytest.approx(float(row["MM"]), abs=0.0101)
