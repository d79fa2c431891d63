"""From reviewed drafts to a prepared dataset and tasks of the harness that run like those of the papers.

Publishing a study again replaces what it was published as before; the dataset's fingerprint tells the two apart.
"""

import functools
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medtasks.curate.acceptance import UNSCORED, accepted
from medtasks.curate.balance import balanced
from medtasks.curate.datasheet import MARKDOWN, Publication, Settings, as_markdown, datasheet
from medtasks.curate.drafts import Draft, read_drafts
from medtasks.curate.reviews import read_reviews
from medtasks.curate.study import (
    IMAGES,
    PAIRS,
    Study,
    StudyImage,
    StudyKind,
    checked_name,
    read_images,
    read_pairs,
    read_study,
    write_private,
)
from medtasks.curate.study_documents import FORMS, document
from medtasks.data.decoding import LINEAR
from medtasks.data.home import dataset_folder
from medtasks.data.image_store import ImageStore, StoredImage
from medtasks.data.manifest import Manifest
from medtasks.data.own_datasets import DATASHEET, own_dataset_info
from medtasks.data.preparation import Options, Recipe, Row, prepare_recipe
from medtasks.data.strict_pillow import UnreadableImage
from medtasks.errors import MedTasksError, SourceError
from medtasks.tasks.task_copies import group_copy, refuse_taken, task_copy, write_task_file
from medtasks.tasks.task_index import SETTINGS

_NO_IMAGE = "an image is missing, changed or broken"
_COMMAND, _OPTION = "medtasks curate publish", "--as"


@dataclass(frozen=True)
class Published:
    """What became of a study."""

    manifest: Manifest
    tasks: tuple[str, ...]
    groups: tuple[str, ...]
    sheet: Mapping[str, Any]  # see :func:`medtasks.curate.datasheet.datasheet`


def publish_study(
    folder: Path,
    min_score: int,
    *,
    name: str | None = None,
    wording: str | None = None,
    balance: bool = True,
    allow_incomplete: bool = False,
) -> Published:
    """Make the drafts whose questions all reach a score (1 to 10) a dataset and tasks, named after the study.

    ``wording`` is the reviewer whose words count where reviewers differ, ``balance`` leaves out what one label has too
    much of (hallucination studies). A MedTasksError says that nothing is reviewed or good enough, that the name is
    taken, that a review is of another study, or that an image has changed.
    """
    study = read_study(folder)
    chosen, form = checked_name(name or study.name, _OPTION), FORMS[study.kind]
    tasks = {chosen + ending: model for ending, model in form.tasks.items()}
    groups = {f"{chosen}_all": form.group} if form.group else {}
    for one in (*tasks, *groups):
        refuse_taken(one, chosen, _COMMAND, _OPTION)
    _refuse_other_data(chosen, folder, study)
    about = _reviewed(folder, study, Settings(chosen, min_score, wording, balance))
    manifest, sheet = _prepare(folder, study, about, allow_incomplete)
    for one, model in tasks.items():
        write_task_file(one, _task(model, one, chosen, form.about), _COMMAND)
    for one, model in groups.items():
        description = f"{form.about} of a study of your own in their modes side by side, aggregated as {model}"
        write_task_file(
            one, group_copy(model, one, [chosen + ending for ending in form.grouped], description), _COMMAND
        )
    return Published(manifest, tuple(tasks), tuple(groups), sheet)


def _task(model: str, name: str, dataset: str, about: str) -> dict[str, Any]:
    """Return what a task of a study says: what its model does, but nothing of the paper's own questions and images."""
    config = task_copy(model, name, dataset, f"{about} of a study of your own, asked and scored as {model}")
    metadata = {key: value for key, value in config["metadata"].items() if key != "checked_against"}
    # The images of Med-Flamingo's solved examples come with the paper's questions.
    settings = {family: own for family, own in config[SETTINGS].items() if "demonstrations" not in own}
    return {**config, "metadata": metadata, SETTINGS: settings}


def _refuse_other_data(name: str, folder: Path, study: Study) -> None:
    """Refuse the name of another dataset of the user's; a damaged one may be replaced."""
    try:
        there = Manifest.read(dataset_folder(name))
    except (FileNotFoundError, SourceError):
        return
    own = there.selected_from is None and study.digest == there.revision
    if not own and there.source != str(folder.resolve()):
        raise MedTasksError(
            f"there is a dataset '{name}' from {there.source} already; choose another name with {_OPTION}, or delete "
            f"{dataset_folder(name)}"
        )


def _reviewed(folder: Path, study: Study, settings: Settings) -> Publication:
    """Return what is published of a study; a MedTasksError says why that is nothing."""
    drafts, reviews = read_drafts(folder), read_reviews(folder, study)
    if settings.wording is not None and settings.wording not in {review.reviewer for review in reviews}:
        raise MedTasksError(f"'{settings.wording}' has not reviewed '{study.name}'; --wording names a reviewer of it")
    _check_images(folder, study, drafts)
    kept, left_out = accepted(drafts, reviews, settings.min_score, settings.wording)
    if left_out[UNSCORED] == len(drafts):
        todo = "score them with 'medtasks curate review" if drafts else "make some with 'medtasks curate draft"
        raise MedTasksError(f"none of the {len(drafts)} drafts of '{study.name}' has been scored; {todo} {folder}'")
    if kept and settings.balance and study.kind is not StudyKind.PAIRS:
        even, surplus = balanced(kept)
        kept = {item: draft for item, draft in kept.items() if item in even}
        left_out += surplus
    if not kept:
        why = ", ".join(f"{count} {cause}" for cause, count in left_out.most_common())
        raise MedTasksError(
            f"nothing of '{study.name}' reaches {settings.min_score} and can be published ({why}); score more drafts, "
            f"or lower --min-score" + (", or add --no-balance" if study.kind is not StudyKind.PAIRS else "")
        )
    return Publication(settings, kept, left_out, drafts, reviews)


def _check_images(folder: Path, study: Study, drafts: Mapping[str, Draft]) -> None:
    images, pairs = read_images(folder).keys(), {pair.pair_id for pair in read_pairs(folder)}
    lost = [
        draft
        for draft in drafts.values()
        if not images >= set(draft.images) or (study.kind is StudyKind.PAIRS and draft.item_id not in pairs)
    ]
    if lost:
        raise SourceError(
            f"{len(lost)} drafts of '{study.name}' are about images or pairs that {folder / IMAGES} and "
            f"{folder / PAIRS} do not list; bring these files back, or make the study again in another folder"
        )


def _prepare(
    folder: Path, study: Study, about: Publication, allow_incomplete: bool
) -> tuple[Manifest, Mapping[str, Any]]:
    sheets: list[Mapping[str, Any]] = []
    lost: list[str] = []
    known = read_images(folder)

    def enclose(work: Path, manifest: Manifest) -> None:
        kept = {item: draft for item, draft in about.kept.items() if item not in lost}
        left_out = Counter({**about.left_out, _NO_IMAGE: len(lost)})
        sheets.append(datasheet(folder, study, replace(about, kept=kept, left_out=+left_out), manifest, known))
        for file, text in _files(sheets[-1]).items():
            (work / file).write_text(text, encoding="utf-8")

    recipe = Recipe(
        columns=FORMS[study.kind].columns,
        test=lambda _, images: _rows(folder, study, about.kept, known, images, lost),
        layout="a study",
        revision=lambda _: study.digest,
        decoding=LINEAR,
        enclose=enclose,
    )
    info = own_dataset_info(about.settings.name, folder.resolve(), study.access, study.kind)
    manifest = prepare_recipe(info, recipe, Options(folder, allow_incomplete=allow_incomplete))
    for file, text in _files(sheets[-1]).items():
        write_private(folder / file, text)
    return manifest, sheets[-1]


def _files(sheet: Mapping[str, Any]) -> dict[str, str]:
    return {DATASHEET: json.dumps(sheet, indent=2) + "\n", MARKDOWN: as_markdown(sheet)}


def _rows(
    folder: Path,
    study: Study,
    kept: Mapping[str, Draft],
    known: Mapping[str, StudyImage],
    images: ImageStore,
    lost: list[str],
) -> Iterator[Row]:
    """Yield the documents in the order of the study's pairs or images, whatever order they were drafted in.

    What cannot be shown is added to ``lost``.
    """
    pairs = {pair.pair_id: pair for pair in read_pairs(folder)}
    lines = {image_id: line for line, image_id in enumerate(known, 1)}
    places = {name: place for place, name in enumerate(pairs if study.kind is StudyKind.PAIRS else known)}

    @functools.cache
    def stored(image_id: str) -> StoredImage | str:
        found = _stored(known[image_id], images)
        # By its line: an id may tell who a patient is.
        return f"the image in line {lines[image_id]} of {IMAGES} {found}" if isinstance(found, str) else found

    def place(draft: Draft) -> tuple[int, int, str]:
        number = draft.item_id.rpartition("/")[2]
        return places[draft.item_id if study.kind is StudyKind.PAIRS else draft.images[0]], len(number), number

    for draft in sorted(kept.values(), key=place):
        shown = [stored(image_id) for image_id in draft.images]
        causes = [one for one in shown if isinstance(one, str)]
        if causes:
            lost.append(draft.item_id)
            yield Row("", None, cause=causes[0])
            continue
        for position, image in enumerate(one for one in shown if isinstance(one, StoredImage)):
            about = known[draft.images[position]]
            yield Row(IMAGES, document(study, draft, position, about, pairs.get(draft.item_id)), [image])


def _stored(image: StudyImage, images: ImageStore) -> StoredImage | str:
    """Store an image of a study; return why it cannot be used, without its name, if it cannot."""
    try:
        data = Path(image.file).read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if hashlib.sha256(data).hexdigest() != image.sha256:
        return "has changed since the study was made"
    try:
        return images.add_bytes(data)
    except UnreadableImage as error:
        return f"is broken ({error})"
