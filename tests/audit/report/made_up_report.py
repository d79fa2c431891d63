"""Reports of all shapes, with invented text, for tests of what they look like."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from medtasks.audit.report.contents import (
    Baseline,
    ComparedScore,
    Gain,
    Group,
    Item,
    PairOutcomes,
    PublishedScore,
    RuleScores,
    RunComparison,
    RunReport,
    Score,
    TaskReport,
)
from medtasks.families.family import ReadAnswer
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.stats.calibration import Bin, Calibration, CoveragePoint, Measure

NAN = math.nan
HOSTILE = (
    "<script>document.title = 'taken over'</script></script><!--"
    "<img src=x onerror=\"document.title='taken over'\">\u2028\ud800 A"
)
AREAS = ("Imaginary heart", "Invented lung")
Reading = tuple[str | None, str]
ReadReply = tuple[str, Reading, Reading]

# What the two images of a pair got: reply, then value and reason by reading. The keys are A and B.
PAIRS: tuple[tuple[ReadReply, ReadReply], ...] = (
    (("A", ("A", "ok"), ("A", "ok")), ("B", ("B", "ok"), ("B", "ok"))),  # both right
    (("A", ("A", "ok"), ("A", "ok")), ("A", ("A", "ok"), ("A", "ok"))),  # not told apart
    (("**A**", (None, "no_match"), ("A", "ok")), ("**B**", (None, "no_match"), ("B", "ok"))),  # the readings differ
    (("", (None, "empty"), (None, "empty")), ("B", ("B", "ok"), ("B", "ok"))),
    (
        ("A or  B\n\tboth", (None, "ambiguous"), (None, "ambiguous")),
        ("I cannot say.", (None, "no_match"), (None, "refused")),
    ),
    (("B", ("B", "ok"), ("B", "ok")), (HOSTILE, ("A", "ok"), ("A", "ok"))),  # swapped
)


def score(metric: str, value: float, half: float = 0.1, *, share: bool = True, higher: bool = True) -> Score:
    if math.isnan(value):
        return Score(metric, NAN, NAN, NAN, NAN, share, higher)
    low, high = value - half, value + half
    return Score(
        metric, value, half / 2, max(0.0, low) if share else low, min(1.0, high) if share else high, share, higher
    )


def draw(path: Path, text: str, size: tuple[int, int] = (320, 240)) -> Path:
    image = Image.new("L", size, 20)
    pen = ImageDraw.Draw(image)
    pen.ellipse((size[0] // 5, 20, size[0] * 4 // 5, size[1] - 20), fill=120, outline=230)
    pen.text((10, 10), text, fill=255)
    image.save(path)
    return path


def paired_items(pictures: bool = True) -> tuple[Item, ...]:
    items = []
    for number, pair in enumerate(PAIRS, start=1):
        for position, (reply, *read) in enumerate(pair, start=1):
            key = "AB"[position - 1]
            answers = {
                rule: ReadAnswer(value, reason, value == key)
                for rule, (value, reason) in zip(("reference", "robust"), read, strict=True)
            }
            items.append(
                Item(
                    doc_id=f"p{number}/{position}",
                    unit=f"p{number}",
                    images=(f"picture{number}{position}",) if pictures else (),
                    question=f"Made-up question {number}: which half is bright?",
                    options=("The upper half", "The lower half"),
                    prompt=f"Look & answer with a letter: made-up question {number}?",
                    key=key,
                    reply=reply,
                    answers=answers,
                    groups={"area": (AREAS[number % 2],)},
                )
            )
    return tuple(items)


def paired_rule(name: str, value: float) -> RuleScores:
    groups = tuple(Group(area, 6, (score("set_accuracy", value, 0.3),)) for area in AREAS)
    invalid = {
        "reference": {"no_match": 3, "empty": 1, "ambiguous": 1},
        "robust": {"refused": 1, "empty": 1, "ambiguous": 1},
    }
    return RuleScores(
        name=name,
        rule=f"made_up_{name} v1",
        describes="Reads a letter.",
        scores=(
            score("set_accuracy", value),
            score("individual_accuracy", 0.5),
            score("confusion", NAN, higher=False),
            score("invalid_rate", sum(invalid[name].values()) / 12, higher=False),
            Score("incomplete_pairs", 0.0, NAN, NAN, NAN, False, False),
        ),
        reasons={"ok": 12 - sum(invalid[name].values()), **invalid[name]},
        groups={"area": groups},
        pairs=PairOutcomes(1, 1, {"A": 1, "B": 0}, 1, 2, 0),
        wrong_kinds={"refusal": 1},
        failures={"confusion": "none of them counts."},
    )


def paired_task(folder: Path, name: str = "made_up_pairs") -> TaskReport:
    """Twelve images in six pairs, of which every one is another case of the audit browser."""
    folder.mkdir(parents=True, exist_ok=True)
    items = paired_items()
    pictures = {key: draw(folder / f"{key}.png", key) for item in items for key in item.images}
    return TaskReport(
        name=name,
        describes="Pairs of drawn pictures that nobody ever saw.",
        protocol="made-up protocol",
        dataset="made_up",
        access="public",
        fingerprint="0123456789ab",
        documents=12,
        answered=12,
        rules=(paired_rule("reference", 1 / 6), paired_rule("robust", 2 / 6)),
        metrics={metric.name: metric for metric in PAIRED_CHOICE.metrics},
        baselines=(
            Baseline(
                "always A",
                "Answers A to everything.",
                {n: {"set_accuracy": 0.0, "individual_accuracy": 0.5} for n in ("reference", "robust")},
            ),
            Baseline(
                "a coin", "Throws a coin.", {"reference": {"set_accuracy": 0.25}, "robust": {"set_accuracy": 0.26}}
            ),
        ),
        published=(
            PublishedScore("Made-up Model", "set_accuracy", 0.2955, "29.55", "Nobody et al., Table 1"),
            PublishedScore(
                "Other Model", "set_accuracy", 0.05, "5.00", "Nobody et al., Table 1", "Misprint: should be 50.00."
            ),
            PublishedScore("Third Model", "confusion", 0.9, "90.0", "Nobody et al., Table 1"),
        ),
        gains=(
            Gain("blind", f"{name}_blind", "reference", "set_accuracy", 1 / 6, 0.0, 1 / 6, -0.05, 0.38, 0.25, 12),
            Gain("swapped", f"{name}_swapped", "robust", "set_accuracy", 2 / 6, 0.0, 2 / 6, NAN, NAN, 0.00001, 12),
        ),
        items=items,
        pictures=pictures,
    )


def likelihood_task(name: str = "made_up_likelihoods") -> TaskReport:
    """Four questions answered by likelihood, with calibration."""
    rules = (RuleScores("reference", "made_up_greedy v1", "", (score("accuracy", 0.5),), {"ok": 4}),)
    items = tuple(
        Item(
            f"q{number}", f"q{number}", (), f"Which option, number {number}?", ("One", "Two", "Three"), "", "B", "",
            (1.5, NAN if number == 3 else 0.5, 2.5),
            {"reference": ReadAnswer("B", "ok", True) if number % 2 else ReadAnswer("A", "ok", False)}, {},
        )
        for number in range(4)
    )  # fmt: skip
    calibration = Calibration(
        samples=3,
        left_out=1,
        accuracy=Measure(0.5, 0.1, 0.9),
        confidence=0.7,
        ece=Measure(0.2, 0.05, 0.5),
        debiased_ece=0.125,
        brier=Measure(0.41, NAN, NAN),
        bins=(Bin(0.0, 0.5, 0, NAN, NAN), Bin(0.5, 1.0, 3, 0.7, 0.5)),
        coverage=tuple(CoveragePoint(1 - step / 40, 0.5 + step / 100, 0.3 + step / 100) for step in range(40)),
        aurc=Measure(0.3, 0.1, 0.6),
        auroc=Measure(0.55, 0.2, 0.8),
        note="Probabilities are made up.",
    )
    base = paired_task_without_items(name)
    return replace(base, rules=rules, items=items, calibration={"reference": calibration}, documents=4, answered=4)


def paired_task_without_items(name: str) -> TaskReport:
    return TaskReport(name, "", documents=12, answered=12, rules=(paired_rule("reference", 0.5),))


def scored_task(name: str = "made_up_reports") -> TaskReport:
    """Two replies that are neither right nor wrong but have a score, and one that nobody read."""
    scores = (score("overlap", 12.5, 3, share=False),)
    rules = (RuleScores("reference", "made_up_overlap v2", "", scores, {"ok": 2, "judge_failed": 1}),)
    read = (
        ReadAnswer("some words", "ok", None, 0.125),
        ReadAnswer(None, "ok", None, NAN),
        ReadAnswer(None, "judge_failed", None),
    )
    items = tuple(
        Item(
            doc_id=f"r{number}",
            unit=f"r{number}",
            question="Describe the drawn picture.",
            prompt="Describe it.",
            key="A long invented description.",
            reply=f"Reply {number}.",
            answers={"reference": answer},
            groups={"kind": ("drawn",)},
        )
        for number, answer in enumerate(read)
    )
    base = paired_task_without_items(name)
    return replace(base, rules=rules, items=items, documents=3, answered=3)


def withheld_task(name: str = "made_up_secrets") -> TaskReport:
    """A credentialed task whose collector forgot to leave the text out: the page must not show it."""
    items = tuple(
        replace(
            item,
            doc_id=f"doc-{number:016x}",
            unit=f"pair-{item.unit}",
            options=("CANARY", "CANARY"),
            groups={},
            question="CANARY",
            prompt="CANARY",
            reply="CANARY",
            key="CANARY",
        )
        for number, item in enumerate(paired_items())
    )
    base = paired_task_without_items(name)
    pictures = {"picture11": Path("CANARY.png")}
    return replace(base, access="credentialed", withheld=True, items=items, pictures=pictures)


def comparison() -> RunComparison:
    tests = (
        ("reference", (1 / 6, 0.9, 0.9 - 1 / 6, 0.4, 0.9), (0.00002, 0.00004, 0.3)),
        ("robust", (0.5, 0.4, -0.1, NAN, NAN), (0.7, 0.7, NAN)),
    )
    scores = tuple(
        ComparedScore("made_up_pairs", rule, "set_accuracy", 12, 6, *values, "exact McNemar", *p_values)
        for rule, values, p_values in tests
    )
    return RunComparison("other-model", "runs/other", scores, ("made_up_reports is in one of the runs only.",))


def report_of(*tasks: TaskReport, **others: Any) -> RunReport:
    contents: dict[str, Any] = {
        "title": "Made-up model on made-up tasks",
        "model": "made_up_model: size=<small> & cheap",
        "created": "2026-01-02T03:04:05+00:00",
        "run_at": "2026-01-01T00:00:00+00:00",
        "facts": {"medtasks": "0", "command": "lmms_eval --tasks 'a&b' <x>"},
        "missing": {},
        **others,
    }
    return RunReport(tasks=tuple(tasks), **contents)


def full_report(folder: Path) -> RunReport:
    """A report with something in every section."""
    return report_of(
        paired_task(folder),
        likelihood_task(),
        scored_task(),
        withheld_task(),
        missing={"made_up_failure": "it raised an error after 10 minutes."},
        notes=("The run was killed half-way.",),
        comparisons=(comparison(),),
    )


def many_items(number: int) -> TaskReport:
    """A task of many questions in pairs, without pictures."""
    base = paired_items(pictures=False)
    items = tuple(
        replace(item, doc_id=f"{copy}/{item.doc_id}", unit=f"{copy}/{item.unit}")
        for copy in range(math.ceil(number / len(base)))
        for item in base
    )[:number]
    rules = (paired_rule("reference", 0.2), paired_rule("robust", 0.3))
    task = paired_task_without_items("made_up_crowd")
    return replace(task, rules=rules, items=items, documents=number, answered=number)
