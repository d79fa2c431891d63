"""Preparing a dataset by name, a part of a prepared one, and checking a prepared one.

``medtasks data prepare``, ``select`` and ``verify`` call this module. It imports only the source that it prepares.
"""

import enum
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from huggingface_hub import get_token
from tqdm import tqdm

from medtasks.data.catalogue import CATALOGUE, Access, DatasetInfo, dataset_info
from medtasks.data.dataset_lookup import prepared_folder, preparing_again
from medtasks.data.dataset_manifest import (
    FILE_NAME,
    Manifest,
    measure_documents,
    pixels_fingerprint,
    text_fingerprint,
)
from medtasks.data.document_store import load_documents, open_documents, publish, work_folder
from medtasks.data.drawing import DrawRequest, draw_documents
from medtasks.data.images.image_store import read_facts
from medtasks.data.images.volume_files import volume_digests
from medtasks.data.named_files import file_sha256
from medtasks.data.prepare.downloads import hub_download, hub_revision
from medtasks.data.prepare.physionet import PhysioNet
from medtasks.data.prepare.source_recipe import Options, SourceRecipe, prepare_recipe
from medtasks.data.privacy import access_of
from medtasks.data.samples import Documents
from medtasks.data.schema import SPLIT, drawn_schema, image_digests, image_key
from medtasks.data.selecting import Criteria, choose
from medtasks.errors import SourceError
from medtasks.home import dataset_folder

_DEFAULTS = Options()


class Obtaining(enum.StrEnum):
    """Way to the files of a dataset that is not prepared."""

    DOWNLOAD = "download"
    LOGIN = "download with a PhysioNet login"
    TERMS = "accept its terms, then: hf auth login"
    COPY = "your copy, with --source"


def recipe_of(name: str, options: Options = _DEFAULTS) -> SourceRecipe:
    """Return the recipe of a dataset of the catalogue. Only the module that reads it is imported.

    Args:
        name: In the catalogue, and no part of another dataset. Of a part, ask for the whole one.
        options: With a ``login``, a source at PhysioNet is downloaded with it. Other sources ignore the login.
    """
    info = CATALOGUE[name]
    # Datasets of a package are called after it: ``multimedeval_medqa``.
    key = name.removeprefix(f"{info.reader.rpartition('.')[0]}_")
    entry = importlib.import_module(f"medtasks.data.sources.{info.reader}").RECIPES[key]
    # Some recipes depend on the options.
    recipe: SourceRecipe = entry if isinstance(entry, SourceRecipe) else entry(options)
    if options.login and recipe.login_download:
        return replace(
            recipe, download=partial(recipe.login_download, PhysioNet(options.login))
        )
    if not recipe.hub_files:
        return recipe
    return replace(
        recipe,
        download=partial(hub_download, info, recipe.hub_files),
        revision=partial(hub_revision, info),
    )


def obtaining(info: DatasetInfo) -> Obtaining:
    """Return the way to the files of a dataset. A user's own is made of a copy.

    Example:
        >>> obtaining(CATALOGUE["multimedeval_mimic_cxr_classification"])
        <Obtaining.LOGIN: 'download with a PhysioNet login'>
    """
    if info.name not in CATALOGUE:
        return Obtaining.COPY
    recipe = recipe_of(info.part_of or info.name)
    if recipe.login_download:
        return Obtaining.LOGIN
    if recipe.download is None:
        return Obtaining.COPY
    if info.access is Access.GATED and get_token() is None:
        return Obtaining.TERMS
    return Obtaining.DOWNLOAD


def copy_arguments(info: DatasetInfo) -> Sequence[str]:
    """Return the options with which a dataset is prepared from a copy, with words in capitals to fill in.

    Example:
        >>> copy_arguments(CATALOGUE["medheval_visual_mm"])
        ['--source CLONE', '--images slake=DIR', '--images vqa_rad=DIR']
    """
    if info.name not in CATALOGUE:
        return ()
    return recipe_of(info.part_of or info.name).arguments


def prepare(name: str, options: Options) -> Manifest:
    """Prepare a dataset.

    Args:
        name: In the catalogue, or of a user's own.
        options: Settings. A part is made anew of the whole one unless this was prepared from the same source.

    Raises:
        UnknownName: There is no such dataset.
        MedTasksError: The source or the disk do not allow it.
    """
    info = dataset_info(name)
    if info.part_of is None:
        return prepare_recipe(info, recipe_of(name, options), options)
    whole = dataset_folder(info.part_of)
    source = Manifest.read(whole).source if (whole / FILE_NAME).is_file() else None
    if source is None or (
        options.source is not None and source != str(options.source.resolve())
    ):
        prepare(info.part_of, options)
    return publish_part(info.part_of, info.selection, name)


def publish_part(
    dataset: str,
    criteria: Criteria,
    name: str,
    request: DrawRequest | None = None,
) -> Manifest:
    """Make the documents of a prepared dataset that fit, or a random draw of them, a dataset of their own.

    Args:
        dataset: The prepared one.
        criteria: Values by column.
        name: Of the new dataset.
        request: What to draw, in place of choosing by ``criteria``. None chooses.

    Raises:
        SourceError: An image is broken.
        MedTasksError: Nothing can be written. Further errors are those of
            :func:`medtasks.data.selecting.choose` and :func:`medtasks.data.drawing.draw_documents`.
    """
    folder = prepared_folder(dataset)
    whole = Manifest.read(folder)
    documents: Documents = load_documents(dataset)
    schema = open_documents(dataset)[SPLIT].features.arrow_schema
    draw = None
    if request is None:
        documents = choose(documents, criteria)
    else:
        documents, draw = draw_documents(documents, request)
        schema = drawn_schema(schema)
    files = sorted(set().union(*map(image_digests, documents)))
    facts = {}
    for file in tqdm(
        files, "Fingerprint of the images", unit="image", leave=False, disable=None
    ):
        try:
            facts[image_key(file)] = read_facts(folder / file, whole.decoding)
        except OSError as error:
            raise SourceError(
                f"{folder / file} is broken ({error}); prepare the dataset again: {preparing_again(dataset)}"
            ) from error
    changes = {
        "name": name,
        **measure_documents(documents, facts),
        "selected_from": dataset,
        "selection": {column: tuple(values) for column, values in criteria.items() if values},
        "draw": draw,
    }
    manifest = whole.model_copy(update=changes)
    with work_folder(name, access_of(dataset)) as work:
        publish(work, manifest, documents, schema)
    return manifest


def verify(name: str) -> Iterator[str]:
    """Read a prepared dataset completely.

    Args:
        name: Of the dataset.

    Yields:
        One sentence for each difference from its manifest.
    """
    folder = prepared_folder(name)
    manifest = Manifest.read(folder)
    open_documents(name)  # as the harness does, which reads more files than the next line
    documents = load_documents(name)
    if len(documents) != manifest.rows:
        yield f"{folder} holds {len(documents)} documents, its manifest says {manifest.rows}"
    if text_fingerprint(documents) != manifest.text_sha256:
        yield f"the text of {folder} has changed since it was prepared"
    digests: dict[str, str] = {}
    for document in documents:
        digests |= image_digests(document)
    images = prepared_folder(manifest.selected_from) if manifest.selected_from else folder
    facts = {}
    for file, digest in digests.items():
        path = images / file
        try:
            stored = volume_digests(path).file if path.is_dir() else file_sha256(path)
            if stored != digest:
                yield f"{path} has changed since it was prepared"
            facts[image_key(file)] = read_facts(path, manifest.decoding)
        except FileNotFoundError:
            yield f"{path} is missing"
        except OSError as error:
            yield f"{path} is broken ({error})"
    if len(facts) < len(digests):
        return
    if pixels_fingerprint(facts) != manifest.pixels_sha256:
        yield f"the images of {folder} decode to other pixels than when they were prepared"
