"""From reviewed drafts to a prepared dataset and tasks of the harness that run like those of the papers.

Publishing a study again replaces what it was published as before; the dataset's fingerprint tells the two apart. A
datasheet in the folders of dataset and study, as JSON and Markdown, says how it was made and what was left out, without
a word of a question.
"""

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medtasks.curate.datasheet import Publication, as_markdown, datasheet
from medtasks.curate.drafts import Draft, read_drafts
from medtasks.curate.review.reviews import (
    UNSCORED,
    accept_drafts,
    balance_answers,
    is_yes_no,
    read_reviews,
)
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    ImagePair,
    Study,
    StudyImage,
    StudyKind,
    checked_name,
    read_images,
    read_pairs,
    read_study,
    write_private,
)
from medtasks.data.dataset_lookup import DATASHEET, own_dataset_info
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.decoding import LINEAR
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.source_recipe import Options, PublishedRow, SourceRecipe, prepare_recipe
from medtasks.data.samples import letter, option_index
from medtasks.data.schema import (
    CLOSED_QUESTION,
    COMPONENT_REPORT,
    CURATED_PAIR,
    OPEN_QUESTION,
    Columns,
    NewDocument,
    new_document,
)
from medtasks.data.sources.medheval_gold import YES_NO
from medtasks.data.sources.medheval_sets import BINARY, COMPONENTS, MULTI_CHOICE
from medtasks.errors import MedTasksError, SourceError
from medtasks.home import dataset_folder
from medtasks.tasks.own_tasks import (
    group_copy,
    groups_of_part,
    refuse_taken,
    task_copy,
    write_task_file,
)
from medtasks.tasks.task_index import SETTINGS

_COMMAND, _OPTION = "medtasks curate publish", "--as"


@dataclass(frozen=True)
class PublishedForm:
    """Columns and tasks that studies of one kind are published with."""

    about: str  # its questions, in a few words
    columns: Columns
    model: str  # published task that the tasks run like
    endings: tuple[str, ...] = ("", "_ll")  # of the tasks, after the name of dataset and ``model``


FORMS: Mapping[StudyKind, PublishedForm] = {
    StudyKind.PAIRS: PublishedForm(
        "Confusing pairs", CURATED_PAIR, "mediconfusion", ("", "_gd", "_ps", "_ff")
    ),
    StudyKind.VISUAL_CLOSED: PublishedForm(
        "Questions on what images show", CLOSED_QUESTION, "medheval_visual_mm"
    ),
    StudyKind.VISUAL_OPEN: PublishedForm(
        "Reports on images", COMPONENT_REPORT, "medheval_visual_report", ("",)
    ),
    StudyKind.KNOWLEDGE_CLOSED: PublishedForm(
        "Questions on medical knowledge", CLOSED_QUESTION, "medheval_knowledge_closed"
    ),
    StudyKind.KNOWLEDGE_OPEN: PublishedForm(
        "Open questions on medical knowledge", OPEN_QUESTION, "medheval_knowledge_open", ("",)
    ),
    StudyKind.CONTEXTUAL: PublishedForm(
        "Questions on notes against images", CLOSED_QUESTION, "medheval_context"
    ),
}


def publish_study(
    folder: Path,
    min_score: int,
    *,
    name: str | None = None,
    wording: str | None = None,
    balance: bool = True,
    allow_incomplete: bool = False,
) -> tuple[Manifest, list[str], list[str], Mapping[str, Any]]:
    """Make a dataset and tasks of the drafts whose questions all reach a score.

    Args:
        folder: The folder of the study.
        min_score: Least score from every reviewer, 1 to 10.
        name: Name of the dataset and the first task. Default: that of the study.
        wording: The reviewer whose words count if reviewers differ.
        balance: Leave out the surplus of one label (hallucination studies).
        allow_incomplete: Leave out questions whose image is missing.

    Returns:
        The dataset's manifest, the names of tasks and of groups, and the :func:`datasheet`.

    Raises:
        MedTasksError: Nothing can be published, or another dataset or task has the name.
        SourceError: A file of the study is damaged.
    """
    study = read_study(folder)
    form = FORMS[study.kind]
    name = checked_name(name or study.name, _OPTION)
    tasks = {form.model + ending: name + ending for ending in form.endings}
    groups = groups_of_part(form.model, name, tasks)
    for task in (*tasks.values(), *groups.values()):
        refuse_taken(task, name, _COMMAND, _OPTION)
    about = _select_questions(folder, study, name, min_score, wording, balance)
    manifest, sheet = _prepare(about, allow_incomplete)
    for model, task in tasks.items():
        description = f"{form.about} of a study of your own, asked and scored as {model}"
        config = task_copy(model, task, name, description)
        # Without settings for the paper's own images, with which Med-Flamingo's solved examples come.
        config["metadata"].pop("checked_against", None)
        settings = config[SETTINGS].items()
        config[SETTINGS] = {
            key: values for key, values in settings if "demonstrations" not in values
        }
        write_task_file(task, config, _COMMAND)
    for model, group in groups.items():
        description = f"{form.about} of a study of your own in their modes side by side, aggregated as {model}"
        write_task_file(group, group_copy(model, group, tasks, description), _COMMAND)
    return manifest, list(tasks.values()), list(groups.values()), sheet


def _select_questions(
    folder: Path, study: Study, name: str, min_score: int, wording: str | None, balance: bool
) -> Publication:
    """Select the questions to publish.

    Raises:
        MedTasksError: There are none, or another dataset has the name.
    """
    _refuse_other_dataset(folder, study, name)
    drafts = read_drafts(folder)
    reviews = read_reviews(folder, study)
    if wording is not None and wording not in {review.reviewer for review in reviews}:
        raise MedTasksError(
            f"'{wording}' has not reviewed '{study.name}'; --wording names a reviewer of it"
        )
    images = read_images(folder)
    of_pairs = study.kind is StudyKind.PAIRS
    _check_listed(folder, study, drafts, images)
    published, left_out = accept_drafts(drafts, reviews, min_score, wording)
    if left_out[UNSCORED] == len(drafts):
        remedy = "make some with 'medtasks curate draft"
        if drafts:
            remedy = "score them with 'medtasks curate review"
        raise MedTasksError(
            f"none of the {len(drafts)} drafts of '{study.name}' has been scored; {remedy} {folder}'"
        )
    if published and balance and not of_pairs:
        even, surplus = balance_answers(published)
        published = {item: draft for item, draft in published.items() if item in even}
        left_out += surplus
    if not published:
        causes = ", ".join(f"{count} {cause}" for cause, count in left_out.most_common())
        remedy = "score more drafts, or lower --min-score"
        if not of_pairs:
            remedy += ", or add --no-balance"
        raise MedTasksError(
            f"nothing of '{study.name}' reaches {min_score} and can be published ({causes}); {remedy}"
        )
    return Publication(
        folder,
        study,
        images,
        name,
        min_score,
        wording,
        balance,
        drafts,
        reviews,
        published,
        left_out,
    )


def _refuse_other_dataset(folder: Path, study: Study, name: str) -> None:
    with contextlib.suppress(FileNotFoundError, SourceError):  # a damaged one may be replaced
        existing = Manifest.read(dataset_folder(name))
        is_this_study = existing.selected_from is None and study.digest == existing.revision
        if not is_this_study and existing.source != str(folder.resolve()):
            raise MedTasksError(
                f"there is a dataset '{name}' from {existing.source} already; choose another name with {_OPTION}, or "
                f"delete {dataset_folder(name)}"
            )


def _check_listed(
    folder: Path, study: Study, drafts: Mapping[str, Draft], images: Mapping[str, StudyImage]
) -> None:
    """Raise SourceError if drafts are about images or pairs that the study does not list."""
    unlisted = {item for item, draft in drafts.items() if not images.keys() >= set(draft.images)}
    pairs = {pair.pair_id for pair in read_pairs(folder)}
    if study.kind is StudyKind.PAIRS:
        unlisted |= drafts.keys() - pairs
    if unlisted:
        raise SourceError(
            f"{len(unlisted)} drafts of '{study.name}' are about images or pairs that {folder / IMAGES} and "
            f"{folder / PAIRS} do not list; bring these files back, or make the study again in another folder"
        )


def _prepare(about: Publication, allow_incomplete: bool) -> tuple[Manifest, Mapping[str, Any]]:
    """Prepare the dataset and write its datasheet, into its folder and that of the study."""
    study = about.study
    source = about.folder.resolve()
    sheet: dict[str, Any] = {}
    files: dict[str, str] = {}
    lost: list[str] = []

    def enclose(work: Path, manifest: Manifest) -> None:
        published = {item: draft for item, draft in about.published.items() if item not in lost}
        left_out = +Counter({**about.left_out, "an image is missing, changed or broken": len(lost)})
        outcome = replace(about, published=published, left_out=left_out)
        sheet.update(datasheet(outcome, manifest))
        files[DATASHEET] = json.dumps(sheet, indent=2) + "\n"
        files["datasheet.md"] = as_markdown(sheet)
        for file, text in files.items():
            (work / file).write_text(text, encoding="utf-8")

    recipe = SourceRecipe(
        columns=FORMS[study.kind].columns,
        test=lambda _, store: _rows(about, store, lost),
        layout="a study",
        revision=lambda _: study.digest,
        decoding=LINEAR,
        enclose=enclose,
    )
    info = own_dataset_info(about.name, f"{study.kind}, from {source}", str(source), study.access)
    manifest = prepare_recipe(
        info, recipe, Options(about.folder, allow_incomplete=allow_incomplete)
    )
    for file, text in files.items():
        write_private(about.folder / file, text)
    return manifest, sheet


def _rows(about: Publication, store: ImageStore, lost: list[str]) -> Iterator[PublishedRow]:
    """Yield the documents in the order of the study's pairs or images.

    Args:
        about: Publication with the drafts.
        store: Images of the dataset, to which theirs are added.
        lost: Receives the items of drafts one of whose images cannot be used.
    """
    of_pairs = about.study.kind is StudyKind.PAIRS
    pairs = {pair.pair_id: pair for pair in read_pairs(about.folder)}
    lines = {image_id: line for line, image_id in enumerate(about.images, 1)}
    ranks = {name: rank for rank, name in enumerate(pairs if of_pairs else about.images)}

    @functools.cache
    def stored(image_id: str) -> StoredImage | str:
        try:
            return store.add_bytes(about.images[image_id].read())
        except UnreadableImage as error:
            # The line instead of the id, which may tell who a patient is.
            return f"the image in line {lines[image_id]} of {IMAGES} cannot be used: {error}"

    def order(draft: Draft) -> tuple[int, int, str]:
        number = draft.item_id.rpartition("/")[2]
        return ranks[draft.item_id if of_pairs else draft.images[0]], len(number), number

    for draft in sorted(about.published.values(), key=order):
        results = [stored(image_id) for image_id in draft.images]
        images = [result for result in results if isinstance(result, StoredImage)]
        causes = [result for result in results if isinstance(result, str)]
        if causes:
            lost.append(draft.item_id)
            yield PublishedRow("", None, cause=causes[0])
            continue
        pair = pairs.get(draft.item_id)
        for position, image in enumerate(images):
            study_image = about.images[draft.images[position]]
            content = document(about.study, draft, position, study_image, pair)
            yield PublishedRow(IMAGES, content, [image])


def document(
    study: Study, draft: Draft, position: int, image: StudyImage, pair: ImagePair | None
) -> NewDocument:
    """Return the columns of one question but for dataset and image file.

    Args:
        study: The study.
        draft: The question in its reviewed words.
        position: Position of the image in the draft, from 0.
        image: The image.
        pair: Its pair; None unless the study is one of pairs.
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
    (answer,) = draft.answers
    columns = FORMS[study.kind].columns
    if columns is CLOSED_QUESTION:
        right = draft.options[option_index(answer)]
        is_binary = is_yes_no(draft)
        options = YES_NO if is_binary else draft.options
        listed = ", ".join(f"{letter(index)}. {text}" for index, text in enumerate(options))
        content: dict[str, Any] = {
            "kind": BINARY if is_binary else MULTI_CHOICE,
            "choices": "" if is_binary else listed,
            "options": list(options),
            "answer": letter(options.index(right)),
            "gold": right,
            "flags": [],
            "hallucination": draft.hallucination,
            "source": study.name,
        }
    elif columns is OPEN_QUESTION:
        content = {"answer": answer}
    else:
        components = draft.components or {}
        content = {name: list(components.get(name, ())) for name in COMPONENTS}
        content["report"] = answer
    about = {"image_id": image.image_id, "patient_id": image.group, "question": draft.question}
    return new_document(columns, draft.item_id, **about, **content)
