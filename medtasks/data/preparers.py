"""Which code prepares which dataset, and checking a prepared one."""

import importlib
from collections.abc import Iterator

from medtasks.data import mediconfusion
from medtasks.data.catalogue import GMAI, MEDHEVAL, MEDICONFUSION, dataset_info
from medtasks.data.home import dataset_folder
from medtasks.data.image_store import ImageFacts
from medtasks.data.manifest import FILE_NAME, Manifest, file_sha256, pixels_fingerprint, read_facts, text_fingerprint
from medtasks.data.parts import publish_part
from medtasks.data.preparation import Options, Recipe, prepare_recipe
from medtasks.data.prepared import prepared_folder
from medtasks.data.schema import image_digests, image_key
from medtasks.data.store import load_documents

_SHORT_MNIST = ["oct", "path", "blood", "breast", "derma", "organc", "organs", "pneumonia", "retina", "tissue"]
# Modules with RECIPES. A dataset of one in a package is called after the package: ``multimedeval_medqa``.
_MODULES = {
    "multimedeval.question_sets": ["medqa", "medmcqa", "pubmedqa", "mmlu", "mednli"],
    "multimedeval.mimic_iii": ["mimic_iii_summary", "mimic_iii_summary_head"],
    "multimedeval.visual_questions": ["vqa_rad", "path_vqa", "slake"],
    "multimedeval.medmnist": [f"{name}mnist" for name in _SHORT_MNIST],
    "multimedeval.pad_ufes": ["pad_ufes_20", "pad_ufes_20_disjoint"],
    "multimedeval.mammography": ["vindr_mammo", "cbis_ddsm_mass", "cbis_ddsm_calcification"],
    "multimedeval.chest_xrays": ["chestxray14", "mimic_cxr_classification", "diff_vqa"],
    "multimedeval.reports": ["mimic_cxr_report", "ct_rate_report"],
    "iu_xray": ["iu_xray_report"],
    "mmmu_pro": ["mmmu_pro_med_standard_10", "mmmu_pro_med_standard_4", "mmmu_pro_med_vision"],
    "medevalkit.pmc_vqa": ["pmc_vqa", "pmc_vqa_clean"],
    "medevalkit.omnimedvqa": ["omnimedvqa"],
    "medevalkit.vlmevalkit": ["omnimedvqa_vlmevalkit"],
    "medevalkit.medxpertqa": ["medxpertqa_mm", "medxpertqa_text"],
    "medevalkit.mmmu": ["mmmu_med_val", "mmmu_med_test"],
    "medevalkit.medframeqa": ["medframeqa"],
    "medevalkit.slake": ["slake"],
}


def recipe_of(name: str) -> Recipe:
    """Return the recipe of a dataset that is one of rows; only the module that reads it is imported."""
    for module, names in _MODULES.items():
        package = module.rpartition(".")[0]
        short = name.removeprefix(f"{package}_") if package else name
        if short in names:
            recipe: Recipe = importlib.import_module(f"medtasks.data.{module}").RECIPES[short]
            return recipe
    raise LookupError(f"no module reads '{name}'")


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
    if info.part_of is not None:
        _prepare_whole(info.part_of, options)
        return publish_part(info.part_of, info.selection, name)
    return prepare_recipe(info, recipe_of(name), options)


def _prepare_whole(name: str, options: Options) -> None:
    """Prepare the dataset of which a part is asked for, unless it is prepared, and from the source that is named."""
    folder = dataset_folder(name)
    if (folder / FILE_NAME).is_file():
        source = Manifest.read(folder).source
        if options.source is None or source == str(options.source.resolve()):
            return
    prepare(name, options)


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
