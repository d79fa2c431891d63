"""MedHEval's three judges of open answers, one model per call.

Each gets a JSON object in which the model under test is ``model_1``, and must answer with a JSON object of exactly the
asked-for fields. Where the reference's parser gives a missing field the best score, here a reply that lacks a field,
has another one, names one twice, or holds anything but a plain integer in range is no verdict: the judge is asked
again, and in the end the sample is ``judge_failed``. The reference leaves its judge's temperature to the endpoint; ours
follows ``JudgeSettings.temperature``, which defaults to 0.
"""

import functools
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from medtasks.data.safe_parsing import parse_json
from medtasks.home import packaged_facts
from medtasks.judges.fence import shown_to_judge
from medtasks.judges.judge_client import Judge, JudgeVerdict

_PLACE = "{input_pairs}"


@dataclass(frozen=True)
class JudgePrompt:
    """What a judge is told."""

    name: str  # ``<what is judged>_<wording>``
    version: int  # raised when a text changes; part of the cache key
    system: str  # the system message
    template: str  # the user message, with ``{input_pairs}`` where the JSON goes

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that change with every text."""
        content = json.dumps([self.system, self.template])
        return hashlib.sha256(content.encode("ascii")).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Name, version and fingerprint, as records and task metadata show them."""
        return f"{self.name} v{self.version} {self.fingerprint}"

    def user(self, pairs: Mapping[str, Any]) -> str:
        """Return the user message for what is to be judged."""
        return self.template.replace(_PLACE, json.dumps(pairs, ensure_ascii=False))


# In this order they take every mention of further models out of a text.
_ONE_MODEL = {
    "model answers from eleven models": "one model's answer",
    "answers from eleven different models": "answer from one model",
    "`model_answers` from multiple different models": "a `model_answer` from one model",
    "models' model_response": "the model's model_response",
    "model answers": "model answer",
    "The models answer": "The model answers",
    "each model's": "the model's",
    "each `model_answer`": "the `model_answer`",
    ', "model_2": 1 or 0': "",
    ',\n"model_2": int, in range[0, 5],\n...': "",
    ", ...": "",
    "components..": "components.",  # a slip of the reference
}


def _of_one(text: str) -> str:
    return functools.reduce(lambda changed, pair: changed.replace(*pair), _ONE_MODEL.items(), text)


@dataclass(frozen=True)
class Wording:
    """The three prompts of one wording."""

    components: JudgePrompt  # counts components of a report, right and wrong ones by aspect (paper, figure 11)
    correctness: JudgePrompt  # says whether an answer is right, 1 or 0 (paper, figure 12)
    severity: JudgePrompt  # says how severely an answer hallucinates, 0 to 5 (repository)


def _wording(name: str, wording: Callable[[str], str]) -> Wording:
    published = packaged_facts(__package__, "prompts")["medheval"]
    texts = {judged: {role: wording(text) for role, text in roles.items()} for judged, roles in published.items()}
    return Wording(
        **{judged: JudgePrompt(f"{judged}_{name}", 1, text["system"], text["user"]) for judged, text in texts.items()}
    )


WORDINGS: Mapping[str, Wording] = MappingProxyType(
    {"single": _wording("single", _of_one), "eleven": _wording("eleven", str)}
)

# For ``metadata`` of task YAML: what the harness copies into its results.
COMPONENTS_SINGLE = [WORDINGS["single"].components.label]
COMPONENTS_ELEVEN = [WORDINGS["eleven"].components.label]
KNOWLEDGE_SINGLE = [WORDINGS["single"].correctness.label, WORDINGS["single"].severity.label]
KNOWLEDGE_ELEVEN = [WORDINGS["eleven"].correctness.label, WORDINGS["eleven"].severity.label]


ASPECTS = ("anatomy", "symptom", "measurement")
WORST_SEVERITY = 5
"""The end of the repository's scale: entirely incorrect."""

# Chat models like to fence JSON, which changes nothing about what they say.
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*)```", re.DOTALL | re.IGNORECASE)


class _Exact(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class ComponentCounts(_Exact):
    """What a report mentions of one aspect."""

    recall_number: NonNegativeInt  # components that the ground truth has as well
    wrong_number: NonNegativeInt  # components that neither image nor ground truth has


class ComponentMentions(_Exact):
    """What a report mentions, by aspect."""

    anatomy: ComponentCounts
    symptom: ComponentCounts
    measurement: ComponentCounts

    def counts(self) -> dict[str, list[int]]:
        """Return right and wrong components by aspect, as :mod:`medtasks.metrics.chest_findings` takes them."""
        return {aspect: [counts.recall_number, counts.wrong_number] for aspect, counts in self}


def judge_components(
    judge: Judge, prompt: JudgePrompt, ground_truth: Mapping[str, Sequence[str]], answer: str, *, fenced: bool = False
) -> JudgeVerdict[ComponentMentions]:
    """Have the components of one report, which is not empty, counted against those of the reference report by aspect.

    A count above the number of the report's characters is no count.
    """
    pairs = {"structured_ground_truth": {aspect: list(ground_truth[aspect]) for aspect in ASPECTS}}
    parse = partial(parse_components, most=len(answer))
    return judge.ask(prompt.system, _user(prompt, pairs, answer, fenced=fenced), parse, prompt_version=prompt.version)


def _judge_number(
    asked_as: str,
    most: int,
    judge: Judge,
    prompt: JudgePrompt,
    question: str,
    gold: str,
    answer: str,
    *,
    fenced: bool = False,
) -> JudgeVerdict[int]:
    """Have one answer, not empty, to a knowledge question judged by a number; ``asked_as`` is the question's field."""
    pairs = {asked_as: question, "ground_truth": gold}
    parse = partial(parse_number, most=most)
    return judge.ask(prompt.system, _user(prompt, pairs, answer, fenced=fenced), parse, prompt_version=prompt.version)


judge_correctness = partial(_judge_number, "question", 1)
"""Have one answer judged right (1) or wrong (0), by one of the ``correctness`` prompts."""
judge_severity = partial(_judge_number, "input", WORST_SEVERITY)
"""Have the hallucination in one answer scored from 0 (none) to 5, by one of the ``severity`` prompts."""


def parse_components(text: str, most: int) -> ComponentMentions | None:
    """Read the counts from the judge's reply; ``None`` for any other form.

    ``most`` is the largest count to believe: sums over the corpus must not depend on one number without sense.
    """
    try:
        components = ComponentMentions.model_validate(_of_model_1(text))
    except ValidationError:
        return None
    return None if any(number > most for pair in components.counts().values() for number in pair) else components


def parse_number(text: str, most: int) -> int | None:
    """Read a whole number from 0 to ``most`` from the judge's reply; ``None`` for any other form.

    Example:
        >>> parse_number('{"model_1": 1}', 1), parse_number('{"model_1": true}', 1), parse_number('{"model_1": 6}', 5)
        (1, None, None)
    """
    number = _of_model_1(text)
    return number if type(number) is int and 0 <= number <= most else None  # True is no number here


def _user(prompt: JudgePrompt, pairs: Mapping[str, Any], answer: str, *, fenced: bool) -> str:
    shown, note = shown_to_judge(answer, fenced=fenced)
    asked = prompt.user({**pairs, "models": {"model_1": shown}})
    return f"{asked}\n\n{note}" if note else asked


def _of_model_1(text: str) -> Any:
    fenced = _FENCED.fullmatch(text.strip())
    try:
        reply = parse_json(fenced[1] if fenced else text, object_pairs_hook=_unique)
    except ValueError:
        return None
    return reply["model_1"] if isinstance(reply, dict) and set(reply) == {"model_1"} else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a field is named twice")
    return dict(pairs)
