"""Which module reads which of MultiMedEval's datasets, and IU X-Ray; only that module is imported."""

import importlib

from medtasks.data.preparation import Recipe

_PACKAGE = "medtasks.data.multimedeval"
_MNIST = ["oct", "path", "blood", "breast", "derma", "organc", "organs", "pneumonia", "retina", "tissue"]
_MODULES = {
    "medqa": "question_sets",
    "medmcqa": "question_sets",
    "pubmedqa": "question_sets",
    "mmlu": "question_sets",
    "mednli": "mednli",
    "mimic_iii_summary": "mimic_iii",
    "mimic_iii_summary_head": "mimic_iii",
    "vqa_rad": "visual_questions",
    "path_vqa": "visual_questions",
    "slake": "slake",
    "diff_vqa": "diff_vqa",
    **{f"{name}mnist": "medmnist" for name in _MNIST},
    "pad_ufes_20": "pad_ufes",
    "pad_ufes_20_disjoint": "pad_ufes",
    "vindr_mammo": "vindr_mammo",
    "cbis_ddsm_mass": "cbis_ddsm",
    "cbis_ddsm_calcification": "cbis_ddsm",
    "mimic_cxr_classification": "mimic_cxr",
    "mimic_cxr_report": "mimic_cxr_report",
    "ct_rate_report": "ct_rate",
    "chestxray14": "chestxray14",
    "iu_xray_report": ".iu_xray",  # one package up
}


def recipe_of(name: str) -> Recipe:
    """Return the recipe of a dataset of the catalogue.

    Args:
        name: Catalogue name, ``"multimedeval_octmnist"``.
    """
    short = name.removeprefix("multimedeval_")
    module = importlib.import_module(f".{_MODULES[short]}", _PACKAGE)
    recipe: Recipe = module.RECIPES[short]
    return recipe
