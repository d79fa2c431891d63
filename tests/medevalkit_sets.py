"""Invented files in the layouts in which MedEvalKit's sets are published, and preparing them."""

from pathlib import Path

from medtasks.data.preparation import Options
from medtasks.data.preparers import prepare

FOLDERS = {
    "medevalkit_pmc_vqa": "PMC-VQA",
    "medevalkit_pmc_vqa_clean": "PMC-VQA",
    "medevalkit_omnimedvqa": "OmniMedVQA",
    "medevalkit_medxpertqa_mm": "MedXpertQA",
    "medevalkit_medxpertqa_text": "MedXpertQA",
    "medevalkit_mmmu_med_val": "MMMU",
    "medevalkit_mmmu_med_test": "MMMU",
    "medevalkit_medframeqa": "MedFrameQA",
    "medevalkit_slake": "SLAKE",
    "medevalkit_slake_en": "SLAKE",
    "multimedeval_vqa_rad": "vqa-rad",
    "multimedeval_path_vqa": "path-vqa",
}


def prepare_all(test_data: Path) -> None:
    """Prepare every set from the folder of published benchmark files."""
    for name, folder in FOLDERS.items():
        prepare(name, Options(test_data / "medevalkit" / folder, allow_incomplete=True))
