"""``medtasks plan``: what it takes from data and runs, what it prints, and what it refuses."""

import json

import pytest

from ..made_up_runs import write_run
from ..tables import each_row


def test_from_the_data_alone(medtasks, sample, tmp_path):
    options = ("--against", "0.25", "--difference", "0.3", "--json", tmp_path / "plan.json")
    ran = medtasks("plan", "mediconfusion", *options)
    assert (ran.code, ran.err) == (0, "")
    found = json.loads((tmp_path / "plan.json").read_text(), parse_constant=pytest.fail)
    known = found["assumptions"]
    assert (found["task"], known["metric"], known["samples"]) == ("mediconfusion", "set_accuracy", 16)  # pairs
    assert (known["score"], known["discordance"], found["margin"]) == (0.25, None, None)
    assert f"To show a difference of 30.0%: {found['needed']} samples." in ran.out
    assert found["needed"] > 16
    assert "Samples on which the two models differ: 52.5% (if both models answer independently" in ran.out
    assert "SAMPLE DATA" in ran.out


def test_more_tests_and_more_power_take_more_samples(medtasks, sample, tmp_path):
    def needed(*further):
        arguments = ("--against", "0.5", "--difference", "0.2", "--json", tmp_path / "plan.json", *further)
        assert medtasks("plan", "mediconfusion", *arguments).code == 0
        return json.loads((tmp_path / "plan.json").read_text())["needed"]

    assert needed() < needed("--tests", "4") < needed("--tests", "4", "--power", "0.9")


def test_runs_give_score_discordance_and_design(medtasks, sample, tmp_path):
    first = write_run(tmp_path / "a", ("mediconfusion",), 0.9, 1)
    second = write_run(tmp_path / "b", ("mediconfusion",), 0.5, 1)
    options = ("--run", first, "--run", second, "--margin", "0.2", "--json", tmp_path / "plan.json")
    ran = medtasks("plan", "mediconfusion", *options)
    assert (ran.code, ran.err) == (0, "")
    plan = json.loads((tmp_path / "plan.json").read_text())
    compared = medtasks("compare", "mediconfusion", first, second, "--json", tmp_path / "compared.json")
    assert compared.code == 0
    known = plan["assumptions"]
    assert known["score_source"] == "of the first run"
    assert "(of the two runs)" in ran.out
    comparisons = json.loads((tmp_path / "compared.json").read_text())["comparisons"]
    test = next(one for one in comparisons if (one["rule"], one["metric"]) == ("reference", "set_accuracy"))
    assert (known["score"], known["samples"]) == (test["first"], test["samples"])
    assert abs(test["difference"]) <= known["discordance"] <= 1
    gained_or_lost = known["discordance"] * known["samples"]
    assert gained_or_lost == pytest.approx(round(gained_or_lost))
    assert plan["reached_for_margin"] is not None
    assert "To show that the other model is worse by less than 20.0%, if it differs by 0.0%: " in ran.out


@each_row(
    "options, message",
    [
        (("--against", "0.9", "--difference", "0.2"), "cannot differ by 0.2"),
        (("--difference", "0"), "cannot differ by 0"),
        (("--against", "1.5"), "--against is between 0 and 1"),
        (("--power", "1"), "--power and --margin"),
        (("--tests", "0"), "--tests at least 1"),
    ],
)
def test_numbers_out_of_range(medtasks, sample, options, message):
    ran = medtasks("plan", "mediconfusion", *options)
    assert ran.code == 1
    assert message in ran.err


def test_likelihoods_have_the_same_pairs_and_other_scores_are_refused(medtasks, sample):
    assert medtasks("plan", "iu_xray_report", "--difference", "0.1").code == 1
    ran = medtasks("plan", "mediconfusion_gd", "--against", "0.25")
    assert ran.out.startswith("mediconfusion_gd, set_accuracy: 16 samples prepared, in 16 clusters or pairs.")
    assert "a judge reads replies" in medtasks("plan", "mediconfusion_ff").err
