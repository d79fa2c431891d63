"""What the questions of a study are in a prepared dataset, and the tasks that ask them: those of the papers."""

from collections.abc import Mapping
from dataclasses import dataclass

from medtasks.curate.drafts import Draft
from medtasks.curate.study import ImagePair, Study, StudyImage, StudyKind
from medtasks.data.medheval.gold import YES_NO
from medtasks.data.medheval.records import BINARY, COMPONENTS, MULTI_CHOICE
from medtasks.data.samples import letter, option_index
from medtasks.data.schema import (
    CLOSED_QUESTION,
    COMPONENT_REPORT,
    CURATED_PAIR,
    OPEN_QUESTION,
    Columns,
    Document,
    new_document,
)


@dataclass(frozen=True)
class Form:
    """What studies of one kind are published as."""

    about: str  # its questions, in a few words
    columns: Columns
    tasks: Mapping[str, str]  # published task that each runs like, by what stands behind the dataset's name
    group: str | None = None  # published group that aggregates them
    grouped: tuple[str, ...] = ()  # which of them are in it


def _closed(about: str, model: str) -> Form:
    return Form(about, CLOSED_QUESTION, {"": model, "_ll": f"{model}_ll"})


FORMS: Mapping[StudyKind, Form] = {
    StudyKind.PAIRS: Form(
        "Confusing pairs",
        CURATED_PAIR,
        {ending: f"mediconfusion{ending}" for ending in ("", "_gd", "_ps", "_ff")},
        "mediconfusion_all",
        ("", "_gd", "_ps"),
    ),
    StudyKind.VISUAL_CLOSED: _closed("Questions on what images show", "medheval_visual_mm"),
    StudyKind.VISUAL_OPEN: Form("Reports on images", COMPONENT_REPORT, {"": "medheval_visual_report"}),
    StudyKind.KNOWLEDGE_CLOSED: _closed("Questions on medical knowledge", "medheval_knowledge_closed"),
    StudyKind.KNOWLEDGE_OPEN: Form(
        "Open questions on medical knowledge", OPEN_QUESTION, {"": "medheval_knowledge_open"}
    ),
    StudyKind.CONTEXTUAL: _closed("Questions on notes against images", "medheval_context"),
}


def document(study: Study, draft: Draft, position: int, image: StudyImage, pair: ImagePair | None) -> Document:
    """Return the columns of one question but for dataset and image file.

    ``position`` is that of the image in the draft, from 0; ``pair`` that of a study of pairs.
    """
    if pair is not None:
        return new_document(
            CURATED_PAIR,
            f"{pair.pair_id}/{position + 1}",
            pair_id=pair.pair_id,
            position=position + 1,
            image_id=image.image_id,
            question=draft.question,
            options=list(draft.options),
            answer=draft.answers[position],
            categories=list(draft.categories[position]) if draft.categories else [],
            licence=image.licence,
            sim_med=pair.sim_med,
            sim_gen=pair.sim_gen,
        )
    shared = {"image_id": image.image_id, "patient_id": image.group, "question": draft.question}
    columns = FORMS[study.kind].columns
    if columns is CLOSED_QUESTION:
        about = {"hallucination": draft.hallucination, "source": study.name}
        return new_document(columns, draft.item_id, **shared, **_choice(draft), **about)
    (answer,) = draft.answers
    if columns is OPEN_QUESTION:
        return new_document(columns, draft.item_id, **shared, answer=answer)
    components = {name: list((draft.components or {}).get(name, ())) for name in COMPONENTS}
    return new_document(columns, draft.item_id, **shared, report=answer, **components)


def _choice(draft: Draft) -> Document:
    """Return the columns about options; those of choices are listed as most of the published ones are."""
    (answer,) = draft.answers
    right = draft.options[option_index(answer)]
    is_binary = sorted(draft.options) == sorted(YES_NO)
    options = YES_NO if is_binary else draft.options
    listed = ", ".join(f"{letter(index)}. {text}" for index, text in enumerate(options))
    return {
        "kind": BINARY if is_binary else MULTI_CHOICE,
        "choices": "" if is_binary else listed,
        "options": list(options),
        "answer": letter(options.index(right)),
        "gold": right,
        "flags": [],
    }
