"""MedHEval's open knowledge questions: what two judges say of the answers, and how close their words come to the key.

``knowledge_rate`` is the paper's K, the share of answers that its judge does not call right; ``hallucination_score`` is
the repository's, from 0 to 5. For both lower is better. An empty answer is not right and gets 5 without asking;
``invalid_rate`` says how many there are. A judge that fails says nothing about the model: its metric leaves the answer
out, is NaN where none is left, and ``judge_failed_rate`` stands beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from medtasks.hooks import answer_texts, open_answers
from medtasks.hooks.metric_list import metric_entry
from medtasks.hooks.open_answers import Record, names_of, saved_reply, with_verdict
from medtasks.hooks.optional_judge import scoring_judge
from medtasks.hooks.withheld import withhold_saved
from medtasks.judges.medheval import WORST_SEVERITY, judge_correctness, judge_severity
from medtasks.judges.medheval_prompts import WORDINGS, JudgePrompt, Wording
from medtasks.metrics.report_scores import mean
from medtasks.stats.standard_error import clustered_standard_error

Ask = Callable[..., Any]


def process_results(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Have one answer judged with the prompts for one model.

    Args:
        doc: A document of the family ``OPEN_QUESTION`` (:mod:`medtasks.data.schema`).
        results: One reply.

    Returns:
        A record for every metric and standard error, the same for all that need the same.
    """
    return _judged(doc, results, WORDINGS["single"])


def process_results_eleven(doc: Mapping[str, Any], results: Sequence[Any]) -> dict[str, Record]:
    """Have one answer judged with the reference's prompts for eleven models; see :func:`process_results`."""
    return _judged(doc, results, WORDINGS["eleven"])


def _judged(doc: Mapping[str, Any], results: Sequence[Any], wording: Wording) -> dict[str, Record]:
    reply = saved_reply(doc, results)
    judge = scoring_judge(doc)
    answer = reply.read.facts["judged"]

    def verdict(ask: Ask, prompt: JudgePrompt, unsaid: int) -> int | None:
        if judge is None:
            return None
        if not answer:
            return unsaid
        said: int | None = ask(judge, prompt, doc["question"], doc["answer"], answer, fenced=reply.fenced).value
        return said

    verdicts = {
        "correct": verdict(judge_correctness, wording.correctness, 0),
        "severity": verdict(judge_severity, wording.severity, WORST_SEVERITY),
    }
    judged = reply.judged(judge, [wording.correctness, wording.severity], verdicts)
    texts = reply.beside(doc["answer"], reply.read.facts["compared"])
    return withhold_saved(doc, results, {**dict.fromkeys(_JUDGED, judged), **dict.fromkeys(answer_texts.NAMES, texts)})


def knowledge_rate(items: Sequence[Record]) -> float:
    """Return the share of judged answers that are not right (the paper's K)."""
    return mean([1.0 - item["correct"] for item in with_verdict(items, "correct")])


def knowledge_rate_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the knowledge rate, clustered by patient or image."""
    known = with_verdict(items, "correct")
    return clustered_standard_error([1.0 - item["correct"] for item in known], [item["unit"] for item in known])


def answers_judged(items: Sequence[Record]) -> int:
    """Return the number of answers behind the knowledge rate."""
    return len(with_verdict(items, "correct"))


def hallucination_score(items: Sequence[Record]) -> float:
    """Return the mean hallucination score of judged answers, from 0 (none) to 5."""
    return mean([float(item["severity"]) for item in with_verdict(items, "severity")])


def hallucination_score_stderr(items: Sequence[Record]) -> float:
    """Return the standard error of the hallucination score, clustered by patient or image."""
    known = with_verdict(items, "severity")
    return clustered_standard_error([float(item["severity"]) for item in known], [item["unit"] for item in known])


def answers_scored(items: Sequence[Record]) -> int:
    """Return the number of answers behind the hallucination score."""
    return len(with_verdict(items, "severity"))


_JUDGE_METRICS = [
    metric_entry(knowledge_rate, higher_is_better=False),
    metric_entry(knowledge_rate_stderr, higher_is_better=False),
    metric_entry(answers_judged, higher_is_better=True),
    metric_entry(hallucination_score, higher_is_better=False),
    metric_entry(hallucination_score_stderr, higher_is_better=False),
    metric_entry(answers_scored, higher_is_better=True),
]
METRIC_LIST = [*_JUDGE_METRICS, *answer_texts.METRIC_LIST, *open_answers.RATES]
_JUDGED = names_of([*_JUDGE_METRICS, *open_answers.RATES])
