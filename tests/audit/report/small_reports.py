"""Reports made by hand, with every thing that a table or a figure has to cope with."""

import math
from dataclasses import replace

from medtasks.audit import tables
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
from medtasks.audit.report.published import published_scores
from medtasks.audit.report.report_tables import report_tables
from medtasks.families.choice import GROUPED_CHOICE
from medtasks.families.family import ReadAnswer
from medtasks.families.free_texts import MULTIMEDEVAL_REPORTS
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.stats.calibration import Bin, Calibration, CoveragePoint, Measure

NAN = math.nan
SECRET = "Mr Invented has a cold"
METRICS = {
    metric.name: metric for family in (PAIRED_CHOICE, GROUPED_CHOICE, MULTIMEDEVAL_REPORTS) for metric in family.metrics
}


def share(metric: str, value: float, width: float = 0.05, higher_is_better: bool = True) -> Score:
    return Score(metric, value, width / 2, max(0, value - width), min(1, value + width), True, higher_is_better)


def groups(names: list[str], questions: int, shift: float, metric: str = "accuracy") -> tuple[Group, ...]:
    return tuple(
        Group(name, questions // (n + 1), (share(metric, (0.37 * n + shift) % 1, 0.02 * (n % 5 + 1)),))
        for n, name in enumerate(names)
    )


def paired_task() -> TaskReport:
    areas = ["Cerebral", "Head and Neck", "Nuclear Medicine"]
    rules = []
    for name, shift, invalid in (("reference", 0.0, 0.25), ("robust", 0.1, 0.0)):
        scores = (
            share("set_accuracy", 0.125 + shift),
            share("individual_accuracy", 0.5 + shift),
            share("confusion", 0.75 - shift, higher_is_better=False),
            share("invalid_rate", invalid, 0.02, higher_is_better=False),
            Score("incomplete_pairs", 3.0, NAN, NAN, NAN, False, False),
        )
        by_area = tuple(
            Group(area, 100 - 40 * n, (share("set_accuracy", 0.1 * n + shift), share("confusion", 0.6)))
            for n, area in enumerate(areas)
        )
        rules.append(
            RuleScores(
                name,
                f"{name}_rule v1",
                "Reads the letter of an option",
                scores,
                reasons={"ok": 300, "ambiguous": 40, "refused": 12},
                groups={"categories": by_area},
                pairs=PairOutcomes(22, 17, {"A": 80, "B": 40}, 12, 5, 3),
            )
        )
    return TaskReport(
        name="mediconfusion",
        describes="Pairs of pictures with one question",
        protocol="MC",
        dataset="mediconfusion",
        access="public",
        fingerprint="0123456789abcdef" * 4,
        documents=352,
        answered=352,
        rules=tuple(rules),
        metrics=METRICS,
        baselines=tuple(
            Baseline(
                name,
                describes,
                {rule.name: {"set_accuracy": both, "individual_accuracy": 0.5, "confusion": same} for rule in rules},
            )
            for name, describes, both, same in (
                ("always A", "Says A to everything.", 0.0, 1.0),
                ("guessing", "Draws an option.", 0.25, 0.5),
            )
        ),
        published=published_scores("mediconfusion"),
        gains=tuple(
            Gain(
                variant, f"mediconfusion_{variant}", rule.name, "set_accuracy", 0.125, 0.1 - 0.05 * n,
                0.025 + 0.05 * n, -0.02, 0.1 + 0.05 * n, 0.01 / (n + 1), 352, 0.02 / (n + 1),
            )
            for n, variant in enumerate(("blind", "blank", "swapped"))
            for rule in rules
        ),
    )  # fmt: skip


def likelihood_task() -> TaskReport:
    bins = tuple(
        Bin(n / 10, (n + 1) / 10, n * n, n / 10 + 0.05 if n else NAN, min(1, 0.2 + 0.07 * n) if n else NAN)
        for n in range(10)
    )
    points = tuple(CoveragePoint(n / 100, 0.9 - 0.4 * n / 100, 1 - n / 100) for n in range(100, 0, -1))
    calibration = Calibration(
        352, 0, Measure(0.5, 0.45, 0.55), 0.7, Measure(0.2, 0.15, 0.26), 0.12, Measure(0.5, 0.4, 0.6), bins, points,
        Measure(0.3, 0.25, 0.4), Measure(0.6, 0.5, 0.7), "Softmax over mean log-likelihoods",
    )  # fmt: skip
    paired = paired_task()
    return replace(
        paired,
        name="mediconfusion_gd",
        protocol="GD",
        published=published_scores("mediconfusion_gd"),
        gains=(),
        calibration={"reference": calibration},
        sample_data=True,
        complete_data=False,
    )


def grouped_task() -> TaskReport:
    """As GMAI-MMBench: 18 departments and 38 modalities, some without an interval, some names long."""
    departments = [f"Department of Invented Medicine and Surgery {n}" for n in range(17)] + ["None"]
    modalities = [f"Modality {n}" for n in range(38)]
    rules = tuple(
        RuleScores(
            name,
            f"vlmevalkit_{name} v2",
            "",
            (share("accuracy", 0.31 + shift, 0.014), share("acc_box_level", NAN, NAN), share("invalid_rate", 0.1)),
            groups={
                "department": groups(departments, 2122, shift),
                "modality": groups(modalities, 900, shift),
                "empty": (Group("nobody", 0, (Score("accuracy", NAN, NAN, NAN, NAN, True, True),)),),
            },
            failures={"acc_box_level": "no question of this level"},
        )
        for name, shift in (("reference", 0.0), ("reference_2026", 0.02), ("robust", 0.07))
    )
    return replace(
        paired_task(),
        name="gmai_mmbench_val",
        dataset="gmai_mmbench_val",
        access="gated",
        documents=4550,
        answered=1000,
        rules=rules,
        baselines=(Baseline("most frequent answer", "", {"reference": {"accuracy": 0.3}}),),
        published=published_scores("gmai_mmbench_val"),
        gains=(),
        missing=("There is no blind variant of this run; run it with: medtasks run --sanity.",),
    )


def withheld_task() -> TaskReport:
    """As a credentialed set whose items would give something away, were they looked at."""
    answer = ReadAnswer(SECRET, "ok", True)
    item = Item("p1", "p1", ("x",), SECRET, (SECRET,), SECRET, SECRET, SECRET, (), {"reference": answer}, {})
    scores = (
        Score("bleu_1", 0.127, 0.01, 0.107, 0.147, True, True),
        Score("radcliq_v1_multimedeval", 1.994, NAN, NAN, NAN, False, False),
    )
    return replace(
        paired_task(),
        name="multimedeval_mimic_cxr_report",
        dataset="multimedeval_mimic_cxr_report",
        access="credentialed",
        complete_data=False,
        withheld=True,
        documents=2347,
        answered=2347,
        rules=(RuleScores("reference", "report_text v1", "", scores),),
        baselines=(),
        published=published_scores("multimedeval_mimic_cxr_report"),
        gains=(),
        items=(item,),
    )


def full_report() -> RunReport:
    tasks = tuple(
        sorted((paired_task(), likelihood_task(), grouped_task(), withheld_task()), key=lambda task: task.name)
    )
    compared = ComparedScore(
        "mediconfusion", "reference", "set_accuracy", 352, 176, 0.125, 0.2, 0.075, 0.01, 0.14, "exact McNemar",
        0.0123, 0.0246, 0.08,
    )  # fmt: skip
    unknown = replace(compared, task="mmmu_val", p=NAN, p_holm=NAN, low=NAN, high=NAN, detectable=NAN)
    return RunReport(
        title="Run of a model",
        model="medtasks_radfm pretrained=/models/Rad_FM-14B,dtype=4bit",
        created="2026-01-02T03:04:05+00:00",
        run_at="2026-01-01T00:00:00+00:00",
        facts={
            "harness": "0.7.3",
            "versions": "medtasks 0.8.0, lmms_eval 0.7.3",
            "command": "lmms_eval --model x --tasks a,b",
        },
        tasks=tasks,
        missing={"medheval_visual_mm": "Failed: the dataset is not prepared."},
        notes=("The run was stopped once and went on.",),
        comparisons=(RunComparison("other_model v2", "/runs/b", (compared, unknown), ("mmmu_val has no samples.",)),),
    )


def nasty(text: str) -> RunReport:
    """A report in which everything that is named by somebody is called ``text``."""
    score = Score(text, 0.5, NAN, 0.4, 0.6, True, True)
    rule = RuleScores(text, text, text, (score,), groups={text: (Group(text, 3, (score,)),)}, failures={text: text})
    task = replace(
        paired_task(),
        name=text,
        describes=text,
        dataset=text,
        fingerprint=text,
        rules=(rule,),
        baselines=(Baseline(text, text, {text: {text: 0.5}}),),
        published=(PublishedScore(text, text, 0.5, "0.500", text, text),),
        gains=(Gain(text, text, text, text, 0.5, 0.5, 0.0, NAN, NAN, 1.0, 3),),
        missing=(text,),
        sample_data=True,
    )
    compared = ComparedScore(text, text, text, 3, 3, 0.5, 0.5, 0.0, NAN, NAN, text, 1.0, 1.0, NAN)
    return RunReport(
        text, text, text, text, {"versions": text, text: text}, (task,), {text: text}, (text,),
        (RunComparison(text, text, (compared,), (text,)),),
    )  # fmt: skip


def markdown(report: RunReport) -> str:
    return tables.markdown(report.title, report_tables(report))


def latex(report: RunReport) -> str:
    return tables.latex(report_tables(report))
