"""Which code prepares which dataset, and checking a prepared one."""

import importlib
from collections.abc import Iterator

from medtasks.data import mediconfusion
from medtasks.data.catalogue import GMAI, MEDHEVAL, MEDICONFUSION, dataset_info
from medtasks.data.image_store import ImageFacts
from medtasks.data.manifest import Manifest, file_sha256, pixels_fingerprint, read_facts, text_fingerprint
from medtasks.data.preparation import Options, Recipe, prepare_recipe
from medtasks.data.prepared import prepared_folder
from medtasks.data.schema import image_digests, image_key
from medtasks.data.store import load_documents

_SHORT_MNIST = ["oct", "path", "blood", "breast", "derma", "organc", "organs", "pneumonia", "retina", "tissue"]
_MODULES = {
    "question_sets": ["medqa", "medmcqa", "pubmedqa", "mmlu", "mednli"],
    "mimic_iii": ["mimic_iii_summary", "mimic_iii_summary_head"],
    "visual_questions": ["vqa_rad", "path_vqa", "slake"],
    "medmnist": [f"{name}mnist" for name in _SHORT_MNIST],
    "pad_ufes": ["pad_ufes_20", "pad_ufes_20_disjoint"],
    "mammography": ["vindr_mammo", "cbis_ddsm_mass", "cbis_ddsm_calcification"],
    "chest_xrays": ["chestxray14", "mimic_cxr_classification", "diff_vqa"],
    "reports": ["mimic_cxr_report", "ct_rate_report"],
    ".iu_xray": ["iu_xray_report"],  # one package up
}


def recipe_of(name: str) -> Recipe:
    """Return the recipe of one of MultiMedEval's datasets or of IU X-Ray; only the module that reads it is imported."""
    short = name.removeprefix("multimedeval_")
    module = next(module for module, names in _MODULES.items() if short in names)
    recipe: Recipe = importlib.import_module(f".{module}", "medtasks.data.multimedeval").RECIPES[short]
    return recipe


def prepare(name: str, options: Options) -> Manifest:
    """Prepare dataset ``name``; UnknownName where there is none, MedTasksError where source or disk do not allow it."""
    info = dataset_info(name)
    if info is MEDICONFUSION:
        return mediconfusion.prepare(options)
    if info in MEDHEVAL:
        from medtasks.data.medheval.preparing import prepare as prepare_medheval

        return prepare_medheval(info, options)
    if info in GMAI:
        from medtasks.data.gmai.preparing import prepare as prepare_gmai

        return prepare_gmai(info, options)
    return prepare_recipe(info, recipe_of(name), options)


def verify(name: str) -> Iterator[str]:
    """Read a prepared dataset completely and yield one sentence for each thing that is not as its manifest says."""
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
