"""MedEvalKit's reports: findings and impression, compared with the reply as it is.

The published script skips an empty reply, but divides the sums of its lexical metrics by all studies, so that it counts
as 0 there; its other metrics are means over the rest. Where it raises, its row has no number. The rule that fixes it
counts a reply without words in no metric: such replies are in ``invalid_rate``.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from medtasks.data.privacy import PrivateText
from medtasks.data.samples import Sample
from medtasks.extract.extractor_registry import Answer, Reason
from medtasks.families import counts
from medtasks.families.family import FENCED, Reply, Row
from medtasks.families.free_texts import Reports
from medtasks.families.text_metrics import text_metrics
from medtasks.metrics.metric import AnyMetric, Score, Scores

_LEXICAL = (
    *(f"medevalkit_bleu_{order}" for order in range(1, 5)),
    *(f"medevalkit_rouge_{kind}" for kind in "12l"),
    "medevalkit_meteor",
)
# Keys of MedEvalKit's other metrics, which get no empty replies: those of texts as they are, and in lower case.
_OF_REPORTS: tuple[str, ...] = ()
_OF_LOWERED: tuple[str, ...] = ()
_FIXED = "medevalkit_report_fixed"
_NEVER_LOADED = (
    "No public commit of MedEvalKit can load IU X-ray (NameError, IU_XRAY.py:55): the row 'reference' is what its "
    "script for reports computes from replies to the prompt that is meant."
)


def _rule(scores: Scores) -> str:
    return str(scores[0]["rule"]).removesuffix(FENCED) if scores else _FIXED


def _all_empty(scores: Scores) -> bool:
    """Return whether the published script raises because it skips every reply."""
    return bool(scores) and _rule(scores) != _FIXED and not any(score["compared"] for score in scores)


def _counted(field: str) -> Callable[[Scores], Scores]:
    """Return the selection of answered scores that a field names, empty where the published script stops."""

    def selected(scores: Scores) -> Scores:
        candidates = counts.answered(scores)
        return [] if _all_empty(candidates) else [score for score in candidates if score[field]]

    return counts.unstopped(selected)


def _warning(scores: Scores) -> str:
    if _all_empty(counts.answered(scores)):
        return counts.no_number(_rule(scores), "every reply is empty (IndexError)")
    return counts.stop_warning(scores)


def _metrics(keys: Sequence[str], field: str, reply: str = "reply") -> tuple[AnyMetric, ...]:
    return tuple(replace(metric, selection=_counted(field)) for metric in text_metrics(keys, reply))


class KitReports(Reports):
    """Reports under MedEvalKit's rules; ``averaged``: in the lexical means, ``compared``: in the others."""

    name = "MedEvalKit's reports"
    extractor = _FIXED
    metrics: Sequence[AnyMetric] = (
        *_metrics(_LEXICAL, "averaged"),
        *_metrics(_OF_REPORTS, "compared"),
        *_metrics(_OF_LOWERED, "compared", "lowered"),
        replace(
            counts.INVALID_RATE,
            warning=_warning,
            remark=lambda scores: _NEVER_LOADED if _rule(scores) == "medevalkit_iu_xray_report" else "",
        ),
        *counts.SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, row: Row) -> Score:
        answer, rule = self.read(sample, reply, row)
        is_report = answer.reason is Reason.OK
        texts = self._fields(sample, answer)
        averaged, compared = (is_report, is_report) if rule == _FIXED else (True, bool(texts["reply"].text))
        facts = {"averaged": averaged, "compared": compared, "stops": answer.facts.get("stops")}
        return {**texts, **facts, "reason": answer.reason, "rule": rule}

    def _fields(self, sample: Sample, answer: Answer) -> dict[str, PrivateText]:
        texts = {"reference": sample.document["report"], "reply": answer.facts.get("text", answer.value) or ""}
        lowered = {"lowered_reference": texts["reference"].lower(), "lowered": texts["reply"].lower()}
        return {name: PrivateText(text) for name, text in {**texts, **lowered}.items()}


FAMILY = KitReports()
