"""Short answers to closed and open questions: overlaps with the target, and MedEvalKit's protocol, also with its judge.

A closed question is right or wrong by rule. An open one is right where its answer is the same text or, with the judge,
where the judge says so. Errors are clustered by patient or image; a metric over questions of which there are none is
NaN, where MultiMedEval prints 0.

Rules that reproduce published code put its numbers together as it does: see :class:`KitProtocol`. Where it raises, the
score says so in ``stops``, and no metric under that rule has a value; without an answer to an open or to a closed
question it divides by zero. The rule that fixes its arithmetic, and the careful one, count each question once.

Used by the hooks for MedEvalKit's short answers and for MultiMedEval's. Scores must hold no text.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from medtasks.data.samples import DRAWN, Sample, Samples
from medtasks.extract.careful.yes_no import gold_verdict
from medtasks.extract.extractor_registry import Answer, AnswerKind, Reason
from medtasks.extract.published.medevalkit_vqa import is_closed_question
from medtasks.extract.published.multimedeval import clean_head
from medtasks.families.choice import ACCURACY, CLOSED_ACCURACY, FALLBACK_RATE
from medtasks.families.columns import Column, Columns
from medtasks.families.constant_replies import Strategy, answer_strategies
from medtasks.families.counts import (
    INVALID_RATE,
    JUDGED_SAMPLE_COUNTS,
    SAMPLE_COUNTS,
    answered,
    judge_failed_rate,
    judged_scores,
    no_number,
    stop_warning,
    unless_stopped,
)
from medtasks.families.family import (
    FENCED,
    AskedFor,
    Asks,
    Decisions,
    ReadAnswer,
    Reply,
    Rule,
    TaskFamily,
)
from medtasks.judges.fence import addresses_judge
from medtasks.judges.judge_client import judge_for
from medtasks.judges.published_judges import judge_answer
from medtasks.metrics.medevalkit_texts import MEASURES
from medtasks.metrics.metric import (
    Estimate,
    Metric,
    MetricList,
    Role,
    Score,
    ScoreFilter,
    ScoreList,
    with_units,
)

_WHOLE = "whole_run"  # field of scores of a run that was checked for questions of both kinds
_AS_MEANT = (
    "MedEvalKit at 9b12e3b asks only the last question of each image and then stops (KeyError, base_dataset.py:36): "
    "the row 'reference' is its reading of replies to every question. With it a constant \"no\" scores 87.9 % on the "
    "published test set, and perfect replies 98.1 %."
)


@dataclass(frozen=True)
class KitProtocol:
    """Arithmetic from a rule's answers and verdicts to numbers, by default the correct one."""

    divides_twice: bool = False  # open accuracy by the number of open questions
    # The judge reads whatever is open, and what is no verdict is taken for "wrong".
    published: bool = False
    voids_closed: bool = False  # with the judge closed answers are wrong
    # The judge reads closed answers, too, and one that it calls right counts once more.
    adds_verdicts: bool = False
    kinds: tuple[str, str] = ("open", "closed")  # names of its two kinds of questions


PROTOCOLS: Mapping[str, KitProtocol] = {
    "medevalkit_vqa": KitProtocol(divides_twice=True, published=True),
    "medevalkit_path_vqa": KitProtocol(divides_twice=True, published=True, voids_closed=True),
    "medevalkit_slake": KitProtocol(divides_twice=True, published=True, adds_verdicts=True),
    "medevalkit_vqa_release": KitProtocol(published=True),
    "medevalkit_radrestruct": KitProtocol(
        published=True, kinds=("multiple-choice", "single-choice")
    ),
}
"""Arithmetic of published code, by the rule that reads replies as it does; all other rules have the correct one."""


def protocol_of(rule: str) -> KitProtocol:
    """Return the protocol of a rule as a score names it.

    Example:
        >>> protocol_of("medevalkit_vqa").divides_twice, protocol_of("robust_kit_vqa").divides_twice
        (True, False)
    """
    return PROTOCOLS.get(rule.removesuffix(FENCED), KitProtocol())


def _missing_kind(scores: ScoreList) -> str | None:
    """Return why published code divides by zero at the end of a run, None where it does not."""
    selected = answered(scores)
    closed = {score["closed"] for score in selected}
    if len(closed) != 1:
        return None
    protocol = protocol_of(selected[0]["rule"])
    if not protocol.published:
        return None
    return f"it divides by the number of {protocol.kinds[False in closed]} questions, and none has a reply"


def _with_number(selection: ScoreFilter) -> ScoreFilter:
    """Return a selection of a run's scores, or of a part of final ones, that is empty without a published number."""

    def checked_selection(scores: ScoreList) -> ScoreList:
        is_part = bool(scores) and _WHOLE in scores[0]
        return [] if not is_part and _missing_kind(scores) else selection(scores)

    return unless_stopped(checked_selection)


def _of_kind(*, closed: bool) -> ScoreFilter:
    """Return the selection of judged scores of closed questions, or of open ones."""
    return _with_number(
        lambda scores: judged_scores([score for score in scores if score["closed"] == closed])
    )


def _warning(scores: ScoreList) -> str:
    missing = _missing_kind(scores)
    stops_at_sample = any(score["stops"] not in (None, missing) for score in scores)
    if missing and not stops_at_sample:
        return no_number(scores[0]["rule"], missing)
    return stop_warning(scores)


def _field(name: str, closed: bool | None = None) -> Callable[[Score], float | None]:
    """Return the function from a score to the number in a field, None if that is None or the question does not count.

    Args:
        name: Field of the score.
        closed: Whether only closed questions count, or only open ones; by default both.
    """

    def of(score: Score) -> float | None:
        if score[name] is None or closed not in (None, score["closed"]):
            return None
        return float(score[name])

    return of


def _mean(
    name: str,
    description: str,
    field: str,
    closed: bool | None = None,
    *,
    selection: ScoreFilter = answered,
    role: Role = Role.PART,
) -> Metric[Score]:
    """Declare the mean of a field of scores over the selected ones where it is not None.

    Args:
        name: Name of the metric.
        description: One sentence.
        field: Field that all scores have.
        closed: Whether only closed questions count, or only open ones; by default both.
        selection: Scores that count, by default all but those of failed requests.
        role: Role in tables.
    """
    return Metric(
        name,
        selection=selection,
        role=role,
        description=description,
        of=_field(field, closed),
    )


@dataclass(frozen=True)
class _OpenAccuracy(Metric[Score]):
    """The share of right open answers, which published code divides by their number once more."""

    def estimate(self, scores: ScoreList) -> Estimate:
        """Return the share with its error, divided once more by the number of open answers if published code does."""
        estimate = super().estimate(scores)
        valued = self.values(with_units(scores))
        if not valued or not protocol_of(valued[0][0]["rule"]).divides_twice:
            return estimate
        # A drawn question stands for several of the whole set.
        number = math.fsum(
            score[DRAWN].weight if DRAWN in score else 1.0 for score, _ in valued
        )
        error = estimate.error / number
        effective = None if error else estimate.effective
        return replace(
            estimate, value=estimate.value / number, error=error, effective=effective
        )


_ANSWERED = _with_number(answered)  # none where the published code gives no number
_METRICS: MetricList = (
    Metric(
        "accuracy",
        selection=_with_number(judged_scores),
        role=Role.MAIN,
        warning=_warning,
        description=ACCURACY,
        of=_field("right"),
    ),
    _mean("acc_closed", CLOSED_ACCURACY, "right", selection=_of_kind(closed=True)),
    _OpenAccuracy(
        "acc_open",
        selection=_of_kind(closed=False),
        description="Share of open questions answered rightly; published code may divide it once more.",
        of=_field("right"),
    ),
    *(
        _mean(name, f"Mean {name} of open answers.", name, selection=_ANSWERED)
        for name in ("exact_match", *MEASURES)
    ),
    replace(INVALID_RATE, selection=_with_number(judged_scores)),
)


class YesNoAmongOthers(TaskFamily):
    """Questions of which some have yes or no as target, where scores say what each such reply says."""

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        score = super()._score(sample, reply, rule)
        return score | self._yes_no(sample, reply, rule, score)

    def _yes_no(self, sample: Sample, reply: Reply, rule: Rule, fields: Score) -> Score:
        """Return whether target and answer are yes, of a closed question whose target is yes or no, else nothing.

        A reply says what its rule calls right: where that is not the target, the rule is asked with the opposite one.
        """
        published = str(sample.document["answer"]).strip()
        verdict = gold_verdict(published)
        if not fields["closed"] or verdict is None:
            return {}
        is_yes = verdict == "yes"
        if fields["correct"]:
            return {"target_yes": is_yes, "answer_yes": is_yes}
        opposite = "no" if is_yes else "yes"
        if published[0].isupper():
            opposite = opposite.capitalize()
        answer, _ = self.read(Sample({**sample.document, "answer": opposite}), reply, rule)
        return {
            "target_yes": is_yes,
            "answer_yes": not is_yes if answer.facts["correct"] else None,
        }

    def decisions(self, score: Score) -> Decisions:
        """Return the decision about Yes, of a question whose target is yes or no.

        Example:
            >>> FAMILY.decisions({"target_yes": True, "answer_yes": None})
            {'Yes': (True, None)}
        """
        if "target_yes" not in score:
            return {}
        return {"Yes": (score["target_yes"], score["answer_yes"])}


class KitQuestions(YesNoAmongOthers):
    """Closed and open questions, where an open answer is right if it is the same text."""

    name = "closed and open questions"
    columns: ClassVar[Columns] = {"question": Column.TEXT, "answer": Column.TEXT}
    kind = AnswerKind.KIT_QUESTION
    asked_for: ClassVar[AskedFor | None] = AskedFor.PHRASE
    extractor = "robust_kit_vqa"
    metrics: MetricList = (*_METRICS, *SAMPLE_COUNTS)

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        """Return what the rule says of an answer. Measures of texts are None for a closed question."""
        facts = answer.facts
        right = float(facts["correct"])
        score = {
            "closed": facts["closed"],
            "correct": facts["correct"],
            "right": right,  # its weight in accuracies
            "exact_match": None if facts["closed"] else right,
            **(facts["measures"] or dict.fromkeys(MEASURES)),
            "stops": facts["stops"],
        }
        if "fallback" in facts:
            score["fallback"] = facts["fallback"]
        return score

    def final_scores(self, scores: ScoreList) -> ScoreList:
        """Return scores with the reason why published code stops without open or without closed questions.

        Args:
            scores: Scores of a whole run. Those that have the reason stay the same.
        """
        if not scores or _WHOLE in scores[0]:
            return scores
        missing = None if any(score["stops"] for score in scores) else _missing_kind(scores)
        return [{**score, "stops": score["stops"] or missing, _WHOLE: True} for score in scores]

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the reply, and whether rule or judge call it right."""
        is_valid = score["reason"] in (Reason.OK, Reason.JUDGE_FAILED)
        text = (reply.text or "").strip() if is_valid else None
        return ReadAnswer(text, score["reason"], score["correct"])

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Answer in words: questions whose target is yes or no as much as others."""
        return answer_strategies(samples, lambda target: target.strip().lower(), _kind_of)


def _kind_of(sample: Sample) -> tuple[bool, str]:
    return is_closed_question(sample.document), str(sample.document.get("language"))


class JudgedKitQuestions(KitQuestions):
    """Closed and open questions with a judge that reads open answers.

    Answers that the judge fails to read are in no accuracy, and their texts are compared. An answer without text, a
    refusal and the like are wrong without asking, unless the published code asks.
    """

    name = "closed and open questions with a judge"
    asks = Asks.JUDGE
    saves_replies = True
    metrics: MetricList = (
        *_METRICS,
        judge_failed_rate(
            "The judge failed for {failed} of {answered} replies; accuracies leave them out and tell little if these "
            "are many. The replies can be judged later with 'medtasks score'.",
            say_if_all=True,
        ),
        *JUDGED_SAMPLE_COUNTS,
    )

    def _score(self, sample: Sample, reply: Reply, rule: Rule) -> Score:
        """Score an answer by the rule, and by the judge if one is asked. ``correct`` is None where the judge failed."""
        answer, rule_name = self.read(sample, reply, rule)
        score = self._fields(sample, answer)
        score |= self._yes_no(sample, reply, rule, score)
        protocol = protocol_of(rule_name)
        judge = judge_for(sample.dataset)
        asks = _asks_judge(answer, protocol)
        verdict = None
        if asks:
            verdict = judge_answer(
                judge,
                sample.question,
                answer.facts["gold"],
                answer.facts["judged"],
                as_published=protocol.published,
                fenced=rule.fenced,
            )
        failed = asks and verdict is None
        if failed:
            score |= {"correct": None, "right": None}
        elif asks:
            by_rule = score["right"] if score["closed"] else 0.0
            score |= {"correct": verdict, "right": by_rule + float(bool(verdict))}
        elif not score["closed"]:
            score |= {"correct": False, "right": 0.0}
        elif protocol.voids_closed:
            score["right"] = 0.0
        return {
            **score,
            "asked": asks,
            "judge": judge.label,
            "possible_injection": addresses_judge(answer.facts["judged"]),
            "reason": Reason.JUDGE_FAILED if failed else answer.reason,
            "rule": rule_name,
        }


def _asks_judge(answer: Answer, protocol: KitProtocol) -> bool:
    """Return whether a judge reads an answer.

    A failure needs no judge; a closed answer is right or wrong by rule, unless the published code asks.
    """
    if answer.reason is Reason.ADAPTER_FAILED or answer.facts["stops"]:
        return False
    if answer.facts["closed"] and not protocol.adds_verdicts:
        return False
    return protocol.published or answer.value is not None


class RadReStruct(KitQuestions):
    """Single-choice questions, asked as yes/no, and multiple-choice ones.

    Only the first published answer is right.
    """

    name = "single- and multiple-choice questions"
    columns: ClassVar[Columns] = {**KitQuestions.columns, "options": Column.OPTIONS}
    asked_for = None  # a question's type decides
    extractor = "medevalkit_radrestruct_fixed"
    metrics: MetricList = (
        replace(
            _METRICS[0],
            remark=lambda scores: (
                _AS_MEANT if scores and protocol_of(scores[0]["rule"]).published else ""
            ),
        ),
        _mean(
            "acc_single_choice",
            "Share of single-choice questions answered rightly.",
            "right",
            closed=True,
            selection=_ANSWERED,
        ),
        _mean(
            "acc_multiple_choice",
            "Share of all other questions answered rightly.",
            "right",
            closed=False,
            selection=_ANSWERED,
        ),
        replace(FALLBACK_RATE, selection=_ANSWERED),
        replace(INVALID_RATE, selection=_ANSWERED),
        *SAMPLE_COUNTS,
    )


# ---- open questions: overlap with the target, and accuracy of closed and open ones ----


class OpenQuestions(YesNoAmongOthers):
    """Questions without options.

    Scores hold numbers only, as question, target and reply may come from a record.
    """

    name = "open questions"
    columns: ClassVar[Columns] = {"question": Column.TEXT, "answer": Column.TEXT}
    kind = AnswerKind.OPEN
    asked_for = AskedFor.PHRASE
    extractor = "robust_vqa"
    metrics: MetricList = (
        _mean("bleu_1", "BLEU-1 of the reply, mean over questions.", "bleu_1"),
        _mean("token_f1", "F1 of the words shared with the target.", "token_f1"),
        _mean(
            "token_recall", "Share of the target's words that the reply has.", "token_recall"
        ),
        _mean("closed_accuracy", CLOSED_ACCURACY, "correct", closed=True, role=Role.MAIN),
        _mean(
            "open_recall",
            "Token recall of open questions.",
            "token_recall",
            closed=False,
            role=Role.MAIN,
        ),
        _mean(
            "open_accuracy",
            "Share of open questions answered rightly.",
            "correct",
            closed=False,
        ),
        INVALID_RATE,
        *SAMPLE_COUNTS,
    )

    def _fields(self, sample: Sample, answer: Answer) -> Score:
        names = ("closed", "correct", "bleu_1", "token_f1", "token_recall")
        return {name: answer.facts[name] for name in names}

    def describe(self, score: Score, reply: Reply, value: float | None = None) -> ReadAnswer:
        """Describe the reply. Only a closed question is right or wrong."""
        text = (reply.text or "").strip() if score["reason"] == Reason.OK else None
        if score["closed"]:
            return ReadAnswer(text, score["reason"], bool(score["correct"]))
        return ReadAnswer(text, score["reason"], None, score["bleu_1"])

    def constant_replies(self, samples: Samples) -> list[Strategy]:
        """Answer in words: questions whose target is yes or no as much as others."""
        return answer_strategies(samples, lambda target: clean_head(target.strip()))


FAMILY = KitQuestions()
JUDGED_QUESTIONS = JudgedKitQuestions()
OPEN_QUESTIONS = OpenQuestions()
RAD_RESTRUCT = RadReStruct()
