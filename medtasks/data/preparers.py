"""Which code prepares which dataset, and checking a prepared one."""

from collections.abc import Iterator

from medtasks.data import mediconfusion
from medtasks.data.catalogue import MEDICONFUSION, dataset_info
from medtasks.data.gmai.catalogue import GMAI
from medtasks.data.image_store import ImageFacts
from medtasks.data.manifest import Manifest, file_sha256, pixels_fingerprint, read_facts, text_fingerprint
from medtasks.data.medheval.catalogue import MEDHEVAL
from medtasks.data.path_of import prepared_folder
from medtasks.data.preparation import Options, prepare_recipe
from medtasks.data.schema import image_digests, image_key
from medtasks.data.store import load_documents


def prepare(name: str, options: Options) -> Manifest:
    """Prepare dataset ``name``.

    Raises:
        UnknownName: There is no such dataset.
        MedTasksError: The source or the disk does not allow it.
    """
    info = dataset_info(name)
    if info is MEDICONFUSION:
        return mediconfusion.prepare(options)
    if info in MEDHEVAL:
        from medtasks.data.medheval.preparing import prepare as prepare_medheval

        return prepare_medheval(info, options)
    if info in GMAI:
        from medtasks.data.gmai.preparing import prepare as prepare_gmai

        return prepare_gmai(info, options)
    from medtasks.data.multimedeval.recipes import recipe_of

    return prepare_recipe(info, recipe_of(name), options)


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
    wanted = {file: digest for document in documents for file, digest in image_digests(document).items()}
    images = prepared_folder(manifest.selected_from) if manifest.selected_from else folder
    found: dict[str, ImageFacts] = {}
    for file, digest in wanted.items():
        path = images / file
        try:
            if file_sha256(path) != digest:
                yield f"{path} has changed since it was prepared"
            found[image_key(file)] = read_facts(path, manifest.decoding)
        except FileNotFoundError:
            yield f"{path} is missing"
        except OSError as error:
            yield f"{path} is broken ({error})"
    if len(found) == len(wanted) and pixels_fingerprint(found) != manifest.pixels_sha256:
        yield f"the images of {folder} decode to other pixels than when they were prepared"
