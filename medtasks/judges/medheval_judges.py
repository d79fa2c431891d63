"""MedHEval's three judges of open answers, of one model or of several in one call, in two wordings.

Each gets a JSON object in which the model under test is ``model_1``, and must answer with a JSON object of exactly the
requested fields. Where the reference's parser gives a missing field the best score, here a reply that lacks a field,
has another one, names one twice, or holds anything but a plain integer in range is no verdict: the judge is asked
again, and in the end the sample is ``judge_failed``. The reference leaves its judge's temperature to the endpoint; ours
follows ``JudgeSettings.temperature``, which defaults to 0.

``eleven`` is the reference's wording, which compares eleven models in one call, as :meth:`JudgePrompt.ask_jointly`
does; a run that is judged alone is ``model_1``. ``single`` is ours: the same criteria and the same JSON with every
mention of further models taken out. A judge that sees ten other answers next to one is another instrument.

Sources: figures 11 and 12 of the paper's appendix; ``code/evaluation/open_ended_evaluation/
knowledge_hallucination_score.py`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980. The reference's code hands
over Python's ``repr`` of a dictionary where its text says JSON; we hand over JSON in both wordings.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from medtasks.data.safe_parsing import parse_json
from medtasks.home import packaged_facts
from medtasks.judges.fence import quote_reply
from medtasks.judges.judge_client import Judge, JudgeVerdict, ReplyParser

T = TypeVar("T")

ASPECTS = ("anatomy", "symptom", "measurement")
_NUMBERS = ("recall_number", "wrong_number")  # of components, by aspect
WORST_SEVERITY = 5  # the end of the repository's scale: entirely incorrect
MOST_MODELS = 11  # in one request, as many as the reference's wording names
_ONLY = "model_1"  # name of the only model
_PLACE = "{input_pairs}"
# Chat models often fence JSON, which does not change the answer.
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*)```", re.DOTALL | re.IGNORECASE)
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


@dataclass(frozen=True)
class JudgePrompt:
    """Messages to a judge."""

    name: str  # ``<what is judged>_<wording>``
    version: int  # raised when a text changes; part of the cache key
    system: str  # the system message
    template: str  # the user message, with ``{input_pairs}`` where the JSON goes

    @property
    def label(self) -> str:
        """Name, version and 16 digits of a hash of the texts, as records and task metadata show them."""
        content = json.dumps([self.system, self.template])
        return f"{self.name} v{self.version} {hashlib.sha256(content.encode('ascii')).hexdigest()[:16]}"

    def ask(
        self,
        judge: Judge,
        pairs: Mapping[str, Any],
        answer: str,
        parse: ReplyParser[T],
        *,
        fenced: bool,
    ) -> JudgeVerdict[T]:
        """Have one answer judged.

        Args:
            judge: The judge.
            pairs: The other fields of the JSON object.
            answer: Not empty.
            parse: Reads a reply.
            fenced: Whether the answer is between marks.
        """
        return self._send(judge, pairs, {_ONLY: answer}, parse, fenced=fenced)

    def ask_jointly(
        self,
        judge: Judge,
        pairs: Mapping[str, Any],
        answers: Mapping[str, str],
        parsers: Mapping[str, ReplyParser[T]],
        *,
        fenced: bool,
    ) -> JudgeVerdict[dict[str, T]]:
        """Have the answers of several models judged in one request.

        Args:
            judge: The judge.
            pairs: The other fields of the JSON object.
            answers: Answers by name of the model, none of them empty.
            parsers: By name of the model, what reads a reply on this model alone.
            fenced: Whether answers are between marks.
        """
        parse = partial(parse_joint, parsers=parsers)
        return self._send(judge, pairs, answers, parse, fenced=fenced)

    def _send(
        self,
        judge: Judge,
        pairs: Mapping[str, Any],
        answers: Mapping[str, str],
        parse: ReplyParser[Any],
        *,
        fenced: bool,
    ) -> JudgeVerdict[Any]:
        """Send one request about the answers of some models, by their name in the JSON object."""
        models = {}
        notes = []
        for name, answer in answers.items():
            models[name], note = quote_reply(answer, fenced=fenced)
            notes.append(note)
        content = json.dumps({**pairs, "models": models}, ensure_ascii=False)
        user = self.template.replace(_PLACE, content)
        texts = (user, *filter(None, notes))
        return judge.ask(self.system, "\n\n".join(texts), parse, prompt_version=self.version)


@dataclass(frozen=True)
class JudgeQuestion:
    """One answer of a model, and what a judge is asked about it."""

    field: str  # of the score, for the verdict
    prompt: JudgePrompt
    pairs: Mapping[str, Any]  # the other fields of the JSON object
    answer: str
    # Verdict in a judge's reply on this model alone; None for another form.
    parse: ReplyParser[Any]
    of_empty: Any  # verdict on an empty answer, about which no judge is asked

    def ask(self, judge: Judge, *, fenced: bool) -> Any:
        """Return the verdict, that on an empty answer without asking, or None without a verdict."""
        if not self.answer:
            return self.of_empty
        return self.prompt.ask(judge, self.pairs, self.answer, self.parse, fenced=fenced).value


def _prompts(wording: str, replaced: Mapping[str, str]) -> dict[str, JudgePrompt]:
    """Return the prompts of one wording by what is judged.

    Args:
        wording: Name of the wording.
        replaced: Words of ours by the published ones, replaced in this order. Empty for the published wording.
    """
    prompts = {}
    for judged, texts in packaged_facts(__package__, "prompts")["medheval"].items():
        system = texts["system"]
        user = texts["user"]
        for published, ours in replaced.items():
            system = system.replace(published, ours)
            user = user.replace(published, ours)
        prompts[judged] = JudgePrompt(f"{judged}_{wording}", 1, system, user)
    return prompts


# Of each wording: ``components`` counts those of a report, right and wrong, by aspect (paper, figure 11),
# ``correctness`` is 1 or 0 (paper, figure 12), ``severity`` that of hallucinations, 0 to 5 (repository).
WORDINGS: Mapping[str, Mapping[str, JudgePrompt]] = {
    "single": _prompts("single", _ONE_MODEL),
    "eleven": _prompts("eleven", {}),
}

# For ``metadata`` of task YAML, which the harness copies into its results.
COMPONENTS_SINGLE = [WORDINGS["single"]["components"].label]
COMPONENTS_ELEVEN = [WORDINGS["eleven"]["components"].label]
KNOWLEDGE_SINGLE = [
    WORDINGS["single"]["correctness"].label,
    WORDINGS["single"]["severity"].label,
]
KNOWLEDGE_ELEVEN = [
    WORDINGS["eleven"]["correctness"].label,
    WORDINGS["eleven"]["severity"].label,
]


def parse_components(text: str, most: int) -> dict[str, list[int]] | None:
    """Read the numbers of right and wrong components by aspect from the judge's reply.

    Args:
        text: The judge's reply, a JSON object, also between code fences.
        most: Largest value of each number, such as the number of characters of the report.

    Returns:
        Numbers of right and wrong components, in this order, by aspect. ``None`` for a reply in another form.
    """
    counts = _by_model(text, {_ONLY}).get(_ONLY, {})
    if not _has_fields(counts, ASPECTS):
        return None
    by_aspect: dict[str, list[int]] = {}
    for aspect in ASPECTS:
        if not _has_fields(counts[aspect], _NUMBERS):
            return None
        numbers = [counts[aspect][name] for name in _NUMBERS]
        # In Python a bool is an int, but in a reply it is no number.
        if not all(type(number) is int and 0 <= number <= most for number in numbers):
            return None
        by_aspect[aspect] = numbers
    return by_aspect


def parse_number(text: str, most: int) -> int | None:
    """Read a whole number from 0 to ``most`` from the judge's reply, or ``None`` for any other form.

    Example:
        >>> parse_number('{"model_1": 3}', most=5), parse_number('{"model_1": 3.0}', most=5)
        (3, None)
    """
    number = _by_model(text, {_ONLY}).get(_ONLY)
    return number if type(number) is int and 0 <= number <= most else None


def parse_joint(
    text: str,
    parsers: Mapping[str, ReplyParser[T]],
) -> dict[str, T] | None:
    """Read the verdicts on several models in a reply, each as if it were alone.

    Args:
        text: The judge's reply.
        parsers: By name of the model, what reads a reply on this model alone.

    Returns:
        Verdicts by name, or ``None`` if any is missing.
    """
    verdicts = {}
    for name, part in _by_model(text, parsers.keys()).items():
        verdict = parsers[name](json.dumps({_ONLY: part}))
        if verdict is None:
            return None
        verdicts[name] = verdict
    return verdicts or None


def _by_model(text: str, names: Set[str]) -> dict[str, Any]:
    """Return the parts of a judge's reply by model, none unless the reply is a JSON object on exactly these models."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Return the fields of an object, or raise a ValueError if a field is named twice."""
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a field is named twice")
        return dict(pairs)

    fenced = _FENCED.fullmatch(text.strip())
    try:
        reply = parse_json(fenced[1] if fenced else text, object_pairs_hook=unique)
    except ValueError:
        return {}
    return reply if _has_fields(reply, names) else {}


def _has_fields(value: Any, names: Iterable[str]) -> bool:
    """Return whether a value is a JSON object with exactly these fields."""
    return isinstance(value, dict) and value.keys() == set(names)
