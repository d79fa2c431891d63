"""``medtasks curate hallucination``: questions by which hallucinations show, as MedHEval drafted its own."""

import enum
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from medtasks.cli.curate import AccessLevel, MaxRequests, StudyName, say_drafted
from medtasks.cli.output import say, say_columns
from medtasks.curate.drafts import read_drafts
from medtasks.curate.hallucination.hallucination_drafting import draft_hallucination, figures
from medtasks.curate.hallucination.hallucination_study import Knowledge, made_study, planned_study
from medtasks.curate.llm import open_llm
from medtasks.curate.review.reviewer_agreement import balanced, yes_no
from medtasks.curate.study import StudyKind, read_images
from medtasks.data.catalogue import Access
from medtasks.judges.client import Judge


class HallucinationKind(enum.StrEnum):
    """Kinds of questions on reports."""

    VISUAL_CLOSED = StudyKind.VISUAL_CLOSED
    VISUAL_OPEN = StudyKind.VISUAL_OPEN
    KNOWLEDGE_CLOSED = StudyKind.KNOWLEDGE_CLOSED
    KNOWLEDGE_OPEN = StudyKind.KNOWLEDGE_OPEN
    CONTEXTUAL = StudyKind.CONTEXTUAL


def hallucination(
    reports: Annotated[
        Path,
        typer.Argument(
            metavar="REPORTS.jsonl",
            help="One image per line: id, image, report; notes, metadata, qa_pairs, bounding_boxes as the kind needs.",
        ),
    ],
    kind: Annotated[HallucinationKind, typer.Option(help="What the questions are about.")],
    out: Annotated[Path, typer.Option(metavar="STUDY", help="Folder of the study; one begun before goes on.")],
    name: StudyName = None,
    access: AccessLevel = Access.CREDENTIALED,
    knowledge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE_OR_FOLDER",
            help="Texts to retrieve from (.txt, .md, .jsonl with text), for knowledge_open; may be repeated.",
        ),
    ] = None,
    passages: Annotated[int, typer.Option(min=1, help="How many passages are retrieved for a report.")] = 5,
    max_requests: MaxRequests = None,
) -> None:
    """Draft hallucination questions from reports; an interrupted run goes on where it stopped.

    The LLM is an OpenAI-compatible endpoint, named as judges are: MEDTASKS_JUDGE_BASE_URL and MEDTASKS_JUDGE_MODEL.
    """
    texts = Knowledge(tuple(knowledge or ()), passages)
    planned = planned_study(reports, out, StudyKind(kind), name, access, texts)
    llm = open_llm(planned, max_requests)
    study = made_study(out, planned, texts)
    images = read_images(out).values()
    asked = ", ".join(f"{source} ({count})" for source, count in sorted(figures(study.kind, images).items()))
    say(f"{study.name}: {study.kind}, {study.access}, {len(images)} images; asked by {asked}")
    for reason, count in study.made_with["counts"].items():
        say(f"{count} left out: {reason}")
    draft_and_say(out, study.kind, llm)


def draft_and_say(folder: Path, kind: StudyKind, llm: Judge) -> None:
    """Draft what a study lacks, and print by type the number of drafts and of their right answers."""
    counts = draft_hallucination(folder, kind, llm)
    drafts = read_drafts(folder)
    rows = [("type", "drafts", "yes", "no", "letters of other options")]
    for about in sorted({draft.hallucination or "" for draft in drafts.values()}):
        chosen = {item: draft for item, draft in drafts.items() if (draft.hallucination or "") == about}
        decided = dict(yes_no(chosen.items()))
        words = Counter(draft.options[ord(draft.answers[0]) - ord("A")] for draft in decided.values())
        letters = Counter(draft.answers[0] for item, draft in chosen.items() if draft.options and item not in decided)
        shown = ", ".join(f"{letter} {count}" for letter, count in sorted(letters.items()))
        rows.append((about or "all", str(len(chosen)), str(words["Yes"]), str(words["No"]), shown))
    if any(draft.options for draft in drafts.values()):
        say_columns(rows)
    for reason, count in balanced(drafts)[1].items():
        say(f"{reason}: {count} questions, which publishing leaves out to have as many of both")
    say_drafted(folder, counts)
