"""Reports made by hand, with everything that a page, a table or a figure has to cope with."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from medtasks.families.choice import GROUPED_CHOICE
from medtasks.families.family import ReadAnswer
from medtasks.families.free_texts import MULTIMEDEVAL_REPORTS
from medtasks.families.paired_choice import PAIRED_CHOICE
from medtasks.report import tables
from medtasks.report.published import published_group_scores, published_scores
from medtasks.report.report_model import Gain, PublishedScore, RunReport, TaskReport
from medtasks.report.report_tables import report_tables
from medtasks.scores.score_model import (
    AuditItem,
    Baseline,
    Group,
    MetricScore,
    PairOutcomes,
    RuleScores,
)
from medtasks.stats.calibration import Bin, Calibration, CoveragePoint, Measure

NAN = math.nan
SECRET = "CANARY"
HOSTILE = (
    "<script>document.title = 'taken over'</script></script><!--"
    "<img src=x onerror=\"document.title='taken over'\">\u2028\ud800 A"
)
AREAS = ("Cerebral", "Head and Neck", "Nuclear Medicine")
FAMILIES = (PAIRED_CHOICE, GROUPED_CHOICE, MULTIMEDEVAL_REPORTS)
METRICS = {metric.name: metric for family in FAMILIES for metric in family.metrics}
Reading = tuple[str | None, str]
ReadReply = tuple[str, Reading, Reading]

# What the two images of a pair got: reply, then value and reason by reading. The keys are A and B.
PAIRS: tuple[tuple[ReadReply, ReadReply], ...] = (
    (("A", ("A", "ok"), ("A", "ok")), ("B", ("B", "ok"), ("B", "ok"))),  # both right
    (("A", ("A", "ok"), ("A", "ok")), ("A", ("A", "ok"), ("A", "ok"))),  # not told apart
    (
        ("**A**", (None, "no_match"), ("A", "ok")),
        ("**B**", (None, "no_match"), ("B", "ok")),
    ),  # the readings differ
    (("", (None, "empty"), (None, "empty")), ("B", ("B", "ok"), ("B", "ok"))),
    (
        ("A or  B\n\tboth", (None, "ambiguous"), (None, "ambiguous")),
        ("I cannot say.", (None, "no_match"), (None, "refused")),
    ),
    (("B", ("B", "ok"), ("B", "ok")), (HOSTILE, ("A", "ok"), ("A", "ok"))),  # swapped
)


def share(
    metric: str, value: float, width: float = 0.05, higher_is_better: bool | None = True
) -> MetricScore:
    return MetricScore(
        metric,
        value,
        width / 2,
        max(0, value - width),
        min(1, value + width),
        True,
        higher_is_better,
    )


def groups(
    names: list[str], questions: int, shift: float, metric: str = "accuracy"
) -> tuple[Group, ...]:
    return tuple(
        Group(
            name,
            questions // (n + 1),
            (share(metric, (0.37 * n + shift) % 1, 0.02 * (n % 5 + 1)),),
        )
        for n, name in enumerate(names)
    )


def paired_items() -> tuple[AuditItem, ...]:
    """Twelve images in six pairs, of which every one is another case of the audit browser."""
    return tuple(
        AuditItem(
            doc_id=f"p{number}/{position}",
            unit=f"p{number}",
            images=(f"picture{number}{position}",),
            question=f"Made-up question {number}: which half is bright?",
            options=("The upper half", "The lower half"),
            prompt=f"Look & answer with a letter: made-up question {number}?",
            key=key,
            reply=reply,
            answers={
                rule: ReadAnswer(value, reason, value == key)
                for rule, (value, reason) in zip(("reference", "robust"), read, strict=True)
            },
            groups={"categories": (AREAS[number % 2],)},
        )
        for number, pair in enumerate(PAIRS, start=1)
        for position, (key, (reply, *read)) in enumerate(zip("AB", pair, strict=True), start=1)
    )


def paired_rule(name: str, shift: float = 0.0, invalid: float = 0.25) -> RuleScores:
    scores = (
        share("set_accuracy", 0.125 + shift),
        share("individual_accuracy", 0.5 + shift),
        share("confusion", 0.75 - shift, higher_is_better=False),
        share("invalid_rate", invalid, 0.02, higher_is_better=False),
        MetricScore("incomplete_pairs", 3.0, NAN, NAN, NAN, False, False),
    )
    by_area = tuple(
        Group(
            area,
            100 - 40 * n,
            (share("set_accuracy", 0.1 * n + shift), share("confusion", 0.6)),
        )
        for n, area in enumerate(AREAS)
    )
    return RuleScores(
        name,
        f"{name}_rule v1",
        "Reads the letter of an option",
        scores,
        reasons={"ok": 300, "ambiguous": 40, "refused": 12},
        groups={"categories": by_area},
        pairs=PairOutcomes(22, 17, {"A": 80, "B": 40}, 12, 5, 3),
        wrong_kinds={"refusal": 1},
    )


def paired_task(folder: Path | None = None) -> TaskReport:
    """Pairs with all sections; with a folder for pictures, single questions as well."""
    items: tuple[AuditItem, ...] = ()
    pictures: dict[str, Path] = {}
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        items = paired_items()
        for item in items:
            image = Image.new("L", (320, 240), 20)
            pen = ImageDraw.Draw(image)
            pen.ellipse((64, 20, 256, 220), fill=120, outline=230)
            pen.text((10, 10), item.images[0], fill=255)
            pictures[item.images[0]] = folder / f"{item.images[0]}.png"
            image.save(pictures[item.images[0]])
    rules = (paired_rule("reference"), paired_rule("robust", 0.1, 0.0))
    described = (
        ("always A", "Says A to everything.", 0.0, 1.0),
        ("guessing", "Draws an option.", 0.25, 0.5),
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
        rules=rules,
        metrics=METRICS,
        baselines=tuple(
            Baseline(
                name,
                describes,
                {rule.name: {"set_accuracy": both, "individual_accuracy": 0.5, "confusion": same} for rule in rules},
            )
            for name, describes, both, same in described
        ),
        published=published_scores("mediconfusion"),
        published_groups=published_group_scores("mediconfusion"),
        gains=tuple(
            Gain(
                variant, f"mediconfusion_{variant}", rule.name, "set_accuracy", 0.125, 0.1 - 0.05 * n,
                0.025 + 0.05 * n, -0.02, 0.1 + 0.05 * n, 0.01 / (n + 1), 352, 0.02 / (n + 1),
            )
            for n, variant in enumerate(("blind", "blank", "swapped"))
            for rule in rules
        ),
        items=items,
        pictures=pictures,
    )  # fmt: skip


def bare_task(name: str) -> TaskReport:
    return TaskReport(name, "", documents=12, answered=12, rules=(paired_rule("reference"),))


def likelihood_task() -> TaskReport:
    bins = tuple(
        Bin(
            n / 10,
            (n + 1) / 10,
            n * n,
            n / 10 + 0.05 if n else NAN,
            min(1, 0.2 + 0.07 * n) if n else NAN,
        )
        for n in range(10)
    )
    points = tuple(
        CoveragePoint(n / 100, 0.9 - 0.4 * n / 100, 1 - n / 100) for n in range(100, 0, -1)
    )
    calibration = Calibration(
        352, 1, Measure(0.5, 0.45, 0.55), 0.7, Measure(0.2, 0.15, 0.26), 0.12, Measure(0.5, NAN, NAN), bins, points,
        Measure(0.3, 0.25, 0.4), Measure(0.6, 0.5, 0.7), "Softmax over mean log-likelihoods",
    )  # fmt: skip
    items = tuple(
        AuditItem(
            f"q{number}", f"q{number}", (), f"Which option, number {number}?", ("One", "Two", "Three"), "", "B", "",
            (1.5, NAN if number == 3 else 0.5, 2.5),
            {"reference": ReadAnswer("B", "ok", True) if number % 2 else ReadAnswer("A", "ok", False)}, {},
        )
        for number in range(4)
    )  # fmt: skip
    paired = paired_task()
    return replace(
        paired,
        name="mediconfusion_gd",
        protocol="GD",
        rules=paired.rules[:1],
        published=published_scores("mediconfusion_gd"),
        gains=(),
        calibration={"reference": calibration},
        sample_data=True,
        complete_data=False,
        items=items,
    )


def scored_task() -> TaskReport:
    """Two replies that are neither right nor wrong but have a score, and one that nobody read."""
    overlap = MetricScore("overlap", 12.5, 1.5, 9.5, 15.5, False, True)
    rules = (
        RuleScores(
            "reference", "made_up_overlap v2", "", (overlap,), {"ok": 2, "judge_failed": 1}
        ),
    )
    read = (
        ReadAnswer("some words", "ok", None, 0.125),
        ReadAnswer(None, "ok", None, NAN),
        ReadAnswer(None, "judge_failed", None),
    )
    texts: dict[str, Any] = {
        "question": "Describe the drawn picture.",
        "prompt": "Describe it.",
        "key": "A long invented description.",
    }
    items = tuple(
        AuditItem(
            f"r{n}",
            f"r{n}",
            reply=f"Reply {n}.",
            answers={"reference": answer},
            groups={"kind": ("drawn",)},
            **texts,
        )
        for n, answer in enumerate(read)
    )
    return TaskReport("made_up_reports", "", documents=3, answered=3, rules=rules, items=items)


def withheld_task() -> TaskReport:
    """A credentialed task whose collector forgot to leave the text out: nothing may show it."""
    texts: dict[str, Any] = dict.fromkeys(("question", "prompt", "reply", "key"), SECRET)
    items = tuple(
        replace(
            item,
            doc_id=f"doc-{n:016x}",
            unit=f"pair-{item.unit}",
            options=(SECRET, SECRET),
            groups={},
            **texts,
        )
        for n, item in enumerate(paired_items())
    )
    scores = (
        MetricScore("bleu_1", 0.127, 0.01, 0.107, 0.147, True, True),
        MetricScore("radcliq_v1_multimedeval", 1.994, NAN, NAN, NAN, False, False),
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
        items=items,
        pictures={"picture11": Path(f"{SECRET}.png")},
    )


def grouped_task() -> TaskReport:
    """As GMAI-MMBench: 18 departments and 38 modalities, some without an interval, some names long."""
    departments = [f"Department of Invented Medicine and Surgery {n}" for n in range(17)] + [
        "None"
    ]
    modalities = [f"Modality {n}" for n in range(38)]
    rules = tuple(
        RuleScores(
            name,
            f"vlmevalkit_{name} v2",
            "",
            (
                share("accuracy", 0.31 + shift, 0.014),
                share("acc_box_level", NAN, NAN),
                share("invalid_rate", 0.1),
            ),
            groups={
                "department": groups(departments, 2122, shift),
                "modality": groups(modalities, 900, shift),
                "empty": (
                    Group(
                        "nobody", 0, (MetricScore("accuracy", NAN, NAN, NAN, NAN, True, True),)
                    ),
                ),
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


def report_of(*tasks: TaskReport, **others: Any) -> RunReport:
    contents: dict[str, Any] = {
        "title": "Made-up model on made-up tasks",
        "model": "made_up_model: size=<small> & cheap",
        "created": "2026-01-02T03:04:05+00:00",
        "run_at": "2026-01-01T00:00:00+00:00",
        "facts": {
            "versions": "medtasks 0.8.0, lmms_eval 0.7.3",
            "command": "lmms_eval --model x --tasks a,b",
        },
        "missing": {},
        **others,
    }
    return RunReport(tasks=tasks, **contents)


def full_report(folder: Path | None = None) -> RunReport:
    return report_of(
        *(
            paired_task(folder),
            likelihood_task(),
            scored_task(),
            withheld_task(),
            grouped_task(),
        ),
        missing={"medheval_visual_mm": "Failed: the dataset is not prepared."},
        notes=("The run was stopped once and went on.",),
    )


def many_items(number: int) -> TaskReport:
    """A task of many questions in pairs, without pictures."""
    items = tuple(
        replace(item, doc_id=f"{copy}/{item.doc_id}", unit=f"{copy}/{item.unit}", images=())
        for copy in range(math.ceil(number / 12))
        for item in paired_items()
    )[:number]
    rules = (paired_rule("reference"), paired_rule("robust"))
    return replace(
        bare_task("made_up_crowd"), rules=rules, items=items, documents=number, answered=number
    )


def nasty(text: str) -> RunReport:
    """A report in which everything that is named by somebody is called ``text``."""
    score = MetricScore(text, 0.5, NAN, 0.4, 0.6, True, True)
    rule = RuleScores(
        text,
        text,
        text,
        (score,),
        groups={text: (Group(text, 3, (score,)),)},
        failures={text: text},
    )
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
    return RunReport(
        text, text, text, text, {"versions": text, text: text}, (task,), {text: text}, (text,),
    )  # fmt: skip


def markdown(report: RunReport) -> str:
    return tables.markdown(report.title, report_tables(report))


def latex(report: RunReport) -> str:
    return tables.latex(report_tables(report))
