"""Parts of prepared datasets: documents of their own, images that stay with the whole."""

from tqdm import tqdm

from medtasks.data.manifest import Manifest, measured, read_facts
from medtasks.data.own_datasets import access_of, preparing_again
from medtasks.data.prepared import prepared_folder
from medtasks.data.schema import SPLIT, image_digests, image_key
from medtasks.data.selecting import Criteria, choose
from medtasks.data.store import load_documents, open_documents, publish_documents, work_folder
from medtasks.errors import SourceError


def publish_part(dataset: str, criteria: Criteria, name: str) -> Manifest:
    """Make the documents of a prepared dataset that fit a dataset of their own, called ``name``.

    ``criteria`` are wanted values by column; errors are those of :func:`medtasks.data.selecting.choose`, and another
    MedTasksError that an image is broken or nothing can be written.
    """
    folder = prepared_folder(dataset)
    whole = Manifest.read(folder)
    documents = choose(load_documents(dataset), criteria)
    files = sorted({file for document in documents for file in image_digests(document)})
    facts = {}
    for file in tqdm(files, desc="Fingerprint of the images", unit="image", leave=False, disable=None):
        try:
            facts[image_key(file)] = read_facts(folder / file, whole.decoding)
        except OSError as error:
            raise SourceError(
                f"{folder / file} is broken ({error}); prepare the dataset again: {preparing_again(dataset)}"
            ) from error
    manifest = whole.model_copy(
        update={
            "name": name,
            **measured(documents, facts),
            "selected_from": dataset,
            "selection": {column: tuple(values) for column, values in criteria.items() if values},
        }
    )
    with work_folder(name, access_of(dataset)) as work:
        publish_documents(work, manifest, {SPLIT: documents}, open_documents(dataset)[SPLIT].features)
    return manifest
