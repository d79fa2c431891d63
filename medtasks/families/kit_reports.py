"""MedEvalKit's reports: findings and impression, compared with the reply as it is.

The published script skips an empty reply, but divides the sums of its lexical metrics by all studies, so that it counts
as 0 there; its other metrics are means over the rest. Where it raises, its row has no number. The rule that fixes it
has a reply without words in no metric but ``invalid_rate``. Used by the hooks for MedEvalKit's reports.
"""

from collections.abc import Sequence
from dataclasses import replace

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.families import counts
from medtasks.families.family import Reply, Rule
from medtasks.families.free_texts import Reports
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import AnyMetric, MetricList, Score, ScoreList
from medtasks.metrics.report_metrics import metric_info

_FIXED = "medevalkit_report_fixed"
_REMARKS = {
    "medevalkit_iu_xray_report": "No public commit of MedEvalKit can load IU X-ray (NameError, IU_XRAY.py:55): the row "
    "'reference' is what its script for reports computes from replies to the prompt that is meant."
}


def _stop(scores: ScoreList) -> str:
    """Return why the published script gives no number, empty where it does, and under the rule that fixes it."""
    answered = counts.answered(scores)
    rule = answered[0]["rule"] if answered else _FIXED
    if rule != _FIXED and not any(score["compared"] for score in answered):
        return counts.no_number(rule, "every reply is empty (IndexError)")
    return counts.stop_warning(answered)


def _text_metrics(field: str, keys: Sequence[str]) -> list[AnyMetric]:
    """Return metrics of the scores whose ``field`` is true, NaN where the published script gives no number."""

    def selection(scores: ScoreList) -> ScoreList:
        if _stop(scores):
            return []
        return [score for score in counts.answered(scores) if score[field]]

    return [replace(metric, selection=selection) for metric in text_metrics(keys)]


class KitReports(Reports):
    """Reports under MedEvalKit's rules, ``averaged`` in lexical metrics, and ``compared`` in the others."""

    name = "MedEvalKit's reports"
    extractor = _FIXED
    # Only lexical means count empty replies, as 0. GREEN is left to ``--metric green``, because it asks a judge.
    metrics: MetricList = (
        *_text_metrics(
            "averaged", (*metric_info("medevalkit_lexical").keys, "medevalkit_meteor")
        ),
        *_text_metrics("compared", ("cider_coco_reference", "rate_score_reference")),
        replace(
            counts.INVALID_RATE,
            selection=lambda scores: [] if _stop(scores) else counts.answered(scores),
            warning=_stop,
            remark=lambda scores: _REMARKS.get(scores[0]["rule"], "") if scores else "",
        ),
        *counts.SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Return both texts, and whether lexical metrics (``averaged``) and others (``compared``) count the reply."""
        answer, rule_name = self.read(sample, reply, rule)
        texts = self._fields(sample, answer)
        is_fixed = rule_name == _FIXED
        is_report = answer.reason is Reason.OK
        return {
            **texts,
            "averaged": is_report or not is_fixed,
            "compared": is_report if is_fixed else bool(texts["reply"].text),
            "stops": answer.facts.get("stops"),
            "reason": answer.reason,
            "rule": rule_name,
        }

    def _fields(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        reply = answer.facts.get("text", answer.value) or ""
        return {
            "reference": PrivateText(sample.document["report"], sample.dataset),
            "reply": PrivateText(reply, sample.dataset),
        }


FAMILY = KitReports()
