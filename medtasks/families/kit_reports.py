"""MedEvalKit's reports: findings and impression, compared with the reply as it is.

The published script skips an empty reply, but divides the sums of its lexical metrics by all studies, so that it counts
as 0 there; its other metrics are means over the rest. Where it raises, its row has no number. The rule that fixes it
has a reply without words in no metric but ``invalid_rate``.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.families import counts
from medtasks.families.family import Reply, Rule
from medtasks.families.free_texts import Reports
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import AnyMetric, Score, ScoreList
from medtasks.metrics.report_metrics import metric_info

# Field that names the scores that count, and keys of metrics. Only lexical means count empty replies, as 0. GREEN is
# left to ``--metric green``, because it asks a judge.
_METRICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("averaged", (*metric_info("medevalkit_lexical").keys, "medevalkit_meteor")),
    ("compared", ("cider_coco_reference", "rate_score_reference")),
)
_FIXED = "medevalkit_report_fixed"
_REMARKS = {
    "medevalkit_iu_xray_report": "No public commit of MedEvalKit can load IU X-ray (NameError, IU_XRAY.py:55): the row "
    "'reference' is what its script for reports computes from replies to the prompt that is meant."
}


def _stop(scores: ScoreList) -> str:
    """Return why the published script gives no number; empty where it does, and under the rule that fixes it."""
    answered = counts.answered(scores)
    if (
        answered
        and answered[0]["rule"] != _FIXED
        and not any(score["compared"] for score in answered)
    ):
        return counts.no_number(answered[0]["rule"], "every reply is empty (IndexError)")
    return counts.stop_warning(answered)


def _counted(field: str, scores: ScoreList) -> ScoreList:
    return [] if _stop(scores) else [score for score in counts.answered(scores) if score[field]]


class KitReports(Reports):
    """Reports under MedEvalKit's rules; scores are ``averaged`` in lexical metrics, and ``compared`` in the others."""

    name = "MedEvalKit's reports"
    extractor = _FIXED
    metrics: Sequence[AnyMetric] = (
        *(
            replace(metric, selection=partial(_counted, field))
            for field, keys in _METRICS
            for metric in text_metrics(keys, "reply")
        ),
        replace(
            counts.INVALID_RATE,
            selection=lambda scores: [] if _stop(scores) else counts.answered(scores),
            warning=_stop,
            remark=lambda scores: _REMARKS.get(scores[0]["rule"], "") if scores else "",
        ),
        *counts.SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        answer, rule_name = self.read(sample, reply, rule)
        texts, is_report = self._fields(sample, answer), answer.reason is Reason.OK
        averaged, compared = (
            (is_report, is_report) if rule_name == _FIXED else (True, bool(texts["reply"].text))
        )
        facts = {"averaged": averaged, "compared": compared, "stops": answer.facts.get("stops")}
        return {**texts, **facts, "reason": answer.reason, "rule": rule_name}

    def _fields(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        reference, reply = sample.document["report"], answer.facts.get("text", answer.value) or ""
        return {
            "reference": PrivateText(reference, sample.dataset),
            "reply": PrivateText(reply, sample.dataset),
        }


FAMILY = KitReports()
