"""The texts that MedHEval's judges get, in two wordings.

``eleven`` is the reference's wording, which compares eleven models in one call; here the only model is ``model_1``.
``single`` is ours: the same criteria and the same JSON with every mention of further models taken out. A judge that
sees ten other answers beside one is another instrument, so neither wording reproduces published figures to the digit.

Sources: figures 11 and 12 of the paper's appendix; ``code/evaluation/open_ended_evaluation/
knowledge_hallucination_score.py`` of https://github.com/Aofei-Chang/MedHEval at 7f7d980. The reference's code hands
over Python's ``repr`` of a dictionary where its text says JSON; we hand over JSON in both wordings.
"""

import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from medtasks.home import packaged_facts

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
