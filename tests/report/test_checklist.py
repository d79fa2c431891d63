"""Checklist pages and the sentences of the first screen: what they say of a made-up report, and what they never say."""

import re
from dataclasses import replace

from medtasks.home import packaged_facts
from medtasks.report.checklist import AUTHORS, checklist_table, write_checklist
from medtasks.report.report_model import Gain
from medtasks.report.sentences import quotable_sentences
from medtasks.runs.run_manifest import PrimaryOutcome
from medtasks.scores.score_model import Baseline, ColumnTest, RuleScores
from medtasks.stats.intervals import EstimatedValue
from medtasks.stats.paired import PairedResult

from ..tables import each_row
from . import made_up_report as made_up

CONTENTS = packaged_facts("medtasks.report", "checklists")
PARTS = {
    "claim": (44, {}),
    "mi-clear-llm": (8, {}),
    "stard-ai": (40, {15: "abcd", 16: "abc", 17: "ab", 26: "ab", 40: "ab"}),
    "tripod-llm": (
        19,
        {3: "ab", 5: "abcde", 6: "abcde", 7: "abcde", 8: "abc", 9: "ab", 14: "abcdef", 16: "abcd", 19: "abcdefg"},
    ),
}
NAN = float("nan")
PAIRED = made_up.paired_task()
SETTINGS = {"version": "6", "prompt": "templates, SHA-256 abc", "decoding": "temperature=0.0", "rows": "352"}
TASKS = (replace(PAIRED, settings=SETTINGS), made_up.withheld_task(), made_up.grouped_task())
REPORT = made_up.report_of(*TASKS, title="<script>alert</script>")


@each_row(
    "name, parts",
    [
        ("claim", ("mediconfusion: mediconfusion; public; fingerprint 0123456789ab", "set_accuracy (robust) 22.5% [")),
        ("stard-ai", ("temperature=0.0", "categories (robust): Cerebral (100) 10.0%", "1,000 of 4,550 samples")),
        ("tripod-llm", ("With the image of another question (mediconf", "robust_rule v1, Reads the letter")),
        ("mi-clear-llm", ("model: made_up_model: size=<small>", "SHA-256 abc", "; it comes from medtasks run --rep")),
    ],
)
def test_an_item_has_a_value_or_what_records_it_or_is_left_to_the_authors(name, parts, tmp_path):
    (count, letters), items = PARTS[name], CONTENTS["checklists"][name]["items"]
    numbers = [f"{n}{letter}" for n in range(1, count + 1) for letter in letters.get(n, "") or [""]]
    table = checklist_table(REPORT, name)
    assert [row[0].text for row in table.rows] == numbers
    for (item, _, keys, rest), row in zip(items, table.rows, strict=True):
        lines = row[2].text.splitlines()
        assert (AUTHORS in lines[-1]) == bool(rest or not keys), item
        assert len(lines) >= len(keys.split()) + bool(rest or not keys), item
    text = "\n".join(row[2].text for row in table.rows)
    assert [part for part in parts if part not in text] == []
    write_checklist(REPORT, name, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "It is no statement of compliance" in page
    assert not re.search(rf"compli(es|ant)|fulfil|meets|<script>alert|{made_up.SECRET}", page)


def test_every_fact_is_known_and_used():
    used = {key for one in CONTENTS["checklists"].values() for *_, keys, _ in one["items"] for key in keys.split()}
    assert used == CONTENTS["facts"].keys()


TEST = PairedResult(352, 176, 0.25, 0.225, -0.025, -0.1, 0.05, "exact McNemar", 0.4, None, 0.1)
TESTED = Baseline("guessing", "", {"robust": {"set_accuracy": 0.25}}, {"robust": ("set_accuracy", TEST)})
HARD = ("robust", "set_accuracy", 0.2, 0.1)
HARDER = tuple(
    Gain(variant, f"hard_{n}", *HARD, n / 10, 0.0, 0.3, 0.1, 352)
    for n, variant in enumerate(("abstain", "degraded", "degraded, severity 3", "told"), 1)
)
HARDER = tuple(replace(gain, p_holm=p) for gain, p in zip(HARDER, (0.6, 0.01, 0.02, 0.001), strict=True))


def area_tests(different: str, p: float) -> RuleScores:
    """Return scores by area with a test that names a group or none."""
    rule, gap = made_up.paired_rule("robust"), EstimatedValue(-0.14, 0.03, -0.2, -0.08)
    areas = tuple(replace(area, gaps=(gap, gap), p_holm=(p, p)) for area in rule.groups["categories"])
    test = ColumnTest(rule.scores[0], different, p, p)
    return replace(rule, groups={"categories": areas}, column_tests={"categories": (test,)})


NO_SCORE = made_up.share("set_accuracy", float("nan"))
FAILED = replace(made_up.paired_rule("robust"), scores=(NO_SCORE,), reasons={"adapter_failed": 60})
ONE_PATIENT = replace(
    made_up.paired_rule("robust"), scores=(replace(made_up.share("set_accuracy", 0.68), low=NAN, high=NAN),)
)
DYADS = replace(made_up.share("set_accuracy", 0.225), clusters=176, unit="pair", components=60)
SHARING = replace(made_up.paired_rule("robust"), scores=(DYADS,))
WITHOUT_GROUPS = replace(made_up.paired_rule("robust"), groups={})


@each_row(
    "changes, index, part",
    [
        ({}, 0, "reaches set_accuracy 22.5% [17.5 to 27.5] under rule robust (95 % interval in brackets), for 352 sam"),
        ({}, 1, "With the image of another question (mediconfusion_swapped) its set_accuracy is 0.0% instead of "),
        ({}, 2, "replies without a valid answer: 0.0%; model: made_up_model"),  # nothing was tested
        ({"rules": (area_tests("", 0.41),)}, 2, "%; no group was shown to differ (p = 0.4100)."),
        (
            {"rules": (area_tests("Cerebral", 0.01),)},
            2,
            "%; Cerebral differs from all others by −14.0 pts [−20.0 to −8.0] (p = 0.0100).",
        ),
        ({"rules": (FAILED,)}, 0, " has no score: all 60 replies failed (data 'mediconfusion', "),
        ({"rules": (ONE_PATIENT,)}, 0, "set_accuracy 68.0% under rule robust, for "),
        ({"rules": (SHARING,)}, 0, "samples from 176 pairs that share images; 60 separate components (data "),
        ({"gains": ()}, 1, "image, guessing, has set_accuracy 25.0%; whether this run differs from it was not tested."),
        ({"gains": (), "baselines": (TESTED,)}, 1, "−2.5 pts [−10.0 to +5.0] (paired, p = 0.4000)."),
        ({"gains": (), "baselines": ()}, 1, "mediconfusion_blind in the same run would show what the image adds."),
        ({"rules": (made_up.paired_rule("robust"),)}, 2, "replies without a valid answer: 25.0%"),
        ({"rules": (WITHOUT_GROUPS,)}, 2, "versions: medtasks 0.8.0, lmms_eval 0.7.3."),
        (
            {"gains": HARDER},
            2,
            "the hardest variant, hard_2, changes set_accuracy by −20.0 pts [−30.0 to 0.0] (corrected p = 0.0100, the "
            "interval uncorrected).",
        ),
        ({"gains": tuple(replace(gain, p_holm=0.6) for gain in HARDER)}, 2, "valid answer: 0.0%; model: made_up_model"),
    ],
)
def test_three_sentences_say_result_comparison_and_reliability(changes, index, part):
    task = replace(PAIRED, **changes)
    variants = [replace(PAIRED, name=gain.task) for gain in task.gains]  # have no sentences of their own
    (sentences,) = quotable_sentences(made_up.report_of(task, *variants)).values()
    assert part in sentences[index]


def test_a_primary_outcome_comes_first_and_others_are_exploratory():
    report = replace(made_up.report_of(PAIRED), primary=PrimaryOutcome(task="mediconfusion", metric="confusion"))
    (sentences,) = quotable_sentences(report).values()
    assert sentences[0].startswith("Primary outcome: On mediconfusion, ")
    assert " reaches confusion " in sentences[0]
    other = replace(report, primary=PrimaryOutcome(task="gmai", metric="accuracy"))
    (sentences,) = quotable_sentences(other).values()
    assert sentences[0].startswith("Exploratory outcome: On mediconfusion, ")
    facts = {**REPORT.facts, "primary outcome": "accuracy of gmai, margin 0.1, needed for margin 377"}
    rows = {row[0].text: row[2].text for row in checklist_table(replace(REPORT, facts=facts), "stard-ai").rows}
    assert "needed for margin 377." in rows["22"]
    assert "comes from medtasks run --primary" in checklist_table(REPORT, "claim").rows[20][2].text
