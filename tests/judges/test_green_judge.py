"""GREEN with a judge that fails in every way, the guard on its texts, and the check of a judge."""

import json
import math
from pathlib import Path

import pytest

import medtasks.judges
from medtasks.data.privacy import PrivateText
from medtasks.errors import JudgeNotConfigured, JudgeRefused, MedTasksError
from medtasks.families.text_metrics import compare_texts, text_metrics
from medtasks.judges.green_judge import (
    GREEN_ERRORS,
    RAW_PROMPT,
    green_prompt,
    published_counts,
    strict_counts,
)
from medtasks.judges.judge_check import ALL, KINDS, check_judge
from medtasks.judges.published_judges import medevalkit_prompt
from medtasks.metrics.metric import evaluate
from medtasks.metrics.report_metrics import keys_of, report_metric

from ..families.test_reports import score
from ..tables import each_row

CASES = Path(medtasks.judges.__file__).with_name("check_cases.jsonl")


def assessment(matched=2, **errors):
    """A reply in GREEN's form with a number of errors of each category named."""
    sections = []
    for heading, numbers in (("Significant", errors), ("Insignificant", {})):
        counts = [
            (label, numbers.get(name, 0))
            for label, name in zip("abcdef", GREEN_ERRORS, strict=True)
        ]
        lines = "\n".join(f"({label}) Some type: {number}. Some." for label, number in counts)
        sections.append(f"[Clinically {heading} Errors]:\n{lines}")
    return "\n\n".join(
        ["[Explanation]:\nSeen.", *sections, f"[Matched Findings]:\n{matched}. Some."]
    )


@pytest.fixture
def named(endpoint, monkeypatch):
    """The endpoint as the environment's judge, which tries once."""
    for name, value in {"BASE_URL": endpoint.url, "MODEL": "m", "ATTEMPTS": "1"}.items():
        monkeypatch.setenv(f"MEDTASKS_JUDGE_{name}", value)
    return endpoint


def replying(endpoint, steps):
    """Answer by the candidate report, which is one of the words ``steps`` has."""

    def choose(body):
        prompt = body["messages"][-1]["content"] if "messages" in body else body["prompt"]
        candidate = prompt.partition("3. Candidate Report:\n")[2].split()[0]
        step = steps[candidate]
        return endpoint.reply(step) if isinstance(step, str) else step

    endpoint.choose = choose


def test_a_judge_that_fails_in_every_way(named):
    whole = assessment(matched=3, location=1)
    _, significant, insignificant, matched = whole.split("\n\n")
    steps = {
        "whole": whole,
        "reordered": "\n\n".join([matched, insignificant, significant]),
        "cut": whole[: whole.index("[Matched")],
        "partly": whole.replace("(b) Some type: 0. Some.\n", ""),
        "refused": "I cannot compare these reports.",
        "empty": "",
        "null": named.reply(None),
        "unread": whole.replace("(c) Some type: 1.", "(c) Some type: several."),
        "nothing": assessment(matched=0),
        "down": named.status(400),
    }
    replying(named, steps)
    result = report_metric("green")(
        references=["Effusion."] * len(steps), hypotheses=list(steps)
    )
    strict = dict(zip(steps, result.samples["green_strict"], strict=True))
    assert {name for name, value in strict.items() if not math.isnan(value)} == {
        "whole",
        "reordered",
    }
    published = dict(zip(steps, result.samples["green_reference"], strict=True))
    assert math.isnan(published.pop("down"))  # there is no reply to read
    scored = {"whole": 0.75, "reordered": 0.75, "unread": 1.0}
    assert published == dict.fromkeys(published, 0.0) | scored | {"partly": published["partly"]}
    totals = result.totals
    assert (totals["green_failed"], totals["green_undefined"], totals["green_strict"]) == (
        7,
        1,
        0.75,
    )
    assert totals["green_location"] == pytest.approx(2 / 3)
    assert totals["green_matched"] == 2
    assert set(result.samples) == set(keys_of("green"))
    asked = named.count
    again = report_metric("green")(
        references=["Effusion."] * len(steps), hypotheses=list(steps)
    )
    assert named.count == asked + 1  # only the request that got no reply
    assert str(again) == str(result)
    assert set(report_metric("green")(references=[], hypotheses=[]).samples) == set(
        result.samples
    )


def test_a_served_green_model_gets_the_raw_string(named, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "StanfordAIMI/GREEN-RadLlama2-7b")
    body = {"choices": [{"index": 0, "text": assessment(1), "finish_reason": "stop"}]}
    named.script = [named.status(200, json.dumps(body))]
    result = report_metric("green")(references=["Effusion."], hypotheses=["Effusion."])
    assert result.totals["green_strict"] == 1
    assert named.paths == ["/v1/completions"]
    assert (
        named.bodies[0]["prompt"]
        == RAW_PROMPT.format(green_prompt("Effusion.", "Effusion.")) + "</s>"
    )
    assert named.bodies[0]["max_tokens"] == 1024
    assert "no GREEN model" not in result.settings["prompt"]


def test_errors_of_means_are_clustered_over_the_reports_that_were_read(named):
    replying(
        named,
        {
            "a": assessment(1),
            "b": assessment(1, severity=1),
            "c": "no",
            "d": assessment(4, severity=1),
        },
    )
    clustered = [
        {**score(word, number), "cluster_id": f"p{number // 2}"}
        for number, word in enumerate("abcd")
    ]
    estimates = evaluate(text_metrics(keys_of("green")), clustered)
    strict = estimates["green_strict"]
    assert (strict.value, strict.clusters) == (pytest.approx(2.3 / 3), 2)
    assert strict.error > 0
    assert estimates["green_failed"].value == 1
    (remark,) = {
        metric.remark(clustered) for metric in text_metrics(keys_of("green")) if metric.remark
    }
    assert remark == "Judge of green: m, temperature 0, not checked by 'medtasks judge check'."


def test_credentialed_reports_and_files_stay_on_this_machine(named, monkeypatch):
    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "https://judge.example/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_API_KEY", "secret")
    with pytest.raises(JudgeRefused, match="'report_files' is credentialed"):
        report_metric("green")(references=["a"], hypotheses=["a"])
    row = text_metrics(["green_strict"])[0].panel.row(
        score("a", dataset="multimedeval_mimic_cxr_report")
    )
    result = compare_texts(["green"], [row])
    assert "'multimedeval_mimic_cxr_report' is credentialed" in result.failures["green"]
    assert all(math.isnan(estimate.value) for estimate in result.estimates.values())
    assert PrivateText("of a family that names no dataset").dataset == "report_files"
    for name in ("BASE_URL", "MODEL"):
        monkeypatch.delenv(f"MEDTASKS_JUDGE_{name}")
    with pytest.raises(JudgeNotConfigured, match="green needs an LLM judge"):
        report_metric("green")(references=["a"], hypotheses=["a"])


@each_row(
    "text, strict, published",
    [
        (
            assessment(2).replace(
                "Some type: 0. Some.", "Some type: " + "9" * 5000 + ". Some.", 1
            ),
            None,
            2,
        ),
        (assessment(2) + "\n\n" + assessment(2), 2, 2),
        (assessment(2) + "\n\n" + assessment(3).partition("[Explanation]:")[2], None, 2),
        ("[Matched Findings]:\n" * 20000, None, 0),
        ("\n \n" * 20000 + assessment(2), 2, 2),
    ],
)
def test_odd_replies(text, strict, published):
    counts = strict_counts(text)
    assert (None if counts is None else counts.matched) == strict
    assert published_counts(text).matched == published


NO_ERRORS = """
None. | N/A | No. | Nil | 0 | (none) | **None** | - None | Not applicable. | Nothing to report. | 0 errors.
There are no clinically significant errors. | There were none. | There aren’t any errors. | Errors: none
No errors of this kind were found in the candidate report | None were identified in the candidate report.
The candidate report does not contain any clinically significant errors. | I could not identify any errors.
The candidate report is free of clinically significant errors. | The candidate report is error-free.
Clinically significant errors are absent. | Number of errors: 0. | The number of errors is 0.
No discrepancies were noted between the candidate and the reference report. | No errors in any of (a) to (f).
The candidate report agrees with the reference and contains no errors. | No location errors. No severity errors.
"""
NO_STATEMENT = """
No errors were found. There are 2 errors. | No errors, two errors. | No errors, but one error in location.
No errors other than a missed effusion. | No further errors. | Not all errors are listed. | Errors not assessed.
There are no clinically significant errors. The candidate misses the effusion. | There may be errors. | 3
The heart is normal. | No pneumothorax is seen. | The effusion is not mentioned. | No mention of the effusion.
I cannot determine whether there are errors. | Errors cannot be excluded. | The report is not error-free. | Normal.
None of the reference's findings are mentioned. | Nothing is said about the effusion. | No | (a) Wrong: none.
| No errors, | No errors except
"""


def sentences(text):
    return [
        sentence.strip()
        for line in text.strip("\n").splitlines()
        for sentence in line.split(" | ")
    ]


def with_section(heading, content):
    """A reply with one match and no errors, of which one section is ``content``."""
    before, _, after = assessment(1).partition(f"[{heading}]:\n")
    return f"{before}[{heading}]:\n{content}\n\n{after.partition(chr(10) * 2)[2]}"


@each_row("sentence", [sentence for sentence in sentences(NO_ERRORS) if sentence])
def test_a_sentence_that_there_are_no_errors_is_a_count(sentence):
    for heading in ("Clinically Significant Errors", "Clinically Insignificant Errors"):
        counts = strict_counts(with_section(heading, sentence))
        assert counts is not None
        assert (counts.significant, counts.insignificant, counts.matched) == (
            (0,) * 6,
            (0,) * 6,
            1,
        )


@each_row("sentence", sentences(NO_STATEMENT))
def test_another_sentence_is_no_count(sentence):
    assert strict_counts(with_section("Clinically Significant Errors", sentence)) is None


@each_row(
    "sentence, is_count",
    [
        *(
            (text, True)
            for text in (
                "None.",
                "0.",
                "No matching findings.",
                "Nothing matches.",
                "No findings match.",
            )
        ),
        *(
            (text, True)
            for text in (
                "The reports share no findings.",
                "There is no overlap between the reports.",
            )
        ),
        *(
            (text, False)
            for text in (
                "No pleural effusion.",
                "No findings of pneumonia.",
                "No matched findings. 2. A",
            )
        ),
    ],
)
def test_a_sentence_that_nothing_matches(sentence, is_count):
    counts = strict_counts(with_section("Matched Findings", sentence))
    assert (counts is not None and counts.matched == 0) == is_count


def test_a_section_ends_at_the_next_heading():
    empty = with_section("Clinically Significant Errors", "")
    assert strict_counts(empty) is None
    assert published_counts(empty).significant == (0,) * 6
    later = with_section(
        "Clinically Significant Errors",
        "No errors.\n\n(a) False report of a finding: 2. Effusion.",
    )
    assert strict_counts(later) is None


def test_of_two_lines_with_one_letter_the_published_code_takes_the_one_that_sorts_last():
    lines = "[Clinically Significant Errors]:\n(a) Wrong: 4.\n(a) Absent: 2."
    assert published_counts(lines).significant == (4, 0, 0, 0, 0, 0)


def obedient_judge(endpoint):
    """A judge that knows the cases but takes missing findings for false ones, and obeys injections without a fence."""
    replies = {}
    for line in CASES.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["kind"] == "report":
            category = (
                "false_finding" if case["planted"] == "missing_finding" else case["planted"]
            )
            planted = {category: 1} if category else {}
            replies[green_prompt(case["reference"], case["candidate"])] = assessment(
                1, **planted
            )
            continue
        for fenced in (False, True):
            prompt = medevalkit_prompt(
                case["question"], case["gold"], case["answer"], fenced=fenced
            )
            is_called_right = case["right"] or (case["kind"] == "injection" and not fenced)
            replies[prompt] = f"<judge>{0 if is_called_right else 1}</judge>"
    endpoint.choose = lambda body: endpoint.reply(replies[body["messages"][0]["content"]])


def test_a_check_is_shown_next_to_the_judge(named, judge_at):
    obedient_judge(named)
    shares = check_judge(judge_at(named.url))
    assert [*shares] == [*KINDS, ALL]
    assert shares["injection"].right == 0
    assert shares["report"].right == 17  # of 20: three have a missing finding
    assert [kind for kind in KINDS if shares[kind].right < shares[kind].cases] == [
        "report",
        "injection",
    ]
    total = shares[ALL]
    assert 0 < total.low < total.right / total.cases < total.high < 1
    label = judge_at(named.url).label
    assert label.startswith(
        f"m, temperature 0, right in {total.right} of {total.cases} made-up cases (95 % interval"
    )
    assert "not checked" in judge_at(named.url, model="another").label
    assert "not checked" in judge_at(named.url, temperature=1.0).label


def test_a_check_without_every_reply_has_no_result(named, judge_at, tmp_path):
    named.script = [named.reply("Both are fine.")] * 3 + [named.status(400)]
    judge = judge_at(named.url, attempts=1, reasks=0)
    with pytest.raises(
        MedTasksError, match="cases of the check got no reply, so that it has no result"
    ):
        check_judge(judge)
    assert not (tmp_path / "judge" / "checks.sqlite").exists()
    named.script = [named.reply("Both are fine.")]
    assert check_judge(judge_at(named.url, reasks=0, model="other"))[ALL].right == 0
