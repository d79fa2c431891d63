"""Drafting hallucination questions on each image of a study, by the prompts of MedHEval.

Closed questions on visible content are asked with bounding boxes (figure 5), else with question pairs (figure 4), else
with the report (figure 6). Open questions on knowledge take two requests: one filters what was retrieved, one asks.
The report, notes, metadata and the like are sent, never the file of an image, its path, its id or its group.

A reply is JSON of exactly the requested form, which may be in a fence, after reasoning or a sentence, or under one key.
A field that is missing, unknown, empty or of another type breaks the form of the whole reply.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medtasks.curate.drafts import (
    LONGEST,
    Draft,
    Drafted,
    DraftingPrompt,
    DraftOutcome,
    Job,
    ask,
    draft_all,
    free_text,
    prompts_in,
)
from medtasks.curate.hallucination.hallucination_study import PASSAGES
from medtasks.curate.study import StudyImage, StudyKind, read_images
from medtasks.data.samples import letter
from medtasks.data.sources.medheval_gold import YES_NO, Flag, normalised, parsed_options, resolve_choice, resolve_yes_no
from medtasks.data.sources.medheval_sets import BINARY, COMPONENTS, HALLUCINATIONS
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.judges.judge_client import Judge
from medtasks.net.journal import digest_of

PROMPTS = "hallucination_prompts"
_FILTER, _FILTERED = "knowledge_filter", "{filtered_knowledge}"
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)]
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_BEGIN = re.compile(r"[\[{]")
_TYPES = "|".join(HALLUCINATIONS)
_BANNED = re.compile(r"Do not use phrases like (.+?) in the conversation", re.DOTALL)
_ORDERED = re.compile(r"\b(?:(?i:above|below|all of|none of|both|neither)|[A-Z] (?:and|or) [A-Z])\b")
_UNRESOLVED: Mapping[Flag, str] = {
    Flag.GOLD_SEVERAL: "its answer names several options",
    Flag.GOLD_CONTRADICTORY: "its answer contradicts itself",
    Flag.GOLD_UNRESOLVED: "its answer names no option",
}


class DraftedQuestion(BaseModel):
    """An open question with its answer; base of the other forms."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    question: _Text
    answer: _Text


class YesNoQuestion(DraftedQuestion):
    """A yes/no question."""


class TypedQuestion(DraftedQuestion):
    """A closed question with its type of hallucination."""

    type: Annotated[str, StringConstraints(strip_whitespace=True, pattern=rf"^(?:{_TYPES})\b")]
    ground_truth_type: Literal["binary", "multi-choice"]  # BINARY and MULTI_CHOICE of the published records
    # The constraint excludes half a surrogate pair.
    choices: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] | None = None

    @property
    def hallucination(self) -> str:
        """The type's name; an LLM may add an explanation to it."""
        return next(name for published, name in HALLUCINATIONS.items() if self.type.startswith(published))

    @property
    def binary(self) -> bool:
        """Whether the answer is yes or no."""
        return self.ground_truth_type == BINARY


class ReportComponents(BaseModel):
    """Findings of a report, by aspect."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    anatomy: list[_Text]
    measurement: list[_Text]
    symptom: list[_Text]

    def by_aspect(self) -> Mapping[str, tuple[str, ...]]:
        """Return them in the form of drafts."""
        return {aspect: tuple(getattr(self, aspect)) for aspect in COMPONENTS}


class ReportQuestion(DraftedQuestion):
    """A question for all findings of a report."""

    components: ReportComponents = Field(alias="Structured_Answer")


Q = TypeVar("Q", bound=DraftedQuestion)


_FORMS: Mapping[StudyKind, tuple[str, type[DraftedQuestion]]] = {  # name of the prompt for the form, and its reader
    StudyKind.VISUAL_CLOSED: ("form_visual_closed", TypedQuestion),
    StudyKind.VISUAL_OPEN: ("form_visual_open", ReportQuestion),
    StudyKind.KNOWLEDGE_CLOSED: ("form_yes_no", YesNoQuestion),
    StudyKind.KNOWLEDGE_OPEN: ("form_open", DraftedQuestion),
    StudyKind.CONTEXTUAL: ("form_yes_no", YesNoQuestion),
}


def prompt_for(kind: StudyKind, image: StudyImage) -> DraftingPrompt:
    """Return the paper's prompt for questions of a kind on an image."""
    name = str(kind)
    if kind is StudyKind.VISUAL_CLOSED:
        inputs = {"bounding_boxes": "boxes", "qa_pairs": "pairs"}
        name = f"{kind}_{next((part for field, part in inputs.items() if field in image.context), 'report')}"
    return prompts_in(PROMPTS)[name]


def with_form(prompt: DraftingPrompt, form: str) -> DraftingPrompt:
    """Append one of our reply forms to the system message of a paper's prompt; the name has both."""
    ours = prompts_in(PROMPTS)[form]
    label = f"{prompt.label} + {ours.name}"
    return replace(prompt, name=label, version=ours.version, system=f"{prompt.system}\n\n{ours.user}")


def figures(kind: StudyKind, images: Iterable[StudyImage]) -> Counter[str]:
    """Count the images by the figure of the paper that has their prompt."""
    return Counter(prompt_for(kind, image).source for image in images)


def draft_hallucination(folder: Path, kind: StudyKind, llm: Judge) -> Counter[DraftOutcome]:
    """Draft questions for each image of a study that has none yet, and count the outcomes.

    Errors are those of :func:`~medtasks.curate.drafts.draft_all`.
    """
    jobs: dict[str, Job] = {}
    label = llm.settings.label
    for name, image in read_images(folder).items():
        prompt, values = with_form(prompt_for(kind, image), _FORMS[kind][0]), _mark_values(image)
        digest = prompt.asked(_of(prompt, {_FILTERED: "", **values}), label)
        if kind is StudyKind.KNOWLEDGE_OPEN:
            first = prompts_in(PROMPTS)[_FILTER]
            digest = digest_of(digest, first.asked(_of(first, values), label))[:32]
        line = Drafted(request=name, asked=digest, outcome=DraftOutcome.DRAFTED, llm=label, prompt=prompt.label)
        jobs[name] = digest, partial(_drafted, llm, kind, image, prompt, line)
    return draft_all(folder, jobs, llm.settings.concurrency)


def _drafted(llm: Judge, kind: StudyKind, image: StudyImage, prompt: DraftingPrompt, line: Drafted) -> Drafted:
    """Ask for the questions of one image and complete its line."""
    values = _mark_values(image)
    if kind is StudyKind.KNOWLEDGE_OPEN:
        if not image.context[PASSAGES]:
            why = "no passage of the texts shares a word with its report"
            return line.model_copy(update={"outcome": DraftOutcome.SKIPPED, "reason": why})
        first = prompts_in(PROMPTS)[_FILTER]
        filtered = ask(llm, first, first.filled(_of(first, values)), free_text)
        if filtered.value is None:
            return line.model_copy(update={"outcome": filtered.outcome, "reason": filtered.reason})
        values[_FILTERED] = filtered.value
    read = partial(questions_in, schema=_FORMS[kind][1])
    answer = ask(llm, prompt, prompt.filled(_of(prompt, values)), read)
    drafts = drafts_of(image.image_id, answer.value or (), banned_phrases(prompt.system))
    return line.model_copy(update={"outcome": answer.outcome, "reason": answer.reason, "drafts": drafts})


def _of(prompt: DraftingPrompt, values: Mapping[str, str]) -> dict[str, str]:
    """Return the values of the marks that a prompt has."""
    return {mark: value for mark, value in values.items() if mark in prompt.user}


def _mark_values(image: StudyImage) -> dict[str, str]:
    """Return the values of the marks of all prompts: texts as they are, anything else as JSON."""
    values = {"{report}": image.text, "{knowledge_retrieved}": "\n\n".join(image.context.get(PASSAGES, ()))}
    for mark in ("notes", "metadata", "bounding_boxes", "QA_pairs"):
        value = image.context.get(mark.lower()) or "none given"
        values[f"{{{mark}}}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return values


def questions_in(reply: str, schema: type[Q]) -> Sequence[Q] | None:
    r"""Read the questions of a reply, at least one; None for another form.

    Example:
        >>> questions_in('```json\n[{"question": "Is there a mass?", "answer": "No"}]\n```', YesNoQuestion)
        [YesNoQuestion(question='Is there a mass?', answer='No')]
        >>> questions_in('[{"question": "Is there a mass?"}]', YesNoQuestion) is None
        True
    """
    text = without_thoughts(reply) or ""
    begin = _BEGIN.search(text)
    for part in _FENCED.findall(text) or ([text[begin.start() :]] if begin else []):
        try:
            value = json.JSONDecoder().raw_decode(part.strip())[0]
            if isinstance(value, dict):  # a list under one key, or one question, which may be under one key
                only = next(iter(value.values())) if len(value) == 1 else value
                value = only if isinstance(only, list) else [only]
            if isinstance(value, list) and value:
                return [schema.model_validate(record) for record in value]
        except (ValueError, RecursionError):
            continue
    return None


def banned_phrases(system: str) -> re.Pattern[str] | None:
    """Return a pattern for the phrases that a system message forbids, also as a plural; None if it forbids none.

    Example:
        >>> system = 'Do not use phrases like "mentioned", "bounding boxes" in the conversation.'
        >>> [bool(banned_phrases(system).search(text)) for text in ("the bounding box", "unmentioned")]
        [True, False]
    """
    rule = _BANNED.search(system)
    if rule is None:
        return None
    phrases = [re.escape(phrase.removesuffix("es")) for phrase in re.findall(r'"([^"]+)"', rule[1])]
    return re.compile(rf"\b(?:{'|'.join(phrases)})(?:e?s)?\b", re.IGNORECASE)


def drafts_of(image: str, questions: Sequence[DraftedQuestion], banned: re.Pattern[str] | None) -> tuple[Draft, ...]:
    """Return the drafts of one reply on one image, by its id, those rejected with their reason."""
    drafts, wordings = [], set[str]()
    for number, question in enumerate(questions, 1):
        item = f"{image}/{number}"
        facts: dict[str, Any] = {"options": (), "answers": (question.answer,), "reason": ""}
        if isinstance(question, TypedQuestion):
            facts = _closed(item, question, question.choices or "", question.binary)
            facts["hallucination"] = question.hallucination
        elif isinstance(question, YesNoQuestion):
            facts = _closed(item, question, "", True)
        elif isinstance(question, ReportQuestion):
            facts["components"] = question.components.by_aspect()
            facts["reason"] = "" if any(facts["components"].values()) else "it names no component"
        reason, wording = facts.pop("reason"), normalised(question.question)
        words = "\n".join((question.question, question.answer, *facts["options"]))
        if not reason and wording in wordings:
            reason = "the same question of the same image"
        elif not reason and banned and (phrase := banned.search(words)):
            reason = f"it says '{phrase[0].lower()}', which its prompt forbids"
        wordings.add(wording)
        outcome = DraftOutcome.REJECTED if reason else DraftOutcome.DRAFTED
        drafts.append(
            Draft(item_id=item, images=(image,), question=question.question, outcome=outcome, reason=reason, **facts)
        )
    return tuple(drafts)


def _closed(item: str, question: DraftedQuestion, choices: str, binary: bool) -> dict[str, Any]:
    """Return options and answers of a closed question, and the ``reason`` why there is no answer.

    The item's id decides the order of its options, because LLMs put the right one first, or never last. Options that
    refer to each other ("both A and B") keep their order.
    """
    options = tuple(parsed_options(choices))
    if binary or sorted(map(str.casefold, options)) == ["no", "yes"]:
        options, binary = YES_NO, True
        right, flags = resolve_yes_no(question.answer, question.question, choices)
    else:
        right, flags = resolve_choice(question.answer, options)
    reason = "" if right else next((_UNRESOLVED[flag] for flag in flags if flag in _UNRESOLVED), "")
    if binary:
        reason = reason and "its answer is neither yes nor no"
    elif len(options) < 2:
        reason = "it has fewer than two options that can be told apart"
    elif len({option.casefold().rstrip(".") for option in options}) < len(options):
        reason = "two of its options are equal"
    if reason or not right:
        return {"options": options, "answers": (question.answer,), "reason": reason}
    shuffled = options
    if not binary and not any(_ORDERED.search(option) for option in options):
        shuffled = tuple(sorted(options, key=lambda option: digest_of(item, option)))
    return {"options": shuffled, "answers": (letter(shuffled.index(options[ord(right) - ord("A")])),), "reason": ""}
