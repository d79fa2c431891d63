"""Asking an LLM for hallucination questions on each image of a study, by the prompts of MedHEval.

What an image has decides which prompt makes closed questions on what is visible: bounding boxes (figure 5), else
question pairs (figure 4), else its report (figure 6). Open questions on knowledge take two requests: one filters what
was retrieved, one asks. An image's report, notes, metadata and the like are sent, never its file, its path, its id or
its group.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from medtasks.curate.drafts import Drafted, Outcome, draft_all
from medtasks.curate.hallucination_replies import (
    Question,
    ReportQuestion,
    TypedQuestion,
    YesNoQuestion,
    questions_in,
)
from medtasks.curate.hallucination_rules import banned_phrases, drafts_of
from medtasks.curate.hallucination_study import PASSAGES
from medtasks.curate.llm import Asked, ask, free_text, llm_label
from medtasks.curate.prompts import Prompt, prompts_in
from medtasks.curate.study import StudyImage, StudyKind, read_images
from medtasks.data.journal import digest_of
from medtasks.judges.client import Judge

T = TypeVar("T")

PROMPTS = "hallucination_prompts"
_NONE = "none given"
_FILTER, _FILTERED = "knowledge_filter", "{filtered_knowledge}"


@dataclass(frozen=True)
class _Form:
    """In which form questions are asked for, and what reads them."""

    name: str  # of its prompt
    schema: type[Question]


_FORMS: Mapping[StudyKind, _Form] = {
    StudyKind.VISUAL_CLOSED: _Form("form_visual_closed", TypedQuestion),
    StudyKind.VISUAL_OPEN: _Form("form_visual_open", ReportQuestion),
    StudyKind.KNOWLEDGE_CLOSED: _Form("form_yes_no", YesNoQuestion),
    StudyKind.KNOWLEDGE_OPEN: _Form("form_open", Question),
    StudyKind.CONTEXTUAL: _Form("form_yes_no", YesNoQuestion),
}


def prompt_for(kind: StudyKind, image: StudyImage) -> Prompt:
    """Return the paper's prompt by which questions of a kind on an image are asked for."""
    name = str(kind)
    if kind is StudyKind.VISUAL_CLOSED:
        shown = next((field for field in ("bounding_boxes", "qa_pairs") if field in image.context), "report")
        name = f"{kind}_{ {'bounding_boxes': 'boxes', 'qa_pairs': 'pairs'}.get(shown, shown) }"
    return prompts_in(PROMPTS)[name]


def with_form(prompt: Prompt, form: str) -> Prompt:
    """Return a paper's prompt with one of our forms of reply behind its system message, and both names."""
    ours = prompts_in(PROMPTS)[form]
    label = f"{prompt.label} + {ours.name}"
    return replace(prompt, name=label, version=ours.version, system=f"{prompt.system}\n\n{ours.user}")


def figures(kind: StudyKind, images: Iterable[StudyImage]) -> Counter[str]:
    """Return for how many images which figure of the paper asks."""
    return Counter(prompt_for(kind, image).source for image in images)


def draft_hallucination(folder: Path, kind: StudyKind, llm: Judge) -> Counter[Outcome]:
    """Draft questions for each image of a study that has none yet, and return how many images came to what.

    Errors are those of :func:`~medtasks.curate.drafts.draft_all`.
    """
    jobs = {name: _job(llm, kind, image) for name, image in read_images(folder).items()}
    return draft_all(folder, jobs, llm.settings.concurrency)


def _job(llm: Judge, kind: StudyKind, image: StudyImage) -> tuple[str, Callable[[], Drafted]]:
    """Return the digest of what decides about the reply on an image, and what asks for it."""
    prompt, values, label = with_form(prompt_for(kind, image), _FORMS[kind].name), _values(image), llm_label(llm)
    digest = _asked(prompt, values, label)
    if kind is StudyKind.KNOWLEDGE_OPEN:
        digest = digest_of(digest, _asked(prompts_in(PROMPTS)[_FILTER], values, label))[:32]
    line = Drafted(request=image.image_id, asked=digest, outcome=Outcome.DRAFTED, llm=label, prompt=prompt.label)
    return digest, partial(_drafted, llm, kind, image, prompt, line)


def _asked(prompt: Prompt, values: Mapping[str, str], label: str) -> str:
    return prompt.asked(_of(prompt, {_FILTERED: "", **values}), label)


def _drafted(llm: Judge, kind: StudyKind, image: StudyImage, prompt: Prompt, line: Drafted) -> Drafted:
    """Ask for the questions of one image and complete its line."""
    values = _values(image)
    if kind is StudyKind.KNOWLEDGE_OPEN:
        if not image.context[PASSAGES]:
            why = "no passage of the texts shares a word with its report"
            return line.model_copy(update={"outcome": Outcome.SKIPPED, "reason": why})
        filtered = _ask(llm, prompts_in(PROMPTS)[_FILTER], values, free_text)
        if filtered.value is None:
            return line.model_copy(update={"outcome": filtered.outcome, "reason": filtered.reason})
        values[_FILTERED] = filtered.value
    found = _ask(llm, prompt, values, partial(questions_in, schema=_FORMS[kind].schema))
    drafts = drafts_of(image.image_id, found.value or (), banned_phrases(prompt.system))
    return line.model_copy(update={"outcome": found.outcome, "reason": found.reason, "drafts": drafts})


def _ask(llm: Judge, prompt: Prompt, values: Mapping[str, str], read: Callable[[str], T | None]) -> Asked[T]:
    return ask(llm, prompt, prompt.filled(_of(prompt, values)), read)


def _of(prompt: Prompt, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the marks that a prompt has."""
    return {mark: value for mark, value in values.items() if mark in prompt.user}


def _values(image: StudyImage) -> dict[str, str]:
    """Return what the marks of all prompts stand for."""
    return {
        "{report}": image.text,
        "{notes}": _shown(image.context.get("notes")),
        "{metadata}": _shown(image.context.get("metadata")),
        "{bounding_boxes}": _shown(image.context.get("bounding_boxes")),
        "{QA_pairs}": _shown(image.context.get("qa_pairs")),
        "{knowledge_retrieved}": "\n\n".join(image.context.get(PASSAGES, ())),
    }


def _shown(value: object) -> str:
    """Return a text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) if value else _NONE
