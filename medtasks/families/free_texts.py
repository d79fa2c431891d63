"""Free texts: reports, whose metrics are computed once over all scores, and MedHEval's open tasks, also with judges.

Of MedHEval's metrics ``knowledge_rate`` is the paper's K, the share of answers that its judge does not call right;
``hallucination_score`` is the repository's, from 0 to 5; an empty answer is not right and gets 5 without asking.
``chair_judge_*`` is the paper's CHAIR, from the components that a judge counts; ``chair_label`` the repository's, from
labels. A silent model mentions nothing wrong: read them next to ``mentions_*``.

For all of these lower is better. A judge that fails says nothing about the model: its metric leaves the reply out and
is NaN without any other reply, and ``judge_failed_rate`` is reported. A labeler that fails costs its own metrics.

Used by the hooks for reports and MedHEval. Scores hold texts only as :class:`~medtasks.data.privacy.PrivateText`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample, Samples
from medtasks.errors import LabelerError, MedTasksError, warn_once
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor_of
from medtasks.extract.labeler import Labels, chosen_findings, label_texts
from medtasks.families.classification import estimates_of
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import ExpectedAnswer, Strategy, most_frequent
from medtasks.families.counts import (
    INVALID_RATE,
    JUDGED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    judge_failed_rate,
)
from medtasks.families.family import FENCED, Asks, ReadAnswer, Reply, Rule, TaskFamily
from medtasks.families.text_metrics import TextRow, text_metrics, text_row
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import judge_if_there
from medtasks.judges.medheval_judges import (
    ASPECTS,
    WORDINGS,
    WORST_SEVERITY,
    JudgeQuestion,
    parse_components,
    parse_number,
)
from medtasks.metrics.chest_findings import (
    CONDITIONS,
    LABEL_CELLS,
    Finding,
    component_ratio,
    label_cells,
    label_ratios,
)
from medtasks.metrics.metric import (
    CorpusMetric,
    Estimate,
    Metric,
    MetricList,
    Panel,
    PanelResult,
    Role,
    Scale,
    Score,
    ScoreFilter,
    ScoreList,
    counting,
)
from medtasks.metrics.report_metrics import metric_info
from medtasks.stats.bootstrap import values_with_errors

_MULTIMEDEVAL_KEYS = (
    "bleu_1",
    "bleu_4",
    "rouge_1",
    "rouge_l",
    "meteor",
    "idf_bertscore_f1",
    "chexbert_similarity",
    "chexbert_certain_5_macro_f1",
    "radgraph_partial",
    "radcliq_v1_multimedeval",
)
_REPORT_KEYS = (
    "bleu_1",
    "bleu_4",
    "rouge_l",
    "meteor",
    "bertscore_f1",
    "chexbert_similarity",
    "chexbert_14_micro_f1",
    "chexbert_14_macro_f1",
    "chexbert_5_micro_f1",
    "chexbert_5_macro_f1",
    "radgraph_simple",
    "radgraph_partial",
    "radgraph_complete",
    "radgraph_combined",
    "radcliq_v0",
    "radcliq_v1",
)
_TEXT_METRICS = ("medheval_bleu", "rouge_stemmed", "meteor", "medheval_bertscore")
_TEXTS = text_metrics(
    chain.from_iterable(metric_info(name).keys for name in _TEXT_METRICS), "compared"
)


def _side_by_side(scores: ScoreList) -> str:
    """Describe the number of runs that the judge saw at once, empty for a single one."""
    sizes = {score["models_judged"] for score in scores if score.get("models_judged")}
    if not sizes:
        return ""
    return f"Verdicts of 'medtasks judge joint', on the answers of up to {max(sizes)} runs side by side."


_RATES: MetricList = (
    judge_failed_rate(
        "The judge failed for {failed} of {answered} replies; the metrics that need it omit them.",
        lambda score: score["judge_failed"],
    ),
    # replies without content: empty, or cut off while reasoning
    replace(
        INVALID_RATE,
        of=lambda score: float(score["reason"] not in (Reason.OK, Reason.JUDGE_FAILED)),
        remark=_side_by_side,
    ),
    *JUDGED_SAMPLE_COUNTS,
)
# Of a report without text, for which no model is needed.
_NO_FINDINGS = (Finding.BLANK,) * len(CONDITIONS)
# Each ratio's denominator, which is reported next to it: the names of counts in LABEL_CELLS that it adds up.
_SUMS = {
    "mentions_label": ("mentions",),
    "positives_label": ("positives",),
    "negatives_decided": ("true_negatives", "false_positives"),
    "labels_decided": (
        "true_positives",
        "true_negatives",
        "false_positives",
        "false_negatives",
    ),
}


def _report_metrics(keys: Sequence[str]) -> MetricList:
    return (*text_metrics(keys), INVALID_RATE, *SAMPLE_COUNTS)


class Reports(TaskFamily):
    """Report generation and summarisation."""

    name = "reports"
    columns: ClassVar[Columns] = {"report": Column.TEXT}
    kind = AnswerKind.REPORT
    extractor = "report_text"
    scores_suffice = False
    saves_replies = True
    metrics: MetricList = _report_metrics(_REPORT_KEYS)

    def texts(self, sample: Sample, reply: Reply, rule: Rule) -> dict[str, PrivateText]:
        """Return the two reports that are compared."""
        return self._fields(sample, self.read(sample, reply, rule)[0])

    def _fields(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        texts = {"reference": sample.document["report"], "reply": answer.value or ""}
        return {name: PrivateText(text, sample.dataset) for name, text in texts.items()}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the text that was compared."""
        extractor = extractor_of(score["rule"], AnswerKind.REPORT)
        text = extractor.extract(reply.text, Sample({})).value or ""
        reason = score["reason"]
        return ReadAnswer(text if reason == Reason.OK else None, reason, None, value)

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Return the report that occurs most often, where any occurs twice."""
        reports = [sample.document["report"] for sample in samples]
        text = most_frequent((None, report) for report in reports)[None]
        if reports.count(text) < 2:
            return []
        answers = (ExpectedAnswer((text,), whole=True),) * len(samples)
        return [
            Strategy(
                "most frequent report",
                "Gives every image the report that occurs most often.",
                answers,
            )
        ]


class MultiMedEvalReports(Reports):
    """Report generation and summarisation with the metrics of MultiMedEval."""

    metrics = _report_metrics(_MULTIMEDEVAL_KEYS)


# ---- MedHEval's open tasks: verdicts of judges and a labeler, and metrics of words ----


def _with_verdict(name: str) -> ScoreFilter:
    """Return the selection of scores with a verdict, none if the judge read none of those that it was asked about."""

    def selection(scores: ScoreList) -> ScoreList:
        candidates = answered(scores)
        verdicts = [score[name] for score in candidates if score["asked"]]
        if verdicts and all(verdict is None for verdict in verdicts):
            return []
        return [score for score in candidates if score[name] is not None]

    return selection


class JudgedText(TaskFamily):
    """A free reply of which some metrics need a judge, and others none.

    Args:
        wording: Name of prompts for one model (``single``), or of the reference's for eleven (``eleven``).
    """

    kind = AnswerKind.FREE_TEXT
    extractor = "medheval_open_strict"
    asks = Asks.JUDGE_IF_THERE
    scores_suffice = False
    saves_replies = True

    def __init__(self, wording: str) -> None:
        self._wording = WORDINGS[wording]
        self.joins_runs = wording == "eleven"

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score a reply by the judge's verdicts, asked for now or given with it.

        The field of a question is None without a verdict: no judge may see the sample, or it failed.
        """
        answer, rule_name = self.read(sample, reply, rule)
        text = answer.facts["judged"]
        judge = None
        try:
            judge = judge_if_there(sample.dataset)
        except MedTasksError as error:  # once there are replies, it is a warning
            cause = str(error).rstrip(".")
            warn_once(
                f"The judge cannot be asked, so the metrics that need it are NaN: {cause}."
            )
        questions = self._questions(sample, text)
        score: Score = dict.fromkeys(question.field for question in questions)
        joint = reply.verdicts
        of_models = ""
        if joint is not None:
            score |= joint.by_field
            score["models_judged"] = joint.models
            of_models = f", {joint.models} models"
        elif judge is not None:
            for question in questions:
                score[question.field] = question.ask(judge, fenced=rule.fenced)
        failed = bool(text) and None in score.values()
        return {
            **score,
            **self._texts(sample, answer),
            "asked": bool(text),  # an empty reply needs no judge
            "judge_failed": failed,
            "judge": None if judge is None else judge.label,
            "judge_prompts": [f"{question.prompt.label}{of_models}" for question in questions],
            "possible_injection": addresses_judge(text),
            "reason": Reason.JUDGE_FAILED if failed else answer.reason,
            "rule": rule_name,
        }

    def texts(self, sample: Sample, reply: Reply, rule: Rule) -> dict[str, PrivateText]:
        """Return the texts that are compared."""
        return self._texts(sample, self.read(sample, reply, rule)[0])

    def judge_questions(
        self,
        sample: Sample,
        reply: Reply,
        rule: Rule,
    ) -> Sequence[JudgeQuestion]:
        """Return the judge's questions about a reply."""
        return self._questions(sample, self.read(sample, reply, rule)[0].facts["judged"])

    @abstractmethod
    def _questions(self, sample: Sample, text: str) -> Sequence[JudgeQuestion]:
        """Return the judge's questions about the text of a reply."""

    def _texts(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        """Return the texts that are compared once all replies are there."""
        target = sample.document["report" if self.labels_texts else "answer"]
        texts = {"reference": target, "compared": answer.facts["compared"]}
        if self.labels_texts:
            texts["labelled"] = answer.facts["labelled"]
        return {name: PrivateText(text) for name, text in texts.items()}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the text that the judge read, None for an invalid reply.

        The reply is right or wrong by the judge's verdict, neither without one.
        """
        extractor = extractor_of(str(score["rule"]).removesuffix(FENCED), AnswerKind.FREE_TEXT)
        text = extractor.extract(reply.text, Sample({})).facts["judged"]
        verdict = score.get("correct")
        right = None if verdict is None else bool(verdict)
        is_valid = score["reason"] in (Reason.OK, Reason.JUDGE_FAILED)
        return ReadAnswer(text if is_valid else None, score["reason"], right)


class KnowledgeQuestions(JudgedText):
    """Open knowledge questions."""

    name = "open questions with a judge"
    columns: ClassVar[Columns] = {"question": Column.TEXT, "answer": Column.TEXT}
    judged: ClassVar[MetricList] = (
        Metric(
            "knowledge_rate",
            False,
            _with_verdict("correct"),
            description="Share of answers that the judge does not call right.",
            of=lambda score: 1.0 - score["correct"],
        ),
        counting(
            "answers_judged",
            len,
            selection=_with_verdict("correct"),
            description="Answers with a verdict.",
        ),
        Metric(
            "hallucination_score",
            False,
            _with_verdict("severity"),
            scale=Scale.RAW,
            description="Mean severity of the errors, from 0 to 5, as the judge rates it.",
            of=lambda score: float(score["severity"]),
        ),
        counting(
            "answers_scored",
            len,
            selection=_with_verdict("severity"),
            description="Answers with a severity.",
        ),
    )
    metrics: MetricList = (*judged, *_TEXTS, *_RATES)

    def _questions(self, sample: Sample, text: str) -> Sequence[JudgeQuestion]:
        """Ask whether the answer is right, and how severe its errors are.

        An empty answer counts as wrong, with the worst errors, without asking.
        """
        truth = {"ground_truth": sample.document["answer"]}
        worst = WORST_SEVERITY
        return [
            JudgeQuestion(
                "correct",
                self._wording["correctness"],
                {"question": sample.question, **truth},
                text,
                partial(parse_number, most=1),
                of_empty=0,
            ),
            JudgeQuestion(
                "severity",
                self._wording["severity"],
                {"input": sample.question, **truth},
                text,
                partial(parse_number, most=worst),
                of_empty=worst,
            ),
        ]


def _chair(aspect: str) -> MetricList:
    """Declare CHAIR as the judge counts it for one aspect: the share of wrong mentions, and the number of mentions."""
    selection = _with_verdict("components")

    def compute(rows: Sequence[tuple[str, tuple[int, ...]]]) -> PanelResult:
        """Return the ratio for rows, each a cluster and its numbers of right and wrong mentions."""
        values = values_with_errors(
            np.asarray([counts for _, counts in rows], dtype=np.int64),
            [cluster for cluster, _ in rows],
            lambda cells: {f"chair_judge_{aspect}": component_ratio(cells)},
        )
        return PanelResult(estimates_of(values))

    def ratio(score: Score) -> float | None:
        right, wrong = score["components"][aspect]
        return wrong / (right + wrong) if right + wrong else None

    return (
        CorpusMetric(
            f"chair_judge_{aspect}",
            False,
            selection,
            panel=Panel(
                lambda score: (score["cluster_id"], tuple(score["components"][aspect])), compute
            ),
            of=ratio,
            description=f"Share of mentions of {aspect} that the judge counts as wrong.",
        ),
        counting(
            f"mentions_{aspect}",
            lambda scores: sum(sum(score["components"][aspect]) for score in scores),
            selection=selection,
            description=f"Mentions of {aspect} that the judge counts.",
        ),
    )


def _read_labels(texts: set[str]) -> tuple[dict[str, tuple[Finding, ...]], str]:
    """Return the labels of texts, and why the labeler read not all of them."""
    with_words = sorted(text for text in texts if text.strip())
    labels = dict.fromkeys(texts - set(with_words), _NO_FINDINGS)
    failures = []
    results: Sequence[Labels | LabelerError] = []
    try:
        results = label_texts(with_words)
    except Exception as error:  # noqa: BLE001 - inference is done; a labeler may cost its own metrics only
        failures.append(error)
    for text, result in zip(with_words, results, strict=False):
        try:
            labels[text] = chosen_findings(result, CONDITIONS)
        except LabelerError as error:
            failures.append(error)
    if not failures:
        return labels, ""
    if isinstance(failures[0], MedTasksError):
        return labels, str(failures[0]).rstrip(".")
    # A message that is not our own may quote a report.
    return labels, type(failures[0]).__name__


def _label_panel(rows: Sequence[TextRow]) -> PanelResult:
    """Return the ratios of labels over the reports that the labeler read, with a warning about all others."""
    texts: set[str] = set()
    for _, reference, report, _ in rows:
        texts |= {reference.text, report.text}
    labels, cause = _read_labels(texts)
    clusters = []
    cells = []
    for cluster, reference, report, _ in rows:
        if reference.text in labels and report.text in labels:
            clusters.append(cluster)
            cells.append(label_cells(labels[reference.text], labels[report.text]))
    warnings: tuple[str, ...] = ()
    if cause:
        missing = len(rows) - len(cells)
        warnings = (
            f"The metrics of labels leave out {missing} of {len(rows)} reports: {cause}",
        )
    if not cells:
        return PanelResult(
            dict.fromkeys(("reports_labelled", *_SUMS), Estimate(0)), warnings=warnings
        )
    totals = dict(zip(LABEL_CELLS, map(sum, zip(*cells, strict=True)), strict=True))
    estimates = estimates_of(values_with_errors(np.asarray(cells), clusters, label_ratios))
    for name, parts in _SUMS.items():
        estimates[name] = Estimate(sum(totals[part] for part in parts))
    estimates["reports_labelled"] = Estimate(len(cells))
    return PanelResult(estimates, warnings=warnings)


_BY_LABELS = Panel(text_row("labelled"), _label_panel)


def _label_count(name: str, description: str) -> CorpusMetric:
    """Declare a count next to the ratios of labels."""
    return CorpusMetric(
        name,
        None,
        answered,
        False,
        Role.ASIDE,
        panel=_BY_LABELS,
        scale=Scale.COUNT,
        description=description,
    )


def _label_ratio(
    name: str,
    right: str,
    count: str,
    cases: str,
    *,
    higher_is_better: bool = True,
) -> tuple[CorpusMetric, CorpusMetric]:
    """Return the metric of the share of right cases, and that of their number, the name of which is ``count``."""
    ratio = CorpusMetric(
        name,
        higher_is_better,
        answered,
        panel=_BY_LABELS,
        description=f"Share of findings {cases} that {right}.",
    )
    return ratio, _label_count(count, f"Findings {cases}.")


_LABEL_METRICS = (
    _label_count("reports_labelled", "Reports that the labeler read."),
    *_label_ratio(
        "chair_label",
        "contradict the target",
        "mentions_label",
        "that replies mention, as present or absent",
        higher_is_better=False,
    ),
    *_label_ratio(
        "label_recall", "the reply calls present", "positives_label", "present in the targets"
    ),
    *_label_ratio(
        "label_specificity",
        "the reply calls absent",
        "negatives_decided",
        "absent in targets, and decided",
    ),
    *_label_ratio(
        "label_accuracy", "are right", "labels_decided", "decided in targets and replies"
    ),
)


class ComponentReports(JudgedText):
    """Reports of chest images."""

    name = "reports with a judge"
    labels_texts = True
    columns: ClassVar[Columns] = {"report": Column.TEXT}
    judged: ClassVar[MetricList] = tuple(chain.from_iterable(map(_chair, ASPECTS)))
    metrics: MetricList = (*judged, *_LABEL_METRICS, *_TEXTS, *_RATES)

    def _questions(self, sample: Sample, text: str) -> Sequence[JudgeQuestion]:
        """Ask for the numbers of right and wrong mentions of each aspect. An empty report has none."""
        truth = {aspect: list(sample.document[aspect]) for aspect in ASPECTS}
        return [
            JudgeQuestion(
                "components",
                self._wording["components"],
                {"structured_ground_truth": truth},
                text,
                # A count above the number of the report's characters is no count: sums must not depend on one.
                partial(parse_components, most=len(text)),
                of_empty={aspect: [0, 0] for aspect in ASPECTS},
            )
        ]


REPORTS = Reports()
MULTIMEDEVAL_REPORTS = MultiMedEvalReports()
KNOWLEDGE_QUESTIONS = KnowledgeQuestions("single")
KNOWLEDGE_QUESTIONS_ELEVEN = KnowledgeQuestions("eleven")
COMPONENT_REPORTS = ComponentReports("single")
COMPONENT_REPORTS_ELEVEN = ComponentReports("eleven")
