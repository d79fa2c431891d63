"""MedHEval's three judges of open answers, one model per call.

Each gets a JSON object in which the model under test is ``model_1``, and must answer with a JSON object of exactly the
asked-for fields. Where the reference's parser gives a missing field the best score, here a reply that lacks a field,
has another one, names one twice, or holds anything but a plain integer in range is no verdict: the judge is asked
again, and in the end the sample is ``judge_failed``. The reference leaves its judge's temperature to the endpoint; ours
follows ``JudgeSettings.temperature``, which defaults to 0.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from medtasks.judges.client import Judge, Verdict
from medtasks.judges.fence import fence
from medtasks.judges.medheval_prompts import JudgePrompt

ASPECTS = ("anatomy", "symptom", "measurement")
WORST_SEVERITY = 5
"""The end of the repository's scale: entirely incorrect."""

# Chat models like to fence JSON, which changes nothing about what they say.
_FENCED = re.compile(r"```(?:json)?\s*\n(.*)```", re.DOTALL | re.IGNORECASE)


class _Exact(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ComponentCounts(_Exact):
    """What a report mentions of one aspect."""

    recall_number: NonNegativeInt  # components that the ground truth has as well
    wrong_number: NonNegativeInt  # components that neither image nor ground truth has


class Components(_Exact):
    """What a report mentions, by aspect."""

    anatomy: ComponentCounts
    symptom: ComponentCounts
    measurement: ComponentCounts

    def counts(self) -> dict[str, list[int]]:
        """Return right and wrong components by aspect, as :mod:`medtasks.metrics.chair` takes them."""
        found = {aspect: getattr(self, aspect) for aspect in ASPECTS}
        return {aspect: [counts.recall_number, counts.wrong_number] for aspect, counts in found.items()}


class _ComponentsReply(_Exact):
    model_1: Components


class _CorrectnessReply(_Exact):
    model_1: Annotated[int, Field(ge=0, le=1)]


class _SeverityReply(_Exact):
    model_1: Annotated[int, Field(ge=0, le=WORST_SEVERITY)]


_R = TypeVar("_R", bound=_Exact)


def judge_components(
    judge: Judge, prompt: JudgePrompt, ground_truth: Mapping[str, Sequence[str]], answer: str, *, fenced: bool = False
) -> Verdict[Components]:
    """Have the components of one report counted.

    Args:
        judge: The judge, already cleared for the dataset's access level.
        prompt: One of the ``components`` prompts.
        ground_truth: Components of the reference report by aspect.
        answer: The model's report, not empty.
        fenced: Set the answer between marks, see :mod:`medtasks.judges.fence`.

    Returns:
        The verdict; a count above the number of the answer's characters is no count.
    """
    pairs = {"structured_ground_truth": {aspect: list(ground_truth[aspect]) for aspect in ASPECTS}}

    def parse(text: str) -> Components | None:
        return parse_components(text, most=len(answer))

    return judge.ask(prompt.system, _user(prompt, pairs, answer, fenced=fenced), parse, prompt_version=prompt.version)


def judge_correctness(
    judge: Judge, prompt: JudgePrompt, question: str, key: str, answer: str, *, fenced: bool = False
) -> Verdict[int]:
    """Have one answer to a knowledge question judged right (1) or wrong (0).

    Args:
        judge: The judge, already cleared for the dataset's access level.
        prompt: One of the ``correctness`` prompts.
        question: The question as published.
        key: The published answer.
        answer: The model's answer, not empty.
        fenced: Set the answer between marks, see :mod:`medtasks.judges.fence`.
    """
    pairs = {"question": question, "ground_truth": key}
    return judge.ask(
        prompt.system, _user(prompt, pairs, answer, fenced=fenced), parse_correctness, prompt_version=prompt.version
    )


def judge_severity(
    judge: Judge, prompt: JudgePrompt, question: str, key: str, answer: str, *, fenced: bool = False
) -> Verdict[int]:
    """Have the hallucination in one answer to a knowledge question scored from 0 (none) to 5.

    Args:
        judge: The judge, already cleared for the dataset's access level.
        prompt: One of the ``severity`` prompts.
        question: The question as published.
        key: The published answer.
        answer: The model's answer, not empty.
        fenced: Set the answer between marks, see :mod:`medtasks.judges.fence`.
    """
    pairs = {"input": question, "ground_truth": key}
    return judge.ask(
        prompt.system, _user(prompt, pairs, answer, fenced=fenced), parse_severity, prompt_version=prompt.version
    )


def parse_components(text: str, most: int) -> Components | None:
    """Read the counts from the judge's reply.

    Args:
        text: The judge's raw reply.
        most: Largest count to believe: sums over the corpus must not depend on one number without sense.

    Returns:
        The counts, or ``None`` for any other form.
    """
    reply = _read(text, _ComponentsReply)
    if reply is None or any(number > most for counts in reply.model_1.counts().values() for number in counts):
        return None
    return reply.model_1


def parse_correctness(text: str) -> int | None:
    """Read 1 or 0 from the judge's reply; ``None`` for any other form.

    Example:
        >>> parse_correctness('{"model_1": 1}'), parse_correctness('{"model_1": true}'), parse_correctness("{}")
        (1, None, None)
    """
    reply = _read(text, _CorrectnessReply)
    return None if reply is None else reply.model_1


def parse_severity(text: str) -> int | None:
    """Read a score from 0 to 5 from the judge's reply; ``None`` for any other form.

    Example:
        >>> parse_severity('{"model_1": 5}'), parse_severity('{"model_1": 6}')
        (5, None)
    """
    reply = _read(text, _SeverityReply)
    return None if reply is None else reply.model_1


def _user(prompt: JudgePrompt, pairs: Mapping[str, Any], answer: str, *, fenced: bool) -> str:
    shown, note = fence(answer) if fenced else (answer, "")
    asked = prompt.user({**pairs, "models": {"model_1": shown}})
    return f"{asked}\n\n{note}" if note else asked


def _read(text: str, form: type[_R]) -> _R | None:
    fenced = _FENCED.fullmatch(text.strip())
    try:
        return form.model_validate(json.loads(fenced[1] if fenced else text, object_pairs_hook=_unique))
    except (ValidationError, ValueError, RecursionError):
        return None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a field is named twice")
    return dict(pairs)
