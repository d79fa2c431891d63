"""From reports to hallucination questions: drafts on each image of a study by the prompts of MedHEval.

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
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from medtasks.curate.drafts import (
    LONGEST,
    Draft,
    DraftingPrompt,
    DraftOutcome,
    draft_all,
    job_of,
    prompts_in,
)
from medtasks.curate.report_studies import PASSAGES
from medtasks.curate.study import StudyImage, StudyKind, read_images
from medtasks.data.samples import letter, option_index
from medtasks.data.sources.medheval_gold import (
    YES_NO,
    Flag,
    normalise,
    parsed_options,
    resolve_choice,
    resolve_yes_no,
)
from medtasks.data.sources.medheval_sets import BINARY, COMPONENTS, HALLUCINATIONS
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.judges.judge_client import Judge
from medtasks.net.journal import digest_of

PROMPTS = "hallucination_prompts"
_Text = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)
]
# The constraint excludes half a surrogate pair.
_Choices = Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)]
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_ORDERED = re.compile(
    r"\b(?:(?i:above|below|all of|none of|both|neither)|[A-Z] (?:and|or) [A-Z])\b"
)
_UNRESOLVED: Mapping[Flag, str] = {
    Flag.GOLD_SEVERAL: "its answer names several options",
    Flag.GOLD_CONTRADICTORY: "its answer contradicts itself",
    Flag.GOLD_UNRESOLVED: "its answer names no option",
}


class DraftedQuestion(BaseModel):
    """An open question with its answer, and the base of the other forms."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    question: _Text
    answer: _Text


class YesNoQuestion(DraftedQuestion):
    """A yes/no question."""


class TypedQuestion(DraftedQuestion):
    """A closed question with its type of hallucination."""

    type: Annotated[
        str,
        StringConstraints(strip_whitespace=True, pattern=rf"^(?:{'|'.join(HALLUCINATIONS)})\b"),
    ]
    # These are BINARY and MULTI_CHOICE of the published records.
    ground_truth_type: Literal["binary", "multi-choice"]
    choices: _Choices | None = None


class ReportComponents(BaseModel):
    """Findings of a report, by aspect."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    anatomy: list[_Text]
    measurement: list[_Text]
    symptom: list[_Text]


class ReportQuestion(DraftedQuestion):
    """A question for all findings of a report."""

    components: ReportComponents = Field(alias="Structured_Answer")


# By kind of study: name of the prompt that asks for a form of replies, and the schema that reads this form.
_FORMS: Mapping[StudyKind, tuple[str, type[DraftedQuestion]]] = {
    StudyKind.VISUAL_CLOSED: ("form_visual_closed", TypedQuestion),
    StudyKind.VISUAL_OPEN: ("form_visual_open", ReportQuestion),
    StudyKind.KNOWLEDGE_CLOSED: ("form_yes_no", YesNoQuestion),
    StudyKind.KNOWLEDGE_OPEN: ("form_open", DraftedQuestion),
    StudyKind.CONTEXTUAL: ("form_yes_no", YesNoQuestion),
}


def prompt_for(kind: StudyKind, image: StudyImage) -> DraftingPrompt:
    """Return the paper's prompt for questions of a kind on an image.

    Args:
        kind: Kind of the study. Closed visual questions have three prompts.
        image: The image. Its context decides between the three: bounding boxes, question pairs or the report alone.
    """
    name = str(kind)
    if kind is StudyKind.VISUAL_CLOSED:
        if "bounding_boxes" in image.context:
            name += "_boxes"
        elif "qa_pairs" in image.context:
            name += "_pairs"
        else:
            name += "_report"
    return prompts_in(PROMPTS)[name]


def draft_hallucination(folder: Path, kind: StudyKind, llm: Judge) -> Counter[DraftOutcome]:
    """Draft questions for each image of a study that has none yet.

    Returns:
        The number of images by outcome, those of earlier runs included.
    """
    prompts = prompts_in(PROMPTS)
    form_name, schema = _FORMS[kind]
    form = prompts[form_name]
    first = None
    if kind is StudyKind.KNOWLEDGE_OPEN:
        first = (prompts["knowledge_filter"], "{filtered_knowledge}")
    jobs = {}
    for name, image in read_images(folder).items():
        # The prompt is the paper's, and our form of replies follows its system message.
        published = prompt_for(kind, image)
        prompt = replace(
            published,
            name=f"{published.label} + {form.name}",
            version=form.version,
            system=f"{published.system}\n\n{form.user}",
        )
        read = partial(drafts_in, schema, name, banned_phrases(prompt.system))
        skip = ""
        if first and not image.context[PASSAGES]:
            skip = "no passage of the texts shares a word with its report"
        # For the marks of all prompts: texts as they are, anything else as JSON.
        values = {
            "{report}": image.text,
            "{knowledge_retrieved}": "\n\n".join(image.context.get(PASSAGES, ())),
        }
        for mark in ("notes", "metadata", "bounding_boxes", "QA_pairs"):
            value = image.context.get(mark.lower()) or "none given"
            if not isinstance(value, str):
                value = json.dumps(value, ensure_ascii=False)
            values[f"{{{mark}}}"] = value
        jobs[name] = job_of(llm, name, prompt, values, read, skip=skip, first=first)
    return draft_all(folder, jobs, llm.settings.concurrency)


def banned_phrases(system: str) -> re.Pattern[str] | None:
    """Return a pattern for the phrases that a system message forbids, also as a plural.

    It is None for a message that forbids no phrase.

    Example:
        >>> rule = 'Do not use phrases like "mentioned", "the report" in the conversation.'
        >>> banned_phrases(rule).search("What do the reports say?")[0]
        'the reports'
    """
    rule = re.search(r"Do not use phrases like (.+?) in the conversation", system, re.DOTALL)
    if rule is None:
        return None
    phrases = [
        re.escape(phrase.removesuffix("es")) for phrase in re.findall(r'"([^"]+)"', rule[1])
    ]
    return re.compile(rf"\b(?:{'|'.join(phrases)})(?:e?s)?\b", re.IGNORECASE)


def drafts_in(
    schema: type[DraftedQuestion],
    image: str,
    banned: re.Pattern[str] | None,
    reply: str,
) -> dict[str, tuple[Draft, ...]] | None:
    """Read the ``drafts`` of a reply on one image, those rejected with their reason.

    Args:
        schema: Form of each question.
        image: Id of the image. A question's id is ``<image>/<number from 1>``.
        banned: Pattern of phrases that a question must not use, see :func:`banned_phrases`.
        reply: Text of the LLM, with or without reasoning.

    Returns:
        Fields of the request's journal line, or None if there is no question or one of another form.
    """
    questions = _questions_in(without_thoughts(reply) or "", schema)
    if not questions:
        return None
    drafts = []
    wordings = set[str]()
    for number, question in enumerate(questions, 1):
        item = f"{image}/{number}"
        facts = _facts_of(item, question)
        reason = facts.pop("reason")
        wording = normalise(question.question)
        words = "\n".join((question.question, question.answer, *facts["options"]))
        phrase = banned.search(words) if banned else None
        if not reason:
            if wording in wordings:
                reason = "the same question of the same image"
            elif phrase:
                reason = f"it says '{phrase[0].lower()}', which its prompt forbids"
        wordings.add(wording)
        drafts.append(
            Draft(
                item_id=item,
                images=(image,),
                question=question.question,
                outcome=DraftOutcome.REJECTED if reason else DraftOutcome.DRAFTED,
                reason=reason,
                **facts,
            )
        )
    return {"drafts": tuple(drafts)}


def _questions_in(text: str, schema: type[DraftedQuestion]) -> list[DraftedQuestion]:
    """Read the questions of the first fence that has any, or of a text without fences from its first bracket on."""
    parts = _FENCED.findall(text)
    begin = re.search(r"[\[{]", text)
    if begin and not parts:
        parts = [text[begin.start() :]]
    for part in parts:
        try:
            value = json.JSONDecoder().raw_decode(part.strip())[0]
            questions = [schema.model_validate(record) for record in _records(value)]
        except (ValueError, RecursionError):
            continue
        if questions:
            return questions
    return []


def _records(value: Any) -> list[Any]:
    """Return the records of a list, or one record alone. Either may be under a key, the only one of a mapping."""
    is_mapping = isinstance(value, dict)
    if is_mapping and len(value) == 1:
        value = next(iter(value.values()))
    if isinstance(value, list):
        return value
    return [value] if is_mapping else []


def _facts_of(item: str, question: DraftedQuestion) -> dict[str, Any]:
    """Return fields of the draft of a question: options, answers, what else its form has, and ``reason``.

    The ``reason`` to reject the draft is empty for one to keep.
    """
    if isinstance(question, YesNoQuestion):
        return _closed_facts(item, question, "", True)
    if isinstance(question, TypedQuestion):
        is_binary = question.ground_truth_type == BINARY
        facts = _closed_facts(item, question, question.choices or "", is_binary)
        # An LLM may add an explanation to the type's name.
        published = next(name for name in HALLUCINATIONS if question.type.startswith(name))
        return {**facts, "hallucination": HALLUCINATIONS[published]}
    facts = {"options": (), "answers": (question.answer,), "reason": ""}
    if isinstance(question, ReportQuestion):
        components = {
            aspect: tuple(getattr(question.components, aspect)) for aspect in COMPONENTS
        }
        facts["components"] = components
        if not any(components.values()):
            facts["reason"] = "it names no component"
    return facts


def _closed_facts(
    item: str,
    question: DraftedQuestion,
    choices: str,
    binary: bool,
) -> dict[str, Any]:
    """Return options and answers of a closed question, and the ``reason`` to reject it, which may be empty.

    The item's id decides the order of its options, because LLMs put the right one first, or never last. Options that
    refer to each other ("both A and B") keep their order.
    """
    options = tuple(parsed_options(choices))
    if binary or sorted(map(str.casefold, options)) == ["no", "yes"]:
        options = YES_NO
        binary = True
        right, flags = resolve_yes_no(question.answer, question.question, choices)
    else:
        right, flags = resolve_choice(question.answer, options)
    reason = _fault_of(options, binary, right, flags)
    if reason or not right:
        return {"options": options, "answers": (question.answer,), "reason": reason}
    shuffled = options
    if not binary and not any(_ORDERED.search(option) for option in options):
        shuffled = tuple(sorted(options, key=lambda option: digest_of(item, option)))
    answer = letter(shuffled.index(options[option_index(right)]))
    return {"options": shuffled, "answers": (answer,), "reason": ""}


def _fault_of(
    options: Sequence[str],
    binary: bool,
    right: str | None,
    flags: Iterable[Flag],
) -> str:
    """Describe the fault of a closed question. The text is empty if it has none.

    Args:
        options: Options of the question.
        binary: Whether the options are yes and no.
        right: Letter of the right option, None if the drafted answer names no option, or several.
        flags: Oddities of the drafted answer.
    """
    if not binary:
        if len(options) < 2:
            return "it has fewer than two options that can be told apart"
        if len({option.casefold().rstrip(".") for option in options}) < len(options):
            return "two of its options are equal"
    cause = next(filter(None, map(_UNRESOLVED.get, flags)), "")
    if right or not cause:
        return ""
    return "its answer is neither yes nor no" if binary else cause
