"""Reports: all metrics once over all scores, after every reply is on disk."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason, extractor_of
from medtasks.families.constant_replies import Meant, Strategy, most_frequent
from medtasks.families.counts import INVALID_RATE, SAMPLE_COUNTS
from medtasks.families.family import Column, ReadAnswer, Reply, Row, TaskFamily
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import AnyMetric, Score

_MULTIMEDEVAL_KEYS = (
    *("bleu_1", "bleu_4", "rouge_1", "rouge_l", "meteor", "idf_bertscore_f1", "chexbert_similarity"),
    *("radgraph_partial", "radcliq_v1_multimedeval"),
)
_REPORT_KEYS = (
    *("bleu_1", "bleu_4", "rouge_l", "meteor", "bertscore_f1", "chexbert_similarity"),
    *("chexbert_14_micro_f1", "chexbert_14_macro_f1", "chexbert_5_micro_f1", "chexbert_5_macro_f1"),
    *("radgraph_simple", "radgraph_partial", "radgraph_complete", "radgraph_combined", "radcliq_v0", "radcliq_v1"),
)


def _metrics(keys: Sequence[str]) -> tuple[AnyMetric, ...]:
    of_corpus = {key for key in keys if key.startswith("chexbert_") and key.endswith("_f1")}
    return (*text_metrics(keys, without_error=of_corpus), INVALID_RATE, *SAMPLE_COUNTS)


class Reports(TaskFamily):
    """Report generation and summarisation."""

    name = "reports"
    columns: ClassVar[Mapping[str, Column]] = {"report": Column.TEXT}
    kind = AnswerKind.REPORT
    extractor = "report_text"
    scores_suffice = False
    saves_replies = True
    metrics: Sequence[AnyMetric] = _metrics(_REPORT_KEYS)

    def texts(self, sample: Sample, reply: Reply, row: Row) -> dict[str, PrivateText]:
        """Return the two reports that are compared."""
        return self._fields(sample, self.read(sample, reply, row)[0])

    def _fields(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        return {"reference": PrivateText(sample.document["report"]), "reply": PrivateText(answer.value or "")}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the text that was compared."""
        text = extractor_of(score["rule"], AnswerKind.REPORT).extract(reply.text, Sample({})).value or ""
        return ReadAnswer(text if score["reason"] == Reason.OK else None, score["reason"], None, value)

    def constant_replies(self, samples: Sequence[Sample]) -> list[Strategy]:
        """Return the report that occurs most often, where any occurs twice."""
        reports = [sample.document["report"] for sample in samples]
        text = most_frequent((None, report) for report in reports)[None]
        if reports.count(text) < 2:
            return []
        answers = (Meant((text,), whole=True),) * len(samples)
        return [Strategy("most frequent report", "Gives every image the report that occurs most often.", answers)]


class MultiMedEvalReports(Reports):
    """The same with the metrics of MultiMedEval."""

    metrics = _metrics(_MULTIMEDEVAL_KEYS)


REPORTS, MULTIMEDEVAL_REPORTS = Reports(), MultiMedEvalReports()
