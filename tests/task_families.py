"""One made-up task of every family, and stand-ins for what its scoring asks: judge, labeler and metrics of texts."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from medtasks.data.samples import Sample
from medtasks.data.variants import rotated
from medtasks.extract import labeler
from medtasks.extract.extractor_registry import AnswerKind, extractors
from medtasks.extract.failure import failed_reply
from medtasks.families import submission, text_metrics
from medtasks.families.family import Reply, Rule, TaskFamily
from medtasks.judges.judge_client import Judge, JudgeVerdict
from medtasks.metrics import metric as metric_module
from medtasks.metrics.chest_findings import CONDITIONS, Finding
from medtasks.metrics.metric import STDERR, AnyMetric, Score, ScoreList, evaluate, mean
from medtasks.metrics.report_metrics import ReportScores, metric_info
from medtasks.tasks.hook_names import HOOKS, families
from medtasks.tasks.task_file import TaskFile
from medtasks.tasks.task_index import DottedName

FAILURES = {
    "marked": failed_reply("out of memory, the answer is B"),
    "request": "[LMMS_EVAL_REQUEST_FAILED after 5 retries] Connection error. The answer is B",
    "budget": "[LMMS_EVAL_BUDGET_EXCEEDED]",
    "no_content": 'Error: can only concatenate str (not "NoneType") to str',
    "safety": "[SAFETY_BLOCKED:OTHER]",
    "no_text": None,
}
"""What may stand where a reply should, by what happened."""
LOST = (1, 4, 5, 9)
"""Which of twelve samples tests let fail: of pairs once both and twice one, of rotations some of three questions."""
UNREADABLE = "mumble mumble"
"""A reply for which the stand-ins of judge and labeler fail."""


def score_of(
    family: TaskFamily,
    doc: Mapping[str, Any],
    reply: Any = None,
    rule: str | None = None,
    **how: Any,
) -> Score:
    """Return the score of a reply in words, or of one loss per option; ``how`` is passed to :class:`Rule`."""
    given = (
        Reply(losses=tuple(reply)) if isinstance(reply, list | tuple) else Reply.of_text(reply)
    )
    return family.score(Sample(doc), given, Rule(rule, **how))


def values_of(family: TaskFamily, scores: ScoreList) -> dict[str, float]:
    """Return all metrics and standard errors by the names that the harness shows."""
    return flat(family.metrics, scores)


def flat(metrics: Sequence[AnyMetric], scores: ScoreList) -> dict[str, float]:
    values: dict[str, float] = {}
    for metric, estimate in zip(metrics, evaluate(metrics, scores).values(), strict=True):
        values[metric.name] = estimate.value
        if metric.has_error:
            values[f"{metric.name}{STDERR}"] = estimate.error
    return values


def task_of(module: str, rows: Mapping[str, Rule], **changes: Any) -> TaskFile:
    """Return a task that the hooks of a module score, of any open dataset."""
    columns: dict[str, Any] = {
        "dataset": "mediconfusion",
        "output_type": "generate_until",
        **changes,
    }
    return TaskFile(
        name="made_up",
        kind="task",
        path=Path("made_up.yaml"),
        description="",
        rows=rows,
        process_results=DottedName(f"{HOOKS}{module}.process_results"),
        metric_list=DottedName(f"{HOOKS}{module}.METRIC_LIST"),
        **columns,
    )


@dataclass(frozen=True)
class MadeUp:
    """A family, the module of its hooks, names of rules for it, twelve documents, and what a model said to each."""

    module: str
    rules: Sequence[str | None]
    documents: Sequence[Mapping[str, Any]]
    replies: Sequence[str]

    @property
    def family(self) -> TaskFamily:
        return families()[self.module]

    @property
    def process(self) -> Callable[..., Mapping[str, Any]]:
        process: Callable[..., Mapping[str, Any]] = DottedName(
            f"{HOOKS}{self.module}.process_results"
        ).resolve()
        return process

    @property
    def metrics(self) -> Sequence[Mapping[str, Any]]:
        metrics: Sequence[Mapping[str, Any]] = DottedName(
            f"{HOOKS}{self.module}.METRIC_LIST"
        ).resolve()
        return metrics

    def task(self, rule: str | None, output_type: str = "generate_until") -> TaskFile:
        changes = {"output_type": output_type, "breakdown": ("department",)}
        return task_of(self.module, {"rule": Rule(rule)}, **changes)


def document(n: int, **columns: Any) -> dict[str, Any]:
    return {
        "doc_id": f"d{n:02}",
        "dataset": "mediconfusion",  # any that is open
        "image_id": f"scan{n}",
        "patient_id": f"patient{n // 2}",
        "image_files": [],
        "question": "Is there a mass?",
        "options": ["aspirin", "heparin", "insulin"],
        "answer": "ABC"[n % 3],
        **dict.fromkeys(("keyword", "clinical_task", "modality", "original_task")),
        "department": ("Urology", "Surgery")[n % 2],
        "granularity": "Image Level",
        **columns,
    }


def made_up(
    module: str,
    rules: Sequence[str | None],
    replies: Sequence[str],
    **columns: Callable[[int], Any],
) -> MadeUp:
    """Return the family of a module; ``columns`` say what its documents have besides those of a single choice."""
    documents = [
        document(n, **{name: of(n) for name, of in columns.items()}) for n in range(12)
    ]
    return MadeUp(module, rules, documents, replies)


def rotations_of(module: str, rule: str, **columns: Any) -> MadeUp:
    """Return the family of four questions in three rotations each."""
    return MadeUp(module, [rule], rotated([document(n, **columns) for n in range(4)]), LETTERS)


LETTERS = ["A", "B", "C", "(b)", "I cannot tell.", "C.", "", "A", "heparin", "A", "B", "C"]
SAID = [
    "A growth.",
    "yes",
    "mass in the lung",
    "no",
    "Rest.",
    "",
    "No mass.",
    "B",
    "",
    "Edema.",
    "yes, a mass",
    "A",
]
NAMED = ["Atelectasis", "Edema, Consolidation", "", "none of them", "Cardiomegaly", *SAID[5:]]
WORDS = [
    "yes",
    "no",
    "maybe",
    "entailment",
    "contradiction",
    "",
    "neutral",
    "It is yes.",
    "no",
    "maybe",
    "yes",
    "no",
]
OF_WORDS = [
    rule for rule in extractors(AnswerKind.CHOICE) if "yes_no_maybe" in rule or "nli" in rule
]
PAIRED: dict[str, Callable[[int], Any]] = {
    "doc_id": lambda n: f"{n // 2}/{n % 2 + 1}",
    "pair_id": lambda n: str(n // 2),
    "position": lambda n: n % 2 + 1,
    "options": lambda n: ["aspirin", "heparin"],
    "answer": lambda n: "AB"[n % 2],
    "categories": lambda n: ["Cardiac"],
}
CLOSED: dict[str, Callable[[int], Any]] = {
    "kind": lambda n: ("binary", "multi-choice")[n % 2],
    "choices": lambda n: ("", "A. aspirin, B. heparin, C. insulin")[n % 2],
    "options": lambda n: (["Yes", "No"], ["aspirin", "heparin", "insulin"])[n % 2],
    "answer": lambda n: "AB"[n // 2 % 2],
    "gold": lambda n: (("Yes", "No"), ("aspirin", "heparin"))[n % 2][n // 2 % 2],
    "hallucination": lambda n: "symptom",
    "source": lambda n: "slake",
}
REPORT: dict[str, Callable[[int], Any]] = {
    "report": lambda n: ("No mass.", "Edema and a mass in the lung.")[n % 2]
}
COMPONENTS: dict[str, Callable[[int], Any]] = {
    "anatomy": lambda n: ["lung"],
    "measurement": lambda n: [],
    "symptom": lambda n: ["edema"],
}
OPEN: dict[str, Callable[[int], Any]] = {
    "answer": lambda n: ("yes", "no", "a mass in the lung")[n % 3]
}
# What published code cannot score, an open reply without words, has tests of its own.
SHORT: dict[str, Callable[[int], Any]] = {
    "answer": lambda n: ("yes", "no", "No mass.", "mass in the lung")[n % 4]
}
STRUCTURED = [rule for rule in extractors(AnswerKind.KIT_QUESTION) if "radrestruct" in rule]
OF_SHORT = [rule for rule in extractors(AnswerKind.KIT_QUESTION) if rule not in STRUCTURED]
JUDGED_SHORT: dict[str, Callable[[int], Any]] = {
    "answer": lambda n: ("a growth", "edema", "mass in the lung")[n % 3] if n != 11 else "yes"
}
FINDINGS: dict[str, Callable[[int], Any]] = {
    "options": lambda n: list(CONDITIONS[:5]),
    "labels": lambda n: [int(n % part == 0) for part in (2, 3, 4, 5, 7)],
}
FAMILIES = {
    "choice": made_up(
        "choice",
        [rule for rule in extractors(AnswerKind.CHOICE) if rule not in OF_WORDS],
        LETTERS,
    ),
    "choice_of_words": made_up(
        "choice",
        OF_WORDS,
        WORDS,
        options=lambda n: (["yes", "no", "maybe"], [*WORDS[3:5], "neutral"])[n % 2],
    ),
    "pairs": made_up("pairs", ["mediconfusion_reference", "robust_choice"], LETTERS, **PAIRED),
    "free_form": made_up("free_form", [None], SAID, **PAIRED),
    "kit_choice": made_up(
        "kit_choice",
        [
            rule
            for rule in extractors(AnswerKind.CHOICE)
            if rule.startswith("medevalkit") and "mmmu" not in rule
        ],
        LETTERS,
    ),
    "kit_submission": made_up("kit_submission", ["robust_mmmu"], LETTERS),
    "grouped_choice": made_up(
        "grouped_choice", ["vlmevalkit_2026_06", "robust_choice"], LETTERS
    ),
    "judged_choice": made_up(
        "judged_choice", ["vlmevalkit_2024_06", "vlmevalkit_2026_06"], SAID
    ),
    "classification": made_up(
        "classification",
        ["multimedeval_class_v0_1_0", "robust_class"],
        LETTERS,
        label=lambda n: n % 3,
    ),
    "multilabel": made_up(
        "multilabel",
        [rule for rule in extractors(AnswerKind.LABELS) if rule != "listed_options"],
        NAMED,
        **FINDINGS,
    ),
    "closed_questions": made_up(
        "closed_questions", list(extractors(AnswerKind.CLOSED)), SAID, **CLOSED
    ),
    "multi_answer": made_up(
        "multi_answer", ["listed_options"], LETTERS, answers=lambda n: ["A", "C"]
    ),
    "open_questions": made_up(
        "open_questions", list(extractors(AnswerKind.OPEN)), SAID, **OPEN
    ),
    "reports": made_up("reports", list(extractors(AnswerKind.REPORT)), SAID, **REPORT),
    "multimedeval_reports": made_up(
        "multimedeval_reports", list(extractors(AnswerKind.REPORT)), SAID, **REPORT
    ),
    "knowledge_hallucination": made_up(
        "knowledge_hallucination", list(extractors(AnswerKind.FREE_TEXT)), SAID, **OPEN
    ),
    "visual_hallucination": made_up(
        "visual_hallucination",
        list(extractors(AnswerKind.FREE_TEXT)),
        SAID,
        **REPORT,
        **COMPONENTS,
    ),
    "kit_questions": made_up("kit_questions", OF_SHORT, SAID, **SHORT),
    "radrestruct": made_up("radrestruct", STRUCTURED, SAID, **SHORT),
    "kit_reports": made_up(
        "kit_reports",
        [f"medevalkit_report{ending}" for ending in ("", "_fixed")],
        SAID,
        **REPORT,
    ),
    "judged_questions": made_up(
        "judged_questions",
        [rule for rule in OF_SHORT if "release" not in rule],  # which has empty replies judged
        [said or "nothing" for said in SAID],
        **JUDGED_SHORT,
    ),
    "rotations": rotations_of("rotated_choice", "robust_choice"),
    "rotations_listed": rotations_of(
        "rotated_multi_answer", "listed_options", answers=["A", "C"]
    ),
    "submission": made_up("submission", ["robust_choice"], LETTERS),
}
CASES = {f"{name}-{rule}": (one, rule) for name, one in FAMILIES.items() for rule in one.rules}
"""Every family under each of its rules."""
WITH_LIKELIHOODS = (
    "choice",
    "pairs",
    "grouped_choice",
    "classification",
    "closed_questions",
    "rotations",
)


def losses(one: MadeUp) -> list[list[float]]:
    """Return losses of the options of each document, all different."""
    return [
        [1.0 + (n * 7 + k * 5) % 11 for k in range(len(doc["options"]))]
        for n, doc in enumerate(one.documents)
    ]


def kept(whole: Sequence[Any]) -> list[Any]:
    return [one for n, one in enumerate(whole) if n not in LOST]


def with_lost(replies: Sequence[Any], *instead: Any) -> list[Any]:
    """Return replies of which the lost ones are replaced, by turns with each of ``instead``."""
    return [
        instead[LOST.index(n) % len(instead)] if n in LOST else reply
        for n, reply in enumerate(replies)
    ]


class TextMetrics:
    """Stand-ins for all metrics: the share of the reference's words in the hypothesis, shifted by the key's length."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.broken: dict[str, Exception] = {}
        self.compared: list[str] = []

    def report_metric(self, name: str) -> Callable[..., ReportScores]:
        def metric(*, references: Sequence[str], hypotheses: Sequence[str]) -> ReportScores:
            self.calls.append(name)
            self.compared.extend(hypotheses)
            if name in self.broken:
                raise self.broken[name]
            both = zip(references, hypotheses, strict=True)
            shares = [
                len({*key.split()} & {*said.split()}) / (len({*key.split()}) or 1)
                for key, said in both
            ]
            samples = {
                key: [share + len(key) for share in shares] for key in metric_info(name).keys
            }
            totals = {key: mean(values) for key, values in samples.items()}
            return ReportScores(
                {} if name.startswith("f1_chexbert") else samples, totals, {"fake": "yes"}
            )

        return metric


def install_stand_ins(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put stand-ins in the place of judge, labeler and text metrics, and return the texts that they are given.

    What they say depends on the text alone; for :data:`UNREADABLE` judge and labeler fail.
    """
    compared = TextMetrics()
    asked = compared.compared

    def ask(
        self: Judge, system: str, user: str, parse: Any, *, prompt_version: int = 1
    ) -> JudgeVerdict[Any]:
        asked.append(user)
        if UNREADABLE in user:
            return JudgeVerdict(None, "no verdict", False, "")
        text = _verdict(system, user, zlib.crc32(user.encode()))
        value = parse(text)
        return JudgeVerdict(value, "no verdict" if value is None else None, False, text)

    def labels(texts: Sequence[str]) -> list[dict[str, Finding]]:
        asked.extend(texts)
        if UNREADABLE in texts:
            raise ValueError("mumbled")
        said = [text.casefold() for text in texts]
        return [
            {name: Finding(int(name.casefold() in text)) for name in CONDITIONS}
            for text in said
        ]

    monkeypatch.setenv("MEDTASKS_JUDGE_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("MEDTASKS_JUDGE_MODEL", "scripted")
    monkeypatch.setattr(Judge, "ask", ask)
    monkeypatch.setattr(labeler, "labeler", lambda: labels)
    monkeypatch.setattr(text_metrics, "report_metric", compared.report_metric)
    monkeypatch.setattr(
        submission, "load_documents", lambda name: FAMILIES["submission"].documents
    )
    metric_module.clear_results()
    return asked


def _verdict(system: str, user: str, number: int) -> str:
    """Return what the scripted judge says, in the form that each prompt asks for."""
    if "<judge>{0/1}</judge>" in user:
        return f"<judge>{number % 2}</judge>"
    if not system:
        return "ABCZ"[number % 4]
    if "recall_number" in system:
        counts = {"recall_number": number % 2, "wrong_number": number % 3 // 2}
        return json.dumps(
            {"model_1": dict.fromkeys(("anatomy", "symptom", "measurement"), counts)}
        )
    if "model_1" in system:
        return json.dumps({"model_1": number % (6 if "range[0, 5]" in system else 2)})
    return ("A: 9\nB: 2", "A: 2\nB: 9", "A: 5\nB: 5")[number % 3]
