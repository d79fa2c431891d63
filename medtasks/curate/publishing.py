"""From reviewed drafts to a prepared dataset and tasks of the harness that run like those of the papers.

Publishing a study again replaces what it was published as before; the dataset's fingerprint tells the two apart. A
datasheet in the folders of dataset and study, as JSON and Markdown, says how it was made and what was left out, without
a word of a question.
"""

import contextlib
import functools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medtasks.curate.datasheet import Publication, as_markdown, datasheet
from medtasks.curate.drafts import Draft, Drafts, read_drafts
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
    pairs_by_id,
    read_images,
    read_study,
    write_private,
)
from medtasks.data.dataset_lookup import DATASHEET, own_dataset_info
from medtasks.data.dataset_manifest import Manifest
from medtasks.data.images.decoding import LINEAR
from medtasks.data.images.image_store import ImageStore, StoredImage
from medtasks.data.images.strict_pillow import UnreadableImage
from medtasks.data.prepare.source_recipe import (
    Options,
    PublishedRow,
    SourceRecipe,
    prepare_recipe,
)
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

_COMMAND = "medtasks curate publish"
_OPTION = "--as"


@dataclass(frozen=True)
class Form:
    """Columns and tasks that studies of one kind are published with."""

    about: str  # description of the questions, in a few words
    columns: Columns
    model: str  # published task that the tasks run like
    # Endings of the tasks' names, after the dataset's name, and after that of the published task.
    endings: tuple[str, ...] = ("", "_ll")


FORMS: Mapping[StudyKind, Form] = {
    StudyKind.PAIRS: Form(
        "Confusing pairs", CURATED_PAIR, "mediconfusion", ("", "_gd", "_ps", "_ff")
    ),
    StudyKind.VISUAL_CLOSED: Form(
        "Questions on what images show", CLOSED_QUESTION, "medheval_visual_mm"
    ),
    StudyKind.VISUAL_OPEN: Form(
        "Reports on images", COMPONENT_REPORT, "medheval_visual_report", ("",)
    ),
    StudyKind.KNOWLEDGE_CLOSED: Form(
        "Questions on medical knowledge", CLOSED_QUESTION, "medheval_knowledge_closed"
    ),
    StudyKind.KNOWLEDGE_OPEN: Form(
        "Open questions on medical knowledge", OPEN_QUESTION, "medheval_knowledge_open", ("",)
    ),
    StudyKind.CONTEXTUAL: Form(
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
    """Make a dataset and tasks from the drafts whose questions all reach a score.

    Args:
        folder: Folder of the study.
        min_score: Least score of a question, from 1 to 10.
        name: Name of the dataset and its first task, by default that of the study (None).
        wording: The reviewer whose words count if reviewers differ. None leaves out such drafts.
        balance: Whether to leave out the surplus of one label (hallucination studies).
        allow_incomplete: Whether to leave out drafts whose images cannot be used.

    Returns:
        The dataset's manifest, the names of tasks, those of groups, and the :func:`datasheet`.

    Raises:
        MedTasksError: Nothing can be published, or the name is taken.
    """
    study = read_study(folder)
    form = FORMS[study.kind]
    dataset = checked_name(name or study.name, _OPTION)
    tasks = {form.model + ending: dataset + ending for ending in form.endings}
    groups = groups_of_part(form.model, dataset, tasks)
    for task in (*tasks.values(), *groups.values()):
        refuse_taken(task, dataset, _COMMAND, _OPTION)
    about = _publication(folder, study, dataset, min_score, wording, balance)
    manifest, sheet = _prepare(about, allow_incomplete)
    for model, task in tasks.items():
        description = f"{form.about} of a study of your own, asked and scored as {model}"
        config = task_copy(model, task, dataset, description)
        config["metadata"].pop("checked_against", None)
        # Settings for Med-Flamingo's solved examples are left out: the examples show the paper's own images.
        settings = config[SETTINGS].items()
        config[SETTINGS] = {
            key: value for key, value in settings if "demonstrations" not in value
        }
        write_task_file(task, config, _COMMAND)
    for model, group in groups.items():
        description = f"{form.about} of a study of your own in their modes side by side, aggregated as {model}"
        write_task_file(group, group_copy(model, group, tasks, description), _COMMAND)
    return manifest, list(tasks.values()), list(groups.values()), sheet


def _publication(
    folder: Path,
    study: Study,
    name: str,
    min_score: int,
    wording: str | None,
    balance: bool,
) -> Publication:
    """Return the questions to publish, and the settings of their publication.

    Args:
        folder: Folder of the study.
        study: Description of the study.
        name: Name of the dataset.
        min_score: Least score of a question, from 1 to 10.
        wording: The reviewer whose words count if reviewers differ. None leaves out such drafts.
        balance: Whether to leave out the surplus of one label (hallucination studies).

    Raises:
        MedTasksError: No question can be published, another dataset has the name, or ``wording`` is no reviewer.
        SourceError: A draft is about an image or pair that the study does not list.
    """
    with contextlib.suppress(FileNotFoundError, SourceError):  # a damaged one may be replaced
        existing = Manifest.read(dataset_folder(name))
        is_this_study = existing.selected_from is None and study.digest == existing.revision
        if not is_this_study and existing.source != str(folder.resolve()):
            raise MedTasksError(
                f"there is a dataset '{name}' from {existing.source} already; choose another name with {_OPTION}, or "
                f"delete {dataset_folder(name)}"
            )
    drafts = read_drafts(folder)
    reviews = read_reviews(folder, study)
    if wording not in {None, *(review.reviewer for review in reviews)}:
        raise MedTasksError(
            f"'{wording}' has not reviewed '{study.name}'; --wording names a reviewer of it"
        )
    images = read_images(folder)
    _check_listed(folder, study, drafts, images)
    published, left_out = accept_drafts(drafts, reviews, min_score, wording)
    if balance and study.kind is not StudyKind.PAIRS:
        even, surplus = balance_answers(published)
        published = {item: draft for item, draft in published.items() if item in even}
        left_out += surplus
    about = Publication(
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
    if not published:
        raise MedTasksError(_why_nothing(about))
    return about


def _why_nothing(about: Publication) -> str:
    """Say why no draft can be published, and how to change that."""
    drafts = len(about.drafts)
    study = about.study
    if about.left_out.get(UNSCORED, 0) == drafts:
        todo = "make some with 'medtasks curate draft"
        if drafts:
            todo = "score them with 'medtasks curate review"
        return f"none of the {drafts} drafts of '{study.name}' has been scored; {todo} {about.folder}'"
    causes = Counter(about.left_out).most_common()
    why = ", ".join(f"{count} {cause}" for cause, count in causes)
    fix = "score more drafts, or lower --min-score"
    if study.kind is not StudyKind.PAIRS:
        fix += ", or add --no-balance"
    return f"nothing of '{study.name}' reaches {about.min_score} and can be published ({why}); {fix}"


def _check_listed(
    folder: Path,
    study: Study,
    drafts: Drafts,
    images: Mapping[str, StudyImage],
) -> None:
    """Raise SourceError if drafts are about images or pairs that the study does not list."""
    unlisted = {
        item for item, draft in drafts.items() if not images.keys() >= set(draft.images)
    }
    pairs = pairs_by_id(folder)
    if study.kind is StudyKind.PAIRS:
        unlisted |= drafts.keys() - pairs.keys()
    if unlisted:
        raise SourceError(
            f"{len(unlisted)} drafts of '{study.name}' are about images or pairs that {folder / IMAGES} and "
            f"{folder / PAIRS} do not list; bring these files back, or make the study again in another folder"
        )


def _prepare(about: Publication, allow_incomplete: bool) -> tuple[Manifest, Mapping[str, Any]]:
    """Prepare the dataset, write its datasheet next to it and into the study, and return manifest and datasheet."""
    study = about.study
    source = about.folder.resolve()
    sheet: dict[str, Any] = {}
    files: dict[str, str] = {}
    lost: list[str] = []

    def enclose(work: Path, manifest: Manifest) -> None:
        """Write the datasheet next to the dataset, of whose drafts those without a usable image are left out."""
        published = {item: draft for item, draft in about.published.items() if item not in lost}
        left_out = +Counter(
            {**about.left_out, "an image is missing, changed or broken": len(lost)}
        )
        outcome = replace(about, published=published, left_out=left_out)
        sheet.update(datasheet(outcome, manifest))
        files[DATASHEET] = json.dumps(sheet, indent=2) + "\n"
        files["datasheet.md"] = as_markdown(sheet)
        for file, text in files.items():
            (work / file).write_text(text, encoding="utf-8")

    recipe = SourceRecipe(
        columns=FORMS[study.kind].columns,
        test_rows=lambda _, store: _rows(about, store, lost),
        layout="a study",
        revision=lambda _: study.digest,
        decoding=LINEAR,
        enclose=enclose,
    )
    info = own_dataset_info(
        about.name, f"{study.kind}, from {source}", str(source), study.access
    )
    manifest = prepare_recipe(
        info, recipe, Options(about.folder, allow_incomplete=allow_incomplete)
    )
    for file, text in files.items():
        write_private(about.folder / file, text)
    return manifest, sheet


def _rows(about: Publication, store: ImageStore, lost: list[str]) -> Iterator[PublishedRow]:
    """Yield the documents in the order of the study's pairs or images.

    Args:
        about: The study, and how it is published.
        store: Store of the dataset's images.
        lost: List to which the ids of drafts are added that have an image which cannot be used.
    """
    pairs = pairs_by_id(about.folder)

    @functools.cache
    def store_image(image_id: str) -> StoredImage | str:
        try:
            return store.add_bytes(about.images[image_id].read())
        except UnreadableImage as error:
            # The message names the line, because the id may tell who a patient is.
            return f"the image in line {list(about.images).index(image_id) + 1} of {IMAGES} cannot be used: {error}"

    for draft in _in_order(about, pairs):
        images_or_causes = list(map(store_image, draft.images))
        images = [image for image in images_or_causes if isinstance(image, StoredImage)]
        if len(images) < len(draft.images):
            cause = next(image for image in images_or_causes if isinstance(image, str))
            lost.append(draft.item_id)
            yield PublishedRow("", cause=cause)
            continue
        for position, image in enumerate(images):
            facts = about.images[draft.images[position]]
            content = document(about.study, draft, position, facts, pairs.get(draft.item_id))
            yield PublishedRow(IMAGES, content, [image])


def _in_order(about: Publication, pairs: Iterable[str]) -> list[Draft]:
    """Sort drafts in the order of the study's pairs or images, and drafts of one image by the number in their ids."""
    of_pairs = about.study.kind is StudyKind.PAIRS
    ranks = {name: rank for rank, name in enumerate(pairs if of_pairs else about.images)}

    def order(draft: Draft) -> tuple[int, int, str]:
        number = draft.item_id.rpartition("/")[2]
        return ranks[draft.item_id if of_pairs else draft.images[0]], len(number), number

    return sorted(about.published.values(), key=order)


def document(
    study: Study,
    draft: Draft,
    position: int,
    image: StudyImage,
    pair: ImagePair | None,
) -> NewDocument:
    """Return the columns of one question but for dataset and image file.

    Args:
        study: The study, by whose kind the columns are chosen.
        draft: The reviewed draft.
        position: Position of the image in the draft, from 0.
        image: The image.
        pair: Pair of the draft; None if the study is not one of pairs.
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
        content = {**_closed_content(draft, answer), "source": study.name}
    elif columns is OPEN_QUESTION:
        content = {"answer": answer}
    else:
        content = {"report": answer}
        components = draft.components or {}
        for name in COMPONENTS:
            content[name] = list(components.get(name, ()))
    return new_document(
        columns,
        draft.item_id,
        image_id=image.image_id,
        patient_id=image.group,
        question=draft.question,
        **content,
    )


def _closed_content(draft: Draft, answer: str) -> dict[str, Any]:
    """Return the columns on the options and the answer of a closed question. Of options yes and no, Yes comes first.

    Args:
        draft: The reviewed draft.
        answer: Letter of its right option.
    """
    kind = MULTI_CHOICE
    options = draft.options
    choices = ", ".join(f"{letter(index)}. {text}" for index, text in enumerate(options))
    if is_yes_no(draft):
        kind = BINARY
        options = YES_NO
        choices = ""
    gold = draft.options[option_index(answer)]
    return {
        "kind": kind,
        "choices": choices,
        "options": list(options),
        "answer": letter(options.index(gold)),
        "gold": gold,
        "flags": [],
        "hallucination": draft.hallucination,
    }
