"""``medtasks score --metric green``, ``metrics`` and ``judge check`` with a judge on this machine."""

import json

import pytest

from .. import tiny_multimedeval
from ..judges.test_green_judge import assessment
from .conftest import rows_of

TASK = "multimedeval_mimic_cxr_report"
WHOLE = assessment(3, location=1)


@pytest.fixture
def reports(endpoint, write):
    """Four reports by whose words the judge can tell them; it fails two of them, each in another way."""
    tiny_multimedeval.prepare("mimic_cxr_report")

    def choose(body):
        prompt = body["messages"][-1]["content"]
        if "unknown" in prompt:
            return endpoint.reply("I'm sorry, but I can't compare these reports.")
        return endpoint.status(400) if "offline" in prompt else endpoint.reply(WHOLE)

    endpoint.choose = choose
    return write(
        *(
            {"doc_id": row, "reply": reply}
            for row, reply in enumerate(("a", "unknown", "b", "offline"))
        )
    )


@pytest.fixture
def half_judged(medtasks, reports, tmp_path):
    """Score the reports; return what the command did and its JSON."""
    written = tmp_path / "scores.json"
    ran = medtasks("score", TASK, reports, "--metric", "green", "--json", written)
    return ran, json.loads(written.read_text())["rules"]["reference"]


def test_reports_without_a_verdict_count_as_unjudged(half_judged):
    ran, summary = half_judged

    assert ran.code == 1
    assert "2 unjudged of 4 samples, which is more than --max-failed 1%" in ran.err
    shown = rows_of(ran.out)
    assert shown["green_strict"][0].startswith("75.0%")
    assert shown["green_reference"][0].startswith("50.0%")
    assert (shown["green_location"][0].split()[0], shown["green_failed"][0]) == ("1", "2")
    assert summary["metrics"]["green_failed"] == 2


def test_the_judge_of_green_is_named_next_to_its_scores(half_judged):
    ran, summary = half_judged

    assert "Judge of green: m, temperature 0, not checked" in " ".join(ran.out.split())
    assert summary["remarks"] == [
        "Judge of green: m, temperature 0, not checked by 'medtasks judge check'."
    ]
    assert summary["settings"]["green"]["prompt"] == "v1, chat message, no GREEN model"


def test_only_replies_that_the_judge_owes_are_asked_again(
    medtasks, half_judged, endpoint, reports
):
    asked = endpoint.count
    strict = ["score", TASK, reports, "--metric", "green_strict"]

    ran = medtasks(*strict, "--max-failed", "50%")

    assert "unjudged" not in ran.err
    assert endpoint.count == asked + 1
    assert "2 unjudged of 4 samples" in medtasks(*strict).err


def test_a_check_of_a_judge_that_is_down_has_no_result(fails, endpoint):
    endpoint.choose = lambda _: endpoint.status(400)
    fails(
        ["judge", "check"], "80 of 80 cases of the check got no reply, so that it has no result"
    )


@pytest.fixture
def effusion_and_oedema(write):
    """The options that name a reference and a hypothesis."""
    first, second = (
        write({"id": 1, "text": text}, name=f"{text}.jsonl") for text in ("effusion", "oedema")
    )
    return ["--refs", first, "--hyps", second]


def test_reports_without_a_task_are_scored_by_green(medtasks, endpoint, effusion_and_oedema):
    endpoint.script = [endpoint.reply(WHOLE)]

    ran = medtasks("metrics", *effusion_and_oedema, "--metric", "green")

    assert (ran.code, ran.err) == (0, "")
    assert rows_of(ran.out)["green_strict"] == ["75.0%", "higher"]
    assert rows_of(ran.out)["green_failed"] == ["0", "lower"]
    assert "Judge of green: m, temperature 0" in ran.out


def test_reports_without_a_task_may_be_unjudged(medtasks, endpoint, effusion_and_oedema):
    endpoint.script = [endpoint.reply("No.")]

    ran = medtasks("metrics", *effusion_and_oedema, "--metric", "green_strict")

    assert (ran.code, rows_of(ran.out)["green_strict"][0]) == (1, "n/a")
    assert "green: 1 unjudged of 1 samples, which is more than 1%" in ran.err


def test_a_judge_is_checked_on_made_up_cases(medtasks, endpoint, tmp_path):
    endpoint.script = [endpoint.reply("<judge>0</judge>")]

    ran = medtasks("judge", "check", "--json", tmp_path / "check.json")

    assert ran.code == 0
    assert rows_of(ran.out)["answer"][0] == "20 of 40"
    assert rows_of(ran.out)["report"][0] == "0 of 20"
    assert json.loads((tmp_path / "check.json").read_text())["shares"]["all"]["cases"] == 80


def test_the_check_of_a_judge_is_told_next_to_its_scores(
    medtasks, endpoint, effusion_and_oedema
):
    endpoint.script = [endpoint.reply("<judge>0</judge>")]
    medtasks("judge", "check")
    endpoint.script = [endpoint.reply(WHOLE)]

    ran = medtasks("metrics", *effusion_and_oedema, "--metric", "green_strict")

    assert "right in 20 of 80 made-up cases" in " ".join(ran.out.split())
