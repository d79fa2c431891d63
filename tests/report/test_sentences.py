"""Sentences of the first screen: what they say of a made-up report."""

from dataclasses import replace

from medtasks.report.report_model import Gain
from medtasks.report.sentences import quotable_sentences
from medtasks.runs.run_manifest import PrimaryOutcome
from medtasks.scores.score_model import Baseline, ColumnTest, RuleScores
from medtasks.stats.intervals import EstimatedValue
from medtasks.stats.paired import PairedResult

from ..tables import each_row
from . import made_up_report as made_up

NAN = float("nan")
PAIRED = made_up.paired_task()
TEST = PairedResult(352, 176, 0.25, 0.225, -0.025, -0.1, 0.05, "exact McNemar", 0.4, None, 0.1)
TESTED = Baseline(
    "guessing", "", {"robust": {"set_accuracy": 0.25}}, {"robust": ("set_accuracy", TEST)}
)
HARD = ("robust", "set_accuracy", 0.2, 0.1)
HARDER = tuple(
    Gain(variant, f"hard_{n}", *HARD, n / 10, 0.0, 0.3, 0.1, 352)
    for n, variant in enumerate(("abstain", "degraded", "degraded, severity 3", "told"), 1)
)
HARDER = tuple(
    replace(gain, p_holm=p) for gain, p in zip(HARDER, (0.6, 0.01, 0.02, 0.001), strict=True)
)


def area_tests(different: str, p: float) -> RuleScores:
    """Return scores by area with a test that names a group or none."""
    rule, gap = made_up.paired_rule("robust"), EstimatedValue(-0.14, 0.03, -0.2, -0.08)
    areas = tuple(
        replace(area, gaps=(gap, gap), p_holm=(p, p)) for area in rule.groups["categories"]
    )
    test = ColumnTest(rule.scores[0], different, p, p)
    return replace(rule, groups={"categories": areas}, column_tests={"categories": (test,)})


NO_SCORE = made_up.share("set_accuracy", float("nan"))
FAILED = replace(
    made_up.paired_rule("robust"), scores=(NO_SCORE,), reasons={"adapter_failed": 60}
)
ONE_PATIENT = replace(
    made_up.paired_rule("robust"),
    scores=(replace(made_up.share("set_accuracy", 0.68), low=NAN, high=NAN),),
)
DYADS = replace(made_up.share("set_accuracy", 0.225), clusters=176, unit="pair", components=60)
SHARING = replace(made_up.paired_rule("robust"), scores=(DYADS,))
WITHOUT_GROUPS = replace(made_up.paired_rule("robust"), groups={})


@each_row(
    "changes, index, part",
    [
        (
            {},
            0,
            "reaches set_accuracy 22.5% [17.5 to 27.5] under rule robust (95 % interval in brackets), for 352 sam",
        ),
        (
            {},
            1,
            "With the image of another question (mediconfusion_swapped) its set_accuracy is 0.0% instead of ",
        ),
        (
            {},
            2,
            "replies without a valid answer: 0.0%; model: made_up_model",
        ),  # nothing was tested
        (
            {"rules": (area_tests("", 0.41),)},
            2,
            "%; no group was shown to differ (p = 0.4100).",
        ),
        (
            {"rules": (area_tests("Cerebral", 0.01),)},
            2,
            "%; Cerebral differs from all others by −14.0 pts [−20.0 to −8.0] (p = 0.0100).",
        ),
        (
            {"rules": (FAILED,)},
            0,
            " has no score: all 60 replies failed (data 'mediconfusion', ",
        ),
        ({"rules": (ONE_PATIENT,)}, 0, "set_accuracy 68.0% under rule robust, for "),
        (
            {"rules": (SHARING,)},
            0,
            "samples from 176 pairs that share images; 60 separate components (data ",
        ),
        (
            {"gains": ()},
            1,
            "image, guessing, has set_accuracy 25.0%; whether this run differs from it was not tested.",
        ),
        (
            {"gains": (), "baselines": (TESTED,)},
            1,
            "−2.5 pts [−10.0 to +5.0] (paired, p = 0.4000).",
        ),
        (
            {"gains": (), "baselines": ()},
            1,
            "mediconfusion_blind in the same run would show what the image adds.",
        ),
        (
            {"rules": (made_up.paired_rule("robust"),)},
            2,
            "replies without a valid answer: 25.0%",
        ),
        ({"rules": (WITHOUT_GROUPS,)}, 2, "versions: medtasks 0.8.0, lmms_eval 0.7.3."),
        (
            {"gains": HARDER},
            2,
            "the hardest variant, hard_2, changes set_accuracy by −20.0 pts [−30.0 to 0.0] (corrected p = 0.0100, the "
            "interval uncorrected).",
        ),
        (
            {"gains": tuple(replace(gain, p_holm=0.6) for gain in HARDER)},
            2,
            "valid answer: 0.0%; model: made_up_model",
        ),
    ],
)
def test_three_sentences_say_result_comparison_and_reliability(changes, index, part):
    task = replace(PAIRED, **changes)
    variants = [
        replace(PAIRED, name=gain.task) for gain in task.gains
    ]  # have no sentences of their own
    (sentences,) = quotable_sentences(made_up.report_of(task, *variants)).values()
    assert part in sentences[index]


def test_a_primary_outcome_comes_first_and_others_are_exploratory():
    report = replace(
        made_up.report_of(PAIRED),
        primary=PrimaryOutcome(task="mediconfusion", metric="confusion"),
    )
    (sentences,) = quotable_sentences(report).values()
    assert sentences[0].startswith("Primary outcome: On mediconfusion, ")
    assert " reaches confusion " in sentences[0]
    other = replace(report, primary=PrimaryOutcome(task="gmai", metric="accuracy"))
    (sentences,) = quotable_sentences(other).values()
    assert sentences[0].startswith("Exploratory outcome: On mediconfusion, ")
