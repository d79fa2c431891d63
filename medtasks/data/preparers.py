"""Which code prepares which dataset, and checking a prepared one."""

from collections.abc import Iterator
from pathlib import Path

from medtasks.data import mediconfusion
from medtasks.data.catalogue import dataset_info
from medtasks.data.manifest import Manifest, file_sha256, pixel_sha256, pixels_fingerprint, text_fingerprint
from medtasks.data.path_of import prepared_folder
from medtasks.data.store import load_documents

PREPARERS = {"mediconfusion": mediconfusion.prepare}


def prepare(name: str, options: mediconfusion.Options) -> Manifest:
    """Prepare dataset ``name``.

    Raises:
        UnknownName: There is no such dataset.
        MedTasksError: The source or the disk does not allow it.
    """
    return PREPARERS[dataset_info(name).name](options)


def verify(name: str) -> Iterator[str]:
    """Read a prepared dataset completely and yield one sentence for each thing that is not as its manifest says.

    Raises:
        DatasetNotPrepared: It has not been prepared under ``MEDTASKS_HOME``.
    """
    folder = prepared_folder(name)
    manifest = Manifest.read(folder)
    documents = load_documents(name)
    if len(documents) != manifest.rows:
        yield f"{folder} holds {len(documents)} documents, its manifest says {manifest.rows}"
    if text_fingerprint(documents) != manifest.text_sha256:
        yield f"the text of {folder} has changed since it was prepared"
    digests: dict[str, str] = {}
    for document in {document["image_id"]: document for document in documents}.values():
        path: Path = folder / document["image_file"]
        try:
            if file_sha256(path) != document["image_sha256"]:
                yield f"{path} has changed since it was prepared"
            digests[document["image_id"]] = pixel_sha256(path)
        except FileNotFoundError:
            yield f"{path} is missing"
        except OSError as error:
            yield f"{path} is broken ({error})"
    if len(digests) == manifest.images and pixels_fingerprint(digests) != manifest.pixels_sha256:
        yield f"the images of {folder} decode to other pixels than when they were prepared"
