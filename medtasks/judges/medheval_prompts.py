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
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

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


_COMPONENTS_SYSTEM = """\
You are provided with a JSON object of model answers from eleven models and a structured ground truth. The structured \
ground truth contains lists from three aspects: anatomy, symptom, and measurement. Your task is to evaluate each \
model's answer based on these aspects. Specifically, for each aspect, you need to count: The number of correctly \
recalled components (recall_number). The number of incorrect components that do not exist in the chest X-ray image and \
ground truth (wrong_number).
The input format, A JSON object in the following structure:
{ "structured_ground_truth": { "anatomy": List[str], "symptom": List[str], "measurement": List[str] }, "models": \
{ "model_1": "model_1_answer", ... } }
Your output format:
{ "model_1": { "anatomy": { "recall_number": int, "wrong_number": int }, "symptom": { "recall_number": int, \
"wrong_number": int }, "measurement": { "recall_number": int, "wrong_number": int } }, ... }
Instructions:
- The recall should consider similar mentions, not just exact matches. Ensure you capture all possible correct \
components.
- Do not count common anatomical structures in chest X-rays that are absent from the ground truth as incorrect \
components.."""

_COMPONENTS_USER = (
    "The structured ground_truth and models' model_response: {input_pairs}. Ensure that you read the model answers "
    "carefully and find the similar mentioned components as the recalled components. Your evaluation output in a JSON "
    "object format, without extra explanation:"
)

_CORRECTNESS_SYSTEM = """\
You are provided with a JSON object that includes a question-ground_truth pair and the corresponding answers from \
eleven different models. The question pertains to medical knowledge derived from an image. Your task is to evaluate \
the correctness of each model's answer, returning a binary output: 1 for correct and 0 for incorrect.
The input format, A JSON object in the following structure:
{ "question": str, "ground_truth": str, "models": { "model_1": "model_1_answer", ... } }
Your output format:
{ "model_1": 1 or 0, "model_2": 1 or 0, ... }
Instructions:
- Consider an answer correct if it expresses the correct medical knowledge, even if the wording differs from the \
ground truth.
- Aim to capture all possible correct expressions, not just those that match the ground truth verbatim."""

_CORRECTNESS_USER = (
    "The question, ground_truth and models' model_response: {input_pairs}. Ensure that you read the model answers "
    "carefully and evaluate its correctness. Your evaluation output in a JSON object format, without extra explanation:"
)

_SEVERITY_SYSTEM = """\
You are provided with a dictionary containing `model_answers` from multiple different models and a `ground_truth` \
answer for a medical VQA task. The models answer a question about a medical knowledge in the image. Your objective is \
to assess each `model_answer` for hallucination tendencies. Please read and understand these instructions carefully, \
and keep them accessible for reference during the evaluation process.

**Evaluation Criteria:**

- **Hallucination Score (0-5):** Assign a score to each `model_answer` based on the degree of hallucination, where \
a higher score indicates more severe hallucination.
  - **Score 0:** The `model_answer` aligns perfectly with the `ground_truth`, providing an accurate and direct \
response to the input without any additional, unverified information.
  - **Score 1-2:** The `model_answer` is mostly accurate but includes minor details not present in the `ground_truth`. \
These additional details do not contradict known medical knowledge but are unnecessary.
  - **Score 3-4:** The `model_answer` contains significant deviations from the `ground_truth`, including information \
that is unverified or not supported by the question context.
  - **Score 5:** The `model_answer` is entirely incorrect, providing information that is not only unsupported by the \
`ground_truth` but also potentially misleading or harmful in a medical context.

**Guidelines:**

- **Directness:** Ensure that the `model_answer` addresses the input directly and succinctly.
- **Accuracy:** Verify that the information aligns with the `ground_truth` and established medical knowledge.
- **Relevance:** Avoid penalizing for additional information if it is accurate and contextually appropriate.

The input format, a json object:
{"input":str, "ground_truth": str, "models":{"model_1": model_1_answer, ...}}
Your output format:
{
"model_1": int, in range[0, 5],
"model_2": int, in range[0, 5],
...
}"""

_SEVERITY_USER = _CORRECTNESS_USER.replace("JSON object", "json")


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


WORDINGS: Mapping[str, Wording] = MappingProxyType(
    {
        "single": Wording(
            JudgePrompt("components_single", 1, _of_one(_COMPONENTS_SYSTEM), _of_one(_COMPONENTS_USER)),
            JudgePrompt("correctness_single", 1, _of_one(_CORRECTNESS_SYSTEM), _of_one(_CORRECTNESS_USER)),
            JudgePrompt("severity_single", 1, _of_one(_SEVERITY_SYSTEM), _of_one(_SEVERITY_USER)),
        ),
        "eleven": Wording(
            JudgePrompt("components_eleven", 1, _COMPONENTS_SYSTEM, _COMPONENTS_USER),
            JudgePrompt("correctness_eleven", 1, _CORRECTNESS_SYSTEM, _CORRECTNESS_USER),
            JudgePrompt("severity_eleven", 1, _SEVERITY_SYSTEM, _SEVERITY_USER),
        ),
    }
)

# For ``metadata`` of task YAML: what the harness copies into its results.
COMPONENTS_SINGLE = [WORDINGS["single"].components.label]
COMPONENTS_ELEVEN = [WORDINGS["eleven"].components.label]
KNOWLEDGE_SINGLE = [WORDINGS["single"].correctness.label, WORDINGS["single"].severity.label]
KNOWLEDGE_ELEVEN = [WORDINGS["eleven"].correctness.label, WORDINGS["eleven"].severity.label]
