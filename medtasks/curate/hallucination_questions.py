"""From reports to hallucination questions: their study, and drafts on each image by the prompts of MedHEval.

Closed questions on visible content are asked with bounding boxes (figure 5), else with question pairs (figure 4), else
with the report (figure 6). Open questions on knowledge take two requests: one filters what was retrieved, one asks.
Knowledge for a report is retrieved from the user's own texts, passage by passage, by BM25. MedHEval retrieves from
radiology textbooks and USMLE questions and does not describe the method.
The report, notes, metadata and the like are sent, never the file of an image, its path, its id or its group.

A reply is JSON of exactly the requested form, which may be in a fence, after reasoning or a sentence, or under one key.
A field that is missing, unknown, empty or of another type breaks the form of the whole reply.
"""

import hashlib
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from tqdm import tqdm

from medtasks.curate.drafts import LONGEST, Draft, DraftingPrompt, DraftOutcome, Job, draft_all, job_of, prompts_in
from medtasks.curate.study import (
    IMAGES,
    Study,
    StudyImage,
    StudyKind,
    begun,
    checked_name,
    list_rows,
    read_images,
    write_lines,
    write_study,
)
from medtasks.data.catalogue import Access
from medtasks.data.dataset_manifest import file_sha256
from medtasks.data.images.decoding import LINEAR, decoded, fault_of_kind
from medtasks.data.named_files import read_file
from medtasks.data.prepare.source_files import SourceFile, SourceRow, json_lines
from medtasks.data.samples import letter
from medtasks.data.sources.medheval_gold import YES_NO, Flag, normalised, parsed_options, resolve_choice, resolve_yes_no
from medtasks.data.sources.medheval_sets import BINARY, COMPONENTS, HALLUCINATIONS
from medtasks.errors import MedTasksError, SourceError
from medtasks.extract.reading.reply_text import without_thoughts
from medtasks.judges.judge_client import Judge
from medtasks.net.journal import digest_of

PASSAGES = "passages"
"""Key of the passages retrieved for a report."""
PASSAGE = 1000
"""Most characters of a passage."""
_ENDINGS = (".txt", ".md", ".jsonl")
_SHOWN = ("bounding_boxes", "qa_pairs")  # enough for a visual question without a report
_CONTEXT: Mapping[StudyKind, tuple[str, ...]] = {
    StudyKind.VISUAL_CLOSED: ("metadata", *_SHOWN),
    StudyKind.CONTEXTUAL: ("notes",),
}


def planned_study(
    reports: Path,
    folder: Path,
    kind: StudyKind,
    name: str | None,
    access: Access,
    knowledge: Sequence[Path] = (),
    passages: int = 5,
) -> Study:
    """Return the study of a file of reports, before these are read; ``name`` is by default that of its folder.

    ``knowledge`` are files and folders of texts to retrieve from, ``passages`` the number shown with a report.
    """
    retrieves = kind is StudyKind.KNOWLEDGE_OPEN
    if retrieves != bool(knowledge):
        raise MedTasksError(
            "knowledge_open retrieves from texts of your own; name them with --knowledge FILE_OR_FOLDER"
            if retrieves
            else f"--knowledge is for knowledge_open, and {kind} retrieves nothing; leave it out"
        )
    if not reports.is_file():
        raise SourceError(f"there is no file {reports}; name a JSONL file with id, image and report in each line")
    texts = knowledge_files(knowledge)
    made_with = {
        "reports": file_sha256(reports)[:16],
        "knowledge": digest_of([file_sha256(file) for file in texts])[:16] if retrieves else None,
        "passages": passages if retrieves else None,
    }
    chosen = checked_name(name or folder.resolve().name)
    return Study(name=chosen, kind=kind, access=access, source=str(reports.resolve()), made_with=made_with)


def made_study(folder: Path, planned: Study, knowledge: Sequence[Path] = ()) -> Study:
    """Return the study in a folder, made from its reports unless it exists; it counts what is left out.

    Each line of the JSONL file of reports has ``id`` and ``image``, a path relative to the file's folder, and the
    fields that its kind needs of ``report``, ``notes``, ``metadata``, ``qa_pairs`` and ``bounding_boxes``; it may have
    ``group`` and ``licence``.
    """
    if study := begun(folder, planned):
        return study
    path, find = Path(planned.source), None
    if knowledge:
        find = retriever(read_passages(knowledge_files(knowledge)), planned.made_with["passages"])
    images: list[StudyImage] = []
    left_out: Counter[str] = Counter()
    for row in tqdm(list_rows(path, "id", "image"), "Reading", unit="report", disable=None):
        image = _image(path.parent, row, planned.kind, find)
        if isinstance(image, StudyImage):
            images.append(image)
        else:
            left_out[image] += 1
    if not images:
        why = ", ".join(f"{reason} ({count})" for reason, count in left_out.items())
        raise SourceError(f"{path} has nothing that {planned.kind} can be made of: {why or 'it is empty'}")
    study = planned.model_copy(update={"made_with": {**planned.made_with, "counts": dict(left_out)}})
    write_lines(folder / IMAGES, images)
    write_study(folder, study)
    return study


def _image(folder: Path, row: SourceRow, kind: StudyKind, find: Callable[[str], list[str]] | None) -> StudyImage | str:
    report = (row.optional_text("report") or "").strip()
    context: dict[str, Any] = {name: row.values[name] for name in _CONTEXT.get(kind, ()) if row.values.get(name)}
    if kind is StudyKind.CONTEXTUAL and not (row.optional_text("notes") or "").strip():
        return "it has no notes"
    if not report and not any(name in context for name in _SHOWN):
        others = ", no question pairs and no bounding boxes" if kind is StudyKind.VISUAL_CLOSED else ""
        return f"it has no report{others}"
    file = folder.resolve() / row.text("image")
    try:
        data = read_file(file)
    except (OSError, ValueError):  # also of a text that cannot be a file's name
        return "its image file cannot be opened"
    try:
        decoded(file, LINEAR)
    except OSError as error:
        return fault_of_kind(error) or "its image cannot be read"
    if find is not None:
        context[PASSAGES] = find(report)
    return StudyImage(
        image_id=row.name("id"),
        file=str(file),
        sha256=hashlib.sha256(data).hexdigest(),
        text=report,
        group=row.name("group") if row.values.get("group") is not None else None,
        licence=row.optional_text("licence"),
        context=context,
    )


def knowledge_files(paths: Sequence[Path]) -> list[Path]:
    """List the text files of files and folders, in order; SourceError if one has none."""
    texts: list[Path] = []
    for path in paths:
        files = sorted(file for file in path.rglob("*") if file.suffix in _ENDINGS) if path.is_dir() else [path]
        if not files or not all(file.is_file() and file.suffix in _ENDINGS for file in files):
            raise SourceError(f"{path} is no {', '.join(_ENDINGS)} file and no folder with any")
        texts += files
    return list(dict.fromkeys(texts))


def read_passages(files: Sequence[Path]) -> list[str]:
    """Return the passages of files in order, each once: whole paragraphs of up to 1,000 characters together.

    A longer paragraph is cut at white space. A JSONL file has its texts under ``text``.
    """
    texts: list[str] = []
    for file in files:
        try:
            if file.suffix == ".jsonl":
                texts += [row.text("text") for row in json_lines(SourceFile(file), ("text",)).rows()]
            else:
                texts.append(file.read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise SourceError(f"{file} is no text in UTF-8") from error
    passages: dict[str, None] = {}
    for text in texts:
        gathered = ""
        for paragraph in re.split(r"\n\s*\n", text):
            for piece in textwrap.wrap(" ".join(paragraph.split()), PASSAGE, break_on_hyphens=False):
                if gathered and len(gathered) + len(piece) + 1 > PASSAGE:
                    passages[gathered] = None
                    gathered = ""
                gathered = f"{gathered}\n{piece}" if gathered else piece
        if gathered:
            passages[gathered] = None
    if not passages:
        raise SourceError(f"{files[0]} and the other texts hold nothing to retrieve")
    return list(passages)


def retriever(passages: Sequence[str], count: int) -> Callable[[str], list[str]]:
    """Return a search of up to ``count`` passages that share a word with a text, by bm25s.

    That is Lucene's BM25 without English stop words. The best come first, of equal ones the earlier.
    """
    try:
        import bm25s
    except ImportError as error:
        raise MedTasksError(
            "to retrieve knowledge needs bm25s; install it with: pip install 'medtasks[curate]'"
        ) from error
    tokenize = partial(bm25s.tokenize, return_ids=False, show_progress=False)
    index = bm25s.BM25()
    index.index(tokenize(list(passages)), show_progress=False)

    def best(text: str) -> list[str]:
        tokens = index.get_tokens_ids(tokenize([text])[0])
        if not tokens:
            return []
        scores = index.get_scores_from_ids(tokens)
        order = np.argsort(-scores, kind="stable")[:count]
        return [passages[number] for number in order if scores[number] > 0]

    return best


PROMPTS = "hallucination_prompts"
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)]
_FENCED = re.compile(r"```(?:json)?[^\S\n]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
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

    type: Annotated[str, StringConstraints(strip_whitespace=True, pattern=rf"^(?:{'|'.join(HALLUCINATIONS)})\b")]
    ground_truth_type: Literal["binary", "multi-choice"]  # BINARY and MULTI_CHOICE of the published records
    # The constraint excludes half a surrogate pair.
    choices: Annotated[str, StringConstraints(strip_whitespace=True, max_length=LONGEST)] | None = None


class ReportComponents(BaseModel):
    """Findings of a report, by aspect."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    anatomy: list[_Text]
    measurement: list[_Text]
    symptom: list[_Text]


class ReportQuestion(DraftedQuestion):
    """A question for all findings of a report."""

    components: ReportComponents = Field(alias="Structured_Answer")


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


def draft_hallucination(folder: Path, kind: StudyKind, llm: Judge) -> Counter[DraftOutcome]:
    """Draft questions for each image of a study that has none yet, and count the outcomes."""
    form, schema = prompts_in(PROMPTS)[_FORMS[kind][0]], _FORMS[kind][1]
    retrieves = kind is StudyKind.KNOWLEDGE_OPEN
    first = (prompts_in(PROMPTS)["knowledge_filter"], "{filtered_knowledge}") if retrieves else None
    jobs: dict[str, Job] = {}
    for name, image in read_images(folder).items():
        prompt = prompt_for(kind, image)  # of the paper; our form of replies follows its system message
        label, system = f"{prompt.label} + {form.name}", f"{prompt.system}\n\n{form.user}"
        prompt = replace(prompt, name=label, version=form.version, system=system)
        # The values of the marks of all prompts: texts as they are, anything else as JSON.
        values = {"{report}": image.text, "{knowledge_retrieved}": "\n\n".join(image.context.get(PASSAGES, ()))}
        for mark in ("notes", "metadata", "bounding_boxes", "QA_pairs"):
            value = image.context.get(mark.lower()) or "none given"
            values[f"{{{mark}}}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        read = partial(drafts_in, schema, name, banned_phrases(prompt.system))
        skip = "no passage of the texts shares a word with its report" if first and not image.context[PASSAGES] else ""
        jobs[name] = job_of(llm, name, prompt, values, read, skip=skip, first=first)
    return draft_all(folder, jobs, llm.settings.concurrency)


def banned_phrases(system: str) -> re.Pattern[str] | None:
    """Return a pattern for the phrases that a system message forbids, also as a plural; None if it forbids none."""
    rule = re.search(r"Do not use phrases like (.+?) in the conversation", system, re.DOTALL)
    if rule is None:
        return None
    phrases = [re.escape(phrase.removesuffix("es")) for phrase in re.findall(r'"([^"]+)"', rule[1])]
    return re.compile(rf"\b(?:{'|'.join(phrases)})(?:e?s)?\b", re.IGNORECASE)


def drafts_in(
    schema: type[DraftedQuestion], image: str, banned: re.Pattern[str] | None, reply: str
) -> dict[str, tuple[Draft, ...]] | None:
    """Read the ``drafts`` of a reply on one image, by its id, those rejected with their reason; None for another form.

    There is at least one question, each of the form of the ``schema``.
    """
    text = without_thoughts(reply) or ""
    begin = re.search(r"[\[{]", text)
    questions: list[DraftedQuestion] = []
    for part in _FENCED.findall(text) or ([text[begin.start() :]] if begin else []):
        try:
            value = json.JSONDecoder().raw_decode(part.strip())[0]
            if isinstance(value, dict):  # a list under one key, or one question, which may be under one key
                only = next(iter(value.values())) if len(value) == 1 else value
                value = only if isinstance(only, list) else [only]
            questions = [schema.model_validate(record) for record in value] if isinstance(value, list) else []
        except (ValueError, RecursionError):
            continue
        if questions:
            break
    if not questions:
        return None
    drafts, wordings = [], set[str]()
    for number, question in enumerate(questions, 1):
        item = f"{image}/{number}"
        facts: dict[str, Any] = {"options": (), "answers": (question.answer,), "reason": ""}
        if isinstance(question, TypedQuestion):
            facts = _closed(item, question, question.choices or "", question.ground_truth_type == BINARY)
            # An LLM may add an explanation to the type's name.
            names = (name for published, name in HALLUCINATIONS.items() if question.type.startswith(published))
            facts["hallucination"] = next(names)
        elif isinstance(question, YesNoQuestion):
            facts = _closed(item, question, "", True)
        elif isinstance(question, ReportQuestion):
            facts["components"] = {aspect: tuple(getattr(question.components, aspect)) for aspect in COMPONENTS}
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
    return {"drafts": tuple(drafts)}


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
